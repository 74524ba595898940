"""Who plays which broker, where hosts are, and which of them have failed.

All hosts tell each other all of this (`Seating`), in any order, over any ways, and again. So it is
merged so that no order matters: of two seats of one broker the later counts, of two places of one
host the later incarnation, and who has failed has failed. What nodes conclude from it is a function
of it: two that know the same expect the same host to take up what is lost.

A burial is needed while the life that it is about could be taken for alive. It is dropped when a
later life of that host is known. Of hosts that have gone for good, and of brokers that have left
the tree, as many are remembered as the limits allow; which ones does not depend on who remembers.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import attrs

from plait.broker.errors import RemoteProtocolError
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.messages import HostPlace, Life, Seat, Seating
from plait.routing.ids import NodeId

TERMS_AT_ONCE: Final = 1 << 32
"""Terms of a broker that may pass unheard: far more than there ever are, and few of those that can
be counted. After the last one nobody could take it up."""


class _Kind(enum.IntEnum):
    SEAT = enum.auto()
    PLACE = enum.auto()
    FAILED = enum.auto()
    PROVEN = enum.auto()


_Piece = tuple[_Kind, NodeId]


@attrs.frozen
class _Tree:
    """What follows from the seats alone."""

    brokers: tuple[NodeId, ...]
    children: dict[NodeId, list[NodeId]]
    played: dict[Life, list[NodeId]]
    hosts: frozenset[NodeId]
    """Those that a seat names, whether they live or not."""
    adjacent: dict[NodeId, dict[NodeId, None]]
    """Of hosts: those that play neighbours of what this one plays."""
    newest: dict[NodeId, int]
    """Of hosts: the last incarnation that a seat names."""
    distances: dict[NodeId, dict[NodeId, int]] = attrs.field(factory=dict)
    """Worked out when somebody asks."""


def _age_of_seat(seat: Seat) -> tuple[object, ...]:
    """Of two seats of one broker, the one of the greater age counts.

    A term is begun by one host. If two began it all the same, everybody believes the same one.
    """
    what = (seat.term, seat.left, seat.is_vacant)
    return (*what, seat.host, seat.incarnation, seat.parent, seat.taker)


def _age_of_place(place: HostPlace) -> tuple[object, ...]:
    return (
        place.incarnation,
        place.is_leaving,
        place.address,
        place.site,
        place.rank,
        place.clients_address,
    )


def _distances(
    start: NodeId, near: Callable[[NodeId], Iterable[NodeId]], reach: int | None = None
) -> dict[NodeId, int]:
    """How far others are, by the neighbours of each; nobody further than `reach`."""
    distances, queue = {start: 0}, [start]
    for node in queue:
        if distances[node] == reach:
            break
        for other in near(node):
            if other not in distances:
                distances[other] = distances[node] + 1
                queue.append(other)
    return distances


def next_incarnation(host: NodeId, last: int, known: Seating) -> int:
    """Of the life of a host that follows: later than any of which somebody may have heard."""
    lives = [place.incarnation for place in known.hosts if place.host == host]
    lives += [life.incarnation for life in (*known.failed, *known.proven) if life.host == host]
    return 1 + max([last, *lives])


class Seats:
    """What one node knows of all brokers and hosts; it only grows."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        """Begin knowing nothing."""
        self.version = 0
        """Goes up with everything that is news."""
        self.tree_version = 0
        """Goes up when that is about a seat."""
        self._limits = limits
        self._seats: dict[NodeId, Seat] = {}
        self._places: dict[NodeId, HostPlace] = {}
        self._failed: dict[NodeId, int] = {}
        """The last incarnation of a host that has failed."""
        self._proven: dict[NodeId, int] = {}
        self._pieces: dict[_Kind, dict[NodeId, Any]] = {
            _Kind.SEAT: self._seats,
            _Kind.PLACE: self._places,
            _Kind.FAILED: self._failed,
            _Kind.PROVEN: self._proven,
        }
        self._news: dict[_Piece, int] = {}
        """At which version each piece changed last, in that order."""
        self._tree: _Tree | None = None
        self._named: frozenset[Life] | None = None
        self._living: dict[NodeId, Life] | None = None
        self._around: dict[tuple[NodeId, int], Seating] = {}

    # --- what is learnt ---------------------------------------------------------------------

    def learn(self, seating: Seating) -> bool:
        """Take in what somebody else knows; returns whether anything was news."""
        news = [self.put(seat) for seat in seating.seats]
        news += [self.place(place) for place in seating.hosts]
        news += [self.bury(life) for life in seating.failed]
        news += [self.bury(life, is_proven=True) for life in seating.proven]
        return any(news)

    def require_possible(self, seating: Seating, *, newest: int) -> None:
        """Raise `RemoteProtocolError` if somebody tells of what nothing could follow on."""
        lives = (*seating.failed, *seating.proven)
        told: list[tuple[NodeId, int]] = [(life.host, life.incarnation) for life in lives]
        told += [(place.host, place.incarnation) for place in seating.hosts]
        told += [(seat.host, seat.incarnation) for seat in seating.seats]
        for host, incarnation in told:
            if incarnation > newest:
                raise RemoteProtocolError(
                    f"Seating: incarnation {incarnation} of {host}, {newest} is the highest allowed"
                )
        for seat in seating.seats:
            self.require_term(seat.broker, seat.term)

    def require_term(self, broker: NodeId, term: int) -> None:
        """Likewise of the term in which a broker is said to be played."""
        known = self._seats.get(broker)
        last = 0 if known is None else known.term
        if term > last + TERMS_AT_ONCE:
            raise RemoteProtocolError(f"term {term} of {broker}, after term {last}")

    def put(self, seat: Seat) -> bool:
        """Learn who plays a broker; returns whether it was news."""
        known = self._seats.get(seat.broker)
        if known is not None and _age_of_seat(known) >= _age_of_seat(seat):
            return False
        self._seats[seat.broker] = seat
        self.tree_version += 1
        self._tree = None
        self._note(_Kind.SEAT, seat.broker)
        if seat.left:
            self._forget_departed()
        self._forget_gone()
        return True

    def leave(self, broker: NodeId) -> None:
        """A broker leaves the tree: whoever plays it says so, when nobody is below it."""
        number = 1 + max(seat.left for seat in self._seats.values())
        self.put(attrs.evolve(self._seats[broker], left=number))

    def place(self, place: HostPlace) -> bool:
        """Learn where a host listens; returns whether it was news."""
        known = self._places.get(place.host)
        if known is not None and _age_of_place(known) >= _age_of_place(place):
            return False
        self._places[place.host] = place
        self._note(_Kind.PLACE, place.host)
        # That there is a later life says itself that the earlier ones are over.
        for kind in (_Kind.FAILED, _Kind.PROVEN):
            if self._pieces[kind].get(place.host, place.incarnation) < place.incarnation:
                self._forget(kind, place.host)
        return True

    def bury(self, life: Life, *, is_proven: bool = False) -> bool:
        """Learn that a life of a host is over, for certain or as far as others can tell."""
        news = self._raise(_Kind.FAILED, life)
        if is_proven:
            news |= self._raise(_Kind.PROVEN, life)
        if news:
            self._forget_gone()
        return news

    def _raise(self, kind: _Kind, life: Life) -> bool:
        place = self._places.get(life.host)
        is_known = self._pieces[kind].get(life.host, -1) >= life.incarnation
        if is_known or (place is not None and place.incarnation > life.incarnation):
            return False
        self._pieces[kind][life.host] = life.incarnation
        self._note(kind, life.host)
        return True

    def _note(self, kind: _Kind, name: NodeId) -> None:
        self.version += 1
        self._news.pop((kind, name), None)
        self._news[kind, name] = self.version
        self._named = self._living = None
        self._around.clear()

    # --- what is forgotten --------------------------------------------------------------------

    def _forget(self, kind: _Kind, name: NodeId) -> None:
        self._pieces[kind].pop(name, None)
        self._news.pop((kind, name), None)
        self._named = self._living = None
        self._around.clear()

    def forget_idle(self, but: Collection[NodeId]) -> None:
        """Forget all other hosts that play nothing, as far as is known here."""
        playing = self._shape().hosts
        for host in [host for host in self._places if host not in but and host not in playing]:
            for kind in (_Kind.PLACE, _Kind.FAILED, _Kind.PROVEN):
                self._forget(kind, host)

    def _forget_departed(self) -> None:
        departed = sorted((s.left, s.broker) for s in self._seats.values() if s.left)
        for _, broker in departed[: max(0, len(departed) - self._limits.departed_brokers_max)]:
            self._forget(_Kind.SEAT, broker)

    def _forget_gone(self) -> None:
        """Forget hosts that have failed and play nothing, if they are too many."""
        if len(self._failed) <= self._limits.gone_hosts_max:
            return
        named = self._shape().hosts
        gone = sorted(
            # An incarnation is the time at which a life began.
            (self._proven.get(host, -1) < incarnation, incarnation, host)
            for host, incarnation in self._failed.items()
            if host not in named
        )
        for _, _, host in gone[: max(0, len(gone) - self._limits.gone_hosts_max)]:
            for kind in (_Kind.PLACE, _Kind.FAILED, _Kind.PROVEN):
                self._forget(kind, host)

    # --- what is told -------------------------------------------------------------------------

    def everything(self) -> Seating:
        """All that is known; two that know the same say the same."""
        return self._seating(self._news)

    def changes_since(self, version: int) -> Seating:
        """What somebody lacks who knows everything up to that version; 0 is nothing."""
        return self._seating(self._pieces_since(version))

    def _pieces_since(self, version: int) -> Iterator[_Piece]:
        for piece, changed in reversed(self._news.items()):
            if changed <= version:
                return
            yield piece

    def _seating(self, pieces: Iterable[_Piece]) -> Seating:
        names: dict[_Kind, list[NodeId]] = {kind: [] for kind in _Kind}
        for kind, name in pieces:
            names[kind].append(name)
        return Seating(
            seats=tuple(self._seats[name] for name in sorted(names[_Kind.SEAT])),
            hosts=tuple(self._places[name] for name in sorted(names[_Kind.PLACE])),
            failed=tuple(Life(n, self._failed[n]) for n in sorted(names[_Kind.FAILED])),
            proven=tuple(Life(n, self._proven[n]) for n in sorted(names[_Kind.PROVEN])),
        )

    def around(self, broker: NodeId, reach: int) -> Seating:
        """What a client of a broker has to know to find who takes that up.

        Brokers within `reach` hops of it, their hosts with all that these play, and spares. A host
        that stands by for one of these and plays something further away is none.
        """
        if (broker, reach) not in self._around:
            self._around[broker, reach] = self._seating(self._pieces_around(broker, reach))
        return self._around[broker, reach]

    def _pieces_around(self, broker: NodeId, reach: int) -> Iterator[_Piece]:
        near = [n for n in _distances(broker, self._neighbours, reach) if n in self._seats]
        hosts = {host for host, life in self._lives().items() if not self.played_by(life)}
        for seat in (self._seats[name] for name in near):
            hosts |= {seat.host, NodeId(seat.taker)}
        if broker in self._seats:  # one host may play all that is near
            distances = self.host_distances(self._seats[broker].host)
            hosts |= {host for host, distance in distances.items() if distance <= reach}
        lives = [self.life_of(host) for host in hosts]
        played = [name for life in lives if life is not None for name in self.played_by(life)]
        yield from ((_Kind.SEAT, name) for name in dict.fromkeys([*near, *played]))
        about = ((kind, host) for host in hosts for kind in _Kind if kind is not _Kind.SEAT)
        yield from (piece for piece in about if piece in self._news)

    # --- the tree -------------------------------------------------------------------------------

    def _shape(self) -> _Tree:
        if self._tree is None:
            seats = [seat for _, seat in sorted(self._seats.items()) if not seat.left]
            present = {seat.broker: seat for seat in seats}
            tree = _Tree(tuple(present), {}, {}, frozenset(seat.host for seat in seats), {}, {})
            for seat in seats:
                tree.newest[seat.host] = max(tree.newest.get(seat.host, 0), seat.incarnation)
                if not seat.is_vacant:
                    tree.played.setdefault(seat.life, []).append(seat.broker)
                parent = NodeId(seat.parent)
                if parent:
                    tree.children.setdefault(parent, []).append(seat.broker)
                if parent in present and present[parent].host != seat.host:
                    tree.adjacent.setdefault(seat.host, {})[present[parent].host] = None
                    tree.adjacent.setdefault(present[parent].host, {})[seat.host] = None
            self._tree = tree
        return self._tree

    def seat_of(self, broker: NodeId) -> Seat | None:
        """Who plays a broker, as far as is known; also of one that has left the tree."""
        return self._seats.get(broker)

    def is_there(self, broker: NodeId) -> bool:
        """Whether a broker is in the tree: not one that is about to join, or has left."""
        seat = self._seats.get(broker)
        return seat is not None and not seat.left

    def parent_of(self, broker: NodeId) -> NodeId | None:
        """The broker above it; None of the root, and of what is not in the tree."""
        seat = self._seats.get(broker)
        if seat is None or seat.left or not seat.parent:
            return None
        above = self._seats.get(NodeId(seat.parent))
        return None if above is not None and above.left else NodeId(seat.parent)

    def children_of(self, broker: NodeId) -> tuple[NodeId, ...]:
        """The brokers below it, by name."""
        return tuple(self._shape().children.get(broker, ()))

    def _neighbours(self, broker: NodeId) -> Iterator[NodeId]:
        parent = self.parent_of(broker)
        if parent is not None:
            yield parent
        yield from self._shape().children.get(broker, ())

    def brokers(self) -> tuple[NodeId, ...]:
        """All that are in the tree, by name."""
        return self._shape().brokers

    def root(self) -> NodeId | None:
        """The broker that has none above it; the first by name, should several say so."""
        return next((broker for broker in self.brokers() if not self._seats[broker].parent), None)

    def played_by(self, life: Life) -> tuple[NodeId, ...]:
        """The brokers that a host plays, by name; not what it has given up."""
        return tuple(self._shape().played.get(life, ()))

    def given_up_by(self, life: Life) -> tuple[NodeId, ...]:
        """The brokers that a host has given up, and that nobody plays yet."""
        seats = [self._seats[broker] for broker in self.brokers()]
        return tuple(seat.broker for seat in seats if seat.is_vacant and seat.life == life)

    def place_of(self, host: NodeId) -> HostPlace | None:
        """Where a host listens, or did while it lived."""
        return self._places.get(host)

    def hosts(self) -> tuple[NodeId, ...]:
        """All that live, as far as is known, by name."""
        return tuple(sorted(self._lives()))

    def named(self) -> frozenset[Life]:
        """All lives of which it is known what they play, or where; whether they are over or not."""
        if self._named is None:
            lives = {Life(place.host, place.incarnation) for place in self._places.values()}
            lives |= {seat.life for seat in self._seats.values() if not seat.left}
            self._named = frozenset(lives)
        return self._named

    def life_of(self, host: NodeId) -> Life | None:
        """The present incarnation of a host; None if none is known to live."""
        return self._lives().get(host)

    def _lives(self) -> dict[NodeId, Life]:
        if self._living is None:
            self._living = {
                life.host: life
                for life in sorted(self.named(), key=lambda life: life.incarnation)
                if not self.has_failed(life)
            }
        return self._living

    def host_distances(self, host: NodeId) -> dict[NodeId, int]:
        """How far hosts are that can be reached; those that play neighbours are adjacent.

        The answer is the same object as long as no seat changes, and not to be changed.
        """
        tree = self._shape()
        if host not in tree.distances:
            tree.distances[host] = _distances(host, lambda node: tree.adjacent.get(node, ()))
        return tree.distances[host]

    # --- failures -------------------------------------------------------------------------------

    def has_failed(self, life: Life) -> bool:
        """Whether a life is known to be over."""
        place = self._places.get(life.host)
        newest = self._shape().newest.get(life.host, 0)
        if place is not None:
            newest = max(newest, place.incarnation)
        return newest > life.incarnation or self._failed.get(life.host, -1) >= life.incarnation

    def is_settled(self, host: NodeId) -> bool:
        """Whether a host plays something, did so once, or stands by: it is not about to join."""
        place, life = self._places.get(host), self.life_of(host)
        stands_by = place is not None and bool(place.site)
        return stands_by or self.is_there(host) or bool(life and self.played_by(life))

    def is_leaving(self, life: Life) -> bool:
        """Whether a host has been told to stop."""
        place = self._places.get(life.host)
        return place is not None and place.is_leaving and place.incarnation == life.incarnation

    def is_lost(self, broker: NodeId, doubted: Collection[Life] = ()) -> bool:
        """Whether nobody plays a broker; `doubted` are lives that the asker takes for failed."""
        seat = self._seats.get(broker)
        if seat is None or seat.left:
            return False
        return seat.is_vacant or seat.life in doubted or self.has_failed(seat.life)

    def region_of(self, broker: NodeId, doubted: Collection[Life] = ()) -> frozenset[NodeId]:
        """The lost brokers that hang together with this one; empty if that is not lost itself."""
        if not self.is_lost(broker, doubted):
            return frozenset()

        def lost(broker: NodeId) -> Iterator[NodeId]:
            return (near for near in self._neighbours(broker) if self.is_lost(near, doubted))

        return frozenset(_distances(broker, lost))

    def regions(self, doubted: Collection[Life] = ()) -> list[frozenset[NodeId]]:
        """All that is lost, in the order of the first name of each region."""
        found: dict[NodeId, frozenset[NodeId]] = {}
        for broker in self.brokers():
            if broker not in found and self.is_lost(broker, doubted):
                found |= dict.fromkeys(region := self.region_of(broker, doubted), region)
        return list(dict.fromkeys(found.values()))

    def boundary(self, region: Collection[NodeId]) -> frozenset[NodeId]:
        """The brokers next to a region: also one of which nothing is known but its name."""
        return frozenset(n for member in region for n in self._neighbours(member)) - {*region}

    def top_of(self, region: Collection[NodeId]) -> NodeId:
        """The broker of a region that is above all others of it."""
        return min(region, key=lambda broker: (self.parent_of(broker) in region, broker))

    def coordinator(
        self, region: Collection[NodeId], doubted: Collection[Life] = ()
    ) -> NodeId | None:
        """The host that is to take up a region; None if no host is known that might.

        Whoever is to have what was given up; else who stands by for the topmost broker; else who
        plays the broker above that; else, next to the region, the first broker's host by name.
        Nobody who is leaving.
        """
        top = self.top_of(region)
        living = {
            host: life
            for host, life in self._lives().items()
            if life not in doubted and not self.is_leaving(life)
        }
        for seat in (self._seats[b] for b in sorted(region, key=lambda b: (b != top, b))):
            if seat.is_vacant and seat.taker in living:
                return NodeId(seat.taker)
        standbys = [host for host in self.standbys_of(top) if host in living]
        if standbys:
            return standbys[0]
        around = [b for b in self.boundary(region) if b in self._seats]
        around = [b for b in around if not self.is_lost(b, doubted)]
        around = [b for b in around if self._seats[b].host in living]
        if around:
            parent = self.parent_of(top)
            return self._seats[parent if parent in around else min(around)].host
        return min([h for h in living if self.is_settled(h)] or living, default=None)

    def standbys_of(self, broker: NodeId) -> list[NodeId]:
        """The hosts that stand by for a broker and play nothing, as far as is known, in turn."""
        standbys = [
            (place.rank, host)
            for host, place in self._places.items()
            if place.site == broker
            and (life := self.life_of(host)) is not None
            and not (self.played_by(life) or self.is_leaving(life))
        ]
        return [host for _, host in sorted(standbys)]

    def taker_of(self, broker: NodeId) -> NodeId | None:
        """The host that was to have what was given up, if there is one."""
        seat = self._seats.get(broker)
        return NodeId(seat.taker) if seat is not None and seat.is_vacant and seat.taker else None

    def failed_hosts_of(self, region: Collection[NodeId]) -> frozenset[Life]:
        """How many failures the loss of a region is: the lives that played it."""
        return frozenset(self._seats[broker].life for broker in region)

    # --- majorities -----------------------------------------------------------------------------

    def is_majority(self, heard: Collection[NodeId], proven: Collection[Life] = ()) -> bool:
        """Whether these hosts, the asker among them, are most of those that may still run.

        Of two halves it is the one with the first host by name. Who was buried without a proof
        counts: were the number to shrink by silence, both parts of an overlay that is cut in two
        could be most of what they know. `proven` is what the asker knows beside the burials.
        """
        over = dict(self._proven)
        for life in proven:
            over[life.host] = max(over.get(life.host, -1), life.incarnation)
        running = [host for host, last in self._last_lives() if over.get(host, -1) < last]
        twice = 2 * sum(host in heard for host in running)
        return twice > len(running) or (twice == len(running) > 0 and running[0] in heard)

    def _last_lives(self) -> list[tuple[NodeId, int]]:
        """All hosts by name, with the last incarnation of which anything is known."""
        last = dict(self._failed)
        seats = [(s.host, s.incarnation) for s in self._seats.values() if not s.left]
        for host, incarnation in (
            *seats,
            *((place.host, place.incarnation) for place in self._places.values()),
        ):
            last[host] = max(last.get(host, -1), incarnation)
        return sorted(last.items())
