"""What a broker keeps on disk: which incarnation it was, who plays what, and where the others are.

One small JSON file, written anew beside itself, brought to the disk and then put in its place: who
reads it after a `kill -9` or a power failure finds what was there before or what is there now, and
never half of it. It is read as if a stranger had written it, field by field.

Of a file of format 1, which knew of no hosts, the incarnation is read and nothing else: all brokers
of an overlay change together to this protocol, and so begin anew, in their next lives.
"""

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from plait.broker.errors import StateError
from plait.broker.limits import DEFAULT_LIMITS, INCARNATION_MAX, STATE_BYTES_MAX
from plait.broker.messages import HostPlace, Life, Seat, Seating
from plait.broker.net.logs import Log, Trouble
from plait.faulttol.files import make_folder, naming, replace_text

FORMAT: Final = 2
FORMER_FORMAT: Final = 1

RETRY_S: Final = 5.0
"""Until what could not be written is tried again; most often a disk is full."""
LAST_WRITE_S: Final = 2.0
"""How long a broker that stops waits for a slow disk."""
FOUND_CHARS_MAX: Final = 60
"""Of what was found instead, in an error message."""


NOTHING_KNOWN: Final = Seating()


@attrs.frozen
class Memory:
    """What an earlier incarnation left behind."""

    incarnation: int = 0
    seating: Seating = NOTHING_KNOWN

    def write(self, path: Path) -> None:
        """Keep this, in place of what was kept."""
        make_folder(path.parent)
        kept = {"format": FORMAT, "incarnation": self.incarnation, **attrs.asdict(self.seating)}
        text = json.dumps(kept)
        replace_text(path, f"{text}\n", is_lasting=True)


class Keeper:
    """Writes the latest memory of a broker beside all else that it does: a disk may take its time.

    What cannot be written is said in the log, and tried again; a broker goes on without.
    """

    def __init__(self, path: Path | None, log: Log) -> None:
        """Keep in `path`; without one, keep nothing."""
        self._path = path
        self._latest = Memory()
        self._changed = trio.Event()
        self._written = trio.Event()
        self._written.set()
        self._one_at_a_time = threading.Lock()
        self.trouble = Trouble("state", str(path), log)

    def keep(self, memory: Memory) -> None:
        """Have something written soon."""
        if self._path is not None:
            self._latest = memory
            self._written = trio.Event()
            self._changed.set()

    async def run(self) -> None:
        """Write whatever is to be kept, for ever."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await self._write_latest()
            if self.trouble.is_on:
                with trio.move_on_after(RETRY_S):
                    await self._changed.wait()
                self._changed.set()

    async def finish(self) -> None:
        """Wait until the latest is written, or its disk has had its chance."""
        if not self.trouble.is_on:
            with trio.move_on_after(LAST_WRITE_S):
                await self._written.wait()

    async def begin_again(self, memory: Memory) -> None:
        """Write which incarnation comes now, before others see it; no slow disk holds that up."""
        if self._path is not None:
            self._latest = memory
            with trio.move_on_after(LAST_WRITE_S):
                await self._write_latest()

    async def _write_latest(self) -> None:
        written = self._written
        try:
            # Left behind at the end: nobody can wake a thread that waits for a disk.
            await trio.to_thread.run_sync(self._write, self._latest, abandon_on_cancel=True)
        except OSError as error:
            self.trouble.begin(error.strerror or str(error))
        else:
            self.trouble.end()
            written.set()

    def _write(self, memory: Memory) -> None:
        assert self._path is not None
        with self._one_at_a_time:
            memory.write(self._path)


def recall(path: Path | None) -> Memory:
    """What was kept; nothing, for a broker that begins. `StateError` says what is wrong with it."""
    if path is None:
        return Memory()
    try:
        data = _read(path)
    except FileNotFoundError:
        return Memory()
    try:
        kept = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path}: not JSON: {error}") from None
    try:
        return _memory(kept)
    except _UnexpectedError as error:
        raise StateError(f"{path}: {error}") from None


def _read(path: Path) -> bytes:
    # Not to wait for somebody who writes to a pipe.
    with (
        naming(path),
        os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file,
    ):
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StateError(f"{path}: a regular file expected, something else found")
        data = file.read(STATE_BYTES_MAX + 1)
    if len(data) > STATE_BYTES_MAX:
        raise StateError(f"{path}: at most {STATE_BYTES_MAX} bytes expected, more found")
    return data


class _UnexpectedError(Exception):
    """Something in the file is not what a broker writes there."""

    def __init__(self, where: str, expected: str, found: object) -> None:
        shown = repr(found)
        if len(shown) > FOUND_CHARS_MAX:
            shown = f"{shown[:FOUND_CHARS_MAX]}..."
        super().__init__(f"{where}: {expected} expected, {shown} found")


Expectation = Callable[[object], str]
"""Says what is expected if something else was found; nothing if it is as expected."""


def _whole_number(most: int, found: object) -> str:
    # Not isinstance: to Python, true is an integer.
    if type(found) is int and 0 <= found <= most:
        return ""
    return f"a whole number from 0 to {most}"


def _name(found: object) -> str:
    most = DEFAULT_LIMITS.name_chars_max
    is_name = isinstance(found, str) and 0 < len(found) <= most and found.isprintable()
    return "" if is_name else f"1 to {most} printable characters"


def _text(characters_max: int, found: object) -> str:
    if isinstance(found, str) and len(found) <= characters_max:
        return ""
    return f"at most {characters_max} characters"


def _truth(found: object) -> str:
    return "" if isinstance(found, bool) else "true or false"


def _list(found: object) -> str:
    return "" if isinstance(found, list) else "a list"


def _format(found: object) -> str:
    is_known = type(found) is int and found in (FORMAT, FORMER_FORMAT)
    return "" if is_known else f"format {FORMAT} or {FORMER_FORMAT}"


_FORMER_MEMORY: Final[Mapping[str, Expectation]] = {
    "format": _format,
    "incarnation": partial(_whole_number, INCARNATION_MAX),
}
_MEMORY: Final[Mapping[str, Expectation]] = {
    **_FORMER_MEMORY,
    "seats": _list,
    "hosts": _list,
    "failed": _list,
    "proven": _list,
}

# What others have told, so that it may be anything that is read from a connection.
_number: Final = partial(_whole_number, DEFAULT_LIMITS.number_max)
_word: Final = partial(_text, DEFAULT_LIMITS.name_chars_max)
_LIFE: Final[Mapping[str, Expectation]] = {"host": _name, "incarnation": _number}
_SEAT: Final[Mapping[str, Expectation]] = {
    **_LIFE,
    "broker": _name,
    "parent": _word,
    "term": _number,
    "is_vacant": _truth,
    "taker": _word,
    "left": _number,
}
_PLACE: Final[Mapping[str, Expectation]] = {
    **_LIFE,
    "address": partial(_text, DEFAULT_LIMITS.address_chars_max),
    "site": _word,
    "rank": _number,
}


def _fields(
    document: object, expectations: Mapping[str, Expectation], where: str
) -> dict[str, Any]:
    """Return the fields of an object, all of them there and as expected."""
    if not isinstance(document, dict):
        raise _UnexpectedError(where, "a JSON object", document)
    for name, expect in expectations.items():
        if name not in document:
            raise _UnexpectedError(where, f"a field {name!r}", list(document))
        if expected := expect(document[name]):
            raise _UnexpectedError(f"{name} of {where}", expected, document[name])
    return {name: document[name] for name in expectations}


def _memory(kept: object) -> Memory:
    former = _fields(kept, _FORMER_MEMORY, "what is kept")
    if former["format"] == FORMER_FORMAT:
        return Memory(former["incarnation"])
    fields = _fields(kept, _MEMORY, "what is kept")

    def each(name: str, expectations: Mapping[str, Expectation], what: str) -> list[dict[str, Any]]:
        return [
            _fields(item, expectations, f"{what} {number}")
            for number, item in enumerate(fields[name], start=1)
        ]

    seating = Seating(
        seats=tuple(Seat(**item) for item in each("seats", _SEAT, "seat")),
        hosts=tuple(HostPlace(**item) for item in each("hosts", _PLACE, "host")),
        failed=tuple(Life(**item) for item in each("failed", _LIFE, "failed life")),
        proven=tuple(Life(**item) for item in each("proven", _LIFE, "proven life")),
    )
    return Memory(fields["incarnation"], seating)
