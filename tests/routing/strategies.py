"""Random contents and conditions over a vocabulary small enough for them to meet."""

from hypothesis import settings
from hypothesis import strategies as st

from plait.routing.expressions import (
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
    Wildcard,
    conjunction,
    disjunction,
    pattern_of,
)
from plait.routing.filters import Filter
from plait.routing.values import Content, Value

thorough = settings(max_examples=400)

names = st.sampled_from(["a", "b", "c.d"])
integers = st.integers(-2, 3)
floats = st.sampled_from([-1.5, -0.0, 0.5, 1.0, 2.0, 1e300])
numbers: st.SearchStrategy[int | float] = integers | floats
strings = st.text("ab%_", max_size=3)
values: st.SearchStrategy[Value] = numbers | strings | st.booleans()
extreme_values: st.SearchStrategy[Value] = st.sampled_from(
    [2**63 - 1, -(2**63), float("inf"), float("-inf"), 2**53 + 1, float(2**53), "", "\U0010ffff"]
)

contents: st.SearchStrategy[Content] = st.dictionaries(names, values | extreme_values, max_size=3)

comparison_operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
attributes = st.builds(Attribute, names)
constants = st.builds(Constant, values)


def _arithmetic(operands: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    numeric = operands.filter(
        lambda o: not (isinstance(o, Constant) and isinstance(o.value, str | bool))
    )
    return st.builds(Negative, numeric) | st.builds(
        Arithmetic, st.sampled_from(["+", "-", "*", "/"]), numeric, numeric
    )


operands: st.SearchStrategy[Operand] = st.recursive(
    attributes | constants, _arithmetic, max_leaves=4
)

members: st.SearchStrategy[tuple[Value, ...]] = st.lists(strings, min_size=1, max_size=4).map(
    tuple
) | st.lists(numbers, min_size=1, max_size=4).map(tuple)
pattern_symbols: st.SearchStrategy[str | Wildcard] = st.sampled_from(
    ["a", "b", "%", "_", Wildcard.ANY_TEXT, Wildcard.ANY_CHARACTER]
)
patterns = st.lists(pattern_symbols, max_size=4).map(pattern_of)

simple_conditions: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Comparison, comparison_operators, attributes, constants),
    st.builds(Comparison, comparison_operators, constants, attributes),
    st.builds(Membership, attributes, members),
    st.builds(Like, attributes, patterns),
    st.builds(IsNull, attributes),
    attributes,
    st.builds(Constant, st.booleans()),
)
leaves = simple_conditions | st.builds(Comparison, comparison_operators, operands, operands)


def _joined(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(conditions, min_size=2, max_size=3)
    return st.builds(Not, conditions) | several.map(conjunction) | several.map(disjunction)


conditions: st.SearchStrategy[Condition] = st.recursive(leaves, _joined, max_leaves=6)
filters = st.builds(Filter, conditions)
conjunctions = st.lists(simple_conditions, min_size=1, max_size=3).map(conjunction)
"""What most subscribers send."""
