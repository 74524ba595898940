"""`events.log`, and `plait events` that reads along."""

import contextlib
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.scripts.event_log import EventLog
from plait.scripts.main import cli
from tests.patience import PATIENCE_S
from tests.processes import PLAIT, started

SCENARIO = """\
LoggingLevel {level}
Site root Parent none
Site left Parent root
Process b1 Is broker On root
Process b2 Is broker On left
Process alice Is subscriber On left
Process nyse Is publisher On root
Subscriber alice Subscribe /a/*
Publisher nyse Publish 2 Ontopic /a/ü Interval 10
Await stable
Publisher nyse Advertise WHERE price > 0
Publisher nyse Publish 1 CONTENT {{"price": 1.5, "topic": "/a\\n"}} Interval 0
Publisher nyse Publish 1 CONTENT {{"price": 1.5, "of": "x"}} Interval 0
"""


def run(tmp_path: Path, *arguments: str, level: str = "full") -> list[str]:
    (tmp_path / "x.txt").write_text(SCENARIO.format(level=level))
    out = tmp_path / "out"
    result = CliRunner().invoke(
        cli, ["run", str(tmp_path / "x.txt"), "--out", str(out), *arguments]
    )
    assert result.exit_code == 0, result.output
    return (out / "events.log").read_text().splitlines()


def events(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["events", str(directory), *arguments])


def test_a_simulated_run_leaves_its_events_in_order(tmp_path: Path) -> None:
    lines = run(tmp_path, "--simulate")
    of_first = [line for line in lines if line.endswith("/a/ü, 1")]

    assert lines[0] == "Subscriber alice Subscribe /a/*"
    assert of_first == [
        "PubEvent nyse, nyse, /a/ü, 1",
        "BroEvent b1, nyse, /a/ü, 1",
        "BroEvent b2, nyse, /a/ü, 1",
        "SubEvent alice, nyse, /a/ü, 1",
    ]
    assert "PubEvent nyse, nyse, price=1.5 of=x, 4" in lines
    assert "PubEvent nyse, nyse, '/a\\n', 3" in lines


def test_light_logging_leaves_out_what_brokers_do(tmp_path: Path) -> None:
    lines = run(tmp_path, "--simulate", level="light")

    assert not [line for line in lines if line.startswith("BroEvent")]
    assert [line for line in lines if line.startswith("SubEvent")]


@pytest.mark.processes
def test_brokers_that_are_processes_append_to_the_same_file(tmp_path: Path) -> None:
    simulated = tmp_path / "simulated"
    simulated.mkdir()

    assert sorted(run(tmp_path)) == sorted(run(simulated, "--simulate"))


def test_a_run_that_is_over_is_printed_and_not_waited_for(tmp_path: Path) -> None:
    lines = run(tmp_path, "--simulate")

    assert events(tmp_path / "out").output.splitlines() == lines


def test_what_is_not_a_run_is_bad_input(tmp_path: Path) -> None:
    result = events(tmp_path)

    assert result.exit_code == 2
    assert "has no events.log: the directory of a run expected" in result.output


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        with EventLog(tmp_path) as log:
            log.write("Wait 1\n")
            follower = stack.enter_context(
                started([*PLAIT, "events", tmp_path], stdout=subprocess.PIPE)
            )
            assert follower.stdout is not None
            first = follower.stdout.readline()
            log.write("Wait 2\nWai")
            second = follower.stdout.readline()
            there_is = events(tmp_path, "--no-follow").output
            log.write("t 3\n")
            is_waiting = follower.poll() is None
        rest, _ = follower.communicate(timeout=PATIENCE_S)

    assert (first, second, rest) == ("Wait 1\n", "Wait 2\n", "Wait 3\n")
    assert there_is == "Wait 1\nWait 2\nWai\n"
    assert is_waiting
    assert follower.returncode == 0


@pytest.mark.processes
def test_a_run_that_is_killed_is_over(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(SCENARIO.format(level="full") + "Wait 600000\n")
    out = tmp_path / "out"
    with started(
        [*PLAIT, "run", tmp_path / "x.txt", "--out", out, "--watch"], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        while "received" not in run.stdout.readline():
            assert run.poll() is None
        with started([*PLAIT, "events", out], stdout=subprocess.PIPE) as seen:
            assert seen.stdout is not None
            seen.stdout.readline()
            run.kill()
            run.communicate(timeout=PATIENCE_S)
            seen.wait(timeout=PATIENCE_S)
            # `communicate` would miss what came along with the first line.
            rest = seen.stdout.read()

    assert "SubEvent alice" in rest
    assert json.loads((out / "manifest.json").read_text())["ended"] is None
