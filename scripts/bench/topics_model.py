"""A model of what the document measured: its algorithm, on SCRIBE and Pastry, in virtual time.

Topic managers and subscribers are the machines of `routing/topics`. What is between them is
modelled as far as delays depend on it: a ring of nodes with random names, routes that come one
hexadecimal digit nearer to a key with each hop (Pastry), a tree for each topic made of the routes
of its subscribers (SCRIBE), and links as they are in the scene. Managers are where keys of topics
lead. No node takes any time, and nobody fails.
"""

import bisect
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.routing.ids import NodeId
from plait.routing.topics.protocol import (
    Address,
    Create,
    Label,
    ManagerOf,
    Notify,
    Send,
    Stamp,
    Stamped,
    Topic,
)
from plait.routing.topics.structure import Structure, shared_pairs
from plait.routing.topics.tagging import TaggingManager, TaggingSubscriber
from plait.routing.topics.total import Manager, Subscriber
from plait.scripts.bench.topics_workload import Event, Scene
from plait.scripts.bench.topics_world import Fate

_ID_DIGITS: Final = 16
_DIGIT_BITS: Final = 4
_ID_BITS: Final = _ID_DIGITS * _DIGIT_BITS

NONE: Final = "no order"
TAGGING: Final = "tagging"
TOTAL: Final = "total"


class Ring:
    """Nodes with names all around a ring, and the ways between them."""

    def __init__(self, nodes: int, chance: random.Random) -> None:
        """Give everybody a name."""
        names: set[int] = set()
        while len(names) < nodes:
            names.add(chance.getrandbits(_ID_BITS))
        self.names = sorted(names)
        self._salt = chance.getrandbits(32)

    def root_of(self, key: int) -> int:
        """The node that is nearest to a key."""
        place = bisect.bisect_left(self.names, key)
        around = [(place - 1) % len(self.names), place % len(self.names)]
        return min(around, key=lambda node: _apart(self.names[node], key))

    def next_hop(self, node: int, key: int) -> int | None:
        """Who is one digit nearer to a key; the nearest of all, if nobody is; None if it is it."""
        root = self.root_of(key)
        if node == root:
            return None
        common = _common_digits(self.names[node], key)
        below = _ID_BITS - _DIGIT_BITS * (common + 1)
        first = bisect.bisect_left(self.names, (key >> below) << below)
        last = bisect.bisect_left(self.names, ((key >> below) + 1) << below)
        if first == last:
            return root
        return first + hash((self._salt, node, common, key >> below)) % (last - first)

    def route(self, node: int, key: int) -> list[int]:
        """All who pass a message on, and the one for which it is."""
        way = [node]
        while (following := self.next_hop(way[-1], key)) is not None:
            way.append(following)
        return way


def _apart(one: int, other: int) -> int:
    distance = abs(one - other)
    return min(distance, (1 << _ID_BITS) - distance)


def _common_digits(one: int, other: int) -> int:
    return (_ID_BITS - (one ^ other).bit_length()) // _DIGIT_BITS


class BufferedSubscriber:
    """A subscriber that keeps what comes too early, as in section 5 of the document.

    It waits until nothing can come that is smaller, for `limit_s` at most; and of more than `most`
    that wait, the first goes. Unlike there, what was tagged counts as having come: otherwise
    nothing after it on its topic would ever be the next.
    """

    def __init__(self, subscriber: TaggingSubscriber, most: float, limit_s: float) -> None:
        """Keep so many for so long."""
        self._subscriber, self._most, self._limit_s = subscriber, most, limit_s
        self._waiting: dict[Label, tuple[Topic, Stamp, float]] = {}
        self._handled: Counter[Topic] = Counter()
        """Up to which number everything has been handed on, in order or not."""
        self._beyond: set[tuple[Topic, int]] = set()

    def notify(self, now: float, label: Label, topic: Topic, stamp: Stamp) -> list[Notify]:
        """Take in a publication; returns what goes on."""
        self._waiting[label] = (topic, stamp, now + self._limit_s)
        done = self._release()
        while len(self._waiting) > self._most:
            done += [*self._hand_on(next(iter(self._waiting))), *self._release()]
        return done

    def expire(self, now: float, label: Label) -> list[Notify]:
        """Somebody looks whether something has waited for too long."""
        if label not in self._waiting or self._waiting[label][2] > now:
            return []
        return [*self._hand_on(label), *self._release()]

    def _release(self) -> list[Notify]:
        done: list[Notify] = []
        while ready := [x for x, (t, s, _) in self._waiting.items() if self._is_due(t, s)]:
            for label in ready:
                done += self._hand_on(label)
        return done

    def _is_due(self, topic: Topic, stamp: Stamp) -> bool:
        """Whether it is the next, or too late."""
        topics, clock = self._subscriber.topics, self._subscriber.clock
        entries = {x: number for x, number in stamp.entries.items() if x in topics}
        own = entries.pop(topic)
        if own <= clock[topic] or any(clock[x] > number for x, number in entries.items()):
            return True
        handled = self._handled
        return handled[topic] >= own - 1 and all(handled[x] >= n for x, n in entries.items())

    def _hand_on(self, label: Label) -> list[Notify]:
        topic, stamp, _ = self._waiting.pop(label)
        self._beyond.add((topic, stamp.entries[topic]))
        while (topic, self._handled[topic] + 1) in self._beyond:
            self._handled[topic] += 1
            self._beyond.discard((topic, self._handled[topic]))
        effects = self._subscriber.notify(label, topic, stamp)
        return [effect for effect in effects if isinstance(effect, Notify)]


@attrs.frozen(kw_only=True)
class Modelled:
    """What came of one part of a scene."""

    fates: Sequence[Fate]
    stamped_after_s: Sequence[float]
    """Of each publication, in the same order."""
    streams: Mapping[str, Sequence[Event]]
    """What each subscriber got in order, as it came; nothing, unless it was judged."""
    messages: Mapping[str, int]

    @property
    def mean_latency_s(self) -> float:
        """From the request for a stamp until the last subscriber had it."""
        return sum(fate.latency_s for fate in self.fates) / max(1, len(self.fates))

    @property
    def mean_stamping_s(self) -> float:
        """That part of it that it took to get the stamp."""
        return sum(self.stamped_after_s) / max(1, len(self.stamped_after_s))

    @property
    def mean_delay_s(self) -> float:
        """Of all deliveries."""
        delays = [delay for fate in self.fates for delay in fate.delays_s.values()]
        return sum(delays) / max(1, len(delays))

    @property
    def share_within_1_s(self) -> float:
        """Of publications that all their subscribers had within a second."""
        return sum(fate.latency_s <= 1.0 for fate in self.fates) / max(1, len(self.fates))

    @property
    def share_tagged(self) -> float:
        """Of deliveries."""
        deliveries = sum(len(fate.delays_s) for fate in self.fates)
        return sum(fate.tagged for fate in self.fates) / max(1, deliveries)

    @property
    def mean_entries(self) -> float:
        """Of a stamp."""
        return sum(fate.entries for fate in self.fates) / max(1, len(self.fates))

    @property
    def share_for_others(self) -> float:
        """Of what managers were asked: on account of a topic that is not theirs."""
        fills, creates = self.messages.get("Fill", 0), self.messages.get("Create", 0)
        return fills / max(1, fills + creates)


class Model:
    """Everybody, and what is on its way."""

    def __init__(
        self,
        scene: Scene,
        mode: str = TAGGING,
        *,
        buffer: float = 0,
        limit_s: float = 5.0,
        is_judged: bool = True,
    ) -> None:
        """Set a scene up; unless it `is_judged`, nobody looks at stamps, which takes long."""
        self._scene, self._mode, self._limit_s = scene, mode, limit_s
        self._is_judged = is_judged
        self.now = 0.0
        self._chance = random.Random(f"model {scene.seed}")
        self._ring = Ring(scene.brokers, self._chance)
        place = {broker: node for node, broker in enumerate(scene.overlay.brokers)}
        self._key = {Topic(t): self._chance.getrandbits(_ID_BITS) for t in scene.topics}
        self._node = {name: place[broker] for name, broker in scene.publishers.items()}
        self._followers: dict[Topic, list[tuple[str, int]]] = {t: [] for t in self._key}
        for name, (broker, topics) in scene.subscribers.items():
            for topic in sorted(topics):
                self._followers[Topic(topic)].append((name, place[broker]))
        self._managers = self._make_managers()
        self._subscribers = self._make_subscribers(buffer) if is_judged else {}
        self._links: dict[tuple[int, int], tuple[float, float]] = {}
        self._parents: dict[tuple[Topic, int], int | None] = {}
        self._last: dict[tuple[Any, Any], float] = {}
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._fates: dict[Label, Fate] = {}
        self._stamped_after_s: dict[Label, float] = {}
        self._streams: dict[str, list[Event]] = {}
        self._messages: Counter[str] = Counter()
        self._began = 0.0

    def _make_managers(self) -> dict[Topic, TaggingManager | Manager]:
        order = list(self._key)
        table = self._table()
        if self._mode == TOTAL:
            structure = Structure(0, order, shared_pairs(table), {})
            return {topic: Manager(topic, structure) for topic in order}
        return {topic: TaggingManager(topic, order, table) for topic in order}

    def _table(self) -> dict[NodeId, frozenset[Topic]]:
        """Who has which topics; of those that have the same ones, two are as good as all."""
        alike: Counter[frozenset[str]] = Counter(
            topics for _, topics in self._scene.subscribers.values()
        )
        return {
            NodeId(f"{place} {copy}"): frozenset(map(Topic, topics))
            for place, (topics, count) in enumerate(alike.items())
            for copy in range(min(count, 2))
        }

    def _make_subscribers(self, buffer: float) -> dict[str, BufferedSubscriber | Subscriber]:
        made: dict[str, BufferedSubscriber | Subscriber] = {}
        for name, (_, wanted) in self._scene.subscribers.items():
            topics = [Topic(topic) for topic in sorted(wanted)]
            if self._mode == TOTAL:
                made[name] = Subscriber(NodeId(name), topics)
            elif self._mode == TAGGING:
                tagging = TaggingSubscriber(NodeId(name), topics, self._key)
                made[name] = BufferedSubscriber(tagging, buffer, self._limit_s)
        return made

    # --- time -------------------------------------------------------------------------------

    def play(self, part: str) -> Modelled:
        """Publish what a part of the scene has, and wait until nothing more comes of it."""
        self._fates, self._stamped_after_s = {}, {}
        self._streams = {name: [] for name in self._scene.subscribers}
        self._messages.clear()
        self._began = self.now
        for number, event in enumerate(self._scene.events[part]):
            self._at(self._began + event.at, self._publish, (part, number), event)
        while self._queue:
            self.now, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)
        return Modelled(
            fates=list(self._fates.values()),
            stamped_after_s=list(self._stamped_after_s.values()),
            streams=self._streams,
            messages=dict(self._messages),
        )

    def _at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (time, next(self._numbers), action, arguments))

    def _in_order(self, one: Any, other: Any, time: float) -> float:
        """Not before what went the same way earlier."""
        time = max(time, self._last.get((one, other), 0.0))
        self._last[one, other] = time
        return time

    def _hop_s(self, one: int, other: int) -> float:
        link = (min(one, other), max(one, other))
        if link not in self._links:
            self._links[link] = self._scene.links.draw_class(self._chance)
        return self._scene.links.draw(self._chance, self._links[link])

    def _route_s(self, node: int, key: int) -> float:
        way = self._ring.route(node, key)
        return sum(self._hop_s(one, other) for one, other in itertools.pairwise(way))

    # --- stamps -----------------------------------------------------------------------------

    def _publish(self, label: Label, event: Event) -> None:
        self._fates[label] = Fate(event)
        topic = Topic(event.topic)
        if self._mode == NONE:
            self._spread(label, event, Stamp(entries={topic: 1}))
        else:
            publisher = NodeId(event.publisher)
            self._send(publisher, ManagerOf(topic), Create(label=label, publisher=publisher))

    def _send(self, source: Address, to: Address, message: object) -> None:
        self._messages[type(message).__name__] += 1
        node = self._place_of(source)
        key = self._key[to.topic] if isinstance(to, ManagerOf) else None
        if key is None:
            key = self._ring.names[self._place_of(to)]
        time = self._in_order(source, to, self.now + self._route_s(node, key))
        self._at(time, self._arrive, to, message)

    def _place_of(self, address: Address) -> int:
        if isinstance(address, ManagerOf):
            return self._ring.root_of(self._key[address.topic])
        return self._node[str(address)]

    def _arrive(self, to: Address, message: object) -> None:
        if isinstance(message, Stamped):
            event = self._fates[message.label].event
            self._stamped_after_s[message.label] = self.now - self._began - event.at
            self._spread(message.label, event, message.stamp)
            return
        assert isinstance(to, ManagerOf)
        for effect in self._managers[to.topic].take(message):
            assert isinstance(effect, Send)
            self._send(to, effect.to, effect.message)

    # --- what notifies subscribers ------------------------------------------------------------

    def _spread(self, label: Label, event: Event, stamp: Stamp) -> None:
        """Send it to the root of its topic's tree."""
        self._fates[label].entries = len(stamp.entries)
        topic = Topic(event.topic)
        delay = self._route_s(self._node[event.publisher], self._key[topic])
        time = self._in_order(event.publisher, topic, self.now + delay)
        self._at(time, self._descend, label, topic, stamp)

    def _descend(self, label: Label, topic: Topic, stamp: Stamp) -> None:
        """From the root to all subscribers, each link with a delay of its own."""
        after_s = {self._ring.root_of(self._key[topic]): 0.0}
        for name, node in self._followers[topic]:
            for one, other in itertools.pairwise(reversed(self._way_up(topic, node, after_s))):
                after_s[other] = after_s[one] + self._hop_s(one, other)
            time = self._in_order(topic, name, self.now + after_s[node])
            if not self._is_judged:
                self._note(name, label, time)
            elif self._mode == NONE:
                self._at(time, self._note, name, label, time)
            else:
                self._at(time, self._notify, name, label, topic, stamp)

    def _way_up(self, topic: Topic, node: int, known: Mapping[int, float]) -> list[int]:
        """From a node to the first one that has it already."""
        way = [node]
        while way[-1] not in known:
            place = (topic, way[-1])
            if place not in self._parents:
                self._parents[place] = self._ring.next_hop(way[-1], self._key[topic])
            parent = self._parents[place]
            assert parent is not None, "the root has it"
            way.append(parent)
        return way

    def _notify(self, name: str, label: Label, topic: Topic, stamp: Stamp) -> None:
        subscriber = self._subscribers[name]
        if isinstance(subscriber, Subscriber):
            effects = subscriber.notify(label, topic, stamp)
            self._hand_over(name, [effect for effect in effects if isinstance(effect, Notify)])
            return
        self._hand_over(name, subscriber.notify(self.now, label, topic, stamp))
        self._at(self.now + self._limit_s, self._expire, name, label)

    def _expire(self, name: str, label: Label) -> None:
        subscriber = self._subscribers[name]
        assert isinstance(subscriber, BufferedSubscriber)
        self._hand_over(name, subscriber.expire(self.now, label))

    def _hand_over(self, name: str, notices: Sequence[Notify]) -> None:
        for notice in notices:
            self._note(name, notice.label, self.now, is_in_order=notice.in_order)

    def _note(self, name: str, label: Label, time: float, *, is_in_order: bool = True) -> None:
        fate = self._fates[label]
        fate.delays_s[name] = time - self._began - fate.event.at
        fate.tagged += not is_in_order
        if is_in_order and self._is_judged:
            self._streams[name].append(fate.event)
