"""`plait status`: how every broker of an overlay is."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from broker.holding import describe_held
from broker.losses import describe_loss
from scripts.async_entry import run_async
from scripts.errors import EnvironmentFailedError
from scripts.monitor import survey
from scripts.options import AddressType, examples, json_option
from scripts.run_directory import processes
from scripts.status_reports import StatusReport, Unreachable, name_of, role_of
from scripts.tables import natural, print_table

COLUMNS: Final = (
    *("broker", "role", "state", "address", "parent", "children", "clients"),
    *("subs", "ads", "pending", "unstable", "held", "skipped"),
)


ALWAYS_SHOWN: Final = ("site", "broker", "address", "parent", "children", "clients", "subs")
UNREMARKABLE: Final[tuple[set[object], ...]] = (set(), {0}, {"active"}, {"operational"})
"""What needs no column if it is to be said of every broker that answers."""
UNKNOWN: Final = "?"


@click.command(
    epilog=examples(
        "plait status --broker :4000",
        "plait status --run runs/demo --json",
    )
)
@click.option(
    "--broker", "brokers", type=AddressType(), multiple=True, help="A broker; others follow."
)
@click.option(
    "--run",
    "run_directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of a run that is going on.",
)
@json_option("every broker's whole report")
def command(brokers: Sequence[str], run_directory: Path | None, as_json: bool) -> None:
    """Every broker of an overlay: state, neighbours, queues, what it holds.

    One broker is enough: the others are found through its neighbours. With `--run`, sites are
    named, and those who have died as well.

    Roles: `active`, or `standby` for the broker that is its parent; `suspected` is one that does
    not answer, `dead` one of which there is no process.

    Columns: `subs` and `ads` are the subscriptions and advertisements it knows, `pending` those
    that wait for confirmations, `unstable` the publications that it keeps until everybody who is
    owed them has them, `held` those of them that wait for their turn, and `skipped` those that it
    has given up. A column in which all are 0, `active` or `operational` is left out. Lines below
    the table say of each that is held behind what, and until which
    broker has settled it; and what was given up of late, for whom, and why.
    """
    if bool(brokers) == bool(run_directory):
        raise click.UsageError("Say where to ask: either --broker HOST:PORT or --run DIR.")
    known = processes(run_directory) if run_directory else {}
    reports = run_async(survey, [one["address"] for one in known.values()] or brokers)
    named = {one["address"]: name for name, one in known.items()}
    reports = [
        attrs.evolve(report, name=named.get(report.address, report.name))
        if isinstance(report, Unreachable)
        else report
        for report in reports
    ]
    sites = {name: one["site"] for name, one in known.items()}
    silent = [report for report in reports if isinstance(report, Unreachable)]
    who = ", ".join(f"{one.address} ({one.reason})" for one in silent)
    if len(silent) == len(reports):
        raise EnvironmentFailedError(f"no broker answers: {who}")
    if as_json:
        click.echo(
            json.dumps(
                [_as_json(report, sites) for report in reports], ensure_ascii=False, indent=2
            )
        )
    else:
        click.echo(_summary(reports))
        reports = sorted(
            reports,
            key=lambda report: (sites.get(name_of(report), ""), natural(name_of(report))),
        )
        rows = [[*_site_column(report, sites), *_row(report)] for report in reports]
        _print_telling((*(["site"] if sites else []), *COLUMNS), rows)
        for report in reports:
            if not isinstance(report, Unreachable):
                for line in (
                    *_fenced_lines(report),
                    *_held_lines(report),
                    *_skipped_lines(report),
                ):
                    click.echo(line)
    if silent:
        raise EnvironmentFailedError(f"not every broker answers: {who}")


def _as_json(report: StatusReport | Unreachable, sites: Mapping[str, str]) -> StatusReport:
    place = {"role": role_of(report)}
    if name_of(report) in sites:
        place["site"] = sites[name_of(report)]
    if isinstance(report, Unreachable):
        about = attrs.asdict(report)
        return {"node": report.name, "state": "unreachable", **place, **about}
    return {**report, **place}


def _summary(reports: Sequence[StatusReport | Unreachable]) -> str:
    """Return the answer to what most people ask first."""
    states = Counter(_state_of(report) for report in reports)
    held = sum(report["held_count"] for report in reports if not isinstance(report, Unreachable))
    brokers = f"{len(reports):,} broker{'s' * (len(reports) != 1)}"
    how = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    if len(states) == 1:
        how = f"{'all ' if len(reports) > 1 else ''}{_state_of(reports[0])}"
    return f"{brokers}, {how}; {held:,} publications held"


def _state_of(report: StatusReport | Unreachable) -> str:
    return "unreachable" if isinstance(report, Unreachable) else str(report["state"])


def _print_telling(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table without the columns that say the same of everybody."""
    telling = [
        number
        for number, cells in enumerate(zip(*rows, strict=True))
        if columns[number] in ALWAYS_SHOWN or {*cells} - {UNKNOWN} not in UNREMARKABLE
    ]
    print_table(
        [columns[number] for number in telling],
        [[row[number] for number in telling] for row in rows],
        named_by=1 + (columns[0] == "site"),
    )


def _site_column(report: StatusReport | Unreachable, sites: Mapping[str, str]) -> list[object]:
    return [sites.get(name_of(report), UNKNOWN)] if sites else []


def _fenced_lines(report: StatusReport) -> Iterator[str]:
    if count := report["fenced"]["count"]:
        times = "once" if count == 1 else f"{count} times, one soon after the other"
        yield f"{report['node']} was fenced {times}: {report['fenced']['reason']}"


def _held_lines(report: StatusReport) -> Iterator[str]:
    for held in report["held"]:
        yield f"{report['node']} {describe_held(held)}, {1000 * held['seconds']:.1f} ms so far"
    if more := report["held_count"] - len(report["held"]):
        yield f"{report['node']} holds {more} more"


def _skipped_lines(report: StatusReport) -> Iterator[str]:
    explained = sum(loss["count"] for loss in report["skipped"])
    if earlier := report["skipped_count"] - explained:
        yield f"{report['node']} skipped {earlier} publications before"
    for loss in report["skipped"]:
        yield f"{report['node']} {describe_loss(loss)}"


def _row(report: StatusReport | Unreachable) -> list[object]:
    if isinstance(report, Unreachable):
        return [report.name, report.role, _state_of(report), report.address, *[UNKNOWN] * 9]
    roles = Counter(neighbour["role"] for neighbour in report["neighbours"])
    parents = [one["name"] for one in report["neighbours"] if one["role"] == "parent"]
    return [
        report["node"],
        role_of(report),
        report["state"],
        report["address"],
        parents[0] if parents else "-",
        roles["child"],
        roles["client"],
        report["subscriptions"],
        report["advertisements"],
        report["operations_pending"],
        report["unstable"],
        report["held_count"],
        report["skipped_count"],
    ]
