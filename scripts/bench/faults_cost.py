"""What a takeover sends, against the publications that are not stable and the neighbours.

The failed broker has below it all its neighbours but one: the one above, whose host takes it up.
Before it fails, every neighbour has got every publication from it, and no subscriber has confirmed
any, so that every neighbour has all of them to tell of: that is the most there can be. Subscribers
go on when the broker is played again.
"""

from functools import partial
from typing import Final

import attrs

from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId
from plait.routing.orderings import DEFAULT_ORDERING
from plait.scripts.bench.faults_world import FaultWorld
from plait.scripts.bench.workloads import PAYLOAD_BYTES

COORDINATOR: Final = NodeId("coordinator")
VICTIM: Final = NodeId("victim")
CONTENT: Final = {"topic": "t"}
FILTER: Final = "topic = 't'"


@attrs.frozen(kw_only=True)
class Cost:
    """What one takeover took."""

    neighbours: int
    unstable: int
    messages: dict[str, int]
    """By type, from the crash until it was calm again."""
    bytes: int
    coordinator_cpu_s: float
    longest_step_s: float
    missing: int
    """Deliveries that never came."""
    violations: int
    leftovers: int

    @property
    def message_count(self) -> int:
        """Of all types."""
        return sum(self.messages.values())


def measure_cost(neighbours: int, unstable: int, seed: int = 0) -> Cost:
    """Kill a broker with so many neighbours, when so many publications are not stable."""
    world = FaultWorld(seed)
    brokers = [COORDINATOR, *(NodeId(f"neighbour-{number:02}") for number in range(1, neighbours))]
    world.add_broker(COORDINATOR, None)
    world.add_broker(VICTIM, COORDINATOR)
    for broker in brokers[1:]:
        world.add_broker(broker, VICTIM)
    publishers, subscribers = [], []
    for broker in brokers:
        publisher, subscriber = NodeId(f"p-{broker}"), NodeId(f"s-{broker}")
        publishers.append(publisher)
        subscribers.append(subscriber)
        for client, ask in ((publisher, world.advertise), (subscriber, world.subscribe)):
            node = world.add_client(client, broker)
            world.when_ready(node, partial(ask, client, FILTER))
    world.run_until_calm()
    for subscriber in subscribers:
        world.freeze(subscriber)
    for number in range(unstable):
        world.publish(publishers[number % neighbours], CONTENT, bytes(PAYLOAD_BYTES))
    world.run_until_calm()
    for broker in brokers:
        found = world.machine(broker).publications.unstable
        assert found == unstable, f"{broker}: {found} unstable"

    spent = world.begin_phase()
    world.crash(VICTIM)
    world.run_until_calm()
    world.end_phase()
    for subscriber in subscribers:
        world.unfreeze(subscriber)
    world.run_until_calm()
    records = world.records()
    delivered = sum(record["kind"] == "delivered" for record in records)
    violations = check(records, ordering=DEFAULT_ORDERING, delta=1).violations
    return Cost(
        neighbours=neighbours,
        unstable=unstable,
        messages=dict(spent.messages),
        bytes=spent.bytes,
        coordinator_cpu_s=spent.cpu_s[COORDINATOR],
        longest_step_s=spent.longest_step_s,
        missing=neighbours * unstable - delivered,
        violations=len(violations),
        leftovers=len(world.unfinished()),
    )
