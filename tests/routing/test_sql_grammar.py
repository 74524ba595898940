"""SQL selectors: what they mean, how they are written back, and what is wrong with the others."""

import pytest

from plait.routing.errors import FilterSyntaxError, RoutingError
from plait.routing.filter_text import parse_filter, parse_sql
from plait.routing.limits import FILTER_DEPTH_MAX, FILTER_NODES_MAX, FILTER_TEXT_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("price>100", "price > 100"),
        ("  symbol = 'IBM'\n and\tprice <= 1 ", "symbol = 'IBM' AND price <= 1"),
        ("price between 100 And 120", "price >= 100 AND price <= 120"),
        ("price NOT BETWEEN 1 AND 2", "NOT (price >= 1 AND price <= 2)"),
        ("a BETWEEN b + 1 AND c AND d", "a >= b + 1 AND a <= c AND d"),
        ("symbol in ('A','it''s')", "symbol IN ('A', 'it''s')"),
        ("n not in (-1, +2, 3.5)", "n NOT IN (-1, 2, 3.5)"),
        ("name like 'a%'", "name LIKE 'a%'"),
        ("name not like '%%a_'", "name NOT LIKE '%a_'"),
        ("name like '10!%' escape '!'", r"name LIKE '10\%' ESCAPE '\'"),
        (r"name like '\%'", r"name LIKE '\\%' ESCAPE '\'"),
        ("name like '!!''!_' escape '!'", r"name LIKE '!''\_' ESCAPE '\'"),
        ("x is null or y is not null", "x IS NULL OR y IS NOT NULL"),
        ("NOT x IS NULL", "x IS NOT NULL"),
        ("not flag", "NOT flag"),
        ("not not flag", "NOT (NOT flag)"),
        ("not a = 1 and b", "NOT (a = 1) AND b"),
        ("a or b and c", "a OR b AND c"),
        ("(a or b) and c", "(a OR b) AND c"),
        ("a and (b and c)", "a AND b AND c"),
        ("((a = 1))", "a = 1"),
        ("true", "TRUE"),
        ("a = false", "a = FALSE"),
        ("a + b * c > 1", "a + b * c > 1"),
        ("(a + b) * c > 1", "(a + b) * c > 1"),
        ("a - (b - c) > 1", "a - (b - c) > 1"),
        ("(a - b) - c > 1", "a - b - c > 1"),
        ("a / (b * c) > 1", "a / (b * c) > 1"),
        ("a -5 > + 1", "a - 5 > 1"),
        ("a = - 5", "a = -5"),
        ("a = -(5)", "a = -(5)"),
        ("a = - -5", "a = -(-5)"),
        ("a = -b", "a = -b"),
        ("a = +b", "a = b"),
        ("a = -(b + 1)", "a = -(b + 1)"),
        ("a = 7.", "a = 7.0"),
        ("a = .5", "a = 0.5"),
        ("a = -57.9E2", "a = -5790.0"),
        ("a = 1e22", "a = 1e+22"),
        ("a = 0000000000000000000000001", "a = 1"),
        ("a = -9223372036854775808", "a = -9223372036854775808"),
        ("100 < price", "100 < price"),
        ("$x_1 = größe.max", "$x_1 = größe.max"),
        ('"in" = "a ""b"""', '"in" = "a ""b"""'),
        ('"plain" = 1', "plain = 1"),
        ("into = 1", "into = 1"),
        ("in.x = 1", "in.x = 1"),
    ],
)
def test_reads(text: str, canonical: str) -> None:
    parsed = parse_sql(text)

    assert parsed.sql == canonical
    assert parse_sql(canonical) == parsed
    assert str(parsed) == canonical
    assert repr(parsed) == f"Filter({canonical!r})"


@pytest.mark.parametrize(
    ("text", "position", "expected", "found"),
    [
        ("", 0, "a filter (TRUE matches everything)", "the end"),
        ("   ", 3, "a filter (TRUE matches everything)", "the end"),
        ("price >", 7, "an attribute, a value or (", "the end"),
        ("price > > 1", 8, "an attribute, a value or (", "'>'"),
        ("price == 1", 7, "an attribute, a value or (", "'='"),
        ("price != 1", 6, "a name, a value or an operator", "'!'"),
        ("price 100", 6, "a comparison, AND, OR or the end", "'100'"),
        ("a = 1 b = 2", 6, "AND, OR or the end", "'b'"),
        ("a = 1)", 5, "AND, OR or the end", "')'"),
        ("(a = 1", 6, "AND, OR or )", "the end"),
        ("1 < a < 3", 6, "AND, OR or the end", "'<'"),
        ("a = NULL", 4, "a value (NULL is tested with IS NULL)", "'NULL'"),
        ("a IS 5", 5, "NULL or NOT NULL", "'5'"),
        ("a IS NOT 5", 9, "NULL", "'5'"),
        ("a NOT = 5", 6, "BETWEEN, IN or LIKE", "'='"),
        ("a BETWEEN 1 OR 2", 12, "AND, and the upper bound of BETWEEN", "'OR'"),
        ("a IN 'x'", 5, "( and a list of values", "'x'"),
        ("a IN ()", 6, "a string or a number", "')'"),
        ("a IN ('x', 5)", 11, "a string as before it", "'5'"),
        ("a IN (1, -'x')", 10, "a number as before it", "'x'"),
        ("a IN (1, 'x')", 9, "a number as before it", "'x'"),
        ("a IN (1 2)", 8, "a comma or )", "'2'"),
        ("a LIKE 5", 7, "a pattern: a string in single quotes", "'5'"),
        ("a LIKE 'x' ESCAPE 5", 18, "a character in single quotes", "'5'"),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "one character to escape with", "'ab'"),
        ("a LIKE '''!x' ESCAPE '!'", 10, "%, _ or ! behind the escape character", "'x'"),
        (
            "a LIKE 'x!' ESCAPE '!'",
            9,
            "%, _ or ! behind the escape character",
            "the end of the pattern",
        ),
        ("5 LIKE 'x'", 0, "an attribute before LIKE", "a number"),
        ("'a' IN ('x')", 0, "an attribute before IN", "a string"),
        ("a + 1 IS NULL", 0, "an attribute before IS NULL", "a number"),
        ("a AND 5", 6, "a condition", "a number"),
        ("'a'", 0, "a condition", "a string"),
        ("NOT (a + 1)", 4, "a condition", "a number"),
        ("a + 'x' > 1", 4, "a number", "a string"),
        ("a * TRUE > 1", 4, "a number", "a boolean"),
        ("a + (b > 1) > 1", 4, "a number", "a condition"),
        ("(a > 1) = TRUE", 0, "a value", "a condition"),
        ("a = 'abc", 4, "a closing '", "none"),
        ('"abc = 1', 0, 'a closing "', "none"),
        ('"" = 1', 0, 'a closing "', "none"),
        ("a # 1", 2, "a name, a value or an operator", "'#'"),
        ("a = 9223372036854775808", 4, "a number that fits into 64 bits", "'9223372036854775808'"),
        ("a = 1e999", 4, "a number that fits into 64 bits", "'1e999'"),
        ("a = '\ud800'", 5, "text UTF-8 can hold", "half a surrogate pair"),
    ],
)
def test_points_at_the_character_and_says_what_is_expected(
    text: str, position: int, expected: str, found: str
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_sql(text)

    error = caught.value
    assert (error.position, error.expected, error.found) == (position, expected, found)
    assert isinstance(error, RoutingError)
    assert isinstance(error, ValueError)


def test_an_error_shows_the_text_with_a_caret() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter("symbol = 'IBM' AND\tprice >> 100")

    assert str(caught.value) == (
        "expected an attribute, a value or (, found '>' at character 27\n"
        "  symbol = 'IBM' AND price >> 100\n"
        "                            ^"
    )


def test_an_error_in_a_long_text_shows_its_surroundings() -> None:
    text = f"a IN ({', '.join(['1'] * 100)}, x, {', '.join(['1'] * 100)})"
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(text)

    _, line, caret = str(caught.value).splitlines()
    assert line.startswith("  ...")
    assert line.endswith("...")
    assert line[len(caret) - 1] == "x"


def test_a_long_token_is_not_repeated_in_full() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(f"a IN ({'x' * 1_000})")

    assert caught.value.found == f"'{'x' * 24}'..."


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        "NOT " * 4_000 + "a",
        "a = " + "-" * 10_000 + "b",
        "a = " + "b + " * 4_000 + "b",
        "a = " + "(" * 31 + "b" + " + 1)" * 31 + " + 1" * 31,
        "NOT (" * 30 + "a" + ")" * 30 + " BETWEEN 1 AND 2",
    ],
)
def test_nesting_is_bounded_whatever_it_is_made_of(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_sql(text)

    assert 0 <= caught.value.position <= len(text)


def test_the_deepest_filter_works() -> None:
    deepest = "NOT (" * (FILTER_DEPTH_MAX - 1) + "a" + ")" * (FILTER_DEPTH_MAX - 1)
    filter_ = parse_sql(deepest)

    assert parse_sql(filter_.sql) == filter_
    assert filter_.matches({"a": False})
    assert filter_.overlaps(filter_)
    assert filter_.covers(filter_)


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_sql("a = 1" + " " * FILTER_TEXT_CHARACTERS_MAX)

    assert caught.value.expected == "at most 16384 characters"


def test_a_filter_of_too_many_nodes_is_refused() -> None:
    fits = f"a IN ({','.join(['1'] * (FILTER_NODES_MAX - 2))})"
    parse_sql(fits)

    with pytest.raises(FilterSyntaxError, match="at most 2048 nodes, found 2049"):
        parse_sql(fits[:-1] + ",1)")


def test_a_filter_that_could_not_be_read_back_is_refused() -> None:
    """Its canonical text is longer than what its author wrote, and longer than allowed."""
    with pytest.raises(FilterSyntaxError, match="characters as SQL"):
        parse_sql(f"a LIKE '{'!_' * 8_000}' ESCAPE '!' AND b LIKE '{chr(92) * 300}'")


def test_the_same_text_gives_the_same_filter() -> None:
    assert parse_filter("price > 1") is parse_filter("price > 1")
