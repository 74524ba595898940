"""Clients that were away and are back: welcomed as soon as all around know that.

Whoever takes a broker up without knowing that a client is back does not wait for it. So the client
is heard only when everybody within δ hosts has heard of it (`announcing.py`), which may take as
long as one of these is silent. Until then it is there, and nobody drops it. Should it lose its
connection and come on another one meanwhile, it is that one that is welcomed.
"""

from collections.abc import Callable

import attrs

from plait.broker.host.connections import Connection
from plait.broker.host.parts import Parts
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import Below
from plait.broker.messages import GoodbyeCode
from plait.routing.ids import NodeId


@attrs.define(eq=False)
class _Return:
    """One client that is back."""

    machine: Machine
    client: Below
    connection: Connection
    """The last on which it came."""
    taken: int


class Returns:
    """Those that all around are being told about."""

    def __init__(
        self,
        parts: Parts,
        *,
        join_line: Callable[[Connection, int, Below], None],
        greet_again: Callable[[Connection], None],
    ) -> None:
        """Begin with none; `join_line` welcomes a client, `greet_again` looks what else it is."""
        self._parts = parts
        self._join_line = join_line
        self._greet_again = greet_again
        self._under_way: dict[tuple[NodeId, NodeId], _Return] = {}

    def begin(self, connection: Connection, taken: int, machine: Machine, client: Below) -> None:
        """A client that was away is back: tell all around."""
        each = _Return(machine, client, connection, taken)
        self._under_way[machine.node, client.node] = each
        self._parts.clients.note_there(machine.node, client.node)
        self._parts.playing.come_back(machine, client)
        self._parts.announcements.begin([machine.node], lambda: self._end(each))

    def replace(self, connection: Connection, taken: int, machine: Machine, client: Below) -> bool:
        """A client has come once more; returns whether it was on its way back already."""
        each = self._under_way.get((machine.node, client.node))
        if each is None or each.client is not client:
            return False
        self._parts.connections.close(each.connection, GoodbyeCode.LEFT, "replaced by a new one")
        each.connection, each.taken = connection, taken
        self._parts.clients.note_there(machine.node, client.node)
        return True

    def are_awaited_on(self, connection: Connection) -> bool:
        """Whether a client waits there, which has nothing to say before it is welcomed."""
        each = self._under_way.get((connection.node, connection.peer))
        return each is not None and each.connection is connection

    def on_lost(self, connection: Connection) -> None:
        """A connection has ended: perhaps somebody is away again who was just back."""
        each = self._under_way.get((connection.node, connection.peer))
        if each is not None and each.connection is connection and self._is_known(each):
            each.machine.disconnected(each.client)
            self._parts.clients.note_absent(connection.node, connection.peer, self._parts.me.now)

    def _end(self, each: _Return) -> None:
        """All around know it."""
        node = each.machine.node
        if self._under_way.get((node, each.client.node)) is not each:
            return  # it went away again, and is back again
        del self._under_way[node, each.client.node]
        if not self._parts.connections.is_open(each.connection):
            return
        if self._is_known(each):
            self._join_line(each.connection, each.taken, each.client)
        else:  # it was given up meanwhile, or the client was
            self._greet_again(each.connection)

    def _is_known(self, each: _Return) -> bool:
        """Whether its broker is played here as before, and knows it."""
        is_played = self._parts.playing.machine(each.machine.node) is each.machine
        return is_played and each.machine.neighbours.below.get(each.client.node) is each.client
