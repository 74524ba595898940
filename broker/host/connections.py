"""The connections of a host, each a link between two nodes of the tree, or somebody who asks.

What is sent in one step of a node is a batch. What comes is kept until its end has come, and then
taken in one step; what has no end when a connection ends has not happened.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from plait.broker.effects import CloseLink, Level, SendMessage
from plait.broker.host.attaching import AttachmentReader
from plait.broker.host.dialling import Purpose
from plait.broker.host.library import Telling
from plait.broker.host.link_states import LinkState
from plait.broker.inputs import LinkId
from plait.broker.log_codec import LogReader, LogWriter
from plait.broker.messages import Goodbye, GoodbyeCode, Hello, Life, Message, NodeKind, Seating
from plait.broker.outbox import Outbox
from plait.broker.principals import UNKNOWN_CALLER, Caller
from plait.routing.ids import NodeId

NO_NODE: Final = NodeId("")
NOBODY: Final = Life(NO_NODE, 0)


@attrs.define(eq=False)
class Connection:
    """One connection, greeted or not."""

    link: LinkId
    state: LinkState
    opened_at: float
    heard_at: float
    dialled: str = ""
    """The address, if this host dialled."""
    purpose: Purpose | None = None
    """What for."""
    caller: Caller = UNKNOWN_CALLER
    """Who is at the other end, as far as it has proven that."""
    node: NodeId = NO_NODE
    """At this end of it: a broker that is played here, or was asked for."""
    peer: NodeId = NO_NODE
    """At the other end."""
    kind: NodeKind | None = None
    """What that is; None as long as it has not said so."""
    life: Life = NOBODY
    """The host of it; of a client, itself."""
    term: int = 0
    """Of the broker at the other end, as it has said."""
    absent_s: float = 0.0
    """For how long a client has been without its broker, as it says."""
    hello: Hello | None = None
    """What it said, and was not answered yet."""
    step: int = 0
    """Of the last batch that came."""
    batch: list[Message] = attrs.field(factory=list)
    """Of which the end has not come,"""
    batch_counted: int = 0
    """how many of these were there when that was looked at last,"""
    batch_bytes: int = 0
    """and how much those were."""
    telling: Telling | None = None
    """What is told there of step logs,"""
    written: LogWriter = attrs.field(factory=LogWriter)
    """how it was put,"""
    logs: LogReader = attrs.field(factory=LogReader)
    """and what is told here."""
    seats_told: int = -1
    """The version of the knowledge of seats that was told there."""
    seats_around: Seating | None = None
    """What a client was told of it."""
    reader: AttachmentReader | None = None
    """Of what is said there about a broker that has failed."""
    was_line: bool = False
    """Whether a broker at one of its ends has left the tree: what is said as if it had not comes to
    nothing."""
    has_attached: bool = False
    """Whether all of that has come; what was said on an earlier connection is said again."""

    def take_logs(self) -> bytes:
        """What the other end has not been told of step logs."""
        return b"" if self.telling is None else self.written.write(self.telling.take())

    @property
    def kept_bytes(self) -> int:
        """About how much has come of what has no end yet."""
        return self.batch_bytes + (0 if self.reader is None else self.reader.kept_bytes)

    @property
    def is_between_hosts(self) -> bool:
        """Whether the other end is a host that takes part."""
        return self.kind in (NodeKind.BROKER, NodeKind.HOST)


class Connections:
    """All of them."""

    def __init__(self, outbox: Outbox, on_end: Callable[[Connection], None]) -> None:
        """Begin with none; `on_end` hears of each that ends."""
        self._on_end = on_end
        self._outbox = outbox
        self._by_link: dict[LinkId, Connection] = {}
        self._others: dict[LinkId, Connection] = {}
        """All that are no lines to clients, of which there may be thousands."""
        self._lines: dict[tuple[NodeId, NodeId], Connection] = {}
        """By the nodes at this end and at the other, once it is known that they are these."""
        self.version = 0
        """Goes up with every line that comes or goes."""

    def __iter__(self) -> Iterator[Connection]:
        """Every one that is still open when its turn comes, as one may end with another."""
        for connection in list(self._by_link.values()):
            if connection.link in self._by_link:
                yield connection

    def get(self, link: LinkId) -> Connection | None:
        """The one of this number."""
        return self._by_link.get(link)

    def is_open(self, connection: Connection) -> bool:
        """Whether it has not been closed."""
        return connection.link in self._by_link

    def add(self, connection: Connection) -> None:
        """A connection has come about."""
        self._by_link[connection.link] = self._others[connection.link] = connection

    def line(self, node: NodeId, peer: NodeId) -> Connection | None:
        """The one that joins these two."""
        return self._lines.get((node, peer))

    def become_line(self, connection: Connection, state: LinkState) -> None:
        """This one joins its two nodes from now on; an older one that did is replaced."""
        key = (connection.node, connection.peer)
        old = self._lines.get(key)
        if old is not None and old is not connection:
            self.close(old, GoodbyeCode.LEFT, "replaced by a new connection")
        self._lines[key] = connection
        connection.state = state
        if state is LinkState.TO_CLIENT:
            self._others.pop(connection.link, None)
        self.version += 1

    def end_line(self, connection: Connection) -> None:
        """A broker has left the tree: what is still to be said, their hosts say."""
        self._lines.pop((connection.node, connection.peer), None)
        self.version += 1
        connection.node, connection.peer = NO_NODE, connection.life.host
        connection.kind, connection.state = NodeKind.HOST, LinkState.TO_HOST
        connection.was_line = True

    def send(self, connection: Connection, message: Message) -> None:
        """Send something over it."""
        self._outbox.send(connection.link, message)

    def send_to_all(self, connections: list[Connection], message: Message) -> None:
        """Send the same over several."""
        if connections:
            self._outbox.add(SendMessage(tuple(c.link for c in connections), message))

    def forget(self, link: LinkId) -> Connection | None:
        """It has ended."""
        connection = self._by_link.pop(link, None)
        self._others.pop(link, None)
        if connection is not None:
            self._on_end(connection)
            key = (connection.node, connection.peer)
            if self._lines.get(key) is connection:
                del self._lines[key]
                self.version += 1
        return connection

    def close(
        self,
        connection: Connection,
        code: GoodbyeCode,
        reason: str,
        *,
        seating: Seating | None = None,
        **fields: Any,
    ) -> None:
        """End it from this side, saying why, and where to look instead."""
        if self.forget(connection.link) is None:
            return
        if seating is not None:
            self._outbox.send(connection.link, seating)
        self._outbox.send(connection.link, Goodbye(code=code, reason=reason))
        self._outbox.add(CloseLink(connection.link, code, reason))
        peer = connection.peer or "unknown"
        level = Level.WARNING if code in _UNUSUAL else Level.INFO
        self._outbox.log(level, "link closed", peer=peer, code=code.value, reason=reason, **fields)

    def with_state(self, *states: LinkState) -> list[Connection]:
        """Those in one of these states."""
        among = self._by_link if LinkState.TO_CLIENT in states else self._others
        return [c for c in among.values() if c.state in states]

    def __len__(self) -> int:
        """How many are open."""
        return len(self._by_link)


_UNUSUAL = frozenset(
    {GoodbyeCode.PROTOCOL, GoodbyeCode.ISOLATED, GoodbyeCode.TIMEOUT} | {GoodbyeCode.REFUSED}
)
