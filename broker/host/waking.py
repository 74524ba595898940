"""The time of a host: it goes on only while the host does, so no wait goes on in its sleep.

A process may be stopped, a machine suspended, a clock set forward. What passes meanwhile nobody
else had to answer, nor this host to hear it. A host notices by its ticks: the next one is due some
time from now, and no more than that has passed when it comes, whatever the clock says. So whoever
is found to be silent has been so while this host has listened.
"""

import math


class WakingTime:
    """Made from the time that the clock of this machine shows."""

    def __init__(self) -> None:
        """Show what the clock does, until a tick is late."""
        self._slept = 0.0
        self._due = math.inf

    def at(self, clock: float) -> float:
        """How much has passed by now."""
        time = clock - self._slept
        if time <= self._due:
            return time
        self._slept = clock - self._due
        return self._due

    def expect(self, due: float) -> None:
        """The next tick is due then: until it has come, no more passes."""
        self._due = due

    def when(self, time: float) -> float:
        """What the clock is going to show at a time, unless this host sleeps before."""
        clock = time + self._slept
        while clock - self._slept < time:
            clock = math.nextafter(clock, math.inf)
        return clock
