"""Clocks of nodes, and what a hub makes of those of others."""

from broker.messages import Attach
from broker.neighbours import Below
from broker.orphans import Orphan
from broker.ticks import LONG_AGO, Clock, tick_at
from routing.ids import NodeId


def test_a_clock_goes_with_the_time_and_never_shows_the_same_twice() -> None:
    clock = Clock()
    first = [next(clock) for _ in range(3)]
    clock.now = 1.5
    then = [next(clock) for _ in range(3)]

    assert LONG_AGO < first[0] < first[1] < first[2] < then[0] < then[1] < then[2]
    assert then[0] == tick_at(1.5)


def test_when_something_was_elsewhere_lies_between_the_question_and_the_answer() -> None:
    orphan = Orphan(Below(node=NodeId("o"), incarnation=1, link=None), welcomed_at=1000)
    told = Attach(
        now=70,
        advertisements=0,
        subscriptions=(),
        received=0,
        sent=(),
        links=(),
        seen=(),
        stable=(),
    )
    orphan.take(told, 1300)

    assert (orphan.at_earliest(50), orphan.at_latest(50)) == (980, 1280)
    assert (orphan.at_earliest(LONG_AGO), orphan.at_latest(LONG_AGO)) == (LONG_AGO, LONG_AGO)
