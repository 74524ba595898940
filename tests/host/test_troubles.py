"""Hosts that freeze, are cut off, or read much at once: what others go on to promise."""

import pytest

from plait.broker.effects import Effect, OpenLink, SetTimer
from plait.broker.host.link_states import LinkState
from plait.broker.inputs import LinkClosed, LinkId, LinkOpened, MessagesReceived, TimerFired
from plait.broker.messages import AttachRequest, Seat, Seating
from plait.routing.ids import NodeId
from tests.host.peers import Visited
from tests.host.worlds import INTERVAL_S, LINK_DELAY_S, TIMEOUT_S, Lively


def test_whoever_says_something_in_the_same_read_as_its_leave_has_left() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b1")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    writer.publishes(x=1)
    overlay.passes(2.5 * LINK_DELAY_S)
    # What the reader says from now on, b1 hears as one read: it leaves, and confirms.
    overlay.world.pause(NodeId("b1"), 0.2)
    assert reader.received == ["writer:1"]
    reader.leaves()
    overlay.passes(1.0)

    assert reader.node.stopped == "left"
    assert overlay.troubles() == []


def test_a_client_is_not_lost_whose_broker_is_given_up_while_others_hear_that_it_is_back() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b0")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.world.take_off_the_net(NodeId("reader"), NodeId("b1"), 0.5)
    overlay.passes(0.3)
    writer.publishes(x=1)
    while not overlay.host("b1").is_vulnerable:
        overlay.passes(LINK_DELAY_S / 2)
    overlay.hears_of_the_end_of("b1", taker="b0")
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b1") == ["b0"]
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_a_client_goes_on_where_it_was_just_about_to_join() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.world.add_client(NodeId("reader"), NodeId("b1"))
    overlay.passes(3.5 * LINK_DELAY_S)  # its Join is on its way
    overlay.freezes("b1")
    overlay.passes(LINK_DELAY_S)
    overlay.loses_silently("reader", "b1")
    overlay.passes(1.0)
    overlay.goes_on("b1")
    overlay.passes(2 * INTERVAL_S)

    assert overlay.world.nodes[NodeId("reader")].is_ready
    assert overlay.troubles() == []


def test_a_later_life_of_a_client_is_let_in_before_the_end_of_the_earlier_one_is_noticed() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader = overlay.client("reader", "b1")
    overlay.loses_silently("reader", "b1")
    overlay.crashes("reader")
    overlay.restarts("reader")
    overlay.passes(2 * TIMEOUT_S)

    assert reader.node.stopped == "crashed"
    assert overlay.world.nodes[NodeId("reader")].is_ready
    assert overlay.troubles() == []


def test_a_second_process_that_uses_the_name_of_a_client_is_refused_when_that_is_heard() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader = overlay.client("reader", "b1")
    second = overlay.world.add_client(NodeId("reader"), NodeId("b1"), incarnation=2)
    # What is heard within half an interval may have been on its way; then at the next tick.
    overlay.passes(3 * INTERVAL_S)

    assert second.stopped is not None
    assert "the name reader is taken by incarnation 1" in second.stopped
    assert reader.node.is_alive


def test_a_host_that_has_given_everything_up_stands_by_and_asks_for_nothing_back() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.relocates("b0", host="b1")
    overlay.passes(2 * TIMEOUT_S)
    overlay.relocates("b1", host="b0")
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b0") == ["b1"]
    assert overlay.players("b1") == ["b0"]
    assert overlay.troubles() == []


def test_a_host_that_plays_nothing_says_where_something_is_played() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.relocates("b1", host="b0")
    overlay.passes(2 * TIMEOUT_S)
    reader = overlay.client("reader", "b1")

    assert reader.node.client is not None
    assert reader.node.client.broker == "b0"
    assert overlay.troubles() == []


def test_a_root_that_was_frozen_hears_that_others_have_gone_on_without_it() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b0"), overlay.client("writer", "b2")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.freezes("b0")
    overlay.passes(4 * TIMEOUT_S)
    writer.publishes(x=1)
    overlay.goes_on("b0")
    overlay.passes(2 * TIMEOUT_S)

    assert len(overlay.players("b0")) == 1
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_clients_of_a_frozen_host_come_before_whoever_takes_over_gives_them_up() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b2")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.freezes("b1")
    writer.publishes(x=1)
    overlay.passes(4 * TIMEOUT_S)

    assert overlay.players("b1") == ["b0", "b1"]
    assert reader.received == ["writer:1"]


def test_a_broker_that_is_about_to_join_and_has_lost_its_connection_once_is_not_dropped() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.freezes("b0")
    overlay.world.add_broker(NodeId("b3"), NodeId("b1"), fallbacks=[NodeId("b2")])
    overlay.passes(0.2)
    overlay.world.break_link(NodeId("b3"), NodeId("b1"))
    overlay.passes(4 * TIMEOUT_S)

    assert "neighbour dropped" not in "\n".join(overlay.world.trace)
    assert overlay.world.nodes[NodeId("b3")].is_ready


def test_who_was_about_to_join_somebody_and_has_its_place_elsewhere_is_no_neighbour() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.world.add_broker(NodeId("b3"), NodeId("b1"), fallbacks=[NodeId("b2")])
    while "b3" not in overlay.machine("b1").neighbours.below:
        overlay.passes(LINK_DELAY_S / 2)
    cut = overlay.cuts("b1", "b3", incoming=False)  # it does not hear that it is taken in
    while overlay.players("b3") != ["b3"]:
        overlay.passes(INTERVAL_S)
    overlay.heals(cut)
    overlay.passes(INTERVAL_S)
    assert "b3" not in overlay.machine("b1").neighbours.below
    overlay.crashes("b3")
    overlay.passes(TIMEOUT_S)

    assert overlay.players("b3") == ["b2"]
    assert [each.node for each in overlay.machine("b3").neighbours.all()] == ["b2"]
    assert overlay.troubles() == []


def test_what_is_told_between_two_brokers_of_one_host_begins_anew_when_one_is_taken_up() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader, writer = overlay.client("reader", "b0", "b1"), overlay.client("writer", "b1")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    writer.publishes(x=1)
    overlay.passes(1.5 * LINK_DELAY_S)
    overlay.crashes("b0")
    overlay.passes(TIMEOUT_S)

    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_who_has_attached_where_nothing_came_of_it_has_the_broker_taken_up_all_the_same() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b0"), overlay.client("writer", "b2")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.freezes("b0")
    attaching, coordinator = overlay.host("b2"), overlay.host("b1")
    while not attaching.parts.sealed:
        overlay.passes(LINK_DELAY_S / 2)
    # What it says of b0 is on its way when the one who asked for it hears of that again.
    overlay.goes_on("b0")
    coordinator.parts.doubts.heard(overlay.host("b0").me.life, coordinator.me.now)
    writer.publishes(x=1)
    overlay.passes(3 * TIMEOUT_S)

    assert len(overlay.players("b0")) == 1
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_a_client_that_is_not_as_it_should_be_is_found_at_its_next_call() -> None:
    overlay = Lively()
    overlay.brokers("b0")
    reader = overlay.client("reader", "b0")
    reader.core.stream.counted = (1 << 40,) * 7

    with pytest.raises(AssertionError, match="counters shrank"):
        reader.subscribes("TRUE")


def test_a_rebuilt_broker_is_compared_with_what_it_was_in_the_term_that_it_replaces() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b2"), overlay.client("writer", "b1")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.freezes("b1")
    for number in range(8):
        reader.subscribes(f"x = {number}")
    overlay.passes(3 * TIMEOUT_S)
    # Its steps of the first term have the numbers of others in the second.
    overlay.goes_on("b1")
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b1") == ["b1"]
    assert overlay.cores.comparison.compared == 2
    assert overlay.troubles() == []


def test_a_broker_that_has_not_joined_is_not_handed_over() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.freezes("b0")  # whoever has to be asked does not answer
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    overlay.passes(0.5)
    b2 = overlay.host("b2")

    assert overlay.players("b2") == ["b2"]
    reason, effects = b2.relocate(overlay.world.now, NodeId("b2"), NodeId("b1"))
    assert (reason, effects) == ("b2 is about to join", [])


def test_who_comes_before_a_broker_has_joined_is_let_in_as_soon_as_it_has() -> None:
    overlay = Lively()
    overlay.brokers("b0")
    overlay.world.add_broker(NodeId("b1"), NodeId("b0"))
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    overlay.passes(INTERVAL_S / 2)

    assert overlay.world.nodes[NodeId("b2")].is_ready
    assert overlay.players("b2") == ["b2"]


def test_who_gives_a_broker_up_whose_only_neighbour_fails_tells_it_where_it_comes_next() -> None:
    overlay = Lively(delta=2)
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.crashes("b0")
    overlay.relocates("b2", host="b1")
    overlay.freezes("b1")  # or it would visit, before the other one comes
    overlay.passes(5 * LINK_DELAY_S)
    overlay.goes_on("b1")
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.players("b0") == overlay.players("b2") == ["b1"]
    assert overlay.troubles() == []


def test_whoever_takes_over_waits_for_clients_whatever_its_clock_does() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader = overlay.client("reader", "b1")
    reader.subscribes("TRUE")
    overlay.passes(0.5)
    overlay.crashes("b1")
    overlay.passes(LINK_DELAY_S)
    overlay.jumps("b0", 10 * TIMEOUT_S)
    overlay.passes(TIMEOUT_S)

    assert overlay.players("b1") == ["b0"]
    assert overlay.troubles() == []


def test_nobody_is_given_up_who_was_paused_for_less_than_the_timeout() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.world.pause(NodeId("b1"), 0.9 * TIMEOUT_S)
    overlay.passes(LINK_DELAY_S)
    overlay.world.break_link(NodeId("b0"), NodeId("b1"))
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.world.former == []
    assert overlay.troubles() == []


def test_who_is_asked_visits_the_accused_before_it_says_that_it_has_heard_nothing() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    cut = overlay.cuts("b0", "b1")
    overlay.passes(5 * TIMEOUT_S)
    overlay.heals(cut)
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.world.former == []
    assert overlay.troubles() == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_client_that_is_back_while_somebody_is_silent_is_welcomed_when_all_know(
    times: int,
) -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b2")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.freezes("b0")
    for _ in range(times):
        overlay.passes(LINK_DELAY_S)
        overlay.world.break_link(NodeId("reader"), NodeId("b1"))
        overlay.passes(INTERVAL_S)
    writer.publishes(x=1)
    assert reader.node.client is not None
    assert not reader.node.client.is_connected
    overlay.passes(3 * TIMEOUT_S)
    overlay.goes_on("b0")
    overlay.passes(2 * TIMEOUT_S)

    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_a_host_that_hears_nobody_gives_none_of_its_clients_up() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b2")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    cut = overlay.cuts("b1", outgoing=False)
    overlay.passes(3 * TIMEOUT_S)
    overlay.heals(cut)
    writer.publishes(x=1)
    overlay.passes(3 * TIMEOUT_S)

    assert "neighbour dropped" not in "\n".join(overlay.world.trace)
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_what_was_told_of_logs_is_kept_while_the_region_may_grow() -> None:
    overlay = Lively(delta=2)
    overlay.brokers("b0", b1="b0", b2="b1", b3="b0")
    reader, writer = overlay.client("reader", "b2"), overlay.client("writer", "b0")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.freezes("b2")
    overlay.relocates("b1", host="b3")
    overlay.passes(INTERVAL_S)
    writer.publishes(x=1)
    overlay.passes(4 * TIMEOUT_S)
    overlay.goes_on("b2")
    overlay.passes(2 * TIMEOUT_S)

    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_clients_are_waited_for_from_when_it_is_certain_that_their_broker_has_failed() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b2")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    cut = overlay.cuts("b0", "b1")
    overlay.passes(3 * TIMEOUT_S)  # b0 takes it for failed, and b2 vouches for it
    overlay.world.pause(NodeId("reader"), 0.5 * TIMEOUT_S)
    overlay.crashes("b1")
    overlay.passes(INTERVAL_S)
    overlay.heals(cut)
    writer.publishes(x=1)
    overlay.passes(3 * TIMEOUT_S)

    assert overlay.players("b1") == ["b0"]
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []


def test_a_root_that_was_alone_is_the_root_again_when_it_comes_back() -> None:
    overlay = Lively()
    overlay.brokers("b0")
    overlay.crashes("b0")
    overlay.restarts("b0")
    overlay.passes(0.1)

    assert overlay.players("b0") == ["b0"]
    assert overlay.host("b0").parts.playing.brokers[NodeId("b0")].term == 2
    assert overlay.troubles() == []


def test_when_all_have_failed_the_root_is_the_root_again_and_others_come_back_below() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b1")
    for name in ("b2", "b1", "b0"):
        overlay.crashes(name)
    for name in ("b1", "b0", "b2"):
        overlay.restarts(name)
        overlay.passes(0.1)
    overlay.passes(4 * TIMEOUT_S)

    assert [overlay.players(name) for name in ("b0", "b1", "b2")] == [["b0"], ["b1"], ["b2"]]
    assert overlay.troubles() == []


def test_a_root_is_not_the_root_again_while_somebody_is_silent_who_may_play_all() -> None:
    """Of three hosts one is left with everything, and the other two come back without it."""
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.crashes("b1")
    overlay.passes(TIMEOUT_S)
    overlay.crashes("b0")
    overlay.passes(TIMEOUT_S)
    assert overlay.players("b0") == overlay.players("b1") == ["b2"]
    cut = overlay.cuts("b2")
    overlay.restarts("b0")
    overlay.restarts("b1")
    overlay.passes(6 * TIMEOUT_S)
    assert overlay.players("b0") == ["b2"]
    overlay.heals(cut)
    overlay.passes(6 * TIMEOUT_S)

    assert [overlay.players(name) for name in ("b0", "b1", "b2")] == [["b0"], ["b1"], ["b2"]]
    assert overlay.troubles() == []


def test_the_way_to_an_earlier_life_of_a_client_is_told_as_it_was() -> None:
    overlay = Lively(ordering="sequencer-filtered")
    overlay.brokers("b0", b1="b0")
    overlay.client("writer", "b0").advertises("TRUE")
    overlay.passes(0.5)
    overlay.crashes("writer")
    overlay.restarts("writer")
    while "neighbour dropped" not in "\n".join(overlay.world.trace):
        overlay.passes(LINK_DELAY_S / 2)
    overlay.crashes("b1")  # which has not heard of that
    overlay.passes(2 * TIMEOUT_S)

    assert overlay.cores.comparison.compared == 1
    assert overlay.troubles() == []


def test_a_broker_is_taken_up_in_a_term_later_than_all_of_which_its_neighbours_know() -> None:
    """Whoever took it up before may have failed as soon as one of them had heard so."""
    overlay = Lively()
    ears = Visited(overlay)
    overlay.brokers("b0", b1="b0")
    client = ears.peer("client", "b1").joins()
    overlay.passes(0.1)
    assert client.welcome is not None
    overlay.crashes("b1")
    overlay.passes(2.5 * LINK_DELAY_S)
    back = ears.peer(
        "client", "b0", to="b1", known_term=3, taken=client.step, secret=client.welcome.secret
    )
    back.attaches("b1", term=3, taken=client.step, logs=overlay.host("b0").parts.library.known())

    assert back.welcome is not None
    assert (back.welcome.term, back.welcome.resumed) == (4, True)
    assert overlay.troubles() == []


def test_who_knows_a_later_term_does_not_attach_for_the_one_before() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0", b2="b0")
    overlay.crashes("b0")
    node = overlay.world.nodes[NodeId("b2")]
    asking = overlay.host("b2").parts.connections.with_state
    while not (greeting := asking(LinkState.AWAITING_WELCOME)):
        overlay.passes(LINK_DELAY_S / 2)
    life = overlay.host("b1").me.life
    b0 = NodeId("b0")
    later = Seat(broker=b0, parent="", term=2, host=life.host, incarnation=life.incarnation)
    for message in (Seating(seats=(later,)), AttachRequest(broker=b0)):
        overlay.world._tell(node, MessagesReceived(greeting[0].link, [message]))

    assert not overlay.host("b2").parts.sealed


def test_a_process_that_still_took_a_connection_when_it_was_killed_is_visited_again_at_once() -> (
    None
):
    """The kernel had taken it, and resets it: a proof is only that the next one is refused."""
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.passes(1.0)
    host, now = overlay.host("b0"), overlay.world.now
    line = host.parts.connections.line(NodeId("b0"), NodeId("b1"))
    assert line is not None
    [visit] = _dialled(host.step(now, LinkClosed(line.link, "reset")))
    taken = LinkId(1_000_000)
    host.step(now, LinkOpened(taken, visit))
    again = now + host.me.limits.redial_first_s
    timers = [e for e in host.step(now, LinkClosed(taken, "reset")) if isinstance(e, SetTimer)]

    assert timers
    assert timers[-1].at <= again
    assert _dialled(host.step(again, TimerFired())) == [visit]


def _dialled(effects: list[Effect]) -> list[str]:
    return [effect.address for effect in effects if isinstance(effect, OpenLink)]
