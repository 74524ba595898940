"""Fields of MQTT packets: numbers, texts and bytes, written and read (MQTT 5.0, section 1.5)."""

import struct
from typing import Final

import attrs

from plait.broker.gateway.errors import GatewayProtocolError
from plait.broker.gateway.mqtt.packets import Reason

LENGTH_BYTES_MAX: Final = 4
LENGTH_MAX: Final = (1 << 28) - 1
TEXT_BYTES_MAX: Final = 0xFFFF

U16: Final = struct.Struct("!H")
U32: Final = struct.Struct("!I")


class MqttProtocolError(GatewayProtocolError):
    """A client broke MQTT; `reason` is what a DISCONNECT or CONNACK of version 5 says of it."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@attrs.frozen(kw_only=True)
class PacketLimits:
    """What one client may send at once."""

    packet_bytes_max: int = 1 << 20
    requests_max: int = 1000
    """Topic filters in one packet."""
    user_properties_max: int = 128


def malformed(text: str) -> MqttProtocolError:
    """Bytes that are no packet."""
    return MqttProtocolError(Reason.MALFORMED_PACKET, text)


def violation(text: str) -> MqttProtocolError:
    """A packet that must not be said."""
    return MqttProtocolError(Reason.PROTOCOL_ERROR, text)


def number_bytes(number: int) -> bytes:
    """A number of variable length."""
    if not 0 <= number <= LENGTH_MAX:
        raise ValueError(f"{number} does not fit into four bytes of seven bits")
    written = bytearray()
    while True:
        number, low = divmod(number, 128)
        written.append(low | (128 if number else 0))
        if not number:
            return bytes(written)


def binary_bytes(data: bytes) -> bytes:
    """Bytes behind their count."""
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes, and MQTT has room for {TEXT_BYTES_MAX}")
    return U16.pack(len(data)) + data


def text_bytes(text: str) -> bytes:
    """Text in UTF-8 behind the count of its bytes."""
    return binary_bytes(text.encode())


def pair_bytes(pair: tuple[str, str]) -> bytes:
    """A name and a value."""
    return text_bytes(pair[0]) + text_bytes(pair[1])


def byte_bytes(number: int) -> bytes:
    """A number below 256."""
    return bytes([number])


class Reader:
    """Reads the payload of one packet from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def rest(self) -> bytes:
        """All that is left."""
        data = self._data[self._at :]
        self._at = len(self._data)
        return data

    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        """So many bytes."""
        end = self._at + count
        if end > len(self._data):
            raise malformed("a packet ends in the middle of a field")
        data = self._data[self._at : end]
        self._at = end
        return data

    def byte(self) -> int:
        """A number of one byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """A number of two bytes."""
        number: int = U16.unpack(self.take(2))[0]
        return number

    def u32(self) -> int:
        """A number of four bytes."""
        number: int = U32.unpack(self.take(4))[0]
        return number

    def number(self) -> int:
        """A number of variable length."""
        value = 0
        for place in range(LENGTH_BYTES_MAX):
            byte = self.byte()
            value |= (byte & 127) << (7 * place)
            if byte < 128:
                if place and not byte:
                    raise malformed("a number is written longer than it has to be")
                return value
        raise malformed("a number has more than four bytes")

    def binary(self) -> bytes:
        """Bytes behind their count."""
        return self.take(self.u16())

    def text(self) -> str:
        """Text in UTF-8 behind the count of its bytes."""
        data = self.binary()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise malformed(f"expected text in UTF-8, found {data[:40]!r}") from None
        if "\0" in text:
            raise malformed("text has no NUL in MQTT")
        return text

    def pair(self) -> tuple[str, str]:
        """A name and a value."""
        return self.text(), self.text()

    def packet_id(self) -> int:
        """What names a packet until it is confirmed."""
        number = self.u16()
        if not number:
            raise violation("a packet identifier is not 0")
        return number
