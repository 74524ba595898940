"""What a subscriber waits for, for a while, where publications are stamped and come as they do.

Under `tno-tagged` nobody waits: what comes elsewhere than its stamp says is tagged. A client that
has asked for that (`late="wait"`) keeps what has come too early until all has been handled that its
stamp names, and the publication before it on its topic: then less is tagged, and all takes longer
(section 5 of the technical report). It goes on at the latest when so many others wait, or when it
has waited for so long. What was handed on counts as handled, tagged or not; or else one that is
tagged would leave a gap behind which everything else waited.
"""

from collections.abc import Collection

import attrs

from plait.broker.messages import Publish
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import Numbers, Topic, raised


@attrs.frozen(kw_only=True)
class Patience:
    """How much a subscriber waits for what is in order."""

    most: int = 64
    """So many publications wait at a time."""
    seconds: float = 1.0
    """And for so long."""


@attrs.frozen
class Early:
    """A publication that has come, and may have come too early."""

    publication: Publish
    topic: Topic
    stamp: Position
    until: float


class Waiting:
    """What waits at one client."""

    def __init__(self) -> None:
        """Begin with nothing, and without patience."""
        self.patience: Patience | None = None
        self._early: list[Early] = []
        self._handled: dict[Topic, int] = {}

    @property
    def wake_at(self) -> float | None:
        """When something has waited for long enough."""
        return min((each.until for each in self._early), default=None)

    def begin(self, numbers: Numbers) -> None:
        """A subscription has begun, and what had been published by then is not waited for."""
        self._handled = raised(self._handled, numbers)

    def put(self, publication: Publish, topic: Topic, stamp: Position, now: float) -> None:
        """Take in a publication."""
        assert self.patience is not None
        until = now + self.patience.seconds
        self._early.append(Early(publication, topic, stamp, until))

    def take(self, topics: Collection[Topic], now: float) -> list[Early]:
        """What is to be handed on now, to somebody who gets these topics."""
        taken: list[Early] = []
        while (each := self._next(topics, now)) is not None:
            self._early.remove(each)
            number = {each.topic: each.stamp.number}
            self._handled = raised(self._handled, number)
            taken.append(each)
        return taken

    def _next(self, topics: Collection[Topic], now: float) -> Early | None:
        most = 0 if self.patience is None else self.patience.most
        for each in self._early:
            if self._is_ready(each, topics) or each.until <= now:
                return each
        return self._early[0] if len(self._early) > most else None

    def _is_ready(self, each: Early, topics: Collection[Topic]) -> bool:
        handled, stamp = self._handled, each.stamp
        return stamp.number <= handled.get(each.topic, 0) + 1 and all(
            handled.get(other, 0) >= number
            for other, number in stamp.behind.items()
            if other in topics
        )
