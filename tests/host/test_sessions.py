"""Connections come and go; a session survives them as long as both sides remember it."""

from typing import Any

import attrs
import pytest

from plait.broker.client.states import ClientState
from plait.broker.effects import Effect, SendMessage
from plait.broker.limits import Limits
from plait.broker.messages import GoodbyeCode, Settings, Welcome
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import SIMULATED_LIMITS
from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId
from tests.host.peers import Alone
from tests.host.worlds import LINK_DELAY_S, MS, Client, Conversation, Lively

FEW_SECONDS = attrs.evolve(SIMULATED_LIMITS, heartbeat_interval_s=0.1, resume_timeout_s=0.5)


def ticker_and_reader(overlay: Lively) -> tuple[Client, Client]:
    overlay.brokers("b1", b2="b1")
    ticker, reader = overlay.client("ticker", "b2"), overlay.client("reader", "b1")
    ticker.advertises("TRUE")
    reader.subscribes("TRUE")
    overlay.passes(1.0)
    return ticker, reader


def test_who_leaves_and_is_cut_off_twice_meanwhile_has_left() -> None:
    for half_ms in range(90, 130, 4):
        overlay = Conversation()
        ticker, _ = ticker_and_reader(overlay)
        ticker.publishes(x=1)
        overlay.settle()
        ticker.leaves()
        for moment in (1.5, 0.5 * half_ms):
            overlay.settle(moment * MS)
            overlay.world.break_link(NodeId("ticker"), NodeId("b2"))
        overlay.settle(5)

        assert ticker.node.stopped == "left"
        assert overlay.unfinished() == []


def test_who_waits_long_for_an_answer_is_not_taken_for_silent() -> None:
    """Who was asked waits itself, for brokers that stand still one after the other."""
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    overlay.freezes("b0")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    overlay.passes(0.1)
    overlay.world.add_broker(NodeId("b3"), NodeId("b2"))
    overlay.passes(2.5)
    overlay.freezes("b1")
    overlay.goes_on("b0")
    overlay.passes(2.5)
    assert not overlay.world.nodes[NodeId("b3")].is_ready
    overlay.goes_on("b1")
    overlay.passes(5)

    assert overlay.machine("b3").neighbours.parent is not None
    assert overlay.host("b3").me.incarnation == 1
    assert overlay.troubles() == []


@pytest.mark.parametrize("cut", [("ticker", "b2"), ("reader", "b1"), ("b2", "b1"), ("b1", "b2")])
@pytest.mark.parametrize("moment", [0.0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
def test_a_connection_cut_at_any_moment_costs_nothing(cut: tuple[str, str], moment: float) -> None:
    overlay = Conversation()
    ticker, reader = ticker_and_reader(overlay)
    ticker.publishes(x=1, urgent=True)
    overlay.settle(moment * MS)
    ticker.publishes(x=2, urgent=True)
    overlay.loses_connection(*cut)
    ticker.publishes(x=3, urgent=True)
    overlay.settle(2.0)

    assert reader.received == ["ticker:1", "ticker:2", "ticker:3"]
    assert ticker.core.unconfirmed == 0
    assert overlay.troubles() == []


def test_a_subscriber_away_for_too_long_begins_anew() -> None:
    overlay = Conversation(limits=FEW_SECONDS)
    ticker, reader = ticker_and_reader(overlay)
    overlay.world.take_off_the_net(NodeId("reader"), NodeId("b1"), 1.2)
    overlay.settle(0.2)
    ticker.publishes(x=1)
    overlay.settle(4.0)
    assert reader.core.state is ClientState.READY
    ticker.publishes(x=2)
    overlay.settle()

    assert reader.received == ["ticker:2"]
    records = overlay.world.records()
    skipped = [r for r in records if r["kind"] == "skipped"]
    assert [(r["publisher"], r["seq"], r["subscriber"]) for r in skipped] == [
        ("ticker", 1, "reader")
    ]
    assert ticker.core.unconfirmed == 0, "nobody waits for a subscriber that is gone"
    assert overlay.violations() == []
    [suspected] = [r for r in records if r["kind"] == "suspected"]
    assert suspected["about"] == "reader"
    assert 500 < suspected["millis"] < 1000, "how long it had been away when it was given up"
    told_too_little = [
        r | {"millis": 400} if r is suspected else r | {"millis": 0} if r["kind"] == "joined" else r
        for r in records
    ]
    verdict = check(told_too_little, ordering="fifo", patience=0.5)
    assert [violation.guarantee for violation in verdict.violations] == ["loss"]


def test_a_publisher_away_for_too_long_sends_again_what_was_never_taken() -> None:
    """And goes on counting from there, also when that happens to it once more."""
    overlay = Conversation(limits=FEW_SECONDS)
    ticker, reader = ticker_and_reader(overlay)
    numbers = []
    for number in range(1, 7, 3):
        ticker.publishes(x=number)
        overlay.settle(0.0012)  # it has been taken, and its confirmation will not come back
        ticker.publishes(x=number + 1)
        overlay.world.take_off_the_net(NodeId("ticker"), NodeId("b2"), 1.2)
        ticker.publishes(x=number + 2)
        overlay.settle(4.0)
        numbers += [number, number + 1, number + 2]

    assert reader.received == [f"ticker:{number}" for number in numbers]
    assert ticker.core.state is ClientState.READY
    assert ticker.core.unconfirmed == 0
    skipped = [r for r in overlay.world.records() if r["kind"] == "skipped"]
    assert [r["seq"] for r in skipped] == [1, 4], "who got them, the publisher cannot tell"
    assert overlay.violations() == []


def test_a_newer_incarnation_takes_the_place_of_an_older_one_that_is_gone() -> None:
    overlay = Conversation()
    ticker_and_reader(overlay)
    overlay.crashes("reader")
    overlay.settle(0.1)
    new = overlay.client("reader", "b1", incarnation=2)
    overlay.settle()

    assert any("replaced by incarnation 2" in line for line in overlay.world.trace)
    assert new.core.state is ClientState.READY
    assert len(overlay.machine("b1").interests.subscriptions) == 0


def test_a_subscriber_that_confirms_nothing_is_isolated_and_nobody_else() -> None:
    limits = attrs.evolve(
        SIMULATED_LIMITS,
        heartbeat_interval_s=0.1,
        stall_timeout_s=1.0,
        heartbeat_timeout_s=10.0,
    )
    overlay = Conversation(limits=limits)
    ticker, reader = ticker_and_reader(overlay)
    stuck = overlay.client("stuck", "b1")
    stuck.subscribes("TRUE")
    overlay.settle()
    stuck.core.step = lambda now, happened: None  # type: ignore[method-assign]
    ticker.publishes(x=1)
    overlay.settle(0.5)
    assert reader.received == ["ticker:1"]
    assert ticker.core.unconfirmed == 1
    overlay.settle(2.0)

    assert "stuck" not in overlay.machine("b1").neighbours.below
    assert overlay.host("b1").parts.clients.isolated == 1
    assert ticker.core.unconfirmed == 0
    said = "1 publications unconfirmed, the first for 1."
    assert any(said in line for line in overlay.world.trace)
    [suspected] = [r for r in overlay.world.records() if r["kind"] == "suspected"]
    assert suspected["about"] == "stuck"
    assert suspected["millis"] > 1000, "how long it had confirmed nothing"


def test_a_silent_client_is_hung_up_on_and_a_quiet_one_is_not() -> None:
    overlay = Conversation(limits=Limits(heartbeat_interval_s=1.0, heartbeat_timeout_s=3.0))
    _, reader = ticker_and_reader(overlay)
    overlay.settle(10.0)
    assert reader.core.state is ClientState.READY, "heartbeats keep a quiet link alive"
    reader.core.step = lambda now, happened: None  # type: ignore[method-assign]
    overlay.settle(5.0)

    assert any(GoodbyeCode.TIMEOUT.value in line for line in overlay.world.trace)


# Of brokers


@pytest.mark.parametrize("policy", ["filter", "flooding"])
def test_a_broker_that_joins_later_serves_like_the_others(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1")
    ticker = overlay.client("ticker", "b1")
    ticker.advertises("TRUE")
    overlay.settle()
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"), policy=policy)
    overlay.settle()
    reader = overlay.client("reader", "b2")
    reader.subscribes("x > 1")
    overlay.settle()
    ticker.publishes(x=2)
    overlay.settle()

    assert reader.received == ["ticker:1"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"settings": Settings(ordering="alphabetical")}, "orders by 'alphabetical', unknown here"),
        (
            {"settings": Settings(detection="by smell")},
            "conflicts by 'by smell', unknown here",
        ),
        ({"settings": Settings(policy="gossip")}, "routes by 'gossip', unknown here"),
        ({"settings": Settings(delta=32)}, "tolerates '32', unknown here"),
        ({"heartbeat_timeout_ms": 1500}, "at least 2 heartbeats to a timeout expected"),
    ],
)
def test_an_overlay_with_settings_that_are_unknown_is_not_joined(
    settings: dict[str, Any], reason: str
) -> None:
    overlay = Lively()
    overlay.brokers("b1")

    def pretend(_: Node, effects: list[Effect]) -> None:
        for place, effect in enumerate(effects):
            if isinstance(effect, SendMessage) and isinstance(effect.message, Welcome):
                welcome = attrs.evolve(effect.message, **settings)
                effects[place] = attrs.evolve(effect, message=welcome)

    overlay.world.on_effects = pretend
    late = overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    overlay.passes(1.0)

    assert reason in str(late.stopped)
    assert overlay.players("b2") == []


def test_who_comes_back_is_not_stopped_by_somebody_of_another_overlay() -> None:
    overlay = Lively()
    overlay.brokers("b1", b2="b1")
    pretending = NodeId("b1")

    def pretend(node: Node, effects: list[Effect]) -> None:
        for place, effect in enumerate(effects):
            if node.name != pretending or not isinstance(effect, SendMessage):
                continue
            if isinstance(effect.message, Welcome):
                welcome = attrs.evolve(effect.message, settings=Settings(delta=32))
                effects[place] = attrs.evolve(effect, message=welcome)

    overlay.crashes("b2")
    overlay.passes(1.0)
    overlay.world.on_effects = pretend
    overlay.restarts("b2")
    overlay.passes(1.0)
    assert overlay.players("b2") == ["b1"]
    overlay.world.on_effects = lambda _, effects: None
    overlay.passes(5.0)

    assert overlay.players("b2") == ["b2"]


def test_whoever_joins_takes_the_heartbeats_of_the_overlay() -> None:
    overlay = Lively(limits=Limits(heartbeat_interval_s=0.2, heartbeat_timeout_s=1.0))
    overlay.brokers("b1")
    overlay.world.limits = Limits()
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"))
    overlay.passes(50 * LINK_DELAY_S)
    client = overlay.client("alice", "b2")

    for limits in (overlay.host("b2").me.limits, client.core.limits):
        assert (limits.heartbeat_interval_s, limits.heartbeat_timeout_s) == (0.2, 1.0)


def test_nobody_waits_for_a_heartbeat_where_somebody_has_to_join_first() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    nodes = [
        overlay.world.add_broker(NodeId(f"b{number}"), NodeId(f"b{number - 1}"))
        for number in range(2, 6)
    ]
    nodes.append(overlay.world.add_client(NodeId("alice"), NodeId("b5")))
    overlay.settle(0.1)

    assert all(node.is_ready for node in nodes)


def test_who_was_cut_off_before_it_heard_that_it_begins_anew_begins_anew_once_more() -> None:
    """It asks for the session that it had before: of the new one it has no secret."""
    alone = Alone()
    for _ in range(3):
        peer = alone.peer("c", to="b1", known_term=1, taken=7, secret="of the session before")
        assert peer.welcome is not None
        assert not peer.welcome.resumed
        peer.hangs_up()
    peer = alone.peer("c", to="b1", known_term=1, secret="of the session before").joins()

    assert alone.has("c")
    peer.hangs_up()
    robber = alone.peer("c", to="b1", known_term=1, secret="of the session before")
    assert robber.reason == "a session of c is not gone on with without its secret"
