"""Topic managers, subscribers and what notifies them, in virtual time, with a judge.

Messages between two of them keep their order; publications with their stamps do not. The judge
shares no code with what it judges: it goes through all pairs of publications and subscribers.
"""

import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.routing.ids import NodeId
from plait.routing.topics.buffering import BufferingManager, BufferingSubscriber
from plait.routing.topics.protocol import (
    COORDINATOR,
    Address,
    Announce,
    Create,
    Effect,
    Follow,
    Label,
    ManagerOf,
    Notify,
    Send,
    Stamp,
    Stamped,
    Subscribed,
    Topic,
    Unfollow,
)
from plait.routing.topics.structure import Structure, shared_pairs
from plait.routing.topics.tagging import (
    CORRECTED,
    Correction,
    TaggingCoordinator,
    TaggingManager,
    TaggingSubscriber,
)
from plait.routing.topics.total import Manager, Subscriber, TotalCoordinator

Subscribing = TaggingSubscriber | BufferingSubscriber | Subscriber
Delay = Callable[[str, Address, Address, Label | None], float]
"""Of a message of this kind, or of a notification, from somewhere to somewhere."""
Table = Mapping[str, Collection[str]]

MODES: Final = ("tagging", "buffering", "total")
RETRY_AFTER: Final = 400.0
RETRIES_MAX: Final = 20


class World:
    """Everybody, and what is on its way."""

    def __init__(
        self,
        mode: str,
        order: Sequence[str],
        table: Table,
        delay: Delay,
        corrections: Collection[Correction] = CORRECTED,
    ) -> None:
        self.mode, self.delay = mode, delay
        self.now = 0.0
        self.messages: Counter[str] = Counter()
        self.published: dict[Label, Topic] = {}
        self.published_at: dict[Label, float] = {}
        self.stamps: dict[Label, Stamp] = {}
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._last: dict[tuple[Address, Address], float] = {}
        self._waiting: dict[tuple[str, Label], Topic] = {}
        topics = [Topic(topic) for topic in order]
        names = {NodeId(name): frozenset(map(Topic, sorted(x))) for name, x in table.items()}
        self.followers: dict[Topic, set[NodeId]] = defaultdict(set)
        for name, subscribed in names.items():
            for topic in subscribed:
                self.followers[topic].add(name)
        self.machines: dict[Address, Any] = {}
        self.subscribers: dict[NodeId, Subscribing] = {}
        self._begin(topics, names, corrections)
        self.log: dict[NodeId, list[Label]] = {name: [] for name in names}
        self.tagged: dict[NodeId, list[Label]] = {name: [] for name in names}
        self.ready = {name: dict.fromkeys(topics, -1.0) for name, topics in names.items()}
        """Since when each subscriber has each topic."""

    def _begin(
        self,
        topics: Sequence[Topic],
        names: Mapping[NodeId, frozenset[Topic]],
        corrections: Collection[Correction],
    ) -> None:
        if self.mode == "tagging":
            for topic in topics:
                manager = TaggingManager(topic, topics, names, corrections)
                self.machines[ManagerOf(topic)] = manager
            self.machines[COORDINATOR] = TaggingCoordinator(topics)
            for name, own in names.items():
                self.subscribers[name] = TaggingSubscriber(name, own, topics, corrections)
        elif self.mode == "buffering":
            for topic in topics:
                self.machines[ManagerOf(topic)] = BufferingManager(topic, topics, names)
            for name, own in names.items():
                self.subscribers[name] = BufferingSubscriber(name, own, topics)
        else:
            structure = Structure(0, topics, shared_pairs(names), {})
            for topic in topics:
                self.machines[ManagerOf(topic)] = Manager(topic, structure)
            self.machines[COORDINATOR] = TotalCoordinator(structure, names)
            for name, own in names.items():
                self.subscribers[name] = Subscriber(name, own)
        for name, subscriber in self.subscribers.items():
            self.machines[name] = subscriber

    # --- time -------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (time, next(self._numbers), action, arguments))

    def run(self, limit: int = 10**6) -> None:
        while self._queue:
            self.now, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)
            limit -= 1
            assert limit, "no end"

    # --- what people do ---------------------------------------------------------------------

    def publish(self, publisher: str, label: Label, topic: str) -> None:
        self.published[label], self.published_at[label] = Topic(topic), self.now
        self._waiting[publisher, label] = Topic(topic)
        self._ask_for_stamp(publisher, label, 0)

    def _ask_for_stamp(self, publisher: str, label: Label, attempt: int) -> None:
        """Ask, and ask again: as published, a request may be dropped."""
        topic = self._waiting.get((publisher, label))
        if topic is None or attempt == RETRIES_MAX:
            return
        name = NodeId(publisher)
        self._send(name, ManagerOf(topic), Create(label=label, publisher=name))
        if self.mode == "tagging":
            again = self.now + RETRY_AFTER
            self.at(again, self._ask_for_stamp, publisher, label, attempt + 1)

    def subscribe(self, name: str, topic: str) -> None:
        node = NodeId(name)
        self._perform(node, self.subscribers[node].subscribe(Topic(topic)))

    def unsubscribe(self, name: str, topic: str) -> None:
        node = NodeId(name)
        self.ready[node].pop(Topic(topic), None)
        self._perform(node, self.subscribers[node].unsubscribe(Topic(topic)))

    def swap(self, one: str, other: str) -> None:
        at = ManagerOf(Topic(one))
        self._perform(at, self.machines[at].want_swap(Topic(one), Topic(other)))

    # --- what comes of it -------------------------------------------------------------------

    def _send(self, source: Address, to: Address, message: object) -> None:
        kind = type(message).__name__
        self.messages[kind] += 1
        label = getattr(message, "label", None)
        delay = self.delay(kind, source, to, label)
        time = max(self.now + delay, self._last.get((source, to), 0.0) + 1e-9)
        self._last[source, to] = time
        self.at(time, self._arrive, to, message)

    def _arrive(self, to: Address, message: object) -> None:
        if isinstance(message, Stamped):
            assert not isinstance(to, ManagerOf)
            topic = self._waiting.pop((str(to), message.label), None)
            if topic is not None:
                self.stamps[message.label] = message.stamp
                self._spread(to, message.label, topic, message.stamp)
        else:
            self._perform(to, self.machines[to].take(message))

    def _spread(self, source: Address, label: Label | None, topic: Topic, stamp: Stamp) -> None:
        for name in sorted(self.followers[topic]):
            delay = self.delay("Notify", source, name, label)
            self.at(self.now + delay, self._notify, name, label, topic, stamp)

    def _notify(self, name: NodeId, label: Label | None, topic: Topic, stamp: Stamp) -> None:
        subscriber: Any = self.subscribers[name]
        self._perform(name, subscriber.notify(label, topic, stamp))

    def _perform(self, at: Address, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(at, effect.to, effect.message)
                continue
            assert isinstance(at, str)
            name = NodeId(at)
            match effect:
                case Follow(topic):
                    self.followers[topic].add(name)
                case Unfollow(topic):
                    self.followers[topic].discard(name)
                case Subscribed(topic):
                    self.ready[name][topic] = self.now
                case Announce(topic, stamp):
                    self._spread(at, None, topic, stamp)
                case Notify(label, in_order):
                    (self.log if in_order else self.tagged)[name].append(label)

    # --- the judge --------------------------------------------------------------------------

    def inversions(self) -> list[tuple[NodeId, NodeId, Label, Label]]:
        """What two subscribers were told of in different orders."""
        found = []
        for (one, first), (other, second) in itertools.combinations(sorted(self.log.items()), 2):
            place = {label: n for n, label in enumerate(second)}
            both = [label for label in first if label in place]
            found += [
                (one, other, e, f)
                for e, f in itertools.combinations(both, 2)
                if place[e] > place[f]
            ]
        return found

    def held(self) -> dict[NodeId, list[Label]]:
        """What waits although nothing is on its way any more."""
        held = {name: list(getattr(s, "held", ())) for name, s in self.subscribers.items()}
        return {name: labels for name, labels in held.items() if labels}

    def lost(self) -> list[tuple[NodeId, Label]]:
        """What somebody has not got who had the topic when it was published, and kept it."""
        return [
            (name, label)
            for name, ready in self.ready.items()
            for label, topic in self.published.items()
            if topic in ready
            and self.published_at[label] > ready[topic]
            and label not in {*self.log[name], *self.tagged[name]}
        ]

    def troubles(self) -> list[str]:
        """All that is wrong, when everything has come to rest."""
        found = [f"{e} and {f} at {one} and {other}" for one, other, e, f in self.inversions()]
        found += [f"{name} waits with {labels}" for name, labels in self.held().items()]
        found += [f"{name} never got {label}" for name, label in self.lost()]
        found += [f"{label} has no stamp" for label in self.published if label not in self.stamps]
        for name, log in self.log.items():
            if len(set(log)) != len(log):
                found.append(f"{name} got something twice")
        return found


# --- random runs ----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Crowd:
    """How many there are at most, and what they do."""

    topics: int
    subscribers: int
    publications: int
    changes: int = 0
    swaps: int = 0
    spans: tuple[float, ...] = (5, 20, 60)
    """Within one of these times."""


CROWDS: Final = {
    "static": Crowd(topics=5, subscribers=6, publications=14),
    "subscriptions": Crowd(topics=4, subscribers=4, publications=16, changes=8),
    "swaps": Crowd(topics=5, subscribers=4, publications=16, swaps=4),
    "all": Crowd(
        topics=5, subscribers=5, publications=18, changes=8, swaps=4, spans=(5, 20, 60, 150)
    ),
    "churn": Crowd(
        topics=3, subscribers=3, publications=12, changes=12, swaps=1, spans=(20, 60, 150)
    ),
}

DELAYS: Final[dict[str, Callable[[random.Random], float]]] = {
    "exponential": lambda rng: rng.expovariate(0.2) + 0.01,
    "uniform": lambda rng: rng.uniform(0.1, 10),
    "wild": lambda rng: rng.choice((0.1, 1.0, 10.0, 60.0)) * rng.uniform(0.5, 1.5),
}


def random_run(
    mode: str, seed: int, crowd: Crowd, corrections: Collection[Correction] = CORRECTED
) -> World:
    """One run, to its end."""
    rng = random.Random(seed)
    count = rng.randint(2, crowd.topics) if crowd.topics > 2 else crowd.topics
    names = rng.randint(2, crowd.subscribers) if crowd.subscribers > 2 else crowd.subscribers
    draw = DELAYS[rng.choice(sorted(DELAYS))]
    order = [str(n) for n in range(1, count + 1)]
    table = {f"s{i}": rng.sample(order, rng.randint(1, count)) for i in range(1, names + 1)}
    world = World(mode, order, table, lambda *_: draw(rng), corrections)
    span = rng.choice(crowd.spans)
    for i in range(rng.randint(2, crowd.publications)):
        at, publisher = rng.uniform(0, span), f"p{rng.randint(1, 2)}"
        topic = rng.choice(order)
        world.at(at, world.publish, publisher, f"e{i}", topic)
    for _ in range(rng.randint(0, crowd.changes)):
        name = rng.choice(sorted(world.subscribers))
        at = rng.uniform(0, span)
        change = world.subscribe if rng.random() < 0.5 else world.unsubscribe
        world.at(at, change, name, rng.choice(order))
    if mode != "buffering":
        for _ in range(rng.randint(0, crowd.swaps)):
            one, other = rng.sample(order, 2)
            world.at(rng.uniform(0, span), world.swap, one, other)
    world.run()
    return world


def main() -> None:
    """Run: `python -m tests.routing.topics.world MODE CROWD LOW HIGH [WITHOUT]`."""
    import sys

    mode, crowd, low, high = sys.argv[1:5]
    corrections = CORRECTED - {Correction(name) for name in sys.argv[5:]}
    bad: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for seed in range(int(low), int(high)):
        world = random_run(mode, seed, CROWDS[crowd], corrections)
        totals["delivered"] += sum(map(len, world.log.values()))
        totals["tagged"] += sum(map(len, world.tagged.values()))
        totals["messages"] += sum(world.messages.values())
        for trouble in world.troubles():
            if not bad:
                print("seed", seed, trouble)
            bad[trouble.split()[1]] += 1
    print(mode, crowd, dict(totals), dict(bad) or "clean")


if __name__ == "__main__":
    main()
