"""The driver, with a core that a test has written down."""

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from plait.broker.codec import FrameDecoder, encode
from plait.broker.effects import (
    CloseLink,
    Deliver,
    Effect,
    Level,
    OpenLink,
    RecordHistory,
    SendMessage,
    SetTimer,
    Stop,
    WriteLog,
)
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    TimerFired,
)
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.messages import (
    Confirm,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Message,
    Progress,
    Publish,
)
from plait.broker.net.driver import AT_ONCE_FIRST, Driver
from plait.routing.ids import NodeId, OperationId


class ScriptedCore:
    """Notes what it is told, and answers what the test has laid down for it."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Input]] = []
        self.answers: dict[type[Input], Callable[[Any], list[Effect]]] = {}
        self._changed = trio.Event()

    def step(self, now: float, happened: Input) -> list[Effect]:
        self.told.append((now, happened))
        self._changed.set()
        self._changed = trio.Event()
        answer = self.answers.get(type(happened))
        return answer(happened) if answer else []

    def inputs(self, kind: type[Input]) -> list[Any]:
        return [happened for _, happened in self.told if type(happened) is kind]

    async def until(self, kind: type[Input], count: int = 1) -> Any:
        """Wait until something has happened for the n-th time; returns it."""
        while len(self.inputs(kind)) < count:
            await self._changed.wait()
        return self.inputs(kind)[count - 1]


@attrs.define
class Scene:
    core: ScriptedCore
    driver: Driver
    lines: list[tuple[Level, str]]

    def connect(self) -> socket.socket:
        """A connection from outside; returns the far end of it."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            far = socket.create_connection(server.getsockname())
            near, _ = server.accept()
        far.setblocking(False)
        self.driver.adopt(near)
        return far

    def send(self, *effects: Effect) -> None:
        self.driver.carry_out(list(effects))
        self.driver.flush()


@asynccontextmanager
async def driven(
    *,
    limits: Limits = DEFAULT_LIMITS,
    history: Any = None,
    trunks: Collection[int] = (),
    gated: Collection[int] = (),
    strangers: Collection[int] = (),
    start: list[Effect] | None = None,
) -> AsyncIterator[Scene]:
    core = ScriptedCore()
    lines: list[tuple[Level, str]] = []
    driver = Driver(
        core.step,
        limits=limits,
        log=lambda level, event, _: lines.append((level, event)),
        history=history,
        handlers={},
        is_trunk=lambda link: link in trunks,
        is_gated=lambda link: link in gated,
        is_stranger=lambda link: link in strangers,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.run, lambda _: start or [])
        yield Scene(core, driver, lines)
        driver.stop()


async def receive(far: socket.socket, count: int) -> list[Message]:
    """The next messages that arrive."""
    decoder = FrameDecoder()
    messages: list[Message] = []
    while len(messages) < count:
        await trio.lowlevel.wait_readable(far)
        messages += decoder.feed(far.recv(1 << 20))
    return messages


def to(*links: int) -> tuple[LinkId, ...]:
    return tuple(LinkId(link) for link in links)


# Effects


async def test_a_link_has_its_messages_in_the_order_of_the_effects() -> None:
    async with driven() as scene:
        with scene.connect() as one, scene.connect() as two:
            scene.send(
                SendMessage(to(1, 2), Progress(received=1, sent=0, forgotten=0)),
                SendMessage(to(1, 2), Progress(received=2, sent=0, forgotten=0)),
                SendMessage(to(2), Progress(received=3, sent=0, forgotten=0)),
                SendMessage(to(2, 1), Progress(received=4, sent=0, forgotten=0)),
                SendMessage(to(1, 7), Progress(received=5, sent=0, forgotten=0)),  # 7 is gone
            )

            assert [m.received for m in await receive(one, 4)] == [1, 2, 4, 5]  # type: ignore[union-attr]
            assert [m.received for m in await receive(two, 4)] == [1, 2, 3, 4]  # type: ignore[union-attr]


async def test_a_closed_link_gets_what_was_sent_before_and_no_link_closed_follows() -> None:
    async with driven() as scene:
        with scene.connect() as far:
            goodbye = Goodbye(code=GoodbyeCode.LEFT, reason="done")
            scene.send(SendMessage(to(1), goodbye), CloseLink(LinkId(1), GoodbyeCode.LEFT, "done"))

            assert await receive(far, 1) == [goodbye]
            await trio.lowlevel.wait_readable(far)
            assert far.recv(1) == b""
        await trio.testing.wait_all_tasks_blocked()

        assert scene.core.inputs(LinkClosed) == []
        assert scene.driver.connection_count == 0


async def test_a_lost_connection_is_reported_with_its_reason() -> None:
    async with driven() as scene:
        scene.connect().close()

        assert await scene.core.until(LinkClosed) == LinkClosed(
            LinkId(1), "closed by the other side"
        )


async def test_a_connection_dialled_is_reported_with_the_address_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        async with driven(start=[OpenLink(f"{host}:{port}")]) as scene:
            opened = await scene.core.until(LinkOpened)

            assert opened == LinkOpened(LinkId(1), f"{host}:{port}")


async def test_a_connection_that_cannot_be_made_is_reported_with_the_reason() -> None:
    async with driven(start=[OpenLink("127.0.0.1:1")]) as scene:
        failed = await scene.core.until(LinkFailed)

        assert failed == LinkFailed("127.0.0.1:1", "connection refused", is_refused=True)


async def test_a_timer_fires_when_it_is_due_and_the_last_one_set_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with driven(start=[SetTimer(5.0)]) as scene:
        scene.send(SetTimer(2.0))
        scene.send(SetTimer(9.0))
        scene.core.answers[TimerFired] = lambda _: [SetTimer(12.0)]
        await scene.core.until(TimerFired)
        scene.core.answers.clear()
        await scene.core.until(TimerFired, 2)
        await trio.sleep(100)

    assert [now for now, _ in scene.core.told] == [9.0, 12.0]


@attrs.define
class NotingHistory:
    """Notes, together with what else happens, in which order."""

    notes: list[str] = attrs.field(factory=list)
    at: float = 0.0

    def write(self, at: float, kind: str, **fields: Any) -> None:
        self.at = at
        self.notes.append(f"write {kind} {fields}")

    def flush(self) -> None:
        self.notes.append("flush")

    def close(self) -> None: ...


async def test_a_record_is_flushed_before_the_message_that_makes_it_known() -> None:
    history = NotingHistory()
    async with driven(history=history) as scene:
        with scene.connect() as far:
            note = history.notes.append
            scene.driver.carry_out(
                [SendMessage(to(1), Heartbeat()), RecordHistory("joined", {"about": "b1"})]
            )
            note(f"sent {scene.driver.traffic.bytes_sent}")
            scene.driver.flush()
            scene.driver.flush()
            note(f"sent {scene.driver.traffic.bytes_sent}")
            await receive(far, 1)

    assert history.notes == ["write joined {'about': 'b1'}", "sent 0", "flush", "sent 6"]


async def test_records_are_stamped_with_the_time_of_day() -> None:
    history = NotingHistory()
    async with driven(history=history) as scene:
        scene.send(RecordHistory("joined", {}))
        first = history.at
        scene.send(RecordHistory("joined", {}))

    assert abs(first - time.time()) < 60
    assert history.at >= first


async def test_log_lines_and_the_end_are_passed_on() -> None:
    async with driven(start=[WriteLog(Level.INFO, "hello", {}), Stop("done")]) as scene:
        pass

    assert scene.lines == [(Level.INFO, "hello")]


async def test_an_effect_that_nobody_carries_out_is_a_bug() -> None:
    async with driven() as scene:
        with pytest.raises(KeyError):
            scene.send(Deliver(None))  # type: ignore[arg-type]


# Peers


async def test_a_peer_that_breaks_the_protocol_is_told_why_and_cut_off() -> None:
    async with driven() as scene:
        with scene.connect() as far:
            far.send(b"\xff\xff\xff\xff....")

            reason = "frame of 4294967295 bytes, at most 1048576 allowed"
            assert await receive(far, 1) == [Goodbye(code=GoodbyeCode.PROTOCOL, reason=reason)]
            assert await scene.core.until(LinkClosed) == LinkClosed(LinkId(1), reason)
            assert scene.lines == [(Level.WARNING, "link broke the protocol")]
            assert scene.driver.protocol_errors == 1


BODY = Publish(NodeId("a"), 1, 1, 0, b"", b"x" * 100_000)


async def test_a_link_with_too_much_to_send_is_given_up_and_others_are_not() -> None:
    async with driven(limits=Limits(send_buffer_bytes_max=10_000_000)) as scene:
        with scene.connect() as slow, scene.connect() as quick:
            sent = 0
            while not scene.core.inputs(LinkClosed):
                scene.send(SendMessage(to(1, 2), BODY))
                sent += 1
                await receive(quick, 1)
                assert sent < 400

            (closed,) = scene.core.inputs(LinkClosed)
            assert closed.link == 1
            assert closed.reason.endswith("bytes wait to be sent, at most 10000000 allowed")
            scene.send(SendMessage(to(2), Heartbeat()))
            assert await receive(quick, 1) == [Heartbeat()]
            slow.close()


async def test_when_all_links_have_too_much_to_send_who_has_most_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plait.broker.net.driver.CHECKED_BYTES", 0)
    limits = Limits(sending_bytes_max=20_000_000)
    async with driven(limits=limits, trunks={3}) as scene:
        with scene.connect(), scene.connect(), scene.connect():
            scene.send(*[SendMessage(to(1, 2, 3), BODY)] * 60)
            assert not scene.core.inputs(LinkClosed)
            scene.send(*[SendMessage(to(2, 3), BODY)] * 100)

            closed = await scene.core.until(LinkClosed)
            assert closed.link == 2
            assert closed.reason.endswith("the most of all, 20000000 allowed in all")
            assert scene.driver.cut_off_count == 1


async def test_when_all_links_have_too_much_unfinished_who_has_most_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plait.broker.net.driver.CHECKED_BYTES", 0)
    async with driven(limits=Limits(unfinished_bytes_max=800_000)) as scene:
        with scene.connect() as modest, scene.connect() as large:
            modest.send(encode(BODY)[:90_000])
            sent = (1 << 20).to_bytes(4, "big") + bytes(900_000)
            while not scene.core.inputs(LinkClosed):
                with contextlib.suppress(BlockingIOError):
                    sent = sent[large.send(sent) :]
                await trio.lowlevel.checkpoint()
            modest.send(encode(BODY)[90_000:])

            assert [closed.link for closed in scene.core.inputs(LinkClosed)] == [2]
            while not any(told.messages == [BODY] for told in scene.core.inputs(MessagesReceived)):
                await trio.lowlevel.checkpoint()


async def test_of_strangers_there_are_only_so_many_and_the_oldest_goes() -> None:
    limits = Limits(strangers_max=2)
    async with driven(limits=limits, strangers={2, 3, 4}) as scene:
        with scene.connect(), scene.connect() as oldest, scene.connect(), scene.connect():
            closed = await scene.core.until(LinkClosed)

            assert closed.link == 2
            assert closed.reason.startswith("2 connections without a greeting")
            assert oldest.recv(1) == b""
            await trio.testing.wait_all_tasks_blocked()
            assert len(scene.core.inputs(LinkClosed)) == 1


async def test_what_one_link_sends_is_taken_in_by_portions_between_which_others_have_turns() -> (
    None
):
    async with driven(limits=Limits(step_s=0.0)) as scene:
        with scene.connect() as busy, scene.connect() as other:
            busy.send(
                b"".join(encode(Progress(received=n, sent=0, forgotten=0)) for n in range(2000))
            )
            other.send(encode(Progress(received=7, sent=7, forgotten=0)))
            taken: list[Message] = []
            while len(taken) < 2001:
                await trio.lowlevel.checkpoint()
                told = scene.core.inputs(MessagesReceived)
                taken = [message for one in told for message in one.messages]

            assert [one.link for one in told][-1] == 1
            assert max(len(one.messages) for one in told) == AT_ONCE_FIRST
            of_busy = [message for one in told if one.link == 1 for message in one.messages]
            assert of_busy == [Progress(received=n, sent=0, forgotten=0) for n in range(2000)]


async def test_what_a_peer_would_refuse_is_not_sent_and_the_link_goes_on() -> None:
    async with driven() as scene:
        with scene.connect() as far:
            scene.send(SendMessage(to(1), Confirm(operation=OperationId("o" * 400))))
            scene.send(SendMessage(to(1), Heartbeat()))

            assert await receive(far, 1) == [Heartbeat()]
            assert scene.lines == [(Level.ERROR, "message not sent")]
            assert scene.driver.messages_unsendable == 1


async def test_a_publication_that_a_peer_would_refuse_is_held_back_with_what_follows() -> None:
    """Both ends count publications, so that none may be left out."""
    async with driven() as scene:
        with scene.connect() as far:
            too_large = Publish(NodeId("a"), 1, 1, 0, b"", b"x" * (1 << 20))
            scene.send(SendMessage(to(1), too_large), SendMessage(to(1), BODY))

            closed = await scene.core.until(LinkClosed)
            assert closed.reason.startswith("Publish.body of 1048576 bytes, at most ")
            assert far.recv(1) == b""


async def test_while_a_trunk_is_congested_gated_links_are_not_read() -> None:
    limits = Limits(send_buffer_bytes_high=1_000_000)
    async with driven(limits=limits, trunks={1}, gated={2}) as scene:
        with scene.connect() as trunk, scene.connect() as gated, scene.connect() as other:
            await trio.testing.wait_all_tasks_blocked()
            while scene.driver.gate.is_open:
                scene.send(SendMessage(to(1), BODY))
            gated.send(encode(Progress(received=2, sent=0, forgotten=0)))
            await scene.core.until(MessagesReceived)
            gated.send(encode(Progress(received=3, sent=0, forgotten=0)))
            other.send(encode(Progress(received=9, sent=0, forgotten=0)))

            # The one read that was under way has still come through; now the gate holds.
            assert (await scene.core.until(MessagesReceived, 2)).link == 3

            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def _read_the_trunk() -> None:
                    while True:
                        await trio.lowlevel.wait_readable(trunk)
                        trunk.recv(1 << 20)

                late = await scene.core.until(MessagesReceived, 3)
                nursery.cancel_scope.cancel()

            assert late == MessagesReceived(LinkId(2), [Progress(received=3, sent=0, forgotten=0)])
            assert scene.driver.gate.is_open


async def test_the_core_hears_of_gated_peers_that_are_alive() -> None:
    """It counts a silent link as dead, and this one is silent only because nobody listens."""
    async with driven(gated={1, 2}) as scene:
        with scene.connect() as alive, scene.connect() as silent:
            scene.driver.gate.close()
            alive.send(encode(Heartbeat()))
            await trio.lowlevel.wait_readable(scene.driver._links[LinkId(1)].connection._socket)
            before = len(scene.core.told)
            scene.send(SetTimer(scene.driver.now()))
            await scene.core.until(TimerFired)

            assert [happened for _, happened in scene.core.told[before:]] == [
                MessagesReceived(LinkId(1), []),
                TimerFired(),
            ]
            silent.close()


async def test_the_congestion_of_a_link_that_is_gone_is_over() -> None:
    limits = Limits(send_buffer_bytes_high=1_000_000)
    async with driven(limits=limits, trunks={1}) as scene:
        with scene.connect() as trunk:
            while scene.driver.gate.is_open:
                scene.send(SendMessage(to(1), BODY))
            trunk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await scene.driver.gate.wait_open()
