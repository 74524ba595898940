"""The prompt of `plait up` as a person meets it: on a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

PATIENCE_S = 30.0
SCENARIO = """\
Site here Parent none
Process b1 Is broker On here
Process alice Is subscriber On here
Process nyse Is publisher On here
"""


class Person:
    """Sits at a terminal on which `plait up` runs."""

    def __init__(self, folder: Path) -> None:
        (folder / "x.conf").write_text(SCENARIO)
        self._terminal, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.main", "up", "x.conf", "--out", "out"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=os.environ | {"HOME": str(folder), "XDG_STATE_HOME": "", "TERM": "xterm"},
        )
        os.close(slave)
        self._unread = ""

    def sees(self, text: str) -> str:
        """Wait for a text to appear; return everything up to it, without colours."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._unread:
            ready, _, _ = select.select([self._terminal], [], [], deadline - time.monotonic())
            assert ready, f"{text!r} expected, {self._unread!r} seen"
            try:
                data = os.read(self._terminal, 4096)
            except OSError:  # how Linux says that nobody is at the other end any more
                raise AssertionError(f"{text!r} expected, {self._unread!r} seen") from None
            self._unread += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode())
        before, _, self._unread = self._unread.partition(text)
        return before

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def leaves(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path)
    yield person
    person.leaves()


def test_words_are_completed_and_lines_remembered(person: Person, tmp_path: Path) -> None:
    person.sees("plait> ")
    person.types("subs\ta\tS\t/a\n")
    person.sees("alice         subscribed    topic = '/a'")
    person.sees("plait> ")
    person.types("Pub\tn\tP\t2 On\t/a Int\t1\n")
    person.sees("alice         received      nyse#2 topic=/a")
    person.types("\x04")
    person.sees("1 brokers have ended, nothing is left")

    assert person.process.wait(PATIENCE_S) == 0
    history = (tmp_path / ".local" / "state" / "plait" / "up.history").read_text()
    assert history.splitlines() == [
        "Subscriber alice Subscribe /a",
        "Publisher nyse Publish 2 Ontopic /a Interval 1",
    ]


def test_what_happens_does_not_spoil_what_is_being_typed(person: Person) -> None:
    person.sees("plait> ")
    person.types("Subscriber alice Subscribe /a\n")
    person.sees("plait> ")
    person.types("Publisher nyse Publish 2 Ontopic /a Interval 500\n")
    person.sees("nyse#1 topic=/a")
    person.types("Stat")
    person.sees("nyse#2 topic=/a\r\nplait> Stat")
    person.types("us\n")
    person.sees("b1            operational")


def test_ctrl_c_in_the_middle_of_a_line_ends_everything(person: Person) -> None:
    brokers = person.sees("plait> ")
    pid = int(re.findall(r"process (\d+)", brokers)[0])
    person.types("half a li")
    person.sees("half a li")
    person.process.send_signal(signal.SIGINT)
    person.sees("plait: interrupted")

    assert person.process.wait(PATIENCE_S) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
