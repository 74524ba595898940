"""Bytes as strangers send them, who ask nobody what is allowed."""

import struct

import attrs
from msgpack import Packer

from plait.broker.messages import MESSAGE_TYPES, Message

_pack = Packer(default=attrs.astuple).pack
_NUMBERS = {declaration: number for number, declaration in MESSAGE_TYPES.items()}


def frame_of(payload: bytes) -> bytes:
    """Put its length before it."""
    return struct.pack(">I", len(payload)) + payload


def unchecked(message: Message) -> bytes:
    """Encode a message, whatever it says."""
    fields = [field.name for field in attrs.fields(type(message)) if field.name != "frame"]
    values = [getattr(message, name) for name in fields]
    return frame_of(_pack((_NUMBERS[type(message)], *values)))
