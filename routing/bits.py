"""Sets of small integers as Python's long integers: bit n is set when n belongs to the set."""

import sys
from collections.abc import Iterator
from typing import Final

_WORD_BITS: Final = 64


def numbers_in(bits: int) -> Iterator[int]:
    """Yield the members in ascending order.

    To take the lowest bit off a long integer is to copy all of it, so it is cut into words first.
    """
    words = (bits.bit_length() + _WORD_BITS - 1) // _WORD_BITS
    data = memoryview(bits.to_bytes(words * _WORD_BITS // 8, sys.byteorder)).cast("Q")
    # A big-endian machine writes the highest word first.
    in_order = data if sys.byteorder == "little" else reversed(data)
    for start, word in enumerate(in_order):
        base = start * _WORD_BITS
        while word:
            lowest = word & -word
            yield base + lowest.bit_length() - 1
            word ^= lowest
