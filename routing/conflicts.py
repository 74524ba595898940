"""Publications on their way up that may meet others on their way down, before two who want both.

A publication conflicts at a broker if one of its subscribers is above, one below, and some
publication from above could be for both of them. Only then may the two see the two publications in
different orders, and only then has the broker to wait for its parent (`routing/orderings.py`).

What counts is the subscriber, not the subscription: one subscription of a client may match the one
publication, and another the other. Not all of them are known here, for subscriptions travel only to
where publications come from that they match. Of a subscriber above it is known that it gets this
publication, or it would not climb, but not what else it gets: so it is taken to get everything that
comes from above. Of a subscriber below it is known what can reach it from above, since that would
pass here, but perhaps not that it gets this publication, if that came from the same side: so it is
taken to get it if the child it lies behind waits.

So a broker may wait where it need not; that costs a round trip, never an error. `small_systems.py`
in the simulator tries every interleaving of small overlays.
"""

from collections.abc import Iterable

from routing.ids import AdvertisementId, NodeId, SubscriptionId
from routing.tables import Advertisement, Subscription


class Conflicts:
    """The subscribers and the advertisements above, seen from one broker."""

    def __init__(self) -> None:
        """Begin knowing nobody."""
        self._above: dict[AdvertisementId, tuple[int, Advertisement]] = {}
        """The advertisements that lie above, each with its bit."""
        self._free_bits: list[int] = []
        self._ordered: dict[NodeId, dict[SubscriptionId, Subscription]] = {}
        """The ordered subscriptions of each subscriber."""
        self._slots: dict[NodeId, int] = {}
        self._free_slots: list[int] = []
        self._reached_by: dict[NodeId, int] = {}
        """For each subscriber, the advertisements above that overlap what it asked for."""

    # --- keeping up -------------------------------------------------------------------------

    def add_advertisement(self, entry: Advertisement) -> None:
        """Take note of an advertisement that lies above."""
        bit = self._free_bits.pop() if self._free_bits else 1 << len(self._above)
        self._above[entry.id] = (bit, entry)
        for subscriber, subscriptions in self._ordered.items():
            if any(entry.filter.overlaps(s.filter) for s in subscriptions.values()):
                self._reached_by[subscriber] |= bit

    def remove_advertisement(self, entry: Advertisement) -> None:
        """Forget one, wherever it lies."""
        if entry.id in self._above:
            bit, _ = self._above.pop(entry.id)
            self._free_bits.append(bit)
            for subscriber in self._reached_by:
                self._reached_by[subscriber] &= ~bit

    def add_subscription(self, entry: Subscription) -> None:
        """Take note of a subscription; unordered ones make nobody wait."""
        if not entry.ordered:
            return
        if entry.client not in self._ordered:
            self._ordered[entry.client] = {}
            self._reached_by[entry.client] = 0
            self._slots[entry.client] = (
                self._free_slots.pop() if self._free_slots else len(self._slots)
            )
        self._ordered[entry.client][entry.id] = entry
        self._reached_by[entry.client] |= self._overlapping(entry)

    def remove_subscription(self, entry: Subscription) -> None:
        """Forget a subscription, and with its last one the subscriber."""
        subscriptions = self._ordered.get(entry.client)
        if subscriptions is None or subscriptions.pop(entry.id, None) is None:
            return
        reached_by = 0
        for other in subscriptions.values():
            reached_by |= self._overlapping(other)
        self._reached_by[entry.client] = reached_by
        if not subscriptions:
            del self._ordered[entry.client], self._reached_by[entry.client]
            self._free_slots.append(self._slots.pop(entry.client))

    def _overlapping(self, entry: Subscription) -> int:
        """The advertisements above that this subscription may match something of."""
        bits = 0
        for bit, advertisement in self._above.values():
            if advertisement.filter.overlaps(entry.filter):
                bits |= bit
        return bits

    # --- questions --------------------------------------------------------------------------

    def subscribers(self, matching: Iterable[Subscription]) -> int:
        """Who gets, in order, what these subscriptions match: a bit set."""
        bits = 0
        for entry in matching:
            if entry.ordered:
                bits |= 1 << self._slots[entry.client]
        return bits

    def is_conflict(
        self, matching: Iterable[Subscription], above: NodeId, *, unseen_at: NodeId | None = None
    ) -> bool:
        """Whether what these subscriptions match conflicts, if `above` is the way up.

        With `unseen_at`, everybody behind that child is taken for a subscriber: the child waits,
        and may do so on account of a subscription that is not known here.
        """
        is_wanted_above = is_reached_below = False
        for entry in matching:
            if entry.ordered:
                if entry.hop == above:
                    is_wanted_above = True
                elif self._reached_by[entry.client]:
                    is_reached_below = True
        if is_wanted_above and not is_reached_below and unseen_at is not None:
            is_reached_below = any(
                self._reached_by[client]
                and any(entry.hop == unseen_at for entry in subscriptions.values())
                for client, subscriptions in self._ordered.items()
            )
        return is_wanted_above and is_reached_below
