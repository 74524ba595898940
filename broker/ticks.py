"""The clocks of nodes, and when neighbours confirmed what was asked of them, by their own clocks.

Two who were told by one and the same broker can tell which came first, also when that has failed.
And a hub can tell within limits what on two other nodes came first, as all clocks are equally fast.
"""

from collections.abc import Iterable
from typing import Final

from faulttol.neighbourhood import Life

TICKS_MAX: Final = 1024
"""As `Limits.lately_changed_max`."""

LONG_AGO: Final = 1
"""Before anything that a clock has told."""


def tick_at(seconds: float) -> int:
    """What a clock shows at this time of its node: microseconds, and more than `LONG_AGO`."""
    return LONG_AGO + 1 + int(seconds * 1_000_000)


def translated(tick: int, *, told_at: int, here: int) -> int:
    """What a clock shows that shows `here`, if another one showed `told_at` when it showed this."""
    return LONG_AGO if tick == LONG_AGO else max(LONG_AGO, here - (told_at - tick))


class Clock:
    """Of a broker. It goes with the broker's time, and never shows the same twice."""

    def __init__(self) -> None:
        """Begin at time 0."""
        self.now = 0.0
        self._last = LONG_AGO

    def __next__(self) -> int:
        """The next tick."""
        self._last = max(self._last + 1, tick_at(self.now))
        return self._last


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
