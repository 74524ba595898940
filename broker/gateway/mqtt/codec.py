"""MQTT packets to bytes and back, in any split of the bytes (MQTT 5.0 and 3.1.1, sections 2 and 3).

    packet = type and flags, length, payload      length = 1 to 4 bytes of 7 bits, lowest first

What the standard forbids is refused in words, with the reason that version 5 has for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from plait.broker.gateway.mqtt.fields import (
    LENGTH_BYTES_MAX,
    U16,
    MqttProtocolError,
    PacketLimits,
    Reader,
    binary_bytes,
    malformed,
    number_bytes,
    text_bytes,
    violation,
)
from plait.broker.gateway.mqtt.packets import (
    NO_PROPERTIES,
    Ack,
    AckKind,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    Property,
    Publish,
    Reason,
    Request,
    RetainHandling,
    SubAck,
    Subscribe,
    Type,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from plait.broker.gateway.mqtt.properties import WILL, properties_bytes, read_properties
from plait.broker.gateway.mqtt.topics import is_topic_filter, is_topic_name

PROTOCOL_NAME: Final = "MQTT"
QOS_MAX: Final = 2

_RESERVED_FLAGS: Final[Mapping[int, int]] = {
    AckKind.PUBREL: 0b0010,
    Type.SUBSCRIBE: 0b0010,
    Type.UNSUBSCRIBE: 0b0010,
}
"""Of packets other than PUBLISH; 0 where nothing stands."""


def encode(packet: Packet, version: Version) -> bytes:
    """Return the bytes of a packet in this version."""
    number, flags, payload = _written(packet, version)
    return bytes([number << 4 | flags]) + number_bytes(len(payload)) + payload


def _written(packet: Packet, version: Version) -> tuple[int, int, bytes]:
    """Return a packet's type, its flags, and what follows its length."""
    match packet:
        case Publish():
            return Type.PUBLISH, *_written_publish(packet, version)
        case Ack():
            return packet.kind, _RESERVED_FLAGS.get(packet.kind, 0), _written_ack(packet, version)
        case PingReq():
            return Type.PINGREQ, 0, b""
        case PingResp():
            return Type.PINGRESP, 0, b""
        case Connect():
            return Type.CONNECT, 0, _written_connect(packet)
        case ConnAck():
            head = bytes([packet.session_present, packet.reason])
            return Type.CONNACK, 0, head + properties_bytes(packet.properties, version)
        case Subscribe():
            requests = b"".join(map(_written_request, packet.requests))
            return Type.SUBSCRIBE, 0b0010, _identified(packet, version) + requests
        case SubAck():
            return Type.SUBACK, 0, _identified(packet, version) + bytes(packet.reasons)
        case Unsubscribe():
            filters = b"".join(map(text_bytes, packet.topic_filters))
            return Type.UNSUBSCRIBE, 0b0010, _identified(packet, version) + filters
        case UnsubAck():
            reasons = bytes(packet.reasons) if version is Version.V5 else b""
            return Type.UNSUBACK, 0, _identified(packet, version) + reasons
        case Disconnect():
            return Type.DISCONNECT, 0, _written_end(packet, version)
        case Auth():
            return Type.AUTH, 0, _written_end(packet, version)


def _identified(packet: Subscribe | SubAck | Unsubscribe | UnsubAck, version: Version) -> bytes:
    return U16.pack(packet.packet_id) + properties_bytes(packet.properties, version)


def _written_publish(packet: Publish, version: Version) -> tuple[int, bytes]:
    flags = packet.is_duplicate << 3 | packet.qos << 1 | packet.retain
    identifier = U16.pack(packet.packet_id) if packet.qos else b""
    properties = properties_bytes(packet.properties, version)
    return flags, text_bytes(packet.topic) + identifier + properties + packet.payload


def _written_ack(packet: Ack, version: Version) -> bytes:
    identifier = U16.pack(packet.packet_id)
    if version is not Version.V5 or (packet.reason == Reason.SUCCESS and not packet.properties):
        return identifier
    return identifier + bytes([packet.reason]) + properties_bytes(packet.properties, version)


def _written_end(packet: Disconnect | Auth, version: Version) -> bytes:
    if version is not Version.V5 or (packet.reason == Reason.SUCCESS and not packet.properties):
        return b""
    return bytes([packet.reason]) + properties_bytes(packet.properties, version)


def _written_request(request: Request) -> bytes:
    options = (
        request.qos
        | request.no_local << 2
        | request.retain_as_published << 3
        | request.retain_handling << 4
    )
    return text_bytes(request.topic_filter) + bytes([options])


def _written_connect(packet: Connect) -> bytes:
    will = packet.will
    flags = (
        packet.clean_start << 1
        | (will is not None) << 2
        | (will.qos if will else 0) << 3
        | (will.retain if will else False) << 5
        | (packet.password is not None) << 6
        | (packet.user_name is not None) << 7
    )
    parts = [
        text_bytes(PROTOCOL_NAME),
        bytes([packet.version, flags]),
        U16.pack(packet.keep_alive_s),
        properties_bytes(packet.properties, packet.version),
        text_bytes(packet.client_id),
    ]
    if will is not None:
        parts.append(properties_bytes(will.properties, packet.version))
        parts += [text_bytes(will.topic), binary_bytes(will.payload)]
    if packet.user_name is not None:
        parts.append(text_bytes(packet.user_name))
    if packet.password is not None:
        parts.append(binary_bytes(packet.password))
    return b"".join(parts)


class PacketDecoder:
    """Turns the bytes of one connection into packets."""

    def __init__(self, limits: PacketLimits | None = None, version: Version | None = None) -> None:
        self._limits = limits or PacketLimits()
        self.version = version
        """Of the connection: what its CONNECT says, which has to come first if nothing is given."""
        self._buffer = bytearray()
        self._awaited = 2

    @property
    def kept_bytes(self) -> int:
        """How much memory is kept for a packet that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Packet]:
        """Return the packets that these bytes complete, in order."""
        self._buffer += data
        packets: list[Packet] = []
        start = 0
        while len(self._buffer) - start >= self._awaited:
            head = self._head(start)
            if head is None:
                self._awaited = len(self._buffer) - start + 1
                break
            begin, end = head
            if end > len(self._buffer):
                self._awaited = end - start
                break
            packets.append(self._decode(self._buffer[start], bytes(self._buffer[begin:end])))
            start = end
            self._awaited = 2
        del self._buffer[:start]
        return packets

    def _head(self, start: int) -> tuple[int, int] | None:
        """Where the payload of the packet there begins and ends; `None` if nobody knows yet."""
        length = 0
        for place in range(LENGTH_BYTES_MAX):
            at = start + 1 + place
            if at >= len(self._buffer):
                return None
            byte = self._buffer[at]
            length |= (byte & 127) << (7 * place)
            if byte < 128:
                if length > self._limits.packet_bytes_max:
                    raise MqttProtocolError(
                        Reason.PACKET_TOO_LARGE,
                        f"a packet has at most {self._limits.packet_bytes_max} bytes, "
                        f"found {length}",
                    )
                return at + 1, at + 1 + length
        raise malformed("the length of a packet has more than four bytes")

    def _decode(self, first: int, payload: bytes) -> Packet:
        number, flags = first >> 4, first & 15
        if self.version is None and number != Type.CONNECT:
            raise violation(f"the first packet is CONNECT, found type {number}")
        reader = Reader(payload)
        if number == Type.PUBLISH:
            return self._publish(reader, flags)
        if flags != _RESERVED_FLAGS.get(number, 0):
            raise malformed(f"a packet of type {number} has other flags than {flags:#06b}")
        read = _READERS.get(number)
        if read is None:
            raise malformed(f"there is no packet of type {number}")
        packet = read(self, reader)
        if not reader.is_at_end():
            raise malformed(f"{type(packet).__name__} is longer than what it says")
        return packet

    def _properties(self, reader: Reader, packet: int) -> Properties:
        assert self.version is not None, "CONNECT came first"
        return read_properties(reader, packet, self.version, self._limits)

    def _publish(self, reader: Reader, flags: int) -> Publish:
        qos = flags >> 1 & 3
        if qos > QOS_MAX:
            raise malformed("there is no QoS 3")
        if not qos and flags & 8:
            raise malformed("a publication of QoS 0 is no duplicate")
        topic = reader.text()
        packet_id = reader.packet_id() if qos else 0
        properties = self._properties(reader, Type.PUBLISH)
        if not is_topic_name(topic) and (topic or Property.TOPIC_ALIAS not in properties):
            raise MqttProtocolError(
                Reason.TOPIC_NAME_INVALID, f"nothing can be published on the topic {topic[:80]!r}"
            )
        return Publish(
            topic=topic,
            payload=reader.rest(),
            qos=qos,
            retain=bool(flags & 1),
            is_duplicate=bool(flags & 8),
            packet_id=packet_id,
            properties=properties,
        )

    def _connect(self, reader: Reader) -> Connect:
        if self.version is not None:
            raise violation("a client connects once")
        name, level = reader.text(), reader.byte()
        if name != PROTOCOL_NAME or level not in {*Version}:
            raise MqttProtocolError(
                Reason.UNSUPPORTED_VERSION,
                f"expected MQTT 3.1.1 or 5, found {name[:40]!r} at level {level}",
            )
        version = self.version = Version(level)
        flags = reader.byte()
        has_will, will_qos = bool(flags & 4), flags >> 3 & 3
        if flags & 1 or will_qos > QOS_MAX or (not has_will and flags & 0b0011_1000):
            raise malformed(f"flags of CONNECT that cannot be: {flags:#010b}")
        has_user, has_password = bool(flags & 128), bool(flags & 64)
        if version is Version.V3_1_1 and has_password and not has_user:
            raise malformed("a password without a user name, which MQTT 3.1.1 does not have")
        keep_alive_s = reader.u16()
        properties = self._properties(reader, Type.CONNECT)
        client_id = reader.text()
        return Connect(
            version=version,
            client_id=client_id,
            clean_start=bool(flags & 2),
            keep_alive_s=keep_alive_s,
            will=self._will(reader, will_qos, retain=bool(flags & 32)) if has_will else None,
            user_name=reader.text() if has_user else None,
            password=reader.binary() if has_password else None,
            properties=properties,
        )

    def _will(self, reader: Reader, qos: int, *, retain: bool) -> Will:
        properties = self._properties(reader, WILL)
        topic = reader.text()
        if not is_topic_name(topic):
            raise MqttProtocolError(
                Reason.TOPIC_NAME_INVALID, f"no will can be published on the topic {topic[:80]!r}"
            )
        return Will(
            topic=topic, payload=reader.binary(), qos=qos, retain=retain, properties=properties
        )

    def _connack(self, reader: Reader) -> ConnAck:
        session_present, reason = reader.byte(), reader.byte()
        if session_present > 1:
            raise malformed("flags of CONNACK that cannot be")
        return ConnAck(
            session_present=bool(session_present),
            reason=reason,
            properties=self._properties(reader, Type.CONNACK),
        )

    def _ack(self, reader: Reader, kind: AckKind) -> Ack:
        packet_id = reader.packet_id()
        reason, properties = self._ending(reader, kind)
        return Ack(kind=kind, packet_id=packet_id, reason=reason, properties=properties)

    def _ending(self, reader: Reader, packet: int) -> tuple[int, Properties]:
        """A reason and properties, each of which may be left out at the end of a packet."""
        reason = Reason.SUCCESS if self._is_over(reader) else reader.byte()
        has_properties = not self._is_over(reader)
        return reason, self._properties(reader, packet) if has_properties else NO_PROPERTIES

    def _is_over(self, reader: Reader) -> bool:
        return self.version is not Version.V5 or reader.is_at_end()

    def _subscribe(self, reader: Reader) -> Subscribe:
        packet_id = reader.packet_id()
        properties = self._properties(reader, Type.SUBSCRIBE)
        if len(properties.get(Property.SUBSCRIPTION_ID, ())) > 1:
            raise violation("SUBSCRIBE has one subscription identifier")
        requests: list[Request] = []
        while not requests or not reader.is_at_end():
            self._require_room(requests)
            requests.append(self._request(reader))
        return Subscribe(packet_id=packet_id, requests=tuple(requests), properties=properties)

    def _require_room(self, requests: list[Any]) -> None:
        if len(requests) == self._limits.requests_max:
            raise MqttProtocolError(
                Reason.QUOTA_EXCEEDED, f"at most {self._limits.requests_max} filters at once"
            )

    def _request(self, reader: Reader) -> Request:
        topic_filter, options = self._topic_filter(reader), reader.byte()
        handling = options >> 4
        if options & 3 > QOS_MAX or handling > max(RetainHandling):
            raise malformed(f"options of a subscription that cannot be: {options:#010b}")
        if self.version is Version.V3_1_1 and options > QOS_MAX:
            raise malformed("MQTT 3.1.1 has no option of a subscription but QoS")
        return Request(
            topic_filter=topic_filter,
            qos=options & 3,
            no_local=bool(options & 4),
            retain_as_published=bool(options & 8),
            retain_handling=RetainHandling(handling),
        )

    def _topic_filter(self, reader: Reader) -> str:
        text = reader.text()
        if not is_topic_filter(text):
            raise MqttProtocolError(
                Reason.TOPIC_FILTER_INVALID, f"not a topic filter: {text[:80]!r}"
            )
        return text

    def _suback(self, reader: Reader) -> SubAck:
        packet_id = reader.packet_id()
        properties = self._properties(reader, Type.SUBACK)
        return SubAck(packet_id=packet_id, reasons=tuple(reader.rest()), properties=properties)

    def _unsubscribe(self, reader: Reader) -> Unsubscribe:
        packet_id = reader.packet_id()
        properties = self._properties(reader, Type.UNSUBSCRIBE)
        filters: list[str] = []
        while not filters or not reader.is_at_end():
            self._require_room(filters)
            filters.append(self._topic_filter(reader))
        return Unsubscribe(packet_id=packet_id, topic_filters=tuple(filters), properties=properties)

    def _unsuback(self, reader: Reader) -> UnsubAck:
        packet_id = reader.packet_id()
        properties = self._properties(reader, Type.UNSUBACK)
        return UnsubAck(packet_id=packet_id, reasons=tuple(reader.rest()), properties=properties)

    def _disconnect(self, reader: Reader) -> Disconnect:
        reason, properties = self._ending(reader, Type.DISCONNECT)
        return Disconnect(reason=reason, properties=properties)

    def _auth(self, reader: Reader) -> Auth:
        if self.version is not Version.V5:
            raise malformed("AUTH is of MQTT 5")
        reason, properties = self._ending(reader, Type.AUTH)
        return Auth(reason=reason, properties=properties)


def _reader_of(kind: AckKind) -> Callable[[PacketDecoder, Reader], Packet]:
    return lambda decoder, reader: decoder._ack(reader, kind)


_READERS: Final[Mapping[int, Callable[[PacketDecoder, Reader], Packet]]] = {
    Type.CONNECT: PacketDecoder._connect,
    Type.CONNACK: PacketDecoder._connack,
    **{kind: _reader_of(kind) for kind in AckKind},
    Type.SUBSCRIBE: PacketDecoder._subscribe,
    Type.SUBACK: PacketDecoder._suback,
    Type.UNSUBSCRIBE: PacketDecoder._unsubscribe,
    Type.UNSUBACK: PacketDecoder._unsuback,
    Type.PINGREQ: lambda _decoder, _reader: PingReq(),
    Type.PINGRESP: lambda _decoder, _reader: PingResp(),
    Type.DISCONNECT: PacketDecoder._disconnect,
    Type.AUTH: PacketDecoder._auth,
}
