"""Clients of a broker that are as bare as those of the relay: they compare servers, not clients.

They greet as the protocol wants it and ask for everything; after that they split frames, look at
the stamp at the end of each publication, and confirm what they got now and then. They check
nothing, remember nothing and could not reconnect: the client library does all that, and costs what
`plait bench overlay` shows beside them.
"""

from collections.abc import Iterable
from typing import Final, Self

import trio

from plait.broker.codec import FrameDecoder, encode, encode_content
from plait.broker.messages import (
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    Advertise,
    Confirm,
    EndOfStep,
    Hello,
    Join,
    Message,
    NodeKind,
    Progress,
    Publish,
    Subscribe,
    Welcome,
)
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.values import Content
from plait.scripts.bench.relay import RECEIVE_BYTES, end_of_frames, payloads_in
from plait.scripts.bench.workloads import PAYLOAD_BYTES

_INCARNATION: Final = 1
_TYPE_AT: Final = 1
"""Where a message's number stands, after the head of its array."""
CONFIRM_AFTER: Final = 256
"""Publications that are confirmed together; the client library does so after 64, or 20 ms."""
_PUBLISH: Final = next(number for number, kind in MESSAGE_TYPES.items() if kind is Publish)


class BareClient:
    """A connection to a broker. A subscriber iterates over it."""

    def __init__(self, stream: trio.SocketStream, name: str) -> None:
        self._stream = stream
        self._name = NodeId(name)
        self._operations = self._step = 0
        self._unfinished = b""
        self._received = self._confirmed = 0
        self._seq = 0

    @classmethod
    async def connect(cls, address: str, name: str) -> Self:
        """Connect and join."""
        host, _, port = address.rpartition(":")
        client = cls(await trio.open_tcp_stream(host, int(port)), name)
        hello = Hello(
            version=PROTOCOL_VERSION,
            node=client._name,
            kind=NodeKind.CLIENT,
            incarnation=_INCARNATION,
            host=client._name,
        )
        await client._ask(Welcome, hello)
        await client._ask(Confirm, Join(operation=client._operation()), client._end_of_step())
        return client

    async def advertise(self, filter_text: str) -> None:
        """Announce what will be published."""
        await self._ask(
            Confirm,
            Advertise(
                operation=self._operation(),
                advertisement=AdvertisementId(f"{self._name}/1"),
                client=self._name,
                filter=filter_text,
                path=(self._name,),
            ),
            self._end_of_step(),
        )

    async def subscribe(self, filter_text: str) -> None:
        """Ask for publications."""
        await self._ask(
            Confirm,
            Subscribe(
                operation=self._operation(),
                subscription=SubscriptionId(f"{self._name}/1"),
                client=self._name,
                filter=filter_text,
                ordered=True,
                path=(self._name,),
            ),
            self._end_of_step(),
        )

    async def send(self, content: Content, payloads: Iterable[bytes]) -> None:
        """Publish payloads, all in one write and one batch."""
        encoded = encode_content(content)
        frames = []
        for payload in payloads:
            self._seq += 1
            frames.append(encode(Publish(self._name, _INCARNATION, self._seq, 0, encoded, payload)))
        frames.append(encode(self._end_of_step()))
        await self._stream.send_all(b"".join(frames))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        """Wait for bytes; return the bodies of the publications they complete."""
        frames = await self._receive()
        if not frames:
            raise StopAsyncIteration
        bodies = [
            message[-PAYLOAD_BYTES:]  # the body is the last field
            for message in payloads_in(frames)
            if message[_TYPE_AT] == _PUBLISH
        ]
        self._received += len(bodies)
        if self._received - self._confirmed >= CONFIRM_AFTER:
            self._confirmed = self._received
            await self._confirm(self._received)
        return bodies

    async def _confirm(self, received: int) -> None:
        """Say how many publications have come; of steps it keeps no count."""
        progress = Progress(received=received, sent=0, forgotten=0)
        await self._stream.send_all(encode(progress))

    async def _ask(self, answer: type[Message], *messages: Message) -> None:
        """Send messages and wait for the answer; nothing else is of interest yet."""
        await self._stream.send_all(b"".join(map(encode, messages)))
        while frames := await self._receive():
            for received in FrameDecoder().feed(frames):
                if isinstance(received, answer):
                    return
        raise trio.BrokenResourceError(f"closed before {answer.__name__}")

    async def _receive(self) -> bytes:
        """Wait for bytes; return the frames they complete, or nothing at the end."""
        while data := await self._stream.receive_some(RECEIVE_BYTES):
            data = self._unfinished + data
            end = end_of_frames(data)
            self._unfinished = data[end:]
            if end:
                return data[:end]
        return b""

    def _end_of_step(self) -> EndOfStep:
        self._step += 1
        return EndOfStep(step=self._step)

    def _operation(self) -> OperationId:
        self._operations += 1
        return OperationId(f"{self._name}#{_INCARNATION}.{self._operations}")
