"""Publications under `sequencer-filtered`: places from the root, and handing over in their order.

The rule is the docstring of `FilteredSequencer` in `routing/orderings.py`. A publication goes where
its places say, not where its content does: a subscription may be withdrawn while it is on its way,
and a place that did not arrive would hold up its subscriber for ever. So each broker remembers by
which hop a subscriber lies even when it has no subscription left.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from broker.codec import decode_content
from broker.inputs import LinkId
from broker.messages import Message, Place, Placed, PlacesReply, PlacesRequest, Publish
from broker.neighbours import UP, Arrival, Below, Neighbour, Route, is_client
from broker.publications import Publications
from faulttol.merging import Key
from routing.ids import NodeId
from routing.orderings import FilteredSequencer
from routing.tables import Advertisement, Subscription


class Whereabouts:
    """By which hop each subscriber lies, or lay last."""

    def __init__(self) -> None:
        """Begin knowing nobody."""
        self.hops: dict[NodeId, NodeId] = {}

    def add_advertisement(self, entry: Advertisement) -> None:
        """Publishers need not be found."""

    def remove_advertisement(self, entry: Advertisement) -> None:
        """Publishers need not be found."""

    def add_subscription(self, entry: Subscription) -> None:
        """Take note of where a subscriber is."""
        self.hops[entry.client] = entry.hop

    def remove_subscription(self, entry: Subscription) -> None:
        """What is on its way has to find its subscriber all the same."""


@attrs.frozen(kw_only=True, eq=False)
class _WantedRoute(Route):
    """What is known of a content before there are places: who wants it."""

    wanted_by: tuple[NodeId, ...]


@attrs.frozen(kw_only=True, eq=False)
class _PlacedRoute(Route):
    """Where a publication goes, as its places say."""

    places: Mapping[NodeId, tuple[Place, ...]]
    """By hop."""


@attrs.define(eq=False)
class _Line:
    """What waits for its turn before one subscriber."""

    next: int = 1
    waiting: dict[int, Arrival | None] = attrs.field(factory=dict)
    """By number; None for what is not wanted any more, and has its place all the same."""


class PlacedPublications(Publications):
    """The publications under way at a broker that has the root number them."""

    ordering: FilteredSequencer[Arrival]

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._unplaced: dict[Key, Arrival] = {}
        """What was published here, until the root has answered."""
        self._askers: dict[Key, Below] = {}
        """To whom the root's answers are to be passed on."""
        self._given: dict[NodeId, int] = {}
        """The last place that each subscriber was given, at the root."""
        self._lines: dict[NodeId, _Line] = {}
        self._announced: dict[NodeId, tuple[Place, ...]] = {}
        """By each neighbour, for the publication that comes next."""
        self._places: tuple[Place, ...] = ()
        """Of the publication that is being taken in."""

    # --- places -----------------------------------------------------------------------------

    def on_publish(self, source: Neighbour, publication: Publish, now: float) -> None:
        """Take in a publication, and the places that were announced for it."""
        self._places = self._announced.pop(source.hop, ())
        super().on_publish(source, publication, now)

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in what this ordering has to say beside publications."""
        match notice:
            case Placed(places=places):
                self._announced[source.hop] = places
            case PlacesRequest():
                assert isinstance(source, Below)
                self._noticed(source, notice)
                self._askers[notice.publisher, notice.incarnation, notice.seq] = source
                self._request(notice)
            case PlacesReply():
                self._noticed(source, notice)
                self._reply(notice)
            case _:
                super().on_notice(source, notice)

    def _request(self, request: PlacesRequest) -> None:
        """Pass a request on to the root; the root answers."""
        parent = self.neighbours.parent
        if parent is not None:
            self._notify(parent, request)
            return
        places = []
        for subscriber in request.subscribers:
            number = self._given[subscriber] = self._given.get(subscriber, 0) + 1
            places.append(Place(subscriber, number))
        self._reply(
            PlacesReply(
                publisher=request.publisher,
                incarnation=request.incarnation,
                seq=request.seq,
                places=tuple(places),
            )
        )

    def _reply(self, reply: PlacesReply) -> None:
        """Pass the root's answer on to whoever asked, or act on it."""
        key = (reply.publisher, reply.incarnation, reply.seq)
        asker = self._askers.pop(key, None)
        if asker is not None:
            self._notify(asker, reply)
        elif key in self._unplaced:
            arrival = self._unplaced.pop(key)
            self.ordering.take_out(arrival)
            self._spread(arrival, reply.places)

    # --- on their way -----------------------------------------------------------------------

    def compute_route(self, source: Neighbour, publication: Publish) -> Route:
        """Who wants it; where it goes is not decided before there are places."""
        route = super().compute_route(source, publication)
        matching = self.interests.subscriptions.matching(decode_content(publication.content))
        wanted_by = dict.fromkeys(entry.client for entry in matching)
        return _WantedRoute(
            down=(),
            climbs=False,
            links=(),
            is_allowed=route.is_allowed,
            version=route.version,
            wanted_by=tuple(wanted_by),
        )

    def _settle(self, arrival: Arrival) -> None:
        """Ask for places for what is published here, and pass on what has them."""
        route = arrival.route
        if not is_client(arrival.source):
            self._spread(arrival, self._places)
        elif isinstance(route, _WantedRoute) and route.wanted_by:
            publisher, incarnation, seq = key = arrival.key
            self._unplaced[key] = arrival
            self.ordering.hold(arrival, {})
            self._request(
                PlacesRequest(
                    publisher=publisher,
                    incarnation=incarnation,
                    seq=seq,
                    subscribers=route.wanted_by,
                )
            )
        else:
            self._spread(arrival, ())

    def _spread(self, arrival: Arrival, places: Iterable[Place]) -> None:
        """Send a publication to where its places are; if it has been here before, once more.

        Whoever gets it a second time knows that it is one, but has to know its place.
        """
        whereabouts = self.interests.observer
        assert isinstance(whereabouts, Whereabouts)
        by_hop: dict[NodeId, tuple[Place, ...]] = {}
        for place in places:
            hop = whereabouts.hops.get(place.subscriber)
            if hop is not None and (hop != arrival.source.hop or is_client(arrival.source)):
                by_hop[hop] = (*by_hop.get(hop, ()), place)
        parent, below = self.neighbours.parent, self.neighbours.below
        down = tuple(below[hop] for hop in by_hop if hop in below)
        arrival.route = _PlacedRoute(
            down=down,
            climbs=parent is not None and UP in by_hop,
            links=(),
            is_allowed=True,
            places=by_hop,
        )
        arrival.missing += len(down)
        for hop, places_there in by_hop.items():
            neighbour = self.neighbours.get(hop)
            if neighbour is None or is_client(neighbour):
                for place in places_there:
                    self._line_up(place, arrival if neighbour is not None else None)
            else:
                self._pass_on(neighbour, arrival)
        self.no_longer_missing(arrival)

    def _line_up(self, place: Place, arrival: Arrival | None) -> None:
        """Hand a publication to a subscriber when its turn has come."""
        line = self._lines.setdefault(place.subscriber, _Line())
        line.waiting[place.number] = arrival
        if arrival is not None:
            self.ordering.hold(arrival, {place.subscriber: place.number})
        while line.next in line.waiting:
            turn = line.waiting.pop(line.next)
            line.next += 1
            if turn is not None:
                self.ordering.let_go(turn, place.subscriber)
                self._pass_on(self.neighbours.below[place.subscriber], turn)

    def _send_entry(self, link: LinkId, neighbour: Neighbour, arrival: Arrival) -> None:
        """Send a publication, and to a broker its places beyond."""
        if isinstance(arrival.route, _PlacedRoute) and not is_client(neighbour):
            self._outbox.send(link, Placed(places=arrival.route.places[neighbour.hop]))
        self._outbox.send(link, arrival.publication)

    # --- held -------------------------------------------------------------------------------

    def send_in_turn(self, neighbour: Neighbour, message: Message) -> None:
        """Send a message at once: what is held goes by its places, whatever is told meanwhile."""
        self.send(neighbour, message)

    def _waits_for(self, arrival: Arrival) -> str | None:
        """The parent, by which places come; what has its place waits for those before it."""
        parent = self.neighbours.parent
        return parent.node if parent is not None and arrival.key in self._unplaced else None

    def settle_now(self, arrival: Arrival) -> None:
        """Hand a publication over out of its turn; without places it is for nobody."""
        if self._unplaced.pop(arrival.key, None) is not None:
            self.ordering.take_out(arrival)
            self._spread(arrival, ())
        for node, number in self.ordering.places(arrival).items():
            self._lines[node].waiting[number] = None
            self.ordering.let_go(arrival, node)
            self._pass_on(self.neighbours.below[node], arrival)

    def forget(self, gone: Below) -> None:
        """Drop what waits for its turn before a neighbour that is gone, but not its places."""
        super().forget(gone)
        self._announced.pop(gone.hop, None)
        line = self._lines.get(gone.hop, _Line())
        for number, arrival in line.waiting.items():
            line.waiting[number] = None
            if arrival is not None:
                self.ordering.let_go(arrival, gone.hop)
                self.no_longer_missing(arrival)
