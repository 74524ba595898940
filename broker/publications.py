"""Publications at one broker: who wants them, settling them, and keeping them until stable.

This is the hot path. `on_publish` runs once per publication, `_settle` touches every receiver, and
`flush` does once per step what need not be done once per publication.
"""

import attrs

from broker.codec import decode_content
from broker.effects import SendMessage
from broker.errors import RemoteProtocolError
from broker.interests import FLOODING, Interests
from broker.limits import Limits
from broker.messages import Flag, NodeKind, Progress, Publish
from broker.neighbours import NOWHERE, Above, Arrival, Below, Neighbour, Neighbours, Route
from broker.outbox import Outbox
from faulttol.stability import unreceived
from routing.ids import NodeId
from routing.orderings import Ordering


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


class Publications:
    """The publications under way at one broker."""

    def __init__(
        self,
        *,
        ordering: Ordering,
        limits: Limits,
        neighbours: Neighbours,
        interests: Interests,
        outbox: Outbox,
    ) -> None:
        """Begin with none."""
        self.ordering = ordering
        self.counters = Counters()
        self.unstable = 0
        """How many are kept because they are not stable."""
        self.flush_at: float | None = None
        """When progress is to be told that does not hurry."""
        self._limits = limits
        self._neighbours = neighbours
        self._interests = interests
        self._outbox = outbox
        self._last_seen: dict[NodeId, tuple[int, int]] = {}
        self._touched: dict[NodeId, Below] = {}
        """Neighbours below for whom something may have become stable in this step."""
        self._lazy: dict[NodeId, Neighbour] = {}
        """Neighbours to be told of progress, sooner or later."""

    # --- on their way -----------------------------------------------------------------------

    def on_publish(self, source: Neighbour, publication: Publish) -> None:
        """Take in a publication: find out who wants it, and settle what may be settled."""
        counters = self.counters
        counters.received += 1
        stamp = (publication.incarnation, publication.seq)
        if self._last_seen.get(publication.publisher, (0, 0)) >= stamp:
            counters.duplicate += 1
            route = NOWHERE
        else:
            route = self._route(source, publication.content)
            if isinstance(source, Below) and source.kind is NodeKind.CLIENT:
                _require_publishable(source, publication, route)
            self._last_seen[publication.publisher] = stamp
            if route.down or route.climbs:
                counters.matched += 1

        arrival = Arrival(publication, 1 + len(route.down), source=source, route=route)
        self.unstable += 1
        if isinstance(source, Above):
            source.received.append(arrival)
        elif source.kind is NodeKind.CLIENT:
            # A client has settled what it publishes by publishing it.
            source.received.append_confirmed(arrival)
        else:
            arrival.missing += 1
            source.received.append(arrival)
        if route.climbs:
            parent = self._neighbours.parent
            assert parent is not None
            parent.sent.append(arrival)
            if parent.link is not None:
                counters.sent += 1
                self._outbox.send(parent.link, publication)
        for settled in self.ordering.arrived(arrival):
            self._settle(settled)

    def _settle(self, arrival: Arrival) -> None:
        """Fix the publication's place in this broker's order, and send it down in that order."""
        route = arrival.route
        for neighbour in route.down:
            sent = neighbour.sent
            sent.count += 1  # StreamBelow.append without the call: the hottest loop there is
            sent.unconfirmed.append(arrival)
        if route.links:
            self.counters.sent += len(route.links)
            self._outbox.add(SendMessage(route.links, arrival.publication))
        arrival.missing -= 1
        if not arrival.missing:
            self._complete(arrival)

    # --- where to ---------------------------------------------------------------------------

    def _route(self, source: Neighbour, content: bytes) -> Route:
        """Where this content goes, from here and from this source; remembered."""
        if source.routes_version != self._neighbours.version:
            source.routes.clear()
            source.routes_version = self._neighbours.version
        route = source.routes.get(content)
        if route is None:
            if len(source.routes) >= self._limits.cached_routes_max:
                source.routes.clear()
            route = source.routes[content] = self._compute_route(source, content)
            self.counters.routes_computed += 1
        else:
            self.counters.routes_cached += 1
        return route

    def _compute_route(self, source: Neighbour, content: bytes) -> Route:
        attributes = decode_content(content)
        is_from_client = isinstance(source, Below) and source.kind is NodeKind.CLIENT
        is_allowed = not is_from_client or any(
            advertisement.filter.matches(attributes)
            for advertisement in self._interests.advertisements.of_client(source.node)
        )
        hops = self._interests.subscriptions.hops(attributes)
        parent = self._neighbours.parent
        below = self._neighbours.below
        if self._interests.policy == FLOODING:
            down = [n for n in self._neighbours.children() if n.has_joined]
            down += [below[hop] for hop in hops if hop in below and below[hop] not in down]
            climbs = parent is not None
        else:
            down = [below[hop] for hop in hops if hop in below]
            climbs = parent is not None and parent.node in hops
        if not is_from_client:
            # Whoever is interested behind a broker has it already when it comes from there.
            down = [neighbour for neighbour in down if neighbour is not source]
            climbs = climbs and source is not parent
        return Route(
            down=tuple(down),
            climbs=climbs,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
            is_allowed=is_allowed,
        )

    # --- until they are stable --------------------------------------------------------------

    def _complete(self, arrival: Arrival) -> None:
        """Our side has settled the publication: tell the parent, or declare it stable."""
        if arrival.route.climbs or isinstance(arrival.source, Above):
            parent = self._neighbours.parent
            assert parent is not None
            stream = parent.sent if arrival.route.climbs else parent.received
            stream.advance_confirmed()
            if arrival.publication.flags & Flag.URGENT:
                parent.is_urgent = True
            self._lazy[parent.node] = parent
        else:
            arrival.stable = True
            self._pass_on_stable(arrival)

    def _pass_on_stable(self, arrival: Arrival) -> None:
        """The publication is stable: whoever below had to do with it is to hear of it."""
        self.unstable -= 1
        self.counters.stable += 1
        touched = self._touched
        for neighbour in arrival.route.down:
            touched[neighbour.node] = neighbour
        source = arrival.source
        if isinstance(source, Below):
            touched[source.node] = source
            if arrival.publication.flags & Flag.URGENT:
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
                    del self._lazy[neighbour.node]
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
            self._outbox.send(neighbour.link, arrival.publication)
        neighbour.told = (0, 0)  # it may have missed any of it
        self._tell(neighbour)
        return len(lacking)

    def forget(self, gone: Below) -> None:
        """What a neighbour has not confirmed it never will: nobody is to wait for it."""
        for stream in (gone.sent, gone.received):
            for arrival in stream.confirm_up_to(stream.count):
                self._complete(arrival)
        self._lazy.pop(gone.node, None)


def _require_publishable(source: Below, publication: Publish, route: Route) -> None:
    if publication.publisher != source.node or publication.incarnation != source.incarnation:
        raise RemoteProtocolError(
            f"a publication of {publication.publisher}, incarnation {publication.incarnation}, "
            f"from {source.node}, incarnation {source.incarnation}"
        )
    if not route.is_allowed:
        raise RemoteProtocolError(
            f"publication {publication.seq} of {source.node} lies outside what it has "
            f"advertised: {decode_content(publication.content)}"
        )
