"""When is a publication safe everywhere? Stability, carried by two counters per link.

A publication is *stable* when every node that had to settle it has done so. Until then every node
on its way keeps it: that is what recovery after a crash works from. Confirmations flow up from the
leaves to the *summit*, the highest broker a publication visits; the summit declares it stable, and
that flows down again to the publisher's client, which reports it confirmed.

Nothing of this is a message per publication. On every link the publications of each direction form
a *stream* whose order both ends know, because links are FIFO; so a single number, how many from its
beginning, says which publications are meant. The node below counts what its side has confirmed, the
node above what is stable. A publication therefore waits for those before it in the same stream;
that costs nothing in the long run and keeps the message at two integers.

    leaf ──confirmed──▶ broker ──confirmed──▶ summit
    leaf ◀──stable───── broker ◀──stable───── summit

"""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

Item = TypeVar("Item")
Entry = TypeVar("Entry", bound="Unstable[Any]")


@attrs.define(eq=False)
class Unstable(Generic[Item]):
    """One publication at one node, from its arrival until it is stable."""

    publication: Item
    missing: int = 0
    """Confirmations still to come from below, with one for this node until it has settled it."""
    stable: bool = False


class CountError(ValueError):
    """A neighbour counted what was never exchanged, or counted backwards."""


class _Stream(Generic[Entry]):
    """One direction of a link: what is not confirmed, then confirmed, then stable."""

    __slots__ = ("append", "confirmed", "stable_count", "unconfirmed")

    def __init__(self) -> None:
        """Begin a stream with nothing exchanged."""
        self.stable_count = 0
        self.confirmed: list[Entry] = []
        self.unconfirmed: list[Entry] = []
        # Takes note of a publication that has just been exchanged. The list's own method, because
        # a broker calls it for every receiver of every publication.
        self.append: Callable[[Entry], None] = self.unconfirmed.append

    @property
    def confirmed_count(self) -> int:
        """How many from the beginning lack nothing below."""
        return self.stable_count + len(self.confirmed)

    @property
    def count(self) -> int:
        """How many have been exchanged."""
        return self.stable_count + len(self.confirmed) + len(self.unconfirmed)

    def keep(self) -> list[Entry]:
        """What is not stable yet, in the order of the stream."""
        return self.confirmed + self.unconfirmed


class StreamBelow(_Stream[Entry]):
    """One direction of a link to a node below: it confirms, we declare stable."""

    __slots__ = ()

    def append_confirmed(self, entry: Entry) -> None:
        """Take note of a publication that the node below confirms by sending it."""
        self.confirmed.append(entry)

    def confirm_up_to(self, count: int) -> list[Entry]:
        """The node below has confirmed the first `count`; returns those that lack nothing more."""
        advance = count - self.confirmed_count
        if not 0 <= advance <= len(self.unconfirmed):
            raise CountError(
                f"{count} publications confirmed, between {self.confirmed_count} and "
                f"{self.count} expected"
            )
        entries = self.unconfirmed[:advance]
        del self.unconfirmed[:advance]
        self.confirmed += entries
        complete = []
        for entry in entries:
            entry.missing -= 1
            if not entry.missing:
                complete.append(entry)
        return complete

    def advance_stable(self) -> None:
        """Move the stable counter over what has become stable."""
        advance = 0
        for entry in self.confirmed:
            if not entry.stable:
                break
            advance += 1
        del self.confirmed[:advance]
        self.stable_count += advance


class StreamAbove(_Stream[Entry]):
    """One direction of a link to the node above: we confirm, it declares stable."""

    __slots__ = ()

    def advance_confirmed(self) -> None:
        """Move the confirmed counter over what lacks nothing below."""
        advance = 0
        for entry in self.unconfirmed:
            if entry.missing > 0:  # what is over may be confirmed once more
                break
            advance += 1
        self.confirmed += self.unconfirmed[:advance]
        del self.unconfirmed[:advance]

    def stable_up_to(self, count: int) -> list[Entry]:
        """The node above has declared the first `count` stable; returns the new ones."""
        entries = _taken_up_to(count, self.stable_count, self.confirmed)
        self.stable_count = count
        for entry in entries:
            entry.stable = True
        return entries


class Lag:
    """For how long the first publication of a stream that is not confirmed has been on its way.

    Nothing is done per publication: whoever looks every now and then, finds out between which two
    looks each was sent. A confirmation now and then does not help who falls behind all the same.
    """

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        """Begin with nothing on its way."""
        self._looks: deque[tuple[int, float]] = deque()
        """How many had been sent, and when that was seen first; not what is confirmed."""

    def look(self, sent: int, confirmed: int, now: float) -> float:
        """Take note of how many have been sent and confirmed; returns the lag, in seconds."""
        looks = self._looks
        while looks and (looks[0][0] <= confirmed or looks[-1][0] > sent):
            looks.popleft()
        if sent > (looks[-1][0] if looks else confirmed):
            looks.append((sent, now))
        return now - looks[0][1] if looks else 0.0


class LeafStream(Generic[Item]):
    """One direction of a client's link: a leaf has nobody below to wait for."""

    __slots__ = ("append", "kept", "stable_count")

    def __init__(self) -> None:
        """Begin a stream with nothing exchanged."""
        self.stable_count = 0
        self.kept: list[Item] = []
        self.append: Callable[[Item], None] = self.kept.append

    @property
    def count(self) -> int:
        """How many have been exchanged; to the broker, as many are confirmed."""
        return self.stable_count + len(self.kept)

    def stable_up_to(self, count: int) -> list[Item]:
        """The broker has declared the first `count` stable; returns the new ones."""
        items = _taken_up_to(count, self.stable_count, self.kept)
        self.stable_count = count
        return items


def _taken_up_to(count: int, taken: int, waiting: list[Item]) -> list[Item]:
    """Take from the front of a list what a counter that has come to `count` stands for."""
    advance = count - taken
    if not 0 <= advance <= len(waiting):
        raise CountError(
            f"{count} publications stable, between {taken} and {taken + len(waiting)} expected"
        )
    items = waiting[:advance]
    del waiting[:advance]
    return items
