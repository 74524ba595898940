"""A scene of topics on the real hosts and clients, in virtual time, with the document's links."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.codec import encode
from plait.broker.effects import Delivery, Refusal
from plait.broker.inputs import LinkId, MessagesReceived
from plait.broker.messages import (
    EndOfStep,
    Errand,
    Message,
    Publish,
    Settled,
    Stamped,
    StampReply,
    StampRequest,
)
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.nodes import End, Node
from plait.broker.sim.world import World
from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId, OperationId
from plait.routing.orderings import DEFAULT_ORDERING, SUMMIT
from plait.scripts.bench.order_world import LIMITS
from plait.scripts.bench.topics_workload import Event, Links, Scene

_ABOUT_ORDER: Final = (Errand, Settled, Stamped, StampReply, StampRequest)
_SETTLES_WITHIN_S: Final = 10_000.0
"""Of virtual time, which costs nothing while nothing happens."""
_READ_EVERY_S: Final = 1.0
_LONG_AFTER_S: Final = 300.0
_NO_STAMP_BYTES: Final = 2
"""Of a stamp that says nothing: a number and a list, a byte each."""


@attrs.define
class Fate:
    """What became of one publication."""

    event: Event
    delays_s: dict[str, float] = attrs.field(factory=dict)
    """Of each subscriber that got it."""
    tagged: int = 0
    """How many of them were told that it came out of order."""
    entries: int = 0
    """Of the longest stamp with which somebody got it."""

    @property
    def latency_s(self) -> float:
        """Until the last subscriber had it."""
        return max(self.delays_s.values(), default=0.0)


@attrs.frozen(kw_only=True)
class Played:
    """What came of one part of a scene."""

    fates: Sequence[Fate]
    streams: Mapping[str, Sequence[Event]]
    """What each subscriber got in order, as it came."""
    messages: Mapping[str, int]
    """By type."""
    batches: int
    """How often one node sent another one publications, or what is said of their order."""
    stamp_bytes: int
    """Of all messages with stamps."""
    stamps: int
    stamp_sizes: Mapping[int, int]
    """By the number of its entries, the most that a stamp adds to a message, in bytes."""
    disagreements: int
    """Pairs of subscribers that got something in different orders; if that was looked at."""

    @property
    def reached(self) -> list[Fate]:
        """The publications that anybody wanted."""
        return [fate for fate in self.fates if fate.delays_s]

    @property
    def mean_latency_s(self) -> float:
        """Until the last subscriber had it."""
        return _mean([fate.latency_s for fate in self.reached])

    @property
    def mean_delay_s(self) -> float:
        """Of all deliveries."""
        return _mean([delay for fate in self.reached for delay in fate.delays_s.values()])

    @property
    def share_within_1_s(self) -> float:
        """Of publications that all their subscribers had within a second."""
        return _mean([float(fate.latency_s <= 1.0) for fate in self.reached])

    @property
    def share_tagged(self) -> float:
        """Of deliveries."""
        deliveries = sum(len(fate.delays_s) for fate in self.reached)
        return sum(fate.tagged for fate in self.reached) / max(1, deliveries)

    @property
    def mean_entries(self) -> float:
        """Of a stamp."""
        return _mean([float(fate.entries) for fate in self.reached])

    @property
    def mean_stamp_bytes(self) -> float:
        """Of a message with a stamp, as it is on the wire."""
        return self.stamp_bytes / max(1, self.stamps)

    @property
    def messages_per_publication(self) -> float:
        """Copies of it, and what is said of its order."""
        counted = ("Publish", *(kind.__name__ for kind in _ABOUT_ORDER))
        return sum(self.messages.get(name, 0) for name in counted) / len(self.fates)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


class TopicsWorld(World):
    """A world with links of several classes, in which every message takes its own time."""

    def __init__(self, seed: int, links: Links) -> None:
        """Begin with nobody."""
        super().__init__(seed, limits=LIMITS, delay_s=(0.001, 0.001), jitter=0.0, cores=HostCores())
        self._links = links
        self._classes: dict[frozenset[NodeId], tuple[float, float]] = {}
        self.messages: Counter[str] = Counter()
        self.batches = self.stamps = self.stamp_bytes = 0
        self.stamp_sizes: dict[int, int] = {}
        self._free_at: dict[NodeId, float] = {}
        """When the line of a node has nothing more to send."""
        self._is_begun = False
        self._read: dict[NodeId, dict[End, list[Message]]] = defaultdict(dict)
        """What has come to each node since it last read, before everybody is there."""
        self._unended: set[LinkId] = set()
        """Where a batch with publications has not ended."""

    def begin(self) -> None:
        """Everybody is there: from now on every message is taken as it comes."""
        self._is_begun = True
        for name in list(self._read):  # what comes next must not overtake it
            self._read_all(self.nodes[name])

    def forget(self) -> None:
        """Count from now on."""
        self.messages.clear()
        self.batches = self.stamps = self.stamp_bytes = 0
        self.stamp_sizes = {}

    def _send(self, link: LinkId, message: Message) -> None:
        end = self._ends.get(link)
        if end is not None and end.peer is not None:
            end.peer.delay = self._draw_delay(end.node, end.peer) + self._wait(end.node, message)
        self._count(link, message)
        super()._send(link, message)

    def _arrive(self, end: End, message: Message, sender: NodeId) -> None:
        """While everybody joins, read only now and then, so that what is told grows in portions.

        That is what makes large overlays affordable: with each message taken by itself, each host
        tells all others of each host by itself.
        """
        if self._is_begun:
            super()._arrive(end, message, sender)
            return
        waiting = self._read[end.node.name]
        if not waiting:
            self.after(_READ_EVERY_S, self._read_all, end.node)
        waiting.setdefault(end, []).append(message)

    def _read_all(self, node: Node) -> None:
        for end, messages in self._read.pop(node.name, {}).items():
            if end.is_open:
                self._tell(node, MessagesReceived(end.link, messages))

    def _draw_delay(self, node: Node, to: End) -> float:
        if node.client is not None or to.node.client is not None:
            return self._links.client_s
        names = frozenset((node.name, to.node.name))
        if names not in self._classes:
            chance = random.Random(f"{self._seed} {sorted(names)}")
            self._classes[names] = self._links.draw_class(chance)
        return self._links.draw(self.chance("links"), self._classes[names])

    def _wait(self, node: Node, message: Message) -> float:
        """Until a message has left a node that sends over a narrow line, with all before it."""
        if self._links.uplink_bits_per_s is None or node.client is not None:
            return 0.0
        sending_s = 8 * len(encode(message)) / self._links.uplink_bits_per_s
        free_at = max(self.now, self._free_at.get(node.name, 0.0)) + sending_s
        self._free_at[node.name] = free_at
        return free_at - self.now

    def _count(self, link: LinkId, message: Message) -> None:
        self.messages[type(message).__name__] += 1
        if isinstance(message, EndOfStep):
            self.batches += link in self._unended
            self._unended.discard(link)
        elif isinstance(message, (Publish, *_ABOUT_ORDER)):
            self._unended.add(link)
            if isinstance(message, Stamped | StampReply):
                self._measure(message)

    def _measure(self, message: Stamped | StampReply) -> None:
        size = len(encode(message))
        self.stamps += 1
        self.stamp_bytes += size
        entries = bool(message.number) + len(message.behind)
        rest = len(encode(attrs.evolve(message, number=0, behind=()))) - _NO_STAMP_BYTES
        self.stamp_sizes[entries] = max(size - rest, self.stamp_sizes.get(entries, 0))


def play(scene: Scene, system: str, *, is_judged: bool = False) -> dict[str, Played]:
    """Play a scene under an ordering, "tno, root" with managers there; what came of each part.

    If it `is_judged`, the history is checked, too, which takes long with many subscribers.
    """
    world = TopicsWorld(scene.seed, scene.links)
    ordering, _, managers = system.partition(", ")
    for broker in scene.overlay.brokers:
        parent = scene.overlay.parent_of(broker)
        world.add_broker(
            NodeId(broker),
            NodeId(parent) if parent else None,
            ordering=ordering,
            managers=managers or SUMMIT,
        )
    unanswered: set[str] = set()
    everything = _wanting(scene.topics)
    for name, (broker, topics) in scene.subscribers.items():
        _begin(world, name, broker, partial(_subscribe, _wanting(sorted(topics))), unanswered)
    _settle(world, unanswered)
    for name, broker in scene.publishers.items():
        _begin(world, name, broker, partial(_advertise, everything), unanswered)
    _settle(world, unanswered)
    world.begin()
    played = {part: _play(world, scene, events) for part, events in scene.events.items()}
    if not is_judged:
        return played
    report = check(world.records(), ordering=DEFAULT_ORDERING)
    count = sum(violation.guarantee == DEFAULT_ORDERING for violation in report.violations)
    return {part: attrs.evolve(one, disagreements=count) for part, one in played.items()}


def _wanting(topics: Sequence[str]) -> str:
    quoted = ", ".join(f"'{topic}'" for topic in topics)
    return f"topic IN ({quoted})"


def _begin(
    world: TopicsWorld,
    name: str,
    broker: str,
    ask: Callable[[TopicsWorld, ClientCore], OperationId],
    unanswered: set[str],
) -> None:
    """Start a client, which asks for something as soon as it has joined."""
    unanswered.add(name)
    node = world.add_client(NodeId(name), NodeId(broker))

    def answered(refusal: Refusal | None) -> None:
        assert refusal is None, f"{name} was refused: {refusal}"
        unanswered.discard(name)

    def ready() -> None:
        assert isinstance(node.core, ClientCore)
        node.outcomes[ask(world, node.core)] = answered
        world.carry_out_calls(node)

    world.when_ready(node, ready)


def _subscribe(text: str, world: TopicsWorld, core: ClientCore) -> OperationId:
    return core.subscribe(world.now, text)[1]


def _advertise(text: str, world: TopicsWorld, core: ClientCore) -> OperationId:
    return core.advertise(world.now, text)[1]


def _settle(world: TopicsWorld, unanswered: set[str]) -> None:
    """Let time pass until everybody has been answered."""
    latest = world.now + _SETTLES_WITHIN_S
    while unanswered:
        assert world.now < latest, f"not ready in time: {sorted(unanswered)}"
        world.run(until=world.now + 1.0)


def _play(world: TopicsWorld, scene: Scene, events: Sequence[Event]) -> Played:
    """Publish everything, and wait until nothing more comes of it."""
    world.forget()
    fates: dict[tuple[str, int], Fate] = {}
    streams: dict[str, list[Event]] = {name: [] for name in scene.subscribers}
    began = world.now

    def publish(event: Event) -> None:
        node = world.nodes[NodeId(event.publisher)]
        assert isinstance(node.core, ClientCore)
        seq = node.core.publish(world.now, {"topic": event.topic}, bytes(scene.body_bytes))
        fates[event.publisher, seq] = Fate(event)
        world.carry_out_calls(node)

    def note(subscriber: str, delivery: Delivery) -> None:
        fate = fates[delivery.publisher, delivery.seq]
        fate.delays_s[subscriber] = world.now - began - fate.event.at
        if delivery.stamp is not None:
            entries = bool(delivery.stamp.number) + len(delivery.stamp.behind)
            fate.entries = max(fate.entries, entries)
        if delivery.in_order:
            streams[subscriber].append(fate.event)
        else:
            fate.tagged += 1

    for name in scene.subscribers:
        world.nodes[NodeId(name)].on_delivery = partial(note, name)
    for event in events:
        world.at(began + event.at, publish, event)
    world.run(until=began + events[-1].at + _LONG_AFTER_S)
    return Played(
        fates=list(fates.values()),
        streams=streams,
        messages=dict(world.messages),
        batches=world.batches,
        stamps=world.stamps,
        stamp_bytes=world.stamp_bytes,
        stamp_sizes=world.stamp_sizes,
        disagreements=0,
    )
