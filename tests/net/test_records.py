"""The history of a broker that runs, when it cannot be written."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait.broker.effects import Level
from plait.broker.net import records
from plait.broker.net.records import BrokerHistory
from plait.faulttol.guarantees import check_run
from plait.faulttol.history import Manifest, read_run, write_manifest


@contextmanager
def full_disk(size: int = 0) -> Iterator[None]:
    """No file grows beyond that size: a limit stands in for a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Told:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, object]] = []

    def __call__(self, level: Level, event: str, fields: object) -> None:
        self.lines.append((event, fields))

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def history(tmp_path: Path, told: Told) -> Iterator[BrokerHistory]:
    write_manifest(
        tmp_path,
        Manifest(
            run="r", topology=None, ordering="fifo", delta=0, seed=None, started=0, simulated=False
        ),
    )
    history = BrokerHistory(tmp_path, "r", "b1", 1, told)
    yield history
    history.close()


def record(history: BrokerHistory, times: int = 1) -> None:
    for _ in range(times):
        history.write(0.0, "joined", about="alice", members=["b1"], millis=0.0)
    history.flush()


def test_records_that_cannot_be_written_are_counted_and_told_of_once(
    history: BrokerHistory, told: Told, tmp_path: Path
) -> None:
    file = str(tmp_path / "history" / "b1-1.jsonl")
    record(history)
    with full_disk(history.size):
        record(history)
        record(history, 4)
        assert told.lines == [("history not written", {"file": file, "reason": "File too large"})]
    record(history, 2)
    record(history)

    assert told.lines[1:] == [("history written again", {"file": file, "lost": 5})]
    assert history.trouble.lost == 5
    history.close()
    run = read_run(tmp_path)
    assert len(run.records) == 4
    assert {violation.guarantee for violation in check_run(run).violations} == {"record"}


def test_a_buffer_that_cannot_be_written_does_not_grow(history: BrokerHistory) -> None:
    with full_disk():
        for _ in range(5000):
            history.write(0.0, "joined", about="alice", members=["b1"] * 20, millis=0.0)
        assert history.trouble.lost > 4000
        history.flush()
    assert history.trouble.lost == 5000


def test_the_next_life_has_a_file_of_its_own(history: BrokerHistory, tmp_path: Path) -> None:
    record(history)
    history.begin_again(2)
    record(history, 2)

    assert [r["incarnation"] for r in read_run(tmp_path).records] == [1, 2, 2]
    assert history.trouble.file.endswith("b1-2.jsonl")


def test_a_life_without_a_file_is_lost_and_ends_nobody(
    history: BrokerHistory, told: Told, tmp_path: Path
) -> None:
    (tmp_path / "history" / "b1-2.jsonl").touch()
    history.begin_again(2)
    record(history, 3)

    assert told.lines == [
        (
            "history not written",
            {"file": str(tmp_path / "history" / "b1-2.jsonl"), "reason": "File exists"},
        )
    ]
    assert history.trouble.lost == 3
    history.begin_again(3)
    record(history)
    assert told.events == ["history not written", "history written again"]


def test_a_history_that_grows_is_told_of(
    history: BrokerHistory, told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Strangers decide how many records there are: each who connects is one."""
    monkeypatch.setattr(records, "SIZE_TOLD_BYTES", 1000)
    history.begin_again(2)
    while history.size < 2500:
        record(history)

    assert told.events == ["history has grown", "history has grown"]
    assert history.size == (tmp_path / "history" / "b1-2.jsonl").stat().st_size
