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

The same counters bring a broken connection back without loss or duplicates: each end says how many
it has received, and the other sends the rest again.
"""

from collections import deque
from collections.abc import Iterator
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


class StreamBelow(Generic[Entry]):
    """One direction of a link to a node below: it confirms, we declare stable."""

    __slots__ = ("confirmed", "count", "stable_count", "unconfirmed")

    def __init__(self) -> None:
        """Begin a stream with nothing exchanged."""
        self.count = 0
        self.stable_count = 0
        self.unconfirmed: deque[Entry] = deque()
        self.confirmed: deque[Entry] = deque()

    def append(self, entry: Entry) -> None:
        """Take note of a publication that has just been exchanged."""
        self.count += 1
        self.unconfirmed.append(entry)

    def append_confirmed(self, entry: Entry) -> None:
        """Take note of a publication that the node below confirms by sending it."""
        self.count += 1
        self.confirmed.append(entry)

    @property
    def confirmed_count(self) -> int:
        """How many from the beginning the node below has confirmed."""
        return self.count - len(self.unconfirmed)

    def confirm_up_to(self, count: int) -> Iterator[Entry]:
        """The node below has confirmed the first `count`; yields those that lack nothing more."""
        unconfirmed = self.unconfirmed
        advance = count - self.count + len(unconfirmed)
        if not 0 <= advance <= len(unconfirmed):
            raise CountError(
                f"{count} publications confirmed, between {self.confirmed_count} and "
                f"{self.count} expected"
            )
        confirmed = self.confirmed
        for _ in range(advance):
            entry = unconfirmed.popleft()
            confirmed.append(entry)
            entry.missing -= 1
            if not entry.missing:
                yield entry

    def advance_stable(self) -> bool:
        """Move the stable counter over what has become stable; says whether it moved."""
        confirmed = self.confirmed
        if not (confirmed and confirmed[0].stable):
            return False
        while confirmed and confirmed[0].stable:
            confirmed.popleft()
            self.stable_count += 1
        return True


class StreamAbove(Generic[Entry]):
    """One direction of a link to the node above: we confirm, it declares stable."""

    __slots__ = ("confirmed", "confirmed_count", "count", "unconfirmed")

    def __init__(self) -> None:
        """Begin a stream with nothing exchanged."""
        self.count = 0
        self.confirmed_count = 0
        self.unconfirmed: deque[Entry] = deque()
        self.confirmed: deque[Entry] = deque()

    def append(self, entry: Entry) -> None:
        """Take note of a publication that has just been exchanged."""
        self.count += 1
        self.unconfirmed.append(entry)

    def append_confirmed(self, entry: Entry) -> None:
        """Take note of a publication that lacks nothing below: this node is a leaf."""
        self.count += 1
        self.confirmed_count += 1
        self.confirmed.append(entry)

    @property
    def stable_count(self) -> int:
        """How many from the beginning the node above has declared stable."""
        return self.count - len(self.unconfirmed) - len(self.confirmed)

    def advance_confirmed(self) -> bool:
        """Move the confirmed counter over what lacks nothing below; says whether it moved."""
        unconfirmed = self.unconfirmed
        if not unconfirmed or unconfirmed[0].missing:
            return False
        while unconfirmed and not unconfirmed[0].missing:
            self.confirmed.append(unconfirmed.popleft())
            self.confirmed_count += 1
        return True

    def stable_up_to(self, count: int) -> Iterator[Entry]:
        """The node above has declared the first `count` stable; yields the new ones."""
        confirmed = self.confirmed
        advance = count - self.stable_count
        if not 0 <= advance <= len(confirmed):
            raise CountError(
                f"{count} publications stable, between {self.stable_count} and "
                f"{self.stable_count + len(confirmed)} expected"
            )
        for _ in range(advance):
            entry = confirmed.popleft()
            entry.stable = True
            yield entry

    def keep(self) -> Iterator[Entry]:
        """What is not stable yet, in the order of the stream."""
        yield from self.confirmed
        yield from self.unconfirmed


def unreceived(stream: StreamBelow[Entry] | StreamAbove[Entry], received: int) -> list[Entry]:
    """What the other end has not received of the stream it says it got `received` of."""
    lost = stream.count - received
    if not 0 <= lost <= len(stream.unconfirmed) + len(stream.confirmed):
        raise CountError(
            f"{received} publications received, at most {stream.count} expected and at least "
            f"{stream.count - len(stream.unconfirmed) - len(stream.confirmed)}"
        )
    kept = [*stream.confirmed, *stream.unconfirmed]
    return kept[len(kept) - lost :]
