"""For one attribute: which slots restrict it, and which of those allow a given value.

A slot's set of values falls apart, kind by kind, into single values and ranges. Single values are
looked up. A range begins at one cut and ends at another: whoever walks along the line of values
meets, at each cut, a *flip* of the slot, and the slots flipped an odd number of times are those
whose range one stands in. So the two ends of a range need not know of each other, and taking a
range out is the same as putting it in.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from plait.routing.value_sets import ValueSet, pairs_of
from plait.routing.values import KIND_OF_TYPE, Kind, Value

_LISTED_SLOTS_MAX: Final = 16
"""Slots listed one by one for a single value. Beyond, a bit set is smaller and faster."""

_BLOCK_FLIPS_MIN: Final = 48
"""Flips a block may hold in any case. A look-up goes through a quarter of a block on average."""

_BLOCKS_AIM: Final = 512
"""Beyond about so many blocks they grow instead: each has two bit sets, as long as all slots."""


class AttributeIndex:
    """The sets of values that slots allow for one attribute."""

    __slots__ = ("_by_kind", "missing_allowed", "restricted")

    def __init__(self) -> None:
        self.restricted = 0
        """The slots that restrict the attribute at all."""
        self.missing_allowed = 0
        """Those of them that allow it to be missing."""
        self._by_kind: dict[Kind, _KindIndex] = {}

    def add(self, slot: int, values: ValueSet) -> None:
        """Let the slot allow these values and no others."""
        self._flip_starts(slot, values)
        for kind, value in _single_values(values):
            self._kind(kind).add_value(value, slot)
        for kind, flip in _flips(slot, values):
            self._kind(kind).flips.add(flip)

    def remove(self, slot: int, values: ValueSet) -> None:
        """Undo `add`, with the same arguments."""
        self._flip_starts(slot, values)
        for kind, value in _single_values(values):
            self._kind(kind).remove_value(value, slot)
        for kind, flip in _flips(slot, values):
            self._kind(kind).flips.remove(flip)

    def allowing(self, value: Value) -> int:
        """Select the slots that restrict the attribute and allow the value."""
        index = self._by_kind.get(KIND_OF_TYPE[type(value)])
        return index.allowing(value) if index else 0

    def _kind(self, kind: int) -> "_KindIndex":
        if kind not in self._by_kind:
            self._by_kind[Kind(kind)] = _KindIndex()
        return self._by_kind[Kind(kind)]

    def _flip_starts(self, slot: int, values: ValueSet) -> None:
        """Note where no cut within a kind tells that the slot's range holds from its beginning."""
        self.restricted ^= 1 << slot
        for start, end in pairs_of(values):
            for kind in Kind:
                if start <= (kind,) < end:
                    if kind is Kind.NULL:
                        self.missing_allowed ^= 1 << slot
                    else:
                        self._kind(kind).at_start ^= 1 << slot


def _single_values(values: ValueSet) -> Iterator[tuple[int, Value]]:
    """Yield the parts of a set that start just before a value and end just after it."""
    for start, end in pairs_of(values):
        if end[:2] == start:
            yield start


def _flips(slot: int, values: ValueSet) -> "Iterator[tuple[int, _Flip]]":
    """Yield the ends of the other parts, as far as they are not the ends of a kind."""
    for start, end in pairs_of(values):
        if end[:2] != start:
            for kind, *place in (start, end):
                if place:
                    value, *is_after = place
                    yield kind, (value, slot if is_after else ~slot)


class _KindIndex:
    """The part of the sets that concerns one kind of values."""

    __slots__ = ("_few", "_many", "at_start", "flips")

    def __init__(self) -> None:
        self.at_start = 0
        """The slots with a range that holds where the kind begins."""
        self.flips = _Flips()
        self._few: dict[Value, list[int]] = {}
        self._many: dict[Value, int] = {}

    def add_value(self, value: Value, slot: int) -> None:
        if value in self._many:
            self._many[value] |= 1 << slot
            return
        slots = self._few.setdefault(value, [])
        slots.append(slot)
        if len(slots) > _LISTED_SLOTS_MAX:
            self._many[value] = sum(1 << slot for slot in self._few.pop(value))

    def remove_value(self, value: Value, slot: int) -> None:
        if value in self._many:
            self._many[value] ^= 1 << slot
            if not self._many[value]:
                del self._many[value]
            return
        self._few[value].remove(slot)
        if not self._few[value]:
            del self._few[value]

    def allowing(self, value: Value) -> int:
        bits = self.at_start ^ self.flips.until(value)
        if value in self._many:
            return bits | self._many[value]
        for slot in self._few.get(value, ()):
            bits |= 1 << slot
        return bits


_Flip: TypeAlias = tuple[Any, int]
"""A value, and the slot that is flipped just after it, or the slot's complement just before it.

Flips before a value thereby sort before those after it, and `(value, 0)` sorts between them.
"""


class _Flips:
    """Flips in ascending order, cut into blocks, with the result of all blocks before each block.

    One such result for each flip would take memory in proportion to the square of their number.
    """

    __slots__ = ("_before", "_blocks", "_firsts", "_length")

    def __init__(self) -> None:
        self._length = 0
        self._blocks: list[_Block] = []
        self._firsts: list[_Flip] = []
        """The first flip of each block."""
        self._before = [0]
        """What all blocks before each block flip; made when needed, as far as needed."""

    def add(self, flip: _Flip) -> None:
        if not self._blocks:
            self._blocks.append(_Block([], array("q")))
            self._firsts.append(flip)
        at = self._changed(flip)
        block = self._blocks[at]
        block.add(flip)
        self._firsts[at] = block.first()
        self._length += 1
        if len(block.codes) > max(_BLOCK_FLIPS_MIN, 2 * self._length // _BLOCKS_AIM):
            upper = block.split()
            self._blocks.insert(at + 1, upper)
            self._firsts.insert(at + 1, upper.first())

    def remove(self, flip: _Flip) -> None:
        at = self._changed(flip)
        block = self._blocks[at]
        block.remove(flip)
        self._length -= 1
        if block.codes:
            self._firsts[at] = block.first()
        else:
            del self._blocks[at], self._firsts[at]

    def until(self, value: Value) -> int:
        """Tell what has been flipped when one arrives at the value."""
        arrival = (value, 0)
        at = bisect_left(self._firsts, arrival) - 1
        if at < 0:
            return 0
        codes = self._blocks[at].codes
        passed = self._blocks[at].position(arrival)
        # The shorter way, from the beginning of the block or back from its end.
        if 2 * passed <= len(codes):
            return _flipped(self._flipped_before(at), codes[:passed])
        return _flipped(self._flipped_before(at + 1), codes[passed:])

    def _changed(self, flip: _Flip) -> int:
        """Find the block of a flip that comes or goes, and forget what depends on it."""
        at = max(0, bisect_right(self._firsts, flip) - 1)
        del self._before[at + 1 :]
        return at

    def _flipped_before(self, at: int) -> int:
        for known in range(len(self._before), at + 1):
            self._before.append(self._before[-1] ^ self._blocks[known - 1].flipped)
        return self._before[at]


class _Block:
    """Some neighbouring flips. Values and codes lie in two lists: pairs would take much memory."""

    __slots__ = ("codes", "flipped", "values")

    def __init__(self, values: list[Any], codes: "array[int]") -> None:
        self.values = values
        self.codes = codes
        self.flipped = _flipped(0, codes)

    def first(self) -> _Flip:
        return self.values[0], self.codes[0]

    def position(self, flip: _Flip) -> int:
        value, code = flip
        start = bisect_left(self.values, value)
        return bisect_left(self.codes, code, start, bisect_right(self.values, value, start))

    def add(self, flip: _Flip) -> None:
        position = self.position(flip)
        self.values.insert(position, flip[0])
        self.codes.insert(position, flip[1])
        self.flipped = _flipped(self.flipped, flip[1:])

    def remove(self, flip: _Flip) -> None:
        position = self.position(flip)
        del self.values[position], self.codes[position]
        self.flipped = _flipped(self.flipped, flip[1:])

    def split(self) -> "_Block":
        """Keep the lower half, and return the upper."""
        middle = len(self.codes) // 2
        upper = _Block(self.values[middle:], self.codes[middle:])
        del self.values[middle:], self.codes[middle:]
        self.flipped ^= upper.flipped
        return upper


def _flipped(bits: int, codes: Iterable[int]) -> int:
    for code in codes:
        bits ^= 1 << (code if code >= 0 else ~code)
    return bits
