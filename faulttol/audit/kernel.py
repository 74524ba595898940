"""Judges one run, on whichever machine has a core for it.

Most runs are clean, and that can be seen of all records at once (`faulttol.audit.evidence`). What
cannot be seen to be clean goes to the judge, `faulttol.guarantees`, who gives the verdict and the
words. The screening may suspect the innocent, but must never acquit the guilty: then the verdicts
are those of the judge, at a fraction of the time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from plait.faulttol.audit.columns import Numbers, read_lines
from plait.faulttol.audit.cycles import on_cycles, places_by
from plait.faulttol.audit.errors import UnsuitableHistoryError
from plait.faulttol.audit.evidence import LINES_MAX, Deliveries, Publications, times_of
from plait.faulttol.audit.times import Times
from plait.faulttol.audit.verdict import RunVerdict
from plait.faulttol.errors import HistoryError
from plait.faulttol.guarantees import GUARANTEES, Report, check_run, check_under
from plait.faulttol.history import (
    HISTORY_FOLDER,
    KINDS,
    Manifest,
    PublicationId,
    Record,
    decode_record,
    publication_of,
    read_manifest,
    read_run,
)

SMALL_RUN_BYTES: Final = 1 << 19
"""Up to here the judge has read and judged a run before its columns would have been arranged."""

_NO_EVENTS: Final = frozenset(
    {"advertised", "unadvertised", "subscribed", "unsubscribed"}
    | {"published", "confirmed", "delivered", "detecting", "detected"}
)


def judge_run(directory: Path, small_run_bytes: int = SMALL_RUN_BYTES) -> RunVerdict:
    """Judge a run in the way that is fastest for it."""
    files = history_files(directory)
    if sum(path.stat().st_size for path in files) > small_run_bytes:
        try:
            return _judge_columns(directory, files)
        except (HistoryError, UnsuitableHistoryError):
            pass
    return judge_in_full(directory)


def history_files(directory: Path) -> list[Path]:
    """Return the files of a run, as `faulttol.history.read_run` finds them."""
    return sorted((directory / HISTORY_FOLDER).glob("*.jsonl"))


def judge_in_full(directory: Path) -> RunVerdict:
    """Have the judge look at all of a run, whatever state it is in."""
    history = read_run(directory)
    published_at: dict[PublicationId, float] = {}
    confirmed_at: dict[PublicationId, float] = {}
    delivered_at = []
    for record in history.records:
        if record["kind"] == "published":
            published_at.setdefault(publication_of(record), record["at"])
        elif record["kind"] == "confirmed":
            confirmed_at.setdefault(publication_of(record), record["at"])
        elif record["kind"] == "delivered":
            delivered_at.append((publication_of(record), record["at"]))
    return RunVerdict.of(
        directory,
        history.manifest.ordering if history.manifest else "none",
        check_run(history),
        events=events_in(history.records),
        latency=_times_since(published_at, delivered_at),
        hold=_times_since(published_at, confirmed_at.items()),
        damage=tuple(str(problem) for problem in history.problems if not problem.is_tolerated),
    )


def events_in(records: Iterable[Record]) -> dict[str, int]:
    """Count what happened to nodes, and what was given up, by kind."""
    counts = Counter(record["kind"] for record in records)
    return {kind: counts[kind] for kind in KINDS if kind not in _NO_EVENTS and counts[kind]}


def _times_since(
    begin: Mapping[PublicationId, float], ends: Iterable[tuple[PublicationId, float]]
) -> Times:
    return times_of(
        np.array([at - begin[publication] for publication, at in ends if publication in begin])
    )


def _judge_columns(directory: Path, files: Sequence[Path]) -> RunVerdict:
    manifest = read_manifest(directory)
    lines = read_lines(files, manifest.run)
    publications = Publications.of(lines, lines.lives())
    deliveries = Deliveries.of(lines, publications)
    del lines
    guarantees = GUARANTEES[manifest.ordering]
    suspects = deliveries.suspects(guarantees)
    if "pairwise" in guarantees:
        suspects[on_cycles(*deliveries.links(), places_by(deliveries.first_at()))] = True
    chosen = publications.to_be_judged(suspects)
    rows = np.concatenate([publications.rows_about(chosen), deliveries.rows_about(chosen)])
    return verdict_of(
        directory,
        manifest,
        publications,
        figures=publications.figures(len(deliveries), deliveries.receivers),
        latency=deliveries.latencies(),
        suspicious=read_rows(publications.first_rows, rows)
        if suspects.any() or publications.detecting_clients()
        else None,
    )


def verdict_of(
    directory: Path,
    manifest: Manifest,
    publications: Publications,
    *,
    figures: Mapping[str, int],
    latency: Times,
    suspicious: Iterable[tuple[int, Record]] | None,
) -> RunVerdict:
    """Ask the judge about what is suspicious, if anything is."""
    guarantees = GUARANTEES[manifest.ordering]
    others = publications.records
    if suspicious is None:
        report = Report(
            run=manifest.run, guarantees=guarantees, violations=(), excused={}, figures=figures
        )
    else:
        records = sorted([*others, *suspicious], key=lambda numbered: numbered[0])
        report = check_under(manifest, (record for _, record in records))
        # The evidence was found sound; the gaps that the judge saw are what was left out.
        report = attrs.evolve(
            report,
            violations=tuple(found for found in report.violations if found.guarantee != "record"),
            # What was found in patterns only the judge has counted.
            figures={**report.figures, **figures},
        )
    return RunVerdict.of(
        directory,
        manifest.ordering,
        report,
        events=events_in(record for _, record in others),
        latency=latency,
        hold=publications.hold_times(),
    )


def read_rows(first_rows: Mapping[Path, int], rows: Numbers) -> Iterator[tuple[int, Record]]:
    """Read the lines that stand in these rows, as the records that they are."""
    rows = np.sort(rows)
    for path, first in first_rows.items():
        begin, end = np.searchsorted(rows, [first, first + LINES_MAX])
        chosen = set((rows[begin:end] - first).tolist())
        if chosen:
            with path.open("rb") as file:
                for number, line in enumerate(file):
                    if number in chosen:
                        yield first + number, decode_record(line.removesuffix(b"\n"))
