"""In which order did a failed region release its publications? Putting together what is left of it.

Brokers have failed. Around them stand live nodes, the *sides* of what is gone. Each side knows what
it got from the region, in which order, and what it gave to it. A hub takes the region's place; it
has to give every side what that lacks, and may contradict nobody: if two subscribers on different
sides have a publication in common with somebody who has seen more, they get it in that order.

The order is put together from *bindings*, pairs of publications of which one was first for sure:

- a side got both in this order, and somebody on it wanted both, and so did somebody elsewhere;
- a side got the one, wants the other and lacks it: the region had not released it to that side, so
  whatever the side got was before it (and so was what it has settled itself and given);
- a side gave both in this order, and some subscriber wants both: the region takes in order what
  comes over one link;
- they are of one publisher.

"Wanted both" matters. Two publications without a common subscriber have no order, and different
brokers of the region may have had them differently; three such pairs make a harmless circle.

A publication is *decided* if the region released it to some side, or if something that it comes
before was released. What is not decided the hub takes in as it takes in any other.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from routing.ids import NodeId

Key = tuple[NodeId, int, int]
"""A publication: its publisher, the incarnation of that, and its number."""


@attrs.define(kw_only=True, eq=False)
class Side:
    """What one side of a failed region has to tell."""

    got: Sequence[Key] = ()
    """From the region, in this order: publications, and that its own have been settled."""
    own_settled: Collection[Key] = frozenset()
    """Those in `got` that came from this side, which waited for them to be settled. Who on the
    side they were held for need not be known, so they are taken to concern everybody."""
    gave: Sequence[Key] = ()
    """To the region, in this order."""
    decides: bool = False
    """What it gave had been settled before, and went down into the region: the order is final."""
    lacks: Collection[Key] = frozenset()
    """What it wants, and has not got, in the order in which these are known to the hub."""
    subscribers: Mapping[Key, frozenset[NodeId]] = attrs.field(factory=dict)
    """Who on this side wants it, in order."""


@attrs.frozen
class Merge:
    """The order that was put together."""

    decided: tuple[Key, ...]
    """What the region had released."""
    undecided: tuple[Key, ...]
    circles: int
    """How many publications come before themselves: none, unless too many brokers have failed."""


_NOBODY: Final[frozenset[NodeId]] = frozenset()


class _Bindings:
    """What comes before what."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.before: dict[Key, dict[Key, None]] = {key: {} for key in keys}
        """For each publication those that come before it."""

    def add(self, first: Key | None, then: Key) -> None:
        if first is not None and first != then:
            self.before[then][first] = None


def merge(keys: Sequence[Key], sides: Sequence[Side]) -> Merge:
    """Order these publications, which are all that any side has got, given or lacks."""
    bindings = _Bindings(keys)
    wanting_sides = Counter(
        key for side in sides for key, subscribers in side.subscribers.items() if subscribers
    )
    for side in sides:
        _bind_got(side, bindings, wanting_sides)
        if side.decides:
            for first, then in zip(side.gave, side.gave[1:], strict=False):
                bindings.add(first, then)
        else:
            _bind_given(side, bindings, sides)
    _bind_publishers(keys, bindings)

    decided = {key for side in sides if not side.decides for key in side.got}
    decided.update(key for side in sides if side.decides for key in side.gave)
    _close(decided, bindings)
    order, circles = _sorted_by(bindings, keys)
    return Merge(
        decided=tuple(key for key in order if key in decided),
        undecided=tuple(key for key in order if key not in decided),
        circles=circles,
    )


def _bind_got(side: Side, bindings: _Bindings, wanting_sides: Mapping[Key, int]) -> None:
    last_of: dict[NodeId, Key] = {}
    last_own: Key | None = None
    for key in side.got:
        if key in side.own_settled:
            for first in last_of.values():
                bindings.add(first, key)
            bindings.add(last_own, key)
            last_of.clear()
            last_own = key
        elif wanting_sides[key] > 1:
            for subscriber in side.subscribers.get(key, _NOBODY):
                bindings.add(last_of.get(subscriber, last_own), key)
                last_of[subscriber] = key
    has = dict(last_of)
    if side.decides:  # its own have been settled on its own side, before it gave them
        for key in side.gave:
            for subscriber in side.subscribers.get(key, _NOBODY):
                has[subscriber] = key
    for key in side.lacks:
        for subscriber in side.subscribers.get(key, _NOBODY):
            bindings.add(last_of.get(subscriber, last_own), key)
            bindings.add(has.get(subscriber), key)


def _bind_given(side: Side, bindings: _Bindings, sides: Sequence[Side]) -> None:
    last_of: dict[NodeId, Key] = {}
    for key in side.gave:
        for other in sides:
            for subscriber in other.subscribers.get(key, _NOBODY):
                bindings.add(last_of.get(subscriber), key)
                last_of[subscriber] = key


def _bind_publishers(keys: Iterable[Key], bindings: _Bindings) -> None:
    last: Key | None = None
    for key in sorted(keys):
        bindings.add(last if last is not None and last[0] == key[0] else None, key)
        last = key


def _close(decided: set[Key], bindings: _Bindings) -> None:
    """Add whatever comes before something that is decided."""
    unvisited = list(decided)
    for key in unvisited:
        for first in bindings.before[key]:
            if first not in decided:
                decided.add(first)
                unvisited.append(first)


def _sorted_by(bindings: _Bindings, keys: Sequence[Key]) -> tuple[list[Key], int]:
    """An order that keeps every binding; of those without, the one named earlier comes first."""
    rank = {key: number for number, key in enumerate(keys)}
    missing = {key: len(before) for key, before in bindings.before.items()}
    after: dict[Key, list[Key]] = {key: [] for key in keys}
    for key, before in bindings.before.items():
        for first in before:
            after[first].append(key)
    ready = [rank[key] for key in keys if not missing[key]]
    heapq.heapify(ready)
    order: list[Key] = []
    placed: set[Key] = set()
    circles = 0
    while len(order) < len(keys):
        if not ready:  # all that is left comes before itself: take what was named first
            circles += 1
            ready.append(next(number for key, number in rank.items() if key not in placed))
        key = keys[heapq.heappop(ready)]
        if key in placed:
            continue
        placed.add(key)
        order.append(key)
        for then in after[key]:
            missing[then] -= 1
            if not missing[then]:
                heapq.heappush(ready, rank[then])
    return order, circles
