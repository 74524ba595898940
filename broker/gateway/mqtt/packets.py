"""What clients and servers of MQTT say to each other; MQTT 3.1.1 (2014) and 5.0 (2019), section 3.

Both versions have the same packets. What only version 5 has is a default here: reasons of success,
no properties.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

import attrs


class Version(enum.IntEnum):
    """The protocol level that a CONNECT names."""

    V3_1_1 = 4
    V5 = 5


class Type(enum.IntEnum):
    """The first four bits of a packet."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(enum.IntEnum):
    """How something ended (5.0, section 2.4); below 128 it went well."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1
    WILDCARDS_NOT_SUPPORTED = 0xA2


class Property(enum.IntEnum):
    """What version 5 may add to a packet (section 2.2.2.2)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY_S = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY_S = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE_S = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_S = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_BYTES = 0x27
    WILDCARDS_AVAILABLE = 0x28
    SUBSCRIPTION_IDS_AVAILABLE = 0x29
    SHARED_SUBSCRIPTIONS_AVAILABLE = 0x2A


Properties = Mapping[Property, Any]
"""By property its value: a number, text or bytes; of `USER_PROPERTY` a tuple of pairs of texts, of
`SUBSCRIPTION_ID` a tuple of numbers."""

NO_PROPERTIES: Final[Properties] = {}


@attrs.frozen(kw_only=True)
class Will:
    """What is published for a client that does not take its leave."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class Connect:
    """The first packet of a client."""

    version: Version
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = None
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class ConnAck:
    """The answer to it. In version 3 `reason` is one of its six return codes."""

    session_present: bool = False
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class Publish:
    """A publication, in either direction; with a QoS it has a `packet_id`, which is not 0."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    is_duplicate: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class AckKind(enum.IntEnum):
    """Which step of QoS 1 or 2 is confirmed."""

    PUBACK = Type.PUBACK
    PUBREC = Type.PUBREC
    PUBREL = Type.PUBREL
    PUBCOMP = Type.PUBCOMP


@attrs.frozen(kw_only=True)
class Ack:
    """A step of QoS 1 or 2."""

    kind: AckKind
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class RetainHandling(enum.IntEnum):
    """Whether retained messages are sent to who subscribes."""

    SEND = 0
    SEND_IF_NEW = 1
    DO_NOT_SEND = 2


@attrs.frozen(kw_only=True)
class Request:
    """One topic filter that is subscribed to."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.SEND


@attrs.frozen(kw_only=True)
class Subscribe:
    """At least one request."""

    packet_id: int
    requests: tuple[Request, ...]
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class SubAck:
    """For each request how it ended: the QoS that is granted, or why not."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class Unsubscribe:
    """At least one topic filter."""

    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class UnsubAck:
    """For each filter how it ended; version 3 does not say."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


@attrs.frozen
class PingReq:
    """A client shows that it is there."""


@attrs.frozen
class PingResp:
    """The server, too."""


@attrs.frozen(kw_only=True)
class Disconnect:
    """The last packet. Version 3 knows it from clients only, and without a reason."""

    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@attrs.frozen(kw_only=True)
class Auth:
    """A step of an exchange such as SCRAM; version 5 only."""

    reason: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | ConnAck
    | Publish
    | Ack
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
