"""`host:port`, as people write it."""

from typing import Any

import pytest

from plait.broker.errors import AddressError
from plait.broker.net.addresses import Address, complete_address, parse_address, resolve


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5000", Address("127.0.0.1", 5000)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected host:port"),
        ("localhost", "expected host:port"),
        (":5000", "expected host:port"),
        ("::1:5000", "expected brackets around an IPv6 host"),
        ("tcp://b1:5000", "expected host:port without what is before ://"),
        ("localhost:", "expected a port from 0 to 65535, found ''"),
        ("localhost:http", "expected a port from 0 to 65535, found 'http'"),
        ("localhost:65536", "expected a port from 0 to 65535, found '65536'"),
        ("localhost:-1", "expected a port from 0 to 65535, found '-1'"),
        ("localhost:٣", "expected a port from 0 to 65535, found '٣'"),
    ],
)
def test_what_is_no_address_is_refused_with_what_was_expected(text: str, reason: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)

    assert str(caught.value) == f"address {text!r}: {reason}"


def test_what_is_no_text_is_no_address() -> None:
    number: Any = 4000
    with pytest.raises(AddressError, match="address 4000: found int, expected text like"):
        complete_address(number)


def test_a_port_alone_is_of_this_machine() -> None:
    assert complete_address(":4000") == "127.0.0.1:4000"


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [("127.0.0.1:1", True), ("127.8.9.1:1", True), ("0.0.0.0:1", False), ("192.0.2.1:1", False)],
)
async def test_loopback_is_what_other_machines_cannot_reach(text: str, is_loopback: bool) -> None:
    assert [endpoint.is_loopback for endpoint in await resolve(text)] == [is_loopback]


async def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(AddressError, match="address 'no such host:1': "):
        await resolve("no such host:1")
