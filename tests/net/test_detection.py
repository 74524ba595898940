"""Detectors over TCP: what an application gets of them, and what it is told when it is wrong."""

from pathlib import Path

import pytest
import trio

from plait.broker.effects import Match
from plait.broker.errors import RefusedError
from plait.broker.net.client import connect
from plait.faulttol.guarantees import check_run
from plait.faulttol.history import HistoryWriter, Manifest, read_run, write_manifest
from plait.routing.errors import PatternError, PatternSyntaxError
from tests.net.overlay import Overlay

WHERE = {"A": "letter = 'A'", "B": "letter = 'B'", "C": "letter = 'C'"}


def letters(match: Match) -> str:
    return "".join(str(event.content["letter"]) for event in match.events)


async def test_two_detectors_at_different_brokers_find_the_same(
    overlay: Overlay, tmp_path: Path
) -> None:
    await overlay.broker("b1")
    await overlay.broker("b2", join="b1")
    found: dict[str, list[tuple[str, int]]] = {"one": [], "two": []}
    write_manifest(
        tmp_path,
        Manifest(
            run="r",
            topology="",
            ordering="pairwise",
            delta=1,
            seed=None,
            started=0.0,
            simulated=False,
        ),
    )

    async def look(name: str, at: str, begun: trio.Event) -> None:
        with HistoryWriter(tmp_path, "r", name, 1) as history:
            async with (
                connect(overlay.address(at), name=name, incarnation=1, history=history) as client,
                client.detect("A -> !C -> B", where=WHERE, policy="next") as matches,
            ):
                begun.set()
                async for match in matches:
                    found[name].append((letters(match), match.position))
                    if len(found[name]) == 2:
                        return

    with HistoryWriter(tmp_path, "r", "p", 1) as history:
        async with (
            connect(overlay.address("b1"), name="p", incarnation=1, history=history) as publisher,
            trio.open_nursery() as nursery,
        ):
            await publisher.advertise("letter IS NOT NULL")
            for name, at in (("one", "b1"), ("two", "b2")):
                begun = trio.Event()
                nursery.start_soon(look, name, at, begun)
                await begun.wait()
            await publisher.publish_many([{"letter": letter} for letter in "ACABXAB"])

    assert found["one"] == found["two"] == [("AB", 4), ("AB", 6)]
    report = check_run(read_run(tmp_path))
    assert report.is_clean
    assert report.figures["matches alike"] == report.figures["matches"] == 2


async def test_iteration_ends_with_the_block(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as client:
        async with client.detect("A", where={"A": "TRUE"}) as matches:
            assert matches.times_begun == 1

        assert [match async for match in matches] == []
        assert repr(matches) == f"<Matches {matches.id}: (TRUE)>"


async def test_a_pattern_that_cannot_be_read_costs_nothing(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with connect(address) as client:
        with pytest.raises(PatternSyntaxError, match="expected a letter, found the end"):
            async with client.detect("A ->", where=WHERE):
                pass
        with pytest.raises(PatternError, match="no filter for B"):
            async with client.detect("A -> B", where={"A": "TRUE"}):
                pass


async def test_under_order_among_topics_a_detector_names_its_topics(overlay: Overlay) -> None:
    address = await overlay.broker("b1", ordering="tno")
    async with connect(address) as client:
        with pytest.raises(RefusedError, match="topic"):
            async with client.detect("A", where={"A": "letter = 'A'"}):
                pass
        async with client.detect("A", where={"A": "topic = 'a' AND price > 1"}):
            pass

        assert not client._core.detecting
