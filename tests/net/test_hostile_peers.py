"""Whatever a stranger sends: its link is closed with a reason, and nobody else notices."""

import random
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio
from msgpack import packb

from plait.broker.codec import encode
from plait.broker.limits import Limits
from plait.broker.messages import (
    Advertise,
    Confirm,
    EndOfStep,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Join,
    Message,
    Progress,
    Publish,
    Refuse,
    Seating,
    Subscribe,
    Welcome,
)
from plait.broker.net.client import connect
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.net.overlay import Overlay, hello, publisher_and_subscriber, raw_peer, take
from tests.wire import frame_of, unchecked


@asynccontextmanager
async def undisturbed(overlay: Overlay, name: str) -> AsyncIterator[None]:
    """Two clients talk all the while, and nothing of it is lost."""
    address = overlay.address(name)
    async with connect(address) as alice, connect(address) as bob:
        subscription = await publisher_and_subscriber(alice, bob)
        stop = trio.Event()
        published = 0
        taken: list[int] = []

        async def publish() -> None:
            nonlocal published
            while not stop.is_set():
                await alice.publish({"n": published}, confirm=True)
                published += 1
            await subscription.unsubscribe()

        async def receive() -> None:
            async for delivery in subscription:
                taken.append(delivery.seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            nursery.start_soon(receive)
            yield
            stop.set()

    assert taken == list(range(1, published + 1))
    assert published


JUNK = {
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", "frame of 1195725856 bytes, at most 1048576"),
    "a frame that is too long": (b"\x7f\xff\xff\xff\x97\x01", "frame of 2147483647 bytes, at"),
    "a frame that is too short": (frame_of(b"") * 2, "frame of 0 bytes, at least 2 expected"),
    "an unknown message": (frame_of(packb([99])), "message of type 99, expected one of 1 to"),
    "a field of another type": (
        frame_of(packb([43, "1", 2, 3, b""])),
        "Progress.received: found str",
    ),
    "no msgpack": (frame_of(b"\x93\x2a\xc1\xc1"), "EndOfStep: not msgpack as expected: "),
    "arrays in arrays": (frame_of(b"\x97\x01" + b"\x91" * 1000), "Publish: not msgpack as"),
    "a publication before the greeting": (
        encode(Publish(NodeId("m"), 1, 1, 0, packb({}), b"")),
        "Publish is not expected on a connection in state 'awaiting hello'",
    ),
    "another version": (
        encode(hello("m", version=99)),
        "protocol version 99, 2 expected",
    ),
    "a name that moves the cursor": (
        unchecked(hello("m\x1b[2J")),
        "Hello.node: 'm\\x1b[2J', expected printable characters",
    ),
}


@pytest.mark.parametrize(("junk", "reason"), JUNK.values(), ids=JUNK.keys())
async def test_junk_instead_of_a_greeting_is_answered_with_a_reason(
    overlay: Overlay, junk: bytes, reason: str
) -> None:
    await overlay.broker("b1")
    async with undisturbed(overlay, "b1"), raw_peer(overlay.address("b1")) as mallory:
        await mallory.stream.send_all(junk)

        assert (await mallory.last_words()).reason.startswith(reason)
    assert any(line.get("reason", "").startswith(reason) for line in overlay.log("b1"))


ME = NodeId("mallory")
JOIN = Join(operation=OperationId("mallory#1.join"))
FIRST = EndOfStep(step=1)
END = EndOfStep(step=2)
MISBEHAVIOUR: dict[str, tuple[list[Message], str]] = {
    "progress over what was never sent": (
        [Progress(received=7, sent=0, forgotten=0)],
        "7 publications confirmed, between",
    ),
    "a second greeting": ([hello("mallory")], "Hello is not expected on a connection in state"),
    "somebody else's publication": (
        [Publish(NodeId("alice"), 1, 1, 0, packb({}), b""), END],
        "a publication of alice, incarnation 1, from mallory, incarnation 1",
    ),
    "a publication outside its advertisements": (
        [Publish(ME, 1, 1, 0, packb({"n": 1}), b""), END],
        "publication 1 of mallory lies outside what it has advertised",
    ),
    "a content that is none": (
        [Publish(ME, 1, 1, 0, b"\xc1", b""), END],
        "content: not msgpack as expected",
    ),
    "somebody else's joining": (
        [Join(operation=OperationId("x#1.1"))],
        "Join: x#1.1, asked by mallory",
    ),
    "step logs": ([EndOfStep(step=2, logs=b"x")], "EndOfStep: logs of mallory, which is no broker"),
    "steps that do not grow": ([END, END], "EndOfStep: step 2 after step 2"),
    "who plays what": ([Seating()], "Seating is not expected on a connection in state 'to client'"),
}


@pytest.mark.parametrize(("sent", "reason"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR.keys())
async def test_a_client_that_breaks_the_rules_is_told_which(
    overlay: Overlay, sent: list[Message], reason: str
) -> None:
    await overlay.broker("b1")
    async with undisturbed(overlay, "b1"), raw_peer(overlay.address("b1")) as mallory:
        await mallory.send(hello("mallory"), JOIN, FIRST)
        await mallory.receive(Confirm)
        await mallory.send(*sent)

        goodbye = await mallory.last_words()
        assert goodbye.code is GoodbyeCode.PROTOCOL
        assert goodbye.reason.startswith(reason)


async def test_a_filter_that_cannot_be_read_is_refused_and_the_client_lives_on(
    overlay: Overlay,
) -> None:
    async with raw_peer(await overlay.broker("b1")) as clumsy:
        await clumsy.send(
            hello("c"),
            Join(operation=OperationId("c#1.join")),
            FIRST,
        )
        await clumsy.receive(Confirm)
        await clumsy.send(
            Subscribe(
                operation=OperationId("c#1.bad"),
                subscription=SubscriptionId("c/1"),
                client=NodeId("c"),
                filter="price >",
                ordered=True,
                path=(NodeId("c"),),
            ),
            Advertise(
                operation=OperationId("c#1.good"),
                advertisement=AdvertisementId("c/2"),
                client=NodeId("c"),
                filter="price > 1",
                path=(NodeId("c"),),
            ),
            END,
        )
        refusal = await clumsy.receive(Refuse)
        confirmation = await clumsy.receive(Confirm)

    assert (refusal.operation, refusal.code) == ("c#1.bad", "bad-filter")
    assert confirmation.operation == "c#1.good"


def advertise(filter_text: str, operation: str = "mallory#1.long") -> Advertise:
    return Advertise(
        operation=OperationId(operation),
        advertisement=AdvertisementId("mallory/1"),
        client=ME,
        filter=filter_text,
        path=(ME,),
    )


async def test_what_the_first_broker_accepts_the_others_accept_as_well(overlay: Overlay) -> None:
    """A filter is passed on as it is written by brokers, which may be longer than it came."""
    await overlay.broker("b1")
    await overlay.broker("b2", join="b1")
    await overlay.broker("b3", join="b2")
    written = "OR ".join(f"a<{number % 10}" for number in range(682))

    async with undisturbed(overlay, "b3"), raw_peer(overlay.address("b1")) as mallory:
        await mallory.send(hello("mallory"), JOIN, FIRST)
        confirmed = [(await mallory.receive(Confirm)).operation]
        await mallory.send(advertise(written), END)
        confirmed.append((await mallory.receive(Confirm)).operation)

    assert len(written) < 4096 < len(parse_filter(written).sql)
    assert confirmed == ["mallory#1.join", "mallory#1.long"]
    assert [overlay.logged(name, "link broke the protocol") for name in ("b2", "b3")] == [[], []]


async def test_a_filter_that_could_not_be_passed_on_is_refused(overlay: Overlay) -> None:
    written = "OR ".join(f"a<{number % 10}" for number in range(2000))

    async with raw_peer(await overlay.broker("b1")) as mallory:
        await mallory.send(hello("mallory"), JOIN, FIRST)
        await mallory.receive(Confirm)
        await mallory.send(advertise(written), END)
        refusal = await mallory.receive(Refuse)

    assert (refusal.operation, refusal.code) == ("mallory#1.long", "bad-filter")
    assert "at most 16384 characters as SQL" in refusal.reason


async def test_an_id_that_could_not_be_passed_on_cuts_off_only_who_made_it_up(
    overlay: Overlay,
) -> None:
    await overlay.broker("b1")
    await overlay.broker("b2", join="b1")
    async with undisturbed(overlay, "b2"), raw_peer(overlay.address("b1")) as mallory:
        await mallory.send(hello("mallory"), JOIN, advertise("a = 1", "o" * 1_048_000))

        reason = "Advertise.operation of 1048000 characters, at most 303 allowed"
        assert (await mallory.last_words()).reason == reason
    assert overlay.logged("b2", "link broke the protocol") == []


async def test_random_bytes_after_the_greeting_never_bring_a_broker_down(overlay: Overlay) -> None:
    await overlay.broker("b1")
    noise = random.Random(7)
    async with undisturbed(overlay, "b1"):
        for n in range(40):
            async with raw_peer(overlay.address("b1")) as mallory:
                payload = noise.randbytes(noise.randrange(2, 60))
                await mallory.send(hello(f"m{n}"))
                await mallory.receive(Welcome)
                await mallory.stream.send_all(
                    frame_of(bytes([0x90 + noise.randrange(12), noise.randrange(60)]) + payload) * 2
                )
                assert (await mallory.receive(Goodbye)).code is GoodbyeCode.PROTOCOL


async def test_a_message_that_trickles_in_is_still_a_message(overlay: Overlay) -> None:
    async with raw_peer(await overlay.broker("b1")) as slow:
        for byte in encode(hello("slow")):
            await slow.stream.send_all(bytes([byte]))

        assert (await slow.receive(Welcome)).node == "b1"


QUICK = Limits(greeting_timeout_s=0.2, heartbeat_interval_s=0.05, heartbeat_timeout_s=5.0)


async def test_many_silent_connections_are_closed_and_cost_nothing(overlay: Overlay) -> None:
    await overlay.broker("b1", limits=attrs.evolve(QUICK, strangers_max=300))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with undisturbed(overlay, "b1"), AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(raw_peer(overlay.address("b1"))) for _ in range(300)
        ]
        for peer in peers[::2]:
            await peer.stream.send_all(b"\x00\x0f\xff\xff\x97\x01" + bytes(1000))
        for peer in peers:
            goodbye = await peer.last_words()
            assert (goodbye.code, goodbye.reason) == (
                GoodbyeCode.TIMEOUT,
                "no greeting within 0.2 s",
            )

    await overlay.until("b1", 'plait_links{kind="ungreeted"}', lambda links: links == 0)
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert kibibytes < 100 << 10
    lines = overlay.logged("b1", "link closed")
    assert 1 <= len(lines) < 300  # not one for each of them


async def test_a_half_open_client_is_noticed(overlay: Overlay) -> None:
    """Its machine is gone, its connection is not: no byte comes any more, nor any end."""
    limits = Limits(heartbeat_interval_s=0.05, heartbeat_timeout_s=0.3, resume_timeout_s=0.1)
    await overlay.broker("b1", limits=limits)
    async with raw_peer(overlay.address("b1")) as gone:
        await gone.send(hello("gone"))
        await gone.receive(Welcome)
        await gone.receive(Heartbeat)

        assert (await gone.last_words()).code is GoodbyeCode.TIMEOUT
        while (await overlay.status("b1"))["neighbours"]:
            await trio.lowlevel.checkpoint()


async def test_a_client_that_does_not_read_is_isolated_and_others_are_not(overlay: Overlay) -> None:
    limits = Limits(
        heartbeat_interval_s=0.05,
        stall_timeout_s=0.3,
        resume_timeout_s=0.1,
        heartbeat_timeout_s=30.0,
    )
    address = await overlay.broker("b1", limits=limits)
    async with connect(address) as alice, connect(address) as bob, raw_peer(address) as lazy:
        subscription = await publisher_and_subscriber(alice, bob)
        await lazy.send(
            hello("lazy"),
            Join(operation=OperationId("lazy#1.join")),
            FIRST,
        )
        await lazy.receive(Confirm)
        await lazy.send(
            Subscribe(
                operation=OperationId("lazy#1.all"),
                subscription=SubscriptionId("lazy/1"),
                client=NodeId("lazy"),
                filter="TRUE",
                ordered=True,
                path=(NodeId("lazy"),),
            ),
            END,
        )
        await overlay.until("b1", "plait_subscriptions", lambda count: count == 2)
        taken = []

        async def publish() -> None:
            for n in range(600):
                await alice.publish({"n": n}, b"x" * 20_000)
            await alice.flush()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            taken += await take(subscription, 600)

        assert taken == list(range(1, 601))
        assert await overlay.metric("b1", "plait_clients_isolated_total") == 1
        (line,) = overlay.logged("b1", "neighbour dropped")
        assert line["peer"] == "lazy"
        assert "publications unconfirmed, the first for 0." in line["reason"]
