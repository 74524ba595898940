"""What holds for every text: filters survive being written and read, and nonsense is refused."""

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.errors import FilterSyntaxError
from plait.routing.filter_text import parse_filter, parse_padres, parse_sql, topic_filter
from plait.routing.filters import Filter
from tests.routing.strategies import filters, thorough

valid_texts = st.sampled_from(
    [
        "symbol = 'IBM' AND price BETWEEN 100 AND 120",
        "NOT (a + 2 * -b > 1.5e3 OR c.d NOT LIKE 'x!%_' ESCAPE '!')",
        "a IN ('x', 'it''s') OR b NOT IN (1, -2.5) AND \"c d\" IS NOT NULL",
        "[class,eq,'STOCK'],[price,>,100],[name,str-prefix,ab],[n,isPresent]",
        "[price,between,100,120] [city,neq,New York]",
    ]
)
fragments = st.sampled_from(
    ["AND ", "or", " NOT ", "(", ")", "'", '"', "[", "]", ",", "%", "-", "1e9", "a", "<", "=", "\0"]
)


@thorough
@given(filters)
def test_a_filter_survives_being_written_and_read(filter_: Filter) -> None:
    assert parse_sql(filter_.sql) == filter_
    assert hash(parse_sql(filter_.sql)) == hash(filter_)


def syntax_error(parse: Callable[[str], Filter], text: str) -> FilterSyntaxError | None:
    try:
        filter_ = parse(text)
    except FilterSyntaxError as error:
        return error
    assert parse_sql(filter_.sql) == filter_
    return None


def require_filter_or_honest_error(text: str) -> None:
    for parse in (parse_filter, parse_sql, parse_padres):
        if error := syntax_error(parse, text):
            assert 0 <= error.position <= len(text)
            assert str(error)


@thorough
@given(st.text(max_size=60) | st.lists(fragments, max_size=15).map("".join))
def test_garbage_is_refused_with_a_position(text: str) -> None:
    require_filter_or_honest_error(text)


@thorough
@given(valid_texts, st.data())
def test_a_damaged_text_is_read_or_refused_with_a_position(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 3)))
    inserted = data.draw(fragments | st.text(max_size=2))

    require_filter_or_honest_error(text[:start] + inserted + text[end:])


@pytest.mark.parametrize(
    ("one", "another"),
    [("a = 1", "a = TRUE"), ("a = 1", "a = 1.0"), ("a IN (1)", "a IN (1.0)"), ("a", "b")],
)
def test_different_filters_are_not_equal(one: str, another: str) -> None:
    """Python would hold 1, 1.0 and True to be equal; brokers group subscriptions by filter."""
    assert parse_sql(one) != parse_sql(another)


def test_a_syntax_error_survives_its_way_to_another_process() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_sql("a >")

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# --- topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", False),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", True),
        ("/a/*", "/a", False),
        ("/a/*", "/ab", False),
        ("/*", "/a", True),
        ("/*", "a", False),
        ("/a_b/*", "/axb/c", False),
        ("/50%/*", "/50%/x", True),
        ("/50%/*", "/50x/x", False),
        ("/a/*/b", "/a/*/b", True),
        ("/a/*/b", "/a/x/b", False),
        ("/grün/*", "/grün/ä", True),
    ],
)
def test_topics(pattern: str, topic: str, matches: bool) -> None:
    filter_ = topic_filter(pattern)

    assert filter_.matches({"topic": topic}) is matches
    assert not filter_.matches({})
    assert parse_filter(filter_.sql) == filter_


def test_a_topic_covers_what_lies_under_it() -> None:
    assert topic_filter("/a/*").covers(topic_filter("/a/b/*"))
    assert topic_filter("/a/*").covers(topic_filter("/a/b"))
    assert not topic_filter("/a/*").covers(topic_filter("/a"))
    assert not topic_filter("/a/*").overlaps(topic_filter("/b/*"))


def test_a_topic_has_a_name() -> None:
    with pytest.raises(FilterSyntaxError, match="expected a topic"):
        topic_filter("")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("%" + "_" * 64, "expected patterns with at most 64 wildcards each, found one with 65"),
        ("%a" * 65, "expected patterns with at most 64 wildcards each, found one with 65"),
        ("%" + "y" * 200 + "_" + "y" * 56 + "%", "at most 256 characters in all between two %"),
    ],
)
def test_what_takes_long_to_look_for_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError, match=reason):
        parse_filter(f"a LIKE '{pattern}'")


def test_patterns_of_one_filter_count_together() -> None:
    mixed = "a LIKE '%" + "y" * 62 + "_z%'"
    parse_filter(" OR ".join([mixed] * 4))

    with pytest.raises(FilterSyntaxError, match=r"in all between two % .*, found 320"):
        parse_filter("NOT (" + " OR ".join([mixed] * 5) + ")")


def test_long_texts_in_patterns_are_as_cheap_as_they_look() -> None:
    text = "y" * 4000
    for pattern in (f"{text}%", f"%{text}", f"%{text}%", f"%_{text[:3000]}__%", f"{text}_a"):
        parse_filter(f"a LIKE '{pattern}'")
