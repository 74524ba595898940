"""Ctrl-C on a terminal, which sends it to all processes of a command at once.

It ends what runs, prints no traceback, leaves no process, and the exit code is the documented one.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from plait.scripts.main import cli
from tests.patience import attempts
from tests.processes import finished
from tests.terminal import CTRL_C, ROOT, Open, Terminal, terminals

pytestmark = pytest.mark.processes

SCENARIO = """\
Site here Parent none
Process b1 Is broker On here
Process alice Is subscriber On here
Process nyse Is publisher On here
Subscriber alice Subscribe /a/*
Publisher nyse Publish 3 Ontopic /a/b Interval 1
"""
INTERRUPTED = 130


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Open]:
    with terminals(tmp_path) as open_terminal:
        yield open_terminal


@pytest.fixture
def broker(open_terminal: Open) -> str:
    terminal = open_terminal("broker", "--name", "b1")
    terminal.sees("b1 is ready at ")
    return terminal.sees("\r\n")


def end_by_ctrl_c(terminal: Terminal, code: int = INTERRUPTED) -> None:
    terminal.types(CTRL_C)

    assert (terminal.ends(), "Traceback" in terminal.seen) == (code, False), terminal.seen
    assert ("plait: interrupted" in terminal.seen) == (code == INTERRUPTED)
    terminal.wait_until_deserted()


def test_while_pub_waits_for_lines(open_terminal: Open, broker: str) -> None:
    pub = open_terminal("pub", "--broker", broker, "--wait")
    pub.sees("Ctrl-D ends.")
    pub.types('{"x": 1}\n')
    pub.sees("confirmed after")

    end_by_ctrl_c(pub)


def test_while_pub_pauses(open_terminal: Open, broker: str) -> None:
    pub = open_terminal(
        *("pub", "--broker", broker, "x=1", "--wait", "--count", 2, "--interval", 3600000)
    )
    pub.sees("confirmed after")

    end_by_ctrl_c(pub)


def test_of_a_subscriber_is_its_usual_end(open_terminal: Open, broker: str) -> None:
    sub = open_terminal("sub", "--broker", broker, "TRUE")
    sub.sees("subscribed to")

    end_by_ctrl_c(sub, 0)


def test_of_a_broker_is_its_usual_end(open_terminal: Open) -> None:
    broker = open_terminal("broker", "--name", "b1")
    broker.sees("is ready at")

    end_by_ctrl_c(broker, 0)


@pytest.mark.parametrize("command", ["run", "events", "chaos"])
def test_in_the_middle_of_a_run(command: str, open_terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text(f"{SCENARIO}Wait 3600000\n")
    if command == "chaos":
        terminal = open_terminal("chaos", "--brokers", 3, "--repeat", 1000)
        terminal.sees("seed 0")
    else:
        terminal = open_terminal("run", "x.conf", "--out", "out", "--watch")
        terminal.sees("nyse#3")
    if command == "events":
        terminal = open_terminal("events", "out")
        terminal.sees("SubEvent")

    end_by_ctrl_c(terminal)


@pytest.mark.parametrize("moment", [0, 0.2, 1], ids=lambda seconds: f"after {seconds} s")
def test_in_the_middle_of_a_sweep(moment: float, open_terminal: Open) -> None:
    """At any moment: while its workers are being started, and when they are at work."""
    sweep = open_terminal("simulate", "--seeds", "0:1000000", "--jobs", 3)
    for _ in attempts("workers"):
        if len(sweep.processes()) > 1:
            break
    with pytest.raises(subprocess.TimeoutExpired):
        sweep.process.wait(moment)

    end_by_ctrl_c(sweep)


def test_progress_has_a_rate_and_says_how_long_it_takes(open_terminal: Open) -> None:
    sweep = open_terminal("simulate", "--seeds", "0:1000000", "--jobs", 2)
    sweep.sees(" of 1,000,000 runs, 0 failed, ")
    sweep.sees(" a second, ")
    sweep.sees(" left")

    end_by_ctrl_c(sweep)


@pytest.mark.parametrize("seconds", [0.2, 2])
def test_in_the_middle_of_a_measurement(seconds: float, open_terminal: Open) -> None:
    bench = open_terminal("bench", "match", "--subscriptions", 10_000_000)
    with pytest.raises(subprocess.TimeoutExpired):
        bench.process.wait(seconds)

    end_by_ctrl_c(bench)


def test_in_the_middle_of_a_measurement_with_processes(open_terminal: Open) -> None:
    bench = open_terminal("bench", "overlay")
    for _ in attempts("the processes of the overlay"):
        if len(bench.processes()) > 2:
            break

    end_by_ctrl_c(bench)


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["Spark starts", "Spark works"])
def test_in_the_middle_of_an_audit(moment: str, open_terminal: Open, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result = CliRunner().invoke(cli, ["simulate", "--seeds", "0:20", "--out", str(runs)])
    assert result.exit_code == 0
    audit = open_terminal("audit", "runs")
    audit.sees("starts Spark" if moment == "Spark starts" else "judges 20 runs")
    if moment == "Spark starts":
        for _ in attempts("Java"):
            if len(audit.processes()) > 1:
                break

    end_by_ctrl_c(audit)


INTERRUPTED_IMPORT = """\
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ["INTERRUPTED"]:
            signal.raise_signal(signal.SIGINT)

from plait.scripts.__main__ import main
sys.meta_path.insert(0, Interrupting())
sys.argv[:] = ["plait", "check", "no-such-file"]
main()
"""


@pytest.mark.parametrize("module", ["plait.scripts.main", "click", "plait.scripts.commands.check"])
def test_while_something_is_imported(module: str) -> None:
    result = finished(
        [sys.executable, "-c", INTERRUPTED_IMPORT],
        env=os.environ | {"INTERRUPTED": module, "PYTHONPATH": str(ROOT)},
    )

    assert (result.returncode, result.stderr) == (INTERRUPTED, "plait: interrupted\n")


def test_in_a_finalizer_it_is_not_lost() -> None:
    program = """\
import signal
from plait.scripts.interrupts import end_at_once_when_interrupted, interrupts_raised

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

end_at_once_when_interrupted()
try:
    with interrupts_raised():
        Finalized()
        while True:
            pass
except KeyboardInterrupt:
    print("interrupted")
"""
    result = finished(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )

    assert (result.stdout, result.stderr) == ("interrupted\n", "")
