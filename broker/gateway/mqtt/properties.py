"""What MQTT 5 may add to a packet, and to which (MQTT 5.0, section 2.2.2)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from plait.broker.gateway.mqtt.fields import (
    U16,
    U32,
    MqttProtocolError,
    PacketLimits,
    Reader,
    binary_bytes,
    byte_bytes,
    malformed,
    number_bytes,
    pair_bytes,
    text_bytes,
    violation,
)
from plait.broker.gateway.mqtt.packets import (
    NO_PROPERTIES,
    Properties,
    Property,
    Reason,
    Type,
    Version,
)


@attrs.frozen
class _Kind:
    """How the value of a property is written."""

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _flag(reader: Reader) -> int:
    value = reader.byte()
    if value > 1:
        raise violation(f"expected 0 or 1, found {value}")
    return value


def _positive(read: Callable[[Reader], int]) -> Callable[[Reader], int]:
    def reading(reader: Reader) -> int:
        value = read(reader)
        if not value:
            raise violation("a property that counts is not 0")
        return value

    return reading


_FLAG: Final = _Kind(byte_bytes, _flag)
_TEXT: Final = _Kind(text_bytes, Reader.text)
_BINARY: Final = _Kind(binary_bytes, Reader.binary)
_SECONDS: Final = _Kind(U32.pack, Reader.u32)
_COUNT: Final = _Kind(U16.pack, _positive(Reader.u16))

WILL: Final = 0
"""Instead of a packet's type, in the table below: a will, which has properties of its own."""

_PROPERTIES: Final[Mapping[Property, tuple[_Kind, frozenset[int]]]] = {
    Property.PAYLOAD_FORMAT: (_FLAG, frozenset({Type.PUBLISH, WILL})),
    Property.MESSAGE_EXPIRY_S: (_SECONDS, frozenset({Type.PUBLISH, WILL})),
    Property.CONTENT_TYPE: (_TEXT, frozenset({Type.PUBLISH, WILL})),
    Property.RESPONSE_TOPIC: (_TEXT, frozenset({Type.PUBLISH, WILL})),
    Property.CORRELATION_DATA: (_BINARY, frozenset({Type.PUBLISH, WILL})),
    Property.SUBSCRIPTION_ID: (
        _Kind(number_bytes, _positive(Reader.number)),
        frozenset({Type.PUBLISH, Type.SUBSCRIBE}),
    ),
    Property.SESSION_EXPIRY_S: (_SECONDS, frozenset({Type.CONNECT, Type.CONNACK, Type.DISCONNECT})),
    Property.ASSIGNED_CLIENT_ID: (_TEXT, frozenset({Type.CONNACK})),
    Property.SERVER_KEEP_ALIVE_S: (_Kind(U16.pack, Reader.u16), frozenset({Type.CONNACK})),
    Property.AUTHENTICATION_METHOD: (_TEXT, frozenset({Type.CONNECT, Type.CONNACK, Type.AUTH})),
    Property.AUTHENTICATION_DATA: (_BINARY, frozenset({Type.CONNECT, Type.CONNACK, Type.AUTH})),
    Property.REQUEST_PROBLEM_INFORMATION: (_FLAG, frozenset({Type.CONNECT})),
    Property.WILL_DELAY_S: (_SECONDS, frozenset({WILL})),
    Property.REQUEST_RESPONSE_INFORMATION: (_FLAG, frozenset({Type.CONNECT})),
    Property.RESPONSE_INFORMATION: (_TEXT, frozenset({Type.CONNACK})),
    Property.SERVER_REFERENCE: (_TEXT, frozenset({Type.CONNACK, Type.DISCONNECT})),
    Property.REASON_STRING: (
        _TEXT,
        frozenset(
            {
                Type.CONNACK,
                Type.PUBACK,
                Type.PUBREC,
                Type.PUBREL,
                Type.PUBCOMP,
                Type.SUBACK,
                Type.UNSUBACK,
                Type.DISCONNECT,
                Type.AUTH,
            }
        ),
    ),
    Property.RECEIVE_MAXIMUM: (_COUNT, frozenset({Type.CONNECT, Type.CONNACK})),
    Property.TOPIC_ALIAS_MAXIMUM: (
        _Kind(U16.pack, Reader.u16),
        frozenset({Type.CONNECT, Type.CONNACK}),
    ),
    Property.TOPIC_ALIAS: (_COUNT, frozenset({Type.PUBLISH})),
    Property.MAXIMUM_QOS: (_FLAG, frozenset({Type.CONNACK})),
    Property.RETAIN_AVAILABLE: (_FLAG, frozenset({Type.CONNACK})),
    Property.USER_PROPERTY: (_Kind(pair_bytes, Reader.pair), frozenset(range(16))),
    Property.MAXIMUM_PACKET_BYTES: (
        _Kind(U32.pack, _positive(Reader.u32)),
        frozenset({Type.CONNECT, Type.CONNACK}),
    ),
    Property.WILDCARDS_AVAILABLE: (_FLAG, frozenset({Type.CONNACK})),
    Property.SUBSCRIPTION_IDS_AVAILABLE: (_FLAG, frozenset({Type.CONNACK})),
    Property.SHARED_SUBSCRIPTIONS_AVAILABLE: (_FLAG, frozenset({Type.CONNACK})),
}

_REPEATED: Final = frozenset({Property.USER_PROPERTY, Property.SUBSCRIPTION_ID})


def properties_bytes(properties: Properties, version: Version) -> bytes:
    """Nothing in version 3, which has none."""
    if version is not Version.V5:
        return b""
    written = bytearray()
    for name, value in properties.items():
        write = _PROPERTIES[name][0].write
        for one in value if name in _REPEATED else (value,):
            written.append(name)
            written += write(one)
    return number_bytes(len(written)) + bytes(written)


def read_properties(
    reader: Reader, packet: int, version: Version, limits: PacketLimits
) -> Properties:
    """Read what may stand in a packet of this type, behind the count of its bytes."""
    if version is not Version.V5:
        return NO_PROPERTIES
    length = reader.number()
    if not length:
        return NO_PROPERTIES
    inside = Reader(reader.take(length))
    found: dict[Property, Any] = {}
    repeated: dict[Property, list[Any]] = {}
    while not inside.is_at_end():
        number = inside.number()
        try:
            name = Property(number)
        except ValueError:
            raise malformed(f"there is no property {number:#04x}") from None
        kind, packets = _PROPERTIES[name]
        if packet not in packets:
            raise violation(f"{name.name} does not belong in a packet of type {packet}")
        value = kind.read(inside)
        if name in _REPEATED:
            values = repeated.setdefault(name, [])
            values.append(value)
            if len(values) > limits.user_properties_max:
                raise MqttProtocolError(
                    Reason.QUOTA_EXCEEDED, f"more than {limits.user_properties_max} {name.name}"
                )
        elif name in found:
            raise violation(f"{name.name} stands there twice")
        else:
            found[name] = value
    return found | {name: tuple(values) for name, values in repeated.items()}
