"""Hypothesis drives real cores step by step, and shrinks what goes wrong to a readable transcript.

Clients join, advertise, subscribe, publish and give up, connections are cut, and in between one
message arrives on one link. Whoever finds a failure gets the shortest story of it that hypothesis
could find, one line for everything that was done and everything that was delivered.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from plait.broker.effects import Delivery
from plait.broker.errors import NotAdvertisedError
from plait.broker.inputs import LinkId
from plait.broker.messages import Message
from plait.broker.sim.nodes import End
from plait.broker.sim.trace_text import describe_message
from plait.broker.sim.world import World
from plait.faulttol.guarantees import check
from plait.routing.conflicts import DETECTIONS, FAST
from plait.routing.ids import NodeId, SubscriptionId
from tests.host.worlds import Client

CLIENTS_MAX = 4
PAUSE_S = 0.06
"""Longer than the pause before the first redial, and than progress may wait."""
TURNS_MAX = 200
Tree = Mapping[str, str | None]
TREES: dict[str, Tree] = {
    "pair": {"a": None, "b": "a"},
    # Three in a row, with the root at one end, and in the middle.
    "line": {"a": None, "b": "a", "c": "b"},
    "fork": {"b": None, "a": "b", "c": "b"},
}
FILTERS = ("TRUE", "x = 0", "x = 1")

filters = st.sampled_from(FILTERS)
which = st.integers(0, 5)
"""One of a few; taken modulo their number."""
in_flight = st.booleans()
"""Whether to go on while a call is on its way, rather than let everything arrive first."""


class SteppedWorld(World):
    """A world in which a message arrives when it is told to."""

    def __init__(self) -> None:
        super().__init__(0, delay_s=(0.0, 0.0))
        self._ways: dict[LinkId, deque[tuple[End, Message, NodeId]]] = {}
        """What is on its way, by the link at whose end it arrives."""

    def _send(self, link: LinkId, message: Message) -> None:
        end = self._ends.get(link)
        if end is not None and end.peer is not None:
            way = self._ways.setdefault(end.peer.link, deque())
            way.append((end.peer, message, end.node.name))

    def _hear_of_close(self, end: End) -> None:
        """After whatever was sent before, as it is with TCP."""
        if self._ways.get(end.link):
            self.after(PAUSE_S, self._hear_of_close, end)
        else:
            super()._hear_of_close(end)

    def busy_ways(self) -> list[LinkId]:
        return [link for link, way in self._ways.items() if way and link in self._ends]

    def deliver_next(self, way: LinkId) -> str:
        """Let the first message of a way arrive; returns it in words."""
        end, message, sender = self._ways[way].popleft()
        self._arrive(end, message, sender)
        self.run(until=self.now)
        return f"{sender} -> {end.node.name}: {describe_message(message)}"

    def deliver_all(self) -> None:
        while ways := self.busy_ways():
            self.deliver_next(ways[0])


class OrderMachine(RuleBasedStateMachine):
    """What may happen, and what must hold whatever happens."""

    ordering = "pairwise"

    def __init__(self) -> None:
        super().__init__()
        self.world = SteppedWorld()
        self.lines: list[str] = []
        self.clients: list[Client] = []
        self.subscriptions: list[tuple[Client, SubscriptionId]] = []
        self.delivered = 0

    @initialize(
        tree=st.sampled_from(sorted(TREES)),
        detection=st.sampled_from(DETECTIONS),
        places=st.tuples(which, which),
    )
    def begin(self, tree: str, detection: str, places: tuple[int, int]) -> None:
        self.set_out(tree, detection, places)

    def set_out(self, tree: str, detection: str, places: tuple[int, int]) -> None:
        """Two who publish and want everything are there from the beginning."""
        self.tree: Tree = TREES[tree]
        joins = (f"{name} at {join}" if join else name for name, join in self.tree.items())
        self.lines.append(f"brokers {', '.join(joins)}; {detection} detection")
        for name, join in self.tree.items():
            self.world.add_broker(
                NodeId(name),
                NodeId(join) if join else None,
                ordering=self.ordering,
                detection=detection,
            )
            self.everything_arrives()
        for place in places:
            self.join(at=place)
            self.advertise(self.clients[-1], FILTERS[0])
            self.subscribe(self.clients[-1], FILTERS[0])

    # --- what may happen ----------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(at=which)
    def join(self, at: int) -> None:
        name, broker = f"c{len(self.clients)}", list(self.tree)[at % len(self.tree)]
        self.lines.append(f"{name} joins at {broker}, and everything arrives")
        node = self.world.add_client(NodeId(name), NodeId(broker))
        self.everything_arrives()
        client = Client(self.world, node)
        self.clients.append(client)

        def note(delivery: Delivery) -> None:
            self.delivered += 1
            self.lines.append(f"  {name} delivers {delivery.publisher}:{delivery.seq}")

        node.on_delivery = note

    @precondition(lambda self: self.clients)
    @rule(who=which, filter_text=filters, in_flight=in_flight)
    def announce(self, who: int, filter_text: str, in_flight: bool) -> None:
        self.advertise(self.one_of_the_clients(who), filter_text, in_flight=in_flight)

    @precondition(lambda self: self.clients)
    @rule(who=which, filter_text=filters, unordered=st.booleans(), in_flight=in_flight)
    def ask(self, who: int, filter_text: str, unordered: bool, in_flight: bool) -> None:
        client = self.one_of_the_clients(who)
        self.subscribe(client, filter_text, unordered=unordered, in_flight=in_flight)

    @precondition(lambda self: self.subscriptions)
    @rule(number=which, in_flight=in_flight)
    def unsubscribe(self, number: int, in_flight: bool) -> None:
        client, subscription = self.subscriptions.pop(number % len(self.subscriptions))
        with self.told(f"{client.node.name} gives up {subscription}", in_flight=in_flight):
            client.unsubscribes(subscription)

    @precondition(lambda self: self.clients)
    @rule(who=which, x=st.integers(0, 1), unordered=st.booleans())
    def publish(self, who: int, x: int, unordered: bool) -> None:
        client = self.one_of_the_clients(who)
        try:
            seq = client.publishes(x=x, ordered=not unordered)
        except NotAdvertisedError:
            return
        how = ", unordered" if unordered else ""
        self.lines.append(f"{client.node.name} publishes {client.node.name}:{seq}, x = {x}{how}")

    @precondition(lambda self: self.world.busy_ways())
    @rule(number=which)
    def deliver_one_message(self, number: int) -> None:
        ways = self.world.busy_ways()
        before = len(self.lines)
        text = self.world.deliver_next(ways[number % len(ways)])
        self.lines.insert(before, text)

    @precondition(lambda self: self.world.links())
    @rule(number=which)
    def cut(self, number: int) -> None:
        links = self.world.links()
        one, other = links[number % len(links)]
        self.lines.append(f"the connection of {one} and {other} is cut")
        self.world.break_link(one, other)
        self.world.run(until=self.world.now)

    @rule()
    def pass_time(self) -> None:
        self.lines.append(f"{1000 * PAUSE_S:.0f} ms pass")
        self.world.run(until=self.world.now + PAUSE_S)

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def nobody_disagrees(self) -> None:
        """Whatever was delivered is in order; what is missing may still come."""
        if self.delivered:
            report = check(self.world.records(), ordering="pairwise")
            self.fail_if([str(v) for v in report.violations if v.guarantee != "loss"])

    def teardown(self) -> None:
        """Let everything come to its end: all is delivered, and nothing is held."""
        if not hasattr(self, "tree"):
            return
        self.lines.append("everything arrives")
        for _ in range(TURNS_MAX):
            self.everything_arrives()
            if not self.leftovers():
                break
            self.world.run(until=self.world.now + PAUSE_S)
        self.fail_if(
            [
                *map(str, check(self.world.records(), ordering="pairwise").violations),
                *self.world.cores.differences(),
                *self.leftovers(),
            ]
        )

    def leftovers(self) -> list[str]:
        hosts = [self.world.nodes[NodeId(name)] for name in self.tree]
        unfinished = [text for host in hosts for text in host.door.unfinished()]
        return unfinished + [
            f"{client.node.name} has {client.core.unconfirmed} unconfirmed"
            for client in self.clients
            if client.core.unconfirmed
        ]

    def fail_if(self, failures: list[str]) -> None:
        if failures:
            raise AssertionError("\n".join([*failures, *self.lines]))

    # --- in other words -----------------------------------------------------------------------

    def one_of_the_clients(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def advertise(self, client: Client, filter_text: str, *, in_flight: bool = False) -> None:
        with self.told(f"{client.node.name} advertises {filter_text}", in_flight=in_flight):
            client.advertises(filter_text)

    def subscribe(
        self, client: Client, filter_text: str, *, unordered: bool = False, in_flight: bool = False
    ) -> None:
        how = ", unordered," if unordered else ""
        with self.told(f"{client.node.name} subscribes{how} to {filter_text}", in_flight=in_flight):
            subscription = client.subscribes(filter_text, ordered=not unordered)
            self.subscriptions.append((client, subscription))

    def everything_arrives(self) -> None:
        self.world.run(until=self.world.now)
        self.world.deliver_all()

    @contextmanager
    def told(self, text: str, *, in_flight: bool) -> Iterator[None]:
        """Note a call, and let everything arrive after it, unless it is to be in flight."""
        self.lines.append(text if in_flight else f"{text}, and everything arrives")
        yield
        if not in_flight:
            self.everything_arrives()


class FifoMachine(OrderMachine):
    """The same, where nothing waits; judged as if it did. They are where it ends badly at once."""

    ordering = "fifo"

    @initialize()
    def begin(self) -> None:
        self.set_out("pair", FAST, (0, 1))


def explored(examples: int, *phases: Phase) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=phases or (Phase.generate, Phase.shrink),
    )


def test_no_story_ends_badly() -> None:
    run_state_machine_as_test(OrderMachine, settings=explored(300))


MANY = 5000
"""A few hundred will do, as a rule; which stories come first depends on the literals of all modules
that happen to be imported."""


def test_under_fifo_a_story_ends_badly() -> None:
    with pytest.raises(AssertionError, match=r"\Apairwise: "):
        run_state_machine_as_test(FifoMachine, settings=explored(MANY, Phase.generate))


@pytest.mark.slow
def test_under_fifo_the_story_is_short() -> None:
    with pytest.raises(AssertionError) as failure:
        run_state_machine_as_test(FifoMachine, settings=explored(MANY))

    verdict, *story = str(failure.value).splitlines()
    print(failure.value)  # for `pytest -s`
    assert verdict.startswith("pairwise: ")
    assert len(story) <= 24
