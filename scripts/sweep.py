"""Many seeded runs on all cores; what is kept of each is whether it was clean, and if not, why."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from broker.sim.runs import SimulatedRun, simulate
from broker.sim.workloads import Workload
from routing.conflicts import FAST

CHUNK_SEEDS: Final = 25
"""About a quarter of a second of work: progress moves, and handing out work costs nothing."""


@attrs.frozen(kw_only=True)
class SweepPlan:
    """What all runs have in common."""

    ordering: str
    delta: int
    detection: str
    workload: Workload
    out: Path | None
    """Where to leave run directories, if anywhere."""

    def repeat_command(self, seed: int) -> str:
        """Return the command that repeats one run, and shows what happened in it."""
        words = [f"plait simulate --seed {seed} --ordering {self.ordering} --delta {self.delta}"]
        if self.detection != FAST:
            words.append(f"--detection {self.detection}")
        for option in ("crashes", "recoveries", "freezes", "moves", "standbys"):
            most = getattr(self.workload, option)
            if most:
                words.append(f"--{option} {most}")
        if not self.workload.is_limited:
            words.append("--beyond")
        return " ".join([*words, "--trace"])

    def run(self, seed: int, *, is_traced: bool = False) -> SimulatedRun:
        """Do one of the runs."""
        return simulate(
            seed,
            ordering=self.ordering,
            delta=self.delta,
            detection=self.detection,
            workload=self.workload,
            is_traced=is_traced,
        )


@attrs.frozen(kw_only=True)
class Outcome:
    """What one seed led to."""

    seed: int
    failures: tuple[str, ...]
    published: int
    delivered: int
    excused: int


def sweep(seeds: range, plan: SweepPlan, *, jobs: int) -> Iterator[list[Outcome]]:
    """Run all seeds, `jobs` at a time; outcomes come in the order of the seeds, a few at once."""
    chunks = [seeds[start : start + CHUNK_SEEDS] for start in range(0, len(seeds), CHUNK_SEEDS)]
    run_chunk = partial(_run_chunk, plan)
    if jobs == 1 or len(chunks) == 1:
        yield from map(run_chunk, chunks)
        return
    with ProcessPoolExecutor(
        min(jobs, len(chunks)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_be_worker,
    ) as pool:
        try:
            yield from pool.map(run_chunk, chunks)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _be_worker() -> None:
    # Ctrl-C goes to all of them; one is enough to stop everything.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Whoever is killed cannot tell its workers to stop.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_chunk(plan: SweepPlan, seeds: range) -> list[Outcome]:
    return [_run(plan, seed) for seed in seeds]


def _run(plan: SweepPlan, seed: int) -> Outcome:
    try:
        run = plan.run(seed)
    except Exception:
        # An assertion that fails is what such runs are for: a failure like others, with a seed.
        words = traceback.format_exc().strip().splitlines()[-1]
        return Outcome(seed=seed, failures=(words,), published=0, delivered=0, excused=0)
    if plan.out:
        run.write(plan.out / f"{plan.ordering}-{seed}")
    return Outcome(
        seed=seed,
        failures=tuple(run.failures),
        published=run.report.figures["published"],
        delivered=run.report.figures["delivered"],
        excused=sum(run.report.excused.values()),
    )
