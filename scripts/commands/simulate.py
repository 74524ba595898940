"""`plait simulate`: random overlays in virtual time, every guarantee checked at the end of each."""

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click

from broker.sim.workloads import Workload
from routing.orderings import DEFAULT_ORDERING, ORDERINGS
from scripts.errors import GuaranteeViolatedError
from scripts.options import NOT_SURVIVED, SeedRangeType, detection_option, examples, json_option
from scripts.run_directory import make_folder_for_runs
from scripts.sweep import Outcome, SweepPlan, cores, sweep
from scripts.terminal import redraw_line
from scripts.verdict import print_verdict, raise_if_violated


def _at_most(name: str, text: str) -> Callable[[Any], Any]:
    """How many there are of something in a run, at most."""
    return click.option(name, type=click.IntRange(min=0), default=0, help=text)


@click.command(
    epilog=examples(
        "plait simulate --seeds 0:1000",
        "plait simulate --seeds 0:100 --ordering none --out runs/sweep",
        "plait simulate --seed 17 --trace",
        "plait simulate --seeds 0:1000 --delta 2 --crashes 3 --recoveries 1",
    )
)
@click.option("--seeds", type=SeedRangeType(), help="Run seeds A up to, not including, B.")
@click.option("--seed", type=click.IntRange(min=0), help="Run this one, and show its verdict.")
@click.option("--trace", is_flag=True, help="With --seed: print every event of the run.")
@click.option(
    "--ordering",
    type=click.Choice(list(ORDERINGS)),
    default=DEFAULT_ORDERING,
    show_default=True,
    help="What is promised, and checked.",
)
@click.option(
    "--delta",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help=f"Crashes that the overlay is made to survive; {NOT_SURVIVED}.",
)
@detection_option
@_at_most(
    "--crashes",
    "Brokers killed in a run, at most; never more than δ before the tree is whole again.",
)
@_at_most("--recoveries", "Of these, how many are started again, at most.")
@_at_most("--freezes", "Times that a broker is stopped for a while; it counts as a crash.")
@_at_most("--moves", "Times that a broker hands children over to another one, at most.")
@_at_most("--standbys", "Brokers for which another one stands by, at most.")
@click.option(
    "--beyond", is_flag=True, help="Let more than δ fail at a time: only safety is promised then."
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Leave run directories in here."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=cores,
    show_default="all cores",
    help="Runs at a time.",
)
@json_option("the outcome")
def command(
    seeds: range | None,
    seed: int | None,
    trace: bool,
    ordering: str,
    delta: int,
    detection: str,
    crashes: int,
    recoveries: int,
    freezes: int,
    moves: int,
    standbys: int,
    beyond: bool,
    out: Path | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Run random overlays under random workloads, in virtual time, and check every guarantee.

    These are the brokers that run on TCP, with time, network and chance drawn from a seed: a seed
    always leads to the same run. Prints a line for every failure, with the command that repeats
    exactly that run, and then a summary; exit code 1 if there was a failure.
    """
    if (seeds is None) == (seed is None):
        more = ", which --trace shows" if trace and seeds is None else ""
        raise click.UsageError(f"Say which runs: either --seeds A:B or --seed N{more}.")
    if trace and seed is None:
        raise click.UsageError("--trace shows one run: --seed N says which.")
    if not ORDERINGS[ordering].survives_crashes:
        delta = 0
        if (crashes or freezes) and not beyond:
            raise click.UsageError(
                f"Under {ordering} no crash is survived: only safety can be checked, with --beyond."
            )
    if out is not None:
        make_folder_for_runs(out)
    workload = Workload(
        crashes=crashes,
        recoveries=recoveries,
        freezes=freezes,
        moves=moves,
        standbys=standbys,
        is_limited=not beyond,
    )
    plan = SweepPlan(
        ordering=ordering, delta=delta, detection=detection, workload=workload, out=out
    )
    if seed is not None:
        _run_one(seed, plan, is_traced=trace, as_json=as_json)
    else:
        assert seeds is not None
        _run_many(seeds, plan, jobs=jobs, as_json=as_json)


def _run_one(seed: int, plan: SweepPlan, *, is_traced: bool, as_json: bool) -> None:
    run = plan.run(seed, is_traced=is_traced)
    place = f"{plan.repeat_command(seed)}, or --out DIRECTORY for the history"
    if plan.out:
        directory = plan.out / f"{plan.ordering}-{seed}"
        run.write(directory)
        place = str(directory)
    for line in run.trace:
        click.echo(line)
    if as_json:
        report = attrs.asdict(run.report)
        click.echo(json.dumps({"seed": seed, **report, "leftovers": run.leftovers}))
    else:
        print_verdict(run.report, ordering=plan.ordering, place=place)
        for leftover in run.leftovers:
            click.echo(f"  never finished: {leftover}")
    raise_if_violated(run.report)
    if run.leftovers:
        raise GuaranteeViolatedError(f"not everything came to its end in seed {seed}, see above")


def _run_many(seeds: range, plan: SweepPlan, *, jobs: int, as_json: bool) -> None:
    started = time.perf_counter()
    outcomes: list[Outcome] = []
    try:
        for chunk in sweep(seeds, plan, jobs=jobs):
            outcomes += chunk
            for outcome in chunk if not as_json else ():
                if outcome.failures:
                    _print_failure(outcome, plan)
            redraw_line(_progress(outcomes, len(seeds), time.perf_counter() - started))
    finally:
        redraw_line("")
    seconds = time.perf_counter() - started
    failed = [outcome for outcome in outcomes if outcome.failures]
    if as_json:
        summary = {
            "seeds": [seeds.start, seeds.stop],
            "ordering": plan.ordering,
            "delta": plan.delta,
            "seconds": round(seconds, 3),
            "published": sum(outcome.published for outcome in outcomes),
            "delivered": sum(outcome.delivered for outcome in outcomes),
            "failed": [
                {**attrs.asdict(outcome), "repeat": plan.repeat_command(outcome.seed)}
                for outcome in failed
            ],
        }
        click.echo(json.dumps(summary, ensure_ascii=False))
    else:
        _print_summary(outcomes, plan, seconds)
    if failed:
        raise GuaranteeViolatedError(f"{len(failed)} of {len(seeds)} runs failed")


def _progress(outcomes: list[Outcome], total: int, seconds: float) -> str:
    done, failed = len(outcomes), sum(bool(outcome.failures) for outcome in outcomes)
    rate = done / seconds
    left = datetime.timedelta(seconds=round((total - done) / rate))
    return f"{done:,} of {total:,} runs, {failed:,} failed, {rate:.0f} a second, {left} left"


def _print_failure(outcome: Outcome, plan: SweepPlan) -> None:
    redraw_line("")  # progress is drawn again below
    more = f" (and {len(outcome.failures) - 1} more)" if len(outcome.failures) > 1 else ""
    click.echo(
        f"seed {outcome.seed}: {outcome.failures[0]}{more}; "
        f"repeat with: {plan.repeat_command(outcome.seed)}"
    )


def _print_summary(outcomes: list[Outcome], plan: SweepPlan, seconds: float) -> None:
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    verdict = f"{failed} failed" if failed else "every guarantee held"
    click.echo(
        f"{len(outcomes)} runs with ordering {plan.ordering} and δ = {plan.delta}: {verdict}. "
        f"{sum(outcome.published for outcome in outcomes):,} publications, "
        f"{sum(outcome.delivered for outcome in outcomes):,} deliveries, "
        f"{len(outcomes) / seconds:.0f} runs a second."
    )
    if plan.out:
        click.echo(f"Run directories: {plan.out}")
