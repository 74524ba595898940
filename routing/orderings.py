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

from plait.routing.ids import NodeId


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
    the way to the root for everybody, and a root that handles everything. Links are FIFO, so
    nobody has to sort.
    """

    name: ClassVar = "sequencer"
    settles_at_root: ClassVar = True


class HoldBeforeClients(_SettleOnArrival[Arrival]):
    """Settle on arrival, where other brokers are concerned; what is held is held before clients.

    When it is let go depends on what brokers tell each other, see `broker/published.py` and
    `broker/places.py`; here is what is held, and why. Nobody could put that together again for a
    broker that has crashed.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        """Begin with nothing held."""
        self._held: dict[Arrival, dict[NodeId, int]] = {}
        """In the order of arrival; with its place in what each client gets that it is held for."""

    @property
    def held(self) -> Collection[Arrival]:  # type: ignore[override]
        """The publications that somebody here does not have yet, in the order of their arrival."""
        return self._held

    def hold(self, arrival: Arrival, places: Mapping[NodeId, int]) -> None:
        """Hold a publication before these clients too; without any, before everybody."""
        self._held.setdefault(arrival, {}).update(places)

    def let_go(self, arrival: Arrival, client: NodeId) -> None:
        """One client has it now, or is gone."""
        places = self._held[arrival]
        del places[client]
        if not places:
            del self._held[arrival]

    def take_out(self, arrival: Arrival) -> None:
        """Everybody has it now."""
        self._held.pop(arrival, None)

    def places(self, arrival: Arrival) -> Mapping[NodeId, int]:
        """Before which clients it is held, and its place in what each of them gets."""
        return dict(self._held.get(arrival, {}))

    def blockers(self, arrival: Arrival) -> Sequence[tuple[Arrival, Cause]]:
        """Those that go before it to a client for which it is held."""
        places = self._held[arrival]
        return [
            (other, Cause.PUBLISHER if other.publisher == arrival.publisher else Cause.SUBSCRIBERS)
            for other, theirs in self._held.items()
            if other is not arrival
            and any(self._goes_first(theirs[c], places[c]) for c in places.keys() & theirs.keys())
        ]

    def _goes_first(self, other: int, place: int) -> bool:
        return other < place


class FilteredSequencer(HoldBeforeClients[Arrival]):
    """`sequencer-filtered`: the root numbers everything, for each subscriber apart.

    The broker where something is published asks the root for places, one for each subscriber that
    matches, and then sends it the shortest way to those, with their places. A subscriber's broker
    hands over what it gets in the order of its subscriber's places. Those have no gaps: with one
    number for all, nobody could tell what is late from what was filtered out on the way.

    The root handles no publication, but a request and a reply for each; nothing is sent before the
    reply is there. A subscriber has to stay at its broker, which knows the place that comes next;
    so the crash of a broker is not survived.
    """

    name: ClassVar = "sequencer-filtered"


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
        return self._hold_if_need_be(arrival, arrival.hop, arrival.subscribers)

    def _hold_if_need_be(
        self, arrival: Arrival, hop: NodeId, subscribers: int
    ) -> Sequence[Arrival]:
        blockers = self._last_blockers(arrival, hop, subscribers) if self._held else {}
        if not (arrival.waits or blockers):
            return (arrival,)
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

    def _last_blockers(
        self, arrival: Arrival, hop: NodeId, subscribers: int
    ) -> dict[int, "_Held[Arrival]"]:
        """Which held publications block this one, by their places; the last of each kind."""
        blockers = []
        if arrival.publisher in self._last_of_publisher:
            blockers.append(self._last_of_publisher[arrival.publisher])
        for theirs, held in self._last_from_hop.get(hop, {}).items():
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


class TotalNotification(Pairwise[Arrival]):
    """`tno`: each topic has a manager, and a publication says behind what it comes.

    Whatever climbs waits where somebody below wants it, until the parent says where it belongs; so
    every broker settles as its parent does, and only what a publisher publishes itself has to be
    kept in order. Where managers are, and what they write, is `broker/machine/topics.py`.
    """

    name: ClassVar = "tno"
    waits_for_conflicts: ClassVar = False


class HashedNotification(HoldBeforeClients[Arrival]):
    """`tno` with managers where a hash puts them: the way of both documents, mended.

    What is published waits for its stamp where it is published, and then before each subscriber
    until that has had all that the stamp names (`broker/machine/hashed.py`).
    """

    name: ClassVar = "tno"


class TaggedNotification(HoldBeforeClients[Arrival]):
    """`tno-tagged`: everybody is told at once, and whether it was in order.

    What is published waits for its stamp at the broker where it is published, and nowhere else.
    """

    name: ClassVar = "tno-tagged"


class NotificationOf2011(HoldBeforeClients[Arrival]):
    """`tno-published-2011`: everybody is told at once, as the technical report has it.

    It does not keep the order of what it says is in order: `routing/topics/tagging.py`.
    """

    name: ClassVar = "tno-published-2011"


class NotificationOf2015(HoldBeforeClients[Arrival]):
    """`tno-published-2015`: everybody waits, as the article has it, and somebody for ever.

    That is in `routing/topics/buffering.py`.
    """

    name: ClassVar = "tno-published-2015"


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


class Published(HoldBeforeClients[Arrival]):
    """`published`: total order as it was published, to compare with. It does not keep the order.

    Each broker passes a publication on at once, to other brokers; what is held back is what goes to
    a client. It waits there, in a queue, until brokers nearer to where something contrary may come
    from have acknowledged it (`routing/published.py`), and then what has been acknowledged is
    handed over sorted by publisher and number (`broker/published.py`).

    Two brokers that hold the same publications would sort them alike. They need not hold the same:
    a third publication, which comes too late for one of the two queues, is sorted among the others
    at the one and behind them at the other. `tests/broker/test_published_order.py` has schedules.

    It is meant for runs without faults: the crash of a broker is not survived. A client that may
    publish and hear, a connection that comes back, subscriptions that change: all of these work,
    none of them is in the publication.
    """

    name: ClassVar = "published"
    is_fast: ClassVar = True
    """Whether detection stops at the first conflict between two hops, and lets all wait there."""
    is_progressive: ClassVar = True
    """Whether the front of a queue is released although what is behind is not acknowledged."""

    def _goes_first(self, other: int, place: int) -> bool:
        return other < place or not self.is_progressive


class PublishedProgressive(Published[Arrival]):
    """`published-progressive`: without fast detection; every subscription that waits is named."""

    name: ClassVar = "published-progressive"
    is_fast: ClassVar = False


class PublishedWholeQueue(PublishedProgressive[Arrival]):
    """`published-whole-queue`: the algorithm before it was optimised.

    A queue is released when all that is in it is acknowledged: under steady traffic, never.
    """

    name: ClassVar = "published-whole-queue"
    is_progressive: ClassVar = False


ORDERINGS: Final[Mapping[str, type[Ordering]]] = {  # type: ignore[type-arg]
    ordering.name: ordering
    for ordering in (
        Unordered,
        Fifo,
        Pairwise,
        Sequencer,
        FilteredSequencer,
        Published,
        PublishedProgressive,
        PublishedWholeQueue,
    )
}

_OF_TOPICS: Final[Mapping[str, type[Ordering]]] = {  # type: ignore[type-arg]
    ordering.name: ordering
    for ordering in (TotalNotification, TaggedNotification, NotificationOf2011, NotificationOf2015)
}
ORDERINGS_OF_TOPICS: Final = frozenset(_OF_TOPICS)
"""Those under which everything that is published in order has a topic."""

ORDERINGS_JUDGED_BY_BROKERS: Final = frozenset({NotificationOf2011.name, NotificationOf2015.name})
"""And those of them under which a subscriber believes its broker what is in order."""

ORDERINGS_OF_HOSTS: Final[Mapping[str, type[Ordering]]] = {**ORDERINGS, **_OF_TOPICS}  # type: ignore[type-arg]
"""Those that hosts have; brokers that are not played by hosts do without those of topics."""

SUMMIT: Final = "summit"
"""At the lowest broker with all subscribers of a topic below: it costs what `pairwise` costs."""
ROOT: Final = "root"
"""As near to a sequencer as `tno` can be, and as slow as one; to compare with."""
HASH: Final = "hash"
"""Anywhere, as both documents have it: then topics have an order of their own, which can change."""
HASH_COUNT: Final = "hash-count"
"""The same, and topics change places by how often was published on them, as published."""
HASH_RATE: Final = "hash-rate"
"""And by how often of late."""
MANAGERS: Final = (SUMMIT, ROOT, HASH, HASH_COUNT, HASH_RATE)
"""Where the managers of topics are, under `tno`."""


def ordering_of(name: str, managers: str) -> type[Ordering]:  # type: ignore[type-arg]
    """What settles publications under this ordering, with managers of topics there."""
    is_hashed = name == TotalNotification.name and managers in (HASH, HASH_COUNT, HASH_RATE)
    return HashedNotification if is_hashed else ORDERINGS_OF_HOSTS[name]


DEFAULT_ORDERING: Final = Pairwise.name
"""What does not conflict costs nothing, and who needs no order may say so, one by one."""
