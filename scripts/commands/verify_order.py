"""`plait verify-order`: order among topics, judged by stamps alone."""

import json
from pathlib import Path

import attrs
import click

from plait.faulttol.history import read_run, run_directories
from plait.faulttol.stamps import StampReport, verify_order
from plait.scripts.errors import BadInputError, GuaranteeViolatedError
from plait.scripts.options import examples, json_option
from plait.scripts.verdict import VIOLATIONS_SHOWN


@click.command(
    epilog=examples(
        "plait verify-order runs/demo-20260601-120000",
        "plait verify-order runs --json",
    )
)
@click.argument("directory", metavar="RUN", type=click.Path(exists=True, path_type=Path))
@json_option("what the stamps say")
def command(directory: Path, as_json: bool) -> None:
    """Judge by their stamps whether publications on topics came where they belong.

    Under the orderings `tno` and `tno-tagged` a delivery has a stamp: the number of the publication
    on its topic, and of other topics the numbers behind which it comes. RUN is a run directory, or
    a folder with run directories below it. No broker is believed, nor any client that says it was
    in order: only what was published, in which order it was delivered, and the stamps count.

    Exit code 1 if something came elsewhere than its stamp says, or a number was given out twice; 2
    if nothing has a stamp.
    """
    reports = [verify_order(read_run(run).records) for run in run_directories(directory)]
    if not any(report.stamped for report in reports):
        raise BadInputError(f"{directory}: no delivery has a stamp; under the ordering tno they do")
    if as_json:
        click.echo(json.dumps([attrs.asdict(report) for report in reports], ensure_ascii=False))
    else:
        for report in reports:
            _print(report)
    if any(report.violations for report in reports):
        raise GuaranteeViolatedError("not everything came where its stamp says")


def _print(report: StampReport) -> None:
    click.echo(
        f"{report.run}: {report.stamped} deliveries on {report.topics} topics with stamps, "
        f"{report.tagged} of them told to be out of order, {report.unnumbered} without a number; "
        f"{report.unstamped} without a stamp"
    )
    for violation in report.violations[:VIOLATIONS_SHOWN]:
        click.echo(f"  {violation}")
    if len(report.violations) > VIOLATIONS_SHOWN:
        click.echo(f"  ... and {len(report.violations) - VIOLATIONS_SHOWN} more violations")
    if not report.violations and report.stamped:
        click.echo("  all else came where it belongs")
