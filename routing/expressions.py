"""The syntax tree of a filter: one vocabulary for both filter languages.

*Operands* have a value, *conditions* are true, false or unknown. An attribute or a constant can
stand for either. There is one way to say a thing: BETWEEN is two comparisons, IS NOT NULL is the
negation of IS NULL, and PADRES's string operators are LIKE or comparisons.
"""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import attrs

from plait.routing.limits import CACHED_ATTRIBUTES_MAX
from plait.routing.values import Value

ComparisonOperator = Literal["=", "<>", "<", "<=", ">", ">="]
ArithmeticOperator = Literal["+", "-", "*", "/"]

NEGATED: Final[dict[ComparisonOperator, ComparisonOperator]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
"""`a < b` is false exactly when `a >= b` is true, because unlike kinds make both unknown."""

MIRRORED: Final[dict[ComparisonOperator, ComparisonOperator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def _with_type(value: Value) -> tuple[type, Value]:
    """Tell 1, 1.0 and TRUE apart, which Python holds to be equal."""
    return type(value), value


def _with_types(values: tuple[Value, ...]) -> tuple[tuple[type, Value], ...]:
    return tuple(map(_with_type, values))


# Brokers keep many thousands of these nodes, hence no room in them for weak references.


@attrs.frozen(weakref_slot=False)
class Attribute:
    """The value of the attribute, or NULL where the content lacks it."""

    name: str


@attrs.frozen(weakref_slot=False)
class Constant:
    """A value written in the filter."""

    value: Value = attrs.field(eq=_with_type)


@attrs.frozen(weakref_slot=False)
class Negative:
    """The number with its sign changed; NULL unless it is a number."""

    operand: "Operand"


@attrs.frozen(weakref_slot=False)
class Arithmetic:
    """Two numbers combined; NULL unless both are numbers and the result is one."""

    operator: ArithmeticOperator
    left: "Operand"
    right: "Operand"


@attrs.frozen(weakref_slot=False)
class Comparison:
    """Compare two values of one kind; booleans are equal or not, but neither is less."""

    operator: ComparisonOperator
    left: "Operand"
    right: "Operand"


@attrs.frozen(weakref_slot=False)
class Membership:
    """The attribute equals one of the values, which are all strings or all numbers."""

    attribute: Attribute
    values: tuple[Value, ...] = attrs.field(eq=_with_types)


class Wildcard(Enum):
    """What stands in a LIKE pattern for something else."""

    ANY_TEXT = "%"
    ANY_CHARACTER = "_"


Pattern: TypeAlias = tuple[str | Wildcard, ...]
"""Literal texts and wildcards, escapes resolved; texts are not empty and not side by side."""


@attrs.frozen(weakref_slot=False)
class Like:
    """The attribute is a string that fits the pattern as a whole."""

    attribute: Attribute
    pattern: Pattern


@attrs.frozen(weakref_slot=False)
class IsNull:
    """The content lacks the attribute. Never unknown."""

    attribute: Attribute


@attrs.frozen(weakref_slot=False)
class Not:
    """True where the condition is false; unknown where it is unknown."""

    condition: "Condition"


@attrs.frozen(weakref_slot=False)
class And:
    """Every condition is true. Has at least two, none of which is itself an And."""

    conditions: tuple["Condition", ...]


@attrs.frozen(weakref_slot=False)
class Or:
    """Some condition is true. Has at least two, none of which is itself an Or."""

    conditions: tuple["Condition", ...]


Operand: TypeAlias = Attribute | Constant | Negative | Arithmetic
Condition: TypeAlias = (
    Comparison | Membership | Like | IsNull | Not | And | Or | Attribute | Constant
)
Expression: TypeAlias = Operand | Condition


def conjunction(conditions: Iterable[Condition]) -> Condition:
    """Join by AND, without an And inside another or around a single condition."""
    flat = tuple(
        inner
        for outer in conditions
        for inner in (outer.conditions if isinstance(outer, And) else (outer,))
    )
    return And(flat) if len(flat) > 1 else flat[0]


def disjunction(conditions: Iterable[Condition]) -> Condition:
    """Join by OR, without an Or inside another or around a single condition."""
    flat = tuple(
        inner
        for outer in conditions
        for inner in (outer.conditions if isinstance(outer, Or) else (outer,))
    )
    return Or(flat) if len(flat) > 1 else flat[0]


def pattern_of(symbols: Iterable[str | Wildcard]) -> Pattern:
    """Join neighbouring texts to one, and neighbouring `%`; leave empty texts out."""
    pieces: list[str | Wildcard] = []
    for symbol in symbols:
        last = pieces[-1] if pieces else None
        if isinstance(symbol, str) and isinstance(last, str):
            pieces[-1] = last + symbol
        elif symbol and (symbol is not Wildcard.ANY_TEXT or last is not symbol):
            pieces.append(symbol)
    return tuple(pieces)


def runs_of(pattern: Pattern) -> list[Pattern]:
    """What stands before, between and behind the `%` of a pattern."""
    runs: list[list[str | Wildcard]] = [[]]
    for piece in pattern:
        if piece is Wildcard.ANY_TEXT:
            runs.append([])
        else:
            runs[-1].append(piece)
    return [tuple(run) for run in runs]


def run_length(run: Pattern) -> int:
    """How many characters fit a pattern without `%`."""
    return sum(len(piece) if isinstance(piece, str) else 1 for piece in run)


def core_of(run: Pattern) -> tuple[int, Pattern, int]:
    """A pattern without `%`, cut into the `_` at its beginning, the rest, and those at its end."""
    places = [place for place, piece in enumerate(run) if isinstance(piece, str)]
    if not places:
        return len(run), (), 0
    return places[0], run[places[0] : places[-1] + 1], len(run) - 1 - places[-1]


@lru_cache(CACHED_ATTRIBUTES_MAX)
def shared_attribute(name: str) -> Attribute:
    """Make an attribute, one for all filters that mention it."""
    return Attribute(name)
