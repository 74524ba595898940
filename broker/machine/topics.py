"""Publications under `tno`: each topic has a manager, which numbers what is published on it.

A topic's manager sits at its *summit*, the lowest broker with all its subscribers below, and a
publication passes there anyway: its request for a stamp is the publication itself. Where it climbs
it waits, wherever somebody below wants it, until the parent says where it belongs. So what two
subscribers get of two topics is ordered where the lower of both managers is, or above it, and then
everybody below keeps to that: this is `pairwise`, and order needs nothing else. What a *stamp* adds
is that order can be judged at the edge. It has the publication's number on its topic, and those of
other topics behind which it comes there; managers that it passes on the way down add theirs.

Subscribers come and go, and managers follow them: with its manager a topic's last number moves
from broker to broker (`Entrust`). It goes down by itself as soon as all subscribers are behind one
child. It goes up when it is called (`Recall`), by the broker that finds subscribers elsewhere, too;
the call goes ahead of the subscription, so that this is confirmed when the manager is where it is
to be. What passes meanwhile, where the manager is not, has no number: its stamp says behind what it
comes.

All of this is in the step log: the numbers of a step and who manages what from then on, as what had
been numbered before may be stable and missing when a broker is rebuilt; and the stamps that a step
wrote, as they depend on subscribers who may have gone.
"""

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from plait.broker.codec import decode_content
from plait.broker.errors import RemoteProtocolError
from plait.broker.machine.errands import SAID, Memory
from plait.broker.machine.neighbours import (
    UP,
    Arrival,
    Below,
    Neighbour,
    Route,
    is_client,
)
from plait.broker.machine.publications import Publications
from plait.broker.messages import Entrust, Flag, Message, Publish, Recall, Stamped, behind_of
from plait.faulttol.steplog import Entry, Key, StepLog, Taken, TopicStanding
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.limits import TOPIC_CHARACTERS_MAX
from plait.routing.orderings import TotalNotification
from plait.routing.tables import Subscription
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import Topic
from plait.routing.topics.table import TOPIC, TopicTable, topics_of
from plait.routing.values import Content


class Place(enum.StrEnum):
    """Where the manager of a topic is, seen from a broker."""

    ELSEWHERE = ""
    """Not below."""
    HERE = "here"
    BELOW = "below"
    """Beyond the child that is its hop."""
    CALLED = "called"
    """The same, and it has been called here."""
    PASSING = "passing"
    """The same, and it has been called further up."""


_AWAY: Final = (Place.BELOW, Place.CALLED, Place.PASSING)


@attrs.define
class _Known:
    """What a broker knows of a topic."""

    number: int = 0
    """Of the last publication on it that was settled here, or that its manager brought along."""
    place: Place = Place.ELSEWHERE
    hop: NodeId = UP
    """The child by which it lies, if it is below."""


@attrs.frozen(kw_only=True, eq=False)
class _TopicRoute(Route):
    """Where a publication goes that is on a topic."""

    topic: Topic


def objection_to(wanted: Filter) -> str:
    """Why nobody can have such a subscription where topics are ordered; empty if one can."""
    topics = topics_of(wanted)
    if topics is None:
        return (
            "where topics are ordered a subscription names its topics, as in topic = 'a' or "
            f"topic IN ('a', 'b'); {wanted} does not"
        )
    if any(len(topic) > TOPIC_CHARACTERS_MAX for topic in topics):
        return f"a topic has at most {TOPIC_CHARACTERS_MAX} characters"
    return ""


def topic_of(content: Content, source: Neighbour) -> Topic:
    """The topic on which something is published."""
    topic = content.get(TOPIC)
    if isinstance(topic, str) and len(topic) <= TOPIC_CHARACTERS_MAX:
        return Topic(topic)
    raise RemoteProtocolError(
        f"a publication from {source.node} without a topic: where topics are ordered the attribute "
        f"{TOPIC!r} is a string of at most {TOPIC_CHARACTERS_MAX} characters, {topic!r} found"
    )


def stamped(key: Key, position: Position) -> Stamped:
    """What is said before a publication."""
    publisher, incarnation, seq = key
    return Stamped(
        publisher=publisher,
        incarnation=incarnation,
        seq=seq,
        number=position.number,
        behind=behind_of(position),
        epoch=position.epoch,
    )


class TopicPublications(Publications):
    """The publications under way at a broker that orders them by topics."""

    ordering: TotalNotification[Arrival]
    can_begin_anew: ClassVar = False
    is_told_everywhere: ClassVar = True

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        table = self.interests.observer
        assert isinstance(table, TopicTable)
        self._table = table
        table.when_subscribed = self._on_subscribed
        table.when_left = self._on_left
        self._topics: dict[Topic, _Known] = {}
        self._announced: dict[Key, Position] = {}
        """Where publications belong that come next in this step, or are answered."""
        self._numbered: dict[Topic, None] = {}
        """The topics of which numbers have come further in this step."""
        self._moved: dict[Topic, None] = {}
        """Those of which something else has changed."""
        self._looked_at: dict[Topic, None] = {}
        """Those of which the manager may have to move at the end of this step."""
        self._written: list[tuple[Key, Position]] = []
        """The stamps on which something was written in this step."""
        self._memory = Memory()
        """Of what was said to neighbours of managers, and may have to be said again."""
        self._said: dict[str, tuple[NodeId, int]] = {}
        """To whom that was said, by its name in the memory, and in which step."""
        self._again: Entry | None = None
        """While steps are taken again: the present one."""
        self._written_before: dict[Key, Position] = {}

    # --- where to ---------------------------------------------------------------------------

    @staticmethod
    def objection_to(wanted: Filter) -> str:
        """Why a client cannot have such a subscription; empty if it can."""
        return objection_to(wanted)

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        if publication.flags & Flag.UNORDERED:
            return super()._compute_route(source, publication)
        return super()._route(source, publication)

    def _compute_route(self, source: Neighbour, publication: Publish) -> Route:
        """To whom it goes, and whether to the topic's manager before that."""
        attributes = decode_content(publication.content)
        topic = topic_of(attributes, source)
        index = self.interests.subscriptions.index
        hops = index.hops_of(index.matching_bits(attributes))
        below, parent = self.neighbours.below, self.neighbours.parent
        down = tuple(
            below[hop]
            for hop in hops
            if hop in below and (is_client(source) or below[hop] is not source)
        )
        climbs = bool(hops) and source is not parent and self._is_managed_above(topic)
        is_allowed = not is_client(source) or any(
            advertisement.filter.matches(attributes)
            for advertisement in self.interests.advertisements.of_client(source.node)
        )
        return _TopicRoute(
            down=down,
            climbs=climbs,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
            is_allowed=is_allowed,
            version=self.neighbours.version,
            conflicts=climbs and bool(down),
            conflicts_if_awaited=climbs,
            topic=topic,
        )

    def _is_managed_above(self, topic: Topic) -> bool:
        """Whether a publication has to climb to be numbered."""
        return UP in self._table.hops(topic)

    # --- on their way -----------------------------------------------------------------------

    def _note_arrival(self, arrival: Arrival) -> None:
        arrival.position = self._announced.pop(arrival.key, None)

    def acknowledge(self, arrival: Arrival) -> None:
        """The parent has said where it belongs; or that this broker is to say so itself."""
        arrival.position = self._announced.pop(arrival.key, None)
        super().acknowledge(arrival)

    def _settle(self, arrival: Arrival) -> None:
        """Number it, if its manager is here, and send it down with its stamp."""
        route = arrival.route
        if isinstance(route, _TopicRoute):
            arrival.position = self._find_position(arrival, route)
        super()._settle(arrival)

    def _send_down(self, arrival: Arrival, route: Route) -> None:
        position = arrival.position
        if position is None:
            super()._send_down(arrival, route)
            return
        for neighbour in route.down:
            self._tell_position(neighbour, arrival.key, position)
            neighbour.sent.append(arrival)
            if neighbour.link is not None:
                self.counters.sent += 1
                self._outbox.send(neighbour.link, arrival.publication)

    def _tell_settled(self, arrival: Arrival) -> None:
        """Tell the child that waits where it belongs."""
        if arrival.position is not None:
            self._tell_position(arrival.source, arrival.key, arrival.position)
        super()._tell_settled(arrival)

    def _tell_position(self, neighbour: Neighbour, key: Key, position: Position) -> None:
        self._steps.send(neighbour, stamped(key, position), key=key)

    def waits_for(self, arrival: Arrival) -> str | None:
        """The parent, by which the manager of its topic is."""
        parent, route = super().waits_for(arrival), arrival.route
        if parent is None or not isinstance(route, _TopicRoute):
            return parent
        return f"{parent}, by way of which the manager of {route.topic!r} is,"

    # --- stamps -----------------------------------------------------------------------------

    def _find_position(self, arrival: Arrival, route: _TopicRoute) -> Position | None:
        """Where it belongs, as it is told from here on."""
        topic, told = route.topic, arrival.position
        if not (route.down or arrival.is_awaited):
            return told  # it goes nowhere from here
        if self._again is not None:
            position = self._written_before.get(arrival.key, told)
        else:
            position = self._position(topic, told, route.down)
            if position is not None and position != told:
                self._written.append((arrival.key, position))
        if position is not None and position.number:
            self._know(topic).number = position.number
            self._numbered[topic] = None
        return position

    def _position(
        self, topic: Topic, told: Position | None, down: Iterable[Below]
    ) -> Position | None:
        """What this broker makes of what it was told, if it was told anything."""
        known = self._know(topic)
        number, behind = (0, {}) if told is None else (told.number, dict(told.behind))
        if known.place is Place.HERE and not number:
            number = known.number + 1
            behind.pop(topic, None)
            self.counters.numbered += 1
        elif told is None and not any(map(is_client, down)):
            return None  # its manager is on the way down, and will be asked
        elif not number:  # it has moved meanwhile: it goes behind what has been here
            behind[topic] = max(behind.get(topic, 0), known.number)
            self.counters.unnumbered += 1
        for other in self._table.companions(topic):
            # Of whatever is managed below, not everything has come by here.
            if other not in behind and self._know(other).place not in _AWAY:
                behind[other] = self._know(other).number
        behind = {other: n for other, n in behind.items() if n}
        return Position(number=number, behind=behind)

    def _know(self, topic: Topic) -> _Known:
        return self._topics.setdefault(topic, _Known())

    # --- managers ---------------------------------------------------------------------------

    @property
    def topics_managed(self) -> int:
        """Of how many topics the manager is here."""
        return sum(known.place is Place.HERE for known in self._topics.values())

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in a stamp, or what is said of managers."""
        if is_client(source):
            super().on_notice(source, notice)
        match notice:
            case Stamped(publisher=publisher, incarnation=incarnation, seq=seq):
                self._announced[publisher, incarnation, seq] = notice.position
            case Recall(topic=topic) if source is self.neighbours.parent:
                self._recall(topic)
            case Entrust():
                self._take_over(source, notice)
            case _:
                super().on_notice(source, notice)

    def _on_subscribed(self, topic: Topic, entry: Subscription) -> None:
        """Somebody has subscribed: call the manager if it has to be here now."""
        if self._again is not None:
            return
        hop = entry.hop
        known = self._topics.get(topic)
        if known is None and self.neighbours.parent is None:
            self._put(topic, Place.HERE)
        elif known is not None and known.place is Place.BELOW and hop not in (known.hop, UP):
            self._put(topic, Place.CALLED, known.hop)
            self._say(self.neighbours.below[known.hop], Recall(topic=topic))
        self._looked_at[topic] = None

    def _on_left(self, topic: Topic, entry: Subscription) -> None:
        """Somebody has gone: perhaps the manager may go down."""
        del entry
        if self._again is None:
            self._looked_at[topic] = self._moved[topic] = None

    def _put(self, topic: Topic, place: Place, hop: NodeId = UP) -> None:
        known = self._know(topic)
        known.place, known.hop = place, hop
        self._moved[topic] = None

    def _say(self, neighbour: Neighbour, message: Recall | Entrust) -> None:
        self._steps.send(neighbour, message)
        step, what = self._steps.number, [type(message).__name__, *attrs.astuple(message)]
        text = json.dumps([step, neighbour.node, *what])
        name = SAID + text
        while name in self._said:  # a manager that has come and gone twice in one step
            name += " again"
        self._said[name] = neighbour.node, step
        if self._again is None:
            self._memory.put(name, text)

    def _recall(self, topic: Topic) -> None:
        """The manager is to go up; if it is further down, it will come by here."""
        known = self._know(topic)
        if known.place is Place.ELSEWHERE:
            raise RemoteProtocolError(f"the manager of {topic!r} is called, and is not here")
        if known.place is Place.BELOW:
            self._say(self.neighbours.below[known.hop], Recall(topic=topic))
        if known.place is Place.HERE:
            self._entrust(topic, UP)
        else:
            self._put(topic, Place.PASSING, known.hop)

    def _take_over(self, source: Neighbour, entrusted: Entrust) -> None:
        """The manager comes, from wherever it was; perhaps it goes on."""
        topic, known = entrusted.topic, self._know(entrusted.topic)
        known.number = entrusted.number
        self._numbered[topic] = None
        if entrusted.is_left:
            self._table.left.add(topic)
        is_passing = known.place is Place.PASSING and known.hop == source.hop
        self._put(topic, Place.HERE)
        if is_passing:
            self._entrust(topic, UP)
        else:
            self._looked_at[topic] = None

    def _entrust(self, topic: Topic, hop: NodeId) -> None:
        """Let the manager go."""
        neighbour = self.neighbours.get(hop)
        assert neighbour is not None
        number = self._know(topic).number
        if self._again is not None:  # what counted it up may be stable by now, and missing
            number = dict(self._again.numbers).get(topic, number)
        is_left = topic in self._table.left
        self._say(neighbour, Entrust(topic=topic, number=number, is_left=is_left))
        self._put(topic, Place.BELOW if hop else Place.ELSEWHERE, hop)

    def _go_down(self, topic: Topic) -> None:
        """Entrust a topic to the child behind which all its subscribers are."""
        if self._know(topic).place is not Place.HERE:
            return
        hops = list(self._table.hops(topic))
        if len(hops) == 1:
            child = self.neighbours.below.get(hops[0])
            if child is not None and not is_client(child):
                self._entrust(topic, child.hop)

    # --- steps ------------------------------------------------------------------------------

    def end_step(self) -> None:
        """Say in the log how far numbers are, and where managers."""
        if self._again is None:
            for topic in self._looked_at:
                self._go_down(topic)
            self._forget_what_was_heard()
        self._steps.memory = self._memory.take_changes()
        self._steps.numbers = tuple((topic, self._know(topic).number) for topic in self._numbered)
        self._steps.topics = tuple((topic, self._standing(topic)) for topic in self._moved)
        self._steps.stamps = tuple(
            (key, (position.number, *position.behind.values()), tuple(position.behind))
            for key, position in self._written
        )
        if self._moved:
            self.neighbours.version += 1
        for changes in (self._looked_at, self._numbered, self._moved, self._announced):
            changes.clear()
        self._written = []
        super().end_step()

    def _standing(self, topic: Topic) -> TopicStanding:
        known = self._know(topic)
        return TopicStanding(place=known.place, hop=known.hop, is_left=topic in self._table.left)

    def _forget_what_was_heard(self) -> None:
        """Forget what was said that nobody will ask for again.

        It is in the log until then. A step in which something was said cannot wait for that to be
        forgotten: two neighbours that send each other managers would wait for one another.
        """
        for name, (node, step) in list(self._said.items()):
            neighbour = self.neighbours.named(node)
            if neighbour is None or step <= neighbour.forgot:
                del self._said[name]
                self._memory.put(name, "")

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_life(self, log: StepLog) -> None:
        """Begin where a log begins, with what was known of topics by then."""
        self._again = Entry(Taken.REPLAY)
        for topic, number in log.numbers_at_base().items():
            self._know(topic).number = number
        for topic, standing in log.topics_at_base().items():
            self._stand(topic, standing)
        self._memory.learn(log.memory_at_base().items())
        self._say_again()

    def _say_again(self) -> None:
        """Have what was said before a log begins among what is kept for neighbours."""
        number = self._steps.number
        for name in sorted(
            self._memory.known, key=lambda name: json.loads(self._memory.known[name])[0]
        ):
            step, node, kind, *fields = json.loads(self._memory.known[name])
            neighbour = self.neighbours.named(NodeId(node))
            if neighbour is not None:
                self._steps.number = step
                self._steps.send(neighbour, _move(kind, fields))
                self._said[name] = neighbour.node, step
        self._steps.number = number

    def _stand(self, topic: Topic, standing: TopicStanding) -> None:
        known = self._know(topic)
        known.place, known.hop = Place(standing.place), NodeId(standing.hop)
        if standing.is_left:
            self._table.left.add(topic)

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""
        self._again = entry
        self._written_before = {
            key: Position(number=numbers[0], behind=dict(zip(topics, numbers[1:], strict=True)))
            for key, numbers, topics in entry.stamps
        }

    def end_again(self) -> None:
        """Know what was known after this step, and say what was said of managers in it."""
        assert self._again is not None
        for topic, standing in self._again.topics:
            known = self._know(topic)
            place = Place(standing.place)
            if place is Place.CALLED and known.place is Place.BELOW:
                self._say(self.neighbours.below[known.hop], Recall(topic=topic))
            if place is Place.BELOW and (known.place not in _AWAY or known.hop != standing.hop):
                self._entrust(topic, NodeId(standing.hop))
            self._stand(topic, standing)
        for topic, number in self._again.numbers:
            self._know(topic).number = number
        self._memory.learn(self._again.memory)
        for name, text in self._again.memory:
            if not text:
                self._said.pop(name, None)
        if self._again.topics:
            self.neighbours.version += 1

    def go_on(self) -> None:
        """All steps have been taken again: what comes next is decided here."""
        self._again = None
        super().go_on()

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {
            "topics": {
                topic: (known.number, known.place, known.hop, topic in self._table.left)
                for topic, known in self._topics.items()
                if known != _Known()
            }
        }


def _move(kind: str, fields: Sequence[Any]) -> Recall | Entrust:
    """What was said, as it is in the memory."""
    if kind == Recall.__name__:
        return Recall(topic=fields[0])
    return Entrust(topic=fields[0], number=fields[1], is_left=fields[2])


class RootedTopicPublications(TopicPublications):
    """The same, with all managers at the root."""

    def _is_managed_above(self, topic: Topic) -> bool:
        del topic
        return self.neighbours.parent is not None

    def _go_down(self, topic: Topic) -> None:
        """They stay there."""
