"""The sequencer in both its forms, on links of one millisecond."""

from collections.abc import Iterable

import pytest

from plait.broker.machine.neighbours import Route
from plait.broker.machine.places import PlacedPublications
from plait.broker.messages import Turn
from plait.faulttol.steplog import Key
from tests.host.worlds import MS, Conversation

BOTH = pytest.mark.parametrize("ordering", ["sequencer", "sequencer-filtered"])


def line(ordering: str) -> Conversation:
    """Three brokers, the root at one end."""
    overlay = Conversation(ordering=ordering)
    overlay.brokers("a", b="a", c="b")
    return overlay


def in_order(overlay: Conversation) -> list[str]:
    return overlay.violations("pairwise")


def is_over(overlay: Conversation) -> bool:
    overlay.settle()
    return not overlay.unfinished() and not any(overlay.held_at(name) for name in "abc")


@BOTH
def test_the_root_decides_between_two_that_race(ordering: str) -> None:
    overlay = line(ordering)
    s, t = overlay.client("s", "a"), overlay.client("t", "c")
    p, q = overlay.client("p", "c"), overlay.client("q", "a")
    for client in (p, q):
        client.advertises("TRUE")
    for client in (s, t):
        client.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    q.publishes(x=2)

    assert is_over(overlay)
    assert s.received == t.received == ["q:1", "p:1"], "q is nearer to the root"


@BOTH
def test_everything_waits_for_the_root(ordering: str) -> None:
    """From one client to another at the same broker: two links, and four to the root and back."""
    overlay = line(ordering)
    t, p = overlay.client("t", "c"), overlay.client("p", "c")
    p.advertises("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(5.5 * MS)
    assert t.received == []
    overlay.settle(MS)

    assert t.received == ["p:1"]


def _root_received(ordering: str) -> int:
    overlay = line(ordering)
    t, p = overlay.client("t", "c"), overlay.client("p", "b")
    p.advertises("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(b"x" * 10_000, x=1)
    overlay.settle()
    assert t.received == ["p:1"]
    return overlay.machine("a").publications.counters.received


def test_with_places_for_each_subscriber_the_root_sees_no_publication() -> None:
    assert _root_received("sequencer") == 1
    assert _root_received("sequencer-filtered") == 0


def test_what_came_too_early_is_held_until_its_turn() -> None:
    """The place of p is the first, and it has the longer way after it was given."""
    overlay = line("sequencer-filtered")
    s = overlay.client("s", "a")
    p, q = overlay.client("p", "c"), overlay.client("q", "a")
    for client in (p, q):
        client.advertises("TRUE")
    s.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(2.5 * MS)
    q.publishes(x=2)
    overlay.settle(2 * MS)

    assert overlay.held_at("a") == ["q:1"]
    assert is_over(overlay)
    assert s.received == ["p:1", "q:1"]


def test_what_is_filtered_out_leaves_no_gap() -> None:
    overlay = line("sequencer-filtered")
    all_, few = overlay.client("all", "c"), overlay.client("few", "c")
    p = overlay.client("p", "a")
    p.advertises("TRUE")
    all_.subscribes("TRUE")
    few.subscribes("x = 3 OR x = 5")
    overlay.settle()
    for x in range(1, 7):
        p.publishes(x=x)

    assert is_over(overlay)
    assert all_.received == [f"p:{x}" for x in range(1, 7)]
    assert few.received == ["p:3", "p:5"]


def _withdrawn_on_the_way(moment: int) -> list[list[str]]:
    """Subscription and publication meet somewhere; what comes after has to arrive."""
    overlay = line("sequencer-filtered")
    t = overlay.client("t", "c")
    p, q = overlay.client("p", "a"), overlay.client("q", "b")
    p.advertises("x = 1")
    q.advertises("x = 2")
    first = t.subscribes("x = 1")
    t.subscribes("x = 2")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(moment * MS / 2)
    t.unsubscribes(first)
    overlay.settle(MS)
    q.publishes(x=2)
    assert is_over(overlay)
    assert in_order(overlay) == []
    return [t.received]


@pytest.mark.parametrize("moment", range(8))
def test_a_place_arrives_although_its_subscription_is_withdrawn(moment: int) -> None:
    [received] = _withdrawn_on_the_way(moment)

    assert received[-1] == "q:1"


def test_a_turn_that_got_lost_would_hold_a_subscriber_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """If publications went by the tables, and not by the ways on which subscriptions came."""
    placed_route = PlacedPublications._placed_route

    def by_tables(self: PlacedPublications, key: Key, step: int, turns: Iterable[Turn]) -> Route:
        is_wanted = any(entry.filter.sql == "x = 1" for entry in self.interests.subscriptions)
        is_lost = key[0] == "p" and not is_wanted
        return placed_route(self, key, step, () if is_lost else turns)

    monkeypatch.setattr(PlacedPublications, "_placed_route", by_tables)

    with pytest.raises(AssertionError):
        [_withdrawn_on_the_way(moment) for moment in range(8)]


def test_a_subscriber_that_leaves_and_comes_back_finds_its_turn() -> None:
    overlay = line("sequencer-filtered")
    t, p = overlay.client("t", "c"), overlay.client("p", "a")
    p.advertises("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle()
    p.publishes(x=2)
    overlay.settle(1.5 * MS)
    t.leaves()
    overlay.settle()
    again = overlay.client("t", "c", incarnation=2)
    again.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=3)

    assert is_over(overlay)
    assert (t.received, again.received) == (["p:1"], ["p:3"])


@BOTH
def test_a_connection_lost_at_any_moment_costs_nothing(ordering: str) -> None:
    for moment in range(16):
        overlay = line(ordering)
        s, t = overlay.client("s", "a"), overlay.client("t", "c")
        p, q = overlay.client("p", "c"), overlay.client("q", "a")
        for client in (p, q):
            client.advertises("TRUE")
        for client in (s, t):
            client.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        q.publishes(x=2)
        overlay.settle(moment * MS / 2)
        overlay.loses_connection("c", "b")

        assert is_over(overlay)
        assert in_order(overlay) == []
        assert sorted(s.received) == sorted(t.received) == ["p:1", "q:1"]
