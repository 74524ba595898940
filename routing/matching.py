"""Which subscriptions match a content, and by which hops do they lie.

`MatchingIndex` answers without visiting the subscriptions one by one. Every subscription has a
*slot*, a small integer, and sets of subscriptions are bit sets over slots. Of a filter's normal
form the index keeps, for each attribute that the filter restricts, the set of values allowed. A
content then rules out, attribute by attribute, the slots whose set its value misses. Whoever is
left matches or, if its filter says more than sets can hold, is a candidate and gets evaluated.

`ScanningMatcher` asks every filter. It is there to compare with.
"""

from collections.abc import Hashable, Mapping
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

import attrs

from plait.routing.attribute_index import AttributeIndex
from plait.routing.bits import numbers_in
from plait.routing.errors import DuplicateEntryError, UnknownEntryError
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.limits import CACHED_SHAPES_MAX
from plait.routing.regions import hull
from plait.routing.value_sets import ValueSet
from plait.routing.values import Content

Key = TypeVar("Key", bound=Hashable)


class Matcher(Protocol[Key]):
    """What the two matchers have in common.

    Hops are listed in the order in which they came to have a subscription, keys in the order in
    which they were added: both follow from the calls alone, and never from how strings hash.
    """

    def add(self, key: Key, hop: NodeId, filter_: Filter) -> None:
        """Take in a subscription that lies by a hop."""

    def remove(self, key: Key) -> None:
        """Forget a subscription."""

    def match(self, content: Content) -> list[Key]:
        """List the subscriptions that match."""

    def hops(self, content: Content) -> list[NodeId]:
        """List the hops by which some matching subscription lies."""

    def __len__(self) -> int: ...


class ScanningMatcher(Generic[Key]):
    """Ask every filter."""

    def __init__(self) -> None:
        self._subscriptions: dict[Key, tuple[NodeId, Filter]] = {}
        self._keys_by_hop: dict[NodeId, set[Key]] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(self, key: Key, hop: NodeId, filter_: Filter) -> None:
        """Take in a subscription that lies by a hop."""
        if key in self._subscriptions:
            raise DuplicateEntryError(f"subscription {key!r} has been added already")
        self._subscriptions[key] = hop, filter_
        self._keys_by_hop.setdefault(hop, set()).add(key)

    def remove(self, key: Key) -> None:
        """Forget a subscription."""
        if key not in self._subscriptions:
            raise UnknownEntryError(f"there is no subscription {key!r}")
        hop, _ = self._subscriptions.pop(key)
        self._keys_by_hop[hop].remove(key)
        if not self._keys_by_hop[hop]:
            del self._keys_by_hop[hop]

    def match(self, content: Content) -> list[Key]:
        """List the subscriptions that match."""
        return [
            key for key, (_, filter_) in self._subscriptions.items() if filter_.matches(content)
        ]

    def hops(self, content: Content) -> list[NodeId]:
        """List the hops by which some matching subscription lies."""
        interested = {self._subscriptions[key][0] for key in self.match(content)}
        return [hop for hop in self._keys_by_hop if hop in interested]


@attrs.frozen(weakref_slot=False)
class _Subscription(Generic[Key]):
    key: Key
    hop: NodeId
    filter: Filter
    number: int
    """How many were added before it. Slots say nothing about that, as they are used again."""


class MatchingIndex(Generic[Key]):
    """Ask no filter that sets of values can answer for."""

    def __init__(self) -> None:
        self._slots: dict[Key, int] = {}
        self._subscriptions: list[_Subscription[Key] | None] = []
        self._free_slots: list[int] = []
        """A heap: the lowest is taken first, since a bit set is as long as its highest slot."""
        self._added = 0
        self._by_hop: dict[NodeId, int] = {}
        self._satisfiable = 0
        """The slots in use, without those of filters that nothing can match."""
        self._to_evaluate = 0
        """The slots whose filter says more than its sets."""
        self._attributes: dict[str, AttributeIndex] = {}
        self._failing_by_shape: dict[tuple[str, ...], int] = {}
        """For the attributes that a content has, in its order: who insists on another one."""

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, key: Key, hop: NodeId, filter_: Filter) -> None:
        """Take in a subscription that lies by a hop."""
        if key in self._slots:
            raise DuplicateEntryError(f"subscription {key!r} has been added already")
        subscription = _Subscription(key, hop, filter_, self._added)
        self._added += 1
        if self._free_slots:
            slot = heappop(self._free_slots)
            self._subscriptions[slot] = subscription
        else:
            slot = len(self._subscriptions)
            self._subscriptions.append(subscription)
        self._slots[key] = slot
        self._by_hop[hop] = self._by_hop.get(hop, 0) | 1 << slot
        for name, values in self._toggle(slot, filter_).items():
            if name not in self._attributes:
                self._attributes[name] = AttributeIndex()
            self._attributes[name].add(slot, values)

    def remove(self, key: Key) -> None:
        """Forget a subscription; its slot becomes free for another."""
        slot = self.slot_of(key)
        subscription = self._at(slot)
        for name, values in self._toggle(slot, subscription.filter).items():
            self._attributes[name].remove(slot, values)
            if not self._attributes[name].restricted:
                del self._attributes[name]
        self._by_hop[subscription.hop] ^= 1 << slot
        if not self._by_hop[subscription.hop]:
            del self._by_hop[subscription.hop]
        del self._slots[key]
        self._subscriptions[slot] = None
        heappush(self._free_slots, slot)

    def match(self, content: Content) -> list[Key]:
        """List the subscriptions that match, in the order in which they were added."""
        matching = [self._at(slot) for slot in numbers_in(self.matching_bits(content))]
        matching.sort(key=attrgetter("number"))
        return [subscription.key for subscription in matching]

    def hops(self, content: Content) -> list[NodeId]:
        """List the hops by which some matching subscription lies."""
        return self.hops_of(self.matching_bits(content))

    def hops_of(self, matching: int) -> list[NodeId]:
        """List the hops by which some of these slots' subscriptions lie."""
        if matching.bit_count() * _HOPS_TESTED_PER_SLOT_READ < len(self._by_hop):
            interested = {self._at(slot).hop for slot in numbers_in(matching)}
            return [hop for hop in self._by_hop if hop in interested]
        return [hop for hop, slots in self._by_hop.items() if slots & matching]

    def matching_bits(self, content: Content) -> int:
        """Set the bits of the slots whose subscription matches."""
        failing = self._failing_without(content)
        for name, value in content.items():
            attribute = self._attributes.get(name)
            if attribute is not None:
                failing |= attribute.restricted ^ attribute.allowing(value)
        matching = self._satisfiable ^ failing
        for slot in numbers_in(matching & self._to_evaluate):
            if not self._at(slot).filter.matches(content):
                matching ^= 1 << slot
        return matching

    def bits_of_hop(self, hop: NodeId) -> int:
        """Set the bits of the slots whose subscription lies by the hop."""
        return self._by_hop.get(hop, 0)

    def slot_of(self, key: Key) -> int:
        """Name the slot of a subscription."""
        if key not in self._slots:
            raise UnknownEntryError(f"there is no subscription {key!r}")
        return self._slots[key]

    def key_at(self, slot: int) -> Key:
        """Name the subscription in a slot."""
        return self._at(slot).key

    def _at(self, slot: int) -> _Subscription[Key]:
        subscription = self._subscriptions[slot] if slot < len(self._subscriptions) else None
        if subscription is None:
            raise UnknownEntryError(f"there is no subscription in slot {slot}")
        return subscription

    def _toggle(self, slot: int, filter_: Filter) -> Mapping[str, ValueSet]:
        """Note what a filter that comes or goes says beyond sets of values, and return the sets."""
        self._failing_by_shape.clear()
        regions = filter_.regions
        if not regions:
            return {}
        self._satisfiable ^= 1 << slot
        if len(regions) > 1 or regions[0].residue:
            self._to_evaluate ^= 1 << slot
        return hull(regions)

    def _failing_without(self, content: Content) -> int:
        """Select the slots that insist on an attribute which the content lacks.

        Contents of one publisher tend to have the same attributes, so the answer is kept.
        """
        shape = tuple(content)
        failing = self._failing_by_shape.get(shape)
        if failing is None:
            failing = 0
            for name, attribute in self._attributes.items():
                if name not in content:
                    failing |= attribute.restricted ^ attribute.missing_allowed
            if len(self._failing_by_shape) >= CACHED_SHAPES_MAX:
                self._failing_by_shape.clear()
            self._failing_by_shape[shape] = failing
        return failing


_HOPS_TESTED_PER_SLOT_READ: Final = 4
"""Finding a subscription's hop takes about as long as testing so many hops for a match."""
