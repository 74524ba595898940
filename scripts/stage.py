"""Where a script is performed: on processes over TCP, or in virtual time."""

from collections.abc import Iterator
from typing import Protocol

from routing.values import Content
from scripts.happenings import Stable
from scripts.status_reports import StatusReport, Unreachable


class Stage(Protocol):
    """A running overlay with its clients, by their names.

    Every call returns when what it asks for is confirmed, so that commands that follow each other
    take effect in that order. Filters are SQL text.
    """

    async def advertise(self, publisher: str, filter_text: str) -> None:
        """Let a publisher advertise."""

    async def subscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber subscribe."""

    async def unsubscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber end its latest subscription with this filter; none is none."""

    async def begin_stream(
        self, publisher: str, contents: Iterator[Content], interval_s: float
    ) -> None:
        """Let a publisher publish one of these now, and the others by and by, on the side."""

    async def pass_time(self, seconds: float) -> None:
        """Do nothing for so long."""

    async def settle(self) -> Stable:
        """Wait until all streams have ended and nothing is in flight."""

    async def status(self) -> list[StatusReport | Unreachable]:
        """Ask every broker how it is."""
