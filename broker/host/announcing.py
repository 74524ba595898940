"""Who has heard what a host has taken up: only when all around have is one more failure one only.

A host that takes a broker up stands for more than before. Everybody within δ hosts has to have its
logs then: each passes them on at once, and confirms when all beyond it have confirmed.
"""

from collections.abc import Callable, Collection, Iterable

import attrs

from plait.broker.host.connections import Connection, Connections
from plait.broker.host.identity import Identity
from plait.broker.host.link_states import LinkState
from plait.broker.host.seats import Seats
from plait.broker.inputs import LinkId
from plait.broker.messages import Announce, Announced
from plait.routing.ids import NodeId


@attrs.define(eq=False)
class _Announcement:
    number: int
    reach: int
    then: Callable[[], None]
    """What is done when all have confirmed."""
    about: Collection[NodeId] = ()
    """Of its own ones, what is to be heard; what it does not play any more, others tell."""
    origin: Connection | None = None
    """From where it comes; None if it is this host's own."""
    asked: dict[LinkId, None] = attrs.field(factory=dict)
    confirmed: dict[NodeId, None] = attrs.field(factory=dict)


class Announcements:
    """What one host has announced, or passes on, and is not confirmed yet."""

    def __init__(
        self,
        me: Identity,
        connections: Connections,
        seats: Seats,
        brokers: Collection[NodeId],
    ) -> None:
        """Begin with none; `brokers` are those that this host plays."""
        self._me = me
        self._brokers = brokers
        self._connections = connections
        self._seats = seats
        self._numbers = 0
        self._under_way: dict[int, _Announcement] = {}

    @property
    def are_heard(self) -> bool:
        """Whether all of its own have reached everybody."""
        return all(each.origin is not None for each in self._under_way.values())

    def begin(self, about: Collection[NodeId], then: Callable[[], None] = lambda: None) -> None:
        """Let everybody within δ hosts hear the logs of these as they stand; `then` go on."""
        self._add(self._me.settings.delta, then, about=about)

    def on_announce(self, connection: Connection, announce: Announce) -> None:
        """Another host has something to pass on, which was learnt already."""
        confirmation = Announced(number=announce.number)

        def confirm() -> None:
            self._connections.send(connection, confirmation)

        if announce.reach > 1:
            self._add(announce.reach - 1, confirm, origin=connection)
        else:
            confirm()

    def _add(
        self,
        reach: int,
        then: Callable[[], None],
        *,
        about: Collection[NodeId] = (),
        origin: Connection | None = None,
    ) -> None:
        self._numbers += 1
        each = _Announcement(self._numbers, reach, then, about, origin)
        self._under_way[each.number] = each
        self.advance()

    def on_announced(self, connection: Connection, number: int) -> None:
        """A host has confirmed."""
        each = self._under_way.get(number)
        if each is not None and connection.link in each.asked:
            each.confirmed[connection.life.host] = None
            self.advance()

    def advance(self) -> None:
        """Tell whoever was not told; end what everybody has confirmed."""
        lines = self._connections.with_state(LinkState.TO_BROKER)
        near = self._seats.host_distances(self._me.name)
        adjacent = {host for host, distance in near.items() if distance == 1}
        for each in list(self._under_way.values()):
            if each.number not in self._under_way:
                continue  # one that ended has ended another
            if each.origin is not None and not self._connections.is_open(each.origin):
                del self._under_way[each.number]  # whoever asked will ask again
                continue
            waiting = adjacent - each.confirmed.keys()
            if each.origin is not None:
                waiting.discard(each.origin.life.host)
            is_given_up = each.origin is None and not any(b in self._brokers for b in each.about)
            if not waiting or not each.reach or is_given_up:
                del self._under_way[each.number]
                each.then()
            else:
                self._ask(each, [line for line in lines if line.life.host in waiting])

    def _ask(self, each: _Announcement, lines: Iterable[Connection]) -> None:
        for line in lines:
            if line.link not in each.asked:
                each.asked[line.link] = None
                logs = line.take_logs()
                announce = Announce(number=each.number, reach=each.reach, logs=logs)
                self._connections.send(line, announce)
