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
from typing import Any

import attrs

from broker.codec import decode_content
from broker.errors import RemoteProtocolError
from broker.machine.neighbours import UP, Arrival, Below, Neighbour, Route, is_client
from broker.machine.queues import QueuedPublications
from broker.messages import Message, PlacesRequest, Publish
from broker.vocabulary import Turn, Turns
from faulttol.steplog import NO_PLACE, Entry, Key, Place, StepLog
from routing.ids import NodeId
from routing.orderings import FilteredSequencer
from routing.tables import Subscription


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


@attrs.frozen
class _Asked:
    """What somebody asked, and is to be answered."""

    source: Neighbour
    step: int
    subscribers: tuple[NodeId, ...]


class PlacedPublications(QueuedPublications):
    """The publications under way at a broker that has the root number them."""

    ordering: FilteredSequencer[Arrival]

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._unplaced: dict[Key, Arrival] = {}
        """What was published here, until the root has answered."""
        self._asked: dict[Key, _Asked] = {}
        """The requests of others, until the root has answered."""
        self._asked_in: dict[Key, int] = {}
        """The steps of those requests of which the answer may be needed once more."""
        self._given: dict[NodeId, Place] = {}
        """At the root, the last place that each subscriber was given, unless that is stable."""
        self._served: dict[NodeId, Place] = {}
        """The place of the last publication that each client was handed."""
        self._announced: dict[NodeId, Turns] = {}
        """By each neighbour, for the publication that comes next."""
        self._places_again: Sequence[tuple[NodeId, Place]] = ()
        """While steps are taken again: what the log has of the present one."""
        self._answered_again: Sequence[Key] = ()

    # --- turns ------------------------------------------------------------------------------

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in what this ordering has to say beside publications."""
        if isinstance(notice, PlacesRequest):
            key = (notice.publisher, notice.incarnation, notice.seq)
            self._asked[key] = _Asked(source, self._steps.number, notice.subscribers)
            if self.neighbours.parent is not None:
                self._steps.send(self.neighbours.parent, notice)
            return
        if not isinstance(notice, Turns):
            super().on_notice(source, notice)
            return
        key = (notice.publisher, notice.incarnation, notice.seq)
        if notice.is_answer and key in self._asked:
            self._note_answered(key)
            asked = self._asked.pop(key)
            self._asked_in[key] = asked.step
            asker = asked.source
            if isinstance(asker, Below) and self.neighbours.below.get(asker.node) is asker:
                self._steps.send(asker, notice)
        elif notice.is_answer and key in self._unplaced:
            self._take_turns(key, notice.step, notice.turns)
        elif not notice.is_answer:
            self._announced[source.hop] = notice

    def _ask(self, arrival: Arrival, wanted: Iterable[NodeId]) -> None:
        """Ask the root for turns."""
        self.ordering.hold(arrival, {})
        self._unplaced[arrival.key] = arrival
        parent = self.neighbours.parent
        if parent is None:
            self._asked[arrival.key] = _Asked(arrival.source, self._steps.number, tuple(wanted))
            return
        publisher, incarnation, seq = arrival.key
        request = PlacesRequest(
            publisher=publisher, incarnation=incarnation, seq=seq, subscribers=tuple(wanted)
        )
        self._steps.send(parent, request)

    def end_step(self) -> None:
        """Answer what was asked in this step, and say in the log who was handed what last."""
        self._answer_all()
        self._steps.places = tuple(
            (client, self._served[client]) for client in self._handed if client in self._served
        )
        super().end_step()

    def _answer_all(self) -> None:
        """At the root, answer the requests of this step, in an order that follows from them."""
        if self.neighbours.parent is None and self._asked:
            base = self._steps.log.base
            self._given = {name: at for name, at in self._given.items() if at[0] > base}
            for key in sorted(self._asked):
                self._answer(key, self._asked.pop(key))

    def _answer(self, key: Key, asked: _Asked) -> None:
        step = self._steps.number
        turns = []
        for name in asked.subscribers:
            turns.append(Turn(name, (), *self._given.get(name, NO_PLACE)))
            self._given[name] = (step, *key)
        if key in self._unplaced:
            self._take_turns(key, step, turns)
            return
        publisher, incarnation, seq = key
        answer = Turns(
            publisher=publisher,
            incarnation=incarnation,
            seq=seq,
            step=step,
            turns=tuple(turns),
            is_answer=True,
        )
        self._steps.send(asked.source, answer)

    def _note_answered(self, key: Key) -> None:
        """The answer came in this step: whoever gave it may forget it when that is stable."""
        self._steps.order = [*(self._steps.order or ()), key]

    def first_unstable_step(self) -> int | None:
        """Nor is a request forgotten of which the answer is to be given, or may be once more."""
        steps = [super().first_unstable_step(), *(asked.step for asked in self._asked.values())]
        needed = {}
        for neighbour in self.neighbours.children():
            for control in neighbour.controls:
                match control.message:
                    case Turns(
                        publisher=publisher, incarnation=incarnation, seq=seq, is_answer=True
                    ):
                        key = (publisher, incarnation, seq)
                        needed[key] = self._asked_in.get(key, control.step)
        self._asked_in = needed
        return min((step for step in (*steps, *needed.values()) if step is not None), default=None)

    def _take_turns(self, key: Key, step: int, turns: Iterable[Turn]) -> None:
        """Send what was published here where it is wanted: now there are turns."""
        self._note_answered(key)
        arrival = self._unplaced.pop(key)
        self.ordering.take_out(arrival)
        assert isinstance(arrival.route, _WantedRoute)
        wanted = arrival.route.wanted
        # Who failed together with this broker was asked for, and is not known here any more.
        known = [turn for turn in turns if turn.subscriber in wanted]
        placed = [attrs.evolve(turn, way=wanted[turn.subscriber]) for turn in known]
        arrival.route = self._placed_route(arrival.key, step, placed)
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
        life, *way = self.interests.whole_path(entry)
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
        return client if client is not None and self.interests.life_of(client) == life else None

    def _settle(self, arrival: Arrival) -> None:
        """Ask for turns for what is published here, and pass on what has them."""
        route = arrival.route
        if isinstance(route, _WantedRoute) and route.wanted:
            self._ask(arrival, route.wanted)
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

    def waits_for(self, arrival: Arrival) -> str | None:
        """The parent, by which turns come; what has its turns waits for those before it."""
        parent = self.neighbours.parent
        return parent.node if parent is not None and arrival.key in self._unplaced else None

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
        self._places_again, self._answered_again = entry.places, entry.order

    def end_again(self) -> None:
        """Hand over what was handed over in this step; the last of it may be missing by now."""
        self._answer_all()
        super().end_again()
        for key in self._answered_again:
            self._asked.pop(key, None)
            arrival = self._unplaced.pop(key, None)
            if arrival is not None:  # nobody has the answer any more, so it is stable
                self.ordering.take_out(arrival)
                arrival.settled_in = self._steps.number
                arrival.missing, arrival.is_over = 0, True
                arrival.stable = True
                self._pass_on_stable(arrival)
        for client, place in self._places_again:
            if client in self.neighbours.below:
                self._served[client] = place

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {
            **super().state(),
            "served": dict(self._served),
            "unplaced": dict.fromkeys(self._unplaced),
        }
