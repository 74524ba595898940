"""What is counted of a broker: for metrics, and by the clock of whoever plays it.

No decision depends on it, so it is no part of what is rebuilt: a host counts what happens while it
plays a broker, and for all that it plays together.
"""

from collections.abc import Callable
from typing import Final

import attrs

from plait.broker.holding import HoldTimes

LATENCIES_MAX: Final = 10_000
"""So many are kept until somebody asks for them."""


def _no_clock() -> float:
    return 0.0


@attrs.define(eq=False)
class Counters:
    """What has been counted since its host started."""

    clock: Callable[[], float] = _no_clock
    received: int = 0
    sent: int = 0
    matched: int = 0
    duplicate: int = 0
    """Publications that came with a batch that had been taken before."""
    stable: int = 0
    numbered: int = 0
    """Publications that were given a number on their topic."""
    unnumbered: int = 0
    """Those handed to a client without, as the topic's manager was on its way elsewhere."""
    routes_cached: int = 0
    routes_computed: int = 0
    operations_refused: int = 0
    hold_times: HoldTimes = attrs.field(factory=HoldTimes)
    _latencies: list[float] = attrs.field(factory=list, init=False)

    def note_confirmed(self, since: float) -> None:
        """An operation is confirmed everywhere, which came then."""
        if len(self._latencies) < LATENCIES_MAX:
            self._latencies.append(self.clock() - since)

    def take_latencies(self) -> list[float]:
        """How long operations took that were confirmed since the last call, in seconds."""
        taken, self._latencies = self._latencies, []
        return taken
