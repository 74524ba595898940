"""How much a client may have published that is not confirmed yet, and what then.

A publication is confirmed when everybody who is owed it has it, so the slowest of its subscribers
decides how long that takes. While all keep up, a window of unconfirmed publications is what adapts
a publisher to the overlay: full, it waits for confirmations. But somebody who reads nothing must
not stop it: however slow others are, a publisher goes on at a lowest rate, far enough beyond its
window for the time it takes a broker to find out and to isolate whoever is slow.
"""

import math
from collections import deque

import attrs

from plait.broker.limits import Limits


@attrs.define(eq=False)
class Window:
    """The bodies of one client's publications that are not confirmed, the oldest first."""

    _limits: Limits
    _sizes: deque[int] = attrs.field(factory=deque, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _paid_until: float = attrs.field(default=-math.inf, init=False)
    """When what was published beyond the window is worth its time, at the lowest rate."""

    @property
    def has_room(self) -> bool:
        """Whether one may publish at any rate."""
        limits = self._limits
        return (
            len(self._sizes) < limits.publish_window and self._bytes < limits.publish_window_bytes
        )

    @property
    def opens_at(self) -> float:
        """From when on one may publish all the same; never, before something is confirmed."""
        limits = self._limits
        if (
            len(self._sizes) < limits.publish_window_max
            and self._bytes < limits.publish_window_bytes_max
        ):
            return self._paid_until
        return math.inf

    def lets_in(self, now: float) -> bool:
        """Whether one may publish now."""
        return self.has_room or now >= self.opens_at

    def add(self, size: int, now: float) -> None:
        """A publication with a body of this many bytes has been handed over."""
        if not self.has_room:
            limits = self._limits
            burst_s = (limits.publish_burst - 1) / limits.publish_rate_min
            takes_s = max(1 / limits.publish_rate_min, size / limits.publish_bytes_rate_min)
            self._paid_until = max(self._paid_until, now - burst_s) + takes_s
        self._sizes.append(size)
        self._bytes += size

    def confirm(self, count: int) -> None:
        """So many more are confirmed, the oldest of them."""
        for _ in range(count):
            self._bytes -= self._sizes.popleft()
