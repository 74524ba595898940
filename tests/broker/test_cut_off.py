"""A broker whose parent and grandparent fail at once, which is more than δ, goes on alone."""

import pytest

from routing.ids import NodeId
from routing.orderings import ORDERINGS
from tests.conversation import Conversation

MS = 0.001


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("ms", [0.5, 1.5, 2.5, 3.5, 4.5, 8])
def test_nothing_is_held_any_more_whatever_was_under_way(ordering: str, ms: float) -> None:
    overlay = Conversation(ordering=ordering)
    overlay.brokers("a", b="a", c="b")
    p, s, q, t = (overlay.client(name, at=at) for name, at in zip("psqt", "ccbb", strict=True))
    for publisher in (p, q):
        publisher.advertises("TRUE")
    for subscriber in (s, t):
        subscriber.subscribes("TRUE")
    overlay.settle()
    for publisher in (p, q, p):
        publisher.publishes(x=1)
    overlay.settle(ms * MS)
    for name in "ab":
        overlay.world.crash(NodeId(name))
    overlay.settle(30)

    alone = overlay.broker("c")
    assert alone.unfinished() == []
    assert alone.status()["held"] == []
    mine = [name for name in s.received if name.startswith("p")]
    # Under a sequencer nothing is for anybody before the root has spoken.
    assert mine == ["p:1", "p:2"] or (ordering.startswith("sequencer") and mine == [])


@pytest.mark.parametrize("reader_at", ["b", "d"])
def test_a_branch_that_joins_gets_nothing_until_all_know_who_asks_there(reader_at: str) -> None:
    """Until then somebody may settle what is shared there as if it were not shared."""
    overlay = Conversation()
    overlay.brokers("a", m="a", n="m", f1="a", f2="f1", f3="f2")
    overlay.world.add_broker(NodeId("b"), NodeId("n"), fallbacks=[NodeId("a")])
    overlay.world.add_broker(NodeId("d"), NodeId("b"))
    overlay.settle()
    near, far = overlay.client("near", at="a"), overlay.client("far", at="f3")
    reader = overlay.client("reader", at=reader_at)
    for publisher in (near, far):
        publisher.advertises("TRUE")
    overlay.settle()
    overlay.crashes("m", "n")
    overlay.settle(3 * MS)
    reader.subscribes("TRUE")  # which nobody beyond the branch has to confirm now
    overlay.world.trace.clear()
    for _ in range(40):
        near.publishes(x=1)
        overlay.settle(MS)
    overlay.settle()
    far.publishes(x=1)
    overlay.settle()

    seen = [
        [n for n, line in enumerate(overlay.world.trace) if what in line]
        for what in ("f3 -> f2: Confirm", "reader: delivers")
    ]
    assert max(seen[0]) < min(seen[1])
    assert reader.received[-1] == "far:1"
    assert overlay.judge("pairwise").is_clean
    assert overlay.broker("b").status()["state"] == "operational"


def test_a_branch_takes_nobody_over_before_all_know_that_it_has_joined() -> None:
    """It would ask whom it takes to confirm that, too, as if that one had joined."""
    overlay = Conversation(delta=2)
    overlay.brokers("a", m="a", n="m", o="n", c="a", e="c")
    overlay.world.add_broker(NodeId("b"), NodeId("o"), fallbacks=[NodeId("a")])
    overlay.settle()
    overlay.crashes("m", "n", "o")
    overlay.freezes("e")
    overlay.settle(2)
    assert overlay.parent_of("b") == "a"
    assert overlay.world.move(NodeId("a"), NodeId("b"), NodeId("c"))
    overlay.settle(0.1)
    overlay.goes_on("e")
    overlay.settle(5)

    assert overlay.broker("c").statistics().protocol_errors == 0
    assert overlay.troubles() == []
