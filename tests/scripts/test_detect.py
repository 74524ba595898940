"""`plait detect`: what is refused, and what runs have found, side by side."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.scripts.main import cli


def plait(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario of two desks under three orderings."""
    runs = tmp_path_factory.mktemp("runs")
    for ordering in ("fifo", "pairwise", "tno"):
        result = plait(
            *("run", "patterns.conf", "patterns.script", "--simulate", "--seed", "1"),
            *("--ordering", ordering, "--out", str(runs / ordering)),
        )
        assert result.exit_code == 0, result.output
    return runs


def test_two_desks_disagree_under_fifo_and_agree_where_all_is_ordered(runs: Path) -> None:
    result = plait("detect", str(runs), "--json")
    found = {one["ordering"]: one for one in json.loads(result.stdout)}

    assert all(one["detectors"] == ["east", "west"] for one in found.values())
    assert found["fifo"]["alike"] < len(found["fifo"]["matches"]) / 2
    for ordering in ("pairwise", "tno"):
        assert found[ordering]["alike"] == len(found[ordering]["matches"]) > 10


def test_they_are_shown_side_by_side(runs: Path) -> None:
    lines = plait("detect", str(runs)).output.splitlines()

    assert lines[1].split() == ["match", "east", "west"]
    assert [line.split()[0] for line in lines[-4:]] == ["ordering", "fifo", "pairwise", "tno"]
    assert [line.endswith(" 100 %") for line in lines[-3:]] == [False, True, True]


def test_what_happens_is_in_the_log(runs: Path) -> None:
    log = (runs / "pairwise" / "events.log").read_text()

    assert "Match east: A -> B -> C: nyse#" in log
    assert "SubEvent east" not in log


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "Say what to look for, --pattern, or whose matches to show, RUN."),
        (["--pattern", "A"], "Say where: --broker."),
        (["--broker", ":1", "--pattern", "A ->", "--where", "A=TRUE"], "expected a letter, found"),
        (["--broker", ":1", "--pattern", "A"], "where: no filter for A"),
        (["--broker", ":1", "--pattern", "A", "--where", "A"], "takes a letter and its filter"),
        (["--broker", ":1", "--pattern", "A", "--where", "1=TRUE"], "takes a letter and its filt"),
        (["--broker", ":1", "--pattern", "A", *("--where", "A=TRUE") * 2], "two filters for A"),
        (["--broker", ":1", "--pattern", "A", "--where", "A=("], "filter of A: expected"),
        ([".", "--pattern", "A"], "--pattern is not for a RUN."),
        ([".", "--where", "A=TRUE"], "--where is not for a RUN."),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], found: str) -> None:
    result = plait("detect", *arguments)

    assert result.exit_code == 2
    assert found in result.output


def test_a_run_without_detectors_has_nothing_to_show(tmp_path: Path) -> None:
    assert plait("run", "figure-9.conf", "--simulate", "--out", str(tmp_path / "r")).exit_code == 0

    result = plait("detect", str(tmp_path))

    assert result.exit_code == 2
    assert "no detector in these runs" in result.output


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("next A -> WHERE A: a = 1", "1:33: found the end, expected a letter"),
        ("next A -> -> B WHERE A: a = 1", "1:34: found '->', expected a letter"),
        ("next A -> B WHERE A: a = ", "1:48: found the end, expected an attribute, a value or ("),
        ("next A -> B WHERE A: a = 1", "1:29: found where: no filter for B, which is in the patt"),
        ("any A WHERE A: a = 1", "1:28: found within: a number of publications expected"),
        ("next A WHERE A: a = 1; A: b = 1", "1:29: found where: two filters for A"),
    ],
)
def test_a_detector_in_a_script_is_checked_at_its_place(
    command: str, problem: str, tmp_path: Path
) -> None:
    script = tmp_path / "x.script"
    script.write_text(f"Subscriber east Detect {command}\n")

    result = plait("check", "patterns.conf", str(script))

    assert result.exit_code == 2
    assert problem in result.output
