"""Listening and accepting: where connections come from that this node did not ask for."""

import contextlib
import resource
import socket
from collections.abc import Callable
from typing import Final, NoReturn

import trio

from plait.broker.effects import Level
from plait.broker.errors import AddressError, ListenError
from plait.broker.net.addresses import resolve
from plait.broker.net.logs import Log

BACKLOG: Final = 1024
"""Connections the operating system keeps for us; a whole overlay may start at the same moment."""
ACCEPTED_AT_ONCE_MAX: Final = 64
"""Then it is the turn of the connections that are there already."""
ACCEPT_PAUSE_S: Final = 0.1
"""After an error such as too many open files, which does not go away by trying harder."""


async def listen(address: str, *, allow_remote: bool) -> socket.socket:
    """Bind and listen; port 0 takes any that is free. Only loopback, unless told otherwise."""
    endpoint = (await resolve(address))[0]
    if not (endpoint.is_loopback or allow_remote):
        raise AddressError(
            f"address {address!r} can be reached from other machines: give --tls FOLDER, so that "
            "whoever comes shows who it is, or --insecure, if all who reach it are trusted"
        )
    listening = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        # A restarted broker takes its old port back, whatever connections the old one left behind.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(endpoint.sockaddr)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ListenError(f"cannot listen at {address}: {error.strerror}") from error
    return listening


async def accept_connections(
    listening: socket.socket, take: Callable[[socket.socket], None], log: Log
) -> NoReturn:
    """Hand over every connection; no error of one of them, or of the machine, ends this."""
    while True:
        await trio.lowlevel.wait_readable(listening)
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, _ = listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                log(Level.ERROR, "connection not accepted", {"reason": error.strerror})
                await trio.sleep(ACCEPT_PAUSE_S)
                break
            take(accepted)


def raise_open_files_limit() -> None:
    """Every connection is an open file; the usual soft limit is for programs with few of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS says unlimited and means less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
