"""The values an attribute may hold, their kinds, and the check of a publication's content.

Values of one kind compare with each other. Integers and floats are one kind and compare by exact
value. Booleans are a kind of their own, as in SQL: TRUE is not 1. A comparison of values of
different kinds is neither true nor false but unknown, so that NOT cannot turn it into a match.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from math import isfinite
from typing import Final

from plait.routing.errors import ContentError

__all__ = [
    "INTEGER_MAX",
    "INTEGER_MIN",
    "KIND_OF_TYPE",
    "LONE_SURROGATE",
    "NUMBER_TYPES",
    "Content",
    "ContentError",
    "Kind",
    "Value",
    "check_content",
]

Value = str | int | float | bool
Content = Mapping[str, Value]


class Kind(IntEnum):
    """What compares with what. A missing attribute is NULL, which compares with nothing."""

    NULL = 0
    BOOLEAN = 1
    NUMBER = 2
    STRING = 3


KIND_OF_TYPE: Final[Mapping[type, Kind]] = {
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
}
NUMBER_TYPES: Final = frozenset({int, float})

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Half a character: Python's strings can hold it, UTF-8 cannot."""


def check_content(content: Content) -> None:
    """Raise ContentError unless every attribute has a name and a value that filters understand.

    Exact types only: a subclass could bring its own idea of equality into the index.
    """
    if type(content) is not dict and not isinstance(content, Mapping):
        raise ContentError(
            f"content: found {type(content).__name__}, expected a mapping of names to values, "
            "like {'price': 120.5}"
        )
    for name, value in content.items():
        if type(name) is not str or not name:
            raise ContentError(f"attribute name {name!r}: expected a string that is not empty")
        if _has_half_a_character(name):
            raise ContentError(f"attribute name {name!r}: {_HALF_A_CHARACTER}")
        if type(value) not in KIND_OF_TYPE:
            raise ContentError(
                f"attribute {name!r}: found a value of type {type(value).__name__}, "
                "expected a string, integer, float or boolean"
            )
        if type(value) is str:
            if _has_half_a_character(value):
                raise ContentError(f"attribute {name!r}: {_HALF_A_CHARACTER}")
        elif type(value) is int and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise ContentError(f"attribute {name!r}: found {value}, expected an integer of 64 bits")
        elif type(value) is float and not isfinite(value):
            # NaN does not equal itself, and JSON, in which histories are written, has neither.
            raise ContentError(
                f"attribute {name!r}: found {value}, expected a finite number; "
                "to say that there is no value, leave the attribute out"
            )


_HALF_A_CHARACTER: Final = "found half of a surrogate pair, expected text UTF-8 can hold"


def _has_half_a_character(text: str) -> bool:
    return not text.isascii() and LONE_SURROGATE.search(text) is not None
