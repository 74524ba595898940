"""Brokers that other processes go on to play: somebody asks for it, or a process is stopped."""

from pathlib import Path

import pytest
import trio

from plait.broker.net.client import connect
from plait.scripts.commands.move import hand_over
from plait.scripts.errors import BadInputError, EnvironmentFailedError
from tests.net.overlay import Overlay


async def three_in_a_line(overlay: Overlay, folder: Path) -> None:
    for name, join in (("b1", None), ("b2", "b1"), ("b3", "b2")):
        await overlay.broker(name, join=join, state=folder / f"{name}.state")
        await overlay.until(name, "plait_ready", bool)


async def plays(overlay: Overlay, name: str, *brokers: str) -> None:
    """Wait until a process plays these brokers, and no others."""
    while {one["broker"] for one in (await overlay.status(name))["brokers"]} != {*brokers}:
        await trio.lowlevel.checkpoint()


async def test_a_broker_is_moved_while_traffic_runs(
    overlay: Overlay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await three_in_a_line(overlay, tmp_path)
    async with (
        connect(overlay.address("b3"), name="reader") as reader,
        connect(overlay.address("b2"), name="writer") as writer,
    ):
        await writer.advertise("TRUE")
        subscription = await reader.subscribe("TRUE")
        for number in range(100):
            await writer.publish({"n": number})
            if number == 30:
                await hand_over("b2", "b3", [overlay.address("b1")], timeout_s=10)
            if number == 60:
                await hand_over("b2", "b2", [overlay.address("b1")], timeout_s=10)
        got = [(await anext(subscription)).content["n"] for _ in range(100)]
        await writer.wait_confirmed(100)

    assert got == list(range(100))
    there, back = capsys.readouterr().out.splitlines()
    assert there.startswith("b2 is played by b3 now, in term 2, and was by b2; that took 0.")
    assert back.startswith("b2 is played by b2 now, in term 3, and was by b3; that took 0.")


async def test_a_move_that_is_not_possible_says_why(
    overlay: Overlay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await three_in_a_line(overlay, tmp_path)
    where = [overlay.address("b1")]

    with pytest.raises(BadInputError, match="no broker b9, expected one of b1, b2, b3"):
        await hand_over("b9", "b1", where, timeout_s=10)
    with pytest.raises(BadInputError, match="no process b9, expected one of b1, b2, b3"):
        await hand_over("b1", "b9", where, timeout_s=10)
    with pytest.raises(EnvironmentFailedError, match=r"no broker answers: .*nobody listens"):
        await hand_over("b1", "b2", ["127.0.0.1:1"], timeout_s=10)
    await hand_over("b1", "b1", where, timeout_s=10)
    assert capsys.readouterr().out == "b1 is played by b1 already, in term 1\n"


async def test_with_a_delta_of_0_nothing_is_moved(overlay: Overlay) -> None:
    await overlay.broker("b1", delta=0)
    await overlay.broker("b2", join="b1")

    with pytest.raises(EnvironmentFailedError, match="with a delta of 0 nothing can be rebuilt"):
        await hand_over("b2", "b1", [overlay.address("b1")], timeout_s=10)


async def test_a_process_that_is_stopped_hands_over_and_comes_back(
    overlay: Overlay, tmp_path: Path
) -> None:
    await three_in_a_line(overlay, tmp_path)
    async with (
        connect(overlay.address("b3"), name="reader") as reader,
        connect(overlay.address("b2"), name="writer") as writer,
    ):
        await writer.advertise("TRUE")
        subscription = await reader.subscribe("TRUE")
        for number in range(90):
            await writer.publish({"n": number})
            if number == 30:
                await overlay.stop("b2")
            if number == 60:
                listen = overlay.address("b2")
                await overlay.broker("b2", listen=listen, state=tmp_path / "b2.state")
        got = [(await anext(subscription)).content["n"] for _ in range(90)]
        await plays(overlay, "b2", "b2")

    assert got == list(range(90))
    assert [line["event"] for line in overlay.log("b2")].count("stopped") == 1


async def test_a_process_with_nobody_below_leaves_the_tree(
    overlay: Overlay, tmp_path: Path
) -> None:
    await three_in_a_line(overlay, tmp_path)
    begun = trio.current_time()
    await overlay.stop("b3")

    assert trio.current_time() - begun < 1
    assert [one["name"] for one in (await overlay.status("b2"))["neighbours"]] == ["b1"]
    await overlay.broker("b3", join="b1")
    await plays(overlay, "b3", "b3")


async def test_all_that_are_stopped_together_end_soon(overlay: Overlay, tmp_path: Path) -> None:
    await three_in_a_line(overlay, tmp_path)
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for name in ("b1", "b2", "b3"):
            nursery.start_soon(overlay.stop, name)

    assert trio.current_time() - begun < 1
    assert not any(overlay.logged(name, "given up") for name in ("b1", "b2", "b3"))
