"""The grammar of SQL-92 selectors, as JMS and AMQP have them. Keywords may be in any case.

    filter     = all_of { OR all_of }
    all_of     = negation { AND negation }
    negation   = NOT negation | test
    test       = sum [ ( "=" | "<>" | "<" | "<=" | ">" | ">=" ) sum
                     | [NOT] BETWEEN sum AND sum
                     | [NOT] IN "(" member { "," member } ")"
                     | [NOT] LIKE string [ ESCAPE string ]
                     | IS [NOT] NULL ]
    sum        = product { ( "+" | "-" ) product }
    product    = signed { ( "*" | "/" ) signed }
    signed     = ( "+" | "-" ) signed | "(" filter ")" | attribute | constant
    attribute  = identifier | '"' any characters, '"' doubled '"'
    constant   = number | string | TRUE | FALSE
    string     = "'" any characters, "'" doubled "'"
    member     = string | [ "+" | "-" ] number

LIKE, IN and IS NULL apply to an attribute; the members of IN are all strings or all numbers.
Strings compare by code point under < <= > >= as well, which JMS leaves out and PADRES has.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, cast

from plait.routing.errors import FilterSyntaxError
from plait.routing.expressions import (
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    Expression,
    IsNull,
    Like,
    Membership,
    Negative,
    Not,
    Operand,
    Pattern,
    Wildcard,
    conjunction,
    disjunction,
    pattern_of,
    shared_attribute,
)
from plait.routing.limits import FILTER_DEPTH_MAX
from plait.routing.parsing import NUMBER, Parser, Token
from plait.routing.values import KIND_OF_TYPE, Value

KEYWORD: Final = re.compile(
    "AND|BETWEEN|ESCAPE|FALSE|IN|IS|LIKE|NOT|NULL|OR|TRUE", re.ASCII | re.IGNORECASE
)
"""Reserved; an attribute of such a name is written in double quotes."""

IDENTIFIER: Final = re.compile(r"(?:[^\W\d]|\$)[\w$.]*")
"""A name that needs no quotes: a letter of any script, _ or $, and behind it digits and dots."""

_TOKEN: Final = re.compile(
    rf"""(?P<number>{NUMBER})
       | (?P<symbol>(?ai:{KEYWORD.pattern})(?![\w$.]) | <> | <= | >= | [=<>+\-*/(),])
       | (?P<name>{IDENTIFIER.pattern})
       | (?P<quoted_name>"(?:[^"]|"")++")
       | (?P<string>'(?:[^']|'')*+')""",
    re.VERBOSE,
)


def read_sql(text: str) -> Condition:
    """Read a selector."""
    return _SqlParser(text).whole()


class _Term(NamedTuple):
    """A part that has been read; whether it is to be a condition, only its surroundings tell."""

    expression: Expression
    position: int
    height: int


class _SqlParser(Parser):
    """One method for each rule of the grammar at the top of this file."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _TOKEN)
        self._open_parentheses = 0

    def whole(self) -> Condition:
        if self._peek.kind == "end":
            raise self._error("a filter (TRUE matches everything)")
        term = self._filter()
        if self._peek.kind != "end":
            raise self._error(_after(term, "the end"))
        return self._condition(term)

    def _filter(self) -> _Term:
        return self._joined("OR", disjunction, self._all_of)

    def _all_of(self) -> _Term:
        return self._joined("AND", conjunction, self._negation)

    def _joined(
        self,
        keyword: str,
        join: Callable[[Iterable[Condition]], Condition],
        rule: Callable[[], _Term],
    ) -> _Term:
        terms = [rule()]
        while self._accept(keyword):
            terms.append(rule())
        if len(terms) == 1:
            return terms[0]
        return self._over(join(map(self._condition, terms)), *terms)

    def _negation(self) -> _Term:
        # A loop rather than recursion, as in _signed: only parentheses may deepen Python's stack.
        negations = 0
        while self._accept("NOT"):
            negations += 1
        term = self._test()
        for _ in range(negations):
            term = self._over(Not(self._condition(term)), term)
        return term

    def _test(self) -> _Term:
        left = self._sum()
        if compared := self._accept("=", "<>", "<", "<=", ">", ">="):
            return self._comparison(compared, left, self._sum())
        if self._accept("IS"):
            negation = self._accept("NOT")
            self._expect("NULL", expected="NULL" if negation else "NULL or NOT NULL")
            term = self._over(IsNull(self._attribute(left, "IS NULL")), left)
            return self._negated_if(negation, term)
        negation = self._accept("NOT")
        if token := self._accept("BETWEEN"):
            low = self._sum()
            self._expect("AND", expected="AND, and the upper bound of BETWEEN")
            high = self._sum()
            at_least = self._comparison(token._replace(value=">="), left, low)
            at_most = self._comparison(token._replace(value="<="), left, high)
            bounds = conjunction(map(self._condition, (at_least, at_most)))
            return self._negated_if(negation, self._over(bounds, at_least, at_most))
        if self._accept("IN"):
            term = self._over(Membership(self._attribute(left, "IN"), self._list()), left)
            return self._negated_if(negation, term)
        if self._accept("LIKE"):
            term = self._over(Like(self._attribute(left, "LIKE"), self._pattern()), left)
            return self._negated_if(negation, term)
        if negation:
            raise self._error("BETWEEN, IN or LIKE")
        return left

    def _comparison(self, token: Token, left: _Term, right: _Term) -> _Term:
        compared = cast("ComparisonOperator", token.value)
        condition = Comparison(compared, self._operand(left), self._operand(right))
        return self._over(condition, left, right)

    def _negated_if(self, negation: Token | None, term: _Term) -> _Term:
        return self._over(Not(self._condition(term)), term) if negation else term

    def _list(self) -> tuple[Value, ...]:
        self._expect("(", expected="( and a list of values")
        values = [self._list_value()]
        while self._accept(","):
            values.append(self._list_value(like=values[0]))
        self._expect(")", expected="a comma or )")
        return tuple(values)

    def _list_value(self, like: Value | None = None) -> Value:
        expected = "a string or a number" if like is None else f"a {_kind_name(like)} as before it"
        token = self._peek
        negative = self._accept("+", "-")
        match self._peek.kind:
            case "number":
                digits = self._advance()
                value = self._number(
                    token, (negative.value if negative else "") + digits.value
                ).value
            case "string" if not negative:
                value = self._advance().value
            case _:
                raise self._error(expected)
        if like is not None and isinstance(value, str) != isinstance(like, str):
            raise self._error(expected, token)
        return value

    def _pattern(self) -> Pattern:
        pattern = self._advance_over("string", expected="a pattern: a string in single quotes")
        escape = None
        if self._accept("ESCAPE"):
            token = self._advance_over("string", expected="a character in single quotes")
            if len(token.value) != 1:
                raise self._error("one character to escape with", token)
            escape = token.value
        return pattern_of(self._pattern_symbols(pattern, escape))

    def _pattern_symbols(self, pattern: Token, escape: str | None) -> Iterator[str | Wildcard]:
        characters = enumerate(pattern.value)
        for index, character in characters:
            if character == escape:
                _, escaped = next(characters, (index, ""))
                if escaped not in ("%", "_", escape):
                    raise FilterSyntaxError(
                        self._text,
                        pattern.position + 1 + len(pattern.value[:index].replace("'", "''")),
                        expected=f"%, _ or {escape} behind the escape character",
                        found=repr(escaped) if escaped else "the end of the pattern",
                    )
                yield escaped
            else:
                yield _WILDCARDS.get(character, character)

    def _sum(self) -> _Term:
        left = self._product()
        while token := self._accept("+", "-"):
            left = self._arithmetic(token, left, self._product())
        return left

    def _product(self) -> _Term:
        left = self._signed()
        while token := self._accept("*", "/"):
            left = self._arithmetic(token, left, self._signed())
        return left

    def _arithmetic(self, token: Token, left: _Term, right: _Term) -> _Term:
        combined = cast("ArithmeticOperator", token.value)
        operand = Arithmetic(combined, self._numeric(left), self._numeric(right))
        return self._over(operand, left, right)

    def _signed(self) -> _Term:
        signs = []
        while token := self._accept("+", "-"):
            signs.append(token)
        if signs and self._peek.kind == "number":
            sign = signs.pop()
            literal = sign.value + self._advance().value
            term = _Term(self._number(sign, literal), sign.position, 1)
        else:
            term = self._primary()
        for sign in reversed(signs):
            operand = self._numeric(term)
            if sign.value == "-":
                term = self._over(Negative(operand), term)
        return term

    def _primary(self) -> _Term:
        token = self._peek
        match token.kind, token.value:
            case "name", name:
                expression: Expression = shared_attribute(name)
            case "string", text:
                expression = Constant(text)
            case "number", digits:
                expression = self._number(token, digits)
            case "symbol", ("TRUE" | "FALSE") as constant:
                expression = Constant(constant == "TRUE")
            case "symbol", "(":
                return self._parenthesised()
            case "symbol", "NULL":
                raise self._error("a value (NULL is tested with IS NULL)")
            case _:
                raise self._error("an attribute, a value or (")
        self._advance()
        return _Term(expression, token.position, 1)

    def _parenthesised(self) -> _Term:
        opening = self._advance()
        self._open_parentheses += 1
        if self._open_parentheses > FILTER_DEPTH_MAX:
            raise self._depth_error(opening.position, self._open_parentheses)
        term = self._filter()
        self._expect(")", expected=_after(term, ")"))
        self._open_parentheses -= 1
        return term._replace(position=opening.position)

    def _over(self, expression: Expression, *parts: _Term) -> _Term:
        position = parts[0].position
        height = 1 + max(part.height for part in parts)
        if height > FILTER_DEPTH_MAX:
            raise self._depth_error(position, height)
        return _Term(expression, position, height)

    def _depth_error(self, position: int, depth: int) -> FilterSyntaxError:
        expected = f"at most {FILTER_DEPTH_MAX} levels of nesting"
        return FilterSyntaxError(self._text, position, expected=expected, found=f"{depth}")

    def _operand(self, term: _Term) -> Operand:
        if isinstance(term.expression, Operand):
            return term.expression
        raise self._kind_error(term, "a value")

    def _numeric(self, term: _Term) -> Operand:
        operand = term.expression
        if not isinstance(operand, Operand) or (
            isinstance(operand, Constant) and isinstance(operand.value, str | bool)
        ):
            raise self._kind_error(term, "a number")
        return operand

    def _condition(self, term: _Term) -> Condition:
        condition = term.expression
        if not isinstance(condition, Condition) or (
            isinstance(condition, Constant) and not isinstance(condition.value, bool)
        ):
            raise self._kind_error(term, "a condition")
        return condition

    def _attribute(self, term: _Term, keyword: str) -> Attribute:
        if isinstance(term.expression, Attribute):
            return term.expression
        raise self._kind_error(term, f"an attribute before {keyword}")

    def _kind_error(self, term: _Term, expected: str) -> FilterSyntaxError:
        match term.expression:
            case Constant(value):
                found = f"a {_kind_name(value)}"
            case Negative() | Arithmetic():
                found = "a number"
            case _:
                found = "a condition"
        return FilterSyntaxError(self._text, term.position, expected=expected, found=found)


_WILDCARDS: Final = {wildcard.value: wildcard for wildcard in Wildcard}


def _after(term: _Term, closing: str) -> str:
    """What may follow a part that is complete."""
    if isinstance(term.expression, Constant | Attribute | Negative | Arithmetic):
        return f"a comparison, AND, OR or {closing}"
    return f"AND, OR or {closing}"


def _kind_name(value: Value) -> str:
    return KIND_OF_TYPE[type(value)].name.lower()
