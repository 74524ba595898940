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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from plait.broker.codec import decode_content
from plait.broker.errors import RemoteProtocolError
from plait.broker.machine.errands import Errands, Memory
from plait.broker.machine.interests import life_of
from plait.broker.machine.neighbours import UP, Arrival, Below, Neighbour, Route, is_client
from plait.broker.machine.publications import Delayed
from plait.broker.machine.queues import QueuedPublications
from plait.broker.machine.topics import objection_to, stamped, topic_of
from plait.broker.messages import Confirm, Errand, Flag, Message, Publish, Stamped, To
from plait.faulttol.steplog import Entry, Key, StepLog
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics import protocol
from plait.routing.topics.portable import (
    UnreadableError,
    restore,
    state_of,
    structure_of,
    text_of,
    value_of,
    whole_text_of,
)
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import (
    COORDINATOR,
    Appoint,
    Create,
    Effect,
    Fill,
    ManagerOf,
    Notify,
    Send,
    Stamp,
    Subscribed,
    Topic,
)
from plait.routing.topics.structure import Structure
from plait.routing.topics.table import TopicTable
from plait.routing.topics.total import (
    Ask,
    Base,
    Left,
    Manager,
    Prepare,
    Read,
    Start,
    Subscriber,
    TotalCoordinator,
)

MANAGER: Final = "manager "
SUBSCRIBER: Final = "subscriber "
WAY: Final = "way "
ASKED: Final = "asked "
"""What a name in the memory begins with, and what of."""
THE_COORDINATOR: Final = "coordinator"
STRUCTURE: Final = "structure"
NO_TOPIC: Final = Topic("")

Role = Manager | Subscriber | TotalCoordinator


class HashedTopicPublications(QueuedPublications):
    """The publications under way at a broker that may manage some topics."""

    is_told_everywhere: ClassVar = True

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        table = self.interests.observer
        assert isinstance(table, TopicTable)
        self._table = table
        table.when_subscribed = self._on_subscribed
        table.when_left = self._on_left
        self._memory = Memory()
        self._errands = Errands(
            self.interests.node, self.neighbours, self._steps, self._memory, self._carry_out
        )
        self._structure = Structure(0, (), set(), {})
        self._machines: dict[str, Role] = {}
        """Managers, subscribers and the coordinator, by their names in the memory."""
        if self.neighbours.parent is None:
            self._machines[THE_COORDINATOR] = TotalCoordinator(self._structure, {}, sharers=1)
        self._stirred: dict[str, None] = {}
        """The machines that may have come to know something in this step."""
        self._ways: dict[str, tuple[NodeId, ...]] = {}
        """To those to whom a machine here may have something to say later."""
        self._unsent: dict[NodeId, deque[Arrival]] = {}
        """What was published here and has not been sent on, of each publisher in its order."""
        self._asked: dict[NodeId, Key] = {}
        """Of which of them a stamp was asked for."""
        self._answers: list[protocol.Stamped] = []
        """The stamps that have come in this step."""
        self._ready: dict[NodeId, list[Key]] = {}
        """What each client may have now."""
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

    # --- machines ---------------------------------------------------------------------------

    @property
    def topics_managed(self) -> int:
        """Of how many topics the manager is here."""
        return sum(isinstance(machine, Manager) for machine in self._machines.values())

    def _machine(self, name: str) -> Any:
        self._stirred[name] = None
        return self._machines[name]

    def _perform(self, effects: Iterable[Effect], errand: Errand | None = None) -> None:
        """Do what a machine wants done, which has taken this errand."""
        is_told: set[type] = set()
        for effect in effects:
            match effect:
                case Send(message=Prepare() as message):
                    if Prepare not in is_told:
                        is_told.add(Prepare)
                        self._say(To.EVERYBODY, message)
                case Send(message=Start(structure=structure)):
                    if Start not in is_told:
                        is_told.add(Start)
                        self._go(To.EPOCH, whole_text_of(structure))
                case Send(message=Base()):
                    pass  # they know it from the structure
                case Send(to=ManagerOf(topic), message=Fill() as message):
                    asker = message.publisher
                    self._say(To.MANAGER, message, topic, asker, self._way_to(asker, errand))
                case Send(to=ManagerOf(topic), message=message):
                    self._say(To.MANAGER, message, topic)
                case Send(to=to, message=message) if to == COORDINATOR:
                    self._say(To.COORDINATOR, message, asker=getattr(message, "subscriber", ""))
                case Send(to=str() as to, message=message):
                    self._say(To.ASKER, message, asker=to, way=self._way_to(to, errand))
                case Appoint(topic):
                    self._errands.place(topic)

    def _perform_for(self, client: NodeId, effects: Sequence[Effect]) -> None:
        """Do what the machine of a client here wants done."""
        ready = self._ready.setdefault(client, [])
        for effect in effects:
            match effect:
                case Notify(label):
                    ready.append(label)  # type: ignore[arg-type]
                case Subscribed(topic) if not self._table.has(client, topic):
                    subscriber = self._machine(SUBSCRIBER + client)
                    self._perform_for(client, subscriber.unsubscribe(topic))
                case Send(to=ManagerOf(topic), message=Read() as message):
                    self._say(To.MANAGER, message, topic, message.subscriber)
                case Send():
                    self._perform([effect])

    def _way_to(self, asker: str, errand: Errand | None) -> tuple[NodeId, ...]:
        if errand is not None and errand.asker == asker:
            return errand.way
        return self._ways.get(asker, ())

    def _say(
        self,
        to: To,
        message: object,
        topic: Topic = NO_TOPIC,
        asker: str = "",
        way: tuple[NodeId, ...] = (),
    ) -> None:
        self._go(to, text_of(message), topic, asker, way)

    def _go(
        self,
        to: To,
        text: str,
        topic: Topic = NO_TOPIC,
        asker: str = "",
        way: tuple[NodeId, ...] = (),
    ) -> None:
        self._errands.go(Errand(to=to, topic=topic, asker=asker, way=way, said=text.encode()))

    def _carry_out(self, errand: Errand) -> None:
        """Let whoever it is for take an errand."""
        text = errand.said.decode()
        if errand.to is To.EPOCH:
            self._begin_epoch(structure_of(text))
            return
        message = value_of(text, {self._structure.epoch: self._structure})
        match errand.to:
            case To.COORDINATOR:
                self._note_way(errand, message)
                self._perform(self._machine(THE_COORDINATOR).take(message), errand)
            case To.MANAGER:
                self._note_way(errand, message)
                name = MANAGER + errand.topic
                if name not in self._machines:
                    raise RemoteProtocolError(f"{errand.topic!r} is not managed here")
                self._perform(self._machine(name).take(message), errand)
            case To.PLACE:
                name = MANAGER + errand.topic
                self._machines.setdefault(name, Manager(errand.topic, self._structure))
                self._stirred[name] = None
            case To.ASKER:
                self._take_answer(errand, message)
            case _:
                self._hear(message)

    def _note_way(self, errand: Errand, message: object) -> None:
        """Remember the way to somebody to whom something may have to be said later."""
        asker = errand.asker
        if isinstance(message, Left) and message.is_gone:
            self._ways.pop(asker, None)
            self._memory.put(WAY + asker, "")
        elif isinstance(message, Ask | Create | Fill) and self._ways.get(asker) != errand.way:
            self._ways[asker] = errand.way
            self._memory.put(WAY + asker, text_of(errand.way))

    def _take_answer(self, errand: Errand, message: object) -> None:
        if isinstance(message, protocol.Stamped):
            self._answers.append(message)
            return
        client = NodeId(errand.asker.rpartition("/")[0])
        subscriber = self._machines.get(SUBSCRIBER + client)
        if isinstance(subscriber, Subscriber) and subscriber.name == errand.asker:
            self._stirred[SUBSCRIBER + client] = None
            self._perform_for(client, subscriber.take(message))

    def _hear(self, message: object) -> None:
        """Something is said to everybody."""
        if isinstance(message, Prepare):
            for name, machine in list(self._machines.items()):
                if isinstance(machine, Manager):
                    self._perform(self._machine(name).take(message))
        elif isinstance(message, protocol.Stamped):  # of something that nobody has
            for client, subscriber in self._subscribers():
                effects = subscriber.notify(None, message.topic, message.stamp)
                self._perform_for(client, effects)

    def _begin_epoch(self, structure: Structure) -> None:
        if structure.epoch <= self._structure.epoch:
            return
        self._structure = structure
        self._memory.put(STRUCTURE, whole_text_of(structure))
        for name, machine in list(self._machines.items()):
            if isinstance(machine, Manager):
                self._perform(self._machine(name).take(Start(structure=structure)))
        base = Base(epoch=structure.epoch, base=structure.base)
        for client, subscriber in self._subscribers():
            self._perform_for(client, subscriber.take(base))

    def _subscribers(self) -> list[tuple[NodeId, Subscriber]]:
        """The machines of all clients here, which are about to know something."""
        found = [(n, m) for n, m in self._machines.items() if isinstance(m, Subscriber)]
        self._stirred |= {name: None for name, _ in found}
        return [(NodeId(name.removeprefix(SUBSCRIBER)), machine) for name, machine in found]

    # --- what clients ask for -----------------------------------------------------------------

    def _on_subscribed(self, topic: Topic, entry: Subscription) -> None:
        client = self.neighbours.below.get(entry.hop)
        if self._again is not None or client is None or not is_client(client):
            return
        name = SUBSCRIBER + client.node
        if name not in self._machines:
            life = life_of(client.node, client.incarnation)
            structure = self._structure
            self._machines[name] = Subscriber(life, (), structure.epoch, structure.base)
        self._perform_for(client.node, self._machine(name).subscribe(topic))

    def _on_left(self, topic: Topic, entry: Subscription) -> None:
        client = self.neighbours.below.get(entry.hop)
        if self._again is not None or client is None or self._table.has(client.node, topic):
            return
        if SUBSCRIBER + client.node in self._machines:
            subscriber = self._machine(SUBSCRIBER + client.node)
            self._perform_for(client.node, subscriber.unsubscribe(topic))

    def _let_go_of(self, name: str) -> None:
        """A subscriber is gone, whatever it had."""
        subscriber = self._machines.pop(name)
        assert isinstance(subscriber, Subscriber)
        self._stirred[name] = None
        left = Left(subscriber=subscriber.name, topics=frozenset(), is_gone=True)
        self._say(To.COORDINATOR, left, asker=subscriber.name)

    def send_in_turn(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        """Confirm nothing to a client before it has all topics that it has asked for."""
        if isinstance(message, Confirm) and SUBSCRIBER + neighbour.node in self._machines:
            delayed = Delayed(set(), neighbour, message, about)
            self._confirms.setdefault(neighbour.node, []).append(delayed)
        else:
            super().send_in_turn(neighbour, message, about)

    def _confirm_what_is_done(self) -> None:
        for client in list(self._confirms):
            subscriber = self._machines.get(SUBSCRIBER + client)
            if isinstance(subscriber, Subscriber) and subscriber.is_pending:
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
        self._ready.pop(gone.node, None)
        if SUBSCRIBER + gone.node in self._machines:
            self._let_go_of(SUBSCRIBER + gone.node)

    def introduce(self, newcomer: Below) -> None:
        """Tell a broker that has joined which epoch it is."""
        if self._again is None and self._structure.epoch:
            text = whole_text_of(self._structure).encode()
            errand = Errand(to=To.EPOCH, topic=NO_TOPIC, asker="", way=(), said=text)
            self._errands.introduce(newcomer, errand)

    # --- on their way -----------------------------------------------------------------------

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in a stamp, or an errand."""
        if isinstance(notice, Stamped) and not is_client(source):
            key = notice.publisher, notice.incarnation, notice.seq
            self._announced[key] = notice.position
        elif isinstance(notice, Errand) and not is_client(source):
            if self._again is None:
                try:
                    self._errands.take(source, notice)
                except UnreadableError as error:
                    raise RemoteProtocolError(f"errand of {source.node}: {error}") from None
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
            self._memory.put(ASKED + publisher, text_of(arrival.key))
            here = self._errands.node
            self._say(To.MANAGER, Create(label=arrival.key, publisher=here), topic, here)

    def _take_stamp(self, answer: protocol.Stamped) -> None:
        """Send on what it is for, if that is here."""
        key: Any = answer.label
        unsent = self._unsent.get(key[0], ())
        if self._asked.get(key[0]) == key:
            del self._asked[key[0]]
            self._memory.put(ASKED + key[0], "")
        if unsent and unsent[0].key == key:
            self._written.append((key, answer.topic, answer.stamp))
            self._send_on(unsent[0], _position_of(answer.topic, answer.stamp))
        else:
            self._say(To.EVERYBODY, answer)

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
            self._steps.send(neighbour, stamped(arrival.key, arrival.position), key=arrival.key)
        super()._pass_on(neighbour, arrival)

    # --- before clients -----------------------------------------------------------------------

    def _offer(self, client: Below, arrival: Arrival) -> None:
        """Hold it before a client until the step ends, at least."""
        self._hold_before(client, arrival)
        if self._again is not None:
            return
        position = arrival.position
        if position is None:
            self._ready.setdefault(client.node, [])
        else:
            topic = topic_of(decode_content(arrival.publication.content), arrival.source)
            stamp = Stamp(entries={**position.behind, topic: position.number}, epoch=position.epoch)
            subscriber = self._machine(SUBSCRIBER + client.node)
            self._perform_for(client.node, subscriber.notify(arrival.key, topic, stamp))

    def _hand_over_what_is_ready(self) -> None:
        ready, self._ready = self._ready, {}
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
        subscriber = self._machines.get(SUBSCRIBER + client.node)
        held = subscriber.held if isinstance(subscriber, Subscriber) else ()
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

    # --- steps ------------------------------------------------------------------------------

    def _send_on_what_is_stamped(self) -> None:
        while True:
            for publisher in list(self._unsent):
                self._advance(publisher)
            if not self._answers:
                return
            answers, self._answers = self._answers, []
            for answer in answers:
                self._take_stamp(answer)

    def end_step(self) -> None:
        """Do what is to be done once in a step, and say in the log what is known."""
        if self._again is None:
            self._send_on_what_is_stamped()
            self._hand_over_what_is_ready()
            self._errands.forget_what_is_over()
        self._errands.end_step()
        self._confirm_what_is_done()
        for name in self._stirred:
            machine = self._machines.get(name)
            self._memory.put(name, "" if machine is None else state_of(machine))
        self._stirred.clear()
        self._steps.memory = self._memory.take_changes()
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
            self._say(To.EVERYBODY, answer)
        self._orphans.clear()
        here = {SUBSCRIBER + node for node in self.neighbours.below}
        for name in [n for n in self._machines if n.startswith(SUBSCRIBER) and n not in here]:
            self._let_go_of(name)

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_life(self, log: StepLog) -> None:
        """Begin where a log begins, with what was known by then."""
        self._again = {}
        self._memory.learn(log.memory_at_base().items())
        self._errands.begin_life()
        self._know(self._memory.known)

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
        self._memory.learn(entry.memory)
        self._know(changes)
        super().end_again()
        for client in list(self._queues):
            if client in self.neighbours.below:
                self._drop_what_is_of_no_use(self.neighbours.below[client])
        self._errands.end_again(changes)
        self._memory.take_changes()

    def _know(self, changes: Mapping[str, str]) -> None:
        """Let machines be as a log says."""
        if STRUCTURE in changes:
            self._structure = structure_of(changes[STRUCTURE])
        structures = {self._structure.epoch: self._structure}
        for name, text in changes.items():
            if name.startswith((MANAGER, SUBSCRIBER, THE_COORDINATOR)):
                if not text:
                    self._machines.pop(name, None)
                    continue
                machine = self._machines.setdefault(name, _new_machine(name, self._structure))
                restore(machine, text, structures)
            elif name.startswith(WAY):
                self._ways.pop(name.removeprefix(WAY), None)
                if text:
                    self._ways[name.removeprefix(WAY)] = value_of(text, structures)
            elif name.startswith(ASKED):
                publisher = NodeId(name.removeprefix(ASKED))
                self._asked.pop(publisher, None)
                if text:
                    self._asked[publisher] = value_of(text, structures)

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        known = {n: text for n, text in self._memory.known.items() if not n.startswith("said ")}
        machines = {name: state_of(machine) for name, machine in self._machines.items()}
        return {**super().state(), "memory": known, "machines": machines}


def _new_machine(name: str, structure: Structure) -> Role:
    """One that is about to know something else."""
    if name == THE_COORDINATOR:
        return TotalCoordinator(structure, {})
    if name.startswith(MANAGER):
        return Manager(Topic(name.removeprefix(MANAGER)), structure)
    return Subscriber(NodeId(""), ())


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
