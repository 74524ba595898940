"""`host:port` as people write it, and what may stand there."""

import ipaddress
import socket
from typing import Any, Final

import attrs
import trio

from plait.broker.errors import AddressError

LOOPBACK: Final = "127.0.0.1"


@attrs.frozen
class Address:
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """As `parse_address` reads it: brackets around the colons of IPv6."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host:port` or `[::1]:port`; `AddressError` says what is wrong with anything else."""
    if not isinstance(text, str):
        raise AddressError(
            f"address {text!r}: found {type(text).__name__}, expected text like '127.0.0.1:4000'"
        )
    if "://" in text:
        raise AddressError(f"address {text!r}: expected host:port without what is before ://")
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"address {text!r}: expected brackets around an IPv6 host")
    if not colon or not host:
        raise AddressError(f"address {text!r}: expected host:port")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise AddressError(f"address {text!r}: expected a port from 0 to 65535, found {port!r}")
    return Address(host, int(port))


def complete_address(text: str) -> str:
    """Return an address as others take it; without a host it is of this machine."""
    if isinstance(text, str) and text.startswith(":"):
        text = f"{LOOPBACK}{text}"
    parse_address(text)
    return text


@attrs.frozen
class Endpoint:
    """An address as the operating system takes it."""

    family: socket.AddressFamily
    sockaddr: tuple[Any, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether it cannot be reached from another machine."""
        # A scope such as fe80::1%eth0 is no part of the address proper.
        return ipaddress.ip_address(str(self.sockaddr[0]).partition("%")[0]).is_loopback


async def resolve(text: str) -> list[Endpoint]:
    """Find what an address stands for, best first; at least one, or `AddressError`."""
    address = parse_address(text)
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AddressError(f"address {text!r}: {reason}") from None
    return [Endpoint(family, tuple(sockaddr)) for family, _, _, _, sockaddr in found]


def name_of(bound: socket.socket) -> str:
    """Return the address that a socket is bound to."""
    host, port = bound.getsockname()[:2]
    return str(Address(host, port))
