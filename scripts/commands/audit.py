"""`plait audit`: the guarantees of any number of runs, checked on Spark."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from plait.faulttol.audit.errors import SparkUnavailableError
from plait.faulttol.audit.verdict import RunVerdict
from plait.faulttol.files import naming
from plait.faulttol.history import HISTORY_FOLDER, run_directories
from plait.scripts.audit_page import audit_page
from plait.scripts.errors import BadInputError, EnvironmentFailedError, GuaranteeViolatedError
from plait.scripts.extras import needing
from plait.scripts.options import examples, json_option
from plait.scripts.tables import print_table
from plait.scripts.terminal import is_screen, redraw_line
from plait.scripts.verdict import PROMISES, VIOLATIONS_SHOWN


@click.command(
    epilog=examples(
        "plait audit runs",
        "plait audit runs --html audit.html",
        "plait audit runs/demo-20260102-101500 --json",
        "plait audit sweep-1 sweep-2 --master spark://127.0.0.1:7077",
    )
)
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(file_okay=False, exists=True, path_type=Path),
)
@click.option("--master", metavar="URL", help="A Spark of your own, instead of the one included.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write a page to look at: verdicts, figures, and a picture of each violation.",
)
@click.option(
    "--spread-above",
    metavar="MB",
    type=click.IntRange(min=0),
    default=1024,
    show_default=True,
    help="Judge a run with more history than this on all cores together.",
)
@json_option("the verdicts")
def command(
    directories: tuple[Path, ...],
    master: str | None,
    html: Path | None,
    spread_above: int,
    as_json: bool,
) -> None:
    """Judge every run in DIR..., each a run directory or a folder with run directories below it.

    Prints how often each guarantee was checked and broken, and for what was broken the records
    that show it. Exit code 1 if a guarantee was violated; 2, whatever else was found, if
    something could not be read: it is named, and all the rest is judged.

    A Java comes with plait, and is used whatever else there is. PLAIT_JAVA_HOME names one of your
    own. With --master (or under spark-submit) JAVA_HOME and SPARK_HOME hold; the workers are sent
    the code, need the libraries of plait[audit], and find the directories under the same names.
    """
    runs, no_runs = _find_runs(directories)
    verdicts = audit_runs(runs, master, spread_above_mb=spread_above) if runs else []
    damage = _damage(verdicts, no_runs)
    if html:
        with naming(html):
            html.write_text(audit_page(verdicts, damage), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(_as_json(verdicts, damage), ensure_ascii=False))
    elif verdicts:
        print_verdicts(verdicts)
    raise_if_not_clean(verdicts, no_runs)


def raise_if_not_clean(verdicts: Sequence[RunVerdict], no_runs: Sequence[str] = ()) -> None:
    """End the command with the exit code of the worst that was found."""
    damage = _damage(verdicts, no_runs)
    if damage:
        what = "not everything" if verdicts else "nothing"
        raise BadInputError("\n".join([f"{what} could be read:", *damage]))
    broken = sum(not verdict.is_clean for verdict in verdicts)
    if broken:
        raise GuaranteeViolatedError(
            f"a guarantee was violated in {broken} of {len(verdicts)} runs"
        )


def _damage(verdicts: Sequence[RunVerdict], no_runs: Sequence[str]) -> list[str]:
    of_runs = [
        f"{verdict.directory}: {problem}" for verdict in verdicts for problem in verdict.damage
    ]
    return [*no_runs, *of_runs]


def _find_runs(directories: tuple[Path, ...]) -> tuple[list[Path], list[str]]:
    """Return the runs in some directories, and what there is to say of those without any."""
    runs: dict[Path, Path] = {}
    no_runs = []
    for directory in directories:
        found = run_directories(directory)
        if not found:
            no_runs.append(f"{directory}: no run directory is in here")
        runs.update({run.resolve(): run for run in found})
    return list(runs.values()), no_runs


def audit_runs(
    runs: list[Path], master: str | None = None, *, spread_above_mb: int = 1024
) -> list[RunVerdict]:
    """Judge runs on a Spark that is started for it."""
    # Here, not above: without Spark, `plait audit --help` still has to work.
    with needing("audit"):
        from plait.faulttol.audit.job import audit
        from plait.faulttol.audit.session import spark_session
    size = _bytes_in(runs)
    redraw_line("starts Spark ...")
    try:
        with spark_session(
            master, input_bytes=size, shows_progress=is_screen(sys.stderr)
        ) as session:
            redraw_line(f"judges {len(runs):,} runs with {size / 1e6:,.1f} MB of history ...")
            return audit(session, runs, large_run_bytes=spread_above_mb << 20)
    except SparkUnavailableError as error:
        raise EnvironmentFailedError(str(error)) from error
    finally:
        redraw_line("")


def _bytes_in(runs: list[Path]) -> int:
    return sum(
        path.stat().st_size for run in runs for path in (run / HISTORY_FOLDER).glob("*.jsonl")
    )


def _as_json(verdicts: list[RunVerdict], damage: list[str]) -> dict[str, Any]:
    return {
        "is_clean": not damage and all(verdict.is_clean for verdict in verdicts),
        "damage": damage,
        "runs": [verdict.as_json() for verdict in verdicts],
    }


def print_verdicts(verdicts: list[RunVerdict]) -> None:
    """Print a table of all guarantees, and what was found, for people."""
    figures: Counter[str] = Counter()
    excused: Counter[str] = Counter()
    for verdict in verdicts:
        figures.update(verdict.figures)
        excused.update(verdict.excused)
    click.echo(
        f"{len(verdicts)} run{'s' * (len(verdicts) != 1)}: {figures['published']:,} publications, "
        f"{figures['delivered']:,} deliveries to {figures['subscribers']:,} subscribers "
        f"with {figures['subscriptions']:,} subscriptions."
    )
    rows = []
    for guarantee, promise in PROMISES.items():
        checked = sum(guarantee in verdict.guarantees for verdict in verdicts)
        broken = sum(guarantee in verdict.violations for verdict in verdicts)
        violations = sum(verdict.violations.get(guarantee, 0) for verdict in verdicts)
        rows.append([guarantee, checked, broken, violations, promise])
    print_table(["guarantee", "runs checked", "broken in", "violations", "promise"], rows)
    empty = sum(not verdict.figures["published"] for verdict in verdicts)
    if empty:
        click.echo(f"In {empty} of the runs nothing was published: there was nothing to judge.")
    for excuse, count in excused.items():
        click.echo(f"{count} publications were not delivered to somebody, with excuse: {excuse}")
    lines = [
        f"{verdict.directory}: {witness}" for verdict in verdicts for witness in verdict.witnesses
    ]
    for line in lines[:VIOLATIONS_SHOWN]:
        click.echo(line)
    if len(lines) > VIOLATIONS_SHOWN:
        click.echo("Not all are shown; --json has more, of every run.")
