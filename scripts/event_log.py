"""`events.log` of a run: commands as they are executed, and every publication on its way.

The puppet master and, with `LoggingLevel full`, the brokers append to the same file, a line at a
time. The puppet master keeps it locked while the run goes on; so who reads along learns that it is
over, however it ended.
"""

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

import click

from plait.broker.event_lines import event_line
from plait.broker.net.outlets import Outlet
from plait.faulttol.files import make_folder
from plait.scripts.errors import BadInputError
from plait.scripts.happenings import (
    CommandBegun,
    Delivered,
    Detected,
    Happening,
    PassedOver,
    Published,
    StatusTaken,
)
from plait.scripts.status_reports import in_words
from plait.topologies.script import format_command

NAME: Final = "events.log"
POLL_INTERVAL_S: Final = 0.05


class EventLog:
    """Writes what happens into the `events.log` of a run directory."""

    def __init__(self, directory: Path) -> None:
        make_folder(directory)
        self._path = directory / NAME
        self._outlet = Outlet.append_to(self._path)
        self._lost = 0
        fcntl.flock(self._outlet, fcntl.LOCK_EX)

    def __call__(self, happening: Happening) -> None:
        """Take notice."""
        match happening:
            case CommandBegun(command):
                self.write(f"{format_command(command)}\n")
            case PassedOver(command, reason):
                self.write(f"// not executed: {format_command(command)}: {reason}\n")
            case StatusTaken(reports):
                for report in reports:
                    who, state, what = in_words(report)
                    self.write(f"Status {who}: {state}, {what}\n")
            case Published(publisher, seq, content):
                self.write(event_line("PubEvent", publisher, publisher, content, seq))
            case Delivered(subscriber, publisher, seq, content):
                self.write(event_line("SubEvent", subscriber, publisher, content, seq))
            case Detected(subscriber):
                self.write(f"Match {subscriber}: {happening}\n")

    def write(self, line: str) -> None:
        """Append a line; what cannot be is counted, as it proves nothing."""
        if not self._outlet.write(line):
            self._lost += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outlet.close()
        if self._lost:
            reason = f"{self._lost} lines could not be written: {self._outlet.reason}"
            click.echo(f"plait: {self._path}: {reason}", err=True)


def read_events(directory: Path, *, follow: bool) -> Iterator[str]:
    """Yield the lines that there are; to `follow` is to wait for more until the run is over."""
    path = directory / NAME
    if not path.is_file():
        raise BadInputError(f"{directory} has no {NAME}: the directory of a run expected")
    with path.open("rb") as file:
        while True:
            # In this order: what is written before the end is read after it has been noticed.
            is_over = not follow or _is_over(file)
            yield from _whole_lines(file, is_over=is_over)
            if is_over:
                return
            time.sleep(POLL_INTERVAL_S)


def _is_over(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _whole_lines(file: BinaryIO, *, is_over: bool) -> Iterator[str]:
    """Yield what has come since the last time, but no half of a line that may still grow."""
    while line := file.readline():
        if not line.endswith(b"\n") and not is_over:
            file.seek(-len(line), 1)
            return
        yield line.decode(errors="replace").rstrip("\n")
