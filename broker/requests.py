"""Passing operations on to neighbours, and their confirmations back.

What an operation does where it passes is `broker/interests.py` (advertisements, subscriptions) and
`broker/core.py` (joining, leaving); this module only sees that it is confirmed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.messages import (
    Advertise,
    Claim,
    Confirm,
    Message,
    Operation,
    RefusalCode,
    Refuse,
    Subscribe,
    Unsubscribe,
)
from broker.neighbours import Neighbour, Neighbours
from broker.outbox import Outbox
from broker.ticks import Ticks
from faulttol.neighbourhood import Life
from faulttol.operations import Operations, Pending
from routing.ids import NodeId, OperationId, SubscriptionId

LATENCIES_MAX: Final = 10_000
"""Latencies kept for whoever collects metrics; beyond that the newest are not counted."""


class Requests:
    """The operations under way at one broker."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        neighbours: Neighbours,
        outbox: Outbox,
        send_in_turn: Callable[[Neighbour, Message], None],
        on_confirmed: Callable[[OperationId], None],
        as_of_now: Callable[[NodeId, Operation], Operation | None],
    ) -> None:
        """Begin with none; everything is sent in turn, behind publications that are held.

        `as_of_now` is what of a request is to be sent again to somebody who may have been sent
        later ones, and may have confirmed these.
        """
        self.refused = 0
        self._as_of_now = as_of_now
        self._on_confirmed = on_confirmed
        self.ticks = Ticks()
        self._prefix = f"{node}#{incarnation}."
        self._neighbours = neighbours
        self._outbox = outbox
        self._send_in_turn = send_in_turn
        self._operations: Operations[Operation] = Operations()
        self._count = 0
        self._latencies: list[float] = []

    def __len__(self) -> int:
        """How many are not confirmed everywhere."""
        return len(self._operations)

    @property
    def under_way(self) -> frozenset[OperationId]:
        """Those that are not confirmed everywhere."""
        return frozenset(self._operations)

    def are_under_way(self, operations: Iterable[OperationId]) -> bool:
        """Whether any of these is not confirmed everywhere."""
        return any(operation in self._operations for operation in operations)

    def new_operation(self) -> OperationId:
        """A name for an operation of this broker's own."""
        self._count += 1
        return OperationId(f"{self._prefix}{self._count}")

    def pass_on(
        self,
        operation: OperationId,
        source: Neighbour | None,
        requests: Iterable[tuple[Neighbour, Operation]],
        now: float,
    ) -> None:
        """Send it to these neighbours; without any, it is confirmed to its source at once."""
        requests = list(requests)
        for neighbour, request in requests:
            self._send_in_turn(neighbour, request)
        begun = self._operations.begin(
            operation,
            source.hop if source else None,
            [(neighbour.hop, request) for neighbour, request in requests],
            now,
        )
        if begun is None and source is not None:
            self._confirm(source, operation)

    def on_confirm(self, source: Neighbour, operation: OperationId, tick: int, now: float) -> bool:
        """A neighbour has confirmed; true if that ends an operation of this broker's own."""
        request = self._operations.asked_of(operation, source.hop)
        if isinstance(request, Advertise | Subscribe):
            self.ticks.note(Life(source.node, source.incarnation), _name_of(request), tick)
        return self._finish(self._operations.confirm(operation, source.hop), now)

    def redirect(
        self,
        gone: Neighbour,
        targets: Callable[[Operation], Iterable[NodeId]],
        now: float,
    ) -> set[OperationId]:
        """A neighbour is gone and others are in its place: of what they are asked instead."""
        to_send, done = self._operations.redirect(gone.hop, targets)
        for hop, request in to_send:
            neighbour = self._neighbours.get(hop)
            assert neighbour is not None
            self._send_in_turn(neighbour, self._as_of_now(hop, request) or request)
        for pending in done:
            self._finish(pending, now)
        return {request.operation for _, request in to_send}

    def hand_over(
        self,
        children: Sequence[Neighbour],
        taker: Neighbour,
        targets: Callable[[Operation], Iterable[NodeId]],
        now: float,
    ) -> set[OperationId]:
        """Children are behind another one from now on, by which they ask again what they asked.

        Returns of what the taker is asked now, perhaps not for the first time.
        """
        moved = [child.hop for child in children]
        for hop in (taker.hop, *moved):
            for pending in self._operations.excuse(hop, moved):
                self._finish(pending, now)
        return set().union(*(self.redirect(child, targets, now) for child in children))

    def ask_too(
        self, asked: Neighbour | None, targets: Callable[[Operation], Iterable[NodeId]]
    ) -> None:
        """Ask others, too, what a neighbour has been asked; they are absent, and will be told."""
        if asked is not None:
            self._operations.ask_too(asked.hop, targets)

    def wait_for(self, newcomer: Neighbour, operations: Iterable[OperationId]) -> None:
        """Ask somebody too, of these what is under way here; it is absent, and will be told."""
        self._operations.wait_for(newcomer.hop, operations)

    def unconfirmed_by(self, neighbour: Neighbour) -> list[OperationId]:
        """What it has been asked and has not confirmed."""
        return [request.operation for request in self._operations.unconfirmed_by(neighbour.hop)]

    def forget(self, neighbour: Neighbour, now: float) -> None:
        """A neighbour is gone for good: nobody waits for it."""
        for pending in self._operations.forget(neighbour.hop):
            self._finish(pending, now)

    def send_again(self, neighbour: Neighbour, now: float) -> None:
        """After a broken connection: whatever the neighbour has not confirmed."""
        assert neighbour.link is not None
        for request in self._operations.unconfirmed_by(neighbour.hop):
            current = self._as_of_now(neighbour.hop, request)
            if current is not None:
                self._outbox.send(neighbour.link, current)
            else:  # what came later counts, whether or not that is confirmed
                self._finish(self._operations.confirm(request.operation, neighbour.hop), now)

    def confirm_again(self, source: Neighbour, operation: OperationId) -> None:
        """A request came again; if it is done, say so again, and if not, say it to this one."""
        if self._operations.begin(operation, source.hop, (), 0.0) is None:
            self._confirm(source, operation)

    def on_refuse(self, source: Neighbour, refuse: Refuse) -> bool:
        """A neighbour objects; true if that ends an operation of this broker's own."""
        if self._operations.asked_of(refuse.operation, source.hop) is None:
            return False  # somebody else has objected before
        return self.call_off(refuse.operation, refuse.code, refuse.reason)

    def call_off(self, operation: OperationId, code: RefusalCode, reason: str) -> bool:
        """Say no to whoever has asked; true if that is this broker itself."""
        pending = self._operations.call_off(operation)
        if pending is None or pending.source is None:
            return pending is not None
        source = self._neighbours.get(pending.source)
        if source is not None:
            self.refuse(source, operation, code, reason)
        return False

    def claims(self) -> list[Claim]:
        """The names of which is being asked."""
        return [request for request in self._operations.requests() if isinstance(request, Claim)]

    def refuse(
        self, source: Neighbour, operation: OperationId, code: RefusalCode, reason: str
    ) -> None:
        """Say no; nothing of the operation has been installed."""
        self.refused += 1
        if source.link is not None:
            self._outbox.send(source.link, Refuse(operation=operation, code=code, reason=reason))

    def pending_at(self, hop: NodeId) -> dict[str, OperationId]:
        """The advertisements and subscriptions that this neighbour has not confirmed."""
        return _by_name(self._operations.unconfirmed_by(hop))

    def pending_for(self, hop: NodeId) -> dict[str, OperationId]:
        """Those that it has asked for, and has not been confirmed."""
        return _by_name(self._operations.requests_of(hop))

    def asked_by(self, hop: NodeId) -> frozenset[OperationId]:
        """What a neighbour has asked that is not confirmed to it yet."""
        return frozenset(request.operation for request in self._operations.requests_of(hop))

    def subscribed_at(self, hop: NodeId) -> frozenset[OperationId]:
        """The subscriptions that a neighbour has been told of and has not confirmed."""
        requests = self._operations.unconfirmed_by(hop)
        return frozenset(r.operation for r in requests if isinstance(r, Subscribe))

    def taken_back_from(self, neighbour: Neighbour) -> set[SubscriptionId]:
        """The subscriptions that it is to forget, and has not confirmed."""
        requests = self._operations.unconfirmed_by(neighbour.hop)
        return {request.subscription for request in requests if isinstance(request, Unsubscribe)}

    def take_latencies(self) -> list[float]:
        """How long operations took that were confirmed since the last call, in seconds."""
        taken, self._latencies = self._latencies, []
        return taken

    def _finish(self, done: Pending[Operation] | None, now: float) -> bool:
        if done is None:
            return False
        if len(self._latencies) < LATENCIES_MAX:
            self._latencies.append(now - done.since)
        if done.source is None:
            return True
        source = self._neighbours.get(done.source)
        if source is not None:
            self._confirm(source, done.operation)
        return False

    def _confirm(self, source: Neighbour, operation: OperationId) -> None:
        self._on_confirmed(operation)
        self._send_in_turn(source, Confirm(operation=operation, tick=next(self._neighbours.clock)))


def _by_name(requests: Iterable[Operation]) -> dict[str, OperationId]:
    return {
        _name_of(request): request.operation
        for request in requests
        if isinstance(request, Advertise | Subscribe)
    }


def _name_of(request: Advertise | Subscribe) -> str:
    return request.advertisement if isinstance(request, Advertise) else request.subscription
