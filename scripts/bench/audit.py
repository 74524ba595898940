"""The audit of generated histories: how long it takes, how much memory, and how both grow.

The histories are clean, of the kind that is most work to call clean: every subscriber receives
everything, all in one order. They are measured twice, the second time with twice the runs.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import click
import psutil

from faulttol.errors import FaultToleranceError
from faulttol.history import HISTORY_FOLDER, Manifest, write_manifest
from scripts.errors import EnvironmentFailedError
from scripts.options import json_option

PUBLISHERS: Final = 10
_SAMPLE_SECONDS: Final = 0.1


@attrs.frozen
class Measurement:
    """One audit of so many runs, on a Spark that has started."""

    runs: int
    deliveries: int
    seconds: float
    deliveries_per_second: float
    memory_bytes: int
    """The most that this process, Java and the Python workers held together, by a sample."""


@click.command()
@click.option("--runs", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--subscribers", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--publications", type=click.IntRange(min=PUBLISHERS), default=2_000)
@json_option("the figures")
def command(runs: int, subscribers: int, publications: int, as_json: bool) -> None:
    """Generate runs, and audit half of them (to warm up, and once more), then all of them."""
    with tempfile.TemporaryDirectory(prefix="plait-bench-audit-") as folder:
        directories = [Path(folder) / f"run-{number}" for number in range(runs)]
        for directory in directories:
            generate(directory, subscribers, publications)
        measurements = measure(directories, subscribers * publications)
    if as_json:
        click.echo(json.dumps([attrs.asdict(measurement) for measurement in measurements]))
    else:
        click.echo(report(measurements))


def generate(directory: Path, subscribers: int, publications: int) -> None:
    """Write a run line by line: its deliveries may be more than memory holds."""
    run = directory.name
    manifest = Manifest(
        run=run, topology=None, ordering="pairwise", delta=1, seed=0, started=0.0, simulated=True
    )
    write_manifest(directory, manifest)
    folder = directory / HISTORY_FOLDER
    folder.mkdir()
    for number in range(PUBLISHERS):
        node = f"publisher{number}"
        _write(folder, run, node, _published(node, range(number, publications, PUBLISHERS)))
    for number in range(subscribers):
        node = f"subscriber{number}"
        _write(folder, run, node, _delivered(node, publications))


def _write(folder: Path, run: str, node: str, records: Iterator[str]) -> None:
    with (folder / f"{node}-1.jsonl").open("x", encoding="utf-8") as file:
        for n, record in enumerate(records, start=1):
            file.write(f'{{"run":"{run}","node":"{node}","incarnation":1,"n":{n},{record}}}\n')


def _published(publisher: str, numbers: range) -> Iterator[str]:
    for seq, number in enumerate(numbers, start=1):
        content = f'{{"symbol":"S{number % 40}","price":{number % 1000}.5}}'
        about = f'"publisher":"{publisher}","seq":{seq}'
        yield (
            f'"at":{number + 1}.25,"kind":"published",{about},"content":{content},'
            f'"ordered":true,"crc":{number}'
        )
        yield f'"at":{number + 2}.75,"kind":"confirmed",{about}'


def _delivered(subscriber: str, publications: int) -> Iterator[str]:
    subscription = f"{subscriber}/1"
    yield (
        f'"at":0.5,"kind":"subscribed","client":"{subscriber}","subscription":"{subscription}",'
        f'"filter":"price > 0","ordered":true'
    )
    for number in range(publications):
        yield (
            f'"at":{number + 2}.0,"kind":"delivered","subscriber":"{subscriber}",'
            f'"publisher":"publisher{number % PUBLISHERS}","seq":{number // PUBLISHERS + 1},'
            f'"position":{number + 1},"subscriptions":["{subscription}"],"crc":{number}'
        )


def measure(directories: list[Path], deliveries_per_run: int) -> list[Measurement]:
    """Audit half of the runs, when Spark is warm, and all of them."""
    try:
        # Here, not above: without Spark, `plait bench audit --help` still has to work.
        from faulttol.audit.job import audit
        from faulttol.audit.session import SMALL_INPUT_BYTES, spark_session

        half = directories[: len(directories) // 2]
        measurements = []
        with spark_session(input_bytes=SMALL_INPUT_BYTES + 1) as session:
            audit(session, half)
            for runs in (half, directories):
                with _MemorySampler() as memory:
                    started = time.perf_counter()
                    verdicts = audit(session, runs)
                    seconds = time.perf_counter() - started
                assert all(verdict.is_clean for verdict in verdicts)
                deliveries = deliveries_per_run * len(runs)
                measurements.append(
                    Measurement(len(runs), deliveries, seconds, deliveries / seconds, memory.most)
                )
    except (FaultToleranceError, ImportError) as error:
        raise EnvironmentFailedError(str(error)) from error
    return measurements


class _MemorySampler:
    """Looks again and again at how much memory this process and all below it hold."""

    def __init__(self) -> None:
        self.most = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "_MemorySampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            this = psutil.Process(os.getpid())
            total = 0
            for process in [this, *this.children(recursive=True)]:
                try:
                    # Workers are forked: what they share with each other counts once.
                    total += process.memory_full_info().pss
                except psutil.NoSuchProcess:
                    continue
            self.most = max(self.most, total)


def report(measurements: list[Measurement]) -> str:
    """Set the figures in a table."""
    half, whole = measurements
    lines = [f"{'runs':>6}{'deliveries':>14}{'seconds':>10}{'a second':>12}{'memory':>11}"]
    lines += [
        f"{one.runs:>6}{one.deliveries:>14,}{one.seconds:>10.1f}"
        f"{one.deliveries_per_second:>12,.0f}{one.memory_bytes / 1e6:>8,.0f} MB"
        for one in measurements
    ]
    growth = whole.deliveries / half.deliveries
    lines.append(
        f"{growth:.1f} times the deliveries take {whole.seconds / half.seconds:.1f} times as long."
    )
    return "\n".join(lines)
