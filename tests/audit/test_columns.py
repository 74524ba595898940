"""Who reads columns reads what who reads records reads."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.faulttol import history
from plait.faulttol.audit import columns
from plait.faulttol.audit.columns import FREQUENT, read_lines
from plait.faulttol.audit.cycles import on_cycles
from plait.faulttol.audit.errors import UnsuitableHistoryError
from plait.faulttol.audit.evidence import times_of
from plait.faulttol.errors import HistoryError
from plait.faulttol.history import HISTORY_FOLDER, Record, decode_record, is_complete, read_run

DELIVERED = (
    '{"run":"run","node":"s","incarnation":1,"n":1,"at":2.5,"kind":"delivered","subscriber":"s",'
    '"publisher":"p","publisher_incarnation":4,"seq":1,"position":1,"subscriptions":["s/1"],"crc":7}'
)
STAMPED = DELIVERED.replace(
    '"crc":7', '"crc":7,"in_order":false,"stamp":{"number":3,"behind":{"a":1,"b":2}}'
)
PUBLISHED = (
    '{"run":"run","node":"p","incarnation":1,"n":1,"at":1,"kind":"published","publisher":"p",'
    '"publisher_incarnation":4,"seq":1,"content":{"a":1,"b":"x","c":true,"d":-2.5e-3},"ordered":true,"crc":7}'
)


def read_as_columns(path: Path) -> list[Record]:
    """Put columns together again as records, each with the line that it is from."""
    lines = read_lines([path], "run")
    things, lists = lines.names.things, lines.lists.things
    found = [(line, record) for _, line, record in lines.records]
    for kind in FREQUENT:
        by_field = lines.columns[kind]
        for place, line in enumerate(by_field["line"].tolist()):
            record: dict[str, Any] = {"run": "run", "kind": kind}
            for field, column in by_field.items():
                if field in ("file", "line"):
                    continue
                value = column[place].item()
                if field in ("node", "publisher", "subscriber"):
                    value = things[value]
                elif field == "content":
                    value = json.loads(things[value])
                elif field == "subscriptions":
                    value = list(lists[value])
                record[field] = value
            found.append((line, record))
    return [record for _, record in sorted(found, key=lambda numbered: numbered[0])]


def is_of_an_older_format(line: bytes) -> bool:
    try:
        return not is_complete(decode_record(line))
    except HistoryError:
        return False


def assert_same(folder: Path, text: bytes) -> None:
    path = folder / HISTORY_FOLDER / "s-1.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    of_run = read_run(folder)
    problems = [problem for problem in of_run.problems if problem.file != "manifest.json"]
    try:
        lines = read_lines([path], "run")
    except UnsuitableHistoryError:
        assert (
            any(record["run"] != "run" for record in of_run.records)
            or b"99999999" in text
            or any(map(is_of_an_older_format, text.split(b"\n")))
        )
        return

    for record in of_run.records:
        record.pop("new", None)  # columns have the fields that are known
        record.pop("stamp", None)  # and of those what the audit judges
        if record["kind"] == "delivered" and record.get("in_order") is None:
            record["in_order"] = True

    assert read_as_columns(path) == of_run.records
    assert sorted(map(str, lines.problems)) == sorted(map(str, problems))
    assert [one.is_tolerated for one in lines.problems] == [one.is_tolerated for one in problems]


@pytest.mark.parametrize(
    "line",
    [
        DELIVERED,
        PUBLISHED,
        STAMPED,
        STAMPED.replace('{"a":1,"b":2}', "{}"),
        STAMPED.replace('{"a":1,"b":2}', "[]"),
        STAMPED.replace('{"number":3,"behind":{"a":1,"b":2}}', "null"),
        STAMPED.replace('"in_order":false', '"in_order":null'),
        STAMPED.replace('"in_order":false,', ""),
        STAMPED.replace('"in_order":false', '"in_order":1'),
        DELIVERED.replace('["s/1"]', "[]"),
        DELIVERED.replace('["s/1"]', '["s/1","s/2"]'),
        DELIVERED.replace('["s/1"]', '["s/1",null]'),
        DELIVERED.replace(":", " : "),
        DELIVERED.replace('"s"', '"s\\u0041"'),
        DELIVERED.replace('"s"', '"ü"'),
        DELIVERED.replace('"crc":7', '"crc":7.0'),
        DELIVERED.replace('"crc":7', '"crc":true'),
        DELIVERED.replace('"crc":7', '"crc":07'),
        DELIVERED.replace('"crc":7', '"crc":-7'),
        DELIVERED.replace('"crc":7', '"crc":99999999999999999999'),
        DELIVERED.replace('"crc":7', '"crc":7,"crc":8'),
        DELIVERED.replace('"crc":7', '"new":[{}],"crc":7'),
        DELIVERED.replace('"publisher_incarnation":4,', ""),
        PUBLISHED.replace('"publisher_incarnation":4,', ""),
        DELIVERED.replace("2.5", "1e5"),
        DELIVERED.replace("2.5", "NaN"),
        DELIVERED.replace('"run":"run"', '"run":"other"'),
        DELIVERED + DELIVERED,
        DELIVERED + " ",
        DELIVERED[:-1],
        PUBLISHED.replace('{"a":1', '{"kind":"delivered","a":1'),
        PUBLISHED.replace('{"a":1', '{"a":{}'),
        PUBLISHED.replace('{"a":1', '{"a":null'),
        PUBLISHED.replace('{"a":1', '{"a":1,"a":2'),
        "",
        "a,b",
        "[]",
    ],
)
def test_a_line_is_read_the_same(tmp_path: Path, line: str) -> None:
    text = line.encode()

    assert_same(tmp_path, text + b"\n")
    assert_same(tmp_path, text)
    assert_same(tmp_path, f"{DELIVERED}\n{line}\n{PUBLISHED}\n".encode())
    assert_same(tmp_path, b"\n" + text)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_bytes_that_fell_over_are_read_the_same(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]
) -> None:
    text = bytearray(f"{DELIVERED}\n{PUBLISHED}\n", "utf-8")
    for place, byte in damage:
        text[place % len(text)] = byte

    assert_same(tmp_path_factory.getbasetemp(), bytes(text))


def test_a_file_of_many_blocks_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{DELIVERED}\n{PUBLISHED}\n\n".encode() * 20 + b'{"torn'
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(columns, "_BLOCK_BYTES", size)

        assert_same(tmp_path, text)


def test_a_line_that_is_too_long_is_damage_however_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = DELIVERED.replace('"s/1"', f'"{"s" * 400}"')
    joined = longer.replace("ssss", "", 1)  # what a reader would see that lost a part of it
    for line_max in (len(DELIVERED), len(longer) - 1, len(longer)):
        monkeypatch.setattr(columns, "LINE_BYTES_MAX", line_max)
        monkeypatch.setattr(history, "LINE_BYTES_MAX", line_max)
        for size in (1, 7, 100, 1000):
            monkeypatch.setattr(columns, "_BLOCK_BYTES", size)
            for line in (longer, joined, "x" * 5000, longer * 10):
                assert_same(tmp_path, f"{DELIVERED}\n{line}\n{DELIVERED}\n{line}".encode())


def test_no_more_of_an_endless_line_is_kept_than_shows_that_it_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(columns, "_BLOCK_BYTES", 1000)
    path = tmp_path / "s-1.jsonl"
    path.write_text("x" * 100_000 + f"\n{DELIVERED}\n")

    assert max(len(data) for _, data in columns._pieces(path)) <= 2 * 1000 + 101


def test_lines_that_nobody_asked_for_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    path.write_text(f"{DELIVERED}\n{PUBLISHED}\n{PUBLISHED.replace(':', ': ')}\n")

    assert set(read_lines([path], "run", kinds=["published"]).columns) == {"published"}
    assert len(read_lines([path], "run", kinds=["published"]).columns["published"]["n"]) == 2


@given(st.lists(st.permutations(range(6)).map(lambda order: order[:4]), max_size=5), st.data())
def test_whatever_is_guessed_all_that_lies_on_a_cycle_is_found(
    orders: list[list[int]], data: st.DataObject
) -> None:
    places = np.array(data.draw(st.permutations(range(6))))
    links = [link for order in orders for link in pairwise(order)]
    after = {node: {target for source, target in links if source == node} for node in range(6)}
    for _ in range(6):
        for node in range(6):
            after[node] |= set().union(*(after[target] for target in after[node]))
    sources = np.array([source for source, _ in links], np.int64)
    targets = np.array([target for _, target in links], np.int64)
    found = set(on_cycles(sources, targets, places).tolist())

    assert found >= {node for node in range(6) if node in after[node]}
    assert found or not any(node in after[node] for node in range(6))
    assert not found or any(node in after[node] for node in range(6))


@given(st.lists(st.floats(1e-5, 1e5), min_size=1), st.floats(0, 1))
def test_a_quantile_is_right_to_within_six_percent(seconds: list[float], share: float) -> None:
    times = times_of(np.array(seconds))
    exact = sorted(seconds)[max(int(np.ceil(share * len(seconds))) - 1, 0)]

    assert times.total == len(seconds)
    assert times.longest == max(seconds)
    assert abs(times.quantile(share) / exact - 1) < 0.06
