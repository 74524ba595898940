"""A publisher of one name that has two lives in one run: each is judged by itself."""

from typing import Any

import pytest

from plait.faulttol.guarantees import Report, check
from plait.faulttol.history import Record, publication_of
from tests.host.worlds import Lively


@pytest.fixture
def records() -> list[Record]:
    """Return the records of a run in which a publisher leaves, and comes back under its name."""
    overlay = Lively()
    overlay.brokers("b1", b2="b1")
    reader = overlay.client("reader", "b1")
    reader.subscribes("TRUE")
    for incarnation in (5, 9):
        ticker = overlay.client("ticker", "b2", incarnation=incarnation)
        ticker.advertises("TRUE")
        overlay.passes(1.0)
        for _ in range(2):
            ticker.publishes(n=incarnation)
        overlay.passes(1.0)
        ticker.leaves()
        overlay.passes(1.0)

    named = [(one.publisher, one.publisher_incarnation, one.seq) for one in reader.deliveries]
    assert named == [("ticker", 5, 1), ("ticker", 5, 2), ("ticker", 9, 1), ("ticker", 9, 2)]
    assert overlay.troubles() == []
    return overlay.world.records()


def judge_without(records: list[Record], life: int, seq: int) -> Report:
    """Judge what would have been recorded, had this not been delivered."""
    kept: list[dict[str, Any]] = []
    n = position = 0
    for record in records:
        if record["node"] == "reader":
            if record["kind"] == "delivered" and publication_of(record) == ("ticker", life, seq):
                continue
            n += 1
            record = record | {"n": n}
            if record["kind"] == "delivered":
                position += 1
                record["position"] = position
        kept.append(record)
    return check(kept, ordering="pairwise")


@pytest.mark.parametrize("life", [5, 9])
@pytest.mark.parametrize("seq", [1, 2])
def test_what_either_life_lost_is_found(records: list[Record], life: int, seq: int) -> None:
    [violation] = judge_without(records, life, seq).violations

    assert violation.guarantee == "loss"
    assert violation.witness.startswith(f"reader never delivered ticker@{life}#{seq}, ")


def test_all_that_is_recorded_about_a_publication_says_of_which_life(
    records: list[Record],
) -> None:
    kinds = {record["kind"] for record in records if "publisher_incarnation" in record}
    lives = {
        (record["incarnation"], record["publisher_incarnation"])
        for record in records
        if record["node"] == "ticker" and "publisher_incarnation" in record
    }

    assert kinds == {"published", "confirmed", "delivered"}
    assert lives == {(5, 5), (9, 9)}
