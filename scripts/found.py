"""What the detectors of a run have found, side by side."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from plait.faulttol.history import read_run
from plait.routing.ids import SubscriptionId, owner_of
from plait.scripts.errors import BadInputError
from plait.scripts.tables import print_table

ROWS_SHOWN: Final = 12
NOT_FOUND: Final = "-"


@attrs.frozen(kw_only=True)
class Found:
    """The matches of one pattern in one run."""

    run: Path
    ordering: str
    pattern: str
    detectors: Sequence[str]
    """The clients that looked for it."""
    matches: Mapping[str, Mapping[str, int]]
    """For each match, at which position each client found it, in the order of the first ones."""

    @property
    def alike(self) -> int:
        """How many were found by all."""
        return sum(len(found) == len(self.detectors) for found in self.matches.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {**attrs.asdict(self), "run": str(self.run), "alike": self.alike}


def found_in(run: Path) -> list[Found]:
    """Read what detectors found in a run, pattern by pattern."""
    history = read_run(run)
    ordering = history.manifest.ordering if history.manifest else "?"
    what: dict[str, str] = {}
    clients: dict[str, list[str]] = {}
    matches: dict[str, dict[str, dict[str, int]]] = {}
    # A run's records are read node by node; matches are to stand in the order of time.
    for record in sorted(history.records, key=lambda record: record["at"]):
        if record["kind"] == "detecting":
            key = f"{record['pattern']} ({record['policy']})"
            what[record["detector"]] = key
            names = clients.setdefault(key, [])
            if record["client"] not in names:
                names.append(record["client"])
        elif record["kind"] == "detected" and record["detector"] in what:
            client = owner_of(SubscriptionId(record["detector"]))
            name = " ".join(f"{found[0]}#{found[-1]}" for found in record["match"])
            of_pattern = matches.setdefault(what[record["detector"]], {})
            of_pattern.setdefault(name, {})[client] = record["position"]
    return [
        Found(
            run=run,
            ordering=ordering,
            pattern=key,
            detectors=names,
            matches=matches.get(key, {}),
        )
        for key, names in clients.items()
    ]


def show_found(found: Iterable[Found]) -> None:
    """Print runs one below the other, and their figures side by side."""
    everything = list(found)
    if not everything:
        raise BadInputError("no detector in these runs")
    for one in everything:
        click.echo(f"{one.run} (ordering {one.ordering}): {one.pattern}")
        rows = [
            (name, *(by_client.get(client, NOT_FOUND) for client in one.detectors))
            for name, by_client in one.matches.items()
        ]
        print_table(("match", *one.detectors), rows[:ROWS_SHOWN])
        if len(rows) > ROWS_SHOWN:
            click.echo(f"... and {len(rows) - ROWS_SHOWN} more")
        click.echo()
    print_table(
        ("ordering", "pattern", "matches", "found by all", "alike"),
        [
            (
                one.ordering,
                one.pattern,
                len(one.matches),
                one.alike,
                f"{100 * one.alike / len(one.matches):.0f} %" if one.matches else NOT_FOUND,
            )
            for one in everything
        ],
    )
