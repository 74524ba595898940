"""The audit of generated histories: how long it takes, how much memory, and how both grow.

The histories are clean, of the kind that is most work to call clean: every subscriber receives
everything, all in one order. They are measured twice, the second time with twice the runs. Beside
that, the audit of one tiny run from a cold start is compared with a Spark that starts and stops.
"""

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import click
import psutil

from plait.faulttol.errors import FaultToleranceError
from plait.faulttol.history import HISTORY_FOLDER, Manifest, write_manifest
from plait.scripts.errors import EnvironmentFailedError
from plait.scripts.extras import needing
from plait.scripts.options import json_option

PUBLISHERS: Final = 10
_SAMPLE_SECONDS: Final = 0.5
_COLD_STARTS: Final = 3


@attrs.frozen
class Measurement:
    """One audit of so many runs, on a Spark that has started."""

    runs: int
    deliveries: int
    seconds: float
    deliveries_per_second: float
    processor_seconds: float
    """Of this process, Java and the Python workers: what other programs cannot slow down."""
    memory_bytes: int
    """The most that this process, Java and the Python workers held together, by a sample."""


@click.command()
@click.option("--runs", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--subscribers", type=click.IntRange(min=1), default=50, show_default=True)
@click.option(
    "--publications", type=click.IntRange(min=PUBLISHERS), default=2_000, show_default=True
)
@click.option("--spread", is_flag=True, help="Judge each run on all cores, as a large one is.")
@click.option(
    "--in",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="A disk with room for 220 bytes a delivery.",
)
@json_option("the figures")
def command(
    runs: int,
    subscribers: int,
    publications: int,
    spread: bool,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Generate runs, and audit half of them (to warm up, and once more), then all of them.

    Ten million deliveries are --runs 100, or --runs 10 --subscribers 1000 --publications 1000.
    """
    # Not at the top, since help has to work without Spark; not later, since histories take long.
    with needing("audit"):
        importlib.import_module("plait.faulttol.audit.job")
    with tempfile.TemporaryDirectory(prefix="plait-bench-audit-", dir=folder) as place:
        directories = [Path(place) / f"run-{number}" for number in range(runs)]
        for directory in directories:
            generate(directory, subscribers, publications)
        measurements = measure(directories, subscribers * publications, is_spread=spread)
        tiny = Path(place) / "tiny"
        generate(tiny, subscribers=3, publications=PUBLISHERS)
        cold_starts = measure_cold_starts(tiny)
    if as_json:
        figures = [attrs.asdict(measurement) for measurement in measurements]
        click.echo(json.dumps({"audits": figures, "cold": attrs.asdict(cold_starts)}))
    else:
        click.echo(report(measurements, cold_starts))


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
        about = f'"publisher":"{publisher}","publisher_incarnation":1,"seq":{seq}'
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
            f'"publisher":"publisher{number % PUBLISHERS}","publisher_incarnation":1,'
            f'"seq":{number // PUBLISHERS + 1},'
            f'"position":{number + 1},"subscriptions":["{subscription}"],"crc":{number}'
        )


def measure(
    directories: list[Path], deliveries_per_run: int, *, is_spread: bool
) -> list[Measurement]:
    """Audit half of the runs, when Spark is warm, and all of them."""
    from plait.faulttol.audit.job import LARGE_RUN_BYTES, audit
    from plait.faulttol.audit.session import SMALL_INPUT_BYTES, spark_session

    half = directories[: len(directories) // 2]
    limit = 0 if is_spread else LARGE_RUN_BYTES
    measurements = []
    try:
        with spark_session(input_bytes=SMALL_INPUT_BYTES + 1) as session:
            audit(session, half, large_run_bytes=limit)
            for runs in (half, directories):
                with _MemorySampler() as memory:
                    processor_seconds = _processor_seconds()
                    started = time.perf_counter()
                    verdicts = audit(session, runs, large_run_bytes=limit)
                    seconds = time.perf_counter() - started
                    processor_seconds = _processor_seconds() - processor_seconds
                assert all(verdict.is_clean for verdict in verdicts)
                deliveries = deliveries_per_run * len(runs)
                measurements.append(
                    Measurement(
                        len(runs),
                        deliveries,
                        seconds,
                        deliveries / seconds,
                        processor_seconds,
                        memory.most,
                    )
                )
    except FaultToleranceError as error:
        raise EnvironmentFailedError(str(error)) from error
    return measurements


def _processor_seconds() -> float:
    this = psutil.Process(os.getpid())
    times = [process.cpu_times() for process in [this, *this.children(recursive=True)]]
    return sum(of_process.user + of_process.system for of_process in times)


@attrs.frozen
class ColdStarts:
    """How long two commands take from their beginning to their end; the medians of a few."""

    empty_session_seconds: float
    """A Spark session that is started and stopped."""
    tiny_audit_seconds: float
    """`plait audit` of one run of a few records."""

    @property
    def ratio(self) -> float:
        """How many empty sessions a tiny audit takes."""
        return self.tiny_audit_seconds / self.empty_session_seconds


def measure_cold_starts(run: Path) -> ColdStarts:
    """Start both by turns, so that whatever else slows the machine slows both."""
    empty_session = (
        "from pyspark.sql import SparkSession;"
        "SparkSession.builder.master('local[*]').getOrCreate().stop()"
    )
    commands = (["-c", empty_session], ["-m", "plait", "audit", str(run)])
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(_COLD_STARTS):
        for arguments, of_command in zip(commands, seconds, strict=True):
            started = time.perf_counter()
            # This process has named the Java that both use, when it started Spark.
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603 - our own
            of_command.append(time.perf_counter() - started)
    return ColdStarts(*map(statistics.median, seconds))


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


def report(measurements: list[Measurement], cold_starts: ColdStarts) -> str:
    """Set the figures in a table."""
    half, whole = measurements
    lines = [
        f"{'runs':>6}{'deliveries':>14}{'seconds':>10}{'a second':>12}"
        f"{'processor':>12}{'memory':>11}"
    ]
    lines += [
        f"{one.runs:>6}{one.deliveries:>14,}{one.seconds:>10.1f}{one.deliveries_per_second:>12,.0f}"
        f"{one.processor_seconds:>10.1f} s{one.memory_bytes / 1e6:>8,.0f} MB"
        for one in measurements
    ]
    growth = whole.deliveries / half.deliveries
    lines += [
        f"{growth:.1f} times the deliveries take {whole.seconds / half.seconds:.1f} times as long, "
        f"and {whole.processor_seconds / half.processor_seconds:.1f} times the work.",
        f"A tiny audit takes {cold_starts.tiny_audit_seconds:.1f} s from a cold start, "
        f"{cold_starts.ratio:.1f} times as long as an empty Spark session "
        f"({cold_starts.empty_session_seconds:.1f} s).",
    ]
    return "\n".join(lines)
