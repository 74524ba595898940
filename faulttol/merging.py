"""In which order did a failed region release its publications? Putting together what is left of it.

Brokers have failed. Around them stand live nodes, the *sides* of what is gone. Each side knows what
it got from the region, in which order, and what it gave to it. A hub takes the region's place; it
has to give every side what that lacks, and may contradict nobody: if two subscribers on different
sides have a publication in common with somebody who has seen more, they get it in that order.

The order is put together from *bindings*, pairs of publications of which one was first for sure:

- a side got both in this order, for one of its subscribers, and somebody on another side, of whom
  anything is missing, wants both; or it gave one of them, or both, and has settled them in this
  order;
- a side got the one, wants the other and lacks it: the region had not released it to that side, so
  whatever the side got was before it (and so was what it has settled itself and given); or it has
  given the other, and still waits to hear that it has been settled;
- a side gave both in this order, and some subscriber wants both: the region takes in order what
  comes over one link;
- they are of one publisher.

"Wants both" matters. Two publications without a common subscriber have no order, and different
brokers of the region may have had them differently; three such pairs make a harmless circle. Only
where nothing speaks against it, others get what a side got in that order all the same: whoever
shared both may be gone. And so do others what somebody *may* have got in this order, because they
asked for it when it was under way.

A circle with something in it that a side lacks is none: the region had *passed by* that side, whose
subscription came too late for the one that it wants now, and it is not to have it. It did not come
too late if that side got, by the same subscription, something that was there before, or if it was
installed before anybody could publish such a thing. And if it is certain that it was not, somebody
has subscribed just before who is taken to have got in order what came before he could: then all
bindings of such subscribers are only supposed.

A publication is *decided* if the region released it to some side, or if something that it comes
before was released. What is not decided the hub takes in as it takes in any other. Nor is decided
what the hub *holds*, or would hold: a broker far down in the region may have released it to
somebody who shares nothing with those beyond the hub, but none who knows of others did.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final

import attrs

from routing.ids import NodeId, SubscriptionId

Key = tuple[NodeId, int, int]
"""A publication: its publisher, the incarnation of that, and its number."""


@attrs.define(kw_only=True, eq=False)
class Side:
    """What one side of a failed region has to tell."""

    got: Sequence[Key] = ()
    """From the region, in this order: publications, and that its own have been settled."""
    concern_all: Collection[Key] = frozenset()
    """Those in `got` that are taken to concern everybody on this side, as nobody knows whom they
    do: what came from this side, which waited until it was settled."""
    gave: Sequence[Key] = ()
    """To the region, in this order."""
    awaits: Collection[Key] = frozenset()
    """Those in `gave` that it holds until the region says that they are settled."""
    decides: bool = False
    """What it gave had been settled before, and went down into the region: the order is final."""
    settled: Sequence[Key] = ()
    """What it got and what it gave, in the order in which its own subscribers have it."""
    settled_by: Mapping[NodeId, Sequence[Key]] = attrs.field(factory=dict)
    """The same of those subscribers who have it in another order."""
    had: Collection[Key] = ()
    """What it has besides, and has had for so long that it does not remember since when."""
    lacks: Sequence[Key] = ()
    """What it wants, and has not got, in the order in which these are known to the hub."""
    subscribers: Mapping[Key, frozenset[NodeId]] = attrs.field(factory=dict)
    """Who on this side has it in order, or, of what it does not have, is to have it so."""
    may_have: Mapping[Key, frozenset[NodeId]] = attrs.field(factory=dict)
    """Who else there wants it in order: they asked when it was under way, and may have got it."""
    for_long: Mapping[Key, frozenset[NodeId]] = attrs.field(factory=dict)
    """Those of the subscribers who had asked long before, and have it in order for sure."""
    subscriptions: Mapping[Key, frozenset[SubscriptionId]] = attrs.field(factory=dict)
    """And by which of their subscriptions, as far as that is known."""
    asked_in_time: Collection[Key] = frozenset()
    """Those in `lacks` that it has asked for before they went into the region."""
    had_asked: Collection[Key] = frozenset()
    """Those that it was owed before they were published, beyond any doubt."""


@attrs.frozen
class Merge:
    """The order that was put together."""

    decided: tuple[Key, ...]
    """What the region had released."""
    undecided: tuple[Key, ...]
    passed_by: tuple[frozenset[Key], ...]
    """For each side what it lacks and is not to have."""
    circles: int
    """How many publications come before themselves: none, unless too many brokers have failed."""


_Pair = tuple[Key, Key]
"""The one came before the other."""

_Lack = tuple[int, Key, Key]
"""A side, by its number, lacks a publication: here is one that came before it."""
_Lacks = Mapping[_Lack, int]
"""And how often that is so, for one subscriber or another."""

_NOBODY: Final[frozenset[NodeId]] = frozenset()
_SOMEBODY: Final = frozenset([NodeId("")])


class _Bindings:
    """What comes before what."""

    def __init__(self, before: Mapping[Key, Iterable[Key]]) -> None:
        self.before = {key: dict.fromkeys(first) for key, first in before.items()}
        """For each publication those that come before it."""
        self._bits = {key: 1 << number for number, key in enumerate(self.before)}
        self._all_before: dict[Key, int] = {}
        """All that come before it, near or far, as a set of bits; empty until somebody asks."""

    def add(self, first: Key | None, then: Key) -> None:
        if first is not None and first != then:
            self.before[then][first] = None
            found = self._all_before
            if found:
                news = self._bits[first] | found[first]
                for key, before in found.items():
                    if key == then or before & self._bits[then]:
                        found[key] = before | news

    def add_unless_contradicted(self, pairs: Iterable[_Pair]) -> bool:
        """Add what nothing speaks against; returns whether anything was added."""
        news = [(first, then) for first, then in pairs if first not in self.before[then]]
        if not news:
            return False
        together = _Bindings(self.before)
        for pair in news:
            together.add(*pair)
        contradict_nobody = not any(together.is_before(key, key) for key in together.before)
        found = False
        for first, then in news:
            if contradict_nobody or not self.is_before(then, first):
                self.add(first, then)
                found = True
        return found

    def is_before(self, first: Key, then: Key) -> bool:
        """Whether the one comes before the other, near or far."""
        if not self._all_before:
            self._find_all_before()
        return self._all_before[then] & self._bits[first] != 0

    def _find_all_before(self) -> None:
        bits = self._bits
        found = dict.fromkeys(self.before, 0)
        is_complete = False
        while not is_complete:
            is_complete = True
            for key, before in self.before.items():
                these = found[key]
                for first in before:
                    these |= bits[first] | found[first]
                if these != found[key]:
                    found[key] = these
                    is_complete = False
        self._all_before = found


def merge(
    keys: Sequence[Key], sides: Sequence[Side], *, held: Collection[Key] = frozenset()
) -> Merge:
    """Order these publications, which are all that any side has got, given or lacks.

    Those that are `held` the hub decides all the same.
    """
    passed_by: list[set[Key]] = [set() for _ in sides]
    is_doubting = False
    while True:
        lacks = [
            [key for key in side.lacks if key not in out]
            for side, out in zip(sides, passed_by, strict=True)
        ]
        certain, lacking = _bind(keys, sides, lacks)
        bindings = _with(certain, lacking)
        order, circles = _sorted_by(bindings, keys)
        supposed: list[_Pair] = []
        if circles:
            late = _on_a_circle(certain, lacking)
            if not is_doubting and any(key in sides[n].had_asked for n, _, key in late):
                is_doubting = True
                sides = [*map(_without_doubtful, sides)]
                passed_by = [set() for _ in sides]
                continue
            late = late or _of_one_side(sides, certain, lacking)
        else:
            supposed, late = _suppose(keys, sides, lacks, certain)
        if not late:
            break
        for number, _, key in late:
            passed_by[number].add(key)

    if bindings.add_unless_contradicted(chain(supposed, _may_have_been_seen(sides, lacks))):
        order, circles = _sorted_by(bindings, keys)
    decided = {key for side in sides if not side.decides for key in side.got}
    decided -= _and_all_after(held, order, certain)
    decided.update(key for side in sides if side.decides for key in side.gave)
    _close(decided, bindings)
    return Merge(
        decided=tuple(key for key in order if key in decided),
        undecided=tuple(key for key in order if key not in decided),
        passed_by=tuple(map(frozenset, passed_by)),
        circles=circles,
    )


def _without_doubtful(side: Side) -> Side:
    """Whoever has asked lately may have what it is taken to have, or not."""
    may_have = {
        key: side.may_have.get(key, _NOBODY) | clients - side.for_long.get(key, _NOBODY)
        for key, clients in side.subscribers.items()
    }
    return attrs.evolve(side, subscribers=side.for_long, may_have={**side.may_have, **may_have})


def _bind(
    keys: Sequence[Key], sides: Sequence[Side], lacks: Sequence[Sequence[Key]]
) -> tuple[_Bindings, _Lacks]:
    bindings = _Bindings(dict.fromkeys(keys, ()))
    lacking: Counter[_Lack] = Counter()
    # On one side all have the same, in the order in which it comes there: what counts are others.
    all_views = [_views(side) for side in sides]
    wanted_by_others = _of_others([*map(_wanted, all_views)])
    waiting_others = _of_others([*map(_wanted_by_who_waits, all_views, lacks)])
    for number, (side, views) in enumerate(zip(sides, all_views, strict=True)):
        _bind_got(side, views, waiting_others[number], bindings)
        lacking.update(
            (number, *pair) for pair in _lack(side, views, lacks[number], wanted_by_others[number])
        )
        if side.decides:
            for first, then in pairwise(side.gave):
                bindings.add(first, then)
        else:
            _bind_given(side, bindings, sides)
    _bind_publishers(keys, bindings)
    return bindings, lacking


_Wanted = Collection[frozenset[Key]]
"""What the one subscriber wants, what another does; in an order, lest one seed have two ends."""


_Views = Collection[tuple[frozenset[Key], Sequence[Key]]]
"""What a subscriber wants, and the order in which it has of it what has been settled."""


def _wanted(views: _Views) -> _Wanted:
    """What the subscribers of a side want; of those that want the same, one."""
    return dict.fromkeys(wanted for wanted, _ in views)


def _views(side: Side) -> _Views:
    """What the subscribers of a side want, and have in which order; of those alike, one."""
    wanted: dict[NodeId, set[Key]] = {}
    for key, subscribers in side.subscribers.items():
        for subscriber in subscribers:
            wanted.setdefault(subscriber, set()).add(key)
    settled = tuple(side.settled)
    return dict.fromkeys(
        (frozenset(wanted[subscriber]), tuple(side.settled_by.get(subscriber, settled)))
        for subscriber in sorted(wanted)
    )


def _wanted_by_who_waits(views: _Views, lacked: Collection[Key]) -> _Wanted:
    """The same of those whom anything is missing."""
    return dict.fromkeys(keys for keys in _wanted(views) if not keys.isdisjoint(lacked))


def _suppose(
    keys: Sequence[Key], sides: Sequence[Side], lacks: Sequence[Sequence[Key]], certain: _Bindings
) -> tuple[list[_Pair], list[_Lack]]:
    """What else is bound if all have got what they may have got, and who was late then.

    Somebody beyond a deciding side, of whom this does not know, may have got all that it gave.

    Late is who lacks what came before something that it has got, and cannot be shown to have asked
    in time.
    """
    if not any(lacks):
        return [], []
    all_of_them = [attrs.evolve(side, subscribers=_all_who_may_have_it(side)) for side in sides]
    bound, lacking = _bind(keys, all_of_them, lacks)
    supposed = [
        (first, then)
        for then, before in bound.before.items()
        for first in before
        if first not in certain.before[then]
    ]
    likely = _Bindings(certain.before)
    likely.add_unless_contradicted(supposed)
    return supposed, _untimely(sides, _on_a_circle(likely, lacking), certain)


def _all_who_may_have_it(side: Side) -> Mapping[Key, frozenset[NodeId]]:
    unknown = dict.fromkeys(side.gave if side.decides else (), _SOMEBODY)
    all_of_them = side.subscribers, side.may_have, unknown
    return {
        key: frozenset(chain.from_iterable(each.get(key, ()) for each in all_of_them))
        for key in dict.fromkeys(chain.from_iterable(all_of_them))
    }


def _may_have_been_seen(
    sides: Sequence[Side], lacks: Sequence[Sequence[Key]]
) -> Mapping[_Pair, None]:
    """Whoever is gone may have got what a side got, and as it got that, which nobody else tells."""
    waiting = dict.fromkeys(
        chain.from_iterable(map(_wanted_by_who_waits, map(_views, sides), lacks))
    )
    return {
        pair: None
        for side in sides
        for keys in waiting
        for pair in pairwise(key for key in side.got if key in keys)
    }


def _of_others(by_side: Sequence[_Wanted]) -> list[_Wanted]:
    """For each side what there is on any other."""
    sides_with = Counter(chain.from_iterable(by_side))
    return [
        [keys for keys, count in sides_with.items() if count > (keys in own)] for own in by_side
    ]


def _bind_got(side: Side, views: _Views, waiting_others: _Wanted, bindings: _Bindings) -> None:
    """What one subscriber has got in order, another who waits for anything gets in that order."""
    for wanted, in_order in views or [(frozenset[Key](), side.settled)]:
        got = [key for key in side.got if key in wanted or key in side.concern_all]
        awaited = [key for key in side.gave if key in side.awaits and key in wanted]
        for by_another in waiting_others:
            shared = [key for key in got if key in by_another]
            settled = [key for key in in_order if key in wanted and key in by_another]
            for first, then in chain(pairwise(shared), pairwise(settled)):
                bindings.add(first, then)
            for key in awaited if shared else ():
                if key in by_another:
                    bindings.add(shared[-1], key)


def _lack(
    side: Side, views: _Views, lacks: Sequence[Key], wanted_by_others: Iterable[frozenset[Key]]
) -> list[tuple[Key, Key]]:
    """What a subscriber wants and has not got comes after what it has."""
    lacking = []
    for wanted, in_order in views:
        had = [
            [key for key in side.got if key in wanted or key in side.concern_all],
            [key for key in in_order if key in wanted],
        ]
        lacked = [key for key in lacks if key in wanted]
        for key in lacked:
            lacking += [(first, key) for first in chain(*had) if first[0] == key[0] and first > key]
        for by_another in wanted_by_others:
            last = [shared[-1] for keys in had if (shared := [k for k in keys if k in by_another])]
            last += [key for key in side.had if key in wanted and key in by_another]
            lacking += [(first, key) for key in lacked if key in by_another for first in last]
    return [(first, key) for first, key in lacking if first != key]


def _with(certain: _Bindings, lacking: Iterable[_Lack]) -> _Bindings:
    bindings = _Bindings(certain.before)
    for _, first, key in lacking:
        bindings.add(first, key)
    return bindings


def _on_a_circle(bindings: _Bindings, lacking: Iterable[_Lack]) -> list[_Lack]:
    """Who lacks something that is also known to come before what it got."""
    return [lack for lack in lacking if bindings.is_before(lack[2], lack[1])]


def _of_one_side(sides: Sequence[Side], certain: _Bindings, lacking: _Lacks) -> list[_Lack]:
    """What sides lack contradicts what others lack: the one that is in the way of most was late.

    If it cannot be told which, it is the hub, to which the region would have had to climb if it
    had known that both are concerned.
    """
    found = _on_a_circle(_with(certain, lacking), lacking)
    found = _untimely(sides, found, certain) or found

    def remaining(number: int) -> int:
        others = [lack for lack in lacking if lack[0] != number]
        return sum(lacking[lack] for lack in _on_a_circle(_with(certain, others), others))

    numbers = sorted({number for number, _, _ in found}, key=lambda n: not sides[n].decides)
    number = min(numbers, key=remaining, default=None)
    return [lack for lack in found if lack[0] == number]


def _untimely(sides: Sequence[Side], lacks: list[_Lack], certain: _Bindings) -> list[_Lack]:
    """Those of which it cannot be shown that somebody had asked in time."""
    each = dict.fromkeys((number, key) for number, _, key in lacks)
    timely = {(number, key) for number, key in each if _is_timely(sides[number], key, certain)}
    return [lack for lack in lacks if (lack[0], lack[2]) not in timely]


def _is_timely(side: Side, key: Key, certain: _Bindings) -> bool:
    """Whether a side had asked for a publication before the region released it.

    It had, if it had what was there before by a subscription that everybody knew by then: one that
    was confirmed. Others may have come by only because somebody else wanted them.
    """
    if key in side.asked_in_time:
        return True
    wanted_by = side.subscriptions.get(key)
    if not wanted_by:
        return False
    had = set(side.got).intersection(side.settled)
    before = (first for first in had if certain.is_before(first, key))
    earlier = (side.subscriptions.get(first, frozenset()) for first in before)
    return any(names and names <= wanted_by for names in earlier)


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


def _and_all_after(keys: Collection[Key], order: Iterable[Key], bindings: _Bindings) -> set[Key]:
    """These, and whatever comes after one of them."""
    found = set(keys)
    for key in order if found else ():
        if not found.isdisjoint(bindings.before[key]):
            found.add(key)
    return found


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
