"""Hosts that are told to stop: what they play goes on elsewhere, or leaves the tree."""

import pytest

from plait.broker.sim.world import LIVELY_LIMITS
from plait.routing.ids import NodeId
from tests.host.test_moves import line_with_traffic, publishes
from tests.host.worlds import INTERVAL_S, LINK_DELAY_S, TIMEOUT_S, Lively

PAUSE_S = LIVELY_LIMITS.leaving_pause_s


def is_told_to_stop(overlay: Lively, *names: str) -> None:
    for name in names:
        overlay.world.stop(overlay.world.nodes[NodeId(name)])


def are_over(overlay: Lively, *names: str) -> bool:
    return all(overlay.world.nodes[NodeId(name)].stopped == "stopped" for name in names)


def knows_to_be_over(overlay: Lively, name: str) -> set[str]:
    """Who knows for certain that a life is over: else it counts among those who may still run."""
    life = overlay.host(name).me.life
    return {
        node.name
        for node in overlay.world.hosts
        if node.is_alive and life in node.core.parts.seats.everything().proven
    }


def troubles(overlay: Lively, *stopped: str) -> list[str]:
    """What is wrong, but that these have stopped."""
    texts = [f"{name}: stopped: stopped" for name in stopped]
    return [text for text in overlay.troubles() if text not in texts]


@pytest.mark.parametrize("name", ["b0", "b1", "b2", "b3"])
def test_a_host_leaves_what_it_plays_to_another_one_while_traffic_runs(name: str) -> None:
    overlay, reader, writer = line_with_traffic()
    is_told_to_stop(overlay, name)
    publishes(overlay, writer, 100)

    assert are_over(overlay, name), "half a second is enough"
    overlay.passes(1.0)
    assert knows_to_be_over(overlay, name) == {"b0", "b1", "b2", "b3"} - {name}
    assert len(reader.received) == 100
    assert "link lost" not in "\n".join(overlay.world.trace)
    assert len(overlay.players(name)) == 1
    assert troubles(overlay, name) == []


def test_nobody_waits_longer_than_it_takes_to_hand_over() -> None:
    """No heartbeat is missed, and nobody is visited in vain."""
    overlay, reader, writer = line_with_traffic()
    is_told_to_stop(overlay, "b1")
    longest, last = 0.0, overlay.world.now
    for number in range(100):
        writer.publishes(x=number)
        overlay.passes(LINK_DELAY_S / 2)
        if len(reader.received) < number - 10:
            longest = max(longest, overlay.world.now - last)
        else:
            last = overlay.world.now

    assert longest < 25 * LINK_DELAY_S


def test_a_leaf_that_nobody_needs_leaves_the_tree_at_once() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b1")
    is_told_to_stop(overlay, "b2")
    overlay.passes(6 * LINK_DELAY_S)

    assert are_over(overlay, "b2")
    overlay.passes(INTERVAL_S / 2)
    assert knows_to_be_over(overlay, "b2") == {"b0", "b1"}
    overlay.passes(2 * TIMEOUT_S)
    assert overlay.players("b2") == []
    machine = overlay.host("b1").parts.playing.brokers[NodeId("b1")].machine
    assert list(machine.neighbours.below) == []
    seat = overlay.host("b0").parts.seats.seat_of(NodeId("b2"))
    assert seat is not None
    assert seat.left
    assert troubles(overlay, "b2") == []


@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_a_broker_that_has_left_the_tree_comes_back_as_a_new_one(disk: str) -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b1")
    is_told_to_stop(overlay, "b2")
    overlay.passes(1.0)
    if disk == "lost":
        overlay.world.add_broker(NodeId("b2"), NodeId("b1"), incarnation=2)
    else:
        overlay.restarts("b2")
    overlay.passes(2.0)
    reader, writer = overlay.client("reader", "b2"), overlay.client("writer", "b0")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    writer.publishes(x=1)
    overlay.passes(0.5)

    assert overlay.players("b2") == ["b2"]
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_a_leaf_with_clients_is_handed_over_with_them() -> None:
    overlay, reader, writer = line_with_traffic()
    is_told_to_stop(overlay, "b3")
    overlay.passes(1.0)
    writer.publishes(x=1)
    overlay.passes(1.0)

    assert overlay.players("b3") == ["b2"]
    assert reader.received == ["writer:1"]
    assert not reader.node.core.has_lost_session


def test_a_broker_for_which_another_one_stands_by_goes_to_that() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.standby("b1-2", "b1")
    is_told_to_stop(overlay, "b1")
    overlay.passes(1.0)

    assert overlay.players("b1") == ["b1-2"]
    assert troubles(overlay, "b1") == []


def test_it_comes_back_and_has_its_broker_again() -> None:
    overlay, reader, writer = line_with_traffic()
    is_told_to_stop(overlay, "b1")
    overlay.passes(1.0)
    overlay.restarts("b1")
    publishes(overlay, writer, 100)
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b1") == ["b1"]
    assert len(reader.received) == 100
    assert overlay.troubles() == []


def test_all_that_stop_at_the_same_time_hand_nothing_over() -> None:
    overlay, reader, writer = line_with_traffic()
    publishes(overlay, writer, 5)
    is_told_to_stop(overlay, "b0", "b1", "b2", "b3")
    overlay.passes(0.3)

    assert are_over(overlay, "b0", "b1", "b2", "b3")
    assert "given up" not in "\n".join(overlay.world.trace)
    assert len(reader.received) == 5


def test_those_that_stop_one_soon_after_the_other_end_soon_as_well() -> None:
    overlay, _, writer = line_with_traffic()
    for name in ("b0", "b1", "b2", "b3"):
        is_told_to_stop(overlay, name)
        publishes(overlay, writer, 30)
    overlay.passes(1.0)

    assert are_over(overlay, "b0", "b1", "b2", "b3")


def test_however_many_stop_at_the_same_time_nothing_is_lost_as_long_as_one_stays() -> None:
    overlay, reader, writer = line_with_traffic()
    publishes(overlay, writer, 5)
    is_told_to_stop(overlay, "b0", "b1", "b3")
    publishes(overlay, writer, 100)
    overlay.passes(2 * TIMEOUT_S)

    assert are_over(overlay, "b0", "b1", "b3")
    assert len(reader.received) == 105
    assert [overlay.players(name) for name in ("b0", "b1", "b2", "b3")] == [["b2"]] * 4
    assert troubles(overlay, "b0", "b1", "b3") == []


def test_one_that_stops_while_another_one_fails_loses_nothing() -> None:
    overlay, reader, writer = line_with_traffic()
    publishes(overlay, writer, 5)
    is_told_to_stop(overlay, "b1")
    publishes(overlay, writer, round(2 * PAUSE_S / LINK_DELAY_S) + 2)
    overlay.crashes("b2")
    publishes(overlay, writer, 20)
    overlay.passes(2 * TIMEOUT_S)

    assert len(reader.received) == 27 + round(2 * PAUSE_S / LINK_DELAY_S)
    assert "past lost" not in "\n".join(overlay.world.trace)
    assert troubles(overlay, "b1") == []


def test_a_root_without_anybody_stops_at_once() -> None:
    overlay = Lively()
    overlay.brokers("b0")
    is_told_to_stop(overlay, "b0")

    assert are_over(overlay, "b0")


def test_with_a_delta_of_0_it_finishes_what_it_has_accepted() -> None:
    overlay = Lively(delta=0)
    overlay.brokers("b0", b1="b0", b2="b1")
    reader, writer = overlay.client("reader", "b2"), overlay.client("writer", "b0")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    writer.publishes(x=1)
    overlay.passes(2.5 * LINK_DELAY_S)
    is_told_to_stop(overlay, "b1")
    overlay.passes(1.0)

    assert are_over(overlay, "b1")
    assert reader.received == ["writer:1"]
    assert writer.node.core.unconfirmed == 0


def test_a_host_that_stands_by_stops_at_once() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.standby("b1-2", "b1")
    is_told_to_stop(overlay, "b1-2")

    assert are_over(overlay, "b1-2")
    overlay.passes(1.0)
    overlay.crashes("b1")
    overlay.passes(1.0)
    assert overlay.players("b1") == ["b0"]
