"""A hub takes the place of brokers that have failed, where the root settles every publication.

There is one order of everything, and what anybody got is a beginning of it, filtered by what it
wants. The root writes a publication's place in that order on it, so that a hub need not find out
what came first: a side lacks what it wants and has not seen, and whose place is not before that of
the last publication it got. What is before that, the failed brokers have passed by that side: its
subscription came too late.

A publication comes by a broker twice, on its way up and on its way down, and has an `Arrival` for
each; at the root, one for both.

- The hub stands above the failed brokers: what it has sent down is all there is of the order. Who
  lacks some of it gets it. What has not come up to the hub climbs now.
- The root itself has failed, and the hub becomes the root: what any side has got is the order. What
  nobody has got goes before the next publication of its publisher that somebody has got, which the
  root has settled later; if there is none, it is settled now.

Streams begin anew with what is kept, at both ends, as in `broker/reunion.py`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from broker.messages import Flag, NodeKind, PublicationId, Publish
from broker.neighbours import GONE, NOWHERE, Above, Arrival, Below, Neighbour, Route
from broker.orphans import Orphan, key_of, known_to_be_stable
from broker.publications import Publications
from faulttol.merging import Key
from routing.ids import NodeId

_UNPLACED: Final = 0


class Beginning:
    """How much of the one order a side has got."""

    def __init__(self, place: int, seen: Iterable[PublicationId]) -> None:
        self.place = place
        self._seen = {last.publisher: (last.incarnation, last.seq) for last in seen}

    def lacks(self, publication: Publish) -> bool:
        """Whether a publication that it wants is still to come."""
        stamp = (publication.incarnation, publication.seq)
        has_seen = self._seen.get(publication.publisher, (0, 0)) >= stamp
        return publication.place >= self.place and not has_seen

    @property
    def seen(self) -> list[Key]:
        """The last publication of each publisher."""
        return [(publisher, *stamp) for publisher, stamp in self._seen.items()]


@attrs.define(eq=False)
class _Item:
    """One publication that is not stable, at a hub that becomes the root."""

    publication: Publish
    down: Arrival | None = None
    """At the hub, from the root that has failed."""
    up: Arrival | None = None
    """At the hub, from its own side."""
    origin: Orphan | None = None
    """The orphan from whose side it comes."""


class SequencedReunion:
    """One re-forming, at the hub."""

    def __init__(
        self,
        publications: Publications,
        dead: Neighbour,
        orphans: Sequence[Orphan],
        *,
        now: float,
    ) -> None:
        """Put `orphans` in the place of `dead`."""
        self._publications = publications
        self._dead = dead
        self._orphans = orphans
        self._now = now
        self._beginnings: dict[NodeId, Beginning] = {}
        self._own: Beginning | None = None
        """Of the hub, and so of all its other neighbours; a hub that stands above lacks nothing."""
        for orphan in orphans:
            assert orphan.attach is not None
            self._beginnings[orphan.neighbour.node] = Beginning(
                orphan.attach.place, orphan.attach.seen
            )

    def run(self) -> int:
        """Do it; returns how many publications could not be put in order, which is none."""
        if isinstance(self._dead, Above):
            self._become_root(self._dead)
        else:
            self._stand_in_for(self._dead)
        for orphan in self._orphans:
            self._publications.look_for_stable(orphan.neighbour)
        return 0

    # --- the hub is above ---------------------------------------------------------------------

    def _stand_in_for(self, dead: Below) -> None:
        publications = self._publications
        down = {a.key: a for a in dead.sent.keep() if a.route is not NOWHERE}
        up = {a.key: a for a in dead.received.keep() if a.route is not NOWHERE}
        adopted = list(dict.fromkeys([*down.values(), *up.values()]))
        for arrival in adopted:
            arrival.missing += 1  # nothing may become complete before all of it is done
            if arrival.source is dead:
                arrival.source = GONE

        for orphan in self._orphans:
            for publication in orphan.received:
                known = down.get(key_of(publication)) or self._stable(publication)
                _note_possession(orphan.neighbour, known)
        for arrival in down.values():
            if not arrival.stable:
                self._give(arrival)
        stable = known_to_be_stable(publications.lately_stable, self._orphans)
        for orphan in self._orphans:
            for publication in orphan.sent:
                key = key_of(publication)
                if publications.has_seen(key) or key in stable:
                    arrival = up.get(key) or self._stable(publication)
                    arrival.source = orphan.neighbour
                    _note_origin(orphan.neighbour, arrival)
                else:
                    self._take_in(orphan.neighbour, publication)

        for stream in (dead.sent, dead.received):
            for arrival in stream.keep():
                _take_off(arrival, dead)
            for arrival in stream.unconfirmed:
                publications.no_longer_missing(arrival)
        for arrival in adopted:
            publications.no_longer_missing(arrival)

    @staticmethod
    def _stable(publication: Publish) -> Arrival:
        """It is kept only by those who have not heard yet that everybody has it."""
        arrival = Arrival(publication, 1, source=GONE, route=NOWHERE)
        arrival.stable = arrival.is_settled = True
        return arrival

    def _take_in(self, source: Below, publication: Publish) -> None:
        """It was on its way up, and has not come to the hub."""
        publications = self._publications
        route = publications.compute_route(source, publication)
        publication = publications.take_place(publication, source)
        arrival = self._new_arrival(publication, source, route)
        arrival.missing += 1 + len(route.down)
        _note_origin(source, arrival)
        publications.note_seen(arrival.key)
        publications.admit(arrival)

    # --- the hub becomes the root -------------------------------------------------------------

    def _become_root(self, dead: Above) -> None:
        publications = self._publications
        self._own = Beginning(publications.place, publications.last_seen)
        items = self._collect(dead)
        self._place(items)
        arrivals = {key: self._one_arrival(item) for key, item in items.items()}
        self._let_one_stand_for_both(items.values())
        for orphan in self._orphans:
            for publication in orphan.received:
                _note_possession(orphan.neighbour, arrivals[key_of(publication)])
            for publication in orphan.sent:
                _note_origin(orphan.neighbour, arrivals[key_of(publication)])
        for arrival in sorted(arrivals.values(), key=_place_and_key):
            if _is_placed(arrival):
                self._give(arrival)
        for beginning in (self._own, *self._beginnings.values()):
            for key in beginning.seen:
                publications.note_seen(key)
        for key, arrival in arrivals.items():
            publications.note_seen(key)
            publications.no_longer_missing(arrival)

    def _collect(self, dead: Above) -> dict[Key, _Item]:
        """Everything that anybody keeps."""
        items: dict[Key, _Item] = {}
        for arrival in dead.received.keep():
            if arrival.route is NOWHERE:
                self._publications.unstable -= 1  # a duplicate, which nobody misses any more
            else:
                assert isinstance(arrival.publication, Publish)
                items[arrival.key] = _Item(arrival.publication, down=arrival)
        for orphan in self._orphans:
            for publication in orphan.received:
                items.setdefault(key_of(publication), _Item(publication))
        for arrival in dead.sent.keep():
            assert isinstance(arrival.publication, Publish)
            unplaced = arrival.publication.with_place(_UNPLACED)
            items.setdefault(arrival.key, _Item(unplaced)).up = arrival
        for orphan in self._orphans:
            for publication in orphan.sent:
                unplaced = publication.with_place(_UNPLACED)
                items.setdefault(key_of(publication), _Item(unplaced)).origin = orphan
        return items

    def _place(self, items: dict[Key, _Item]) -> None:
        """Give a place to what nobody has got, unless everybody had it and has forgotten it."""
        publications = self._publications
        publications.place = max(
            [
                publications.place,
                *(beginning.place for beginning in self._beginnings.values()),
                *(item.publication.place for item in items.values()),
            ]
        )
        stable = known_to_be_stable(publications.lately_stable, self._orphans)
        next_place: dict[NodeId, int] = {}
        for key, item in sorted(items.items(), reverse=True):
            if item.publication.place:
                next_place[key[0]] = item.publication.place
            elif key not in stable and key[0] in next_place:
                item.publication = item.publication.with_place(next_place[key[0]])
        for key, item in items.items():
            if key not in stable and not item.publication.place:
                item.publication = publications.take_place(item.publication, GONE)

    def _one_arrival(self, item: _Item) -> Arrival:
        """What is known of a publication on its way up, and of it on its way down, is one now."""
        publications = self._publications
        arrival = item.down or item.up
        if arrival is None:
            version = publications.neighbours.version
            nobody = Route(down=(), climbs=False, links=(), is_allowed=True, version=version)
            arrival = self._new_arrival(item.publication, GONE, nobody)
            arrival.is_settled = True
        arrival.missing += 1  # nothing may become complete before all of it is done
        arrival.publication = item.publication
        arrival.route = attrs.evolve(arrival.route, climbs=False)
        if item.up is not None:
            arrival.source = item.up.source
        else:
            arrival.source = item.origin.neighbour if item.origin is not None else GONE
        return arrival

    def _let_one_stand_for_both(self, items: Iterable[_Item]) -> None:
        """What has come down stands for the same on its way up, in the streams from below."""
        publications = self._publications
        instead: dict[Arrival, Arrival] = {}
        for item in items:
            if item.up is not None and item.down is not None:
                instead[item.up] = item.down
                item.down.missing += item.up.missing
                item.down.is_urgent |= item.up.is_urgent
                publications.unstable -= 1
        for neighbour in publications.neighbours.below.values():
            neighbour.received.replace(instead)

    # --- both ---------------------------------------------------------------------------------

    def _new_arrival(self, publication: Publish, source: Below, route: Route) -> Arrival:
        self._publications.unstable += 1
        is_urgent = publication.flags & Flag.URGENT != 0
        return Arrival(
            publication, source=source, route=route, is_urgent=is_urgent, since=self._now
        )

    def _give(self, arrival: Arrival) -> None:
        """Send a publication down to whoever lacks it."""
        publications = self._publications
        publication = arrival.publication
        assert isinstance(publication, Publish)
        from_above = publications.neighbours.parent or GONE
        for neighbour in publications.compute_route(from_above, publication).down:
            beginning = self._beginnings.get(neighbour.node, self._own)
            if beginning is not None and beginning.lacks(publication):
                _note_possession(neighbour, arrival)
                publications.send(neighbour, publication)


def _note_possession(neighbour: Below, arrival: Arrival) -> None:
    """Wait for a neighbour that has a publication."""
    neighbour.sent.append(arrival)
    arrival.missing += 1
    arrival.adopted_by += (neighbour,)


def _note_origin(neighbour: Below, arrival: Arrival) -> None:
    """Tell a neighbour that has sent a publication up when it is stable."""
    if neighbour.kind is NodeKind.CLIENT:
        neighbour.received.append_confirmed(arrival)
    else:
        arrival.missing += 1
        neighbour.received.append(arrival)


def _take_off(arrival: Arrival, gone: Below) -> None:
    """Let nobody think that a neighbour that is gone has to hear of it."""
    down = tuple(neighbour for neighbour in arrival.route.down if neighbour is not gone)
    if len(down) != len(arrival.route.down):
        arrival.route = attrs.evolve(arrival.route, down=down)
    arrival.adopted_by = tuple(n for n in arrival.adopted_by if n is not gone)


def _place_and_key(arrival: Arrival) -> tuple[int, Key]:
    assert isinstance(arrival.publication, Publish)
    return arrival.publication.place, arrival.key


def _is_placed(arrival: Arrival) -> bool:
    assert isinstance(arrival.publication, Publish)
    return arrival.publication.place != _UNPLACED
