"""`overlaps` never misses what matches both; `covers` never claims what does not match."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.routing.expressions import Not
from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.limits import REGIONS_MAX
from plait.routing.values import Content
from tests.routing.strategies import conjunctions, contents, filters, thorough

several_contents = st.lists(contents, min_size=1, max_size=8)
plain_filters = st.builds(Filter, conjunctions)
any_filters = plain_filters | filters


@thorough
@given(any_filters, any_filters, several_contents)
def test_filters_that_match_one_content_overlap(
    a: Filter, b: Filter, contents: list[Content]
) -> None:
    if any(a.matches(content) and b.matches(content) for content in contents):
        assert a.overlaps(b)
    assert a.overlaps(b) is b.overlaps(a)


@settings(max_examples=1_500)
@given(any_filters, any_filters, several_contents)
def test_a_filter_matches_whatever_one_that_it_covers_matches(
    a: Filter, b: Filter, contents: list[Content]
) -> None:
    if a.covers(b):
        for content in contents:
            assert a.matches(content) or not b.matches(content)


@settings(max_examples=1_500)
@given(plain_filters, plain_filters, plain_filters, several_contents)
def test_covering_is_transitive(a: Filter, b: Filter, c: Filter, contents: list[Content]) -> None:
    if a.covers(b) and b.covers(c):
        for content in contents:
            assert a.matches(content) or not c.matches(content)


@thorough
@given(any_filters)
def test_a_filter_covers_itself_and_overlaps_itself_if_anything(filter_: Filter) -> None:
    assert filter_.covers(filter_)
    assert filter_.overlaps(filter_) is bool(filter_.regions)


@thorough
@given(any_filters, contents)
def test_a_filter_without_regions_matches_nothing(filter_: Filter, content: Content) -> None:
    if not filter_.regions:
        assert not filter_.matches(content)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("price > 100", "price < 120"),
        ("price >= 100", "price <= 100"),
        ("price > 100", "symbol = 'IBM'"),
        ("price > 100", "price IS NOT NULL"),
        ("symbol LIKE 'I%'", "symbol = 'IBM'"),
        ("symbol LIKE 'I%'", "symbol LIKE 'IB%'"),
        ("symbol LIKE '%M'", "symbol LIKE 'I%'"),
        ("symbol IN ('A', 'B')", "symbol IN ('B', 'C')"),
        ("symbol <> 'A'", "symbol <> 'B'"),
        ("a = 1 OR b = 1", "a = 2 OR b = 2"),
        ("a + b > 3", "a = 1"),
        ("a > b", "a = 1 AND b = 2"),
        ("TRUE", "a IS NULL"),
    ],
)
def test_overlaps(one: str, another: str) -> None:
    assert parse_filter(one).overlaps(parse_filter(another))


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("price > 100", "price < 100"),
        ("price > 100", "price <= 100"),
        ("price > 100", "price = 'high'"),
        ("price > 100", "price IS NULL"),
        ("flag", "NOT flag"),
        ("flag", "flag = 1"),
        ("symbol LIKE 'I%'", "symbol = 'JBM'"),
        ("symbol LIKE 'I%'", "symbol LIKE 'J%x'"),
        ("symbol LIKE '%M'", "symbol = 1"),
        ("symbol NOT LIKE 'I%'", "symbol LIKE 'IB%'"),
        ("symbol IN ('A', 'B')", "symbol NOT IN ('A', 'B', 'C')"),
        ("a = 1 AND b = 1", "a = 1 AND b = 2"),
        ("a = 1 AND (b = 1 OR b = 2)", "a > 0 AND b > 2"),
        ("a = 1 AND b = 1 OR a = 2 AND b = 2", "a = 1 AND b = 2"),
        ("a + b > 3", "a = 'x'"),
        ("a > b", "a IS NULL"),
        ("a > 1 AND a < 1", "TRUE"),
        ("FALSE", "TRUE"),
    ],
)
def test_does_not_overlap(one: str, another: str) -> None:
    assert not parse_filter(one).overlaps(parse_filter(another))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("price > 100", "price > 100"),
        ("price > 100", "price > 100 AND symbol = 'IBM'"),
        ("price > 100", "price BETWEEN 101 AND 120"),
        ("price > 100", "price > 100.0"),
        ("price >= 100", "price > 100"),
        ("price IS NOT NULL", "price > 100"),
        ("symbol LIKE 'I%'", "symbol LIKE 'IB%'"),
        ("symbol LIKE 'I%'", "symbol LIKE 'IB%M'"),
        ("symbol LIKE '%M'", "symbol LIKE '%M' AND price > 1"),
        ("symbol IN ('A', 'B')", "symbol = 'A'"),
        ("symbol IN ('A', 'B')", "symbol = 'A' OR symbol = 'B'"),
        ("a < 5 OR a >= 3", "a IS NOT NULL AND a > 4"),
        ("a = 1 OR b = 1", "b = 1 AND c = 1"),
        ("NOT (a = 1 OR b = 1)", "a = 2 AND b = 2"),
        ("a + b > 3", "a + b > 3 AND c = 1"),
        ("TRUE", "a LIKE '%x%'"),
        ("a = 1", "FALSE"),
        ("a <> 1", "NOT (a = 1)"),
        ("a IS NOT NULL", "a > b"),
    ],
)
def test_covers(wide: str, narrow: str) -> None:
    assert parse_filter(wide).covers(parse_filter(narrow))


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("price > 100", "price >= 100"),
        ("price > 100", "symbol = 'IBM'"),
        ("price > 100", "TRUE"),
        ("price > 100 OR symbol = 'A'", "price > 99 OR symbol = 'A'"),
        ("price <> 1", "price IS NOT NULL"),
        ("symbol LIKE 'IB%'", "symbol LIKE 'I%'"),
        ("symbol LIKE '%M'", "symbol LIKE 'I%M'"),
        ("a + b > 3", "a + b > 4"),
        ("FALSE", "a = 1"),
    ],
)
def test_does_not_cover(one: str, another: str) -> None:
    """The last but one is merely not found out."""
    assert not parse_filter(one).covers(parse_filter(another))


def alternatives(count: int, start: int = 0) -> str:
    return " OR ".join(f"a = {n} AND b = {n}" for n in range(start, start + count))


def test_beyond_the_limit_of_alternatives_answers_are_cautious() -> None:
    few, many = parse_filter(alternatives(REGIONS_MAX)), parse_filter(alternatives(REGIONS_MAX + 1))
    other = parse_filter("a = 1 AND b = 2")

    assert not few.overlaps(other)
    assert many.overlaps(other)
    assert few.covers(parse_filter("a = 1 AND b = 1"))
    assert not many.covers(parse_filter("a = 1 AND b = 1"))
    assert many.covers(many)


def test_a_product_beyond_the_limit_keeps_what_fits() -> None:
    text = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(10))
    filter_ = parse_filter(f"{text} AND c = 1")

    assert len(filter_.regions) <= REGIONS_MAX
    assert filter_.covers(filter_)
    assert not filter_.overlaps(parse_filter("c = 2"))
    assert not filter_.overlaps(parse_filter("a0 = 2 AND b0 = 2"))
    assert parse_filter("c = 1").covers(filter_)


def test_the_largest_filters_are_compared_in_no_time() -> None:
    """Not a measurement: were it quadratic in the text, one would notice."""
    chain = parse_filter(" AND ".join(f"a <> {n}" for n in range(600)))
    choice = parse_filter(" OR ".join(f"a = {n}" for n in range(300, 900)))

    assert chain.overlaps(choice)
    assert not choice.covers(chain)
    assert chain.covers(parse_filter("a = 601"))
    assert not Filter(Not(chain.condition)).overlaps(parse_filter("a > 600"))
