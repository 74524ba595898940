"""Brokers that are played elsewhere as somebody has asked for it: that is no failure."""

import pytest

from plait.broker.messages import Heartbeat, NodeKind, Relocate
from plait.routing.ids import NodeId
from tests.host.peers import Visited
from tests.host.worlds import INTERVAL_S, LINK_DELAY_S, TIMEOUT_S, Client, Lively


def line_with_traffic() -> tuple[Lively, Client, Client]:
    """Four brokers in a line; what is published at one end is read at the other."""
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b1", b3="b2")
    reader, writer = overlay.client("reader", "b3"), overlay.client("writer", "b0")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    return overlay, reader, writer


def publishes(overlay: Lively, writer: Client, count: int) -> None:
    """One after the other, so that they are everywhere on their way."""
    for number in range(count):
        writer.publishes(x=number)
        overlay.passes(LINK_DELAY_S / 2)


def test_two_neighbours_are_given_up_at_the_same_time() -> None:
    overlay, reader, writer = line_with_traffic()
    publishes(overlay, writer, 6)
    overlay.relocates("b1", host="b0")
    overlay.relocates("b2", host="b3")
    publishes(overlay, writer, 6)
    overlay.passes(2 * TIMEOUT_S)

    assert len(reader.received) == 12
    assert (overlay.players("b1"), overlay.players("b2")) == (["b0"], ["b3"])
    assert overlay.troubles() == []


def test_the_leaf_below_is_given_up_while_its_parent_fails() -> None:
    """Nobody but the host that has given it up knows which steps it has taken."""
    overlay, reader, writer = line_with_traffic()
    writer.publishes(x=1)
    overlay.client("second", "b3").advertises("TRUE")
    overlay.passes(0.5)
    publishes(overlay, writer, 6)
    overlay.relocates("b3", host="b2")
    overlay.crashes("b2")
    publishes(overlay, writer, 6)
    overlay.passes(3 * TIMEOUT_S)

    assert len(reader.received) == 13
    assert "past lost" not in "\n".join(overlay.world.trace)
    assert overlay.troubles() == []


def test_a_host_that_gives_a_broker_up_and_fails_counts_as_failed() -> None:
    overlay, reader, writer = line_with_traffic()
    publishes(overlay, writer, 6)
    overlay.relocates("b2", host="b0")
    overlay.passes(LINK_DELAY_S / 2)
    overlay.crashes("b2")
    publishes(overlay, writer, 6)
    overlay.passes(3 * TIMEOUT_S)

    assert len(reader.received) == 12
    assert overlay.players("b2") == ["b0"]
    assert overlay.troubles() == []


def test_a_host_that_gives_a_broker_up_and_is_silent_is_not_waited_for_for_ever() -> None:
    overlay, reader, writer = line_with_traffic()
    overlay.relocates("b2", host="b0")
    overlay.passes(LINK_DELAY_S / 2)
    overlay.freezes("b2")
    publishes(overlay, writer, 6)
    overlay.passes(6 * TIMEOUT_S)

    assert overlay.players("b2") == ["b0"]
    assert len(reader.received) == 6


@pytest.mark.parametrize("is_giver_there", [True, False])
def test_a_session_may_have_begun_of_which_the_taker_does_not_know_yet(
    is_giver_there: bool,
) -> None:
    """What it knows is the session before, which the client has never heard to have begun."""
    overlay, _, writer = line_with_traffic()
    ears = Visited(overlay)
    ears.peer("c", "b2").hangs_up()
    publishes(overlay, writer, 1)  # with which steps are told
    overlay.passes(INTERVAL_S)
    again = ears.peer("c", "b2")
    assert again.welcome is not None
    overlay.relocates("b2", host="b1")
    if not is_giver_there:
        overlay.crashes("b2")
    overlay.passes(1.5 * LINK_DELAY_S)
    secret = again.welcome.secret
    moved = ears.peer("c", "b1", to="b2", known_term=1, secret=secret)
    assert moved.reason == ""

    for _ in range(10):
        if moved.is_to_attach and moved.welcome is None:
            moved.attaches("b2")
        moved.says(Heartbeat())
        overlay.passes(overlay.limits.resume_timeout_s / 8)
    assert moved.welcome is not None
    assert moved.welcome.resumed == moved.is_to_attach == is_giver_there
    assert overlay.players("b2") == ["b1"]


def test_a_wish_that_cannot_be_fulfilled_at_once_is_remembered() -> None:
    overlay, _, _ = line_with_traffic()
    overlay.crashes("b3")
    while not overlay.host("b2").is_vulnerable:
        overlay.passes(LINK_DELAY_S / 2)
    node = overlay.world.nodes[NodeId("b2")]
    now = overlay.world.time_of(node)
    reason, effects = node.core.relocate(now, NodeId("b2"), NodeId("b0"))
    overlay.world._carry_out(node, effects)

    assert reason == "a failure is not over yet"
    expected = {"broker": "b2", "host": "b0", "reason": reason}
    assert overlay.host("b2").status()["relocations"] == [expected]
    overlay.passes(2 * TIMEOUT_S)
    assert overlay.players("b2") == ["b0"]
    assert overlay.host("b2").status()["relocations"] == []


def test_a_host_that_is_back_waits_no_longer_than_the_failure_is_over() -> None:
    overlay, _, _ = line_with_traffic()
    overlay.freezes("b1")  # so it does not hear what b2 takes up
    overlay.crashes("b3")
    overlay.passes(3 * LINK_DELAY_S)
    overlay.restarts("b3")
    overlay.passes(15 * LINK_DELAY_S)
    [wish] = overlay.host("b2").status()["relocations"]
    overlay.goes_on("b1")
    overlay.passes(20 * LINK_DELAY_S)

    assert (wish["broker"], wish["host"]) == ("b3", "b3")
    assert overlay.players("b3") == ["b3"]
    assert overlay.troubles() == []


def test_a_broker_that_is_about_to_join_is_not_given_up() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    overlay.passes(3.5 * LINK_DELAY_S)
    host = overlay.host("b2")
    answer = host.relocations.on_relocate(Relocate(broker=NodeId("b2"), host=NodeId("b1")))

    assert (answer.reason, answer.is_remembered) == ("b2 is about to join", True)
    overlay.passes(2 * TIMEOUT_S)
    assert overlay.players("b2") == ["b1"]
    assert overlay.troubles() == []


def test_what_nobody_can_do_is_refused_and_forgotten() -> None:
    overlay, _, _ = line_with_traffic()
    relocations = overlay.host("b2").relocations

    def refusal(broker: str, host: str) -> str:
        answer = relocations.on_relocate(Relocate(broker=NodeId(broker), host=NodeId(host)))
        assert not answer.is_remembered
        return answer.reason

    assert refusal("b1", "b0") == "b2 does not play b1"
    assert refusal("b2", "b9") == "no other host b9 is known"
    assert refusal("b2", "b2") == "no other host b2 is known"
    assert relocations.describe() == []


def test_hosts_that_play_nothing_stand_by_where_something_is_played() -> None:
    """Two that stood by at each other would not hear that one of them is to play something."""
    overlay, reader, writer = line_with_traffic()
    overlay.relocates("b1", host="b0")
    overlay.relocates("b2", host="b3")
    overlay.passes(2 * TIMEOUT_S)
    for idle in ("b1", "b2"):
        hosts = [c for c in overlay.host(idle).parts.connections if c.kind is NodeKind.HOST]
        assert {c.life.host for c in hosts} <= {"b0", "b3"}
    overlay.relocates("b3", host="b1")
    publishes(overlay, writer, 3)
    overlay.passes(2 * TIMEOUT_S + INTERVAL_S)

    assert overlay.players("b3") == ["b1"]
    assert len(reader.received) == 3
    assert overlay.troubles() == []


def test_a_host_takes_up_the_broker_that_it_was_about_to_join() -> None:
    """What that broker had heard of it is lost with its host, which had given it up before."""
    overlay = Lively(delta=2)
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.world.add_broker(NodeId("b3"), NodeId("b1"), delta=2)
    overlay.passes(1.5 * LINK_DELAY_S)
    while overlay.host("b1").parts.seats.life_of(NodeId("b3")) is None:
        overlay.passes(LINK_DELAY_S / 2)
    overlay.hears_of_the_end_of("b1", taker="b3")
    overlay.passes(LINK_DELAY_S / 2)
    overlay.crashes("b1")
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b3") == ["b3"]
    assert overlay.troubles() == []


def test_nothing_is_given_to_a_host_that_is_about_to_join() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    while overlay.host("b1").parts.seats.life_of(NodeId("b2")) is None:
        overlay.passes(LINK_DELAY_S / 2)
    relocate = Relocate(broker=NodeId("b1"), host=NodeId("b2"))
    answer = overlay.host("b1").relocations.on_relocate(relocate)

    assert (answer.reason, answer.is_remembered) == ("b2 is about to join", True)
    overlay.passes(2 * TIMEOUT_S)
    assert overlay.players("b1") == ["b2"]
    assert overlay.troubles() == []


def test_nobody_waits_for_a_broker_that_did_not_hear_that_it_was_let_in() -> None:
    """It is in the log of the one that it was about to join, and has its place elsewhere."""
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"), fallbacks=[NodeId("b0")])
    machine = overlay.host("b1").parts.playing.brokers[NodeId("b1")].machine
    while NodeId("b2") not in machine.neighbours.below:
        overlay.passes(LINK_DELAY_S / 2)
    overlay.world.break_link(NodeId("b1"), NodeId("b2"))
    overlay.relocates("b1", host="b0")
    overlay.passes(2 * TIMEOUT_S)

    assert (overlay.players("b1"), overlay.players("b2")) == (["b0"], ["b2"])
    assert overlay.troubles() == []


def test_a_host_that_is_about_to_join_greets_on_behalf_of_what_it_has_taken_up() -> None:
    overlay = Lively()
    overlay.brokers("b0", b2="b0")
    overlay.freezes("b2")  # so nobody confirms that b1 may join
    overlay.world.add_broker(NodeId("b1"), NodeId("b0"))
    overlay.passes(8 * LINK_DELAY_S)
    overlay.crashes("b0")
    overlay.passes(8 * LINK_DELAY_S)
    overlay.goes_on("b2")
    while not overlay.players("b0"):
        overlay.passes(LINK_DELAY_S / 2)
    overlay.world.break_link(NodeId("b2"), NodeId("b1"))
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b0") == ["b1"]
    assert overlay.world.nodes[NodeId("b1")].is_ready
    assert overlay.troubles() == []
