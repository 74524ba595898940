"""Operations on their way: who asked, who still has to confirm.

Join, leave, (un)advertise and (un)subscribe are forwarded hop by hop, installed, and confirmed back
(`Confirm`): a node confirms to whoever it has an operation from once everybody it passed it on to
has confirmed. Because links are FIFO, a confirmation also says that everything sent before it on
that link has been installed.

An operation stays with a neighbour until that neighbour confirms it, so that after a broken
connection it can be sent again; installing one twice changes nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import attrs

from plait.routing.ids import NodeId, OperationId

Request = TypeVar("Request")


@attrs.define(eq=False)
class Pending(Generic[Request]):
    """One operation at one node, from its arrival until it is confirmed onwards."""

    operation: OperationId
    source: NodeId | None
    """Whom to confirm to; None for an operation of this node's own, or if whoever asked is gone."""
    missing: dict[NodeId, Request]
    """What was sent to whom and is not confirmed yet."""
    since: float
    involved: dict[NodeId, None] = attrs.field(factory=dict)
    """Whoever has ever asked for it or been asked, as far as they are noted under their names."""


class Operations(Generic[Request]):
    """The operations that a node has passed on and that are not confirmed everywhere."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pending: dict[OperationId, Pending[Request]] = {}
        self._involving: dict[NodeId, dict[OperationId, None]] = {}
        """In which of them a neighbour has a part, or had: who goes is looked up, not searched."""

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._pending)

    def __contains__(self, operation: OperationId) -> bool:
        """Whether this operation is under way."""
        return operation in self._pending

    def __iter__(self) -> Iterator[OperationId]:
        """Those under way, in the order in which they came."""
        return iter(self._pending)

    def begin(
        self,
        operation: OperationId,
        source: NodeId | None,
        requests: Iterable[tuple[NodeId, Request]],
        now: float,
    ) -> Pending[Request] | None:
        """Note what was sent to whom; None if that is nobody, and it is confirmed already.

        An operation may come again, from somebody else perhaps and with more to be told, after
        the tree has been re-formed. Who asks has not got to confirm it: each would wait for the
        other.
        """
        missing = dict(requests)
        pending = self._pending.get(operation)
        if pending is not None:
            pending.missing |= missing
            if source is not None:
                pending.missing.pop(source, None)
                pending.source = source
            if not pending.missing:
                self._end(pending)
                return None
        elif missing:
            pending = Pending(operation=operation, source=source, missing=missing, since=now)
            self._pending[operation] = pending
        else:
            return None
        self._involve(pending, [*missing, *([] if source is None else [source])])
        return pending

    def _involve(self, pending: Pending[Request], neighbours: Iterable[NodeId]) -> None:
        for neighbour in neighbours:
            pending.involved[neighbour] = None
            self._involving.setdefault(neighbour, {})[pending.operation] = None

    def _end(self, pending: Pending[Request]) -> None:
        del self._pending[pending.operation]
        for neighbour in pending.involved:
            involving = self._involving[neighbour]
            del involving[pending.operation]
            if not involving:
                del self._involving[neighbour]

    def confirm(self, operation: OperationId, neighbour: NodeId) -> Pending[Request] | None:
        """A neighbour has confirmed; returns the operation if that was the last one missing."""
        pending = self._pending.get(operation)
        if pending is None or pending.missing.pop(neighbour, None) is None or pending.missing:
            return None
        self._end(pending)
        return pending

    def call_off(self, operation: OperationId) -> Pending[Request] | None:
        """It has been refused: who has not confirmed it yet need not any more."""
        pending = self._pending.get(operation)
        if pending is not None:
            self._end(pending)
        return pending

    def pending(self) -> Iterable[Pending[Request]]:
        """Those under way, in the order in which they came."""
        return self._pending.values()

    def unconfirmed_by(self, neighbour: NodeId) -> list[Request]:
        """What was sent to a neighbour and not confirmed by it, in the order of sending."""
        return [
            pending.missing[neighbour]
            for pending in self._pending.values()
            if neighbour in pending.missing
        ]

    def disown(self, neighbour: NodeId) -> None:
        """A neighbour does not wait any more for what it has asked."""
        for operation in self._involving.get(neighbour, ()):
            pending = self._pending[operation]
            if pending.source == neighbour:
                pending.source = None

    def forget(self, neighbour: NodeId) -> list[Pending[Request]]:
        """A neighbour is gone for good; returns what was waiting for it alone."""
        self.disown(neighbour)
        concerned = list(self._involving.get(neighbour, ()))
        confirmed = [self.confirm(operation, neighbour) for operation in concerned]
        return [pending for pending in confirmed if pending is not None]
