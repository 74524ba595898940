"""Step logs of brokers that others play, as they were told, and what of all logs is told on.

Whoever is sent something is told in which order it came about: the logs of what the sender plays,
and of what hosts within δ - 1 hops of it play, as far as that is news on this connection. So hosts
within δ hops of a broker know its log, and δ failures leave somebody who does.

What was told on a connection is not told again there, so nobody may forget it while the connection
lasts. Then a log is forgotten whose broker is too far away.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from plait.broker.errors import RemoteProtocolError
from plait.broker.host.seats import Seats
from plait.broker.inputs import LinkId
from plait.broker.messages import Life
from plait.faulttol.steplog import LogPart, Standing, StepLog
from plait.routing.ids import NodeId

_Extent = tuple[int, int, int]
"""The term of a log, the last step of it that is known, and its base."""

_PARTS_MAX: Final = 64
"""Parts of one log, up to the same step, that are kept for others who lack the same."""

_NOTHING: Final[_Extent] = (0, 0, 0)


@attrs.frozen(eq=False)
class _Near:
    """The brokers of whose logs others are told, by the seats of one moment."""

    tree_version: int
    own: tuple[NodeId, ...]
    others: tuple[NodeId, ...]
    """Not played here, but within reach."""


@attrs.frozen(eq=False)
class _Around:
    """Who stands around a broker by its log, as it was then."""

    log: StepLog
    version: int
    neighbours: Mapping[NodeId, Standing]


@attrs.define(eq=False)
class _Told:
    """What of one log was told lately: most receivers lack the same."""

    log: StepLog
    extent: _Extent
    parts: dict[int, LogPart]


class Library:
    """All step logs that one host knows."""

    def __init__(
        self,
        host: NodeId,
        *,
        delta: int,
        seats: Seats,
        own: Mapping[NodeId, StepLog],
    ) -> None:
        """Begin with none; `own` has the logs of the brokers that are played here."""
        self.version = 0
        """Goes up whenever more is known of a log."""
        self._host = host
        self.delta = delta
        """Of the overlay: what a host that joins goes by changes when it is let in."""
        self._seats = seats
        self._own = own
        self._logs: dict[NodeId, StepLog] = {}
        self._news: dict[NodeId, int] = {}
        """At which version each of them has changed last, in that order."""
        self._tellers: dict[NodeId, set[LinkId]] = {}
        """The connections on which something was told of each."""
        self._near = _Near(-1, (), ())
        self._told: dict[NodeId, _Told] = {}
        self._around: dict[NodeId, _Around] = {}

    # --- what is known ------------------------------------------------------------------------

    def learn(self, parts: Mapping[NodeId, LogPart], link: LinkId | None = None) -> None:
        """Take note of what was told, on a connection or in an attachment.

        What is told of a broker that is played here is kept as well, for whoever told it goes on
        from there when that is given up.
        """
        for broker, part in parts.items():
            log = self._logs.get(broker)
            if log is None:
                log = self._logs[broker] = StepLog()
            if part.term > log.term:
                self._seats.require_term(broker, part.term)
            known = log.last if log.term == part.term else 0
            if part.term >= log.term and part.first > known and part.first != part.base:
                raise RemoteProtocolError(
                    f"steps of {broker} after {part.first} were told, of which {known} are known"
                )
            if link is not None:
                self._tellers.setdefault(broker, set()).add(link)
            before = log.version
            log.learn(part)
            if log.version != before:
                self.version += 1
                self._news.pop(broker, None)
                self._news[broker] = self.version

    def learn_logs(self, logs: Mapping[NodeId, StepLog]) -> None:
        """Take note of whole logs, such as those of an attachment."""
        self.learn({broker: log.since(0) for broker, log in logs.items()})

    def keep(self, broker: NodeId, log: StepLog) -> None:
        """A broker was played here until now."""
        known = self._logs.get(broker)
        if known is None or known.term <= log.term:
            self._logs[broker] = log.copy()

    def log_of(self, broker: NodeId) -> StepLog:
        """What is known of the steps of a broker, whoever plays it; not to be changed."""
        log = self._own.get(broker)
        if log is None:
            log = self._logs.get(broker)
        return StepLog() if log is None else log

    def neighbours_of(self, broker: NodeId) -> Mapping[NodeId, Standing]:
        """Who stands next to a broker as of the last step that is known."""
        log, around = self.log_of(broker), self._around.get(broker)
        if around is None or around.log is not log or around.version != log.version:
            around = self._around[broker] = _Around(log, log.version, log.neighbours())
        return around.neighbours

    def known(self) -> dict[NodeId, StepLog]:
        """Copies of all that is known: a region may turn out to be larger than it seems."""
        return {broker: self.log_of(broker).copy() for broker in {**self._logs, **self._own}}

    # --- what is forgotten ----------------------------------------------------------------------

    def close(self, link: LinkId) -> None:
        """A connection has ended: nothing goes on from what was told there."""
        for tellers in self._tellers.values():
            tellers.discard(link)

    def forget_far(self) -> None:
        """Forget logs of brokers that are more than δ hops away, as far as that may be.

        Not while this host is taking something up: of what is around that it may have been told
        only because of that, and the region may grow.
        """
        for broker in [b for b in self._logs if not self._tellers.get(b)]:
            if not self._is_within(broker, self.delta):
                for pieces in (self._logs, self._news, self._tellers, self._told, self._around):
                    pieces.pop(broker, None)

    # --- what is told ---------------------------------------------------------------------------

    def telling(self, receiver: Life | None) -> "Telling":
        """What is to be told on a new connection: to a host, or, without one, to a client."""
        return Telling(self, self._seats, receiver)

    def near(self) -> _Near:
        """The brokers of whose logs others are told; the same object until a seat changes."""
        version, own = self._seats.tree_version, tuple(self._own)
        if self._near.tree_version != version or self._near.own != own:
            near = [b for b in self._seats.brokers() if self._is_within(b, self.delta - 1)]
            others = tuple(broker for broker in near if broker not in self._own)
            self._near = _Near(version, own if self.delta else (), others)
        return self._near

    def _is_within(self, broker: NodeId, hops: int) -> bool:
        seat = self._seats.seat_of(broker)
        if seat is None or seat.left:
            return False
        distance = self._seats.host_distances(self._host).get(seat.host)
        return distance is not None and distance <= hops

    def changed_since(self, version: int) -> Iterator[NodeId]:
        """The brokers played elsewhere of which more is known since then."""
        for broker, changed in reversed(self._news.items()):
            if changed <= version:
                return
            yield broker

    def part_of(self, broker: NodeId, log: StepLog, step: int) -> LogPart:
        """What somebody lacks who knows a log up to that step."""
        told = self._told.get(broker)
        if told is None or told.log is not log or told.extent != _extent(log):
            told = self._told[broker] = _Told(log, _extent(log), {})
        part = told.parts.get(step)
        if part is None:
            if len(told.parts) == _PARTS_MAX:
                told.parts.clear()
            part = told.parts[step] = log.since(step)
        return part


class Telling:
    """What was told of step logs on one connection."""

    def __init__(self, library: Library, seats: Seats, receiver: Life | None) -> None:
        """Begin with nothing told."""
        self._library = library
        self._seats = seats
        self._receiver = receiver
        self._near: _Near | None = None
        self._others: dict[NodeId, None] = {}
        """The brokers within reach that neither this host plays nor the receiver."""
        self._seen = 0
        """The version of the library up to which all has been told."""
        self._told: dict[NodeId, _Extent] = {}

    def take(self) -> dict[NodeId, LogPart]:
        """What the receiver has not been told; from now on it has."""
        library = self._library
        parts: dict[NodeId, LogPart] = {}
        near = library.near()
        self._tell(near.own, parts)
        if near is not self._near:
            self._near = near
            played = () if self._receiver is None else self._seats.played_by(self._receiver)
            self._others = {broker: None for broker in near.others if broker not in played}
            self._tell(self._others, parts)
        elif library.version != self._seen:
            changed = library.changed_since(self._seen)
            self._tell([broker for broker in changed if broker in self._others], parts)
        self._seen = library.version
        return parts

    def _tell(self, brokers: Iterable[NodeId], parts: dict[NodeId, LogPart]) -> None:
        for broker in brokers:
            log = self._library.log_of(broker)
            told, extent = self._told.get(broker, _NOTHING), _extent(log)
            if told != extent:
                since = told[1] if told[0] == extent[0] else 0
                parts[broker] = self._library.part_of(broker, log, since)
                self._told[broker] = extent


def _extent(log: StepLog) -> _Extent:
    return log.term, log.last, log.base
