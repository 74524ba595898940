"""Every run of a small system: not many schedules, but all of them.

First everybody joins, advertises and subscribes. Then the search begins: in each state, every link
may deliver its next message and every application may make its next call, and each of these is
tried. It goes breadth first, so a failure comes with a shortest run that leads to it.

*States.* A state of the system is the states of its nodes (`broker/sim/automata.py`). What is on
the links needs no mention: it is what its sender has sent and its receiver has not received. A
state that was reached before is not entered again; two interleavings in which every node saw the
same are one.

*Steps that cannot matter.* If only one thing can happen next to a node, now and later, then it does
not matter when: nobody else can touch that node before, and what it sends only goes to the end of a
link. Such a step is taken at once and alone. This holds for a subscriber with no calls left, which
only hears from its broker, and for a publisher, which hears nothing. No end of a run is lost.

*Time* stands still in the search, so that no timer fires. Timers tell progress, look for the dead
and dial again; no decision on order asks for any of it. When nothing is on its way any more, time
passes, in order to see that everything becomes stable then.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from broker.client_core import ClientCore
from broker.core import BrokerCore
from broker.effects import Effect
from broker.sim.automata import BIRTH, Automaton, Core, Happening, Mail, timer
from broker.sim.world import SIMULATED_LIMITS
from faulttol.guarantees import check, disagreements
from faulttol.history import PublicationId
from routing.conflicts import FAST
from routing.ids import NodeId, SubscriptionId
from routing.values import Value

SET_UP_AT: Final = 0.0
EXPLORED_AT: Final = 1.0
"""The time of the whole search: later than the set-up, and before the first heartbeat."""
AFTERWARDS: Final = tuple(EXPLORED_AT + 0.1 * turn for turn in range(1, 13))
"""Then progress is told, in each turn over one hop: enough for the way there and back."""


# The system


@attrs.frozen
class Call:
    """What an application asks of its client."""

    text: str
    make: Callable[[ClientCore, float], object]
    is_answered: bool = True
    """Whether the broker answers it."""
    draws: bool = False
    """Whether publications come on account of it."""


def publish(**content: Value) -> Call:
    """Publish this content."""
    return Call(
        f"publishes {content}", lambda core, now: core.publish(now, content), is_answered=False
    )


def advertise(filter_text: str) -> Call:
    """Advertise what this filter matches."""
    return Call(f"advertises {filter_text}", lambda core, now: core.advertise(now, filter_text))


def subscribe(filter_text: str, *, ordered: bool = True) -> Call:
    """Subscribe to what this filter matches."""
    return Call(
        f"subscribes to {filter_text}" if ordered else f"subscribes, unordered, to {filter_text}",
        lambda core, now: core.subscribe(now, filter_text, ordered=ordered),
        draws=True,
    )


def unsubscribe(subscription: str) -> Call:
    """Give up a subscription, by its name; the first that a client makes is its name and `/2`."""
    return Call(
        f"unsubscribes {subscription}",
        lambda core, now: core.unsubscribe(now, SubscriptionId(subscription)),
    )


@attrs.frozen
class Client:
    """A client at a broker."""

    name: str
    at: str
    before: Sequence[Call] = ()
    """Made in the set-up, each when the one before has been answered."""
    calls: Sequence[Call] = ()
    """Made in the search, in this order, at any moment."""

    @property
    def hears(self) -> bool:
        """Whether anything comes to it in the search."""
        return any(call.draws for call in self.before) or any(
            call.is_answered for call in self.calls
        )


@attrs.frozen
class System:
    """A tree of brokers, each with the one at which it joins, the root first; and its clients."""

    brokers: Mapping[str, str | None]
    clients: Sequence[Client]


# What is found


@attrs.frozen
class Failure:
    """Something that must not be, and a shortest run that leads to it."""

    text: str
    transcript: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((self.text, *(f"  {line}" for line in self.transcript)))


@attrs.frozen(kw_only=True)
class Exploration:
    """What there was to be seen."""

    ordering: str
    states: int
    steps: int
    endings: int
    """States in which nothing is left to happen."""
    runs: int
    """Ways from the beginning to an end, or to a failure."""
    failing: int
    """States in which a run was found to have failed; it is not followed any further."""
    failures: tuple[Failure, ...]
    """Each that differs in its words, with a shortest run."""

    @property
    def is_clean(self) -> bool:
        """Whether no run fails."""
        return not self.failing


# The search

_States = tuple[int, ...]
_Queues = tuple[tuple[Happening, ...], ...]


@attrs.define
class _Visit:
    """A state of the system on the rim of what is known."""

    queues: _Queues
    ways: int
    """In how many ways the search comes here."""


class _Explorer:
    """The automata of all nodes, and the queues between them.

    A queue holds what will happen to one node in this order: the messages of one direction of a
    link, or the calls of an application.
    """

    def __init__(self, system: System, ordering: str, detection: str) -> None:
        self._system = system
        self._ordering = ordering
        self._detection = detection
        self._mail = Mail()
        self._automata: list[Automaton] = []
        self._places: dict[NodeId, int] = {}
        self._receivers: list[int] = []
        """To whom each queue leads."""
        self._queue_from: dict[tuple[NodeId, NodeId], int] = {}
        self._verdicts: dict[_States, list[str]] = {}
        self._states: _States = ()
        self._queues: _Queues = ()
        self._set_up()
        self._listeners = [self._places[NodeId(c.name)] for c in system.clients if c.hears]
        self._mute = {self._places[NodeId(c.name)] for c in system.clients if not c.hears}
        self._calls_of = {
            self._places[NodeId(client.name)]: self._add_calls(client) for client in system.clients
        }

    # --- set-up -----------------------------------------------------------------------------

    def _set_up(self) -> None:
        for name, join in self._system.brokers.items():
            self._add(NodeId(name), join, self._broker(name, join))
        for client in self._system.clients:
            self._add(NodeId(client.name), client.at, self._client(client))
        for client in self._system.clients:
            for call in client.before:
                self._happen(_called(client, call))

    def _broker(self, name: str, join: str | None) -> Callable[[], Core]:
        def bear() -> Core:
            core = BrokerCore(
                NodeId(name),
                1,
                address=name,
                join=join,
                ordering=self._ordering,
                detection=self._detection,
                limits=SIMULATED_LIMITS,
            )
            core.start(SET_UP_AT)
            return core

        return bear

    def _client(self, client: Client) -> Callable[[], Core]:
        def bear() -> Core:
            core = ClientCore(
                NodeId(client.name),
                1,
                brokers=(client.at,),
                limits=SIMULATED_LIMITS,
                recording=True,
            )
            core.start(SET_UP_AT)
            core.take_effects()
            return core

        return bear

    def _add(self, name: NodeId, join: str | None, bear: Callable[[], Core]) -> None:
        self._places[name] = len(self._automata)
        self._automata.append(Automaton(name, bear, self._mail))
        self._states += (BIRTH,)
        if join is None:
            return
        for sender, receiver in ((name, NodeId(join)), (NodeId(join), name)):
            self._queue_from[sender, receiver] = self._add_queue(receiver, ())
        for happening in self._mail.connect(name, NodeId(join)):
            self._happen(happening)

    def _add_calls(self, client: Client) -> int:
        calls = tuple(_called(client, call) for call in client.calls)
        return self._add_queue(NodeId(client.name), calls)

    def _add_queue(self, receiver: NodeId, happenings: tuple[Happening, ...]) -> int:
        self._receivers.append(self._places[receiver])
        self._queues += (happenings,)
        return len(self._queues) - 1

    def _happen(self, happening: Happening) -> None:
        """Let something happen in the set-up, and all that follows from it."""
        states, queues = self._told(self._states, self._queues, happening, SET_UP_AT)
        self._states, self._queues = self._settled(states, queues, SET_UP_AT)

    # --- steps ------------------------------------------------------------------------------

    def _told(
        self, states: _States, queues: _Queues, happening: Happening, now: float
    ) -> tuple[_States, _Queues]:
        """The state after something has happened to one node."""
        place = self._places[happening.node]
        outcome = self._automata[place].after(states[place], happening, now)
        if outcome.sent:
            longer = list(queues)
            for arrival in outcome.sent:
                queue = self._queue_from[happening.node, arrival.node]
                longer[queue] += (arrival,)
            queues = tuple(longer)
        return (*states[:place], outcome.state, *states[place + 1 :]), queues

    def _step(
        self, states: _States, queues: _Queues, queue: int, now: float
    ) -> tuple[_States, _Queues]:
        """The state after the first in this queue has happened."""
        shorter = (*queues[:queue], queues[queue][1:], *queues[queue + 1 :])
        return self._told(states, shorter, queues[queue][0], now)

    def _settled(self, states: _States, queues: _Queues, now: float) -> tuple[_States, _Queues]:
        """The state after all that is on its way has happened, in some order."""
        while True:
            busy = next((number for number, queue in enumerate(queues) if queue), None)
            if busy is None:
                return states, queues
            states, queues = self._step(states, queues, busy, now)

    def _choices(self, queues: _Queues) -> list[int]:
        """The queues whose first may happen next; just one, if that one cannot matter."""
        choices = [number for number, queue in enumerate(queues) if queue]
        for number in choices:
            place = self._receivers[number]
            calls = self._calls_of.get(place)
            if place in self._mute:
                assert number == calls, f"{queues[number][0].text}, who should not hear anything"
                return [number]
            if calls is not None and not queues[calls]:
                return [number]
        return choices

    # --- the search -------------------------------------------------------------------------

    def explore(self) -> Exploration:
        """Visit every state, layer by layer: a layer is what takes the same number of steps."""
        came_from: dict[_States, tuple[_States, Happening] | None] = {self._states: None}
        layer = {self._states: _Visit(self._queues, 1)}
        steps = endings = runs = failing = 0
        failures: dict[str, Failure] = {}
        while layer:
            following: dict[_States, _Visit] = {}
            for states, visit in layer.items():
                choices = self._choices(visit.queues)
                faults = self._disagreements(states) if choices else self._judge(states)
                for text in faults:
                    if text not in failures:
                        failures[text] = Failure(text, self._transcript(states, came_from))
                if faults or not choices:
                    endings += not choices
                    failing += bool(faults)
                    runs += visit.ways
                    continue
                for queue in choices:
                    steps += 1
                    after, queues = self._step(states, visit.queues, queue, EXPLORED_AT)
                    known = following.get(after)
                    if known is None:
                        came_from[after] = states, visit.queues[queue][0]
                        following[after] = _Visit(queues, visit.ways)
                    else:
                        known.ways += visit.ways
            layer = following
        return Exploration(
            ordering=self._ordering,
            states=len(came_from),
            steps=steps,
            endings=endings,
            runs=runs,
            failing=failing,
            failures=tuple(failures.values()),
        )

    # --- judging ----------------------------------------------------------------------------

    def _disagreements(self, states: _States) -> list[str]:
        """What two subscribers have delivered in two orders so far."""
        heard = tuple(states[place] for place in self._listeners)
        if heard not in self._verdicts:
            orders: dict[str, tuple[PublicationId, ...]] = {
                self._automata[place].name: self._automata[place].delivered(state)
                for place, state in zip(self._listeners, heard, strict=True)
            }
            self._verdicts[heard] = [
                f"{one} delivers {_name(p)} before {_name(q)}, {other} the other way round"
                for one, other, p, q in disagreements(orders)
            ]
        return self._verdicts[heard]

    def _judge(self, states: _States) -> list[str]:
        """What is wrong with a run that has come to its end: every guarantee, and leftovers."""
        disagreeing = self._disagreements(states)
        if disagreeing:
            return disagreeing
        queues: _Queues = ((),) * len(self._queues)
        for now in AFTERWARDS:
            for automaton in self._automata:
                states, queues = self._told(states, queues, timer(automaton.name), now)
            states, queues = self._settled(states, queues, now)
        lives = list(zip(self._automata, states, strict=True))
        records = [record for node, state in lives for record in node.records(state, "explored")]
        report = check(records, ordering="pairwise")
        leftovers = [text for node, state in lives for text in node.unfinished(state)]
        return [f"{v.guarantee}: {v.witness}" for v in report.violations] + leftovers

    def _transcript(
        self, states: _States, came_from: Mapping[_States, tuple[_States, Happening] | None]
    ) -> tuple[str, ...]:
        """The run that leads to a state: what happens, and what is delivered then."""
        lines: list[str] = []
        origin = came_from[states]
        while origin is not None:
            earlier, happening = origin
            place = self._places[happening.node]
            node = self._automata[place]
            before = node.delivered(earlier[place])
            news = node.delivered(states[place])[len(before) :]
            lines.extend(f"{node.name} delivers {_name(publication)}" for publication in news)
            lines.append(happening.text)
            states, origin = earlier, came_from[earlier]
        return tuple(reversed(lines))


def explore(system: System, ordering: str, *, detection: str = FAST) -> Exploration:
    """Go through every run of a small system."""
    return _Explorer(system, ordering, detection).explore()


def _called(client: Client, call: Call) -> Happening:
    def befall(core: Core, now: float) -> list[Effect]:
        assert isinstance(core, ClientCore)
        call.make(core, now)
        return core.take_effects()

    return Happening(NodeId(client.name), f"{client.name} {call.text}", befall)


def _name(publication: PublicationId) -> str:
    publisher, _, seq = publication
    return f"{publisher}:{seq}"
