r"""Crashes under `sequencer`: one order for all, put together again by the places in it.

The overlay, unless a test says otherwise; what is under way stays so because client t is frozen:

    t - r - m - b - s-b       m fails, r is the hub, b and c are its orphans
             \- c - s-c
"""

import pytest

from broker.messages import Flag, PublicationId, Publish
from broker.sequenced_reunion import Beginning
from routing.ids import NodeId
from tests.conversation import Client, Conversation

MS = 0.001
A_MOMENT = 0.015
"""For everything to arrive."""
AT_ANY_TIME = range(7, 67)
"""In milliseconds: from when a subscription is installed until all have heard that everybody has
what was published before."""


def a_fork(root: str, **join_points: str) -> Conversation:
    overlay = Conversation(ordering="sequencer")
    overlay.brokers(root, **join_points)
    return overlay


def a_publisher(overlay: Conversation, name: str, *, at: str) -> Client:
    publisher = overlay.client(name, at=at)
    publisher.advertises("TRUE")
    overlay.settle()
    return publisher


def a_subscriber(overlay: Conversation, name: str, *, at: str, filter_text: str = "TRUE") -> Client:
    subscriber = overlay.client(name, at=at)
    subscriber.subscribes(filter_text)
    overlay.settle()
    return subscriber


def frozen(overlay: Conversation, name: str, *, at: str) -> str:
    """A subscriber to everything that confirms nothing, until it goes on."""
    a_subscriber(overlay, name, at=at)
    overlay.freezes(name)
    return name


def fails_when_only_one_has_heard(overlay: Conversation, root: str, *, unheard: str) -> None:
    """What has just been published at a child of the root goes to all children but one."""
    overlay.settle(1.5 * MS)
    overlay.loses_connection(root, unheard)
    overlay.settle(1.7 * MS)
    overlay.crashes(root)


def troubles(overlay: Conversation) -> list[str]:
    """What is wrong in the end, and what went wrong on the way and came right by itself."""
    quarrels = [line for line in overlay.world.trace if "code=protocol" in line]
    return overlay.troubles("sequencer") + quarrels


def test_a_place_lies_beyond_the_flags() -> None:
    publication = Publish(NodeId("p"), 1, 1, Flag.URGENT, b"\x80", b"")
    placed = publication.with_place(1000)

    assert (publication.place, placed.place) == (0, 1000)
    assert placed.with_place(7).place == 7
    assert placed.flags & Flag.URGENT
    assert not placed.flags & Flag.UNORDERED
    assert placed.with_place(0) == publication


def test_what_came_from_an_orphan_and_not_back_to_it_comes_back() -> None:
    overlay = a_fork("r", m="r", b="m", c="m")
    p = a_publisher(overlay, "p", at="b")
    s_b = a_subscriber(overlay, "s-b", at="b")
    t = frozen(overlay, "t", at="r")
    p.publishes()
    overlay.settle(3.5 * MS)  # p, b, m, r: it turns, and is on its way to m
    overlay.crashes("m")
    overlay.goes_on(t)
    overlay.settle(5)

    assert s_b.received == ["p:1"]
    assert troubles(overlay) == []


def test_what_has_not_come_up_to_the_hub_climbs_now() -> None:
    overlay = a_fork("a", r="a", m="r", b="m", c="m")
    p = a_publisher(overlay, "p", at="b")
    subscribers = [a_subscriber(overlay, f"s-{broker}", at=broker) for broker in "arbc"]
    p.publishes()
    overlay.settle(1.5 * MS)
    overlay.crashes("m")
    overlay.settle(5)

    assert [subscriber.received for subscriber in subscribers] == 4 * [["p:1"]]
    assert troubles(overlay) == []


def test_a_hub_passes_by_who_asked_too_late() -> None:
    overlay = a_fork("r", m="r", b="m", c="m")
    p, q = a_publisher(overlay, "p", at="r"), a_publisher(overlay, "q", at="r")
    s_c = a_subscriber(overlay, "s-c", at="c")
    t = frozen(overlay, "t", at="r")
    p.publishes()
    overlay.settle(A_MOMENT)
    s_b = a_subscriber(overlay, "s-b", at="b")
    q.publishes()
    overlay.settle(A_MOMENT)
    overlay.crashes("m")
    overlay.goes_on(t)
    overlay.settle(5)

    assert s_c.received == ["p:1", "q:1"]
    assert s_b.received == ["q:1"]
    assert troubles(overlay) == []


def test_a_new_root_knows_who_asked_too_late_from_who_was_not_served() -> None:
    """Here q:1 without p:1, there p:1 without q:1: only their places tell who is owed what."""
    overlay = a_fork("a", b="a", c="a", d="a")
    p, q = a_publisher(overlay, "p", at="d"), a_publisher(overlay, "q", at="d")
    s_c = a_subscriber(overlay, "s-c", at="c")
    t = frozen(overlay, "t", at="d")
    p.publishes()
    overlay.settle(A_MOMENT)
    s_b = a_subscriber(overlay, "s-b", at="b")
    q.publishes()
    fails_when_only_one_has_heard(overlay, "a", unheard="c")
    overlay.goes_on(t)
    overlay.settle(5)

    assert overlay.parent_of("b") is None
    assert s_c.received == ["p:1", "q:1"]
    assert s_b.received == ["q:1"]
    assert troubles(overlay) == []


def test_what_nobody_got_comes_before_the_next_of_its_publisher_that_somebody_got() -> None:
    overlay = a_fork("a", b="a", c="a", d="a")
    p, q = a_publisher(overlay, "p", at="d"), a_publisher(overlay, "q", at="d")
    s_b = a_subscriber(overlay, "s-b", at="b", filter_text="x > 1")
    s_c = a_subscriber(overlay, "s-c", at="c")
    p.publishes(x=1)
    q.publishes(x=2)
    p.publishes(x=3)
    fails_when_only_one_has_heard(overlay, "a", unheard="c")
    overlay.settle(5)

    assert s_b.received == ["q:1", "p:2"]
    assert s_c.received == ["q:1", "p:1", "p:2"]
    assert troubles(overlay) == []


def test_of_one_place_who_has_seen_the_first_lacks_the_second() -> None:
    first, second = (Publish(NodeId("p"), 1, seq, 0, b"\x80", b"") for seq in (1, 2))
    has_first = Beginning(5, [PublicationId(NodeId("p"), 1, 1)])

    assert not has_first.lacks(first.with_place(5))
    assert has_first.lacks(second.with_place(5))
    assert not has_first.lacks(second.with_place(4))


@pytest.mark.parametrize("again", [False, True])
def test_what_everybody_had_is_not_settled_again_where_its_publisher_has_not_heard_of_it(
    again: bool,
) -> None:
    for ms in AT_ANY_TIME:
        overlay = a_fork("a", b="a", c="a")
        p, q = a_publisher(overlay, "p", at="c"), a_publisher(overlay, "q", at="b")
        s_b = a_subscriber(overlay, "s-b", at="b")
        s_c = overlay.client("s-c", at="c")
        p.publishes()
        overlay.settle(4 * MS)
        s_c.subscribes("TRUE")  # too late for p:1
        overlay.settle(ms * MS)
        q.publishes()
        overlay.settle(0.3 * MS)
        if again:
            p.publishes()
        overlay.settle(0.7 * MS)
        fails_when_only_one_has_heard(overlay, "a", unheard="c")
        overlay.settle(5)
        then = ["q:1", "p:2"] if again else ["q:1"]

        assert s_b.received == ["p:1", *then]
        assert s_c.received in (then, ["p:1", *then])
        assert troubles(overlay) == []


def test_at_a_new_root_a_publication_is_confirmed_when_all_who_had_it_or_get_it_have_it() -> None:
    for slow in ("s-b", "s-c"):
        overlay = a_fork("a", b="a", c="a", b1="b")
        p = a_publisher(overlay, "p", at="b1")
        for broker in "bc":
            a_subscriber(overlay, f"s-{broker}", at=broker)
        overlay.freezes(slow)
        p.publishes()
        overlay.settle(1 * MS)
        fails_when_only_one_has_heard(overlay, "a", unheard="c")
        overlay.settle(1)
        unconfirmed = p.core.unconfirmed
        overlay.goes_on(slow)
        overlay.settle(5)

        assert unconfirmed == 1
        assert troubles(overlay) == []


def test_the_places_of_a_new_root_are_behind_all_that_anybody_got() -> None:
    overlay = a_fork("a", b="a", c="a", d="a")
    q = a_publisher(overlay, "q", at="d")
    s_c = a_subscriber(overlay, "s-c", at="c")
    s_d = a_subscriber(overlay, "s-d", at="d", filter_text="x = 2")
    for _ in range(3):
        q.publishes(x=1)
    overlay.settle()
    overlay.crashes("a")
    overlay.settle(5)
    q.publishes(x=2)
    fails_when_only_one_has_heard(overlay, "b", unheard="c")
    overlay.settle(5)

    assert overlay.parent_of("c") is None
    assert s_d.received == ["q:4"]
    assert s_c.received == ["q:1", "q:2", "q:3", "q:4"]
    assert troubles(overlay) == []


def test_a_new_root_knows_what_was_settled_before_and_did_not_come_by_it() -> None:
    """Broker c has heard that p:1 is stable, and fails before it has told c1 below it."""
    for ms in range(10, 50):
        overlay = a_fork("a", b="a", c="a", c1="c", d="a")
        p, q = a_publisher(overlay, "p", at="c1"), a_publisher(overlay, "q", at="b")
        s_b = a_subscriber(overlay, "s-b", at="b")
        s_d = overlay.client("s-d", at="d")
        p.publishes()
        overlay.settle(6 * MS)
        s_d.subscribes("TRUE")
        overlay.settle(12 * MS)
        q.publishes()
        overlay.settle(ms * MS)
        overlay.crashes("a")
        overlay.settle(10 * MS)
        overlay.crashes("c")
        overlay.settle(5)

        assert s_b.received == ["p:1", "q:1"]
        assert s_d.received == ["q:1"]
        assert troubles(overlay) == []


def test_what_a_new_root_has_settled_itself_it_does_not_settle_again() -> None:
    """p:1 was on its way up; c fails before it can tell c1 that the new root has settled it."""
    overlay = a_fork("a", b="a", c="a", c1="c", d="a")
    p, q = a_publisher(overlay, "p", at="c1"), a_publisher(overlay, "q", at="b")
    s_b = a_subscriber(overlay, "s-b", at="b")
    s_d = overlay.client("s-d", at="d")
    p.publishes()
    overlay.settle(2.5 * MS)
    overlay.crashes("a")
    overlay.settle(10 * MS)
    s_d.subscribes("TRUE")
    overlay.settle(8 * MS)
    q.publishes()
    overlay.settle(4 * MS)
    overlay.crashes("c")
    overlay.settle(5)

    assert s_b.received == ["p:1", "q:1"]
    assert s_d.received == ["q:1"]
    assert troubles(overlay) == []


def test_nobody_tells_a_broker_that_is_gone_instead_of_the_one_that_is_back() -> None:
    for ms in range(0, 30, 3):
        overlay = a_fork("r", u1="r", u2="r", m="r", b="m")
        p = a_publisher(overlay, "p", at="r")
        a_subscriber(overlay, "s-b", at="b")
        for number in (1, 2):
            a_subscriber(overlay, f"t-{number}", at=f"u{number}", filter_text=f"x = {number}")
            overlay.freezes(f"t-{number}")
        p.publishes(x=1)
        overlay.settle(A_MOMENT)
        overlay.crashes("m")
        overlay.settle()
        overlay.restarts("m")
        overlay.settle()
        a_subscriber(overlay, "s-m", at="m")
        p.publishes(x=2)
        overlay.settle()
        overlay.goes_on("t-2")
        overlay.settle(ms * MS)
        overlay.goes_on("t-1")
        overlay.settle(5)

        assert troubles(overlay) == []
