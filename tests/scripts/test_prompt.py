"""The prompt of `plait up` as a person meets it: on a terminal."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import CTRL_C, CTRL_D, Terminal, terminals

pytestmark = pytest.mark.processes

SCENARIO = """\
Site here Parent none
Process b1 Is broker On here
Process alice Is subscriber On here
Process nyse Is publisher On here
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "x.conf").write_text(SCENARIO)
    with terminals(tmp_path) as open_terminal:
        yield open_terminal("up", "x.conf", "--out", "out")


def test_words_are_completed_and_lines_remembered(terminal: Terminal, tmp_path: Path) -> None:
    terminal.sees("plait> ")
    terminal.types("subs\ta\tS\t/a\n")
    terminal.sees("alice         subscribed    topic = '/a'")
    terminal.sees("plait> ")
    terminal.types("Pub\tn\tP\t2 On\t/a Int\t1\n")
    terminal.sees("alice         received      nyse#2 topic=/a")
    terminal.types(CTRL_D)
    terminal.sees("1 brokers have ended, nothing is left")

    assert terminal.ends() == 0
    history = (tmp_path / ".local" / "state" / "plait" / "up.history").read_text()
    assert history.splitlines() == [
        "Subscriber alice Subscribe /a",
        "Publisher nyse Publish 2 Ontopic /a Interval 1",
    ]


def test_what_happens_does_not_spoil_what_is_being_typed(terminal: Terminal) -> None:
    terminal.sees("plait> ")
    terminal.types("Subscriber alice Subscribe /a\n")
    terminal.sees("plait> ")
    terminal.types("Publisher nyse Publish 2 Ontopic /a Interval 500\n")
    terminal.sees("nyse#1 topic=/a")
    terminal.types("Stat")
    terminal.sees("nyse#2 topic=/a\r\nplait> Stat")
    terminal.types("us\n")
    terminal.sees("b1            operational")


def test_the_prompt_is_there_once_after_a_recovery(terminal: Terminal) -> None:
    terminal.sees("plait> ")
    for command in ("Crash b1", "Recover b1", "Status"):
        terminal.types(f"{command}\n")
        terminal.sees("plait> ")
    terminal.types("quit\n")
    terminal.ends()

    assert "plait> plait>" not in terminal.seen


def test_ctrl_c_gives_up_a_line_and_then_the_session_but_not_its_verdict(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.sees("plait> ")
    terminal.types("half a li")
    terminal.sees("half a li")
    terminal.types(CTRL_C)
    terminal.sees("Once more, or Ctrl-D, ends the session.")
    terminal.sees("plait> ")
    terminal.types("help\n")
    terminal.sees("Ctrl-C gives up a line")
    terminal.sees("plait> ")
    terminal.types(CTRL_C)
    terminal.sees("Once more, or Ctrl-D, ends the session.")
    terminal.sees("plait> ")
    terminal.types(CTRL_C)
    terminal.sees("there was nothing to judge")

    assert terminal.ends() == 0
    assert not terminal.processes()
    history = (tmp_path / ".local" / "state" / "plait" / "up.history").read_text()
    assert history.splitlines() == ["help"]


def test_ctrl_c_ends_a_command_and_not_the_session(terminal: Terminal) -> None:
    terminal.sees("plait> ")
    terminal.types("Wait 3600000\n")
    terminal.sees("Wait 3600000\r\n")
    terminal.wait_until_nobody_reads_lines()
    terminal.types(CTRL_C)
    terminal.sees("plait> ")
    terminal.types("Status\n")
    terminal.sees("b1            operational")
    terminal.sees("plait> ")
    terminal.types(CTRL_D)
    terminal.sees("there was nothing to judge")

    assert terminal.ends() == 0


def test_a_signal_from_elsewhere_ends_the_session_with_its_verdict(terminal: Terminal) -> None:
    terminal.sees("plait> ")
    terminal.types("half a li")
    terminal.sees("half a li")
    terminal.process.send_signal(signal.SIGINT)
    terminal.sees("there was nothing to judge")

    assert terminal.ends() == 0
    assert not terminal.processes()


def test_ctrl_c_while_all_comes_to_its_end_leaves_no_broker(terminal: Terminal) -> None:
    brokers = terminal.sees("plait> ")
    terminal.types("Publisher nyse Publish 1000 Ontopic /a Interval 60000\n")
    terminal.sees("#1 topic=/a")
    terminal.types("quit\n")
    terminal.sees("Waits until everything is stable")
    terminal.types(CTRL_C)
    terminal.sees("plait: interrupted")

    assert terminal.ends() == 130
    assert re.findall(r"process (\d+)", brokers)
    assert not terminal.processes()
