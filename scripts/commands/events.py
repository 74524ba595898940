"""`plait events`: what happens in a run, while it happens."""

from pathlib import Path

import click

from plait.scripts.event_log import read_events
from plait.scripts.options import examples


@click.command(
    epilog=examples(
        "plait events runs/demo-20260601-120000",
        "plait events runs/demo-20260601-120000 | grep SubEvent",
        "plait events runs/demo-20260601-120000 --no-follow    what there is by now",
    )
)
@click.argument("directory", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option(
    "-f/-n",
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="Wait for more until the run is over.",
)
def command(directory: Path, follow: bool) -> None:
    """Print the events of the run in DIRECTORY, and those to come until the run is over.

    Commands of the script stand as they were executed, or behind `//` if they could not be, and
    behind `Status` how each broker and client was. `PubEvent P, P, T, N` is publication N of
    publisher P on topic T, `BroEvent B, P, T, N` says that broker B sent it on (with `LoggingLevel
    full`), `SubEvent S, P, T, N` that subscriber S was given it.
    """
    for line in read_events(directory, follow=follow):
        click.echo(line)
