"""Whatever is held says where, for how long, behind what and for whose acknowledgement."""

from typing import Any

import pytest

from broker.holding import describe_held
from broker.limits import Limits
from routing.orderings import Cause
from tests.conversation import LINK_DELAY_S, Client, Conversation

MS = LINK_DELAY_S


def three_in_a_line(**settings: Any) -> tuple[Conversation, Client, Client]:
    """Whatever p and r publish at c meets what comes from a, before s and t."""
    overlay = Conversation(**settings)
    overlay.brokers("a", b="a", c="b")
    p, r, q = (overlay.client(name, at=at) for name, at in (("p", "c"), ("r", "c"), ("q", "a")))
    for client in (p, r):
        client.advertises("TRUE")
    q.advertises("topic = 'both'")
    for name, at in (("s", "a"), ("t", "c")):
        client = overlay.client(name, at=at)
        client.subscribes("topic = 'both'")
    overlay.client("near", at="c").subscribes("topic IN ('near', 'both')", ordered=False)
    overlay.settle()
    return overlay, p, r


def held_at(overlay: Conversation, broker: str) -> list[dict[str, Any]]:
    return overlay.broker(broker).publications.describe_held(overlay.world.now)


def in_words(overlay: Conversation, broker: str) -> list[str]:
    return [describe_held(held) for held in held_at(overlay, broker)]


def test_it_waits_for_the_parent_and_behind_what_it_must_not_overtake() -> None:
    overlay, p, r = three_in_a_line()
    p.publishes(topic="both")
    p.publishes(topic="near")
    r.publishes(topic="both")
    overlay.settle(1.5 * MS)

    assert in_words(overlay, "c") == [
        "holds p:1 until b has settled it",
        "holds p:2 behind p:1 (same publisher)",
        "holds r:1 until b has settled it and behind p:1 (subscribers in common)",
    ]
    assert held_at(overlay, "c")[1] == {
        "publisher": "p",
        "number": 2,
        "seconds": 0.0005,
        "waits_for": None,
        "behind": [{"publisher": "p", "number": 1, "cause": "publisher", "waits_for": "b"}],
    }


def test_the_time_is_counted_by_cause() -> None:
    overlay, p, r = three_in_a_line()
    p.publishes(topic="both")
    p.publishes(topic="near")
    overlay.settle(0.5 * MS)
    r.publishes(topic="both")
    overlay.settle()

    holds = overlay.broker("c").statistics().hold_times
    assert overlay.broker("c").statistics().held == 0
    assert {cause: each.count for cause, each in holds.items()} == {
        Cause.PARENT: 2,
        Cause.PUBLISHER: 1,
        Cause.SUBSCRIBERS: 0,
    }
    # Up to b, on to a for the same question, and back.
    assert holds[Cause.PARENT].seconds == pytest.approx(2 * 4 * MS)
    assert holds[Cause.PUBLISHER].seconds == pytest.approx(4 * MS)


def test_what_does_not_wait_is_counted_nowhere() -> None:
    overlay, p, _ = three_in_a_line()
    p.publishes(topic="near")
    overlay.settle()

    holds = overlay.broker("c").statistics().hold_times
    assert [each.count for each in holds.values()] == [0, 0, 0]


def test_the_trace_tells_when_it_begins_and_when_it_ends() -> None:
    overlay, p, _ = three_in_a_line()
    p.publishes(topic="both")
    p.publishes(topic="near")
    overlay.settle()

    told = [line.split(maxsplit=1)[1] for line in overlay.world.trace]
    assert [line for line in told if line.startswith("c: ")] == [
        "c: holds p:1 until b has settled it",
        "c: holds p:2 behind p:1 (same publisher)",
        "c: settles p:1, held for 4.000 ms",
        "c: settles p:2, held for 4.000 ms",
    ]


def test_a_report_counts_what_it_has_no_room_for() -> None:
    overlay, p, _ = three_in_a_line(limits=Limits(status_held_max=2))
    for _ in range(5):
        p.publishes(topic="both")
    overlay.settle(1.5 * MS)

    status = overlay.broker("c").status()
    assert (status["held_count"], [held["number"] for held in status["held"]]) == (5, [1, 2])


def test_whoever_is_held_without_waiting_is_behind_somebody() -> None:
    """What decides and what explains agree, on the way up and on the way down."""
    overlay, p, r = three_in_a_line()
    seen = 0
    for moment in range(40):
        if moment < 8:
            for publisher in (p, r):
                publisher.publishes(topic=("both", "near")[moment % 2])
        overlay.settle(0.3 * MS)
        for broker in "abc":
            ordering = overlay.broker(broker).publications.ordering
            for number, arrival in enumerate(ordering.held):
                blockers = ordering.blockers(arrival)
                assert arrival.waits or blockers
                assert number or not blockers
                seen += 1

    assert seen > 50
    assert all(not overlay.broker(broker).publications.ordering.held for broker in "abc")
