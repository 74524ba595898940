"""Frames and messages: what is written can be read, and nothing else does harm."""

import contextlib
import struct
import tracemalloc
from typing import Any, get_args, get_origin, get_type_hints
from unittest import mock

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgpack import Packer

from plait.broker import codec
from plait.broker.codec import FrameDecoder, decode_content, encode, encode_content
from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.messages import (
    MESSAGE_TYPES,
    Announce,
    Confirm,
    EndOfStep,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    HostPlace,
    Life,
    Message,
    NodeKind,
    Past,
    Progress,
    Publish,
    Seat,
    Seating,
    Settled,
    Subscribe,
)
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.values import ContentError
from tests.wire import frame_of, unchecked

pack = Packer().pack

names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=40).map(NodeId)
texts = st.text(max_size=60)
counts = st.integers(0, DEFAULT_LIMITS.number_max)
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    NodeId: names,
    int: counts,
    bytes: st.binary(max_size=300),
    bool: st.booleans(),
    Past: st.builds(Past, published=counts, secret=texts),
    tuple[int, ...]: st.lists(counts, max_size=40).map(tuple),
    tuple[str, ...]: st.lists(texts, max_size=40).map(tuple),
    tuple[NodeId, ...]: st.lists(names, max_size=5).map(tuple),
    tuple[OperationId, ...]: st.lists(texts, max_size=40).map(tuple),
    tuple[AdvertisementId, ...]: st.lists(texts, max_size=40).map(tuple),
    tuple[SubscriptionId, ...]: st.lists(texts, max_size=40).map(tuple),
}


def strategy_of(hint: Any) -> st.SearchStrategy[Any]:
    if hint in FIELDS:
        return FIELDS[hint]
    if getattr(hint, "__supertype__", hint) is str:
        return texts
    if get_origin(hint) is tuple:
        return st.lists(strategy_of(get_args(hint)[0]), max_size=5).map(tuple)
    return messages_of(hint) if attrs.has(hint) else st.sampled_from(hint)


def messages_of(declaration: type[Any]) -> st.SearchStrategy[Any]:
    fields = [field for field in attrs.fields(declaration) if field.name != "frame"]
    return st.builds(declaration, **{field.name: strategy_of(field.type) for field in fields})


messages = st.one_of([messages_of(declaration) for declaration in MESSAGE_TYPES.values()])


def publication(**changes: Any) -> Publish:
    fields = {
        "publisher": "alice",
        "incarnation": 1,
        "seq": 7,
        "flags": 0,
        "content": encode_content({"price": 101.5}),
        "body": b"body",
    }
    return Publish(**{**fields, **changes})


def progress(received: int, sent: int) -> Progress:
    return Progress(received=received, sent=sent, forgotten=1)


def refusal_of(data: bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        FrameDecoder(limits).feed(data)
    return str(caught.value)


# What is written can be read


@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_decoding_inverts_encoding_however_the_bytes_are_split(
    sent: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = FrameDecoder()

    received: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])

    assert received == sent


@given(messages)
def test_a_message_is_complete_with_its_last_byte_and_not_before(message: Message) -> None:
    frame = encode(message)
    decoder = FrameDecoder()

    received = [decoder.feed(frame[at : at + 1]) for at in range(len(frame))]

    assert received == [[]] * (len(frame) - 1) + [[message]]


def test_a_publication_keeps_the_bytes_it_came_in() -> None:
    """So that a broker passes it on without encoding it again."""
    frame = encode(publication())

    (received,) = FrameDecoder().feed(frame)

    assert isinstance(received, Publish)
    assert received.frame == frame
    assert encode(received) is received.frame


def test_a_publication_is_encoded_once() -> None:
    message = publication()

    assert encode(message) is encode(message)


@pytest.mark.parametrize("size", [0, 1 << 10, 64 << 10, 1 << 19])
def test_small_and_large_publications_are_read_alike(size: int) -> None:
    message = publication(body=b"x" * size)

    (received,) = FrameDecoder().feed(encode(message))

    assert received == message
    assert isinstance(received, Publish)
    assert received.frame == message.frame


def test_every_type_has_a_number_of_its_own_on_the_wire() -> None:
    assert encode(Heartbeat())[4:] == b"\x91\x03"
    assert encode(progress(5, 300))[4:] == b"\x95\x2b\x05\xcd\x01\x2c\x01\xc4\x00"


# Limits


def test_a_frame_over_the_limit_is_refused_by_its_first_bytes() -> None:
    assert (
        refusal_of(struct.pack(">IBB", 70123, 0x97, 1), Limits(frame_bytes_max=65536))
        == "frame of 70123 bytes, at most 65536 allowed"
    )


@pytest.mark.parametrize("length", [0, 1])
def test_a_frame_without_a_message_is_refused(length: int) -> None:
    assert refusal_of(struct.pack(">I", length) + b"\x91\x03") == (
        f"frame of {length} bytes, at least 2 expected"
    )


HELLO = Hello(
    version=1,
    node=NodeId("b1"),
    kind=NodeKind.BROKER,
    incarnation=1,
    host=NodeId("b1"),
    address="127.0.0.1:5000",
)
SUBSCRIBE = Subscribe(
    operation=OperationId("o"),
    subscription=SubscriptionId("s"),
    client=NodeId("c"),
    filter="price > 1",
    ordered=True,
    path=(NodeId("c"),),
)
SMALL = Limits(name_chars_max=8, path_nodes_max=2, content_bytes_max=20, address_chars_max=32)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (publication(publisher="p" * 9), "Publish.publisher of 9 characters, at most 8 allowed"),
        (publication(content=b"c" * 21), "Publish.content of 21 bytes, at most 20 allowed"),
        (
            attrs.evolve(HELLO, node=NodeId("n" * 9)),
            "Hello.node of 9 characters, at most 8 allowed",
        ),
        (
            attrs.evolve(HELLO, address="a" * 33),
            "Hello.address of 33 characters, at most 32 allowed",
        ),
        (
            attrs.evolve(SUBSCRIBE, filter="f" * 16_385),
            "Subscribe.filter of 16385 characters, at most 16384 allowed",
        ),
        (
            attrs.evolve(SUBSCRIBE, subscription=SubscriptionId("s" * 57)),
            "Subscribe.subscription of 57 characters, at most 56 allowed",
        ),
        (
            attrs.evolve(SUBSCRIBE, path=(NodeId("a"), NodeId("b"), NodeId("c"))),
            "Subscribe.path of 3 nodes, at most 2 allowed",
        ),
        (
            attrs.evolve(SUBSCRIBE, path=(NodeId("a"), NodeId("b" * 9))),
            "Subscribe.path of 9 characters, at most 8 allowed",
        ),
    ],
)
def test_a_field_over_its_limit_is_refused_with_both_figures(message: Message, reason: str) -> None:
    """By who was about to send it, and by who reads it."""
    with pytest.raises(LocalProtocolError) as caught:
        encode(message, SMALL)

    assert str(caught.value) == reason
    assert refusal_of(unchecked(message), SMALL) == reason


# What is sent is accepted

anything = {
    str: st.text(max_size=12) | st.integers(0, 400).map("x".__mul__),
    int: st.integers(-2, 2**64 + 1),
    bytes: st.binary(max_size=40) | st.integers(0, 400).map(bytes),
    bool: st.booleans(),
}


def anything_as(hint: Any, name: str) -> st.SearchStrategy[Any]:
    """Values of the type that a field has, within its limits or not."""
    if get_origin(hint) is tuple:
        return st.lists(anything_as(get_args(hint)[0], name), max_size=6).map(tuple)
    kind = getattr(hint, "__supertype__", hint)
    if attrs.has(kind):
        return anything_of(kind)
    return anything[kind] if kind in anything else st.sampled_from(kind)


def anything_of(declaration: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(declaration)
    fields = [field.name for field in attrs.fields(declaration) if field.name != "frame"]
    return st.builds(declaration, **{name: anything_as(hints[name], name) for name in fields})


TIGHT = Limits(
    frame_bytes_max=1500,
    portion_bytes_max=200,
    lists_bytes_max=1000,
    name_chars_max=8,
    path_nodes_max=2,
    content_bytes_max=20,
    address_chars_max=16,
)


@pytest.mark.parametrize("declaration", MESSAGE_TYPES.values())
@given(st.data())
def test_what_can_be_sent_is_accepted(declaration: type[Message], data: st.DataObject) -> None:
    message = data.draw(anything_of(declaration))
    try:
        frames = encode(message, TIGHT)
    except LocalProtocolError:
        return

    assert FrameDecoder(TIGHT).feed(frames) == [message]


def largest(hint: Any, name: str) -> Any:
    """The largest value that a field may have; no list, which may be of any length."""
    kind = getattr(hint, "__supertype__", hint)
    if get_origin(hint) is tuple:
        return (largest(get_args(hint)[0], name),) * (32 if name == "path" else 1)
    if attrs.has(kind):
        return largest_of(kind)
    if (kind, name) == (str, "kind"):
        return "broker"
    if kind is str:
        lengths = {"filter": 16_384, "reason": 1024, "id": 303, "about": 303}
        length = 300 if "address" in name else 303 if name in IDS else lengths.get(name, 255)
        return "\U0001f600" * length
    if kind is bytes:
        sizes = {
            "content": DEFAULT_LIMITS.content_bytes_max,
            "body": DEFAULT_LIMITS.body_bytes_max,
            "report": DEFAULT_LIMITS.report_bytes_max,
            "said": DEFAULT_LIMITS.body_bytes_max,
            "logs": DEFAULT_LIMITS.portion_bytes_max,  # what is longer travels in portions
        }
        return bytes(sizes[name])
    return {int: DEFAULT_LIMITS.number_max, bool: True}.get(kind) or max(kind, key=len)


IDS = ("operation", "advertisement", "subscription", "advertisements", "subscriptions")


def largest_of(declaration: type[Any]) -> Any:
    hints = get_type_hints(declaration)
    fields = [field.name for field in attrs.fields(declaration) if field.name != "frame"]
    return declaration(**{name: largest(hints[name], name) for name in fields})


@pytest.mark.parametrize("declaration", MESSAGE_TYPES.values())
def test_a_message_with_every_field_at_its_limit_fits_into_a_frame(
    declaration: type[Message],
) -> None:
    """So what a broker accepts it can pass on, however long the path and the counters get."""
    message = largest_of(declaration)

    frame = encode(message)

    assert len(frame) <= 4 + DEFAULT_LIMITS.frame_bytes_max
    assert FrameDecoder().feed(frame) == [message]


def test_every_limit_of_a_field_is_the_largest_that_this_test_knows() -> None:
    """Or the test above would be about less than what brokers accept."""
    message = largest_of(Subscribe)

    for name in ("operation", "subscription", "client", "filter"):
        with pytest.raises(LocalProtocolError, match=f"Subscribe.{name} of .* characters, at most"):
            encode(attrs.evolve(message, **{name: getattr(message, name) + "x"}))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (publication(seq=-1), "Publish.seq: -1, expected no negative number"),
        (publication(publisher="a\n"), "Publish.publisher: 'a\\n', expected printable characters"),
        (
            publication(body=bytes(1 << 20)),
            "Publish.body of 1048576 bytes, at most 1031100 allowed",
        ),
        (publication(flags=2**64), "Publish: 18446744073709551616 cannot be sent"),
        (progress(-1, 0), "Progress.received: -1, expected no negative number"),
        (Confirm(operation=OperationId("\ud800")), "Confirm: 'utf-8' codec can't encode"),
    ],
)
def test_what_peers_would_refuse_is_not_encoded(message: Message, reason: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(message)

    assert str(caught.value).startswith(reason)


def test_a_reason_that_quotes_too_much_is_cut() -> None:
    goodbye = Goodbye(code=GoodbyeCode.PROTOCOL, reason="x" * 70_000)

    assert len(goodbye.reason) == 1024
    assert goodbye.reason.endswith("x ... (70000 characters)")
    assert FrameDecoder().feed(encode(goodbye)) == [goodbye]


# Lists


def life(number: int) -> Life:
    return Life(NodeId(f"b{number}".ljust(255, "\U0001f600")), number)


LONG = Seating(
    seats=tuple(
        Seat(
            broker=NodeId(f"b{number}"),
            parent=f"b{number // 2}",
            term=1,
            host=NodeId(f"host-{number}"),
            incarnation=number,
        )
        for number in range(8192)
    ),
    failed=tuple(map(life, range(500))),
)


def test_a_message_with_long_lists_travels_in_portions() -> None:
    frames = encode(LONG)
    decoder = FrameDecoder()
    lengths: list[int] = []
    received: list[Message] = []
    at = 0
    while at < len(frames):
        lengths.append(4 + int.from_bytes(frames[at : at + 4], "big"))
        received += decoder.feed(frames[at : at + lengths[-1]])
        at += lengths[-1]

    assert max(lengths) < DEFAULT_LIMITS.portion_bytes_max + 16
    assert received == [LONG]
    assert decoder.kept_bytes == 0


def test_portions_are_kept_for_the_message_that_they_belong_to() -> None:
    frames = encode(LONG)
    other = Announce(number=1, reach=1, logs=b"a")
    first = 4 + int.from_bytes(frames[:4], "big")
    decoder = FrameDecoder()

    assert decoder.feed(frames[:first] + encode(other)) == [other]
    assert decoder.kept_bytes > first
    assert decoder.feed(frames[first:]) == [LONG]


def test_lists_without_end_are_refused_by_both_sides() -> None:
    limits = attrs.evolve(DEFAULT_LIMITS, lists_bytes_max=1 << 18)
    frames = encode(LONG)
    decoder = FrameDecoder(limits)
    reason = "portions of [0-9]+ bytes, at most 262144 allowed"

    with pytest.raises(RemoteProtocolError, match=reason):
        decoder.feed(frames)
    with pytest.raises(LocalProtocolError, match=reason):
        encode(LONG, limits)


def test_long_logs_travel_in_portions_up_to_their_limit() -> None:
    limits = attrs.evolve(DEFAULT_LIMITS, portion_bytes_max=200, logs_bytes_max=1000)
    fits: list[Message] = [
        EndOfStep(step=7, logs=bytes(range(250)) * 4),
        Announce(number=1, reach=1, logs=b"a"),
    ]
    frames = b"".join(encode(message, limits) for message in fits)

    assert frames.count(b"\x94\x00") == 5
    assert FrameDecoder(limits).feed(frames) == fits
    with pytest.raises(LocalProtocolError, match="logs of 1001 bytes, at most 1000 allowed"):
        encode(EndOfStep(step=7, logs=bytes(1001)), limits)
    assert "logs of 1001 bytes" in refusal_of(encode(EndOfStep(step=7, logs=bytes(1001))), limits)


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ([0, 44, 0], "portion: header 0x93, expected an array of 4 elements"),
        ([0, 44, 4, []], "portion of field 4 of a message of type 44, expected a list"),
        ([0, 12, 5, ["b1"]], "portion of field 5 of a message of type 12, expected a list"),
        ([0, 99, 0, []], "portion of field 0 of a message of type 99, expected a list"),
        ([0, 0, 0, []], "portion of field 0 of a message of type 0, expected a list"),
        ([0, 47, 4, ["x" * 400]], "AttachTables.known_subscriptions of 400 characters, at"),
        ([0, 47, 4, [1]], "AttachTables.known_subscriptions: found int, expected str"),
    ],
)
def test_what_is_no_portion_of_a_list_is_refused(elements: list[Any], reason: str) -> None:
    assert refusal_of(frame_of(pack(elements))).startswith(reason)


# Types


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ([99], f"message of type 99, expected one of 1 to {max(MESSAGE_TYPES)}"),
        ([43, 1], "Progress: header 0x92, expected an array of 5 elements"),
        ([43, 1, 2, 3, b"", 5], "Progress: header 0x96, expected an array of 5 elements"),
        ([43, True, 0, 0, b""], "Progress.received: found bool, expected int"),
        ([43, -1, 0, 0, b""], "Progress.received: -1, expected no negative number"),
        ([43, None, 0, 0, b""], "Progress.received: found NoneType, expected int"),
        ([6, "sulking", ""], "Goodbye.code: 'sulking', expected one of left, "),
        ([1, 5, 1, 1, 0, b"", b""], "Publish.publisher: found int, expected str"),
        ([1, "", 1, 1, 0, b"", b""], "Publish.publisher: '', expected printable characters"),
        ([1, "a\n", 1, 1, 0, b"", b""], "Publish.publisher: 'a\\n', expected printable"),
        ([1, "a", 1, -1, 0, b"", b""], "Publish.seq: -1, expected no negative number"),
        ([1, "a", 1, 1.0, 0, b"", b""], "Publish.seq: found float, expected int"),
        ([1, "a", 1, 1, 0, "", b""], "Publish.content: found str, expected bytes"),
        ([1, "a", 1, 1, 0, b"", []], "Publish.body: found list, expected bytes"),
        ([44, [], [], [["h"]], []], "Seating.failed: 1 fields of Life, expected 2"),
        ([44, [], [], [["h", "1"]], []], "Seating.failed.incarnation: found str"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(elements: list[Any], reason: str) -> None:
    assert refusal_of(frame_of(pack(elements))).startswith(reason)


def test_bytes_after_the_last_field_are_refused() -> None:
    assert refusal_of(frame_of(pack([3]) + b"\x00")) == "Heartbeat: 1 bytes after the last field"
    assert refusal_of(frame_of(encode(publication())[4:] + b"\x00\x00")) == (
        "Publish: 2 bytes after the last field"
    )


def test_text_that_is_not_utf_8_is_refused() -> None:
    frame = frame_of(b"\x93\x06\xa4left\xa1\xff")
    assert refusal_of(frame).startswith("Goodbye: not msgpack")


# Whatever comes


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for_and_nothing_else(garbage: bytes) -> None:
    for data in (garbage, frame_of(garbage), frame_of(b"\x97\x01" + garbage)):
        with contextlib.suppress(RemoteProtocolError):
            FrameDecoder().feed(data)


@given(messages, st.data())
def test_a_damaged_message_is_refused_or_still_a_message(
    message: Message, data: st.DataObject
) -> None:
    frame = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        received = FrameDecoder().feed(bytes(frame))
    except RemoteProtocolError:
        return

    # Publications are read in two ways; any message that passes can be written and read again.
    assert [FrameDecoder().feed(encode(attrs.evolve(m)))[0] for m in received] == received


@given(
    st.sampled_from(
        [
            EndOfStep(step=7, logs=b"\x08"),
            Progress(received=1, sent=300, forgotten=1 << 40, logs=b"\x08\x00"),
            Heartbeat(),
            Settled(9),
        ]
    ),
    st.data(),
)
def test_messages_of_numbers_and_bytes_are_read_alike_in_one_go_and_field_by_field(
    message: Message, data: st.DataObject
) -> None:
    frame = bytearray(encode(message))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame += data.draw(st.sampled_from([b"", b"\x00"]))
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")

    def read() -> str:
        try:
            return repr(FrameDecoder(TIGHT).feed(bytes(frame)))
        except RemoteProtocolError as error:
            return str(error)

    at_once = read()
    with mock.patch.object(codec, "_decode_plain", return_value=None):
        assert read() == at_once


@pytest.mark.parametrize("field", ["incarnation", "seq", "flags"])
def test_a_number_after_which_there_is_no_next_one_is_refused(field: str) -> None:
    """Somebody would count on, and could not say it any more."""
    number = DEFAULT_LIMITS.number_max + 1

    wide = attrs.evolve(DEFAULT_LIMITS, number_max=number)
    message = f"Publish.{field}: {number}, at most {number - 1} expected"
    assert refusal_of(encode(publication(**{field: number}), wide)) == message
    with pytest.raises(LocalProtocolError) as refused:
        encode(publication(**{field: number}))
    assert str(refused.value) == message
    assert "Progress.sent" in refusal_of(encode(progress(0, number), wide))
    with pytest.raises(LocalProtocolError, match=r"Progress\.sent"):
        encode(progress(0, number))


def nested(depth: int, *, header: bytes = b"\x91") -> bytes:
    return header * depth


HOSTILE = {
    "a length of four gigabytes": b"\xff\xff\xff\xff\x97\x01",
    "an array of four billion": frame_of(b"\x95\x2c\xdd\xff\xff\xff\xff"),
    "a path of four billion": frame_of(
        b"\x97\x0c" + b"\xa1o\xa1s\xa1c\xa1f\xc3\xdd\xff\xff\xff\xff"
    ),
    "a string of four gigabytes": frame_of(b"\x97\x01\xdb\xff\xff\xff\xff"),
    "a body of four gigabytes": frame_of(b"\x97\x01\xa1a\x01\x01\x00\xc4\x00\xc6\xff\xff\xff\xff"),
    "a map of four billion": frame_of(b"\x97\x01\xdf\xff\xff\xff\xff"),
    "an extension": frame_of(b"\x95\x2b\xc7\x00\x01\x00"),
    "deep arrays in a publication": frame_of(b"\x97\x01" + nested(60_000)),
    "deep arrays that are wide": frame_of(b"\x97\x01" + nested(1_000, header=b"\x97")),
    "deep arrays in a large publication": frame_of(b"\x97\x01" + nested(1_000_000)),
    "many small arrays": frame_of(b"\x97\x01\x97" + b"\x97" + b"\x91\xc0" * 30_000),
    "deep seats": frame_of(b"\x95\x2c" + nested(1_000_000)),
    "a portion of four billion": frame_of(b"\x94\x00\x2f\x04\xdd\xff\xff\xff\xff"),
    "a deep portion": frame_of(b"\x94\x00\x2f\x04" + nested(1_000_000)),
    "deep maps": frame_of(b"\x95\x2c" + nested(1_000_000, header=b"\x81")),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_cost_little_more_than_their_length(data: bytes) -> None:
    refusal_of(data)  # once before, so that what is made only once is not counted

    tracemalloc.start()
    refusal_of(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4 * len(data) + (2 << 20)


def test_a_large_frame_that_trickles_in_is_kept_once() -> None:
    frame = encode(publication(body=b"x" * 500_000))
    decoder = FrameDecoder()

    tracemalloc.start()
    for at in range(0, len(frame) - 1, 100):
        assert decoder.feed(frame[at : min(at + 100, len(frame) - 1)]) == []
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 700_000
    assert len(decoder.feed(frame[-1:])) == 1


# Contents

values = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)


@given(st.dictionaries(st.text(min_size=1, max_size=20), values, max_size=8))
def test_decoding_a_content_inverts_encoding_it(content: dict[str, Any]) -> None:
    decoded = decode_content(encode_content(content))

    assert decoded == content
    assert [type(value) for value in decoded.values()] == [type(v) for v in content.values()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1], "content: not msgpack as expected: 1 exceeds max_array_len(0)"),
        ("text", "content: found str, expected a map"),
        ({"a": None}, "content: attribute 'a': found a value of type NoneType"),
        ({"a": {"b": 1}}, "content: attribute 'a': found a value of type dict"),
        ({"": 1}, "content: attribute name '': expected a string that is not empty"),
        ({"a": 2**63}, "content: attribute 'a': found 9223372036854775808, expected an integer"),
        ({"a": float("nan")}, "content: attribute 'a': found nan, expected a finite number"),
        ({b"a": 1}, "content: attribute name b'a'"),
        ({"a": [1]}, "content: not msgpack as expected: 1 exceeds max_array_len(0)"),
        ({str(n): n for n in range(65)}, "content: not msgpack as expected: 65 exceeds"),
    ],
)
def test_what_is_no_content_is_refused_with_a_reason(content: Any, reason: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_content(pack(content))

    assert str(caught.value).startswith(reason)


@given(st.binary(max_size=100))
def test_garbage_for_a_content_is_refused_and_nothing_else(garbage: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_content(garbage)


def test_a_content_over_the_limits_cannot_be_encoded() -> None:
    with pytest.raises(ContentError, match="content of 65 attributes, at most 64 allowed"):
        encode_content({str(n): n for n in range(65)})
    with pytest.raises(ContentError, match="content of 20006 bytes, at most 16384 allowed"):
        encode_content({"a": "x" * 20_000})


def test_a_goodbye_tells_its_code_by_name() -> None:
    (received,) = FrameDecoder().feed(encode(Goodbye(code=GoodbyeCode.ISOLATED, reason="slow")))

    assert received == Goodbye(code=GoodbyeCode.ISOLATED, reason="slow")


def test_what_is_known_of_hosts_travels_whole() -> None:
    place = HostPlace(host=NodeId("h"), incarnation=3, address="h:1", site="b1", rank=2)
    sent = Seating(seats=LONG.seats[:2], hosts=(place, place), failed=LONG.failed[:1])

    assert FrameDecoder().feed(encode(sent)) == [sent]
