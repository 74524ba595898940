"""Lines for whoever runs a node: machines read one form of them, people the other."""

import json
from datetime import datetime
from typing import Any

import pytest

from plait.broker.effects import Level
from plait.broker.net.logs import FIELD_CHARS_MAX, LINES_PER_SECOND_MAX, LogWriter, Trouble


class Paper:
    """Keeps lines, as long as it takes them."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self.text = ""
        self.is_full = False
        self._is_terminal = is_terminal

    def write(self, lines: str) -> bool:
        if not self.is_full:
            self.text += lines
        return not self.is_full

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the log writer, in a list of one."""
    now = [100.0]
    monkeypatch.setattr("plait.broker.net.logs.time.monotonic", lambda: now[0])
    return now


def lines_of(paper: Paper) -> list[dict[str, Any]]:
    return [json.loads(line) for line in paper.text.splitlines()]


def test_a_line_is_a_json_object_with_the_fields_of_its_event() -> None:
    paper = Paper()
    LogWriter("b1", paper)(Level.WARNING, "link lost", {"peer": "b2", "reason": "ü\n"})

    (line,) = lines_of(paper)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "warning",
        "node": "b1",
        "event": "link lost",
        "peer": "b2",
        "reason": "ü\n",
    }


def test_on_a_terminal_it_is_text_that_cannot_move_the_cursor() -> None:
    paper = Paper(is_terminal=True)
    LogWriter("b1", paper)(Level.INFO, "goodbye", {"peer": "b2", "reason": "\x1b[2J gone"})

    assert paper.text.endswith(' info    b1: goodbye  peer=b2  reason="\\u001b[2J gone"\n')
    assert "\x1b" not in paper.text


def test_what_is_below_the_level_is_left_out() -> None:
    paper = Paper()
    log = LogWriter("b1", paper, Level.WARNING)
    for level in Level:
        log(level, "event", {})

    assert [line["level"] for line in lines_of(paper)] == ["warning", "error"]


def test_a_flood_of_one_event_is_cut_off_and_counted(clock: list[float]) -> None:
    paper = Paper()
    log = LogWriter("b1", paper)
    for _ in range(LINES_PER_SECOND_MAX + 30):
        log(Level.WARNING, "connection refused", {})
    log(Level.INFO, "ready", {})
    clock[0] += 1
    log(Level.WARNING, "connection refused", {})
    log(Level.WARNING, "connection refused", {})

    lines = lines_of(paper)
    assert len(lines) == LINES_PER_SECOND_MAX + 3
    assert [line.get("left_out_before") for line in lines[-3:]] == [None, 30, None]


def test_what_a_stranger_wrote_is_cut() -> None:
    paper = Paper()
    LogWriter("b1", paper)(Level.INFO, "goodbye", {"reason": "x" * 100_000})

    [line] = lines_of(paper)
    assert line["reason"] == "x" * FIELD_CHARS_MAX + "..."


def test_lines_that_cannot_be_written_are_counted_and_told_of_when_one_can() -> None:
    paper = Paper()
    log = LogWriter("b1", paper)
    for is_full in (False, True, True, False, False, True):
        paper.is_full = is_full
        log(Level.INFO, "ready", {})

    assert [line.get("lost_before") for line in lines_of(paper)] == [None, 2, None]
    assert log.lost == 3


def test_trouble_is_told_when_it_begins_and_once_when_it_is_over() -> None:
    paper = Paper()
    trouble = Trouble("events", "x/events.log", LogWriter("b1", paper))
    trouble.end()
    trouble.begin("No space left on device")
    trouble.begin("No space left on device", lost=3)
    trouble.end()
    trouble.end()
    trouble.begin("Input/output error")

    told = [(line["level"], line["event"], line["file"]) for line in lines_of(paper)]
    assert told == [
        ("error", "events not written", "x/events.log"),
        ("warning", "events written again", "x/events.log"),
        ("error", "events not written", "x/events.log"),
    ]
    assert [line.get("lost") for line in lines_of(paper)] == [None, 4, None]
    assert trouble.lost == 5
