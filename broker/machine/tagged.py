"""Publications under `tno-tagged`: a stamp first, and then the shortest way to everybody at once.

The broker where something is published asks the root for a stamp, and sends nothing before it has
one. Then nobody waits for anybody: publications overtake each other on their ways, and who gets one
is told whether it came where it belongs. Any two subscribers have what did in the same order.

The managers of all topics are at the root. It knows in which order it has stamped, so a stamp names
whatever came before on topics that matter (`TopicTable.companions`), on both sides; and who comes
to have a topic is told how far it is (`Begun`), as what was stamped before may name too little.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from plait.broker.codec import decode_content
from plait.broker.machine.asking import AskingPublications, key_of
from plait.broker.machine.neighbours import Arrival, Below, Control, Neighbour, Route, is_client
from plait.broker.machine.topics import objection_to, stamped, topic_of
from plait.broker.messages import (
    Begun,
    Flag,
    Message,
    Publish,
    Stamped,
    StampReply,
    StampRequest,
    behind_of,
)
from plait.faulttol.steplog import Entry, Key, StepLog, Taken, TopicStanding
from plait.routing.filters import Filter
from plait.routing.ids import SubscriptionId
from plait.routing.orderings import TaggedNotification
from plait.routing.tables import Subscription
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import Topic
from plait.routing.topics.table import TopicTable, topics_of

NO_TOPIC = Topic("")
"""Of what is published without order: it goes behind what its publisher had published before."""


@attrs.frozen(kw_only=True, eq=False)
class _UnstampedRoute(Route):
    """Where a content goes when it has a stamp."""

    stamped: Route
    topic: Topic


class TaggedPublications(AskingPublications[StampRequest, StampReply]):
    """The publications under way at a broker that passes them on at once, with their stamps."""

    ordering: TaggedNotification[Arrival]
    is_told_everywhere: ClassVar = True
    request_type: ClassVar = StampRequest

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        table = self.interests.observer
        assert isinstance(table, TopicTable)
        self._table = table
        table.when_subscribed = self._on_subscribed
        table.when_left = self._on_left
        self._numbers: dict[Topic, int] = {}
        """At the root, of the last publication on each topic."""
        self._announced: dict[Key, Position] = {}
        """Where publications belong that come next in this step."""
        self._numbered: dict[Topic, None] = {}
        """The topics of which there are new numbers in this step."""
        self._left: dict[Topic, None] = {}
        """Those that somebody has left in it."""
        self._begun: dict[SubscriptionId, Subscription] = {}
        """And the subscriptions that began in it."""
        self._written: list[tuple[Key, Position]] = []
        self._told: deque[tuple[Neighbour, Control]] = deque()
        """What subscribers were told of beginnings, and may have to be told again."""
        self._entry_again = Entry(Taken.REPLAY)
        """While steps are taken again: the present one."""
        self._written_before: dict[Key, Position] = {}

    @staticmethod
    def objection_to(wanted: Filter) -> str:
        """Why a client cannot have such a subscription; empty if it can."""
        return objection_to(wanted)

    # --- stamps -----------------------------------------------------------------------------

    @property
    def topics_managed(self) -> int:
        """Of how many topics the manager is here: of all, at the root."""
        return len(self._numbers)

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in a stamp, or how far topics were when a subscription began."""
        match notice:
            case Stamped(position=position) if not is_client(source):
                self._announced[key_of(notice)] = position
            case Begun(subscription=subscription) if not is_client(source):
                entry = self.interests.subscriptions.get(subscription)
                if entry is not None:
                    self._tell_begun(entry, notice)
            case _:
                super().on_notice(source, notice)

    @staticmethod
    def answer_in(message: Message) -> StampReply | None:
        """The message, if it answers somebody."""
        return message if isinstance(message, StampReply) else None

    def _answer(self, request: StampRequest) -> StampReply:
        key, topic = key_of(request), request.topic
        if self._again is not None:
            position = self._written_before.get(key, Position(number=0, behind={}))
        elif topic == NO_TOPIC:
            position = Position(number=0, behind={})
        else:
            numbers = self._numbers
            numbers[topic] = numbers.get(topic, 0) + 1
            self._numbered[topic] = None
            self.counters.numbered += 1
            companions = self._table.companions(topic)
            behind = {other: numbers[other] for other in companions if other in numbers}
            position = Position(number=numbers[topic], behind=behind)
            self._written.append((key, position))
        return StampReply(
            publisher=request.publisher,
            incarnation=request.incarnation,
            seq=request.seq,
            number=position.number,
            behind=behind_of(position),
        )

    def _take_answer(self, arrival: Arrival, answer: StampReply) -> None:
        """Send it wherever it is wanted: now it has a stamp."""
        arrival.position = answer.position
        assert isinstance(arrival.route, _UnstampedRoute)
        route, below = arrival.route.stamped, self.neighbours.below
        down = tuple(n for n in route.down if below.get(n.node) is n)
        arrival.route = attrs.evolve(route, down=down, links=())
        arrival.missing += len(down)
        if route.climbs:
            self._climb(arrival)
        super()._settle(arrival)

    # --- on their way -----------------------------------------------------------------------

    def _compute_route(self, source: Neighbour, publication: Publish) -> Route:
        route = super()._compute_route(source, publication)
        if not is_client(source):
            return route
        return _UnstampedRoute(
            down=(),
            climbs=False,
            links=(),
            is_allowed=route.is_allowed,
            version=route.version,
            stamped=route,
            topic=topic_of(decode_content(publication.content), source),
        )

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        if not (is_client(source) and publication.flags & Flag.UNORDERED):
            return super()._route(source, publication)
        route = super()._compute_route(source, publication)
        return _UnstampedRoute(
            down=(),
            climbs=False,
            links=(),
            is_allowed=route.is_allowed,
            version=route.version,
            stamped=route,
            topic=NO_TOPIC,
        )

    def _note_arrival(self, arrival: Arrival) -> None:
        arrival.position = self._announced.pop(arrival.key, None)

    def _settle(self, arrival: Arrival) -> None:
        """Ask for a stamp for what is published here, and pass on what has one."""
        route = arrival.route
        if isinstance(route, _UnstampedRoute) and (route.stamped.down or route.stamped.climbs):
            publisher, incarnation, seq = arrival.key
            request = StampRequest(
                publisher=publisher, incarnation=incarnation, seq=seq, topic=route.topic
            )
            self._ask(arrival, request)
            return
        super()._settle(arrival)

    def _pass_on(self, neighbour: Neighbour, arrival: Arrival) -> None:
        """Send a publication behind its stamp."""
        if arrival.position is not None and arrival.position.number:
            self._steps.send(neighbour, stamped(arrival.key, arrival.position), key=arrival.key)
        super()._pass_on(neighbour, arrival)

    def _is_due(self, client: Below, arrival: Arrival) -> bool:
        """Nobody waits."""
        del client, arrival
        return True

    # --- subscriptions that begin -------------------------------------------------------------

    def _on_subscribed(self, topic: Topic, entry: Subscription) -> None:
        del topic
        if self.neighbours.parent is None:
            self._begun[entry.id] = entry

    def _on_left(self, topic: Topic, entry: Subscription) -> None:
        self._begun.pop(entry.id, None)
        if self.neighbours.parent is None:
            self._left[topic] = None

    def _tell_begun(self, entry: Subscription, begun: Begun) -> None:
        neighbour = self.neighbours.get(entry.hop)
        if neighbour is not None:
            self._steps.send(neighbour, begun)
            self._told.append((neighbour, neighbour.controls[-1]))

    # --- steps ------------------------------------------------------------------------------

    def end_step(self) -> None:
        """Answer what was asked in this step, and tell those who have subscribed how far it is."""
        self._answer_all()
        for name, entry in self._begun.items():
            topics = sorted(topics_of(entry.filter) or ())
            numbers = {topic: self._numbers[topic] for topic in topics if topic in self._numbers}
            behind = behind_of(Position(number=0, behind=numbers))
            self._tell_begun(entry, Begun(subscription=name, behind=behind))
        left = TopicStanding(place="", hop="", is_left=True)
        self._steps.numbers = tuple((topic, self._numbers[topic]) for topic in self._numbered)
        self._steps.topics = tuple((topic, left) for topic in self._left)
        self._steps.stamps = tuple(
            (key, (position.number, *position.behind.values()), tuple(position.behind))
            for key, position in self._written
        )
        for changes in (self._numbered, self._left, self._begun, self._announced):
            changes.clear()
        self._written = []
        super().end_step()

    def first_unstable_step(self) -> int | None:
        """Nor is a step forgotten in which somebody was told of a beginning who may lack that."""
        while self._told and self._told[0][1].step <= self._told[0][0].forgot:
            self._told.popleft()
        steps = [super().first_unstable_step(), *(c.step for _, c in list(self._told)[:1])]
        return min((step for step in steps if step is not None), default=None)

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_life(self, log: StepLog) -> None:
        """Begin where a log begins, with the numbers given out by then."""
        super().begin_life(log)
        self._numbers = log.numbers_at_base()
        self._table.left |= {x for x, known in log.topics_at_base().items() if known.is_left}

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""
        super().begin_again(entry)
        self._begun.clear()  # of what was there when the log begins
        self._entry_again = entry
        self._written_before = {
            key: Position(number=numbers[0], behind=dict(zip(topics, numbers[1:], strict=True)))
            for key, numbers, topics in entry.stamps
        }

    def end_again(self) -> None:
        """Know how far numbers had come with this step."""
        super().end_again()
        self._numbers |= dict(self._entry_again.numbers)
        self._table.left |= {topic for topic, _ in self._entry_again.topics}

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {**super().state(), "numbers": dict(self._numbers)}
