"""`plait status`: how every broker of an overlay is, and who plays it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from plait.broker.holding import describe_held
from plait.broker.losses import describe_loss
from plait.broker.net.credentials import Credentials
from plait.broker.principals import Protection
from plait.scripts.async_entry import run_async
from plait.scripts.errors import EnvironmentFailedError
from plait.scripts.monitor import survey
from plait.scripts.options import (
    AddressType,
    credential_options,
    examples,
    json_option,
)
from plait.scripts.run_directory import processes
from plait.scripts.run_security import approach_for
from plait.scripts.status_reports import (
    StatusReport,
    Unreachable,
    answers,
    name_of,
    role_of,
    weaknesses,
)
from plait.scripts.tables import natural, print_table

COLUMNS: Final = (
    *("broker", "host", "term", "role", "state", "address", "parent", "children", "clients"),
    *("subs", "ads", "pending", "unstable", "held", "skipped"),
)


ALWAYS_SHOWN: Final = (
    *("site", "broker", "host", "term", "address", "parent", "children", "clients", "subs"),
)
UNREMARKABLE: Final[tuple[set[object], ...]] = (set(), {0}, {"active"}, {"operational"})
"""What needs no column if it is to be said of every broker that answers."""
UNKNOWN: Final = "?"
NONE: Final = "-"


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
@credential_options
@json_option("every broker's whole report")
def command(
    brokers: Sequence[str],
    run_directory: Path | None,
    credentials: Credentials | None,
    as_json: bool,
) -> None:
    """Every broker of an overlay: who plays it, state, neighbours, queues, what it holds.

    One process is enough: it knows where the others are. With `--run`, sites are named, and those
    who have died as well.

    A broker is played by a process, its `host`, which has its name unless that has failed, or has
    been stopped; the `term` counts how often it has been taken up. A process that plays nothing
    has the role `standby`; `suspected` is one that does not answer, `dead` one that is not there.

    Columns: `subs` and `ads` are the subscriptions and advertisements it knows, `pending` those
    that wait for confirmations, `unstable` the publications that it keeps until everybody who is
    owed them has them, `held` those of them that wait for their turn, and `skipped` those that it
    has given up, all brokers of its process together. A column in which all are 0, `active` or
    `operational` is left out. Lines below the table say whether one more failure would be survived
    now, and if not why; of each that is held behind what, and until which broker has settled it;
    what is to be played elsewhere; and what was given up of late, for whom, and why.
    """
    if bool(brokers) == bool(run_directory):
        raise click.UsageError("Say where to ask: either --broker HOST:PORT or --run DIR.")
    known = processes(run_directory) if run_directory else {}
    addresses = [one["address"] for one in known.values()] or brokers
    reports = run_async(survey, addresses, (), approach_for(run_directory, credentials))
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
        rows = [[*_site_column(report, sites), *row] for report in reports for row in _rows(report)]
        _print_telling((*(["site"] if sites else []), *COLUMNS), rows)
        click.echo(_what_if(reports))
        for report in answers(reports):
            for line in (
                *_insecure_lines(report),
                *_fenced_lines(report),
                *_moves_lines(report),
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
    played = Counter(_state_of(r) for r in answers(reports) for _ in r["brokers"])
    others = Counter(_state_of(r) for r in reports if role_of(r) != "active")
    count, held = played.total(), sum(report["held_count"] for report in answers(reports))
    how = ", ".join(f"{number:,} {state}" for state, number in played.most_common())
    if len(played) == 1:
        how = f"{'all ' if count > 1 else ''}{next(iter(played))}"
    return "; ".join(
        [
            f"{count:,} broker{'s' * (count != 1)}{', ' * bool(how)}{how}",
            *(f"{number:,} {state}" for state, number in others.most_common()),
            f"{held:,} publications held",
        ]
    )


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
        named_by=2 + (columns[0] == "site"),
    )


def _site_column(report: StatusReport | Unreachable, sites: Mapping[str, str]) -> list[object]:
    return [sites.get(name_of(report), UNKNOWN)] if sites else []


def _what_if(reports: Sequence[StatusReport | Unreachable]) -> str:
    reasons = list(weaknesses(reports))
    if not reasons:
        return "one more failure would be survived now"
    return f"one more failure might not be survived now: {'; '.join(reasons)}"


def _moves_lines(report: StatusReport) -> Iterator[str]:
    for move in report["relocations"]:
        yield f"{move['broker']} is to be played by {move['host']}, not yet: {move['reason']}"
    for stuck in report["not_taken_up"]:
        yield f"{', '.join(stuck['brokers'])} cannot be taken up: {stuck['reason']}"


def _insecure_lines(report: StatusReport) -> Iterator[str]:
    """Say that nobody has to show who it is, where other machines come in."""
    if report["protection"] == Protection.INSECURE:
        yield f"{report['host']} is insecure: whoever reaches it is believed, and reads everything"


def _fenced_lines(report: StatusReport) -> Iterator[str]:
    if count := report["fenced"]["count"]:
        times = "once" if count == 1 else f"{count} times, one soon after the other"
        yield f"{report['node']} was fenced {times}: {report['fenced']['reason']}"


def _held_lines(report: StatusReport) -> Iterator[str]:
    for held in report["held"]:
        yield f"{held['broker']} {describe_held(held)}, {1000 * held['seconds']:.1f} ms so far"
    if more := report["held_count"] - len(report["held"]):
        yield f"{report['node']} holds {more} more"


def _skipped_lines(report: StatusReport) -> Iterator[str]:
    explained = sum(loss["count"] for loss in report["skipped"])
    if earlier := report["skipped_count"] - explained:
        yield f"{report['node']} skipped {earlier} publications before"
    for loss in report["skipped"]:
        yield f"{report['node']} {describe_loss(loss)}"


def _rows(report: StatusReport | Unreachable) -> Iterator[list[object]]:
    """A row for each broker that a process plays, or one for a process that plays nothing."""
    if isinstance(report, Unreachable):
        state, unknown = _state_of(report), [UNKNOWN] * 9
        yield [NONE, report.name, NONE, report.role, state, report.address, *unknown]
        return
    process = (role_of(report), report["state"], report["address"])
    skipped = report["skipped_count"]
    if not report["brokers"]:
        yield [NONE, report["host"], NONE, *process, NONE, *[0] * 7, skipped]
    for broker in sorted(report["brokers"], key=lambda each: natural(each["broker"])):
        roles = Counter(neighbour["role"] for neighbour in broker["neighbours"])
        parents = [one["name"] for one in broker["neighbours"] if one["role"] == "parent"]
        yield [
            broker["broker"],
            report["host"],
            broker["term"],
            *process,
            parents[0] if parents else NONE,
            roles["child"],
            broker["clients"],
            broker["subscriptions"],
            broker["advertisements"],
            broker["operations_pending"],
            broker["unstable"],
            broker["held_count"],
            skipped,
        ]
        skipped = 0  # it is counted once
