"""What the benches over TCP have in common: options, and how they go about a terminal."""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from plait.faulttol.files import make_folder, naming
from plait.scripts.bench.plots import Chart
from plait.scripts.terminal import redraw_line

seconds_option: Final = click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=4.0,
    show_default=True,
    help="Of every trial over TCP.",
)
rounds_option: Final = click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Of all that depends on the machine; medians are shown.",
)
peers_option: Final = click.option(
    "--peers",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="The folder of a harness for other systems, see above.",
)

plots_option: Final = click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the figures as SVG.",
)


def write_plots(folder: Path | None, charts: Mapping[str, Chart]) -> None:
    """Draw charts into a folder, if there is to be one."""
    if folder is not None:
        make_folder(folder)
        for name, chart in charts.items():
            path = folder / f"{name}.svg"
            with naming(path):
                path.write_text(chart.to_svg(), encoding="utf-8")


@contextlib.contextmanager
def cleaning_up_when_told_to_stop() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, which ends every process and removes every file."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell_terminal(what: str) -> None:
    """Let people see that something goes on."""
    redraw_line(what)
