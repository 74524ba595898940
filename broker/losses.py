"""Publications that a broker gives up on: they are named in its history, counted, and explained.

Up to δ failures there are none but for clients that stay away, or read nothing, for too long.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from plait.broker.messages import Publish
from plait.broker.outbox import Outbox
from plait.routing.ids import NodeId


class Losses:
    """What one broker gave up on."""

    def __init__(self, outbox: Outbox, *, most: int) -> None:
        """Begin with nothing; of what comes, the last occasions are explained."""
        self._outbox = outbox
        self._occasions: deque[dict[str, Any]] = deque(maxlen=most)
        self.count = 0

    def give_up(self, lost: Sequence[Publish], subscriber: NodeId | None, reason: str) -> None:
        """Send these to a subscriber no more, or, without one, to anybody beyond this broker."""
        for publication in lost:
            self._outbox.record(
                "skipped",
                publisher=publication.publisher,
                publisher_incarnation=publication.incarnation,
                seq=publication.seq,
                subscriber=subscriber,
                reason=reason,
            )
        if lost:
            self.count += len(lost)
            self._occasions.append(
                {
                    "count": len(lost),
                    "last": {"publisher": lost[-1].publisher, "number": lost[-1].seq},
                    "subscriber": subscriber,
                    "reason": reason,
                }
            )

    def describe(self) -> list[dict[str, Any]]:
        """What was given up of late, and why, as JSON."""
        return list(self._occasions)


def describe_loss(loss: Mapping[str, Any]) -> str:
    """One of these, in words."""
    last = f"{loss['last']['publisher']}:{loss['last']['number']}"
    what = last if loss["count"] == 1 else f"{loss['count']} publications, {last} the last,"
    return f"skipped {what} for {loss['subscriber'] or 'all beyond'}: {loss['reason']}"
