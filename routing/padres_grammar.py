"""The grammar of PADRES predicates in brackets.

    filter     = predicate { [","] predicate }
    predicate  = "[" name "," operator { "," value } "]"
    operator   = eq | = | neq | <> | < | <= | > | >= | isPresent
               | str-lt | str-le | str-gt | str-ge | str-prefix | str-postfix | str-contains
    value      = quoted by ' or " (doubled inside), or bare: a number, true, false, or else a string

`isPresent` takes a sample value, which is ignored, or none. `[price,between,100,120]` is ours.
"""

import re
from collections.abc import Mapping
from typing import Final

from plait.routing.expressions import (
    And,
    Attribute,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    IsNull,
    Like,
    Not,
    Wildcard,
    conjunction,
    pattern_of,
    shared_attribute,
)
from plait.routing.parsing import NUMBER, Parser, Token

_TOKEN: Final = re.compile(
    r"""(?P<string>'(?:[^']|'')*+'|"(?:[^"]|"")*+")
      | (?P<symbol>[\[\],])
      | (?P<bare>[^\[\],'"]+)""",
    re.VERBOSE,
)
_COMPARISONS: Final[Mapping[str, ComparisonOperator]] = {
    "eq": "=",
    "=": "=",
    "neq": "<>",
    "<>": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_STRING_COMPARISONS: Final[Mapping[str, ComparisonOperator]] = {
    "str-lt": "<",
    "str-le": "<=",
    "str-gt": ">",
    "str-ge": ">=",
}
_OPERATORS: Final = {
    word.lower(): word
    for word in (
        *_COMPARISONS,
        *_STRING_COMPARISONS,
        "str-prefix",
        "str-postfix",
        "str-contains",
        "isPresent",
        "between",
    )
}
_NUMBER: Final = re.compile(rf"[+-]?{NUMBER}")


def read_padres(text: str) -> Condition:
    """Read a conjunction of predicates."""
    return _PadresParser(text).whole()


class _PadresParser(Parser):
    """Reads predicates; their conjunction is the filter."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _TOKEN)

    def whole(self) -> Condition:
        predicates = [self._predicate()]
        while self._peek.kind != "end":
            # PADRES's own manual leaves the comma out now and then.
            self._accept(",")
            predicates.append(self._predicate())
        return conjunction(predicates)

    def _predicate(self) -> Condition:
        self._expect("[", expected="a predicate in brackets")
        name = self._advance_over("bare", expected="an attribute name")
        self._expect(",", expected="a comma and an operator")
        operator = self._advance_over("bare", expected="an operator")
        values = []
        while self._accept(","):
            values.append(self._advance_over("bare", "string", expected="a value"))
        self._expect("]", expected="a comma or ]")
        return self._condition(shared_attribute(name.value), operator, values)

    def _condition(self, attribute: Attribute, operator: Token, values: list[Token]) -> Condition:
        match operator.value.lower(), values:
            case "ispresent", [] | [_]:
                return Not(IsNull(attribute))
            case "between", [low, high]:
                return And(
                    (
                        Comparison(">=", attribute, self._constant(low)),
                        Comparison("<=", attribute, self._constant(high)),
                    )
                )
            case word, [value] if compared := _COMPARISONS.get(word):
                return Comparison(compared, attribute, self._constant(value))
            case word, [value] if compared := _STRING_COMPARISONS.get(word):
                return Comparison(compared, attribute, Constant(value.value))
            case "str-prefix", [value]:
                return Like(attribute, pattern_of((value.value, Wildcard.ANY_TEXT)))
            case "str-postfix", [value]:
                return Like(attribute, pattern_of((Wildcard.ANY_TEXT, value.value)))
            case "str-contains", [value]:
                wildcard = Wildcard.ANY_TEXT
                return Like(attribute, pattern_of((wildcard, value.value, wildcard)))
            case word, _ if word in _OPERATORS:
                count = {"ispresent": "no value or one", "between": "two values"}
                raise self._error(f"{count.get(word, 'one value')} for this operator", operator)
        raise self._error(f"an operator ({', '.join(_OPERATORS.values())})", operator)

    def _constant(self, token: Token) -> Constant:
        word = token.value
        if token.kind == "bare":
            if word.upper() in ("TRUE", "FALSE"):
                return Constant(word.upper() == "TRUE")
            if _NUMBER.fullmatch(word):
                return self._number(token, word)
        return Constant(word)
