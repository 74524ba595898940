"""The clock of one machine: made from the time of the world, and not to be trusted by others."""

import math


class Clock:
    """Runs at a rate of its own, can be set forward, and stands still while its machine is paused.

    It never goes back, as no monotonic clock does.
    """

    def __init__(self, *, rate: float = 1.0, offset: float = 0.0) -> None:
        """Show `offset` at time 0 of the world."""
        self._rate = rate
        self._since = 0.0
        self._shown_then = offset
        self._latest = offset
        self._is_stopped = False

    def at(self, time: float) -> float:
        """What it shows at a time of the world that is not before the one last asked for."""
        if not self._is_stopped:
            self._latest = max(self._latest, self._shown_then + (time - self._since) * self._rate)
        return self._latest

    def when(self, shown: float) -> float:
        """Return at which time of the world it will show this, unless it is set in between."""
        if self._is_stopped:
            return math.inf
        return self._since + (shown - self._shown_then) / self._rate

    def reach(self, shown: float) -> None:
        """Show this, at least: what `when` returned may be short of it by a rounding error."""
        self._latest = max(self._latest, shown)

    def jump(self, time: float, seconds: float) -> None:
        """Go forward all at once."""
        self._begin_anew(time, self.at(time) + seconds)

    def stop(self, time: float) -> None:
        """Stand still from now on."""
        self._begin_anew(time, self.at(time))
        self._is_stopped = True

    def go_on(self, time: float) -> None:
        """Go on from what it shows."""
        self._is_stopped = False
        self._begin_anew(time, self._latest)

    def _begin_anew(self, time: float, shown: float) -> None:
        self._since, self._shown_then, self._latest = time, shown, shown
