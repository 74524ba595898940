"""What follows when hosts fail, come back, and give brokers up: looked at whenever knowledge grows.

Nothing here remembers what it has told or asked: whoever is asked by mistake answers with what it
knows, and then all is looked at again.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from plait.broker.effects import Level
from plait.broker.host.attaching import attachment_messages
from plait.broker.host.brought import Border
from plait.broker.host.clients import digest_of
from plait.broker.host.connections import Connection
from plait.broker.host.dialling import ToBroker, ToVisit
from plait.broker.host.doubts import Sign, Standing
from plait.broker.host.greetings import Greetings
from plait.broker.host.link_states import LinkState
from plait.broker.host.parts import Parts
from plait.broker.host.takeover import Takeover
from plait.broker.machine.attachments import Attachment, attach, testimony
from plait.broker.machine.joining import reattach
from plait.broker.machine.machine import Departure, Machine, can_begin_anew
from plait.broker.machine.neighbours import Above, Below, Neighbour, is_client
from plait.broker.machine.rebuild import (
    PIECES_AT_ONCE,
    ContradictionError,
    Rebuilding,
    TooManyFailedError,
)
from plait.broker.messages import AttachRequest, GoodbyeCode, Life, NodeKind, Probe, Seat, Seating
from plait.faulttol.steplog import Taken
from plait.routing.ids import NodeId


class Failover:
    """The failures around one host."""

    def __init__(
        self, parts: Parts, greetings: Greetings, ask_for: Callable[[NodeId, NodeId], None]
    ) -> None:
        """Begin with nobody failed; `ask_for` wishes that a broker be played by another host."""
        self._ask_for = ask_for
        self._parts = parts
        self._greetings = greetings
        self._seen: tuple[int, ...] = ()
        """The versions of everything at the last review."""
        self._review_at: float | None = None

    # --- visits -------------------------------------------------------------------------------

    def visit(self, life: Life) -> None:
        """Ask a host whether it lives."""
        parts = self._parts
        place = parts.seats.place_of(life.host)
        is_asked = any(
            connection.purpose == ToVisit(life)
            for connection in parts.connections.with_state(LinkState.AWAITING_WELCOME)
        )
        if place is not None and place.incarnation == life.incarnation and not is_asked:
            parts.dialling.dial(ToVisit(life), place.address, parts.me.now)

    def ask(self, life: Life, lives: frozenset[Life]) -> None:
        """Ask a host of whom it has heard, over a connection that is there, or a new one."""
        parts = self._parts
        for connection in parts.connections.with_state(LinkState.TO_BROKER, LinkState.TO_HOST):
            if connection.life == life:
                probe = Probe(lives=tuple(sorted(lives, key=str)))
                parts.connections.send(connection, probe)
                return
        self.visit(life)

    def on_dial_failed(
        self, purpose: ToBroker | ToVisit, address: str, *, is_refused: bool
    ) -> None:
        """Nobody answers there."""
        parts = self._parts
        me = parts.me
        parts.dialling.pause(purpose, address, me.now)
        match purpose:
            case ToVisit(life):
                lives = [life]
            case ToBroker():
                lives = [life for life in self._lives() if self._listens_at(life, address)]
        for life in lives:
            parts.doubts.note(life, Sign.REFUSED if is_refused else Sign.LOST, me.now)

    def _lives(self) -> list[Life]:
        seats = self._parts.seats
        return [life for life in map(seats.life_of, seats.hosts()) if life is not None]

    def _listens_at(self, life: Life, address: str) -> bool:
        place = self._parts.seats.place_of(life.host)
        return place is not None and place.address == address

    def on_unanswered(self, connection: Connection, purpose: ToBroker | ToVisit) -> None:
        """A connection has ended before it was answered."""
        self.on_dial_failed(purpose, connection.dialled, is_refused=False)
        self.look_again_at(self._parts.me.now)

    def on_sent_elsewhere(self, connection: Connection) -> None:
        """Whoever was asked is not the one; what it knows it has told."""
        parts = self._parts
        if isinstance(connection.purpose, ToBroker):
            until = parts.dialling.pause(connection.purpose, connection.dialled, parts.me.now)
            self.look_again_at(until)

    # --- what is known ------------------------------------------------------------------------

    @property
    def is_vulnerable(self) -> bool:
        """Whether a failure is not over, so that one more would count in addition."""
        return bool(len(self._parts.takeovers) or not self._parts.announcements.are_heard)

    def learn(self, seating: Seating) -> None:
        """Somebody tells who plays what."""
        parts = self._parts
        if not parts.seats.learn(seating):
            return
        for node, played in list(parts.playing.brokers.items()):
            seat = parts.seats.seat_of(node)
            if seat is None or seat.term < played.term:
                continue  # that is about what was before
            if seat.life != parts.me.life or seat.is_vacant:
                self._give_up(node)

    def _give_up(self, node: NodeId) -> None:
        """Somebody else plays a broker of this host, or is going to."""
        parts = self._parts
        played = parts.playing.brokers[node]
        reason = f"{node} is played elsewhere"
        for neighbour in played.machine.neighbours.all():
            line = parts.connections.line(node, neighbour.node)
            if line is not None:
                seating = parts.seats.around(node, parts.me.settings.delta + 1)
                parts.connections.close(line, GoodbyeCode.ELSEWHERE, reason, seating=seating)
        # What was told of it goes on from there, until somebody tells of the next term.
        parts.library.keep(node, played.machine.steps.log)
        parts.playing.give_up(node)
        parts.clients.forget_broker(node)
        step = played.machine.steps.number
        parts.outbox.record(
            "given_up", broker=node, host=parts.me.name, term=played.term, step=step
        )
        parts.outbox.log(Level.WARNING, "given up", broker=node, term=played.term)

    # --- review -------------------------------------------------------------------------------

    def review(self) -> None:
        """See what there is to do, if anything has changed, or it is time."""
        parts = self._parts
        now = parts.me.now
        is_due = self._review_at is not None and now >= self._review_at
        for _ in range(_ROUNDS):
            seen = (
                parts.seats.version,
                parts.doubts.version,
                parts.playing.version,
                parts.connections.version,
            )
            if seen == self._seen and not is_due:
                break
            self._seen, self._review_at, is_due = seen, None, False
            self._review_once(now)

    def _review_once(self, now: float) -> None:
        parts = self._parts
        if parts.me.settings.delta:
            self._hang_up_on_the_doubted()
            self._bury_who_plays_nothing()
            parts.takeovers.review(now)
            for region in parts.takeovers.regions():
                takeover = parts.takeovers.of(next(iter(region)))
                assert takeover is not None
                self._go_on(takeover, now)
        self._visit_again(now)
        self._greetings.greet_waiting()
        self._end_visits()
        self._call_to_attach()
        self._look_for_neighbours(now)
        parts.announcements.advance()
        if len(parts.takeovers):
            self.look_again_at(now + parts.me.limits.visit_timeout_s)

    def _visit_again(self, now: float) -> None:
        """Go on visiting whoever does not answer, whenever a pause between dials is over.

        A process that is killed may still take a connection, and reset it: that proves nothing. The
        next one is refused.
        """
        dialling = self._parts.dialling
        for life in self._parts.doubts.unanswering():
            self.visit(life)
            wake = dialling.wake_at(now)
            if wake is not None and not dialling.is_wanted(ToVisit(life)):
                self.look_again_at(wake)

    def look_again_at(self, time: float) -> None:
        """Review then, whether or not anything changes."""
        self._review_at = time if self._review_at is None else min(time, self._review_at)

    def wake_at(self) -> float | None:
        """When there is to be a review."""
        return self._review_at

    def _hang_up_on_the_doubted(self) -> None:
        """Whoever seems to have failed is not listened to while that is so."""
        parts = self._parts
        doubted = parts.doubts.doubted()
        if not doubted:
            return
        for connection in parts.connections.with_state(LinkState.TO_BROKER, LinkState.TO_HOST):
            if connection.life in doubted:
                self.hang_up(connection, "does not answer")

    def _bury_who_plays_nothing(self) -> None:
        """Nobody takes up anything of a host that stood by: others hear only so that it has failed.

        They would ask it to take up what fails next; and it is known for ever by those who do not.
        """
        seats, doubts = self._parts.seats, self._parts.doubts
        idle = [
            life
            for life in sorted(doubts.proven(), key=str)
            if seats.life_of(life.host) == life and not seats.played_by(life)
        ]
        if idle:
            seats.learn(Seating(failed=tuple(idle), proven=tuple(idle)))
        doubts.forget_but(seats.named())

    def drop(self, machine: Machine, client: Below, reason: str) -> None:
        """A client is gone for good and did not take its leave."""
        parts = self._parts
        now = parts.me.now
        millis = round(1000 * parts.clients.behind_s(machine, client, now), 3)
        parts.outbox.record("suspected", about=client.node, members=[machine.node], millis=millis)
        parts.clients.isolated += 1
        parts.playing.decide(machine, Taken.GONE, client, reason, now)

    def on_admitted(self, machine: Machine, node: NodeId) -> None:
        """Somebody has joined: nobody has objected to its name."""
        parts = self._parts
        line = parts.connections.line(machine.node, node)
        millis = 0.0 if line is None else round(1000 * line.absent_s, 3)
        parts.outbox.record("joined", about=node, members=[machine.node], millis=millis)

    def on_departure(self, machine: Machine, departure: Departure) -> None:
        """A neighbour is none any more: it has left, was refused, or was given up."""
        parts = self._parts
        node, reason = departure.node, departure.reason
        parts.losses.give_up(departure.owed, node, reason)
        parts.clients.forget(machine.node, node)
        seat = parts.seats.seat_of(NodeId(node))
        if seat is not None and seat.parent == machine.node and not seat.left:
            parts.seats.leave(node)
        line = parts.connections.line(machine.node, node)
        if line is None:
            return
        if line.state is LinkState.TO_CLIENT and line.life.incarnation != departure.incarnation:
            return  # of a later life
        if line.state is LinkState.TO_BROKER and not reason:
            parts.connections.end_line(line)
            return
        code = GoodbyeCode.ISOLATED if reason else GoodbyeCode.LEFT
        parts.connections.close(line, code, reason or f"{node} left")

    def hang_up(self, connection: Connection, reason: str) -> None:
        """End a connection to a neighbour from this side."""
        self._parts.connections.close(connection, GoodbyeCode.LEFT, reason)
        self.on_line_lost(connection)

    def on_host_lost(self, connection: Connection) -> None:
        """A connection to a host has ended, which may have been asked what it has given up."""
        for takeover in self._parts.takeovers:
            if self._parts.takeovers.awaits(connection.life):
                takeover.asked_at = -math.inf
                self.look_again_at(self._parts.me.now)

    def on_line_lost(self, connection: Connection) -> None:
        """A connection has ended: the neighbour, if it led to one, has none for now."""
        parts = self._parts
        machine = parts.playing.machine(connection.node)
        known = None if machine is None else machine.neighbours.named(connection.peer)
        if machine is not None and known is not None and known.link == connection.link:
            parts.playing.disconnect(machine, known)
            if is_client(known) or not known.taken:
                parts.clients.note_absent(machine.node, known.node, parts.me.now)

    # --- taking up ----------------------------------------------------------------------------

    def _go_on(self, takeover: Takeover, now: float) -> None:
        """Do what can be done for a region: see for those who are missing, or take it up."""
        parts = self._parts
        if not parts.takeovers.has_evidence(takeover, now):
            return
        if not all(parts.takeovers.is_certain(broker) for broker in takeover.region):
            self._bury(takeover.region)  # with which all is looked at again
            return
        if now - takeover.asked_at >= parts.me.limits.visit_timeout_s:
            takeover.asked_at = now
            self._ask_missing(takeover)
        if parts.takeovers.is_complete(takeover, now):
            self._work_on(takeover)

    def _bury(self, region: frozenset[NodeId]) -> None:
        """It is certain that the hosts of a region have failed: everybody is to know."""
        parts = self._parts
        lives = parts.takeovers.failed_of(region)
        proven = [life for life in lives if life in parts.doubts.proven()]
        self.learn(Seating(failed=tuple(lives), proven=tuple(proven)))
        hosts = sorted({life.host for life in lives})
        parts.outbox.log(Level.WARNING, "buried", brokers=sorted(region), hosts=hosts)

    def _ask_missing(self, takeover: Takeover) -> None:
        """Who has not attached may not have noticed; or has failed, and the region is larger."""
        parts = self._parts
        for (node, broker), kind in parts.takeovers.missing(takeover.region):
            seat = parts.seats.seat_of(node) if kind is NodeKind.BROKER else None
            if seat is None or seat.host == parts.me.name:
                continue
            if node == broker:
                self._ask_giver(seat)
            else:
                self.ask(seat.life, parts.takeovers.lives_of(takeover.region))

    def _ask_giver(self, seat: Seat) -> None:
        """Ask the host that has given a broker up what that had done; it may not live any more."""
        parts = self._parts
        for connection in parts.connections.with_state(LinkState.TO_HOST):
            if connection.life == seat.life:
                self._greetings.ask_about_given_up(connection)
                return
        self.visit(seat.life)
        parts.doubts.note(seat.life, Sign.LOST, parts.me.now)

    def _work_on(self, takeover: Takeover) -> None:
        """Rebuild a piece of a region; when all is done, play it."""
        if takeover.obstacle:
            return
        if takeover.work is None:
            takeover.work = self._parts.takeovers.begin_rebuilding(takeover, self._parts.outbox)
        try:
            is_done = takeover.work.advance(PIECES_AT_ONCE)
        except TooManyFailedError as error:
            self._take_up_empty(takeover, takeover.work, str(error))
            return
        except ContradictionError as error:
            self._on_contradiction(takeover, takeover.work, str(error))
            return
        if is_done:
            self._take_up(takeover, takeover.work.machines, takeover.work.attachments)
        else:
            self.look_again_at(self._parts.me.now)

    def _on_contradiction(self, takeover: Takeover, work: Rebuilding, reason: str) -> None:
        """What was said of a region cannot be so: begin again without whoever alone says so."""
        parts = self._parts
        if parts.playing.observer is not None:
            parts.playing.observer.contradicted(reason)
        brokers, clients = sorted(takeover.region), parts.takeovers.set_aside(takeover, reason)
        parts.outbox.log(
            Level.ERROR, "contradiction", brokers=brokers, reason=reason, set_aside=clients
        )
        if clients:
            self.look_again_at(parts.me.now)
        else:
            self._take_up_empty(takeover, work, reason)

    def _take_up_empty(self, takeover: Takeover, work: Rebuilding, reason: str) -> None:
        """Play the brokers of a region from now on, of which nobody knows all that they did."""
        parts = self._parts
        region, attachments = takeover.region, work.attachments
        parts.outbox.log(Level.ERROR, "past lost", brokers=sorted(region), reason=reason)
        if not can_begin_anew(parts.me.settings.ordering):
            takeover.obstacle = reason
            return
        machines = parts.takeovers.begin_empty(region, attachments, parts.outbox)
        self._take_up(takeover, machines, attachments, is_empty=True)

    def _take_up(
        self,
        takeover: Takeover,
        machines: Mapping[NodeId, Machine],
        attachments: Collection[Attachment],
        *,
        is_empty: bool = False,
    ) -> None:
        """Play the brokers of a region from now on, as they were."""
        parts, region = self._parts, takeover.region
        me = parts.me
        seats = parts.takeovers.new_seats(region, me.life)
        meant_for = {broker: parts.seats.taker_of(broker) for broker in sorted(region)}
        self._suspect_missing(region)
        have_clients = parts.takeovers.with_clients(region)
        late = parts.takeovers.end(region, attachments)
        parts.seats.learn(Seating(seats=tuple(seats)))
        for seat in seats:
            machine = machines[seat.broker]
            observer = None if is_empty else parts.playing.observer
            if observer is not None and _is_as_it_was(machine, attachments):
                observer.rebuilt(machine)
            if is_empty and seat.broker in have_clients:
                until = me.now + me.limits.resume_timeout_s
                parts.playing.take_up_empty(machine, seat.term, until=until)
            else:
                parts.playing.take_up(machine, seat.term)
            self._report(machine, seat.term, attachments)
        for machine in machines.values():
            if is_empty:
                parts.playing.begin(machine, me.now)
            else:
                parts.playing.send_again(machine)
        self._join_up(machines)
        self._greet_attached(takeover, {(a.node, a.to): a for a in attachments}, late)
        parts.announcements.begin(region)
        for broker, taker in meant_for.items():
            if taker not in (None, me.name):  # they hung together with what this host was to have
                self._ask_for(broker, taker)

    def _suspect_missing(self, region: frozenset[NodeId]) -> None:
        """Clients that were waited for in vain have failed, together with their brokers."""
        parts = self._parts
        for (node, broker), kind in parts.takeovers.missing(region):
            if kind is NodeKind.CLIENT:
                millis = round(1000 * parts.takeovers.waited_for(broker, parts.me.now), 3)
                parts.outbox.record("suspected", about=node, members=[broker], millis=millis)

    def _report(self, machine: Machine, term: int, attachments: Iterable[Attachment]) -> None:
        parts = self._parts
        parts.outbox.record(
            "taken_up",
            broker=machine.node,
            host=parts.me.name,
            term=term,
            step=machine.steps.number,
        )
        around = sorted(a.node for a in attachments if a.to == machine.node)
        parts.outbox.log(
            Level.WARNING,
            "taken up",
            broker=machine.node,
            term=term,
            step=machine.steps.number,
            attached=around,
        )

    def _join_up(self, machines: Mapping[NodeId, Machine]) -> None:
        """Join what was taken up to its neighbours that are played here as well."""
        parts = self._parts
        for node, machine in machines.items():
            for neighbour in list(machine.neighbours.all()):
                other = parts.playing.machine(neighbour.node)
                if other is not None:
                    back = other.neighbours.named(node)
                    assert back is not None
                    self._seat_who_joined_here(machine, other)
                    if back.era != neighbour.era:
                        era, taken = neighbour.era, neighbour.taken
                        back = parts.playing.catch_up(other, back, era, taken, parts.me.now)
                        parts.playing.catch_up(machine, neighbour, back.era, 0, parts.me.now)
                    else:
                        # What it was told of progress, it was told in its life before.
                        other.connected(back)
                        if neighbour.node not in machines:
                            parts.playing.ask_again(other, back)
                    parts.playing.push(node, neighbour.node)
                    parts.playing.push(neighbour.node, node)
                elif isinstance(neighbour, Below) and is_client(neighbour):
                    parts.clients.note_absent(node, neighbour.node, parts.me.now)

    def _greet_attached(
        self,
        takeover: Takeover,
        attached: Mapping[Border, Attachment],
        late: Collection[Border],
    ) -> None:
        """Answer those who have said what they have, and wait."""
        parts = self._parts
        for connection in parts.connections.with_state(LinkState.ATTACHED):
            key = (connection.peer, connection.node)
            if not connection.has_attached:
                continue  # it is welcomed when it has
            if key in takeover.set_aside:
                reason = takeover.set_aside[key]
                parts.connections.close(connection, GoodbyeCode.REFUSED, reason)
            elif key in attached:
                self._welcome_back(connection, attached[key])
            elif key in late:
                self._greetings.greet_again(connection)

    def _seat_who_joined_here(self, machine: Machine, other: Machine) -> None:
        """A broker of this host was about to join the one that is taken up, and has no seat yet."""
        parts = self._parts
        term = parts.playing.brokers[other.node].term
        self._greetings.seat_below(machine.node, other.node, term, parts.me.life)

    def _welcome_back(self, connection: Connection, attachment: Attachment) -> None:
        """A node of the boundary goes on where it stopped."""
        machine = self._parts.playing.machine(connection.node)
        known = None if machine is None else machine.neighbours.named(connection.peer)
        if machine is None or known is None:
            # Nobody alive has heard that it had come: it comes anew.
            self._greetings.greet_again(connection)
            return
        if isinstance(known, Below) and known.is_detached:
            # It was away by the log: its broker was taken up without what it says.
            reattach(machine, known, attachment)
            self._greetings.returns.begin(connection, attachment.taken, machine, known)
            return
        self._greetings.join_line(connection, attachment.taken, known, attachment.era)

    def _end_visits(self) -> None:
        """Nothing more is to be heard from those who have given up what is played here now.

        But the last word of those who are leaving: that their life is over.
        """
        parts = self._parts
        for connection in parts.connections.with_state(LinkState.TO_HOST):
            if isinstance(connection.purpose, ToVisit) and not (
                parts.takeovers.questions_for(connection.life.host)
                or parts.takeovers.awaits(connection.life)
                or parts.seats.is_leaving(connection.life)
            ):
                seating = parts.seats.everything()
                parts.connections.close(connection, GoodbyeCode.LEFT, "visited", seating=seating)

    # --- attaching ----------------------------------------------------------------------------

    def _call_to_attach(self) -> None:
        """Whoever came before it was clear what becomes of its broker is to attach now."""
        parts = self._parts
        for connection in parts.connections.with_state(LinkState.ATTACHED):
            is_played = connection.node in parts.playing.brokers
            if not is_played and parts.takeovers.of(connection.node) is None:
                seating = parts.seats.everything()
                reason = f"{connection.node} is not taken up here"
                parts.connections.close(connection, GoodbyeCode.ELSEWHERE, reason, seating=seating)

    def on_attach_request(self, connection: Connection, request: AttachRequest) -> None:
        """A coordinator asks what a broker here has of a neighbour that has failed."""
        parts = self._parts
        if connection.state is LinkState.TO_HOST:
            self._testify(connection, request)
            return
        node, broker = connection.node, request.broker
        machine = parts.playing.machine(node)
        seat = parts.seats.seat_of(broker)
        if machine is None or seat is None or broker != connection.peer:
            parts.connections.close(connection, GoodbyeCode.LEFT, "not needed any more")
            return
        if not parts.seats.is_lost(broker, parts.doubts.doubted()):
            # Whoever asks has not heard of the term in which it is played: that goes on.
            reason = f"{broker} is played by {seat.host} in term {seat.term}"
            parts.connections.close(connection, GoodbyeCode.LEFT, reason)
            return
        old = parts.connections.line(node, broker)
        if old is not None and old is not connection:
            self.hang_up(old, f"{broker} is taken up elsewhere")
        parts.sealed[node, broker] = max(seat.term, parts.sealed.get((node, broker), 0))
        connection.state = LinkState.ATTACHING
        attachment = attach(machine, broker, parts.library.known())
        for message in attachment_messages(attachment, seat.term, request):
            parts.connections.send(connection, message)

    def _testify(self, connection: Connection, request: AttachRequest) -> None:
        """Say what a broker had done that this host has given up, and somebody takes up."""
        parts, broker = self._parts, request.broker
        seat = parts.seats.seat_of(broker)
        if seat is not None and seat.is_vacant and seat.life == parts.me.life:
            own = testimony(broker, parts.library.known())
            for message in attachment_messages(own, seat.term, request):
                parts.connections.send(connection, message)

    def on_testimony(self, term: int, attachment: Attachment) -> None:
        """The host that has given a broker up has said what that had done."""
        parts = self._parts
        if parts.takeovers.of(attachment.to) is not None:
            parts.takeovers.note_attachment(term, attachment, key="")
            self.look_again_at(parts.me.now)

    def on_attachment(self, connection: Connection, term: int, attachment: Attachment) -> None:
        """A node of a boundary has said what it has."""
        parts = self._parts
        machine = parts.playing.machine(connection.node)
        if machine is None:
            secret = "" if connection.hello is None else connection.hello.past.secret
            parts.takeovers.note_attachment(term, attachment, digest_of(secret))
            self.look_again_at(parts.me.now)
            return
        self._welcome_back(connection, attachment)

    # --- neighbours ---------------------------------------------------------------------------

    def _look_for_neighbours(self, now: float) -> None:
        """Dial whoever a broker that is played here needs and has no connection to."""
        for node, played in list(self._parts.playing.brokers.items()):
            for neighbour in list(played.machine.neighbours.all()):
                if not is_client(neighbour):
                    self._look_for(node, neighbour, now)

    def _look_for(self, node: NodeId, neighbour: Neighbour, now: float) -> None:
        parts = self._parts
        broker = neighbour.node
        seat = parts.seats.seat_of(broker)
        if seat is None or seat.left or broker in parts.playing.brokers:
            return
        if isinstance(neighbour, Below) and parts.seats.parent_of(broker) != node:
            self._let_go_of_who_stands_elsewhere(node, neighbour, now)
            return
        line = parts.connections.line(node, broker)
        if line is not None:
            if line.life != seat.life and line.state is LinkState.TO_BROKER:
                self.hang_up(line, f"{broker} is played by {seat.host}")
            else:
                return
        purpose = ToBroker(node, broker)
        if any(c.purpose == purpose for c in parts.connections.with_state(*_ON_THE_WAY)):
            return
        is_visited = parts.doubts.standing_of(seat.life) is Standing.VISITED
        if is_visited and not parts.seats.is_lost(broker):
            return  # it is known in a moment whether it lives
        doubted = parts.doubts.doubted()
        if parts.me.settings.delta and parts.seats.is_lost(broker, doubted):
            region = parts.seats.region_of(broker, doubted)
            host = parts.seats.coordinator(region, doubted)
        elif isinstance(neighbour, Above):
            host = seat.host
        else:
            return  # a child comes by itself
        place = None if host is None else parts.seats.place_of(host)
        if place is not None and place.host != parts.me.name:
            parts.dialling.dial(purpose, place.address, now)
            wake = parts.dialling.wake_at(now)
            if wake is not None:
                self.look_again_at(wake)

    def _let_go_of_who_stands_elsewhere(self, node: NodeId, child: Below, now: float) -> None:
        """A broker was about to join here, did not hear that it might, and has joined another."""
        machine = self._parts.playing.machine(node)
        if machine is not None and not child.has_joined:
            reason = f"{child.node} stands below {self._parts.seats.parent_of(child.node)}"
            self._parts.playing.decide(machine, Taken.GONE, child, reason, now)


def _is_as_it_was(machine: Machine, attachments: Iterable[Attachment]) -> bool:
    """Whether nobody around a broker has lost what it had of it, or it itself."""
    here = [(machine.neighbours.named(a.node), a.era) for a in attachments if a.to == machine.node]
    return all(known is None or known.era == era for known, era in here)


_ROUNDS = 8
"""One thing leads to another; what is left is looked at in a moment."""
_ON_THE_WAY = (LinkState.AWAITING_WELCOME, LinkState.ATTACHING)
