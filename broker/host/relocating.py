"""Brokers that are to be played elsewhere: a host that is back, or a person, has asked for it.

Whoever plays a broker gives it up when nothing speaks against that. Until then it remembers what it
was asked, so that nobody has to ask again; of two wishes for one broker the later one counts.
"""

from collections.abc import Callable
from typing import Any

import attrs

from plait.broker.host.connections import Connection
from plait.broker.host.parts import Parts
from plait.broker.messages import Relocate, Relocated, Seat
from plait.routing.ids import NodeId


@attrs.define(eq=False)
class _Wish:
    host: NodeId
    obstacle: str = ""
    """What speaks against it for now."""
    asked_by: list[Connection] = attrs.field(factory=list)
    """Who is told when it begins."""


class Relocations:
    """What a host has been asked to give up."""

    def __init__(
        self, parts: Parts, is_vulnerable: Callable[[], bool], give_up: Callable[[Seat], None]
    ) -> None:
        """Begin with nothing; `give_up` leaves a seat to others."""
        self._parts = parts
        self._is_vulnerable = is_vulnerable
        self._give_up = give_up
        self._wishes: dict[NodeId, _Wish] = {}

    def on_relocate(self, relocate: Relocate, connection: Connection | None = None) -> Relocated:
        """Somebody asks that a broker be played elsewhere; returns what becomes of it."""
        broker = relocate.broker
        refusal = self._refusal_of(broker, relocate.host)
        if refusal:
            return Relocated(broker=broker, reason=refusal)
        self.remember(broker, relocate.host)
        wish = self._wishes[broker]
        self.advance()
        if wish.obstacle and connection is not None and connection not in wish.asked_by:
            wish.asked_by.append(connection)
        return Relocated(broker=broker, reason=wish.obstacle, is_remembered=bool(wish.obstacle))

    def remember(self, broker: NodeId, host: NodeId) -> None:
        """A broker is to be played by this host, as soon as it may be."""
        known = self._wishes.get(broker)
        if known is None or known.host != host:
            self._wishes[broker] = _Wish(host)

    @property
    def are_awaited(self) -> bool:
        """Whether there is anything that is to be given up when it can be."""
        return bool(self._wishes)

    def advance(self) -> None:
        """Do what can be done by now, and forget what nobody can do any more."""
        for broker, wish in list(self._wishes.items()):
            refusal = self._refusal_of(broker, wish.host)
            wish.obstacle = "" if refusal else self._obstacle_to(broker, wish.host)
            if wish.obstacle:
                continue
            del self._wishes[broker]
            if not refusal:
                seat = self._parts.own_seat(broker)
                assert seat is not None
                self._give_up(attrs.evolve(seat, is_vacant=True, taker=wish.host))
            for connection in wish.asked_by:
                if self._parts.connections.is_open(connection):
                    answer = Relocated(broker=broker, reason=refusal)
                    self._parts.connections.send(connection, answer)

    def _refusal_of(self, broker: NodeId, host: NodeId) -> str:
        """Why a broker is not given up at all; empty if it may be."""
        parts = self._parts
        me = parts.me
        if broker not in parts.playing.brokers:
            return f"{me.name} does not play {broker}"
        if not me.settings.delta:
            return "with a delta of 0 nothing can be rebuilt"
        life = parts.seats.life_of(host)
        if host == me.name or life is None or life in parts.doubts.doubted():
            return f"no other host {host} is known"
        return f"{host} is stopping" if parts.seats.is_leaving(life) else ""

    def _obstacle_to(self, broker: NodeId, host: NodeId) -> str:
        """Why a broker is not given up just now."""
        parts = self._parts
        has_joined = parts.playing.brokers[broker].machine.has_joined
        if not (has_joined and parts.me.is_ready and parts.own_seat(broker)):
            return f"{broker} is about to join"
        if not parts.seats.is_settled(host):
            return f"{host} is about to join"
        return "a failure is not over yet" if self._is_vulnerable() else ""

    def describe(self) -> list[dict[str, Any]]:
        """What is remembered, as JSON."""
        return [
            {"broker": broker, "host": wish.host, "reason": wish.obstacle}
            for broker, wish in self._wishes.items()
        ]
