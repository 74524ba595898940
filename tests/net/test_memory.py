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

from broker.effects import Level
from broker.errors import StateError
from broker.limits import INCARNATION_MAX
from broker.net import memory
from broker.net.memory import Keeper, Memory, recall
from faulttol.neighbourhood import TopologyLink
from routing.ids import NodeId
from tests.patience import PATIENCE_S

LINK = TopologyLink(
    child=NodeId("b2"),
    parent=NodeId("b1"),
    kind="broker",
    incarnation=3,
    address="127.0.0.1:4001",
    parent_incarnation=2,
    parent_address="[::1]:4000",
    moves=1,
    standby=2,
)
KEPT: dict[str, Any] = {"format": 1, "incarnation": 3, "links": [attrs.asdict(LINK)]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def test_what_was_written_is_recalled(path: Path) -> None:
    root = attrs.evolve(LINK, child=NodeId("b1"), address="", parent_address="")
    for kept in (Memory(7, (LINK, root)), Memory(INCARNATION_MAX), Memory(8, (root,))):
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


def with_link(**changes: object) -> dict[str, Any]:
    return {**KEPT, "links": [attrs.asdict(LINK), {**attrs.asdict(LINK), **changes}]}


DAMAGED: dict[str, tuple[str | bytes | dict[str, Any], str]] = {
    "empty": ("", "not JSON"),
    "truncated": (json.dumps(KEPT)[:40], "not JSON"),
    "not UTF-8": (b"\xff\xfe\x00", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "digits": ('{"format":1,"incarnation":' + "9" * 5000 + ',"links":[]}', "not JSON"),
    "null": ("null", "what is kept: a JSON object expected, None found"),
    "list": ("[]", "what is kept: a JSON object expected"),
    "number": ("1", "what is kept: a JSON object expected"),
    "field missing": ({"format": 1, "links": []}, "what is kept: a field 'incarnation' expected"),
    "other format": ({**KEPT, "format": 2}, "format of what is kept: format 1 expected, 2 found"),
    "format true": ({**KEPT, "format": True}, "format of what is kept: format 1 expected"),
    "1e400": ('{"format":1,"incarnation":1e400,"links":[]}', "whole number .* expected, inf found"),
    "fraction": ({**KEPT, "incarnation": 1.5}, "incarnation of what is kept: a whole number"),
    "true": ({**KEPT, "incarnation": True}, "incarnation of what is kept: a whole number"),
    "negative": ({**KEPT, "incarnation": -5}, "a whole number from 0 to .* expected, -5 found"),
    "absurd": ({**KEPT, "incarnation": 2**64 - 1}, "incarnation of what is kept: a whole number"),
    "links no list": ({**KEPT, "links": {}}, "links of what is kept: a list expected"),
    "links of numbers": ({**KEPT, "links": [1]}, "link 1: a JSON object expected, 1 found"),
    "link without fields": ({**KEPT, "links": [{}]}, "link 1: a field 'child' expected"),
    "child a number": (with_link(child=1), "child of link 2: a name expected, 1 found"),
    "name empty": (with_link(child=""), "child of link 2: 1 to 255 printable characters expected"),
    "name long": (
        with_link(parent="x" * 256),
        r"parent of link 2: .* expected, 'x{59}\.\.\. found",
    ),
    "name unprintable": (with_link(parent="\x1b[2J"), "parent of link 2: 1 to 255 printable"),
    "kind": (with_link(kind="client"), "kind of link 2: 'broker' expected, 'client' found"),
    "address": (with_link(address="nonsense"), "address of link 2: host:port expected"),
    "port": (with_link(parent_address="h:99999"), "parent_address of link 2: host:port expected"),
    "address a number": (with_link(address=5), "address of link 2: host:port expected, 5 found"),
    "moves": (with_link(moves=-1), "moves of link 2: a whole number"),
    "standby": (with_link(standby="1"), "standby of link 2: a whole number"),
    "incarnation of a link": (
        with_link(incarnation=2**60),
        "incarnation of link 2: a whole number",
    ),
    "parent's incarnation": (with_link(parent_incarnation=None), "parent_incarnation of link 2"),
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
