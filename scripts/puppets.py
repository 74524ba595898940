"""Clients of an overlay as a script moves them: each does what it is told, one thing at a time."""

import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

import attrs
import trio

from plait.broker.errors import BrokerError, ClosedError, UnconfirmedError
from plait.broker.net.client import Client, ClientHooks, connect
from plait.broker.net.credentials import Credentials
from plait.broker.net.logs import Log
from plait.broker.net.subscription import Matches, Subscription
from plait.faulttol.history import History
from plait.routing.patterns.detection import Detection
from plait.routing.values import Content
from plait.scripts.happenings import ClientLost, Delivered, Published, Tell, detected
from plait.scripts.stage import Faults

Action = Callable[[Client], Awaitable[None]]


@attrs.define
class Counts:
    """What the clients of a stage have done together."""

    published: int = 0
    delivered: int = 0
    streams: int = 0
    """Streams that have not ended."""
    blocked: int = 0
    """Those of them that wait to be rid of a publication, and not for its time."""


@attrs.define(eq=False)
class _Job:
    action: Action
    done: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None
    is_awaited: bool = True


class Puppet:
    """One publisher or subscriber."""

    def __init__(self, client: Client, faults: Faults, counts: Counts, tell: Tell) -> None:
        self.client = client
        self.subscriptions: dict[str, list[Subscription]] = {}
        """By their filters, the latest last."""
        self.matches: list[Matches] = []
        """Of its detectors."""
        self.pending = 0
        """What it has been told to do and has not done."""
        self._faults = faults
        self._counts = counts
        self._tell = tell
        self._give, self._take = trio.open_memory_channel[_Job](math.inf)
        self._life = trio.CancelScope()
        self._is_lost = False
        self._may_act = trio.Event()
        self._may_act.set()
        self._nursery: trio.Nursery

    @property
    def name(self) -> str:
        """The name of the process."""
        return self.client.name

    @property
    def untaken(self) -> int:
        """How much it has been given and has not looked at."""
        subscriptions = itertools.chain.from_iterable(self.subscriptions.values())
        buffered = (each.buffered for each in subscriptions)
        return sum(buffered) + sum(each.buffered for each in self.matches)

    async def run(self) -> None:
        """Do what it is told, until its `end`; it may crash before."""
        with self._life:
            async with trio.open_nursery() as self._nursery:
                async for job in self._take:
                    await self._may_act.wait()
                    await self._do(job)
        self.pending = 0

    def end(self) -> None:
        """Take no more orders."""
        self._give.close()

    async def _do(self, job: _Job) -> None:
        try:
            with self.tolerant():
                await job.action(self.client)
        except Exception as error:
            if not job.is_awaited:
                raise
            job.error = error
        finally:
            self.pending -= 1
            job.done.set()

    async def ask(self, action: Action) -> None:
        """Have something done after all that was asked for before, and wait as long as it pays."""
        if self._is_lost:
            return
        job = _Job(action)
        self.pending += 1
        self._give.send_nowait(job)
        with trio.move_on_after(self._faults.patience_s):
            await job.done.wait()
        job.is_awaited = job.done.is_set()
        if job.error is not None:
            raise job.error

    @contextlib.contextmanager
    def tolerant(self) -> Iterator[None]:
        """After faults, a client may lose the overlay; that ends the client, and nothing else."""
        try:
            yield
        except (ClosedError, UnconfirmedError) as error:
            if not self._faults.have_been:
                raise
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._tell(ClientLost(self.name, reason))
            self._life.cancel()

    # --- what scripts do to it --------------------------------------------------------------

    def crash(self) -> None:
        """End it without a word."""
        self._is_lost = True
        self._life.cancel()
        ClientHooks(self.client).crash()

    def freeze(self) -> None:
        """Let it do nothing, and take in nothing."""
        self._may_act = trio.Event()
        ClientHooks(self.client).pause()

    def unfreeze(self) -> None:
        """Let it go on."""
        ClientHooks(self.client).resume()
        self._may_act.set()

    # --- what it does on the side -----------------------------------------------------------

    def take_deliveries(self, subscription: Subscription) -> None:
        """Take what a subscription is given, on the side."""
        self.subscriptions.setdefault(subscription.filter, []).append(subscription)
        self._nursery.start_soon(self._take_deliveries, subscription)

    async def _take_deliveries(self, subscription: Subscription) -> None:
        with self.tolerant():
            async for delivery in subscription:
                # What several subscriptions of a client asked for, each of them is given.
                if delivery.subscriptions[0] == subscription.id:
                    self._counts.delivered += 1
                    content = delivery.content
                    self._tell(Delivered(self.name, delivery.publisher, delivery.seq, content))

    async def begin_detecting(self, detection: Detection) -> None:
        """Look for a pattern, on the side; returns when that has begun."""
        await self._nursery.start(self._detect, detection)

    async def _detect(
        self, detection: Detection, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with self.tolerant():
            async with self.client.detect(**detection.fields()) as matches:
                self.matches.append(matches)
                task_status.started()
                async for match in matches:
                    self._tell(detected(self.name, match))

    async def begin_stream(self, contents: Iterator[Content], interval_s: float) -> None:
        """Publish one of these now, and the others by and by, on the side."""
        self._counts.streams += 1
        try:
            goes_on = await self._publish_next(contents)
        except BaseException:
            self._counts.streams -= 1
            raise
        if goes_on:
            self._nursery.start_soon(self._go_on, contents, interval_s)
        else:
            self._counts.streams -= 1

    async def _go_on(self, contents: Iterator[Content], interval_s: float) -> None:
        # Counted from the beginning: an interval is not stretched by what publishing takes.
        due = trio.current_time() + interval_s
        try:
            with self.tolerant():
                await trio.sleep_until(due)
                while await self._publish_next(contents):
                    due += interval_s
                    await trio.sleep_until(due)
        finally:
            self._counts.streams -= 1

    async def _publish_next(self, contents: Iterator[Content]) -> bool:
        self._counts.blocked += 1
        try:
            await self._may_act.wait()
            content = next(contents, None)
            if content is None:
                return False
            receipt = await self.client.publish(content)
        finally:
            self._counts.blocked -= 1
        self._counts.published += 1
        self._tell(Published(self.name, receipt.seq, content))
        return True


@contextlib.asynccontextmanager
async def connected(
    name: str,
    brokers: Iterable[str],
    *,
    credentials: Credentials | None,
    history: History,
    log: Log,
    faults: Faults,
) -> AsyncIterator[Client]:
    """Connect a client to the first of these that answers.

    After faults, nobody minds if it cannot take its leave in order.
    """
    has_ended = False
    try:
        async with connect(
            *brokers, name=name, credentials=credentials, incarnation=1, history=history, log=log
        ) as client:
            yield client
            has_ended = True
            if faults.have_been and client.unconfirmed:
                ClientHooks(client).abandon()
    except BrokerError:
        if not (has_ended and faults.have_been):
            raise
