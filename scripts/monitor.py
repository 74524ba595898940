"""Asks brokers how they are, over a connection made for that, and walks the whole overlay."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from typing import Final

import trio

from plait.broker.codec import FrameDecoder, encode
from plait.broker.errors import RemoteProtocolError
from plait.broker.messages import (
    PROTOCOL_VERSION,
    Goodbye,
    Hello,
    Message,
    NodeKind,
    Relocate,
    Relocated,
    StatusReply,
    StatusRequest,
    Welcome,
)
from plait.routing.ids import NodeId
from plait.scripts.status_reports import NOBODY_LISTENS, StatusReport, Unreachable, answers

ANSWER_TIMEOUT_S: Final = 5.0
JOIN_POLL_S: Final = 0.01
UNANSWERED: Final = "it closed the connection without an answer"
ON_THE_WAY: Final = ("joining", "recovering")
"""States of a broker that does not serve yet."""


async def ask(host: str, port: int) -> StatusReport:
    """Return a process' own report; `OSError` says why there is none."""
    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            async with _conversation(host, port) as (stream, messages):
                await stream.send_all(encode(StatusRequest()))
                async for message in messages:
                    if isinstance(message, StatusReply):
                        document: StatusReport = json.loads(message.report)
                        return document
    except trio.TooSlowError:
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s") from None
    raise ConnectionError(UNANSWERED)


async def request_move(address: str, broker: str, host: str, tell: Callable[[str], None]) -> str:
    """Ask the process that plays a broker to let another one have it; returns when that begins.

    Or says why it does not; `tell` is told what it waits for. `OSError` if nobody answers.
    """
    relocate = Relocate(broker=NodeId(broker), host=NodeId(host))
    async with _conversation(*split(address)) as (stream, messages):
        await stream.send_all(encode(relocate))
        async for message in messages:
            match message:
                case Relocated(reason=reason, is_remembered=True):
                    tell(reason)
                case Relocated(reason=reason):
                    return reason
                case _:
                    pass
    raise ConnectionError(UNANSWERED)


async def wait_until_joined(address: str) -> None:
    """Return when the broker that listens there has joined its overlay, or has joined it again."""
    host, port = split(address)
    while (await ask(host, port))["state"] in ON_THE_WAY:  # noqa: ASYNC110 - it is another node's
        await trio.sleep(JOIN_POLL_S)


def split(address: str) -> tuple[str, int]:
    """The machine and the port of an address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@contextlib.asynccontextmanager
async def _conversation(
    host: str, port: int
) -> AsyncIterator[tuple[trio.SocketStream, AsyncIterator[Message]]]:
    """Greet a process, and hear what it says once it has welcomed this monitor."""
    try:
        async with (
            await trio.open_tcp_stream(host, port) as stream,
            contextlib.aclosing(_heard(stream)) as messages,
        ):
            name = NodeId("plait-status")
            hello = Hello(
                version=PROTOCOL_VERSION,
                node=name,
                host=name,
                kind=NodeKind.MONITOR,
                incarnation=1,
            )
            await stream.send_all(encode(hello))
            async for message in messages:
                if isinstance(message, Welcome):
                    break
            yield stream, messages
    except (trio.BrokenResourceError, RemoteProtocolError) as error:
        raise ConnectionError(f"no plait broker: {error}") from None


async def _heard(stream: trio.SocketStream) -> AsyncGenerator[Message, None]:
    """All that is said, until the other side takes its leave."""
    decoder = FrameDecoder()
    async for data in stream:
        for message in decoder.feed(bytes(data)):
            if isinstance(message, Goodbye):
                raise ConnectionError(message.reason)
            yield message


async def survey(
    addresses: Iterable[str], silent: Iterable[Unreachable] = ()
) -> list[StatusReport | Unreachable]:
    """Ask these, then all others that they name, until all of the overlay has been asked.

    Those who are known to be `silent` are not asked, as waiting for them takes long.
    """
    found: dict[str, StatusReport | Unreachable] = {one.address: one for one in silent}
    waiting = dict.fromkeys((address for address in addresses if address not in found), "")
    while waiting:
        async with trio.open_nursery() as nursery:
            for address, name in waiting.items():
                found[address] = Unreachable(name, address, "not asked yet")
                nursery.start_soon(_visit, address, name, found)
        waiting = {
            address: host
            for report in answers(list(found.values()))
            for address, host in _others(report)
            if address not in found
        }
    # One broker may have been asked twice, at `localhost` and at 127.0.0.1.
    return list({_identity(report): report for report in found.values()}.values())


def _others(report: StatusReport) -> Iterator[tuple[str, str]]:
    """Where others are, of whom a process knows: in a large overlay it does not name all hosts."""
    for neighbour in report["neighbours"]:
        if neighbour["kind"] == NodeKind.BROKER and neighbour["address"]:
            yield neighbour["address"], neighbour["host"]
    for place in report["hosts"]:
        if address := place["clients_address"] or place["address"]:
            yield address, place["host"]


def _identity(report: StatusReport | Unreachable) -> str:
    return report.address if isinstance(report, Unreachable) else f"host {report['host']}"


async def _visit(address: str, name: str, found: dict[str, StatusReport | Unreachable]) -> None:
    try:
        found[address] = await ask(*split(address))
    except OSError as error:
        found[address] = Unreachable(name, address, reason_of(error))


def reason_of(error: OSError) -> str:
    """Say why a connection failed; trio hides that behind a general sentence."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, ConnectionRefusedError) or isinstance(error, ConnectionRefusedError):
        return NOBODY_LISTENS
    return str(cause or error)
