"""How much a principal may have: more is refused with a sentence, or slowed down."""

from plait.broker.inputs import LinkId
from plait.broker.messages import RefusalCode
from plait.broker.principals import Caller, Principal
from plait.routing.ids import NodeId
from tests.host.test_permissions import Guarded
from tests.host.worlds import Client

ALLOW = "allow * publish\nallow * subscribe\nallow * monitor\n"


def overlay(limits: str) -> Guarded:
    world = Guarded(ALLOW + limits)
    world.brokers("b1", b2="b1")
    return world


def client(world: Guarded, name: str, at: str, principal: str) -> Client:
    """A client of one principal of several."""
    world.world.callers[NodeId(name)] = Caller(principal=Principal(principal))
    node = world.world.add_client(NodeId(name), NodeId(at))
    world.passes(1)
    return Client(world.world, node)


def link_of(world: Guarded, name: str, at: str) -> LinkId:
    line = world.host(at).parts.connections.line(NodeId(at), NodeId(name))
    assert line is not None
    return line.link


def test_more_connections_than_allowed_are_refused_with_a_sentence() -> None:
    world = overlay("limit alice connections 2")
    for name in ("a1", "a2", "a3"):
        client(world, name, "b1", "alice")
    bob, elsewhere = client(world, "bob", "b1", "bob"), client(world, "a4", "b2", "alice")

    stopped = world.world.nodes[NodeId("a3")].stopped
    assert stopped is not None
    assert "alice has 2 connections, at most 2 allowed" in stopped
    assert bob.node.is_alive
    assert elsewhere.node.is_alive  # each host counts for itself


def test_a_connection_that_is_replaced_does_not_count() -> None:
    world = overlay("limit alice connections 1")
    alice = client(world, "alice", "b1", "alice")

    world.loses_connection("alice", "b1")
    world.passes(10)

    assert alice.node.is_alive
    assert not world.troubles()


def test_more_subscriptions_than_allowed_are_refused() -> None:
    world = overlay("limit * subscriptions 2")
    one, other = client(world, "a1", "b1", "alice"), client(world, "a2", "b1", "alice")

    one.subscribes("x = 1")
    subscription = other.subscribes("x = 2")
    world.passes(1)
    other.subscribes("x = 3")
    world.passes(1)
    other.unsubscribes(subscription)
    world.passes(1)
    other.subscribes("x = 4")
    world.passes(1)

    assert [(refusal.code, refusal.reason) for refusal in other.refusals] == [
        (RefusalCode.TOO_MANY, "alice has 2 subscriptions, at most 2 allowed")
    ]
    assert not world.troubles()


def test_filters_that_take_long_count_more() -> None:
    world = overlay("limit * matching 20")
    alice = client(world, "alice", "b1", "alice")

    alice.subscribes("x = 1 AND y = 2")
    alice.subscribes("x LIKE '%a_b_c_d_e_f_g_h%'")
    world.passes(1)

    assert [refusal.code for refusal in alice.refusals] == [RefusalCode.TOO_MANY]


def test_who_publishes_more_than_it_may_is_held_back_for_as_long_as_it_takes() -> None:
    world = overlay("limit alice publications 100")
    alice, bob = client(world, "alice", "b1", "alice"), client(world, "bob", "b1", "bob")
    link, host = link_of(world, "alice", "b1"), world.host("b1")
    for publisher in (alice, bob):
        publisher.advertises("x > 0")
    world.passes(1)

    for publisher in (alice, bob):
        for _ in range(300):
            publisher.publishes(x=1)
    world.passes(0.1)

    assert 1.8 <= host.pause_s(link) <= 2.0  # one second's worth of it may come at once
    assert host.pause_s(link_of(world, "bob", "b1")) == 0
    world.passes(2)
    assert host.pause_s(link) == 0


def test_bytes_are_counted_with_all_connections_of_a_principal() -> None:
    world = overlay("limit alice bytes 1000")
    one, other = client(world, "a1", "b1", "alice"), client(world, "a2", "b1", "alice")
    one.advertises("x > 0")
    world.passes(1)

    one.publishes(b"." * 5000, x=1)
    world.passes(0.1)

    assert world.host("b1").pause_s(link_of(world, "a2", "b1")) > 3
    assert other.node.is_alive


def test_who_has_too_much_unconfirmed_is_slowed_down_and_not_stopped() -> None:
    world = overlay("limit alice unconfirmed 2")
    alice, slow = client(world, "alice", "b1", "alice"), client(world, "slow", "b2", "slow")
    alice.advertises("x > 0")
    slow.subscribes("x > 0")
    world.passes(1)
    world.freezes("slow")

    for _ in range(5):
        alice.publishes(x=1)
    world.passes(0.2)

    pause_s = world.host("b1").pause_s(link_of(world, "alice", "b1"))
    assert pause_s == world.world.limits.unconfirmed_pause_s


def test_without_limits_nothing_is_counted() -> None:
    world = overlay("")
    alice = client(world, "alice", "b1", "alice")
    alice.advertises("x > 0")
    world.passes(1)
    for _ in range(300):
        alice.publishes(x=1)
    world.passes(0.1)

    assert not world.host("b1").permissions.has_limits
    assert world.host("b1").pause_s(link_of(world, "alice", "b1")) == 0
