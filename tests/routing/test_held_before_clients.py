"""What `published` and `sequencer-filtered` hold before clients, and what they say of it."""

import attrs
import pytest

from plait.routing.ids import NodeId
from plait.routing.orderings import (
    Cause,
    FilteredSequencer,
    Published,
    PublishedProgressive,
    PublishedWholeQueue,
)

S, T = NodeId("s"), NodeId("t")


@attrs.define(eq=False)
class Arrived:
    publisher: NodeId
    hop: NodeId = S
    waits: bool = False
    climbs: bool = False
    descends: bool = False
    subscribers: int = 0


def arrivals(*publishers: str) -> list[Arrived]:
    return [Arrived(NodeId(publisher)) for publisher in publishers]


@pytest.mark.parametrize("ordering", [Published, PublishedProgressive, FilteredSequencer])
def test_one_is_behind_those_that_go_before_it_to_the_same_client(
    ordering: type[Published[Arrived]] | type[FilteredSequencer[Arrived]],
) -> None:
    first, elsewhere, again, last = arrivals("p", "p", "p", "q")
    queue = ordering()
    queue.hold(first, {S: 1})
    queue.hold(elsewhere, {T: 1})
    queue.hold(last, {S: 3, T: 2})
    queue.hold(again, {S: 2})

    assert list(queue.held) == [first, elsewhere, last, again]
    assert queue.blockers(first) == []
    assert queue.blockers(again) == [(first, Cause.PUBLISHER)]
    assert queue.blockers(last) == [
        (first, Cause.SUBSCRIBERS),
        (elsewhere, Cause.SUBSCRIBERS),
        (again, Cause.SUBSCRIBERS),
    ]


def test_a_whole_queue_waits_for_all_that_is_in_it() -> None:
    first, last = arrivals("p", "q")
    queue: PublishedWholeQueue[Arrived] = PublishedWholeQueue()
    queue.hold(first, {S: 1})
    queue.hold(last, {S: 2})

    assert queue.blockers(first) == [(last, Cause.SUBSCRIBERS)]
    assert queue.blockers(last) == [(first, Cause.SUBSCRIBERS)]


def test_what_everybody_has_is_not_held_and_blocks_nobody() -> None:
    first, taken_out, last = arrivals("p", "q", "r")
    queue: Published[Arrived] = Published()
    for place, arrival in enumerate((first, taken_out, last)):
        queue.hold(arrival, {S: place, T: place})
    queue.take_out(taken_out)
    queue.let_go(first, S)

    assert list(queue.held) == [first, last]
    assert queue.places(first) == {T: 0}
    assert queue.blockers(last) == [(first, Cause.SUBSCRIBERS)]

    queue.let_go(first, T)

    assert list(queue.held) == [last]
    assert queue.blockers(last) == []


def test_what_has_no_place_yet_is_held_before_everybody() -> None:
    [unplaced] = arrivals("p")
    queue: FilteredSequencer[Arrived] = FilteredSequencer()
    queue.hold(unplaced, {})

    assert list(queue.held) == [unplaced]
    assert queue.blockers(unplaced) == []
