"""What a client waits for that wants as little as possible out of order."""

import pytest

from plait.broker.client.patience import Patience, Waiting
from plait.broker.messages import Publish
from plait.routing.ids import NodeId
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import Topic

A, B = Topic("a"), Topic("b")
BOTH = (A, B)


def put(
    waiting: Waiting, seq: int, topic: Topic, number: int, now: float = 0.0, **behind: int
) -> None:
    publication = Publish(NodeId("p"), 1, seq, 0, b"", b"")
    names = {Topic(name): each for name, each in behind.items()}
    waiting.put(publication, topic, Position(number=number, behind=names), now)


def taken(waiting: Waiting, now: float = 0.0, topics: tuple[Topic, ...] = BOTH) -> list[int]:
    return [each.publication.seq for each in waiting.take(topics, now)]


@pytest.fixture
def waiting() -> Waiting:
    waiting = Waiting()
    waiting.patience = Patience(most=2, seconds=1.0)
    return waiting


def test_what_is_next_does_not_wait(waiting: Waiting) -> None:
    put(waiting, 1, A, 1)
    put(waiting, 2, B, 1, a=1)

    assert taken(waiting) == [1, 2]
    assert waiting.wake_at is None


def test_what_comes_too_early_waits_for_what_its_stamp_names(waiting: Waiting) -> None:
    put(waiting, 1, B, 1, a=1)
    assert taken(waiting) == []
    put(waiting, 2, A, 1)

    assert taken(waiting) == [2, 1]


def test_and_for_the_one_before_it_on_its_topic(waiting: Waiting) -> None:
    put(waiting, 1, A, 2)
    assert taken(waiting) == []
    put(waiting, 2, A, 1)

    assert taken(waiting) == [2, 1]


def test_it_waits_for_nothing_that_it_does_not_get(waiting: Waiting) -> None:
    put(waiting, 1, B, 1, a=7)

    assert taken(waiting, topics=(B,)) == [1]


def test_nor_for_what_was_published_before_its_subscription(waiting: Waiting) -> None:
    waiting.begin({A: 7, B: 4})
    put(waiting, 1, B, 5, a=7)

    assert taken(waiting) == [1]


def test_it_has_waited_for_long_enough(waiting: Waiting) -> None:
    put(waiting, 1, A, 2, now=3.0)

    assert waiting.wake_at == 4.0
    assert taken(waiting, now=3.9) == []
    assert taken(waiting, now=4.0) == [1]


def test_the_first_goes_on_when_more_wait_than_may(waiting: Waiting) -> None:
    for seq, number in enumerate((9, 7, 5), 1):
        put(waiting, seq, A, number)

    assert taken(waiting) == [1, 2, 3]  # what is tagged has been handled: it leaves no gap


def test_all_go_on_when_nobody_waits_any_more(waiting: Waiting) -> None:
    put(waiting, 1, A, 3)
    put(waiting, 2, B, 8, a=3)

    assert taken(waiting, now=float("inf")) == [1, 2]
