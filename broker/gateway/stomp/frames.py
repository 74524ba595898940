"""STOMP frames to bytes and back, in any split of the bytes; STOMP 1.2 of 2012, and 1.0, 1.1.

    frame  = command EOL { name ":" value EOL } EOL { octet } NUL
    EOL    = LF, or CR LF

Versions differ in how names and values are escaped. `CONNECT` and `CONNECTED` escape nothing, in
any version: when they are read, the version is not known yet. Of a name that is repeated, the first
value counts. Line ends between frames are heart-beats.
"""

import enum
import re
from collections.abc import Mapping
from typing import Final

import attrs

from plait.broker.gateway.errors import GatewayProtocolError


class Version(enum.StrEnum):
    """What a client and a server have agreed to speak."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


@attrs.frozen(kw_only=True)
class FrameLimits:
    """What one client may send at once."""

    headers_max: int = 128
    """Attributes of a publication, and what STOMP itself says."""
    line_bytes_max: int = 16 << 10
    """A command, or a header with its name."""
    header_bytes_max: int = 64 << 10
    """All headers together."""
    body_bytes_max: int = 1 << 20


@attrs.frozen
class Frame:
    """One frame. Header names are unique."""

    command: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""


class HeartBeat(enum.Enum):
    """What a client sends only to show that it is there."""

    HEART_BEAT = enum.auto()


HEART_BEAT: Final = HeartBeat.HEART_BEAT
HEART_BEAT_BYTES: Final = b"\n"

_PLAIN_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})
_ESCAPES: Final[Mapping[Version, Mapping[str, str]]] = {
    Version.V1_0: {},
    Version.V1_1: {"\\\\": "\\", "\\n": "\n", "\\c": ":"},
    Version.V1_2: {"\\\\": "\\", "\\n": "\n", "\\c": ":", "\\r": "\r"},
}
_WRITTEN: Final = {
    version: {ord(char): escape for escape, char in escapes.items()}
    for version, escapes in _ESCAPES.items()
}
_ESCAPE: Final = re.compile(r"\\.?", re.DOTALL)
_LENGTH_DIGITS_MAX: Final = 15


def encode(frame: Frame, version: Version = Version.V1_2) -> bytes:
    """Return the bytes of a frame; its body's length is told, so that it may contain anything."""
    # CONNECT and STOMP name the version, CONNECTED confirms it: nobody can know it before.
    table = {} if frame.command in _PLAIN_COMMANDS else _WRITTEN[version]
    lines = [frame.command]
    for name, value in frame.headers.items():
        name, value = name.translate(table), value.translate(table)
        if "\n" in name + value or ":" in name or value.endswith("\r"):
            raise ValueError(f"header {name!r}: STOMP {version} cannot say {value!r}")
        lines.append(f"{name}:{value}")
    if frame.body:
        lines.append(f"content-length:{len(frame.body)}")
    return "\n".join([*lines, "", ""]).encode() + frame.body + b"\0"


class _Stage(enum.Enum):
    """What the next bytes of a connection are part of."""

    BETWEEN = enum.auto()
    HEADERS = enum.auto()
    BODY = enum.auto()


class FrameParser:
    """Turns the bytes of one connection into frames and heart-beats."""

    def __init__(self, limits: FrameLimits | None = None) -> None:
        self.version = Version.V1_2
        """What was agreed; until then nothing is escaped anyway."""
        self._limits = limits or FrameLimits()
        self._buffer = bytearray()
        self._looked_at = 0
        """How much of the buffer has been searched for the end of a line, or of a body, in vain."""
        self._stage = _Stage.BETWEEN
        self._command = ""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body_length: int | None = None

    @property
    def kept_bytes(self) -> int:
        """About how much memory is kept for a frame that is not complete yet."""
        return len(self._buffer) + self._header_bytes

    def feed(self, data: bytes) -> list[Frame | HeartBeat]:
        """Return what these bytes complete, in order."""
        self._buffer += data
        found: list[Frame | HeartBeat] = []
        while True:
            if self._stage is _Stage.BODY:
                body = self._take_body()
                if body is None:
                    return found
                found.append(Frame(self._command, self._headers, body))
                self._stage = _Stage.BETWEEN
                continue
            line = self._take_line()
            if line is None:
                return found
            if self._stage is _Stage.HEADERS:
                self._on_header_line(line)
            elif not line:
                found.append(HEART_BEAT)
            else:
                self._begin(line)

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._looked_at)
        length = len(self._buffer) if end < 0 else end
        if length > self._limits.line_bytes_max:
            raise GatewayProtocolError(
                f"a line of more than {self._limits.line_bytes_max} bytes is not allowed"
            )
        if end < 0:
            self._looked_at = length
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._looked_at = 0
        return line.removesuffix(b"\r")

    def _begin(self, line: bytes) -> None:
        self._command = _text(line, "command")
        if not self._command.isalpha() or not self._command.isupper():
            raise GatewayProtocolError(f"expected a command, found {self._command[:40]!r}")
        self._headers = {}
        self._header_bytes = 0
        self._stage = _Stage.HEADERS

    def _on_header_line(self, line: bytes) -> None:
        limits = self._limits
        if not line:
            self._body_length = self._told_length()
            self._stage = _Stage.BODY
            return
        self._header_bytes += len(line)
        if len(self._headers) >= limits.headers_max or self._header_bytes > limits.header_bytes_max:
            raise GatewayProtocolError(
                f"{self._command} has more than {limits.headers_max} headers, or "
                f"{limits.header_bytes_max} bytes of them"
            )
        name, colon, value = _text(line, "header").partition(":")
        if not colon:
            raise GatewayProtocolError(f"a header is NAME:VALUE, found {name[:40]!r}")
        if self._command not in _PLAIN_COMMANDS:
            name, value = self._unescaped(name), self._unescaped(value)
        self._headers.setdefault(name, value)

    def _unescaped(self, text: str) -> str:
        if "\\" not in text or self.version is Version.V1_0:
            return text
        escapes = _ESCAPES[self.version]

        def meant(match: re.Match[str]) -> str:
            if match[0] not in escapes:
                raise GatewayProtocolError(
                    f"STOMP {self.version} has no escape {match[0]!r}, "
                    f"only {' '.join(sorted(escapes))}"
                )
            return escapes[match[0]]

        return _ESCAPE.sub(meant, text)

    def _told_length(self) -> int | None:
        told = self._headers.get("content-length")
        if told is None:
            return None
        if not (told.isascii() and told.isdigit()) or len(told) > _LENGTH_DIGITS_MAX:
            raise GatewayProtocolError(f"content-length: expected a number, found {told[:40]!r}")
        return self._allowed(int(told))

    def _allowed(self, length: int) -> int:
        if length > self._limits.body_bytes_max:
            raise GatewayProtocolError(
                f"a body has at most {self._limits.body_bytes_max} bytes, found {length}"
            )
        return length

    def _take_body(self) -> bytes | None:
        buffer, length = self._buffer, self._body_length
        if length is None:
            length = buffer.find(b"\0", self._looked_at)
            if length < 0:
                self._looked_at = self._allowed(len(buffer))
                return None
            self._allowed(length)
        elif len(buffer) <= length:
            return None
        elif buffer[length]:
            raise GatewayProtocolError(f"expected NUL after a body of {length} bytes")
        body = bytes(buffer[:length])
        del buffer[: length + 1]
        self._looked_at = 0
        return body


def _text(line: bytes, what: str) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise GatewayProtocolError(f"a {what} is text in UTF-8, found {line[:40]!r}") from None
    if "\0" in text:
        raise GatewayProtocolError(f"a {what} has no NUL, found {text[:40]!r}")
    return text
