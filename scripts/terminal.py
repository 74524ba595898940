"""Whether a person is at the other end, and what that person's screen can show."""

import os
import shutil
import sys
from typing import Final, TextIO

import click

DUMB: Final = ("dumb", "unknown")
"""Values of TERM of what shows text, and knows no colours and no moving about."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; one that was closed before we began is `None`."""
    return stream is not None and not stream.closed and stream.isatty()


def is_screen(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal on which lines can be drawn anew."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in DUMB


def width() -> int:
    """How many characters a line of the terminal has."""
    return shutil.get_terminal_size().columns


def redraw_line(text: str) -> None:
    """Show a line of standard error instead of the last one, if that is a screen."""
    if is_screen(sys.stderr):
        click.echo(f"\r\033[K{text[: width() - 1]}", nl=False, err=True)
