"""Carries out what a core decides, the same for a broker and for a client.

Everything runs in one thread, and a step of the core is one piece with what follows from it: the
core is told, its effects are carried out, and what they wrote goes to the sockets, without anybody
else running in between. So a link has its messages in the order of the effects, and a record is in
the history before what it is about can be seen from outside.
"""

import itertools
import math
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import trio

from plait.broker.access.admission import Admission
from plait.broker.access.errors import NotAdmittedError
from plait.broker.codec import encode
from plait.broker.effects import (
    CloseLink,
    Effect,
    Level,
    OpenLink,
    RecordHistory,
    SendMessage,
    SetTimer,
    Stop,
    WriteLog,
)
from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    TimerFired,
)
from plait.broker.limits import Limits
from plait.broker.messages import Goodbye, GoodbyeCode, Message, Publish
from plait.broker.net.connection import Connection, ConnectionLostError, Traffic, dial
from plait.broker.net.credentials import Passage, pass_through
from plait.broker.net.crowd import hoarders, one_too_many
from plait.broker.net.logs import Log
from plait.broker.principals import UNKNOWN_CALLER
from plait.faulttol.history import History

CHECKED_BYTES: Final = 8 << 20
"""So much may be written, or come unfinished, before all links together are looked at."""

AT_ONCE_FIRST: Final = 256
"""Messages of one link that a step takes in; twice or half as many, as long as that then takes."""
AT_ONCE_MAX: Final = 1 << 16
"""More than there are in one read."""

EXPIRED: Final = "the token has expired: go on with a new one"

Handler = Callable[[Any], None]
"""Carries out one kind of effect; it must not call the core."""


class Gate:
    """Whether links of some kind are read for now."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether one may pass."""
        return self._opened.is_set()

    def open(self) -> None:
        """Let pass whoever waits, and everybody from now on."""
        self._opened.set()

    def close(self) -> None:
        """Let nobody pass from now on."""
        if self._opened.is_set():
            self._opened = trio.Event()

    async def wait_open(self) -> None:
        """Wait until one may pass."""
        await self._opened.wait()


@attrs.define(eq=False)
class _Open:
    """A connection, and the scope to cancel when it is not to be read any more."""

    connection: Connection
    dialled: str = ""
    """The address, if this node has dialled."""
    admission: Admission | None = None
    """Who is there, once the core knows of it."""
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    failure: str = ""
    """Why this node gave it up, if it did."""
    has_last_words: bool = True
    """Whether it is worth while to keep it for a moment when it ends."""


class Driver:
    """One core's hands and ears.

    Two kinds of link matter to back pressure. While a *trunk* has more to send than it should
    have, the gate is closed; while the gate is closed, *gated* links are not read.
    """

    def __init__(
        self,
        step: Callable[[float, Input], list[Effect]],
        *,
        limits: Limits,
        log: Log,
        history: History | None = None,
        handlers: Mapping[type[Effect], Handler],
        is_trunk: Callable[[LinkId], bool],
        is_gated: Callable[[LinkId], bool],
        is_stranger: Callable[[LinkId], bool] = lambda _: False,
        kept_bytes: Callable[[LinkId], int] = lambda _: 0,
        pause_s: Callable[[LinkId], float] = lambda _: 0.0,
        approach: Passage | None = None,
    ) -> None:
        """Drive a core by its `step`; `handlers` carry out the effects that only its owner can.

        What it dials goes through `approach`, if there is one, before the core hears of it.
        The core may keep what has come of something that has no end yet: it says how much.
        """
        self.traffic = Traffic()
        self.protocol_errors = 0
        self.messages_unsendable = 0
        self.gate = Gate()
        self._step = step
        self._limits = limits
        self._log = log
        self._history = history
        self._is_trunk = is_trunk
        self._is_gated = is_gated
        self._is_stranger = is_stranger
        self._kept_bytes = kept_bytes
        self._pause_s = pause_s
        self._approach = approach
        self._handlers: dict[type[Effect], Handler] = {
            OpenLink: self._on_open_link,
            SetTimer: self._on_set_timer,
            RecordHistory: self._on_record_history,
            WriteLog: self._on_write_log,
            Stop: self._on_stop,
            **handlers,
        }
        # History is stamped with the wall clock as it stood now, carried on by the monotonic one:
        # never backwards within a process and, as all processes of a machine share the monotonic
        # clock, comparable between them unless somebody sets the wall clock in mid-run.
        self._epoch = time.time() - trio.current_time()
        self._link_ids = itertools.count(1)
        self._links: dict[LinkId, _Open] = {}
        self._connection_count = 0
        self._strangers: dict[LinkId, _Open] = {}
        """Who was let in and, when that was looked at last, had not said who it is."""
        self.cut_off_count = 0
        """Connections that were closed because there were too many or had too much."""
        self.not_admitted_count = 0
        """Connections of those who did not show who they are."""
        self._unchecked_bytes = 0
        self._longest_step_s = 0.0
        self.unflushed_bytes = 0
        """What has been written since the last `flush`."""
        self._unflushed: dict[LinkId, _Open] = {}
        self._has_unflushed_records = False
        self._congested: dict[LinkId, None] = {}
        self._timer_at = math.inf
        self._timer = trio.CancelScope()
        self._stopped = trio.Event()
        self._background: trio.Nursery | None = None
        self._connections: trio.Nursery | None = None

    now = staticmethod(trio.current_time)
    """Seconds, of the clock that steps and timers go by."""

    @property
    def connection_count(self) -> int:
        """Open connections, with those that are only kept for their last words."""
        return self._connection_count

    def buffered_bytes(self) -> dict[LinkId, int]:
        """How many bytes wait for each link's socket."""
        return {link: opened.connection.buffered_bytes for link, opened in self._links.items()}

    async def run(
        self,
        start: Callable[[float], list[Effect]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start the core, and serve until it stops."""
        async with trio.open_nursery() as self._connections:
            async with trio.open_nursery() as self._background:
                self._background.start_soon(self._keep_time)
                self.carry_out(start(self.now()))
                self.flush()
                task_status.started()
                await self._stopped.wait()
                self._background.cancel_scope.cancel()
            for opened in self._links.values():
                opened.reading.cancel()
            self._links.clear()

    # --- from the core to the world ---------------------------------------------------------

    def step(self, happened: Input) -> None:
        """Tell the core, and see to everything that follows; one that has stopped is left alone."""
        if self._stopped.is_set():
            return
        begun = self.now()
        self.carry_out(self._step(begun, happened))
        self.flush()
        self._longest_step_s = max(self._longest_step_s, self.now() - begun)

    def take_longest_step(self) -> float:
        """For how long nobody else had a turn, at most, since this was last asked; in seconds."""
        longest, self._longest_step_s = self._longest_step_s, 0.0
        return longest

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out effects in their order; what they send leaves with the next `flush`."""
        closing: list[CloseLink] = []
        # Publications come in runs for the same links. A run is joined once, not once per link.
        run: list[bytes] = []
        run_links: tuple[LinkId, ...] = ()
        for effect in effects:
            if type(effect) is SendMessage:
                links = effect.links
                if links is not run_links and links != run_links:
                    self._write(run_links, run)
                    run = []
                    run_links = links
                try:
                    run.append(encode(effect.message, self._limits))
                except LocalProtocolError as mistake:
                    self._on_unsendable(effect, mistake)
            elif type(effect) is CloseLink:
                closing.append(effect)
            else:
                self._handlers[type(effect)](effect)
        self._write(run_links, run)
        for effect in closing:
            self._close_link(effect)

    def _on_unsendable(self, effect: SendMessage, mistake: LocalProtocolError) -> None:
        """Say that a message is not sent: who would refuse it would close the link, every time.

        Publications are counted on a link, so that none of them may be left out: it is held back,
        with all that follows it.
        """
        self.messages_unsendable += 1
        self._log(Level.ERROR, "message not sent", {"reason": str(mistake)})
        if isinstance(effect.message, Publish):
            for link in effect.links:
                self._fail(link, str(mistake))

    def _fail(self, link: LinkId, reason: str) -> None:
        """Give a connection up."""
        opened = self._links.get(link)
        if opened is not None:
            opened.failure = reason
            opened.reading.cancel()

    def _write(self, links: tuple[LinkId, ...], frames: list[bytes]) -> None:
        if not frames:
            return
        run = frames[0] if len(frames) == 1 else b"".join(frames)
        for link in links:
            opened = self._links.get(link)
            if opened is not None and not opened.failure:
                opened.connection.write(run)
                self._unflushed[link] = opened
                self.unflushed_bytes += len(run)
                self._unchecked_bytes += len(run)
                self.traffic.messages_sent += len(frames)

    def flush(self) -> None:
        """Give records to the operating system, then what was written to the sockets."""
        if self._has_unflushed_records:
            assert self._history is not None
            self._history.flush()
            self._has_unflushed_records = False
        if self._unchecked_bytes > CHECKED_BYTES:
            self._check_budgets()
        if not self._unflushed:
            return
        unflushed, self._unflushed = self._unflushed, {}
        self.unflushed_bytes = 0
        for opened in unflushed.values():
            connection = opened.connection
            was_backed_up = connection.is_backed_up
            connection.flush()
            if connection.is_backed_up:
                self._on_backed_up(opened, is_new=not was_backed_up)

    def _check_budgets(self) -> None:
        """See that all links together keep no more than this node can bear."""
        self._unchecked_bytes = 0
        limits = self._limits
        for kept_of, most, what in (
            (_buffered, limits.sending_bytes_max, "wait to be sent"),
            (self._unfinished, limits.unfinished_bytes_max, "have come of what is not complete"),
        ):
            amounts = {
                link: kept_of(opened.connection)
                for link, opened in self._links.items()
                if not opened.failure
            }
            for link in hoarders(amounts, most, self._is_trunk):
                reason = f"{amounts[link]} bytes {what}, the most of all, {most} allowed in all"
                self._cut_off(self._links[link], reason)

    def _unfinished(self, connection: Connection) -> int:
        return connection.unfinished_bytes + self._kept_bytes(connection.link)

    def _cut_off(self, opened: _Open, reason: str) -> None:
        """Close a connection for the sake of others, without a delay."""
        connection = opened.connection
        self.cut_off_count += 1
        fields = {"link": connection.link, "remote": connection.remote, "reason": reason}
        self._log(Level.WARNING, "link cut off", fields)
        connection.discard()
        opened.has_last_words = False
        self._fail(connection.link, reason)

    def _on_backed_up(self, opened: _Open, *, is_new: bool) -> None:
        """A socket takes nothing for now."""
        connection = opened.connection
        if is_new:
            assert self._connections is not None
            self._connections.start_soon(self._send_rest, connection)
        if connection.buffered_bytes > self._limits.send_buffer_bytes_max:
            self._fail(
                connection.link,
                f"{connection.buffered_bytes} bytes wait to be sent, "
                f"at most {self._limits.send_buffer_bytes_max} allowed",
            )
        if connection.buffered_bytes > self._limits.send_buffer_bytes_high and self._is_trunk(
            connection.link
        ):
            self._congested[connection.link] = None
            self.gate.close()

    async def _send_rest(self, connection: Connection) -> None:
        while connection.is_backed_up:
            await connection.send_more()
            # Half of it, or the gate would swing with every packet.
            if connection.buffered_bytes <= self._limits.send_buffer_bytes_high // 2:
                self._relieve(connection.link)

    def _relieve(self, link: LinkId) -> None:
        if link in self._congested:
            del self._congested[link]
            if not self._congested:
                self.gate.open()

    def _close_link(self, effect: CloseLink) -> None:
        opened = self._links.pop(effect.link, None)
        if opened is not None:
            opened.reading.cancel()

    def _on_open_link(self, effect: OpenLink) -> None:
        assert self._background is not None
        self._background.start_soon(self._dial, effect.address)

    def _on_set_timer(self, effect: SetTimer) -> None:
        self._timer_at = effect.at
        # Moving a deadline is not free. One that is too early does no harm.
        if effect.at < self._timer.deadline:
            self._timer.deadline = effect.at

    def _on_record_history(self, effect: RecordHistory) -> None:
        self.record(effect.kind, effect.fields)

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a record, if there is a history; the next `flush` makes it last."""
        if self._history is not None:
            self._history.write(self._epoch + self.now(), kind, **fields)
            self._has_unflushed_records = True

    def _on_write_log(self, effect: WriteLog) -> None:
        self._log(effect.level, effect.event, effect.fields)

    def _on_stop(self, _: Stop) -> None:
        self.stop()

    def stop(self) -> None:
        """End `run`, once what was written has gone, as far as that takes no time."""
        self._stopped.set()

    # --- from the world to the core ---------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._timer_at) as self._timer:
                await trio.sleep_forever()
            if self.now() >= self._timer_at:
                self._timer_at = math.inf
                self.fire_timer()

    def fire_timer(self) -> None:
        """Tell the core how late it is, and before that, who has been heard by then."""
        self._vouch_for_gated_links()
        self.step(TimerFired())

    def _vouch_for_gated_links(self) -> None:
        """Tell the core of peers that are heard but not listened to, lest it take them for dead."""
        if self.gate.is_open:
            return
        for link, opened in list(self._links.items()):
            if self._is_gated(link) and opened.connection.has_unread():
                self.step(MessagesReceived(link, []))

    async def _dial(self, address: str) -> None:
        try:
            connected = await dial(address, timeout_s=self._limits.dial_timeout_s)
        except ConnectionLostError as lost:
            self.step(LinkFailed(address, str(lost), is_refused=lost.is_refused))
        else:
            self.adopt(connected, dialled=address, passage=self._approach)

    def adopt(
        self, connected: socket.socket, *, dialled: str = "", passage: Passage | None = None
    ) -> None:
        """Take over a connection that exists; the core hears of it behind the passage."""
        if self._connections is None or self._stopped.is_set():
            connected.close()
            return
        link = LinkId(next(self._link_ids))
        opened = _Open(Connection(link, connected, self._limits, self.traffic), dialled)
        self._links[link] = opened
        self._connection_count += 1
        self._connections.start_soon(self._receive_from, opened, passage)
        if passage is None:
            self._tell_opened(opened, Admission(UNKNOWN_CALLER))
        if not dialled:
            self._strangers[link] = opened
            self._make_room_for_strangers()

    def _tell_opened(self, opened: _Open, admission: Admission) -> None:
        opened.admission = admission
        if admission.expires_at is not None:
            # By the clock on the wall, as it stands now: the connection is not to outlive that.
            opened.reading.deadline = self.now() + admission.expires_at - time.time()
        self.step(LinkOpened(opened.connection.link, opened.dialled, admission.caller))

    def _on_not_admitted(self, opened: _Open, reason: str) -> None:
        """Nobody has been let in: the core has not heard of it, unless it has dialled."""
        connection = opened.connection
        self._links.pop(connection.link, None)
        if opened.dialled:
            self.step(LinkFailed(opened.dialled, reason))
            return
        self.not_admitted_count += 1
        fields = {"link": connection.link, "remote": connection.remote, "reason": reason}
        self._log(Level.WARNING, "not admitted", fields)
        connection.say_if_safe(Goodbye(code=GoodbyeCode.REFUSED, reason=reason))

    def review(self, objection_to: Callable[[Admission], str | None]) -> None:
        """Part with whoever is not to be here any more."""
        for link, opened in list(self._links.items()):
            objection = None if opened.admission is None else objection_to(opened.admission)
            if objection is not None and not opened.failure:
                fields = {"link": link, "remote": opened.connection.remote, "reason": objection}
                self._log(Level.WARNING, "not admitted any more", fields)
                opened.connection.say(Goodbye(code=GoodbyeCode.REFUSED, reason=objection))
                self._fail(link, objection)

    def _make_room_for_strangers(self) -> None:
        most = self._limits.strangers_max
        if len(self._strangers) <= most:
            return
        self._strangers = {
            link: opened
            for link, opened in self._strangers.items()
            if link in self._links and self._is_stranger(link) and not opened.failure
        }
        if len(self._strangers) > most:
            hosts = {link: o.connection.remote_host for link, o in self._strangers.items()}
            reason = f"{most} connections without a greeting, which is as many as are allowed"
            self._cut_off(self._strangers.pop(one_too_many(hosts)), reason)

    async def _receive_from(self, opened: _Open, passage: Passage | None) -> None:
        """Listen to one connection until its end."""
        connection, link = opened.connection, opened.connection.link
        reason, at_once = "", AT_ONCE_FIRST
        try:
            with opened.reading:
                try:
                    if passage is not None:
                        within_s = self._limits.greeting_timeout_s
                        admission = await pass_through(connection, passage, within_s=within_s)
                        self._tell_opened(opened, admission)
                    while True:
                        if not self.gate.is_open and self._is_gated(link):
                            await self.gate.wait_open()
                            continue
                        messages = await connection.receive()
                        at_once = await self._take_in(link, messages, at_once)
                        self._unchecked_bytes += self._unfinished(connection)
                except (ConnectionLostError, NotAdmittedError) as lost:
                    reason = str(lost)
                except RemoteProtocolError as broken:
                    reason = str(broken)
                    self._on_protocol_error(connection, reason)
            self._tell_closed(opened, reason)
            if opened.has_last_words:
                await connection.hang_up()
        finally:
            connection.close()
            self._links.pop(link, None)
            self._strangers.pop(link, None)
            self._unflushed.pop(link, None)
            self._relieve(link)
            self._connection_count -= 1

    def _tell_closed(self, opened: _Open, reason: str) -> None:
        """Tell the core that a connection has ended, if it does not know."""
        connection, link = opened.connection, opened.connection.link
        if link not in self._links:
            return
        if opened.admission is None:
            self._on_not_admitted(opened, opened.failure or reason)
            return
        del self._links[link]
        if opened.reading.cancelled_caught and not opened.failure:
            reason = EXPIRED
            connection.say(Goodbye(code=GoodbyeCode.TIMEOUT, reason=reason))
        self.step(LinkClosed(link, opened.failure or reason))

    async def _take_in(self, link: LinkId, messages: list[Message], at_once: int) -> int:
        """Tell the core what has come, in portions between which others have their turn."""
        while True:
            begun = self.now()
            self.step(MessagesReceived(link, messages[:at_once]))
            took = self.now() - begun
            messages = messages[at_once:]
            if await self._hold_back(link):
                at_once = min(at_once, AT_ONCE_FIRST)
            if took > self._limits.step_s:
                at_once = max(1, at_once // 2)
            elif took < self._limits.step_s / 2:
                at_once = min(2 * at_once, AT_ONCE_MAX)
            if not messages:
                return at_once
            await trio.lowlevel.checkpoint()

    async def _hold_back(self, link: LinkId) -> bool:
        """Take nothing in for as long as the core wants; the peer is not silent meanwhile."""
        pause_s = self._pause_s(link)
        is_held = pause_s > 0
        while pause_s > 0:
            piece_s = min(pause_s, self._limits.heartbeat_interval_s)
            await trio.sleep(piece_s)
            pause_s -= piece_s
            self.step(MessagesReceived(link, []))
        return is_held

    def _on_protocol_error(self, connection: Connection, reason: str) -> None:
        self.protocol_errors += 1
        fields = {"link": connection.link, "remote": connection.remote, "reason": reason}
        self._log(Level.WARNING, "link broke the protocol", fields)
        connection.write(encode(Goodbye(code=GoodbyeCode.PROTOCOL, reason=reason)))


def _buffered(connection: Connection) -> int:
    return connection.buffered_bytes
