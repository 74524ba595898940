"""The total order algorithm as published: who has to wait for whom, seen from one broker.

Zhang, Muthusamy, Jacobsen: *Total Order in Content-Based Publish/Subscribe Systems*, 2011. This is
its detection, Algorithms 1, 3 and 4, as a function of the tables; holding publications back,
acknowledging and releasing them is `broker/published.py`. It is here to be compared with, and it
does not keep pairwise order, see `Published` in `routing/orderings.py`.

A publication is sent on to brokers at once, and held back at the last broker, before a client. If
something that comes from hop r, on one side of this broker, could be for a subscriber behind r who
gets this publication, and for one behind another hop w who gets it too, the publication carries a
*request* towards r, to acknowledge it, and w *waits* for that acknowledgement. A broker that is
asked hands the request on to wherever such publications come from, and answers when those have.

The algorithm as printed has slips, and the text around it settles them:

- Algorithms 1 and 2 differ in which of their arguments requests and which waits, and in which
  subscription they note. By IV-D and IV-F the request goes to the advertisement's hop, and what is
  noted, for the next broker to look up, are subscriptions that wait.
- Algorithm 4 makes whoever asked wait for every hop that has to wait itself. A client is such a hop
  and never acknowledges anything; so what counts here is whom it waits for, other than the one who
  asked. Taken literally two branches that ask each other never get an answer.
- A client here may publish and subscribe. It is taken for two, a publisher and a subscriber: what
  it publishes passes its broker before it comes back, so nobody has to ask it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from plait.routing.bits import numbers_in
from plait.routing.expressions import conjunction
from plait.routing.filters import Filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.tables import Advertisement, Subscription


@attrs.frozen
class Mark:
    """What a broker says to the next one with a publication."""

    requests: bool = False
    """It is to be acknowledged to the sender."""
    waits: bool = False
    """Subscribers have to wait until the sender acknowledges it."""
    waiting: frozenset[SubscriptionId] = frozenset()
    """Which subscriptions those are; all that match, if detection is fast."""


UNMARKED = Mark()


@attrs.frozen(eq=False)
class Plan:
    """What a broker does about a publication that came from one neighbour with one mark."""

    awaited: Mapping[NodeId, tuple[NodeId, ...]] = attrs.field(factory=dict)
    """For a hop, whose acknowledgements it waits for; for the source, before it is answered."""
    marks: Mapping[NodeId, Mark] = attrs.field(factory=dict)
    """What is said with it to other brokers; to those that are not here, nothing."""
    is_answered: bool = False
    """Whether it is acknowledged to its source at once."""


class OverlapTables:
    """Which advertisements and ordered subscriptions overlap: the seed's `pubs` and `nhs`."""

    def __init__(self) -> None:
        """Begin knowing nobody."""
        self._advertisements: dict[AdvertisementId, int] = {}
        """The slot of each advertisement."""
        self._slots: list[Advertisement | None] = []
        self._free_slots: list[int] = []
        self._by_hop: dict[NodeId, int] = {}
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._reached_by: dict[SubscriptionId, int] = {}

    # --- keeping up -------------------------------------------------------------------------

    def add_advertisement(self, entry: Advertisement) -> None:
        """Take note of an advertisement."""
        if self._free_slots:
            slot = self._free_slots.pop()
            self._slots[slot] = entry
        else:
            slot = len(self._slots)
            self._slots.append(entry)
        self._advertisements[entry.id] = slot
        self._by_hop[entry.hop] = self._by_hop.get(entry.hop, 0) | 1 << slot
        for subscription in self._subscriptions.values():
            if entry.filter.overlaps(subscription.filter):
                self._reached_by[subscription.id] |= 1 << slot

    def remove_advertisement(self, entry: Advertisement) -> None:
        """Forget an advertisement."""
        slot = self._advertisements.pop(entry.id)
        self._slots[slot] = None
        self._free_slots.append(slot)
        self._by_hop[entry.hop] &= ~(1 << slot)
        for subscription in self._reached_by:
            self._reached_by[subscription] &= ~(1 << slot)

    def add_subscription(self, entry: Subscription) -> None:
        """Take note of a subscription; unordered ones make nobody wait."""
        if entry.ordered:
            self._subscriptions[entry.id] = entry
            self._reached_by[entry.id] = sum(
                1 << slot
                for slot in self._advertisements.values()
                if self._at(slot).filter.overlaps(entry.filter)
            )

    def remove_subscription(self, entry: Subscription) -> None:
        """Forget a subscription."""
        if self._subscriptions.pop(entry.id, None) is not None:
            del self._reached_by[entry.id]

    # --- questions --------------------------------------------------------------------------

    def is_reached_from(self, hop: NodeId, behind: Sequence[Subscription]) -> bool:
        """Whether a publication that comes from a hop may match one of these, which lie there."""
        advertised = self._by_hop.get(hop, 0)
        return any(self._reached_by[entry.id] & advertised for entry in behind)

    def conflicting(
        self, hop: NodeId, behind: Sequence[Subscription], others: Sequence[Subscription]
    ) -> Iterator[Subscription]:
        """Those others that share a possible publication from a hop with someone behind it."""
        advertised = self._by_hop.get(hop, 0)
        reached = [
            (entry, bits) for entry in behind if (bits := self._reached_by[entry.id] & advertised)
        ]
        for other in others:
            if any(self._share(entry, other, bits) for entry, bits in reached):
                yield other

    def _share(self, one: Subscription, other: Subscription, advertised: int) -> bool:
        """Whether one possible publication matches both: of one advertisement, not of two."""
        bits = advertised & self._reached_by[other.id]
        if not bits or one.filter == other.filter:
            return bits != 0
        both = Filter(conjunction((one.filter.condition, other.filter.condition)))
        return any(self._at(slot).filter.overlaps(both) for slot in numbers_in(bits))

    def _at(self, slot: int) -> Advertisement:
        entry = self._slots[slot]
        assert entry is not None
        return entry


def make_plan(
    tables: OverlapTables,
    behind: Mapping[NodeId, Sequence[Subscription]],
    *,
    clients: Collection[NodeId],
    source: NodeId,
    mark: Mark,
    is_fast: bool,
) -> Plan:
    """Decide who waits for whom.

    `behind` has, hop by hop, the ordered subscriptions that match, without those behind the broker
    it came from; `clients` are those of the hops that are no brokers.
    """
    awaited: dict[NodeId, dict[NodeId, None]] = {hop: {} for hop in behind}
    waiting: dict[NodeId, set[SubscriptionId]] = {hop: set() for hop in behind}
    requested: dict[NodeId, None] = {}
    if mark.waits:  # Algorithm 3, lines 1 to 3
        for hop, entries in behind.items():
            named = {entry.id for entry in entries} & mark.waiting
            if is_fast or named:
                awaited[hop][source] = None
                waiting[hop] |= named
    brokers = [hop for hop in behind if hop not in clients]
    for hop in brokers:  # Algorithms 1 and 2; in a single direction there is nothing to find
        for other in behind:
            if other != hop:
                for entry in tables.conflicting(hop, behind[hop], behind[other]):
                    requested[hop] = None
                    awaited[other][hop] = None
                    waiting[other].add(entry.id)
                    if is_fast:
                        break
    asked: list[NodeId] = []
    if mark.requests:  # Algorithm 4, and the rest of Algorithm 3
        asked = [hop for hop in brokers if awaited[hop] or tables.is_reached_from(hop, behind[hop])]
        requested.update(dict.fromkeys(asked))
        for hop in behind:
            if hop in clients:
                awaited[hop].update(dict.fromkeys(asked))
    marks = {
        hop: Mark(
            requests=hop in requested,
            waits=bool(awaited[hop]),
            waiting=frozenset() if is_fast else frozenset(waiting[hop]),
        )
        for hop in brokers
        if hop in requested or awaited[hop]
    }
    awaits = {hop: tuple(hops) for hop, hops in awaited.items() if hops}
    if asked:
        awaits[source] = tuple(asked)
    return Plan(awaited=awaits, marks=marks, is_answered=mark.requests and not asked)
