"""Messages to bytes and back: framing, msgpack, and every limit on what enters.

A frame is its length (4 bytes, big-endian, itself not counted) and a msgpack array: the number of
the message's type in `MESSAGE_TYPES`, then its fields in the order in which they are declared.
What a field may hold is read off the declaration too, so that a new message needs no line here.

A message whose lists are long travels in several frames: portions of its lists, each with number 0,
the number of the message, which of its fields it is a part of, and the elements; then the message
itself with what is left of them. Step logs, which are bytes to this module, are cut up likewise.
Nobody but this module knows of portions.

Bytes come from strangers. Whatever they are, decoding either returns messages that are what their
declarations say or raises `RemoteProtocolError`; and it makes nothing that is much larger than the
bytes it was given. That is why messages are not unpacked whole and looked at afterwards: each field
is read as what it has to be, and an array header that promises a billion elements is just a number.

What would be refused is not sent: `encode` reads back what it has written.

Publications are most of the traffic. They have a path of their own through both directions, and
keep the bytes they came in, for a broker that passes them on. Both ways of reading one agree; when
the fast one finds anything amiss, the slow one says what.
"""

import contextlib
import enum
import struct
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NoReturn, get_args, get_origin, get_type_hints

import attrs
from msgpack import OutOfData, Packer, Unpacker, unpackb

from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.limits import DEFAULT_LIMITS, PROOF_CHARS_MAX, REASON_CHARS_MAX, Limits
from plait.broker.messages import MESSAGE_TYPES, Message, Publish
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.limits import FILTER_TEXT_CHARACTERS_MAX, TOPIC_CHARACTERS_MAX
from plait.routing.topics.protocol import Topic
from plait.routing.values import Content, ContentError, Value, check_content

_LENGTH_BYTES: Final = 4
_PROLOGUE: Final = struct.Struct(">IBB")
"""What every frame begins with: its length, the array's header, the number of the type."""
_FIXARRAY: Final = 0x90
"""An array of up to 15 elements says how many in its first byte; no message has more fields."""

_PORTION_NUMBER: Final = 0
_PORTION_HEADER: Final = _FIXARRAY + 4
_PORTIONS_WEIGHT: Final = 8
"""How much larger elements are in memory than on the wire."""


def _as_elements(value: Any) -> tuple[Any, ...]:
    """A record is an array; there is nothing else that msgpack does not know."""
    if not attrs.has(type(value)):
        raise TypeError(f"{value!r} cannot be sent")
    return attrs.astuple(value)


# Packing needs no state between two calls; a packer is kept because making one costs more than
# using it.
_pack: Final[Callable[[Any], bytes]] = Packer(default=_as_elements).pack


# Encoding


def encode(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Return the whole frame of a message, or its frames. A publication remembers it.

    Raises `LocalProtocolError` for what a peer with the same limits would refuse.
    """
    if type(message) is Publish:
        if message.frame is None:
            message.frame = _encode_publication(message, limits)
        return message.frame
    layout = _LAYOUT_OF_TYPE[type(message)]
    values = [getattr(message, field.name) for field in layout.fields]
    try:
        frames = _frame((layout.number, *values))
        if layout.has_lists and len(frames) > limits.portion_bytes_max:
            frames = _in_portions(layout, values, limits)
        if layout.is_plain:
            _require_plain(layout, values, limits)
        else:
            FrameDecoder(limits).feed(frames)
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from None
    except (ValueError, TypeError) as error:
        raise LocalProtocolError(f"{layout.type.__name__}: {error}") from None
    return frames


def _encode_publication(message: Publish, limits: Limits) -> bytes:
    """What a peer looks at, said of what is made here; not read back, as there are many."""
    publisher, content, body = message.publisher, message.content, message.body
    incarnation, seq, flags = message.incarnation, message.seq, message.flags
    try:
        frame = _frame((_PUBLISH_NUMBER, publisher, incarnation, seq, flags, content, body))
        is_fit = (
            0 < len(publisher) <= limits.name_chars_max
            and publisher.isprintable()
            and 0 <= incarnation <= limits.number_max
            and 0 <= seq <= limits.number_max
            and 0 <= flags <= limits.number_max
            and len(content) <= limits.content_bytes_max
            and len(body) <= limits.body_bytes_max
        )
    except (ValueError, TypeError) as error:
        raise LocalProtocolError(f"Publish: {error}") from None
    if not is_fit:
        raise LocalProtocolError(str(_not_publication(frame, limits)))
    return frame


def _require_plain(layout: "_Layout", values: Sequence[Any], limits: Limits) -> None:
    number_max = limits.number_max
    for field, value in zip(layout.fields, values, strict=True):
        if field.is_list:
            _require_bytes(value, field.where, limits.logs_bytes_max)
        elif not 0 <= value <= number_max:
            _require_count(value, field.where, limits)


def _require_count(value: int, where: str, limits: Limits) -> None:
    if value < 0:
        raise RemoteProtocolError(f"{where}: {value}, expected no negative number")
    if value > limits.number_max:
        raise RemoteProtocolError(f"{where}: {value}, at most {limits.number_max} expected")


def _in_portions(layout: "_Layout", values: Sequence[Any], limits: Limits) -> bytes:
    """The lists of a message, in portions, and then the message without them."""
    frames = []
    rest = list(values)
    for place, field in enumerate(layout.fields):
        if field.is_list:
            rest[place] = type(values[place])()
            frames += [
                _frame((_PORTION_NUMBER, layout.number, place, portion))
                for portion in _portions(values[place], limits.portion_bytes_max)
            ]
    return b"".join((*frames, _frame((layout.number, *rest))))


def _portions(elements: Sequence[Any], bytes_max: int) -> Iterator[Sequence[Any]]:
    if isinstance(elements, bytes):
        yield from (elements[at : at + bytes_max] for at in range(0, len(elements), bytes_max))
        return
    portion: list[Any] = []
    size = 0
    for element in elements:
        length = len(_pack(element))
        if portion and size + length > bytes_max:
            yield portion
            portion, size = [], 0
        portion.append(element)
        size += length
    if portion:
        yield portion


def _frame(elements: tuple[Any, ...]) -> bytes:
    payload = _pack(elements)
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


def encode_content(content: Content, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Return the bytes of attributes that `check_content` lets pass, or raise `ContentError`."""
    if len(content) > limits.attributes_max:
        raise ContentError(
            f"content of {len(content)} attributes, at most {limits.attributes_max} allowed"
        )
    data = _pack(content if type(content) is dict else dict(content))
    if len(data) > limits.content_bytes_max:
        raise ContentError(
            f"content of {len(data)} bytes, at most {limits.content_bytes_max} allowed"
        )
    return data


# Decoding


class FrameDecoder:
    """Turns the bytes of one connection into messages, however they were split on the way.

    After a `RemoteProtocolError` there is no telling where the next frame would begin: the
    connection has to be closed.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        # The beginning of a frame, and how long it has to grow before it is worth another look.
        # Without the second, a large frame that trickles in would be copied at every byte.
        self._unfinished = bytearray()
        self._awaited = 0
        self._portions: dict[int, dict[str, list[Any]]] = {}
        """Of lists, by the number of the message that is going to have them, and its field."""
        self._portions_bytes = 0

    def trust(self, limits: Limits) -> None:
        """Let these limits hold from now on: it is known by now who sends."""
        self._limits = limits

    @property
    def kept_bytes(self) -> int:
        """About how much memory is kept for what is not complete yet."""
        return len(self._unfinished) + _PORTIONS_WEIGHT * self._portions_bytes

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that these bytes complete, in their order."""
        if self._unfinished:
            self._unfinished += data
            if len(self._unfinished) < self._awaited:
                return []
            data = bytes(self._unfinished)
            self._unfinished.clear()

        limits = self._limits
        frame_max = limits.frame_bytes_max
        content_max = limits.content_bytes_max
        name_max = limits.name_chars_max
        body_max = limits.body_bytes_max
        number_max = limits.number_max
        messages: list[Message] = []
        size = len(data)
        start = 0
        awaited = _PROLOGUE.size
        # This loop runs a hundred thousand times a second: local names, one unpacking call for a
        # publication, and its checks written out.
        while size - start >= _PROLOGUE.size:
            length, header, number = _unpack_prologue(data, start)
            if not _PAYLOAD_BYTES_MIN <= length <= frame_max:
                _refuse_length(length, frame_max)
            end = start + _LENGTH_BYTES + length
            if end > size:
                awaited = end - start
                break
            frame = data[start:end]
            start = end
            if number != _PUBLISH_NUMBER or header != _PUBLISH_HEADER or length > _WHOLE_BYTES_MAX:
                if number == _PORTION_NUMBER:
                    self._take_portion(frame, header)
                else:
                    message = _decode_plain(frame, header, number, limits)
                    if message is None:
                        message = _decode_fields(frame, header, number, limits)
                    if number in self._portions:
                        message = self._with_portions(message, number)
                    messages.append(message)
                continue
            try:
                _, publisher, incarnation, seq, flags, content, body = unpackb(
                    frame[_LENGTH_BYTES:],
                    use_list=False,
                    max_array_len=_PUBLISH_ELEMENTS,
                    max_map_len=0,
                    max_ext_len=0,
                )
            except ValueError:
                raise _not_publication(frame, limits) from None
            if not (
                type(publisher) is str
                and 0 < len(publisher) <= name_max
                and publisher.isprintable()
                and type(incarnation) is int
                and 0 <= incarnation <= number_max
                and type(seq) is int
                and 0 <= seq <= number_max
                and type(flags) is int
                and 0 <= flags <= number_max
                and type(content) is bytes
                and len(content) <= content_max
                and type(body) is bytes
                and len(body) <= body_max
            ):
                raise _not_publication(frame, limits)
            messages.append(_new_publish(publisher, incarnation, seq, flags, content, body, frame))
        if start < size:
            self._unfinished += data[start:]
            self._awaited = awaited
        return messages

    def _take_portion(self, frame: bytes, header: int) -> None:
        """Keep a portion of a list until the message comes that it belongs to."""
        limits = self._limits
        self._portions_bytes += len(frame)
        if self._portions_bytes > limits.lists_bytes_max:
            raise RemoteProtocolError(
                f"portions of {self._portions_bytes} bytes, "
                f"at most {limits.lists_bytes_max} allowed"
            )
        if header != _PORTION_HEADER:
            raise RemoteProtocolError(
                f"portion: header {header:#04x}, expected an array of 4 elements"
            )
        with _reading(frame, "portion") as unpacker:
            number = _read_count(unpacker, "portion.message", limits)
            place = _read_count(unpacker, "portion.field", limits)
            layout = _LAYOUTS.get(number)
            if layout is None or place >= len(layout.fields) or not layout.fields[place].is_list:
                raise RemoteProtocolError(
                    f"portion of field {place} of a message of type {number}, expected a list"
                )
            field = layout.fields[place]
            elements = field.read(unpacker, field.where, limits)
        self._portions.setdefault(number, {}).setdefault(field.name, []).append(elements)

    def _with_portions(self, message: Message, number: int) -> Message:
        """Complete a message by the portions of its lists, which came before it."""
        first = self._portions.pop(number)
        if not self._portions:
            self._portions_bytes = 0
        changes: dict[str, Any] = {}
        for name, portions in first.items():
            last = getattr(message, name)
            if isinstance(last, bytes):
                changes[name] = b"".join((*portions, last))
                _require_bytes(changes[name], name, self._limits.logs_bytes_max)
            else:
                changes[name] = (*chain.from_iterable(portions), *last)
        whole: Message = attrs.evolve(message, **changes)
        return whole


def decode_content(data: bytes, limits: Limits = DEFAULT_LIMITS) -> dict[str, Value]:
    """Return the attributes that these bytes stand for, every one of a kind that filters know."""
    try:
        content = unpackb(data, max_map_len=limits.attributes_max, max_array_len=0, max_ext_len=0)
    except ValueError as error:
        raise RemoteProtocolError(f"content: {_explain(error)}") from None
    if type(content) is not dict:
        raise _found_instead("content", content, "a map")
    try:
        check_content(content)
    except ContentError as error:
        raise RemoteProtocolError(f"content: {error}") from None
    return content


def _decode_plain(frame: bytes, header: int, number: int, limits: Limits) -> Message | None:
    """Read a message of numbers and bytes in one go; None if it is another, or none at all.

    Such ones end every batch, and say how far things are.
    """
    layout = _LAYOUTS.get(number)
    if layout is None or not layout.is_plain or header != layout.header:
        return None
    try:
        values = unpackb(
            frame[_LENGTH_BYTES:],
            use_list=False,
            max_array_len=1 + len(layout.fields),
            max_map_len=0,
            max_ext_len=0,
        )
    except ValueError:
        return None
    bytes_max, number_max = limits.logs_bytes_max, limits.number_max
    fields: dict[str, Any] = {}
    for field, value in zip(layout.fields, values[1:], strict=True):
        if field.is_list:
            if type(value) is not bytes or len(value) > bytes_max:
                return None
        elif type(value) is not int or not 0 <= value <= number_max:
            return None
        fields[field.name] = value
    message: Message = layout.type(**fields)
    return message


def _decode_fields(frame: bytes, header: int, number: int, limits: Limits) -> Message:
    """Read a message field by field, each as what its declaration says."""
    layout = _LAYOUTS.get(number)
    if layout is None:
        raise RemoteProtocolError(
            f"message of type {number}, expected one of {min(_LAYOUTS)} to {max(_LAYOUTS)}"
        )
    if header != layout.header:
        raise RemoteProtocolError(
            f"{layout.type.__name__}: header {header:#04x}, "
            f"expected an array of {1 + len(layout.fields)} elements"
        )
    with _reading(frame, layout.type.__name__) as unpacker:
        values = {field.name: field.read(unpacker, field.where, limits) for field in layout.fields}
    message: Message = layout.type(**values)
    if isinstance(message, Publish):
        message.frame = frame
    return message


@contextlib.contextmanager
def _reading(frame: bytes, what: str) -> Iterator[Unpacker]:
    """An unpacker of what stands behind a frame's prologue, all of which has to be read."""
    # Arrays are only ever entered element by element, and maps never.
    unpacker = Unpacker(
        read_size=len(frame),
        max_buffer_size=len(frame),
        max_array_len=0,
        max_map_len=0,
        max_ext_len=0,
    )
    unpacker.feed(memoryview(frame)[_PROLOGUE.size :])
    try:
        yield unpacker
    except (ValueError, OutOfData) as error:
        raise RemoteProtocolError(f"{what}: {_explain(error)}") from None
    excess = len(frame) - _PROLOGUE.size - unpacker.tell()
    if excess:
        raise RemoteProtocolError(f"{what}: {excess} bytes after the last field")


# What a field may hold. Each reader takes an unpacker, what to call the field, and the limits.

_Reader = Callable[[Unpacker, str, Limits], Any]


def _read_exactly(expected: type, unpacker: Unpacker, where: str, _: Limits) -> Any:
    value = unpacker.unpack()
    # Not isinstance: to Python, true is an integer.
    if type(value) is not expected:
        raise _found_instead(where, value, expected.__name__)
    return value


def _read_count(unpacker: Unpacker, where: str, limits: Limits) -> int:
    value: int = _read_exactly(int, unpacker, where, limits)
    _require_count(value, where, limits)
    return value


def _read_word(unpacker: Unpacker, where: str, limits: Limits) -> str:
    return _read_text(limits.name_chars_max, unpacker, where, limits)


def _read_id(unpacker: Unpacker, where: str, limits: Limits) -> str:
    return _read_text(limits.id_chars_max, unpacker, where, limits)


def _read_address(unpacker: Unpacker, where: str, limits: Limits) -> str:
    return _read_text(limits.address_chars_max, unpacker, where, limits)


def _read_name(unpacker: Unpacker, where: str, limits: Limits) -> str:
    name = _read_word(unpacker, where, limits)
    # Names end up in logs and on terminals.
    if not name or not name.isprintable():
        raise RemoteProtocolError(f"{where}: {name!r}, expected printable characters")
    return name


def _read_attributes(unpacker: Unpacker, where: str, limits: Limits) -> bytes:
    return _read_bytes(limits.content_bytes_max, unpacker, where, limits)


def _read_body(unpacker: Unpacker, where: str, limits: Limits) -> bytes:
    return _read_bytes(limits.body_bytes_max, unpacker, where, limits)


def _read_logs(unpacker: Unpacker, where: str, limits: Limits) -> bytes:
    return _read_bytes(limits.logs_bytes_max, unpacker, where, limits)


def _read_report(unpacker: Unpacker, where: str, limits: Limits) -> bytes:
    return _read_bytes(limits.report_bytes_max, unpacker, where, limits)


def _read_bytes(bytes_max: int, unpacker: Unpacker, where: str, limits: Limits) -> bytes:
    value: bytes = _read_exactly(bytes, unpacker, where, limits)
    _require_bytes(value, where, bytes_max)
    return value


def _require_bytes(value: bytes, where: str, bytes_max: int) -> None:
    if len(value) > bytes_max:
        raise RemoteProtocolError(f"{where} of {len(value)} bytes, at most {bytes_max} allowed")


def _read_text(chars_max: int, unpacker: Unpacker, where: str, limits: Limits) -> str:
    value: str = _read_exactly(str, unpacker, where, limits)
    if len(value) > chars_max:
        raise RemoteProtocolError(
            f"{where} of {len(value)} characters, at most {chars_max} allowed"
        )
    return value


def _read_member(
    enumeration: type[enum.Enum], unpacker: Unpacker, where: str, limits: Limits
) -> enum.Enum:
    value = _read_word(unpacker, where, limits)
    try:
        return enumeration(value)
    except ValueError:
        expected = ", ".join(str(member.value) for member in enumeration)
        raise RemoteProtocolError(f"{where}: {value!r}, expected one of {expected}") from None


def _read_path(
    read_node: _Reader, unpacker: Unpacker, where: str, limits: Limits
) -> tuple[Any, ...]:
    count = unpacker.read_array_header()
    if count > limits.path_nodes_max:
        raise RemoteProtocolError(
            f"{where} of {count} nodes, at most {limits.path_nodes_max} allowed"
        )
    return tuple([read_node(unpacker, where, limits) for _ in range(count)])


def _read_records(
    read_record: _Reader, unpacker: Unpacker, where: str, limits: Limits
) -> tuple[Any, ...]:
    """Read as many records as there are; the frame's length bounds them, not the header's word."""
    count = unpacker.read_array_header()
    return tuple([read_record(unpacker, where, limits) for _ in range(count)])


def _read_record(
    record: type[Any], fields: "tuple[_Field, ...]", unpacker: Unpacker, where: str, limits: Limits
) -> Any:
    count = unpacker.read_array_header()
    if count != len(fields):
        raise RemoteProtocolError(
            f"{where}: {count} fields of {record.__name__}, expected {len(fields)}"
        )
    return record(
        **{field.name: field.read(unpacker, f"{where}.{field.name}", limits) for field in fields}
    )


_READERS_OF_NAMES: Final[dict[str, _Reader]] = {
    "filter": partial(_read_text, FILTER_TEXT_CHARACTERS_MAX),
    "reason": partial(_read_text, REASON_CHARS_MAX),
    "proof": partial(_read_text, PROOF_CHARS_MAX),
    "address": _read_address,
    "clients_address": _read_address,
    "content": _read_attributes,
    "body": _read_body,
    "report": _read_report,
    "said": _read_body,
    "logs": _read_logs,
    "id": _read_id,
    "about": _read_id,
    "asker": _read_id,
}
"""Fields whose limit is not that of any other field of their type."""

_READERS_OF_TYPES: Final[dict[Any, _Reader]] = {
    NodeId: _read_name,
    OperationId: _read_id,
    AdvertisementId: _read_id,
    SubscriptionId: _read_id,
    Topic: partial(_read_text, TOPIC_CHARACTERS_MAX),
    str: _read_word,
    int: _read_count,
}


# The table of messages


@attrs.frozen
class _Field:
    name: str
    where: str
    """What it is called in an error."""
    read: _Reader
    is_list: bool
    """Whether it may be of any length, and travels in portions then."""


@attrs.frozen
class _Layout:
    """How a message lies on the wire: the number of its type, then these fields."""

    number: int
    type: type[Any]
    fields: tuple[_Field, ...]
    has_lists: bool
    is_plain: bool
    """Whether all of it is numbers and step logs, which needs no reading back."""
    header: int
    """How its array begins."""


def _layout_of(number: int, declaration: type[Any]) -> _Layout:
    fields = _fields_of(declaration)
    return _Layout(
        number,
        declaration,
        fields,
        has_lists=any(field.is_list for field in fields),
        is_plain=all(field.read in (_read_count, _read_logs) for field in fields),
        header=_FIXARRAY + 1 + len(fields),
    )


def _fields_of(declaration: type[Any]) -> tuple[_Field, ...]:
    hints = get_type_hints(declaration)
    return tuple(
        _Field(
            field.name,
            f"{declaration.__name__}.{field.name}",
            _reader_of(field.name, hints[field.name]),
            is_list=field.name == "logs"
            or (get_origin(hints[field.name]) is tuple and field.name != "path"),
        )
        for field in attrs.fields(declaration)
        if not isinstance(hints[field.name], types.UnionType)  # what a codec only remembers
    )


def _reader_of(name: str, hint: Any) -> _Reader:
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        read_all = _read_path if name == "path" else _read_records
        return partial(read_all, _reader_of(name, element))
    if name in _READERS_OF_NAMES:
        return _READERS_OF_NAMES[name]
    if hint in _READERS_OF_TYPES:
        return _READERS_OF_TYPES[hint]
    if attrs.has(hint):
        return partial(_read_record, hint, _fields_of(hint))
    if issubclass(hint, enum.Enum):
        return partial(_read_member, hint)
    return partial(_read_exactly, hint)


_LAYOUTS: Final = {
    number: _layout_of(number, declaration) for number, declaration in MESSAGE_TYPES.items()
}
_LAYOUT_OF_TYPE: Final = {layout.type: layout for layout in _LAYOUTS.values()}

# Constants of the loop in `FrameDecoder.feed`.
_PUBLISH: Final = _LAYOUT_OF_TYPE[Publish]
_PUBLISH_NUMBER: Final = _PUBLISH.number
_PUBLISH_ELEMENTS: Final = 1 + len(_PUBLISH.fields)
_PUBLISH_HEADER: Final = _FIXARRAY + _PUBLISH_ELEMENTS
_PAYLOAD_BYTES_MIN: Final = _PROLOGUE.size - _LENGTH_BYTES
_WHOLE_BYTES_MAX: Final = 64 << 10
"""Publications up to here are unpacked in one call. Unpacked like that, hostile bytes may become
nested arrays thirty times their size before they are refused."""
_new_publish: Final[Callable[..., Publish]] = Publish
_unpack_prologue: Final = _PROLOGUE.unpack_from


# What is said to whoever sent something else


def _refuse_length(length: int, frame_max: int) -> NoReturn:
    if length > frame_max:
        raise RemoteProtocolError(f"frame of {length} bytes, at most {frame_max} allowed")
    raise RemoteProtocolError(f"frame of {length} bytes, at least {_PAYLOAD_BYTES_MIN} expected")


def _not_publication(frame: bytes, limits: Limits) -> RemoteProtocolError:
    """Find out what is wrong with a publication by reading it again, field by field."""
    try:
        _decode_fields(frame, _PUBLISH_HEADER, _PUBLISH.number, limits)
    except RemoteProtocolError as error:
        return error
    raise AssertionError(f"the two ways of reading a publication differ on {frame!r}")


def _found_instead(where: str, value: object, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{where}: found {type(value).__name__}, expected {expected}")


def _explain(error: Exception) -> str:
    """Say in words what msgpack found; some of its errors have none."""
    return f"not msgpack as expected: {str(error) or type(error).__name__}"
