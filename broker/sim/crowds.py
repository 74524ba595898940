"""Crowded runs: all that is hard at once, in the time of a few messages.

Subscriptions come and go while publications that they match are under way, and δ brokers fail, one
a moment after the other, on links some of which are a hundred times as slow as others. Random runs
in which that comes about by chance are few.

With moves, brokers are handed over to other hosts meanwhile, and somebody advertises in the middle
of it. In mixed runs, half of the subscriptions ask for no order.
"""

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import attrs

from plait.broker.effects import Refusal
from plait.broker.sim.faults import NO_TROUBLES, PAUSE, Faults, Troubles
from plait.broker.sim.workloads import move_some
from plait.broker.sim.world import LIVELY_LIMITS, SIMULATED_LIMITS, World
from plait.routing.ids import NodeId, OperationId, SubscriptionId
from plait.routing.orderings import ORDERINGS_OF_TOPICS, SUMMIT
from plait.routing.values import Value

FASTEST_S, SLOWEST_S = 0.0005, 0.05
DELTAS: Final = (1, 2, 2, 2, 3)
"""As often as δ is each of these where it is not given."""
SETTLE_S: Final = 1.0
LAST_S: Final = 40.0


@attrs.frozen(kw_only=True)
class Crowd:
    """What a crowded run is made of."""

    delta: int | None = None
    """None: drawn, as most else is."""
    ordering: str = "pairwise"
    policy: str = "filter"
    detection: str = "fast"
    managers: str = SUMMIT
    has_moves: bool = False
    is_mixed: bool = False
    troubles: Troubles = NO_TROUBLES
    """Of these, those that do not count as failures: there are δ of them already."""


class _Delays(Random):
    """As many links have a delay of one to two milliseconds as have one of ten to twenty."""

    def uniform(self, a: float, b: float) -> float:
        if (a, b) == (FASTEST_S, SLOWEST_S):
            return math.exp(super().uniform(math.log(a), math.log(b)))
        return super().uniform(a, b)


class _Client:
    """A client, told what to do; it does so when its machine can."""

    def __init__(self, world: World, name: str, broker: str, *, has_topics: bool) -> None:
        self.world = world
        self._has_topics = has_topics
        self.node = world.add_client(NodeId(name), NodeId(broker))
        assert self.node.client is not None
        self.calls = self.node.client.calls
        self.asked: list[OperationId] = []
        self.answered: list[OperationId] = []

    def advertises(self, filter_text: str) -> None:
        self._act(lambda now: self._expect(self.calls.advertise(now, filter_text)[1]))

    def subscribes(self, filter_text: str, *, ordered: bool) -> list[SubscriptionId]:
        """Returns where its name is going to be."""
        names: list[SubscriptionId] = []

        def subscribe(now: float) -> None:
            name, operation = self.calls.subscribe(now, filter_text, ordered=ordered)
            names.append(name)
            self._expect(operation)

        self._act(subscribe)
        return names

    def unsubscribes(self, names: list[SubscriptionId]) -> None:
        self._act(lambda now: self._expect(self.calls.unsubscribe(now, names[0])))

    def publishes(self, x: int) -> None:
        content: dict[str, Value] = {"x": x}
        if self._has_topics:
            content["topic"] = str(x)
        self._act(lambda now: self.calls.publish(now, content))

    def _act(self, call: Callable[[float], object]) -> None:
        def act() -> None:
            call(self.world.time_of(self.node))
            self.world.carry_out_calls(self.node)

        self.world.act(self.node, act)

    def _expect(self, operation: OperationId) -> None:
        def outcome(_: Refusal | None) -> None:
            self.answered.append(operation)

        self.asked.append(operation)
        self.node.outcomes[operation] = outcome


class _Moves:
    """What brokers and publishers do beside all else, from a source of chance of its own."""

    def __init__(self, seed: int, run: "CrowdedRun") -> None:
        self._world = run.world
        self._random = Random(~seed)
        self._newcomer = run.client("late", at=self._random.choice(run.names))

    def begin(self, duration: float) -> None:
        random = self._random
        for _ in range(random.randint(1, 3)):
            self._world.after(duration * random.random(), move_some, self._world, random)
        self._world.after(duration * random.random(), self._advertise)

    def _advertise(self) -> None:
        self._newcomer.advertises("TRUE")
        self._publish_when_confirmed()

    def _publish_when_confirmed(self) -> None:
        if self._newcomer.answered:
            self._newcomer.publishes(x=self._random.randrange(2))
        else:
            self._world.after(FASTEST_S, self._publish_when_confirmed)


class CrowdedRun:
    """One of them, as it was drawn."""

    def __init__(self, seed: int, crowd: Crowd, *, run: str, is_traced: bool = False) -> None:
        """Draw it; `play` lets it happen."""
        self.seed = seed
        self.random = random = Random(seed)
        self.random_order = Random(f"order {seed}")
        self.crowd = crowd
        self._has_topics = crowd.ordering in ORDERINGS_OF_TOPICS
        drawn = random.choice(DELTAS)
        self.delta = drawn if crowd.delta is None else crowd.delta
        self.world = _world(seed, crowd.troubles, run=run, is_traced=is_traced)
        self.faults = Faults(
            self.world, crowd.troubles, may_fail=lambda: False, kill=self.world.crash
        )
        self.names = [f"b{number}" for number in range(random.randint(3, 7))]
        likes_chains = random.random()
        self.parents: dict[str, str | None] = {self.names[0]: None} | {
            name: self.names[number]
            if random.random() < likes_chains
            else random.choice(self.names[: number + 1])
            for number, name in enumerate(self.names[1:])
        }
        self._settings: dict[str, Any] = {
            "delta": self.delta,
            "ordering": crowd.ordering,
            "policy": crowd.policy,
            "detection": crowd.detection,
            "managers": crowd.managers,
        }

    def client(self, name: str, *, at: str) -> _Client:
        """Start a client and wait until it has joined."""
        client = _Client(self.world, name, at, has_topics=self._has_topics)
        self._settle()
        return client

    def play(self) -> None:
        """Let everything happen."""
        for number, (name, parent) in enumerate(self.parents.items()):
            join = None if parent is None else NodeId(parent)
            self.world.add_broker(NodeId(name), join, **self._settings)
            if number:
                self._settle()
        self._cast()
        moves = _Moves(self.seed, self) if self.crowd.has_moves else None
        duration = self.random.choice((0.03, 0.1, 0.2, 0.4))
        calendar = self._calendar(duration)
        begun = self.world.now
        if moves is not None:
            moves.begin(duration)
        self.faults.begin(begun, begun + 2 * duration)
        for at, _, action in sorted(calendar, key=lambda event: event[:2]):
            self.world.run(until=max(at, self.world.now))
            action()
        self._settle(self.random.choice((0.1, 0.5)))
        for publisher in self._publishers:
            self._publish(publisher)
        # Who is paused publishes when it goes on.
        timeout_s = self.world.limits.heartbeat_timeout_s
        timeouts = 0 if self.crowd.troubles == NO_TROUBLES else 2 * max(PAUSE)
        last = self.world.now + LAST_S + timeouts * timeout_s
        self.world.run_to_rest(last, lambda: not self.leftovers())

    def _settle(self, seconds: float = SETTLE_S) -> None:
        self.world.run(until=self.world.now + seconds)

    def _cast(self) -> None:
        """Start the clients; some subscribe before it begins."""
        random = self.random
        self._wants_all = random.random()
        self._publishers = [
            self.client(f"p{number}", at=random.choice(self.names))
            for number in range(random.randint(1, 3))
        ]
        self._subscribers = [
            self.client(f"s{number}", at=random.choice(self.names))
            for number in range(random.randint(2, 5))
        ]
        self._choices: dict[_Client, tuple[int, ...]] = {}
        for number, publisher in enumerate(self._publishers):
            both = random.random() < 0.4
            self._choices[publisher] = (0, 1) if both else (number % 2,)
            publisher.advertises("TRUE" if both else f"x = {number % 2}")
        self._subscriptions: dict[_Client, list[SubscriptionId]] = {}
        for subscriber in self._subscribers:
            if random.random() < 0.5:
                self._subscriptions[subscriber] = self._subscribe(subscriber)
        self._settle()

    def _calendar(self, duration: float) -> list[tuple[float, int, Callable[[], object]]]:
        """What happens when, in the order in which it was drawn."""
        random, begun = self.random, self.world.now
        calendar: list[tuple[float, int, Callable[[], object]]] = []

        def sometime(
            action: Callable[[], object], *, after: float = 0.0, before: float = 1.0
        ) -> None:
            at = begun + duration * random.uniform(after, before)
            calendar.append((at, len(calendar), action))

        for _ in range(random.randint(1, 2)):
            publisher = random.choice(self._publishers)
            sometime(partial(self._publish, publisher), before=0.3)
        for _ in range(random.randint(1, 4)):
            publisher = random.choice(self._publishers)
            sometime(partial(self._publish, publisher), after=0.3)
        for _ in range(random.randint(1, 4)):
            subscriber = random.choice(self._subscribers)
            sometime(partial(self._subscribe, subscriber), before=0.6)
        if self._subscriptions and random.random() < 0.3:
            subscriber = random.choice(list(self._subscriptions))
            sometime(partial(subscriber.unsubscribes, self._subscriptions[subscriber]))
        for broker in random.sample(self.names, min(self.delta, len(self.names) - 1)):
            sometime(partial(self._crash, NodeId(broker)), after=0.2)
            if random.random() < 0.3:
                at = begun + 2 * duration + random.choice((0.001, 0.02, 0.5))
                self.world.at(at, self.world.restart, NodeId(broker))
        return calendar

    def _crash(self, broker: NodeId) -> None:
        others = [node for node in self.world.hosts if node.is_alive and node.name != broker]
        if not any(node.host is not None and node.host.brokers for node in others):
            return  # nobody would be left who plays anything
        self.faults.before_crash(broker)
        self.world.crash(broker)

    def _publish(self, publisher: _Client) -> None:
        publisher.publishes(x=self.random.choice(self._choices[publisher]))

    def _subscribe(self, subscriber: _Client) -> list[SubscriptionId]:
        random = self.random
        is_all = random.random() < self._wants_all
        topics = (0, 1) if is_all else (random.randrange(2),)
        if self._has_topics:
            filter_text = " OR ".join(f"topic = '{topic}'" for topic in topics)
        else:
            filter_text = "TRUE" if is_all else f"x = {topics[0]}"
        is_ordered = not self.crowd.is_mixed or self.random_order.random() < 0.5
        return subscriber.subscribes(filter_text, ordered=is_ordered)

    def leftovers(self) -> list[str]:
        """Whatever is not finished although nothing more will happen."""
        return [
            f"{node.name}: {text}"
            for node in self.world.residents()
            if node.is_alive
            for text in node.door.unfinished()
        ]


def _world(seed: int, troubles: Troubles, *, run: str, is_traced: bool) -> World:
    world = World(
        seed,
        run=run,
        limits=LIVELY_LIMITS if troubles.are_timed else SIMULATED_LIMITS,
        delay_s=(FASTEST_S, SLOWEST_S),
        jitter=0.3,
        drift=troubles.drift / 100,
        step_cost_s=troubles.step_cost_ms / 1000,
        tears_all=troubles != NO_TROUBLES,
        is_traced=is_traced,
    )
    world.random = _Delays(seed)
    return world
