"""When may a broker settle a publication? The orderings, a choice behind one interface.

To *settle* a publication is to fix its place in the broker's own order: in that order the broker
sends publications down, to its children and its clients. A publication on its way up, towards the
root, is sent on at once under every ordering; what differs is when it is settled.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from routing.ids import NodeId


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
    the way to the root for everybody, and a root that handles everything. Links are FIFO, so the
    place in the stream is the number, and none is written down.
    """

    name: ClassVar = "sequencer"
    settles_at_root: ClassVar = True


class FilteredSequencer(_SettleOnArrival[Arrival]):
    """`sequencer-filtered`: the root numbers everything, for each subscriber apart.

    The broker where something is published asks the root for places, one for each subscriber that
    matches, and then sends it the shortest way to those, with their places. A subscriber's broker
    hands over what it gets in the order of its subscriber's places. Those have no gaps: with one
    number for all, nobody could tell what is late from what was filtered out on the way.

    The root handles no publication, but a request and a reply for each; nothing is sent before the
    reply is there. A subscriber has to stay at its broker, which knows the place that comes next.
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
        self._held: dict[int, Arrival] = {}
        self._free_to_go = 0
        """How many of the held ones wait for nobody but the earlier ones that block them."""

    @property
    def held(self) -> Collection[Arrival]:
        """The publications that are not settled yet, in the order of their arrival."""
        return self._held.values()

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        """Settle what comes from above at once, and what comes from below in its turn."""
        if arrival.descends or not (arrival.waits or self._held):
            return (arrival,)
        self._held[id(arrival)] = arrival
        if arrival.waits:
            return ()
        self._free_to_go += 1
        return self._release()

    def acknowledged(self, arrival: Arrival) -> Sequence[Arrival]:
        """The parent has settled it: this broker may, and then perhaps others behind it."""
        arrival.waits = False
        first = next(iter(self._held))
        if first == id(arrival) and not self._free_to_go:
            del self._held[first]
            return (arrival,)
        self._free_to_go += 1
        return self._release()

    def _release(self) -> list[Arrival]:
        """Settle whatever neither waits nor is blocked by an earlier one that stays."""
        released = []
        publishers: set[NodeId] = set()
        climbing = 0
        by_hop: dict[NodeId, int] = {}
        for arrival in list(self._held.values()):
            subscribers, hop = arrival.subscribers, arrival.hop
            is_blocked = (
                arrival.publisher in publishers
                or subscribers & by_hop.get(hop, 0)
                or (arrival.climbs and subscribers & climbing)
            )
            if not arrival.waits and not is_blocked:
                del self._held[id(arrival)]
                self._free_to_go -= 1
                released.append(arrival)
                continue
            publishers.add(arrival.publisher)
            by_hop[hop] = by_hop.get(hop, 0) | subscribers
            if arrival.climbs:
                climbing |= subscribers
        return released


class Published(_SettleOnArrival[Arrival]):
    """`published`: total order as it was published, to compare with. It does not keep the order.

    Each broker passes a publication on at once, to other brokers; what is held back is what goes to
    a client. It waits there, in a queue, until brokers nearer to where something contrary may come
    from have acknowledged it (`routing/published.py`), and then what has been acknowledged is
    handed over sorted by publisher and number (`broker/published.py`).

    Two brokers that hold the same publications would sort them alike. They need not hold the same:
    a third publication, which comes too late for one of the two queues, is sorted among the others
    at the one and behind them at the other. `tests/broker/test_published_order.py` has schedules.

    It is meant for runs without faults. A client that may publish and hear, a connection that comes
    back, subscriptions that change: all of these work, none of them is in the publication.
    """

    name: ClassVar = "published"
    is_fast: ClassVar = True
    """Whether detection stops at the first conflict between two hops, and lets all wait there."""
    is_progressive: ClassVar = True
    """Whether the front of a queue is released although what is behind is not acknowledged."""


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

DEFAULT_ORDERING: Final = Pairwise.name
"""What does not conflict costs nothing, and who needs no order may say so, one by one."""
