"""Connections are cut, nothing is: every publication arrives once and in order."""

from contextlib import AsyncExitStack

import trio
import trio.testing

from plait.broker.client.states import ClientState
from plait.broker.limits import Limits
from plait.broker.net.client import connect
from tests.net.overlay import Overlay, Proxy, publisher_and_subscriber, take, until_ready

PATIENT = Limits(resume_timeout_s=30.0)


async def test_a_publisher_whose_connection_is_cut_loses_nothing(
    overlay: Overlay, nursery: trio.Nursery
) -> None:
    address = await overlay.broker("b1", limits=PATIENT)
    proxy = await Proxy.start(nursery, address)
    states: list[ClientState] = []
    async with connect(proxy.address, on_state=states.append) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await proxy.next_connection()
        for n in range(1000):
            await alice.publish({"n": n})
            if n in (300, 600):
                proxy.cut()
                await proxy.next_connection()
                await until_ready(alice)

        assert await take(subscription, 1000) == list(range(1, 1001))
        await alice.flush()

    assert proxy.connections_made == 3
    assert states == [
        ClientState.READY,
        *([ClientState.RECONNECTING, ClientState.READY] * 2),
        ClientState.LEAVING,
        ClientState.CLOSED,
    ]


async def test_a_subscriber_whose_connection_is_cut_misses_and_repeats_nothing(
    overlay: Overlay, nursery: trio.Nursery
) -> None:
    address = await overlay.broker("b1", limits=PATIENT)
    proxy = await Proxy.start(nursery, address)
    async with connect(address) as alice, connect(proxy.address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await proxy.next_connection()
        for n in range(1000):
            await alice.publish({"n": n})
            if n in (300, 600):
                proxy.cut()
                await proxy.next_connection()

        assert await take(subscription, 1000) == list(range(1, 1001))
        await alice.flush()


async def test_brokers_whose_connection_is_cut_go_on(
    overlay: Overlay, nursery: trio.Nursery
) -> None:
    proxy = await Proxy.start(nursery)
    address = proxy.target = await overlay.broker("b1", address=proxy.address, limits=PATIENT)
    await overlay.broker("b2", join=proxy.address, limits=PATIENT)
    async with connect(address) as up, connect(overlay.address("b2")) as down:
        below = await publisher_and_subscriber(up, down)
        above = await publisher_and_subscriber(down, up)
        await proxy.next_connection()
        for n in range(400):
            await up.publish({"n": n})
            await down.publish({"n": n})
            if n in (100, 250):
                proxy.cut()
                await proxy.next_connection()
        await up.flush()
        await down.flush()
        await below.unsubscribe()
        await above.unsubscribe()

        for subscription in (above, below):
            seqs: dict[str, list[int]] = {up.name: [], down.name: []}
            async for delivery in subscription:
                seqs[delivery.publisher].append(delivery.seq)
            assert seqs == {name: list(range(1, 401)) for name in seqs}


async def test_operations_survive_a_cut_connection(overlay: Overlay, nursery: trio.Nursery) -> None:
    address = await overlay.broker("b1", limits=PATIENT)
    proxy = await Proxy.start(nursery, address)
    async with connect(proxy.address) as alice, connect(address) as bob:
        await proxy.next_connection()
        proxy.hold()
        subscriptions = []

        async def subscribe() -> None:
            subscriptions.append(await alice.subscribe("n > 0"))

        async with trio.open_nursery() as waiting:
            waiting.start_soon(subscribe)
            await trio.testing.wait_all_tasks_blocked()
            proxy.cut()
            proxy.release()

        await bob.advertise("TRUE")
        await bob.publish({"n": 1})

        assert await take(subscriptions[0], 1) == [1]


async def test_a_client_comes_back_at_another_address(
    overlay: Overlay, nursery: trio.Nursery
) -> None:
    address = await overlay.broker("b1", limits=PATIENT)
    proxy = await Proxy.start(nursery, address)
    async with connect(proxy.address, address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish({"n": 1}, confirm=True)
        proxy.close()
        await alice.publish({"n": 2}, confirm=True)

        assert await take(subscription, 2) == [1, 2]


async def test_a_broker_that_stops_finishes_what_it_accepted(
    overlay: Overlay, nursery: trio.Nursery
) -> None:
    address = await overlay.broker("b1", limits=PATIENT)
    proxy = await Proxy.start(nursery, address)
    await overlay.broker("b2", join=proxy.address, limits=PATIENT)
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(
            connect(overlay.address("b2"), overlay.address("b1"))
        )
        bob = await stack.enter_async_context(connect(overlay.address("b1")))
        subscription = await publisher_and_subscriber(alice, bob)
        proxy.hold()
        await alice.publish_many({"n": n} for n in range(500))
        await overlay.until("b2", "plait_publications_received_total", lambda n: n == 500)
        async with trio.open_nursery() as stopping:
            stopping.start_soon(overlay.stop, "b2")
            await trio.testing.wait_all_tasks_blocked()
            proxy.release()
        await alice.flush()

        assert await take(subscription, 500) == list(range(1, 501))
