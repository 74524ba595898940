"""A broker's report fits into a message, whatever there is to say."""

import json

from plait.broker.reports import report_within

STATUS = {
    "node": "b1",
    "held": [{"publisher": "p" * 100, "number": number} for number in range(50)],
    "neighbours": [{"name": f"n{number}"} for number in range(20)],
    "neighbourhood": [],
    "skipped": [],
    "clients": 4096,
}


def test_a_report_that_fits_says_everything() -> None:
    assert json.loads(report_within(10_000, STATUS)) == STATUS


def test_of_a_report_that_is_too_long_the_longest_list_is_cut() -> None:
    encoded = report_within(4_000, STATUS)

    assert len(encoded) <= 4_000
    assert json.loads(encoded) == {**STATUS, "held": STATUS["held"][:25]}  # type: ignore[index]


def test_every_list_may_be_cut_and_the_rest_stays() -> None:
    report = json.loads(report_within(200, STATUS))

    assert (report["node"], report["clients"]) == ("b1", 4096)
    assert STATUS["neighbours"][: len(report["neighbours"])] == report["neighbours"]  # type: ignore[index]
