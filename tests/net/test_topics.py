"""Order among topics over TCP: wherever topics are managed, and while they change places."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio

from plait.broker.errors import RefusedError
from plait.broker.messages import RefusalCode
from plait.broker.net.client import Client, connect
from plait.broker.net.subscription import Subscription
from tests.net.overlay import Overlay

Taken = list[tuple[str, int]]
"""Who published, and which."""

ROUNDS = 12
TOPICS = ("a", "b", "c")


async def _three(overlay: Overlay, **settings: Any) -> list[str]:
    first = await overlay.broker("b1", **settings)
    others = [await overlay.broker(name, join="b1", **settings) for name in ("b2", "b3")]
    return [first, *others]


async def _publish(client: Client, topics: Sequence[str]) -> None:
    for n in range(ROUNDS):
        await client.publish({"topic": topics[n % len(topics)], "n": n})


async def _take(subscription: Subscription, into: Taken) -> None:
    async for delivery in subscription:
        assert delivery.in_order
        assert delivery.stamp is not None
        into.append((delivery.publisher, delivery.seq))
        if len(into) == 2 * ROUNDS:
            return


@contextlib.asynccontextmanager
async def _two_take(
    addresses: Sequence[str], take: Callable[[Subscription, Taken], Awaitable[None]]
) -> AsyncIterator[tuple[Client, Client, list[Taken]]]:
    """Within the block s and t take what p and q publish, in opposite orders of topics."""
    got: list[Taken] = [[], []]
    async with (
        connect(addresses[1], name="s") as s,
        connect(addresses[2], name="t") as t,
        connect(addresses[0], name="p") as p,
        connect(addresses[1], name="q") as q,
    ):
        for client in (p, q):
            await client.advertise("topic IS NOT NULL")
        both = [await each.subscribe("topic IN ('a', 'b', 'c')") for each in (s, t)]
        async with trio.open_nursery() as nursery:
            for subscription, into in zip(both, got, strict=True):
                nursery.start_soon(take, subscription, into)
            nursery.start_soon(_publish, p, TOPICS)
            nursery.start_soon(_publish, q, TOPICS[::-1])
            yield s, t, got


@pytest.mark.parametrize("managers", ["summit", "root", "hash", "hash-count", "hash-rate"])
async def test_two_subscribers_are_told_in_one_order(overlay: Overlay, managers: str) -> None:
    addresses = await _three(overlay, ordering="tno", managers=managers)
    async with _two_take(addresses, _take) as (s, t, got):
        if managers.startswith("hash"):
            await s.rank("c", above="a")
            await t.rank("b", above="c")

    assert got[0] == got[1]


async def test_who_is_told_at_once_is_told_what_came_in_order(overlay: Overlay) -> None:
    addresses = await _three(overlay, ordering="tno-tagged")

    async def take(subscription: Subscription, into: Taken) -> None:
        count = 0
        async for delivery in subscription:
            count += 1
            if delivery.in_order:
                into.append((delivery.publisher, delivery.seq))
            if count == 2 * ROUNDS:
                return

    async with _two_take(addresses, take) as (_, _, got):
        pass

    shared = [[each for each in one if each in other] for one, other in (got, got[::-1])]
    assert shared[0] == shared[1]
    assert len(shared[0]) > 0


async def test_where_topics_have_no_order_none_ranks_above_another_one(overlay: Overlay) -> None:
    address = await overlay.broker("b1", ordering="tno")
    async with connect(address, name="s") as client:
        with pytest.raises(RefusedError, match="--managers hash") as caught:
            await client.rank("a", above="b")

    assert caught.value.code is RefusalCode.NO_ORDER
