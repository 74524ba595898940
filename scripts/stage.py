"""Where a script is performed: on processes over TCP, or in virtual time."""

import math
from collections.abc import Iterator
from typing import Final, Protocol

import attrs

from plait.routing.patterns.detection import Detection
from plait.routing.values import Content
from plait.scripts.happenings import Stable, Unsettled
from plait.scripts.status_reports import Report

DISTURBED_PATIENCE_S: Final = 0.5
"""For a confirmation while a process is frozen or has crashed: it may be the one to give it."""


@attrs.define
class Faults:
    """Which processes of a stage do not do their work."""

    crashed: set[str] = attrs.field(factory=set)
    frozen: dict[str, None] = attrs.field(factory=dict)
    """In the order in which they were frozen."""
    have_been: bool = False
    """Whether there were any, even if all is well again."""

    def crash(self, process: str) -> None:
        """Note that a process has crashed."""
        self.have_been = True
        self.crashed.add(process)
        self.frozen.pop(process, None)

    def freeze(self, process: str) -> None:
        """Note that a process is frozen."""
        self.have_been = True
        self.frozen[process] = None

    def state_of(self, process: str) -> str:
        """What keeps a process from doing its work; nothing if that is empty."""
        if process in self.crashed:
            return "crashed"
        return "frozen" if process in self.frozen else ""

    @property
    def patience_s(self) -> float:
        """How long a script waits for a confirmation before it goes on without it."""
        return DISTURBED_PATIENCE_S if self.crashed or self.frozen else math.inf


class Stage(Protocol):
    """A running overlay with its clients, by their names.

    Every call returns when what it asks for is confirmed, so that commands that follow each other
    take effect in that order. While a process is frozen or has crashed that may be never, or not
    before a later command, so a call then returns after `Faults.patience_s` all the same; each
    client still does what it is told in the order in which it is told. Filters are SQL text.
    """

    faults: Faults

    async def advertise(self, publisher: str, filter_text: str) -> None:
        """Let a publisher advertise."""

    async def subscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber subscribe."""

    async def unsubscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber end its latest subscription with this filter; none is none."""

    async def detect(self, subscriber: str, detection: Detection) -> None:
        """Let a subscriber look for a pattern, until it leaves."""

    async def begin_stream(
        self, publisher: str, contents: Iterator[Content], interval_s: float
    ) -> None:
        """Let a publisher publish one of these now, and the others by and by, on the side."""

    async def crash(self, process: str) -> None:
        """End a process as `kill -9` does."""

    async def recover(self, process: str) -> None:
        """Start a process that crashed once more, under its name."""

    async def freeze(self, process: str) -> None:
        """Let a process do nothing until it is told to go on."""

    async def unfreeze(self, process: str) -> None:
        """Let a frozen process go on with what has arrived meanwhile."""

    async def pass_time(self, seconds: float) -> None:
        """Do nothing for so long."""

    async def settle(self) -> Stable | Unsettled:
        """Wait until all streams have ended and nothing is in flight.

        Without faults that is a promise, and `GuaranteeViolatedError` says that it was broken.
        With faults it may be too much to ask for, and the wait ends when nothing more happens.
        """

    async def status(self) -> list[Report]:
        """Ask every broker and every client how it is."""
