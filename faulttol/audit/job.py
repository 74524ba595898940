"""The Spark job: any number of run directories in, a verdict on each out.

Spark reads and parses the lines, brings those of a run together and spreads the runs over its
cores; each run is then judged by itself, in `faulttol.audit.kernel`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from faulttol.audit.kernel import VERDICT, judge, judge_in_full
from faulttol.audit.schema import KEPT, is_doubtful, record_of
from faulttol.audit.verdict import RunVerdict
from faulttol.history import HISTORY_FOLDER

_PARTITIONS_PER_CORE: Final = 8
"""Runs differ in size: the more partitions, the more evenly the cores are busy to the end."""


def audit(session: SparkSession, directories: Sequence[Path]) -> list[RunVerdict]:
    """Judge each run; the verdicts come in the order of the directories."""
    runs = {str(directory.resolve()): directory for directory in directories}
    verdicts = {verdict.directory: verdict for verdict in _judged_by_spark(session, list(runs))}
    return [
        # Where there is not one line, there was nothing for Spark to do.
        verdicts.get(path) or judge_in_full(directory)
        for path, directory in runs.items()
    ]


def _judged_by_spark(session: SparkSession, runs: Sequence[str]) -> Iterator[RunVerdict]:
    folders = [folder for run in runs if (folder := Path(run) / HISTORY_FOLDER).is_dir()]
    if not folders:
        return
    cores = session.sparkContext.defaultParallelism
    session.conf.set(
        "spark.sql.shuffle.partitions", min(len(folders), _PARTITIONS_PER_CORE * cores)
    )
    rows = _rows(session, folders)
    for row in rows.groupBy("directory").applyInPandas(judge, VERDICT).collect():
        yield RunVerdict.from_json(row["verdict"])


def _rows(session: SparkSession, folders: Sequence[Path]) -> DataFrame:
    """Return a row for each line, with what it takes to put the lines of a file in order again."""
    lines = (
        session.read.option("lineSep", "\n")
        .option("pathGlobFilter", "*.jsonl")
        # Folders are named as they are: a bracket in a name is no pattern.
        .option("__globPaths__", "false")
        .text([f"file:{folder}" for folder in folders])
    )
    path = F.col("_metadata.file_path")
    within_run = F.substring_index(path, "/", -2)
    record = F.col("record")
    return lines.select(
        F.left(path, F.length(path) - F.length(within_run) - 1).alias("directory"),
        F.xxhash64(path).alias("file"),
        # A large file is read in several blocks, by several tasks.
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("line"),
        F.col("value"),
        record_of(F.col("value")).alias("record"),
    ).select(
        *("directory", "file", "block", "line"),
        is_doubtful(F.col("value"), record).alias("is_doubtful"),
        *(record[name].alias(name) for name in KEPT),
        F.to_json(record["subscriptions"]).alias("subscriptions"),
    )
