"""Nodes as automata: what a node does next depends on what has happened to it, and on nothing else.

So a state of a node is named by a number that stands for its past, and whatever a state leads to is
computed once, by telling a real core that past, and remembered. Two pasts are never taken for one:
no fingerprint of a core can forget what matters.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs

from broker.client_core import ClientCore
from broker.core import BrokerCore
from broker.effects import CloseLink, Deliver, Effect, RecordHistory, SendMessage, Stop
from broker.inputs import Input, LinkId, LinkOpened, MessagesReceived, TimerFired
from broker.messages import Message
from broker.sim.trace_text import describe_message
from faulttol.history import MemoryHistory, PublicationId, Record
from routing.ids import NodeId

Core = BrokerCore | ClientCore

BIRTH: Final = 0
"""The state of a node to which nothing has happened yet."""


@attrs.frozen(eq=False)
class Happening:
    """Something that happens to one node; compared by identity, as there is one object of each."""

    node: NodeId
    text: str
    """In words, for a transcript."""
    befall: Callable[[Core, float], list[Effect]]
    """Tell the core at this time, and take what it wants done."""


@attrs.frozen
class Outcome:
    """What a happening leads to: another state, and messages on their way."""

    state: int
    sent: tuple[Happening, ...]
    """The arrivals of these messages, which will happen to their receivers."""


@attrs.frozen
class _Moment:
    """How a state came about, and what can be said of it."""

    earlier: int
    happening: Happening
    now: float
    records: tuple[tuple[str, dict[str, Any]], ...]
    """What was written into the history."""
    delivered: tuple[PublicationId, ...]
    """Everything since its birth."""
    unfinished: tuple[str, ...]


class Mail:
    """The messages between nodes: each that can be sent is one happening, however often it is."""

    def __init__(self) -> None:
        """Begin without any connection."""
        self._links: dict[tuple[NodeId, NodeId], LinkId] = {}
        self._peers: dict[LinkId, tuple[NodeId, NodeId]] = {}
        self._arrivals: dict[tuple[LinkId, str], Happening] = {}

    def connect(self, caller: NodeId, called: NodeId) -> tuple[Happening, Happening]:
        """Make a connection; returns how the one called hears of it, and then its caller."""
        here, there = (LinkId(len(self._peers) + number) for number in (1, 2))
        self._peers[here], self._peers[there] = (caller, called), (called, caller)
        self._links[caller, called], self._links[called, caller] = here, there
        return (
            Happening(called, f"{caller} connects to {called}", _told(LinkOpened(there))),
            Happening(
                caller, f"{caller} is connected to {called}", _told(LinkOpened(here, called))
            ),
        )

    def arrival(self, link: LinkId, message: Message) -> Happening:
        """The arrival of a message that is sent over this link."""
        key = link, repr(message)
        known = self._arrivals.get(key)
        if known is None:
            sender, receiver = self._peers[link]
            known = self._arrivals[key] = Happening(
                receiver,
                f"{sender} -> {receiver}: {describe_message(message)}",
                _told(MessagesReceived(self._links[receiver, sender], [message])),
            )
        return known

    def directions(self) -> list[tuple[NodeId, NodeId]]:
        """Sender and receiver of every direction of every connection."""
        return list(self._links)


def timer(node: NodeId) -> Happening:
    """The node's timer fires."""
    return Happening(node, f"{node}: a timer fires", _told(TimerFired()))


def _told(happened: Input) -> Callable[[Core, float], list[Effect]]:
    def befall(core: Core, now: float) -> list[Effect]:
        if isinstance(core, BrokerCore):
            return core.step(now, happened)
        core.step(now, happened)
        return core.take_effects()

    return befall


class Automaton:
    """One node: its states, as far as they have been visited, and what they lead to."""

    def __init__(self, name: NodeId, bear: Callable[[], Core], mail: Mail) -> None:
        """Be a node whose core `bear` makes and starts, as often as it is needed."""
        self.name = name
        self._bear = bear
        self._mail = mail
        self._moments: list[_Moment] = []
        """How each state but the first came about; a state is a place here, counted from 1."""
        self._outcomes: dict[tuple[int, Happening, float], Outcome] = {}
        self._cores: dict[int, Core] = {BIRTH: bear()}
        """Cores that are in a state that nobody has led them out of yet."""

    @property
    def states(self) -> int:
        """How many states have been visited."""
        return 1 + len(self._moments)

    def after(self, state: int, happening: Happening, now: float) -> Outcome:
        """What becomes of the node if this happens to it in this state."""
        key = state, happening, now
        outcome = self._outcomes.get(key)
        if outcome is None:
            core = self._cores.pop(state, None) or self._relive(state)
            outcome = self._outcomes[key] = self._live(core, state, happening, now)
        return outcome

    def delivered(self, state: int) -> tuple[PublicationId, ...]:
        """What it has delivered to its application so far, in this order."""
        return self._moments[state - 1].delivered if state != BIRTH else ()

    def unfinished(self, state: int) -> tuple[str, ...]:
        """What it is still about, in words."""
        return self._moments[state - 1].unfinished if state != BIRTH else ()

    def records(self, state: int, run: str) -> list[Record]:
        """What it has written into its history so far."""
        history = MemoryHistory(run, self.name, 1)
        for moment in self._past(state):
            for kind, fields in moment.records:
                history.write(moment.now, kind, **fields)
        return history.records

    def _past(self, state: int) -> list[_Moment]:
        past = []
        while state != BIRTH:
            past.append(self._moments[state - 1])
            state = past[-1].earlier
        past.reverse()
        return past

    def _relive(self, state: int) -> Core:
        """A core in this state, led there from its birth."""
        core = self._bear()
        for moment in self._past(state):
            moment.happening.befall(core, moment.now)
        return core

    def _live(self, core: Core, state: int, happening: Happening, now: float) -> Outcome:
        """Let it happen for the first time, and see what comes of it."""
        sent: list[Happening] = []
        records: list[tuple[str, dict[str, Any]]] = []
        delivered = list(self.delivered(state))
        for effect in happening.befall(core, now):
            match effect:
                case SendMessage(links, message):
                    sent.extend(self._mail.arrival(link, message) for link in links)
                case RecordHistory(kind, fields):
                    records.append((kind, dict(fields)))
                case Deliver(delivery):
                    key = delivery.publisher, delivery.publisher_incarnation, delivery.seq
                    delivered.append(key)
                    records.append(("delivered", delivery.record_fields(self.name)))
                case CloseLink(_, _, reason) | Stop(reason):
                    raise AssertionError(f"{self.name} ends a connection: {reason}")
        moment = _Moment(state, happening, now, tuple(records), tuple(delivered), _unfinished(core))
        self._moments.append(moment)
        reached = len(self._moments)
        self._cores[reached] = core
        return Outcome(reached, tuple(sent))


def _unfinished(core: Core) -> tuple[str, ...]:
    if isinstance(core, BrokerCore):
        return tuple(f"{core.node}: {text}" for text in core.unfinished())
    if core.unconfirmed or core.kept:
        return (f"{core.node}: {core.unconfirmed} unconfirmed, {core.kept} kept",)
    return ()
