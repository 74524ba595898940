"""A role follows from the door and from what was proven there, never from what a message claims."""

import pytest

from plait.broker.client.whereabouts import Whereabouts
from plait.broker.inputs import LinkOpened, MessagesReceived
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.messages import (
    GoodbyeCode,
    HostPlace,
    NodeKind,
    Relocate,
    Relocated,
    Seat,
    Seating,
    StatusReply,
    StatusRequest,
    Welcome,
)
from plait.broker.principals import Caller, Door, Principal, Proof, expected_principal_name
from plait.routing.ids import NodeId
from tests.host.peers import Alone, Peer

B2 = NodeId("b2")


def come(
    host: Alone, name: str, kind: NodeKind, door: Door, proven: str, *, is_operator: bool = False
) -> Peer:
    principal = Principal(proven, Proof.CERTIFICATE, is_operator)
    return host.peer(name, kind=kind, caller=Caller(door, principal))


@pytest.mark.parametrize("kind", NodeKind)
@pytest.mark.parametrize("door", Door)
def test_each_door_is_for_some_kinds_of_nodes(kind: NodeKind, door: Door) -> None:
    is_process = kind in (NodeKind.BROKER, NodeKind.HOST)
    may_come = {
        Door.OPEN: True,
        Door.CLIENTS: not is_process,
        Door.BROKERS: kind is not NodeKind.CLIENT,
    }

    peer = come(Alone(), "somebody", kind, door, "somebody")

    assert (peer.welcome is not None) is may_come[door]
    if not may_come[door]:
        assert peer.goodbye is not None
        assert peer.goodbye.code is GoodbyeCode.REFUSED
        assert "connect" in peer.reason or "join" in peer.reason


@pytest.mark.parametrize(
    ("name", "belongs"),
    [("alice", True), ("alice+laptop", True), ("alic", False), ("alice.x", False), ("bob", False)],
)
def test_a_name_belongs_to_a_principal(name: str, belongs: bool) -> None:
    host = Alone()

    peer = come(host, name, NodeKind.CLIENT, Door.CLIENTS, "alice")

    assert host.has(name) is belongs
    assert belongs or "take alice, or alice+ and anything" in peer.reason


def test_nobody_in_particular_owns_no_name() -> None:
    assert not Principal("").owns("")
    assert not Principal("").owns("+x")


@pytest.mark.parametrize("name", ["", "a+b", "a/b", "a\nb"])
def test_a_principal_has_a_name_that_no_other_can_come_by(name: str) -> None:
    assert expected_principal_name(name) is not None


@pytest.mark.parametrize("kind", [NodeKind.BROKER, NodeKind.HOST])
def test_a_broker_is_the_one_of_its_certificate(kind: NodeKind) -> None:
    host = Alone()

    peer = come(host, "b2", kind, Door.BROKERS, "b3")

    assert "has shown the certificate of b3" in peer.reason
    assert host.host.parts.seats.place_of(B2) is None


def test_a_host_speaks_for_brokers_that_it_has_taken_up() -> None:
    host = Alone()
    caller = Caller(Door.BROKERS, Principal("b3", Proof.CERTIFICATE))

    peer = host.peer("b2", kind=NodeKind.BROKER, host=NodeId("b3"), caller=caller)

    assert peer.welcome is not None


def test_whoever_answers_is_the_one_of_its_certificate() -> None:
    host = Alone()
    joining = Alone(join="root")
    link = joining.new_link()
    joining.tell(LinkOpened(link, "root", Caller(Door.BROKERS, Principal("evil"))))
    welcome = host.peer("m", kind=NodeKind.MONITOR).welcome
    assert isinstance(welcome, Welcome)

    joining.tell(MessagesReceived(link, [welcome]))

    assert "certificate of evil" in str(joining.sent[link][-1])
    assert not joining.host.me.is_ready


@pytest.mark.parametrize(
    ("door", "is_operator", "may"),
    [
        (Door.OPEN, False, True),
        (Door.BROKERS, False, True),
        (Door.CLIENTS, False, False),
        (Door.CLIENTS, True, True),
    ],
)
def test_a_monitor_moves_brokers_only_if_it_may(door: Door, is_operator: bool, may: bool) -> None:
    monitor = come(Alone(), "m", NodeKind.MONITOR, door, "ops", is_operator=is_operator)

    [answer] = monitor.says(Relocate(broker=NodeId("b1"), host=B2))

    assert isinstance(answer, Relocated)
    assert ("may not move brokers" in answer.reason) is not may


def test_whoever_may_come_at_all_may_ask_how_things_are() -> None:
    monitor = come(Alone(), "m", NodeKind.MONITOR, Door.CLIENTS, "alice")

    [answer] = monitor.says(StatusRequest())

    assert isinstance(answer, StatusReply)


def test_clients_are_told_of_the_door_that_is_theirs() -> None:
    whereabouts = Whereabouts(["here"], DEFAULT_LIMITS)
    place = HostPlace(host=B2, incarnation=1, address="brokers", clients_address="clients")
    seat = Seat(broker=B2, parent="", term=1, host=B2, incarnation=1)
    whereabouts.learn(Seating(seats=(seat,), hosts=(place,)))
    whereabouts.broker = B2

    assert whereabouts.aim()
    assert whereabouts.target.address == "clients"


def test_a_host_tells_where_both_of_its_doors_are() -> None:
    host = Alone(clients_address="b1-clients")

    [place] = host.host.parts.seats.everything().hosts

    assert (place.address, place.clients_address) == ("b1", "b1-clients")
    assert host.host.status()["address"] == "b1-clients"
