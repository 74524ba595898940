"""When neighbours confirmed what was asked of them, by their own clocks.

Two who were told by one and the same broker can tell which came first, also when that has failed.
"""

from collections.abc import Iterable
from typing import Final

from faulttol.neighbourhood import Life

TICKS_MAX: Final = 1024
"""As `Limits.lately_changed_max`."""


class Ticks:
    """Those of late; the others are older."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ticks: dict[tuple[Life, str], int] = {}

    def note(self, life: Life, name: str, tick: int) -> None:
        """Somebody has confirmed an advertisement or a subscription."""
        self._ticks[life, name] = tick
        if len(self._ticks) > TICKS_MAX:
            del self._ticks[next(iter(self._ticks))]

    def of(self, life: Life, names: Iterable[str]) -> tuple[int, ...]:
        """When that one confirmed these; 0 if that was long ago, or never was."""
        return tuple(self._ticks.get((life, name), 0) for name in names)
