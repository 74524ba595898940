"""Sets of values behave as sets of the values that are in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing import value_sets
from plait.routing.expressions import ComparisonOperator
from plait.routing.value_sets import ValueSet, after, before
from plait.routing.values import Kind, Value
from tests.routing import naive
from tests.routing.strategies import (
    comparison_operators,
    extreme_values,
    numbers,
    strings,
    thorough,
    values,
)

sets: st.SearchStrategy[ValueSet] = st.recursive(
    st.builds(value_sets.compared, comparison_operators, values)
    | st.lists(numbers).map(value_sets.of_values)
    | strings.map(value_sets.with_prefix)
    | st.sampled_from([value_sets.NOTHING, value_sets.ANYTHING, value_sets.MISSING])
    | st.just(value_sets.PRESENT)
    | st.sampled_from(Kind).map(value_sets.of_kind),
    lambda inner: (
        st.builds(value_sets.union, inner, inner)
        | st.builds(value_sets.intersection, inner, inner)
        | st.builds(value_sets.complement, inner)
    ),
    max_leaves=4,
)
any_values = values | extreme_values


def contains(members: ValueSet, value: Value) -> bool:
    return value_sets.intersects(members, (before(value), after(value)))


@thorough
@given(sets, sets, any_values)
def test_sets_combine_as_their_members_do(a: ValueSet, b: ValueSet, value: Value) -> None:
    in_a, in_b = contains(a, value), contains(b, value)

    assert contains(value_sets.intersection(a, b), value) is (in_a and in_b)
    assert contains(value_sets.union(a, b), value) is (in_a or in_b)
    assert contains(value_sets.complement(a), value) is not in_a
    assert value_sets.intersects(a, b) or not (in_a and in_b)
    assert not (value_sets.is_subset(a, b) and in_a and not in_b)


@thorough
@given(sets, sets)
def test_cuts_ascend_and_intersection_is_what_intersects(a: ValueSet, b: ValueSet) -> None:
    for combined in (value_sets.union(a, b), value_sets.intersection(a, b)):
        assert list(combined) == sorted(set(combined))
        assert len(combined) % 2 == 0
    assert value_sets.intersects(a, b) is bool(value_sets.intersection(a, b))
    assert value_sets.complement(value_sets.complement(a)) == a


@thorough
@given(comparison_operators, values, any_values)
def test_a_compared_set_holds_what_the_comparison_is_true_of(
    operator: ComparisonOperator, constant: Value, value: Value
) -> None:
    is_true = naive.compare(operator, value, constant) is True

    assert contains(value_sets.compared(operator, constant), value) is is_true


@pytest.mark.parametrize(
    ("prefix", "value", "belongs"),
    [
        ("ab", "ab", True),
        ("ab", "ab\U0010ffff\U0010ffff", True),
        ("ab", "ac", False),
        ("ab", "a", False),
        ("a\U0010ffff", "a\U0010ffffz", True),
        ("a\U0010ffff", "b", False),
        ("\U0010ffff", "\U0010ffff\U0010ffff", True),
        ("\U0010ffff", "\U0010fffe", False),
        ("", "", True),
        ("", 1, False),
    ],
)
def test_a_prefix_holds_what_begins_with_it(prefix: str, value: Value, belongs: bool) -> None:
    assert contains(value_sets.with_prefix(prefix), value) is belongs


def test_the_other_values_of_a_kind_leave_the_other_kinds_out() -> None:
    others = value_sets.not_of_values([1, 2], Kind.NUMBER)

    assert contains(others, 1.5)
    assert not contains(others, 2.0)
    assert not contains(others, "1")
    assert not contains(others, True)
    assert not value_sets.intersects(others, value_sets.MISSING)
