"""How many hosts have failed, and are not got over: each of them counts as one of δ.

A host that has failed is got over when all that it played is played again, and all around whoever
plays it now have heard of that. If that one fails before, both count. What a host has given up it
has as if it played that, until somebody else does: who takes it up asks.
"""

from collections.abc import Collection, Iterable, Mapping

from plait.broker.host.host import Host
from plait.broker.host.seats import Seats
from plait.broker.messages import Life, Seat
from plait.broker.sim.nodes import Node
from plait.routing.ids import NodeId


class Failures:
    """Those of one world; asked before each further one."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._hosts: list[Host] = []
        """Of which it is not known yet that they have failed."""
        self._open: dict[Life, frozenset[NodeId]] = {}
        """Whose failures are not over, with the brokers that are to be played again."""

    def watch(self, host: Host) -> None:
        """A host begins."""
        self._hosts.append(host)

    def not_over(self, residents: Collection[Node]) -> list[NodeId]:
        """Who has failed, once for each failure; who is frozen; and who is about to get over it."""
        nodes = [node for node in residents if node.host is not None]
        alive = [node.core for node in nodes if node.is_alive and not node.core.has_stopped]
        seats = _newest(alive)
        self._note_new(alive, seats.values())
        self._forget_what_is_over(alive, seats)
        failed = [life.host for life in self._open]
        frozen = [node.name for node in nodes if node.is_alive and node.is_frozen]
        weak = [host.me.name for host in alive if host.is_vulnerable and not self._counts(host)]
        return sorted([*failed, *(name for name in {*frozen, *weak} if name not in failed)])

    def _note_new(self, alive: Collection[Host], seats: Iterable[Seat]) -> None:
        given_up = [(seat.life, seat.broker) for seat in seats if seat.is_vacant]
        for host in self._hosts:
            if host not in alive:
                left = [broker for life, broker in given_up if life == host.me.life]
                lost = frozenset([*host.parts.playing.brokers, *left])
                if lost:
                    self._open[host.me.life] = lost
        self._hosts = [host for host in self._hosts if host in alive]

    def _forget_what_is_over(self, alive: Iterable[Host], seats: Mapping[NodeId, Seat]) -> None:
        well = {
            broker
            for host in alive
            if not host.is_vulnerable
            for broker, played in host.parts.playing.brokers.items()
            if broker in seats and played.term == seats[broker].term
        }
        for life, lost in list(self._open.items()):
            if all(broker in well or broker not in seats for broker in lost):
                del self._open[life]

    def _counts(self, host: Host) -> bool:
        """Whether what a host is to get over has been counted already."""
        concerned = {*host.parts.playing.brokers}.union(*(t.region for t in host.parts.takeovers))
        return any(lost & concerned for lost in self._open.values())


def _newest(alive: Iterable[Host]) -> dict[NodeId, Seat]:
    """Who plays what by the newest that anybody knows; nobody plays a broker that has left."""
    known = Seats()
    for host in alive:
        known.learn(host.parts.seats.everything())
    return {seat.broker: seat for seat in known.everything().seats if not seat.left}
