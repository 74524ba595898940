"""The client library: publish and subscribe from a trio program.

A session, from the first connection to the last confirmation::

    async with connect("127.0.0.1:5000", name="alice") as alice:
        await alice.advertise("symbol = 'IBM'")
        subscription = await alice.subscribe("price > 100")
        await alice.publish({"symbol": "IBM", "price": 101.5}, b"details")

        async for delivery in subscription:
            print(delivery.publisher, delivery.seq, delivery.content["price"], delivery.body)
            break

Leaving the block waits until everything published is confirmed. Waiting has no timeout arguments:
`trio.fail_after` and `trio.move_on_after` do that, everywhere and for several calls together. A
lost connection is looked after in the background and costs neither publications nor deliveries;
only when it cannot be had back at all, calls raise `ClosedError`.
"""

import contextlib
import heapq
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

from plait.broker.client.core import ClientCore
from plait.broker.client.patience import Patience
from plait.broker.client.states import ClientState
from plait.broker.effects import (
    BecomeReady,
    BeginDetection,
    Deliver,
    Effect,
    EndOperation,
    Refusal,
    ReportConfirmed,
    ReportMatch,
    ReportRevoked,
    ReportSkipped,
    Stop,
)
from plait.broker.errors import (
    AddressError,
    BadNameError,
    ClosedError,
    RefusedError,
    UnconfirmedError,
)
from plait.broker.inputs import Input, ShutdownRequested, TimerFired
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.messages import RefusalCode
from plait.broker.net.addresses import complete_address
from plait.broker.net.credentials import Approach, Credentials
from plait.broker.net.driver import Driver
from plait.broker.net.logs import Log, no_log
from plait.broker.net.subscription import Matches, Subscription
from plait.broker.node_names import expected_name
from plait.broker.principals import OWNED_BEHIND
from plait.faulttol.history import History
from plait.routing.errors import TrapWarning
from plait.routing.filter_text import parse_filter, topic_filter
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.patterns.detection import Detection
from plait.routing.topics.protocol import Topic
from plait.routing.traps import traps_of_filter
from plait.routing.values import Content, ContentError

PUBLISHED_PER_CHECKPOINT: Final = 64
"""Publications handed over before others get a turn, also the task that writes them out."""

WRITE_BYTES: Final = 64 << 10
"""So much is written without waiting for that turn: it is what one batch has at most."""

LEAVE_TIMEOUT_S: Final = 2.0
"""For the broker to confirm that this client has left; after that it is merely told."""

PARTING_S: Final = 1.0
"""The same of a client that is given up."""


@contextlib.asynccontextmanager
async def connect(
    *brokers: str,
    name: str | None = None,
    credentials: Credentials | Path | str | None = None,
    incarnation: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    history: History | None = None,
    log: Log = no_log,
    on_state: Callable[[ClientState], None] | None = None,
) -> AsyncIterator["Client"]:
    """Connect to the first of these brokers that answers, and be its client within the block.

    Each is `host:port`; `:4000` is a port of this machine.

    `name` is one client in the whole overlay: as long as one of that name is connected anywhere,
    another is refused (`ClosedError`). Without a name the client gets one of its own. A program
    that comes back under its name does so with a higher `incarnation`, for which the clock is good
    enough, and counts its publications from 1 again. Whoever wants to know of lost and regained
    connections is told every new state by `on_state`.

    `credentials` are what it shows where brokers let nobody in who does not show who it is, or the
    file of a profile that has them. Then its name begins with that of its principal: `alice`, or
    `alice+` and anything.

    At the end of the block the client waits for its publications to be confirmed, at most for
    `limits.drain_timeout_s`, and leaves the overlay; `UnconfirmedError` says if some were not.
    After an exception it leaves without waiting for that.
    """
    _require_trio()
    if isinstance(credentials, Path | str):
        credentials = Credentials.read(Path(credentials))
    client = Client(
        NodeId(name if name is not None else _own_name(credentials)),
        time.time_ns() // 1_000_000 if incarnation is None else incarnation,
        brokers=brokers,
        limits=limits,
        history=history,
        log=log,
        on_state=on_state,
        approach=None if credentials is None else Approach(credentials),
    )
    with _lone_exception_as_itself():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client._run)
            try:
                await client._wait_ready()
                yield client
            except BaseException:
                client._abandon()
                raise
            await client.close()


def _own_name(credentials: Credentials | None) -> str:
    """A name that nobody else has, and that belongs to whoever shows these."""
    principal = "" if credentials is None else credentials.principal()
    prefix = f"{principal}{OWNED_BEHIND}" if principal else "client-"
    return f"{prefix}{secrets.token_hex(6)}"


def _require_trio() -> None:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        raise RuntimeError(
            "plait's client runs on trio: call it below trio.run(main), where there is "
            "asyncio.run(main) perhaps; beside asyncio, let trio.run have a thread of its own"
        ) from None


def _require_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what}: found {type(text).__name__}, expected text")


def _warn_of_traps(filter_text: str) -> None:
    _require_text("filter", filter_text)
    for trap in traps_of_filter(parse_filter(filter_text)):
        # Told where the client's method is called.
        warnings.warn(trap, TrapWarning, stacklevel=3)


class Client:
    """A connected client; `connect` makes one."""

    def __init__(
        self,
        name: NodeId,
        incarnation: int,
        *,
        brokers: Iterable[str],
        limits: Limits,
        history: History | None,
        log: Log,
        on_state: Callable[[ClientState], None] | None,
        approach: Approach | None = None,
    ) -> None:
        if expected := expected_name(name, limits):
            raise BadNameError(f"client name {name!r}: expected {expected}")
        brokers = [complete_address(address) for address in brokers]
        if not brokers:
            raise AddressError("no address: expected that of at least one broker, like host:port")
        self.name = name
        self._limits = limits
        self._body_bytes_max = limits.body_bytes_max
        self._is_recording = history is not None
        self._on_state = on_state
        self._core = ClientCore(
            name,
            incarnation,
            brokers=brokers,
            limits=limits,
            recording=self._is_recording,
        )
        self._state = self._core.state
        self._driver = Driver(
            self._step,
            limits=limits,
            log=log,
            history=history,
            handlers={
                Deliver: self._on_deliver,
                BeginDetection: self._on_begin_detection,
                ReportMatch: self._on_report_match,
                ReportConfirmed: self._on_report_confirmed,
                ReportSkipped: self._on_report_skipped,
                ReportRevoked: self._on_report_revoked,
                EndOperation: self._on_end_operation,
                BecomeReady: self._on_become_ready,
                Stop: self._on_stop,
            },
            is_trunk=lambda _: False,
            is_gated=lambda _: True,
            approach=approach,
        )
        self._ready = trio.Event()
        self._stopped = trio.Event()
        self._abandoned = trio.Event()
        self._stop_reason: str | None = None
        self._is_closing = False
        self._is_paused = False
        self._held: list[Input] = []
        """What happened while it was paused: no more than one read of each connection, as the gate
        is closed, one timer, and the end of an attempt to connect."""
        self._operations: dict[OperationId, _Outcome] = {}
        self._subscriptions: dict[SubscriptionId, Subscription | Matches] = {}
        self._has_room = True
        """Whether the window has, as it was last seen: asked for every publication."""
        self._room_made = trio.Event()
        self._credit = 0
        """Publications to hand over before the next checkpoint."""
        self._flush_wanted = trio.Event()
        self._last_seq = 0
        self._confirmed_seq = 0
        self._skipped: dict[int, str] = {}
        self._awaited: list[int] = []
        """Numbers of publications that somebody waits for, as a heap."""
        self._settled: dict[int, trio.Event] = {}

    def __repr__(self) -> str:
        return f"<Client {self.name}: {self.state}>"

    @property
    def incarnation(self) -> int:
        """Which life of this name it is; deliveries say from which life they are."""
        return self._core.incarnation

    @property
    def state(self) -> ClientState:
        """Where this client stands with the overlay."""
        return self._core.state

    @property
    def broker(self) -> NodeId | None:
        """The broker it is, or was last, connected to."""
        return self._core.broker

    @property
    def unconfirmed(self) -> int:
        """How many publications have been handed over and are not confirmed yet."""
        return self._core.unconfirmed

    # --- advertising and publishing ---------------------------------------------------------

    async def advertise(self, filter_text: str) -> "Advertisement":
        """Announce what this client will publish; it may, as soon as this returns.

        Cancelled, it leaves no advertisement behind.
        """
        _warn_of_traps(filter_text)
        name, operation = self._core.advertise(self._driver.now(), filter_text)
        try:
            await self._perform(operation)
        except trio.Cancelled:
            self._withdraw_unheard(lambda now: self._core.unadvertise(now, name))
            raise
        return Advertisement(name, filter_text, self)

    async def publish(
        self, content: Content, body: bytes = b"", *, ordered: bool = True, confirm: bool = False
    ) -> "Receipt":
        """Publish; waits for nothing but room in the window of unconfirmed publications.

        A subscriber that confirms nothing does not fill it for good: beyond it, publishing goes on
        at a lowest rate, see `broker/window.py`.

        With `confirm`, it also waits until everybody who is owed the publication has it. Not
        `ordered`, a publication neither waits for others nor makes others wait.

        As long as there is room, only every 64th call is a checkpoint. What was published is on
        its way at the next checkpoint of this task at the latest.
        """
        if self._credit and self._has_room:
            self._credit -= 1
        else:
            await self._wait_for_room()
        receipt = self.publish_nowait(content, body, ordered=ordered, urgent=confirm)
        if confirm:
            self._send()
            await receipt.confirmed()
        return receipt

    def publish_nowait(
        self, content: Content, body: bytes = b"", *, ordered: bool = True, urgent: bool = False
    ) -> "Receipt":
        """Publish, or raise `trio.WouldBlock` if too many publications are unconfirmed.

        An `urgent` one is confirmed as early as possible; others wait some milliseconds for
        company.
        """
        if self._stop_reason is not None:
            raise ClosedError(self._stop_reason)
        driver = self._driver
        now = driver.now()
        if not self._has_room and now < self._core.window.opens_at:
            raise trio.WouldBlock
        if type(body) is not bytes:
            raise TypeError(f"body: found {type(body).__name__}, expected bytes")
        if len(body) > self._body_bytes_max:
            raise ContentError(f"body of {len(body)} bytes, at most {self._body_bytes_max} allowed")
        seq = self._core.publish(now, content, body, ordered=ordered, urgent=urgent)
        self._last_seq = seq
        self._has_room = self._core.window.has_room
        driver.carry_out(self._core.take_part())
        if driver.unflushed_bytes > WRITE_BYTES:
            self._send()
        else:
            self._flush_wanted.set()
        return Receipt(seq, self)

    async def publish_many(
        self,
        publications: Iterable[Content | tuple[Content, bytes]],
        *,
        ordered: bool = True,
        confirm: bool = False,
    ) -> list["Receipt"]:
        """Publish contents, or pairs of content and body, one after the other."""
        receipts = []
        for publication in publications:
            content, body = publication if isinstance(publication, tuple) else (publication, b"")
            receipts.append(await self.publish(content, body, ordered=ordered))
        if confirm:
            for receipt in receipts:
                await receipt.confirmed()
        return receipts

    async def flush(self) -> None:
        """Wait until everything published so far is confirmed."""
        await self._wait_settled(self._last_seq)
        if self._skipped:
            raise UnconfirmedError(self._describe_skipped())

    # --- subscribing ------------------------------------------------------------------------

    async def subscribe(
        self,
        filter_text: str | None = None,
        *,
        topic: str | None = None,
        ordered: bool = True,
        late: Literal["deliver", "drop", "wait"] = "deliver",
        patience: Patience | None = None,
    ) -> Subscription:
        """Ask for publications by content, or by topic: `/a/*` is everything under `/a/`.

        What reaches this client's broker after this has returned is delivered. Cancelled, it
        leaves no subscription behind.

        What comes out of order (`delivery.in_order`) where an overlay tags that, is delivered, or
        dropped. The history has it in either case. Or this client waits for what is missing, as far
        as its `patience` goes, and less is out of order.
        """
        if late not in ("deliver", "drop", "wait"):
            raise ValueError(f"late: {late!r}, expected 'deliver', 'drop' or 'wait'")
        if (filter_text is None) == (topic is None):
            raise TypeError("subscribe takes either a filter or a topic")
        if filter_text is None:
            assert topic is not None
            _require_text("topic", topic)
            filter_text = topic_filter(topic).sql
        _warn_of_traps(filter_text)
        name, operation = self._core.subscribe(
            self._driver.now(),
            filter_text,
            ordered=ordered,
            patience=(patience or Patience()) if late == "wait" else None,
        )
        subscription = Subscription(
            name,
            filter_text,
            is_ordered=ordered,
            drops_late=late == "drop",
            **self._inbox_settings(),
        )
        await self._begin_subscription(subscription, operation)
        return subscription

    async def rank(self, topic: str, *, above: str) -> None:
        """Have a topic rank above another one: they change places if it does not.

        Where topics have managers that a hash has put somewhere (`--managers hash`), they have an
        order, and what is published on a higher topic visits fewer of them.
        """
        _require_text("topic", topic)
        _require_text("topic", above)
        await self._perform(self._core.rank(self._driver.now(), Topic(topic), Topic(above)))

    @contextlib.asynccontextmanager
    async def detect(
        self,
        pattern: str,
        *,
        where: Mapping[str, str],
        policy: Literal["contiguous", "next", "any"] = "next",
        within: int | None = None,
        sync: str | None = None,
        late: Literal["uncertain", "drop"] = "uncertain",
    ) -> AsyncIterator[Matches]:
        """Look for a pattern in what is published from now on, within the block.

        `where` has a filter for each letter of the pattern; see docs/patterns.md. What is found is
        a function of the sequence that this client is given, so that two detectors of the same
        find the same where overlays order publications of all publishers.
        """
        detection = Detection.of(pattern, where, policy=policy, within=within, sync=sync, late=late)
        name, operation = self._core.detect(self._driver.now(), detection)
        matches = Matches(name, detection, **self._inbox_settings())
        await self._begin_subscription(matches, operation)
        async with matches:
            yield matches

    def _inbox_settings(self) -> dict[str, Any]:
        return {
            "full_at": self._limits.delivery_buffer_max,
            "on_full": self._driver.gate.close,
            "on_taken": self._relieve,
            "withdraw": self._unsubscribe,
        }

    async def _begin_subscription(
        self, subscription: Subscription | Matches, operation: OperationId
    ) -> None:
        """Wait until it is confirmed; cancelled, leave none behind."""
        name = subscription.id
        self._subscriptions[name] = subscription
        try:
            await self._perform(operation)
        except BaseException as error:
            self._end_subscription(subscription)
            if isinstance(error, trio.Cancelled):
                self._withdraw_unheard(lambda now: self._core.unsubscribe(now, name))
            raise

    async def _unsubscribe(self, subscription: Subscription | Matches) -> None:
        if self._subscriptions.get(subscription.id) is not subscription:
            return  # ended before
        self._end_subscription(subscription)
        if self._core.state not in (ClientState.LEAVING, ClientState.CLOSED):
            await self._perform(self._core.unsubscribe(self._driver.now(), subscription.id))

    def _end_subscription(self, subscription: Subscription | Matches) -> None:
        del self._subscriptions[subscription.id]
        subscription._end()
        self._relieve()

    def _relieve(self) -> None:
        """Read on if applications have caught up: to half a buffer, or it would stop and go."""
        if not self._driver.gate.is_open and not self._is_paused:
            half = self._limits.delivery_buffer_max // 2
            if all(subscription.buffered <= half for subscription in self._subscriptions.values()):
                self._driver.gate.open()

    # --- closing ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait for confirmations, for a bounded time, and leave; at the end of `connect` as well.

        Cancelled, it leaves without waiting.
        """
        if self._is_closing:
            return
        self._is_closing = True
        try:
            with trio.move_on_after(self._limits.drain_timeout_s):
                await self._wait_settled(self._last_seq)
            self._leave()
            with trio.move_on_after(LEAVE_TIMEOUT_S):
                await self._stopped.wait()
            self._go()
        except BaseException:
            self._abandon()
            raise
        if self._skipped:
            raise UnconfirmedError(self._describe_skipped())

    def _abandon(self) -> None:
        """Leave without waiting for anything; the end of `connect` waits a moment at most.

        In that moment the broker and others get to know whatever this client alone knows of.
        """
        self._is_closing = True
        if self._is_paused or self.state not in (ClientState.READY, ClientState.LEAVING):
            self._go()
            return
        self._abandoned.set()
        for subscription in self._subscriptions.values():
            subscription._end()
        self._leave()

    def _leave(self) -> None:
        """Ask to be let go; nothing is delivered any more, so there is no need not to read on."""
        # Left already, or closed for good: then there is nobody to tell.
        with contextlib.suppress(ClosedError):
            self._core.leave(self._driver.now())
        self._send()
        if not self._is_paused:
            self._driver.gate.open()

    def _go(self) -> None:
        """Say that this client leaves, if anybody listens, and end."""
        try:
            self._driver.step(ShutdownRequested())
        finally:
            self._driver.stop()

    # --- in the background ------------------------------------------------------------------

    async def _run(self) -> None:
        """Keep the connection, until the client has left or been given up.

        Shielded, because the end of `connect` sees to it that this ends, and a client that is
        cancelled has to have a connection to take its leave over.
        """
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._flush_when_wanted)
                nursery.start_soon(self._go_when_abandoned)
                await self._driver.run(self._start)
                nursery.cancel_scope.cancel()

    async def _go_when_abandoned(self) -> None:
        await self._abandoned.wait()
        await trio.sleep(PARTING_S)
        self._go()

    async def _wait_ready(self) -> None:
        """Wait until a broker has let this client join."""
        await self._ready.wait()
        if self._stop_reason is not None:
            raise ClosedError(self._stop_reason)

    async def _flush_when_wanted(self) -> None:
        """Write what a task has published when it is that task's turn to wait."""
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            self._send()

    def _start(self, now: float) -> list[Effect]:
        self._core.start(now)
        return self._take_effects()

    def _step(self, now: float, happened: Input) -> list[Effect]:
        if self._is_paused and not isinstance(happened, ShutdownRequested):
            self._held.append(happened)
            return []
        self._core.step(now, happened)
        return self._take_effects()

    def _send(self) -> None:
        """End the batch, and write it out."""
        self._driver.carry_out(self._take_effects())
        self._driver.flush()

    def _take_effects(self) -> list[Effect]:
        if self._core.state is not self._state:
            self._state = self._core.state
            if self._on_state is not None:
                self._on_state(self._state)
        return self._core.take_effects()

    # --- effects ----------------------------------------------------------------------------

    def _on_deliver(self, effect: Deliver) -> None:
        delivery = effect.delivery
        if self._is_recording:
            self._driver.record("delivered", delivery.record_fields(self.name))
        # The application sees none of it before the driver, at the end of this step, has flushed
        # the record.
        for name in delivery.subscriptions:
            subscription = self._subscriptions.get(name)
            if subscription is not None:
                subscription._put(delivery)

    def _on_begin_detection(self, effect: BeginDetection) -> None:
        matches = self._subscriptions.get(effect.detector)
        if isinstance(matches, Matches):
            matches.times_begun += 1

    def _on_report_match(self, effect: ReportMatch) -> None:
        if self._is_recording:
            self._driver.record("detected", effect.match.record_fields(effect.detector))
        matches = self._subscriptions.get(effect.detector)
        if isinstance(matches, Matches):
            matches._add(effect.match)

    def _on_report_confirmed(self, effect: ReportConfirmed) -> None:
        self._confirmed_seq = effect.seq
        self._has_room = self._core.window.has_room
        self._room_made.set()
        while self._awaited and self._awaited[0] <= effect.seq:
            self._settled.pop(heapq.heappop(self._awaited)).set()

    def _on_report_skipped(self, effect: ReportSkipped) -> None:
        self._skipped[effect.seq] = effect.reason
        if effect.seq in self._settled:
            self._settled[effect.seq].set()

    def _on_report_revoked(self, effect: ReportRevoked) -> None:
        """What may not be published any more, `publish` refuses."""
        subscription = self._subscriptions.pop(SubscriptionId(effect.name), None)
        if subscription is not None:
            subscription._end(RefusedError(RefusalCode.NOT_ALLOWED, effect.reason))
            self._relieve()

    def _on_end_operation(self, effect: EndOperation) -> None:
        outcome = self._operations.get(effect.operation)
        if outcome is not None:
            outcome.is_known = True
            outcome.refusal = effect.refusal
            outcome.ended.set()

    def _on_become_ready(self, _: BecomeReady) -> None:
        self._ready.set()

    def _on_stop(self, effect: Stop) -> None:
        """The core has come to its end: nobody is to wait for it any longer."""
        self._stop_reason = effect.reason
        for subscription in self._subscriptions.values():
            subscription._end(None if self._is_closing else ClosedError(effect.reason))
        for outcome in self._operations.values():
            outcome.ended.set()
        for settled in self._settled.values():
            settled.set()
        self._ready.set()
        self._room_made.set()
        self._stopped.set()
        self._driver.stop()

    # --- waiting ----------------------------------------------------------------------------

    async def _perform(self, operation: OperationId) -> None:
        """Send what an operation has put into the outbox, and wait for its end."""
        outcome = self._operations[operation] = _Outcome()
        self._send()
        try:
            await outcome.ended.wait()
        finally:
            del self._operations[operation]
        if outcome.refusal is not None:
            raise RefusedError(outcome.refusal.code, outcome.refusal.reason)
        if not outcome.is_known:
            assert self._stop_reason is not None
            raise ClosedError(self._stop_reason)

    def _withdraw_unheard(self, withdraw: Callable[[float], OperationId]) -> None:
        """Take back what was asked for by a task that has been cancelled in the meantime."""
        with contextlib.suppress(ClosedError):
            withdraw(self._driver.now())
        self._send()

    async def _wait_for_room(self) -> None:
        self._credit = PUBLISHED_PER_CHECKPOINT
        await trio.lowlevel.checkpoint()
        while not self._has_room and self._stop_reason is None:
            opens_at = self._core.window.opens_at
            if self._driver.now() >= opens_at:
                break
            if self._room_made.is_set():
                self._room_made = trio.Event()
            with trio.move_on_at(opens_at):
                await self._room_made.wait()

    async def _wait_settled(self, seq: int) -> None:
        """Wait until it is known what has become of a publication and of all before it."""
        while seq > self._confirmed_seq and seq not in self._skipped:
            if self._stop_reason is not None:
                raise ClosedError(self._stop_reason)
            if seq not in self._settled:
                self._settled[seq] = trio.Event()
                heapq.heappush(self._awaited, seq)
            await self._settled[seq].wait()

    async def wait_confirmed(self, seq: int) -> None:
        """Wait until a publication is confirmed."""
        await self._wait_settled(seq)
        if seq in self._skipped:
            raise UnconfirmedError(f"publication {seq} of {self.name}: {self._skipped[seq]}")

    def _describe_skipped(self) -> str:
        seq, reason = next(iter(self._skipped.items()))
        return (
            f"{len(self._skipped)} publications of {self.name} are not confirmed, "
            f"the first is {seq}: {reason}"
        )


class ClientHooks:
    """What the launcher and tests do to a client, as faults would; no program has a reason to."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def abandon(self) -> None:
        """Leave without waiting for anything."""
        self._client._abandon()

    def pause(self) -> None:
        """Take in nothing until `resume`, as a process does that is stopped.

        It reads nothing, answers nothing, dials nobody, and no time passes for it: else it would
        take its broker for dead, of which it hears nothing only because it does not listen.
        """
        self._client._is_paused = True
        self._client._driver.gate.close()

    def resume(self) -> None:
        """Go on with what has arrived; only then find out how late it is."""
        self._client._is_paused = False
        held, self._client._held = self._client._held, []
        is_late = TimerFired() in held
        for happened in held:
            if happened != TimerFired():
                self._client._driver.step(happened)
        if is_late:
            self._client._driver.fire_timer()
        self._client._relieve()

    def crash(self) -> None:
        """End without a word, as a process does that is killed."""
        self._client._is_closing = True
        self._client._core.step(self._client._driver.now(), ShutdownRequested())
        self._client._core.take_effects()  # and carry out none of them: that would be a leave
        self._client._on_stop(Stop("crashed"))


@attrs.define(eq=False)
class _Outcome:
    """How an operation ended, once it has."""

    ended: trio.Event = attrs.field(factory=trio.Event)
    is_known: bool = False
    refusal: Refusal | None = None


@attrs.frozen(eq=False)
class Advertisement:
    """What a client has announced to publish."""

    id: AdvertisementId
    filter: str
    _client: Client = attrs.field(repr=False)

    async def withdraw(self) -> None:
        """Publish under it no more; returns when the overlay has confirmed that."""
        client = self._client
        await client._perform(client._core.unadvertise(client._driver.now(), self.id))


@attrs.define(eq=False)
class Receipt:
    """A publication that has been handed over."""

    seq: int
    """Its number, 1, 2, 3 ... in this life of the publisher; see `Client.incarnation`."""
    _client: Client = attrs.field(repr=False)

    @property
    def is_confirmed(self) -> bool:
        """Whether everybody who was owed the publication is known to have it."""
        return self.seq <= self._client._confirmed_seq and self.seq not in self._client._skipped

    async def confirmed(self) -> None:
        """Wait until it is; `UnconfirmedError` if it never will be."""
        await self._client.wait_confirmed(self.seq)


@contextlib.contextmanager
def _lone_exception_as_itself() -> Iterator[None]:
    """Undo the wrapping by a nursery that its user need not know about."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        lone = group.exceptions[0]
        context = lone.__context__
        try:
            raise lone
        finally:
            lone.__context__ = context  # not the group, which would be shown as another error
            del lone, context
