"""What is delivered when many brokers fail at once, more than anybody promises to survive.

Brokers are a random tree, with clients at random brokers. A share of the brokers, drawn at random,
is killed at the same moment, in the middle of traffic. All clients live, and those whose broker has
failed find themselves another one. Whatever matches is owed to each of them.

Publications are issued from shortly before the crash until ten seconds after it, at a steady pace;
those of the first second, which are hit by far the hardest, are also counted by themselves. *Later*
ones are issued when all timeouts are long over, and tell whether the overlay has healed.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.client.states import ClientState
from plait.broker.effects import Delivery
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.world import SIMULATED_LIMITS, World
from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId
from plait.routing.orderings import DEFAULT_ORDERING
from plait.topologies.builders import random_tree

CLIENTS: Final = 100
"""Publishers, and as many subscribers."""
PER_TOPIC: Final = 4
FALLBACKS: Final = 3
"""Brokers beside its own that each client has been told of, and each broker beside its parent."""
JOINED_S: Final = 3.0
"""When every broker has joined, of a small overlay; then clients begin."""
JOINING_MAX_S: Final = 600.0
"""And of a large one at the latest: each joins when its parent has, and all others are asked."""
TICK_S: Final = SIMULATED_LIMITS.heartbeat_interval_s
"""Everything else is later by a number of ticks, if joining takes longer."""
CRASH_AT_S: Final = 5.2
"""Not at a tick of the heartbeat."""
BEGIN_S: Final = 5.0
INTERVAL_S: Final = 0.1
PUBLICATIONS: Final = 102
"""Of each publisher, two of them before the crash."""
AT_FIRST: Final = 12
"""Those of the first second."""
LATER_S: Final = 150.0
END_S: Final = 200.0


@attrs.frozen(kw_only=True)
class Rate:
    """What came of one crash of many."""

    brokers: int
    delta: int
    failed: int
    owed: int
    delivered: int
    owed_at_first: int
    delivered_at_first: int
    owed_later: int
    delivered_later: int
    unsafe: dict[str, int]
    """Violations of every guarantee but `loss`."""
    clients_lost: int
    """Clients that gave up, or never came back."""
    not_operational: int
    """Hosts that live and are not operational at the end."""
    too_large: int
    """Sets of more than δ failed brokers that hang together."""
    seed: int

    @property
    def share_failed(self) -> float:
        """Of all brokers."""
        return self.failed / self.brokers

    @property
    def share_delivered(self) -> float:
        """Of all that is owed for publications around the crash and after it."""
        return self.delivered / self.owed

    @property
    def share_delivered_at_first(self) -> float:
        """Of what is owed for those around the crash and in the first second after it."""
        return self.delivered_at_first / self.owed_at_first

    @property
    def share_delivered_later(self) -> float:
        """Of all that is owed when everything should be well again."""
        return self.delivered_later / self.owed_later if self.owed_later else 0.0


class _Scene:
    """One overlay, its clients, and what reaches whom."""

    def __init__(self, brokers: int, delta: int, clients: int, seed: int) -> None:
        self.world = World(seed, cores=HostCores())
        self.chance = random.Random(seed)
        self.overlay = random_tree(brokers, seed)
        self.clients = clients
        self.subscribers: dict[int, list[NodeId]] = defaultdict(list)
        """By topic."""
        self.owed: dict[bool, set[tuple[NodeId, int, NodeId]]] = {False: set(), True: set()}
        """Publisher, number and subscriber; whether later or not."""
        self.delivered: set[tuple[NodeId, int, NodeId]] = set()
        self.failed: list[str] = []
        self.later_s = 0.0
        for broker in self.overlay.brokers:
            parent = self.overlay.parent_of(broker)
            self.world.add_broker(
                NodeId(broker),
                NodeId(parent) if parent else None,
                fallbacks=self._fallbacks(broker),
                delta=delta,
            )

    def _fallbacks(self, broker: str) -> list[NodeId]:
        others = [NodeId(other) for other in self.overlay.brokers if other != broker]
        return self.chance.sample(others, min(FALLBACKS, len(others)))

    def join(self) -> None:
        """Wait until every broker has joined."""
        self.world.run(until=JOINED_S)
        while late := [node.name for node in self.world.nodes.values() if not node.is_ready]:
            self.later_s += TICK_S
            assert self.later_s < JOINING_MAX_S, f"not there in time: {late}"
            self.world.run(until=JOINED_S + self.later_s)

    def at(self, time: float, action: Callable[..., object], *arguments: object) -> None:
        """Do something at a time that counts from when everybody could have joined."""
        self.world.at(time + self.later_s, action, *arguments)

    def add_clients(self) -> None:
        topics = max(1, self.clients // PER_TOPIC)
        for number in range(self.clients):
            topic = number % topics
            subscriber, publisher = NodeId(f"s{number}"), NodeId(f"p{number}")
            self.subscribers[topic].append(subscriber)
            for name in (subscriber, publisher):
                homes = self.chance.sample(
                    self.overlay.brokers, min(1 + FALLBACKS, len(self.overlay.brokers))
                )
                node = self.world.add_client(name, *map(NodeId, homes))
                self.world.when_ready(node, partial(self._ask, name, topic))
            self.world.nodes[subscriber].on_delivery = partial(self._on_delivery, subscriber)
            phase_s = INTERVAL_S * number / self.clients
            for turn in range(PUBLICATIONS):
                at = BEGIN_S + phase_s + turn * INTERVAL_S
                self.at(at, self._publish, publisher, topic, False)
            self.at(LATER_S + phase_s, self._publish, publisher, topic, True)

    def _ask(self, name: NodeId, topic: int) -> None:
        world = self.world
        core = client_core(world, name)
        ask = core.subscribe if name.startswith("s") else core.advertise
        ask(world.now, f"topic = '{topic}'")
        world.carry_out_calls(world.nodes[name])

    def _publish(self, publisher: NodeId, topic: int, is_later: bool) -> None:
        world = self.world
        core = client_core(world, publisher)
        if core.state is ClientState.CLOSED:
            return
        seq = core.publish(world.now, {"topic": str(topic)}, b"")
        self.owed[is_later].update((publisher, seq, name) for name in self.subscribers[topic])
        world.carry_out_calls(world.nodes[publisher])

    def _on_delivery(self, subscriber: NodeId, delivery: Delivery) -> None:
        self.delivered.add((delivery.publisher, delivery.seq, subscriber))

    def crash(self, count: int) -> None:
        self.failed = self.chance.sample(self.overlay.brokers, count)
        for broker in self.failed:
            self.world.crash(NodeId(broker))

    def regions(self) -> list[int]:
        """How many brokers hang together in each set that has failed."""
        left, sizes = set(self.failed), []
        while left:
            region = [left.pop()]
            for broker in region:
                near = left.intersection(self.overlay.neighbours_of(broker))
                left -= near
                region.extend(near)
            sizes.append(len(region))
        return sizes


def client_core(world: World, name: NodeId) -> ClientCore:
    """The core of a client."""
    core = world.nodes[name].core
    assert isinstance(core, ClientCore)
    return core


def measure_rate(
    brokers: int, delta: int, share: float, clients: int = CLIENTS, seed: int = 0
) -> Rate:
    """Kill a share of the brokers at once, and count what is delivered."""
    scene = _Scene(brokers, delta, clients, seed)
    world = scene.world
    scene.join()
    scene.add_clients()
    failed = round(share * brokers)
    scene.at(CRASH_AT_S, scene.crash, failed)
    world.run(until=END_S + scene.later_s)
    report = check(world.records(), ordering=DEFAULT_ORDERING, delta=delta)
    unsafe = Counter(violation.guarantee for violation in report.violations)
    del unsafe["loss"]
    at_first = {one for one in scene.owed[False] if one[1] <= AT_FIRST}
    alive = [node for node in world.nodes.values() if node.stopped is None]
    return Rate(
        brokers=brokers,
        delta=delta,
        failed=failed,
        owed=len(scene.owed[False]),
        delivered=len(scene.owed[False] & scene.delivered),
        owed_at_first=len(at_first),
        delivered_at_first=len(at_first & scene.delivered),
        owed_later=len(scene.owed[True]),
        delivered_later=len(scene.owed[True] & scene.delivered),
        unsafe=dict(unsafe),
        clients_lost=sum(
            node.stopped is not None or node.core.state is not ClientState.READY
            for node in world.nodes.values()
            if isinstance(node.core, ClientCore)
        ),
        not_operational=sum(
            node.host is not None and node.host.status()["state"] != "operational" for node in alive
        ),
        too_large=sum(size > delta for size in scene.regions()),
        seed=seed,
    )
