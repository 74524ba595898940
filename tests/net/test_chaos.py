"""Everything at once: an overlay whose every connection is cut again and again, and the auditor."""

import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from plait.broker.limits import Limits
from plait.broker.net.client import Client, connect
from plait.broker.net.subscription import Subscription
from plait.faulttol.guarantees import check
from plait.faulttol.history import MemoryHistory
from tests.net.overlay import Overlay, Proxy

LIMITS = Limits(resume_timeout_s=30.0, delivery_buffer_max=1_000_000)
ROUNDS = 30


@pytest.mark.parametrize("ordering", ["fifo", "pairwise"])
async def test_cut_connections_cost_neither_publications_nor_their_order(
    overlay: Overlay, nursery: trio.Nursery, ordering: str
) -> None:
    choice = random.Random(ordering)
    proxies: list[Proxy] = []
    records: list[dict[str, Any]] = []

    async def through_a_proxy(name: str) -> str:
        proxies.append(await Proxy.start(nursery, overlay.address(name)))
        return proxies[-1].address

    await overlay.broker("b1", limits=LIMITS, ordering=ordering)
    for name, parent in (("b2", "b1"), ("b3", "b1"), ("b4", "b2")):
        await overlay.broker(name, join=await through_a_proxy(parent), limits=LIMITS)

    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        subscriptions: list[Subscription] = []
        for n in range(6):
            address = await through_a_proxy(f"b{1 + n % 4}")
            history = MemoryHistory("r", f"c{n}", records=records)
            client = await stack.enter_async_context(
                connect(address, name=f"c{n}", limits=LIMITS, history=history)
            )
            await client.advertise("n >= 0")
            subscriptions.append(await client.subscribe(f"n < {choice.choice([30, 60, 100])}"))
            clients.append(client)
        for _ in range(ROUNDS):
            choice.choice(proxies).cut()
            for client in clients:
                await client.publish_many(
                    ({"n": choice.randrange(100)}, bytes(choice.randrange(2000)))
                    for _ in range(choice.randrange(20))
                )
            # For as long as it takes that one to come back, more or less, the others go on.
            await choice.choice(clients).publish({"n": 0}, confirm=True)
        for client in clients:
            await client.flush()
        for subscription in subscriptions:
            await subscription.unsubscribe()

    report = check(records, ordering=ordering)
    assert report.violations == ()
    assert report.figures["unstable"] == 0
    assert report.figures["delivered"] > 1000
    assert sum(proxy.connections_made for proxy in proxies) > len(proxies) + ROUNDS // 2
