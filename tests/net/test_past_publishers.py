"""Publishers that came and went cost nothing when a broker fails."""

from pathlib import Path

import attrs
import pytest
import trio

from plait.broker.limits import DEFAULT_LIMITS
from tests.net.overlay import Overlay
from tests.net.past_publishers import measure, on_processes

TIGHT = attrs.evolve(
    DEFAULT_LIMITS, frame_bytes_max=64 << 10, portion_bytes_max=8 << 10, content_bytes_max=4 << 10
)
"""Frames so small that what all of them are called does not fit into one."""


@pytest.mark.parametrize("remembered", [2048, 50], ids=["remembered", "forgotten"])
async def test_a_crash_is_survived_after_many_publishers(tmp_path: Path, remembered: int) -> None:
    limits = attrs.evolve(TIGHT, dropped_clients_max=remembered)
    async with trio.open_nursery() as nursery:
        overlay = Overlay(nursery, tmp_path)
        await overlay.broker("b1", limits=limits)
        await overlay.broker("b2", join="b1", limits=limits)
        await overlay.broker("b3", join="b2", fallbacks=(overlay.address("b1"),), limits=limits)
        addresses = {name: overlay.address(name) for name in ("b1", "b3")}

        async def kill() -> None:
            await overlay.kill("b2")

        outcome = await measure(addresses, 400, kill, name_chars=250)
        known = await overlay.metric("b3", "plait_publishers_remembered")
        troubles = [
            line
            for name in addresses
            for event in ("message not sent", "link broke the protocol", "cut off")
            for line in overlay.logged(name, event)
        ]
        nursery.cancel_scope.cancel()

    assert outcome.lost == 0
    assert troubles == []
    assert known == min(remembered, 401)


@pytest.mark.slow
@pytest.mark.processes
def test_a_hundred_thousand_past_publishers_cost_no_more_than_ten() -> None:
    few, many = on_processes(10), on_processes(100_000)
    print(few, many, sep="\n")

    assert (few.lost, many.lost) == (0, 0)
    assert many.pause_ms < 3 * few.pause_ms + 500
