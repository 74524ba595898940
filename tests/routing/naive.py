"""The meaning of a condition, spelled out: three truth values, no cleverness, nothing shared."""

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
from plait.routing.values import Content, Value

Truth = bool | None


def truth(condition: Condition, content: Content) -> Truth:
    """True, false or, as None, unknown."""
    match condition:
        case Comparison(operator, left, right):
            return compare(operator, value_of(left, content), value_of(right, content))
        case Membership(attribute, members):
            return any_of([compare("=", content.get(attribute.name), m) for m in members])
        case Like(attribute, pattern):
            value = content.get(attribute.name)
            return fits(value, pattern) if isinstance(value, str) else None
        case IsNull(attribute):
            return attribute.name not in content
        case Not(inner):
            return negation(truth(inner, content))
        case And(inner_conditions):
            return all_of([truth(inner, content) for inner in inner_conditions])
        case Or(inner_conditions):
            return any_of([truth(inner, content) for inner in inner_conditions])
        case Attribute(name):
            flag = content.get(name)
            return flag if isinstance(flag, bool) else None
        case Constant(value):
            assert isinstance(value, bool)
            return value


def negation(a: Truth) -> Truth:
    return None if a is None else not a


def all_of(truths: list[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


def any_of(truths: list[Truth]) -> Truth:
    if True in truths:
        return True
    return None if None in truths else False


def compare(operator: str, left: Value | None, right: Value | None) -> Truth:
    if left is None or right is None or kind(left) != kind(right):
        return None
    if operator == "=":
        return left == right
    if operator == "<>":
        return left != right
    if kind(left) == "boolean":
        return None
    if isinstance(left, str):
        assert isinstance(right, str)
        return ordered(operator, (left > right) - (left < right))
    assert not isinstance(right, str)
    return ordered(operator, (left > right) - (left < right))


def ordered(operator: str, sign: int) -> bool:
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]


def kind(value: Value) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def value_of(operand: Operand, content: Content) -> Value | None:
    match operand:
        case Attribute(name):
            return content.get(name)
        case Constant(value):
            return value
        case Negative(inner):
            number = number_of(inner, content)
            return None if number is None else -number
        case Arithmetic(operator, left, right):
            return combine(operator, number_of(left, content), number_of(right, content))


def number_of(operand: Operand, content: Content) -> int | float | None:
    value = value_of(operand, content)
    return None if value is None or isinstance(value, str | bool) else value


def combine(operator: str, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    try:
        result = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: divide(left, right),
        }[operator]()
    except (ZeroDivisionError, OverflowError):
        return None
    return result if result == result else None


def divide(left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        magnitude = abs(left) // abs(right)
        return magnitude if (left >= 0) == (right >= 0) else -magnitude
    return left / right


def fits(text: str, pattern: Pattern) -> bool:
    if not pattern:
        return not text
    first, *rest = pattern
    if first is Wildcard.ANY_TEXT:
        return any(fits(text[i:], tuple(rest)) for i in range(len(text) + 1))
    if first is Wildcard.ANY_CHARACTER:
        return bool(text) and fits(text[1:], tuple(rest))
    return text.startswith(first) and fits(text[len(first) :], tuple(rest))
