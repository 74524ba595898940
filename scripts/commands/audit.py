"""`plait audit`: the guarantees of any number of runs, checked on Spark."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import click

from faulttol.audit.errors import SparkUnavailableError
from faulttol.audit.verdict import RunVerdict
from faulttol.history import HISTORY_FOLDER, run_directories
from scripts.errors import BadInputError, EnvironmentFailedError, GuaranteeViolatedError
from scripts.options import examples, json_option
from scripts.tables import print_table
from scripts.verdict import PROMISES, VIOLATIONS_SHOWN


@click.command(
    epilog=examples(
        "plait audit runs",
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
@json_option("the verdicts")
def command(directories: tuple[Path, ...], master: str | None, as_json: bool) -> None:
    """Judge every run in DIR..., each a run directory or a folder with run directories below it.

    Prints how often each guarantee was checked and broken, and for what was broken the records
    that show it. Exit code 1 if a guarantee was violated; 2, whatever else was found, if
    something could not be read: it is named, and all the rest is judged.

    With --master, JAVA_HOME and SPARK_HOME are used if they are set; plait has to be installed
    where the workers are, and the directories have to be there under the same name.
    """
    runs, damage = _find_runs(directories)
    verdicts = _audit(runs, master) if runs else []
    damage += [
        f"{verdict.directory}: {problem}" for verdict in verdicts for problem in verdict.damage
    ]
    if as_json:
        click.echo(json.dumps(_as_json(verdicts, damage), ensure_ascii=False))
    else:
        _print_verdicts(verdicts)
    if damage:
        raise BadInputError("\n".join(["not everything could be read:", *damage]))
    broken = sum(not verdict.is_clean for verdict in verdicts)
    if broken:
        raise GuaranteeViolatedError(f"a guarantee was violated in {broken} of {len(runs)} runs")


def _find_runs(directories: tuple[Path, ...]) -> tuple[list[Path], list[str]]:
    runs: dict[Path, Path] = {}
    damage = []
    for directory in directories:
        found = run_directories(directory)
        if not found:
            damage.append(f"{directory}: no run directory is in here")
        runs.update({run.resolve(): run for run in found})
    return list(runs.values()), damage


def _audit(runs: list[Path], master: str | None) -> list[RunVerdict]:
    try:
        # Here, not above: without Spark, `plait audit --help` still has to work.
        from faulttol.audit.job import audit
        from faulttol.audit.session import spark_session

        with spark_session(
            master, input_bytes=_bytes_in(runs), shows_progress=sys.stderr.isatty()
        ) as session:
            return audit(session, runs)
    except ImportError as error:
        raise EnvironmentFailedError(
            f"the audit needs Spark ({error}): pip install 'plait[audit]'"
        ) from error
    except SparkUnavailableError as error:
        raise EnvironmentFailedError(str(error)) from error


def _bytes_in(runs: list[Path]) -> int:
    return sum(
        path.stat().st_size for run in runs for path in (run / HISTORY_FOLDER).glob("*.jsonl")
    )


def _as_json(verdicts: list[RunVerdict], damage: list[str]) -> dict[str, Any]:
    return {
        "is_clean": not damage and all(verdict.is_clean for verdict in verdicts),
        "damage": damage,
        "runs": [attrs.asdict(verdict) | {"is_clean": verdict.is_clean} for verdict in verdicts],
    }


def _print_verdicts(verdicts: list[RunVerdict]) -> None:
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
    for excuse, count in excused.items():
        click.echo(f"{count} publications were not delivered to somebody, with excuse: {excuse}")
    lines = [
        f"{verdict.directory}: {witness}" for verdict in verdicts for witness in verdict.witnesses
    ]
    for line in lines[:VIOLATIONS_SHOWN]:
        click.echo(line)
    if len(lines) > VIOLATIONS_SHOWN:
        click.echo("Not all are shown; --json has more, of every run.")
