"""What a host says of others when somebody asks: only what it has seen itself.

Whoever takes a silent host for failed needs others who have not heard from it either. One that has
had nothing to do with it cannot tell, so it visits the accused before it answers.
"""

from collections.abc import Iterable

from plait.broker.host.connections import Connection, Connections
from plait.broker.host.doubts import Doubts, Sign
from plait.broker.host.identity import Identity
from plait.broker.host.seats import Seats
from plait.broker.inputs import LinkId
from plait.broker.messages import Life, ProbeReply


class Testimony:
    """The questions of others that are not answered yet."""

    def __init__(
        self, me: Identity, connections: Connections, seats: Seats, doubts: Doubts
    ) -> None:
        """Begin with none."""
        self._me = me
        self._connections = connections
        self._seats = seats
        self._doubts = doubts
        self._asked: dict[LinkId, dict[Life, None]] = {}

    def ask(self, connection: Connection, lives: Iterable[Life]) -> None:
        """Somebody asks of which of these this host has heard."""
        self._asked.setdefault(connection.link, {}).update(dict.fromkeys(lives))

    def is_asked(self, connection: Connection) -> bool:
        """Whether somebody waits there for an answer."""
        return connection.link in self._asked

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._asked)

    def advance(self) -> None:
        """Answer what can be answered by now, and visit those of whom nothing can be said."""
        for link, lives in list(self._asked.items()):
            connection = self._connections.get(link)
            seen = {life: self._has_seen(life) for life in lives}
            if connection is None:
                del self._asked[link]
            elif None not in seen.values():
                del self._asked[link]
                heard = tuple(life for life, is_there in seen.items() if is_there)
                self._connections.send(connection, ProbeReply(life=self._me.life, heard=heard))
            else:
                for life in (life for life, is_there in seen.items() if is_there is None):
                    self._doubts.note(life, Sign.LOST, self._me.now)

    def _has_seen(self, life: Life) -> bool | None:
        """Whether somebody lives; None if this host does not know."""
        if life == self._me.life or self._seats.has_failed(life):
            return life == self._me.life
        return self._doubts.lives(life, self._me.now)
