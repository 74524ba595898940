"""What subscriptions cost: the memory of every broker of an overlay, and the time to subscribe.

The brokers are a balanced tree, over TCP. At each of them there is a publisher whose advertisement
overlaps all subscriptions, so every subscription is installed at every broker; and a subscriber
that makes its share of them, one after the other, all subscribers at the same time. The last few of
every stage are made one by one: that is how long a subscription takes when nothing else goes on.

The subscribers ask for a symbol, a price above and a volume of at least so much: three constraints,
no two subscriptions alike.
"""

import contextlib
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import psutil
import trio

from plait.broker.net.client import Client, connect
from plait.scripts.bench.trials import DEFAULT_ORDERING, plan_brokers
from plait.scripts.launcher import RunningOverlay, launch

BROKERS: Final = 7
SUBSCRIPTIONS: Final = 10_000
STAGES: Final = (0.25, 0.5, 1.0)
"""Shares of all subscriptions, after which memory is looked at."""
ALONE: Final = 50
"""Subscriptions per stage that are made one by one."""
SETTLE_S: Final = 0.3
ADVERTISEMENT: Final = "price > 0"
SYMBOLS: Final = 1_000


@attrs.frozen
class Memory:
    """What brokers hold with so many subscriptions installed at each."""

    subscriptions: int
    resident_bytes: list[int]
    """Of every broker's process."""

    def bytes_each_since(self, before: "Memory") -> list[float]:
        """What each subscription since then costs, broker by broker."""
        count = self.subscriptions - before.subscriptions
        pairs = zip(before.resident_bytes, self.resident_bytes, strict=True)
        return [(later - earlier) / count for earlier, later in pairs]


@attrs.frozen(kw_only=True)
class Stage:
    """How the subscriptions up to a given number were installed."""

    memory: Memory
    concurrent_ms: float
    """Time per subscription, when all subscribers subscribe."""
    alone_p50_ms: float
    """How long a subscriber waits for a subscription, when nobody else subscribes."""


@attrs.frozen(kw_only=True)
class MemoryFigures:
    """Stage after stage."""

    empty: Memory
    stages: list[Stage]

    @property
    def bytes_per_subscription(self) -> float:
        """What one subscription costs the broker that it costs most."""
        return max(self.stages[-1].memory.bytes_each_since(self.empty))

    @property
    def bytes_each(self) -> list[float]:
        """What one subscription costs a broker on average, stage by stage."""
        memories = [self.empty, *(stage.memory for stage in self.stages)]
        return [
            statistics.mean(after.bytes_each_since(before))
            for before, after in itertools.pairwise(memories)
        ]

    @property
    def growth(self) -> float:
        """What one of the last subscriptions costs, compared with one of the first."""
        return self.bytes_each[-1] / self.bytes_each[0]


async def measure_memory(
    subscriptions: int = SUBSCRIPTIONS,
    brokers: int = BROKERS,
    ordering: str = DEFAULT_ORDERING,
) -> MemoryFigures:
    """Install subscriptions in stages, and look at the brokers after each."""
    texts = distinct_subscriptions(subscriptions)
    plan = plan_brokers(_balanced_tree(brokers), ordering)
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        async with (
            launch(plan, log_directory=Path(folder), tell=lambda _: None) as overlay,
            contextlib.AsyncExitStack() as stack,
        ):
            subscribers = await _connect_clients(overlay, stack)
            empty = await _look(overlay, 0)
            stages: list[Stage] = []
            begin = 0
            for share in STAGES:
                end = int(share * subscriptions)
                alone = max(begin, end - ALONE)
                concurrent_ms = await _subscribe_all(subscribers, texts[begin:alone])
                alone_ms = [
                    await _subscribe_all(subscribers[:1], [text]) for text in texts[alone:end]
                ]
                stages.append(
                    Stage(
                        memory=await _look(overlay, end),
                        concurrent_ms=concurrent_ms,
                        alone_p50_ms=statistics.median(alone_ms),
                    )
                )
                begin = end
            return MemoryFigures(empty=empty, stages=stages)


def _balanced_tree(brokers: int) -> dict[str, str | None]:
    return {f"b{n}": f"b{(n - 1) // 2}" if n else None for n in range(brokers)}


async def _connect_clients(
    overlay: RunningOverlay, stack: contextlib.AsyncExitStack
) -> list[Client]:
    """Connect a publisher and a subscriber to every broker; return the subscribers."""
    subscribers = []
    for broker in overlay.processes:
        at = overlay.address_of(broker)
        publisher = await stack.enter_async_context(connect(at, name=f"publisher-{broker}"))
        await publisher.advertise(ADVERTISEMENT)
        subscriber = await stack.enter_async_context(connect(at, name=f"subscriber-{broker}"))
        subscribers.append(subscriber)
    return subscribers


async def _subscribe_all(subscribers: Sequence[Client], texts: Sequence[str]) -> float:
    """Subscribe, each subscriber its share; return the milliseconds per subscription."""
    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number, subscriber in enumerate(subscribers):
            nursery.start_soon(_subscribe, subscriber, texts[number :: len(subscribers)])
    return 1e3 * (time.perf_counter() - started) / max(1, len(texts))


async def _subscribe(subscriber: Client, texts: Sequence[str]) -> None:
    for text in texts:
        await subscriber.subscribe(text)


async def _look(overlay: RunningOverlay, subscriptions: int) -> Memory:
    await trio.sleep(SETTLE_S)
    pids = [process.pid for process in overlay.processes.values()]
    return Memory(subscriptions, [psutil.Process(pid).memory_info().rss for pid in pids])


def distinct_subscriptions(count: int) -> list[str]:
    """Return so many, three constraints each."""
    chance = random.Random(0)
    return [
        f"symbol = 'S{chance.randrange(SYMBOLS)}' AND price > {chance.uniform(1, 1000):.4f} "
        f"AND volume >= {chance.randrange(100_000)}"
        for _ in range(count)
    ]
