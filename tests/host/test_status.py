"""What a host says about itself: what its brokers hold and why, and what is counted."""

from typing import Any

import attrs
import pytest

from plait.broker.holding import describe_held
from plait.broker.inputs import MessagesReceived
from plait.broker.messages import EndOfStep, Publish
from plait.broker.sim.hosts import StepCores
from plait.broker.sim.world import LIVELY_LIMITS, World
from plait.routing.ids import NodeId
from plait.routing.orderings import Cause
from tests.host.worlds import LINK_DELAY_S, TIMEOUT_S, Client, Lively

MS = LINK_DELAY_S


def three_in_a_line(**limits: Any) -> tuple[Lively, Client, Client]:
    """Whatever p and r publish at c meets what comes from a, before s and t."""
    cores = StepCores()
    overlay = Lively(
        world=World(
            0,
            limits=attrs.evolve(LIVELY_LIMITS, **limits),
            delay_s=(MS, MS),
            jitter=0.0,
            cores=cores,
            is_traced=True,
        )
    )
    overlay.cores = cores
    overlay.brokers("a", b="a", c="b")
    p, r, q = (overlay.client(name, at) for name, at in (("p", "c"), ("r", "c"), ("q", "a")))
    for client in (p, r):
        client.advertises("TRUE")
    q.advertises("topic = 'both'")
    for name, at in (("s", "a"), ("t", "c")):
        overlay.client(name, at).subscribes("topic = 'both'")
    overlay.client("near", "c").subscribes("topic IN ('near', 'both')", ordered=False)
    overlay.passes(0.5)
    return overlay, p, r


def in_words(overlay: Lively, host: str) -> list[str]:
    return [
        f"{held['broker']} {describe_held(held)}" for held in overlay.host(host).describe_held()
    ]


def test_it_waits_for_the_parent_and_behind_what_it_must_not_overtake() -> None:
    overlay, p, r = three_in_a_line()
    p.publishes(topic="both")
    p.publishes(topic="near")
    r.publishes(topic="both")
    overlay.passes(1.5 * MS)

    assert in_words(overlay, "c") == [
        "c holds p:1 until b has settled it",
        "c holds p:2 behind p:1 (same publisher)",
        "c holds r:1 until b has settled it and behind p:1 (subscribers in common)",
    ]
    second = overlay.host("c").describe_held()[1]
    assert second.pop("seconds") < MS
    assert second == {
        "broker": "c",
        "publisher": "p",
        "number": 2,
        "waits_for": None,
        "lacks": None,
        "behind": [{"publisher": "p", "number": 1, "cause": "publisher", "waits_for": "b"}],
    }
    assert overlay.host("c").status()["held"] == overlay.host("c").describe_held()


def test_the_time_is_counted_by_cause() -> None:
    overlay, p, r = three_in_a_line()
    p.publishes(topic="both")
    p.publishes(topic="near")
    overlay.passes(0.5 * MS)
    r.publishes(topic="both")
    overlay.passes(0.5)

    counted = overlay.host("c").statistics()
    assert counted.held == 0
    assert {cause: each.count for cause, each in counted.hold_times.items()} == {
        Cause.PARENT: 2,
        Cause.PUBLISHER: 1,
        Cause.SUBSCRIBERS: 0,
    }
    # Up to b, on to a for the same question, and back.
    assert counted.hold_times[Cause.PARENT].seconds == pytest.approx(2 * 4 * MS)
    assert counted.hold_times[Cause.PUBLISHER].seconds == pytest.approx(4 * MS)


def test_what_does_not_wait_is_counted_nowhere() -> None:
    overlay, p, _ = three_in_a_line()
    p.publishes(topic="near")
    overlay.passes(0.5)

    holds = overlay.host("c").statistics().hold_times
    assert [each.count for each in holds.values()] == [0, 0, 0]


def test_the_trace_tells_when_it_begins_and_when_it_ends() -> None:
    overlay, p, _ = three_in_a_line()
    p.publishes(topic="both")
    p.publishes(topic="near")
    overlay.passes(0.5)

    told = [line.split(maxsplit=1)[1] for line in overlay.world.trace]
    assert [line for line in told if line.startswith(("c: holds", "c: settles"))] == [
        "c: holds p:1 until b has settled it",
        "c: holds p:2 behind p:1 (same publisher)",
        "c: settles p:1, held for 40.000 ms",
        "c: settles p:2, held for 40.000 ms",
    ]


def test_a_report_counts_what_it_has_no_room_for() -> None:
    overlay, p, _ = three_in_a_line(status_held_max=2)
    for _ in range(5):
        p.publishes(topic="both")
    overlay.passes(1.5 * MS)

    status = overlay.host("c").status()
    assert (status["held_count"], [held["number"] for held in status["held"]]) == (5, [1, 2])


def test_a_host_that_plays_several_brokers_says_which_of_them_holds() -> None:
    overlay, p, _ = three_in_a_line()
    overlay.relocates("c", host="b")
    overlay.passes(2 * TIMEOUT_S)
    p.publishes(topic="both")
    overlay.passes(1.5 * MS)

    assert in_words(overlay, "b") == [
        "b holds p:1 until a has settled it",
        "c holds p:1 until b has settled it",
    ]
    assert in_words(overlay, "c") == []


def test_what_is_held_when_a_broker_moves_is_not_settled_where_it_was() -> None:
    overlay, p, _ = three_in_a_line()
    p.publishes(topic="both")
    overlay.passes(1.5 * MS)
    overlay.relocates("c", host="b")
    overlay.passes(2 * TIMEOUT_S)

    trace = "\n".join(overlay.world.trace)
    assert trace.count("c: holds p:1") == 1
    assert "c: settles p:1" not in trace
    assert overlay.host("b").statistics().held == 0
    assert overlay.troubles() == []


def test_counting_goes_on_where_a_broker_is_taken_up() -> None:
    """A rebuild takes steps again, which others have counted when they were taken first."""
    overlay, p, _ = three_in_a_line()
    for _ in range(3):
        p.publishes(topic="near")
    overlay.passes(0.5)
    before = [overlay.host(name).statistics().publications.received for name in "abc"]
    overlay.relocates("c", host="b")
    overlay.passes(2 * TIMEOUT_S)
    moved = [overlay.host(name).statistics().publications.received for name in "abc"]
    p.publishes(topic="near")
    overlay.passes(0.5)
    after = [overlay.host(name).statistics().publications for name in "abc"]

    assert (before, moved) == ([0, 0, 3], [0, 0, 3])
    assert [counted.received for counted in after] == [0, 1, 3]
    assert (after[1].matched, after[1].sent, after[1].stable) == (1, 1, 1)


def test_what_is_sent_twice_is_counted_and_does_no_harm() -> None:
    overlay, p, _ = three_in_a_line()
    p.publishes(topic="both")
    overlay.passes(0.5)
    overlay.world.break_link(NodeId("b"), NodeId("c"))
    overlay.passes(0.5)
    line = overlay.host("b").parts.connections.line(NodeId("b"), NodeId("c"))
    assert line is not None
    publication = Publish(NodeId("p"), 1, 1, 0, b"", b"")
    again = MessagesReceived(line.link, [publication, EndOfStep(step=1)])
    overlay.world._tell(overlay.world.nodes[NodeId("b")], again)
    overlay.passes(0.5)

    counted = overlay.host("b").statistics().publications
    assert (counted.received, counted.duplicate) == (2, 1)
    assert overlay.troubles() == []


def test_it_is_counted_how_long_operations_take() -> None:
    overlay, p, _ = three_in_a_line()
    overlay.host("c").take_latencies()
    p.advertises("topic = 'far'")
    overlay.passes(0.5)

    # To a and back.
    assert overlay.host("c").take_latencies() == pytest.approx([4 * MS])
    assert overlay.host("c").take_latencies() == []


def test_it_is_counted_what_the_brokers_know() -> None:
    overlay, _, _ = three_in_a_line()
    counted = overlay.host("c").statistics()

    assert (counted.advertisements, counted.subscriptions) == (3, 3)
    assert counted.publishers_remembered == 4
    assert (counted.unstable, counted.operations_pending, counted.skipped) == (0, 0, 0)
    assert (counted.clients_isolated, counted.operations_refused, counted.protocol_errors) == (
        *(0, 0, 0),
    )
    assert len(overlay.host("c").known_interests()) == 6
