"""`plait check`: every problem of both files, at its place, before anything runs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.scripts.main import cli

CONFIGURATION = """\
Site here Parent none
Process b1 Is broker On here
Process alice Is subscriber On here
Process nyse Is publisher On here
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(configuration: str, script: str | None = None, *options: str) -> Result:
    Path("x.conf").write_text(configuration)
    arguments = ["check", "x.conf", *options]
    if script is not None:
        Path("x.script").write_text(script)
        arguments.append("x.script")
    return CliRunner().invoke(cli, arguments)


def test_what_is_fine_is_counted() -> None:
    result = check(CONFIGURATION, "Subscriber alice Subscribe /a/*\nWait 5\n")

    assert result.exit_code == 0
    assert result.output == ("fine: 1 broker, 0 standbys, 1 publisher, 1 subscriber, 2 commands\n")


def test_the_samples_that_come_with_plait_are_fine() -> None:
    result = CliRunner().invoke(cli, ["check", "demo.conf", "demo.script"])

    assert (result.exit_code, result.output[:6]) == (0, "fine: ")


def test_what_matches_nothing_is_warned_about() -> None:
    result = check(
        CONFIGURATION,
        "Subscriber alice Subscribe /a*\nSubscriber alice Subscribe WHERE symbol = IBM\n"
        "Subscriber alice Subscribe /a/#\n",
    )

    assert result.exit_code == 0
    assert result.output.count("x.script:1:") == 1
    assert "in '/a*' the * stands for itself" in result.output
    assert "topic '/a/#': the # stands for itself" in result.output
    assert "warning: x.script:2:12: symbol = IBM compares two attributes" in result.output


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


def test_problems_are_there_for_programs_too() -> None:
    result = check(CONFIGURATION, "Subscriber alcie Subscribe /a\nWait x\n", "--json")

    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "problems": [
            {
                "file": "x.script",
                "line": 1,
                "column": 12,
                "found": "'alcie'",
                "expected": "a subscriber of the configuration",
                "suggestion": "alice",
            },
            {
                "file": "x.script",
                "line": 2,
                "column": 6,
                "found": "'x'",
                "expected": "a whole number of milliseconds, at most 999999999",
                "suggestion": None,
            },
        ]
    }


def test_what_is_fine_has_no_problems_for_programs() -> None:
    document = json.loads(check(CONFIGURATION, "Wait 5\n", "--json").stdout)

    assert document["problems"] == []
    assert document["commands"] == 1


def test_filters_are_read_in_the_same_pass_as_everything_else() -> None:
    result = check(
        f"{CONFIGURATION}Subscriber alice Subscribe WHERE a <\n",
        "Krash b1\nSubscriber alice Subscribe WHERE price = = 3\nCrash b2\n",
    )
    places = [line.split(": found")[0] for line in result.stderr.splitlines()]

    assert result.exit_code == 2
    assert places == ["x.conf:5:37", "x.script:1:1", "x.script:2:42", "x.script:3:7"]


def test_an_import_that_fails_hides_nothing_that_is_wrong_without_it() -> None:
    result = check(
        f"{CONFIGURATION}Site one Parent two\nSite two Parent one\nSite q Parent nowhere\n"
        "Import no-such.inc\n",
        "Subscriber b1 Subscribe /a\nSubscriber anybody Subscribe /a\n",
    )
    places = [line.split(":", 1)[1] for line in result.stderr.splitlines()]

    assert result.exit_code == 2
    assert [place.split(", expected")[0] for place in places] == [
        "5:17: found a circle one -> two -> one",
        "8:8: found 'no-such.inc': no such file",
        "1:12: found broker 'b1'",
    ]
