"""The client library, against real brokers on loopback."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from plait.broker.client.states import ClientState
from plait.broker.errors import (
    AddressError,
    ClosedError,
    NotAdvertisedError,
    RefusedError,
    UnconfirmedError,
)
from plait.broker.inputs import TimerFired
from plait.broker.limits import Limits
from plait.broker.net.client import ClientHooks, connect
from plait.faulttol.guarantees import check_run
from plait.faulttol.history import HistoryWriter, Manifest, MemoryHistory, read_run, write_manifest
from plait.routing.errors import ContentError, FilterSyntaxError, TrapWarning
from tests.net.overlay import Overlay, Proxy, publisher_and_subscriber, take


async def test_a_publication_reaches_a_subscriber_at_another_broker(overlay: Overlay) -> None:
    await overlay.broker("b1")
    await overlay.broker("b2", join="b1")
    await overlay.broker("b3", join="b2")
    async with (
        connect(overlay.address("b1"), name="alice") as alice,
        connect(overlay.address("b3"), name="bob") as bob,
    ):
        await alice.advertise("symbol = 'IBM'")
        subscription = await bob.subscribe("price > 100")
        await alice.publish({"symbol": "IBM", "price": 99}, b"too cheap")
        await alice.publish({"symbol": "IBM", "price": 101.5}, b"body", confirm=True)

        delivery = await anext(aiter(subscription))

    assert (delivery.publisher, delivery.seq, delivery.position) == ("alice", 2, 1)
    assert delivery.content == {"symbol": "IBM", "price": 101.5}
    assert delivery.body == b"body"
    assert delivery.subscriptions == (subscription.id,)


async def test_a_topic_ending_in_a_star_is_everything_below(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        await alice.advertise("topic LIKE '/a%'")
        subscription = await bob.subscribe(topic="/a/*")
        await alice.publish_many([{"topic": "/a"}, {"topic": "/a/b"}, {"topic": "/a/b/c"}])

        assert await take(subscription, 2) == [2, 3]


async def test_two_subscriptions_of_one_client_both_get_what_matches_both(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        await alice.advertise("TRUE")
        cheap, dear = await bob.subscribe("price < 20"), await bob.subscribe("price > 10")
        await alice.publish({"price": 15})

        delivery = await anext(cheap)

        assert delivery is await anext(dear)
        assert delivery.subscriptions == (cheap.id, dear.id)


async def test_a_confirmed_publication_is_known_to_be_confirmed(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        await alice.advertise("TRUE")
        receipt = await alice.publish({"n": 1}, confirm=True)
        later = alice.publish_nowait({"n": 2})

        assert [receipt.is_confirmed, later.is_confirmed] == [True, False]
        assert alice.unconfirmed == 1

        await alice.flush()

        assert [receipt.is_confirmed, later.is_confirmed] == [True, True]
        assert (receipt.seq, later.seq) == (1, 2)


async def test_confirmations_can_be_awaited_in_any_order_and_by_many(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        await alice.advertise("TRUE")
        receipts = await alice.publish_many({"n": n} for n in range(20))
        async with trio.open_nursery() as nursery:
            for receipt in [*reversed(receipts), *receipts]:
                nursery.start_soon(receipt.confirmed)

        assert all(receipt.is_confirmed for receipt in receipts)


async def test_publishing_waits_for_room_in_the_window(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    limits = Limits(publish_window=8, publish_window_max=8)
    async with connect(address, limits=limits) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        for n in range(8):
            alice.publish_nowait({"n": n})

        with pytest.raises(trio.WouldBlock):
            alice.publish_nowait({"n": 8})

        for n in range(100):
            await alice.publish({"n": n})
            assert alice.unconfirmed <= 8

        assert await take(subscription, 108) == list(range(1, 109))


async def test_the_window_counts_the_bytes_of_bodies_too(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    limits = Limits(publish_window_bytes=1000, publish_window_bytes_max=1000)
    async with connect(address, limits=limits) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        for n in range(4):
            alice.publish_nowait({"n": n}, b"x" * 300)

        with pytest.raises(trio.WouldBlock):
            alice.publish_nowait({"n": 4})

        for n in range(20):
            await alice.publish({"n": n}, b"x" * 300)
            assert alice.unconfirmed <= 4

        assert await take(subscription, 24) == list(range(1, 25))


async def test_publishing_without_an_advertisement_is_refused_at_once(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address, name="alice") as alice:
        with pytest.raises(NotAdvertisedError, match="alice has advertised nothing yet"):
            await alice.publish({"n": 1})

        advertisement = await alice.advertise("n > 5")
        with pytest.raises(NotAdvertisedError, match="lies outside what alice has advertised"):
            await alice.publish({"n": 1})
        await alice.publish({"n": 6})

        await advertisement.withdraw()
        with pytest.raises(NotAdvertisedError, match="alice has advertised nothing yet"):
            await alice.publish({"n": 6})


@pytest.mark.parametrize(
    ("content", "body", "error", "reason"),
    [
        ({"n": None}, b"", ContentError, "'n': found a value of type NoneType"),
        ({"n": 1}, b"x" * (1 << 20), ContentError, "body of 1048576 bytes, at most"),
        ({"n": 1}, "text", TypeError, "body: found str, expected bytes"),
        ({"n": "x" * 20_000}, b"", ContentError, "content of 20006 bytes, at most 16384 allowed"),
    ],
)
async def test_what_cannot_be_published_costs_no_number_and_no_connection(
    overlay: Overlay, content: Any, body: Any, error: type[Exception], reason: str
) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        await alice.advertise("TRUE")
        with pytest.raises(error, match=reason):
            await alice.publish(content, body)

        receipt = await alice.publish({"n": 1}, confirm=True)

    assert receipt.seq == 1


async def test_a_large_body_fits(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    body = bytes(range(256)) * 4000
    async with connect(address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish({"n": 1}, body)

        assert (await anext(subscription)).body == body


async def test_a_filter_that_is_none_is_refused_at_the_call(overlay: Overlay) -> None:
    async with connect(await overlay.broker("b1")) as alice:
        with pytest.raises(FilterSyntaxError):
            await alice.subscribe("price >")
        with pytest.raises(FilterSyntaxError):
            await alice.advertise("price >")
        with pytest.raises(TypeError, match="either a filter or a topic"):
            await alice.subscribe()
        with pytest.raises(TypeError, match="either a filter or a topic"):
            await alice.subscribe("TRUE", topic="/a")


async def test_a_refusal_names_its_code(overlay: Overlay) -> None:
    address = await overlay.broker("b1", limits=Limits(subscriptions_per_client_max=1))
    async with connect(address, name="alice") as alice:
        await alice.subscribe("a = 1")
        with pytest.raises(RefusedError, match="alice has 1 already, at most 1 allowed") as caught:
            await alice.subscribe("a = 2")

    assert caught.value.code == "too-many"


async def test_unsubscribing_ends_the_iteration_after_what_was_delivered(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish_many([{"n": 1}, {"n": 2}], confirm=True)
        await subscription.unsubscribe()
        await alice.publish({"n": 3}, confirm=True)

        assert [delivery.seq async for delivery in subscription] == [1, 2]
        await subscription.unsubscribe()  # once more does no harm


async def test_a_subscription_lives_as_long_as_its_block(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        async with await alice.subscribe("TRUE"):
            assert (await overlay.status("b1"))["subscriptions"] == 1
        assert (await overlay.status("b1"))["subscriptions"] == 0


async def test_batches_bring_all_there_is(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish_many(({"n": n} for n in range(100)), confirm=True)
        taken: list[int] = []
        async for batch in subscription.batches():
            assert batch
            taken += [delivery.seq for delivery in batch]
            if len(taken) == 100:
                break

        assert taken == list(range(1, 101))


async def test_several_tasks_share_a_subscription(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        taken: list[int] = []

        async def work() -> None:
            async for delivery in subscription:
                taken.append(delivery.seq)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work)
            await alice.publish_many(({"n": n} for n in range(300)), confirm=True)
            await subscription.unsubscribe()

        assert sorted(taken) == list(range(1, 301))


async def test_taking_deliveries_lets_others_run(overlay: Overlay) -> None:
    """Every 64th delivery is a checkpoint, also when the buffer never runs dry."""
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish_many(({"n": n} for n in range(500)), confirm=True)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            await take(subscription, 500)
            nursery.cancel_scope.cancel()

        assert turns >= 500 // 65


async def test_a_slow_application_holds_up_its_own_client_and_nobody_else(
    overlay: Overlay,
) -> None:
    """Its client stops reading, but goes on saying that it is there."""
    limits = Limits(heartbeat_interval_s=0.05, heartbeat_timeout_s=0.5, delivery_buffer_max=16)
    address = await overlay.broker("b1", limits=limits)
    async with connect(address) as alice, connect(address, limits=limits) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        body = b"x" * 4096
        await alice.publish_many(({"n": n}, body) for n in range(2000))
        heard = await overlay.metric("b1", "plait_received_messages_total")
        await overlay.until("b1", "plait_received_messages_total", lambda n: n > heard + 30)
        one_read = 65536 // 4096

        assert 16 < subscription.buffered <= 16 + 2 * one_read
        assert bob.state is ClientState.READY

        seqs = []
        async for delivery in subscription:
            seqs.append(delivery.seq)
            assert subscription.buffered <= 16 + 2 * one_read
            if delivery.seq == 2000:
                break

        assert seqs == list(range(1, 2001))
        await alice.flush()
    assert overlay.logged("b1", "link lost") == []


# Beginning and end


async def test_the_first_address_that_answers_is_taken(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect("127.0.0.1:1", address) as alice:
        assert alice.broker == "b1"


async def test_without_any_broker_the_error_says_where_it_was_looked_for() -> None:
    with pytest.raises(ClosedError, match=r"no broker at 127\.0\.0\.1:1: connection refused"):
        async with connect("127.0.0.1:1"):
            pass


async def test_an_address_that_is_none_is_refused_before_anything_is_tried() -> None:
    with pytest.raises(ValueError, match="address 'nonsense': expected host:port"):
        async with connect("nonsense"):
            pass


async def test_an_exception_comes_out_of_the_block_as_it_is(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    with pytest.raises(KeyError, match="mine"):
        async with connect(address):
            raise KeyError("mine")


async def test_leaving_the_block_waits_for_confirmations_and_leaves(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    states: list[ClientState] = []
    async with connect(address, on_state=states.append) as alice:
        await alice.advertise("TRUE")
        receipts = await alice.publish_many({"n": n} for n in range(200))

    assert all(receipt.is_confirmed for receipt in receipts)
    assert states == [ClientState.READY, ClientState.LEAVING, ClientState.CLOSED]
    assert (await overlay.status("b1"))["neighbours"] == []
    assert (await overlay.status("b1"))["advertisements"] == 0


async def test_a_cancelled_block_leaves_the_overlay_too(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    with trio.CancelScope() as scope:
        async with connect(address) as alice:
            await alice.subscribe("TRUE")
            scope.cancel()
            await trio.sleep_forever()

    await overlay.until("b1", 'plait_links{kind="client"}', lambda links: links == 0)
    assert (await overlay.status("b1"))["neighbours"] == []


async def test_who_is_cancelled_is_heard_out_before_it_is_gone(overlay: Overlay) -> None:
    """What it alone knows of would be lost with its broker."""
    await overlay.broker("b1")
    address = await overlay.broker("b2", join="b1")
    async with connect(overlay.address("b1")) as bob:
        subscription = await bob.subscribe("TRUE")
        with trio.CancelScope() as scope:
            async with connect(address) as alice:
                await alice.advertise("TRUE")
                scope.cancel()
                for n in range(100):
                    alice.publish_nowait({"n": n})
                await trio.sleep_forever()
        await overlay.kill("b2")

        assert await take(subscription, 100) == list(range(1, 101))


async def test_who_is_cancelled_waits_for_no_slow_subscriber(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.broker.net.client.PARTING_S", 0.1)
    address = await overlay.broker("b1")
    async with connect(address) as bob:
        await bob.subscribe("TRUE")
        ClientHooks(bob).pause()
        with trio.CancelScope() as scope:
            async with connect(address, name="alice") as alice:
                await alice.advertise("TRUE")
                await alice.publish({"n": 1})
                scope.cancel()
                await trio.sleep_forever()

        neighbours = (await overlay.status("b1"))["neighbours"]
        assert [each["name"] for each in neighbours] == [bob.name]
        assert not overlay.logged("b1", "link lost")
        ClientHooks(bob).resume()


async def test_who_takes_nothing_can_leave_all_the_same(overlay: Overlay) -> None:
    """It has stopped to read, and reads on to hear that it may go."""
    address = await overlay.broker("b1")
    limits = Limits(delivery_buffer_max=1)
    async with connect(address) as alice:
        async with connect(address, limits=limits) as bob:
            subscription = await publisher_and_subscriber(alice, bob)
            await alice.publish_many({"n": n} for n in range(5000))
            while subscription.buffered <= limits.delivery_buffer_max:
                await trio.lowlevel.checkpoint()
        await alice.flush()

        assert bob._stop_reason == "left"


async def test_after_the_block_everything_says_that_the_client_is_closed(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        await alice.advertise("TRUE")
        subscription = await alice.subscribe("TRUE")

    with pytest.raises(ClosedError):
        await alice.publish({"n": 1})
    with pytest.raises(ClosedError):
        await alice.subscribe("TRUE")
    with pytest.raises(ClosedError):
        await alice.advertise("TRUE")
    assert [delivery async for delivery in subscription] == []
    await alice.close()


async def test_a_cancelled_subscribe_leaves_no_subscription_behind(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        with trio.CancelScope() as scope:
            scope.cancel()
            await alice.subscribe("a = 1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await alice.advertise("a = 1")
        await alice.advertise("TRUE")
        await alice.publish({"a": 1}, confirm=True)

        status = await overlay.status("b1")
        assert (status["subscriptions"], status["advertisements"]) == (0, 1)


async def test_what_is_cancelled_may_still_be_refused(overlay: Overlay) -> None:
    limits = Limits(subscriptions_per_client_max=0, advertisements_per_client_max=0)
    address = await overlay.broker("b1", limits=limits)
    async with connect(address) as alice:
        with trio.CancelScope() as scope:
            scope.cancel()
            await alice.subscribe("a = 1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await alice.advertise("a = 1")
        with pytest.raises(RefusedError):
            await alice.subscribe("a = 2")


async def test_a_subscriber_hears_that_its_broker_is_gone_for_good(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.broker.client.session.RECONNECT_TIMEOUT_S", 0.05)
    address = await overlay.broker("b1")
    async with connect(address) as alice:
        await alice.advertise("TRUE")
        subscription = await alice.subscribe("a = 1")
        await overlay.kill("b1")

        with pytest.raises(ClosedError, match="no broker at"):
            await anext(subscription)
        with pytest.raises(ClosedError, match="no broker at"):
            await alice.publish({"n": 1})


async def test_what_was_not_confirmed_is_reported_at_the_end(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.broker.client.session.RECONNECT_TIMEOUT_S", 0.05)
    receipts = []

    async def publish_to_a_broker_that_dies(address: str) -> None:
        async with connect(address, name="alice") as alice:
            await alice.advertise("TRUE")
            await alice.publish({"n": 1}, confirm=True)
            await overlay.kill("b1")
            receipts.extend([alice.publish_nowait({"n": 2}), alice.publish_nowait({"n": 3})])

    address = await overlay.broker("b1")
    with pytest.raises(UnconfirmedError, match="2 publications of alice are not confirmed, the f"):
        await publish_to_a_broker_that_dies(address)
    with pytest.raises(UnconfirmedError, match="publication 3 of alice: no broker at"):
        await receipts[1].confirmed()


# What an auditor reads


async def test_a_history_has_what_was_published_and_delivered(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    records: list[dict[str, Any]] = []
    async with (
        connect(
            address, name="alice", history=MemoryHistory("r", "alice", records=records)
        ) as alice,
        connect(address, name="bob", history=MemoryHistory("r", "bob", records=records)) as bob,
    ):
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish({"n": 1}, b"body", confirm=True)

        assert await take(subscription, 1) == [1]

    kinds = [record["kind"] for record in records]
    assert kinds == [
        "advertised", "subscribed", "published", "delivered", "confirmed", "unsubscribed"
    ]  # fmt: skip
    delivered = records[3]
    assert (delivered["subscriber"], delivered["publisher"], delivered["seq"]) == (
        "bob",
        "alice",
        1,
    )
    assert (delivered["position"], delivered["subscriptions"]) == (1, [subscription.id])
    assert delivered["crc"] == records[2]["crc"] != 0
    assert [record["at"] for record in records] == sorted(record["at"] for record in records)


async def test_a_publisher_that_comes_back_has_another_life_in_the_history(
    overlay: Overlay, tmp_path: Path
) -> None:
    address = await overlay.broker("b1")
    manifest = Manifest(
        run="r",
        topology=None,
        ordering="pairwise",
        delta=1,
        seed=None,
        started=0.0,
        simulated=False,
    )
    write_manifest(tmp_path, manifest)
    deliveries = []
    with HistoryWriter(tmp_path, "r", "bob", 1) as of_bob:
        async with connect(address, name="bob", history=of_bob) as bob:
            subscription = await bob.subscribe("TRUE")
            for life in (3, 7):
                with HistoryWriter(tmp_path, "r", "alice", life) as history:
                    async with connect(
                        address, name="alice", incarnation=life, history=history
                    ) as alice:
                        assert alice.incarnation == life
                        await alice.advertise("TRUE")
                        await alice.publish({"n": life}, confirm=True)
                deliveries.append(await anext(subscription))
    report = check_run(read_run(tmp_path))

    named = [(one.publisher, one.publisher_incarnation, one.seq) for one in deliveries]
    assert named == [("alice", 3, 1), ("alice", 7, 1)]
    assert report.violations == ()
    assert report.figures["published"] == report.figures["delivered"] == 2
    assert report.figures["publishers"] == 1


async def test_a_paused_client_goes_on_with_what_has_arrived(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as alice, connect(address) as bob:
        await alice.advertise("TRUE")
        subscription = await bob.subscribe("TRUE")
        ClientHooks(bob).pause()
        await alice.publish_many([{"n": n} for n in range(3)])
        with trio.move_on_after(0.1) as waiting:
            await anext(subscription)
        ClientHooks(bob).resume()

        assert waiting.cancelled_caught
        assert await take(subscription, 3) == [1, 2, 3]


async def test_a_paused_client_does_nothing_and_misses_nothing_of_what_its_broker_keeps(
    overlay: Overlay,
) -> None:
    """It hears nothing, but that is no reason to take its broker for dead and to join elsewhere."""
    limits = Limits(heartbeat_interval_s=0.05, heartbeat_timeout_s=0.5, resume_timeout_s=60.0)
    address = await overlay.broker("b1", limits=limits)
    other = await overlay.broker("b2", join="b1", limits=limits)
    states: list[ClientState] = []
    async with (
        connect(address, name="alice") as alice,
        connect(address, other, name="bob", on_state=states.append) as bob,
    ):
        subscription = await publisher_and_subscriber(alice, bob)
        ClientHooks(bob).pause()
        await alice.publish_many([{"n": n} for n in range(100)])
        # Until the broker has closed the connection, in which nobody answers, and then as long
        # again: by then the client would have dialled.
        await overlay.until("b1", 'plait_links{kind="client"}', lambda links: links == 1)
        await trio.sleep(2 * limits.heartbeat_timeout_s)
        while_paused = list(states)
        await alice.publish_many([{"n": n} for n in range(100)])
        ClientHooks(bob).resume()

        assert await take(subscription, 200) == list(range(1, 201))
        assert while_paused == [ClientState.READY]
        assert bob.broker == "b1"
        assert not bob._core.has_lost_session


async def test_a_client_that_goes_on_hears_what_has_arrived_before_it_counts_the_silence(
    overlay: Overlay, nursery: trio.Nursery
) -> None:
    """Also what lies unread in its connection, as it did not read for another reason before."""
    address = await overlay.broker("b1")
    proxy = await Proxy.start(nursery, address)
    states: list[ClientState] = []
    limits = Limits(delivery_buffer_max=1)
    async with (
        connect(address) as alice,
        connect(proxy.address, limits=limits, on_state=states.append) as bob,
    ):
        subscription = await publisher_and_subscriber(alice, bob)
        await alice.publish_many([{"n": n} for n in range(2)])  # one more than there is room for
        while bob._driver.gate.is_open:
            await trio.lowlevel.checkpoint()
        proxy.hold()
        ClientHooks(bob).pause()
        while TimerFired() not in bob._held:
            await trio.lowlevel.checkpoint()
        await alice.publish({"n": 2})
        proxy.release()
        (opened,) = bob._driver._links.values()
        while not opened.connection.has_unread():
            await trio.lowlevel.checkpoint()
        await trio.sleep(2 * limits.heartbeat_interval_s)  # the time that it is late
        before = bob._core.limits
        bob._core.limits = attrs.evolve(before, heartbeat_timeout_s=limits.heartbeat_interval_s)
        ClientHooks(bob).resume()
        bob._core.limits = before

        assert await take(subscription, 3) == [1, 2, 3]
        assert states == [ClientState.READY]


@pytest.mark.parametrize("end", [ClientHooks.abandon, ClientHooks.crash])
async def test_a_paused_client_can_be_ended(
    overlay: Overlay, end: Callable[[ClientHooks], None]
) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as bob:
        subscription = await bob.subscribe("TRUE")
        hooks = ClientHooks(bob)
        hooks.pause()
        end(hooks)
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)

        assert bob.state is ClientState.CLOSED


async def test_a_client_that_crashes_takes_no_leave(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    history = MemoryHistory("r", "bob")
    async with connect(address, name="alice") as alice:
        async with connect(address, name="bob", history=history) as bob:
            subscription = await bob.subscribe("TRUE")
            ClientHooks(bob).crash()
            with pytest.raises(ClosedError):
                await bob.subscribe("TRUE")
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)
        await alice.advertise("TRUE")
        receipt = await alice.publish({"n": 1})
        with trio.move_on_after(0.2) as waiting:
            await receipt.confirmed()

        # Whoever left would not be owed it; who is merely gone may come back for it.
        assert waiting.cancelled_caught
        ClientHooks(alice).abandon()
    assert [record["kind"] for record in history.records] == ["subscribed"]


# --- plain mistakes -----------------------------------------------------------------------------


def test_asyncio_is_told_that_this_is_for_trio() -> None:
    async def main() -> None:
        async with connect("127.0.0.1:4000"):
            raise AssertionError

    with pytest.raises(RuntimeError, match=r"plait's client runs on trio: call it below trio\.run"):
        asyncio.run(main())


async def test_addresses_are_checked_before_anything_is_dialled() -> None:
    number: Any = 4000
    for addresses, words in (((), "no address"), ((number,), "found int"), (("x://y:1",), "://")):
        with pytest.raises(AddressError, match=words):
            async with connect(*addresses):
                raise AssertionError


async def test_what_is_no_content_or_filter_is_named_with_what_was_expected(
    overlay: Overlay,
) -> None:
    wrong: Any = [1]
    async with connect(await overlay.broker("b1")) as client:
        await client.advertise("TRUE")
        with pytest.raises(ContentError, match="content: found list, expected a mapping"):
            await client.publish(wrong)
        with pytest.raises(TypeError, match="filter: found list, expected text"):
            await client.subscribe(wrong)
        with pytest.raises(TypeError, match="topic: found list, expected text"):
            await client.subscribe(topic=wrong)
        with pytest.raises(TypeError, match="filter: found list, expected text"):
            await client.advertise(wrong)


async def test_a_message_quotes_no_megabytes(overlay: Overlay) -> None:
    async with connect(await overlay.broker("b1")) as client:
        await client.advertise("x > 1")
        with pytest.raises(NotAdvertisedError, match="lies outside") as caught:
            await client.publish({"text": "a" * 10_000})

    assert len(str(caught.value)) < 400


async def test_a_filter_that_is_hardly_meant_is_warned_about_where_it_is_written(
    overlay: Overlay,
) -> None:
    async with connect(await overlay.broker("b1")) as client:
        with pytest.warns(TrapWarning, match="a text stands in single quotes") as caught:
            await client.subscribe("symbol = IBM")
        with pytest.warns(TrapWarning, match="stands for itself"):
            await client.subscribe(topic="/a/#")

    assert [warning.filename for warning in caught] == [__file__]
