"""A hub takes the place of brokers that have failed: what happens to the publications under way.

The hub knows what it exchanged with the failed neighbour itself, and its orphans have told what
they did. `faulttol/merging.py` puts the order together. Here every publication that is not stable
gets one `Arrival` at the hub, a place in the streams of every orphan that has it, and is sent to
every orphan that lacks it:

- what is *decided*, the failed brokers had released to somebody: it goes at once to whoever lacks
  it, in that order. The hub's own other neighbours get it when the hub settles it, by its own rule;
- what is *undecided* nobody has got from them: it is taken in as if it came only now.

Streams begin anew with what is kept, at both ends, so that counters and confirmations go on.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

import attrs

from broker.codec import decode_content
from broker.interests import FLOODING
from broker.messages import Asked, Flag, NodeKind, Publish, Settled
from broker.neighbours import GONE, NOWHERE, UP, Above, Arrival, Below, Neighbour, Route
from broker.orphans import Orphan, key_of, known_to_be_stable, without_log_flags
from broker.publications import Publications
from broker.ticks import LONG_AGO, tick_at
from faulttol.merging import Key, Merge, Side, merge
from faulttol.neighbourhood import Life
from routing.ids import NodeId, SubscriptionId

_Wishes = Mapping[SubscriptionId, NodeId | None]
"""Subscriptions, and whose they are, or None if order does not matter to them."""

_AskedAt = Callable[[SubscriptionId], tuple[float, float]]
"""When somebody asked: not before the one, not after the other, by the hub's clock."""


@attrs.define(eq=False)
class _Item:
    """One publication that is not stable."""

    publication: Publish
    arrival: Arrival | None = None
    """At the hub, which has it, or had it before."""
    origin: Orphan | None = None
    """The orphan from whose side it comes."""
    is_own: bool = False
    """It comes from the hub's own side."""
    is_awaited: bool = False
    """Its origin waits until it is settled."""
    is_acknowledged: bool = False
    """Its origin waited for that."""
    is_stable: bool = False
    """Somebody has heard that everybody has it who was to have it."""
    is_new: bool = False
    """The hub has not had it before, or not that it remembers."""
    number: int = 0
    """Its place among what the origin sent."""
    unordered_at: set[NodeId | None] = attrs.field(factory=set)
    """The sides that have it only for those who do not ask for order."""
    wanted_by: Mapping[NodeId | None, _Wishes] = attrs.field(factory=dict)
    """The sides that want it; None is the hub's own side."""

    @property
    def is_unordered_only(self) -> bool:
        """Whether it is so wherever anybody has it."""
        return self.publication.flags & Flag.UNORDERED_ONLY != 0


class Reunion:
    """One re-forming, at the hub."""

    def __init__(
        self,
        publications: Publications,
        dead: Neighbour,
        orphans: Sequence[Orphan],
        *,
        now: float,
        since: int,
    ) -> None:
        """Put `orphans` in the place of `dead`; until `since` it was `dead` that told of them."""
        ordering = publications.ordering
        self._publications = publications
        self._is_ordered = ordering.waits_for_conflicts or ordering.settles_at_root
        self._dead = dead
        self._orphans = {orphan.neighbour.node: orphan for orphan in orphans}
        self._now = now
        self._since = since
        self._sides: Sequence[Side] = ()
        """The hub's own, and those of the orphans."""
        self._items: dict[Key, _Item] = {}
        self._wanted: dict[bytes, Mapping[NodeId | None, _Wishes]] = {}
        self._came_at: dict[Key, tuple[float, float]] = {}
        """When it went into the region, at the earliest; and when it was published, at the latest:
        by the hub's clock."""
        self._too_late: dict[NodeId | None, frozenset[Key]] = {}
        """What was published before anybody on a side asked for it: nobody there is to have it."""
        self._passed_by: dict[NodeId | None, frozenset[Key]] = {}
        """That, and what the failed brokers had passed them by with."""
        self._adopted: dict[Key, Arrival] = {}
        self._ticks_settled = {node: orphan.settled_at for node, orphan in self._orphans.items()}
        self._ticks_sent = {node: orphan.sent_at for node, orphan in self._orphans.items()}
        self._ticks_learnt = {node: orphan.learnt_at for node, orphan in self._orphans.items()}
        self._stable = known_to_be_stable(publications.lately_stable, orphans)

    def run(self) -> int:
        """Do it; returns how many publications could not be put in order."""
        merged = self._merge()
        self._prepare()
        for key in merged.decided:
            self._release(self._items[key])
        for key in merged.undecided:
            self._take_in(self._items[key])
        self._finish()
        return merged.circles

    def _merge(self) -> Merge:
        own = self._collect_own()
        self._sides = [own, *(self._collect(orphan) for orphan in self._orphans.values())]
        self._find_lacking(self._sides)
        merged = merge(list(self._items), self._sides, held=self._held())
        self._passed_by = {
            node: keys | self._too_late[node]
            for node, keys in zip(self._too_late, merged.passed_by, strict=True)
        }
        return merged

    def _held(self) -> frozenset[Key]:
        """What the failed child could not release before the hub's parent has settled it."""
        if not isinstance(self._dead, Below):
            return frozenset()
        return frozenset(key for key, item in self._items.items() if self._is_held(item))

    def _is_held(self, item: _Item) -> bool:
        arrival = item.arrival
        if arrival is not None:
            return arrival.is_awaited and not arrival.is_settled
        source: Below = item.origin.neighbour if item.origin is not None else GONE
        route = self._publications.compute_route(source, item.publication)
        return route.conflicts and not self._asked_too_late_above(item)

    # --- what is known ------------------------------------------------------------------------

    def _item(self, publication: Publish, side: NodeId | None) -> _Item:
        """Note that a side has this."""
        key = key_of(publication)
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item(publication, is_stable=key in self._stable)
        elif item.is_unordered_only:
            item.publication = publication
        if publication.flags & Flag.UNORDERED_ONLY:
            item.unordered_at.add(side)
        return item

    def _wishes_for(self, item: _Item) -> Mapping[NodeId | None, _Wishes]:
        wanted_by = self._sides_wanting(item.publication.content)
        if item.publication.flags & Flag.UNORDERED or not self._is_ordered:
            return {side: {} for side in wanted_by}
        if not item.unordered_at:
            return wanted_by
        is_everywhere = item.is_unordered_only
        found = {
            side: _unordered(wishes) if is_everywhere or side in item.unordered_at else wishes
            for side, wishes in wanted_by.items()
        }
        return {side: wishes for side, wishes in found.items() if wishes or not wanted_by[side]}

    def _sides_wanting(self, content: bytes) -> Mapping[NodeId | None, _Wishes]:
        wanted = self._wanted.get(content)
        if wanted is None:
            interests = self._publications.interests
            by_side: dict[NodeId | None, dict[SubscriptionId, NodeId | None]] = {}
            subscriptions = interests.subscriptions
            for name in subscriptions.index.match(decode_content(content)):
                entry = subscriptions.get(name)
                # What lies behind the failed neighbour, and behind no orphan, is no more.
                if entry is not None and entry.hop != self._dead.hop:
                    side = entry.hop if entry.hop in self._orphans else None
                    by_side.setdefault(side, {})[name] = entry.client if entry.ordered else None
            if interests.policy == FLOODING:
                by_side.setdefault(None, {})
                for node, orphan in self._orphans.items():
                    if orphan.neighbour.kind is NodeKind.BROKER:
                        by_side.setdefault(node, {})
            wanted = self._wanted[content] = by_side
        return wanted

    def _collect_own(self) -> Side:
        """What the hub itself exchanged with the failed neighbour."""
        if isinstance(self._dead, Above):
            return self._collect_own_from_above(self._dead)
        dead = self._dead
        side = Side(decides=True)
        got, gave, notified = [], [], set()
        for arrival in dead.received.keep():
            self._own_item(arrival)
            got.append(arrival.key)
        for arrival in dead.sent.keep():
            if arrival.settles is not None:
                notified.add(arrival.settles.key)
                gave.append(arrival.settles.key)
            else:
                self._own_item(arrival, is_own=True)
                gave.append(arrival.key)
        forgotten = [
            arrival.key
            for arrival in dead.received.keep()
            if arrival.is_told and arrival.key not in notified
        ]
        side.got = [key for key in got if key in self._items]
        side.gave = [key for key in (*forgotten, *gave) if key in self._items]
        return side

    def _collect_own_from_above(self, dead: Above) -> Side:
        """The same, at a broker that loses the root and becomes the root."""
        got, concern_all = [], set()
        for arrival in dead.received.keep():
            if arrival.settles is None:
                self._own_item(arrival)
                got.append(arrival.key)
            else:
                got.append(arrival.settles.key)
                concern_all.add(arrival.settles.key)
        # What climbs and what is held, in the order of arrival: held is also what does not climb.
        held = list(self._publications.ordering.held)
        gave: list[Arrival] = []
        for arrival in dead.sent.keep():
            if arrival in held:
                while held[0] is not arrival:
                    gave.append(held.pop(0))
                held.pop(0)
            gave.append(arrival)
        gave += held
        for arrival in gave:
            self._own_item(arrival, is_own=True)
        forgotten = [
            a.key for a in gave if a.has_waited and not a.waits and a.key not in concern_all
        ]
        concern_all.update(forgotten)
        return Side(
            got=[key for key in (*forgotten, *got) if key in self._items],
            concern_all=concern_all,
            gave=[arrival.key for arrival in gave],
            awaits=frozenset(arrival.key for arrival in gave if arrival.waits),
        )

    def _own_item(self, arrival: Arrival, *, is_own: bool = False) -> None:
        if arrival.route is not NOWHERE:  # or it is a duplicate of what was there before
            assert isinstance(arrival.publication, Publish)
            item = self._item(arrival.publication, None)
            item.arrival, item.is_own = arrival, is_own

    def _collect(self, orphan: Orphan) -> Side:
        """What an orphan has told."""
        for number, publication in enumerate(orphan.sent, 1):
            item = self._item(without_log_flags(publication), orphan.neighbour.node)
            item.origin = orphan
            item.number = number
            item.is_awaited = publication.flags & Flag.AWAITED != 0
            item.is_acknowledged = publication.flags & Flag.ACKNOWLEDGED != 0
        notices = {key_of(p) for p in orphan.received if p.flags & Flag.NOTICE}
        got = [
            key_of(publication)
            for publication in orphan.sent
            if publication.flags & Flag.ACKNOWLEDGED and key_of(publication) not in notices
        ]
        concern_all = notices | set(got)
        for publication in orphan.received:
            key = key_of(publication)
            if not publication.flags & Flag.NOTICE:
                self._item(publication, orphan.neighbour.node)
            elif key not in self._items:
                continue  # it is stable, which only its notice does not know yet
            got.append(key)
        return Side(
            got=got,
            concern_all=concern_all,
            gave=[key_of(publication) for publication in orphan.sent],
            awaits=frozenset(key_of(p) for p in orphan.sent if p.flags & Flag.AWAITED),
        )

    def _find_lacking(self, sides: Sequence[Side]) -> None:
        for item in self._items.values():
            item.wanted_by = self._wishes_for(item)
        self._came_at = {k: self._find_when_it_came(k, item) for k, item in self._items.items()}
        for node, side in zip((None, *self._orphans), sides, strict=True):
            self._find_subscribers(node, side)
            got = set(side.got) - set(side.concern_all)
            lacks = [
                key
                for key, item in self._items.items()
                if node in item.wanted_by and key not in got and self._lacks(node, key, item)
            ]
            asked_at = self._asked_at(node)
            self._too_late[node] = frozenset(
                key for key in lacks if self._has_asked_too_late(node, key, asked_at)
            )
            side.lacks = [key for key in lacks if key not in self._too_late[node]]
            known = {*side.got, *side.gave, *side.settled, *lacks}
            side.had = [key for key in side.subscriptions if key not in known]
            side.had_asked = {key for key in side.lacks if self._had_asked(key, side, asked_at)}
            side.asked_in_time = {
                key
                for key in side.lacks
                if key in side.had_asked or self._has_asked_in_time(node, key, side)
            }

    def _asked_at(self, node: NodeId | None) -> _AskedAt:
        """When a side's subscriptions were confirmed there; what is not yet will be, some time."""
        confirmed_at = self._publications.interests.confirmed_at
        orphan = self._orphans.get(node) if node is not None else None
        asked_at = orphan.asked_at if orphan is not None else {}

        def bounds(name: SubscriptionId) -> tuple[float, float]:
            if orphan is None:
                [own] = confirmed_at([name])
                return (own.earliest, own.latest) if own.latest else (math.inf, math.inf)
            asked = orphan.asked_here(asked_at[name]) if name in asked_at else None
            if asked is None:  # it may have been confirmed when the orphan had told that it was not
                return orphan.welcomed_at, math.inf
            return asked.earliest, asked.latest

        return bounds

    def _find_when_it_came(self, key: Key, item: _Item) -> tuple[float, float]:
        earliest: float = -math.inf
        latest = [math.inf]
        if item.arrival is not None:
            since = tick_at(item.arrival.since)
            latest.append(since)
            if item.is_own and self._dead not in item.arrival.adopted_by:
                earliest = since
        if item.origin is not None:
            tick = self._ticks_sent[item.origin.neighbour.node][key]
            earliest = item.origin.at_earliest(tick)
            latest.append(item.origin.at_latest(tick))
        for node, ticks in self._ticks_settled.items():
            if key in ticks and not self._is_client(node):
                latest.append(self._orphans[node].at_latest(ticks[key]))
        return earliest, min(latest)

    def _has_asked_too_late(self, node: NodeId | None, key: Key, asked_at: _AskedAt) -> bool:
        """Whether this was published before anybody on a side had a subscription for it."""
        names = self._items[key].wanted_by[node]
        _, latest = self._came_at[key]
        return bool(names) and all(asked_at(name)[0] > latest for name in names)

    def _had_asked(self, key: Key, side: Side, asked_at: _AskedAt) -> bool:
        """Whether somebody had a subscription, and everybody knew, before this was under way."""
        earliest, _ = self._came_at[key]
        return any(asked_at(name)[1] < earliest for name in side.subscriptions[key])

    def _has_asked_in_time(self, node: NodeId | None, key: Key, side: Side) -> bool:
        """Whether somebody on a side had a subscription before this went into the region.

        Somebody may publish under an advertisement when all have confirmed it; and whoever has a
        subscription that it draws sends that back first. What came first the hub may know, or the
        failed broker may have told both sides, each when it confirmed. And what went by here, or
        by an orphan, on its way to the failed broker, found known there whatever was known here.
        """
        interests = self._publications.interests
        names = side.subscriptions[key]
        item = self._items[key]
        announced = interests.announced(key[0], decode_content(item.publication.content))
        first = min((entry.tick for entry in announced), default=0)
        if item.is_own and item.arrival is not None and not item.arrival.has_waited:
            first = max(first, item.arrival.settled_at)
        entries = (interests.subscriptions.get(name) for name in names)
        if any(entry is not None and entry.tick < first for entry in entries):
            return True
        if item.origin is not None and not item.is_acknowledged:
            origin = item.origin.neighbour.node
            settled_at = self._ticks_settled[origin].get(key, 0)
            if any(self._ticks_learnt[origin].get(name, math.inf) < settled_at for name in names):
                return True
        told = [
            self._confirmed_at(entry.hop if entry.hop in self._orphans else None, entry.id)
            for entry in announced
        ]
        asked = [self._confirmed_at(node, name) for name in names]
        return any(
            bool(told) and all(life == by and tick > 0 and at < tick for by, tick in told)
            for life, at in asked
        )

    def _confirmed_at(self, node: NodeId | None, name: str) -> tuple[Life, int]:
        """Who of the failed confirmed this to a side, and when by its clock; 0 if long ago."""
        if node is None:
            life = Life(self._dead.node, self._dead.incarnation)
            [tick] = self._publications.interests.ticks.of(life, [name])
            return life, tick
        attach = self._orphans[node].attach
        assert attach is not None
        [life] = attach.failed or [Life(node, 0)]
        return life, self._orphans[node].confirmed_at.get(name, 0)

    def _find_subscribers(self, node: NodeId | None, side: Side) -> None:
        """Who on a side has what it has settled, and is to have what it has not."""
        settled_at = self._settled_at(node)
        side.settled = sorted(settled_at, key=settled_at.__getitem__)
        placed_at = self._placed_at() if node is None else {}
        side.settled_by = self._settled_by(placed_at)
        wishes = self._in_time(node, settled_at, placed_at)
        side.subscriptions = {key: frozenset(names) for key, names in wishes.items()}
        had = self._had(node, settled_at)
        side.subscribers = _subscribers(wishes, had)
        side.for_long = _subscribers(self._for_long(node, settled_at, wishes), had)
        side.may_have = self._may_have(node, side)

    def _for_long(
        self, node: NodeId | None, settled_at: Mapping[Key, int], wishes: Mapping[Key, _Wishes]
    ) -> Mapping[Key, _Wishes]:
        """Those of the subscriptions that were confirmed everywhere when a side settled this.

        On this side they were; but others beyond it may have had to confirm them as well, and until
        then their client gets nothing in order.
        """
        asked = self._asked(node, wishes.values())
        return {
            key: {
                name: client
                for name, client in names.items()
                if key not in settled_at or asked[name].latest == LONG_AGO
            }
            for key, names in wishes.items()
        }

    def _asked(
        self, node: NodeId | None, wishes: Iterable[_Wishes]
    ) -> Mapping[SubscriptionId, Asked]:
        """When a side's subscriptions were confirmed there, by its own clock."""
        if node is not None:
            return self._orphans[node].asked_at
        names = list(dict.fromkeys(chain.from_iterable(wishes)))
        confirmed_at = self._publications.interests.confirmed_at(names)
        return dict(zip(names, confirmed_at, strict=True))

    def _settled_at(self, node: NodeId | None) -> dict[Key, int]:
        """What a side has settled, and when, by its clock."""
        if node is not None:
            ticks = self._ticks_settled[node]
            return {key: tick for key, tick in ticks.items() if key in self._items}
        return {
            key: item.arrival.settled_at
            for key, item in self._items.items()
            if item.arrival is not None and item.arrival.settled_at
        }

    def _placed_at(self) -> Mapping[NodeId, Mapping[Key, int]]:
        """What they have on the hub's own side that it has adopted in a merge before, and when."""
        arrivals = [item.arrival for item in self._items.values() if item.arrival is not None]
        first = min((a.settled_at for a in arrivals if a.settled_at), default=math.inf)
        neighbours = self._publications.neighbours.below.values()
        found: dict[NodeId, dict[Key, int]] = {}
        for neighbour in neighbours:
            if neighbour.adopted_at > first and neighbour.node not in self._orphans:
                ticks = ((a.key, _tick_of(a, neighbour)) for a in arrivals)
                found[neighbour.hop] = {key: tick for key, tick in ticks if tick}
        return found

    def _settled_by(
        self, placed_at: Mapping[NodeId, Mapping[Key, int]]
    ) -> Mapping[NodeId, Sequence[Key]]:
        """In which order those have it who were adopted, and all who are behind them."""
        orders = {hop: sorted(ticks, key=ticks.__getitem__) for hop, ticks in placed_at.items()}
        wishes = (item.wanted_by.get(None, {}) for item in self._items.values() if orders)
        return {
            client: orders[hop]
            for names in wishes
            for name, client in names.items()
            if client is not None and (hop := self._hop_of(name)) in orders
        }

    def _hop_of(self, name: SubscriptionId) -> NodeId | None:
        entry = self._publications.interests.subscriptions.get(name)
        return None if entry is None else entry.hop

    def _in_time(
        self,
        node: NodeId | None,
        settled_at: Mapping[Key, int],
        placed_at: Mapping[NodeId, Mapping[Key, int]],
    ) -> Mapping[Key, _Wishes]:
        """A side's subscriptions that are confirmed, and were when it settled what they want."""
        wanted = {
            key: item.wanted_by[node] for key, item in self._items.items() if node in item.wanted_by
        }
        asked = self._asked(node, wanted.values())
        asked_at = {name: then.latest for name, then in asked.items()}

        def settled_for(name: SubscriptionId) -> Mapping[Key, int]:
            hop = self._hop_of(name) if placed_at else None
            return settled_at if hop is None else placed_at.get(hop, settled_at)

        return {
            key: {
                name: client
                for name, client in names.items()
                if 0 < asked_at.get(name, 0) <= settled_for(name).get(key, math.inf)
                and not self._is_at_client(node, key)
            }
            for key, names in wanted.items()
        }

    def _may_have(self, node: NodeId | None, side: Side) -> Mapping[Key, frozenset[NodeId]]:
        """Who else on a side wants what: they asked when it was under way, or have just asked."""
        found = {}
        for key, item in self._items.items():
            if self._is_at_client(node, key):
                continue
            clients = item.wanted_by.get(node, {}).values()
            others = {c for c in clients if c is not None} - side.subscribers.get(key, frozenset())
            if others:
                found[key] = frozenset(others)
        return found

    def _had(self, node: NodeId | None, settled_at: Mapping[Key, int]) -> Mapping[Key, set[NodeId]]:
        """Who on a side got what by a subscription that is withdrawn; of a client: what it got."""
        if not self._is_ordered:
            return {}
        if node is not None:
            is_client = self._is_client(node)
            return {key: {node} for key in settled_at} if is_client else self._orphans[node].had
        found = {}
        for key in settled_at:
            arrival = self._items[key].arrival
            assert arrival is not None
            found[key] = {
                entry.client
                for entry in self._publications.got_once(arrival)
                if entry.hop not in self._orphans and entry.hop != self._dead.hop
            }
        return found

    def _is_client(self, node: NodeId | None) -> bool:
        return node is not None and self._orphans[node].neighbour.kind is NodeKind.CLIENT

    def _is_at_client(self, node: NodeId | None, key: Key) -> bool:
        """Whether a client has this already: in order, or else it will not have it so any more."""
        return node is not None and self._is_client(node) and self._orphans[node].has_seen(key)

    def _lacks(self, node: NodeId | None, key: Key, item: _Item) -> bool:
        """Whether a side that wants a publication, and has not got it lately, has not got it."""
        if item.is_stable:
            return False
        if node is None:
            return not item.is_own and item.arrival is None and not self._publications.has_seen(key)
        orphan = self._orphans[node]
        if item.origin is orphan and orphan.neighbour.kind is NodeKind.BROKER:
            return False  # it comes from there; a client may want to hear itself
        return not orphan.has_seen(key)

    # --- one arrival for each -------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begin the orphans' streams anew; nothing may become complete before all of it is done."""
        publications = self._publications
        for key, item in self._items.items():
            if item.arrival is None:
                item.arrival = self._new_arrival(item)
            arrival = item.arrival
            if arrival.publication is not item.publication:  # an orphan has it for everybody
                arrival.publication = item.publication
                arrival.route = attrs.evolve(arrival.route, climbs_unordered=True)
            arrival.missing += 1  # until `_finish`
            if item.origin is not None:
                arrival.source = item.origin.neighbour
                arrival.number = item.number
                arrival.is_awaited = item.is_awaited or item.is_acknowledged
                arrival.is_told = item.is_acknowledged
            elif arrival.source is self._dead:
                arrival.source = GONE
            if isinstance(self._dead, Above):
                arrival.route = attrs.evolve(arrival.route, climbs=False)
            self._adopted[key] = arrival
        for orphan in self._orphans.values():
            neighbour = orphan.neighbour
            for publication in orphan.sent:
                arrival = self._adopted[key_of(publication)]
                if neighbour.kind is NodeKind.CLIENT:
                    neighbour.received.append_confirmed(arrival)
                else:
                    arrival.missing += 1
                    neighbour.received.append(arrival)
            for publication in orphan.received:
                if publication.flags & Flag.NOTICE:
                    publications.unstable += 1
                    notice = Arrival(Settled(0), 1, source=neighbour, route=NOWHERE)
                    notice.settles = self._adopted.get(key_of(publication)) or Arrival(
                        without_log_flags(publication), source=GONE, route=NOWHERE
                    )
                    neighbour.sent.append(notice)
                else:
                    self._note_possession(neighbour, self._adopted[key_of(publication)])
            self._note_places(orphan)
        self._redirect_held()

    def _note_places(self, orphan: Orphan) -> None:
        """Remember in which order an orphan has what it has."""
        neighbour = orphan.neighbour
        neighbour.adopted_at = next(self._publications.neighbours.clock)
        settled_at = self._ticks_settled[neighbour.node]
        count = len(orphan.received)
        for number, key in enumerate(map(key_of, orphan.received)):
            tick = settled_at.get(key, 0)
            if tick and neighbour.kind is NodeKind.CLIENT:
                tick = orphan.attached_at - count + number
            elif tick:
                tick = orphan.at_latest(tick)
            if key in self._adopted:
                _place(self._adopted[key], neighbour, tick)
        if neighbour.kind is NodeKind.BROKER:
            for key in map(key_of, orphan.sent):
                if key in settled_at:
                    _place(self._adopted[key], neighbour, orphan.at_latest(settled_at[key]))

    def _new_arrival(self, item: _Item) -> Arrival:
        """The hub has not seen this one, or not that it remembers."""
        item.is_new = True
        source: Below = item.origin.neighbour if item.origin is not None else GONE
        publications = self._publications
        publications.unstable += 1
        return Arrival(
            item.publication,
            1,
            source=source,
            route=Route(
                down=(),
                climbs=False,
                links=(),
                is_allowed=True,
                version=publications.neighbours.version,
            ),
            is_urgent=item.publication.flags & Flag.URGENT != 0,
            since=self._now,
        )

    @staticmethod
    def _note_possession(neighbour: Below, arrival: Arrival) -> None:
        neighbour.sent.append(arrival)
        arrival.missing += 1
        arrival.adopted_by += (neighbour,)

    def _redirect_held(self) -> None:
        """What is held here and was to go to the failed child goes to the orphans that want it."""
        for arrival in self._publications.ordering.held:
            if self._dead in arrival.route.down and isinstance(arrival.publication, Publish):
                self._extend_route(arrival, self._wanting(arrival))

    def _wanting(self, arrival: Arrival) -> list[Below]:
        assert isinstance(arrival.publication, Publish)
        wanted_by = self._sides_wanting(arrival.publication.content)
        return [
            orphan.neighbour
            for node, orphan in self._orphans.items()
            if node in wanted_by
            and arrival.key not in self._passed_by[node]
            and (orphan.neighbour is not arrival.source or orphan.neighbour.kind is NodeKind.CLIENT)
        ]

    def _extend_route(self, arrival: Arrival, more: Sequence[Below]) -> None:
        """Send it to these as well, when it is settled."""
        route = arrival.route
        down = tuple(neighbour for neighbour in route.down if neighbour is not self._dead)
        arrival.missing += len(down) + len(more) - len(route.down)
        down += tuple(more)
        arrival.route = attrs.evolve(
            route,
            down=down,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
        )

    # --- on their way again -----------------------------------------------------------------------

    def _release(self, item: _Item) -> None:
        """What the failed brokers had released, everybody else gets as well, now."""
        arrival = item.arrival
        assert arrival is not None
        if item.is_stable:
            self._settle_quietly(arrival)
            return
        self._give(arrival)
        self._tell_who_waits(arrival)
        if item.is_new:
            self._admit(item, arrival, is_for_orphans=False)
        else:
            self._settle_if_root(arrival)

    def _tell_who_waits(self, arrival: Arrival) -> None:
        if arrival.is_awaited and not arrival.is_told:
            self._publications.tell_settled(arrival)

    def _give(self, arrival: Arrival) -> None:
        """Send it to the orphans that lack it."""
        assert isinstance(arrival.publication, Publish)
        key = arrival.key
        for neighbour in self._wanting(arrival):
            orphan = self._orphans[neighbour.node]
            if neighbour in arrival.adopted_by or orphan.has_seen(key):
                continue
            self._note_possession(neighbour, arrival)
            _place(arrival, neighbour, next(self._publications.neighbours.clock))
            self._publications.send(neighbour, arrival.publication)

    def _take_in(self, item: _Item) -> None:
        """Nobody has got this one from the failed brokers; the hub decides."""
        arrival = item.arrival
        assert arrival is not None
        if item.is_stable:
            self._settle_quietly(arrival)
        elif item.is_new:
            self._admit(item, arrival, is_for_orphans=True)
        elif arrival.is_settled:
            self._give(arrival)
            self._tell_who_waits(arrival)
        else:
            already = [*arrival.adopted_by, *arrival.route.down]
            self._extend_route(arrival, [n for n in self._wanting(arrival) if n not in already])
            self._settle_if_root(arrival)

    def _admit(self, item: _Item, arrival: Arrival, *, is_for_orphans: bool) -> None:
        """Let the hub route and settle a publication that it has not had before."""
        publications = self._publications
        key = key_of(item.publication)
        route = publications.compute_route(arrival.source, item.publication)
        down: Sequence[Below] = route.down
        if route.climbs and self._asked_too_late_above(item):
            route = self._climbing_unordered(arrival.source, route, item.publication)
        climbs = route.climbs
        has_had_it = publications.has_seen(key) and None in item.wanted_by
        if has_had_it or key in self._passed_by[None]:
            # Its own side wanted it, so that it has had it, before it became stable there.
            down = [neighbour for neighbour in down if neighbour.node in self._orphans]
            climbs = False
        if is_for_orphans:
            given = arrival.adopted_by
            down = [
                neighbour
                for neighbour in down
                if neighbour not in given
                and key not in self._passed_by.get(neighbour.node, ())
                and not (
                    neighbour.node in self._orphans and self._orphans[neighbour.node].has_seen(key)
                )
            ]
        else:
            down = [neighbour for neighbour in down if neighbour.node not in self._orphans]
        down = tuple(down)
        arrival.missing += len(down)
        arrival.route = attrs.evolve(
            route,
            down=down,
            climbs=climbs,
            conflicts=climbs and route.conflicts,
            conflicts_if_awaited=climbs and route.conflicts_if_awaited,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
        )
        publications.note_seen(key)
        if isinstance(self._dead, Above):
            publications.settle_now(arrival)
        else:
            publications.admit(arrival)

    def _climbing_unordered(self, source: Neighbour, route: Route, publication: Publish) -> Route:
        """The same route, but upwards only for those who do not ask for order."""
        publication = publication.with_flags(publication.flags | Flag.UNORDERED_ONLY)
        return attrs.evolve(
            route,
            climbs=self._publications.compute_route(source, publication).climbs,
            climbs_unordered=True,
            conflicts=False,
            conflicts_if_awaited=False,
        )

    def _asked_too_late_above(self, item: _Item) -> bool:
        """Whether those above asked for it only when it had been settled somewhere below.

        Somebody below has it who could share something that comes from above with them, as the
        failed broker knew: that would have waited until the hub had settled this, had it known of
        them. Sent up now, this would come there after what is on its way down from there already.
        """
        if not isinstance(self._dead, Below):
            return False
        interests = self._publications.interests
        entries = filter(None, map(interests.subscriptions.get, item.wanted_by.get(None, ())))
        above = {entry.client for entry in entries if entry.ordered and entry.hop == UP}
        if not above:
            return False
        key = key_of(item.publication)
        have_it = {
            client
            for side in self._sides[1:]
            if key in side.settled
            for client in side.subscribers.get(key, ())
        }
        return interests.could_share(have_it, above, self._dead, self._since)

    def _settle_quietly(self, arrival: Arrival) -> None:
        """Everybody has it; it is here for those who have not heard of that."""
        if not arrival.is_settled:
            arrival.is_settled = True
            self._publications.no_longer_missing(arrival)

    def _settle_if_root(self, arrival: Arrival) -> None:
        """A broker that has become the root waits for nobody, but keeps to the order."""
        if isinstance(self._dead, Above) and not arrival.is_settled:
            self._publications.settle_now(arrival)

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Nobody waits for the failed neighbour any more; what is complete is complete."""
        dead = self._dead
        publications = self._publications
        if isinstance(dead, Below):
            for stream in (dead.sent, dead.received):
                for arrival in stream.keep():
                    arrival.adopted_by = tuple(n for n in arrival.adopted_by if n is not dead)
                    if dead in arrival.route.down and arrival.is_settled:
                        arrival.route = attrs.evolve(
                            arrival.route,
                            down=tuple(n for n in arrival.route.down if n is not dead),
                        )
                for arrival in stream.unconfirmed:
                    publications.no_longer_missing(arrival)
        else:
            for arrival in dead.received.keep():
                if arrival.settles is not None or arrival.route is NOWHERE:
                    publications.unstable -= 1
        for arrival in self._adopted.values():
            publications.no_longer_missing(arrival)
            if isinstance(dead, Above):
                publications.complete_at_root(arrival)
        for orphan in self._orphans.values():
            publications.look_for_stable(orphan.neighbour)


def _subscribers(
    wishes: Mapping[Key, _Wishes], had: Mapping[Key, Collection[NodeId]]
) -> Mapping[Key, frozenset[NodeId]]:
    """Whose these subscriptions are, if order matters to them; and who had what besides."""
    found = {
        key: frozenset(client for client in names.values() if client is not None)
        for key, names in wishes.items()
    }
    return found | {key: found.get(key, frozenset()) | set(clients) for key, clients in had.items()}


def _unordered(wishes: _Wishes) -> _Wishes:
    return {name: client for name, client in wishes.items() if client is None}


def _place(arrival: Arrival, neighbour: Below, tick: int) -> None:
    arrival.placed_at = {**arrival.placed_at, neighbour.hop: tick}


def _tick_of(arrival: Arrival, neighbour: Below) -> int:
    """When an adopted neighbour had it in order; 0 if it does not, or nobody can tell."""
    since = arrival.settled_at if arrival.settled_at > neighbour.adopted_at else 0
    return arrival.placed_at.get(neighbour.hop, since)
