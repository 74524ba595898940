"""Standard input, output and error, in whatever state the caller has left them.

What is closed is as if it were /dev/null: who closes it wants nothing of it, and its number must
not become that of a socket. Standard output that fails is an error with a name. Standard error is
for those who watch: what it does not take is dropped, and ends nothing.
"""

import contextlib
import io
import os
import sys
from typing import IO, Final, TextIO

import click

STANDARD_OUTPUT: Final = "standard output"
"""Its name, in errors."""
_STDIN, _STDOUT, _STDERR = range(3)


def prepare_standard_streams() -> None:
    """Make the three of them usable; the first thing that a command does."""
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free is this one: those below are open by now.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(_STDIN, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout = _text(_Named(_STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Dropping(_STDERR, "w", closefd=False), sys.stderr)


class _Named(io.FileIO):
    """Standard output, whose errors say so."""

    def write(self, data: "io.ReadableBuffer") -> int:  # type: ignore[name-defined]
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from error


class _Dropping(io.FileIO):
    """Standard error, which may be lost."""

    def write(self, data: "io.ReadableBuffer") -> int:  # type: ignore[name-defined]
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """Return a stream like the one that was there before."""
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def say(line: str) -> None:
    """Print a line that somebody may have wanted; nothing depends on that."""
    try:
        click.echo(line)
    except OSError:
        give_up_standard_output()


def give_up_standard_output() -> None:
    """Print nothing more, not even what is buffered: Python would complain again at its end."""
    stream: IO[str] = sys.stdout
    with contextlib.suppress(OSError):  # a test's, which has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
