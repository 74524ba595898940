"""Every run of small systems without a crash: which orderings keep which order, in all of them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest

from plait.broker.machine.publications import Publications
from plait.broker.messages import Message
from plait.routing.conflicts import DETECTIONS, EXACT, FAST, Conflicts
from tests.machine.automata import Call, Client
from tests.machine.exploration import (
    FORK,
    LINE,
    PAIR,
    WHEN_QUIET,
    Exploration,
    Explorer,
    System,
    Tree,
    publisher,
    subscriber,
)

Wish = tuple[str, ...]
"""The filters of one subscriber: a subscription each."""

EVERYTHING: Sequence[Wish] = (("x >= 0",),)
"""What subscribers want if every publication is to conflict with every other."""
OF_ONE_FILTER: Sequence[Wish] = (("x < 2",), ("x > 0",), ("x >= 0",))
TWO_OF_THREE: Sequence[Wish] = (*OF_ONE_FILTER, ("x = 0", "x = 2"))
"""What they want if it takes two of them to conflict about something."""

KEEPS_ORDER = pytest.mark.parametrize("ordering", ["pairwise", "sequencer"])
EVERY_WAY_TO_KEEP_IT = pytest.mark.parametrize(
    ("ordering", "detection"), [("pairwise", FAST), ("pairwise", EXACT), ("sequencer", FAST)]
)
DETECTION = pytest.mark.parametrize("detection", DETECTIONS)
TREES = pytest.mark.parametrize("tree", [PAIR, LINE, FORK], ids=["pair", "line", "fork"])
PUBLISHED = pytest.mark.parametrize(
    "ordering", ["published", "published-progressive", "published-whole-queue"]
)


def explore(
    tree: Tree, clients: Sequence[Client], ordering: str, detection: str = FAST
) -> Exploration:
    """Go through every run."""
    system = System(tree, clients, ordering=ordering, detection=detection, batch=WHEN_QUIET)
    found = Explorer(attrs.evolve(system, crashing=())).explore()
    assert found.is_complete or found.failures
    return found


def every_placement(
    tree: Tree, counts: Sequence[int], wishes: Sequence[Wish] = EVERYTHING
) -> Iterator[list[Client]]:
    """Put so many publishers and two subscribers at the brokers, in every way.

    Publisher 0 advertises `x = 0` and publishes that, publisher 1 likewise, and so on; `counts`
    says how often. Each subscriber has one of the wishes.
    """
    seats = list(itertools.product(tree, wishes))
    for brokers in itertools.product(tree, repeat=len(counts)):
        for taken in itertools.combinations_with_replacement(seats, 2):
            yield [
                *(publisher(n, at, counts[n]) for n, at in enumerate(brokers)),
                *(subscriber(n, at, *wish) for n, (at, wish) in enumerate(taken)),
            ]


def failing(
    tree: Tree,
    counts: Sequence[int],
    ordering: str,
    *,
    detection: str = FAST,
    wishes: Sequence[Wish] = EVERYTHING,
) -> list[str]:
    """What is wrong in a shortest run, of each placement in which something is."""
    found = (
        explore(tree, each, ordering, detection) for each in every_placement(tree, counts, wishes)
    )
    return [failure for each in found for failure in each.failures]


TWO_THAT_RACE = (publisher(0, "b", 1), publisher(1, "a", 1), subscriber(0, "a"), subscriber(1, "b"))


def test_fifo_fails_and_the_shortest_run_shows_how() -> None:
    [failure] = explore(PAIR, TWO_THAT_RACE, "fifo").failures

    assert failure.splitlines() == [
        "s0 and s1 disagree: [('p1', 1, 1), ('p0', 1, 1)] [('p0', 1, 1), ('p1', 1, 1)]",
        "  p0 calls ('publish', 1, 0)",
        "  p0 -> b: step 2: p0:1",
        "  p1 calls ('publish', 1, 1)",
        "  p1 -> a: step 2: p1:1",
        "  b -> a: step 9: p0:1",
        "  a -> b: step 10: p1:1",
        "  a -> s0: step 10: p1:1",
        "  a -> s0: step 11: p0:1",
        "  b -> s1: step 9: p0:1",
        "  b -> s1: step 10: p1:1",
    ]


@TREES
@EVERY_WAY_TO_KEEP_IT
@pytest.mark.parametrize("counts", [(1, 1), pytest.param((2, 1), marks=pytest.mark.slow)])
def test_no_run_fails_wherever_everybody_is(
    ordering: str, detection: str, tree: Tree, counts: Sequence[int]
) -> None:
    assert len(list(every_placement(tree, counts))) == {2: 12, 3: 54}[len(tree)]
    assert failing(tree, counts, ordering, detection=detection) == []


@TREES
def test_the_same_search_finds_fifo_wanting(tree: Tree) -> None:
    assert failing(tree, (1, 1), "fifo")


@pytest.mark.slow
@KEEPS_ORDER
@pytest.mark.parametrize("tree", [LINE, FORK], ids=["line", "fork"])
def test_four_publications_of_two_publishers(ordering: str, tree: Tree) -> None:
    clients = (publisher(0, "c", 2), publisher(1, "a", 2), subscriber(0, "a"), subscriber(1, "c"))
    found = explore(tree, clients, ordering)

    assert found.failures == ()
    assert found.states > 3000


@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param(OF_ONE_FILTER, id="one filter each"),
        pytest.param(TWO_OF_THREE, id="two filters for some", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("detection", [FAST, pytest.param(EXACT, marks=pytest.mark.slow)])
def test_three_publishers_and_what_only_some_want(wishes: Sequence[Wish], detection: str) -> None:
    assert failing(PAIR, (1, 1, 1), "pairwise", detection=detection, wishes=wishes) == []


# Places from the root


@pytest.mark.parametrize(("tree", "counts"), [(PAIR, (1, 1)), (PAIR, (2, 1)), (FORK, (1, 1))])
def test_places_for_each_subscriber_keep_the_order(tree: Tree, counts: Sequence[int]) -> None:
    assert failing(tree, counts, "sequencer-filtered") == []


GIVEN_UP_AND_ASKED_AGAIN: Sequence[Call] = (("unsubscribe", 0), ("subscribe", "x >= 0"))


def test_no_place_is_lost_when_a_subscription_is_given_up_and_another_follows() -> None:
    clients = (
        publisher(0, "b", 1),
        publisher(1, "a", 1),
        attrs.evolve(subscriber(0, "a"), calls=GIVEN_UP_AND_ASKED_AGAIN),
    )

    assert explore(PAIR, clients, "sequencer-filtered").failures == ()


# The algorithm as published


@TREES
@PUBLISHED
def test_as_published_no_two_publications_go_wrong(ordering: str, tree: Tree) -> None:
    assert failing(tree, (1, 1), ordering) == []


@PUBLISHED
def test_as_published_three_go_wrong_and_nothing_is_left_held(ordering: str) -> None:
    failures = failing(PAIR, (1, 2), ordering)

    assert len(failures) == 2
    assert all(" disagree: " in text for text in failures)


@pytest.mark.parametrize(
    ("ordering", "count"),
    [("published", 0), ("published-progressive", 0), ("published-whole-queue", 2)],
)
def test_only_the_whole_queue_goes_wrong_if_the_first_in_order_publishes_twice(
    ordering: str, count: int
) -> None:
    assert len(failing(PAIR, (2, 1), ordering)) == count


def test_a_shortest_run_that_goes_wrong_as_published() -> None:
    clients = (publisher(0, "a", 1), publisher(1, "b", 2), subscriber(0, "a"), subscriber(1, "b"))
    [failure] = explore(PAIR, clients, "published").failures

    assert failure.splitlines() == [
        "s0 and s1 disagree: [('p0', 1, 1), ('p1', 1, 1), ('p1', 1, 2)] "
        "[('p1', 1, 1), ('p0', 1, 1), ('p1', 1, 2)]",
        "  p0 calls ('publish', 1, 0)",
        "  p0 -> a: step 2: p0:1",
        "  p1 calls ('publish', 1, 1)",
        "  p1 -> b: step 2: p1:1",
        "  b -> a: step 9: p1:1",
        "  p1 calls ('publish', 1, 1)",
        "  p1 -> b: step 3: p1:2",
        "  b -> a: step 10: p1:2",
        "  a -> b: step 10: p0:1",
        "  b -> a: step 11: Acknowledge(publisher='p0', incarnation=1, seq=1)",
        "  a -> b: step 11: Acknowledge(publisher='p1', incarnation=1, seq=1)",
        "  a -> b: step 12: Acknowledge(publisher='p1', incarnation=1, seq=2)",
        "  a -> s0: step 13: p0:1, p1:1, p1:2",
        "  b -> s1: step 12: p1:1",
        "  b -> s1: step 13: p0:1, p1:2",
    ]


@PUBLISHED
def test_as_published_two_subscriptions_of_one_subscriber_go_wrong(ordering: str) -> None:
    """What conflicts is decided subscription by subscription, and one has two of them."""
    clients = (
        publisher(0, "a", 1),
        publisher(1, "b", 1),
        subscriber(0, "a"),
        subscriber(1, "b", "x = 0", "x = 1"),
    )

    assert explore(PAIR, clients, ordering).failures
    assert explore(PAIR, clients, "pairwise").failures == ()


# Operations that race with publications


@EVERY_WAY_TO_KEEP_IT
def test_a_subscription_that_races_with_publications(ordering: str, detection: str) -> None:
    clients = (
        publisher(0, "c", 2),
        publisher(1, "a", 1),
        subscriber(0, "a"),
        subscriber(1, "c", is_late=True),
    )

    assert explore(LINE, clients, ordering, detection).failures == ()


@DETECTION
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("far", ["a", "c"])
def test_a_second_subscription_of_one_who_has_one(detection: str, first: int, far: str) -> None:
    """What counts is the subscriber: its second subscription meets what its first one wanted."""
    clients = (
        publisher(0, "c", 1),
        publisher(1, "a", 1),
        subscriber(0, "c" if far == "a" else "a"),
        attrs.evolve(
            subscriber(1, far, f"x = {first}"), calls=(("subscribe", f"x = {1 - first}"),)
        ),
    )

    assert explore(LINE, clients, "pairwise", detection).failures == ()


@KEEPS_ORDER
def test_a_subscription_that_is_given_up_and_another_that_follows(ordering: str) -> None:
    clients = (
        publisher(0, "a", 1),
        publisher(1, "c", 1),
        subscriber(0, "a"),
        attrs.evolve(subscriber(1, "c"), calls=GIVEN_UP_AND_ASKED_AGAIN),
    )

    assert explore(FORK, clients, ordering).failures == ()


# What goes wrong is found


def test_without_the_wait_the_search_finds_what_goes_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Conflicts, "is_conflict", lambda *_, **__: False)

    assert explore(PAIR, TWO_THAT_RACE, "pairwise").failures


HELD, FREE, OTHER = 0, 1, 2


@pytest.mark.slow
def test_a_confirmation_that_overtakes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is described in `tests/host/test_pairwise_order.py`; here it is searched."""
    asked_by_both = f"x IN ({FREE}, {OTHER})"
    tree = {"g": None, "b": "g", "h": "b", "e": "b"}
    clients = (
        Client(
            "p",
            "h",
            (("advertise", f"x IN ({HELD}, {FREE})"),),
            (("publish", 1, HELD), ("publish", 1, FREE)),
        ),
        attrs.evolve(publisher(OTHER, "g", 1), name="q"),
        Client("r", "g", (("advertise", f"x = {HELD}"),)),
        Client(
            "w",
            "g",
            (("subscribe", f"x = {HELD}"), ("subscribe", f"x = {FREE}", "unordered")),
        ),
        attrs.evolve(subscriber(0, "b", f"x = {HELD}"), name="v"),
        attrs.evolve(subscriber(0, "h", asked_by_both), name="u"),
        attrs.evolve(subscriber(0, "e", asked_by_both, is_late=True), name="t"),
    )
    assert explore(tree, clients, "pairwise").failures == ()

    def at_once(self: Publications, neighbour: Any, message: Message, about: Any = None) -> None:
        self._steps.send(neighbour, message, about)

    monkeypatch.setattr(Publications, "send_in_turn", at_once)

    assert explore(tree, clients, "pairwise").failures


def test_a_publication_that_is_never_released_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publications, "_tell_settled", lambda *_: None)
    [first, *_] = explore(PAIR, TWO_THAT_RACE, "pairwise").failures

    assert "keeps" in first.splitlines()[0]
