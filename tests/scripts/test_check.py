"""`plait check`: every problem of both files, at its place, before anything runs."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scripts.main import cli

CONFIGURATION = """\
Site here Parent none
Process b1 Is broker On here
Process alice Is subscriber On here
Process nyse Is publisher On here
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(configuration: str, script: str | None = None) -> Result:
    Path("x.conf").write_text(configuration)
    arguments = ["check", "x.conf"]
    if script is not None:
        Path("x.script").write_text(script)
        arguments.append("x.script")
    return CliRunner().invoke(cli, arguments)


def test_what_is_fine_is_counted() -> None:
    result = check(CONFIGURATION, "Subscriber alice Subscribe /a/*\nWait 5\n")

    assert result.exit_code == 0
    assert result.output == (
        "fine: 1 brokers, 0 standbys, 1 publishers, 1 subscribers, 2 commands\n"
    )


def test_the_samples_that_come_with_plait_are_fine() -> None:
    result = CliRunner().invoke(cli, ["check", "demo.conf", "demo.script"])

    assert (result.exit_code, result.output[:6]) == (0, "fine: ")


def test_all_problems_are_reported_with_file_line_and_column() -> None:
    result = check(
        CONFIGURATION + "Ordering FIVO\n", "Subscriber alcie Subscribe /a\nPublish everything\n"
    )

    assert result.exit_code == 2
    assert "x.conf:5:10: found 'FIVO'" in result.output
    assert "did you mean 'FIFO'?" in result.output
    assert "x.script:1:12: found 'alcie'" in result.output
    assert "x.script:2:1: found 'Publish'" in result.output


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("Subscriber alice Subscribe WHERE price > ", 41),
        ("Publisher nyse Advertise WHERE [price,>,1", 42),
    ],
)
def test_a_filter_that_cannot_be_read_is_reported_at_its_character(line: str, column: int) -> None:
    result = check(CONFIGURATION, f"Wait 1\n{line}\n")

    assert result.exit_code == 2
    assert f"x.script:2:{column}: found the end, expected" in result.output


def test_a_file_that_is_not_there_is_bad_input() -> None:
    result = CliRunner().invoke(cli, ["check", "no-such.conf"])

    assert result.exit_code == 2
    assert result.output.startswith("no-such.conf: found no such file, expected a file")
