"""What options accept, and what they say to what they do not."""

import click
import pytest

from plait.scripts.options import AddressType, SeedRangeType


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4000", "127.0.0.1:4000"),
        ("broker.example:65535", "broker.example:65535"),
        (":4000", "127.0.0.1:4000"),
        ("4000", "127.0.0.1:4000"),
        ("[::1]:4000", "[::1]:4000"),
    ],
)
def test_an_address_is_completed(text: str, address: str) -> None:
    assert AddressType().convert(text, None, None) == address


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:", ":x", ":65536", "a:b:1", "::1:40", ":0"]
)
def test_no_address(text: str) -> None:
    with pytest.raises(click.BadParameter, match="HOST:PORT expected"):
        AddressType().convert(text, None, None)


def test_port_0_is_for_who_listens() -> None:
    assert AddressType(listens=True).convert(":0", None, None) == "127.0.0.1:0"


def test_seeds_are_a_half_open_range() -> None:
    assert SeedRangeType().convert("5:8", None, None) == range(5, 8)


@pytest.mark.parametrize("text", ["", "7", "8:5", "5:5", "a:b", "-1:3", "1:2:3"])
def test_no_range_of_seeds(text: str) -> None:
    with pytest.raises(click.BadParameter, match="A:B with A < B expected"):
        SeedRangeType().convert(text, None, None)
