"""Machines on links that take their time: what an ordering costs, in delay and in messages.

`python -m tests.machine.timed` prints the table.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any, Final

import attrs

from plait.broker.codec import encode, encode_content
from plait.broker.limits import Limits
from plait.broker.machine.machine import Batch, Machine
from plait.broker.machine.neighbours import Neighbour
from plait.broker.messages import (
    Advertise,
    Errand,
    Join,
    Message,
    Publish,
    Settings,
    Settled,
    Stamped,
    Subscribe,
)
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import BROKER, Key, Standing, Taken
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.rules import rule_of

LINK_S: Final = 0.01


@attrs.frozen
class Cost:
    """What a run has cost."""

    delay_ms: float
    """From the publisher to a subscriber, on average."""
    messages: float
    """Publications and what orders them, as often as something of it went over a link, for each
    publication: what goes over a link in one step goes together."""
    stamp_bytes: float
    """Of a delivery."""
    delivered: Mapping[NodeId, Sequence[Key]]


class Timed:
    """A chain of brokers with others below each, and clients anywhere."""

    def __init__(self, ordering: str, cores: int = 4, edges: int = 5) -> None:
        self.now = 0.0
        self._settings = Settings(**rule_of(ordering))
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self.machines: dict[NodeId, Machine] = {}
        self.broker_of: dict[NodeId, NodeId] = {}
        self._steps: Counter[NodeId] = Counter()
        self._seqs: Counter[NodeId] = Counter()
        self.published_at: dict[Key, float] = {}
        self.delivered: dict[NodeId, list[Key]] = {}
        self.delays: list[float] = []
        self.traversals = self.stamp_bytes = 0
        above = None
        for core in range(cores):
            name = NodeId(f"core{core}")
            self._add(name, above)
            for edge in range(edges):
                self._add(NodeId(f"edge{core}.{edge}"), name)
            above = name
        self.run()

    @property
    def edges(self) -> list[NodeId]:
        return [name for name in self.machines if name.startswith("edge")]

    def _add(self, name: NodeId, parent: NodeId | None) -> None:
        machine = self.machines[name] = Machine(
            name, parent, settings=self._settings, limits=Limits(), outbox=Outbox()
        )
        if parent is not None:
            self.run()
            self.machines[parent].welcome(name, Standing(kind=BROKER))
            machine.steps.begin(Taken.REPLAY)
            self._carry_out(machine, machine.send_again())

    # --- time -------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (time, next(self._numbers), action, arguments))

    def run(self) -> None:
        while self._queue:
            self.now, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)

    def _carry_out(self, machine: Machine, touched: Sequence[Neighbour]) -> None:
        step = machine.steps.number
        for neighbour in touched:
            batch = Batch(step, machine.sent_since(neighbour, step - 1))
            self._send(machine.node, neighbour.node, batch)

    def _send(self, sender: NodeId, to: NodeId, batch: Batch) -> None:
        things = [each for each in batch.messages if isinstance(each, Publish | Settled | Errand)]
        self.traversals += len(things)
        self.at(self.now + LINK_S, self._receive, sender, to, batch)

    def _receive(self, sender: NodeId, to: NodeId, batch: Batch) -> None:
        machine = self.machines.get(to)
        if machine is None:
            self._deliver(to, batch)
            return
        neighbour = machine.neighbours.named(sender)
        assert neighbour is not None
        self._carry_out(machine, machine.take(neighbour, batch, self.now))

    # --- clients ----------------------------------------------------------------------------

    def join(self, client: NodeId, broker: NodeId) -> None:
        self.broker_of[client] = broker
        self.delivered[client] = []
        self.machines[broker].welcome(client, Standing(incarnation=1, key=client))
        self._ask(client, Join(operation=OperationId(f"{client}#0")))
        self.run()

    def advertise(self, client: NodeId) -> None:
        self._ask(
            client,
            Advertise(
                operation=OperationId(f"{client}#a"),
                advertisement=AdvertisementId(f"{client}/a"),
                client=client,
                filter="topic IS NOT NULL",
                path=(client,),
            ),
        )

    def subscribe(self, client: NodeId, topics: Sequence[str]) -> None:
        names = ", ".join(f"'{topic}'" for topic in topics)
        self._ask(
            client,
            Subscribe(
                operation=OperationId(f"{client}#s"),
                subscription=SubscriptionId(f"{client}/s"),
                client=client,
                filter=f"topic IN ({names})",
                ordered=True,
                path=(client,),
            ),
        )

    def publish(self, client: NodeId, topic: str) -> None:
        self._seqs[client] += 1
        key = client, 1, self._seqs[client]
        self.published_at[key] = self.now
        self._ask(client, Publish(*key, 0, encode_content({"topic": topic}), b""))

    def _ask(self, client: NodeId, message: Message) -> None:
        self._steps[client] += 1
        self._send(client, self.broker_of[client], Batch(self._steps[client], [message]))

    def _deliver(self, client: NodeId, batch: Batch) -> None:
        for message in batch.messages:
            if isinstance(message, Stamped):
                self.stamp_bytes += len(encode(message))
            elif isinstance(message, Publish):
                key = message.publisher, message.incarnation, message.seq
                self.delivered[client].append(key)
                self.delays.append(self.now - self.published_at[key])


# --- workloads ------------------------------------------------------------------------------------


def everything(rng: random.Random, edge: int) -> list[str]:
    """All subscribe to all of 20 topics."""
    del rng, edge
    return [f"t{n}" for n in range(20)]


def four_of_twenty(rng: random.Random, edge: int) -> list[str]:
    """Four of 20 topics, any of them."""
    del edge
    return [f"t{n}" for n in rng.sample(range(20), 4)]


def two_of_forty(rng: random.Random, edge: int) -> list[str]:
    """Two of 40 topics: hardly anybody shares a pair."""
    del edge
    return [f"t{n}" for n in rng.sample(range(40), 2)]


def clustered(rng: random.Random, edge: int) -> list[str]:
    """Four topics of the region, and one that any region may have."""
    region = edge // 5
    return [f"t{n}" for n in (*rng.sample(range(5 * region, 5 * region + 5), 4), rng.randrange(20))]


Workload = Callable[[random.Random, int], list[str]]
WORKLOADS: Final[Mapping[str, Workload]] = {
    "all subscribe 20 topics": everything,
    "4 of 20, uniform": four_of_twenty,
    "2 of 40, sparse": two_of_forty,
    "clustered by region": clustered,
}


def cost_of(
    ordering: str, workload: Workload, *, seed: int = 1, clients: int = 40, publications: int = 300
) -> Cost:
    """Run a workload: everybody publishes on what it has, so often altogether within 3 s."""
    rng = random.Random(seed)
    world = Timed(ordering)
    wants = {}
    for n in range(clients):
        client, edge = NodeId(f"c{n}"), rng.randrange(len(world.edges))
        world.join(client, world.edges[edge])
        wants[client] = workload(rng, edge)
        world.advertise(client)
    world.run()
    for client, topics in wants.items():
        world.subscribe(client, topics)
    world.run()
    world.traversals, start = 0, world.now + 1
    for _ in range(publications):
        client = rng.choice(sorted(wants))
        world.at(start + rng.uniform(0, 3), world.publish, client, rng.choice(wants[client]))
    world.run()
    return Cost(
        delay_ms=1000 * mean(world.delays),
        messages=world.traversals / publications,
        stamp_bytes=world.stamp_bytes / len(world.delays),
        delivered=world.delivered,
    )


def main() -> None:
    """Print what orderings cost."""
    for name, workload in WORKLOADS.items():
        for ordering in ("fifo", "pairwise", "sequencer", "tno", "tno@root", "tno@hash"):
            cost = cost_of(ordering, workload)
            print(
                f"{name:26} {ordering:10} {cost.delay_ms:6.1f} ms {cost.messages:6.1f} messages"
                f" {cost.stamp_bytes:6.1f} bytes"
            )


if __name__ == "__main__":
    main()
