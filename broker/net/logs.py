"""Structured log lines: one JSON object each, or text where a person watches a terminal."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import attrs

from plait.broker.effects import Level

LINES_PER_SECOND_MAX: Final = 20
"""Of one event. Strangers decide how often some things happen, not how fast the disk fills."""

FIELD_CHARS_MAX: Final = 1000
"""Of one field of a line: strangers decide what is in a reason."""

_LEVELS: Final = tuple(Level)


class Log(Protocol):
    """Takes lines; who writes them where is not the caller's business."""

    def __call__(self, level: Level, event: str, fields: Mapping[str, Any]) -> None:
        """Write one line about one event."""


def no_log(level: Level, event: str, fields: Mapping[str, Any]) -> None:
    """Write nothing."""


@attrs.define
class _Burst:
    """How often an event has happened in a second."""

    second: int
    count: int = 0
    left_out: int = 0


class Lines(Protocol):
    """Takes lines, such as an `Outlet`."""

    def write(self, lines: str, /) -> bool:
        """Take lines; whether they were taken."""

    def isatty(self) -> bool:
        """Whether a person watches."""


@attrs.define
class LogWriter:
    """Writes the lines of one node from a level on; those that cannot be written are counted."""

    node: str
    lines: Lines
    level: Level = Level.INFO
    lost: int = attrs.field(default=0, init=False)
    """Lines that could not be written, in all."""
    _lost_lately: int = attrs.field(default=0, init=False)
    """Since the last one that could."""
    _bursts: dict[str, _Burst] = attrs.field(factory=dict, init=False)

    def __call__(self, level: Level, event: str, fields: Mapping[str, Any]) -> None:
        """Write one line, unless the level is too low or the event has become a flood."""
        if _LEVELS.index(level) < _LEVELS.index(self.level):
            return
        burst = self._bursts.setdefault(event, _Burst(0))
        second = int(time.monotonic())
        if second == burst.second and burst.count >= LINES_PER_SECOND_MAX:
            burst.left_out += 1
            return
        if second != burst.second:
            burst.second, burst.count = second, 0
        burst.count += 1
        if burst.left_out:
            fields = {**fields, "left_out_before": burst.left_out}
            burst.left_out = 0
        if self._lost_lately:
            fields = {**fields, "lost_before": self._lost_lately}
        line = _text if self.lines.isatty() else _json
        fields = {name: _short(value) for name, value in fields.items()}
        if self.lines.write(line(level, self.node, event, fields) + "\n"):
            self._lost_lately = 0
        else:
            self._lost_lately += 1
            self.lost += 1


@attrs.define
class Trouble:
    """Tells the log when something outside begins to fail, and once when it works again."""

    what: str
    file: str
    log: Log
    lost: int = attrs.field(default=0, init=False)
    """What could not be written, in all."""
    is_on: bool = attrs.field(default=False, init=False)
    _lost_lately: int = attrs.field(default=0, init=False)

    def begin(self, reason: str, *, lost: int = 1) -> None:
        """Something could not be written."""
        self.lost += lost
        self._lost_lately += lost
        if not self.is_on:
            self.is_on = True
            self.log(Level.ERROR, f"{self.what} not written", {"file": self.file, "reason": reason})

    def end(self) -> None:
        """Something could."""
        if self.is_on:
            fields = {"file": self.file, "lost": self._lost_lately}
            self.is_on, self._lost_lately = False, 0
            self.log(Level.WARNING, f"{self.what} written again", fields)


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > FIELD_CHARS_MAX:
        return f"{value[:FIELD_CHARS_MAX]}..."
    return value


def _json(level: Level, node: str, event: str, fields: Mapping[str, Any]) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    record = {"time": now, "level": level, "node": node, "event": event, **fields}
    return json.dumps(record, ensure_ascii=False, default=str)


def _text(level: Level, node: str, event: str, fields: Mapping[str, Any]) -> str:
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    words = [f"{name}={_printable(value)}" for name, value in fields.items()]
    return "  ".join([f"{now} {level:7} {node}: {event}", *words])


def _printable(value: Any) -> str:
    """Quote what could be mistaken for something else, or move the cursor."""
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text, ensure_ascii=True)
