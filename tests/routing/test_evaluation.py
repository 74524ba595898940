"""Filters match exactly the contents of which their condition is true, and not merely not false."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.expressions import Attribute, Condition, Like, Not, Pattern
from plait.routing.filter_text import parse_sql
from plait.routing.filters import Filter
from plait.routing.values import Content, Value
from tests.routing import naive
from tests.routing.strategies import conditions, contents, patterns, strings, thorough


def truth_of(sql: str, content: Content) -> bool | None:
    """Ask a filter twice, as it only tells truth from the rest."""
    if parse_sql(sql).matches(content):
        return True
    return False if parse_sql(f"NOT ({sql})").matches(content) else None


@pytest.mark.parametrize(("x", "y"), list(itertools.product([True, False, None], repeat=2)))
def test_and_or_and_not_follow_the_truth_tables_of_sql(x: bool | None, y: bool | None) -> None:
    content = {name: flag for name, flag in (("x", x), ("y", y)) if flag is not None}

    assert truth_of("x AND y", content) == naive.all_of([x, y])
    assert truth_of("x OR y", content) == naive.any_of([x, y])
    assert truth_of("NOT x", content) == naive.negation(x)


@thorough
@given(conditions, contents)
def test_matching_agrees_with_the_definition(condition: Condition, content: Content) -> None:
    expected = naive.truth(condition, content)

    assert Filter(condition).matches(content) is (expected is True)
    assert Filter(Not(condition)).matches(content) is (expected is False)


@thorough
@given(patterns, strings | st.text("ab", max_size=12))
def test_like_fits_as_defined(pattern: Pattern, text: str) -> None:
    like = Filter(Like(Attribute("a"), pattern))

    assert like.matches({"a": text}) is naive.fits(text, pattern)


@pytest.mark.parametrize(
    ("sql", "content"),
    [
        ("symbol = 'IBM' AND price BETWEEN 100 AND 120", {"symbol": "IBM", "price": 100}),
        ("price > 99.5", {"price": 100}),
        ("price = 1", {"price": 1.0}),
        ("price IN (1, 2.5)", {"price": 2.5}),
        ("name IN ('x', 'it''s')", {"name": "it's"}),
        ("name NOT IN ('x')", {"name": "y"}),
        ("name LIKE 'a%'", {"name": "a\nb"}),
        ("name LIKE '%b%'", {"name": "abc"}),
        ("name LIKE '%c'", {"name": "abc"}),
        ("name LIKE 'a_c'", {"name": "abc"}),
        ("name LIKE '%a_c%e'", {"name": "xabcde"}),
        ("name LIKE '10!%' ESCAPE '!'", {"name": "10%"}),
        ("name NOT LIKE 'a%'", {"name": "b"}),
        ("name > 'abc'", {"name": "abd"}),
        ("x IS NULL", {}),
        ("x IS NOT NULL", {"x": False}),
        ("urgent", {"urgent": True}),
        ("NOT urgent", {"urgent": False}),
        ("urgent = TRUE", {"urgent": True}),
        ("urgent <> TRUE", {"urgent": False}),
        ("a + 2 * b = 8", {"a": 2, "b": 3}),
        ("(a + 2) * b = 12", {"a": 2, "b": 3}),
        ("a - 1 - 1 = 0", {"a": 2}),
        ("-a / 2 = -3", {"a": 7}),
        ("a / 2 = 3", {"a": 7}),
        ("a / 2 = 3.5", {"a": 7.0}),
        ("a < b", {"a": "x", "b": "y"}),
        ("TRUE", {}),
    ],
)
def test_matches(sql: str, content: Content) -> None:
    assert parse_sql(sql).matches(content)


@pytest.mark.parametrize(
    ("sql", "content"),
    [
        ("price > 100", {"price": 100}),
        ("price > 100", {}),
        ("price = '1'", {"price": 1}),
        ("name = 1", {"name": "1"}),
        ("urgent = 1", {"urgent": True}),
        ("price = TRUE", {"price": 1}),
        ("price IN (0, 1)", {"price": True}),
        ("name LIKE '%'", {"name": 5}),
        ("name LIKE 'a%'", {"name": "b"}),
        ("name LIKE 'a_c'", {"name": "ac"}),
        ("urgent", {"urgent": 1}),
        ("urgent < TRUE", {"urgent": False}),
        ("NOT urgent < TRUE", {"urgent": False}),
        ("FALSE", {}),
    ],
)
def test_does_not_match(sql: str, content: Content) -> None:
    assert not parse_sql(sql).matches(content)


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(("left", "right"), [(1, "1"), (True, 1), ("", False), (0.0, False)])
def test_a_comparison_of_unlike_kinds_is_unknown(operator: str, left: Value, right: Value) -> None:
    content = {"x": left, "y": right}

    assert truth_of(f"x {operator} y", content) is None


@pytest.mark.parametrize(
    ("sql", "content"),
    [
        ("a / b = 0", {"a": 1, "b": 0}),
        ("a / b = 0", {"a": 1.0, "b": 0.0}),
        ("a - b = 0", {"a": float("inf"), "b": float("inf")}),
        ("a * a * a * a * 1e308 / a = 0", {"a": float("inf")}),
        ("a + 1 = 2", {"a": True}),
        ("a + 1 = 2", {"a": "1"}),
        ("-a = 1", {"a": "1"}),
    ],
)
def test_arithmetic_without_a_result_is_null(sql: str, content: Content) -> None:
    assert truth_of(sql, content) is None


def test_integers_compare_with_floats_exactly() -> None:
    assert not parse_sql("n = 9007199254740993").matches({"n": float(2**53)})
    assert parse_sql("n > 9007199254740992.0").matches({"n": 2**53 + 1})


def test_like_takes_no_longer_than_the_text_is_long() -> None:
    """A search that tried every way to share the text among the wildcards would not come back."""
    many = parse_sql(f"name LIKE '{'%a' * 60}%b'")

    assert not many.matches({"name": "a" * 5_000})
