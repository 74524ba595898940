"""`plait simulate`: random overlays in virtual time, every guarantee checked at the end of each."""

import datetime
import json
import time
from pathlib import Path
from typing import Any

import attrs
import click

from plait.broker.sim.crowds import Crowd
from plait.broker.sim.workloads import Workload
from plait.routing.orderings import DEFAULT_ORDERING, ORDERINGS_OF_HOSTS
from plait.scripts.errors import GuaranteeViolatedError
from plait.scripts.options import (
    SeedRangeType,
    detection_option,
    examples,
    json_option,
    managers_option,
)
from plait.scripts.run_directory import make_folder_for_runs
from plait.scripts.sweep import Outcome, SweepPlan, cores, sweep
from plait.scripts.terminal import redraw_line
from plait.scripts.verdict import print_verdict, raise_if_violated
from plait.scripts.workload_options import workload_of, workload_options


@click.command(
    epilog=examples(
        "plait simulate --seeds 0:1000",
        "plait simulate --seeds 0:100 --ordering none --out runs/sweep",
        "plait simulate --seed 17 --trace",
        "plait simulate --seeds 0:1000 --delta 2 --crashes 3 --recoveries 1",
        "plait simulate --seeds 0:1000 --crowd --moves 3 --mixed",
        "plait simulate --seeds 0:1000 --crashes 1 --drift 10 --pauses 2 --cuts 1",
    )
)
@click.option("--seeds", type=SeedRangeType(), help="Run seeds A up to, not including, B.")
@click.option("--seed", type=click.IntRange(min=0), help="Run this one, and show its verdict.")
@click.option("--trace", is_flag=True, help="With --seed: print every event of the run.")
@click.option(
    "--ordering",
    type=click.Choice(list(ORDERINGS_OF_HOSTS)),
    default=DEFAULT_ORDERING,
    show_default=True,
    help="What is promised, and checked.",
)
@click.option(
    "--delta",
    type=click.IntRange(min=0),
    show_default="1; with --crowd, drawn",
    help="Crashes that the overlay is made to survive.",
)
@detection_option
@managers_option
@workload_options
@click.option(
    "--crowd",
    is_flag=True,
    help="All at once, in the time of a few messages: δ brokers are killed while subscriptions "
    "come and go. With --moves, brokers are handed over to other hosts meanwhile.",
)
@click.option("--mixed", is_flag=True, help="Of a crowd: half of them ask for no order.")
@click.option(
    "--beyond",
    is_flag=True,
    help="Let more than δ fail at a time: what is lost then has to be named in the history.",
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
    delta: int | None,
    detection: str,
    managers: str,
    crowd: bool,
    mixed: bool,
    beyond: bool,
    out: Path | None,
    jobs: int,
    as_json: bool,
    **values: Any,
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
    workload = workload_of(values, is_limited=not beyond)
    if mixed and not crowd:
        raise click.UsageError("--mixed is about the subscriptions of a --crowd.")
    if out is not None:
        make_folder_for_runs(out)
    if delta is None and not crowd:
        delta = 1
    plan = SweepPlan(
        ordering=ordering,
        delta=delta,
        detection=detection,
        managers=managers,
        workload=workload,
        crowd=_crowd(workload, ordering, delta, detection, managers, is_mixed=mixed)
        if crowd
        else None,
        out=out,
    )
    if seed is not None:
        _run_one(seed, plan, is_traced=trace, as_json=as_json)
    else:
        assert seeds is not None
        _run_many(seeds, plan, jobs=jobs, as_json=as_json)


def _crowd(
    workload: Workload,
    ordering: str,
    delta: int | None,
    detection: str,
    managers: str,
    *,
    is_mixed: bool,
) -> Crowd:
    """What crowded runs are made of; they draw the rest themselves."""
    troubles = attrs.evolve(workload.troubles, cuts=0, twins=0, pairs=0, bad_disks=False)
    if workload != Workload(moves=workload.moves, troubles=troubles):
        raise click.UsageError(
            "A --crowd draws its own brokers, clients and crashes: beside it only --delta, "
            "--moves, --mixed, --drift, --jumps, --pauses and --step-cost."
        )
    return Crowd(
        delta=delta,
        ordering=ordering,
        detection=detection,
        managers=managers,
        has_moves=workload.moves > 0,
        is_mixed=is_mixed,
        troubles=troubles,
    )


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
        found = {"differences": run.differences, "leftovers": run.leftovers}
        click.echo(json.dumps({"seed": seed, **report, **found}))
    else:
        print_verdict(run.report, ordering=plan.ordering, place=place)
        for difference in run.differences:
            click.echo(f"  {difference}")
        for leftover in run.leftovers:
            click.echo(f"  never finished: {leftover}")
    raise_if_violated(run.report)
    if run.differences:
        raise GuaranteeViolatedError(f"a broker is not as it has to be in seed {seed}, see above")
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
    delta = "drawn" if plan.delta is None else f"= {plan.delta}"
    click.echo(
        f"{len(outcomes)} runs with ordering {plan.ordering} and δ {delta}: {verdict}. "
        f"{sum(outcome.published for outcome in outcomes):,} publications, "
        f"{sum(outcome.delivered for outcome in outcomes):,} deliveries, "
        f"{len(outcomes) / seconds:.0f} runs a second."
    )
    if plan.out:
        click.echo(f"Run directories: {plan.out}")
