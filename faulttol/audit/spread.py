"""Judges one run on all cores: the way for a run whose history is too large for one worker.

Publications and subscriptions are read first, and every worker is told of them. Deliveries stay
spread over the workers by subscriber, as columns that Spark keeps on disk. All screens but one are
about one subscriber at a time. The one for pairwise order takes three looks at the links between
consecutive deliveries, none of which needs all links in one place (`faulttol.audit.cycles`): when
was each publication delivered first, which publications do links back span, and which links are
left among those. In a clean run none are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import numpy as np
from pyspark import RDD, Broadcast, SparkContext, StorageLevel

from plait.faulttol.audit.columns import Life, Lines, Names, Numbers, Truths, read_lines
from plait.faulttol.audit.cycles import at_places, core_of, places_by, spanned_by, within
from plait.faulttol.audit.errors import UnsuitableHistoryError
from plait.faulttol.audit.evidence import Deliveries, Publications, Seconds
from plait.faulttol.audit.kernel import history_files, read_rows, verdict_of
from plait.faulttol.audit.times import Times
from plait.faulttol.audit.verdict import RunVerdict
from plait.faulttol.errors import HistoryError
from plait.faulttol.guarantees import GUARANTEES
from plait.faulttol.history import Manifest, PublicationId, Record, decode_record, read_manifest

PART_BYTES: Final = 128 << 20
"""Of history files to a task; as columns, its deliveries take about as much once more."""

_T = TypeVar("_T")
_Result = TypeVar("_Result")


@attrs.frozen(eq=False)
class _Findings:
    """What there is to say about the deliveries of one part."""

    suspects: Numbers
    unpublished: Sequence[PublicationId]
    first_at: Seconds
    count: int
    receivers: Sequence[str]
    latency: Times


@attrs.frozen(eq=False)
class _Part:
    """What has to be kept of one part for later looks."""

    findings: _Findings
    links: tuple[Numbers, Numbers]
    number: Numbers
    row: Numbers


def judge_spread(
    context: SparkContext, directory: Path, *, part_bytes: int = PART_BYTES
) -> RunVerdict:
    """Judge a run; `UnsuitableHistoryError` or `HistoryError` if only the judge can."""
    manifest = read_manifest(directory)
    guarantees = GUARANTEES[manifest.ordering]
    files = history_files(directory)
    lives = _lives(files)
    parts = _parts(files, lives, part_bytes)
    publications = _publications(context, parts, lives, manifest.run)
    deliveries, findings = _deliveries(context, parts, lives, publications, manifest)
    suspects = np.zeros(publications.count, np.bool_)
    for part in findings:
        suspects[part.suspects] = True
    if "pairwise" in guarantees:
        first_at = reduce(np.minimum, (part.first_at for part in findings))
        suspects[_on_cycles(context, deliveries, places_by(first_at))] = True
    suspicious = None
    if suspects.any() or publications.detecting_clients():
        chosen = publications.to_be_judged(suspects)
        rows = publications.rows_about(chosen)
        suspicious = [
            *read_rows(publications.first_rows, rows),
            *_records_of(context, deliveries, publications.first_rows, chosen),
        ]
    deliveries.unpersist()
    return verdict_of(
        directory,
        manifest,
        publications,
        figures=publications.figures(
            sum(part.count for part in findings),
            {receiver for part in findings for receiver in part.receivers},
        ),
        latency=Times.sum_of(part.latency for part in findings),
        suspicious=suspicious,
    )


def _lives(files: Sequence[Path]) -> dict[Path, Life]:
    """Say who wrote each file, by its first record."""
    lives = {}
    for path in files:
        with path.open("rb") as file:
            line = file.readline()
        try:
            record = decode_record(line.removesuffix(b"\n"))
        except HistoryError:
            if line.endswith(b"\n"):
                raise
            continue  # nothing at all, or a line that a crash has torn
        lives[path] = record["node"], record["incarnation"]
    return lives


def _parts(files: Sequence[Path], lives: Mapping[Path, Life], part_bytes: int) -> list[list[Path]]:
    """Divide the files; what one node wrote in all its lives stays together."""
    files_of: dict[str, list[Path]] = {}
    for path in files:
        node, _ = lives.get(path, ("", 0))
        files_of.setdefault(node, []).append(path)
    parts: list[list[Path]] = [[]]
    size = 0
    for of_node in files_of.values():
        if size >= part_bytes:
            parts.append([])
            size = 0
        parts[-1] += of_node
        size += sum(path.stat().st_size for path in of_node)
    return parts


def _attempt(judge: Callable[[_T], _Result], subject: _T) -> _Result | UnsuitableHistoryError:
    # As a value: of what is raised by a task, Spark brings home no more than the words.
    try:
        return judge(subject)
    except UnsuitableHistoryError as error:
        return error


def _all_suitable(results: Iterable[_Result | UnsuitableHistoryError]) -> list[_Result]:
    suitable = []
    for result in results:
        if isinstance(result, UnsuitableHistoryError):
            raise result
        suitable.append(result)
    return suitable


def _publications(
    context: SparkContext, parts: Sequence[list[Path]], lives: Mapping[Path, Life], run: str
) -> Publications:
    def read(part: list[Path]) -> Lines:
        return _read(part, run, ("published", "confirmed"), lives)

    read_parts = context.parallelize(parts, len(parts)).map(partial(_attempt, read)).collect()
    return Publications.of(Lines.sum_of(_all_suitable(read_parts)), lives)


def _read(
    part: Sequence[Path],
    run: str,
    kinds: Sequence[str],
    lives: Mapping[Path, Life],
    names: Names | None = None,
) -> Lines:
    lines = read_lines(part, run, kinds=kinds, names=names)
    if not lines.lives().items() <= lives.items():
        raise UnsuitableHistoryError("a file of several lives")
    return lines


def _deliveries(
    context: SparkContext,
    parts: Sequence[list[Path]],
    lives: Mapping[Path, Life],
    publications: Publications,
    manifest: Manifest,
) -> tuple["RDD[Any]", list[_Findings]]:
    """Look for suspects in all parts, and leave there what is needed of them later."""
    clients = _clients_of_parts(parts, lives, publications)
    subjects = list(zip(parts, clients, strict=True))
    while True:
        known = publications.unpublished.things
        told = context.broadcast(publications)

        judge = partial(_judge_part, lives=lives, told=told, manifest=manifest)
        tasks = context.parallelize(subjects, len(subjects)).map(partial(_attempt, judge))
        tasks.persist(StorageLevel.DISK_ONLY)
        findings = _all_suitable(
            tasks.map(lambda part: part if isinstance(part, Exception) else part.findings).collect()
        )
        for part in findings:
            publications.unpublished.numbers(part.unpublished)
        if publications.unpublished.things == known:
            return tasks, findings
        # What was never published was numbered by each part. Once more, with the same numbers.
        tasks.unpersist()


def _clients_of_parts(
    parts: Sequence[list[Path]], lives: Mapping[Path, Life], publications: Publications
) -> list[set[str]]:
    """Say whose deliveries each part has; who has written no file of its own goes to the first."""
    clients = [{lives[path][0] for path in part if path in lives} for part in parts]
    clients[0] |= publications.subscriptions_by_client().keys() - set().union(*clients)
    return clients


def _judge_part(
    subject: tuple[Sequence[Path], set[str]],
    *,
    lives: Mapping[Path, Life],
    told: "Broadcast[Publications]",
    manifest: Manifest,
) -> _Part:
    part, clients = subject
    # What is told to all tasks may be one object to several of them: names are added to a copy.
    publications = attrs.evolve(
        told.value,
        names=Names(told.value.names.things),
        unpublished=Names(told.value.unpublished.things),
    )
    lines = _read(part, manifest.run, ("delivered",), lives, publications.names)
    deliveries = Deliveries.of(lines, publications, clients)
    findings = _Findings(
        suspects=np.flatnonzero(deliveries.suspects(GUARANTEES[manifest.ordering])),
        unpublished=publications.unpublished.things,
        first_at=deliveries.first_at(),
        count=len(deliveries),
        receivers=deliveries.receivers,
        latency=deliveries.latencies(),
    )
    return _Part(findings, deliveries.links(), deliveries.number, deliveries.row)


def _on_cycles(context: SparkContext, deliveries: "RDD[Any]", places: Numbers) -> Numbers:
    """Return the publications on or between cycles, without bringing all links together."""
    told = context.broadcast(places)

    def spanned_in(part: _Part) -> Truths:
        sources, targets = part.links
        return spanned_by(told.value[sources], told.value[targets], len(told.value))

    spanned = deliveries.map(lambda part: np.packbits(spanned_in(part))).reduce(np.bitwise_or)
    if not spanned.any():
        return np.zeros(0, np.int64)
    told_spanned = context.broadcast(np.unpackbits(spanned, count=len(places)).astype(np.bool_))

    def links_in(part: _Part) -> tuple[Numbers, Numbers]:
        sources, targets = part.links
        return within(told.value[sources], told.value[targets], told_spanned.value)

    links = deliveries.map(links_in).collect()
    sources, targets = (np.concatenate(ends) for ends in zip(*links, strict=True))
    return at_places(core_of(sources, targets), places)


def _records_of(
    context: SparkContext,
    deliveries: "RDD[Any]",
    first_rows: Mapping[Path, int],
    chosen: Truths,
) -> list[tuple[int, Record]]:
    """Read once more the deliveries of some publications."""
    told = context.broadcast(chosen)
    rows = deliveries.map(lambda part: part.row[told.value[part.number]])
    return rows.flatMap(lambda of_part: read_rows(first_rows, of_part)).collect()
