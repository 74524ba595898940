"""The sequencer in both its forms, on links of one millisecond."""

import pytest

from broker.holding import describe_held
from broker.messages import Place
from broker.places import PlacedPublications
from tests.conversation import Conversation

MS = 0.001
BOTH = pytest.mark.parametrize("ordering", ["sequencer", "sequencer-filtered"])


def line(ordering: str) -> Conversation:
    """Three brokers, the root at one end."""
    overlay = Conversation(ordering=ordering)
    overlay.brokers("a", b="a", c="b")
    return overlay


def in_order(overlay: Conversation) -> list[str]:
    return [str(violation) for violation in overlay.judge("pairwise").violations]


def is_over(overlay: Conversation) -> bool:
    overlay.settle()
    return all(
        overlay.broker(name).unfinished() == [] and overlay.broker(name).status()["held"] == []
        for name in "abc"
    )


@BOTH
def test_the_root_decides_between_two_that_race(ordering: str) -> None:
    overlay = line(ordering)
    s, t = overlay.client("s", at="a"), overlay.client("t", at="c")
    p, q = overlay.client("p", at="c"), overlay.client("q", at="a")
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
    t, p = overlay.client("t", at="c"), overlay.client("p", at="c")
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
    t, p = overlay.client("t", at="c"), overlay.client("p", at="b")
    p.advertises("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(b"x" * 10_000, x=1)
    overlay.settle()
    assert t.received == ["p:1"]
    return overlay.broker("a").statistics().publications.received


def test_with_places_for_each_subscriber_the_root_sees_no_publication() -> None:
    assert _root_received("sequencer") == 1
    assert _root_received("sequencer-filtered") == 0


def test_what_came_too_early_is_held_until_its_turn() -> None:
    """The place of p is the first, and it has the longer way after it was given."""
    overlay = line("sequencer-filtered")
    s = overlay.client("s", at="a")
    p, q = overlay.client("p", at="c"), overlay.client("q", at="a")
    for client in (p, q):
        client.advertises("TRUE")
    s.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(2.5 * MS)
    q.publishes(x=2)
    overlay.settle(2 * MS)

    [held] = overlay.broker("a").status()["held"]
    assert describe_held(held) == "holds q:1 until what goes before it is here"
    assert is_over(overlay)
    assert s.received == ["p:1", "q:1"]


def test_what_waits_for_the_root_says_so() -> None:
    overlay = line("sequencer-filtered")
    t, p = overlay.client("t", at="c"), overlay.client("p", at="c")
    p.advertises("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(1.5 * MS)

    [held] = overlay.broker("c").status()["held"]
    assert describe_held(held) == "holds p:1 until b has settled it"
    assert is_over(overlay)


def test_what_is_filtered_out_leaves_no_gap() -> None:
    overlay = line("sequencer-filtered")
    all_, few = overlay.client("all", at="c"), overlay.client("few", at="c")
    p = overlay.client("p", at="a")
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
    t = overlay.client("t", at="c")
    p, q = overlay.client("p", at="a"), overlay.client("q", at="b")
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


def test_places_that_got_lost_would_hold_a_subscriber_up(monkeypatch: pytest.MonkeyPatch) -> None:
    line_up = PlacedPublications._line_up

    def forgetful(self: PlacedPublications, place: Place, *arguments: object) -> None:
        if place.number > 1:
            line_up(self, place, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PlacedPublications, "_line_up", forgetful)

    with pytest.raises(AssertionError):
        _withdrawn_on_the_way(0)


def test_a_subscriber_that_leaves_and_comes_back_finds_its_turn() -> None:
    overlay = line("sequencer-filtered")
    t, p = overlay.client("t", at="c"), overlay.client("p", at="a")
    p.advertises("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle()
    p.publishes(x=2)
    overlay.settle(1.5 * MS)
    t.leaves()
    overlay.settle()
    again = overlay.client("t", at="c", incarnation=2)
    again.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=3)

    assert is_over(overlay)
    assert (t.received, again.received) == (["p:1"], ["p:3"])


@BOTH
def test_a_connection_lost_at_any_moment_costs_nothing(ordering: str) -> None:
    for moment in range(16):
        overlay = line(ordering)
        s, t = overlay.client("s", at="a"), overlay.client("t", at="c")
        p, q = overlay.client("p", at="c"), overlay.client("q", at="a")
        for client in (p, q):
            client.advertises("TRUE")
        for client in (s, t):
            client.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        q.publishes(x=2)
        overlay.settle(moment * MS / 2)
        overlay.world.break_link("c", "b")  # type: ignore[arg-type]

        assert is_over(overlay)
        assert in_order(overlay) == []
        assert sorted(s.received) == sorted(t.received) == ["p:1", "q:1"]
