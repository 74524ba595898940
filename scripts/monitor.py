"""Asks brokers how they are, over a connection made for that, and walks the whole overlay."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

import trio

from plait.broker.access.errors import NotAdmittedError
from plait.broker.errors import RemoteProtocolError
from plait.broker.inputs import LinkId
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.messages import (
    PROTOCOL_VERSION,
    Goodbye,
    Hello,
    NodeKind,
    Relocate,
    Relocated,
    StatusReply,
    StatusRequest,
    Welcome,
)
from plait.broker.net.addresses import Address
from plait.broker.net.connection import CLOSED_THERE, Connection, ConnectionLostError, Traffic, dial
from plait.broker.net.credentials import Passage, pass_through
from plait.routing.ids import NodeId
from plait.scripts.status_reports import NOBODY_LISTENS, StatusReport, Unreachable, answers

MONITOR: Final = NodeId("plait-status")
HELLO: Final = Hello(
    version=PROTOCOL_VERSION, node=MONITOR, host=MONITOR, kind=NodeKind.MONITOR, incarnation=1
)
ANSWER_TIMEOUT_S: Final = 5.0
UNANSWERED: Final = "it closed the connection without an answer"


async def ask(host: str, port: int, approach: Passage | None = None) -> StatusReport:
    """Return a process' own report; `OSError` says why there is none.

    Where whoever comes has to show who it is, that is what `approach` does.
    """
    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            async with _conversation(str(Address(host, port)), approach) as connection:
                connection.say(StatusRequest())
                while True:
                    match await connection.receive_one():
                        case StatusReply(report=report):
                            document: StatusReport = json.loads(report)
                            return document
                        case Goodbye(reason=reason):
                            raise ConnectionError(reason)
    except trio.TooSlowError:
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s") from None


async def request_move(
    address: str,
    broker: str,
    host: str,
    tell: Callable[[str], None],
    approach: Passage | None = None,
) -> str:
    """Ask the process that plays a broker to let another one have it; returns when that begins.

    Or says why it does not; `tell` is told what it waits for. `OSError` if nobody answers.
    """
    relocate = Relocate(broker=NodeId(broker), host=NodeId(host))
    async with _conversation(address, approach) as connection:
        connection.say(relocate)
        while True:
            match await connection.receive_one():
                case Relocated(reason=reason, is_remembered=True):
                    tell(reason)
                case Relocated(reason=reason):
                    return reason
                case Goodbye(reason=reason):
                    raise ConnectionError(reason)


def split(address: str) -> tuple[str, int]:
    """The machine and the port of an address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@contextlib.asynccontextmanager
async def _conversation(address: str, approach: Passage | None) -> AsyncIterator[Connection]:
    """Greet a process, and go on once it has welcomed this monitor."""
    try:
        connected = await dial(address, timeout_s=ANSWER_TIMEOUT_S)
        connection = Connection(LinkId(0), connected, DEFAULT_LIMITS, Traffic())
        try:
            if approach is not None:
                await pass_through(connection, approach, within_s=ANSWER_TIMEOUT_S)
            connection.say(HELLO)
            while not isinstance(message := await connection.receive_one(), Welcome):
                if isinstance(message, Goodbye):
                    raise ConnectionError(message.reason)
            yield connection
        finally:
            connection.close()
    except ConnectionLostError as lost:
        if lost.is_refused:
            raise ConnectionRefusedError(NOBODY_LISTENS) from None
        raise ConnectionError(UNANSWERED if str(lost) == CLOSED_THERE else str(lost)) from None
    except NotAdmittedError as error:
        raise ConnectionError(str(error)) from None
    except RemoteProtocolError as error:
        raise ConnectionError(f"no plait broker: {error}") from None


async def survey(
    addresses: Iterable[str],
    silent: Iterable[Unreachable] = (),
    approach: Passage | None = None,
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
                nursery.start_soon(_visit, address, name, found, approach)
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


async def _visit(
    address: str,
    name: str,
    found: dict[str, StatusReport | Unreachable],
    approach: Passage | None,
) -> None:
    try:
        found[address] = await ask(*split(address), approach)
    except OSError as error:
        found[address] = Unreachable(name, address, reason_of(error))


def reason_of(error: OSError) -> str:
    """Say why a connection failed."""
    return str(error)
