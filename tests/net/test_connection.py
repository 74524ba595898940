"""One connection on a real socket, with a peer that does not always behave."""

import errno
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import trio
import trio.testing

from plait.broker.codec import encode
from plait.broker.errors import RemoteProtocolError
from plait.broker.inputs import LinkId
from plait.broker.limits import Limits
from plait.broker.messages import Heartbeat, Progress
from plait.broker.net import connection
from plait.broker.net.addresses import Endpoint
from plait.broker.net.connection import Connection, ConnectionLostError, Traffic, dial

PROGRESS = Progress(received=1, sent=2, forgotten=0)
FRAME = encode(Heartbeat())
LARGE = b"x" * (16 << 20)
"""More than any socket takes at once."""


@contextmanager
def connected() -> Iterator[tuple[Connection, socket.socket, Traffic]]:
    """A connection, the other end of it, and what was counted."""
    traffic = Traffic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    connection = Connection(LinkId(1), near, Limits(), traffic)
    with far, closing(connection):
        far.setblocking(False)
        yield connection, far, traffic


async def receive_all(far: socket.socket) -> int:
    """Read until the other end closes; returns how much it was."""
    count = 0
    while True:
        await trio.lowlevel.wait_readable(far)
        data = far.recv(1 << 20)
        if not data:
            return count
        count += len(data)


async def test_what_is_written_is_sent_by_the_next_flush() -> None:
    with connected() as (connection, far, traffic):
        connection.write(FRAME)
        connection.write(FRAME)
        connection.flush()

        await trio.lowlevel.wait_readable(far)
        assert far.recv(100) == FRAME + FRAME
        assert connection.buffered_bytes == 0
        assert traffic.bytes_sent == 2 * len(FRAME)


async def test_one_read_brings_all_messages_that_are_there() -> None:
    with connected() as (connection, far, traffic):
        sent = FRAME + encode(PROGRESS) + FRAME
        far.send(sent[:-4])

        assert await connection.receive() == [Heartbeat(), PROGRESS]

        far.send(sent[-4:])

        assert await connection.receive() == [Heartbeat()]
        assert (traffic.messages_received, traffic.bytes_received) == (3, len(sent))


async def test_what_the_socket_does_not_take_is_sent_when_it_does() -> None:
    with connected() as (connection, far, traffic):
        connection.write(LARGE)
        connection.flush()
        assert connection.is_backed_up
        assert 0 < connection.buffered_bytes < len(LARGE)
        connection.write(FRAME)

        async def send_rest() -> None:
            while connection.is_backed_up:
                await connection.send_more()
            connection.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_rest)

            assert await receive_all(far) == len(LARGE) + len(FRAME)

        assert connection.buffered_bytes == 0
        assert traffic.bytes_sent == len(LARGE) + len(FRAME)


async def test_last_words_are_heard_though_the_peer_goes_on_talking() -> None:
    """A plain close with bytes unread would reset the connection."""
    with connected() as (connection, far, _):
        far.send(FRAME * 1000)
        connection.write(FRAME)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.hang_up)

            assert await receive_all(far) == len(FRAME)
            far.send(FRAME)
            far.close()


async def test_a_peer_that_does_not_hang_up_is_not_waited_for_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with connected() as (connection, far, _):
        await connection.hang_up()

        assert autojump_clock.current_time() == pytest.approx(1.0)
        assert far.recv(1) == b""


async def test_closing_wakes_whoever_waits() -> None:
    with connected() as (connection, _, _):
        connection.write(LARGE)
        connection.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.send_more)

            @nursery.start_soon
            async def _receive() -> None:
                with pytest.raises(ConnectionLostError):
                    await connection.receive()

            await trio.testing.wait_all_tasks_blocked()
            connection.close()


async def test_the_end_of_a_connection_has_a_reason_in_words() -> None:
    with connected() as (connection, far, _):
        far.close()

        with pytest.raises(ConnectionLostError, match=r"^closed by the other side$"):
            await connection.receive()
    with connected() as (connection, far, _):
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        far.close()

        with pytest.raises(ConnectionLostError, match=r"^connection reset by peer$"):
            await connection.receive()


async def test_a_broken_connection_swallows_what_it_is_given() -> None:
    with connected() as (connection, far, traffic):
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        far.close()
        await trio.lowlevel.wait_readable(connection._socket)
        connection.write(FRAME)
        connection.flush()

        assert not connection.is_backed_up
        assert (connection.buffered_bytes, traffic.bytes_sent) == (0, 0)


async def test_bytes_that_are_no_messages_are_the_peer_s_fault() -> None:
    with connected() as (connection, far, _):
        far.send(b"GET / HTTP/1.1\r\n\r\n")

        with pytest.raises(RemoteProtocolError, match="frame of 1195725856 bytes, at most"):
            await connection.receive()


async def test_a_peer_is_heard_before_it_is_listened_to() -> None:
    with connected() as (connection, far, _):
        assert not connection.has_unread()

        far.send(FRAME)
        await trio.lowlevel.wait_readable(connection._socket)

        assert connection.has_unread()
        assert await connection.receive() == [Heartbeat()]
        assert not connection.has_unread()


async def test_dialling_where_nobody_listens_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()

    with pytest.raises(ConnectionLostError, match=r"^connection refused$") as refused:
        await dial(f"{host}:{port}", timeout_s=5)
    with pytest.raises(ConnectionLostError, match="expected host:port") as mistyped:
        await dial("nonsense", timeout_s=5)

    assert refused.value.is_refused
    assert not mistyped.value.is_refused


@pytest.mark.parametrize("is_silent", [True, False])
async def test_who_is_refused_at_one_address_and_hears_nothing_at_another_is_not_refused(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint(socket.AF_INET, server.getsockname())
    silent = Endpoint(socket.AF_INET, ("127.0.0.2", 1))
    with_trio = trio.socket.from_stdlib_socket

    async def both(_: str) -> list[Endpoint]:
        return [endpoint, silent]

    class Attempt:
        def __init__(self, attempt: socket.socket) -> None:
            self.attempt = attempt

        async def connect(self, address: object) -> None:
            if is_silent and address == silent.sockaddr:
                with self.attempt:
                    await trio.sleep_forever()
            await with_trio(self.attempt).connect(address)

    monkeypatch.setattr("plait.broker.net.connection.resolve", both)
    monkeypatch.setattr("trio.socket.from_stdlib_socket", Attempt)

    with pytest.raises(ConnectionLostError) as failed:
        await dial("both:1", timeout_s=3)

    assert failed.value.is_refused is not is_silent
    assert str(failed.value) == ("no answer within 3 s" if is_silent else "connection refused")


async def test_dialling_takes_a_bounded_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr("plait.broker.net.connection.resolve", never)

    with pytest.raises(ConnectionLostError, match=r"^no answer within 3 s$"):
        await dial("127.0.0.1:1", timeout_s=3)

    assert autojump_clock.current_time() == pytest.approx(3.0)


async def test_whoever_answers_and_is_gone_again_has_not_been_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_gone(_: socket.socket) -> bool:
        raise OSError(errno.ENOTCONN, "not connected")

    monkeypatch.setattr(connection, "_leads_to_itself", is_gone)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        host, port = listening.getsockname()

        with pytest.raises(ConnectionLostError, match="not connected"):
            await dial(f"{host}:{port}", timeout_s=5)
