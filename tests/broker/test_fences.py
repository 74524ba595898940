"""Fenced again and again, a broker waits longer each time."""

from plait.broker.fences import NEVER_FENCED
from plait.broker.host.host import Host
from plait.broker.limits import Limits
from plait.routing.ids import NodeId

LIMITS = Limits(fence_pause_first_s=1, fence_pause_last_s=5, fence_memory_s=100)


def test_each_pause_is_twice_the_last_one_up_to_a_limit() -> None:
    fences, pauses = NEVER_FENCED, []
    for second in range(100):
        fences = fences.once_more(second, "so says b2", LIMITS)
        pauses.append(fences.pause_s(LIMITS))

    assert pauses[:6] == [0, 1, 2, 4, 5, 5]
    assert set(pauses[6:]) == {5}


def test_what_was_long_ago_is_forgotten() -> None:
    fences = NEVER_FENCED.once_more(0, "", LIMITS).once_more(1, "", LIMITS)

    assert fences.once_more(101, "", LIMITS).pause_s(LIMITS) == 2
    assert fences.once_more(101.1, "", LIMITS).pause_s(LIMITS) == 0


def test_its_status_says_how_often_and_why() -> None:
    fences = NEVER_FENCED.once_more(0, "others do without it", LIMITS)
    host = Host(NodeId("b1"), 2, fences=fences)

    assert host.status()["fenced"] == {"count": 1, "reason": "others do without it"}
