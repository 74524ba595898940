"""Order among topics over TCP: wherever topics are managed, and while they change places."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from plait.broker.messages import RefusalCode
from plait.broker.net import Client, RefusedError, Subscription, connect
from tests.net.overlay import Overlay

ROUNDS = 12
TOPICS = ("a", "b", "c")


async def _three(overlay: Overlay, **settings: Any) -> list[str]:
    first = await overlay.broker("b1", **settings)
    others = [await overlay.broker(name, join="b1", **settings) for name in ("b2", "b3")]
    return [first, *others]


async def _publish(client: Client, topics: Sequence[str]) -> None:
    for n in range(ROUNDS):
        await client.publish({"topic": topics[n % len(topics)], "n": n})


async def _take(subscription: Subscription, count: int, into: list[tuple[str, int]]) -> None:
    async for delivery in subscription:
        assert delivery.in_order
        assert delivery.stamp is not None
        into.append((delivery.publisher, delivery.seq))
        if len(into) == count:
            return


@pytest.mark.parametrize("managers", ["summit", "root", "hash", "hash-count", "hash-rate"])
async def test_two_subscribers_are_told_in_one_order(overlay: Overlay, managers: str) -> None:
    addresses = await _three(overlay, ordering="tno", managers=managers)
    got: list[list[tuple[str, int]]] = [[], []]
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
                nursery.start_soon(_take, subscription, 2 * ROUNDS, into)
            nursery.start_soon(_publish, p, TOPICS)
            nursery.start_soon(_publish, q, TOPICS[::-1])
            if managers.startswith("hash"):
                await s.rank("c", above="a")
                await t.rank("b", above="c")

    assert got[0] == got[1]


async def test_who_is_told_at_once_is_told_what_came_in_order(overlay: Overlay) -> None:
    addresses = await _three(overlay, ordering="tno-tagged")
    got: list[list[tuple[str, int]]] = [[], []]

    async def take(subscription: Subscription, into: list[tuple[str, int]]) -> None:
        count = 0
        async for delivery in subscription:
            count += 1
            if delivery.in_order:
                into.append((delivery.publisher, delivery.seq))
            if count == 2 * ROUNDS:
                return

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

    shared = [[each for each in one if each in other] for one, other in (got, got[::-1])]
    assert shared[0] == shared[1]
    assert len(shared[0]) > 0


async def test_where_topics_have_no_order_none_ranks_above_another_one(overlay: Overlay) -> None:
    address = await overlay.broker("b1", ordering="tno")
    async with connect(address, name="s") as client:
        with pytest.raises(RefusedError, match="--managers hash") as caught:
            await client.rank("a", above="b")

    assert caught.value.code is RefusalCode.NO_ORDER
