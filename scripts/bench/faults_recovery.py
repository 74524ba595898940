"""What large routing tables cost when a host fails and when it comes back.

The root, whose host takes the failed broker up, has it below it, and that has two more neighbours.
At each of the three there is a publisher whose advertisement overlaps all subscriptions, and a
subscriber with its share of them, so that every broker has them all. Time is virtual, but brokers
take as long as their core and the codec really take, and links are those of a local network.
"""

import math
from functools import partial
from typing import Final

import attrs

from plait.broker.machine.interests import FLOODING
from plait.routing.filter_text import parse_filter
from plait.routing.ids import NodeId
from plait.routing.limits import CACHED_FILTERS_MAX
from plait.scripts.bench.faults_world import FaultWorld, Spent
from plait.scripts.bench.garbage import no_garbage_collection
from plait.scripts.bench.memory import ADVERTISEMENT, distinct_subscriptions

LINK_DELAY_S: Final = 0.0002
VICTIM: Final = NodeId("b1")
COORDINATOR: Final = NodeId("b0")
OTHERS: Final = (COORDINATOR, NodeId("b2"), NodeId("b3"))


@attrs.frozen(kw_only=True)
class Phase:
    """What either of the two took."""

    virtual_s: float
    """From the crash until the broker is played again, or from the restart until it is back."""
    calm_s: float
    """The same until nothing goes on any more."""
    cpu_s: dict[str, float]
    """Of every broker."""
    messages: int
    bytes: int
    longest_step_s: float
    """The longest time for which a broker did nothing else, not even say that it lives."""

    @property
    def total_cpu_s(self) -> float:
        """Of all brokers."""
        return math.fsum(self.cpu_s.values())


@attrs.frozen(kw_only=True)
class Recovery:
    """What tables of one size cost."""

    subscriptions: int
    policy: str
    takeover: Phase
    recovery: Phase
    recovered_subscriptions: int
    """What the broker that is back has in its table."""
    leftovers: int


def measure_recovery(subscriptions: int, policy: str = FLOODING, seed: int = 0) -> Recovery:
    """Kill a host, let another one take its broker up, and start it again."""
    world = FaultWorld(seed, link_delay_s=LINK_DELAY_S)
    world.add_broker(COORDINATOR, None, policy=policy)
    world.add_broker(VICTIM, COORDINATOR, policy=policy)
    for broker in OTHERS[1:]:
        world.add_broker(broker, VICTIM, policy=policy)
    world.run_until_calm()
    texts = distinct_subscriptions(subscriptions)
    for number, broker in enumerate(OTHERS):
        publisher, subscriber = NodeId(f"p-{broker}"), NodeId(f"s-{broker}")
        node = world.add_client(publisher, broker)
        world.when_ready(node, partial(world.advertise, publisher, ADVERTISEMENT))
        node = world.add_client(subscriber, broker)
        for text in texts[number :: len(OTHERS)]:
            world.when_ready(node, partial(world.subscribe, subscriber, text))
    world.run_until_calm()
    for broker in (VICTIM, *OTHERS):
        assert len(world.machine(broker).interests.subscriptions) == subscriptions

    world.are_brokers_busy = True
    with no_garbage_collection():
        spent, began = world.begin_phase(), world.now
        world.crash(VICTIM)
        world.run_until_calm()
        takeover = _phase(world, spent, began)
        _forget_parsed_filters()
        spent, began = world.begin_phase(), world.now
        world.restart(VICTIM)
        world.run_until_calm()
        recovery = _phase(world, spent, began)
    return Recovery(
        subscriptions=subscriptions,
        policy=policy,
        takeover=takeover,
        recovery=recovery,
        recovered_subscriptions=len(world.machine(VICTIM).interests.subscriptions),
        leftovers=len(world.unfinished()),
    )


def _phase(world: FaultWorld, spent: Spent, began: float) -> Phase:
    ends = [r["at"] for r in world.records() if r["kind"] == "taken_up" and r["at"] >= began]
    return Phase(
        virtual_s=max(ends, default=math.nan) - began,
        calm_s=spent.last_at - began,
        cpu_s=dict(spent.cpu_s),
        messages=spent.message_count,
        bytes=spent.bytes,
        longest_step_s=spent.longest_step_s,
    )


def _forget_parsed_filters() -> None:
    """Let a new process not profit from what others have parsed in this one."""
    for number in range(CACHED_FILTERS_MAX):
        parse_filter(f"forgotten = {number}")
