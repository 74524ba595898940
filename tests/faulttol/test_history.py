"""What is written can be read, by us and by anybody's JSON parser, whatever a crash left behind."""

import json
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.faulttol.errors import HistoryError
from plait.faulttol.guarantees import check_run
from plait.faulttol.history import (
    FORMAT_VERSION,
    HEADER,
    KINDS,
    LINE_BYTES_MAX,
    NEVER_PUBLISHED,
    ORDERINGS,
    Field,
    History,
    HistoryWriter,
    Manifest,
    MemoryHistory,
    Problem,
    Record,
    file_name,
    place_of,
    publication_of,
    read_manifest,
    read_run,
    run_directories,
    write_manifest,
    write_run,
)

MANIFEST = Manifest(
    run="r1",
    topology={"links": [["b1", "b2"]]},
    ordering="pairwise",
    delta=1,
    seed=7,
    started=0.0,
    ended=12.5,
    simulated=True,
)

P1: Record = {"publisher": "p", "publisher_incarnation": 1, "seq": 1}


def write_some(history: History) -> None:
    history.write(0.5, "advertised", client="ä", advertisement="ä/1", filter="price > 0")
    history.write(
        1.0,
        "published",
        publisher="ä",
        publisher_incarnation=1,
        seq=1,
        content={"symbol": "IBM", "price": 1.0, "volume": 10, "hot": True},
        ordered=True,
        crc=0,
    )
    history.write(2.0, "confirmed", publisher="ä", publisher_incarnation=1, seq=1)


def history_file(directory: Path, name: str = "ä-1.jsonl") -> Path:
    return directory / "history" / name


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the directory of a sound run with one file of three lines."""
    write_manifest(tmp_path, MANIFEST)
    with HistoryWriter(tmp_path, "r1", "ä", 1) as history:
        write_some(history)
    return tmp_path


def example_of(field: Field) -> Any:
    if field.name == "content":
        return {"price": 1.5}
    if field.name == "where":
        return {"A": "price > 1"}
    if field.name == "match":
        return [["p1", 1, 3]]
    examples = {
        str: "ö",
        int: 3,
        bool: True,
        list: ["a", "b"],
        float: 0.25,
        dict: {"number": 3, "behind": {"news": 2}},
    }
    return examples[field.types[0]]


# Writing


class TestBothKindsOfHistory:
    @pytest.fixture(params=["in memory", "on disk"])
    def history(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
        history: History = (
            MemoryHistory("r1", "ä", 1)
            if request.param == "in memory"
            else HistoryWriter(tmp_path, "r1", "ä", 1)
        )
        yield history
        history.flush()
        history.close()

    def test_unknown_kind_is_refused(self, history: History) -> None:
        with pytest.raises(HistoryError, match="'danced' is no kind of record"):
            history.write(0.0, "danced")

    def test_missing_field_is_refused(self, history: History) -> None:
        expected = "fields publisher, publisher_incarnation, seq expected, publisher, seq found"
        with pytest.raises(HistoryError, match=expected):
            history.write(0.0, "confirmed", publisher="p", seq=1)

    def test_unknown_field_is_refused(self, history: History) -> None:
        with pytest.raises(
            HistoryError, match="expected, publisher, publisher_incarnation, seq, colour found"
        ):
            history.write(0.0, "confirmed", **P1, colour="blue")

    @pytest.mark.parametrize("who", [{}, {"subscriber": "s"}, {"subscriber": None}])
    def test_skipped_is_for_one_subscriber_or_for_all(
        self, history: History, who: dict[str, Any]
    ) -> None:
        history.write(0.0, "skipped", **P1, reason="too late", **who)


def test_refused_record_leaves_no_gap() -> None:
    history = MemoryHistory("r1", "p", 1)
    history.write(0.0, "confirmed", **P1)
    with pytest.raises(HistoryError):
        history.write(0.0, "confirmed")
    history.write(0.0, "confirmed", **P1)

    assert [record["n"] for record in history.records] == [1, 2]


def test_record_that_json_cannot_hold_leaves_no_gap(tmp_path: Path) -> None:
    fields = {**P1, "ordered": True, "crc": 0}
    with HistoryWriter(tmp_path, "r1", "p", 1) as history:
        for unfit in (float("inf"), float("nan"), b"bytes", "\ud800"):
            with pytest.raises(HistoryError, match="published: cannot be written as JSON"):
                history.write(0.0, "published", content={"price": unfit}, **fields)
        history.write(0.0, "published", content={"price": 1}, **fields)

    [record] = read_run(tmp_path).records
    assert record["n"] == 1


def test_nodes_of_a_run_may_share_one_list() -> None:
    records: list[Record] = []
    one, other = (MemoryHistory("r1", node, 1, records) for node in ("b1", "b2"))
    for history in (one, other, one):
        history.write(0.0, "crashed", about="b3")

    assert [(record["node"], record["n"]) for record in records] == [
        ("b1", 1),
        ("b2", 1),
        ("b1", 2),
    ]


def test_incarnation_is_written_only_once(run: Path) -> None:
    with pytest.raises(FileExistsError):
        HistoryWriter(run, "r1", "ä", 1)


def test_what_is_flushed_can_be_read(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path, "r1", "ä", 1) as history:
        write_some(history)
        history.flush()

        assert len(read_run(tmp_path).records) == 3


def test_what_is_not_flushed_may_be_lost_from_the_end(run: Path) -> None:
    with HistoryWriter(run, "r1", "b1", 1) as history:
        for _ in range(1000):
            write_some(history)
        so_far = history_file(run, "b1-1.jsonl").read_bytes()
    whole = history_file(run, "b1-1.jsonl").read_bytes()

    assert 0 < len(so_far) < len(whole)
    assert whole.startswith(so_far)


class TinyDisk:
    """A limit on the size of a file, which stands in for a disk that is full."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, room: int = 0) -> None:
        size = self._file.stat().st_size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._before[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[TinyDisk]:
    write_manifest(tmp_path, MANIFEST)
    disk = TinyDisk(history_file(tmp_path, "b1-1.jsonl"))
    yield disk
    disk.free()


def crash(history: HistoryWriter, times: int = 1) -> None:
    for _ in range(times):
        history.write(0.0, "crashed", about="b3")
    history.flush()


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, disk: TinyDisk) -> None:
    with HistoryWriter(tmp_path, "r1", "b1", 1) as history:
        crash(history)
        disk.fill(room=10)
        with pytest.raises(OSError, match="File too large") as caught:
            crash(history)

        assert caught.value.filename == str(tmp_path / "history" / "b1-1.jsonl")
        assert [record["n"] for record in read_run(tmp_path).records] == [1]
        disk.free()
        crash(history)
    assert [record["n"] for record in read_run(tmp_path).records] == [1, 2, 3]
    assert not check_run(read_run(tmp_path)).violations


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(("before", "room"), [(1, 0), (2, 0), (2, 10), (8, 0), (9, 10)])
def test_a_history_from_which_records_are_missing_says_so(
    tmp_path: Path, disk: TinyDisk, before: int, room: int, more: int
) -> None:
    """Whether or not anything can be written again before the end, and even after a kill."""
    with HistoryWriter(tmp_path, "r1", "b1", 1) as history:
        crash(history, before)
        disk.fill(room)
        for lost in (1, 3):
            with pytest.raises(OSError, match="File too large"):
                crash(history, lost)
            assert history.give_up_pending() == lost
        disk.free()
        if more:
            crash(history, more)

    run = read_run(tmp_path)
    assert len(run.records) == before + more
    assert not run.problems
    assert {violation.guarantee for violation in check_run(run).violations} == {"record"}


def test_not_even_room_for_one_digit_leaves_whole_lines(tmp_path: Path, disk: TinyDisk) -> None:
    with HistoryWriter(tmp_path, "r1", "b1", 1) as history:
        crash(history, 9)
        disk.fill()
        with pytest.raises(OSError, match="File too large"):
            crash(history)
        assert history.give_up_pending() == 2
        disk.free()
        crash(history)

    assert [record["n"] for record in read_run(tmp_path).records] == [*range(1, 9), 11]


def test_a_history_that_lost_nothing_does_not_say_so(tmp_path: Path, disk: TinyDisk) -> None:
    with HistoryWriter(tmp_path, "r1", "b1", 1) as history:
        crash(history, 2)
        assert history.give_up_pending() == 0

    assert not check_run(read_run(tmp_path)).violations


# Reading


def test_any_json_parser_reads_a_history(run: Path) -> None:
    lines = history_file(run).read_text(encoding="utf-8").split("\n")

    assert lines[2] == (
        '{"run":"r1","node":"ä","incarnation":1,"n":3,"at":2.0,"kind":"confirmed",'
        '"publisher":"ä","publisher_incarnation":1,"seq":1}'
    )
    assert lines[3:] == [""]
    assert [json.loads(line)["n"] for line in lines[:3]] == [1, 2, 3]


def test_memory_and_disk_hold_the_same(run: Path) -> None:
    memory = MemoryHistory("r1", "ä", 1)
    write_some(memory)
    history = read_run(run)

    assert history.manifest == MANIFEST
    assert history.records == memory.records
    assert history.problems == ()
    types = [type(value) for value in history.records[1]["content"].values()]
    assert types == [str, float, int, bool]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    fields = {field.name: example_of(field) for field in KINDS[kind]}
    write_manifest(tmp_path, MANIFEST)
    with HistoryWriter(tmp_path, "r1", "n1", 4) as history:
        history.write(1.5, kind, **fields)
    read = read_run(tmp_path)

    header = {"run": "r1", "node": "n1", "incarnation": 4, "n": 1, "at": 1.5, "kind": kind}
    assert read.records == [{**header, **fields}]
    assert read.problems == ()


@pytest.mark.parametrize("who", [{}, {"subscriber": None}])
def test_skipped_without_a_subscriber_is_sound(who: Record, tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    with HistoryWriter(tmp_path, "r1", "b1", 1) as history:
        history.write(0.0, "skipped", **P1, reason="too late", **who)

    assert read_run(tmp_path).problems == ()


def test_run_can_be_written_at_once(run: Path, tmp_path: Path) -> None:
    records: list[Record] = []
    for node, incarnation in (("b/1", 1), ("b/1", 2), ("s", 1)):
        write_some(MemoryHistory("r1", node, incarnation, records))
    copy = tmp_path / "copy"
    write_run(copy, MANIFEST, records)
    read = read_run(copy)

    assert (read.manifest, read.records, read.problems) == (MANIFEST, records, ())


def test_files_come_by_node_and_incarnation(tmp_path: Path) -> None:
    for node, incarnation in (("s", 10), ("b", 1), ("s", 9), ("s", 2)):
        with HistoryWriter(tmp_path, "r1", node, incarnation) as history:
            history.write(0.0, "stopped", about=node)

    order = [(record["node"], record["incarnation"]) for record in read_run(tmp_path).records]
    assert order == [("b", 1), ("s", 2), ("s", 9), ("s", 10)]


def test_what_later_versions_add_is_left_alone(run: Path) -> None:
    header = {"run": "r1", "node": "ä", "incarnation": 1, "at": 3.0}
    added = [
        {**header, "n": 4, "kind": "confirmed", **P1, "colour": "blue"},
        {**header, "n": 5, "kind": "danced"},
    ]
    with history_file(run).open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in added)
    history = read_run(run)

    assert history.problems == ()
    assert history.records[3:] == added


# What crashes and accidents leave behind


def test_torn_last_line_is_left_out_and_mentioned(run: Path) -> None:
    """At every byte at which a crash can tear it."""
    whole = history_file(run).read_bytes()
    records = read_run(run).records
    start_of_last = whole.rindex(b"\n", 0, -1) + 1
    torn = Problem("history/ä-1.jsonl", 3, "torn last line, left out", is_tolerated=True)
    for end in range(start_of_last + 1, len(whole) - 1):
        history_file(run).write_bytes(whole[:end])
        history = read_run(run)

        assert history.records == records[:2]
        assert history.problems == (torn,)


def test_last_line_without_its_end_is_whole(run: Path) -> None:
    whole = history_file(run).read_bytes()
    records = read_run(run).records
    history_file(run).write_bytes(whole[:-1])

    assert read_run(run).records == records
    assert read_run(run).problems == ()


def test_file_without_lines_is_sound(run: Path) -> None:
    history_file(run).write_bytes(b"")

    assert read_run(run).records == []
    assert read_run(run).problems == ()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"run":"r1",', "not JSON: "),
        (b"", "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b'{"at": NaN}', "not JSON: NaN is no JSON number"),
        (b"[]", "a JSON object expected, list found"),
        (b'{"run":"r\xff"}', "not UTF-8 at byte 9"),
        (b"{}", "field 'run' is missing"),
        (b" " * (LINE_BYTES_MAX + 1), "at most 16777216 bytes to a line expected, more found"),
    ],
)
def test_unreadable_line_is_a_problem(run: Path, line: bytes, text: str) -> None:
    lines = history_file(run).read_bytes().split(b"\n")
    records = read_run(run).records
    history_file(run).write_bytes(b"\n".join([lines[0], line, *lines[2:]]))
    history = read_run(run)
    [problem] = history.problems

    assert history.records == [records[0], records[2]]
    assert (problem.file, problem.line) == ("history/ä-1.jsonl", 2)
    assert problem.text.startswith(text)
    assert not problem.is_tolerated
    assert str(problem).startswith("history/ä-1.jsonl:2: ")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"n": "2"}, "n: int expected, str found"),
        ({"n": True}, "n: int expected, bool found"),
        ({"at": None}, "at: int or float expected, NoneType found"),
        ({"ordered": 1}, "ordered: bool expected, int found"),
        ({"content": []}, "content: dict expected, list found"),
        ({"content": {"price": [1]}}, "in content: str or int or float or bool expected, list"),
        ({"kind": "delivered"}, "field 'subscriber' is missing"),
    ],
)
def test_field_of_another_type_is_a_problem(run: Path, fields: Record, text: str) -> None:
    lines = history_file(run).read_bytes().split(b"\n")
    lines[1] = json.dumps(json.loads(lines[1]) | fields).encode()
    history_file(run).write_bytes(b"\n".join(lines))
    [problem] = read_run(run).problems

    assert problem.line == 2
    assert problem.text.startswith(text)


def test_no_damage_makes_reading_fail(run: Path) -> None:
    whole = history_file(run).read_bytes()
    for index in range(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 1 << index % 8
        history_file(run).write_bytes(damaged)

        assert len(read_run(run).records) <= 3


# Older files


def write_older(directory: Path, *records: tuple[str, int, Record]) -> None:
    """Write what format 1 had: each record with its node and incarnation."""
    write_manifest(directory, attrs.evolve(MANIFEST, format=1))
    n = Counter[tuple[str, int]]()
    folder = directory / "history"
    folder.mkdir()
    for node, incarnation, fields in records:
        n[node, incarnation] += 1
        header = {"run": "r1", "node": node, "incarnation": incarnation, "at": 1.0}
        record = {**header, "n": n[node, incarnation], **fields}
        with (folder / file_name(node, incarnation)).open("a") as file:
            file.write(json.dumps(record) + "\n")


def older(kind: str, publisher: str, seq: int = 1) -> Record:
    """Make a record as format 1 had it."""
    fields = {field.name: example_of(field) for field in KINDS[kind]}
    del fields["publisher_incarnation"]
    return {"kind": kind, **fields, "publisher": publisher, "seq": seq}


ABOUT_PUBLICATIONS = ("published", "confirmed", "delivered", "skipped")


def test_older_records_are_about_the_only_life_of_their_publisher(tmp_path: Path) -> None:
    of_p = [("p", 7, older(kind, "p")) for kind in ("published", "confirmed", "skipped")]
    write_older(tmp_path, *of_p, ("s", 3, older("delivered", "p")), ("b", 1, older("skipped", "p")))
    history = read_run(tmp_path)

    assert history.problems == ()
    assert history.manifest is not None
    assert history.manifest.format == 1
    assert {publication_of(record) for record in history.records} == {("p", 7, 1)}


@pytest.mark.parametrize("kind", ["delivered", "skipped"])
def test_older_record_that_may_be_about_two_lives_is_a_problem(kind: str, tmp_path: Path) -> None:
    lives = [("p", life, older("published", "p")) for life in (1, 2)]
    write_older(tmp_path, *lives, ("s", 3, older(kind, "p")))
    history = read_run(tmp_path)
    [problem] = history.problems

    assert [publication_of(record) for record in history.records] == [("p", 1, 1), ("p", 2, 1)]
    assert str(problem) == (
        f"history/s-3.jsonl:1: {kind}: 'publisher_incarnation' is missing, "
        "and p published in the incarnations 1, 2"
    )
    assert not problem.is_tolerated


def test_older_record_about_what_nobody_published_is_read(tmp_path: Path) -> None:
    write_older(tmp_path, ("s", 3, older("delivered", "p")))
    history = read_run(tmp_path)

    assert history.problems == ()
    assert [publication_of(record) for record in history.records] == [("p", NEVER_PUBLISHED, 1)]


def test_older_and_newer_files_may_stand_beside_each_other(tmp_path: Path) -> None:
    newer = {**older("delivered", "p"), "publisher_incarnation": 7}
    write_older(
        tmp_path,
        ("p", 7, older("published", "p")),
        ("s", 1, newer),
        ("t", 1, older("delivered", "p")),
    )
    history = read_run(tmp_path)

    assert history.problems == ()
    assert {publication_of(record) for record in history.records} == {("p", 7, 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_about_publications_says_of_which_life(kind: str) -> None:
    names = [field.name for field in KINDS[kind]]

    assert ("publisher_incarnation" in names) == (kind in ABOUT_PUBLICATIONS)


# The manifest


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_manifest_is_read_as_it_was_written(ordering: str, tmp_path: Path) -> None:
    manifest = attrs.evolve(MANIFEST, ordering=ordering, seed=None, ended=None, topology=None)
    write_manifest(tmp_path, MANIFEST)
    write_manifest(tmp_path, manifest)

    assert read_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_manifest_of_an_unknown_ordering_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="'ordering' must be in"):
        attrs.evolve(MANIFEST, ordering="alphabetical")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format": FORMAT_VERSION + 1}, "format version 1 or 2 expected, 3 found"),
        ({"format": None}, "format version 1 or 2 expected, None found"),
        ({"ordering": "alphabetical"}, "ordering: one of none, fifo, "),
        ({"delta": "1"}, "delta: int expected, str found"),
    ],
)
def test_manifest_with_something_wrong_is_a_problem(run: Path, changes: Record, text: str) -> None:
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
    history = read_run(run)
    [problem] = history.problems

    assert history.manifest is None
    assert len(history.records) == 3
    assert (problem.file, problem.line) == ("manifest.json", None)
    assert problem.text.startswith(text)


def test_manifest_may_say_more(run: Path) -> None:
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"colour": "blue"}))

    assert read_manifest(run) == MANIFEST


def test_missing_manifest_is_a_problem(run: Path) -> None:
    (run / "manifest.json").unlink()
    history = read_run(run)

    assert history.manifest is None
    assert history.problems == (Problem("manifest.json", None, "the manifest is missing"),)
    assert str(history.problems[0]) == "manifest.json: the manifest is missing"


def test_records_of_another_run_are_a_problem(run: Path) -> None:
    write_manifest(run, attrs.evolve(MANIFEST, run="r2"))
    [problem] = read_run(run).problems

    assert problem.text == "this is run 'r2', but there are records of run 'r1'"


# Names and places


@given(st.text(), st.integers(1, 20))
def test_file_name_is_fit_for_files_and_says_which_node(node: str, incarnation: int) -> None:
    name = file_name(node, incarnation)
    stem, _, number = name.removesuffix(".jsonl").rpartition("-")

    assert not set(name) & set('/\\:*?"<>|\0\n')
    assert not name.startswith(".")
    assert (unquote(stem, errors="surrogatepass"), int(number)) == (node, incarnation)


@pytest.mark.parametrize("node", ["b/1", "..", "", "%2F", "-", "a-1", "ärger", "数", ". ."])
def test_any_name_can_be_written(node: str, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path, "r1", node, 1) as history:
        history.write(0.0, "stopped", about=node)

    [record] = read_run(tmp_path).records
    assert record["node"] == node
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


def test_place_of_a_record_is_its_line() -> None:
    history = MemoryHistory("r1", "b/1", 2)
    history.write(0.0, "stopped", about="b")

    assert place_of(history.records[0]) == "history/b%2F1-2.jsonl:1"


def test_runs_are_found_below_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("b", "a/2", "a/1", "c"):
        write_manifest(tmp_path / name, MANIFEST)
    with HistoryWriter(tmp_path / "no manifest", "r1", "p", 1):
        pass
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "latest").symlink_to(tmp_path / "c")

    expected = [tmp_path / name for name in ("a/1", "a/2", "b", "c", "no manifest")]
    assert run_directories(tmp_path) == expected
    assert run_directories(tmp_path / "b") == [tmp_path / "b"]
    assert run_directories(tmp_path / "empty") == []


def test_names_of_fields_are_unambiguous() -> None:
    header = {field.name for field in HEADER}
    for fields in KINDS.values():
        names = [field.name for field in fields]

        assert len(set(names)) == len(names)
        assert header.isdisjoint(names)
