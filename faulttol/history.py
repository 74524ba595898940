"""The record: what every node of a run writes down as it happens, and auditors read later.

A run is one directory::

    manifest.json                        what was run: see `Manifest`
    history/<node>-<incarnation>.jsonl   one file for each life of each node

A history file is UTF-8 and append-only: one JSON object a line, one line a record. Every record
has the fields of `HEADER` and those of its kind in `KINDS`. Readers skip fields and kinds they do
not know, so that both may be added without a new format version.

Rules a writer keeps, because auditors build on them:

- Record first, act second. What others can observe (a publication sent, a delivery made) is
  written and flushed before it is done. A crash then costs at most a torn last line, about
  something that never happened.
- An incarnation is written by one process, once; a node that restarts takes a higher number and
  a new file. `n` and `seq` begin again with each incarnation, `position` counts on.
- A publication is known by its publisher, by the incarnation in which this published it, and by
  its number there (`publication_of`). Format 1 left the incarnation out; see `_complete`.
- All nodes of a run read one clock that never goes back: virtual time, or the monotonic clock of
  the one machine they share. Only then may `at` be compared across nodes.

Records are plain dicts, not attrs classes. They are JSON in and JSON out, a simulation makes
tens of thousands of them a second, and a dict is several times cheaper than an object with
validators; `KINDS` says what a class would have said.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol, Self

import attrs

from plait.faulttol.errors import HistoryError
from plait.faulttol.files import LineFile, make_folder, replace_text

FORMAT_VERSION: Final = 2
"""Counts up when a reader of the old format would misread the new one."""

READABLE_FORMATS: Final = (1, FORMAT_VERSION)

MANIFEST_NAME: Final = "manifest.json"
HISTORY_FOLDER: Final = "history"

ORDERINGS: Final = (
    "none",
    "fifo",
    "pairwise",
    "sequencer",
    "sequencer-filtered",
    "published",
    "published-progressive",
    "published-whole-queue",
    "tno",
    "tno-tagged",
    "tno-published-2011",
    "tno-published-2015",
)
"""What a manifest may name as the ordering of its run."""

TORN_LINE: Final = "torn last line, left out"

LINE_BYTES_MAX: Final = 16 << 20
"""One record: a delivery to 50,000 subscriptions of one client fits. Auditors have to live on."""

Record = dict[str, Any]
"""One line of a history; see `HEADER` and `KINDS`."""

PublicationId = tuple[str, int, int]
"""A publisher, the incarnation in which it published, and the number of the publication there.

Of one publisher's publications, the lesser one was published earlier.
"""


@attrs.frozen
class Field:
    """One field of a record: its name, and the types that JSON may give it."""

    name: str
    types: tuple[type, ...]
    element_types: tuple[type, ...] = ()
    """What a list or an object may hold; empty where that is not for a reader to judge."""
    since_format: int = 1
    """The first format that has it."""

    @property
    def is_optional(self) -> bool:
        """A field that may be null may as well be absent."""
        return type(None) in self.types

    @property
    def may_be_absent(self) -> bool:
        """Whether a reader has to do without it, also because the file may be older."""
        return self.is_optional or self.since_format > 1


def _text(name: str) -> Field:
    return Field(name, (str,))


def _integer(name: str) -> Field:
    return Field(name, (int,))


def _number(name: str) -> Field:
    return Field(name, (int, float))


def _flag(name: str) -> Field:
    return Field(name, (bool,))


def _texts(name: str) -> Field:
    return Field(name, (list,), (str,))


HEADER: Final = (
    _text("run"),
    _text("node"),
    _integer("incarnation"),
    _integer("n"),  # 1, 2, 3 ... per file
    _number("at"),  # seconds
    _text("kind"),
)
"""What every record begins with: in which run, by whom and in which life, when and what."""

_ADVERTISEMENT = (_text("client"), _text("advertisement"), _text("filter"))
_SUBSCRIPTION = (_text("client"), _text("subscription"), _text("filter"), _flag("ordered"))
_PUBLICATION = (
    _text("publisher"),
    Field("publisher_incarnation", (int,), since_format=2),
    _integer("seq"),  # 1, 2, 3 ... per publisher and incarnation
)
_MEMBERSHIP = (_text("about"), _texts("members"), _number("millis"))
_SEAT = (_text("broker"), _text("host"), _integer("term"), _integer("step"))
_PROCESS = (_text("about"),)

KINDS: Final[Mapping[str, tuple[Field, ...]]] = MappingProxyType(
    {
        # By clients. Beginnings when they are confirmed, endings when they are asked for;
        # `filter` is SQL text.
        "advertised": _ADVERTISEMENT,
        "unadvertised": _ADVERTISEMENT,
        "subscribed": _SUBSCRIPTION,
        "unsubscribed": _SUBSCRIPTION,
        # By the publisher's client: when handed over, and when stable. `crc` is the CRC-32 of
        # the body, 0 without a body.
        "published": (
            *_PUBLICATION,
            Field("content", (dict,), (str, int, float, bool)),
            _flag("ordered"),
            _integer("crc"),
        ),
        "confirmed": _PUBLICATION,
        # By the subscriber's client, when given to the application. `position` counts 1, 2, 3 ...
        # per subscriber; `subscriptions` are those of this client that asked for it.
        "delivered": (
            _text("subscriber"),
            *_PUBLICATION,
            _integer("position"),
            _texts("subscriptions"),
            _integer("crc"),
            # Under orderings that stamp: whether it came where its stamp says, and that: its number
            # on its topic, and those of other topics behind which it belongs.
            Field("in_order", (bool, type(None))),
            Field("stamp", (dict, type(None))),
        ),
        # By the client of a detector, which is known by its subscription: what it looks for, each
        # time that it begins to look at what is delivered (see `routing/patterns/detection.py`),
        "detecting": (
            _text("client"),
            _text("detector"),
            _text("pattern"),
            Field("where", (dict,), (str,)),
            _text("policy"),
            Field("within", (int, type(None))),
            Field("sync", (str, type(None))),
            _text("late"),
        ),
        # and what it has found: publications, each as publisher, incarnation and number, and the
        # position of the delivery that completed it.
        "detected": (
            _text("detector"),
            _text("pattern"),
            Field("match", (list,), (list,)),
            _integer("position"),
            _flag("certain"),
        ),
        # By whoever gave up on a publication: for one subscriber or, without `subscriber`, for
        # everyone whom it would have reached through this `node`.
        "skipped": (*_PUBLICATION, Field("subscriber", (str, type(None))), _text("reason")),
        # By brokers, `about` a node: the members of the neighbourhood, and how long it took.
        "joined": _MEMBERSHIP,
        "suspected": _MEMBERSHIP,
        "reformed": _MEMBERSHIP,
        "recovering": _MEMBERSHIP,
        "operational": _MEMBERSHIP,
        # By the host that plays a broker from then on, or no more: `step` is the last one of that.
        "taken_up": _SEAT,
        "given_up": _SEAT,
        # By the launcher, `about` the process of a node.
        "crashed": _PROCESS,
        "frozen": _PROCESS,
        "unfrozen": _PROCESS,
        "restarted": _PROCESS,
        "stopped": _PROCESS,
    }
)
"""Every kind of record, with the fields it has beside those of `HEADER`."""

_FIELD_NAMES: Final = {kind: {field.name for field in fields} for kind, fields in KINDS.items()}


# Writing


def _new_record(
    run: str, node: str, incarnation: int, n: int, at: float, kind: str, fields: dict[str, Any]
) -> Record:
    if fields.keys() != _FIELD_NAMES.get(kind):
        _check_names(kind, fields)
    return {
        "run": run,
        "node": node,
        "incarnation": incarnation,
        "n": n,
        "at": at,
        "kind": kind,
        **fields,
    }


def _check_names(kind: str, names: Collection[str]) -> None:
    if kind not in KINDS:
        raise HistoryError(f"{kind!r} is no kind of record")
    required = {field.name for field in KINDS[kind] if not field.is_optional}
    if not required <= set(names) <= _FIELD_NAMES[kind]:
        expected = ", ".join(field.name for field in KINDS[kind])
        raise HistoryError(f"{kind}: fields {expected} expected, {', '.join(names)} found")


class History(Protocol):
    """Where one incarnation of one node writes its records."""

    def write(self, at: float, kind: str, **fields: Any) -> None:
        """Append one record. The fields have to be exactly those of its kind."""

    def flush(self) -> None:
        """Return when a crash of this process can no longer take back what was written."""

    def close(self) -> None:
        """Flush, and write no more."""


@attrs.define
class MemoryHistory:
    """A history in memory, for simulation and tests.

    The nodes of a run may share one list of records, which then has them as they happened.
    The fields given are kept, not copied: whoever writes them must not change them any more.
    """

    run: str
    node: str
    incarnation: int = 1
    records: list[Record] = attrs.field(factory=list)
    _n: int = attrs.field(default=0, init=False)

    def write(self, at: float, kind: str, **fields: Any) -> None:
        """Append one record. The fields have to be exactly those of its kind."""
        n = self._n + 1
        self.records.append(_new_record(self.run, self.node, self.incarnation, n, at, kind, fields))
        self._n = n

    def flush(self) -> None:
        """Do nothing: this history lives and dies with its process."""

    def close(self) -> None:
        """Do nothing."""


class HistoryWriter:
    """A history on disk. Raises `FileExistsError` where this incarnation has already written."""

    def __init__(self, directory: Path, run: str, node: str, incarnation: int) -> None:
        folder = directory / HISTORY_FOLDER
        make_folder(directory)
        make_folder(folder)
        self._run = run
        self._node = node
        self._incarnation = incarnation
        self._n = 0
        # Lines are handed on in their order, so that whatever a crash leaves behind is whole
        # lines and at most one torn one, the last.
        self.path = folder / file_name(node, incarnation)
        self._file = LineFile(self.path)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._last_line = b""
        self._has_gap = False

    def write(self, at: float, kind: str, **fields: Any) -> None:
        """Append one record. The fields have to be exactly those of its kind."""
        n = self._n + 1
        record = _new_record(self._run, self._node, self._incarnation, n, at, kind, fields)
        line = _encode_line(record)
        self._pending.append(line)
        self._pending_bytes += len(line)
        self._n = n
        if self._pending_bytes >= _BUFFER_BYTES:
            self.flush()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._file.size

    def flush(self) -> None:
        """Give everything to the operating system, which outlives this process.

        `OSError` names the file; what could not be written still waits to be.
        """
        if self._pending:
            self._file.append(b"".join(self._pending))
            self._last_line = self._pending[-1]
            self._pending.clear()
            self._pending_bytes = 0

    def give_up_pending(self) -> int:
        """Drop what could not be written, and return how many records that is.

        The file says so by a gap in the numbers of its records: if none follows any more, then
        because the last one, which needs no room for that, is given the number of the next.
        """
        lost = len(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        if lost and self._last_line and not self._has_gap:
            record = json.loads(self._last_line)
            line = _encode_line({**record, "n": record["n"] + 1})
            try:
                self._file.replace_end(len(self._last_line), line)
                self._has_gap = True
            except OSError:
                lost += 1  # one digit more, and not even room for that
            self._last_line = b""
        return lost

    def close(self) -> None:
        """Flush, and write no more."""
        try:
            self.flush()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BUFFER_BYTES: Final = 1 << 16
"""Some 300 records: a system call is then a small part of what writing them costs."""

_encode: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode


def _encode_line(record: Record) -> bytes:
    try:
        return _encode(record).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"{record['kind']}: cannot be written as JSON: {error}") from error


_UNFIT_FOR_FILE_NAMES: Final = re.compile(r'[\x00-\x1f\x7f%/\\:*?"<>|]|^\.')


def file_name(node: str, incarnation: int) -> str:
    """Name the file of one incarnation of a node; different nodes have different names.

    What is unfit for a file name on some system is percent-encoded, and so is `%` itself;
    anything else, letters of any script included, stays as it is.
    """
    fit = _UNFIT_FOR_FILE_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", node)
    return f"{fit}-{incarnation}.jsonl"


def place_of(record: Record) -> str:
    """Say where a record is written, as `file:n`. In a sound file, n is the number of its line."""
    return f"{HISTORY_FOLDER}/{file_name(record['node'], record['incarnation'])}:{record['n']}"


# The manifest


@attrs.frozen(kw_only=True)
class Manifest:
    """What was run. Written at the start, and once more at the end."""

    format: int = FORMAT_VERSION
    run: str
    topology: Any
    """The overlay in JSON, as its builder describes it; auditors only pass it on."""
    ordering: str = attrs.field(validator=attrs.validators.in_(ORDERINGS))
    delta: int
    seed: int | None
    started: float
    ended: float | None = None
    """`None` until the run is over."""
    simulated: bool


_MANIFEST_FIELDS: Final = (
    _text("run"),
    Field("topology", (dict, list, str, type(None))),
    _text("ordering"),
    _integer("delta"),
    Field("seed", (int, type(None))),
    _number("started"),
    Field("ended", (int, float, type(None))),
    _flag("simulated"),
)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write or replace the manifest of a run; a reader finds the old one or the new one."""
    make_folder(directory)
    text = json.dumps(attrs.asdict(manifest), ensure_ascii=False, allow_nan=False, indent=2)
    replace_text(directory / MANIFEST_NAME, f"{text}\n")


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a run; `HistoryError` says why that is not possible."""
    try:
        document = _decode((directory / MANIFEST_NAME).read_bytes())
    except FileNotFoundError:
        raise HistoryError("the manifest is missing") from None
    version = document.get("format")
    if version not in READABLE_FORMATS:
        expected = " or ".join(map(str, READABLE_FORMATS))
        raise HistoryError(f"format version {expected} expected, {version!r} found")
    _check_fields(document, _MANIFEST_FIELDS)
    if document["ordering"] not in ORDERINGS:
        raise HistoryError(
            f"ordering: one of {', '.join(ORDERINGS)} expected, {document['ordering']!r} found"
        )
    return Manifest(
        format=version, **{field.name: document[field.name] for field in _MANIFEST_FIELDS}
    )


# Reading


@attrs.frozen
class Problem:
    """Something in the files of a run that is not as it should be."""

    file: str
    """Relative to the directory of the run."""
    line: int | None
    text: str
    is_tolerated: bool = False
    """A crash leaves such a thing behind; it is mentioned, and proves nothing."""

    @property
    def place(self) -> str:
        """The file, and the line if it is one line that is wrong."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@attrs.frozen
class RunHistory:
    """All that is known of one run."""

    directory: Path
    manifest: Manifest | None
    records: list[Record]
    """File by file, each in the order of its lines; the incarnations of a node in theirs."""
    problems: tuple[Problem, ...]


def read_run(directory: Path) -> RunHistory:
    """Read a run, whatever state it is in: what cannot be read becomes a problem, never an error.

    Gaps in the numbering are left to `faulttol.guarantees`, which sees them in any history.
    """
    problems: list[Problem] = []
    manifest = None
    try:
        manifest = read_manifest(directory)
    except HistoryError as error:
        problems.append(Problem(MANIFEST_NAME, None, str(error)))

    files = []
    for path in sorted((directory / HISTORY_FOLDER).glob("*.jsonl")):
        records = _read_file(path, f"{HISTORY_FOLDER}/{path.name}", problems)
        if records:
            files.append(records)
    # By number, not by file name: incarnation 10 comes after incarnation 9.
    files.sort(key=lambda records: (records[0]["node"], records[0]["incarnation"]))
    all_records = list(_complete(list(itertools.chain.from_iterable(files)), problems))

    if manifest is not None:
        for run in sorted({record["run"] for record in all_records} - {manifest.run}):
            text = f"this is run {manifest.run!r}, but there are records of run {run!r}"
            problems.append(Problem(MANIFEST_NAME, None, text))
    return RunHistory(directory, manifest, all_records, tuple(sorted(problems, key=_place)))


def publication_of(record: Record) -> PublicationId:
    """Say which publication a record is about, of those kinds that are about one."""
    return record["publisher"], record["publisher_incarnation"], record["seq"]


def name_of(publication: PublicationId, *, is_lone_life: bool) -> str:
    """Name a publication for people, in short if only one life of its publisher is known."""
    publisher, incarnation, seq = publication
    return f"{publisher}#{seq}" if is_lone_life else f"{publisher}@{incarnation}#{seq}"


def is_complete(record: Record) -> bool:
    """Whether it says all that this format says, and no other record has to be asked."""
    return all(field.is_optional or field.name in record for field in KINDS.get(record["kind"], ()))


NEVER_PUBLISHED: Final = 0
"""As an incarnation: of a publisher that published nothing at all, as far as is known."""


def _complete(records: list[Record], problems: list[Problem]) -> Iterator[Record]:
    """Add to the records of older files which life of its publisher each is about.

    What a publisher wrote itself is about the life in which it did; anything else, if there is
    one life only, about that. Of a record that could be about several lives, that is a problem.
    """
    if all(map(is_complete, records)):
        yield from records
        return
    lives: dict[str, set[int]] = {}
    for record in records:
        if record["kind"] == "published":
            told = "publisher_incarnation" in record
            life = record["publisher_incarnation" if told else "incarnation"]
            lives.setdefault(record["publisher"], set()).add(life)
    for record in records:
        if not is_complete(record):
            publisher = record["publisher"]
            possible = lives.get(publisher, {NEVER_PUBLISHED})
            if record["node"] == publisher and record["kind"] != "delivered":
                possible = {record["incarnation"]}
            if len(possible) > 1:
                text = (
                    f"{record['kind']}: 'publisher_incarnation' is missing, and {publisher} "
                    f"published in the incarnations {', '.join(map(str, sorted(possible)))}"
                )
                name = file_name(record["node"], record["incarnation"])
                problems.append(Problem(f"{HISTORY_FOLDER}/{name}", record["n"], text))
                continue
            record["publisher_incarnation"] = min(possible)
        yield record


def _place(problem: Problem) -> tuple[str, int]:
    return problem.file, problem.line or 0


def _read_file(path: Path, name: str, problems: list[Problem]) -> list[Record]:
    """Read the records of one file; what is wrong with the others goes to `problems`."""
    records = []
    lines = path.read_bytes().split(b"\n")
    is_last_torn = bool(lines[-1])
    if not is_last_torn:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            record = decode_record(line)
        except HistoryError as error:
            is_tolerated = is_last_torn and number == len(lines)
            text = TORN_LINE if is_tolerated else str(error)
            problems.append(Problem(name, number, text, is_tolerated))
        else:
            records.append(record)
    return records


def decode_record(line: bytes) -> Record:
    """Decode one line; `HistoryError` says why it is no record."""
    if len(line) > LINE_BYTES_MAX:
        raise HistoryError(f"at most {LINE_BYTES_MAX} bytes to a line expected, more found")
    record = _decode(line)
    _check_fields(record, HEADER)
    # A kind that is not known here has been added since; its fields are not ours to judge.
    _check_fields(record, KINDS.get(record["kind"], ()))
    return record


def _decode(text: bytes) -> Record:
    """Decode one JSON object; `HistoryError` says why it is none."""
    try:
        document = json.loads(text.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise HistoryError(f"not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise HistoryError(f"a JSON object expected, {type(document).__name__} found")
    return document


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _check_fields(document: Record, fields: tuple[Field, ...]) -> None:
    for field in fields:
        if field.name not in document:
            if field.may_be_absent:
                continue
            raise HistoryError(f"field {field.name!r} is missing")
        value = document[field.name]
        _check_type(field.name, value, field.types)
        if field.element_types:
            for element in value.values() if isinstance(value, dict) else value:
                _check_type(f"in {field.name}", element, field.element_types)


def _check_type(name: str, value: object, types: tuple[type, ...]) -> None:
    # Not isinstance: to Python, true is an integer.
    if type(value) not in types:
        expected = " or ".join(kind.__name__ for kind in types)
        raise HistoryError(f"{name}: {expected} expected, {type(value).__name__} found")


def write_run(directory: Path, manifest: Manifest, records: Iterable[Record]) -> None:
    """Write a whole run at once, such as one that was simulated in memory."""
    write_manifest(directory, manifest)
    lines: dict[str, list[bytes]] = {}
    for record in records:
        name = file_name(record["node"], record["incarnation"])
        lines.setdefault(name, []).append(_encode_line(record))
    for name in lines:
        make_folder(directory / HISTORY_FOLDER)
        with contextlib.closing(LineFile(directory / HISTORY_FOLDER / name)) as file:
            file.append(b"".join(lines[name]))


def run_directories(path: Path) -> list[Path]:
    """Find the runs in a directory: itself, or those below it, by name; no link is followed."""
    if (path / MANIFEST_NAME).exists() or (path / HISTORY_FOLDER).is_dir():
        return [path]
    folders = sorted(child for child in path.iterdir() if child.is_dir() and not child.is_symlink())
    return [run for folder in folders for run in run_directories(folder)]
