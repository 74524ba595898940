"""Orderings that hold publications, on machines: what is held survives the crash of a broker.

Longer sweeps: `python -m tests.machine.overlay LOW HIGH DELTA CRASHES ORDERING`.
"""

import pytest

from plait.broker.machine.places import PlacedPublications
from plait.broker.machine.queues import QueuedPublications
from plait.faulttol.steplog import Entry
from tests.machine.overlay import crowded_world, random_world
from tests.sweeps import Seeds

PUBLISHED = ("published", "published-progressive", "published-whole-queue")
BEFORE_CLIENTS = ("sequencer-filtered", *PUBLISHED)
EACH = pytest.mark.parametrize("ordering", BEFORE_CLIENTS)


def troubles_of(
    seed: int, *, delta: int, crashes: int, ordering: str, deaths: int = 0
) -> list[str]:
    world = random_world(seed, delta=delta, crashes=crashes, ordering=ordering, deaths=deaths)
    return [] if world.stats["nobody left"] else world.troubles()


def crowded_troubles(seed: int, *, delta: int, crashes: int, ordering: str) -> list[str]:
    world = crowded_world(seed, delta=delta, crashes=crashes, ordering=ordering)
    return [] if world.stats["nobody left"] else world.troubles()


@pytest.mark.parametrize("ordering", ["pairwise", "sequencer", *BEFORE_CLIENTS])
@pytest.mark.parametrize("delta", [1, 2])
def test_brokers_that_hold_much_are_rebuilt_as_they_were(
    delta: int, ordering: str, seeds: Seeds
) -> None:
    for seed in (4, 11, 35, 58, 61, 68, *seeds(1, 20)):
        assert crowded_troubles(seed, delta=delta, crashes=8, ordering=ordering) == [], seed


@EACH
def test_two_brokers_at_a_time_are_rebuilt_as_they_were(ordering: str, seeds: Seeds) -> None:
    for seed in seeds(10, 30):
        assert troubles_of(seed, delta=2, crashes=5, ordering=ordering) == []


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_nobody_waits_for_what_a_client_asked_for_that_failed(ordering: str, seeds: Seeds) -> None:
    for seed in seeds(8, 30):
        assert troubles_of(seed, delta=1, crashes=4, ordering=ordering, deaths=2) == []


def test_it_is_missed_if_the_log_does_not_say_what_clients_were_handed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue was released when its first was acknowledged, which is stable by now and missing."""

    def begin_without(publications: QueuedPublications, _: Entry) -> None:
        publications._again = None

    monkeypatch.setattr(QueuedPublications, "begin_again", begin_without)

    for seed in (19, *range(100)):
        try:
            if crowded_troubles(seed, delta=1, crashes=5, ordering="published"):
                return
        except Exception:
            return  # whatever breaks: it did not go unnoticed
    pytest.fail("100 runs do not miss it")


def test_it_is_missed_if_the_log_does_not_say_which_requests_were_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer may be forgotten by then, as what it is about is stable."""
    monkeypatch.setattr(PlacedPublications, "end_again", QueuedPublications.end_again)

    for seed in (24, *range(30)):
        try:
            if crowded_troubles(seed, delta=1, crashes=8, ordering="sequencer-filtered"):
                return
        except Exception:
            return  # whatever breaks: it did not go unnoticed
    pytest.fail("30 runs do not miss it")
