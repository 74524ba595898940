"""A name is one client, over TCP as anywhere."""

import pytest
import trio

from plait.broker.errors import ClosedError
from plait.broker.net.client import connect
from tests.net.overlay import Overlay
from tests.patience import PATIENCE_S


async def three_brokers(overlay: Overlay) -> tuple[str, str, str]:
    return (
        await overlay.broker("b1"),
        await overlay.broker("b2", join="b1"),
        await overlay.broker("b3", join="b2"),
    )


@pytest.mark.parametrize("later", [0, 1])
async def test_two_processes_of_one_name_are_never_let_in_together(
    overlay: Overlay, later: int
) -> None:
    b1, _, b3 = await three_brokers(overlay)
    async with connect(b1, name="feed", incarnation=1000) as first:
        subscription = await first.subscribe("TRUE")
        await first.advertise("TRUE")
        with pytest.raises(ClosedError, match="the name feed is taken by incarnation 1000"):
            async with connect(b3, name="feed", incarnation=1000 + later):
                pass
        await first.publish({"n": 1}, confirm=True)
        async for delivery in subscription:
            assert delivery.publisher_incarnation == 1000
            break

    reasons = [line["reason"] for line in overlay.logged("b3", "link closed")]
    assert any(reason.startswith("the name feed is taken") for reason in reasons)
    async with connect(b3, name="feed", incarnation=1001):
        pass


class DoneError(Exception):
    """The test has seen what it wanted."""


async def test_a_process_that_has_died_is_followed_at_once(overlay: Overlay) -> None:
    b1, _, b3 = await three_brokers(overlay)

    async def dies_and_is_followed() -> None:
        async with connect(b1, name="feed", incarnation=1000) as first:
            first._driver.stop()  # without a word, as by `kill -9`
            async with connect(b3, name="feed", incarnation=1001):
                raise DoneError

    with trio.fail_after(PATIENCE_S), pytest.raises(DoneError):
        await dies_and_is_followed()


@pytest.mark.parametrize("name", ["b1", "b2", "b3"])
async def test_a_client_with_a_brokers_name_ends_nobody_but_itself(
    overlay: Overlay, name: str
) -> None:
    addresses = await three_brokers(overlay)
    for address in addresses:
        with pytest.raises(ClosedError, match=f"{name} is the name of a broker"):
            async with connect(address, name=name):
                pass

    async with connect(addresses[0]) as alice, connect(addresses[2]) as bob:
        subscription = await bob.subscribe("TRUE")
        await alice.advertise("TRUE")
        await alice.publish({"n": 1}, confirm=True)
        async for delivery in subscription:
            assert delivery.content == {"n": 1}
            break


async def test_a_clock_that_was_set_back_is_named(overlay: Overlay) -> None:
    b1, _, b3 = await three_brokers(overlay)
    async with connect(b1, name="clk", incarnation=5000) as first:
        await first.advertise("TRUE")
        await first.publish({"n": 1}, confirm=True)
    for address in (b1, b3):
        with pytest.raises(ClosedError, match="5000, and 4000 is older: is this machine's clock"):
            async with connect(address, name="clk", incarnation=4000):
                pass
