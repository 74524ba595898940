"""What a subscriber's application holds: an async iterator over what it asked for."""

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

import trio

from plait.broker.effects import Delivery
from plait.broker.errors import ClosedError
from plait.routing.ids import SubscriptionId

TAKEN_PER_CHECKPOINT: Final = 64
"""Deliveries taken from a full buffer before others get a turn: some 50 µs of a busy loop."""


class Subscription:
    """Publications that match one filter, in the order of the overlay.

    Iterate over it, one by one or in `batches`; several tasks may share it. Iteration ends when
    the subscription does: with `unsubscribe` or when the client is closed, after what had been
    delivered before; with `ClosedError` if the overlay was lost for good.

    What is not taken waits in a buffer. Once that is over its limit the client reads nothing more,
    neither for its other subscriptions nor the confirmations of what it publishes. So end a
    subscription that nobody iterates over, and let a task that publishes not be the one that takes.
    """

    def __init__(
        self,
        name: SubscriptionId,
        filter_text: str,
        *,
        is_ordered: bool,
        drops_late: bool,
        full_at: int,
        on_full: Callable[[], None],
        on_taken: Callable[[], None],
        withdraw: Callable[["Subscription"], Awaitable[None]],
    ) -> None:
        self.id = name
        self.filter = filter_text
        self.is_ordered = is_ordered
        self.drops_late = drops_late
        self._full_at = full_at
        self._on_full = on_full
        self._on_taken = on_taken
        self._withdraw = withdraw
        self._buffer: deque[Delivery] = deque()
        self._credit = 0
        """Deliveries to take before the next checkpoint."""
        self._arrived = trio.Event()
        self._is_awaited = False
        self._has_ended = False
        self._failure: str | None = None

    def __repr__(self) -> str:
        return f"<Subscription {self.id}: {self.filter}>"

    @property
    def buffered(self) -> int:
        """How many deliveries wait to be taken."""
        return len(self._buffer)

    def __aiter__(self) -> Self:
        """Iterate over deliveries, one by one."""
        return self

    async def __anext__(self) -> Delivery:
        """Take the next delivery.

        As long as there are some in the buffer, only every 64th is a checkpoint: the scheduler
        would cost more than the rest of it. Where it matters, `await trio.lowlevel.checkpoint()`.
        """
        if self._credit and self._buffer:
            self._credit -= 1
            return self._buffer.popleft()
        await self._wait()
        return self._buffer.popleft()

    def batches(self) -> "Batches":
        """Iterate over lists of all that has been delivered in the meantime, for throughput."""
        return Batches(self)

    async def unsubscribe(self) -> None:
        """End it: nothing is delivered from now on. Returns when the overlay has confirmed that."""
        await self._withdraw(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.unsubscribe()

    # --- for the client ---------------------------------------------------------------------

    def put(self, delivery: Delivery) -> None:
        """Hand a delivery to the application, unless it comes late and that is not wanted."""
        if self.drops_late and not delivery.in_order:
            return
        buffer = self._buffer
        buffer.append(delivery)
        if self._is_awaited:
            self._is_awaited = False
            self._arrived.set()
        if len(buffer) > self._full_at:
            self._on_full()

    def end(self, failure: str | None = None) -> None:
        """Let iteration end after what is in the buffer; with an error if there is a reason."""
        if not self._has_ended:
            self._has_ended = True
            self._failure = failure
            self._arrived.set()

    # --- taking -----------------------------------------------------------------------------

    def take_all(self) -> list[Delivery]:
        """Empty the buffer."""
        taken = list(self._buffer)
        self._buffer.clear()
        return taken

    async def _wait(self) -> None:
        """Let others run, then wait until there is something to take."""
        self._credit = TAKEN_PER_CHECKPOINT
        self._on_taken()
        await trio.lowlevel.checkpoint()
        while not self._buffer:
            if self._failure is not None:
                raise ClosedError(self._failure)
            if self._has_ended:
                raise StopAsyncIteration
            if not self._is_awaited:
                self._arrived = trio.Event()
                self._is_awaited = True
            await self._arrived.wait()


class Batches:
    """The deliveries of a subscription, as many at a time as there are."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Self:
        """Iterate over lists of deliveries; none is empty."""
        return self

    async def __anext__(self) -> list[Delivery]:
        """Take everything, after waiting for something. Every batch is a checkpoint."""
        await self._subscription._wait()
        return self._subscription.take_all()
