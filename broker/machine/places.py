"""Publications under `sequencer-filtered`: turns from the root, and handing over in their order.

The broker where something is published asks the root, which says behind what it comes for each
subscriber; then the publication goes the shortest way to each, with its turns. A subscriber's
broker hands over what it gets when that is its subscriber's turn.

A *place* is the root's step together with the publication: places can be compared, and nobody has
to restore a counter that stable publications had advanced. A *turn* is a subscriber with the place
before, which tells whether something is late or was filtered out. Nobody forgets the step of a
request while its answer may be needed once more, and whoever asked may need that until the
publication is stable; so what the root gave up to the base of its log is stable, and before
everything.

What has been handed over may be stable, too, and missing, when a broker is rebuilt; so the log has
the last place that each client was handed, and which requests were answered. Turns travel by the
ways on which subscriptions came, not by tables: a subscription may be withdrawn while a turn of it
is on its way, and a turn that did not arrive would hold up its subscriber for ever. They are for
one life of a subscriber.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from plait.broker.codec import decode_content
from plait.broker.errors import RemoteProtocolError
from plait.broker.machine.asking import AskingPublications, key_of
from plait.broker.machine.interests import life_of
from plait.broker.machine.neighbours import UP, Arrival, Below, Neighbour, Route, is_client
from plait.broker.messages import Message, PlacesRequest, Publish, Turn, Turns
from plait.faulttol.steplog import NO_PLACE, Entry, Key, Place, StepLog
from plait.routing.ids import NodeId
from plait.routing.orderings import FilteredSequencer
from plait.routing.tables import Subscription


@attrs.frozen(kw_only=True, eq=False)
class _WantedRoute(Route):
    """What is known of a content before there are turns: who wants it, and where they are."""

    wanted: Mapping[NodeId, tuple[NodeId, ...]]


@attrs.frozen(kw_only=True, eq=False)
class _PlacedRoute(Route):
    """Where a publication goes, as its turns say."""

    place: Place
    turns: Mapping[NodeId, tuple[Turn, ...]]
    """By hop."""


class PlacedPublications(AskingPublications[PlacesRequest, Turns]):
    """The publications under way at a broker that has the root number them."""

    ordering: FilteredSequencer[Arrival]

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._given: dict[NodeId, Place] = {}
        """At the root, the last place that each subscriber was given, unless that is stable."""
        self._served: dict[NodeId, Place] = {}
        """The place of the last publication that each client was handed."""
        self._announced: dict[NodeId, Turns] = {}
        """By each neighbour, for the publication that comes next."""
        self._places_again: Sequence[tuple[NodeId, Place]] = ()
        """While steps are taken again: what the log has of the present one."""

    # --- turns ------------------------------------------------------------------------------

    request_type: ClassVar = PlacesRequest

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in what this ordering has to say beside publications."""
        if isinstance(notice, Turns) and not notice.is_answer:
            self._announced[source.hop] = notice
        else:
            super().on_notice(source, notice)

    @staticmethod
    def answer_in(message: Message) -> Turns | None:
        """The message, if it answers somebody."""
        return message if isinstance(message, Turns) and message.is_answer else None

    def end_step(self) -> None:
        """Answer what was asked in this step, and say in the log who was handed what last."""
        self._answer_all()
        self._steps.places = tuple(
            (client, self._served[client]) for client in self._handed if client in self._served
        )
        super().end_step()

    def _answer_all(self) -> None:
        base = self._steps.log.base
        self._given = {name: at for name, at in self._given.items() if at[0] > base}
        super()._answer_all()

    def _answer(self, request: PlacesRequest) -> Turns:
        step = self._steps.number
        key = key_of(request)
        turns = []
        for name in request.subscribers:
            turns.append(Turn(name, (), *self._given.get(name, NO_PLACE)))
            self._given[name] = (step, *key)
        return Turns(
            publisher=request.publisher,
            incarnation=request.incarnation,
            seq=request.seq,
            step=step,
            turns=tuple(turns),
            is_answer=True,
        )

    def _take_answer(self, arrival: Arrival, answer: Turns) -> None:
        """Send what was published here where it is wanted: now there are turns."""
        assert isinstance(arrival.route, _WantedRoute)
        wanted = arrival.route.wanted
        # Who failed together with this broker was asked for, and is not known here any more.
        known = [turn for turn in answer.turns if turn.subscriber in wanted]
        placed = [attrs.evolve(turn, way=wanted[turn.subscriber]) for turn in known]
        arrival.route = self._placed_route(arrival.key, answer.step, placed)
        arrival.missing += len(arrival.route.down)
        if arrival.route.climbs:
            self._climb(arrival)
        super()._settle(arrival)

    # --- on their way -----------------------------------------------------------------------

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        if is_client(source):
            return super()._route(source, publication)
        turns = self._announced.pop(source.hop, None)
        if turns is None:
            raise RemoteProtocolError(f"publication of {publication.publisher} without its turns")
        key = (publication.publisher, publication.incarnation, publication.seq)
        return self._placed_route(key, turns.step, turns.turns)

    def _compute_route(self, source: Neighbour, publication: Publish) -> Route:
        """Who wants it; where it goes is not decided before there are turns."""
        route = super()._compute_route(source, publication)
        matching = self.interests.subscriptions.matching(decode_content(publication.content))
        return _WantedRoute(
            down=(),
            climbs=False,
            links=(),
            is_allowed=route.is_allowed,
            version=route.version,
            wanted=dict(map(self._way_to, matching)),
        )

    def _way_to(self, entry: Subscription) -> tuple[NodeId, tuple[NodeId, ...]]:
        """A life of a subscriber, and the brokers on the way to it, the last one first."""
        life, *way = entry.path
        return life, tuple(way)

    def _placed_route(self, key: Key, step: int, turns: Iterable[Turn]) -> _PlacedRoute:
        by_hop: dict[NodeId, tuple[Turn, ...]] = {}
        for turn in turns:
            if turn.way:
                neighbour = self.neighbours.named(turn.way[-1])
                onwards = attrs.evolve(turn, way=turn.way[:-1])
            else:
                neighbour, onwards = self._client_of(turn.subscriber), turn
            if neighbour is not None:
                by_hop[neighbour.hop] = (*by_hop.get(neighbour.hop, ()), onwards)
        below = self.neighbours.below
        return _PlacedRoute(
            down=tuple(below[hop] for hop in by_hop if hop in below),
            climbs=UP in by_hop,
            links=(),
            is_allowed=True,
            version=self.neighbours.version,
            place=(step, *key),
            turns=by_hop,
        )

    def _client_of(self, life: NodeId) -> Below | None:
        """The client here that has this life; None if it is over."""
        client = self.neighbours.below.get(NodeId(life.rpartition("/")[0]))
        if client is None or life_of(client.node, client.incarnation) != life:
            return None
        return client

    def _settle(self, arrival: Arrival) -> None:
        """Ask for turns for what is published here, and pass on what has them."""
        route = arrival.route
        if isinstance(route, _WantedRoute) and route.wanted:
            publisher, incarnation, seq = arrival.key
            request = PlacesRequest(
                publisher=publisher,
                incarnation=incarnation,
                seq=seq,
                subscribers=tuple(route.wanted),
            )
            self._ask(arrival, request)
            return
        super()._settle(arrival)

    def _pass_on(self, neighbour: Neighbour, arrival: Arrival) -> None:
        """Send a publication, and to a broker its turns beyond."""
        route = arrival.route
        if isinstance(route, _PlacedRoute):
            if is_client(neighbour):
                self._served[neighbour.node] = route.place
            else:
                publisher, incarnation, seq = arrival.key
                turns = Turns(
                    publisher=publisher,
                    incarnation=incarnation,
                    seq=seq,
                    step=route.place[0],
                    turns=route.turns[neighbour.hop],
                )
                self._steps.send(neighbour, turns, key=arrival.key)
        super()._pass_on(neighbour, arrival)

    # --- held -------------------------------------------------------------------------------

    def _is_due(self, client: Below, arrival: Arrival) -> bool:
        """Whether the client has what comes before."""
        route = arrival.route
        assert isinstance(route, _PlacedRoute)
        (turn,) = route.turns[client.hop]
        return self._served.get(client.node, NO_PLACE) >= turn.after

    def _offer(self, client: Below, arrival: Arrival) -> None:
        super()._offer(client, arrival)
        if self._again is None:
            self._release(client)

    def _release(self, client: Below) -> None:
        """Hand over whatever is due by now."""
        while True:
            due = [a for a in self.queued_for(client.node) if self._is_due(client, a)]
            if not due:
                return
            self._hand_over(client, due[:1])

    def release_what_is_due(self) -> None:
        """After a rebuild: what waited for something that came from a client that failed."""
        for node in list(self._queues):
            self._release(self.neighbours.below[node])

    def forget(self, gone: Below) -> None:
        """Nobody has to know what a neighbour had that is gone."""
        super().forget(gone)
        self._announced.pop(gone.hop, None)
        self._served.pop(gone.node, None)

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_life(self, log: StepLog) -> None:
        """Begin where a log begins, with what clients had been handed by then."""
        standings = log.neighbours_at_base().items()
        self._served = {
            node: standing.place for node, standing in standings if standing.place > NO_PLACE
        }

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""
        super().begin_again(entry)
        self._places_again = entry.places

    def end_again(self) -> None:
        """Hand over what was handed over in this step; the last of it may be missing by now."""
        super().end_again()
        for client, place in self._places_again:
            if client in self.neighbours.below:
                self._served[client] = place

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {
            **super().state(),
            "served": dict(self._served),
        }
