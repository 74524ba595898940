"""Sets of values, and whether two of them meet or one lies inside the other.

All values stand on one line: NULL, booleans, numbers, strings, each kind in its own order. A *cut*
is a place between two neighbours on that line: `(kind,)` is before everything of the kind, `(kind,
value)` just before the value, and `(kind, value, 1)` just after it. Python's order of tuples is the
order on the line.

A set is a tuple of cuts in ascending order, in pairs: what lies between the first and the second
belongs to it, what lies between the third and the fourth, and so on. That one shape serves ranges,
single values, prefixes, presence, and all that they combine to.

The line is taken to be dense. It is not (nothing lies between 'a' and 'a' with a zero behind it),
so a set may look larger than it is, never smaller.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from plait.routing.expressions import ComparisonOperator
from plait.routing.limits import CACHED_SETS_MAX
from plait.routing.values import KIND_OF_TYPE, Kind, Value

Cut: TypeAlias = tuple[Any, ...]
ValueSet: TypeAlias = tuple[Cut, ...]

# Each kind ends where the next begins. Cuts are plain tuples, as those compare fastest.
_START: Final[dict[Kind, Cut]] = {kind: (int(kind),) for kind in Kind}
_END: Final[dict[Kind, Cut]] = {kind: (int(kind) + 1,) for kind in Kind}

NOTHING: Final[ValueSet] = ()
ANYTHING: Final[ValueSet] = (_START[Kind.NULL], _END[Kind.STRING])
MISSING: Final[ValueSet] = (_START[Kind.NULL], _END[Kind.NULL])
PRESENT: Final[ValueSet] = (_END[Kind.NULL], _END[Kind.STRING])

_CODE_POINT_MAX: Final = 0x10FFFF


def before(value: Value) -> Cut:
    """Cut just before a value."""
    return int(KIND_OF_TYPE[type(value)]), value


def after(value: Value) -> Cut:
    """Cut just after a value."""
    return int(KIND_OF_TYPE[type(value)]), value, 1


def of_kind(kind: Kind) -> ValueSet:
    """All values of a kind."""
    return _START[kind], _END[kind]


def of_values(values: Iterable[Value]) -> ValueSet:
    """Just these values, which are all of one kind."""
    return tuple(cut for value in sorted(set(values)) for cut in (before(value), after(value)))


def not_of_values(values: Iterable[Value], kind: Kind) -> ValueSet:
    """Every other value of their kind."""
    return intersection(complement(of_values(values)), of_kind(kind))


def with_prefix(prefix: str) -> ValueSet:
    """All strings that begin so: from the prefix to the first string that is past them all."""
    stem = prefix.rstrip(chr(_CODE_POINT_MAX))
    end = before(stem[:-1] + chr(ord(stem[-1]) + 1)) if stem else _END[Kind.STRING]
    return before(prefix), end


@lru_cache(CACHED_SETS_MAX, typed=True)
def compared(operator: ComparisonOperator, value: Value) -> ValueSet:
    """All values of which `x operator value` is true."""
    kind = KIND_OF_TYPE[type(value)]
    match operator:
        case "=":
            return before(value), after(value)
        case "<>" if isinstance(value, bool):
            return before(not value), after(not value)
        case "<>":
            return _START[kind], before(value), after(value), _END[kind]
        case _ if kind is Kind.BOOLEAN:
            return NOTHING
        case "<":
            return _START[kind], before(value)
        case "<=":
            return _START[kind], after(value)
        case ">":
            return after(value), _END[kind]
        case ">=":
            return before(value), _END[kind]


def pairs_of(values: ValueSet) -> Iterable[tuple[Cut, Cut]]:
    """Yield where the parts of a set start and end."""
    return zip(values[::2], values[1::2], strict=True)


def complement(values: ValueSet) -> ValueSet:
    """Everything, NULL included, that is not in the set."""
    first, last = ANYTHING
    inner = values[1:] if values[:1] == (first,) else (first, *values)
    return inner[:-1] if values[-1:] == (last,) else (*inner, last)


def intersection(a: ValueSet, b: ValueSet) -> ValueSet:
    """What is in both."""
    common: list[Cut] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start = max(a[i], b[j])
        end = min(a[i + 1], b[j + 1])
        if start < end:
            common += (start, end)
        if a[i + 1] < b[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(common)


def union(*sets: ValueSet) -> ValueSet:
    """What is in any of them."""
    joined: list[Cut] = []
    for start, end in sorted(pair for cuts in sets for pair in pairs_of(cuts)):
        if joined and start <= joined[-1]:
            joined[-1] = max(joined[-1], end)
        else:
            joined += (start, end)
    return tuple(joined)


def intersects(a: ValueSet, b: ValueSet) -> bool:
    """Whether some value is in both: `intersection`, but it stops at the first."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i + 1] <= b[j]:
            i += 2
        elif b[j + 1] <= a[i]:
            j += 2
        else:
            return True
    return False


def is_subset(a: ValueSet, b: ValueSet) -> bool:
    """Whether everything in `a` is in `b`: each part of the one in a part of the other."""
    j = 0
    for i in range(0, len(a), 2):
        while j < len(b) and b[j + 1] < a[i + 1]:
            j += 2
        if j == len(b) or a[i] < b[j]:
            return False
    return True
