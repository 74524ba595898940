"""Whether anything grows while brokers crash and come back: an hour of traffic in virtual time.

Seven brokers are a tree. Publishers at its leaves publish twice a second, everybody wants all of
it, and subscribers give up a subscription and make a new one now and then. Every five minutes
another broker is killed, and started again half a minute later.

What brokers hold is counted in the middle of the traffic, after each quarter of an hour: by kinds,
and as the bytes of all that can be reached from their cores.
"""

import gc
import sys
import types
from collections.abc import Iterable
from functools import partial
from typing import Final

import attrs

from plait.broker.sim.hosts import HostCores
from plait.broker.sim.world import World
from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId, SubscriptionId
from plait.routing.orderings import DEFAULT_ORDERING
from plait.scripts.bench.faults_rate import client_core
from plait.topologies.builders import balanced_tree

HOUR_S: Final = 3600.0
QUARTERS: Final = 4
BEGIN_S: Final = 2.0
INTERVAL_S: Final = 0.5
"""From one publication of a publisher to its next."""
CHANGE_S: Final = 60.0
"""From one change of a subscriber's interest to its next."""
CRASH_S: Final = 300.0
FIRST_CRASH_S: Final = 150.0
DOWN_S: Final = 30.0
CONTENT: Final = {"topic": "t"}
FILTER: Final = "topic = 't'"
_NOT_HELD: Final = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
"""These belong to the program, and lead to all of it."""


@attrs.frozen(kw_only=True)
class Moment:
    """What all brokers hold together."""

    at_s: float
    bytes: int
    unstable: int
    held: int
    subscriptions: int
    advertisements: int
    operations: int
    seats: int
    """That are known: who plays which broker."""
    published: int
    """By then, by everybody."""


@attrs.frozen(kw_only=True)
class Hour:
    """How what brokers hold went on."""

    moments: list[Moment]
    crashes: int
    violations: int


class _Scene:
    """One overlay, and its clients at its leaves."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, cores=HostCores())
        self.overlay = balanced_tree(2, 2)
        self.published = self.crashes = 0
        self.asked: dict[NodeId, SubscriptionId] = {}
        for broker in self.overlay.brokers:
            parent = self.overlay.parent_of(broker)
            self.world.add_broker(NodeId(broker), NodeId(parent) if parent else None)
        self.world.run(until=BEGIN_S)
        leaves = [b for b in self.overlay.brokers if not self.overlay.children_of(b)]
        for number, leaf in enumerate(leaves):
            publisher, subscriber = NodeId(f"p{number}"), NodeId(f"s{number}")
            for name, begin in ((publisher, self._advertise), (subscriber, self._subscribe)):
                others = [NodeId(other) for other in self.overlay.distances_from(leaf)]
                node = self.world.add_client(name, *others)
                self.world.when_ready(node, partial(begin, name))
        self.world.at(FIRST_CRASH_S, self._crash)

    def _advertise(self, name: NodeId) -> None:
        client_core(self.world, name).advertise(self.world.now, FILTER)
        self.world.carry_out_calls(self.world.nodes[name])
        self.world.after(INTERVAL_S, self._publish, name)

    def _publish(self, name: NodeId) -> None:
        client_core(self.world, name).publish(self.world.now, CONTENT, b"")
        self.world.carry_out_calls(self.world.nodes[name])
        self.published += 1
        self.world.after(INTERVAL_S, self._publish, name)

    def _subscribe(self, name: NodeId) -> None:
        core = client_core(self.world, name)
        before = self.asked.get(name)
        self.asked[name], _ = core.subscribe(self.world.now, FILTER)
        if before is not None:
            core.unsubscribe(self.world.now, before)
        self.world.carry_out_calls(self.world.nodes[name])
        self.world.after(CHANGE_S, self._subscribe, name)

    def _crash(self) -> None:
        victim = NodeId(self.world.random.choice(self.overlay.brokers))
        self.crashes += 1
        self.world.crash(victim)
        self.world.after(DOWN_S, self.world.restart, victim)
        self.world.after(CRASH_S, self._crash)

    def look(self) -> Moment:
        cores = [node.core for node in self.world.hosts if node.is_alive]
        counts = [core.statistics() for core in cores]
        return Moment(
            at_s=self.world.now,
            bytes=reachable_bytes(cores),
            unstable=sum(count.unstable for count in counts),
            held=sum(count.held for count in counts),
            subscriptions=sum(count.subscriptions for count in counts),
            advertisements=sum(count.advertisements for count in counts),
            operations=sum(count.operations_pending for count in counts),
            seats=sum(len(core.parts.seats.brokers()) for core in cores),
            published=self.published,
        )


def reachable_bytes(roots: Iterable[object]) -> int:
    """Return how large everything is that these objects hold, each thing once."""
    seen: set[int] = set()
    found, waiting = 0, list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _NOT_HELD):
            continue
        seen.add(id(one))
        found += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return found


def measure_hour(seed: int = 0, *, hour_s: float = HOUR_S) -> Hour:
    """Let an hour pass, or less."""
    scene = _Scene(seed)
    moments = []
    for quarter in range(1, QUARTERS + 1):
        scene.world.run(until=hour_s * quarter / QUARTERS)
        moments.append(scene.look())
    report = check(scene.world.records(), ordering=DEFAULT_ORDERING, delta=1)
    return Hour(moments=moments, crashes=scene.crashes, violations=len(report.violations))
