"""Prints what a run promised, what was checked, and what was found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import click

from plait.faulttol.guarantees import Report
from plait.scripts.errors import GuaranteeViolatedError

PROMISES: Final[Mapping[str, str]] = {
    "record": "the history itself is complete and without contradiction",
    "duplicate": "nobody is given a publication twice",
    "spurious": "nobody is given what was not published, or what it did not ask for",
    "altered": "what is delivered is what was published, to the byte",
    "loss": "whoever asks for a publication in time is given it",
    "fifo": "each publisher's publications arrive in the order in which it sent them",
    "pairwise": "two subscribers see what they both receive in the same order",
    "detection": "detectors find what they were given; where all is ordered, the same",
}
VIOLATIONS_SHOWN: Final = 20
NOTHING_TO_JUDGE: Final = (
    "Nothing was published, so there was nothing to judge: this says nothing about the guarantees."
)


def print_verdict(report: Report, *, ordering: str, place: str) -> None:
    """Print a report for people; `place` says where what it is about can be read."""
    figures = report.figures
    click.echo(
        f"\nOrdering {ordering}: {figures['published']} publications of "
        f"{figures['publishers']} publishers, {figures['delivered']} deliveries to "
        f"{figures['subscribers']} subscribers with {figures['subscriptions']} subscriptions."
    )
    broken = {violation.guarantee for violation in report.violations}
    if figures["published"] or broken:
        click.echo("Guaranteed, and checked against the history:")
        for guarantee in report.guarantees:
            is_broken = guarantee in broken
            word = click.style(
                "BROKEN" if is_broken else "kept  ", fg="red" if is_broken else "green"
            )
            click.echo(f"  {word}  {guarantee:10} {PROMISES.get(guarantee, guarantee)}")
    else:
        click.echo(NOTHING_TO_JUDGE)
    if "detectors" in figures:
        click.echo(
            f"  {figures['detectors']} detectors found {figures['matches']} matches, "
            f"{figures['matches alike']} of them on all clients that looked for the same."
        )
    for excuse, count in report.excused.items():
        click.echo(f"  {count} publications were not delivered to somebody, with excuse: {excuse}")
    for violation in report.violations[:VIOLATIONS_SHOWN]:
        click.echo(f"  {violation}")
    if len(report.violations) > VIOLATIONS_SHOWN:
        click.echo(f"  ... and {len(report.violations) - VIOLATIONS_SHOWN} more violations")
    click.echo(f"Read it yourself: {place}")


def report_as_json(report: Report, directory: Path) -> dict[str, Any]:
    """Return a report as `--json` prints it."""
    return {**attrs.asdict(report), "is_clean": report.is_clean, "directory": str(directory)}


def raise_if_violated(report: Report) -> None:
    """End the command with exit code 1, if a promise was broken."""
    if not report.is_clean:
        count = len(report.violations)
        noun = "violation" if count == 1 else "violations"
        raise GuaranteeViolatedError(f"{count} {noun} of what was guaranteed, see above")
