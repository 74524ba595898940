"""When may a broker settle a publication? The orderings, a choice behind one interface.

To *settle* a publication is to fix its place in the broker's own order: in that order the broker
sends publications down, to its children and its clients. A publication on its way up, towards the
root, is sent on at once under every ordering; what differs is when it is settled.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

Arrival = TypeVar("Arrival")


class Ordering(Protocol):
    """Decides, arrival by arrival, what a broker settles now."""

    name: str

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Take in a publication; returns those that are settled now, in this order."""


class Unordered:
    """`none`: settle on arrival, and promise no order."""

    name = "none"

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Everything at once."""
        return (arrival,)


class Fifo:
    """`fifo`: settle on arrival. Each publisher's order is kept because every link keeps it.

    A publisher's publications all climb and descend the same tree, a part of the way together, and
    no broker lets a later one pass an earlier one; so for a subscriber they never change places.
    """

    name = "fifo"

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Everything at once, in the order of arrival."""
        return (arrival,)


ORDERINGS: Final[Mapping[str, type[Ordering]]] = {
    ordering.name: ordering for ordering in (Unordered, Fifo)
}
