"""One broker as a program runs it: listen, join, serve, stop."""

import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from plait.broker.effects import BecomeReady, Effect, Level, RememberSeats, Stop
from plait.broker.errors import BadNameError, GaveUpError
from plait.broker.event_lines import forward_lines
from plait.broker.fences import NEVER_FENCED, Fences
from plait.broker.host.host import Host
from plait.broker.host.seats import next_incarnation
from plait.broker.inputs import Input, RulesChanged, ShutdownRequested
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.net.addresses import name_of
from plait.broker.net.broker_files import BrokerFiles, open_broker_files, refusing_mistakes
from plait.broker.net.credentials import Passage
from plait.broker.net.driver import Driver
from plait.broker.net.http_endpoint import Page, serve_pages
from plait.broker.net.listener import accept_connections, listen, raise_open_files_limit
from plait.broker.net.logs import LogWriter
from plait.broker.net.memory import Memory, recall
from plait.broker.net.metrics import CONTENT_TYPE, BrokerMetrics
from plait.broker.net.outlets import STANDARD_ERROR, Outlet
from plait.broker.net.security import GuardedPages, Security
from plait.broker.node_names import expected_broker_name
from plait.broker.principals import Door, Protection
from plait.faulttol.files import make_folder
from plait.routing.conflicts import FAST
from plait.routing.errors import RoutingError
from plait.routing.ids import NodeId
from plait.routing.limits import RULES_CHARACTERS_MAX
from plait.routing.orderings import DEFAULT_ORDERING, SUMMIT
from plait.routing.rules import Rules
from plait.routing.rules_text import read_rules

INSECURE: Final = "--insecure: whoever reaches this broker is believed, and reads everything"


@attrs.frozen(kw_only=True)
class BrokerSettings:
    """All that a broker is told from outside."""

    node: NodeId
    incarnation: int = 1
    """Counts up with every start under the same name."""
    listen: str = "127.0.0.1:0"
    """`host:port`; port 0 is any that is free."""
    tls: Path | None = None
    """The folder of `broker/net/security.py`: with it nobody is let in who has not shown who it is,
    and brokers have a door of their own."""
    is_insecure: bool = False
    """Whether all of it may be reachable from other machines without that."""
    listen_brokers: str | None = None
    """With TLS, where that door is; on any free port of the same host if that is not said."""
    address: str | None = None
    """Where others are to dial this broker, if that is not where it listens."""
    address_brokers: str | None = None
    """The same, for the door of brokers."""
    join: str | None = None
    """The address of the broker to join at; the root has none."""
    fallbacks: tuple[str, ...] = ()
    """Where to ask if nobody is there, now or after too many have failed."""
    ordering: str = DEFAULT_ORDERING
    policy: str = "filter"
    delta: int = 1
    detection: str = FAST
    managers: str = SUMMIT
    standby: int = 0
    """When it takes over from the broker at its join point, see `Host`; 0 is never."""
    metrics: str | None = None
    """Where to answer HTTP requests for `/metrics` and `/status`."""
    state: Path | None = None
    """The file that keeps what this broker has to know again after a crash."""
    run_dir: Path | None = None
    """The run directory to write a history to, under `run_id`."""
    run_id: str = ""
    rules: Path | None = None
    """Who may do what; read again at SIGHUP. Without it everybody may do everything."""
    events_file: Path | None = None
    """Where to append a line for every publication sent on; see `broker/event_lines.py`."""
    limits: Limits = DEFAULT_LIMITS
    on_ready: Callable[[], None] = lambda: None
    """Called whenever it has joined."""
    log_file: Path | None = None
    """Instead of standard error."""
    log_level: Level = Level.INFO


@attrs.frozen
class BrokerAddresses:
    """Where a broker listens, after the operating system has chosen the ports."""

    broker: str
    metrics: str | None
    brokers: str | None = None
    """The door of brokers, if they have one of their own."""

    @property
    def for_brokers(self) -> str:
        """Where brokers join."""
        return self.brokers or self.broker


async def serve_broker(
    settings: BrokerSettings,
    *,
    shutdown: trio.Event | None = None,
    task_status: trio.TaskStatus[BrokerAddresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be a broker until told to stop: by `shutdown` or, without it, by SIGTERM or SIGINT.

    It counts as started when it listens; whoever comes before it has joined is asked to wait. Told
    to stop, it finishes what it has accepted; told once more by a signal, it stops at once.
    `GaveUpError` says why it stopped if nobody had told it to.
    """
    if expected := expected_broker_name(settings.node, settings.limits):
        raise BadNameError(f"broker name {settings.node!r}: expected {expected}")
    raise_open_files_limit()
    with contextlib.ExitStack() as stack:
        if shutdown is None:
            # First of all: whoever starts a broker may stop it at any moment.
            numbers = [signal.SIGTERM, signal.SIGINT]
            numbers += [signal.SIGHUP] if settings.rules is not None else []
            signals = stack.enter_context(trio.open_signal_receiver(*numbers))
        with refusing_mistakes():
            memory = recall(settings.state)
            following = next_incarnation(settings.node, memory.incarnation, memory.seating)
            incarnation = max(settings.incarnation, following)
            memory = attrs.evolve(memory, incarnation=incarnation)
            security = None if settings.tls is None else Security(settings.tls, settings.node)
            log = stack.enter_context(_log(settings))
        doors = await _open_doors(settings, security, stack)
        if settings.is_insecure:
            log(Level.WARNING, "insecure", {"reason": INSECURE})
        files = stack.enter_context(
            open_broker_files(
                settings.node,
                memory,
                log,
                state=settings.state,
                events=settings.events_file,
                run_directory=settings.run_dir,
                run=settings.run_id,
            )
        )
        orders: _Orders = partial(_stop_when_set, shutdown=shutdown)
        if shutdown is None:
            orders = partial(_obey_signals, signals=signals)
        is_first, comes_back, fences = True, True, NEVER_FENCED
        while comes_back:
            broker = _Broker(settings, memory, doors, files, fences)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(files.keeper.run)
                await nursery.start(broker.run, nursery.cancel_scope)
                doors.accept(nursery, broker.take, log)
                doors.answer(nursery, broker.pages())
                if security is not None:
                    nursery.start_soon(security.watch, broker.review, log)
                nursery.start_soon(orders, broker)
                if is_first:
                    task_status.started(doors.addresses)
                    is_first = False
            # Taken for failed by the others, it is nobody any more, and starts again as somebody.
            comes_back = broker.comes_back
            memory = Memory(broker.next_incarnation, broker.seating)
            if comes_back:
                fences = fences.once_more(
                    trio.current_time(), broker.reason_to_stop, settings.limits
                )
                await files.begin_again(memory)
                pause = _Pause(settings, fences, log)
                comes_back = await pause.take(doors, orders)
    if broker.failure is not None:
        raise GaveUpError(broker.failure)
    files.raise_if_incomplete()


@attrs.frozen(kw_only=True)
class _Doors:
    """Where a broker listens, and what is in front of it."""

    clients: socket.socket
    """Or everybody."""
    brokers: socket.socket | None
    pages: socket.socket | None
    security: Security | None

    @property
    def addresses(self) -> BrokerAddresses:
        """Where all that is."""
        return BrokerAddresses(
            broker=name_of(self.clients),
            metrics=name_of(self.pages) if self.pages else None,
            brokers=name_of(self.brokers) if self.brokers else None,
        )

    def accept(self, nursery: trio.Nursery, take: "_Take", log: LogWriter) -> None:
        """Hand over whoever comes, with what it has to pass through."""
        for door, listening in ((Door.CLIENTS, self.clients), (Door.BROKERS, self.brokers)):
            if listening is not None:
                passage = None if self.security is None else self.security.door(door)
                take_here = partial(take, passage=passage)
                nursery.start_soon(accept_connections, listening, take_here, log)

    def answer(self, nursery: trio.Nursery, pages: dict[str, Page]) -> None:
        """Answer HTTP, if that was asked for."""
        if self.pages is not None:
            guard = None if self.security is None else GuardedPages(self.security)
            nursery.start_soon(serve_pages, self.pages, pages, guard)


_Take = Callable[..., None]
"""Takes a socket, and the passage before it."""


async def _open_doors(
    settings: BrokerSettings, security: Security | None, stack: contextlib.ExitStack
) -> _Doors:
    """Listen wherever it is asked for; loopback only, unless it is safe or said not to be."""
    allow_remote = security is not None or settings.is_insecure

    async def opened(address: str) -> socket.socket:
        return stack.enter_context(await listen(address, allow_remote=allow_remote))

    beside = f"{settings.listen.rpartition(':')[0]}:0"
    return _Doors(
        clients=await opened(settings.listen),
        brokers=await opened(settings.listen_brokers or beside) if security else None,
        pages=await opened(settings.metrics) if settings.metrics is not None else None,
        security=security,
    )


class _Broker:
    """A host with its driver, and what only a process needs of both."""

    def __init__(
        self,
        settings: BrokerSettings,
        memory: Memory,
        doors: _Doors,
        files: BrokerFiles,
        fences: Fences,
    ) -> None:
        self.failure: str | None = None
        """Why it stopped without having been told to."""
        self.comes_back = False
        """Whether it is to start again, as a new incarnation."""
        self.reason_to_stop = ""
        self.seating = memory.seating
        """Who plays what then, as it knows, kept on disk or not."""
        self._limits = settings.limits
        self._rules = settings.rules
        self._tell_ready = settings.on_ready
        self._files = files
        self._log = files.log
        self._is_told_to_stop = False
        self._security = doors.security
        self._address = settings.address or doors.addresses.broker
        for_brokers = self._address
        if doors.security is not None:
            for_brokers = settings.address_brokers or doors.addresses.for_brokers
        self._host = Host(
            settings.node,
            memory.incarnation,
            address=for_brokers,
            clients_address=self._address if doors.security else "",
            protection=_protection(settings),
            join=settings.join,
            fallbacks=settings.fallbacks,
            remembered=memory.seating,
            ordering=settings.ordering,
            policy=settings.policy,
            delta=settings.delta,
            detection=settings.detection,
            managers=settings.managers,
            standby=settings.standby,
            fences=fences,
            wall_clock_ms=time.time_ns() // 1_000_000,
            entropy=secrets.token_bytes(32),
            rules=_rules_in(settings.rules),
            limits=settings.limits,
        )
        # While the links between brokers cannot keep up, clients have to wait: nothing that has
        # been read from one may be thrown away, and there is no end to what they could send.
        self._driver = Driver(
            self._host.step if files.events is None else self._step_and_show,
            limits=settings.limits,
            log=files.log,
            history=files.history,
            handlers={
                BecomeReady: self._on_ready,
                Stop: self._on_stop,
                RememberSeats: self._on_remember,
            },
            is_trunk=self._host.is_between_hosts,
            is_gated=self._host.is_of_client,
            is_stranger=self._host.is_stranger,
            kept_bytes=self._host.kept_bytes,
            pause_s=self._host.pause_s,
            approach=doors.security,
        )
        self._metrics = BrokerMetrics(self._host, self._driver, files.written)

    async def run(
        self,
        everything: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until the core stops, then end everything else."""
        await self._driver.run(self._host.start, task_status=task_status)
        await self._files.keeper.finish()
        everything.cancel()

    def take(self, accepted: socket.socket, *, passage: Passage | None) -> None:
        """Serve a connection, if there is room for it."""
        if self._driver.connection_count < self._limits.links_max:
            self._driver.adopt(accepted, passage=passage)
            return
        accepted.close()
        self._metrics.connections_refused += 1
        reason = f"{self._limits.links_max} connections, which is as many as are allowed"
        self._log(Level.WARNING, "connection refused", {"reason": reason})

    def review(self) -> None:
        """Part with whoever is not to be here any more, as the files have it."""
        assert self._security is not None
        self._driver.review(self._security.objection_to)
        if self._rules is not None:
            self.read_again()

    def stop(self) -> None:
        """Stop when everything accepted is finished; told again, stop at once."""
        if self._is_told_to_stop:
            self._driver.stop()
        self._is_told_to_stop = True
        self._driver.step(ShutdownRequested())

    def read_again(self) -> None:
        """Go by the rules as they are now; if they cannot be read, by those of before."""
        try:
            rules = _rules_in(self._rules)
        except (OSError, RoutingError) as error:
            fields = {"reason": str(error)}
            self._log(Level.ERROR, "rules not read: those of before count", fields)
        else:
            self._driver.step(RulesChanged(rules))

    @property
    def next_incarnation(self) -> int:
        """Of the life that follows this one."""
        return self._host.next_incarnation

    def pages(self) -> dict[str, Page]:
        """What it answers over HTTP."""
        return {
            "/metrics": Page(CONTENT_TYPE, self._metrics.exposition),
            "/status": Page(
                "application/json", lambda: json.dumps(self._host.status(), ensure_ascii=False)
            ),
        }

    def _step_and_show(self, now: float, happened: Input) -> list[Effect]:
        """Step, and tell whoever reads along what is sent on."""
        assert self._files.events is not None
        effects = self._host.step(now, happened)
        lines = "".join(forward_lines(self._host.node_at, effects))
        if lines:
            self._files.events.write(lines)
        return effects

    def _on_ready(self, _: BecomeReady) -> None:
        self._metrics.is_ready = True
        self._log(Level.INFO, "ready", {"address": self._address})
        self._tell_ready()

    def _on_remember(self, effect: RememberSeats) -> None:
        self.seating = effect.seating
        self._files.keeper.keep(Memory(self._host.me.incarnation, effect.seating))

    def _on_stop(self, effect: Stop) -> None:
        self.comes_back = effect.comes_back and not self._is_told_to_stop
        self.reason_to_stop = effect.reason
        if not (self._is_told_to_stop or self.comes_back):
            self.failure = effect.reason
        self._log(Level.INFO, "stopped", {"reason": effect.reason})
        self._driver.stop()


class _Pause:
    """Between two lives of a broker, of which others have fenced several."""

    def __init__(self, settings: BrokerSettings, fences: Fences, log: LogWriter) -> None:
        self._node = settings.node
        self._fences = fences
        self._seconds = fences.pause_s(settings.limits)
        self._log = log
        self._everything = trio.CancelScope()
        self._is_told_to_stop = False

    async def take(self, doors: _Doors, orders: "_Orders") -> bool:
        """Let it pass, answering nobody; returns whether the broker is to come back."""
        if not self._seconds:
            return True
        count, reason = self._fences.count, self._fences.reason
        fields = {"seconds": self._seconds, "count": count, "reason": reason}
        self._log(Level.ERROR, "fenced again, and pauses", fields)
        with self._everything:
            async with trio.open_nursery() as nursery:
                # Whoever comes takes it for dead, and does not wait for an answer.
                doors.accept(nursery, _hang_up, self._log)
                doors.answer(nursery, self._pages())
                nursery.start_soon(orders, self)
                await trio.sleep(self._seconds)
                self._everything.cancel()
        return not self._is_told_to_stop

    def read_again(self) -> None:
        """It reads all when it comes back."""

    def stop(self) -> None:
        """It does not come back."""
        self._is_told_to_stop = True
        self._everything.cancel()

    def _pages(self) -> dict[str, Page]:
        """What it answers over HTTP."""
        status = {
            "node": self._node,
            "state": "fenced",
            "pause_s": self._seconds,
            "fenced": self._fences.describe(),
        }
        return {"/status": Page("application/json", lambda: json.dumps(status))}


def _hang_up(accepted: socket.socket, **_: Passage | None) -> None:
    accepted.close()


def _protection(settings: BrokerSettings) -> Protection:
    if settings.tls is not None:
        return Protection.TLS
    return Protection.INSECURE if settings.is_insecure else Protection.LOOPBACK


_Orders = Callable[[_Broker | _Pause], Awaitable[None]]
"""Wait to be told to stop, or to read its files again, and tell it."""


async def _stop_when_set(broker: _Broker | _Pause, shutdown: trio.Event | None) -> None:
    assert shutdown is not None
    await shutdown.wait()
    broker.stop()


async def _obey_signals(broker: _Broker | _Pause, signals: AsyncIterator[int]) -> None:
    async for number in signals:
        if number == signal.SIGHUP:
            broker.read_again()
        else:
            broker.stop()


def _rules_in(file: Path | None) -> Rules | None:
    """Read a file of rules; OSError or RoutingError if that is not possible."""
    if file is None:
        return None
    with file.open(encoding="utf-8", errors="replace") as text:
        return read_rules(text.read(RULES_CHARACTERS_MAX + 1))


@contextlib.contextmanager
def _log(settings: BrokerSettings) -> Iterator[LogWriter]:
    with contextlib.ExitStack() as stack:
        if settings.log_file is not None:
            make_folder(settings.log_file.parent)
            outlet = stack.enter_context(Outlet.append_to(settings.log_file))
        elif sys.stderr is None:
            # It was closed when this program began, and the number is somebody else's by now.
            outlet = stack.enter_context(Outlet.append_to(Path(os.devnull)))
        else:
            outlet = Outlet(STANDARD_ERROR)
        yield LogWriter(settings.node, outlet, settings.log_level)
