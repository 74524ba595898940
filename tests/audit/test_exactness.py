"""Random histories, clean and broken: the audit says what the judge says, and what is so.

A hundred and more histories at a time make one Spark job. `PLAIT_AUDIT_HISTORIES=2000` makes it
as many as anybody has patience for.
"""

import os
import random
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from plait.faulttol.audit.job import audit
from plait.faulttol.audit.kernel import judge_in_full
from plait.faulttol.history import HISTORY_FOLDER, Record
from tests.audit.brute_force import violations_in
from tests.audit.runs import comparable, in_files, recounted, write
from tests.faulttol.test_guarantees_properties import DEFECTS, SUBSCRIBERS, Bus, Evidence

pytestmark = [
    pytest.mark.spark,
    # Spark leaves it to the garbage collection to close what it read results from.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

HISTORIES: Final = int(os.environ.get("PLAIT_AUDIT_HISTORIES", "140"))
SPREAD_EVERY: Final = max(HISTORIES // 20, 60)
"""So many histories apart, one is judged on all cores, too, which takes several Spark jobs."""

PART_BYTES: Final = 3_000
"""Small enough that such a history has two or three parts."""


def clean_history(chance: random.Random, *, has_lives: bool) -> list[Record]:
    """Let a sound bus work on random requests until everything has arrived."""
    bus = Bus()
    for client in SUBSCRIBERS:
        bus.subscribe(client, 0, chance.randint(5, 9), chance.random() < 0.8)
    for _ in range(chance.randint(5, 50)):
        client = chance.choice(SUBSCRIBERS)
        step = chance.random()
        if step < 0.10:
            bus.subscribe(client, chance.randint(0, 3), chance.randint(6, 9), chance.random() < 0.8)
        elif step < 0.15:
            bus.unsubscribe(client, chance.randrange(9))
        elif step < 0.20 and has_lives:
            bus.story.next_incarnation(client)
        elif step < 0.22 and has_lives:
            bus.go_away(client)
        elif step < 0.25:
            bus.come_back(chance.choice("pqr"))
        elif step < 0.60:
            price, crc = chance.randrange(10), chance.randrange(9)
            bus.publish(chance.choice("pqr"), price, chance.random() < 0.8, crc)
        else:
            bus.deliver(client, chance.randrange(9))
    for client, queue in bus.queues.items():
        while queue:
            bus.deliver(client, chance.randrange(9))
    return in_files(bus.story.records)


KEEP_LIVES: Final = (
    *("duplicated", "body_altered", "content_altered", "never_published"),
    "of_a_life_that_published_nothing",
)
"""Defects that are what they are also where subscribers come back or were away."""


def history_with(name: str | None, chance: random.Random) -> tuple[list[Record], str | None]:
    """Return a history, and the guarantee that the defect in it breaks."""
    records = clean_history(chance, has_lives=name is None or name in KEEP_LIVES)
    if name is None:
        return records, None
    guarantee, ways = DEFECTS[name]
    broken = list(ways(Evidence(records)))
    if not broken:
        return records, None  # nothing was delivered that could be broken in this way
    chosen = chance.choice(broken)
    return in_files(chosen) if guarantee == "record" else recounted(chosen), guarantee


def tear(directory: Path, chance: random.Random) -> None:
    """Leave behind what a crash in the middle of a record does."""
    path = chance.choice(sorted((directory / HISTORY_FOLDER).iterdir()))
    lines = path.read_bytes().splitlines(keepends=True)
    torn = lines[-1][: chance.randint(1, len(lines[-1]) - 2)]
    with path.open("ab") as file:
        file.write(torn)


def test_every_planted_defect_is_found_and_named_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    kinds = [None, *DEFECTS]
    planted = {}
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        records, guarantee = history_with(kinds[seed % len(kinds)], chance)
        directory = tmp_path / str(seed)
        write(directory, records)
        if chance.random() < 0.2:
            tear(directory, chance)
        planted[directory] = guarantee, records

    verdicts = audit(spark, list(planted), small_run_bytes=0)

    for verdict, (directory, (guarantee, records)) in zip(verdicts, planted.items(), strict=True):
        assert verdict.violations == violations_in(records), directory
        assert comparable(verdict) == comparable(judge_in_full(directory))
        assert guarantee in verdict.violations or (guarantee is None and verdict.is_clean)

    for directory in list(planted)[::SPREAD_EVERY]:
        [verdict] = audit(spark, [directory], large_run_bytes=0, part_bytes=PART_BYTES)

        assert comparable(verdict) == comparable(judge_in_full(directory))
