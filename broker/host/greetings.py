"""Greetings: who comes to which broker, and what it is answered.

Whoever needs a broker dials the host that plays it, or that is going to by what it knows, and says
`Hello`. Nothing else is said before the answer, but heartbeats: `Welcome`, if the broker is played
there; `AttachRequest`, if it is being taken up; or where to look instead.
"""

import attrs

from plait.broker.host.clients import Clients, digest_of
from plait.broker.host.connections import Connection
from plait.broker.host.dialling import ToBroker, ToVisit
from plait.broker.host.doubts import Sign
from plait.broker.host.doubts import Standing as DoubtStanding
from plait.broker.host.link_states import LinkState
from plait.broker.host.parts import Parts
from plait.broker.host.returning import Returns
from plait.broker.machine.machine import Machine
from plait.broker.machine.names import named_like_a_broker
from plait.broker.machine.neighbours import Below, Neighbour
from plait.broker.messages import (
    PROTOCOL_VERSION,
    AttachRequest,
    GoodbyeCode,
    Hello,
    HostPlace,
    Life,
    NodeKind,
    Probe,
    Seat,
    Seating,
    Welcome,
)
from plait.broker.principals import objection_to
from plait.faulttol.steplog import Standing, Taken
from plait.routing.ids import NodeId


class Greetings:
    """What a host says to whoever comes, and what it says when it comes itself."""

    def __init__(self, parts: Parts) -> None:
        """Greet on behalf of a host."""
        self._parts = parts
        self._waiting: list[Connection] = []
        """Who wants a broker that is not played here, and may be."""
        self.returns = Returns(parts, join_line=self.join_line, greet_again=self.greet_again)

    # --- who comes ----------------------------------------------------------------------------

    def on_hello(self, connection: Connection, hello: Hello, objection: str | None = None) -> None:
        """Somebody says who it is; there may be an objection by the rules."""
        parts = self._parts
        me = parts.me
        connection.hello = hello
        if hello.version != PROTOCOL_VERSION:
            reason = f"protocol version {hello.version}, {PROTOCOL_VERSION} expected"
            self._refuse(connection, reason)
        elif (objection := objection or self._objection_at_door(connection, hello)) is not None:
            self._refuse(connection, objection)
        elif hello.kind is NodeKind.MONITOR:
            connection.kind, connection.state = NodeKind.MONITOR, LinkState.TO_MONITOR
            self._welcome(connection, me.name, 0)
        elif (objection := self._objection_to(hello)) is not None:
            self._refuse(connection, objection)
        elif self._may_be_somebody_else(hello):
            self._send_elsewhere(connection, f"another process may be {hello.host}")
        elif hello.kind is NodeKind.HOST:
            self._greet_host(connection, hello)
        else:
            connection.peer, connection.kind = hello.node, hello.kind
            connection.life = Life(hello.host, hello.incarnation)
            connection.term, connection.absent_s = hello.term, hello.absent_ms / 1000
            if hello.kind is NodeKind.BROKER:
                self._note_life(connection.life, hello.address)
            self._greet(connection, hello)

    def _objection_at_door(self, connection: Connection, hello: Hello) -> str | None:
        """Why this may not be who has come through that door, or not in this life."""
        claimed = objection_to(connection.caller, hello.kind, hello.node, hello.host)
        return claimed or self._parts.clients.objection_to(hello)

    def _objection_to(self, hello: Hello) -> str | None:
        """Why somebody is not the one that it says, if that is certain."""
        parts = self._parts
        known = self._namesake_of(hello)
        if known is None or not self._is_heard(known):
            return None
        if hello.kind is NodeKind.HOST:
            if known.incarnation != hello.incarnation:
                return None
            return f"another process is {known.host}, incarnation {known.incarnation}"
        broker = parts.seats.seat_of(known.host)
        plays = broker is not None and not broker.left and broker.life == known
        if hello.known_term or hello.incarnation > known.incarnation or not plays:
            return None
        return named_like_a_broker(known.host, NodeKind.BROKER)

    def _may_be_somebody_else(self, hello: Hello) -> bool:
        """Whether a host has the name and the life of one that is known elsewhere.

        Either that one does not live any more, or there are two of them. Look which it is: whoever
        comes is to come again, and then it may be certain.
        """
        known = self._namesake_of(hello)
        is_same = known == Life(hello.host, hello.incarnation)
        if known is None or hello.kind is not NodeKind.HOST or not is_same:
            return False
        self._parts.doubts.note(known, Sign.LOST, self._parts.me.now)
        return True

    def _namesake_of(self, hello: Hello) -> Life | None:
        """Who is known by the name of a process that comes, and is somewhere else."""
        seats = self._parts.seats
        place = seats.place_of(hello.host)
        is_process = hello.kind in (NodeKind.HOST, NodeKind.BROKER)
        if not is_process or place is None or place.address == hello.address:
            return None
        life = Life(place.host, place.incarnation)
        return None if seats.has_failed(life) else life

    def _is_heard(self, life: Life) -> bool:
        """Whether it is certain that somebody lives: this host, or whoever it has just heard."""
        parts = self._parts
        timeout_s = parts.me.limits.heartbeat_timeout_s
        is_here = life == parts.me.life
        return is_here or parts.doubts.has_heard(life, parts.me.now, within_s=timeout_s)

    def send_away(self, connection: Connection) -> None:
        """Somebody has waited for too long: others may know more."""
        self._send_elsewhere(connection, "nothing is known here")

    def greet_waiting(self) -> None:
        """Look again at those whose broker was not played here."""
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            is_waiting = connection.state is LinkState.AWAITING_HELLO
            if self._parts.connections.is_open(connection) and is_waiting:
                assert connection.hello is not None
                self._greet(connection, connection.hello)

    def greet_again(self, connection: Connection) -> None:
        """Answer a greeting once more, as if it had just come."""
        assert connection.hello is not None
        connection.state = LinkState.AWAITING_HELLO
        self._greet(connection, connection.hello)

    def _greet(self, connection: Connection, hello: Hello) -> None:
        parts = self._parts
        broker = self._wanted(hello)
        if broker is None and parts.me.is_ready:
            self._send_elsewhere(connection, f"{parts.me.name} plays nothing")
            return
        played = None if broker is None else parts.playing.brokers.get(broker)
        if broker is None or (played is not None and not played.machine.has_joined):
            self._waiting.append(connection)  # nothing is known here yet
            return
        connection.node = broker
        if played is None:
            self._greet_for_another(connection, hello, broker)
            return
        own = parts.seats.seat_of(hello.node)
        if hello.kind is NodeKind.BROKER and own is not None and not _is_later(hello.term, own):
            self._send_elsewhere(connection, f"{hello.node} is played by {own.host}")
            return
        if hello.kind is NodeKind.BROKER and not self._is_beside(hello.node, broker):
            self._send_elsewhere(connection, f"{hello.node} has its place elsewhere")
            return
        if hello.kind is NodeKind.BROKER and not hello.known_term and _is_taken(own, connection):
            # Who is there already, and has lost its memory, is told so.
            self._send_elsewhere(connection, f"{hello.node} is there already")
            return
        if hello.known_term > played.term:
            self._send_elsewhere(connection, f"{broker} is played in a later term elsewhere")
            return
        machine = played.machine
        known = machine.neighbours.named(hello.node)
        if known is not None and self._is_session(known, hello):
            self._go_on(connection, hello, machine, known)
        elif not machine.has_joined:
            self._waiting.append(connection)  # it may be refused itself
        else:
            self._take_in(connection, hello, machine, played.term)

    def _is_beside(self, node: NodeId, broker: NodeId) -> bool:
        """Whether a broker that comes to another one is its neighbour, or not in the tree yet."""
        seats = self._parts.seats
        is_below = not seats.is_there(node) or seats.parent_of(node) == broker
        return is_below or seats.parent_of(broker) == node

    def _wanted(self, hello: Hello) -> NodeId | None:
        """The broker that somebody means, or whichever is here."""
        parts = self._parts
        if hello.to:
            return NodeId(hello.to)
        if parts.me.name in parts.playing.brokers:
            return parts.me.name
        return next(iter(sorted(parts.playing.brokers)), None)

    def _greet_for_another(self, connection: Connection, hello: Hello, broker: NodeId) -> None:
        """The broker is not played here: it is being taken up, or somebody else has it."""
        parts = self._parts
        seat = parts.seats.seat_of(broker)
        if seat is None and not parts.me.is_ready:
            self._waiting.append(connection)  # it may be heard of in a moment
        elif seat is None:
            self._send_elsewhere(connection, f"no broker {broker} is known here")
        elif parts.takeovers.of(broker) is not None:
            if parts.takeovers.is_certain(broker) and self._may_attach(hello, broker):
                connection.state = LinkState.ATTACHED
                parts.connections.send(connection, self._news_for(connection))
                parts.connections.send(connection, self._attach_request(broker))
            else:
                self._waiting.append(connection)  # it may live, or more be known of it in a moment
        elif parts.seats.is_lost(broker, doubted := parts.doubts.doubted()):
            region = parts.seats.region_of(broker, doubted)
            host = parts.seats.coordinator(region, doubted)
            life = None if host is None else parts.seats.life_of(host)
            self._look_oneself(connection, life, f"{broker} is taken up by {host}")
        elif seat.term > hello.known_term:
            self._send_elsewhere(connection, f"{broker} is played by {seat.host}")
        else:
            self._look_oneself(connection, seat.life, f"{broker} is played by {seat.host}")

    def _may_attach(self, hello: Hello, broker: NodeId) -> bool:
        """Whether somebody is the one that the step logs of a broker name, if they name it.

        Who is not may have begun a later session there, of which these logs do not tell yet. So it
        is not listened to before they do, and not refused before the broker is played.
        """
        key = digest_of(hello.past.secret)
        return not hello.known_term or self._parts.takeovers.is_own((hello.node, broker), key)

    def _look_oneself(self, connection: Connection, life: Life | None, reason: str) -> None:
        """Whoever comes thinks that a host has failed which is to be gone to instead.

        See whether it has, and let that wait.
        """
        parts = self._parts
        now, within_s = parts.me.now, parts.me.limits.heartbeat_interval_s
        if life is None or parts.doubts.has_heard(life, now, within_s=within_s):
            self._send_elsewhere(connection, reason)
            return
        if parts.doubts.standing_of(life) is DoubtStanding.TRUSTED:
            parts.doubts.note(life, Sign.LOST, now)
        self._waiting.append(connection)

    def _send_elsewhere(self, connection: Connection, reason: str) -> None:
        seating = self._parts.seats.everything()
        self._parts.connections.close(connection, GoodbyeCode.ELSEWHERE, reason, seating=seating)

    def _refuse(self, connection: Connection, reason: str) -> None:
        self._parts.connections.close(connection, GoodbyeCode.REFUSED, reason)

    @staticmethod
    def _is_session(known: Neighbour, hello: Hello) -> bool:
        """Whether a neighbour means the past that it has here.

        A client that was taken in may have been cut off before it heard so: then it does not know
        of that, nor its secret.
        """
        if not isinstance(known, Below) or known.kind is not NodeKind.CLIENT:
            return hello.kind is NodeKind.BROKER and hello.known_term > 0
        return (
            hello.kind is NodeKind.CLIENT
            and known.incarnation == hello.incarnation
            and hello.known_term > 0
            and (known.has_joined or Clients.knows_secret(hello, known.key))
        )

    def _go_on(
        self, connection: Connection, hello: Hello, machine: Machine, known: Neighbour
    ) -> None:
        """A neighbour is back on a new connection: go on where the old one ended."""
        parts = self._parts
        is_client = hello.kind is NodeKind.CLIENT
        if is_client:
            assert isinstance(known, Below)
            if not parts.clients.knows_secret(hello, known.key):
                reason = f"a session of {hello.node} is not gone on with without its secret"
                self._refuse(connection, reason)
                return
            if known.is_detached:
                # It was away when its broker failed, so nobody has said yet what it has.
                connection.state = LinkState.ATTACHED
                parts.connections.send(connection, self._attach_request(machine.node))
                return
            if known.is_away:
                self.returns.begin(connection, hello.taken, machine, known)
                return
            if self.returns.replace(connection, hello.taken, machine, known):
                return
        elif hello.kind is NodeKind.BROKER:
            self.note_term(machine, known, hello.term)
        self.join_line(connection, hello.taken, known, hello.era)

    def join_line(self, connection: Connection, taken: int, known: Neighbour, era: int = 0) -> None:
        """Welcome a neighbour, and send it whatever it has not taken.

        Of two that are not in the same era, the one behind begins anew.
        """
        parts = self._parts
        played = parts.playing.brokers[connection.node]
        known = parts.playing.catch_up(played.machine, known, era, taken, parts.me.now)
        resumed = era == known.era
        is_client = connection.kind is NodeKind.CLIENT
        state = LinkState.TO_CLIENT if is_client else LinkState.TO_BROKER
        parts.connections.become_line(connection, state)
        connection.telling = parts.library.telling(None if is_client else connection.life)
        parts.clients.note_there(connection.node, connection.peer)
        connection.hello = None
        self._welcome(
            connection,
            played.node,
            played.term,
            resumed=resumed,
            taken=known.taken if resumed else 0,
            era=known.era,
        )
        parts.playing.resume(connection, taken if resumed else 0)

    def _take_in(self, connection: Connection, hello: Hello, machine: Machine, term: int) -> None:
        """Somebody new stands below a broker from now on; whether it may, the others are asked."""
        parts = self._parts
        if parts.me.is_stopping:
            reason = f"{parts.me.name} is stopping"
            parts.connections.close(connection, GoodbyeCode.SHUTTING_DOWN, reason)
            return
        if not machine.has_joined:
            self._waiting.append(connection)
            return
        limits = parts.me.limits
        is_client = hello.kind is NodeKind.CLIENT
        clients = sum(n.kind is NodeKind.CLIENT for n in machine.neighbours.below.values())
        if is_client and clients >= limits.clients_max:
            reason = f"{machine.node} has {limits.clients_max} clients, and no room"
            parts.connections.close(connection, GoodbyeCode.DECLINED, reason)
            return
        self._supersede(connection, hello, machine)
        objection = machine.names.objection_to(
            hello.node, hello.kind, hello.incarnation, hello.past.published
        )
        if objection is not None:
            line = parts.connections.line(machine.node, hello.node)
            on_its_way_until = connection.opened_at + limits.heartbeat_interval_s / 2
            if line is not None and line.heard_at <= on_its_way_until:
                # Perhaps it is a connection that has ended: whoever has that name may say so, later
                # than what it had said before.
                self._waiting.append(connection)
            else:
                self._refuse(connection, objection)
            return
        before = machine.neighbours.below.get(hello.node)
        if before is not None:
            reason = f"replaced by incarnation {hello.incarnation}"
            parts.playing.decide(machine, Taken.GONE, before, reason, parts.me.now)
        # A client that has been here goes on behind what was taken of it.
        left_off = machine.names.left_off(hello.node, hello.incarnation) if is_client else None
        published, taken = left_off or (hello.past.published, 0)
        secret = parts.clients.new_secret() if is_client else ""
        standing = Standing(
            kind=hello.kind.value,
            incarnation=hello.incarnation if is_client else 0,
            key=digest_of(secret),
            published=published,
        )
        parts.playing.welcome(machine, hello.node, standing)
        state = LinkState.TO_CLIENT if is_client else LinkState.TO_BROKER
        parts.connections.become_line(connection, state)
        connection.telling = parts.library.telling(None if is_client else connection.life)
        connection.hello = None
        parts.clients.note_there(machine.node, hello.node)
        # Where to look if this connection ends has to be known as early as possible.
        news = self._news_for(connection)
        connection.seats_told, connection.seats_around = parts.seats.version, news
        parts.connections.send(connection, news)
        self._welcome(connection, machine.node, term, taken=taken, secret=secret)
        parts.playing.resume(connection, 0)

    def _news_for(self, connection: Connection) -> Seating:
        """What whoever comes has to know of who plays what."""
        seats = self._parts.seats
        if connection.kind is NodeKind.CLIENT:
            return seats.around(connection.node, self._parts.me.settings.delta + 1)
        return seats.everything()

    def _supersede(self, connection: Connection, hello: Hello, machine: Machine) -> None:
        """Who was about to join, and begins once more, has lost the connection before it knew."""
        parts = self._parts
        known = machine.neighbours.below.get(hello.node)
        line = parts.connections.line(machine.node, hello.node)
        is_same = line is not None and line.life == connection.life
        if known is not None and not known.has_joined and line is not None and is_same:
            parts.connections.close(line, GoodbyeCode.LEFT, "replaced by a new connection")
            parts.playing.disconnect(machine, known)

    def seat(self, connection: Connection) -> None:
        """A broker below begins to speak: from then on it has a seat, whatever becomes of it."""
        if connection.kind is NodeKind.BROKER:
            self.seat_below(connection.node, connection.peer, connection.term, connection.life)

    def seat_below(self, parent: NodeId, broker: NodeId, term: int, life: Life) -> None:
        """Give a broker its seat below one that is played here, if it stands there and has none."""
        seats, machine = self._parts.seats, self._parts.playing.machine(parent)
        if machine is None or broker not in machine.neighbours.below:
            return
        if not seats.is_there(broker):
            seats.put(
                Seat(
                    broker=broker,
                    parent=parent,
                    term=max(term, 1),
                    host=life.host,
                    incarnation=life.incarnation,
                )
            )

    # --- hosts --------------------------------------------------------------------------------

    def _greet_host(self, connection: Connection, hello: Hello) -> None:
        """A host that plays nothing, or wants to know something."""
        parts = self._parts
        connection.kind, connection.state = NodeKind.HOST, LinkState.TO_HOST
        connection.peer = hello.host
        connection.life = Life(hello.host, hello.incarnation)
        self._note_life(connection.life, hello.address)
        # Whoever does not know yet that others have taken over from it hears it before all else.
        connection.seats_told = parts.seats.version
        parts.connections.send(connection, parts.seats.everything())
        self._welcome(connection, parts.me.name, 0)

    def _note_life(self, life: Life, address: str) -> None:
        """Whoever greets lives, there; a life before that one does not."""
        parts = self._parts
        known = parts.seats.place_of(life.host)
        if known is not None and known.incarnation < life.incarnation:
            old = Life(known.host, known.incarnation)
            parts.doubts.note(old, Sign.REPLACED, parts.me.now)
        if known is None or known.incarnation < life.incarnation:
            place = HostPlace(
                host=life.host,
                incarnation=life.incarnation,
                address=address,
                site=known.site if known else "",
                rank=known.rank if known else 0,
            )
            parts.seats.learn(Seating(hosts=(place,)))
        parts.doubts.heard(life, parts.me.now)

    def _welcome(
        self,
        connection: Connection,
        node: NodeId,
        term: int,
        *,
        resumed: bool = False,
        taken: int = 0,
        secret: str = "",
        era: int = 0,
    ) -> None:
        me = self._parts.me
        welcome = Welcome(
            node=node,
            term=term,
            host=me.name,
            incarnation=me.incarnation,
            settings=me.settings,
            heartbeat_interval_ms=me.limits.heartbeat_interval_ms,
            heartbeat_timeout_ms=me.limits.heartbeat_timeout_ms,
            resumed=resumed,
            taken=taken,
            secret=secret,
            era=era,
        )
        self._parts.connections.send(connection, welcome)

    # --- where this host comes ------------------------------------------------------------------

    def say_hello(self, connection: Connection) -> None:
        """A connection that this host dialled has come about."""
        match connection.purpose:
            case ToBroker(node, broker):
                hello = self._hello_of_broker(connection, node, broker)
            case ToVisit():
                hello = self.hello(NodeKind.HOST, self._parts.me.name)
            case _:
                raise AssertionError(f"{connection.purpose} is not a purpose")
        connection.state = LinkState.AWAITING_WELCOME
        self._parts.connections.send(connection, hello)

    def hello(self, kind: NodeKind, node: NodeId) -> Hello:
        """What this host says of itself."""
        me = self._parts.me
        return Hello(
            version=PROTOCOL_VERSION,
            node=node,
            kind=kind,
            incarnation=me.incarnation,
            host=me.name,
            address=me.address,
        )

    def _hello_of_broker(self, connection: Connection, node: NodeId, broker: NodeId) -> Hello:
        """A broker that is played here needs a neighbour."""
        parts = self._parts
        played = parts.playing.brokers[node]
        known = played.machine.neighbours.named(broker)
        seat = parts.seats.seat_of(broker)
        assert known is not None
        connection.node, connection.peer, connection.kind = node, broker, NodeKind.BROKER
        return attrs.evolve(
            self.hello(NodeKind.BROKER, node),
            to=broker,
            term=played.term,
            known_term=seat.term if seat is not None else 0,
            taken=known.taken,
            era=known.era,
        )

    def on_welcome(self, connection: Connection, welcome: Welcome) -> None:
        """Whom this host came to is there."""
        parts = self._parts
        connection.life = Life(welcome.host, welcome.incarnation)
        parts.doubts.heard(connection.life, parts.me.now)
        assert connection.purpose is not None
        parts.dialling.succeeded(connection.purpose)
        match connection.purpose:
            case ToVisit(life):
                self._on_visited(connection, life)
            case ToBroker(node, broker):
                self._on_neighbour(connection, node, broker, welcome)

    def _on_visited(self, connection: Connection, life: Life) -> None:
        parts = self._parts
        connection.kind, connection.state = NodeKind.HOST, LinkState.TO_HOST
        if connection.life != life:
            parts.doubts.note(life, Sign.REPLACED, parts.me.now)
        lives = parts.takeovers.questions_for(connection.life.host)
        if lives:
            parts.connections.send(connection, Probe(lives=tuple(sorted(lives, key=str))))
        # Nobody else may tell it what is to be taken up here.
        if not (self.ask_about_given_up(connection) or lives):
            parts.connections.close(connection, GoodbyeCode.LEFT, "visited")

    def ask_about_given_up(self, connection: Connection) -> bool:
        """Tell a host what is to be taken up here, and ask of what it has given up itself.

        Returns whether there was anything to ask.
        """
        parts = self._parts
        connection.seats_told = parts.seats.version
        parts.connections.send(connection, parts.seats.everything())
        brokers = parts.takeovers.given_up_by(connection.life)
        for broker in brokers:
            parts.connections.send(connection, self._attach_request(broker))
        return bool(brokers)

    def _attach_request(self, broker: NodeId) -> AttachRequest:
        log = self._parts.library.log_of(broker)
        return AttachRequest(broker=broker, known_term=log.term, known_step=log.last)

    def _on_neighbour(
        self, connection: Connection, node: NodeId, broker: NodeId, welcome: Welcome
    ) -> None:
        """The broker that one played here needs is played there."""
        parts = self._parts
        played = parts.playing.brokers.get(node)
        if played is None or welcome.node != broker:
            parts.connections.close(connection, GoodbyeCode.LEFT, "not needed any more")
            return
        if welcome.term <= parts.sealed.get((node, broker), 0):
            reason = f"{broker} is listened to from term {welcome.term + 1} on"
            parts.connections.close(connection, GoodbyeCode.LEFT, reason)
            return
        known = played.machine.neighbours.named(broker)
        assert known is not None
        self._note_seat(welcome)
        if not welcome.resumed and played.machine.has_joined:
            era = max(welcome.era, known.era + 1)
            known = parts.playing.begin_anew(played.machine, known, era, parts.me.now)
            parts.terms[node, broker] = welcome.term
        self.note_term(played.machine, known, welcome.term)
        parts.connections.become_line(connection, LinkState.TO_BROKER)
        connection.telling = parts.library.telling(connection.life)
        parts.playing.resume(connection, welcome.taken)

    def _note_seat(self, welcome: Welcome) -> None:
        """Who answers for a broker plays it: that may be news."""
        seats = self._parts.seats
        seat = seats.seat_of(welcome.node)
        if seat is not None and seat.term < welcome.term:
            seats.put(
                attrs.evolve(
                    seat,
                    term=welcome.term,
                    host=welcome.host,
                    incarnation=welcome.incarnation,
                    is_vacant=False,
                    taker="",
                )
            )

    def note_term(self, machine: Machine, neighbour: Neighbour, term: int) -> None:
        """A neighbour speaks in this term; if that is new, it is asked again what is open."""
        parts = self._parts
        key = (machine.node, neighbour.node)
        if parts.terms.get(key, term) < term:
            parts.playing.ask_again(machine, neighbour)
        parts.terms[key] = term


def _is_later(term: int, seat: Seat) -> bool:
    """Whether a broker may speak in a term: one that has left comes back in a later one."""
    return term > seat.term if seat.left else term >= seat.term


def _is_taken(seat: Seat | None, connection: Connection) -> bool:
    return seat is not None and not seat.left and seat.life != connection.life
