"""STOMP frames, however their bytes are split, and what no client may send."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.broker.gateway.errors import GatewayProtocolError
from plait.broker.gateway.stomp.frames import (
    HEART_BEAT,
    HEART_BEAT_BYTES,
    Frame,
    FrameLimits,
    FrameParser,
    HeartBeat,
    Version,
    encode,
)

# What STOMP 1.2 can say: anything but NUL, and no carriage return at the end of what it escapes.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAMES = TEXT.filter(lambda name: name != "content-length")
FRAMES = st.builds(
    Frame,
    st.sampled_from(["SEND", "MESSAGE", "SUBSCRIBE", "RECEIPT", "ERROR"]),
    st.dictionaries(NAMES, TEXT, max_size=5),
    st.binary(max_size=50),
)


def parsed(
    data: bytes, version: Version = Version.V1_2, limits: FrameLimits | None = None
) -> list[Frame | HeartBeat]:
    parser = FrameParser(limits)
    parser.version = version
    return parser.feed(data)


def without_length(frame: Frame | HeartBeat) -> Frame | HeartBeat:
    if isinstance(frame, HeartBeat):
        return frame
    headers = {n: v for n, v in frame.headers.items() if n != "content-length"}
    return Frame(frame.command, headers, frame.body)


@given(st.lists(st.one_of(FRAMES, st.just(HEART_BEAT)), max_size=4), st.data())
def test_what_is_written_is_read_at_every_split(
    sent: list[Frame | HeartBeat], data: st.DataObject
) -> None:
    written = b"".join(
        HEART_BEAT_BYTES if isinstance(item, HeartBeat) else encode(item) for item in sent
    )
    cuts = data.draw(st.lists(st.integers(0, len(written)), max_size=6).map(sorted))
    parser = FrameParser()
    read: list[Frame | HeartBeat] = []
    for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        read += parser.feed(written[start:end])

    assert [without_length(item) for item in read] == sent


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_no_bytes_do_anything_but_be_read_or_refused(chunks: list[bytes]) -> None:
    parser = FrameParser(FrameLimits(line_bytes_max=16, body_bytes_max=16))
    with contextlib.suppress(GatewayProtocolError):
        for chunk in chunks:
            parser.feed(chunk)


def test_a_frame_of_the_specification() -> None:
    data = b"SEND\r\ndestination:/queue/a\r\ncontent-type:text/plain\r\n\r\nhello queue a\0\r\n"

    assert parsed(data) == [
        Frame(
            "SEND",
            {"destination": "/queue/a", "content-type": "text/plain"},
            b"hello queue a",
        ),
        HEART_BEAT,
    ]


def test_a_body_of_a_told_length_contains_anything() -> None:
    [frame] = parsed(b"SEND\ncontent-length:3\n\n\0\n\0\0")

    assert isinstance(frame, Frame)
    assert frame.body == b"\0\n\0"


def test_the_first_of_repeated_headers_counts() -> None:
    [frame] = parsed(b"MESSAGE\nfoo:World\nfoo:Hello\n\n\0")

    assert isinstance(frame, Frame)
    assert frame.headers == {"foo": "World"}


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (Version.V1_0, r"a\cb\\c\nd"),
        (Version.V1_1, "a:b\\c\nd"),
        (Version.V1_2, "a:b\\c\nd"),
    ],
)
def test_versions_differ_in_what_is_escaped(version: Version, value: str) -> None:
    [frame] = parsed(b"SEND\nx:a\\cb\\\\c\\nd\n\n\0", version)

    assert isinstance(frame, Frame)
    assert frame.headers == {"x": value}
    assert parsed(encode(frame, version), version) == [frame]


def test_connect_escapes_nothing() -> None:
    [frame] = parsed(b"CONNECT\npasscode:a\\cb\n\n\0")

    assert isinstance(frame, Frame)
    assert frame.headers == {"passcode": "a\\cb"}


@pytest.mark.parametrize("value", ["a\nb", "x\r"])
def test_what_a_version_cannot_say_is_not_written(value: str) -> None:
    with pytest.raises(ValueError, match=re.escape("STOMP 1.0 cannot say")):
        encode(Frame("SEND", {"x": value}), Version.V1_0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"send\n", "expected a command"),
        (b"\xff\n", "UTF-8"),
        (b"SEND\nno colon\n", "NAME:VALUE"),
        (b"SEND\nx:\\t\n", "no escape"),
        (b"SEND\nx:\\", None),
        (b"SEND\nx:end\\\n", "no escape"),
        (b"SEND\ncontent-length:-1\n\n", "expected a number"),
        (b"SEND\ncontent-length:99999999999999999\n\n", "expected a number"),
        (b"SEND\ncontent-length:200\n\n", "at most 100 bytes"),
        (b"SEND\ncontent-length:1\n\nab\0", "expected NUL"),
        (b"SEND\n\n" + b"x" * 101, "at most 100 bytes"),
        (b"S" * 101, "more than 100 bytes"),
        (b"SEND\n" + b"".join(b"h%d:x\n" % n for n in range(5)), "more than 4 headers"),
        (b"SEND\nx:a\0b\n", "no NUL"),
    ],
)
def test_what_no_client_may_send_is_refused_in_words(data: bytes, words: str | None) -> None:
    limits = FrameLimits(line_bytes_max=100, body_bytes_max=100, headers_max=4)
    if words is None:
        assert parsed(data, limits=limits) == []
    else:
        with pytest.raises(GatewayProtocolError, match=words):
            parsed(data, limits=limits)


def test_a_body_that_trickles_in_is_looked_at_once() -> None:
    """Not again from its beginning at every byte: a megabyte would take minutes."""
    parser = FrameParser()
    parser.feed(b"SEND\n\n")
    for _ in range(100_000):
        parser.feed(b"x")
    [frame] = parser.feed(b"\0")

    assert isinstance(frame, Frame)
    assert len(frame.body) == 100_000
