"""The prompt of `plait up`: lines from a person or from a pipe, with history and completion."""

import contextlib
import enum
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import trio

from plait.scripts.standard_input import standard_input_lines
from plait.scripts.terminal import is_terminal

PROMPT: Final = "plait> "
HISTORY_LINES: Final = 1000
CTRL_C: Final = "\x03"
"""At the end of a line that was given up."""


Complete = Callable[[Sequence[str], str], Sequence[str]]
"""Takes the words before the cursor and the beginning of one; returns how that may go on."""


class _Prompt(enum.Enum):
    """Whether the prompt is on the screen."""

    ABSENT = enum.auto()
    ON_ITS_WAY = enum.auto()
    SHOWN = enum.auto()


class Console:
    """Reads lines without holding up what runs beside it, and prints around the prompt."""

    def __init__(self) -> None:
        self.is_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
        self._lines = standard_input_lines()
        self._prompt = _Prompt.ABSENT
        self._unprinted: list[str] = []
        """Lines that came while the prompt was on its way."""

    async def read_line(self) -> str | None:
        """Return the next line; `None` at the end, which a person types as Ctrl-D.

        A line that a person gave up by Ctrl-C ends in `CTRL_C`.
        """
        if not self.is_terminal:
            return await anext(self._lines, None)
        self._prompt = _Prompt.ON_ITS_WAY
        try:
            # Left behind when a signal ends the session: nobody can wake a thread that waits for
            # the keyboard.
            return await trio.to_thread.run_sync(self._ask, abandon_on_cancel=True)
        finally:
            self._prompt = _Prompt.ABSENT
            self._print_the_unprinted()

    def _ask(self) -> str | None:
        try:
            with _ctrl_c_as_a_character():
                line = input(PROMPT)
        except EOFError:
            print()
            return None
        if line.endswith(CTRL_C):
            _forget_last_line()
        return line

    def print(self, line: str) -> None:
        """Print a line; what a person is typing moves down."""
        match self._prompt:
            case _Prompt.ABSENT:
                click.echo(line)
            case _Prompt.ON_ITS_WAY:
                self._unprinted.append(line)
            case _Prompt.SHOWN:
                import readline

                click.echo(f"\r\033[K{line}\n{PROMPT}{readline.get_line_buffer()}", nl=False)

    def _note_prompt(self) -> None:
        self._prompt = _Prompt.SHOWN
        self._print_the_unprinted()

    def _print_the_unprinted(self) -> None:
        while self._unprinted:
            self.print(self._unprinted.pop(0))

    @contextlib.contextmanager
    def editing(self, complete: Complete) -> Iterator[None]:
        """On a terminal, lines can be edited, recalled and completed within the block."""
        if not self.is_terminal:
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
        readline.set_pre_input_hook(self._note_prompt)
        readline.parse_and_bind("tab: complete")
        # The line ends with what was typed, as in a shell, and with the mark that it was given up.
        readline.parse_and_bind(r'"\C-c": "\C-v\C-c\C-m"')
        history = _history_path()
        with contextlib.suppress(OSError):
            readline.read_history_file(history)
        terminal = termios.tcgetattr(sys.stdin)
        try:
            yield
        finally:
            # A signal leaves the reading thread in the middle of a line, and the terminal raw.
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, terminal)
            readline.set_history_length(HISTORY_LINES)
            with contextlib.suppress(OSError):
                history.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(history)


@contextlib.contextmanager
def _ctrl_c_as_a_character() -> Iterator[None]:
    """While a line is typed, give Ctrl-C to readline: no thread but the first hears of signals."""
    import readline
    import termios

    if "libedit" in (readline.__doc__ or ""):
        yield  # it knows no such bindings; Ctrl-C ends the session there
        return
    before = termios.tcgetattr(sys.stdin)
    attributes = termios.tcgetattr(sys.stdin)
    attributes[6][termios.VINTR] = os.fpathconf(sys.stdin.fileno(), "PC_VDISABLE").to_bytes()
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _forget_last_line() -> None:
    import readline

    if length := readline.get_current_history_length():
        readline.remove_history_item(length - 1)


def _history_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "plait" / "up.history"
