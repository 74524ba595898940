"""Asks brokers how they are, over a connection made for that, and walks the whole overlay."""

import json
from collections.abc import Iterable
from typing import Final

import trio

from broker.codec import FrameDecoder, encode
from broker.errors import RemoteProtocolError
from broker.messages import Goodbye, Message, NodeKind, StatusReply, StatusRequest
from broker.vocabulary import PROTOCOL_VERSION, Hello, Welcome
from routing.ids import NodeId
from scripts.status_reports import NOBODY_LISTENS, StatusReport, Unreachable

ANSWER_TIMEOUT_S: Final = 5.0
JOIN_POLL_S: Final = 0.01
ON_THE_WAY: Final = ("joining", "recovering")
"""States of a broker that does not serve yet."""


async def ask(host: str, port: int) -> StatusReport:
    """Return a broker's own report; `OSError` says why there is none."""
    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            async with await trio.open_tcp_stream(host, port) as stream:
                return await _converse(stream)
    except trio.TooSlowError:
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s") from None
    except (trio.BrokenResourceError, RemoteProtocolError) as error:
        raise ConnectionError(f"no plait broker: {error}") from None


async def wait_until_joined(address: str) -> None:
    """Return when the broker that listens there has joined its overlay, or has joined it again."""
    host, port = _split(address)
    while (await ask(host, port))["state"] in ON_THE_WAY:  # noqa: ASYNC110 - it is another node's
        await trio.sleep(JOIN_POLL_S)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _converse(stream: trio.SocketStream) -> StatusReport:
    name = NodeId("plait-status")
    hello = Hello(
        version=PROTOCOL_VERSION,
        node=name,
        host=name,
        kind=NodeKind.MONITOR,
        incarnation=1,
    )
    await stream.send_all(encode(hello))
    decoder = FrameDecoder()
    async for data in stream:
        for message in decoder.feed(bytes(data)):
            report = await _answer(stream, message)
            if report is not None:
                return report
    raise ConnectionError("it closed the connection without an answer")


async def _answer(stream: trio.SocketStream, message: Message) -> StatusReport | None:
    match message:
        case Welcome():
            await stream.send_all(encode(StatusRequest()))
        case StatusReply(report=report):
            document: StatusReport = json.loads(report)
            return document
        case Goodbye(reason=reason):
            raise ConnectionError(reason)
        case _:
            pass  # heartbeats, and what later versions may add
    return None


async def survey(
    addresses: Iterable[str], silent: Iterable[Unreachable] = ()
) -> list[StatusReport | Unreachable]:
    """Ask these brokers, then the neighbours they name, until all of the overlay has been asked.

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
            neighbour["address"]: neighbour["name"]
            for report in found.values()
            if not isinstance(report, Unreachable)
            for neighbour in report["neighbours"]
            if neighbour["kind"] == NodeKind.BROKER and neighbour["address"] not in found
        }
    # One broker may have been asked twice, at `localhost` and at 127.0.0.1.
    return list({_identity(report): report for report in found.values()}.values())


def _identity(report: StatusReport | Unreachable) -> str:
    return report.address if isinstance(report, Unreachable) else f"broker {report['node']}"


async def _visit(address: str, name: str, found: dict[str, StatusReport | Unreachable]) -> None:
    try:
        found[address] = await ask(*_split(address))
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
