"""Publications at one broker: who wants them, settling them, and keeping them until stable.

This is the hot path. `on_publish` runs once per publication, `_settle` touches every receiver, and
`flush` does once per step what need not be done once per publication.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import attrs

from broker.codec import decode_content
from broker.effects import SendMessage
from broker.errors import RemoteProtocolError
from broker.holding import HoldTimes, explain_held
from broker.inputs import LinkId
from broker.interests import FLOODING, Interests
from broker.last_seen import Dropped, LastSeen
from broker.limits import Limits
from broker.messages import (
    Flag,
    Had,
    Message,
    NodeKind,
    Notice,
    Progress,
    PublicationId,
    Publish,
    Settled,
)
from broker.neighbours import (
    GONE,
    NOWHERE,
    UP,
    Above,
    Arrival,
    Below,
    Neighbour,
    Neighbours,
    Route,
)
from broker.orphans import log_of_received, log_of_sent
from broker.outbox import Outbox
from faulttol.merging import Key
from faulttol.stability import unreceived
from routing.ids import NodeId
from routing.orderings import Ordering
from routing.tables import Subscription


@attrs.define
class Counters:
    """What has been counted since the broker started."""

    received: int = 0
    sent: int = 0
    matched: int = 0
    duplicate: int = 0
    stable: int = 0
    routes_cached: int = 0
    routes_computed: int = 0


@attrs.define(eq=False)
class _Barrier:
    """A message that must not overtake these publications."""

    unsettled: set[int]
    neighbour: Neighbour
    message: Message


class Publications:
    """The publications under way at one broker."""

    def __init__(
        self,
        *,
        ordering: Ordering[Arrival],
        limits: Limits,
        neighbours: Neighbours,
        interests: Interests,
        outbox: Outbox,
    ) -> None:
        """Begin with none."""
        self.ordering = ordering
        self.counters = Counters()
        self.hold_times = HoldTimes()
        self.unstable = 0
        """How many are kept because they are not stable."""
        self.flush_at: float | None = None
        """When progress is to be told that does not hurry."""
        self._limits = limits
        self.neighbours = neighbours
        self.interests = interests
        self._outbox = outbox
        self._last_seen = LastSeen(limits.publishers_remembered_max)
        """The incarnation and number of each publisher's last publication."""
        self._last_seen_settled = LastSeen(limits.publishers_remembered_max)
        """The same on their way down, where what climbs comes back from the root."""
        self.dropped = Dropped(limits.dropped_clients_max)
        self.place = 0
        """There, the place of the last publication that came down to here; at the root, of all."""
        self._lately_stable: deque[Key] = deque(maxlen=limits.lately_stable_max)
        """What others may not know yet to be stable."""
        self._touched: dict[NodeId, Below] = {}
        """Neighbours below for whom something may have become stable in this step."""
        self._touched_routes: dict[Route, None] = {}
        """The same, by routes: one entry for many publications that went the same ways."""
        self._awaiting: dict[int, Arrival] = {}
        """What waits for the parent, by its number in the stream up."""
        self._barriers: deque[_Barrier] = deque()
        self._lazy: dict[NodeId, Neighbour] = {}
        """Neighbours to be told of progress, sooner or later."""

    # --- on their way -----------------------------------------------------------------------

    def on_publish(self, source: Neighbour, publication: Publish, now: float) -> None:
        """Take in a publication: find out who wants it, and settle what may be settled."""
        if publication.flags & source.forbidden_flags:
            raise wrongly_flagged(source, publication)
        is_from_client = isinstance(source, Below) and source.kind is NodeKind.CLIENT
        if is_from_client:
            _require_own(source, publication)
        counters = self.counters
        counters.received += 1
        stamp = (publication.incarnation, publication.seq)
        last_seen = self._last_seen
        if self.ordering.settles_at_root and isinstance(source, Above):
            last_seen = self._last_seen_settled
        if last_seen.get(publication.publisher) >= stamp:
            decode_content(publication.content)  # it is kept, and told to whoever may need it
            if isinstance(source, Below) and source.kind is NodeKind.CLIENT:
                _require_sent_before(source, publication)
            counters.duplicate += 1
            route = NOWHERE
        else:
            route = self._route(source, publication)
            if not route.is_allowed:
                raise _not_allowed(source, publication)
            if self.ordering.settles_at_root:
                publication = self.take_place(publication, source)
            last_seen[publication.publisher] = stamp
            if route.down or route.climbs:
                counters.matched += 1

        flags = publication.flags
        is_awaited = flags & Flag.AWAITED != 0
        if is_awaited:
            publication = publication.with_flags(flags & ~Flag.AWAITED)
        arrival = Arrival(
            publication,
            1 + len(route.down),
            source=source,
            route=route,
            is_urgent=flags & Flag.URGENT != 0,
            is_awaited=is_awaited,
            waits=(route.conflicts_if_awaited if is_awaited else route.conflicts)
            and not flags & Flag.UNORDERED,
            since=now,
        )
        arrival.has_waited = arrival.waits
        self.unstable += 1
        if isinstance(source, Above):
            source.received.append(arrival)
        elif source.kind is NodeKind.CLIENT:
            # A client has settled what it publishes by publishing it.
            source.received.append_confirmed(arrival)
        else:
            arrival.missing += 1
            source.received.append(arrival)
        if is_awaited:
            arrival.number = source.received.count
        if route.climbs:
            self._climb(arrival)
        for settled in self.ordering.arrived(arrival):
            self._settle(settled)

    def take_place(self, publication: Publish, source: Neighbour) -> Publish:
        """Give it the next place, at the root; elsewhere, take note of the place it has."""
        if self.neighbours.parent is None:
            self.place += 1
            return publication.with_place(self.place)
        if isinstance(source, Above):
            self.place = publication.place
        return publication

    def admit(self, arrival: Arrival) -> None:
        """Take in a publication in the stead of a failed broker; its streams are taken care of.

        Later ones of its publisher may be held here, for which others asked before.
        """
        route = arrival.route
        assert isinstance(arrival.publication, Publish)
        arrival.waits = arrival.has_waited = (
            route.conflicts_if_awaited if arrival.is_awaited else route.conflicts
        ) and not arrival.publication.flags & Flag.UNORDERED
        if route.climbs:
            self._climb(arrival)
        ordering = self.ordering
        later = next((other for other in ordering.held if other.is_later_than(arrival)), None)
        if later is None:
            settled = ordering.arrived(arrival)
        else:
            settled = ordering.arrived_before(arrival, later)
        for other in settled:
            self._settle(other)

    def settle_now(self, arrival: Arrival) -> None:
        """Settle a publication whatever it waits for, and nothing else."""
        arrival.waits = False
        self.ordering.take_out(arrival)
        self._settle(arrival)

    def _climb(self, arrival: Arrival) -> None:
        """Send a publication up, before and whether or not it is settled here."""
        parent = self.neighbours.parent
        assert parent is not None
        parent.sent.append(arrival)
        if arrival.waits:
            self._awaiting[parent.sent.count] = arrival
        if parent.link is not None:
            self.counters.sent += 1
            self._outbox.send(parent.link, _for_parent(arrival))

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """A message that only some other ordering has a meaning for."""
        raise RemoteProtocolError(
            f"{type(notice).__name__} of {source.node} under ordering {self.ordering.name}"
        )

    def on_settled(self, source: Neighbour, number: int, now: float) -> None:
        """The parent has settled a publication that waits for it: now it is this broker's turn."""
        arrival = self._awaiting.pop(number, None)
        if arrival is None or not isinstance(source, Above):
            raise RemoteProtocolError(f"publication {number} is settled, which does not wait")
        self._noticed(source, Settled(number)).settles = arrival
        self.hold_times.note_acknowledged(arrival, now)
        settled = self.ordering.acknowledged(arrival)
        self.hold_times.note_released(settled, now)
        for each in settled:
            self._settle(each)

    def _settle(self, arrival: Arrival) -> None:
        """Fix the publication's place in this broker's order, and send it down in that order."""
        route = arrival.route
        if route.version != self.neighbours.version:
            route = self._refresh(arrival)
        for neighbour in route.down:
            neighbour.sent.append(arrival)
        if route.links:
            self.counters.sent += len(route.links)
            self._outbox.add(SendMessage(route.links, arrival.publication))
        arrival.is_settled, arrival.settled_at = True, next(self.neighbours.clock)
        if arrival.is_awaited and not arrival.is_told:
            self.tell_settled(arrival)
        if self._barriers:
            self._pass_barriers(arrival)
        arrival.missing -= 1
        if not arrival.missing:
            self._complete(arrival)

    def _refresh(self, arrival: Arrival) -> Route:
        """Connections have changed since a publication arrived, and neighbours may be gone."""
        below = self.neighbours.below
        route = arrival.route
        down = tuple(n for n in route.down if below.get(n.node) is n)
        arrival.missing -= len(route.down) - len(down)
        links = tuple(neighbour.link for neighbour in down if neighbour.link is not None)
        arrival.route = attrs.evolve(route, down=down, links=links)
        return arrival.route

    def tell_settled(self, arrival: Arrival) -> None:
        """Tell the child that waits for it; in its stream, after what was settled before."""
        arrival.is_told = True
        self._notify(arrival.source, Settled(arrival.number)).settles = arrival

    def _notify(self, neighbour: Neighbour, notice: Notice) -> Arrival:
        """Tell a broker something in the stream of publications to it."""
        self.unstable += 1
        entry = Arrival(notice, source=neighbour, route=NOWHERE)
        if isinstance(neighbour, Below):
            entry.missing = 1
        neighbour.sent.append(entry)
        if isinstance(neighbour, Above):
            neighbour.sent.advance_confirmed()
            self._lazy[UP] = neighbour
        self.send(neighbour, notice)
        return entry

    def _noticed(self, source: Neighbour, notice: Notice) -> Arrival:
        """Take note that a broker has told something in the stream of publications from it."""
        self.unstable += 1
        entry = Arrival(notice, source=source, route=NOWHERE)
        if isinstance(source, Below):
            entry.missing = 1
        source.received.append(entry)
        if isinstance(source, Above):
            source.received.advance_confirmed()
            self._lazy[UP] = source
        return entry

    # --- held -------------------------------------------------------------------------------

    def send_in_turn(self, neighbour: Neighbour, message: Message) -> None:
        """Send a message down behind every publication that is here already.

        A confirmation promises that whatever comes after it was routed with the operation in
        mind; a publication that is held was not. And who hears that an advertisement is withdrawn
        no longer waits for what was published under it.
        """
        held = self.ordering.held
        if held and isinstance(neighbour, Below):
            self._barriers.append(_Barrier({id(arrival) for arrival in held}, neighbour, message))
        elif neighbour.link is not None:
            self._outbox.send(neighbour.link, message)

    def _pass_barriers(self, arrival: Arrival) -> None:
        for barrier in self._barriers:
            barrier.unsettled.discard(id(arrival))
        while self._barriers and not self._barriers[0].unsettled:
            barrier = self._barriers.popleft()
            if barrier.neighbour.link is not None:
                self._outbox.send(barrier.neighbour.link, barrier.message)

    def describe_held(self, now: float) -> list[dict[str, Any]]:
        """What is held here, for how long, behind what and for whose sake."""
        return explain_held(self.ordering, self._waits_for, now, most=self._limits.status_held_max)

    def _waits_for(self, arrival: Arrival) -> str | None:
        """Whose word a publication waits for, if it is not only behind others."""
        parent = self.neighbours.parent
        return parent.node if parent is not None and arrival.waits else None

    # --- where to ---------------------------------------------------------------------------

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        """Where this goes, from here and from this source; remembered by its content."""
        if publication.flags & Flag.UNORDERED_ONLY:
            return self.compute_route(source, publication)
        content = publication.content
        if source.routes_version != self.neighbours.version:
            source.routes.clear()
            source.routes_version = self.neighbours.version
        route = source.routes.get(content)
        if route is None:
            if len(source.routes) >= self._limits.cached_routes_max:
                source.routes.clear()
            route = source.routes[content] = self.compute_route(source, publication)
            self.counters.routes_computed += 1
        else:
            self.counters.routes_cached += 1
        return route

    def compute_route(self, source: Neighbour, publication: Publish) -> Route:
        """Where this goes, from here and from this source."""
        attributes = decode_content(publication.content)
        is_from_client = isinstance(source, Below) and source.kind is NodeKind.CLIENT
        is_allowed = not is_from_client or any(
            advertisement.filter.matches(attributes)
            for advertisement in self.interests.advertisements.of_client(source.node)
        )
        version = self.neighbours.version
        parent = self.neighbours.parent
        if self.ordering.settles_at_root and parent is not None and source is not parent:
            return Route(down=(), climbs=True, links=(), is_allowed=is_allowed, version=version)
        index = self.interests.subscriptions.index
        matching = index.matching_bits(attributes)
        conflicts = self.interests.conflicts
        if conflicts is not None and publication.flags & Flag.UNORDERED_ONLY:
            matching = conflicts.unordered(matching)
        hops = index.hops_of(matching)
        below = self.neighbours.below
        if self.interests.policy == FLOODING:
            children = self.neighbours.children()
            down = [n for n in children if n.has_joined and not n.is_standby]
            down += [below[hop] for hop in hops if hop in below and below[hop] not in down]
            climbs = source is not parent
        else:
            down = [below[hop] for hop in hops if hop in below]
            climbs = source is not parent and UP in hops
        climbs = climbs and parent is not None and parent.is_way_up_open
        if source is parent and not source.is_way_down_open and self.ordering.waits_for_conflicts:
            down = []
        if not is_from_client and not self.ordering.settles_at_root:
            # Whoever is interested behind a broker has it already when it comes from there.
            down = [neighbour for neighbour in down if neighbour is not source]
        route = Route(
            down=tuple(down),
            climbs=climbs,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
            is_allowed=is_allowed,
            version=version,
        )
        if conflicts is None or parent is None or source is parent:
            return route  # nothing is ever held at the root, nor if it comes from above
        is_conflict = climbs and conflicts.is_conflict(matching, UP)
        is_conflict_if_awaited = is_conflict or (
            climbs
            and not is_from_client
            and conflicts.is_conflict(matching, UP, unseen_at=source.hop)
        )
        route = attrs.evolve(
            route,
            matching=matching,
            detector=conflicts,
            conflicts=is_conflict,
            conflicts_if_awaited=is_conflict_if_awaited,
        )
        if is_conflict_if_awaited:
            _ = route.subscribers  # it will be held, and be asked when the tables have changed
        return route

    # --- until they are stable --------------------------------------------------------------

    def _complete(self, arrival: Arrival) -> None:
        """Our side has settled the publication: tell the parent, or declare it stable."""
        if arrival.stable:  # already, before a node was adopted that has it too
            return
        if arrival.route.climbs or isinstance(arrival.source, Above):
            parent = self.neighbours.parent
            assert parent is not None
            stream = parent.sent if arrival.route.climbs else parent.received
            stream.advance_confirmed()
            if arrival.is_urgent:
                parent.is_urgent = True
            self._lazy[UP] = parent
        else:
            arrival.stable = True
            self._pass_on_stable(arrival)

    def _pass_on_stable(self, arrival: Arrival) -> None:
        """The publication is stable: whoever below had to do with it is to hear of it."""
        self.unstable -= 1
        if arrival.route is not NOWHERE:
            self.counters.stable += 1
            self._lately_stable.append(arrival.key)
        self._touched_routes[arrival.route] = None
        for adopted in arrival.adopted_by:
            self._touched[adopted.node] = adopted
        source = arrival.source
        if isinstance(source, Below):
            self._touched[source.node] = source
            if arrival.is_urgent:
                source.is_urgent = True

    def on_progress(self, source: Neighbour, progress: Progress) -> None:
        """A neighbour's side has come further; what it received is what we sent."""
        if isinstance(source, Above):
            for arrival in source.sent.stable_up_to(progress.received):
                self._pass_on_stable(arrival)
            for arrival in source.received.stable_up_to(progress.sent):
                self._pass_on_stable(arrival)
        else:
            for arrival in source.sent.confirm_up_to(progress.received):
                self._complete(arrival)
            if source.kind is not NodeKind.CLIENT:
                for arrival in source.received.confirm_up_to(progress.sent):
                    self._complete(arrival)
            self._touched[source.node] = source

    def flush(self, now: float) -> None:
        """At the end of a step: tell who waits for it, or has waited long enough, of progress."""
        for route in self._touched_routes:
            for below in route.down:
                self._touched[below.node] = below
        self._touched_routes.clear()
        self._last_seen.forget_some(self._publishers_needed)
        self._last_seen_settled.forget_some(self._publishers_needed)
        if self._touched:
            for node, below in self._touched.items():
                below.sent.advance_stable()
                below.received.advance_stable()
                self._lazy[node] = below
            self._touched.clear()
        if self.flush_at is not None and now >= self.flush_at:
            self.flush_at = None
            self.tell_all()
        elif self._lazy:
            batch = self._limits.progress_batch
            for neighbour in list(self._lazy.values()):
                if neighbour.is_urgent or sum(neighbour.progress) - sum(neighbour.told) >= batch:
                    del self._lazy[neighbour.hop]
                    self._tell(neighbour)
            if self._lazy and self.flush_at is None:
                self.flush_at = now + self._limits.progress_delay_s

    def tell_all(self) -> None:
        """Tell everybody what they do not know yet."""
        lazy, self._lazy = self._lazy, {}
        for neighbour in lazy.values():
            self._tell(neighbour)

    def _tell(self, neighbour: Neighbour) -> None:
        neighbour.is_urgent = False
        progress = neighbour.progress
        if neighbour.link is not None and progress != neighbour.told:
            neighbour.told = progress
            self._outbox.send(neighbour.link, Progress(*progress))

    # --- neighbours that come and go --------------------------------------------------------

    def send_again(self, neighbour: Neighbour, received: int) -> int:
        """The neighbour is back and says how many it has received; returns how many it lacked."""
        lacking = unreceived(neighbour.sent, received)
        assert neighbour.link is not None
        for arrival in lacking:
            self._send_entry(neighbour.link, neighbour, arrival)
        neighbour.told = (0, 0)  # it may have missed any of it
        self._tell(neighbour)
        return len(lacking)

    def _pass_on(self, neighbour: Neighbour, arrival: Arrival) -> None:
        """Put a publication into the stream to one neighbour."""
        neighbour.sent.append(arrival)
        if neighbour.link is not None:
            self.counters.sent += 1
            self._send_entry(neighbour.link, neighbour, arrival)

    def _send_entry(self, link: LinkId, neighbour: Neighbour, arrival: Arrival) -> None:
        """Send a publication, or what travels with them, as it is meant for this neighbour."""
        message = _for_parent(arrival) if isinstance(neighbour, Above) else arrival.publication
        self._outbox.send(link, message)

    def no_longer_missing(self, arrival: Arrival) -> None:
        """One confirmation less to wait for."""
        arrival.missing -= 1
        if not arrival.missing:
            self._complete(arrival)

    def look_for_stable(self, neighbour: Below) -> None:
        """Its streams have begun anew, perhaps with what is stable already."""
        self._touched[neighbour.node] = neighbour

    def complete_at_root(self, arrival: Arrival) -> None:
        """What is complete, and waited for the parent to say that it is stable, is stable."""
        if not arrival.missing:
            self._complete(arrival)

    def has_seen(self, key: Key) -> bool:
        """Whether this publication, or a later one of its publisher, has come by here."""
        publisher, *stamp = key
        return self._last_seen.get(publisher) >= tuple(stamp)

    def note_seen(self, key: Key) -> None:
        """Take note that it has come by here now."""
        publisher, incarnation, seq = key
        self._last_seen[publisher] = max(self._last_seen.get(publisher), (incarnation, seq))

    def latest_of(self, publisher: NodeId) -> tuple[int, int]:
        """The incarnation and the number of the last publication of somebody, as far as known."""
        return self._last_seen.get(publisher)

    @property
    def last_seen(self) -> tuple[PublicationId, ...]:
        """The last publication of everybody that has come by here, on its way down if it turns."""
        turns = self.ordering.settles_at_root
        return tuple(self._last_seen_settled if turns else self._last_seen)

    def forget_last_seen(self, publisher: NodeId) -> None:
        """Behind another broker somebody begins anew, who has been let in there as who is new."""
        self._last_seen.forget(publisher)
        self._last_seen_settled.forget(publisher)

    @property
    def publishers_remembered(self) -> int:
        """How many publishers are known here by their last publication."""
        return len(self._last_seen)

    def _publishers_needed(self) -> set[NodeId]:
        """Of whom something is kept that came here, or who may send something again here."""
        neighbours = self.neighbours
        needed = {client.node for client in neighbours.clients()}
        needed.update(self.dropped)
        sources: list[Neighbour] = [*neighbours.below.values()]
        sources += [neighbours.parent] if neighbours.parent is not None else []
        for source in sources:
            for arrival in source.received.keep():
                if isinstance(arrival.publication, Publish) and not arrival.stable:
                    needed.add(arrival.publisher)
        return needed

    @property
    def lately_stable(self) -> tuple[PublicationId, ...]:
        """What has become stable of late."""
        return tuple(PublicationId(*key) for key in self._lately_stable)

    def note_stable(self, stable: Iterable[PublicationId]) -> None:
        """Somebody tells what has become stable elsewhere, of those who come here from there."""
        known = dict.fromkeys((last.publisher, last.incarnation, last.seq) for last in stable)
        for key in self._lately_stable:
            known.pop(key, None)
        # What this broker has seen itself stays longest.
        self._lately_stable = deque(
            (*known, *self._lately_stable), maxlen=self._lately_stable.maxlen
        )

    def send(self, neighbour: Neighbour, message: Message) -> None:
        """Send a message of the streams of publications, unless the neighbour is absent."""
        if neighbour.link is not None:
            self._outbox.send(neighbour.link, message)

    def begin_anew_above(
        self, parent: Above
    ) -> tuple[list[Publish], list[Publish], tuple[int, ...], tuple[Had, ...]]:
        """The parent is somebody else now: number the streams anew, from what is kept of them.

        Returns what was received, what was sent, when it was settled, and who had it, as `Attach`
        tells it.
        """
        for entries in (parent.received.confirmed, parent.received.unconfirmed):
            duplicates = [a for a in entries if a.route is NOWHERE and a.settles is None]
            self.unstable -= len(duplicates)
            for duplicate in duplicates:
                entries.remove(duplicate)
        parent.received.stable_count = parent.sent.stable_count = 0
        sent = parent.sent.keep()
        self._awaiting = {
            number: arrival for number, arrival in enumerate(sent, 1) if arrival.waits
        }
        parent.told = (0, 0)
        self._lazy[UP] = parent
        received = parent.received.keep()
        told = [arrival.settles or arrival for arrival in (*received, *sent)]
        settled = tuple(arrival.settled_at for arrival in told)
        had = tuple(
            Had(entry.client, place)
            for place, arrival in enumerate(told)
            for entry in self.got_once(arrival)
            if entry.hop != UP
        )
        return log_of_received(received), log_of_sent(sent), settled, had

    def got_once(self, arrival: Arrival) -> list[Subscription]:
        """By which subscriptions that are withdrawn by now somebody got this, in order."""
        publication = arrival.publication
        assert isinstance(publication, Publish)
        if not arrival.settled_at or arrival.is_unordered:
            return []
        return self.interests.got_once(decode_content(publication.content), arrival.settled_at)

    def forget_above(self, gone: Above) -> list[Arrival]:
        """The parent is gone and nobody takes its place: go on alone.

        What waits for it is settled here, in the order in which it was sent up; returns what was
        sent up and may never have arrived.
        """
        sent, received = gone.sent.keep(), gone.received.keep()
        self._awaiting.clear()
        self._lazy.pop(UP, None)
        unstable = [arrival for arrival in (*sent, *received) if not arrival.stable]
        for arrival in unstable:
            if isinstance(arrival.source, Above):
                arrival.source = GONE
            if arrival.route.climbs:
                arrival.route = attrs.evolve(arrival.route, climbs=False)
        for arrival in list(self.ordering.held):
            self.settle_now(arrival)
        for arrival in unstable:
            if not arrival.missing:
                self._complete(arrival)
        return [arrival for arrival in sent if isinstance(arrival.publication, Publish)]

    def forget(self, gone: Below) -> None:
        """What a neighbour has not confirmed it never will: nobody is to wait for it."""
        for stream in (gone.sent, gone.received):
            for arrival in stream.confirm_up_to(stream.count):
                self._complete(arrival)
        self._lazy.pop(gone.hop, None)


def _for_parent(arrival: Arrival) -> Message:
    """The publication as it goes up: with a flag, if there is anything particular about that."""
    publication, flag = arrival.publication, arrival.flag_upwards
    if not flag or not isinstance(publication, Publish):
        return publication
    return publication.with_flags(publication.flags | flag)


def wrongly_flagged(source: Neighbour, publication: Publish) -> RemoteProtocolError:
    """Most flags go from hop to hop: a neighbour sets those that are for it to set."""
    return RemoteProtocolError(
        f"publication {publication.seq} of {publication.publisher} from {source.node}: "
        f"flags {publication.flags:#x}, of which {source.node} may not set "
        f"{publication.flags & source.forbidden_flags:#x}"
    )


def _require_own(source: Neighbour, publication: Publish) -> None:
    if publication.publisher != source.node or publication.incarnation != source.incarnation:
        raise RemoteProtocolError(
            f"a publication of {publication.publisher}, incarnation {publication.incarnation}, "
            f"from {source.node}, incarnation {source.incarnation}"
        )


def _require_sent_before(source: Below, publication: Publish) -> None:
    """What is dropped as a duplicate is confirmed, so it has to be one: sent once more."""
    if publication.seq > source.published:
        raise RemoteProtocolError(
            f"publication {publication.seq} of {source.node} has been seen, or a later one, and "
            f"{source.node} had published up to {source.published} when it came here"
        )


def _not_allowed(source: Neighbour, publication: Publish) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"publication {publication.seq} of {source.node} lies outside what it has "
        f"advertised: {decode_content(publication.content)}"
    )
