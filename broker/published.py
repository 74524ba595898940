"""Publications under `published`: handed on at once, held back before clients, acknowledged.

Who waits for whom is decided by `routing/published.py`. Here is the rest of the algorithm: one
queue per client (Algorithm 2, `delay`), the flags on their way (Algorithm 3) and the
acknowledgements on theirs (Algorithm 5), and the release of what has been acknowledged, sorted.
"""

from collections.abc import Collection, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, Final

import attrs

from broker.codec import decode_content
from broker.inputs import LinkId
from broker.messages import Acknowledge, Defer, Flag, Message, Publish
from broker.neighbours import NOWHERE, Above, Arrival, Below, Neighbour, Route, is_client
from broker.publications import Publications, wrongly_flagged
from faulttol.merging import Key
from routing.ids import NodeId, SubscriptionId
from routing.orderings import Published
from routing.published import UNMARKED, Mark, OverlapTables, Plan, make_plan
from routing.tables import Subscription


@attrs.frozen(kw_only=True, eq=False)
class _PlannedRoute(Route):
    plan: Plan


@attrs.define(eq=False)
class _Queue:
    """What is held back before one client, and what else must not overtake it."""

    arrivals: list[Arrival] = attrs.field(factory=list)
    behind: list[tuple[set[Key], Message]] = attrs.field(factory=list)
    """Messages, each with those publications of the queue that go first."""


class PublishedPublications(Publications):
    """The publications under way at a broker that keeps to the algorithm as published."""

    ordering: Published[Arrival]

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._queues: dict[NodeId, _Queue] = {}
        self._places = count(1)
        """In which order publications were queued up."""
        self._awaited: dict[Key, dict[NodeId, set[NodeId]]] = {}
        """For each publication and each hop that waits with it: for whose acknowledgement."""
        self._named: dict[NodeId, tuple[SubscriptionId, ...]] = {}
        """By each neighbour, for the publication that comes next."""
        self._mark = UNMARKED
        """Of the publication that is being taken in."""
        self._plans: dict[tuple[Route, Mark], _PlannedRoute] = {}
        self._plans_version = -1

    # --- on their way -----------------------------------------------------------------------

    def on_publish(self, source: Neighbour, publication: Publish, now: float) -> None:
        """Take in a publication, without the marks that the last broker gave it."""
        flags = publication.flags
        named = self._named.pop(source.hop, ())
        self._mark = UNMARKED
        if flags & _MARKS:
            if flags & source.forbidden_flags:
                raise wrongly_flagged(source, publication)
            if not is_client(source):
                self._mark = Mark(
                    requests=flags & Flag.REQUESTED != 0,
                    waits=flags & Flag.DEFERRED != 0,
                    waiting=frozenset(named),
                )
            publication = publication.with_flags(flags & ~_MARKS)
        super().on_publish(source, publication, now)

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in what this ordering has to say beside publications."""
        match notice:
            case Acknowledge():
                self._on_acknowledge(source, notice)
            case Defer(subscriptions=subscriptions):
                self._named[source.hop] = subscriptions
            case _:
                super().on_notice(source, notice)

    def _climb(self, arrival: Arrival) -> None:
        """Nothing: to this algorithm the parent is a neighbour like any other, see `_settle`."""

    def _settle(self, arrival: Arrival) -> None:
        """Send a publication to every broker, and to those clients that need not wait."""
        route = arrival.route
        if route is NOWHERE:  # it has been here before, by another way
            if self._mark.requests:
                self._acknowledge(arrival.source, arrival.key)
        else:
            route = arrival.route = self._planned(arrival, self._mark)
            if route.plan.awaited:
                self._awaited[arrival.key] = {
                    hop: set(hops) for hop, hops in route.plan.awaited.items()
                }
            if route.plan.is_answered:
                self._acknowledge(arrival.source, arrival.key)
            parent = self.neighbours.parent
            if route.climbs and parent is not None:
                self._pass_on(parent, arrival)
            for neighbour in route.down:
                if not is_client(neighbour):
                    self._pass_on(neighbour, arrival)
                else:
                    self._queue_up(neighbour, arrival)
        self.no_longer_missing(arrival)

    def _send_entry(self, link: LinkId, neighbour: Neighbour, arrival: Arrival) -> None:
        """Send a publication with the marks that this neighbour is to see."""
        publication, route = arrival.publication, arrival.route
        if isinstance(publication, Publish) and isinstance(route, _PlannedRoute):
            mark = route.plan.marks.get(neighbour.hop, UNMARKED)
            if mark.waiting:
                self._outbox.send(link, Defer(subscriptions=tuple(sorted(mark.waiting))))
            if mark != UNMARKED:
                flags = Flag.REQUESTED * mark.requests | Flag.DEFERRED * mark.waits
                publication = publication.with_flags(publication.flags | flags)
        self._outbox.send(link, publication)

    # --- acknowledgements -------------------------------------------------------------------

    def _acknowledge(self, neighbour: Neighbour, key: Key) -> None:
        """Tell a broker, in the stream of publications to it."""
        publisher, incarnation, seq = key
        notice = Acknowledge(publisher=publisher, incarnation=incarnation, seq=seq)
        self._notify(neighbour, notice)

    def _on_acknowledge(self, source: Neighbour, notice: Acknowledge) -> None:
        self._noticed(source, notice)
        key = (notice.publisher, notice.incarnation, notice.seq)
        # Nobody may wait any more: what came a second time, by another way, waits for nothing.
        if key in self._awaited:
            self._acknowledged(key, source.hop)

    def _acknowledged(self, key: Key, by: NodeId) -> None:
        """Algorithm 5: whoever waited for this one alone may go on."""
        awaited = self._awaited[key]
        for hop, hops in list(awaited.items()):
            hops.discard(by)
            if hops:
                continue
            del awaited[hop]
            neighbour = self.neighbours.get(hop)
            if neighbour is not None and not is_client(neighbour):
                self._acknowledge(neighbour, key)
            elif hop in self._queues:
                self._release(hop)
        if not awaited:
            del self._awaited[key]

    # --- held -------------------------------------------------------------------------------

    def _queue_up(self, client: Below, arrival: Arrival) -> None:
        """Hand it to a client, or hold it back, behind whatever is held back already."""
        queue = self._queues.get(client.hop)
        if queue is None:
            if not self._whom_awaits(client.hop, arrival):
                self._pass_on(client, arrival)
                return
            queue = self._queues[client.hop] = _Queue()
        queue.arrivals.append(arrival)
        self.ordering.hold(arrival, {client.hop: next(self._places)})

    def _whom_awaits(self, hop: NodeId, arrival: Arrival) -> Collection[NodeId]:
        """Whose acknowledgements are missing before this hop may have a publication."""
        return self._awaited.get(arrival.key, {}).get(hop, ())

    def _release(self, node: NodeId) -> None:
        """Hand over the front of a queue, up to what is not acknowledged, sorted."""
        queue = self._queues[node]
        arrivals = queue.arrivals
        ready = 0
        while ready < len(arrivals) and not self._whom_awaits(node, arrivals[ready]):
            ready += 1
        if ready == 0 or (ready < len(arrivals) and not self.ordering.is_progressive):
            return
        released = sorted(arrivals[:ready], key=attrgetter("key"))
        self._hand_over(self.neighbours.below[node], released)

    def _hand_over(self, client: Below, released: Sequence[Arrival]) -> None:
        """Send a client what was held back before it, and then what was behind that."""
        queue = self._queues[client.hop]
        for arrival in released:
            queue.arrivals.remove(arrival)
            self.ordering.let_go(arrival, client.hop)
            self._pass_on(client, arrival)
        gone = {arrival.key for arrival in released}
        for before, _ in queue.behind:
            before -= gone
        while queue.behind and not queue.behind[0][0]:
            _, message = queue.behind.pop(0)
            self.send(client, message)
        if not queue.arrivals:
            del self._queues[client.hop]

    def settle_now(self, arrival: Arrival) -> None:
        """Hand a publication over before whomever it is held back; brokers have it already."""
        for node in self.ordering.places(arrival):
            self._hand_over(self.neighbours.below[node], [arrival])

    def send_in_turn(self, neighbour: Neighbour, message: Message) -> None:
        """Send a message behind what is held back before this neighbour."""
        queue = self._queues.get(neighbour.hop)
        if queue is not None:
            queue.behind.append(({arrival.key for arrival in queue.arrivals}, message))
        else:
            self.send(neighbour, message)

    def _waits_for(self, arrival: Arrival) -> str | None:
        """The brokers whose acknowledgements are missing before some client here may have it."""
        hops = {
            hop
            for node in self.ordering.places(arrival)
            for hop in self._whom_awaits(node, arrival)
        }
        names = sorted(neighbour.node for hop in hops if (neighbour := self.neighbours.get(hop)))
        return ", ".join(names) or None

    def forget(self, gone: Below) -> None:
        """Wait no longer for a neighbour, nor with what was held back before it."""
        super().forget(gone)
        self._named.pop(gone.hop, None)
        queue = self._queues.pop(gone.hop, None)
        for arrival in queue.arrivals if queue else ():
            self.ordering.let_go(arrival, gone.hop)
            self.no_longer_missing(arrival)
        self._wait_no_longer(gone)

    def forget_above(self, gone: Above) -> list[Arrival]:
        """The same of the parent, when nobody takes its place."""
        self._named.pop(gone.hop, None)
        self._wait_no_longer(gone)
        return super().forget_above(gone)

    def _wait_no_longer(self, gone: Neighbour) -> None:
        for key in list(self._awaited):
            self._acknowledged(key, gone.hop)

    # --- plans ------------------------------------------------------------------------------

    def _planned(self, arrival: Arrival, mark: Mark) -> _PlannedRoute:
        """The route, and who waits for whom on it; remembered as long as the route is."""
        assert isinstance(arrival.publication, Publish)
        if self._plans_version != self.neighbours.version:
            self._plans.clear()
            self._plans_version = self.neighbours.version
        if arrival.publication.flags & Flag.UNORDERED:
            return _with_plan(arrival.route, Plan(is_answered=mark.requests))
        key = arrival.route, mark
        planned = self._plans.get(key)
        if planned is None:
            if len(self._plans) >= self._limits.cached_routes_max:
                self._plans.clear()
            plan = self._make_plan(arrival.source, arrival.publication.content, mark)
            planned = self._plans[key] = _with_plan(arrival.route, plan)
        return planned

    def _make_plan(self, source: Neighbour, content: bytes, mark: Mark) -> Plan:
        tables = self.interests.observer
        assert isinstance(tables, OverlapTables)
        behind: dict[NodeId, list[Subscription]] = {}
        for entry in self.interests.subscriptions.matching(decode_content(content)):
            if entry.ordered and (entry.hop != source.hop or is_client(source)):
                behind.setdefault(entry.hop, []).append(entry)
        return make_plan(
            tables,
            behind,
            clients={client.hop for client in self.neighbours.clients()},
            source=source.hop,
            mark=mark,
            is_fast=self.ordering.is_fast,
        )


_MARKS: Final = Flag.REQUESTED | Flag.DEFERRED


def _with_plan(route: Route, plan: Plan) -> _PlannedRoute:
    fields = {field.name: getattr(route, field.name) for field in attrs.fields(Route)}
    return _PlannedRoute(**fields, plan=plan)
