"""A host: a process that plays one broker of the tree, or several, or none. Its door.

An input and a time in, effects out; no socket, no clock, no randomness. What a broker does is in
`broker/machine`; here is what is around it: connections, greetings, time, who has failed.
"""

from collections.abc import Sequence
from typing import Any, Final

from plait.broker.effects import CloseLink, Effect, Level, RememberSeats, Stop
from plait.broker.errors import RemoteProtocolError
from plait.broker.fences import NEVER_FENCED, Fences
from plait.broker.host.announcing import Announcements
from plait.broker.host.attaching import AttachmentReader
from plait.broker.host.clients import Clients
from plait.broker.host.connections import Connection, Connections
from plait.broker.host.dialling import Dialling, Purpose, ToBroker, ToJoin, ToNamesake, ToVisit
from plait.broker.host.doubts import Doubts, Sign
from plait.broker.host.failover import Failover
from plait.broker.host.greetings import Greetings
from plait.broker.host.identity import Identity
from plait.broker.host.joining import Joining
from plait.broker.host.leaving import Leaving
from plait.broker.host.library import Library
from plait.broker.host.link_states import (
    FORBIDDEN_FROM_ABOVE,
    FORBIDDEN_TO_CLIENTS,
    LEGAL,
    UNCONDITIONAL,
    LinkState,
    Speaker,
    is_usual_end,
    require_legal,
)
from plait.broker.host.parts import Parts
from plait.broker.host.permissions import Permissions
from plait.broker.host.playing import Playing
from plait.broker.host.relocating import Relocations
from plait.broker.host.seats import Seats, next_incarnation
from plait.broker.host.status import Situation, Statistics, count, describe, describe_held
from plait.broker.host.takeover import Takeovers
from plait.broker.host.testimony import Testimony
from plait.broker.host.waking import WakingTime
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    RulesChanged,
    ShutdownRequested,
    TimerFired,
)
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.losses import Losses
from plait.broker.machine.counting import Counters
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import is_client
from plait.broker.messages import (
    Announce,
    Announced,
    Attach,
    AttachRequest,
    EndOfStep,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    HostPlace,
    Message,
    NodeKind,
    Probe,
    ProbeReply,
    Progress,
    Publish,
    Relocate,
    Relocated,
    Seating,
    Settings,
    StatusReply,
    StatusRequest,
    Welcome,
    bytes_of,
)
from plait.broker.outbox import Outbox
from plait.broker.principals import Caller, Protection, objection_to
from plait.broker.reports import report_within
from plait.faulttol.stability import CountError
from plait.faulttol.steplog import Taken
from plait.routing.conflicts import FAST
from plait.routing.ids import NodeId
from plait.routing.orderings import DEFAULT_ORDERING, SUMMIT
from plait.routing.rules import Rules

_LINES: Final = (LinkState.TO_BROKER, LinkState.TO_CLIENT)


class Host:
    """One process of the overlay."""

    def __init__(
        self,
        name: NodeId,
        incarnation: int,
        *,
        address: str = "",
        clients_address: str = "",
        join: str | None = None,
        fallbacks: Sequence[str] = (),
        remembered: Seating | None = None,
        ordering: str = DEFAULT_ORDERING,
        policy: str = "filter",
        delta: int = 1,
        detection: str = FAST,
        managers: str = SUMMIT,
        standby: int = 0,
        protection: Protection = Protection.LOOPBACK,
        wall_clock_ms: int = 0,
        fences: Fences = NEVER_FENCED,
        entropy: bytes = b"",
        rules: Rules | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Be `name`, reachable at `address`; join the overlay at `join`, or be its root.

        Clients and monitors reach it at `clients_address`, if brokers have a door of their own.

        If nobody is there to join, any of `fallbacks` will do. With the seats that an earlier
        incarnation remembered, it looks for the broker of its own name, and plays that again. A
        `standby` plays nothing until the broker at its join point fails, 1 being the first to take
        over. What the clock on the wall shows when it starts is for comparison with the
        incarnations of others, and the `entropy`, which nobody else knows, for the secrets of
        sessions. By the `rules` it is decided who may do what; without any, everybody may.
        """
        settings = Settings(
            ordering=ordering, policy=policy, delta=delta, detection=detection, managers=managers
        )
        self.me = Identity(
            name,
            incarnation,
            address,
            limits,
            settings,
            clients_address,
            protection,
            wall_clock_ms,
        )
        self.outbox = Outbox()
        self._fences = fences
        connections = Connections(self.outbox, self._on_gone)
        dialling = Dialling(self.outbox, self.me)
        seats = Seats(limits)
        playing = Playing(
            connections,
            self.outbox,
            lambda machine, node: self.failover.on_admitted(machine, node),
            lambda machine, departure: self.failover.on_departure(machine, departure),
            lambda loss: self.parts.losses.give_up(loss.publications, None, loss.reason),
            lambda *asked: self.permissions.judge(*asked),
            Counters(lambda: self.me.now),
        )
        doubts = Doubts(self.me, lambda life: self.failover.visit(life))
        library = Library(
            name,
            delta=delta,
            seats=seats,
            own=playing.logs,
        )
        takeovers = Takeovers(
            self.me,
            seats=seats,
            doubts=doubts,
            library=library,
            playing=playing,
            ask=lambda life, lives: self.failover.ask(life, lives),
        )
        clients = Clients(self.me, entropy=entropy)
        self.parts = Parts(
            self.me,
            self.outbox,
            connections,
            dialling,
            seats,
            doubts,
            library,
            playing,
            takeovers,
            clients,
            Losses(self.outbox, most=limits.status_skipped_max),
            Announcements(self.me, connections, seats, playing.brokers),
            Testimony(self.me, connections, seats, doubts),
        )
        self.greetings = Greetings(self.parts)
        self.failover = Failover(
            self.parts,
            self.greetings,
            lambda broker, host: self.relocations.remember(broker, host),
        )
        self.relocations = Relocations(
            self.parts,
            lambda: self.is_vulnerable,
            lambda seat: self.failover.learn(Seating(seats=(seat,))),
        )
        self.permissions = Permissions(self.parts, rules, self.failover.drop)
        self.leaving = Leaving(self.parts, self.failover.learn)
        self.joining = Joining(
            self.parts,
            self.greetings,
            join=join,
            fallbacks=fallbacks,
            remembered=remembered,
            standby=standby,
        )
        self._has_stopped = False
        self._time = WakingTime()
        self._tick_at: float | None = None
        self._isolate_at: float | None = None
        self._protocol_errors = 0
        self._told_version = self._remembered_version = self._looked_at_version = -1
        """Of what is known of seats: what others have been told, what is on the disk, and what this
        host has looked at to see whether it has failed itself."""

    # --- the door ---------------------------------------------------------------------------

    def start(self, now: float) -> list[Effect]:
        """Begin: join, or be the root."""
        me = self.me
        me.clock = me.now = me.started_at = now
        self._expect_tick()
        place = HostPlace(
            host=me.name,
            incarnation=me.incarnation,
            address=me.address,
            clients_address=me.clients_address,
        )
        self.parts.seats.learn(Seating(hosts=(place,)))
        self.joining.start()
        return self._end_step()

    def step(self, now: float, happened: Input) -> list[Effect]:
        """Take in what has happened; returns what is to be done, in this order.

        History records come before the messages that make them known to others, and a
        confirmation comes after everything it confirms.
        """
        self._see_the_clock(now)
        if self._has_stopped:
            return []
        match happened:
            case MessagesReceived(link, messages):
                if not self._on_messages(link, messages):
                    return []
            case TimerFired():
                self._on_timer()
            case LinkOpened(link, dialled, caller):
                self._on_opened(link, dialled, caller)
            case LinkFailed(dialled, reason, is_refused):
                self._on_failed(dialled, reason, is_refused=is_refused)
            case LinkClosed(link, reason):
                self._on_closed(link, reason)
            case ShutdownRequested():
                self.leaving.begin()
            case RulesChanged(rules):
                self.permissions.change(rules)
        return self._end_step()

    def _see_the_clock(self, clock: float) -> None:
        self.me.clock, self.me.now = clock, self._time.at(clock)

    def _end_step(self) -> list[Effect]:
        """Do what is done once per call, however much came in."""
        parts, me = self.parts, self.me
        parts.playing.settle(me.now)
        self._let_go()
        self.relocations.advance()
        self.permissions.advance()
        self.failover.review()
        parts.testimony.advance()
        self._step_down_if_needed()
        self.joining.advance()
        parts.playing.settle(me.now)
        self._spread_seats()
        if self.leaving.is_under_way and not self._has_stopped:
            self._go_on_leaving()
        self._arm_timer()
        return self.outbox.take()

    def _step_down_if_needed(self) -> None:
        seats, takeovers = self.parts.seats, self.parts.takeovers
        if seats.version != self._looked_at_version:
            self._looked_at_version = seats.version
            if seats.has_failed(self.me.life):
                self.step_down("others go on without this life")
                return
        if len(takeovers) and any(takeover.is_cut_off for takeover in takeovers):
            self.step_down("most others are silent, so it may be this host that is cut off")

    # --- connections ------------------------------------------------------------------------

    def _on_opened(self, link: LinkId, dialled: str, caller: Caller) -> None:
        now = self.me.now
        if not dialled:
            came = Connection(link, LinkState.AWAITING_HELLO, now, now, caller=caller)
            self.parts.connections.add(came)
            return
        purpose = self.parts.dialling.ended(dialled)
        if purpose is None or not self._is_needed(purpose):
            self.outbox.add(CloseLink(link, GoodbyeCode.LEFT, "not needed any more"))
            return
        connection = Connection(
            link, LinkState.AWAITING_WELCOME, now, now, dialled, purpose, caller
        )
        self.parts.connections.add(connection)
        if isinstance(purpose, ToJoin | ToNamesake):
            self.joining.say_hello(connection)
        else:
            self.greetings.say_hello(connection)

    def _is_needed(self, purpose: Purpose) -> bool:
        match purpose:
            case ToBroker(node, broker):
                machine = self.parts.playing.machine(node)
                return (
                    machine is not None
                    and machine.neighbours.named(broker) is not None
                    and self.parts.connections.line(node, broker) is None
                )
            case ToJoin():
                return self.joining.is_looking
            case _:
                return True

    def _on_failed(self, dialled: str, reason: str, *, is_refused: bool) -> None:
        purpose = self.parts.dialling.ended(dialled)
        if purpose is None:
            return
        self.outbox.log(Level.DEBUG, "not reached", address=dialled, reason=reason)
        if isinstance(purpose, ToNamesake):
            self.joining.begin()
        elif isinstance(purpose, ToJoin):
            self.joining.on_dial_failed(dialled, reason, is_refused=is_refused)
        else:
            self.failover.on_dial_failed(purpose, dialled, is_refused=is_refused)

    def _on_closed(self, link: LinkId, reason: str) -> None:
        connection = self.parts.connections.forget(link)
        if connection is not None:
            peer = connection.peer or "unknown"
            self.outbox.log(Level.WARNING, "link lost", peer=peer, reason=reason)
            self._on_ended(connection)

    def _on_gone(self, connection: Connection) -> None:
        """A connection is gone, whoever has ended it, and why ever."""
        self.parts.library.close(connection.link)
        self.permissions.forget(connection.link)
        self.greetings.returns.on_lost(connection)

    def _on_ended(self, connection: Connection) -> None:
        """A connection has not ended by the wish of this host."""
        self.failover.on_line_lost(connection)
        if connection.state is LinkState.TO_HOST:
            self.failover.on_host_lost(connection)
        purpose = connection.purpose
        if purpose is not None and connection.state in (
            LinkState.AWAITING_WELCOME,
            LinkState.ATTACHING,
        ):
            if isinstance(purpose, ToJoin | ToNamesake):
                self.joining.on_lost(connection)
            else:
                self.failover.on_unanswered(connection, purpose)
        elif connection.is_between_hosts and not isinstance(purpose, ToVisit):
            self.parts.doubts.note(connection.life, Sign.LOST, self.me.now)
            self.failover.look_again_at(self.me.now)
            self.joining.on_lost(connection)

    # --- messages ---------------------------------------------------------------------------

    def _on_messages(self, link: LinkId, messages: list[Message]) -> bool:
        """Take in what came; returns whether anything may follow from it already."""
        parts = self.parts
        connection = parts.connections.get(link)
        if connection is None:  # closed from this side while these were on their way
            return False
        now = self.me.now
        connection.heard_at = now
        before = parts.doubts.version
        if connection.is_between_hosts:
            parts.doubts.heard(connection.life, now)
        elif self.permissions.has_limits and connection.state is LinkState.TO_CLIENT:
            self.permissions.spend(connection, messages)
        is_awaited = parts.testimony.is_awaited or self.relocations.are_awaited
        may_follow = is_awaited or parts.doubts.version != before
        try:
            for place, message in enumerate(messages):
                if _is_line(connection):
                    return self._on_line(connection, messages[place:]) or may_follow
                may_follow = True
                self._on_message(connection, message)
                if not parts.connections.is_open(connection):
                    break
        except (RemoteProtocolError, CountError) as broken:
            self._on_broken(connection, str(broken))
            may_follow = True
        return may_follow

    def _on_line(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """What a neighbour says: batches, each taken whole, and what lies between them.

        Nothing follows from a batch before its end has come.
        """
        batch = connection.batch
        complete, upto, may_follow = 0, 0, False
        forbidden = self._forbidden_flags(connection)
        for message in messages:
            if type(message) is Publish and not message.flags & forbidden:
                batch.append(message)
                continue
            if not is_usual_end(connection.state, connection.step, message):
                self._require_legal(connection, message)
            if type(message) is EndOfStep:
                self.parts.library.learn(connection.logs.read(message.logs), connection.link)
                complete, upto, may_follow = len(batch), message.step, True
                connection.step = upto
            elif type(message) in _BETWEEN_BATCHES:
                if upto and not self._take(connection, upto, complete):
                    return True
                complete, upto = 0, 0
                may_follow |= type(message) is not Heartbeat
                self._on_message(connection, message)
                if not self.parts.connections.is_open(connection):
                    return True
            else:
                batch.append(message)
        if not upto or self._take(connection, upto, complete):
            self._bound_batch(connection)
        return may_follow

    def _bound_batch(self, connection: Connection) -> None:
        """See that a batch of which the end does not come does not grow for ever."""
        batch = connection.batch
        if len(batch) == connection.batch_counted:
            return
        connection.batch_bytes += sum(map(bytes_of, batch[connection.batch_counted :]))
        connection.batch_counted = len(batch)
        most = self.me.limits.batch_bytes_max
        if connection.batch_bytes > most:
            raise RemoteProtocolError(
                f"a batch of {connection.batch_bytes} bytes, at most {most} allowed"
            )

    def _take(self, connection: Connection, upto: int, count: int) -> bool:
        """Let a broker take a part of a batch; returns whether the connection outlives that."""
        messages = connection.batch[:count]
        del connection.batch[:count]
        connection.batch_counted = connection.batch_bytes = 0
        self.greetings.seat(connection)
        self.parts.playing.take(connection, upto, messages, self.me.now)
        return self.parts.connections.is_open(connection)

    def _require_legal(self, connection: Connection, message: Message) -> None:
        if type(message) in UNCONDITIONAL[connection.state]:
            return
        speaker = Speaker(
            here=connection.node,
            node=connection.peer,
            incarnation=connection.life.incarnation,
            kind=connection.kind,
            is_above=self._is_above(connection),
            step=connection.step,
        )
        require_legal(connection.state, speaker, message)

    def _is_above(self, connection: Connection) -> bool:
        """Whether the parent is at the other end."""
        machine = self.parts.playing.machine(connection.node)
        parent = None if machine is None else machine.neighbours.parent
        return parent is not None and parent.node == connection.peer

    def _forbidden_flags(self, connection: Connection) -> int:
        if connection.state is LinkState.TO_CLIENT:
            return FORBIDDEN_TO_CLIENTS
        return FORBIDDEN_FROM_ABOVE if self._is_above(connection) else 0

    def _on_message(self, connection: Connection, message: Message) -> None:
        """What is no part of a batch."""
        if connection.was_line and type(message) not in LEGAL[LinkState.TO_HOST]:
            return
        if connection.state not in _LINES:
            self._require_legal(connection, message)
        parts = self.parts
        match message:
            case Progress(logs=logs):
                parts.library.learn(connection.logs.read(logs), connection.link)
                parts.playing.on_progress(connection, message)
            case Heartbeat():
                pass
            case Hello():
                parts.seats.require_term(message.node, message.term)
                objection = self.permissions.objection_to_hello(connection, message)
                self.greetings.on_hello(connection, message, objection)
            case Welcome():
                self._on_welcome(connection, message)
            case Seating():
                parts.seats.require_possible(message, newest=self.me.newest_incarnation)
                self.failover.learn(message)
                if connection.state is LinkState.TO_HOST:
                    self._answer_host(connection)
                self.joining.on_seating(connection)
            case AttachRequest():
                self.failover.on_attach_request(connection, message)
            case Probe(lives=lives):
                parts.testimony.ask(connection, lives)
            case ProbeReply(life=life, heard=heard):
                parts.takeovers.on_answer(life.host, heard)
                self.failover.look_again_at(self.me.now)
                if isinstance(connection.purpose, ToVisit) and not (
                    parts.takeovers.awaits(connection.life)
                    or parts.seats.is_leaving(connection.life)
                ):
                    parts.connections.close(connection, GoodbyeCode.LEFT, "visited")
            case Announce():
                parts.library.learn(connection.logs.read(message.logs), connection.link)
                parts.announcements.on_announce(connection, message)
            case Announced(number=number):
                parts.announcements.on_announced(connection, number)
            case Relocate():
                parts.connections.send(connection, self._on_relocate(connection, message))
            case Relocated():
                self.joining.on_relocated(message)
            case StatusRequest():
                self._on_status_request(connection)
            case Goodbye():
                self._on_goodbye(connection, message)
            case _ if connection.state in (LinkState.ATTACHED, LinkState.TO_HOST):
                self._on_part_of_attachment(connection, message)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} was not expected")

    def _on_relocate(self, connection: Connection, relocate: Relocate) -> Relocated:
        objection = self.permissions.objection_to_relocate(connection, relocate.broker)
        if objection is not None:
            return Relocated(broker=relocate.broker, reason=objection)
        return self.relocations.on_relocate(relocate, connection)

    def _on_welcome(self, connection: Connection, welcome: Welcome) -> None:
        self.parts.seats.require_term(welcome.node, welcome.term)
        objection = objection_to(connection.caller, NodeKind.HOST, welcome.node, welcome.host)
        if objection is not None:
            raise RemoteProtocolError(f"Welcome: {objection}")
        if isinstance(connection.purpose, ToNamesake):
            self.joining.on_namesake(connection, welcome)
        elif isinstance(connection.purpose, ToJoin):
            self.joining.on_welcome(connection, welcome)
        else:
            self.greetings.on_welcome(connection, welcome)

    def _on_part_of_attachment(self, connection: Connection, message: Message) -> None:
        if isinstance(message, Attach):
            self.parts.seats.require_term(message.to, message.term)
            connection.reader = AttachmentReader(self.me.limits)
        if connection.reader is None:
            raise RemoteProtocolError(f"{type(message).__name__} before Attach")
        attachment = connection.reader.feed(message)
        if attachment is not None:
            term, connection.reader = connection.reader.term, None
            connection.has_attached = True
            if connection.state is LinkState.TO_HOST:
                self.failover.on_testimony(term, attachment)
            else:
                self.failover.on_attachment(connection, term, attachment)

    def _on_goodbye(self, connection: Connection, goodbye: Goodbye) -> None:
        """The peer ends the connection, or is about to."""
        peer = connection.peer or "unknown"
        code, reason = goodbye.code, goodbye.reason
        self.outbox.log(Level.INFO, "goodbye", peer=peer, code=code.value, reason=reason)
        if code is GoodbyeCode.SHUTTING_DOWN and connection.state in _LINES:
            return  # it closes in its own time
        self.parts.connections.forget(connection.link)
        self.outbox.add(CloseLink(connection.link, code, reason))
        if isinstance(connection.purpose, ToNamesake):
            self.joining.begin()
        elif isinstance(connection.purpose, ToJoin) and connection.state not in _LINES:
            self.joining.on_goodbye(connection, goodbye)
        elif code is GoodbyeCode.ELSEWHERE and connection.purpose is not None:
            self.failover.on_line_lost(connection)
            self.failover.on_sent_elsewhere(connection)
        elif connection.state is not LinkState.TO_HOST:  # that one only had something to ask
            self._on_ended(connection)

    def _on_broken(self, connection: Connection, reason: str) -> None:
        """The peer has broken the protocol: the connection ends."""
        self._protocol_errors += 1
        if not self.parts.connections.is_open(connection):
            return
        self.parts.connections.close(connection, GoodbyeCode.PROTOCOL, reason)
        self._on_ended(connection)

    # --- what is told -------------------------------------------------------------------------

    def _spread_seats(self) -> None:
        """Tell who plays what to all who have not heard the latest."""
        parts = self.parts
        seats = parts.seats
        if self.me.is_ready and seats.version != self._remembered_version:
            self._remembered_version = seats.version
            self.outbox.add(RememberSeats(seats.everything()))
        if seats.version == self._told_version:
            return
        self._told_version = seats.version
        reach = self.me.settings.delta + 1
        for connection in parts.connections:
            if connection.state in (LinkState.TO_BROKER, LinkState.TO_HOST):
                self._tell_seats(connection)
            elif connection.state is LinkState.TO_CLIENT:
                news = seats.around(connection.node, reach)
                if news != connection.seats_around:
                    connection.seats_around = news
                    parts.connections.send(connection, news)

    def _answer_host(self, connection: Connection) -> None:
        """A host has come to hear who plays what: not much is heard where nobody plays anything."""
        self._tell_seats(connection)
        is_visit = isinstance(connection.purpose, ToJoin | ToVisit)
        if not (self.me.is_ready or is_visit or self.parts.testimony.is_asked(connection)):
            reason = f"{self.me.name} looks for a place itself"
            self.parts.connections.close(connection, GoodbyeCode.ELSEWHERE, reason)

    def _tell_seats(self, connection: Connection) -> None:
        """Tell a host what it has not been told of who plays what."""
        seats = self.parts.seats
        if connection.seats_told != seats.version:
            news = seats.changes_since(connection.seats_told)
            connection.seats_told = seats.version
            if news != Seating():
                self.parts.connections.send(connection, news)

    # --- time -------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        self.outbox.woken()
        now = self.me.now
        self.parts.playing.hurry(now)
        for life in self.parts.doubts.overdue_visits(now):
            self.parts.dialling.call_off(ToVisit(life))
            self.parts.doubts.note(life, Sign.UNANSWERED, now)
        if self._isolate_at is not None and now >= self._isolate_at:
            self._isolate_clients()
        if self._tick_at is not None and now >= self._tick_at:
            self._expect_tick()
            self._on_tick()

    def _expect_tick(self) -> None:
        self._tick_at = self.me.now + self.me.limits.heartbeat_interval_s
        self._time.expect(self._tick_at)

    def _on_tick(self) -> None:
        """Once per heartbeat: greet the living, look for the dead and the stuck."""
        limits, now = self.me.limits, self.me.now
        self.joining.on_tick()
        self.parts.playing.expect_nobody(now)
        self.permissions.look()
        for connection in self.parts.connections:
            silent = now - connection.heard_at
            if connection.state is LinkState.AWAITING_HELLO and connection.hello is None:
                if now - connection.opened_at > limits.greeting_timeout_s:
                    reason = f"no greeting within {limits.greeting_timeout_s:g} s"
                    self.parts.connections.close(connection, GoodbyeCode.TIMEOUT, reason)
            elif self.greetings.returns.are_awaited_on(connection):
                pass  # it has nothing to say
            elif silent > limits.heartbeat_timeout_s:
                self._on_silence(connection, f"silent for {silent:.1f} s")
        alive = [c for c in self.parts.connections if c.state is not LinkState.AWAITING_HELLO]
        alive += [
            c
            for c in self.parts.connections.with_state(LinkState.AWAITING_HELLO)
            if c.hello is not None
        ]
        self.parts.connections.send_to_all(alive, Heartbeat())
        for life in self.parts.doubts.unanswering():
            self.failover.visit(life)
            if not self.parts.seats.has_failed(life):
                self.parts.clients.bear_with_all(now)
        if not len(self.parts.takeovers):
            self.parts.library.forget_far()
        self._isolate_clients()
        self.failover.look_again_at(now)

    def _on_silence(self, connection: Connection, reason: str) -> None:
        if connection.state is LinkState.AWAITING_HELLO:  # it waits for an answer
            self.greetings.send_away(connection)
            return
        self.parts.connections.close(connection, GoodbyeCode.TIMEOUT, reason)
        if connection.is_between_hosts:
            self.parts.doubts.note(connection.life, Sign.SILENT, self.me.now)
        self._on_ended(connection)

    def _let_go(self) -> None:
        """Brokers take note of clients whose connection has ended, once nothing is open there."""
        parts = self.parts
        for played in parts.playing.brokers.values():
            machine = played.machine
            for client in parts.clients.absent(machine):
                if machine.may_go_away(client):
                    parts.playing.decide(machine, Taken.AWAY, client, "", self.me.now)

    def _isolate_clients(self) -> None:
        """Drop who harms others; of many at once only some, and the others in a moment."""
        self._isolate_at = None
        limits, now = self.me.limits, self.me.now
        count = skipped = 0
        for played in list(self.parts.playing.brokers.values()):
            for client, reason in self.parts.clients.harmful(played.machine, now):
                if count >= limits.isolated_at_once or skipped >= limits.skipped_at_once:
                    self._isolate_at = now + limits.isolation_pause_s
                    return
                count += 1
                skipped += len(client.sent.unconfirmed)
                self.failover.drop(played.machine, client, reason)

    def _arm_timer(self) -> None:
        if not self._has_stopped:
            times = (
                self._tick_at,
                self._isolate_at,
                self.leaving.wake_at(),
                self.permissions.wake_at(),
                self.parts.playing.wake_at(),
                self.parts.doubts.wake_at(),
                self.failover.wake_at(),
                self.joining.wake_at(),
            )
            due = [time for time in times if time is not None]
            if due:
                self.outbox.wake_at(self._time.when(min(due)))

    # --- stopping ---------------------------------------------------------------------------

    def _go_on_leaving(self) -> None:
        """Whoever is told that this host goes has been told before what else it knows."""
        if self.leaving.advance():
            self._stop()
        else:
            self.parts.playing.settle(self.me.now)
            self._spread_seats()

    def _stop(self) -> None:
        """It has left; that its life is over nobody has to find out."""
        self._has_stopped = True
        parts = self.parts
        parts.playing.tell_all()
        parts.seats.bury(self.me.life, is_proven=True)
        for connection in parts.connections:
            seating = parts.seats.everything() if connection.is_between_hosts else None
            parts.connections.close(
                connection, GoodbyeCode.SHUTTING_DOWN, "stopped", seating=seating
            )
        self.outbox.add(Stop("stopped"))

    def step_down(self, reason: str) -> None:
        """Others go on without this life: it has nothing to say any more, and begins a new one."""
        if self._has_stopped:
            return
        self.outbox.log(Level.ERROR, "fenced", reason=reason)
        self._has_stopped = True
        seating = self.parts.seats.everything()
        for connection in self.parts.connections:
            self.parts.connections.close(connection, GoodbyeCode.ELSEWHERE, reason, seating=seating)
        self.outbox.add(Stop(f"fenced: {reason}", comes_back=True))

    # --- questions ----------------------------------------------------------------------------

    @property
    def has_stopped(self) -> bool:
        """Whether it does nothing any more."""
        return self._has_stopped

    @property
    def next_incarnation(self) -> int:
        """Of the life that follows on this one."""
        known = self.parts.seats.everything()
        return next_incarnation(self.me.name, self.me.incarnation, known)

    def kind_of(self, link: LinkId) -> NodeKind | None:
        """What is at the other end of a link; None before it has said so."""
        connection = self.parts.connections.get(link)
        return None if connection is None else connection.kind

    def node_at(self, link: LinkId) -> NodeId:
        """Who speaks at this end of a link; the host itself, where that is no broker."""
        connection = self.parts.connections.get(link)
        return (None if connection is None else connection.node) or self.me.name

    def is_between_hosts(self, link: LinkId) -> bool:
        """Whether a link carries what many wait for."""
        connection = self.parts.connections.get(link)
        return connection is not None and connection.is_between_hosts

    def is_of_client(self, link: LinkId) -> bool:
        """Whether a link may be held up while others are behind: nobody waits for what it says.

        Not so of a client that says what it has of a broker that has failed.
        """
        connection = self.parts.connections.get(link)
        return connection is not None and connection.state is LinkState.TO_CLIENT

    def pause_s(self, link: LinkId) -> float:
        """For how long a link is not to be read, as its principal has had what it may have."""
        return self.permissions.pause_s(link)

    def kept_bytes(self, link: LinkId) -> int:
        """About how much has come over a link of what has no end yet."""
        connection = self.parts.connections.get(link)
        return 0 if connection is None else connection.kept_bytes

    def is_stranger(self, link: LinkId) -> bool:
        """Whether whoever came over a link has not said who it is."""
        connection = self.parts.connections.get(link)
        return connection is None or (
            connection.state is LinkState.AWAITING_HELLO and connection.hello is None
        )

    @property
    def is_vulnerable(self) -> bool:
        """Whether a failure is not over, so that one more would count in addition."""
        return self.failover.is_vulnerable

    def relocate(self, now: float, broker: NodeId, host: NodeId) -> tuple[str, list[Effect]]:
        """Give a broker up, to another host; the first says why not, or not yet."""
        self._see_the_clock(now)
        answer = self.relocations.on_relocate(Relocate(broker=broker, host=host))
        return answer.reason, self._end_step()

    def status(self) -> dict[str, Any]:
        """Everything a person wants to know about this host, as JSON."""
        situation = Situation(
            state=self._state_name(),
            is_vulnerable=self.is_vulnerable,
            standby=self.joining.standby,
            fences=self._fences,
            relocations=self.relocations.describe(),
        )
        return describe(self.parts, situation)

    def statistics(self) -> Statistics:
        """The counters as they stand."""
        return count(self.parts, protocol_errors=self._protocol_errors)

    def take_latencies(self) -> list[float]:
        """How long operations took that were confirmed since the last call, in seconds."""
        return self.parts.playing.counters.take_latencies()

    def describe_held(self) -> list[dict[str, Any]]:
        """What is held by the brokers here, for how long, behind what and for whose sake."""
        return describe_held(self.parts)

    def known_interests(self) -> list[str]:
        """The advertisements and subscriptions that the brokers here know, by their names."""
        tables = [(m.interests.advertisements, m.interests.subscriptions) for m in self._machines()]
        return [entry.id for both in tables for table in both for entry in table]

    def _state_name(self) -> str:
        if self._has_stopped:
            return "stopped"
        if self.leaving.is_under_way:
            return "stopping"
        if len(self.parts.takeovers):
            return "taking up"
        if not self.me.is_ready:
            return self.joining.state_name
        if not self.parts.playing.brokers:
            return "standby"
        is_cut = any(
            machine.neighbours.parent is not None
            and machine.neighbours.parent.link is None
            and machine.neighbours.parent.node not in self.parts.playing.brokers
            for machine in self._machines()
        )
        return "cut off from its parent" if is_cut else "operational"

    def _machines(self) -> list[Machine]:
        return [played.machine for played in self.parts.playing.brokers.values()]

    def unfinished(self) -> list[str]:
        """What is under way here, in words; nothing, once everything is stable."""
        texts = []
        if not self.me.is_ready:
            texts.append("has not joined")
        for takeover in self.parts.takeovers:
            missing = [border for border, _ in self.parts.takeovers.missing(takeover.region)]
            texts.append(f"{sorted(takeover.region)} to be taken up, {missing} missing")
        if not self.parts.announcements.are_heard:
            texts.append("not all around have heard what was taken up")
        for machine in self._machines():
            if machine.publications.unstable:
                texts.append(f"{machine.node}: {machine.publications.unstable} unstable")
            if len(machine.requests):
                texts.append(f"{machine.node}: {len(machine.requests)} operations unconfirmed")
            texts.extend(
                f"{machine.node}: {neighbour.node} is not connected"
                for neighbour in machine.neighbours.all()
                if neighbour.link is None
                and neighbour.node not in self.parts.playing.brokers
                and not is_client(neighbour)
            )
        return texts

    def _on_status_request(self, connection: Connection) -> None:
        report = report_within(self.me.limits.report_bytes_max, self.status())
        self.parts.connections.send(connection, StatusReply(report=report))


def _is_line(connection: Connection) -> bool:
    return connection.state in _LINES


_BETWEEN_BATCHES: Final = frozenset(
    {Progress, Heartbeat, Seating, Goodbye, Probe, ProbeReply, Announce, Announced, AttachRequest}
)
