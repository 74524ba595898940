"""What stamps alone say of a run: the smallest histories that break each of their rules."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from plait.faulttol.history import Manifest, Record, write_run
from plait.faulttol.stamps import verify_order
from plait.scripts.main import cli


class Run:
    """The history of a run, written line by line."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._n = count(1)
        self._positions: dict[str, Iterator[int]] = {}

    def _add(self, node: str, kind: str, **fields: Any) -> None:
        header = {"run": "r", "node": node, "incarnation": 1, "n": next(self._n), "at": 0.0}
        self.records.append({**header, "kind": kind, **fields})

    def publishes(self, name: str, topic: str) -> None:
        publisher, seq = name.split(":")
        self._add(
            publisher,
            "published",
            publisher=publisher,
            publisher_incarnation=1,
            seq=int(seq),
            content={"topic": topic},
            ordered=True,
            crc=0,
        )

    def delivers(
        self, to: str, name: str, number: int, in_order: bool = True, **behind: int
    ) -> None:
        publisher, seq = name.split(":")
        self._add(
            to,
            "delivered",
            subscriber=to,
            publisher=publisher,
            publisher_incarnation=1,
            seq=int(seq),
            position=next(self._positions.setdefault(to, count(1))),
            subscriptions=["s/1"],
            crc=0,
            in_order=in_order,
            stamp={"number": number, "behind": behind},
        )


@pytest.fixture
def run() -> Run:
    """Two publications on two topics; the second comes behind the first."""
    run = Run()
    run.publishes("p:1", "ibm")
    run.publishes("q:1", "sun")
    return run


def witnesses(run: Run) -> list[str]:
    return [violation.witness for violation in verify_order(run.records).violations]


def test_what_comes_where_it_belongs_is_no_violation(run: Run) -> None:
    run.delivers("s", "p:1", 1)
    run.delivers("s", "q:1", 1, ibm=1)
    run.delivers("t", "q:1", 1, ibm=1)

    report = verify_order(run.records)

    assert report.violations == ()
    assert (report.stamped, report.unnumbered, report.topics) == (3, 0, 2)


def test_what_comes_before_what_its_stamp_names_is_found(run: Run) -> None:
    run.delivers("s", "q:1", 1, ibm=1)
    run.delivers("s", "p:1", 1)

    assert witnesses(run) == [
        "s delivered p@1#1 (position 2), which comes before number 1 of ibm, "
        "behind q@1#1 (position 1)",
    ]


def test_what_comes_after_what_its_stamp_precedes_is_found(run: Run) -> None:
    run.publishes("p:2", "ibm")
    run.delivers("s", "p:2", 2)
    run.delivers("s", "q:1", 1, ibm=1)

    assert witnesses(run) == [
        "s delivered q@1#1 (position 2), which comes before number 2 of ibm, "
        "behind p@1#2 (position 1)",
    ]


def test_a_number_that_was_given_out_twice_is_found(run: Run) -> None:
    run.publishes("p:2", "ibm")
    run.delivers("s", "p:1", 1)
    run.delivers("t", "p:2", 1)

    assert witnesses(run) == ["p@1#1 (position 1) and p@1#2 (position 1) are both number 1 of ibm"]


def test_a_publication_with_two_numbers_is_found(run: Run) -> None:
    run.delivers("s", "p:1", 1)
    run.delivers("t", "p:1", 2)

    assert witnesses(run) == ["p@1#1 is number 1 of ibm for s and number 2 for t"]


def test_what_a_subscriber_was_told_to_be_late_is_no_violation(run: Run) -> None:
    run.delivers("s", "q:1", 1, ibm=1)
    run.delivers("s", "p:1", 1, in_order=False)

    report = verify_order(run.records)

    assert report.violations == ()
    assert report.tagged == 1


def test_what_has_no_number_is_judged_by_what_it_comes_behind(run: Run) -> None:
    run.publishes("p:2", "ibm")
    run.delivers("s", "p:1", 1)
    run.delivers("s", "p:2", 0, ibm=1)

    report = verify_order(run.records)

    assert report.violations == ()
    assert report.unnumbered == 1


def test_the_command_says_what_it_found(run: Run, tmp_path: Path) -> None:
    manifest = Manifest(
        run="r",
        topology={},
        ordering="tno",
        delta=1,
        seed=None,
        started=0.0,
        ended=1.0,
        simulated=True,
    )
    run.delivers("s", "q:1", 1, ibm=1)
    write_run(tmp_path / "good", manifest, run.records)
    run.delivers("s", "p:1", 1)
    write_run(tmp_path / "bad", manifest, run.records)

    good = CliRunner().invoke(cli, ["verify-order", str(tmp_path / "good")])
    bad = CliRunner().invoke(cli, ["verify-order", str(tmp_path / "bad")])

    assert good.output == (
        "r: 1 deliveries on 1 topics with stamps, 0 of them told to be out of order, "
        "0 without a number; 0 without a stamp\n"
        "  all else came where it belongs\n"
    )
    assert good.exit_code == 0
    assert "s delivered p@1#1 (position 2), which comes before number 1 of ibm" in bad.output
    assert bad.exit_code == 1


def test_a_run_without_stamps_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()

    nothing = CliRunner().invoke(cli, ["verify-order", str(tmp_path)])

    assert nothing.exit_code == 2
    assert "no delivery has a stamp" in nothing.output
