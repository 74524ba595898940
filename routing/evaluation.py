"""Conditions made into Python functions: the fast way to ask whether one content matches.

Only one question is ever asked of a condition: "is it true?" or, under NOT, "is it false?". Unknown
is neither, so three-valued logic comes down to asking the right one of the two at every node: an
And is false where one of its conditions is false, and a comparison is false where the opposite
comparison is true, kinds permitting.

Each filter becomes one Python expression, which runs many times faster than a walk over the tree.
The text of that expression contains names made here and nothing else: attribute names and constants
are bound as values. Filters of the same shape therefore share one compiled function.
"""

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from plait.routing.expressions import (
    MIRRORED,
    NEGATED,
    And,
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    IsNull,
    Like,
    Membership,
    Negative,
    Not,
    Operand,
    Or,
    Pattern,
    Wildcard,
    core_of,
    run_length,
    runs_of,
)
from plait.routing.limits import CACHED_EVALUATORS_MAX
from plait.routing.values import KIND_OF_TYPE, NUMBER_TYPES, Content, Kind, Value

Matcher = Callable[[Content], bool]


def compile_condition(condition: Condition) -> Matcher:
    """Make a function that says whether the condition is true of a content."""
    writer = _Writer()
    answer = writer.truth(condition, wanted=True)
    bind = _compiled(len(writer.attributes), len(writer.constants), answer)
    return bind(*writer.attributes, *writer.constants)


@lru_cache(CACHED_EVALUATORS_MAX)
def _compiled(attributes: int, constants: int, answer: str) -> Callable[..., Matcher]:
    parameters = [f"a{i}" for i in range(attributes)] + [f"c{i}" for i in range(constants)]
    reads = "".join(f"        v{i} = get(a{i})\n" for i in range(attributes))
    source = (
        f"def bind({', '.join(parameters)}):\n"
        "    def matches(content):\n"
        "        get = content.get\n"
        f"{reads}"
        f"        return {answer}\n"
        "    return matches\n"
    )
    namespace: dict[str, Any] = dict(_HELPERS)
    exec(source, namespace)  # noqa: S102 - holds nothing that came with the filter
    bind: Callable[..., Matcher] = namespace["bind"]
    return bind


class _Writer:
    """Writes a condition as a Python expression over v0, v1 ... and c0, c1 ..."""

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}
        """The variable that holds each attribute's value."""
        self.constants: list[Any] = []

    def truth(self, condition: Condition, *, wanted: bool) -> str:
        """Write the question whether the condition is true, or is false; the answer is a bool."""
        match condition:
            case Comparison(compared, left, right):
                return self._comparison(compared if wanted else NEGATED[compared], left, right)
            case Membership(attribute, values):
                variable, members = self._value(attribute), self._bound(frozenset(values))
                is_kind = _KIND_TEST[KIND_OF_TYPE[type(values[0])]].format(variable)
                return f"({is_kind} and {variable} {'in' if wanted else 'not in'} {members})"
            case Like(attribute, pattern):
                variable = self._value(attribute)
                fits = self._fits(variable, pattern)
                return f"({variable}.__class__ is str and {'' if wanted else 'not '}{fits})"
            case IsNull(attribute):
                return f"({self._value(attribute)} is {'' if wanted else 'not '}None)"
            case Not(negated):
                return self.truth(negated, wanted=not wanted)
            case And(conditions) | Or(conditions):
                joined = " and " if isinstance(condition, And) == wanted else " or "
                return f"({joined.join(self.truth(c, wanted=wanted) for c in conditions)})"
            case Attribute() | Constant():
                return f"({self._value(condition)} is {wanted})"

    def _comparison(self, compared: ComparisonOperator, left: Operand, right: Operand) -> str:
        match left, right:
            case Attribute(), Constant(value):
                return self._comparison_with_constant(self._value(left), compared, value)
            case Constant(value), Attribute():
                return self._comparison_with_constant(self._value(right), MIRRORED[compared], value)
        return f"{_NAME_OF[compared]}({self._value(left)}, {self._value(right)})"

    def _comparison_with_constant(
        self, variable: str, compared: ComparisonOperator, value: Value
    ) -> str:
        if isinstance(value, bool):
            if compared in ("=", "<>"):
                return f"({variable} is {value is (compared == '=')})"
            return "False"
        is_kind = _KIND_TEST[KIND_OF_TYPE[type(value)]].format(variable)
        return f"({is_kind} and {variable} {_PYTHON[compared]} {self._bound(value)})"

    def _fits(self, variable: str, pattern: Pattern) -> str:
        match pattern:
            case ():
                return f"{variable} == ''"
            case (str(text),):
                return f"{variable} == {self._bound(text)}"
            case (str(text), Wildcard.ANY_TEXT):
                return f"{variable}.startswith({self._bound(text)})"
            case (Wildcard.ANY_TEXT, str(text)):
                return f"{variable}.endswith({self._bound(text)})"
            case (Wildcard.ANY_TEXT, str(text), Wildcard.ANY_TEXT):
                return f"({self._bound(text)} in {variable})"
        return f"{self._bound(_like(pattern))}({variable})"

    def _value(self, operand: Operand) -> str:
        match operand:
            case Attribute(name):
                return self.attributes.setdefault(name, f"v{len(self.attributes)}")
            case Constant(value):
                return self._bound(value)
            case Negative(inner):
                return f"negative({self._value(inner)})"
            case Arithmetic(combined, left, right):
                return f"{_NAME_OF[combined]}({self._value(left)}, {self._value(right)})"

    def _bound(self, constant: object) -> str:
        self.constants.append(constant)
        return f"c{len(self.constants) - 1}"


_Find: TypeAlias = Callable[[str, int, int], int]
"""Where the first fit of a part of a pattern ends, in a text between two places; -1 if nowhere."""


def _like(pattern: Pattern) -> Callable[[str], bool]:
    """Make a function that says whether a text fits a LIKE pattern with several wildcards.

    Between two `%` the first fit is as good as any other, and is never given back. So each part is
    looked for once, in what is left of the text.
    """
    runs = runs_of(pattern)
    first, *others = map(_regular_expression, runs)
    if not others:
        return lambda text: first.fullmatch(text) is not None
    last, begins_at, ends_before = others[-1], run_length(runs[0]), run_length(runs[-1])
    finds = [_find(run) for run in runs[1:-1]]

    def fits(text: str) -> bool:
        at, end = begins_at, len(text) - ends_before
        if at > end or first.match(text) is None or last.match(text, end) is None:
            return False
        for find in finds:
            at = find(text, at, end)
            if at < 0:
                return False
        return True

    return fits


def _find(run: Pattern) -> _Find:
    """Look for what is between two `%`; what any character fits at its ends is only counted."""
    before, core, after = core_of(run)
    if not core:

        def find_any(_: str, at: int, end: int) -> int:
            return at + before if at + before <= end else -1

        return find_any
    if len(core) == 1:
        wanted = str(core[0])

        def find_text(text: str, at: int, end: int) -> int:
            found = text.find(wanted, at + before, max(0, end - after))
            return found if found < 0 else found + len(wanted) + after

        return find_text
    search = _regular_expression(core).search

    def find_fit(text: str, at: int, end: int) -> int:
        found = search(text, at + before, end - after)
        return -1 if found is None else found.end() + after

    return find_fit


def _regular_expression(run: Pattern) -> re.Pattern[str]:
    """Translate what has no `%` in it."""
    written = ("." if piece is Wildcard.ANY_CHARACTER else re.escape(str(piece)) for piece in run)
    return re.compile("".join(written), re.DOTALL)


def _comparing(operate: Callable[[Any, Any], bool], *, orders: bool) -> Callable[..., bool]:
    def compare(left: Value | None, right: Value | None) -> bool:
        kind = KIND_OF_TYPE.get(type(left))
        if kind is None or kind is not KIND_OF_TYPE.get(type(right)):
            return False
        return operate(left, right) and not (orders and kind is Kind.BOOLEAN)

    return compare


def _combining(operate: Callable[[Any, Any], Any]) -> Callable[..., Value | None]:
    def combine(left: Value | None, right: Value | None) -> Value | None:
        if type(left) not in NUMBER_TYPES or type(right) not in NUMBER_TYPES:
            return None
        try:
            result: int | float = operate(left, right)
        except (ZeroDivisionError, OverflowError):
            return None
        # Infinities leave NaN behind, and NaN is no value. (An integer may be too long for isnan.)
        return None if result != result else result

    return combine


def _quotient(left: float, right: float) -> float:
    """Divide as SQL does: integers give an integer, cut off towards zero."""
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _negative(value: Value | None) -> Value | None:
    return -value if isinstance(value, int | float) and not isinstance(value, bool) else None


_PYTHON: Final[dict[ComparisonOperator, str]] = {
    "=": "==",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_KIND_TEST: Final = {
    Kind.NUMBER: "{}.__class__ in numbers",
    Kind.STRING: "{}.__class__ is str",
}
_NAME_OF: Final[dict[ComparisonOperator | ArithmeticOperator, str]] = {
    "=": "equal",
    "<>": "unequal",
    "<": "less",
    "<=": "less_or_equal",
    ">": "greater",
    ">=": "greater_or_equal",
    "+": "total",
    "-": "difference",
    "*": "product",
    "/": "quotient",
}
_HELPERS: Final[Mapping[str, object]] = {
    "numbers": NUMBER_TYPES,
    "equal": _comparing(operator.eq, orders=False),
    "unequal": _comparing(operator.ne, orders=False),
    "less": _comparing(operator.lt, orders=True),
    "less_or_equal": _comparing(operator.le, orders=True),
    "greater": _comparing(operator.gt, orders=True),
    "greater_or_equal": _comparing(operator.ge, orders=True),
    "total": _combining(operator.add),
    "difference": _combining(operator.sub),
    "product": _combining(operator.mul),
    "quotient": _combining(_quotient),
    "negative": _negative,
}
