"""Many seeded runs on all cores; what is kept of each is whether it was clean, and if not, why."""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import attrs

from plait.broker.sim.crowds import Crowd
from plait.broker.sim.runs import SimulatedRun, simulate, simulate_crowd
from plait.broker.sim.workloads import Workload
from plait.routing.conflicts import FAST
from plait.routing.orderings import SUMMIT
from plait.scripts.workload_options import words_of

CHUNK_SEEDS: Final = 10
"""About a tenth of a second of work: progress moves, and handing out work costs nothing."""


@attrs.frozen(kw_only=True)
class SweepPlan:
    """What all runs have in common."""

    ordering: str
    delta: int | None
    """None: drawn, for each crowded run."""
    detection: str
    managers: str
    workload: Workload
    crowd: Crowd | None = None
    """What crowded runs are made of, in place of the workload, if that is what they are."""
    out: Path | None
    """Where to leave run directories, if anywhere."""

    def repeat_command(self, seed: int) -> str:
        """Return the command that repeats one run, and shows what happened in it."""
        words = [f"plait simulate --seed {seed} --ordering {self.ordering}"]
        if self.delta is not None:
            words.append(f"--delta {self.delta}")
        if self.detection != FAST:
            words.append(f"--detection {self.detection}")
        if self.managers != SUMMIT:
            words.append(f"--managers {self.managers}")
        if self.crowd is not None:
            words.append("--crowd")
            if self.crowd.is_mixed:
                words.append("--mixed")
        return " ".join([*words, *words_of(self.workload), "--trace"])

    def run(self, seed: int, *, is_traced: bool = False) -> SimulatedRun:
        """Do one of the runs."""
        if self.crowd is not None:
            return simulate_crowd(seed, self.crowd, is_traced=is_traced)
        assert self.delta is not None
        return simulate(
            seed,
            ordering=self.ordering,
            delta=self.delta,
            detection=self.detection,
            managers=self.managers,
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
    context = multiprocessing.get_context("spawn")
    leash, held = context.Pipe(duplex=False)
    with (
        leash,
        held,
        ProcessPoolExecutor(
            min(jobs, len(chunks)),
            mp_context=context,
            initializer=_be_worker,
            initargs=(leash,),
        ) as pool,
    ):
        try:
            with _interrupts_held_back():
                outcomes = pool.map(run_chunk, chunks)
            yield from outcomes
        except BaseException:
            held.close()  # whatever they are doing, nobody wants it any more
            pool.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes that are started within the block hear nothing of Ctrl-C, from the beginning.

    A terminal sends it to all of them, and one is enough to stop everything.
    """
    resource_tracker.ensure_running()  # it would be started with the others, and undo this
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_worker(leash: Connection) -> None:
    threading.Thread(target=_end_with_parent, args=(leash,), daemon=True).start()


def _end_with_parent(leash: Connection) -> None:
    # Its other end is closed by a parent that wants no more, and by the system if it is killed.
    leash.poll(None)
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
