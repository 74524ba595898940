"""MQTT packets, however their bytes are split, and what no client may send."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.broker.gateway.mqtt.codec import PacketDecoder, encode
from plait.broker.gateway.mqtt.fields import LENGTH_MAX, MqttProtocolError, PacketLimits
from plait.broker.gateway.mqtt.packets import (
    Ack,
    AckKind,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Property,
    Publish,
    Reason,
    Request,
    RetainHandling,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from plait.broker.gateway.mqtt.topics import is_topic_filter, is_topic_name

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
TOPICS = TEXT.filter(is_topic_name)
FILTERS = st.lists(st.sampled_from(["a", "", "+", "bc"]), min_size=1, max_size=4).map("/".join)
FILTERS |= FILTERS.map("{}/#".format) | st.just("#")
FILTERS = FILTERS.filter(is_topic_filter)
IDS = st.integers(1, 0xFFFF)
QOS = st.integers(0, 2)
BINARY = st.binary(max_size=20)
REASONS = st.integers(0, 255)

VALUES: dict[Property, st.SearchStrategy[Any]] = {
    Property.PAYLOAD_FORMAT: st.integers(0, 1),
    Property.MESSAGE_EXPIRY_S: st.integers(0, 0xFFFFFFFF),
    Property.CONTENT_TYPE: TEXT,
    Property.RESPONSE_TOPIC: TEXT,
    Property.CORRELATION_DATA: BINARY,
    Property.SUBSCRIPTION_ID: st.lists(st.integers(1, LENGTH_MAX), min_size=1, max_size=1).map(
        tuple
    ),
    Property.SESSION_EXPIRY_S: st.integers(0, 0xFFFFFFFF),
    Property.ASSIGNED_CLIENT_ID: TEXT,
    Property.SERVER_KEEP_ALIVE_S: st.integers(0, 0xFFFF),
    Property.AUTHENTICATION_METHOD: TEXT,
    Property.AUTHENTICATION_DATA: BINARY,
    Property.REASON_STRING: TEXT,
    Property.RECEIVE_MAXIMUM: IDS,
    Property.TOPIC_ALIAS: IDS,
    Property.MAXIMUM_PACKET_BYTES: st.integers(1, 0xFFFFFFFF),
    Property.WILL_DELAY_S: st.integers(0, 0xFFFFFFFF),
    Property.USER_PROPERTY: st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3).map(tuple),
}


def properties(version: Version, *names: Property) -> st.SearchStrategy[dict[Property, Any]]:
    if version is Version.V3_1_1:
        return st.just({})
    allowed = {name: VALUES[name] for name in (*names, Property.USER_PROPERTY)}
    return st.fixed_dictionaries({}, optional=allowed)


def acks(version: Version) -> st.SearchStrategy[Packet]:
    if version is Version.V3_1_1:
        return st.builds(Ack, kind=st.sampled_from(AckKind), packet_id=IDS)
    more = properties(version, Property.REASON_STRING)
    return st.builds(
        Ack, kind=st.sampled_from(AckKind), packet_id=IDS, reason=REASONS, properties=more
    )


def publications(version: Version) -> st.SearchStrategy[Packet]:
    more = properties(
        version,
        Property.PAYLOAD_FORMAT,
        Property.MESSAGE_EXPIRY_S,
        Property.CONTENT_TYPE,
        Property.RESPONSE_TOPIC,
        Property.CORRELATION_DATA,
        Property.SUBSCRIPTION_ID,
        Property.TOPIC_ALIAS,
    )
    common = {"topic": TOPICS, "payload": BINARY, "retain": st.booleans(), "properties": more}
    sure = st.builds(
        Publish, qos=st.integers(1, 2), packet_id=IDS, is_duplicate=st.booleans(), **common
    )
    return st.builds(Publish, **common) | sure


def requests(version: Version) -> st.SearchStrategy[Request]:
    if version is Version.V3_1_1:
        return st.builds(Request, topic_filter=FILTERS, qos=QOS)
    return st.builds(
        Request,
        topic_filter=FILTERS,
        qos=QOS,
        no_local=st.booleans(),
        retain_as_published=st.booleans(),
        retain_handling=st.sampled_from(RetainHandling),
    )


def packets(version: Version) -> st.SearchStrategy[Packet]:
    """Every packet but CONNECT, which comes first."""
    is_5 = version is Version.V5
    reasons = st.lists(REASONS, max_size=3).map(tuple)
    ends = st.builds(
        Disconnect,
        reason=REASONS,
        properties=properties(version, Property.SESSION_EXPIRY_S, Property.REASON_STRING),
    )
    auths = st.builds(
        Auth,
        reason=REASONS,
        properties=properties(
            version, Property.AUTHENTICATION_METHOD, Property.AUTHENTICATION_DATA
        ),
    )
    why = properties(version, Property.REASON_STRING)
    return st.one_of(
        st.builds(
            ConnAck,
            session_present=st.booleans(),
            reason=REASONS,
            properties=properties(
                version, Property.ASSIGNED_CLIENT_ID, Property.SERVER_KEEP_ALIVE_S
            ),
        ),
        publications(version),
        acks(version),
        st.builds(
            Subscribe,
            packet_id=IDS,
            requests=st.lists(requests(version), min_size=1, max_size=3).map(tuple),
            properties=properties(version, Property.SUBSCRIPTION_ID),
        ),
        st.builds(SubAck, packet_id=IDS, reasons=reasons, properties=why),
        st.builds(
            Unsubscribe,
            packet_id=IDS,
            topic_filters=st.lists(FILTERS, min_size=1, max_size=3).map(tuple),
            properties=properties(version),
        ),
        st.builds(
            UnsubAck, packet_id=IDS, reasons=reasons if is_5 else st.just(()), properties=why
        ),
        st.just(PingReq()),
        st.just(PingResp()),
        ends | auths if is_5 else st.just(Disconnect()),
    )


def connects(version: Version) -> st.SearchStrategy[Connect]:
    wills = st.builds(
        Will,
        topic=TOPICS,
        payload=BINARY,
        qos=QOS,
        retain=st.booleans(),
        properties=properties(version, Property.WILL_DELAY_S, Property.CONTENT_TYPE),
    )
    return st.builds(
        Connect,
        version=st.just(version),
        client_id=TEXT,
        clean_start=st.booleans(),
        keep_alive_s=st.integers(0, 0xFFFF),
        will=st.none() | wills,
        user_name=TEXT,
        password=st.none() | BINARY,
        properties=properties(version, Property.SESSION_EXPIRY_S, Property.RECEIVE_MAXIMUM),
    )


@given(
    st.sampled_from(Version).flatmap(lambda v: st.tuples(connects(v), st.lists(packets(v)))),
    st.data(),
)
def test_what_is_written_is_read_at_every_split(
    sent: tuple[Connect, list[Packet]], data: st.DataObject
) -> None:
    connect, others = sent
    written = b"".join(encode(packet, connect.version) for packet in (connect, *others))
    cuts = data.draw(st.lists(st.integers(0, len(written)), max_size=6).map(sorted))
    decoder = PacketDecoder()
    read: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        read += decoder.feed(written[start:end])

    assert read == [connect, *others]
    assert decoder.kept_bytes == 0


@given(st.sampled_from(Version), st.lists(st.binary(max_size=30), max_size=5))
def test_no_bytes_do_anything_but_be_read_or_refused(version: Version, chunks: list[bytes]) -> None:
    decoder = PacketDecoder(PacketLimits(packet_bytes_max=16), version)
    with contextlib.suppress(MqttProtocolError):
        for chunk in chunks:
            decoder.feed(chunk)


@given(st.sampled_from(Version).flatmap(lambda v: st.tuples(st.just(v), packets(v))), st.data())
def test_a_byte_that_is_changed_does_nothing_worse(
    sent: tuple[Version, Packet], data: st.DataObject
) -> None:
    version, packet = sent
    written = bytearray(encode(packet, version))
    written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    decoder = PacketDecoder(version=version)
    with contextlib.suppress(MqttProtocolError):
        decoder.feed(bytes(written))


def test_the_example_of_the_standard() -> None:
    """MQTT 3.1.1, figure 3.6: a CONNECT with everything in it."""
    head = b"\x00\x04MQTT\x04\xce\x00\x0a"
    payload = b"\x00\x01c\x00\x01w\x00\x02hi\x00\x01u\x00\x01p"
    [connect] = PacketDecoder().feed(b"\x10" + bytes([len(head + payload)]) + head + payload)

    assert connect == Connect(
        version=Version.V3_1_1,
        client_id="c",
        clean_start=True,
        keep_alive_s=10,
        will=Will(topic="w", payload=b"hi", qos=1),
        user_name="u",
        password=b"p",
    )


CONNECT_5 = encode(Connect(version=Version.V5, client_id="c"), Version.V5)


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (b"\xc0\x00", Reason.PROTOCOL_ERROR, "first packet is CONNECT"),
        (CONNECT_5 * 2, Reason.PROTOCOL_ERROR, "once"),
        (CONNECT_5 + b"\x36\x03\x00\x01a", Reason.MALFORMED_PACKET, "no QoS 3"),
        (CONNECT_5 + b"\x38\x04\x00\x01a\x00", Reason.MALFORMED_PACKET, "no duplicate"),
        (CONNECT_5 + b"\x32\x06\x00\x01a\x00\x00\x00", Reason.PROTOCOL_ERROR, "not 0"),
        (CONNECT_5 + b"\x30\x04\x00\x01#\x00", Reason.TOPIC_NAME_INVALID, "'#'"),
        (CONNECT_5 + b"\x30\x03\x00\x00\x00", Reason.TOPIC_NAME_INVALID, "''"),
        (CONNECT_5 + b"\x80\x00", Reason.MALFORMED_PACKET, "flags"),
        (CONNECT_5 + b"\x82\x03\x00\x01\x00", Reason.MALFORMED_PACKET, "middle"),
        (CONNECT_5 + b"\x82\x07\x00\x01\x00\x00\x01b\x03", Reason.MALFORMED_PACKET, "options"),
        (CONNECT_5 + b"\x82\x08\x00\x01\x00\x00\x02#b\x00", Reason.TOPIC_FILTER_INVALID, "#b"),
        (CONNECT_5 + b"\x30\x06\x00\x01a\x02\x7f\x00", Reason.MALFORMED_PACKET, "no property"),
        (CONNECT_5 + b"\x30\x06\x00\x01a\x02\x24\x00", Reason.PROTOCOL_ERROR, "MAXIMUM_QOS"),
        (CONNECT_5 + b"\x30\x08\x00\x01a\x04\x01\x00\x01\x00", Reason.PROTOCOL_ERROR, "twice"),
        (CONNECT_5 + b"\x30\xff\xff\xff\xff", Reason.MALFORMED_PACKET, "four bytes"),
        (CONNECT_5 + b"\x30\xff\xff\x7f", Reason.PACKET_TOO_LARGE, "at most 1000"),
        (CONNECT_5 + b"\x00\x00", Reason.MALFORMED_PACKET, "no packet of type 0"),
        (CONNECT_5 + b"\xc0\x01x", Reason.MALFORMED_PACKET, "longer"),
        (b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x00\x00\x00", Reason.UNSUPPORTED_VERSION, "level 3"),
        (b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00", Reason.MALFORMED_PACKET, "flags"),
        (b"\x10\x0e\x00\x04MQTT\x04\x42\x00\x00\x00\x00\x00\x00", Reason.MALFORMED_PACKET, "user"),
    ],
)
def test_what_no_client_may_send_is_refused_with_its_reason(
    data: bytes, reason: Reason, words: str
) -> None:
    with pytest.raises(MqttProtocolError, match=words) as refused:
        PacketDecoder(PacketLimits(packet_bytes_max=1000)).feed(data)

    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *[("a", True), ("+/b", True), ("a/+/#", True), ("#", True), ("/", True), ("//+", True)],
        *[("", False), ("a#", False), ("#/a", False), ("a+/b", False)],
    ],
)
def test_topic_filters_are_those_of_the_standard(text: str, is_one: bool) -> None:
    assert is_topic_filter(text) is is_one
