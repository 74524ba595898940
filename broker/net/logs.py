"""Structured log lines: one JSON object each, or text where a person watches a terminal."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TextIO

import attrs

from broker.effects import Level

LINES_PER_SECOND_MAX: Final = 20
"""Of one event. Strangers decide how often some things happen, not how fast the disk fills."""

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


@attrs.define
class LogWriter:
    """Writes the lines of one node from a level on."""

    node: str
    stream: TextIO
    level: Level = Level.INFO
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
        line = _text if self.stream.isatty() else _json
        self.stream.write(line(level, self.node, event, fields) + "\n")
        self.stream.flush()


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
