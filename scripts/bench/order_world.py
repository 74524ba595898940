"""One scene under one ordering, in virtual time: every link takes as long as every other one.

Brokers and clients are the real cores. Usually a broker takes no time, so a delay is a number of
links and nothing else, and two orderings can be compared down to the last publication. To see what
is too much for a broker, it may also take the time that its core really takes.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Final, ParamSpec, TypeAlias

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.codec import FrameDecoder, encode
from plait.broker.effects import Delivery, Effect, Refusal, SendMessage
from plait.broker.inputs import LinkId, MessagesReceived
from plait.broker.messages import Message, Publish
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.nodes import End, Node
from plait.broker.sim.world import SIMULATED_LIMITS, World
from plait.faulttol.history import Record
from plait.routing.ids import NodeId, OperationId
from plait.scripts.bench.order_workload import Party, Scene

PublicationId: TypeAlias = tuple[str, int]
P = ParamSpec("P")

LINK_DELAY_S: Final = 0.01
SET_UP_S: Final = 60.0
"""Of virtual time, for everybody to join, advertise and subscribe."""
LONG_AFTER_S: Final = 60.0
_NEVER_S: Final = 1e6
LIMITS: Final = attrs.evolve(
    # Heartbeats are for links that fail, and would be counted as messages here.
    SIMULATED_LIMITS,
    heartbeat_interval_s=_NEVER_S,
    heartbeat_timeout_s=2 * _NEVER_S,
    stall_timeout_s=_NEVER_S,
)


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of a scene."""

    ordering: str
    delays_s: Mapping[PublicationId, Mapping[str, float]]
    """Of every publication, for every subscriber that got it."""
    streams: Mapping[str, list[PublicationId]]
    """What every subscriber got, in this order."""
    messages: Mapping[str, int]
    """All that were sent from the first publication on, by type."""
    copies: Mapping[PublicationId, int]
    """How often each publication was sent over a link."""
    leftovers: tuple[str, ...]
    """What should have come to an end and has not, in words."""
    records: list[Record]
    delivered_at_s: list[float]
    """Since the first publication could be published; ascending."""
    busy_s: Mapping[str, float]
    """How long each broker was busy."""
    detections_us: list[float]
    """What each question took whether a publication conflicts."""


class OrderWorld(World):
    """A world in which links are alike and messages are counted."""

    def __init__(self, seed: int, link_delay_s: float) -> None:
        """Begin with nobody."""
        super().__init__(
            seed,
            limits=LIMITS,
            delay_s=(link_delay_s, link_delay_s),
            jitter=0.0,
            cores=HostCores(),
        )
        self.messages: Counter[str] = Counter()
        self.copies: Counter[PublicationId] = Counter()
        self.busy_s: dict[str, float] = defaultdict(float)

    def forget(self) -> None:
        """Count from now on."""
        self.messages.clear()
        self.copies.clear()
        self.busy_s.clear()

    def _send(self, link: LinkId, message: Message) -> None:
        self.messages[type(message).__name__] += 1
        if isinstance(message, Publish):
            self.copies[message.publisher, message.seq] += 1
        super()._send(link, message)


class BusyWorld(OrderWorld):
    """A world in which brokers take their time: the time that the real core takes, and the codec.

    While a broker is busy, messages wait. Then it takes the one that has waited longest, together
    with all that came over the same link, as one read from a socket would.
    """

    def __init__(self, seed: int, link_delay_s: float) -> None:
        """Begin with nobody."""
        super().__init__(seed, link_delay_s)
        self._queues: dict[NodeId, dict[LinkId, list[Message]]] = defaultdict(dict)
        self._busy: set[NodeId] = set()

    def _arrive(self, end: End, message: Message, sender: NodeId) -> None:
        node = end.node
        if node.host is None:
            super()._arrive(end, message, sender)
            return
        self._queues[node.name].setdefault(end.link, []).append(message)
        if node.name not in self._busy:
            self._busy.add(node.name)
            self._serve(node)

    def _serve(self, node: Node) -> None:
        queue = self._queues[node.name]
        if not queue:
            self._busy.discard(node.name)
            return
        link = next(iter(queue))
        data = b"".join(map(encode, queue.pop(link)))
        started = time.thread_time_ns()
        effects = node.door.step(self.now, MessagesReceived(link, FrameDecoder().feed(data)))
        for effect in effects:
            if isinstance(effect, SendMessage):
                encode(effect.message)
        taken = (time.thread_time_ns() - started) / 1e9
        self.busy_s[node.name] += taken
        self.after(taken, self._finish, node, effects)

    def _finish(self, node: Node, effects: list[Effect]) -> None:
        self._carry_out(node, effects)
        self._serve(node)


def play(
    scene: Scene,
    ordering: str,
    *,
    link_delay_s: float = LINK_DELAY_S,
    are_brokers_busy: bool = False,
    until_s: float | None = None,
) -> Outcome:
    """Play a scene; with `until_s`, only so far after the start, whatever is still on its way."""
    kind = BusyWorld if are_brokers_busy else OrderWorld
    world = kind(scene.seed, link_delay_s)
    overlay = scene.overlay
    for broker in overlay.brokers:
        parent = overlay.parent_of(broker)
        world.add_broker(NodeId(broker), NodeId(parent) if parent else None, ordering=ordering)
    publishers, subscribers = scene.cast()
    unanswered: set[str] = set()
    for party in (*publishers, *subscribers):
        unanswered.add(party.name)
        node = world.add_client(NodeId(party.name), NodeId(party.broker))
        ask = _subscribe if party in subscribers else _advertise
        world.when_ready(node, partial(ask, world, node, party, unanswered.discard))
    world.run(until=SET_UP_S)
    assert not unanswered, f"not ready in time: {sorted(unanswered)}"
    world.forget()
    return _publish_all(scene, ordering, world, publishers, subscribers, until_s)


def _publish_all(
    scene: Scene,
    ordering: str,
    world: OrderWorld,
    publishers: list[Party],
    subscribers: list[Party],
    until_s: float | None,
) -> Outcome:
    published_at: dict[PublicationId, float] = {}
    delays_s: dict[PublicationId, dict[str, float]] = {}
    streams: dict[str, list[PublicationId]] = {}
    delivered_at_s: list[float] = []
    detections_us = _time_detections(world)

    def note(subscriber: str, stream: list[PublicationId], delivery: Delivery) -> None:
        publication = (delivery.publisher, delivery.seq)
        delays_s[publication][subscriber] = world.now - published_at[publication]
        stream.append(publication)
        delivered_at_s.append(world.now - SET_UP_S)

    def publish(party: Party) -> None:
        node = world.nodes[NodeId(party.name)]
        assert isinstance(node.core, ClientCore)
        seq = node.core.publish(world.now, {"topic": party.topic}, b"")
        published_at[party.name, seq] = world.now
        delays_s[party.name, seq] = {}
        world.carry_out_calls(node)

    for party in subscribers:
        stream = streams[party.name] = []
        world.nodes[NodeId(party.name)].on_delivery = partial(note, party.name, stream)
    calendar = scene.calendar()
    for at, publisher in calendar:
        world.at(SET_UP_S + at, publish, publishers[publisher])
    world.run(until=SET_UP_S + (calendar[-1][0] + LONG_AFTER_S if until_s is None else until_s))
    return Outcome(
        ordering=ordering,
        delays_s=delays_s,
        streams=streams,
        messages=dict(world.messages),
        copies=dict(world.copies),
        leftovers=_leftovers(world),
        records=world.records(),
        delivered_at_s=delivered_at_s,
        busy_s=dict(world.busy_s),
        detections_us=detections_us,
    )


def _time_detections(world: World) -> list[float]:
    """Take the time of every question whether a publication conflicts, from now on.

    A broker asks once per content, as long as its tables stand still.
    """
    times_us: list[float] = []
    for node in world.hosts:
        for played in node.core.parts.playing.brokers.values():
            conflicts = played.machine.interests.conflicts
            if conflicts is not None:
                conflicts.is_conflict = _timed(conflicts.is_conflict, times_us)
    return times_us


def _timed(ask: Callable[P, bool], times_us: list[float]) -> Callable[P, bool]:
    @wraps(ask)
    def asked(*arguments: P.args, **options: P.kwargs) -> bool:
        started = time.thread_time_ns()
        answer = ask(*arguments, **options)
        times_us.append((time.thread_time_ns() - started) / 1e3)
        return answer

    return asked


def _advertise(world: World, node: Node, party: Party, answered: Callable[[str], None]) -> None:
    assert isinstance(node.core, ClientCore)
    _, operation = node.core.advertise(world.now, f"topic = '{party.topic}'")
    _expect(world, node, operation, answered)


def _subscribe(world: World, node: Node, party: Party, answered: Callable[[str], None]) -> None:
    assert isinstance(node.core, ClientCore)
    _, operation = node.core.subscribe(world.now, f"topic = '{party.topic}'")
    _expect(world, node, operation, answered)


def _expect(
    world: World, node: Node, operation: OperationId, answered: Callable[[str], None]
) -> None:
    def outcome(refusal: Refusal | None) -> None:
        assert refusal is None, f"{node.name} was refused: {refusal}"
        answered(node.name)

    node.outcomes[operation] = outcome
    world.carry_out_calls(node)


def _leftovers(world: World) -> tuple[str, ...]:
    found = []
    for node in world.nodes.values():
        if node.client is None:
            found += [f"{node.name}: {text}" for text in node.door.unfinished()]
        elif node.client.unconfirmed:
            found.append(f"{node.name}: {node.client.unconfirmed} publications never confirmed")
    return tuple(found)
