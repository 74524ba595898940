"""Publications under `published`: handed on at once, held back before clients, acknowledged.

Who waits for whom is decided by `routing/published.py`. Here is the rest of the algorithm: one
queue per client (Algorithm 2, `delay`), the flags on their way (Algorithm 3) and the
acknowledgements on theirs (Algorithm 5), and the release of what has been acknowledged, sorted.

What is held is not stable, so all that it waits for is there when a broker is rebuilt: tables, the
flags it came with, and the acknowledgements. Only when a queue was released depends on others in
it, too, which may be stable by then; that is in the log (`queues.py`).
"""

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, Final

import attrs

from plait.broker.codec import decode_content
from plait.broker.machine.neighbours import Arrival, Below, Neighbour, Route, is_client
from plait.broker.machine.publications import Remembered
from plait.broker.machine.queues import QueuedPublications
from plait.broker.messages import Acknowledge, Defer, Flag, Message, Publish
from plait.faulttol.steplog import Key
from plait.routing.ids import NodeId, SubscriptionId
from plait.routing.orderings import Published
from plait.routing.published import UNMARKED, Mark, OverlapTables, Plan, make_plan
from plait.routing.tables import Subscription


@attrs.frozen(kw_only=True, eq=False)
class _PlannedRoute(Route):
    """Where a publication goes, and who waits for whom on its ways."""

    plan: Plan

    def flags_for(self, hop: NodeId) -> int:
        """The marks that a neighbour is to see."""
        mark = self.plan.marks.get(hop, UNMARKED)
        return Flag.REQUESTED * mark.requests | Flag.DEFERRED * mark.waits


_MARKS: Final = Flag.REQUESTED | Flag.DEFERRED


class PublishedPublications(QueuedPublications):
    """The publications under way at a broker that keeps to the algorithm as published."""

    ordering: Published[Arrival]

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._awaited: dict[Key, dict[NodeId, set[NodeId]]] = {}
        """For each publication and each hop that waits with it: for whose acknowledgement."""
        self._named: dict[NodeId, frozenset[SubscriptionId]] = {}
        """By each neighbour, for the publication that comes next."""
        self._mark = UNMARKED
        """Of the publication that is being taken in."""
        self._plans: dict[tuple[Route, Mark], _PlannedRoute] = {}
        self._plans_version = -1

    # --- on their way -----------------------------------------------------------------------

    def on_publish(
        self,
        source: Neighbour,
        publication: Publish,
        now: float,
        remembered: Remembered | None = None,
    ) -> None:
        """Take in a publication, without the marks that the last broker gave it."""
        flags = publication.flags
        named = self._named.pop(source.hop, frozenset())
        self._mark = UNMARKED
        if flags & _MARKS:
            if not is_client(source):
                self._mark = Mark(
                    requests=flags & Flag.REQUESTED != 0,
                    waits=flags & Flag.DEFERRED != 0,
                    waiting=named,
                )
            publication = publication.with_flags(flags & ~_MARKS)
        super().on_publish(source, publication, now, remembered)

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in what this ordering has to say beside publications."""
        match notice:
            case Acknowledge(publisher=publisher, incarnation=incarnation, seq=seq):
                self._acknowledged((publisher, incarnation, seq), source.hop)
            case Defer(subscriptions=subscriptions):
                self._named[source.hop] = frozenset(subscriptions)
            case _:
                super().on_notice(source, notice)

    def _settle(self, arrival: Arrival) -> None:
        """Send a publication to every broker, and to those clients that need not wait."""
        route = arrival.route
        assert isinstance(route, _PlannedRoute)
        if route.plan.awaited:
            self._awaited[arrival.key] = {
                hop: set(hops) for hop, hops in route.plan.awaited.items()
            }
        if route.plan.is_answered:
            self._acknowledge(arrival.source, arrival.key)
        super()._settle(arrival)

    def _pass_on(self, neighbour: Neighbour, arrival: Arrival) -> None:
        """Name the subscriptions that are to wait with it, if not all are."""
        if isinstance(arrival.route, _PlannedRoute):
            waiting = arrival.route.plan.marks.get(neighbour.hop, UNMARKED).waiting
            if waiting:
                defer = Defer(subscriptions=tuple(sorted(waiting)))
                self._steps.send(neighbour, defer, key=arrival.key)
        super()._pass_on(neighbour, arrival)

    # --- acknowledgements -------------------------------------------------------------------

    def _acknowledge(self, neighbour: Neighbour, key: Key) -> None:
        """Tell a broker, in the stream of publications to it."""
        publisher, incarnation, seq = key
        notice = Acknowledge(publisher=publisher, incarnation=incarnation, seq=seq)
        self._steps.send(neighbour, notice, key=key)

    def _acknowledged(self, key: Key, by: NodeId) -> None:
        """Algorithm 5: whoever waited for this one alone may go on.

        Nobody may wait any more: what is stable, or has been acknowledged once already.
        """
        awaited = self._awaited.get(key, {})
        for hop, hops in list(awaited.items()):
            hops.discard(by)
            if hops:
                continue
            del awaited[hop]
            neighbour = self.neighbours.get(hop)
            if neighbour is None:
                continue
            if isinstance(neighbour, Below) and is_client(neighbour):
                self._release(neighbour)
            else:
                self._acknowledge(neighbour, key)
        if not awaited:
            self._awaited.pop(key, None)

    def say_again(self, neighbour: Neighbour) -> None:
        """Acknowledge once more whatever the neighbour need not wait for.

        With a client that failed together with this broker, others that it would have waited for
        may have gone: then it had not answered in its former life, and has in this.
        """
        if is_client(neighbour):
            return
        kept = {a.key: None for a in (*neighbour.received.keep(), *neighbour.sent.keep())}
        for key in kept:
            if neighbour.hop not in self._awaited.get(key, ()):
                self._acknowledge(neighbour, key)

    def _pass_on_stable(self, arrival: Arrival) -> None:
        super()._pass_on_stable(arrival)
        self._awaited.pop(arrival.key, None)

    # --- held -------------------------------------------------------------------------------

    def _is_due(self, client: Below, arrival: Arrival) -> bool:
        """Whether there is nothing to wait for, and nothing to be behind."""
        return not (self.queued_for(client.node) or self._whom_awaits(client, arrival))

    def _whom_awaits(self, client: Below, arrival: Arrival) -> Collection[NodeId]:
        """Whose acknowledgements are missing before this client may have a publication."""
        return self._awaited.get(arrival.key, {}).get(client.hop, ())

    def waits_for(self, arrival: Arrival) -> str | None:
        """The brokers whose acknowledgements are missing before some client here may have it."""
        waiting = self._awaited.get(arrival.key, {})
        hops = {hop for client in self.ordering.places(arrival) for hop in waiting.get(client, ())}
        names = sorted(neighbour.node for hop in hops if (neighbour := self.neighbours.get(hop)))
        return ", ".join(names) or None

    def _release(self, client: Below) -> None:
        """Hand over the front of a queue, up to what is not acknowledged, sorted."""
        arrivals = self.queued_for(client.node)
        ready = 0
        while ready < len(arrivals) and not self._whom_awaits(client, arrivals[ready]):
            ready += 1
        if ready == 0 or (ready < len(arrivals) and not self.ordering.is_progressive):
            return
        if self._again is None:
            self._hand_over(client, sorted(arrivals[:ready], key=attrgetter("key")))

    def release_what_is_due(self) -> None:
        """After a rebuild: what had been behind something that came from a client that failed."""
        for node in list(self._queues):
            self._release(self.neighbours.below[node])

    def forget(self, gone: Below) -> None:
        """Wait no longer for a neighbour, nor with what was held back before it."""
        super().forget(gone)
        self._named.pop(gone.hop, None)
        for key in list(self._awaited):
            self._acknowledged(key, gone.hop)

    # --- plans ------------------------------------------------------------------------------

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        """The route, and who waits for whom on it; remembered as long as the route is."""
        route, mark = super()._route(source, publication), self._mark
        if self._plans_version != self.neighbours.version:
            self._plans.clear()
            self._plans_version = self.neighbours.version
        if publication.flags & Flag.UNORDERED:
            return _with_plan(route, Plan(is_answered=mark.requests))
        planned = self._plans.get((route, mark))
        if planned is None:
            if len(self._plans) >= self._limits.cached_routes_max:
                self._plans.clear()
            plan = self._make_plan(source, publication.content, mark)
            planned = self._plans[route, mark] = _with_plan(route, plan)
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
            clients={below.hop for below in self.neighbours.below.values() if is_client(below)},
            source=source.hop,
            mark=mark,
            is_fast=self.ordering.is_fast,
        )

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        over = {
            arrival.key
            for neighbour in self.neighbours.all()
            for arrival in neighbour.received.keep()
            if arrival.is_over
        }
        awaited = {
            key: {hop: tuple(sorted(hops)) for hop, hops in hops_of.items()}
            for key, hops_of in self._awaited.items()
            if key not in over
        }
        return {**super().state(), "awaited": awaited}


def _with_plan(route: Route, plan: Plan) -> _PlannedRoute:
    fields = {field.name: getattr(route, field.name) for field in attrs.fields(Route)}
    return _PlannedRoute(**fields, plan=plan)
