"""When may a broker settle a publication? The orderings, a choice behind one interface.

To *settle* a publication is to fix its place in the broker's own order: in that order the broker
sends publications down, to its children and its clients. A publication on its way up, towards the
root, is sent on at once under every ordering; what differs is when it is settled.
"""

import enum
import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import attrs

from routing.ids import NodeId


class Cause(enum.StrEnum):
    """Why a publication is held."""

    PARENT = "parent"
    """The parent has to settle it first."""
    PUBLISHER = "publisher"
    """It is behind an earlier one of its publisher."""
    SUBSCRIBERS = "subscribers"
    """It is behind an earlier one with a subscriber in common, which must not be overtaken."""


class Arriving(Protocol):
    """What an ordering has to know of a publication at a broker."""

    waits: bool
    """Whether the parent has to settle it first, and has not said so yet."""

    @property
    def publisher(self) -> NodeId:
        """Who published it."""

    @property
    def hop(self) -> NodeId:
        """Where it came from."""

    @property
    def climbs(self) -> bool:
        """Whether it goes to the parent."""

    @property
    def descends(self) -> bool:
        """Whether it came from the parent."""

    @property
    def subscribers(self) -> int:
        """The subscribers that match it, as far as this broker knows, as a bit set."""


Arrival = TypeVar("Arrival", bound=Arriving)
Key = TypeVar("Key", NodeId, int)


class Ordering(Protocol[Arrival]):
    """Decides, arrival by arrival, what a broker settles now."""

    name: ClassVar[str]
    waits_for_conflicts: ClassVar[bool]
    """Whether a publication that climbs waits for the parent if it conflicts."""
    settles_at_root: ClassVar[bool]
    """Whether every publication climbs to the root, and is settled nowhere before it was there."""

    @property
    def held(self) -> Collection[Arrival]:
        """The publications that are not settled yet, in the order of their arrival."""

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Take in a publication; returns those that are settled now, in this order."""

    def acknowledged(self, arrival: Arrival) -> Sequence[Arrival]:
        """The parent has settled it; returns those that are settled now, in this order."""

    def take_out(self, arrival: Arrival) -> None:
        """It is settled now in any case; those behind it will be told likewise."""

    def blockers(self, arrival: Arrival) -> Sequence[tuple[Arrival, Cause]]:
        """Which others a held one is behind, and why; for people, so it may take its time."""


class _SettleOnArrival(Generic[Arrival]):
    """Never hold anything."""

    waits_for_conflicts: ClassVar = False
    settles_at_root: ClassVar = False
    held: tuple[Arrival, ...] = ()

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Everything at once, in the order of arrival."""
        return (arrival,)

    def acknowledged(self, arrival: Arrival) -> Sequence[Arrival]:
        """Nobody waits here, so nobody is told."""
        raise AssertionError(f"{arrival} did not wait")

    def take_out(self, arrival: Arrival) -> None:
        """It is not in here."""

    def blockers(self, arrival: Arrival) -> Sequence[tuple[Arrival, Cause]]:
        """Nobody is held here."""
        raise AssertionError(f"{arrival} is not held")


class Unordered(_SettleOnArrival[Arrival]):
    """`none`: settle on arrival, and promise no order."""

    name: ClassVar = "none"


class Fifo(_SettleOnArrival[Arrival]):
    """`fifo`: settle on arrival. Each publisher's order is kept because every link keeps it.

    A publisher's publications all climb and descend the same tree, a part of the way together, and
    no broker lets a later one pass an earlier one; so for a subscriber they never change places.
    """

    name: ClassVar = "fifo"


class Sequencer(_SettleOnArrival[Arrival]):
    """`sequencer`: the root decides the order of everything; the baseline that people know.

    Every publication climbs to the root, whoever wants it, and comes back down from there, to its
    origin too. All subscribers see parts of one sequence, so it keeps pairwise order; the price is
    the way to the root for everybody, and a root that handles everything.
    """

    name: ClassVar = "sequencer"
    settles_at_root: ClassVar = True


class Pairwise(Generic[Arrival]):
    """`pairwise`: any two subscribers get what both of them get in the same order.

    Two publications meet at brokers; take a broker c and its parent b on the way between two
    subscribers of both. It is enough that b and c settle them in the same order.

    - Both climb from c to b: c settles them as it sends them up, in the order of their arrival (an
      earlier one that climbs too *blocks*), and b takes what comes from one hop in its order (an
      earlier one from the same hop blocks).
    - Both descend from b to c: c settles on arrival.
    - One climbs and one descends: c has found the conflict, and waits until b has settled the one
      that climbs; b says so on the same link on which the other descends, in the order in which it
      settled the two.

    Waiting is for an earlier arrival or for the parent, so it comes to an end. No ids are compared,
    no clocks, and nothing is sorted.
    """

    name: ClassVar = "pairwise"
    waits_for_conflicts: ClassVar = True
    settles_at_root: ClassVar = False

    def __init__(self) -> None:
        """Begin with nothing held."""
        self._held: dict[int, _Held[Arrival]] = {}
        """By the identity of the arrival, in the order of arrival."""
        self._places = itertools.count()
        # Of those that block one another, all but the first are blocked; so a new arrival that
        # any of them blocks need only wait for the last.
        self._last_of_publisher: dict[NodeId, _Held[Arrival]] = {}
        self._last_from_hop: dict[NodeId, dict[int, _Held[Arrival]]] = {}
        """By subscribers."""
        self._last_to_climb: dict[int, _Held[Arrival]] = {}
        """By subscribers."""

    @property
    def held(self) -> Collection[Arrival]:
        """The publications that are not settled yet, in the order of their arrival."""
        return [held.arrival for held in self._held.values()]

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Settle what comes from above at once, and what comes from below in its turn."""
        if arrival.descends or not (arrival.waits or self._held):
            return (arrival,)
        blockers = self._last_blockers(arrival) if self._held else {}
        if not (arrival.waits or blockers):
            return (arrival,)
        hop, subscribers = arrival.hop, arrival.subscribers
        held = _Held(arrival, hop, subscribers, next(self._places), len(blockers))
        for blocker in blockers.values():
            blocker.blocks.append(held)
        self._held[id(arrival)] = held
        self._last_of_publisher[arrival.publisher] = held
        if subscribers:
            self._last_from_hop.setdefault(hop, {})[subscribers] = held
            if arrival.climbs:
                self._last_to_climb[subscribers] = held
        return ()

    def acknowledged(self, arrival: Arrival) -> Sequence[Arrival]:
        """The parent has settled it: this broker may, and then perhaps others behind it."""
        arrival.waits = False
        held = self._held[id(arrival)]
        return () if held.blockers else self._settle(held)

    def blockers(self, arrival: Arrival) -> Sequence[tuple[Arrival, Cause]]:
        """The earlier ones that it must not pass, by the rule above, one by one."""
        blockers = []
        for earlier in self.held:
            if earlier is arrival:
                break
            is_same_way = earlier.hop == arrival.hop or (earlier.climbs and arrival.climbs)
            if earlier.publisher == arrival.publisher:
                blockers.append((earlier, Cause.PUBLISHER))
            elif is_same_way and earlier.subscribers & arrival.subscribers:
                blockers.append((earlier, Cause.SUBSCRIBERS))
        return blockers

    def take_out(self, arrival: Arrival) -> None:
        """It is settled now in any case; those behind it will be told likewise."""
        held = self._held.get(id(arrival))
        if held is not None:
            self._forget(held)
            for blocked in held.blocks:
                blocked.blockers -= 1

    def _last_blockers(self, arrival: Arrival) -> dict[int, "_Held[Arrival]"]:
        """Which held publications block this one, by their places; the last of each kind."""
        blockers = []
        if arrival.publisher in self._last_of_publisher:
            blockers.append(self._last_of_publisher[arrival.publisher])
        subscribers = arrival.subscribers
        for theirs, held in self._last_from_hop.get(arrival.hop, {}).items():
            if theirs & subscribers:
                blockers.append(held)
        if arrival.climbs:
            for theirs, held in self._last_to_climb.items():
                if theirs & subscribers:
                    blockers.append(held)
        return {held.place: held for held in blockers}

    def _settle(self, first: "_Held[Arrival]") -> list[Arrival]:
        """Settle one, and whatever then neither waits nor is blocked, in the order of arrival."""
        settled = []
        ready = [(first.place, first)]
        while ready:
            _, held = heapq.heappop(ready)
            self._forget(held)
            settled.append(held.arrival)
            for blocked in held.blocks:
                blocked.blockers -= 1
                if not (blocked.blockers or blocked.arrival.waits):
                    heapq.heappush(ready, (blocked.place, blocked))
        return settled

    def _forget(self, held: "_Held[Arrival]") -> None:
        del self._held[id(held.arrival)]
        _drop(self._last_of_publisher, held.arrival.publisher, held)
        from_hop = self._last_from_hop.get(held.hop, {})
        _drop(from_hop, held.subscribers, held)
        if not from_hop:
            self._last_from_hop.pop(held.hop, None)
        _drop(self._last_to_climb, held.subscribers, held)


@attrs.define(eq=False)
class _Held(Generic[Arrival]):
    """A publication that is not settled, and how it is bound up with others."""

    arrival: Arrival
    hop: NodeId
    subscribers: int
    """Both as they were when it arrived, whatever becomes of its source."""
    place: int
    """In the order of arrival."""
    blockers: int
    """Earlier ones that have to be settled first."""
    blocks: list["_Held[Arrival]"] = attrs.field(factory=list)
    """Later ones that have to wait for this one."""


def _drop(last: dict[Key, _Held[Arrival]], key: Key, held: _Held[Arrival]) -> None:
    """Forget that this is the last one, if it is."""
    if last.get(key) is held:
        del last[key]


ORDERINGS: Final[Mapping[str, type[Ordering]]] = {  # type: ignore[type-arg]
    ordering.name: ordering for ordering in (Unordered, Fifo, Pairwise, Sequencer)
}

DEFAULT_ORDERING: Final = Pairwise.name
"""What does not conflict costs nothing, and who needs no order may say so, one by one."""
