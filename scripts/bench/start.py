"""What the start of an overlay costs, beside what Python itself costs.

The baseline is one process that imports what a broker imports, and ends. An overlay of fifteen
brokers needs that fifteen times, spread over the cores of the machine. That is what its start is
measured by: from nothing to the moment when thirty clients are connected.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click
import trio

from plait.scripts.launcher import BrokerPlan, launch, no_note
from plait.scripts.options import json_option
from plait.scripts.process_stage import HistoryPlace, open_stage
from plait.scripts.sweep import cores
from plait.topologies.builders import chain_of_cores, with_clients

CORES: Final = 5
EDGES: Final = 2
PUBLISHERS: Final = 10
SUBSCRIBERS: Final = 20
WANTED: Final = 3.0

IMPORTS: Final = "import plait.scripts.main, plait.scripts.commands.broker"
"""All that a broker imports before it does anything."""


def start_python() -> float:
    """Return how long one process takes to start, import and end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-P", "-c", IMPORTS], check=True)  # noqa: S603 - ourselves
    return time.perf_counter() - began


async def start_overlay(directory: Path) -> float:
    """Return how long it takes until all brokers are ready and all clients connected."""
    overlay = with_clients(chain_of_cores(CORES, EDGES), PUBLISHERS, SUBSCRIBERS)
    plans = [
        BrokerPlan(name=broker, parent=overlay.parent_of(broker)) for broker in overlay.brokers
    ]
    place = HistoryPlace(directory=directory, run_id="bench", note=no_note)
    began = time.perf_counter()
    async with (
        launch(plans, log_directory=directory / "logs", tell=lambda _: None) as brokers,
        open_stage(overlay, brokers, place, lambda _: None),
    ):
        return time.perf_counter() - began


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@json_option("all figures")
def command(rounds: int, as_json: bool) -> None:
    """Start 15 brokers with 30 clients, beside one Python process that imports the same.

    The figure is the start of the overlay in starts of such a process per core: on two cores,
    fifteen of them are seven and a half, one after the other.
    """
    machine_cores = cores()
    pythons, overlays = [], []
    for _ in range(rounds):
        # By turns: whatever else this machine does meanwhile, it does to both.
        pythons.append(start_python())
        with tempfile.TemporaryDirectory() as folder:
            overlays.append(trio.run(start_overlay, Path(folder)))
    python, overlay = statistics.median(pythons), statistics.median(overlays)
    brokers = CORES * (1 + EDGES)
    per_core = overlay / (python * brokers / machine_cores)
    if as_json:
        figures = {
            "cores": machine_cores,
            "python_s": pythons,
            "overlay_s": overlays,
            "overlay_to_python": overlay / python,
            "overlay_to_python_per_core": per_core,
        }
        click.echo(json.dumps(figures))
        return
    clients = PUBLISHERS + SUBSCRIBERS
    click.echo(
        f"{python:7.3f} s  one Python process that imports what a broker imports\n"
        f"{overlay:7.3f} s  {brokers} brokers and {clients} clients, "
        f"{overlay / python:.1f} times as long\n"
        f"{per_core:7.2f}    times as long per core: {brokers} processes on {machine_cores} cores "
        f"(wanted: at most {WANTED:g})"
    )
