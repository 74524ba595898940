"""Connections come and go; a session survives them as long as both sides remember it."""

import attrs
import pytest

from broker.client_core import ClientState
from broker.limits import Limits
from broker.messages import Advertise, Confirm, GoodbyeCode, Unadvertise
from broker.neighbours import UP
from broker.sim.world import LIVELY_LIMITS, SIMULATED_LIMITS
from faulttol.guarantees import check
from routing.ids import NodeId, OperationId
from tests.conversation import LINK_DELAY_S, Client, Conversation


def ticker_and_reader(overlay: Conversation) -> tuple[Client, Client]:
    overlay.brokers("b1", b2="b1")
    ticker = overlay.client("ticker", at="b2")
    ticker.advertises("TRUE")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("TRUE")
    overlay.settle()
    return ticker, reader


def test_who_leaves_and_is_cut_off_twice_meanwhile_has_left() -> None:
    """The broker has forgotten it and greets it as a newcomer; that is lost, and it asks again."""
    for half_ms in range(90, 130):
        overlay = Conversation()
        ticker, _ = ticker_and_reader(overlay)
        ticker.publishes(x=1)
        overlay.settle()
        ticker.leaves()
        for moment in (0.0015, 0.0005 * half_ms):
            overlay.settle(moment)
            overlay.world.break_link(NodeId("ticker"), NodeId("b2"))
        overlay.settle(5)

        assert ticker.node.stopped == "left"
        assert overlay.broker("b2").unfinished() == []


def test_who_waits_long_for_an_answer_is_not_taken_for_silent() -> None:
    """Who was asked waits itself, for brokers that stand still one after the other.

    It looks for the silent after it has answered, and before it can have heard anything more.
    """
    overlay = Conversation(limits=LIVELY_LIMITS)
    overlay.brokers("b0", b1="b0")
    overlay.freezes("b0")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    a_tick = overlay.world.now + 6
    overlay.settle(0.01)
    overlay.world.add_broker(NodeId("b3"), NodeId("b2"))
    overlay.settle(3)
    overlay.freezes("b1")
    overlay.goes_on("b0")
    overlay.settle(a_tick - 2 * LINK_DELAY_S - overlay.world.now)
    assert not overlay.broker("b3").is_ready
    overlay.goes_on("b1")
    overlay.settle(5)

    assert overlay.parent_of("b3") == "b2"
    assert overlay.broker("b3").incarnation == 1


@pytest.mark.parametrize("cut", [("ticker", "b2"), ("reader", "b1"), ("b2", "b1"), ("b1", "b2")])
@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.0015, 0.0025, 0.0035, 0.0045, 0.0055])
def test_a_connection_cut_at_any_moment_costs_nothing(cut: tuple[str, str], moment: float) -> None:
    overlay = Conversation()
    ticker, reader = ticker_and_reader(overlay)
    ticker.publishes(x=1, urgent=True)
    overlay.settle(moment)
    ticker.publishes(x=2, urgent=True)
    assert overlay.world.break_link(NodeId(cut[0]), NodeId(cut[1]))
    ticker.publishes(x=3, urgent=True)
    overlay.settle(2.0)

    assert reader.received == ["ticker:1", "ticker:2", "ticker:3"]
    assert ticker.core.unconfirmed == 0
    assert all(overlay.broker(name).unfinished() == [] for name in ("b1", "b2"))
    assert overlay.judge().is_clean


def test_what_was_to_be_forgotten_and_is_known_anew_is_not_to_be_forgotten_again() -> None:
    """The first is not confirmed when the connection is lost, and the second is."""
    overlay = Conversation()
    overlay.brokers("b1", b2="b1")
    told_by_b2 = overlay.client("reader-2", at="b2").subscribes("TRUE")
    overlay.client("ticker-1", at="b1").advertises("TRUE")
    overlay.settle()
    b2, subscriptions = overlay.broker("b2"), overlay.broker("b1").interests.subscriptions
    assert told_by_b2 in subscriptions

    overlay.freezes("b1")
    [announced] = b2.interests.advertisements.of_client(NodeId("ticker-1"))
    forget = Unadvertise(operation=OperationId("ticker-1#1.7"), advertisement=announced.id)
    advertise = Advertise(
        operation=OperationId("ticker-1#1.8"),
        advertisement=announced.id,
        client=announced.client,
        filter="TRUE",
        path=announced.path,
    )
    overlay.is_told_from_above("b2", forget, advertise)
    told_anew = b2.requests.pending_at(UP)[told_by_b2]
    overlay.is_told_from_above("b2", Confirm(operation=told_anew))
    overlay.loses_connection("b2", "b1")
    overlay.goes_on("b1")
    overlay.settle()

    assert told_by_b2 in subscriptions


def test_who_has_joined_anew_is_not_to_be_forgotten_again() -> None:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1")
    overlay.client("reader", at="b2").subscribes("TRUE")
    overlay.settle()
    overlay.freezes("b1")
    overlay.crashes("reader")
    overlay.settle(12)
    assert NodeId("reader") not in overlay.broker("b2").neighbourhood

    overlay.world.add_client(NodeId("reader"), NodeId("b2"), incarnation=2)
    overlay.settle(0.1)
    overlay.is_told_from_above("b2", Confirm(operation=OperationId("reader#2.1")))
    overlay.loses_connection("b2", "b1")
    overlay.goes_on("b1")
    overlay.settle()

    assert NodeId("reader") in overlay.broker("b1").neighbourhood
    assert overlay.broker("b2").unfinished() == []


def test_calls_made_while_disconnected_are_answered_later() -> None:
    overlay = Conversation()
    ticker, reader = ticker_and_reader(overlay)
    overlay.world.break_link(NodeId("reader"), NodeId("b1"))
    overlay.settle(0.002)
    assert reader.core.state is ClientState.RECONNECTING
    reader.subscribes("x = 1")
    ticker.publishes(x=1)
    overlay.settle()

    assert len(reader.answered) == 2
    assert reader.received == ["ticker:1"]


def away(overlay: Conversation, name: str, broker: str, seconds: float) -> None:
    """Take a client off the net for so long: every connection it makes is cut at once."""
    world = overlay.world
    until = world.now + seconds
    while world.now < until:
        world.break_link(NodeId(name), NodeId(broker))
        overlay.settle(0.0005)


def test_a_subscriber_away_for_too_long_begins_anew() -> None:
    limits = attrs.evolve(SIMULATED_LIMITS, heartbeat_interval_s=0.1, resume_timeout_s=0.5)
    overlay = Conversation(limits=limits)
    ticker, reader = ticker_and_reader(overlay)
    away(overlay, "reader", "b1", 0.2)
    ticker.publishes(x=1)
    away(overlay, "reader", "b1", 1.0)
    overlay.settle(3.0)
    assert reader.core.state is ClientState.READY
    ticker.publishes(x=2)
    overlay.settle()

    assert reader.received == ["ticker:2"]
    skipped = [r for r in overlay.world.records() if r["kind"] == "skipped"]
    assert [(r["publisher"], r["seq"], r["subscriber"]) for r in skipped] == [
        ("ticker", 1, "reader")
    ]
    assert ticker.core.unconfirmed == 0, "nobody waits for a subscriber that is gone"
    assert overlay.judge().is_clean
    [suspected] = [r for r in overlay.world.records() if r["kind"] == "suspected"]
    assert suspected["about"] == "reader"
    assert 500 < suspected["millis"] < 1000, "how long it had been away when it was given up"
    told_too_little = [
        r | {"millis": 400} if r is suspected else r for r in overlay.world.records()
    ]
    verdict = check(told_too_little, ordering="fifo", patience=0.5)
    assert [violation.guarantee for violation in verdict.violations] == ["loss"]


def test_a_publisher_away_for_too_long_sends_again_what_was_not_confirmed() -> None:
    limits = attrs.evolve(SIMULATED_LIMITS, heartbeat_interval_s=0.1, resume_timeout_s=0.5)
    overlay = Conversation(limits=limits)
    ticker, reader = ticker_and_reader(overlay)
    ticker.publishes(x=1)
    overlay.settle(0.0012)  # it has reached the broker, and its confirmation will not come back
    away(overlay, "ticker", "b2", 1.0)
    ticker.publishes(x=2)
    away(overlay, "ticker", "b2", 0.5)
    overlay.settle(3.0)

    assert reader.received == ["ticker:1", "ticker:2"]
    assert ticker.core.unconfirmed == 0
    assert overlay.judge().is_clean


def test_a_newer_incarnation_takes_the_place_of_an_older_one_that_is_gone() -> None:
    overlay = Conversation()
    ticker_and_reader(overlay)
    overlay.crashes("reader")
    overlay.settle(0.1)
    new = overlay.client("reader", at="b1", incarnation=2)
    overlay.settle()

    assert any("replaced by incarnation 2" in line for line in overlay.world.trace)
    assert new.core.state is ClientState.READY
    assert len(overlay.broker("b1").interests.subscriptions) == 0


def test_a_name_cannot_be_taken_twice() -> None:
    overlay = Conversation()
    _, reader = ticker_and_reader(overlay)
    other = overlay.client("reader", at="b1")
    overlay.settle()

    assert other.node.stopped is not None
    assert "the name reader is taken" in other.node.stopped
    assert reader.core.state is ClientState.READY


def test_a_subscriber_that_confirms_nothing_is_isolated_and_nobody_else() -> None:
    limits = attrs.evolve(
        SIMULATED_LIMITS,
        heartbeat_interval_s=0.1,
        stall_timeout_s=1.0,
        heartbeat_timeout_s=10.0,
    )
    overlay = Conversation(limits=limits)
    ticker, reader = ticker_and_reader(overlay)
    stuck = overlay.client("stuck", at="b1")
    stuck.subscribes("TRUE")
    overlay.settle()
    stuck.core.step = lambda now, happened: None  # type: ignore[method-assign]
    ticker.publishes(x=1)
    overlay.settle(0.5)
    assert reader.received == ["ticker:1"]
    assert ticker.core.unconfirmed == 1
    overlay.settle(2.0)

    assert "stuck" not in overlay.broker("b1").neighbours.below
    assert overlay.broker("b1").statistics().clients_isolated == 1
    assert ticker.core.unconfirmed == 0
    said = "1 publications unconfirmed, the first for 1."
    assert any(said in line for line in overlay.world.trace)
    [suspected] = [r for r in overlay.world.records() if r["kind"] == "suspected"]
    assert suspected["about"] == "stuck"
    assert suspected["millis"] > 1000, "how long it had confirmed nothing"


def test_a_broker_that_stops_finishes_what_it_accepted() -> None:
    overlay = Conversation()
    ticker, reader = ticker_and_reader(overlay)
    for x in range(20):
        ticker.publishes(x=x)
    overlay.settle(0.0015)  # all of them are at b2, none at b1
    overlay.world.stop(overlay.world.nodes[NodeId("b2")])
    overlay.settle()

    assert overlay.world.nodes[NodeId("b2")].stopped == "stopped"
    assert len(reader.received) == 20
    assert [r["seq"] for r in overlay.world.records() if r["kind"] == "confirmed"] == list(
        range(1, 21)
    )
    assert NodeId("b2") not in overlay.broker("b1").neighbourhood


def test_a_broker_that_cannot_finish_stops_all_the_same() -> None:
    limits = attrs.evolve(SIMULATED_LIMITS, drain_timeout_s=2.0)
    overlay = Conversation(limits=limits)
    ticker, reader = ticker_and_reader(overlay)
    reader.core.step = lambda now, happened: None  # type: ignore[method-assign]
    ticker.publishes(x=1)
    overlay.settle(0.1)
    overlay.world.stop(overlay.world.nodes[NodeId("b2")])
    overlay.settle(1.0)
    assert overlay.world.nodes[NodeId("b2")].stopped is None
    overlay.settle(2.0)

    assert overlay.world.nodes[NodeId("b2")].stopped == "stopped"
    assert any("stopped before all was stable" in line for line in overlay.world.trace)


def test_a_client_without_any_broker_says_so() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    lost = overlay.client("lost", at="nowhere")

    assert lost.node.stopped == "no broker at nowhere: connection refused"


def test_what_was_published_and_not_confirmed_is_reported_at_the_end() -> None:
    overlay = Conversation()
    ticker, reader = ticker_and_reader(overlay)
    reader.core.step = lambda now, happened: None  # type: ignore[method-assign]
    ticker.publishes(x=1)
    overlay.settle()
    overlay.world.stop(ticker.node)
    overlay.settle()

    skipped = [r for r in overlay.world.records() if r["kind"] == "skipped"]
    assert [(r["publisher"], r["seq"], r["node"]) for r in skipped] == [("ticker", 1, "ticker")]


def test_a_silent_peer_is_given_up() -> None:
    limits = Limits(heartbeat_interval_s=1.0, heartbeat_timeout_s=3.0)
    overlay = Conversation(limits=limits)
    _, reader = ticker_and_reader(overlay)
    overlay.settle(10.0)
    assert reader.core.state is ClientState.READY, "heartbeats keep a quiet link alive"
    reader.core.step = lambda now, happened: None  # type: ignore[method-assign]
    overlay.settle(5.0)

    assert any(GoodbyeCode.TIMEOUT.value in line for line in overlay.world.trace)
