"""How long nothing crosses a broker that has failed, in link delays, and what takes so long.

Seven brokers are a tree, with a publisher and a subscriber at each of its leaves, and everybody
wants everything. One broker is killed in the middle of it. A publication *had to cross* it if the
way from its publisher to a subscriber led through it, and it had not passed it on by then. For each
subscriber behind it the first delivery of such a publication counts.

Two clocks are started: when the last neighbour has lost its connection, and when the host that
takes the broker up takes that one's host for failed, which has been dialled once more in vain.
Detection ends there.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs

from plait.broker.effects import Delivery
from plait.broker.messages import Life, Message, Publish
from plait.broker.sim.nodes import Node
from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId
from plait.scripts.bench.faults_world import LINK_DELAY_S, FaultWorld, Step
from plait.topologies.builders import balanced_tree
from plait.topologies.overlay import Overlay

VICTIMS: Final = {"inner broker": "b1", "edge broker": "b3", "root": "b0"}
DIAL_DELAYS: Final = {"dialling takes one": 1, "dialling takes two, as over TCP": 2}
"""How many link delays until a connection is there; the simulator's usual one, and a round trip."""
SET_UP_S: Final = 10.0
CRASH_AT_S: Final = SET_UP_S + 20 * LINK_DELAY_S
LAST_AT_S: Final = CRASH_AT_S + 30 * LINK_DELAY_S
INTERVAL_S: Final = 0.37 * LINK_DELAY_S
"""From one publication of a publisher to its next: out of step with the links."""
_TOLERANCE_S: Final = 1e-9
CONTENT: Final = {"topic": "t"}
FILTER: Final = "topic = 't'"


@attrs.frozen(kw_only=True)
class Outage:
    """What one crash did to those who were waiting."""

    victim: str
    ordering: str
    dialling: str
    noticed: float
    """In link delays since the last connection was lost: when whoever takes it up has noticed."""
    taken_up: float
    """The same: when the broker is played again."""
    first: float
    """The first delivery of all."""
    last: float
    """The first delivery to the subscriber that waited longest."""
    way: Sequence[tuple[float, str]]
    """What led to the first delivery of all, with the link delays of each step."""
    violations: int
    leftovers: int

    @property
    def first_since_noticed(self) -> float:
        """What is to be short: the outage without detection."""
        return self.first - self.noticed


class _Scene:
    """One crash."""

    def __init__(self, victim: str, ordering: str, dial_delays: int, seed: int) -> None:
        self.world = FaultWorld(seed, dial_delays=dial_delays, has_causes=True)
        self.overlay = balanced_tree(2, 2)
        self.victim = NodeId(victim)
        self.ordering = ordering
        self.home: dict[NodeId, str] = {}
        self.passed: set[tuple[NodeId, int, NodeId]] = set()
        """What the victim has passed on, and to whom."""
        self.noticed: dict[NodeId, float] = {}
        """When which host has taken the victim for failed."""
        self.lost_at = 0.0
        self.first: dict[NodeId, tuple[float, Step | None]] = {}
        """The delivery that each subscriber waited for."""

    def play(self) -> None:
        world = self.world
        world.add_overlay(self.overlay, ordering=self.ordering)
        for broker in self.overlay.brokers:
            if not self.overlay.children_of(broker):
                self._add_clients(broker)
        world.run(until=SET_UP_S)
        world.on_sent, world.on_told = self._on_sent, self._on_told
        world.at(CRASH_AT_S, world.crash, self.victim)
        world.run_until_calm()

    def _add_clients(self, broker: str) -> None:
        world = self.world
        publisher, subscriber = NodeId(f"p-{broker}"), NodeId(f"s-{broker}")
        for client, ask in ((publisher, world.advertise), (subscriber, world.subscribe)):
            self.home[client] = broker
            node = world.add_client(client, NodeId(broker))
            world.when_ready(node, partial(ask, client, FILTER))
        world.nodes[subscriber].on_delivery = partial(self._on_delivery, subscriber)
        phase_s = 0.01 * len(self.home) * LINK_DELAY_S
        world.at(SET_UP_S + phase_s, self._publish, publisher)

    def _publish(self, publisher: NodeId) -> None:
        self.world.publish(publisher, CONTENT)
        if self.world.now < LAST_AT_S:
            self.world.after(INTERVAL_S, self._publish, publisher)

    def _on_sent(self, sender: Node, receiver: Node, message: Message) -> None:
        if sender.name == self.victim and isinstance(message, Publish):
            self.passed.add((message.publisher, message.seq, receiver.name))

    def _on_told(self, node: Node) -> None:
        if self.world.now < CRASH_AT_S or node.name in self.noticed:
            return
        if self._is_neighbour(node.name):
            connected = {name for link in self.world.links() for name in link}
            if self.victim not in connected and not self.lost_at:
                self.lost_at = self.world.now
        if node.host is not None and Life(self.victim, 1) in node.core.parts.doubts.doubted():
            self.noticed[node.name] = self.world.now

    def _is_neighbour(self, name: NodeId) -> bool:
        return self.home.get(name) == self.victim or (
            name in self.overlay.brokers and name in self.overlay.neighbours_of(self.victim)
        )

    def _on_delivery(self, subscriber: NodeId, delivery: Delivery) -> None:
        if subscriber in self.first or self.world.now < CRASH_AT_S:
            return
        hop = self._hop_towards(subscriber, self.home[delivery.publisher])
        if hop is not None and (delivery.publisher, delivery.seq, hop) not in self.passed:
            self.first[subscriber] = (self.world.now, self.world.step)

    def _hop_towards(self, subscriber: NodeId, origin: str) -> NodeId | None:
        """Whom the victim would have passed it on to; None if it was not on the way."""
        way = _way(self.overlay, origin, self.home[subscriber])
        if self.victim not in way:
            return None
        onwards = [*way, subscriber][way.index(self.victim) + 1]
        return NodeId(onwards)


def _way(overlay: Overlay, origin: str, destination: str) -> list[str]:
    distances = overlay.distances_from(destination)
    way = [origin]
    while way[-1] != destination:
        way.append(min(overlay.neighbours_of(way[-1]), key=distances.__getitem__))
    return way


def measure_outage(victim: str, ordering: str, dialling: str, seed: int = 0) -> Outage:
    """Kill one broker and see who waits how long."""
    scene = _Scene(VICTIMS[victim], ordering, DIAL_DELAYS[dialling], seed)
    scene.play()
    assert scene.first, f"nothing was delivered any more that had to cross the {victim}"
    records = scene.world.records()
    [taken_up] = [record for record in records if record["kind"] == "taken_up"]
    first, step = min(scene.first.values(), key=lambda one: one[0])
    assert step is not None

    def in_delays(at: float) -> float:
        return round((at - scene.lost_at) / LINK_DELAY_S, 6)

    return Outage(
        victim=victim,
        ordering=ordering,
        dialling=dialling,
        noticed=in_delays(scene.noticed[taken_up["host"]]),
        taken_up=in_delays(taken_up["at"]),
        first=in_delays(first),
        last=in_delays(max(at for at, _ in scene.first.values())),
        way=[
            (in_delays(one.at), one.text)
            for one in step.way_from(scene.lost_at - _TOLERANCE_S)
            if one.text
        ],
        violations=len(check(records, ordering=ordering, delta=1).violations),
        leftovers=len(scene.world.unfinished()),
    )
