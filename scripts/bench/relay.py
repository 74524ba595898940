"""The least that a publish/subscribe system in trio can be: what a broker is compared with.

The relay gives every subscriber everything. Of what publishers send it reads nothing but the
lengths of frames, to pass on whole ones; it has no filters, no confirmations, no limits, and nobody
may come while it works. Its clients are of the same kind. What a broker needs beyond this is the
price of being one.
"""

import functools
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NoReturn, Self

import attrs
import trio

_LENGTH: Final = struct.Struct(">I")
RECEIVE_BYTES: Final = 64 << 10
"""As much as a broker takes in one read."""
WELCOME: Final = b"\0"
"""One byte, before all frames, tells a subscriber that from now on it gets everything."""


@attrs.frozen
class RelayAddresses:
    """A relay tells its two kinds of client apart by where they connect."""

    publishers: str
    subscribers: str


class Relay:
    """One relay, in the nursery it is given."""

    def __init__(self, *, frame_by_frame: bool = False) -> None:
        """Pass on all frames that arrive together in one write, or every one by itself."""
        self._is_frame_by_frame = frame_by_frame
        self._subscribers: list[trio.SocketStream] = []
        self._passing_on = trio.Lock()

    async def open(self, nursery: trio.Nursery) -> RelayAddresses:
        """Listen; return where."""
        return RelayAddresses(
            publishers=await _serve(nursery, self._on_publisher),
            subscribers=await _serve(nursery, self._on_subscriber),
        )

    async def _on_publisher(self, publisher: trio.SocketStream) -> None:
        unfinished = b""
        while data := await publisher.receive_some(RECEIVE_BYTES):
            data = unfinished + data
            end = end_of_frames(data)
            unfinished = data[end:]
            async with self._passing_on:  # only one task may write to a stream
                await self._pass_on(data[:end])

    async def _pass_on(self, frames: bytes) -> None:
        chunks = map(frame, payloads_in(frames)) if self._is_frame_by_frame else [frames]
        for chunk in chunks:
            for subscriber in self._subscribers:
                await subscriber.send_all(chunk)

    async def _on_subscriber(self, subscriber: trio.SocketStream) -> NoReturn:
        self._subscribers.append(subscriber)
        await subscriber.send_all(WELCOME)
        await trio.sleep_forever()


async def _serve(
    nursery: trio.Nursery, serve: Callable[[trio.SocketStream], Awaitable[None]]
) -> str:
    serve_all = functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
    listeners = await nursery.start(serve_all)
    host, port = listeners[0].socket.getsockname()
    return f"{host}:{port}"


def frame(payload: bytes) -> bytes:
    """Return a payload with its length before it."""
    return _LENGTH.pack(len(payload)) + payload


def end_of_frames(data: bytes) -> int:
    """Return where the last whole frame ends."""
    start, size = 0, len(data)
    while size - start >= _LENGTH.size:
        end = start + _LENGTH.size + _LENGTH.unpack_from(data, start)[0]
        if end > size:
            break
        start = end
    return start


def payloads_in(frames: bytes) -> list[bytes]:
    """Return the payloads of whole frames."""
    payloads = []
    start, size = 0, len(frames)
    while start < size:
        begin = start + _LENGTH.size
        start = begin + _LENGTH.unpack_from(frames, start)[0]
        payloads.append(frames[begin:start])
    return payloads


class RelayClient:
    """A connection to a relay. A subscriber iterates over it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._unfinished = b""

    @classmethod
    async def connect(cls, address: str) -> Self:
        """Connect to one of a relay's two addresses."""
        host, _, port = address.rpartition(":")
        return cls(await trio.open_tcp_stream(host, int(port)))

    async def send(self, payloads: Iterable[bytes]) -> None:
        """Send payloads, all in one write."""
        await self._stream.send_all(b"".join(map(frame, payloads)))

    async def wait_welcomed(self) -> None:
        """Wait until this subscriber gets everything."""
        await self._stream.receive_some(len(WELCOME))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        """Wait for bytes; return the payloads they complete."""
        data = await self._stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise StopAsyncIteration
        data = self._unfinished + data
        end = end_of_frames(data)
        self._unfinished = data[end:]
        return payloads_in(data[:end])
