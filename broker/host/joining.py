"""How a host comes to have something to play: as the root, below somebody, or once more.

A host that begins asks its join point to let it in as a new broker. One that stands by, or was
there before, only makes itself known, and hears who plays what: if the broker of its own name is
played elsewhere, it asks for it.

If it remembers that it was at another address, it looks first whether a process is there that goes
by its name. Two of one name would fence each other for ever; so the one that comes later ends, and
says why.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs

from plait.broker.effects import BecomeReady, Level, Stop
from plait.broker.host.connections import Connection
from plait.broker.host.dialling import ToJoin, ToNamesake
from plait.broker.host.greetings import Greetings
from plait.broker.host.link_states import LinkState
from plait.broker.host.parts import Parts
from plait.broker.host.playing import Played
from plait.broker.host.seats import Seats
from plait.broker.machine.machine import Machine
from plait.broker.messages import (
    Goodbye,
    GoodbyeCode,
    HostPlace,
    Life,
    NodeKind,
    Relocate,
    Relocated,
    Seat,
    Seating,
    Welcome,
)
from plait.faulttol.steplog import Standing

_ROUNDS: Final = 2
"""In which everybody is asked before a root is the root again."""


class Joining:
    """The place of one host."""

    def __init__(
        self,
        parts: Parts,
        greetings: Greetings,
        *,
        join: str | None,
        fallbacks: Sequence[str],
        remembered: Seating | None,
        standby: int,
    ) -> None:
        """Look for a place at `join`, or any of the others."""
        self._parts = parts
        self._greetings = greetings
        self.standby = standby
        self._remembered = remembered
        self._was_there = bool(remembered and remembered.seats)
        self._is_new = not (standby or self._was_there)
        """Whether it asks to be let in as a broker that nobody knows."""
        self._candidates = list(dict.fromkeys([*filter(None, [join]), *fallbacks]))
        self._told_at_first = tuple(self._candidates)
        if remembered is not None:
            others = [p.address for p in remembered.hosts if p.host != parts.me.name]
            self._candidates = list(dict.fromkeys([*self._candidates, *others]))
        self._is_root = join is None and not self._was_there
        self._next = 0
        self._rounds = 0
        self._in_vain: Counter[str] = Counter()
        """How often in a row it has turned out at each address that nothing is played there."""
        self._site = ""
        self._dial_at: float | None = None
        self._ask_at: float | None = None
        self.is_looking = False
        self._has_begun = False

    # --- beginning ----------------------------------------------------------------------------

    def start(self) -> None:
        """Look whether another process goes by this name, where it was before."""
        me = self._parts.me
        known = self._remembered.hosts if self._remembered is not None else ()
        before = [p.address for p in known if p.host == me.name and p.address != me.address]
        if before:
            self._parts.dialling.dial(ToNamesake(), before[0], me.now)
        else:
            self.begin()

    def on_namesake(self, connection: Connection, welcome: Welcome) -> None:
        """Somebody listens where this host was before."""
        me = self._parts.me
        self._parts.connections.close(connection, GoodbyeCode.LEFT, "visited")
        if welcome.host != me.name or welcome.incarnation == me.incarnation:
            self.begin()  # it is another one, or this very process
            return
        reason = (
            f"another process is {me.name}, incarnation {welcome.incarnation}, "
            f"at {connection.dialled}"
        )
        self._parts.outbox.log(Level.ERROR, "gave up", reason=reason)
        self._parts.outbox.add(Stop(reason))

    def begin(self) -> None:
        """Be the root, or look for a place."""
        self._has_begun = True
        if self._is_root or (self._was_root() and not self._candidates):
            self._become_root()
        else:
            self.is_looking = True
            self._dial()

    def _become_root(self) -> None:
        """Begin an overlay of its own."""
        parts = self._parts
        me = parts.me
        self.is_looking = False
        machine = Machine(
            me.name, None, settings=me.settings, limits=me.limits, outbox=parts.outbox
        )
        term = self._last_term() + 1
        seat = Seat(broker=me.name, parent="", term=term, host=me.name, incarnation=me.incarnation)
        self._take_up(machine, term)
        parts.seats.learn(Seating(seats=(seat,)))
        self._become_ready()

    def _last_term(self) -> int:
        """Of the broker of this host's name, in what it remembers."""
        known = self._remembered.seats if self._remembered is not None else ()
        known = (*known, *filter(None, [self._parts.seats.seat_of(self._parts.me.name)]))
        return max((s.term for s in known if s.broker == self._parts.me.name), default=0)

    @property
    def state_name(self) -> str:
        """What it is about, as long as it is not ready."""
        return "recovering" if self._was_there else "joining"

    def _become_ready(self) -> None:
        me = self._parts.me
        if not me.is_ready:
            me.is_ready = True
            self._is_new = False  # should it have nothing to play one day, it stands by
            self._take_own_seat()
            self._greetings.greet_waiting()
            self._parts.outbox.add(BecomeReady())
            millis = round(1000 * (me.now - me.started_at), 3)
            kind = "operational" if self._was_there else "joined"
            self._parts.outbox.record(kind, about=me.name, members=[], millis=millis)
            self._greetings.greet_waiting()

    def _take_own_seat(self) -> None:
        """Whoever plays a broker knows so itself, whether or not its parent has said it.

        Else nobody below would find it once their connection has ended.
        """
        parts, me = self._parts, self._parts.me
        played = parts.playing.brokers.get(me.name)
        if played is not None and parts.seats.seat_of(me.name) is None:
            parent = played.machine.neighbours.parent
            parts.seats.put(
                Seat(
                    broker=me.name,
                    parent="" if parent is None else parent.node,
                    term=max(played.term, 1),
                    host=me.name,
                    incarnation=me.incarnation,
                )
            )

    def advance(self) -> None:
        """See whether this host has what it looks for."""
        parts = self._parts
        now = parts.me.now
        if not self._has_begun:
            return
        if parts.playing.brokers and not parts.me.is_ready:
            self._see_whether_joined()
        self._leave_who_plays_nothing()
        if not (parts.playing.brokers or self.is_looking or self._is_connected()):
            self.is_looking, self._dial_at = True, now
        if self._dial_at is not None and now >= self._dial_at:
            self._dial_at = None
            self._dial()
        if self._ask_at is not None and now >= self._ask_at:
            self._ask_at = None
            for connection in parts.connections.with_state(LinkState.TO_HOST):
                if isinstance(connection.purpose, ToJoin):
                    self.on_seating(connection)

    def _leave_who_plays_nothing(self) -> None:
        """Stand by where something is played: of two that only have each other nobody hears."""
        parts = self._parts
        for connection in parts.connections.with_state(LinkState.TO_HOST):
            is_idle = not parts.seats.played_by(connection.life)
            is_needed = parts.takeovers.awaits(connection.life)
            if isinstance(connection.purpose, ToJoin) and is_idle and not is_needed:
                place = self._somebody_who_plays()
                if place is not None:
                    self._ask_instead(connection, place)

    def _somebody_who_plays(self) -> HostPlace | None:
        parts = self._parts
        doubted = parts.doubts.doubted()
        lives = map(parts.seats.life_of, parts.seats.hosts())
        players = [
            life.host
            for life in lives
            if life is not None
            and life not in doubted
            and life.host != parts.me.name
            and parts.seats.played_by(life)
        ]
        places = (parts.seats.place_of(host) for host in players)
        return next((place for place in places if place is not None), None)

    def _ask_instead(self, connection: Connection, place: HostPlace) -> None:
        """Be connected to another host from now on."""
        parts = self._parts
        self._candidates = list(dict.fromkeys([place.address, *self._candidates]))
        self._next, self.is_looking = 0, True
        parts.connections.close(connection, GoodbyeCode.LEFT, f"looks for {place.host}")
        self._dial_at = parts.me.now

    def _see_whether_joined(self) -> None:
        """See whether anybody objects to its name."""
        parts = self._parts
        played = parts.playing.brokers.get(parts.me.name)
        if played is not None and played.machine.refusal is not None:
            parts.outbox.log(Level.ERROR, "gave up", reason=played.machine.refusal)
            parts.outbox.add(Stop(f"refused by the join point: {played.machine.refusal}"))
        elif played is None or played.machine.has_joined:
            self._become_ready()
        else:
            self._join_here(played)

    def _join_here(self, newcomer: Played) -> None:
        """The broker that it was about to join is played here by now, and may not know of it."""
        parts, name = self._parts, newcomer.node
        parent = newcomer.machine.neighbours.parent
        machine = None if parent is None else parts.playing.machine(parent.node)
        if machine is None or not machine.has_joined or name in machine.neighbours.below:
            return
        parts.playing.welcome(machine, name, Standing(kind=NodeKind.BROKER.value))
        self._greetings.seat_below(machine.node, name, newcomer.term, parts.me.life)
        parts.playing.push(name, machine.node)

    def _is_connected(self) -> bool:
        """Whether a connection is there by which it hears of a place."""
        return any(isinstance(c.purpose, ToJoin) for c in self._parts.connections)

    def wake_at(self) -> float | None:
        """When it tries again."""
        if self._dial_at is None or self._ask_at is None:
            return self._ask_at if self._dial_at is None else self._dial_at
        return min(self._dial_at, self._ask_at)

    # --- asking -------------------------------------------------------------------------------

    def _dial(self) -> None:
        parts = self._parts
        self._note_candidates()
        if self.is_looking and self._candidates:
            parts.dialling.dial(ToJoin(), self._address, parts.me.now)
            if not parts.dialling.is_wanted(ToJoin()):
                self._dial_at = parts.dialling.wake_at(parts.me.now)

    def _note_candidates(self) -> None:
        """Whoever is said to play something may be asked as well."""
        parts = self._parts
        seats = map(parts.seats.seat_of, parts.seats.brokers())
        places = (parts.seats.place_of(seat.host) for seat in seats if seat is not None)
        others = [p.address for p in places if p is not None and p.host != parts.me.name]
        self._candidates = list(dict.fromkeys([*self._candidates, *others]))

    @property
    def _address(self) -> str:
        return self._candidates[self._next % len(self._candidates)]

    def _try_next(self) -> None:
        """Ask the next one; when everybody has been asked in vain, after a pause."""
        parts = self._parts
        if not self.is_looking:
            return
        self._next += 1
        self._note_candidates()
        if self._next % len(self._candidates) == 0:
            self._rounds += 1
            if self._is_root_again():
                self._become_root()
                return
            self._dial_at = parts.dialling.pause(ToJoin(), self._address, parts.me.now)
        else:
            self._dial_at = parts.me.now

    def _was_root(self) -> bool:
        """Whoever is left of the overlay looks for its root, and that is this host's broker."""
        known = self._remembered.seats if self._remembered is not None else ()
        return any(s.broker == self._parts.me.name and not s.parent for s in known)

    def _is_root_again(self) -> bool:
        """Whether nothing is left of the overlay, so that its root begins it once more.

        What this host remembers is old: whoever lived then may have taken up everything, and be the
        only one who still does, so that most of the others prove nothing. So everybody who may
        live has to be found gone, or to play nothing, and once more in the next round: by then
        somebody else may have given it something. Who does not answer may play all of it, and is
        waited for.
        """
        if not self._was_root() or self._parts.me.is_ready or self._rounds < _ROUNDS:
            return False
        silent = [at for at in self._may_live() if self._in_vain[at] < _ROUNDS]
        if silent:
            self._parts.outbox.log(Level.WARNING, "not the root again yet", waits_for=silent)
        return not silent

    def _may_live(self) -> list[str]:
        """The addresses of all of whom it is not known that they have failed."""
        known = Seats(self._parts.me.limits)
        known.learn(self._remembered or Seating())
        known.learn(self._parts.seats.everything())
        places = [known.place_of(host) for host in known.hosts()]
        over = {p.address for p in known.everything().hosts} - {p.address for p in places if p}
        return [address for address in self._candidates if address not in over]

    def say_hello(self, connection: Connection) -> None:
        """Whoever was dialled listens."""
        me = self._parts.me
        if isinstance(connection.purpose, ToNamesake):
            # To say who it is would be to fence the other one.
            asking = attrs.evolve(self._greetings.hello(NodeKind.MONITOR, me.name), address="")
            self._parts.connections.send(connection, asking)
            return
        kind = NodeKind.BROKER if self._is_new else NodeKind.HOST
        connection.state = LinkState.AWAITING_WELCOME
        term = self._last_term() + 1 if self._is_new else 0
        hello = attrs.evolve(self._greetings.hello(kind, me.name), term=term)
        self._parts.connections.send(connection, hello)

    def on_dial_failed(self, address: str, reason: str, *, is_refused: bool) -> None:
        """Nobody is there, or nobody answers."""
        self._note(address, is_in_vain=is_refused)
        self._parts.outbox.log(
            Level.WARNING, "join point not reached", address=address, reason=reason
        )
        self._try_next()

    def on_lost(self, connection: Connection) -> None:
        """A connection has ended by which this host looked for a place, or had one."""
        if isinstance(connection.purpose, ToNamesake):
            self.begin()
        elif not isinstance(connection.purpose, ToJoin) or self._parts.playing.brokers:
            return
        elif connection.state is LinkState.AWAITING_WELCOME and not self._is_new:
            self._note(connection.dialled, is_in_vain=False)
            self._try_next()
        else:
            # It may have been the connection only: the same one, which may have taken it in, is
            # asked again.
            self.is_looking = True
            self._dial_at = self._parts.dialling.pause(ToJoin(), self._address, self._parts.me.now)

    def on_tick(self) -> None:
        """Do not wait for ever for a place at somebody who may wait for one as well."""
        parts = self._parts
        now, timeout_s = parts.me.now, parts.me.limits.greeting_timeout_s
        for connection in parts.connections.with_state(LinkState.AWAITING_WELCOME):
            is_late = now - connection.opened_at > timeout_s
            if isinstance(connection.purpose, ToJoin) and is_late and len(self._candidates) > 1:
                parts.connections.close(connection, GoodbyeCode.LEFT, "waited for too long")
                self._note(connection.dialled, is_in_vain=False)
                self._try_next()

    def on_goodbye(self, connection: Connection, goodbye: Goodbye) -> None:
        """There is no place there."""
        is_told = connection.dialled in self._told_at_first
        if goodbye.code is GoodbyeCode.REFUSED and is_told and self._is_newcomer:
            self._parts.outbox.log(Level.ERROR, "gave up", reason=goodbye.reason)
            self._parts.outbox.add(Stop(f"refused by the join point: {goodbye.reason}"))
            return
        self.is_looking = not self._parts.playing.brokers
        is_elsewhere = goodbye.code is GoodbyeCode.ELSEWHERE
        plays_nothing = is_elsewhere and not self._parts.seats.played_by(connection.life)
        self._note(connection.dialled, is_in_vain=plays_nothing)
        if is_elsewhere and not self._parts.me.is_ready and self._parts.seats.brokers():
            self._is_new = not self._parts.seats.is_there(self._parts.me.name)
        self._try_next()

    @property
    def _is_newcomer(self) -> bool:
        """Whether it has never been anything here, so that who refuses it knows better.

        Even if it comes as a host, since it was told that the broker of its name is there.
        """
        has_been = self.standby or self._was_there or self._parts.me.is_ready
        return self._is_new or not has_been

    def _note(self, address: str, *, is_in_vain: bool) -> None:
        """Somebody has been asked; in vain, if it is known now that nothing is played there."""
        self._in_vain[address] = self._in_vain[address] + 1 if is_in_vain else 0

    # --- being let in ---------------------------------------------------------------------------

    def on_welcome(self, connection: Connection, welcome: Welcome) -> None:
        """Somebody answers: take its settings, and ask for a place."""
        parts = self._parts
        me = parts.me
        connection.life = Life(welcome.host, welcome.incarnation)
        objection = me.objection_to(welcome)
        if objection is not None:
            parts.connections.close(connection, GoodbyeCode.LEFT, objection)
            self._on_unknown_settings(connection, objection)
            return
        parts.dialling.succeeded(ToJoin())
        me.adopt(welcome)
        parts.library.delta = me.settings.delta
        self.is_looking = False
        if self._is_new:
            self._become_child(connection, welcome)
        else:
            self._make_known(connection, welcome)

    def _on_unknown_settings(self, connection: Connection, objection: str) -> None:
        """Of a newcomer's join point that is the end; else whoever says so is another overlay's."""
        parts = self._parts
        if self._is_new and connection.dialled in self._told_at_first:
            parts.outbox.add(Stop(objection))
            return
        parts.outbox.log(Level.WARNING, "another overlay", reason=objection)
        self._note(connection.dialled, is_in_vain=False)
        self.is_looking = not parts.playing.brokers
        self._try_next()

    def _become_child(self, connection: Connection, welcome: Welcome) -> None:
        parts = self._parts
        me = parts.me
        machine = Machine(
            me.name, welcome.node, settings=me.settings, limits=me.limits, outbox=parts.outbox
        )
        term = self._last_term() + 1
        self._take_up(machine, term)
        connection.node, connection.peer, connection.kind = (
            me.name,
            welcome.node,
            NodeKind.BROKER,
        )
        parts.connections.become_line(connection, LinkState.TO_BROKER)
        connection.telling = parts.library.telling(connection.life)
        connection.purpose = None
        parent = machine.neighbours.parent
        assert parent is not None
        parts.terms[me.name, welcome.node] = welcome.term
        parts.playing.send_again(machine)
        parts.playing.resume(connection, 0)

    def _take_up(self, machine: Machine, term: int) -> None:
        """Play the broker of this name; if it was there, and nobody knows, it had clients."""
        parts, me = self._parts, self._parts.me
        if self._was_there and parts.seats.seat_of(me.name) is None:
            until = me.now + me.limits.resume_timeout_s
            parts.playing.take_up_empty(machine, term, until=until)
        else:
            parts.playing.take_up(machine, term)

    def _make_known(self, connection: Connection, welcome: Welcome) -> None:
        """Say who is here, and what it knows of who plays what; then hear what others do."""
        parts = self._parts
        me = parts.me
        connection.kind, connection.state = NodeKind.HOST, LinkState.TO_HOST
        connection.peer = welcome.host
        if self.standby and not self._site:
            self._site = welcome.node
        place = HostPlace(
            host=me.name,
            incarnation=me.incarnation,
            address=me.address,
            clients_address=me.clients_address,
            site=self._site,
            rank=self.standby,
        )
        parts.seats.learn(Seating(hosts=(place,)))
        # What it has given up itself, nobody else may know who is left.
        connection.seats_told = parts.seats.version
        parts.connections.send(connection, parts.seats.everything())
        if self.standby:
            self._become_ready()
        self.on_seating(connection)

    def on_relocated(self, relocated: Relocated) -> None:
        """Whoever plays this host's broker gives it up, or will, or is to be asked again."""
        if relocated.reason:
            self._parts.outbox.log(Level.INFO, "not given back yet", reason=relocated.reason)
        if relocated.reason and not relocated.is_remembered:
            self._ask_at = self._parts.me.now + self._parts.me.limits.heartbeat_interval_s

    def on_seating(self, connection: Connection) -> None:
        """This host knows now who plays what: if its own broker is played, it asks for it."""
        parts = self._parts
        me = parts.me
        is_there = connection.state is LinkState.TO_HOST and parts.seats.brokers()
        is_answer = is_there and isinstance(connection.purpose, ToJoin)
        if not is_answer or self._is_new or me.is_ready or me.name in parts.playing.brokers:
            return
        seat = parts.seats.seat_of(me.name)
        if seat is None or seat.left:
            # This overlay knows nothing of it, or only that it was there once.
            self._is_new = self.is_looking = True
            parts.connections.close(connection, GoodbyeCode.LEFT, "joins anew")
            self._dial_at = me.now
        elif seat.life != me.life and not parts.seats.is_lost(me.name):
            self._ask(connection, seat)  # else somebody is about to take it up

    def _ask(self, connection: Connection, seat: Seat) -> None:
        """Ask whoever plays this host's broker to give it up: over a connection there."""
        parts = self._parts
        if connection.peer == seat.host:
            relocate = Relocate(broker=seat.broker, host=parts.me.name)
            parts.connections.send(connection, relocate)
            return
        place = parts.seats.place_of(seat.host)
        if place is not None:
            # Who is asked has to be connected, so that it can say when it has given up.
            self._ask_instead(connection, place)
