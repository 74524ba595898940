"""What a subscriber's application holds: async iterators over what it asked for."""

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import trio

from plait.broker.effects import Delivery, Match
from plait.broker.errors import BrokerError
from plait.routing.ids import SubscriptionId
from plait.routing.patterns.detection import Detection

TAKEN_PER_CHECKPOINT: Final = 64
"""Deliveries taken from a full buffer before others get a turn: some 50 µs of a busy loop."""


Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """What comes of one subscription, in the order of the overlay.

    Iterate over it, one by one or in `batches`; several tasks may share it. Iteration ends when
    the subscription does: with `unsubscribe` or when the client is closed, after what had been
    delivered before; with `ClosedError` if the overlay was lost for good, and with `RefusedError`
    if the rules of the broker do not allow it any more.

    What is not taken waits in a buffer. Once that is over its limit the client reads nothing more,
    neither for its other subscriptions nor the confirmations of what it publishes. So end a
    subscription that nobody iterates over, and let a task that publishes not be the one that takes.
    """

    def __init__(
        self,
        name: SubscriptionId,
        filter_text: str,
        *,
        full_at: int,
        on_full: Callable[[], None],
        on_taken: Callable[[], None],
        withdraw: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.id = name
        self.filter = filter_text
        self._full_at = full_at
        self._on_full = on_full
        self._on_taken = on_taken
        self._withdraw = withdraw
        self._buffer: deque[Item] = deque()
        self._credit = 0
        """How many to take before the next checkpoint."""
        self._arrived = trio.Event()
        self._is_awaited = False
        self._has_ended = False
        self._failure: BrokerError | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.filter}>"

    @property
    def buffered(self) -> int:
        """How many wait to be taken."""
        return len(self._buffer)

    def __aiter__(self) -> Self:
        """Iterate over them, one by one."""
        return self

    async def __anext__(self) -> Item:
        """Take the next one.

        As long as there are some in the buffer, only every 64th is a checkpoint: the scheduler
        would cost more than the rest of it. Where it matters, `await trio.lowlevel.checkpoint()`.
        """
        if self._credit and self._buffer:
            self._credit -= 1
            return self._buffer.popleft()
        await self._wait()
        return self._buffer.popleft()

    def batches(self) -> "Batches[Item]":
        """Iterate over lists of all that has come in the meantime, for throughput."""
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

    def _add(self, item: Item) -> None:
        """Hand something to the application."""
        buffer = self._buffer
        buffer.append(item)
        if self._is_awaited:
            self._is_awaited = False
            self._arrived.set()
        if len(buffer) > self._full_at:
            self._on_full()

    def _put(self, delivery: Delivery) -> None:
        """Take note of a delivery."""
        raise NotImplementedError

    def _end(self, failure: BrokerError | None = None) -> None:
        """Let iteration end after what is in the buffer; with an error if there is a reason."""
        if not self._has_ended:
            self._has_ended = True
            self._failure = failure
            self._arrived.set()

    # --- taking -----------------------------------------------------------------------------

    def _take_all(self) -> list[Item]:
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
                raise self._failure
            if self._has_ended:
                raise StopAsyncIteration
            if not self._is_awaited:
                self._arrived = trio.Event()
                self._is_awaited = True
            await self._arrived.wait()


class Subscription(Inbox[Delivery]):
    """Publications that match one filter."""

    def __init__(
        self,
        name: SubscriptionId,
        filter_text: str,
        *,
        is_ordered: bool,
        drops_late: bool,
        **ways: Any,
    ) -> None:
        super().__init__(name, filter_text, **ways)
        self.is_ordered = is_ordered
        self.drops_late = drops_late

    def _put(self, delivery: Delivery) -> None:
        """Hand a delivery to the application, unless it comes late and that is not wanted."""
        if not (self.drops_late and not delivery.in_order):
            self._add(delivery)


class Matches(Inbox[Match]):
    """What a detector finds, match by match."""

    def __init__(self, name: SubscriptionId, detection: Detection, **ways: Any) -> None:
        super().__init__(name, detection.union, **ways)
        self.detection = detection
        self.times_begun = 0
        """How often it has begun: more than once if a session was lost, and with it what was
        published meanwhile. No match spans that."""

    def _put(self, delivery: Delivery) -> None:
        """Do nothing: of a delivery, the application gets the matches."""


class Batches(Generic[Item]):
    """What comes of a subscription, as many at a time as there are."""

    def __init__(self, inbox: Inbox[Item]) -> None:
        self._inbox = inbox

    def __aiter__(self) -> Self:
        """Iterate over lists; none is empty."""
        return self

    async def __anext__(self) -> list[Item]:
        """Take everything, after waiting for something. Every batch is a checkpoint."""
        await self._inbox._wait()
        return self._inbox._take_all()
