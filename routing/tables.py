"""Who announced what and who asked for what, and by which hop each of them lies.

A table belongs to one node. It holds what it was told, decides nothing, and lists everything in an
order that follows from the calls alone.
"""

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

import attrs

from plait.routing.errors import DuplicateEntryError, UnknownEntryError
from plait.routing.filters import Filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.matching import MatchingIndex
from plait.routing.values import Content

Id = TypeVar("Id", SubscriptionId, AdvertisementId)


@attrs.frozen(kw_only=True, weakref_slot=False)
class RoutingEntry(Generic[Id]):
    """One advertisement or subscription, as one node knows it."""

    id: Id
    client: NodeId
    filter: Filter
    path: tuple[NodeId, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """The last hops on its way here, the nearest last."""
    ordered: bool = True
    hop: NodeId = attrs.field()
    """The way to its client: the neighbour it came from, or a name that stays when that changes."""

    @hop.default
    def _nearest(self) -> NodeId:
        return self.path[-1] if self.path else NodeId("")  # which the validator then refuses


Advertisement: TypeAlias = RoutingEntry[AdvertisementId]
Subscription: TypeAlias = RoutingEntry[SubscriptionId]


class _Table(Generic[Id]):
    """Entries by id, in the order in which they were added."""

    def __init__(self) -> None:
        self._entries: dict[Id, RoutingEntry[Id]] = {}
        self._by_client: dict[NodeId, dict[Id, RoutingEntry[Id]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RoutingEntry[Id]]:
        return iter(self._entries.values())

    def __contains__(self, id_: Id) -> bool:
        return id_ in self._entries

    def get(self, id_: Id) -> RoutingEntry[Id] | None:
        """Look up an entry that may not be there."""
        return self._entries.get(id_)

    def add(self, entry: RoutingEntry[Id]) -> None:
        """Take in an entry whose id is new."""
        if entry.id in self._entries:
            raise DuplicateEntryError(f"{entry.id} has been added already")
        self._entries[entry.id] = entry
        self._by_client.setdefault(entry.client, {})[entry.id] = entry

    def remove(self, id_: Id) -> RoutingEntry[Id]:
        """Forget an entry, and return it."""
        if id_ not in self._entries:
            raise UnknownEntryError(f"there is no {id_}")
        entry = self._entries.pop(id_)
        of_client = self._by_client[entry.client]
        del of_client[id_]
        if not of_client:
            del self._by_client[entry.client]
        return entry

    def count_of_client(self, client: NodeId) -> int:
        """Return how many entries this client has."""
        return len(self._by_client.get(client, ()))

    def of_client(self, client: NodeId) -> list[RoutingEntry[Id]]:
        """List what a client has announced or asked for."""
        return list(self._by_client.get(client, {}).values())

    def overlapping(
        self, filter_: Filter, *, excluding: NodeId | None = None
    ) -> list[RoutingEntry[Id]]:
        """List the entries whose filter overlaps, without those that lie by the excluded hop."""
        # Many entries tend to share few filters.
        verdicts: dict[Filter, bool] = {}
        overlapping = []
        for entry in self:
            if entry.hop == excluding:
                continue
            verdict = verdicts.get(entry.filter)
            if verdict is None:
                verdict = verdicts[entry.filter] = entry.filter.overlaps(filter_)
            if verdict:
                overlapping.append(entry)
        return overlapping


class AdvertisementTable(_Table[AdvertisementId]):
    """What publishers may publish: subscriptions travel towards what they overlap."""

    def is_from(self, client: NodeId, hop: NodeId) -> bool:
        """Whether something of this client lies by that hop."""
        return any(entry.hop == hop for entry in self._by_client.get(client, {}).values())

    def hops_overlapping(self, filter_: Filter, *, excluding: NodeId | None = None) -> list[NodeId]:
        """List the hops by which an overlapping advertisement lies, the oldest's first."""
        return list(
            dict.fromkeys(entry.hop for entry in self.overlapping(filter_, excluding=excluding))
        )


class SubscriptionTable(_Table[SubscriptionId]):
    """What subscribers want: publications travel towards what matches them."""

    def __init__(self) -> None:
        super().__init__()
        self.index: MatchingIndex[SubscriptionId] = MatchingIndex()
        """For those who need sets of subscriptions, such as conflict detection. Read only."""

    def add(self, entry: Subscription) -> None:
        """Take in an entry whose id is new."""
        super().add(entry)
        self.index.add(entry.id, entry.hop, entry.filter)

    def remove(self, id_: SubscriptionId) -> Subscription:
        """Forget an entry, and return it."""
        entry = super().remove(id_)
        self.index.remove(id_)
        return entry

    def hops(self, content: Content) -> list[NodeId]:
        """List the hops by which some matching subscription lies."""
        return self.index.hops(content)

    def matching(self, content: Content) -> list[Subscription]:
        """List the subscriptions that match."""
        return [self._entries[id_] for id_ in self.index.match(content)]
