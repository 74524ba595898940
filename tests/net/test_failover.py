"""Brokers are killed: a client's session outlives them, and nothing is lost or comes twice."""

from contextlib import AsyncExitStack

import pytest
import trio

from plait.broker.client.states import ClientState
from plait.broker.errors import UnconfirmedError
from plait.broker.net.client import Client, ClientHooks, Receipt, connect
from plait.broker.net.subscription import Subscription
from tests.net.overlay import Overlay, publisher_and_subscriber, take

EVERYTHING = "n IS NOT NULL"


async def line(overlay: Overlay, *names: str, delta: int = 1) -> list[str]:
    """Start brokers in a line; returns where they listen."""
    addresses: list[str] = []
    for name in names:
        join = addresses[-1] if addresses else None
        fallbacks = tuple(addresses[:-1])
        addresses.append(await overlay.broker(name, join=join, fallbacks=fallbacks, delta=delta))
    return addresses


async def by_publisher(subscription: Subscription, count: int) -> dict[str, list[int]]:
    """The numbers of the next publications delivered, by publisher."""
    seqs: dict[str, list[int]] = {}
    for _ in range(count):
        delivery = await anext(subscription)
        seqs.setdefault(delivery.publisher, []).append(delivery.seq)
    return seqs


async def test_nobody_notices_that_a_broker_is_killed_under_load(overlay: Overlay) -> None:
    """Clients know its address alone; whoever takes it up they have heard of from it."""
    b1, b2, b3 = await line(overlay, "b1", "b2", "b3")
    states: list[ClientState] = []
    async with (
        connect(b3, name="alice") as alice,
        connect(b2, name="carol", on_state=states.append) as carol,
        connect(b2, name="bob") as bob,
        connect(b1, name="dave") as dave,
    ):
        await alice.advertise(EVERYTHING)
        await carol.advertise(EVERYTHING)
        subscriptions = [await bob.subscribe(EVERYTHING), await dave.subscribe(EVERYTHING)]

        async def publish(client: Client) -> None:
            for n in range(300):
                await client.publish({"n": n})
                await trio.sleep(0.002)
            await client.flush()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish, alice)
            nursery.start_soon(publish, carol)
            await trio.sleep(0.2)
            await overlay.kill("b2")

        for subscription in subscriptions:
            expected = list(range(1, 301))
            assert await by_publisher(subscription, 600) == {"alice": expected, "carol": expected}
        assert (carol.broker, bob.broker) == ("b2", "b2")  # that is still what it is called
        assert not any(c._core.has_lost_session for c in (alice, bob, carol, dave))
        assert states == [ClientState.READY, ClientState.RECONNECTING, ClientState.READY]


async def test_what_was_not_confirmed_is_confirmed_after_a_failover(overlay: Overlay) -> None:
    b1, b2 = await line(overlay, "b1", "b2")
    async with connect(b2, name="alice") as alice, connect(b1, name="bob") as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        ClientHooks(bob).pause()
        receipts = await alice.publish_many({"n": n} for n in range(500))
        with trio.move_on_after(0.2):
            await receipts[0].confirmed()
        assert alice.unconfirmed == 500
        await overlay.kill("b2")
        receipts += await alice.publish_many({"n": n} for n in range(500))
        ClientHooks(bob).resume()
        await alice.flush()

        assert all(receipt.is_confirmed for receipt in receipts)
        assert await take(subscription, 1000) == list(range(1, 1001))


async def test_calls_that_a_broker_was_about_to_confirm_return(overlay: Overlay) -> None:
    b1, b2 = await line(overlay, "b1", "b2")
    async with connect(b2) as alice, connect(b1) as bob:
        subscriptions: list[Subscription] = []

        async def subscribe() -> None:
            subscriptions.append(await alice.subscribe("n > 0"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe)
            nursery.start_soon(alice.advertise, EVERYTHING)
            await trio.lowlevel.checkpoint()
            await overlay.kill("b2")

        await bob.advertise(EVERYTHING)
        await bob.publish({"n": 1}, confirm=True)
        await alice.publish({"n": 2}, confirm=True)
        assert len(await by_publisher(subscriptions[0], 2)) == 2


async def test_many_clients_of_one_process_go_on_together(overlay: Overlay) -> None:
    b1, b2 = await line(overlay, "b1", "b2")
    count = 60
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(b2)) for _ in range(count)]
        subscriptions = [await client.subscribe(EVERYTHING) for client in clients]
        publisher = await stack.enter_async_context(connect(b1))
        await publisher.advertise(EVERYTHING)
        await publisher.publish({"n": 0}, confirm=True)
        await overlay.kill("b2")
        await publisher.publish({"n": 1}, confirm=True)

        for subscription in subscriptions:
            assert await take(subscription, 2) == [1, 2]
        assert {client.broker for client in clients} == {"b2"}


async def test_a_client_that_was_killed_comes_back_elsewhere_in_a_new_life(
    overlay: Overlay,
) -> None:
    b1, b2 = await line(overlay, "b1", "b2")
    async with connect(b1, name="bob") as bob:
        subscription = await bob.subscribe(EVERYTHING)
        async with connect(b2, name="alice", incarnation=1) as former:
            await former.advertise(EVERYTHING)
            await former.publish({"n": 1}, confirm=True)
            ClientHooks(former).crash()
        async with connect(b1, name="alice", incarnation=2) as alice:
            await alice.advertise(EVERYTHING)
            await alice.publish({"n": 2}, confirm=True)
            await overlay.kill("b2")
            await alice.publish({"n": 3}, confirm=True)

        deliveries = [await anext(subscription) for _ in range(3)]
        assert [(d.publisher_incarnation, d.seq) for d in deliveries] == [(1, 1), (2, 1), (2, 2)]


async def test_a_client_leaves_although_its_broker_is_killed_meanwhile(overlay: Overlay) -> None:
    b1, b2 = await line(overlay, "b1", "b2")
    receipts: list[Receipt] = []
    async with connect(b1, name="bob") as bob:
        async with connect(b2, name="alice") as alice:
            subscription = await publisher_and_subscriber(alice, bob)
            receipts += await alice.publish_many({"n": n} for n in range(100))
            await overlay.kill("b2")

        assert all(receipt.is_confirmed for receipt in receipts)
        assert await take(subscription, 100) == list(range(1, 101))
        [played] = [b for b in (await overlay.status("b1"))["brokers"] if b["broker"] == "b2"]
        assert played["clients"] == 0


async def test_where_nobody_knows_a_client_any_more_it_begins_a_new_session(
    overlay: Overlay,
) -> None:
    """Then its application hears of the publications for which nobody can vouch."""
    address = await overlay.broker("b1")
    states: list[ClientState] = []
    async with (
        connect(address, name="alice", on_state=states.append) as alice,
        connect(address, name="bob") as bob,
    ):
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish({"n": 0}, confirm=True)
        ClientHooks(bob).pause()
        lost = await alice.publish_many({"n": n} for n in range(1, 20))
        await overlay.until("b1", "plait_publications_received_total", lambda n: n == 20)
        await overlay.kill("b1")
        ClientHooks(bob).resume()
        unheard = await alice.publish({"n": 20})
        await overlay.broker("b1", listen=address, incarnation=2)
        later = await alice.publish({"n": 21}, confirm=True)

        for receipt in lost:
            with pytest.raises(UnconfirmedError, match="the session was lost"):
                await receipt.confirmed()
        assert unheard.is_confirmed
        assert later.is_confirmed
        assert ClientState.RECONNECTING in states
        with pytest.raises(UnconfirmedError, match="19 publications of alice are not confirmed"):
            await alice.flush()
        seqs = []
        while later.seq not in seqs:
            seqs.append((await anext(subscription)).seq)
        assert seqs == sorted(set(seqs))
        ClientHooks(alice).abandon()
