"""Publications on their way up that may meet others on their way down, before two who want both.

A publication conflicts at a broker if one of its subscribers is above, one below, and some
publication from above could be for both of them. Only then may the two see the two publications in
different orders, and only then has the broker to wait for its parent (`routing/orderings.py`).

What counts is the subscriber, not the subscription: one subscription of a client may match the one
publication, and another the other. A broker that waits where it need not costs a round trip, never
an error; so there are two tests, and the broker's `detection` says which.

`fast` asks of each subscriber by itself, and needs to know no more than routing does. Subscriptions
travel only to where publications come from that they match. So of a subscriber above it is known
that it gets this publication, or it would not climb, but not what else it gets: it is taken to get
everything that comes from above. Of a subscriber below it is known what can reach it from above,
since that would pass here, but perhaps not that it gets this publication, if that came from the
same side: so it is taken to get it if the child it lies behind waits.

`exact` asks for an advertisement above and a subscription of each of the two such that some
publication could match all three. For that every broker has to know every subscription, wherever
it lies (`broker/interests.py` sees to it), and then nobody is taken for anything. Where the algebra
of filters cannot decide, publications are taken to be possible.

`tests/machine/test_every_run.py` tries every interleaving of small overlays, with either.
"""

from collections.abc import Iterable
from typing import Final

from plait.routing.bits import numbers_in
from plait.routing.filters import Filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.matching import MatchingIndex
from plait.routing.regions import in_common
from plait.routing.tables import Advertisement, Subscription

FAST: Final = "fast"
EXACT: Final = "exact"
DETECTIONS: Final = (FAST, EXACT)


class Conflicts:
    """The subscribers and the advertisements above, seen from one broker.

    Sets of subscriptions are bit sets over the slots of the matching index. A subscriber is the set
    of all its slots; so two sets of subscribers have one in common if their bits do.
    """

    def __init__(self, index: MatchingIndex[SubscriptionId], *, detection: str = FAST) -> None:
        """Begin knowing nobody; the index is told of a subscription before this is."""
        self.is_exact = detection == EXACT
        self._index = index
        self._above: dict[AdvertisementId, Advertisement] = {}
        """The advertisements that lie above."""
        self._subscriptions: dict[int, Subscription] = {}
        """The ordered subscriptions, by slot."""
        self._slots: dict[SubscriptionId, int] = {}
        self._ordered = 0
        """All their slots."""
        self._of_client: dict[NodeId, int] = {}
        """The same, by subscriber."""
        self._accompanied = 0
        """The slots whose subscriber has others, too."""
        self._witness: dict[int, AdvertisementId] = {}
        """For each slot an advertisement above that overlaps, if any does."""
        self._overlapped = 0
        """The slots that have a witness."""
        self._reached = 0
        """All slots of the subscribers of whose slots some have a witness."""
        self._meeting: dict[int, int] = {}
        """For a slot, others of which it is known that something from above may match both."""
        self._apart: dict[int, int] = {}
        """For a slot, others of which it is known that nothing from above matches both."""

    # --- keeping up -------------------------------------------------------------------------

    def add_advertisement(self, entry: Advertisement) -> None:
        """Take note of an advertisement that lies above."""
        self._above[entry.id] = entry
        self._apart.clear()
        # Many subscriptions tend to share few filters.
        verdicts: dict[Filter, bool] = {}
        for slot in numbers_in(self._ordered ^ self._overlapped):
            subscription = self._subscriptions[slot]
            verdict = verdicts.get(subscription.filter)
            if verdict is None:
                verdict = entry.filter.overlaps(subscription.filter)
                verdicts[subscription.filter] = verdict
            if verdict:
                self._note_witness(slot, entry.id)

    def remove_advertisement(self, entry: Advertisement) -> None:
        """Forget one, wherever it lies."""
        if self._above.pop(entry.id, None) is None:
            return
        self._meeting.clear()
        for slot in [slot for slot, witness in self._witness.items() if witness == entry.id]:
            del self._witness[slot]
            self._overlapped ^= 1 << slot
            self._find_witness(slot)

    def add_subscription(self, entry: Subscription) -> None:
        """Take note of a subscription; unordered ones make nobody wait."""
        if not entry.ordered:
            return
        slot = self._index.slot_of(entry.id)
        self._slots[entry.id] = slot
        self._subscriptions[slot] = entry
        self._ordered |= 1 << slot
        self._of_client[entry.client] = self._of_client.get(entry.client, 0) | 1 << slot
        self._find_witness(slot)

    def remove_subscription(self, entry: Subscription) -> None:
        """Forget a subscription, and with its last one the subscriber."""
        slot = self._slots.pop(entry.id, None)
        if slot is None:
            return
        bit = 1 << slot
        del self._subscriptions[slot]
        self._ordered ^= bit
        self._accompanied &= ~bit
        self._reached &= ~bit
        if self._witness.pop(slot, None) is not None:
            self._overlapped ^= bit
        self._of_client[entry.client] ^= bit
        self._update_client(entry.client)
        if not self._of_client[entry.client]:
            del self._of_client[entry.client]
        # The slot is going to be another subscription's.
        self._meeting.clear()
        self._apart.clear()

    def _find_witness(self, slot: int) -> None:
        """Look for an advertisement above that overlaps the subscription in a slot."""
        subscription = self._subscriptions[slot]
        for advertisement in self._above.values():
            if advertisement.filter.overlaps(subscription.filter):
                self._note_witness(slot, advertisement.id)
                return
        self._update_client(subscription.client)

    def _note_witness(self, slot: int, witness: AdvertisementId) -> None:
        self._witness[slot] = witness
        self._overlapped |= 1 << slot
        self._update_client(self._subscriptions[slot].client)

    def _update_client(self, client: NodeId) -> None:
        """Note of all slots of a subscriber what is true of it as a whole."""
        slots = self._of_client[client]
        without = ~slots
        self._accompanied &= without
        self._reached &= without
        if slots & (slots - 1):
            self._accompanied |= slots
        if slots & self._overlapped:
            self._reached |= slots

    # --- questions --------------------------------------------------------------------------

    def subscribers(self, matching: int) -> int:
        """Who gets, in order, what these subscriptions match."""
        bits = matching & self._ordered
        accompanied = bits & self._accompanied
        if accompanied:
            of_client, subscriptions = self._of_client, self._subscriptions
            clients = {subscriptions[slot].client: None for slot in numbers_in(accompanied)}
            for client in clients:
                bits |= of_client[client]
        return bits

    def unordered(self, matching: int) -> int:
        """Those of these subscriptions that do not ask for order."""
        return matching & ~self._ordered

    def is_conflict(self, matching: int, above: NodeId, *, unseen_at: NodeId | None = None) -> bool:
        """Whether what these subscriptions match conflicts, if `above` is the way up.

        With `unseen_at`, everybody behind that child is taken for a subscriber: the child waits,
        and may do so on account of a subscription that is not known here.
        """
        ordered = matching & self._ordered
        wanted_above = ordered & self._index.bits_of_hop(above)
        if not wanted_above:
            return False
        reached_below = (ordered ^ wanted_above) & self._reached
        if self.is_exact:
            return reached_below != 0 and self._may_meet(wanted_above, reached_below)
        return reached_below != 0 or (
            unseen_at is not None and self._index.bits_of_hop(unseen_at) & self._reached != 0
        )

    def _may_meet(self, above: int, below: int) -> bool:
        """Whether something from above could be for one of these subscribers and one of those."""
        # What overlaps nothing from above can match nothing from there.
        ours = list(numbers_in(self.subscribers(above) & self._overlapped))
        theirs = self.subscribers(below) & self._overlapped
        if any(self._meeting.get(slot, 0) & theirs for slot in ours):
            return True
        for slot in ours:
            apart = self._apart.get(slot, 0)
            for other in numbers_in(theirs & ~apart):
                if self._can_match_both(slot, other):
                    self._meeting[slot] = self._meeting.get(slot, 0) | 1 << other
                    self._apart[slot] = apart
                    return True
                apart |= 1 << other
            self._apart[slot] = apart
        return False

    def _can_match_both(self, slot: int, other: int) -> bool:
        one, two = self._subscriptions[slot].filter, self._subscriptions[other].filter
        return _may_be_for_both(one, two, self._above.values())


def _may_be_for_both(one: Filter, two: Filter, announced: Iterable[Advertisement]) -> bool:
    common = in_common(one.regions, two.regions)
    return any(
        region.overlaps(possible)
        for advertisement in announced
        for possible in advertisement.filter.regions
        for region in common
    )
