"""One crash at any point of small systems, in every run of them.

All placements on both trees: `python -m tests.machine.exploration`.
"""

import pytest

from tests.machine.exploration import (
    AT_ONCE,
    FORK,
    LINE,
    WHEN_QUIET,
    Explorer,
    System,
    Tree,
    placements,
    publisher,
    subscriber,
)

TREES = pytest.mark.parametrize("tree", [LINE, FORK], ids=["line", "fork"])
A_LINE_FIRST = pytest.mark.parametrize(
    "tree", [LINE, pytest.param(FORK, marks=pytest.mark.slow)], ids=["line", "fork"]
)
A_FORK_FIRST = pytest.mark.parametrize(
    "tree", [pytest.param(LINE, marks=pytest.mark.slow), FORK], ids=["line", "fork"]
)


@TREES
def test_a_publication_and_its_progress_survive_a_crash_at_any_point(tree: Tree) -> None:
    clients = (publisher(0, "c", 1), subscriber(0, "a"), subscriber(1, "c"))
    found = Explorer(System(tree, clients, batch=AT_ONCE)).explore()

    assert found.failures == ()
    assert found.is_complete
    assert found.uncompared == 0


@A_FORK_FIRST
def test_two_that_meet_survive_a_crash_at_any_point(tree: Tree) -> None:
    clients = (
        publisher(0, "c", 1),
        publisher(1, "a", 1),
        subscriber(0, "a"),
        subscriber(1, "c"),
    )
    found = Explorer(System(tree, clients, batch=WHEN_QUIET)).explore()

    assert found.failures == ()
    assert found.is_complete
    assert found.uncompared == 0


@A_LINE_FIRST
def test_a_subscription_that_is_under_way_survives_a_crash_at_any_point(tree: Tree) -> None:
    clients = (publisher(0, "c", 1), subscriber(0, "b"), subscriber(1, "a", is_late=True))
    found = Explorer(System(tree, clients, batch=WHEN_QUIET)).explore()

    assert found.failures == ()
    assert found.is_complete
    assert found.uncompared == 0


def test_no_two_placements_differ_in_names_only() -> None:
    assert len(list(placements(LINE, (1, 1), batch=AT_ONCE))) == 36
    assert len(list(placements(FORK, (1, 1), batch=AT_ONCE))) == 20
    assert len(list(placements(LINE, (2, 1), batch=AT_ONCE))) == 54
