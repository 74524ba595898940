"""The verdicts of an audit as one page: no script, no other file, nothing from the network."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs

from plait.faulttol.audit.times import Times, begin_of_class
from plait.faulttol.audit.verdict import RunVerdict
from plait.faulttol.errors import HistoryError
from plait.faulttol.guarantees import Violation
from plait.faulttol.history import PublicationId, Record, decode_record, name_of
from plait.scripts.verdict import PROMISES

PICTURES_MAX: Final = 50
"""Beyond these the page names what was found, and draws no more of it."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em;
       color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
th, td { padding: .25em .8em; text-align: left; border-bottom: 1px solid #ddd; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.kept { color: #176b2c; } .broken { color: #b3161b; font-weight: bold; }
figure { margin: 1.5em 0; } code { font-size: 90%; color: #555; }
svg text { font: 13px system-ui, sans-serif; fill: #222; }
"""


def audit_page(verdicts: Sequence[RunVerdict], damage: Sequence[str]) -> str:
    """Return the page, as HTML."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>plait audit</title>',
        '<meta name="viewport" content="width=device-width">',
        f"<style>{_STYLE}</style>",
        f"<h1>{_headline(verdicts, damage)}</h1>",
        _guarantees(verdicts),
        *_damage(damage),
        *_violations(verdicts),
        "<h2>Runs</h2>",
        _runs(verdicts),
        "<p>Latency is the time from a publication to each of its deliveries; hold time is the "
        "time from a publication to its confirmation, during which nodes have to keep it. "
        "Both are right to within 6 %, the longest exactly.</p>",
    ]
    return "\n".join(parts) + "\n"


def _headline(verdicts: Sequence[RunVerdict], damage: Sequence[str]) -> str:
    broken = sum(bool(verdict.violations) for verdict in verdicts)
    runs = f"{len(verdicts):,} run{'s' * (len(verdicts) != 1)}"
    words = f"a guarantee was broken in {broken:,}" if broken else "every guarantee held"
    unread = ", and not everything could be read" if damage else ""
    css = "broken" if broken or damage else "kept"
    return f'{runs}: <span class="{css}">{words}{unread}</span>'


def _guarantees(verdicts: Sequence[RunVerdict]) -> str:
    rows = []
    for guarantee, promise in PROMISES.items():
        checked = sum(guarantee in verdict.guarantees for verdict in verdicts)
        violations = sum(verdict.violations.get(guarantee, 0) for verdict in verdicts)
        word = '<span class="kept">kept</span>' if checked else "not promised"
        if violations:
            word = '<span class="broken">broken</span>'
        rows.append([guarantee, _Html(word), checked, violations, promise])
    excused: Counter[str] = Counter()
    for verdict in verdicts:
        excused.update(verdict.excused)
    excuses = "".join(
        f"<p>Not delivered to somebody, and excused: {count:,} ({escape(excuse)})</p>"
        for excuse, count in excused.items()
    )
    return _table(["guarantee", "", "runs checked", "violations", "promise"], rows) + excuses


def _damage(damage: Sequence[str]) -> Iterator[str]:
    if damage:
        yield "<h2>What could not be read</h2>"
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in damage)}</ul>"


class _Html(str):
    """Text that is HTML already."""

    __slots__ = ()


class _Duration(str):
    """A number with its unit."""

    __slots__ = ()


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    if isinstance(value, _Duration):
        return f'<td class="number">{escape(value)}</td>'
    return f"<td>{value if isinstance(value, _Html) else escape(str(value))}</td>"


# Runs


def _runs(verdicts: Sequence[RunVerdict]) -> str:
    columns = ["run", "ordering", "", "published", "delivered", "subscribers"]
    columns += ["failures and the like"]
    for what in ("latency", "hold time"):
        columns += [what, "half within", "99 % within", "longest"]
    common = _common_folder(verdicts)
    rows = []
    for verdict in verdicts:
        broken = ", ".join(verdict.violations) or ("damaged" if verdict.damage else "")
        word = f'<span class="broken">{escape(broken)}</span>' if broken else "clean"
        figures = verdict.figures
        rows.append(
            [
                verdict.directory.removeprefix(common),
                verdict.ordering,
                _Html(word),
                figures["published"],
                figures["delivered"],
                figures["subscribers"],
                ", ".join(f"{count} {kind}" for kind, count in verdict.events.items()) or "none",
                _Html(_distribution(verdict.latency)),
                *_quantiles(verdict.latency),
                _Html(_distribution(verdict.hold)),
                *_quantiles(verdict.hold),
            ]
        )
    where = f"<p>Runs are named within <code>{escape(common)}</code>.</p>" if common else ""
    return where + _table(columns, rows)


def _common_folder(verdicts: Sequence[RunVerdict]) -> str:
    """Return what the names of all runs begin with: to read it once is enough."""
    if len(verdicts) < 2:
        return ""
    folder = os.path.commonpath([Path(verdict.directory).parent for verdict in verdicts])
    return "" if folder in ("", "/") else f"{folder}/"


def _quantiles(times: Times) -> list[object]:
    if not times.total:
        return ["none", "", ""]
    longest = (times.quantile(0.5), times.quantile(0.99), times.longest)
    return [_Duration(_seconds(seconds)) for seconds in longest]


def _seconds(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _distribution(times: Times) -> str:
    """Draw a bar for each class of durations, on a logarithmic scale."""
    if not times.total:
        return ""
    first, last = min(times.counts), max(times.counts)
    most = max(times.counts.values())
    bars = "".join(
        f'<rect x="{3 * (number - first)}" y="{30 - 30 * count / most:.1f}" width="3" '
        f'height="{30 * count / most:.1f}" fill="#4878a8"><title>'
        f"{count:,} from {_seconds(begin_of_class(number))}</title></rect>"
        for number, count in sorted(times.counts.items())
    )
    return f'<svg width="{3 * (last - first + 1)}" height="30" role="img">{bars}</svg>'


# Violations


def _violations(verdicts: Sequence[RunVerdict]) -> Iterator[str]:
    witnesses = [(verdict, witness) for verdict in verdicts for witness in verdict.witnesses]
    if not witnesses:
        return
    yield "<h2>Violations</h2>"
    total = sum(count for verdict in verdicts for count in verdict.violations.values())
    if total > len(witnesses):
        yield f"<p>{len(witnesses):,} of {total:,} are shown.</p>"
    for place, (verdict, witness) in enumerate(witnesses):
        records = list(_records(Path(verdict.directory), witness))
        picture = _picture(witness, records) if place < PICTURES_MAX else ""
        yield (
            f"<figure>{picture}<figcaption><b>{escape(witness.guarantee)}</b> in "
            f"{escape(verdict.directory)}: {escape(witness.witness)}<br>"
            f"<code>{escape(', '.join(witness.records))}</code></figcaption></figure>"
        )


def _records(directory: Path, witness: Violation) -> Iterator[Record]:
    """Read the records that show a violation; those that cannot be read are left out."""
    for place in witness.records:
        name, _, number = place.rpartition(":")
        path = directory / name
        if not number.isdecimal() or not path.is_file():
            continue
        with path.open("rb") as file:
            for record in file:
                try:
                    decoded = decode_record(record.removesuffix(b"\n"))
                except HistoryError:
                    continue
                if decoded["n"] == int(number):
                    yield decoded
                    break


@attrs.frozen
class _Event:
    """One box of a picture."""

    words: str
    publication: PublicationId | None


def _picture(witness: Violation, records: Sequence[Record]) -> str:
    """Draw what each node recorded, from top to bottom; lines join what is about the same.

    Lines that cross are two subscribers, or a publisher and a subscriber, that disagree.
    """
    lanes: dict[str, list[_Event]] = {}
    lives: dict[str, set[int]] = {}
    for publication in filter(None, map(_publication_of, records)):
        lives.setdefault(publication[0], set()).add(publication[1])

    def name(publication: PublicationId) -> str:
        return name_of(publication, is_lone_life=len(lives[publication[0]]) == 1)

    if witness.guarantee == "fifo":
        for publication in sorted(filter(None, map(_publication_of, records))):
            event = _Event(f"published {name(publication)}", publication)
            lanes.setdefault(f"publisher {publication[0]}", []).append(event)
    for record in sorted(records, key=lambda record: (record["incarnation"], record["n"])):
        lanes.setdefault(record["node"], []).append(_event(record, name))
    return _drawn(lanes) if lanes else ""


def _publication_of(record: Mapping[str, Any]) -> PublicationId | None:
    """Say which publication a record is about; in older files, none of them tells lives apart."""
    if "seq" not in record:
        return None
    return record["publisher"], record.get("publisher_incarnation", 0), record["seq"]


def _event(record: Mapping[str, Any], name: Callable[[PublicationId], str]) -> _Event:
    publication = _publication_of(record)
    about = name(publication) if publication else record.get("subscription", "")
    position = f" at position {record['position']}" if "position" in record else ""
    return _Event(f"{record['kind']} {about}{position}", publication)


def _drawn(lanes: Mapping[str, Sequence[_Event]]) -> str:
    width, gap, height = 250, 90, 44
    drawn = []
    joints: dict[PublicationId, list[tuple[int, int, int]]] = {}
    for lane, (node, events) in enumerate(lanes.items()):
        left = lane * (width + gap)
        drawn.append(f'<text x="{left}" y="16" font-weight="bold">{escape(node)}</text>')
        for row, event in enumerate(events):
            top = 28 + row * height
            drawn.append(
                f'<rect x="{left}" y="{top}" width="{width}" height="30" rx="4" fill="#eef3f8" '
                'stroke="#4878a8"/>'
                f'<text x="{left + 10}" y="{top + 20}">{escape(event.words)}</text>'
            )
            if event.publication:
                joints.setdefault(event.publication, []).append((lane, left, top + 15))
    for ends in joints.values():
        for (lane, left, y), (next_lane, next_left, next_y) in pairwise(ends):
            if lane != next_lane:
                drawn.append(
                    f'<line x1="{left + width}" y1="{y}" x2="{next_left}" y2="{next_y}" '
                    'stroke="#b3161b" stroke-width="2"/>'
                )
    full_height = 28 + height * max(map(len, lanes.values()))
    full_width = len(lanes) * (width + gap) - gap + 2
    return (
        f'<svg width="{full_width}" height="{full_height}" role="img" '
        f'viewBox="-1 0 {full_width} {full_height}">{"".join(drawn)}</svg>'
    )
