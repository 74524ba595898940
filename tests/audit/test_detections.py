"""The audit says of detectors what the judge says, though it reads columns."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from plait.faulttol.audit import job, kernel
from plait.faulttol.audit.kernel import judge_in_full, judge_run
from plait.faulttol.history import Record
from tests.audit.runs import comparable, recounted, write
from tests.sim.test_detectors import Scene


def records_of(seed: int, ordering: str) -> list[Record]:
    records = Scene(seed, ordering, detectors=2).world.records()
    return [record | {"run": "run"} for record in records]


@pytest.fixture(scope="module")
def fifo() -> list[Record]:
    return records_of(1, "fifo")


@pytest.mark.parametrize("ordering", ["fifo", "pairwise"])
def test_a_run_with_detectors(
    fifo: list[Record], ordering: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, fifo, ordering)
    with monkeypatch.context() as patched:
        patched.delattr(kernel, "judge_in_full")  # it does without
        verdict = judge_run(tmp_path, small_run_bytes=0)

    assert comparable(verdict) == comparable(judge_in_full(tmp_path))
    assert ("detection" in verdict.violations) == (ordering == "pairwise")
    assert verdict.figures["detectors"] == 6


@pytest.mark.parametrize("seed", range(12))
def test_what_is_wrong_with_detectors(fifo: list[Record], seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    kind = ("detected", "detecting", "delivered", "published")[seed % 4]
    places = [place for place, record in enumerate(fifo) if record["kind"] == kind]
    place = chance.choice(places)
    records = [*fifo]
    if chance.random() < 0.5:
        del records[place]
    else:
        records.insert(place, records[place])
    write(tmp_path, recounted(records), "fifo")

    assert comparable(judge_run(tmp_path, small_run_bytes=0)) == comparable(judge_in_full(tmp_path))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_run_with_detectors_spread_over_many_tasks(
    spark: SparkSession, fifo: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, fifo, "pairwise")
    monkeypatch.setattr(job, "judge_in_full", None)  # it does without
    [verdict] = job.audit(spark, [tmp_path], large_run_bytes=0, part_bytes=1 << 15)

    assert comparable(verdict) == comparable(judge_in_full(tmp_path))
    assert "detection" in verdict.violations
