"""How a host ends that is told to: it leaves what it plays to others, and that is no failure.

First it says that it is leaving, so that nobody leaves anything to it, and hears for a moment who
else is: an overlay that is stopped as a whole hands nothing over. Then

- a broker at its own host, with nobody below it, leaves the tree;
- any other is given up, and the host answers for it until somebody plays it (`takeover.py`);
- if nobody stays who could, what was accepted is finished, as far as others are there for it.

In the end it says itself that this life of it is over: nobody has to find out.
"""

from collections.abc import Callable

import attrs

from plait.broker.effects import Level
from plait.broker.host.link_states import LinkState
from plait.broker.host.parts import Parts
from plait.broker.host.playing import Played
from plait.broker.machine.machine import Machine
from plait.broker.messages import Goodbye, GoodbyeCode, Seating
from plait.routing.ids import NodeId


class Leaving:
    """The end of one host."""

    def __init__(self, parts: Parts, give_up: Callable[[Seating], None]) -> None:
        """Stay until `begin`; `give_up` leaves seats to others."""
        self._parts = parts
        self._give_up = give_up
        self._begun_at: float | None = None
        self._has_taken_leave = False
        self._is_finishing = False
        """Whether clients have been told that there is no broker for them here any more."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has been told to."""
        return self._begun_at is not None

    def begin(self) -> None:
        """Tell everybody."""
        parts = self._parts
        if self._begun_at is not None:
            return
        self._begun_at = parts.me.now
        parts.me.is_stopping = True
        place = parts.seats.place_of(parts.me.name)
        assert place is not None
        parts.seats.learn(Seating(hosts=(attrs.evolve(place, is_leaving=True),)))
        parts.outbox.log(Level.INFO, "leaving", brokers=sorted(parts.playing.brokers))

    def advance(self) -> bool:
        """Go on as far as that is possible by now; returns whether it is over."""
        if self._begun_at is None:
            return False
        now, limits = self._parts.me.now, self._parts.me.limits
        if now >= self._begun_at + limits.drain_timeout_s:
            self._parts.outbox.log(Level.WARNING, "left unfinished", brokers=self._unfinished())
            return True
        for played in list(self._parts.playing.brokers.values()):
            if self._is_leaf_at_home(played):
                self._take_leave(played)
        if not self._does_anybody_stay():
            self._finish()
            return self._is_finished()
        if now >= self._begun_at + limits.leaving_pause_s:
            self._hand_over()
        return not self._unfinished()

    def wake_at(self) -> float | None:
        """When it goes on by itself."""
        if self._begun_at is None:
            return None
        limits = self._parts.me.limits
        at = self._begun_at + limits.leaving_pause_s
        return at if at > self._parts.me.now else self._begun_at + limits.drain_timeout_s

    # --- handing over -------------------------------------------------------------------------

    def _does_anybody_stay(self) -> bool:
        """Whether a host is there that may take up what this one gives up."""
        parts = self._parts
        doubted = parts.doubts.doubted()
        lives = map(parts.seats.life_of, parts.seats.hosts())
        return parts.me.settings.delta > 0 and any(
            parts.seats.is_settled(life.host)
            and not parts.seats.is_leaving(life)
            and life not in doubted
            for life in lives
            if life is not None and life.host != parts.me.name
        )

    def _hand_over(self) -> None:
        """Give up all that others may play from now on."""
        parts = self._parts
        seats = []
        for node, played in parts.playing.brokers.items():
            seat = parts.own_seat(node)
            if seat is not None and played.machine.has_joined and not self._is_leaf_at_home(played):
                seats.append(attrs.evolve(seat, is_vacant=True, taker=""))
        if seats:
            self._give_up(Seating(seats=tuple(seats)))

    def _unfinished(self) -> list[NodeId]:
        """What is played here, or was, and not by anybody else yet."""
        parts = self._parts
        here = [
            node
            for node, played in parts.playing.brokers.items()
            if played.machine.has_joined or parts.own_seat(node)
        ]
        return sorted({*parts.seats.given_up_by(parts.me.life), *here})

    # --- a leaf -------------------------------------------------------------------------------

    def _is_leaf_at_home(self, played: Played) -> bool:
        """Whether nobody needs a broker whose own host this is."""
        parts, neighbours = self._parts, played.machine.neighbours
        is_at_home = played.node == parts.me.name
        has_below = neighbours.below or parts.seats.children_of(played.node)
        is_needed = has_below or parts.seats.standbys_of(played.node)
        is_below = neighbours.parent is not None and played.machine.has_joined
        return is_at_home and is_below and not is_needed

    def _take_leave(self, played: Played) -> None:
        """Ask to be let go once everything is stable; when that is so, it is no broker any more."""
        parts, machine = self._parts, played.machine
        seat = parts.seats.seat_of(played.node)
        if seat is not None and seat.left and seat.term == played.term:
            for neighbour in machine.neighbours.all():
                line = parts.connections.line(played.node, neighbour.node)
                if line is not None:
                    parts.connections.end_line(line)
            parts.playing.give_up(played.node)
        elif not (self._has_taken_leave or _is_busy(machine)):
            self._has_taken_leave = True
            parts.playing.leave(machine)

    # --- with nobody to hand over to ----------------------------------------------------------

    def _finish(self) -> None:
        """Tell clients once that there is nobody who goes on."""
        if self._is_finishing:
            return
        self._is_finishing = True
        name = self._parts.me.name
        farewell = Goodbye(code=GoodbyeCode.SHUTTING_DOWN, reason=f"{name} is stopping")
        clients = self._parts.connections.with_state(LinkState.TO_CLIENT)
        self._parts.connections.send_to_all(clients, farewell)

    def _is_finished(self) -> bool:
        """Whether nothing is under way that could still come to its end."""
        parts = self._parts
        for played in parts.playing.brokers.values():
            machine = played.machine
            around = [neighbour.node for neighbour in machine.neighbours.other_brokers(None)]
            doubted = parts.doubts.doubted()
            is_cut_off = any(parts.seats.is_lost(node, doubted) for node in around)
            if (_is_busy(machine) or self._is_leaf_at_home(played)) and not is_cut_off:
                return False
        return True


def _is_busy(machine: Machine) -> bool:
    return machine.publications.unstable > 0 or len(machine.requests) > 0
