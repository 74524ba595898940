"""A broker that is played here: its steps carried out, its batches sent and taken.

Neighbours that are played by the same host have no connection: what one sends the other takes when
it is its turn, in the same call of the host.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import attrs

from plait.broker.effects import Level, Refusal
from plait.broker.errors import RemoteProtocolError
from plait.broker.host.connections import Connection, Connections
from plait.broker.inputs import LinkId
from plait.broker.limits import STEPS_AT_ONCE
from plait.broker.machine.contradictions import contradiction_in
from plait.broker.machine.counting import Counters
from plait.broker.machine.machine import Batch, BrokenBatchError, Departure, Loss, Machine
from plait.broker.machine.neighbours import Below, Neighbour, is_client
from plait.broker.machine.neighbours import Progress as Counted
from plait.broker.messages import Advertise, EndOfStep, Message, Progress, Publish, Subscribe
from plait.broker.outbox import Outbox
from plait.faulttol.stability import CountError
from plait.faulttol.steplog import Standing, StepLog, Taken
from plait.routing.filters import Filter
from plait.routing.ids import NodeId


class Observer(Protocol):
    """Somebody who looks at brokers after every step."""

    def stepped(self, machine: Machine) -> None:
        """It has made a step."""

    def rebuilt(self, machine: Machine) -> None:
        """It is another one's state, taken up; the step after that is to come."""

    def contradicted(self, reason: str) -> None:
        """What was said of a broker cannot be so."""


@attrs.define(eq=False)
class Played:
    """One broker, as it is played here."""

    machine: Machine
    term: int
    has_joined: bool = False
    """Whether it had when that was looked at last."""

    @property
    def node(self) -> NodeId:
        """Its name."""
        return self.machine.node


class Playing:
    """All brokers that this host plays."""

    def __init__(
        self,
        connections: Connections,
        outbox: Outbox,
        on_admitted: Callable[[Machine, NodeId], None],
        on_departure: Callable[[Machine, Departure], None],
        on_loss: Callable[[Loss], None],
        judge: Callable[[Machine, Neighbour, Advertise | Subscribe, Filter], Refusal | None],
        counters: Counters,
    ) -> None:
        """Begin with none; the others hear of who has joined, has gone, and what is given up.

        The `judge` is asked about what clients ask for.
        """
        self._on_admitted = on_admitted
        self._on_departure = on_departure
        self._on_loss = on_loss
        self._judge = judge
        self.counters = counters
        """Of all of them, those included that are not played here any more."""
        self.observer: Observer | None = None
        """Who is shown every step: tests, and the simulator."""
        self._connections = connections
        self._outbox = outbox
        self.brokers: dict[NodeId, Played] = {}
        self.logs: dict[NodeId, StepLog] = {}
        """Of each."""
        self._news: deque[tuple[NodeId, NodeId]] = deque()
        """Which broker has something for which other one that is played here."""
        self._counted: deque[tuple[NodeId, NodeId, Counted]] = deque()
        self._expecting: dict[NodeId, float] = {}
        """Until when clients may come back to brokers that have forgotten them."""
        self._changed: dict[NodeId, None] = {}
        """Who may have progress to tell since the last flush."""
        self.version = 0
        """Goes up with every broker that is taken up, has joined, or is given up."""

    def machine(self, node: NodeId) -> Machine | None:
        """The machine of a broker that is played here."""
        played = self.brokers.get(node)
        return None if played is None else played.machine

    def take_up(self, machine: Machine, term: int) -> Played:
        """Play a broker from now on."""
        machine.steps.log.term = term
        machine.count_in(self.counters)
        machine.interests.judge = partial(self._judge, machine)
        self.logs[machine.node] = machine.steps.log
        played = self.brokers[machine.node] = Played(machine, term)
        self.version += 1
        return played

    def take_up_empty(self, machine: Machine, term: int, *, until: float) -> Played:
        """Play one that knows nothing of its past, from which clients may come back until then."""
        machine.has_forgotten_clients = True
        self._expecting[machine.node] = until
        return self.take_up(machine, term)

    def expect_nobody(self, now: float) -> None:
        """Whoever has not come back by now to a broker that had forgotten it does not any more."""
        for node in [node for node, until in self._expecting.items() if until <= now]:
            del self._expecting[node]
            if node in self.brokers:
                self.brokers[node].machine.has_forgotten_clients = False

    def give_up(self, node: NodeId) -> None:
        """Play it no more."""
        self._expecting.pop(node, None)
        del self.brokers[node], self.logs[node]
        self._changed.pop(node, None)
        self.version += 1

    # --- lines --------------------------------------------------------------------------------

    def connect(self, machine: Machine, neighbour: Neighbour, link: LinkId | None) -> None:
        """From now on this connection leads to a neighbour, or none does."""
        neighbour.link = link
        machine.neighbours.version += 1

    def disconnect(self, machine: Machine, neighbour: Neighbour) -> None:
        """No connection leads to a neighbour any more; it may come back."""
        self.connect(machine, neighbour, None)
        if isinstance(neighbour, Below):
            machine.disconnected(neighbour)

    def resume(self, connection: Connection, taken: int) -> None:
        """Send a neighbour whatever it has not taken."""
        machine = self.brokers[connection.node].machine
        neighbour = machine.neighbours.named(connection.peer)
        assert neighbour is not None
        self.connect(machine, neighbour, connection.link)
        again = machine.sent_since(neighbour, taken)
        if again:
            for message in again:
                self._connections.send(connection, message)
            self._end_batch(connection, machine)
        machine.connected(neighbour)
        self._changed[machine.node] = None
        self._outbox.log(
            Level.INFO, "link resumed", peer=neighbour.node, sent_again=len(again), taken=taken
        )

    def _end_batch(self, connection: Connection, machine: Machine) -> None:
        end = EndOfStep(step=machine.steps.number, logs=connection.take_logs())
        self._connections.send(connection, end)

    # --- steps --------------------------------------------------------------------------------

    def take(
        self, connection: Connection, upto: int, messages: Sequence[Message], now: float
    ) -> None:
        """Take what came over a connection; RemoteProtocolError if it breaks the protocol."""
        machine = self.brokers[connection.node].machine
        neighbour = machine.neighbours.named(connection.peer)
        assert neighbour is not None
        if upto > neighbour.taken + STEPS_AT_ONCE:
            raise RemoteProtocolError(f"step {upto} of {neighbour.node} after {neighbour.taken}")
        if upto > neighbour.taken:
            if not is_client(neighbour):
                contradiction = contradiction_in(machine, neighbour, messages)
                if contradiction is not None:
                    raise RemoteProtocolError(contradiction)
            self._take(machine, neighbour, Batch(upto, messages), now)
        else:  # it was sent twice
            again = sum(type(message) is Publish for message in messages)
            self.counters.received += again
            self.counters.duplicate += again

    def _take(self, machine: Machine, source: Neighbour, batch: Batch, now: float) -> None:
        try:
            touched = machine.take(source, batch, now)
        except BrokenBatchError as broken:
            self._carry_out(machine, broken.touched)
            raise
        self._carry_out(machine, touched)

    def decide(
        self, machine: Machine, kind: Taken, neighbour: Below, reason: str, now: float
    ) -> None:
        """Let a broker take what has been decided about a neighbour."""
        self._carry_out(machine, machine.decide(kind, neighbour, reason, now))

    def welcome(self, machine: Machine, node: NodeId, standing: Standing) -> None:
        """Let a broker take somebody in who stands below it from now on."""
        machine.welcome(node, standing)
        self._carry_out(machine, ())

    def come_back(self, machine: Machine, client: Below) -> None:
        """Let a broker know that a client is back."""
        self._carry_out(machine, machine.come_back(client))

    def send_again(self, machine: Machine) -> None:
        """At first, and after it has been rebuilt: whatever its neighbours may lack."""
        machine.steps.begin(Taken.REPLAY)
        self._carry_out(machine, machine.send_again())

    def ask_again(self, machine: Machine, neighbour: Neighbour) -> None:
        """After a neighbour has been rebuilt: what that has not confirmed."""
        machine.steps.begin(Taken.REPLAY)
        machine.ask_again(neighbour)
        self._carry_out(machine, machine.end_step())

    def leave(self, machine: Machine) -> None:
        """Let a broker ask to be let go."""
        self._carry_out(machine, machine.leave())

    def begin(self, machine: Machine, now: float) -> None:
        """At first, of a broker that knows nothing of its past: ask all around."""
        self._carry_out(machine, machine.begin(now))

    def begin_anew(self, machine: Machine, neighbour: Neighbour, era: int, now: float) -> Neighbour:
        """New streams begin with a neighbour, which has forgotten everything; returns it."""
        self._carry_out(machine, machine.begin_anew(neighbour, era, now))
        fresh = machine.neighbours.named(neighbour.node)
        assert fresh is not None
        return fresh

    def catch_up(
        self, machine: Machine, neighbour: Neighbour, era: int, taken: int, now: float
    ) -> Neighbour:
        """A neighbour is in this era, and has taken so much: be in none that is earlier.

        If the one that is ahead has taken something in its era, the other one has forgotten it:
        then both begin anew.
        """
        ahead = max(era, neighbour.era)
        if era != neighbour.era and (taken if era == ahead else neighbour.taken):
            ahead += 1
        if neighbour.era == ahead:
            return neighbour
        return self.begin_anew(machine, neighbour, ahead, now)

    def _carry_out(self, machine: Machine, touched: Sequence[Neighbour]) -> None:
        """Send what a step had for each neighbour: the end of it, as all else is sent already."""
        self._changed[machine.node] = None
        played = self.brokers[machine.node]
        if machine.has_joined and not played.has_joined:
            played.has_joined = True
            self.version += 1
        for neighbour in touched:
            if neighbour.link is not None:
                line = self._connections.line(machine.node, neighbour.node)
                if line is not None:  # else it has left, and was waiting for its turn
                    self._end_batch(line, machine)
            elif neighbour.node in self.brokers:
                self._news.append((machine.node, neighbour.node))
        if self.observer is not None:
            self.observer.stepped(machine)
        for node in machine.steps.log.entries[-1].members.admitted:
            self._on_admitted(machine, node)
        for departure in machine.take_departures():
            self._on_departure(machine, departure)
        for loss in machine.take_losses():
            self._on_loss(loss)

    def settle(self, now: float) -> None:
        """Let the brokers here take what they have for each other, until nobody has anything."""
        while self._news or self._counted or self._changed:
            while self._news:
                self._pass_on(*self._news.popleft(), now)
            changed, self._changed = self._changed, {}
            for node in changed:
                if node in self.brokers:
                    machine = self.brokers[node].machine
                    self._tell(machine, machine.flush(now))
            counted, self._counted = self._counted, deque()
            for sender, to, progress in counted:
                self._count(sender, to, progress)

    def hurry(self, now: float) -> None:
        """Tell all progress that can wait, and has waited."""
        for played in self.brokers.values():
            at = played.machine.publications.flush_at
            if at is not None and now >= at:
                self._changed[played.node] = None

    def tell_all(self) -> None:
        """Tell all progress now."""
        for played in self.brokers.values():
            self._tell(played.machine, played.machine.tell_all())

    def wake_at(self) -> float | None:
        """When progress is to be told."""
        earliest = None
        for played in self.brokers.values():
            at = played.machine.publications.flush_at
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    def _pass_on(self, sender: NodeId, to: NodeId, now: float) -> None:
        """Let a broker take what another one here has for it."""
        if sender not in self.brokers or to not in self.brokers:
            return
        machine, other = self.brokers[sender].machine, self.brokers[to].machine
        source, target = other.neighbours.named(sender), machine.neighbours.named(to)
        if source is None or target is None:
            return
        upto = machine.steps.number
        if upto > source.taken:
            messages = machine.sent_since(target, source.taken)
            try:
                self._take(other, source, Batch(upto, messages), now)
            except BrokenBatchError as error:
                self._on_disagreement(sender, to, str(error))

    def push(self, sender: NodeId, to: NodeId) -> None:
        """One broker here may have something for another one here."""
        self._news.append((sender, to))

    # --- progress -----------------------------------------------------------------------------

    def on_progress(self, connection: Connection, progress: Progress) -> None:
        """A neighbour says how far things are."""
        counted = Counted(progress.received, progress.sent, progress.forgotten)
        machine = self.brokers[connection.node].machine
        neighbour = machine.neighbours.named(connection.peer)
        assert neighbour is not None
        try:
            machine.on_progress(neighbour, counted)
        except CountError as error:
            raise RemoteProtocolError(str(error)) from None
        self._changed[machine.node] = None

    def _tell(self, machine: Machine, news: Sequence[tuple[Neighbour, Counted]]) -> None:
        for neighbour, counted in news:
            if machine.neighbours.named(neighbour.node) is not neighbour:
                continue  # it is gone
            if neighbour.link is not None:
                line = self._connections.line(machine.node, neighbour.node)
                assert line is not None
                progress = Progress(
                    received=counted.received,
                    sent=counted.sent,
                    forgotten=counted.forgotten,
                    logs=line.take_logs(),
                )
                self._connections.send(line, progress)
            elif neighbour.node in self.brokers:
                self._counted.append((machine.node, neighbour.node, counted))

    def _count(self, sender: NodeId, to: NodeId, progress: Counted) -> None:
        machine = self.machine(to)
        source = None if machine is None else machine.neighbours.named(sender)
        if machine is not None and source is not None:
            try:
                machine.on_progress(source, progress)
            except CountError as error:
                self._on_disagreement(sender, to, str(error))
            self._changed[to] = None

    def _on_disagreement(self, sender: NodeId, to: NodeId, reason: str) -> None:
        """Brokers here do not agree, as one was rebuilt of what somebody has made up: it is said.

        The host goes on, for all that does not depend on these two.
        """
        self._outbox.log(
            Level.ERROR, "brokers disagree", broker=to, neighbour=sender, reason=reason
        )
