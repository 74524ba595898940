"""The mechanics of the world, with nodes that do what a test tells them: clocks, cuts, crashes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from plait.broker.effects import (
    CloseLink,
    Effect,
    OpenLink,
    RecordHistory,
    RememberSeats,
    SendMessage,
    SetTimer,
)
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    TimerFired,
)
from plait.broker.limits import Limits
from plait.broker.messages import GoodbyeCode, Heartbeat, HostPlace, Message, Progress, Seating
from plait.broker.sim.cuts import Cut
from plait.broker.sim.doors import ClientDoor, HostDoor
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.nodes import DiskState, Node
from plait.broker.sim.world import World
from plait.routing.ids import NodeId

A, B, C = (NodeId(name) for name in "abc")
DELAY_S = 0.01


def number_message(number: int) -> Message:
    return Progress(received=number, sent=0, forgotten=0)


Answer = Callable[[Any], list[Effect]]


class Echo(HostDoor):
    """Does what it is told to, and remembers what has happened to it, and when by its clock."""

    def __init__(self, name: NodeId = A, incarnation: int = 1, remembered: Any = None) -> None:
        self.name = name
        self.life = incarnation
        self.remembered = remembered
        self.begins: list[Effect] = []
        self.told: list[tuple[float, Input]] = []
        self.answers: dict[type[Input], Answer] = {}

    @property
    def incarnation(self) -> int:
        return self.life

    @property
    def brokers(self) -> Sequence[NodeId]:
        return (self.name,)

    def start(self, now: float) -> list[Effect]:
        self.started_at = now
        return self.begins

    def step(self, now: float, happened: Input) -> list[Effect]:
        self.told.append((now, happened))
        answer = self.answers.get(type(happened))
        return [] if answer is None else answer(happened)

    @property
    def received(self) -> list[int]:
        """The numbers that have come."""
        return [number for read in self.reads for number in read]

    @property
    def reads(self) -> list[list[int]]:
        return [
            [message.received for message in happened.messages if isinstance(message, Progress)]
            for _, happened in self.told
            if isinstance(happened, MessagesReceived)
        ]

    def times(self, kind: type[Input]) -> list[float]:
        return [now for now, happened in self.told if isinstance(happened, kind)]

    @property
    def links(self) -> list[LinkId]:
        return [happened.link for _, happened in self.told if isinstance(happened, LinkOpened)]

    def says(self, *numbers: int) -> list[Effect]:
        """What sends these over its first link."""
        return [SendMessage((self.links[0],), number_message(number)) for number in numbers]


class EchoCores(HostCores):
    """Hosts that echo."""

    def host(
        self,
        name: NodeId,
        incarnation: int,
        *,
        address: str,
        remembered: Any,
        entropy: bytes,
        limits: Limits,
        settings: Mapping[str, Any],
    ) -> tuple[Any, HostDoor]:
        echo = Echo(name, incarnation, remembered)
        return echo, echo

    def client(
        self, name: NodeId, incarnation: int, *, brokers: Sequence[NodeId], limits: Limits
    ) -> tuple[Any, ClientDoor]:
        raise NotImplementedError

    def unresolved(self, nodes: Collection[Node]) -> list[NodeId]:
        return [node.name for node in nodes if not node.is_alive]


def a_world(seed: int = 0, **settings: Any) -> World:
    plain: dict[str, Any] = {"delay_s": (DELAY_S, DELAY_S), "jitter": 0.0, "cores": EchoCores()}
    return World(seed, **plain | settings)


def does(world: World, name: NodeId, *effects: Effect) -> None:
    """Let a node do this now."""
    world._carry_out(world.at_address(name), list(effects))


def a_pair(world: World) -> tuple[Echo, Echo]:
    """Two nodes that are connected, for as long as the world is well."""
    one, other = Echo(A), Echo(B)
    world.add_host(B, other)
    one.begins = [OpenLink(B)]
    world.add_host(A, one)
    world.run(until=1.0)
    assert len(one.links) == len(other.links) == 1
    return one, other


# --- clocks ---------------------------------------------------------------------------------------


def test_a_clock_that_drifts_runs_at_one_rate_and_everything_a_node_is_told_is_by_it() -> None:
    world, rates = a_world(3, drift=0.1), []
    for number in range(20):
        echo = Echo(NodeId(f"e{number}"))
        node = world.add_host(echo.name, echo)
        does(world, echo.name, SetTimer(echo.started_at + 10))
        world.run(until=world.now + 20)
        [fired] = echo.times(TimerFired)
        assert fired - echo.started_at >= 10
        rates.append((world.time_of(node) - echo.started_at) / 20)

    assert all(0.9 <= rate <= 1.1 for rate in rates)
    assert max(rates) - min(rates) > 0.1


def test_a_timer_is_in_the_time_of_its_clock_and_the_history_in_that_of_the_world() -> None:
    world = a_world(5, drift=0.1)
    echo = Echo()
    node = world.add_host(A, echo)
    echo.answers[TimerFired] = lambda _: [RecordHistory("joined", _JOINED)]
    does(world, A, SetTimer(echo.started_at + 10))
    world.run(until=20)

    [record] = world.records()
    rate = (world.time_of(node) - echo.started_at) / 20
    assert echo.times(TimerFired) == [pytest.approx(echo.started_at + 10)]
    assert record["at"] == pytest.approx(10 / rate)


def test_a_clock_that_jumps_makes_due_what_lies_in_between() -> None:
    world = a_world()
    echo = Echo()
    node = world.add_host(A, echo)
    does(world, A, SetTimer(10.0))
    world.run(until=2)
    world.jump(A, 9.0)
    world.run(until=3)

    assert echo.times(TimerFired) == [11.0]
    assert world.time_of(node) == 12.0


def test_a_machine_that_is_paused_does_not_notice() -> None:
    world = a_world()
    one, other = a_pair(world)
    node = world.nodes[A]
    does(world, A, SetTimer(2.0))
    world.pause(A, 5.0)
    for number in (1, 2, 3):
        does(world, B, *other.says(number))
    world.run(until=5.5)
    assert one.received == []
    assert world.time_of(node) == 1.0

    world.run(until=8)
    assert one.reads == [[1, 2, 3]]  # as one read
    assert one.times(MessagesReceived) == [1.0]
    assert one.times(TimerFired) == [2.0]
    assert one.times(LinkClosed) == []
    assert world.records() == []


def test_an_application_waits_as_long_as_its_machine_is_paused() -> None:
    world, done = a_world(), list[float]()
    node = world.add_host(A, Echo())
    world.pause(A, 3.0)
    world.act(node, lambda: done.append(world.now))
    world.run(until=5)
    assert done == [3.0]

    world.crash(A)
    world.act(node, done.append, 0.0)
    assert done == [3.0]


def test_what_is_killed_while_it_is_paused_is_dead_and_its_clock_goes_on() -> None:
    world = a_world()
    node = world.add_broker(A, None)
    world.pause(A, 3.0)
    world.run(until=1.0)
    world.crash(A)
    world.run(until=5.0)
    again = world.restart(A)

    assert node.stopped == "crashed"
    assert again is not None
    assert world.time_of(again) == 4.0


# --- cuts -----------------------------------------------------------------------------------------


def test_what_is_sent_through_a_cut_waits_and_arrives_in_order() -> None:
    world = a_world()
    one, other = a_pair(world)
    cut = Cut(one=A, other=B, incoming=False)
    world.cut(cut)
    does(world, A, *one.says(1, 2))
    does(world, B, *other.says(7))
    world.run(until=10)
    assert (one.received, other.received) == ([7], [])
    assert world.vulnerable() == 1

    world.heal(cut)
    does(world, A, *one.says(3))
    world.run(until=11)
    assert other.received == [1, 2, 3]
    assert world.vulnerable() == 0


def test_what_is_on_its_way_when_a_link_is_cut_waits_as_well() -> None:
    world = a_world()
    one, other = a_pair(world)
    does(world, A, *one.says(1))
    world.cut(Cut(one=B))
    world.run(until=3)

    assert other.received == []


def test_who_dials_through_a_cut_hears_nothing_for_as_long_as_it_waits() -> None:
    for cut in (Cut(one=A), Cut(one=B, outgoing=False), Cut(one=A, other=B, incoming=False)):
        world = a_world()
        echo = Echo()
        world.add_host(A, echo)
        world.add_host(B, Echo(B))
        world.cut(cut)
        does(world, A, OpenLink(B))
        world.run(until=10)

        [(now, failed)] = echo.told
        assert failed == LinkFailed(B, "no answer within 3 s", is_refused=False)
        assert now == pytest.approx(world.limits.dial_timeout_s)


def test_who_dials_through_a_cut_that_heals_in_time_is_connected() -> None:
    world = a_world()
    echo, cut = Echo(), Cut(one=A)
    world.add_host(A, echo)
    world.add_host(B, Echo(B))
    world.cut(cut)
    does(world, A, OpenLink(B))
    world.run(until=1.5)
    world.heal(cut)
    world.run(until=10)

    assert len(echo.links) == 1


def test_a_host_that_is_dead_refuses_at_once_unless_it_is_cut_off() -> None:
    world = a_world()
    echo = Echo()
    world.add_host(A, echo)
    world.add_host(B, Echo(B))
    world.crash(B)
    does(world, A, OpenLink(B))
    world.run(until=1)
    world.cut(Cut(one=B))
    does(world, A, OpenLink(B))
    world.run(until=10)

    assert [failed for _, failed in echo.told] == [
        LinkFailed(B, "connection refused", is_refused=True),
        LinkFailed(B, "no answer within 3 s", is_refused=False),
    ]
    assert echo.times(LinkFailed)[0] == pytest.approx(DELAY_S)


def test_a_machine_that_is_paused_answers_nobody_who_dials() -> None:
    world = a_world()
    echo, other = Echo(), Echo(B)
    world.add_host(A, echo)
    world.add_host(B, other)
    world.pause(B, 1.5)
    does(world, A, OpenLink(B))
    world.run(until=1.4)
    assert echo.told == []

    world.run(until=5)
    assert len(echo.links) == len(other.links) == 1


@pytest.mark.parametrize("is_crash", [False, True])
def test_of_what_waits_when_its_sender_closes_some_arrives_and_then_the_end(
    *, is_crash: bool
) -> None:
    seen = set()
    for seed in range(30):
        world = a_world(seed)
        one, other = a_pair(world)
        cut = Cut(one=A, other=B)
        world.cut(cut)
        does(world, A, *one.says(1, 2, 3))
        world.run(until=2)
        if is_crash:
            world.crash(A)
        else:
            does(world, A, CloseLink(one.links[0], GoodbyeCode.ELSEWHERE, "enough"))
        world.run(until=3)
        assert other.times(LinkClosed) == []

        world.heal(cut)
        world.run(until=4)
        assert other.received == [1, 2, 3][: len(other.received)]
        assert len(other.times(LinkClosed)) == 1
        seen.add(len(other.received))

    assert seen == {0, 1, 2, 3}


def test_nothing_comes_through_to_who_has_closed() -> None:
    world = a_world()
    one, other = a_pair(world)
    cut = Cut(one=A, other=B)
    world.cut(cut)
    does(world, A, *one.says(1))
    does(world, B, CloseLink(other.links[0], GoodbyeCode.ELSEWHERE, "silent"))
    world.run(until=2)
    world.heal(cut)
    world.run(until=3)

    assert other.received == []
    assert len(one.times(LinkClosed)) == 1


# --- steps that take time -------------------------------------------------------------------------


def test_while_a_node_works_everything_else_waits_and_what_it_sends_leaves_at_the_end() -> None:
    world = a_world(step_cost_s=0.1)
    one, other = a_pair(world)
    other.answers[MessagesReceived] = lambda read: [
        SendMessage((read.link,), number_message(len(read.messages)))
    ]
    for number in range(5):
        world.at(1.0 + number * 0.001, does, world, A, *one.says(number))
    world.run(until=5)

    assert other.reads == [[0], [1, 2, 3, 4]]
    first, second = other.times(MessagesReceived)
    assert second - first >= 0.05
    assert one.received == [1, 4]
    assert one.times(MessagesReceived)[1] >= second + 4 * 0.05


def test_who_is_killed_while_it_works_has_sent_nothing_of_it() -> None:
    world = a_world(step_cost_s=0.1)
    one, other = a_pair(world)
    other.answers[MessagesReceived] = lambda _: other.says(9)
    does(world, A, *one.says(1))
    world.run(until=1.03)
    assert other.received == [1]
    world.crash(B)
    world.run(until=3)

    assert one.received == []


def test_who_is_paused_while_it_works_goes_on_with_it() -> None:
    world = a_world(step_cost_s=0.1)
    one, other = a_pair(world)
    other.answers[MessagesReceived] = lambda _: other.says(9)
    does(world, A, *one.says(1))
    world.run(until=1.03)
    world.pause(B, 2.0)
    world.run(until=3)
    assert one.received == []

    world.run(until=4)
    assert one.received == [9]


# --- crashes, and coming back ---------------------------------------------------------------------


def test_a_crash_tears_what_a_step_has_sent_between_any_two_messages() -> None:
    seen = set()
    for seed in range(200):
        world = a_world(seed, delay_s=(0.001, 0.02), jitter=1.0)
        one, other = a_pair(world)
        does(world, A, *one.says(1, 2, 3, 4))
        world.crash(A)
        world.run(until=2)
        assert other.received == [1, 2, 3, 4][: len(other.received)]
        seen.add(len(other.received))

    assert seen == {0, 1, 2, 3, 4}


_KNOWN = tuple(
    Seating(hosts=(HostPlace(host=NodeId(f"n{number}"), incarnation=1, address=""),))
    for number in range(3)
)


def _written_three_times(seed: int) -> World:
    world = a_world(seed)
    world.add_broker(A, None)
    for seating in _KNOWN:
        does(world, A, RememberSeats(seating))
    world.crash(A)
    return world


def test_a_host_comes_back_with_what_it_wrote_last() -> None:
    world = _written_three_times(0)
    world.restart(A)

    echo = world.nodes[A].core
    assert (echo.life, echo.remembered) == (2, _KNOWN[-1])


def test_a_host_comes_back_with_what_it_wrote_once_upon_a_time() -> None:
    seen = []
    for seed in range(40):
        world = _written_three_times(seed)
        world.restart(A, DiskState.OLD)
        seen.append(world.nodes[A].core.remembered)

    assert {None, *_KNOWN} == set(seen)


def test_a_host_without_a_disk_takes_itself_for_new_and_its_life_is_a_later_one() -> None:
    world = _written_three_times(0)
    world.restart(A, DiskState.LOST)
    echo = world.nodes[A].core

    assert (echo.life, echo.remembered) == (2, None)


def test_the_same_broker_is_started_twice() -> None:
    world = a_world()
    first = world.add_broker(A, None)
    twin = world.start_twin(A)
    caller = Echo(C)
    world.add_host(C, caller)
    does(world, C, OpenLink(A))
    does(world, C, OpenLink(twin.address))
    world.run(until=1)

    assert (first.name, twin.name) == (A, A)
    assert len(first.core.links) == len(twin.core.links) == 1
    assert [node.name for node in world.hosts] == [A, C, A]
    assert world.who_plays(A) is twin

    world.crash(A)
    assert (first.is_alive, twin.is_alive) == (False, True)
    assert world.unresolved() == [A]


def test_new_chances_leave_the_old_ones_as_they_are() -> None:
    one, other = a_world(7), a_world(7)
    other.chance("drift").random()

    assert one.random.random() == other.random.random()
    assert one.chance("cuts").random() != one.chance("drift").random()


_JOINED: dict[str, Any] = {"about": A, "members": [], "millis": 0}


def heartbeats(node: Echo) -> None:
    """Let a node say that it lives, once a second, for ever."""
    node.answers[TimerFired] = lambda _: [
        SendMessage((node.links[0],), Heartbeat()),
        SetTimer(node.told[-1][0] + 1.0),
    ]


def at_rest(world: World, *, is_over: bool = True, until: float = 1000.0) -> float:
    """When a world is at rest, of two nodes of which one goes on to say that it lives."""
    one, _ = a_pair(world)
    heartbeats(one)
    does(world, A, SetTimer(2.0))
    world.run_to_rest(until, lambda: is_over)
    return world.now


def test_a_world_is_at_rest_when_nothing_but_heartbeats_has_been_sent_for_long() -> None:
    patience_s = 1.5 * a_world().limits.heartbeat_timeout_s
    quiet, busy = a_world(), a_world()
    busy.at(25.0, does, busy, A, SendMessage((LinkId(1),), number_message(1)))

    assert at_rest(quiet) == pytest.approx(patience_s, abs=2 * DELAY_S)
    assert at_rest(busy) == 25.0 + patience_s


def test_a_world_goes_on_while_something_is_not_over_or_still_to_come() -> None:
    waiting = a_world()
    waiting.at(500.0, list)

    assert at_rest(a_world(), is_over=False) == 1000.0
    assert at_rest(waiting) > 500.0
    assert at_rest(a_world(), until=3.0) == 3.0


def test_whoever_looks_is_shown_every_step() -> None:
    world, shown = a_world(), list[Node]()
    world.on_step = shown.append
    a_pair(world)

    assert [node.name for node in shown] == [B, A]
