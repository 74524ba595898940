"""Publications under `tno` where a hash says who manages a topic: stamps first, then the way.

As both documents have it, with what `routing/topics/total.py` mends. The broker where something is
published asks the manager of its topic for a stamp, which other managers fill in on the way; when
that is back the publication goes the shortest way to whoever wants it. A subscriber's broker holds
it until its subscriber has had all that the stamp names. The coordinator, at the root, knows who
shares which topics and in which order they are, and ends an epoch when that changes.

Managers, coordinator and subscribers are machines of `routing/topics`; here they have places, and
what they say goes from broker to broker (`errands.py`). The next publication of a publisher is
stamped when the one before is: so its publications keep their order. A number that was given to a
publication of which nobody alive has anything any more is said to be void, to everybody: nobody
waits for it.

All that machines know after a step is in the step log, so nothing they decided is decided again.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from plait.broker.codec import decode_content
from plait.broker.machine.council import (
    Council,
    School,
    SchoolByCount,
    SchoolByRate,
    SchoolOf2011,
    SchoolOf2015,
)
from plait.broker.machine.interests import life_of
from plait.broker.machine.neighbours import UP, Arrival, Below, Neighbour, Route, is_client
from plait.broker.machine.publications import Delayed, Publications
from plait.broker.machine.queues import QueuedPublications
from plait.broker.machine.topics import objection_to, stamped, topic_of
from plait.broker.messages import Confirm, Errand, Flag, Message, Publish, Stamped
from plait.faulttol.steplog import Entry, Key, StepLog
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics import protocol
from plait.routing.topics.portable import (
    text_of,
    value_of,
)
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import (
    Stamp,
    Topic,
)
from plait.routing.topics.table import TopicTable

ASKED: Final = "asked "
"""What a name in the memory begins with, and what of."""


class HashedTopicPublications(QueuedPublications):
    """The publications under way at a broker that may manage some topics."""

    is_told_everywhere: ClassVar = True
    school: ClassVar[type[School]] = School
    """As what machines begin."""

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        table = self.interests.observer
        assert isinstance(table, TopicTable)
        self._table = table
        table.when_subscribed = self._on_subscribed
        table.when_left = self._on_left
        self._council = Council(
            self.interests.node,
            self.neighbours,
            self._steps,
            school=self.school,
            has_topic=table.has,
        )
        self._unsent: dict[NodeId, deque[Arrival]] = {}
        """What was published here and has not been sent on, of each publisher in its order."""
        self._asked: dict[NodeId, Key] = {}
        """Of which of them a stamp was asked for."""
        self._announced: dict[Key, Position] = {}
        self._confirms: dict[NodeId, list[Delayed]] = {}
        """For clients that do not have yet all topics that they have asked for."""
        self._written: list[tuple[Key, Topic, Stamp]] = []
        self._orphans: list[protocol.Stamped] = []
        """Stamps of what was published by somebody who has failed together with this broker."""
        self._entry_again: Entry | None = None

    @staticmethod
    def objection_to(wanted: Filter) -> str:
        """Why a client cannot have such a subscription; empty if it can."""
        return objection_to(wanted)

    @property
    def topics_managed(self) -> int:
        """Of how many topics the manager is here."""
        return self._council.topics_managed

    # --- what clients ask for -----------------------------------------------------------------

    def _on_subscribed(self, topic: Topic, entry: Subscription) -> None:
        client = self.neighbours.below.get(entry.hop)
        if self._again is None and client is not None and is_client(client):
            self._council.subscribe(client.node, life_of(client.node, client.incarnation), topic)

    def _on_left(self, topic: Topic, entry: Subscription) -> None:
        client = self.neighbours.below.get(entry.hop)
        if self._again is None and client is not None and not self._table.has(client.node, topic):
            self._council.unsubscribe(client.node, topic)

    def send_in_turn(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        """Confirm nothing to a client before it has all topics that it has asked for."""
        if isinstance(message, Confirm) and self._council.subscriber(neighbour.node) is not None:
            delayed = Delayed(set(), neighbour, message, about)
            self._confirms.setdefault(neighbour.node, []).append(delayed)
        else:
            super().send_in_turn(neighbour, message, about)

    def _confirm_what_is_done(self) -> None:
        for client in list(self._confirms):
            subscriber = self._council.subscriber(client)
            if subscriber is not None and subscriber.is_pending:
                continue
            for each in self._confirms.pop(client):
                super().send_in_turn(each.neighbour, each.message, each.about)

    def delayed_for(self, neighbour: Neighbour) -> list[Delayed]:
        """What waits to be sent to a neighbour."""
        return [*super().delayed_for(neighbour), *self._confirms.get(neighbour.node, ())]

    def forget(self, gone: Below) -> None:
        """Wait no longer for a neighbour, nor with what was held back before it."""
        super().forget(gone)
        self._confirms.pop(gone.node, None)
        if is_client(gone):
            self._council.let_go_of(gone.node)

    def introduce(self, newcomer: Below) -> None:
        """Tell a broker that has joined which epoch it is."""
        if self._again is None:
            self._council.introduce(newcomer)

    def rank(self, topic: Topic, above: Topic) -> str:
        """Have a topic rank above another one; returns why not, if that cannot be."""
        if self._again is None and self.neighbours.parent is None:
            self._council.rank(topic, above)
        return ""

    # --- on their way -----------------------------------------------------------------------

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in a stamp, or an errand."""
        if isinstance(notice, Stamped) and not is_client(source):
            key = notice.publisher, notice.incarnation, notice.seq
            self._announced[key] = notice.position
        elif isinstance(notice, Errand) and not is_client(source):
            if self._again is None:
                self._council.take(source, notice)
        else:
            super().on_notice(source, notice)

    def _compute_route(self, source: Neighbour, publication: Publish) -> Route:
        """To all who have its topic, whatever else they ask for: they wait for each number."""
        route = super()._compute_route(source, publication)
        if publication.flags & Flag.UNORDERED:
            return route
        topic = topic_of(decode_content(publication.content), source)
        below = self.neighbours.below
        hops = [h for h in sorted(self._table.hops(topic)) if is_client(source) or h != source.hop]
        return attrs.evolve(
            route,
            down=tuple(below[hop] for hop in hops if hop in below),
            climbs=UP in hops and self.neighbours.parent is not None,
        )

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        """Of what is published here it is found out later who gets it."""
        if publication.flags & Flag.UNORDERED:
            route = super()._compute_route(source, publication)
        else:
            route = super()._route(source, publication)
        return attrs.evolve(route, down=(), climbs=False, links=()) if is_client(source) else route

    def _note_arrival(self, arrival: Arrival) -> None:
        arrival.position = self._announced.pop(arrival.key, None)

    def _settle(self, arrival: Arrival) -> None:
        """Pass on what has come from a broker; what is published here waits for its turn."""
        if not is_client(arrival.source):
            super()._settle(arrival)
            return
        self._unsent.setdefault(arrival.publisher, deque()).append(arrival)
        self.ordering.hold(arrival, {})

    def _advance(self, publisher: NodeId) -> None:
        """Send on what of a publisher needs no stamp, and ask for the next stamp."""
        unsent = self._unsent.get(publisher, ())
        while unsent and publisher not in self._asked:
            arrival = unsent[0]
            route = self._route_now(arrival)
            if arrival.is_unordered or not (route.down or route.climbs):
                self._send_on(arrival, None)
                continue
            topic = topic_of(decode_content(arrival.publication.content), arrival.source)
            self._asked[publisher] = arrival.key
            self._council.memory.put(ASKED + publisher, text_of(arrival.key))
            self._council.ask_for_stamp(arrival.key, topic)

    def _take_stamp(self, answer: protocol.Stamped) -> None:
        """Send on what it is for, if that is here."""
        key: Any = answer.label
        unsent = self._unsent.get(key[0], ())
        if self._asked.get(key[0]) == key:
            del self._asked[key[0]]
            self._council.memory.put(ASKED + key[0], "")
        if unsent and unsent[0].key == key:
            self._written.append((key, answer.topic, answer.stamp))
            self._send_on(unsent[0], _position_of(answer.topic, answer.stamp))
        else:
            self._council.call_void(answer)

    def _send_on(self, arrival: Arrival, position: Position | None) -> None:
        """Send a publication of a client here wherever it is wanted now."""
        unsent = self._unsent[arrival.publisher]
        unsent.remove(arrival)
        if not unsent:
            del self._unsent[arrival.publisher]
        self._steps.order = [*(self._steps.order or ()), arrival.key]
        self.ordering.take_out(arrival)
        arrival.position = position
        route = self._route_now(arrival)
        arrival.route = route
        arrival.missing += len(route.down)
        if route.climbs:
            self._climb(arrival)
        super()._settle(arrival)

    def _route_now(self, arrival: Arrival) -> Route:
        return self._compute_route(arrival.source, arrival.publication)

    def _pass_on(self, neighbour: Neighbour, arrival: Arrival) -> None:
        """Send a publication behind its stamp."""
        if arrival.position is not None:
            stamp = stamped(arrival.key, arrival.position)
            if is_client(neighbour) and self._council.is_late(neighbour.node, arrival.key):
                stamp = attrs.evolve(stamp, is_late=True)
            self._steps.send(neighbour, stamp, key=arrival.key)
        super()._pass_on(neighbour, arrival)

    # --- before clients -----------------------------------------------------------------------

    def _offer(self, client: Below, arrival: Arrival) -> None:
        """Hold it before a client until the step ends, at least."""
        self._hold_before(client, arrival)
        if self._again is not None:
            return
        position = arrival.position
        if position is None:
            self._council.ready.setdefault(client.node, [])
        else:
            topic = topic_of(decode_content(arrival.publication.content), arrival.source)
            stamp = Stamp(entries={**position.behind, topic: position.number}, epoch=position.epoch)
            self._council.offer(client.node, arrival.key, topic, stamp)

    def _hand_over_what_is_ready(self) -> None:
        ready, self._council.ready = self._council.ready, {}
        for node, keys in ready.items():
            left = list(self.queued_for(node))
            by_key = {arrival.key: arrival for arrival in left}
            released = _unordered_in_front(left)
            for key in keys:
                arrival = by_key.get(key)
                if arrival is not None:  # else it was published by a client that is gone
                    left.remove(arrival)
                    released += [arrival, *_unordered_in_front(left)]
            client = self.neighbours.below[node]
            if left or released:
                self._of_note[node] = None
            if released:
                self._hand_over(client, released)
            self._drop_what_is_of_no_use(client)

    def _drop_what_is_of_no_use(self, client: Below) -> None:
        """Let go of what its subscriber will not have: it was published before, or it has left."""
        held = self._council.held_for(client.node)
        dropped = [
            arrival
            for arrival in self.queued_for(client.node)
            if arrival.position is not None and arrival.key not in held
        ]
        for arrival in dropped:
            queue = self._queues[client.node]
            queue.arrivals.remove(arrival)
            for delayed in queue.behind:
                delayed.unsettled.discard(id(arrival))
            down = tuple(each for each in arrival.route.down if each is not client)
            arrival.route = attrs.evolve(arrival.route, down=down)
            arrival.missing -= 1
            self._let_go(client, arrival)
        if dropped:
            self._hand_over(client, ())

    def waits_for(self, arrival: Arrival) -> str | None:
        """The manager that has been asked for a stamp, if it waits for that."""
        if self._asked.get(arrival.publisher) != arrival.key:
            return None
        topic = topic_of(decode_content(arrival.publication.content), arrival.source)
        return f"the manager of {topic!r}"

    def lacks(self, arrival: Arrival) -> str | None:
        """The numbers of topics that some client here has to have first, or the epoch."""
        position = arrival.position
        clients = sorted(self.ordering.places(arrival))
        if position is None or not clients:
            return None
        topic = topic_of(decode_content(arrival.publication.content), arrival.source)
        stamp = Stamp(entries={**position.behind, topic: position.number}, epoch=position.epoch)
        return self._council.lacks(clients[0], topic, stamp)

    # --- steps ------------------------------------------------------------------------------

    def _send_on_what_is_stamped(self) -> None:
        while True:
            for publisher in list(self._unsent):
                self._advance(publisher)
            if not self._council.answers:
                return
            answers, self._council.answers = self._council.answers, []
            for answer in answers:
                self._take_stamp(answer)

    def end_step(self) -> None:
        """Do what is to be done once in a step, and say in the log what is known."""
        if self._again is None:
            self._send_on_what_is_stamped()
            self._hand_over_what_is_ready()
        self._steps.memory = self._council.end_step(is_first=self._again is None)
        self._confirm_what_is_done()
        self._steps.stamps = tuple(
            (key, (stamp.epoch, *stamp.entries.values()), (topic, *stamp.entries))
            for key, topic, stamp in self._written
        )
        self._written.clear()
        self._announced.clear()
        super().end_step()

    def release_what_is_due(self) -> None:
        """After a rebuild: what is void, and who has failed, too."""
        for answer in self._orphans:
            self._council.call_void(answer)
        self._orphans.clear()
        self._council.let_go_of_others(self.neighbours.below)

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_life(self, log: StepLog) -> None:
        """Begin where a log begins, with what was known by then."""
        self._again = {}
        memory = log.memory_at_base()
        self._council.begin_life(memory)
        self._know(memory)

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""
        super().begin_again(entry)
        self._entry_again = entry

    def end_again(self) -> None:
        """Know what was known after this step, and say what was said in it."""
        entry = self._entry_again
        assert entry is not None
        written = {key: (numbers, topics) for key, numbers, topics in entry.stamps}
        for key in entry.order:
            unsent = self._unsent.get(key[0], ())
            arrival = next((each for each in unsent if each.key == key), None)
            answer = None
            if key in written:
                numbers, topics = written[key]
                entries = dict(zip(topics[1:], numbers[1:], strict=True))
                stamp = Stamp(entries=entries, epoch=numbers[0])
                answer = protocol.Stamped(label=key, topic=topics[0], stamp=stamp)
            if arrival is not None:
                position = None if answer is None else _position_of(answer.topic, answer.stamp)
                self._send_on(arrival, position)
            elif answer is not None:
                self._orphans.append(answer)
        changes = dict(entry.memory)
        self._council.end_again(changes)
        self._know(changes)
        super().end_again()
        for client in list(self._queues):
            if client in self.neighbours.below:
                self._drop_what_is_of_no_use(self.neighbours.below[client])
        self._council.say_again(changes)

    def _know(self, changes: Mapping[str, str]) -> None:
        """Know for what stamps were asked."""
        for name, text in changes.items():
            if name.startswith(ASKED):
                publisher = NodeId(name.removeprefix(ASKED))
                self._asked.pop(publisher, None)
                if text:
                    self._asked[publisher] = value_of(text, {})

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {**super().state(), **self._council.state()}


class CountingTopicPublications(HashedTopicPublications):
    """The same, where topics change places by how much is published on them, as published."""

    school: ClassVar = SchoolByCount


class RatingTopicPublications(HashedTopicPublications):
    """And where they do by how much is published on them of late."""

    school: ClassVar = SchoolByRate


class _UnmovedTopicPublications(HashedTopicPublications):
    """Where topics are in the order of their names, for ever."""

    def rank(self, topic: Topic, above: Topic) -> str:
        """They do not change places."""
        return Publications.rank(self, topic, above)

    def _pass_on_stable(self, arrival: Arrival) -> None:
        super()._pass_on_stable(arrival)
        self._council.forget_late(arrival.key)


class TopicPublicationsOf2011(_UnmovedTopicPublications):
    """As published in the technical report."""

    school: ClassVar = SchoolOf2011


class TopicPublicationsOf2015(_UnmovedTopicPublications):
    """As published in the article."""

    school: ClassVar = SchoolOf2015


def _position_of(topic: Topic, stamp: Stamp) -> Position:
    behind = {other: number for other, number in stamp.entries.items() if other != topic and number}
    return Position(number=stamp.entries[topic], behind=behind, epoch=stamp.epoch)


def _unordered_in_front(queue: list[Arrival]) -> list[Arrival]:
    """Take out what goes without order, and is not behind anything of its publisher."""
    found = []
    publishers = set()
    for arrival in list(queue):
        if arrival.position is None and arrival.publisher not in publishers:
            queue.remove(arrival)
            found.append(arrival)
        else:
            publishers.add(arrival.publisher)
    return found
