"""What is printed for people: tables, verdicts, what happens while it happens."""

import attrs
import click
import pytest

from plait.faulttol.guarantees import Excuse, Report, Violation
from plait.scripts.errors import GuaranteeViolatedError
from plait.scripts.happenings import (
    BrokerReady,
    PassedOver,
    Published,
    Stable,
    StatusTaken,
    Subscribed,
)
from plait.scripts.narration import LINES_PER_SECOND, Narrator, Progress
from plait.scripts.status_reports import ClientReport, Unreachable
from plait.scripts.tables import natural, print_table
from plait.scripts.verdict import VIOLATIONS_SHOWN, print_verdict, raise_if_violated
from plait.topologies.script import Recover


def test_a_table_in_a_pipe_is_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["broker", "clients"], [["b1", 10], ["frankfurt", 2]])

    assert capsys.readouterr().out == (
        "broker     clients\n"
        "b1              10\n"
        "frankfurt        2\n"
    )  # fmt: skip


def test_a_table_may_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["broker", "clients"], [])

    assert capsys.readouterr().out == "broker  clients\n"


def on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.scripts.tables.is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_a_table_on_a_narrow_terminal_is_continued_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(24, monkeypatch)
    rows = [["[b]frankfurt", 10, "127.0.0.1", 7]]
    print_table(["broker", "clients", "address", "subs"], rows, named_by=1)

    assert click.unstyle(capsys.readouterr().out) == (
        "broker        clients\n"
        "[b]frankfurt       10\n"
        "\n"
        "broker        address\n"
        "[b]frankfurt  127.0.0.1\n"
        "\n"
        "broker        subs\n"
        "[b]frankfurt     7\n"
    )  # fmt: skip


def test_text_in_the_last_column_is_wrapped_within_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(36, monkeypatch)
    print_table(["guarantee", "promise"], [["loss", "whoever asks in time is given all of it"]])

    assert click.unstyle(capsys.readouterr().out) == (
        "guarantee  promise\n"
        "loss       whoever asks in time is\n"
        "           given all of it\n"
    )  # fmt: skip


def test_names_with_numbers_are_sorted_by_them() -> None:
    assert sorted(["b10", "b2", "b1", "a"], key=natural) == ["a", "b1", "b2", "b10"]


def report_with(violations: int) -> Report:
    violation = Violation("fifo", "r", "alice was given p:2 before p:1", ("alice-1.jsonl:3",))
    return Report(
        run="r",
        guarantees=("loss", "fifo"),
        violations=(violation,) * violations,
        excused={Excuse.SKIPPED: 2},
        figures={
            "published": 5,
            "publishers": 1,
            "delivered": 9,
            "subscribers": 2,
            "subscriptions": 3,
        },
    )


@pytest.mark.parametrize("violations", [0, 1])
def test_a_verdict_about_no_publications_praises_nothing(
    violations: int, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_with(violations=violations)
    empty = attrs.evolve(report, figures={**report.figures, "published": 0})
    print_verdict(empty, ordering="fifo", place="runs/x")
    output = capsys.readouterr().out

    assert ("there was nothing to judge" in output) == (not violations)
    assert ("kept" in output) == bool(violations)
    assert ("BROKEN  fifo" in output) == bool(violations)


def test_a_verdict_says_of_every_guarantee_whether_it_was_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_verdict(report_with(violations=1), ordering="fifo", place="runs/x")
    output = capsys.readouterr().out

    assert "kept    loss" in output
    assert "BROKEN  fifo" in output
    assert "alice was given p:2 before p:1 [alice-1.jsonl:3]" in output
    assert "2 publications were not delivered to somebody, with excuse: skipped" in output
    assert output.endswith("runs/x\n")


def test_a_verdict_does_not_flood_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(report_with(violations=1000), ordering="fifo", place="runs/x")
    output = capsys.readouterr().out

    assert output.count("alice was given") == VIOLATIONS_SHOWN
    assert f"and {1000 - VIOLATIONS_SHOWN} more violations" in output


def test_only_a_violation_ends_the_command_with_one() -> None:
    raise_if_violated(report_with(violations=0))
    with pytest.raises(GuaranteeViolatedError, match="1 violation of"):
        raise_if_violated(report_with(violations=1))


def test_a_narrator_tells_who_did_what_when(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Narrator(lambda: 1.25)
    tell(BrokerReady("b1", 4711, "127.0.0.1:4000", ""))
    tell(Subscribed("alice", "price > 3"))
    tell(Published("nyse", 1, {"symbol": "IBM", "price": 4.123456789}))
    tell(StatusTaken([Unreachable("b2", "127.0.0.1:1", "nobody listens there")]))
    tell(BrokerReady("b1", 4712, "127.0.0.1:4000", None))

    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "1.25 s b1 ready the root, listens on 127.0.0.1:4000, process 4711",
        "1.25 s alice subscribed price > 3",
        "1.25 s nyse published #1 symbol=IBM price=4.12346",
        "1.25 s b2 dead nobody listens there",
        "1.25 s b1 ready joined whoever is left, listens on 127.0.0.1:4000, process 4712",
    ]


def test_what_a_script_asks_for_is_told_without_a_narrator_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell = Progress(lambda: 0.0)
    tell(StatusTaken([ClientReport("alice", "ready", "b1", 2, 0)]))
    tell(PassedOver(Recover("alice"), "alice is a client"))
    output = capsys.readouterr()

    assert output.out == ""
    assert output.err == (
        "alice         ready         at b1, 2 subscriptions, 0 unconfirmed\n"
        "not executed: Recover alice: alice is a client\n"
    )


def test_a_narrator_samples_what_is_too_much_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Narrator(lambda: 0.0)
    for seq in range(1, 101):
        tell(Published("nyse", seq, {}))
    tell(Stable(publications=100, deliveries=0))
    *shown, last = capsys.readouterr().out.splitlines()

    assert len(shown) == LINES_PER_SECOND
    assert f"{100 - LINES_PER_SECOND} of them not shown" in last


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Progress(lambda: 0.0)
    tell(Subscribed("alice", "price > 3"))

    assert capsys.readouterr() == ("", "")
