"""The prompt of `plait up`: lines from a person or from a pipe, with history and completion."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import trio

PROMPT: Final = "plait> "
HISTORY_LINES: Final = 1000


Complete = Callable[[Sequence[str], str], Sequence[str]]
"""Takes the words before the cursor and the beginning of one; returns how that may go on."""


class Console:
    """Reads lines without holding up what runs beside it, and prints around the prompt."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._is_reading = False

    async def read_line(self) -> str | None:
        """Return the next line; `None` at the end, which a person types as Ctrl-D."""
        self._is_reading = True
        try:
            # Left behind on Ctrl-C: nobody can wake a thread that waits for the keyboard.
            return await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        finally:
            self._is_reading = False

    def _read(self) -> str | None:
        if not self._is_terminal:
            return sys.stdin.readline() or None
        try:
            return input(PROMPT)
        except EOFError:
            print()
            return None

    def print(self, line: str) -> None:
        """Print a line; what a person is typing moves down."""
        if not (self._is_terminal and self._is_reading):
            click.echo(line)
            return
        import readline

        click.echo(f"\r\033[K{line}\n{PROMPT}{readline.get_line_buffer()}", nl=False)

    @contextlib.contextmanager
    def editing(self, complete: Complete) -> Iterator[None]:
        """On a terminal, lines can be edited, recalled and completed within the block."""
        if not self._is_terminal:
            yield
            return
        import readline
        import termios

        def complete_with_state(beginning: str, state: int) -> str | None:
            before = readline.get_line_buffer()[: readline.get_begidx()].split()
            words = complete(before, beginning)
            return f"{words[state]} " if state < len(words) else None

        readline.set_completer(complete_with_state)
        readline.set_completer_delims(" \t")
        readline.parse_and_bind("tab: complete")
        history = _history_path()
        with contextlib.suppress(OSError):
            readline.read_history_file(history)
        terminal = termios.tcgetattr(sys.stdin)
        try:
            yield
        except BaseException:
            # Ctrl-C leaves the reading thread in the middle of a line, and the terminal raw.
            print()
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, terminal)
            raise
        finally:
            readline.set_history_length(HISTORY_LINES)
            with contextlib.suppress(OSError):
                history.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(history)


def _history_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "plait" / "up.history"
