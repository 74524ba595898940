"""A broker that is fenced comes back; fenced again and again, it waits longer each time.

Whoever fences it may be wrong, or not what it says it is; but to come back at once every time would
re-form the tree around it as often.
"""

import math
from typing import Any, Final

import attrs

from plait.broker.limits import Limits


@attrs.frozen
class Fences:
    """What has become of the lives of one broker, of late."""

    count: int = 0
    """How many of them, one soon after the other, have been fenced."""
    reason: str = ""
    """Of the last."""
    at: float = -math.inf

    def once_more(self, now: float, reason: str, limits: Limits) -> "Fences":
        """Fenced again now, or for the first time in a long while."""
        is_soon = now - self.at <= limits.fence_memory_s
        return Fences(self.count + 1 if is_soon else 1, reason, now)

    def pause_s(self, limits: Limits) -> float:
        """How long to wait before coming back: after the first time, not at all."""
        if self.count < 2:
            return 0.0
        doublings = min(self.count - 2, 64)
        return min(limits.fence_pause_first_s * (1 << doublings), limits.fence_pause_last_s)

    def describe(self) -> dict[str, Any]:
        """How often, and why, as JSON."""
        return {"count": self.count, "reason": self.reason}


NEVER_FENCED: Final = Fences()
