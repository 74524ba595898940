"""One TCP connection: bytes in, messages out; frames in, bytes out. It knows nothing of meaning.

This is the one place that meets trio's and the operating system's ways of saying that a connection
is over. All of them become `ConnectionLostError`, with a reason in words. TLS is a layer of bytes
in between (`broker/net/tls.py`), once hands have been shaken.

A plain non-blocking socket is used instead of trio's streams: a write that the socket takes at
once, as it does nearly every time, then costs one system call and no pass through the scheduler.
"""

import contextlib
import errno
import os
import socket
from typing import Final, NoReturn

import attrs
import trio

from plait.broker.access.admission import Certificate
from plait.broker.codec import FrameDecoder, encode
from plait.broker.errors import AddressError, BrokerError
from plait.broker.inputs import LinkId
from plait.broker.limits import Limits
from plait.broker.messages import Goodbye, GoodbyeCode, Message
from plait.broker.net.addresses import Address, resolve
from plait.broker.net.tls import FIRST_BYTE, TlsError, TlsSession

RECEIVE_BYTES: Final = 64 << 10
"""One read: hundreds of small publications. From 128 KiB on, allocators map fresh pages for every
buffer, which would cost several times as much as the read itself."""

STRANGERS_FRAME_BYTES_MAX: Final = 24 << 10
"""One message of somebody who has not been let in: a token, or a part of a proof."""

CLOSED_THERE: Final = "closed by the other side"

LINGER_S: Final = 1.0
"""How long a connection that this side ends is kept for what is on its way in both directions."""


class ConnectionLostError(BrokerError):
    """A connection is over, or could not be made; the text says why."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused
        """Whether whoever was dialled has answered that nobody listens there."""


@attrs.define
class Traffic:
    """What has passed through all connections of a node since it started."""

    bytes_received: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    messages_sent: int = 0


class Connection:
    """A connection, from the moment it exists until it is closed."""

    def __init__(
        self, link: LinkId, connected: socket.socket, limits: Limits, traffic: Traffic
    ) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link = link
        self.remote = _remote_address(connected)
        self.remote_host = self.remote.rpartition(":")[0]
        self.buffered_bytes = 0
        """What `write` accepted and the socket has not taken yet."""
        self._socket = connected
        self._limits = limits
        self._decoder = FrameDecoder(limits)
        self._tls: TlsSession | None = None
        self._unread: list[Message] = []
        """What has come while only one message was expected."""
        self._traffic = traffic
        self._outgoing: list[bytes] = []
        self._unsent = memoryview(b"")
        """What was offered to the socket and not taken; it goes before `_outgoing`."""
        self._sending = trio.Lock()

    async def receive(self) -> list[Message]:
        """Wait for bytes; return the messages they complete, of which there may be none.

        Raises `ConnectionLostError`, or `RemoteProtocolError` if the bytes are no messages.
        """
        if self._unread:
            messages, self._unread = self._unread, []
            return messages
        data = await self._receive_bytes()
        if self._tls is not None:
            data = self._decrypted(data)
        messages = self._decoder.feed(data)
        self._traffic.messages_received += len(messages)
        return messages

    async def _receive_bytes(self) -> bytes:
        while True:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                data = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except trio.ClosedResourceError:
                raise ConnectionLostError("closed by this side") from None
            except OSError as error:
                raise ConnectionLostError(_in_words(error)) from None
            if not data:
                raise ConnectionLostError(CLOSED_THERE)
            self._traffic.bytes_received += len(data)
            return data

    def _decrypted(self, data: bytes) -> bytes:
        assert self._tls is not None
        try:
            return self._tls.decrypt(data)
        except TlsError as error:
            raise ConnectionLostError(str(error)) from None

    # --- before anybody is let in -----------------------------------------------------------

    async def shake_hands(self, tls: TlsSession) -> None:
        """Have all that follows pass through TLS, from whoever is there to whom nothing is known.

        What it may send is short, until `trust`.
        """
        short = attrs.evolve(self._limits, frame_bytes_max=STRANGERS_FRAME_BYTES_MAX)
        self._decoder.trust(short)
        try:
            is_done = tls.shake_hands()
            is_first = True
            while True:
                self._offer(tls.take_outgoing())
                if is_done:
                    break
                data = await self._receive_bytes()
                if is_first and tls.is_server and data[0] != FIRST_BYTE:
                    self._refuse_plain()
                is_first = False
                is_done = tls.shake_hands(data)
        except TlsError as error:
            # It says in its own way what is wrong, and the peer can tell its user.
            self._offer(tls.take_outgoing())
            raise ConnectionLostError(str(error)) from None
        self._tls = tls
        self._unread = self._decoder.feed(self._decrypted(b""))

    def _refuse_plain(self) -> NoReturn:
        """Answer somebody who does not know of TLS in a way that it understands."""
        reason = "TLS is spoken here: connect with --tls-ca, or with a profile"
        self._offer(encode(Goodbye(code=GoodbyeCode.REFUSED, reason=reason)))
        raise ConnectionLostError("it does not speak TLS")

    def peer_certificate(self) -> Certificate | None:
        """What the other end has shown, if it has."""
        return None if self._tls is None else self._tls.peer()

    async def receive_one(self) -> Message:
        """Wait for the next message of a conversation in which both ends take turns."""
        messages = await self.receive()
        while not messages:
            messages = await self.receive()
        self._unread = messages[1:]
        return messages[0]

    def say(self, message: Message) -> None:
        """Send one message at once, as far as the socket takes it."""
        self.write(encode(message))
        self.flush()

    def say_if_safe(self, message: Message) -> None:
        """The same, if there is a way to say it."""
        if self._tls is not None:
            self.say(message)

    def trust(self) -> None:
        """Let the other end send whatever it likes from now on: it is known who that is."""
        self._decoder.trust(self._limits)

    def _offer(self, data: bytes) -> None:
        """Send bytes of the handshake; nobody has so few that a socket would not take them."""
        if data:
            self._unsent = memoryview(bytes(self._unsent) + data)
            self.buffered_bytes += len(data)
            self._send()

    # --- what is sent -----------------------------------------------------------------------

    def has_unread(self) -> bool:
        """Whether the peer has been heard, though nobody has listened yet."""
        if self._unread:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:  # `receive` will say so in time
            pass
        return True

    def write(self, frames: bytes) -> None:
        """Accept whole frames, to be sent by the next `flush`."""
        self._outgoing.append(frames)
        self.buffered_bytes += len(frames)

    @property
    def unfinished_bytes(self) -> int:
        """About what is kept of messages that have not come whole yet."""
        return self._decoder.kept_bytes

    @property
    def is_backed_up(self) -> bool:
        """Whether the socket takes nothing for now: somebody has to `send_more`."""
        return len(self._unsent) > 0

    def flush(self) -> None:
        """Send what the socket takes at once."""
        if self._outgoing and not self._unsent:
            frames = self._outgoing
            self._outgoing = []
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            if self._tls is not None:
                plain = len(data)
                data = self._tls.encrypt(data)
                self.buffered_bytes += len(data) - plain
            self._unsent = memoryview(data)
            self._send()

    async def send_more(self) -> None:
        """Wait until the socket takes some of what it did not take before."""
        async with self._sending:  # only one task may wait for a socket
            if self._unsent:
                # Closed while we waited: there is nothing left to send then.
                with contextlib.suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._socket)
                self._send()
                self.flush()

    def _send(self) -> None:
        """Offer the socket what is first in line.

        A broken connection swallows it. That it is broken, `receive` finds out, which also sees
        what the peer had to say before.
        """
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        else:
            self._traffic.bytes_sent += sent
        self._unsent = self._unsent[sent:]
        self.buffered_bytes -= sent

    async def hang_up(self) -> None:
        """Before closing: send what was written, then hear the peer out, for a bounded time.

        Were it closed with bytes unread, TCP would reset the connection, and the peer might never
        get to read the reason it was sent.
        """
        with trio.move_on_after(LINGER_S), contextlib.suppress(OSError):
            self.flush()
            while self.is_backed_up:
                await self.send_more()
            self._socket.shutdown(socket.SHUT_WR)
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                if not self._socket.recv(RECEIVE_BYTES):
                    break

    def discard(self) -> None:
        """Forget what waits to be sent: nobody is going to read it."""
        self._outgoing = []
        self._unsent = memoryview(b"")
        self.buffered_bytes = 0

    def close(self) -> None:
        """Close at once; whoever waits for this connection is woken."""
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


async def dial(address: str, *, timeout_s: float) -> socket.socket:
    """Connect to whichever endpoint of an address answers first, or raise `ConnectionLostError`.

    It was refused if every endpoint has refused it that this machine can dial.
    """
    failure = ""
    are_refused: list[bool] = []
    with trio.move_on_after(timeout_s) as patience:
        try:
            endpoints = await resolve(address)
        except AddressError as error:
            raise ConnectionLostError(str(error)) from None
        for endpoint in endpoints:
            attempt = socket.socket(endpoint.family, socket.SOCK_STREAM)
            try:
                # Trio makes it non-blocking and closes it if this is cancelled.
                await trio.socket.from_stdlib_socket(attempt).connect(endpoint.sockaddr)
                is_answered = not _leads_to_itself(attempt)
            except OSError as error:  # who has answered may be gone again already
                attempt.close()
                failure = _in_words(error)
                # A machine without IPv6 has never reached anybody there either.
                if error.errno != errno.EADDRNOTAVAIL:
                    are_refused.append(error.errno == errno.ECONNREFUSED)
                continue
            if is_answered:
                return attempt
            attempt.close()
            failure = "connection refused"
            are_refused.append(True)
    if patience.cancelled_caught:
        raise ConnectionLostError(f"no answer within {timeout_s:g} s")
    raise ConnectionLostError(failure, is_refused=bool(are_refused) and all(are_refused))


def _leads_to_itself(connected: socket.socket) -> bool:
    """Whether nobody listens, and TCP has found a way to shake hands with itself."""
    return bool(connected.getsockname() == connected.getpeername())


def _remote_address(connected: socket.socket) -> str:
    try:
        host, port = connected.getpeername()[:2]
    except OSError:  # gone again already
        return "unknown"
    return str(Address(host, port))


def _in_words(error: OSError) -> str:
    # Not `strerror`, to which trio adds the address.
    return os.strerror(error.errno).lower() if error.errno else str(error)
