"""Step logs over a connection: what is told arrives, in few bytes, and nothing else does harm."""

import contextlib
import tracemalloc
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.broker import log_codec
from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.log_codec import LogReader, LogWriter, decode_logs, encode_logs
from plait.faulttol.steplog import (
    BROKER,
    CLIENT,
    NOBODY,
    UNCHANGED,
    Entry,
    Interest,
    LogPart,
    Membership,
    Standing,
    StepLog,
    Taken,
    TopicStanding,
)
from plait.routing.ids import NodeId, OperationId
from plait.routing.topics.protocol import Topic

ALICE, BOB, ROOT = NodeId("alice"), NodeId("bob"), NodeId("root")
BATCH = Taken.BATCH

nodes = st.sampled_from([*map(NodeId, ("a", "b", "c", "höhe-7", "x" * 255))])
numbers = st.integers(0, 300) | st.sampled_from([2**31, 2**53 - 1, 2**62, 2**63 - 1])
ids = st.text(max_size=20)
keys = st.tuples(nodes, st.integers(0, 3), st.integers(0, 40) | numbers)
interests = st.lists(
    st.builds(
        Interest,
        name=ids,
        filter=st.text(max_size=400),
        is_advertisement=st.booleans(),
        is_ordered=st.booleans(),
        withdrawn_in=numbers,
    ),
    max_size=3,
).map(tuple)
standings = st.builds(
    Standing,
    kind=st.sampled_from([BROKER, CLIENT]),
    incarnation=numbers,
    key=ids,
    published=numbers,
    upto=numbers,
    is_away=st.booleans(),
    has_joined=st.booleans(),
    interests=interests,
)
several_nodes = st.lists(nodes, max_size=3).map(tuple)
memberships = st.just(UNCHANGED) | st.builds(
    Membership,
    joined=st.none() | standings,
    interests=interests,
    admitted=several_nodes,
    removed=several_nodes,
    refused=st.lists(ids.map(OperationId), max_size=3).map(tuple),
)
topics = st.sampled_from(["news", "news/sports", "", "Börse"]).map(Topic)
counts = st.lists(st.tuples(topics, st.integers(0, 300) | numbers), max_size=3).map(tuple)
topic_standings = st.builds(
    TopicStanding, place=ids, hop=nodes | st.just(NOBODY), is_left=st.booleans()
)
stamps = st.tuples(
    keys,
    st.lists(st.integers(0, 300), min_size=1, max_size=3).map(tuple),
    st.lists(topics, max_size=2).map(tuple),
)
entries = st.builds(
    Entry,
    kind=st.sampled_from(Taken) | st.just(BATCH),
    source=nodes | st.just(NOBODY),
    upto=st.integers(0, 200) | numbers,
    held=st.lists(st.tuples(keys, st.booleans()), max_size=4).map(tuple),
    order=st.lists(keys, max_size=4).map(tuple),
    installed=st.lists(ids, max_size=3).map(tuple),
    members=memberships,
    numbers=counts,
    topics=st.lists(st.tuples(topics, topic_standings), max_size=2).map(tuple),
    stamps=st.lists(stamps, max_size=2).map(tuple),
    memory=st.lists(st.tuples(ids, st.text(max_size=9)), max_size=2).map(tuple),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[NodeId, LogPart]]:
    """What is told of some logs over one connection, while they grow and forget."""
    known: dict[NodeId, tuple[int, int]] = {}
    told = []
    for _ in range(draw(st.integers(1, 5))):
        parts = {}
        for node in draw(st.lists(nodes, unique=True, max_size=3)):
            base, last = known.get(node, (0, 0))
            base += draw(st.sampled_from([0, 0, 1, 5, 1000]))
            first = max(last, base)
            part = LogPart(
                base,
                first,
                tuple(draw(st.lists(entries, max_size=5))),
                draw(st.dictionaries(nodes, st.none() | standings, max_size=2)),
                draw(st.booleans()),
                numbers=dict(draw(counts)),
                topics=draw(st.dictionaries(topics, topic_standings, max_size=2)),
                memory=draw(st.none() | st.dictionaries(ids, st.text(min_size=1), max_size=2)),
            )
            parts[node] = part
            known[node] = (base, first + len(part.entries))
        told.append(parts)
    return told


def is_news(part: LogPart, before: LogPart | None) -> bool:
    base = before.base if before is not None else 0
    at_base = (part.neighbours, part.is_whole, part.numbers, part.topics, part.memory is not None)
    return bool(part.entries or any(at_base) or part.base != base)


@given(conversations(), st.sampled_from([0, 3, 10_000]))
def test_what_was_told_is_what_is_read(told: list[dict[NodeId, LogPart]], most: int) -> None:
    """However little both ends remember."""
    known: dict[NodeId, LogPart] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_codec, "TOLD_MAX", most)
        writer, reader = LogWriter(), LogReader()
        for parts in told:
            data = writer.write(parts)

            read = reader.read(data)
            assert {node: parts[node] for node in read} == read
            assert {n for n, p in parts.items() if is_news(p, known.get(n))} == read.keys()
            known |= parts


@given(st.dictionaries(nodes, st.lists(entries, max_size=5), max_size=3))
def test_logs_may_be_told_at_once(logs: dict[NodeId, list[Entry]]) -> None:
    parts = {node: LogPart(3, 3, tuple(listed), {}) for node, listed in logs.items()}

    assert decode_logs(encode_logs(parts)) == parts


def part(*taken: Entry, first: int = 0, base: int = 0) -> LogPart:
    return LogPart(base, first, taken, {})


def batch(source: NodeId, upto: int, **more: Any) -> Entry:
    return Entry(BATCH, source, upto, **more)


# Few bytes


def test_nothing_new_takes_no_byte() -> None:
    writer = LogWriter()
    writer.write({ALICE: part(batch(BOB, 7), base=3, first=3)})

    assert writer.write({ALICE: part(base=3, first=4), ROOT: part()}) == b""
    assert LogReader().read(b"") == {}


def test_a_step_that_took_the_next_batch_takes_two_bytes_with_its_log() -> None:
    writer = LogWriter()
    writer.write({ALICE: part(batch(BOB, 7))})

    assert len(writer.write({ALICE: part(batch(BOB, 8), first=1)})) == 2


def test_a_log_that_is_not_the_first_takes_one_byte_more_and_so_does_its_base() -> None:
    writer = LogWriter()
    writer.write({ALICE: part(batch(BOB, 7)), ROOT: part(batch(BOB, 7))})

    assert len(writer.write({ROOT: part(batch(BOB, 8), first=1)})) == 3
    assert len(writer.write({ROOT: part(batch(BOB, 9), first=2, base=1)})) == 4


def test_publications_that_are_held_and_go_on_take_two_bytes_and_less() -> None:
    keys = [(BOB, 1, n) for n in range(1, 101)]
    held = [batch(BOB, n, held=((key, True),)) for n, key in enumerate(keys, 1)]
    writer = LogWriter()
    writer.write({ALICE: part(batch(ROOT, 1), *held[:1])})

    assert len(writer.write({ALICE: part(*held[1:], first=2)})) <= 99 * 5 + 2
    assert len(writer.write({ALICE: part(batch(ROOT, 2, order=tuple(keys)), first=101)})) <= 6


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (part(batch(BOB, 9), first=3), "told up to 1, and on from 3"),
        (part(batch(BOB, 9), first=1, base=-1), "base -1 after 0"),
    ],
)
def test_a_part_that_does_not_go_on_where_the_last_one_ended_is_not_told(
    second: LogPart, words: str
) -> None:
    writer = LogWriter()
    writer.write({ALICE: part(batch(BOB, 7))})

    with pytest.raises(LocalProtocolError, match=words):
        writer.write({ALICE: second})


# Whatever comes

USUAL = {
    ALICE: LogPart(
        2,
        2,
        (
            batch(BOB, 7, held=(((BOB, 1, 3), True),)),
            batch(ROOT, 9, order=((BOB, 1, 3), (BOB, 1, 4)), installed=("bob/1",)),
            Entry(Taken.JOINED, BOB, members=Membership(joined=Standing(), removed=(ROOT,))),
        ),
        {BOB: Standing(interests=(Interest(name="bob/1", filter="x > 1"),)), ROOT: None},
    ),
    ROOT: part(batch(ALICE, 300), batch(BOB, 2**40)),
}


@pytest.mark.parametrize("end", range(len(encode_logs(USUAL))))
def test_logs_that_end_too_early_are_refused_or_shorter(end: int) -> None:
    try:
        read = decode_logs(encode_logs(USUAL)[:end])
    except RemoteProtocolError:
        return

    assert read == {node: USUAL[node] for node in read}
    assert len(read) < 2


@given(st.binary(max_size=60), st.lists(st.binary(max_size=20), max_size=3))
def test_garbage_is_refused_or_means_something(garbage: bytes, more: list[bytes]) -> None:
    reader, writer = LogReader(), LogWriter()
    with contextlib.suppress(RemoteProtocolError):
        reader.read(encode_logs(USUAL))
        for data in (garbage, *more):
            read = reader.read(data)
            # Whatever was taken for a log can be told to others.
            for node, each in read.items():
                follows = attrs.evolve(each, first=each.base)
                assert decode_logs(encode_logs({node: follows})) == {node: follows}
    assert writer.write({}) == b""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x08\x00", "end too early, or name what was not told"),
        (b"\x09\x00\x00\x00", "nobody, where somebody is expected"),
        (b"\x09\x00\x00\x01\n\x00\x00\x01a", "expected printable characters"),
        (b"\x09\x00\x00\x01\xff\x00\x00\x01a", "utf-8"),
        (b"\xf9\xff\xff\x7f\x00\x00\x01a\x00", "entries, which cannot be there"),
        (b"\x09\x00\x00\x01a\x00\x02\x00\x01b\x07", "an entry of kind 7"),
        (b"\x09\x00\x00\x01a\x00\x02\x00\x01b\x10\x01\x00", "0 are held, 0 go on"),
        (b"\x09\x00\x00\x01a\x00\x01\x00\x01b\x01", "-1, at most"),
        (b"\xff" * 20, "a number of too many bytes"),
        (b"\x05\x00\x00\x01a\x00" + b"\xff" * 9 + b"\x01", "at most 9223372036854775807 expected"),
        (b"\x0c\x00" * 2, "end too early, or name"),
        (b"\x05\x00\x00\x01a\x00\x01\x04\x01", "tell of a twice"),
        (b"\x05\x00\x00\x01a\x00\x01\x05\x00\x01\x00\x01", "a is told of under two numbers"),
    ],
)
def test_what_is_no_log_is_refused_with_a_reason(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode_logs(data)


def test_logs_over_the_limit_are_refused() -> None:
    limits = attrs.evolve(DEFAULT_LIMITS, logs_bytes_max=10)

    with pytest.raises(RemoteProtocolError, match="logs of 11 bytes, at most 10 allowed"):
        decode_logs(bytes(11), limits)


def test_whoever_never_begins_anew_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_codec, "TOLD_MAX", 3)
    reader = LogReader()
    first = encode_logs({ALICE: part(batch(BOB, 1), batch(ROOT, 1))})
    reader.read(first)

    with pytest.raises(RemoteProtocolError, match="logs that remember 5 things"):
        reader.read(first)
    assert reader.read(b"\x00") == {}


@pytest.mark.parametrize(
    "entry",
    [b"\x04", b"\x06\x08\x01\x02\x00", b"\x06\x20\x01\x00", b"\x06\x40" + bytes(6)],
    ids=["batches", "held", "installed", "members"],
)
def test_hostile_logs_cost_some_hundred_times_their_length_at_most(entry: bytes) -> None:
    count = 5_000
    known = encode_logs({ALICE: part(batch(BOB, 1, held=(((BOB, 1, 1), True),)))})
    number = count << 3
    header = bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])
    reader = LogReader()
    reader.read(known)

    tracemalloc.start()
    read = reader.read(header + entry * count)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(read[ALICE].entries) == count
    assert kept <= peak < 250 * len(entry) * count


def test_a_log_is_learnt_from_what_was_told_as_from_what_was_said() -> None:
    """Over a connection that begins when much is forgotten, and goes on while more is."""
    log, said, read = StepLog(), StepLog(), StepLog()
    writer, reader = LogWriter(), LogReader()
    log.append(Entry(Taken.JOINED, BOB, members=Membership(joined=Standing(incarnation=3))))
    told = 0
    for step in range(1, 50):
        log.append(batch(BOB, step, held=(((BOB, 1, step), False),)))
        if step % 4 == 0:
            log.append(Entry(Taken.AWAY, BOB))
            log.append(Entry(Taken.BACK, BOB))
        if step % 7 == 0:
            log.forget(log.last - 5)
        if step % 3 == 0:
            news = log.since(told)
            told = log.last
            said.learn(news)
            read.learn(reader.read(writer.write({ALICE: news}))[ALICE])

    assert (read.base, read.entries) == (said.base, said.entries)
    assert read.neighbours_at_base() == said.neighbours_at_base()
