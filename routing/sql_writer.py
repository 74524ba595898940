"""How a filter is written as SQL.

`sql_grammar` reads back exactly the tree that was written. Parentheses appear where the grammar
needs them, and around what NOT applies to, where readers do.
"""

import re
from typing import Final

from plait.routing.expressions import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
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
)
from plait.routing.sql_grammar import IDENTIFIER, KEYWORD
from plait.routing.values import Value

_SPECIAL: Final = re.compile(r"[%_\\]")
"""What a backslash has to stand before in a pattern, to mean no more than itself."""


def write_sql(condition: Condition) -> str:
    """Write the canonical text of a condition."""
    match condition:
        case Comparison(operator, left, right):
            return f"{_operand(left)} {operator} {_operand(right)}"
        case Membership() | Like() | IsNull():
            return _test(condition, negated=False)
        case Not(Membership() | Like() | IsNull() as test):
            return _test(test, negated=True)
        case Not(Attribute() | Constant() as flag):
            return f"NOT {_operand(flag)}"
        case Not(negated):
            return f"NOT ({write_sql(negated)})"
        case And(conditions):
            return " AND ".join(
                f"({write_sql(inner)})" if isinstance(inner, And | Or) else write_sql(inner)
                for inner in conditions
            )
        case Or(conditions):
            return " OR ".join(
                f"({write_sql(inner)})" if isinstance(inner, Or) else write_sql(inner)
                for inner in conditions
            )
        case Attribute() | Constant():
            return _operand(condition)


def _test(test: Membership | Like | IsNull, *, negated: bool) -> str:
    name = _name(test.attribute.name)
    maybe_not = "NOT " if negated else ""
    match test:
        case Membership(_, values):
            return f"{name} {maybe_not}IN ({', '.join(map(_constant, values))})"
        case Like(_, pattern):
            return f"{name} {maybe_not}LIKE {_pattern(pattern)}"
        case IsNull():
            return f"{name} IS {maybe_not}NULL"


def _operand(operand: Operand) -> str:
    match operand:
        case Attribute(name):
            return _name(name)
        case Constant(value):
            return _constant(value)
        case Negative(inner):
            # "-5" would be read as a constant, and "--" starts a comment in many a dialect.
            return (
                f"-{_operand(inner)}" if isinstance(inner, Attribute) else f"-({_operand(inner)})"
            )
        case Arithmetic(operator, left, right):
            # Operators of one rank are read from left to right.
            left_needs = operator in "*/" and _is_sum(left)
            right_needs = isinstance(right, Arithmetic) and (operator in "*/" or _is_sum(right))
            return f"{_grouped(left, left_needs)} {operator} {_grouped(right, right_needs)}"


def _is_sum(operand: Operand) -> bool:
    return isinstance(operand, Arithmetic) and operand.operator in "+-"


def _grouped(operand: Operand, needs_parentheses: bool) -> str:
    text = _operand(operand)
    return f"({text})" if needs_parentheses else text


def _name(name: str) -> str:
    if IDENTIFIER.fullmatch(name) and not KEYWORD.fullmatch(name):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _constant(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _string(value)
    return repr(value)


def _string(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _pattern(pattern: Pattern) -> str:
    text = "".join(
        piece.value if isinstance(piece, Wildcard) else _SPECIAL.sub(r"\\\g<0>", piece)
        for piece in pattern
    )
    return f"{_string(text)} ESCAPE '\\'" if "\\" in text else _string(text)
