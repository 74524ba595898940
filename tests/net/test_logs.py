"""Lines for whoever runs a node: machines read one form of them, people the other."""

import io
import json
from datetime import datetime
from typing import Any

import pytest

from broker.effects import Level
from broker.net.logs import LINES_PER_SECOND_MAX, LogWriter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the log writer, in a list of one."""
    now = [100.0]
    monkeypatch.setattr("broker.net.logs.time.monotonic", lambda: now[0])
    return now


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_a_json_object_with_the_fields_of_its_event() -> None:
    stream = io.StringIO()
    LogWriter("b1", stream)(Level.WARNING, "link lost", {"peer": "b2", "reason": "ü\n"})

    (line,) = lines_of(stream)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "warning",
        "node": "b1",
        "event": "link lost",
        "peer": "b2",
        "reason": "ü\n",
    }


def test_on_a_terminal_it_is_text_that_cannot_move_the_cursor() -> None:
    stream = Terminal()
    LogWriter("b1", stream)(Level.INFO, "goodbye", {"peer": "b2", "reason": "\x1b[2J gone"})

    assert stream.getvalue().endswith(' info    b1: goodbye  peer=b2  reason="\\u001b[2J gone"\n')
    assert "\x1b" not in stream.getvalue()


def test_what_is_below_the_level_is_left_out() -> None:
    stream = io.StringIO()
    log = LogWriter("b1", stream, Level.WARNING)
    for level in Level:
        log(level, "event", {})

    assert [line["level"] for line in lines_of(stream)] == ["warning", "error"]


def test_a_flood_of_one_event_is_cut_off_and_counted(clock: list[float]) -> None:
    stream = io.StringIO()
    log = LogWriter("b1", stream)
    for _ in range(LINES_PER_SECOND_MAX + 30):
        log(Level.WARNING, "connection refused", {})
    log(Level.INFO, "ready", {})
    clock[0] += 1
    log(Level.WARNING, "connection refused", {})
    log(Level.WARNING, "connection refused", {})

    lines = lines_of(stream)
    assert len(lines) == LINES_PER_SECOND_MAX + 3
    assert [line.get("left_out_before") for line in lines[-3:]] == [None, 30, None]
