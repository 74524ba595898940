"""Operations under way at one broker: passing them on, and their confirmations back.

What an operation does where it passes is `interests.py` (advertisements, subscriptions) and
`machine.py` (joining, leaving); this module only sees that it is confirmed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from plait.broker.machine.counting import Counters
from plait.broker.machine.neighbours import Neighbour, Neighbours
from plait.broker.machine.steps import Steps
from plait.broker.messages import Confirm, Message, Operation, RefusalCode, Refuse
from plait.faulttol.operations import Operations, Pending
from plait.routing.ids import NodeId, OperationId
from plait.routing.tables import Advertisement, Subscription


class SendInTurn(Protocol):
    """Sends a message behind every publication that is here already."""

    def __call__(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        """Send it."""


class Requests:
    """The operations under way at one broker."""

    def __init__(
        self, neighbours: Neighbours, steps: Steps, send_in_turn: SendInTurn, counters: Counters
    ) -> None:
        """Begin with none; everything is sent in turn, behind publications that are held."""
        self.counters = counters
        self._neighbours = neighbours
        self._steps = steps
        self._send_in_turn = send_in_turn
        self._operations: Operations[Operation] = Operations()
        self._begun_in: dict[OperationId, int] = {}
        """The step in which each that is under way was taken; in the order of these."""

    def __len__(self) -> int:
        """How many are not confirmed everywhere."""
        return len(self._operations)

    def __contains__(self, operation: OperationId) -> bool:
        """Whether this one is not confirmed everywhere."""
        return operation in self._operations

    @property
    def first_step(self) -> int | None:
        """The first step of which some operation is under way."""
        return next(iter(self._begun_in.values()), None)

    def pass_on(
        self,
        operation: OperationId,
        source: Neighbour | None,
        requests: Iterable[tuple[Neighbour, Operation]],
        now: float,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        """Send it to these neighbours; without any, it is confirmed to its source at once."""
        requests = list(requests)
        for neighbour, request in requests:
            self._send_in_turn(neighbour, request, about)
        begun = self._operations.begin(
            operation,
            source.hop if source else None,
            [(neighbour.hop, request) for neighbour, request in requests],
            now,
        )
        if begun is None:
            self._begun_in.pop(operation, None)
            if source is not None:
                self._confirm(source, operation, since=now)
        else:
            self._begun_in.setdefault(operation, self._steps.number)

    def on_confirm(self, source: Neighbour, operation: OperationId) -> None:
        """A neighbour has confirmed."""
        self._finish(self._operations.confirm(operation, source.hop))

    def forget(self, neighbour: Neighbour) -> None:
        """A neighbour is gone for good: nobody waits for it."""
        for pending in self._operations.forget(neighbour.hop):
            self._finish(pending)

    def begin_anew(
        self, neighbour: Neighbour, is_needed: Callable[[NodeId, Operation], bool]
    ) -> None:
        """A neighbour has forgotten everything: ask it again what is needed, and all else is done.

        What it has asked itself, nobody confirms to it.
        """
        self._operations.disown(neighbour.hop)
        for request in self._operations.unconfirmed_by(neighbour.hop):
            if is_needed(neighbour.hop, request):
                self._steps.send(neighbour, request)
            else:
                self._finish(self._operations.confirm(request.operation, neighbour.hop))

    def call_off(self, operation: OperationId) -> Pending[Operation] | None:
        """It was refused: nobody has to confirm it any more."""
        self._begun_in.pop(operation, None)
        return self._operations.call_off(operation)

    def has_any_of(self, neighbour: Neighbour) -> bool:
        """Whether a neighbour has asked for something that is not confirmed."""
        return any(pending.source == neighbour.hop for pending in self._operations.pending())

    def ask_again(
        self,
        neighbour: Neighbour,
        unsent: Sequence[Message],
        is_outdated: Callable[[NodeId, Operation], bool],
    ) -> None:
        """Send again what a neighbour has not confirmed: to install it twice changes nothing.

        But not what has been overtaken: the later operation was confirmed, or is sent again too.
        Nor what has not been sent yet, as it waits for its turn.
        """
        for request in self._operations.unconfirmed_by(neighbour.hop):
            if any(request is each for each in unsent):
                continue
            if is_outdated(neighbour.hop, request):
                self._finish(self._operations.confirm(request.operation, neighbour.hop))
            else:
                self._steps.send(neighbour, request)

    def refuse(
        self, source: Neighbour, operation: OperationId, code: RefusalCode, reason: str
    ) -> None:
        """Say no; nothing of the operation has been installed."""
        self.counters.operations_refused += 1
        self._steps.send(source, Refuse(operation=operation, code=code, reason=reason))

    def waiting(self) -> dict[OperationId, tuple[NodeId | None, frozenset[NodeId]]]:
        """For each, to whom it will be confirmed and by whom it has to be."""
        return {
            pending.operation: (pending.source, frozenset(pending.missing))
            for pending in self._operations.pending()
        }

    def _finish(self, done: Pending[Operation] | None) -> None:
        if done is None:
            return
        self._begun_in.pop(done.operation, None)
        if done.source is not None:
            source = self._neighbours.get(done.source)
            if source is not None:
                self._confirm(source, done.operation, since=done.since)

    def _confirm(self, source: Neighbour, operation: OperationId, *, since: float) -> None:
        self.counters.note_confirmed(since)
        self._send_in_turn(source, Confirm(operation=operation))
