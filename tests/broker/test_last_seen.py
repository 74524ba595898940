"""Publishers that came and went are forgotten, but for those that may still matter."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client_core import ClientState
from broker.last_seen import NEVER, Dropped, LastSeen
from broker.sim.world import SIMULATED_LIMITS
from routing.ids import NodeId
from tests.conversation import Client, Conversation

MOST = 3
FEW = attrs.evolve(
    SIMULATED_LIMITS,
    publishers_remembered_max=MOST,
    dropped_clients_max=2,
    heartbeat_interval_s=0.1,
    resume_timeout_s=0.5,
)


def name(number: int) -> NodeId:
    return NodeId(f"p{number}")


@given(
    st.lists(st.integers(0, 12), max_size=60),
    st.sets(st.integers(0, 12), max_size=3),
)
def test_of_many_publishers_those_of_late_and_those_needed_are_remembered(
    noted: list[int], needed: set[int]
) -> None:
    last_seen = LastSeen(MOST)
    all_of_them: dict[NodeId, tuple[int, int]] = {}
    for seq, number in enumerate(noted, 1):
        last_seen[name(number)] = all_of_them[name(number)] = (1, seq)
        last_seen.forget_some(lambda: {name(n) for n in needed})

        of_late = list(dict.fromkeys(reversed(noted[:seq])))[:MOST]
        for other, stamp in all_of_them.items():
            must_be_known = other in map(name, (*of_late, *needed))
            assert last_seen.get(other) in ((stamp,) if must_be_known else (stamp, NEVER))
        assert len(last_seen) <= 2 * MOST + 1 + len(needed)
        told = {each.publisher: (each.incarnation, each.seq) for each in last_seen}
        assert told == {p: last_seen.get(p) for p in all_of_them if last_seen.get(p) != NEVER}


def test_who_was_dropped_before_many_others_may_have_been_forgotten() -> None:
    dropped = Dropped(2)
    dropped.note(name(1), 7)
    assert not dropped.may_have_been_forgotten(name(9), 1)
    for number in (2, 3):
        dropped.note(name(number), 1)

    assert list(dropped) == [name(2), name(3)]
    assert dropped.may_have_been_forgotten(name(1), 7)
    assert not dropped.may_have_been_forgotten(name(3), 1)
    assert dropped.may_have_been_forgotten(name(3), 2)


# In an overlay


def passing_publisher(overlay: Conversation, client_name: str, at: str) -> None:
    """Somebody comes, publishes once, and leaves."""
    client = overlay.client(client_name, at=at)
    client.advertises("TRUE")
    overlay.settle(0.05)
    client.publishes(x=1)
    overlay.settle(0.05)
    client.leaves()
    overlay.settle(0.05)


def ticker_and_reader(overlay: Conversation) -> tuple[Client, Client]:
    overlay.brokers("b1", b2="b1")
    ticker = overlay.client("ticker", at="b2")
    ticker.advertises("TRUE")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("TRUE")
    overlay.settle()
    return ticker, reader


@pytest.mark.parametrize("ordering", ["pairwise", "sequencer"])
def test_past_publishers_are_forgotten_everywhere(ordering: str) -> None:
    overlay = Conversation(limits=FEW, ordering=ordering)
    _, reader = ticker_and_reader(overlay)
    overlay.client("carol", at="b2").subscribes("TRUE")
    overlay.settle()
    names = [f"p{number}" for number in range(20)]
    for client in names:
        passing_publisher(overlay, client, at="b2")

    assert reader.received == [f"{client}:1" for client in names]
    for broker in ("b1", "b2"):
        assert len(overlay.broker(broker).publications.last_seen) <= 2 * MOST + 2
        assert overlay.broker(broker).publications.publishers_remembered <= 2 * MOST + 2
    assert len(reader.core._last_seen) <= 2 * MOST + 1
    assert overlay.judge().is_clean


def away(overlay: Conversation, client: str, broker: str, seconds: float) -> None:
    """Take a client off the net for so long: every connection it makes is cut at once."""
    until = overlay.world.now + seconds
    while overlay.world.now < until:
        overlay.world.break_link(NodeId(client), NodeId(broker))
        overlay.settle(0.0005)


@pytest.mark.parametrize("is_dropped_before", [True, False])
def test_what_a_dropped_publisher_sends_again_is_recognised_after_many_others(
    is_dropped_before: bool,
) -> None:
    overlay = Conversation(limits=FEW)
    ticker, reader = ticker_and_reader(overlay)
    others = [overlay.client(f"p{number}", at="b2") for number in range(3 * MOST)]
    for other in others:
        other.advertises("TRUE")
    overlay.settle()
    ticker.publishes(x=1)
    overlay.settle(0.0012)  # it has reached the broker, and its confirmation will not come back
    away(overlay, "ticker", "b2", 1.0 if is_dropped_before else 0.1)
    assert ("ticker" not in overlay.broker("b2").neighbours.below) == is_dropped_before
    for other in others:
        other.publishes(x=2)
        away(overlay, "ticker", "b2", 0.03)
    away(overlay, "ticker", "b2", 1.0)
    assert "ticker" not in overlay.broker("b2").neighbours.below
    overlay.settle(3.0)

    assert ticker.core.state is ClientState.READY
    assert ticker.core.unconfirmed == 0
    assert reader.received.count("ticker:1") == 1
    assert overlay.judge().is_clean


def test_publishers_are_remembered_while_something_of_them_is_not_stable() -> None:
    """For a hub, which gives nobody what it has had already."""
    overlay = Conversation(limits=attrs.evolve(FEW, resume_timeout_s=60.0))
    ticker, reader = ticker_and_reader(overlay)
    slow = overlay.client("slow", at="b1")
    slow.subscribes("x = 0")
    overlay.settle()
    overlay.freezes("slow")
    ticker.publishes(x=0)
    overlay.settle()
    for number in range(3 * MOST):
        passing_publisher(overlay, f"p{number}", at="b2")

    assert ticker.core.unconfirmed == 1
    at_broker = {each.publisher for each in overlay.broker("b1").publications.last_seen}
    assert "ticker" in at_broker
    assert "p0" not in at_broker
    assert "ticker" in {each.publisher for each in reader.core._last_seen}


def test_an_older_life_is_refused_as_long_as_any_broker_remembers_the_later_one() -> None:
    """Its own broker has forgotten it; others would take what it publishes for what they had."""
    overlay = Conversation(limits=FEW)
    overlay.brokers("b1", b2="b1")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("x = 1")
    back = overlay.client("back", at="b2", incarnation=7)
    back.advertises("x = 1")
    overlay.settle()
    back.publishes(x=1)
    overlay.settle()
    back.leaves()
    overlay.settle()
    for number in range(3 * MOST):  # of whom b1 does not hear
        other = overlay.client(f"p{number}", at="b2")
        other.advertises("x = 2")
        overlay.settle()
        other.publishes(x=2)
        overlay.settle()
        other.leaves()
        overlay.settle()
    assert overlay.broker("b2").publications.latest_of(NodeId("back")) == (0, 0)
    older = overlay.client("back", at="b2", incarnation=5)

    assert "back was here as incarnation 7, and 5 is older" in str(older.node.stopped)


def test_who_was_dropped_too_long_ago_to_be_recognised_has_to_begin_anew() -> None:
    overlay = Conversation(limits=FEW)
    ticker, _ = ticker_and_reader(overlay)
    others = [overlay.client(f"c{number}", at="b2") for number in range(3)]
    ticker.publishes(x=1)
    overlay.settle(0.0012)
    away(overlay, "ticker", "b2", 1.0)
    for other in others:
        overlay.freezes(other.node.name)
    away(overlay, "ticker", "b2", 25.0)
    overlay.settle(3.0)

    assert ticker.node.stopped is not None
    assert "ticker was dropped too long ago to go on: it has to begin anew" in ticker.node.stopped
    again = overlay.client("ticker", at="b2", incarnation=2)
    assert again.core.state is ClientState.READY
