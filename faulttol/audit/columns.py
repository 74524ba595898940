"""Reads history files as columns, a hundred thousand lines at once.

A line of a frequent kind that is written as our own writer writes it, to the last comma, is
recognised by a regular expression and parsed together with all others like it. Whatever is
written in any other way, right or wrong, goes to `faulttol.history`, one line at a time. So who
reads columns reads what who reads records reads, and no line is trusted that was not looked at.
"""

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from plait.faulttol.audit.errors import UnsuitableHistoryError
from plait.faulttol.errors import HistoryError
from plait.faulttol.history import (
    HEADER,
    HISTORY_FOLDER,
    KINDS,
    LINE_BYTES_MAX,
    TORN_LINE,
    Field,
    Problem,
    Record,
    decode_record,
    is_complete,
)

Truths = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Life = tuple[str, int]
"""A node, and which of its incarnations."""

Columns = dict[str, npt.NDArray[Any]]
"""Arrays of one length, by the name of the field; texts and lists are numbers, see `Lines`."""

FREQUENT: Final = ("delivered", "published", "confirmed")
"""The kinds of which there are many; all the others stay records."""

_BLOCK_BYTES: Final = 16 << 20
"""Parsed at once: much enough for what each call costs, little enough to be held several times."""

_STRING: Final = r'"[^"\\\x00-\x1f]*"'
_INTEGER: Final = r"(?:0|[1-9][0-9]{0,17})"
_NUMBER: Final = rf"-?{_INTEGER}(?:\.[0-9]{{1,20}})?(?:e[-+]?[0-9]{{1,2}})?"
_VALUE: Final = rf"(?:{_STRING}|{_NUMBER}|true|false)"

_NUMBER_OF: Final = rf"{_STRING}:{_INTEGER}"
_NUMBERS: Final = rf"\{{(?:{_NUMBER_OF}(?:,{_NUMBER_OF})*)?\}}"

_FORMS: Final[dict[tuple[type, ...], tuple[str, pa.DataType]]] = {
    (str,): (_STRING, pa.string()),
    (int,): (_INTEGER, pa.int64()),
    (int, float): (_NUMBER, pa.float64()),
    (bool,): ("(?:true|false)", pa.bool_()),
    (bool, type(None)): ("(?:true|false)", pa.bool_()),
    (list,): (rf"\[(?:{_STRING}(?:,{_STRING})*)?\]", pa.list_(pa.string())),
    (dict,): (rf"\{{(?:{_STRING}:{_VALUE}(?:,{_STRING}:{_VALUE})*)?\}}", pa.string()),
    (dict, type(None)): (rf"\{{{_NUMBER_OF}(?:,{_STRING}:{_NUMBERS})*\}}", pa.string()),
}
"""How values of each type are written, and the type of the column that they become."""


_ABSENT: Final[dict[str, bool]] = {"in_order": True}
"""What is so where a record has nothing on it."""
_OPTIONAL: Final = frozenset(
    field.name for kind in FREQUENT for field in KINDS[kind] if field.is_optional
)
"""The fields that are the last ones of their kind, or not there."""


class Names:
    """Numbers 0, 1, 2 ... for texts and lists of texts, in the order in which they turn up."""

    def __init__(self, things: Iterable[Hashable] = ()) -> None:
        self._numbers = {thing: number for number, thing in enumerate(things)}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def things(self) -> list[Any]:
        """What has been numbered, each at its number."""
        return list(self._numbers)

    def number(self, thing: Hashable) -> int:
        """Return the number of one thing, which may be new."""
        return self._numbers.setdefault(thing, len(self._numbers))

    def numbers(self, things: Iterable[Hashable]) -> Numbers:
        """Return the number of each."""
        return np.fromiter(map(self.number, things), np.int64)

    def of_texts(self, texts: pa.Array) -> Numbers:
        """Return the number of each text; texts repeat, and each is looked up once."""
        encoded = texts.dictionary_encode()
        indices: Numbers = encoded.indices.to_numpy()
        return self.numbers(encoded.dictionary.to_pylist())[indices]

    def of_lists(self, lists: pa.ListArray) -> Numbers:
        """Return the number of each list of texts; most have one text."""
        lengths = pc.list_value_length(lists).to_numpy()
        numbers = np.empty(len(lists), np.int64)
        is_single = lengths == 1
        singles = lists.filter(pa.array(is_single)).flatten().dictionary_encode()
        of_single = self.numbers((text,) for text in singles.dictionary.to_pylist())
        numbers[is_single] = of_single[singles.indices.to_numpy()]
        others = lists.filter(pa.array(~is_single)).to_pylist()
        numbers[~is_single] = self.numbers(map(tuple, others))
        return numbers


@attrs.define(eq=False)
class Lines:
    """The lines of some files of a run."""

    files: Sequence[Path]
    names: Names = attrs.field(factory=Names)
    """The texts that stand in `columns` as numbers; contents as the JSON that they were."""
    lists: Names = attrs.field(factory=Names)
    """The lists that stand there as numbers."""
    columns: dict[str, Columns] = attrs.field(factory=dict)
    """By kind, with `file` (its number) and `line` (from 0) beside the fields."""
    records: list[tuple[int, int, Record]] = attrs.field(factory=list)
    """All other records, each with its file and line."""
    problems: list[Problem] = attrs.field(factory=list)

    def lives(self) -> dict[Path, Life]:
        """Say who wrote each file that has any of these lines.

        It is unsuitable unless each was written by one node in one life, without a gap.
        """
        is_whole = all(record["n"] == line + 1 for _, line, record in self.records) and all(
            (columns["n"] == columns["line"] + 1).all() for columns in self.columns.values()
        )
        if not is_whole or any(not problem.is_tolerated for problem in self.problems):
            raise UnsuitableHistoryError("a file with gaps")
        texts = self.names.things
        lives = {
            (self.files[file], (record["node"], record["incarnation"]))
            for file, _, record in self.records
        }
        for columns in self.columns.values():
            triples = np.stack([columns["file"], columns["node"], columns["incarnation"]], axis=1)
            is_new = np.ones(len(triples), np.bool_)
            is_new[1:] = (triples[1:] != triples[:-1]).any(axis=1)
            for file, node, incarnation in triples[is_new].tolist():
                lives.add((self.files[file], (texts[node], incarnation)))
        if not len(lives) == len(dict(lives)) == len({life for _, life in lives}):
            raise UnsuitableHistoryError("a file of several lives, or a life in several files")
        return dict(lives)

    @classmethod
    def sum_of(cls, parts: Sequence[Self]) -> Self:
        """Put together what was read of different files; without lists, which have no texts."""
        lines = cls([path for part in parts for path in part.files])
        chunks: dict[str, list[Columns]] = {}
        first_file = 0
        for part in parts:
            name_of = lines.names.numbers(part.names.things)
            for kind, columns in part.columns.items():
                texts = [
                    field.name for field in _columns_of(kind) if {str, dict} & set(field.types)
                ]
                renamed = {name: name_of[columns[name]] for name in texts if name in columns}
                moved = {"file": columns["file"] + first_file}
                chunks.setdefault(kind, []).append(columns | renamed | moved)
            lines.records += [
                (first_file + file, line, record) for file, line, record in part.records
            ]
            lines.problems += part.problems
            first_file += len(part.files)
        lines.columns = {kind: _joined(of_kind) for kind, of_kind in chunks.items()}
        return lines


def read_lines(
    files: Sequence[Path],
    run: str,
    *,
    names: Names | None = None,
    kinds: Sequence[str] = FREQUENT,
) -> Lines:
    """Read files, leaving out those frequent kinds that are not asked for.

    `UnsuitableHistoryError` means that there is a number which no column can hold.
    """
    lines = Lines(files, names or Names())
    chunks: dict[str, list[Columns]] = {kind: [] for kind in kinds}
    left: dict[str, list[tuple[int, int, Record]]] = {kind: [] for kind in kinds}
    patterns = {kind: _pattern(kind, run) for kind in FREQUENT}
    for block in _blocks(files):
        remaining, text = block.lines()
        for kind, pattern in patterns.items():
            is_hit = pc.match_substring_regex(text, pattern=pattern)
            hit = is_hit.to_numpy(zero_copy_only=False)
            if kind in kinds and hit.any():
                columns = _parsed(kind, pattern, text.filter(is_hit), lines)
                places = remaining[hit]
                chunks[kind].append(
                    {"file": block.file_of[places], "line": block.line_of[places], **columns}
                )
            remaining, text = remaining[~hit], text.filter(pc.invert(is_hit))
        for place in np.union1d(remaining, block.unfit).tolist():
            file, line = int(block.file_of[place]), int(block.line_of[place])
            try:
                record = decode_record(block.bytes_of(place))
            except HistoryError as error:
                name = f"{HISTORY_FOLDER}/{files[file].name}"
                is_torn = place in block.unfinished
                problem = TORN_LINE if is_torn else str(error)
                lines.problems.append(Problem(name, line + 1, problem, is_torn))
                continue
            if record["run"] != run or not math.isfinite(record["at"]):
                raise UnsuitableHistoryError("records of another run, or at no time")
            if not is_complete(record):
                raise UnsuitableHistoryError("records of an older format")
            if record["kind"] not in FREQUENT:
                lines.records.append((file, line, record))
            elif record["kind"] in kinds:
                left[record["kind"]].append((file, line, record))
    for kind in kinds:
        chunks[kind].append(_converted(kind, left[kind], lines))
        lines.columns[kind] = _joined(chunks[kind])
    return lines


def _joined(chunks: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


# Blocks of lines


@attrs.frozen(eq=False)
class _Block:
    """Whole lines of some files, one after the other, each with its line feed."""

    data: bytes
    ends: Numbers
    file_of: Numbers
    line_of: Numbers
    unfinished: frozenset[int]
    """The lines that had no line feed, the last ones of their files."""
    unfit: Numbers
    """The lines that are not UTF-8, or too long."""

    def bytes_of(self, place: int) -> bytes:
        start = self.ends[place - 1] if place else 0
        return self.data[start : self.ends[place] - 1]

    def lines(self) -> tuple[Numbers, pa.Array]:
        """Return the lines that are fit to be looked at together, and their places."""
        offsets = np.concatenate([[0], self.ends])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        lines = pa.Array.from_buffers(pa.large_binary(), len(self.ends), buffers)
        places = np.arange(len(self.ends))
        if self.unfit.size:
            places = np.setdiff1d(places, self.unfit)
            lines = lines.take(pa.array(places))
        return places, lines


def _blocks(files: Sequence[Path]) -> Iterator[_Block]:
    pieces: list[tuple[int, int, bytes]] = []
    size = 0
    for number, path in enumerate(files):
        for first_line, data in _pieces(path):
            pieces.append((number, first_line, data))
            size += len(data)
            if size >= _BLOCK_BYTES:
                yield _block(pieces)
                pieces, size = [], 0
    if pieces:
        yield _block(pieces)


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """Read a file in pieces of whole lines, each with the number of its first line."""
    first_line = 0
    rest = b""
    with path.open("rb") as file:
        while data := file.read(_BLOCK_BYTES):
            data = rest + data
            end = data.rfind(b"\n") + 1
            rest = data[end:][: LINE_BYTES_MAX + 1]  # enough to be too long, whatever follows
            if end:
                yield first_line, data[:end]
                first_line += data.count(b"\n", 0, end)
    if rest:
        yield first_line, rest


def _block(pieces: Sequence[tuple[int, int, bytes]]) -> _Block:
    is_unfinished = [not data.endswith(b"\n") for _, _, data in pieces]
    data = b"".join(
        data + b"\n" * without for (_, _, data), without in zip(pieces, is_unfinished, strict=True)
    )
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    too_long = np.flatnonzero(np.diff(ends, prepend=0) > LINE_BYTES_MAX + 1)
    # How many line feeds there are up to the end of each piece.
    sizes = [
        len(data) + without for (_, _, data), without in zip(pieces, is_unfinished, strict=True)
    ]
    counts = np.diff(np.searchsorted(ends, np.cumsum(sizes), side="right"), prepend=0)
    first_lines = [first_line for _, first_line, _ in pieces]
    begins = np.cumsum(counts) - counts
    return _Block(
        data,
        ends,
        file_of=np.repeat([file for file, _, _ in pieces], counts),
        line_of=np.arange(len(ends)) + np.repeat(first_lines - begins, counts),
        unfinished=frozenset((begins + counts - 1)[is_unfinished].tolist()),
        unfit=np.union1d(np.fromiter(_lines_that_are_no_text(data), np.int64), too_long),
    )


def _lines_that_are_no_text(data: bytes) -> Iterator[int]:
    if data.isascii() or _is_text(data):
        return
    for number, line in enumerate(data.split(b"\n")):
        if not _is_text(line):
            yield number


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# From lines to columns


def _pattern(kind: str, run: str) -> str:
    forms = {field.name: f'"{field.name}":{_form(field)}' for field in (*HEADER, *KINDS[kind])}
    forms["run"] = f'"run":{re.escape(json.dumps(run, ensure_ascii=False))}'
    forms["kind"] = f'"kind":"{kind}"'
    told = [form for name, form in forms.items() if name not in _OPTIONAL]
    optional = [f"(?:,{form})?" for name, form in forms.items() if name in _OPTIONAL]
    return rf"^\{{{','.join(told)}{''.join(optional)}\}}\n$"


def _columns_of(kind: str) -> list[Field]:
    """Return the fields that are judged: a stamp is not, but by `faulttol/stamps.py`."""
    fields = (*HEADER, *KINDS[kind])
    return [field for field in fields if field.name not in ("run", "kind", "stamp")]


def _form(field: Field) -> str:
    form, _ = _FORMS[field.types]
    return f"(?P<{field.name}>{form})" if field.types == (dict,) else form


def _parsed(kind: str, pattern: str, text: pa.Array, lines: Lines) -> Columns:
    """Parse lines that all have the form of this kind."""
    fields = _columns_of(kind)
    own_text = [field.name for field in fields if dict in field.types]
    schema = pa.schema(
        [(field.name, _FORMS[field.types][1]) for field in fields if field.name not in own_text]
    )
    data = text.buffers()[2]
    table = arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )
    assert table.num_rows == len(text)
    parsed = {name: table.column(name).combine_chunks() for name in schema.names}
    parsed |= {
        name: parsed[name].fill_null(other) for name, other in _ABSENT.items() if name in parsed
    }
    if own_text:
        extracted = pc.extract_regex(text, pattern=pattern)
        parsed |= {name: extracted.field(name).cast(pa.large_string()) for name in own_text}
    return {name: _numbers_in(column, lines) for name, column in parsed.items()}


def _numbers_in(column: pa.Array, lines: Lines) -> npt.NDArray[Any]:
    if pa.types.is_list(column.type):
        return lines.lists.of_lists(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return lines.names.of_texts(column)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _value(record: Record, field: Field) -> Any:
    """Return what a record says; a field that may be absent may be null as well."""
    value = record.get(field.name) if field.is_optional else record[field.name]
    return _ABSENT[field.name] if value is None else value


def _converted(kind: str, rows: Sequence[tuple[int, int, Record]], lines: Lines) -> Columns:
    """Make columns of records that were decoded one by one."""
    columns: Columns = {
        "file": np.array([file for file, _, _ in rows], np.int64),
        "line": np.array([line for _, line, _ in rows], np.int64),
    }
    for field in _columns_of(kind):
        values = [_value(record, field) for _, _, record in rows]
        if str in field.types:
            columns[field.name] = lines.names.numbers(values)
        elif list in field.types:
            columns[field.name] = lines.lists.numbers(map(tuple, values))
        elif dict in field.types:
            texts = (json.dumps(value, ensure_ascii=False) for value in values)
            columns[field.name] = lines.names.numbers(texts)
        else:
            try:
                columns[field.name] = np.array(values, _FORMS[field.types][1].to_pandas_dtype())
            except OverflowError:
                raise UnsuitableHistoryError(f"{field.name} is too large a number") from None
    return columns
