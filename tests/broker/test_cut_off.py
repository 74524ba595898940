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
