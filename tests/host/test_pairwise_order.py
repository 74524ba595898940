"""Pairwise total order: the schedules that are hard, each on links of one millisecond."""

from typing import Any

import pytest

from plait.broker.machine.neighbours import Neighbour
from plait.broker.machine.publications import Publications
from plait.broker.messages import Message
from plait.routing.conflicts import DETECTIONS, Conflicts
from plait.routing.ids import NodeId
from tests.host.worlds import MS, Client, Conversation


def in_order(overlay: Conversation) -> list[str]:
    return overlay.violations("pairwise")


def everywhere(*clients: Client) -> list[list[str]]:
    return [client.received for client in clients]


def publish(overlay: Conversation, client: str, *, ordered: bool = True) -> None:
    """Let a client that is there publish once more."""
    Client(overlay.world, overlay.world.nodes[NodeId(client)]).publishes(x=3, ordered=ordered)


def two_that_race(ordering: str) -> Conversation:
    """P at one end and q at the other end of a line, a subscriber of both at each end."""
    overlay = Conversation(ordering=ordering)
    overlay.brokers("a", b="a", c="b")
    s, t = overlay.client("s", "a"), overlay.client("t", "c")
    p, q = overlay.client("p", "c"), overlay.client("q", "a")
    for client in (p, q):
        client.advertises("TRUE")
    for client in (s, t):
        client.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    q.publishes(x=2)
    overlay.settle()
    return overlay


def test_fifo_lets_two_subscribers_disagree() -> None:
    [violation] = in_order(two_that_race("fifo"))

    assert violation.startswith("pairwise: s delivered q#1 (position 1) before p#1 (position 2)")


def test_the_broker_nearest_the_root_that_sees_both_decides() -> None:
    overlay = two_that_race("pairwise")

    assert in_order(overlay) == []
    assert overlay.unfinished() == []


def test_what_can_conflict_is_held_until_the_parent_has_settled_it() -> None:
    overlay = two_that_race("pairwise")
    publish(overlay, "p")
    overlay.settle(2 * MS)

    assert overlay.held_at("c") == ["p:2"]
    overlay.settle()
    assert overlay.held_at("c") == []


def test_what_cannot_conflict_costs_nothing() -> None:
    """The same publications cost the same messages and the same time as under fifo."""
    carried = []
    for ordering in ("fifo", "pairwise"):
        overlay = Conversation(ordering=ordering)
        overlay.brokers("a", b="a", c="b")
        s, t = overlay.client("s", "a"), overlay.client("t", "c")
        p = overlay.client("p", "c")
        p.advertises("TRUE")
        s.subscribes("TRUE")
        t.subscribes("TRUE")
        overlay.settle()
        before = overlay.world.messages_carried
        p.publishes(x=1)
        overlay.settle(2.5 * MS)
        assert t.received == ["p:1"], "the nearer one has it after two links"
        overlay.settle()
        carried.append(overlay.world.messages_carried - before)

    assert carried[0] == carried[1]


def test_exact_detection_is_the_overlays_choice_and_spares_a_wait_in_vain() -> None:
    """Q's publications are for s or for t, and never for both; b joins without a choice."""
    held = {}
    for detection in DETECTIONS:
        overlay = Conversation(detection=detection)
        overlay.brokers("a")
        overlay.world.add_broker(NodeId("b"), NodeId("a"))
        overlay.settle()
        p, q = overlay.client("p", "b"), overlay.client("q", "a")
        p.advertises("x = 0")
        q.advertises("x > 0")
        s, t = overlay.client("s", "a"), overlay.client("t", "b")
        s.subscribes("x IN (0, 1)")
        t.subscribes("x IN (0, 2)")
        overlay.settle()
        p.publishes(x=0)
        overlay.settle(1.2 * MS)
        held[overlay.host("b").me.settings.detection] = len(overlay.held_at("b"))

    assert held == {"fast": 1, "exact": 0}


def test_unordered_publications_and_subscriptions_do_not_wait() -> None:
    overlay = two_that_race("pairwise")
    publish(overlay, "p", ordered=False)
    overlay.settle(1.5 * MS)

    assert overlay.held_at("c") == []


def a_publication_is_held_at_c() -> tuple[Conversation, Client, Client, Client]:
    """P's first is on its way from c to b, and held; p and r may publish more, for u and w."""
    overlay = Conversation(ordering="pairwise")
    overlay.brokers("a", b="a", c="b")
    p, r, q = (overlay.client(name, at) for name, at in (("p", "c"), ("r", "c"), ("q", "a")))
    p.advertises("TRUE")
    r.advertises("TRUE")
    q.advertises("topic = 'held'")
    s, t = overlay.client("s", "a"), overlay.client("t", "c")
    u, w = overlay.client("u", "c"), overlay.client("w", "a")
    for client in (s, t):
        client.subscribes("topic = 'held'")
    for client in (u, w):
        client.subscribes("topic = 'free'")
    overlay.settle()
    p.publishes(topic="held")
    overlay.settle(1.2 * MS)
    assert overlay.held_at("c") == ["p:1"]
    return overlay, p, r, u


def test_an_unordered_publication_does_not_wait_behind_others() -> None:
    overlay, _, r, _ = a_publication_is_held_at_c()
    r.publishes(topic="held", ordered=False)
    overlay.settle(1.5 * MS)

    assert overlay.machine("c").publications.counters.received == 2
    assert overlay.held_at("c") == ["p:1"]


def test_an_unordered_publication_makes_others_wait_only_if_they_are_its_publishers() -> None:
    """Duplicates are told by their number, so a publisher's own stay in their order."""
    overlay, p, r, u = a_publication_is_held_at_c()
    p.publishes(topic="free", ordered=False)
    overlay.settle(0.1 * MS)
    r.publishes(topic="free")
    overlay.settle()

    assert u.received == ["r:1", "p:2"]


def test_an_ordered_one_in_its_place_does_make_others_wait() -> None:
    overlay, p, r, u = a_publication_is_held_at_c()
    p.publishes(topic="free")
    overlay.settle(0.1 * MS)
    r.publishes(topic="free")
    overlay.settle()

    assert u.received == ["p:2", "r:1"]


def test_a_subscription_that_is_unknown_below_counts_too() -> None:
    """One subscription of s matches p, the other q alone: b, below, has never heard of that."""
    overlay = Conversation(ordering="pairwise")
    overlay.brokers("a", b="a")
    p, q = overlay.client("p", "b"), overlay.client("q", "a")
    p.advertises("topic = 'p'")
    q.advertises("topic = 'q'")
    s, t = overlay.client("s", "a"), overlay.client("t", "b")
    s.subscribes("topic = 'p'")
    s.subscribes("topic = 'q'")
    t.subscribes("TRUE")
    overlay.settle()
    assert len(overlay.machine("b").interests.subscriptions) == 2
    p.publishes(topic="p")
    q.publishes(topic="q")
    overlay.settle()

    assert in_order(overlay) == []


def _two_subscriptions_of_one_subscriber() -> list[str]:
    """One subscription of t matches p alone and is unknown at b; the other matches q alone."""
    overlay = Conversation(ordering="pairwise")
    overlay.brokers("a", b="a", c="b")
    p, q = overlay.client("p", "c"), overlay.client("q", "a")
    p.advertises("topic = 'p'")
    q.advertises("topic = 'q'")
    s, t = overlay.client("s", "a"), overlay.client("t", "c")
    s.subscribes("TRUE")
    t.subscribes("topic = 'p'")
    t.subscribes("topic = 'q'")
    overlay.settle()
    assert len(overlay.machine("b").interests.subscriptions) == 2
    p.publishes(topic="p")
    overlay.settle(1.5 * MS)
    q.publishes(topic="q")
    overlay.settle()
    assert sorted(map(len, everywhere(s, t))) == [2, 2]
    return in_order(overlay)


def test_what_counts_is_the_subscriber_and_not_the_subscription() -> None:
    assert _two_subscriptions_of_one_subscriber() == []


def test_without_believing_the_child_that_waits_it_goes_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_conflict = Conflicts.is_conflict
    monkeypatch.setattr(
        Conflicts,
        "is_conflict",
        lambda self, matching, above, unseen_at=None: is_conflict(self, matching, above),
    )

    assert len(_two_subscriptions_of_one_subscriber()) == 1


def _a_subscription_confirmed_while_a_publication_is_held() -> list[str]:
    """The publication p:2 passes h before t's subscription gets there, and is held at b.

    Nobody above h wants it in order yet, so h lets it go on to u at once. It is held at b all the
    same, behind p:1, which v and w want and which nobody at h does.
    """
    overlay = Conversation(ordering="pairwise")
    overlay.brokers("g", b="g", h="b", e="b")
    p, q, r = (overlay.client(name, at) for name, at in (("p", "h"), ("q", "g"), ("r", "g")))
    p.advertises("topic IN ('held', 'free')")
    q.advertises("topic = 'q'")
    r.advertises("topic = 'held'")
    w, v, u = (overlay.client(name, at) for name, at in (("w", "g"), ("v", "b"), ("u", "h")))
    w.subscribes("topic = 'held'")
    w.subscribes("topic = 'free'", ordered=False)
    v.subscribes("topic = 'held'")
    u.subscribes("topic IN ('free', 'q')")
    t = overlay.client("t", "e")
    overlay.settle()
    t.subscribes("topic IN ('free', 'q')")
    overlay.settle(1.5 * MS)
    p.publishes(topic="held")
    p.publishes(topic="free")
    overlay.settle(1.5 * MS)
    q.publishes(topic="q")
    overlay.settle()
    assert u.received == ["p:2", "q:1"]
    return in_order(overlay)


def test_a_confirmation_does_not_overtake_a_publication_that_is_held() -> None:
    assert _a_subscription_confirmed_while_a_publication_is_held() == []


def test_if_it_did_it_would_go_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(
        self: Publications, neighbour: Neighbour, message: Message, about: Any = None
    ) -> None:
        self._steps.send(neighbour, message, about)

    monkeypatch.setattr(Publications, "send_in_turn", at_once)

    assert len(_a_subscription_confirmed_while_a_publication_is_held()) == 1


def test_a_connection_lost_while_a_publication_is_held_costs_nothing() -> None:
    for moment in range(12):
        overlay = Conversation(ordering="pairwise")
        overlay.brokers("a", b="a", c="b")
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
        overlay.settle()

        assert in_order(overlay) == []
        assert sorted(map(len, everywhere(s, t))) == [2, 2]
        assert overlay.unfinished() == []
