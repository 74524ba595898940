"""`plait chaos`: real brokers under load, killed or restarted, every guarantee checked."""

import json
import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import click

from plait.scripts.errors import GuaranteeViolatedError
from plait.scripts.options import examples, json_option
from plait.scripts.run_directory import new_run_directory

if TYPE_CHECKING:
    from plait.scripts.chaos import Attack, Outcome

FAILURES_SHOWN: Final = 5


@click.command(
    epilog=examples(
        "plait chaos --repeat 100 --delta 1",
        "plait chaos --repeat 100 --delta 2 --recover",
        "plait chaos --repeat 20 --stop --out runs/stopped",
        "plait chaos --repeat 5 --rolling",
        "plait chaos --repeat 1 --seed 17",
    )
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Runs, in a row."
)
@click.option(
    "--delta",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="So many neighbours fail at a time, and the overlay is made to survive so many.",
)
@click.option("--brokers", type=click.IntRange(min=3), default=7, show_default=True)
@click.option(
    "--stop", is_flag=True, help="Stop them (SIGSTOP) until the others have given them up."
)
@click.option("--recover", is_flag=True, help="Start them again while the load goes on.")
@click.option(
    "--rolling",
    is_flag=True,
    help="Restart all brokers, one after the other: SIGTERM, and start again.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the first run; each other one has the next.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to leave histories and logs of what failed; runs/chaos-TIME if it is not given.",
)
@json_option("a line for each run, and the summary,")
def command(
    repeat: int,
    delta: int,
    brokers: int,
    stop: bool,
    recover: bool,
    rolling: bool,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Kill brokers of a tree in the middle of the load, and check that nobody notices.

    Every run launches a random tree of real brokers, with ten subscribers and with ten publishers
    of 50 publications a second. Then brokers that are neighbours are killed (SIGKILL), as many as
    the overlay is made to survive. Nothing may be lost, delivered twice or out of order, every
    publication has to be confirmed, and no failed broker is an excuse. With `--rolling` each of
    them is told to stop instead, and started again when it has; the next one follows when that has
    its broker back.

    A stall is the longest time that any publication took to any subscriber, detection included. The
    exit code is 1 if a guarantee was violated; the history of a run that was clean is removed.
    """
    if stop and recover:
        raise click.UsageError("Who is stopped goes on by itself: either --stop or --recover.")
    if rolling and (stop or recover):
        raise click.UsageError("A rolling restart is no failure: it takes no --stop or --recover.")
    if delta >= brokers:
        raise click.UsageError(f"{delta} brokers are to fail, of {brokers}: none is left.")
    # Not before: bad usage is reported faster than the network is imported.
    from plait.scripts.async_entry import run_async
    from plait.scripts.chaos import Blow, perform, random_attack

    blow = Blow.STOP if stop else Blow.KILL_AND_RECOVER if recover else Blow.KILL
    if rolling:
        blow = Blow.RESTART
    directory = new_run_directory(out, "chaos")
    outcomes = []
    for number in range(seed, seed + repeat):
        attack = random_attack(number, brokers=brokers, delta=delta, blow=blow)
        place = directory / str(number)
        outcome = run_async(perform, attack, place)
        outcomes.append(outcome)
        _print_run(attack, outcome, as_json=as_json)
        if outcome.is_clean:
            shutil.rmtree(place)
    who = "all" if rolling else delta
    what = f"{repeat} runs of {brokers} brokers, {who} of them {blow}"
    _print_summary(what, outcomes, as_json=as_json)
    failed = sum(not outcome.is_clean for outcome in outcomes)
    if failed:
        raise GuaranteeViolatedError(f"{failed} of {repeat} runs failed, see {directory}")


def _print_run(attack: "Attack", outcome: "Outcome", *, as_json: bool) -> None:
    if as_json:
        line = {"seed": attack.seed, "victims": attack.victims, **attrs.asdict(outcome)}
        click.echo(json.dumps(line, ensure_ascii=False))
        return
    click.echo(
        f"seed {attack.seed}: {attack.describe()}: {outcome.published:,} publications, "
        f"{outcome.delivered:,} deliveries, longest stall {outcome.stall_ms:.0f} ms "
        f"({outcome.calm_ms:.0f} ms before): {'clean' if outcome.is_clean else 'FAILED'}"
    )
    for failure in outcome.failures[:FAILURES_SHOWN]:
        click.echo(f"  {failure}")
    if len(outcome.failures) > FAILURES_SHOWN:
        click.echo(f"  ... and {len(outcome.failures) - FAILURES_SHOWN} more")


def _print_summary(what: str, outcomes: "list[Outcome]", *, as_json: bool) -> None:
    stalls = [outcome.stall_ms for outcome in outcomes]
    median, longest = statistics.median(stalls), max(stalls)
    published = sum(outcome.published for outcome in outcomes)
    delivered = sum(outcome.delivered for outcome in outcomes)
    failed = sum(not outcome.is_clean for outcome in outcomes)
    if as_json:
        summary = {
            "runs": len(outcomes),
            "failed": failed,
            "published": published,
            "delivered": delivered,
            "stall_ms_median": round(median, 1),
            "stall_ms_max": round(longest, 1),
        }
        click.echo(json.dumps(summary))
        return
    click.echo(
        f"{what}: {f'{failed} failed' if failed else 'every guarantee held'}. "
        f"{published:,} publications, {delivered:,} deliveries. "
        f"Longest stall: {longest:.0f} ms; in half of the runs at most {median:.0f} ms."
    )
