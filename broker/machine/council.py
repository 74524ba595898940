"""Managers of topics, their coordinator, and the machines of subscribers, at one broker.

They are machines of `routing/topics`. Here they have places, hear what is said to them, and what
they want said goes from broker to broker (`errands.py`). What they want handed to clients, and the
stamps that they have answered with, is here until the end of the step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from plait.broker.errors import RemoteProtocolError
from plait.broker.machine.errands import Errands, Memory
from plait.broker.machine.neighbours import Below, Neighbour, Neighbours
from plait.broker.machine.steps import Steps
from plait.broker.messages import Errand, To
from plait.faulttol.steplog import Key
from plait.routing.ids import NodeId
from plait.routing.topics import protocol
from plait.routing.topics.buffering import BufferingManager, BufferingSubscriber
from plait.routing.topics.popularity import COUNT, FIXED, RATE
from plait.routing.topics.portable import (
    UnreadableError,
    restore,
    state_of,
    structure_of,
    text_of,
    value_of,
    whole_text_of,
)
from plait.routing.topics.protocol import (
    COORDINATOR,
    Announce,
    Appoint,
    Create,
    Effect,
    Fill,
    FillSubscription,
    Label,
    ManagerOf,
    Notify,
    Send,
    Stamp,
    Subscribed,
    Topic,
)
from plait.routing.topics.structure import Structure
from plait.routing.topics.tagging import AS_PUBLISHED, TaggingManager, TaggingSubscriber
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
    WantAbove,
)

MANAGER: Final = "manager "
SUBSCRIBER: Final = "subscriber "
WAY: Final = "way "
"""What a name in the memory begins with, and what of."""
THE_COORDINATOR: Final = "coordinator"
STRUCTURE: Final = "structure"
NO_TOPIC: Final = Topic("")

LATE: Final = "late "

Managing = Manager | TaggingManager | BufferingManager
Subscribing = Subscriber | TaggingSubscriber | BufferingSubscriber
Role = Managing | Subscribing | TotalCoordinator


class School:
    """As what machines begin."""

    adapting = FIXED

    @classmethod
    def manager(cls, topic: Topic, structure: Structure) -> Managing:
        """The manager of a topic."""
        return Manager(topic, structure, cls.adapting)

    @staticmethod
    def subscriber(life: NodeId, structure: Structure) -> Subscribing:
        """One life of a client."""
        return Subscriber(life, (), structure.epoch, structure.base)


class SchoolByCount(School):
    """Topics change places by how much is published on them, as published."""

    adapting = COUNT


class SchoolByRate(School):
    """And by how much of late."""

    adapting = RATE


class SchoolOf2011(School):
    """As published in the technical report; topics are in the order of their names."""

    @classmethod
    def manager(cls, topic: Topic, structure: Structure) -> Managing:
        """The manager of a topic."""
        del structure
        return TaggingManager(topic, (topic,), {}, AS_PUBLISHED)

    @staticmethod
    def subscriber(life: NodeId, structure: Structure) -> Subscribing:
        """One life of a client."""
        del structure
        return TaggingSubscriber(life, (), (), AS_PUBLISHED)


class SchoolOf2015(School):
    """As published in the article."""

    @classmethod
    def manager(cls, topic: Topic, structure: Structure) -> Managing:
        """The manager of a topic."""
        del structure
        return BufferingManager(topic, (topic,), {})

    @staticmethod
    def subscriber(life: NodeId, structure: Structure) -> Subscribing:
        """One life of a client."""
        del structure
        return BufferingSubscriber(life, (), ())


class Council:
    """All of them, at one broker."""

    def __init__(
        self,
        node: NodeId,
        neighbours: Neighbours,
        steps: Steps,
        *,
        school: type[School],
        has_topic: Callable[[NodeId, Topic], bool],
    ) -> None:
        """Begin with none, but for the coordinator at the root.

        A client here still has a topic or not.
        """
        self.node = node
        self.memory = Memory()
        self._errands = Errands(node, neighbours, steps, self.memory, self._carry_out)
        self._school = school
        self._has_topic = has_topic
        self._structure = Structure(0, (), set(), {})
        self._machines: dict[str, Role] = {}
        """By their names in the memory."""
        if neighbours.parent is None:
            self._machines[THE_COORDINATOR] = self._new(THE_COORDINATOR)
        self._stirred: dict[str, None] = {}
        """The machines that may have come to know something in this step."""
        self._ways: dict[str, tuple[NodeId, ...]] = {}
        """To those to whom a machine here may have something to say later."""
        self.answers: list[protocol.Stamped] = []
        """The stamps that have come in this step."""
        self.ready: dict[NodeId, list[Key]] = {}
        """What each client may have now whose machine has heard something."""

    def _new(self, name: str) -> Role:
        if name == THE_COORDINATOR:
            return TotalCoordinator(self._structure, {}, sharers=1)
        if name.startswith(MANAGER):
            return self._school.manager(Topic(name.removeprefix(MANAGER)), self._structure)
        return self._school.subscriber(NodeId(""), self._structure)

    @property
    def topics_managed(self) -> int:
        """Of how many topics the manager is here."""
        return sum(name.startswith(MANAGER) for name in self._machines)

    @property
    def epoch(self) -> int:
        """How often the order of topics has changed, as far as is known here."""
        return self._structure.epoch

    @property
    def order(self) -> tuple[Topic, ...]:
        """The order of topics in this epoch, the highest first."""
        return self._structure.order

    # --- machines ---------------------------------------------------------------------------

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
                case Send(to=ManagerOf(topic), message=FillSubscription() as message):
                    asker = message.subscriber
                    self._say(To.MANAGER, message, topic, asker, self._way_to(asker, errand))
                case Send(to=ManagerOf(topic), message=message):
                    self._say(To.MANAGER, message, topic)
                case Announce():
                    self._say(To.EVERYBODY, effect)
                case Send(to=to, message=message) if to == COORDINATOR:
                    self._say(To.COORDINATOR, message, asker=getattr(message, "subscriber", ""))
                case Send(to=str() as to, message=message):
                    self._say(To.ASKER, message, asker=to, way=self._way_to(to, errand))
                case Appoint(topic):
                    self._errands.place(topic)

    def _perform_for(self, client: NodeId, effects: Sequence[Effect]) -> None:
        """Do what the machine of a client here wants done."""
        ready = self.ready.setdefault(client, [])
        for effect in effects:
            match effect:
                case Notify(label, in_order):
                    ready.append(label)  # type: ignore[arg-type]
                    if not in_order:
                        self.memory.put(late_name(client, label), "1")  # type: ignore[arg-type]
                case Subscribed(topic) if not self._has_topic(client, topic):
                    subscriber = self._machine(SUBSCRIBER + client)
                    self._perform_for(client, subscriber.unsubscribe(topic))
                case Send(to=ManagerOf(topic), message=Read() as message):
                    self._say(To.MANAGER, message, topic, message.subscriber)
                case Send() | Announce():
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
                self._learn_topics(self._machine(name), _topics_in(message))
                self._perform(self._machine(name).take(message), errand)
            case To.PLACE:
                name = MANAGER + errand.topic
                self._machines.setdefault(name, self._new(name))
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
            self.memory.put(WAY + asker, "")
        elif isinstance(message, Ask | Create | Fill) and self._ways.get(asker) != errand.way:
            self._ways[asker] = errand.way
            self.memory.put(WAY + asker, text_of(errand.way))

    def _take_answer(self, errand: Errand, message: object) -> None:
        if isinstance(message, protocol.Stamped):
            self.answers.append(message)
            return
        client = NodeId(errand.asker.rpartition("/")[0])
        subscriber = self._machines.get(SUBSCRIBER + client)
        if isinstance(subscriber, Subscribing) and subscriber.name == errand.asker:
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
                if isinstance(subscriber, Subscriber):
                    effects = subscriber.notify(None, message.topic, message.stamp)
                    self._perform_for(client, effects)
        elif isinstance(message, Announce):
            for client, subscriber in self._subscribers():
                if isinstance(subscriber, BufferingSubscriber):
                    effects = subscriber.notify(None, message.topic, message.stamp)
                    self._perform_for(client, effects)

    @staticmethod
    def _learn_topics(machine: Role, topics: Iterable[Topic]) -> None:
        """Where topics are in the order of their names, a machine has to know which there are."""
        if not isinstance(machine, Manager | Subscriber | TotalCoordinator):
            machine.know(topics)

    def _begin_epoch(self, structure: Structure) -> None:
        if structure.epoch <= self._structure.epoch:
            return
        self._structure = structure
        self.memory.put(STRUCTURE, whole_text_of(structure))
        for name, machine in list(self._machines.items()):
            if isinstance(machine, Manager):
                self._perform(self._machine(name).take(Start(structure=structure)))
        base = Base(epoch=structure.epoch, base=structure.base)
        for client, subscriber in self._subscribers():
            if isinstance(subscriber, Subscriber):
                self._perform_for(client, subscriber.take(base))

    def _subscribers(self) -> list[tuple[NodeId, Subscribing]]:
        """The machines of all clients here, which are about to know something."""
        found = [(n, m) for n, m in self._machines.items() if isinstance(m, Subscribing)]
        self._stirred |= {name: None for name, _ in found}
        return [(NodeId(name.removeprefix(SUBSCRIBER)), machine) for name, machine in found]

    # --- what is wanted of them here ------------------------------------------------------------

    def take(self, source: Neighbour, errand: Errand) -> None:
        """Take an errand that comes from a neighbour."""
        try:
            self._errands.take(source, errand)
        except UnreadableError as error:
            raise RemoteProtocolError(f"errand of {source.node}: {error}") from None

    def introduce(self, newcomer: Below) -> None:
        """Tell a broker that has joined which epoch it is."""
        if self._structure.epoch:
            text = whole_text_of(self._structure).encode()
            errand = Errand(to=To.EPOCH, topic=NO_TOPIC, asker="", way=(), said=text)
            self._errands.introduce(newcomer, errand)

    def ask_for_stamp(self, key: Key, topic: Topic) -> None:
        """Ask the manager of its topic for the stamp of a publication."""
        self._say(To.MANAGER, Create(label=key, publisher=self.node), topic, self.node)

    def call_void(self, answer: protocol.Stamped) -> None:
        """Tell everybody that nobody has what this stamp was for."""
        self._say(To.EVERYBODY, answer)

    def rank(self, topic: Topic, above: Topic) -> None:
        """At the root: have a topic rank above another one."""
        self._say(To.COORDINATOR, WantAbove(topic=topic, other=above))

    # --- subscribers --------------------------------------------------------------------------

    def subscriber(self, client: NodeId) -> Subscribing | None:
        """The machine of a client here, if it has ever subscribed."""
        subscriber = self._machines.get(SUBSCRIBER + client)
        return subscriber if isinstance(subscriber, Subscribing) else None

    def held_for(self, client: NodeId) -> Sequence[Label]:
        """What its machine keeps back."""
        subscriber = self.subscriber(client)
        held: Sequence[Label] = getattr(subscriber, "held", ())
        return held

    def lacks(self, client: NodeId, topic: Topic, stamp: Stamp) -> str | None:
        """For what the machine of a client waits before it hands on something with this stamp."""
        subscriber = self.subscriber(client)
        if not isinstance(subscriber, Subscriber):
            return None
        if topic not in subscriber.clock:
            return f"{client} has begun with topic {topic!r}"
        lacking = subscriber.lacking(topic, stamp)
        if lacking is None:
            return None
        if not lacking:
            return f"epoch {stamp.epoch} has begun here"
        behind = (f"number {number} of topic {x!r}" for x, number in sorted(lacking.items()))
        return f"{client} has {' and '.join(behind)}"

    def subscribe(self, client: NodeId, life: NodeId, topic: Topic) -> None:
        """A client here asks for a topic."""
        name = SUBSCRIBER + client
        if name not in self._machines:
            self._machines[name] = self._school.subscriber(life, self._structure)
        subscriber = self._machine(name)
        self._learn_topics(subscriber, [topic])
        self._perform_for(client, subscriber.subscribe(topic))

    def unsubscribe(self, client: NodeId, topic: Topic) -> None:
        """It has left it."""
        if self.subscriber(client) is not None:
            subscriber = self._machine(SUBSCRIBER + client)
            self._perform_for(client, subscriber.unsubscribe(topic))

    def offer(self, client: NodeId, key: Key, topic: Topic, stamp: Stamp) -> None:
        """A publication is here that a client has asked for."""
        subscriber = self._machine(SUBSCRIBER + client)
        self._perform_for(client, subscriber.notify(key, topic, stamp))

    def let_go_of(self, client: NodeId) -> None:
        """A subscriber is gone, whatever it had."""
        self.ready.pop(client, None)
        subscriber = self._machines.pop(SUBSCRIBER + client, None)
        if isinstance(subscriber, Subscribing):
            self._stirred[SUBSCRIBER + client] = None
            self._perform(subscriber.leave())

    def let_go_of_others(self, present: Iterable[NodeId]) -> None:
        """After a rebuild: those are gone who have failed together with this broker."""
        here = {SUBSCRIBER + node for node in present}
        for name in [n for n in self._machines if n.startswith(SUBSCRIBER) and n not in here]:
            self.let_go_of(NodeId(name.removeprefix(SUBSCRIBER)))

    # --- steps --------------------------------------------------------------------------------

    def end_step(self, *, is_first: bool) -> tuple[tuple[str, str], ...]:
        """Send what is to be sent; returns what has changed of what is known.

        A step is taken again from the log, but for when it is taken first.
        """
        if is_first:
            self._errands.forget_what_is_over()
        self._errands.end_step()
        for name in self._stirred:
            machine = self._machines.get(name)
            self.memory.put(name, "" if machine is None else state_of(machine))
        self._stirred.clear()
        return self.memory.take_changes()

    def begin_life(self, memory: Mapping[str, str]) -> None:
        """Know what was known when a log begins."""
        self.memory.learn(memory.items())
        self._errands.begin_life()
        self._know(memory)

    def end_again(self, changes: Mapping[str, str]) -> None:
        """Know what was known after a step."""
        self.memory.learn(changes.items())
        self._know(changes)

    def say_again(self, changes: Mapping[str, str]) -> None:
        """And say what was said in it."""
        self._errands.end_again(changes)
        self.memory.take_changes()

    def _know(self, changes: Mapping[str, str]) -> None:
        """Let machines be as a log says."""
        if STRUCTURE in changes:
            self._structure = structure_of(changes[STRUCTURE])
        structures = {self._structure.epoch: self._structure}
        for name, text in changes.items():
            if name.startswith((MANAGER, SUBSCRIBER, THE_COORDINATOR)):
                if text:
                    restore(self._machines.setdefault(name, self._new(name)), text, structures)
                else:
                    self._machines.pop(name, None)
            elif name.startswith(WAY):
                self._ways.pop(name.removeprefix(WAY), None)
                if text:
                    self._ways[name.removeprefix(WAY)] = value_of(text, structures)

    def is_late(self, client: NodeId, key: Key) -> bool:
        """Whether a client is told that it gets a publication out of order."""
        return late_name(client, key) in self.memory.known

    def forget_late(self, key: Key) -> None:
        """Everybody has it."""
        end = late_name(NodeId(""), key).removeprefix(LATE)
        for name in [n for n in self.memory.known if n.startswith(LATE) and n.endswith(end)]:
            self.memory.put(name, "")

    def state(self) -> Mapping[str, Mapping[str, str]]:
        """What is known, to be compared."""
        known = {n: text for n, text in self.memory.known.items() if not n.startswith("said ")}
        machines = {name: state_of(machine) for name, machine in self._machines.items()}
        return {"memory": known, "machines": machines}


def _topics_in(message: object) -> list[Topic]:
    """The topics of which a manager hears."""
    stamp = getattr(message, "stamp", None)
    return [*getattr(message, "topics", ()), *([] if stamp is None else stamp.entries)]


def late_name(client: NodeId, key: Key) -> str:
    """What it is called in the memory that a client gets a publication out of order."""
    publisher, incarnation, seq = key
    return f"{LATE}{client} {publisher} {incarnation} {seq}"
