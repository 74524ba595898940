"""What a broker keeps on disk: read as if a stranger had written it, written to last."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from plait.broker.codec import FrameDecoder, encode
from plait.broker.effects import Level
from plait.broker.errors import StateError
from plait.broker.limits import DEFAULT_LIMITS, INCARNATION_MAX
from plait.broker.messages import HostPlace, Life, Seat, Seating
from plait.broker.net import memory
from plait.broker.net.memory import Keeper, Memory, recall
from plait.routing.ids import NodeId
from tests.patience import PATIENCE_S

SEAT = Seat(
    broker=NodeId("b2"),
    parent="b1",
    term=3,
    host=NodeId("b3"),
    incarnation=4,
    is_vacant=True,
    taker="b2",
    left=5,
)
PLACE = HostPlace(host=NodeId("b3"), incarnation=4, address="[::1]:4000", site="b2", rank=1)
SEATING = Seating(
    seats=(SEAT, Seat(broker=NodeId("b1"), parent="", term=1, host=NodeId("b1"), incarnation=1)),
    hosts=(PLACE, HostPlace(host=NodeId("b1"), incarnation=1, address="")),
    failed=(Life(NodeId("b2"), 7), Life(NodeId("b4"), 2)),
    proven=(Life(NodeId("b2"), 7),),
)
KEPT: dict[str, Any] = {"format": 2, "incarnation": 3, **attrs.asdict(SEATING)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def test_what_was_written_is_recalled(path: Path) -> None:
    for kept in (Memory(7, SEATING), Memory(INCARNATION_MAX), Memory(8, Seating(seats=(SEAT,)))):
        kept.write(path)

        assert recall(path) == kept
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_broker_that_begins_has_nothing_to_recall(path: Path) -> None:
    assert recall(None) == recall(path) == Memory()


def test_a_link_to_the_file_stays_one(path: Path) -> None:
    target = path.with_name("target")
    path.symlink_to(target)

    assert recall(path) == Memory()
    Memory(2).write(path)
    assert path.is_symlink()
    assert recall(target) == Memory(2)


def test_of_a_file_of_the_format_before_the_incarnation_is_recalled(path: Path) -> None:
    link = {"child": "b2", "parent": "b1", "kind": "broker", "incarnation": 3}
    path.write_text(json.dumps({"format": 1, "incarnation": 9, "links": [link]}))

    assert recall(path) == Memory(9)


def test_whatever_others_may_tell_is_recalled(path: Path) -> None:
    """Or a stranger could see to it that a broker does not start again."""
    most = DEFAULT_LIMITS.number_max
    life = Life(NodeId("."), most)
    seat = attrs.evolve(SEAT, parent="\x1b[2J", term=most, incarnation=most, taker="\n", left=most)
    place = attrs.evolve(PLACE, incarnation=0, address="nonsense" * 30, site="\x00", rank=most)
    told = Seating(seats=(seat,), hosts=(place,), failed=(life,), proven=(life,))
    assert FrameDecoder().feed(encode(told)) == [told]

    Memory(1, told).write(path)

    assert recall(path) == Memory(1, told)


def with_seat(**changes: object) -> dict[str, Any]:
    return {**KEPT, "seats": [attrs.asdict(SEAT), {**attrs.asdict(SEAT), **changes}]}


def with_host(**changes: object) -> dict[str, Any]:
    return {**KEPT, "hosts": [{**attrs.asdict(PLACE), **changes}]}


DAMAGED: dict[str, tuple[str | bytes | dict[str, Any], str]] = {
    "empty": ("", "not JSON"),
    "truncated": (json.dumps(KEPT)[:40], "not JSON"),
    "not UTF-8": (b"\xff\xfe\x00", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "digits": ('{"format":2,"incarnation":' + "9" * 5000 + ',"seats":[]}', "not JSON"),
    "null": ("null", "what is kept: a JSON object expected, None found"),
    "list": ("[]", "what is kept: a JSON object expected"),
    "number": ("1", "what is kept: a JSON object expected"),
    "field missing": ({"format": 2, "seats": []}, "what is kept: a field 'incarnation' expected"),
    "list missing": ({"format": 2, "incarnation": 1}, "what is kept: a field 'seats' expected"),
    "other format": ({**KEPT, "format": 3}, "format of what is kept: format 2 or 1 expected, 3"),
    "format true": ({**KEPT, "format": True}, "format of what is kept: format 2 or 1 expected"),
    "1e400": ('{"format":2,"incarnation":1e400}', "whole number .* expected, inf found"),
    "fraction": ({**KEPT, "incarnation": 1.5}, "incarnation of what is kept: a whole number"),
    "true": ({**KEPT, "incarnation": True}, "incarnation of what is kept: a whole number"),
    "negative": ({**KEPT, "incarnation": -5}, "a whole number from 0 to .* expected, -5 found"),
    "absurd": ({**KEPT, "incarnation": 2**64 - 1}, "incarnation of what is kept: a whole number"),
    "seats no list": ({**KEPT, "seats": {}}, "seats of what is kept: a list expected"),
    "seats of numbers": ({**KEPT, "seats": [1]}, "seat 1: a JSON object expected, 1 found"),
    "seat without fields": ({**KEPT, "seats": [{}]}, "seat 1: a field 'host' expected"),
    "broker a number": (with_seat(broker=1), "broker of seat 2: 1 to 255 .* expected, 1 found"),
    "name empty": (with_seat(host=""), "host of seat 2: 1 to 255 printable characters expected"),
    "name long": (
        with_seat(broker="x" * 256),
        r"broker of seat 2: .* expected, 'x{59}\.\.\. found",
    ),
    "name unprintable": (with_seat(host="\x1b[2J"), "host of seat 2: 1 to 255 printable"),
    "parent": (with_seat(parent=None), "parent of seat 2: at most 255 characters expected"),
    "vacant": (with_seat(is_vacant=1), "is_vacant of seat 2: true or false expected, 1 found"),
    "term": (with_seat(term=-1), "term of seat 2: a whole number"),
    "address a number": (with_host(address=5), "address of host 1: at most 300 .*, 5 found"),
    "rank": (with_host(rank="1"), "rank of host 1: a whole number"),
    "life": ({**KEPT, "failed": ["b1"]}, "failed life 1: a JSON object expected"),
    "proven": ({**KEPT, "proven": [{"host": "b1"}]}, "proven life 1: a field 'incarnation'"),
}


@pytest.mark.parametrize(("kept", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused_by_name(
    path: Path, kept: str | bytes | dict[str, Any], words: str
) -> None:
    if isinstance(kept, dict):
        kept = json.dumps(kept)
    path.write_bytes(kept if isinstance(kept, bytes) else kept.encode())

    with pytest.raises(StateError, match=words) as caught:
        recall(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < len(str(path)) + 300


def test_what_is_no_regular_file_is_refused(path: Path) -> None:
    os.mkfifo(path)
    for special in (path, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(StateError, match=f"^{special}: a regular file expected"):
            recall(special)


def test_a_huge_file_is_not_read_to_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "STATE_BYTES_MAX", 100)
    path.write_bytes(b" " * 101)

    with pytest.raises(StateError, match="at most 100 bytes expected, more found"):
        recall(path)


def test_no_folder_is_made_up_on_the_way(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder") as caught:
        Memory(1).write(tmp_path / "a" / "b" / "state.json")

    assert caught.value.filename == str(tmp_path / "a")
    Memory(1).write(tmp_path / "a" / "state.json")
    assert recall(tmp_path / "a" / "state.json") == Memory(1)


# While a broker runs


class Told:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, level: Level, event: str, fields: object) -> None:
        self.events.append(event)


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - by a thread
            await trio.sleep(0.001)


async def test_the_latest_is_written_and_a_broker_that_ends_waits_for_it(
    path: Path, nursery: trio.Nursery
) -> None:
    keeper = Keeper(path, Told())
    nursery.start_soon(keeper.run)
    for incarnation in range(1, 50):
        keeper.keep(Memory(incarnation))
    await keeper.finish()

    assert recall(path) == Memory(49)


async def test_what_cannot_be_written_is_told_and_tried_again(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "RETRY_S", 0.001)
    told, folder = Told(), tmp_path / "a" / "b"
    keeper = Keeper(folder / "state.json", told)
    nursery.start_soon(keeper.run)
    keeper.keep(Memory(3))
    await until(lambda: keeper.trouble.lost > 2)
    await keeper.finish()  # which does not wait for a miracle
    folder.mkdir(parents=True)
    await until(lambda: not keeper.trouble.is_on)

    assert told.events == ["state not written", "state written again"]
    assert recall(folder / "state.json") == Memory(3)


async def test_a_disk_that_does_not_answer_holds_nobody_up(
    path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr("os.fsync", lambda _: answer.wait())
    monkeypatch.setattr(memory, "LAST_WRITE_S", 0.01)
    keeper = Keeper(path, Told())
    nursery.start_soon(keeper.run)
    keeper.keep(Memory(1))
    await keeper.finish()
    await keeper.begin_again(Memory(2))

    assert recall(path) == Memory()
    answer.set()
    await until(lambda: recall(path) == Memory(2))


async def test_without_a_file_nothing_is_kept() -> None:
    keeper = Keeper(None, Told())
    keeper.keep(Memory(1))
    await keeper.finish()
    await keeper.begin_again(Memory(2))

    assert not keeper.trouble.is_on
