"""A command on a terminal of its own, as a person sits in front of it."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.patience import PATIENCE_S, attempts
from tests.processes import PLAIT

CTRL_C = "\x03"
CTRL_D = "\x04"
ROOT = Path(__file__).parents[1]


class Terminal:
    """A session with a command in the foreground; the terminal sends Ctrl-C to all of its group."""

    def __init__(
        self, command: Sequence[object], *, folder: Path, size: tuple[int, int], term: str
    ) -> None:
        self._terminal, slave = pty.openpty()
        columns, lines = size
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment
            | {"HOME": str(folder), "XDG_STATE_HOME": "", "TERM": term, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._unread = ""
        self.seen = ""
        """All that has ever been shown, without colours."""

    def _read(self) -> bool:
        """Take what is shown next; false if nobody is left to show anything."""
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE_S)
        assert ready, f"more expected, {self._unread!r} seen"
        try:
            data = os.read(self._terminal, 4096)
        except OSError:  # how Linux says that nobody is at the other end any more
            return False
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        self._unread += text
        self.seen += text
        return True

    def sees(self, text: str) -> str:
        """Wait for a text to appear; return everything up to it."""
        while text not in self._unread:
            assert self._read(), f"{text!r} expected, {self._unread!r} seen"
        before, _, self._unread = self._unread.partition(text)
        return before

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ends(self) -> int:
        """Wait for the command to end by itself; return its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def wait_until_nobody_reads_lines(self) -> None:
        """Wait until Ctrl-C is a signal: at a prompt it is a character like others."""
        for _ in attempts("the end of a prompt"):
            if termios.tcgetattr(self._terminal)[6][termios.VINTR] == CTRL_C.encode():
                return

    def processes(self) -> set[int]:
        """Whoever was started here, in whatever group, and is still there."""
        alive = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    state, _, _, session = _stat(entry)
                    if int(session) == self.process.pid and state != "Z":
                        alive.add(int(entry.name))
        return alive

    def wait_until_deserted(self) -> None:
        """Fail if somebody stays."""
        for _ in attempts(f"the end of all processes of {self.process.args!r}"):
            if not self.processes():
                return

    def close(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)


def _stat(process: Path) -> tuple[str, str, str, str]:
    state, parent, group, session = (
        (process / "stat").read_text().rpartition(")")[2].split(maxsplit=4)[:4]
    )
    return state, parent, group, session


Open = Callable[..., Terminal]


@contextlib.contextmanager
def terminals(folder: Path) -> Iterator[Open]:
    """Open terminals within the block, each for `plait` with some arguments."""
    opened: list[Terminal] = []

    def open_terminal(
        *arguments: object,
        command: Sequence[object] = PLAIT,
        size: tuple[int, int] = (80, 24),
        term: str = "xterm",
    ) -> Terminal:
        opened.append(Terminal([*command, *arguments], folder=folder, size=size, term=term))
        return opened[-1]

    try:
        yield open_terminal
    finally:
        for terminal in opened:
            terminal.close()
