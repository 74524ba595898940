"""What somebody may say: whoever says more is hung up on, and nothing else comes of it."""

from typing import Any

import attrs
import pytest

from plait.broker.codec import encode_content
from plait.broker.host.link_states import LinkState
from plait.broker.inputs import LinkClosed
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.machine.invariants import check_invariants
from plait.broker.messages import (
    Confirm,
    Flag,
    GoodbyeCode,
    Join,
    Leave,
    Message,
    NodeKind,
    Progress,
    Publish,
    RefusalCode,
    Relocate,
    Seating,
    Settled,
    StatusRequest,
    Unsubscribe,
)
from plait.routing.ids import NodeId, OperationId, SubscriptionId
from tests.host.peers import Alone, Peer, Visited
from tests.host.worlds import Conversation

ELSEWHERE = encode_content({"x": 9})


def publisher(host: Alone | Visited, name: str = "nyse", *at: str) -> Peer:
    peer = host.peer(name, *at)
    peer.steps(Join(operation=peer.operation))
    if isinstance(host, Visited):
        host.overlay.passes(0.1)
    peer.steps(peer.advertisement(f"{name}/1", filter="x < 5"))
    return peer


# Who it is


def test_a_greeting_in_another_version_is_refused() -> None:
    peer = Alone().peer("peer", version=99)

    assert peer.reason == "protocol version 99, 2 expected"


@pytest.mark.parametrize("kind", NodeKind)
def test_nobody_says_anything_before_it_has_greeted(kind: NodeKind) -> None:
    host = Alone()
    for message in (Seating(), StatusRequest(), Relocate(broker=NodeId("b1"), host=NodeId("x"))):
        peer = host.peer("peer", kind=kind, is_greeting=False)
        peer.says(message)

        assert "is not expected on a connection in state 'awaiting hello'" in peer.reason
    assert host.host.parts.playing.brokers


def test_a_monitor_only_asks() -> None:
    host = Alone()
    monitor = host.peer("", kind=NodeKind.MONITOR)
    monitor.says(StatusRequest())
    assert [type(message).__name__ for message in monitor.heard] == ["Welcome", "StatusReply"]
    monitor.says(Seating())

    assert monitor.goodbye is not None
    assert monitor.goodbye.code is GoodbyeCode.PROTOCOL


# What belongs to a client


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"content": b"\x81"}, "content: not msgpack as expected"),
        ({"content": ELSEWHERE}, "publication 1 of nyse lies outside what it has advertised"),
        ({"publisher": NodeId("lse")}, "of lse, incarnation 1, from nyse"),
        ({"incarnation": 0}, "of nyse, incarnation 0, from nyse, incarnation 1"),
        ({"flags": Flag.AWAITED}, "which no client may set"),
        ({"flags": 1 << 8}, "which no client may set"),
    ],
)
def test_a_client_publishes_its_own_within_what_it_has_advertised(
    changes: dict[str, Any], reason: str
) -> None:
    host = Alone()
    reader = host.peer("reader").joins()
    reader.steps(reader.subscription("reader/1"))
    nyse = publisher(host)
    nyse.steps(nyse.publication(**changes))

    assert reason in nyse.reason
    assert reader.received == 0
    assert host.machine.publications.unstable == 0


def test_a_publication_that_comes_twice_is_delivered_once() -> None:
    """As another one of its publisher's, that is: what is sent again is known by its step."""
    host = Alone()
    reader = host.peer("reader").joins()
    reader.steps(reader.subscription("reader/1"))
    nyse = publisher(host)
    nyse.steps(nyse.publication())
    nyse.steps(nyse.publication(seq=1))

    assert "publication 1 of nyse, which has published 1" in nyse.reason
    assert reader.received == 1


def test_nobody_else_withdraws_what_a_client_asked_for() -> None:
    host = Alone()
    alice, thief = host.peer("alice").joins(), host.peer("thief").joins()
    alice.steps(alice.subscription("alice/1"))
    name = SubscriptionId("alice/1")
    thief.steps(Unsubscribe(operation=thief.operation, subscription=name))

    assert "alice/1, which does not belong to thief" in thief.reason
    assert len(host.machine.interests.subscriptions) == 1


def test_what_nobody_asked_of_it_a_client_does_not_confirm() -> None:
    overlay = Conversation()
    overlay.brokers("a", b="a")
    nyse = overlay.client("nyse", "a")
    overlay.freezes("b")
    nyse.advertises("TRUE")
    overlay.settle(0.1)
    [operation] = overlay.machine("a").requests.waiting()
    ears = Visited(overlay)
    thief = ears.peer("thief", "a")
    thief.steps(Confirm(operation=operation))

    assert "Confirm is not expected" in thief.reason
    assert operation in overlay.machine("a").requests.waiting()
    assert nyse.answered == []


@pytest.mark.parametrize("count", [-1, 1, 2**62])
def test_nobody_confirms_more_than_there_was(count: int) -> None:
    host = Alone()
    reader = host.peer("reader").joins()
    reader.says(Progress(received=count, sent=0, forgotten=0))

    assert reader.reason.startswith(f"{count} publications confirmed, between 0 and 0") or count < 0
    assert host.machine.neighbours.below[NodeId("reader")].sent.confirmed_count == 0
    check_invariants(host.machine)


# Refusals


def test_what_cannot_be_done_is_refused_with_a_reason_and_the_rest_goes_on() -> None:
    limits = attrs.evolve(
        DEFAULT_LIMITS, subscriptions_per_client_max=2, advertisements_per_client_max=1
    )
    host = Alone(limits)
    peer = host.peer("peer").joins()
    peer.steps(
        peer.subscription("peer/1"),
        peer.subscription("peer/2", filter="x >"),
        peer.subscription("peer/3"),
        peer.subscription("peer/4"),
        peer.advertisement("peer/5"),
        peer.advertisement("peer/6"),
    )

    too_many = RefusalCode.TOO_MANY
    assert peer.refusals == [RefusalCode.BAD_FILTER, too_many, too_many]
    assert [e.id for e in host.machine.interests.subscriptions] == ["peer/1", "peer/3"]
    assert [e.id for e in host.machine.interests.advertisements] == ["peer/5"]
    assert peer.goodbye is None


def test_a_full_broker_sends_clients_elsewhere() -> None:
    host = Alone(attrs.evolve(DEFAULT_LIMITS, clients_max=2))
    first, _ = host.peer("c1").joins(), host.peer("c2").joins()
    third = host.peer("c3")
    assert third.goodbye is not None
    assert third.goodbye.code is GoodbyeCode.DECLINED
    assert third.reason == "b1 has 2 clients, and no room"
    first.steps(Leave(operation=first.operation, node=first.name))

    assert host.peer("c3").welcome is not None


def test_who_does_not_greet_is_hung_up_on() -> None:
    host = Alone()
    mute = host.peer("mute", is_greeting=False)
    host.passes(DEFAULT_LIMITS.greeting_timeout_s + 1)

    assert mute.reason == "no greeting within 5 s"


# In the middle of a batch


def batch_that_breaks(nyse: Peer) -> list[Message]:
    """It asks for something, publishes, publishes what it may not, and goes on."""
    return [
        nyse.subscription("nyse/7"),
        nyse.publication(),
        nyse.publication(content=ELSEWHERE),
        nyse.publication(),
        nyse.subscription("nyse/8"),
    ]


def test_what_came_before_it_in_a_batch_has_happened_and_nothing_else() -> None:
    host = Alone()
    reader = host.peer("reader").joins()
    reader.steps(reader.subscription("reader/1"))
    nyse = publisher(host)
    nyse.steps(*batch_that_breaks(nyse))
    check_invariants(host.machine)
    client = host.machine.neighbours.below[NodeId("nyse")]

    assert "lies outside what it has advertised" in nyse.reason
    assert reader.received == 1
    assert client.received.count == 1
    assert [entry.id for entry in host.machine.interests.subscriptions] == ["reader/1", "nyse/7"]
    assert host.machine.steps.log.entries[-2].source == "nyse"


@pytest.mark.parametrize("broker", ["a", "b"])
def test_a_broker_that_fails_then_is_rebuilt_as_it_was(broker: str) -> None:
    overlay = Conversation()
    overlay.brokers("a", b="a")
    reader = overlay.client("reader", "a")
    reader.subscribes("TRUE")
    overlay.settle()
    ears = Visited(overlay)
    nyse = publisher(ears, "nyse", "b")
    overlay.settle(0.1)
    nyse.steps(*batch_that_breaks(nyse))
    overlay.settle(0.0005)
    overlay.crashes(broker)
    overlay.settle(8)

    assert "lies outside what it has advertised" in nyse.reason
    assert reader.received in ([], ["nyse:1"])
    assert overlay.cores.comparison.compared == 1
    assert overlay.cores.comparison.found == []
    assert overlay.unfinished() == []


def last_words(peer: Peer) -> list[Message]:
    return [
        peer.publication(),
        peer.subscription("nyse/7"),
        Join(operation=peer.operation),
        Leave(operation=peer.operation, node=peer.name),
    ]


@pytest.mark.parametrize("number", range(4))
def test_who_has_left_says_nothing_any_more(number: int) -> None:
    host = Alone()
    nyse = publisher(host)
    leave = Leave(operation=nyse.operation, node=nyse.name)
    nyse.steps(leave, last_words(nyse)[number])
    check_invariants(host.machine)

    assert not host.has("nyse")
    assert host.machine.publications.unstable == 0
    assert not len(host.machine.interests.subscriptions)
    assert not len(host.machine.interests.advertisements)
    assert len(host.machine.requests) == 0


def test_who_asks_to_join_twice_joins_once() -> None:
    host = Alone()
    peer = host.peer("peer")
    peer.steps(Join(operation=peer.operation), Join(operation=peer.operation))
    confirmed = [message.operation for message in peer.heard if isinstance(message, Confirm)]

    assert confirmed == ["peer#1.2"]
    assert host.has("peer")
    assert peer.goodbye is None


# Between brokers


def test_a_broker_that_breaks_a_rule_is_told_which() -> None:
    overlay = Conversation()
    overlay.brokers("a", b="a")
    ears = Visited(overlay)
    broken: list[tuple[Message, str]] = [
        (Settled(7), "evil has settled publication 7, never sent up"),
        (Publish(NodeId("p"), 1, 1, 0, b"\x81", b""), "content: not msgpack"),
        (Leave(operation=OperationId("x"), node=NodeId("b")), "of b, by evil"),
    ]
    for number, (message, reason) in enumerate(broken):
        evil = ears.peer(f"evil{number}", "a", kind=NodeKind.BROKER).joins()
        overlay.settle(0.1)
        evil.steps(evil.advertisement("p/1", client=NodeId("p")), message)

        assert reason.replace("evil", f"evil{number}") in evil.reason
    overlay.settle(30)
    assert overlay.machine("b").neighbours.parent is not None
    assert overlay.unfinished() == []


def test_a_link_that_a_host_has_closed_is_closed_once() -> None:
    host = Alone()
    peer = host.peer("peer", version=99)
    effects = host.host.step(host.now, LinkClosed(peer.link, "reset"))

    assert effects == [] or all(type(effect).__name__ == "SetTimer" for effect in effects)
    assert host.host.parts.connections.with_state(LinkState.AWAITING_HELLO) == []
