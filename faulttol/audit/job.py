"""The Spark job: any number of run directories in, a verdict on each out.

Spark gives each core runs to judge, the largest first; `faulttol.audit.kernel` judges them. Lines
are read where they are judged: to parse them there costs less than to bring them there. A run that
is too large for one worker is judged by all of them (`faulttol.audit.spread`).
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from plait.faulttol.audit.errors import UnsuitableHistoryError
from plait.faulttol.audit.kernel import SMALL_RUN_BYTES, history_files, judge_in_full, judge_run
from plait.faulttol.audit.spread import PART_BYTES, judge_spread
from plait.faulttol.audit.verdict import RunVerdict
from plait.faulttol.errors import HistoryError

LARGE_RUN_BYTES: Final = 1 << 30
"""Of history files: some five million deliveries, which take a worker half a gigabyte."""

_TASKS_PER_CORE: Final = 8
"""Runs differ in size: the more tasks, the more evenly the cores are busy to the end."""


def audit(
    session: SparkSession,
    directories: Sequence[Path],
    *,
    small_run_bytes: int = SMALL_RUN_BYTES,
    large_run_bytes: int = LARGE_RUN_BYTES,
    part_bytes: int = PART_BYTES,
) -> list[RunVerdict]:
    """Judge each run; the verdicts come in the order of the directories."""
    runs = list(dict.fromkeys(directory.resolve() for directory in directories))
    sizes = {run: sum(path.stat().st_size for path in history_files(run)) for run in runs}
    context = session.sparkContext
    verdicts = {}
    for run in runs:
        if sizes[run] > large_run_bytes:
            with contextlib.suppress(HistoryError, UnsuitableHistoryError):
                verdicts[run] = judge_spread(context, run, part_bytes=part_bytes)
    others = sorted(sizes.keys() - verdicts.keys(), key=lambda run: (-sizes[run], run))

    def judge(run: Path) -> RunVerdict:
        is_large = sizes[run] > large_run_bytes
        return judge_in_full(run) if is_large else judge_run(run, small_run_bytes)

    count = min(len(others), _TASKS_PER_CORE * context.defaultParallelism)
    # Dealt out like cards, so that tasks are of about the same size.
    shares = [others[first::count] for first in range(count)]
    if shares:
        judged = context.parallelize(shares, count).flatMap(lambda share: map(judge, share))
        verdicts |= {Path(verdict.directory): verdict for verdict in judged.collect()}
    return [verdicts[run] for run in runs]
