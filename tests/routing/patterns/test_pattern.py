"""The language of patterns: what is read, and what is said of what cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.errors import PatternError, PatternSyntaxError
from plait.routing.patterns.detection import Detection
from plait.routing.patterns.pattern import Step, parse_pattern


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("A", "A"),
        ("A->B", "A -> B"),
        ("A | B -> C", "(A | B) -> C"),
        ("(A|B){2}->C", "(A | B){2} -> C"),
        ("A -> A -> A", "A{3}"),
        ("(A -> B){2}", "A -> B -> A -> B"),
        ("A -> !X -> B{2}", "A -> !X -> B{2}"),
        ("A -> !(X | Y) -> B", "A -> !(X | Y) -> B"),
        ("A -> !X -> !Y -> B", "A -> !(X | Y) -> B"),
        ("(A -> !X){2} -> B", "A -> !X -> A -> !X -> B"),
        ("größer -> _b2", "größer -> _b2"),
    ],
)
def test_texts_have_a_canonical_form(text: str, canonical: str) -> None:
    pattern = parse_pattern(text)

    assert str(pattern) == canonical
    assert parse_pattern(canonical) == pattern


def test_an_absence_belongs_to_the_step_behind_it() -> None:
    assert parse_pattern("A -> !X -> B").steps == (Step(("A",)), Step(("B",), ("X",)))


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "expected a letter, found the end", 0),
        ("A ->", "expected a letter, found the end", 4),
        ("A B", "expected '->' and what comes then, or the end, found 'B'", 2),
        ("A -> !B", "expected a letter behind it: absence is between two, found the end", 5),
        ("!A -> B", "expected a letter first: absence is between two, found nothing before it", 0),
        ("A => B", "expected a letter, '->', '|', '!', '{' or '(', found '='", 2),
        ("A{0}", "expected how often it is repeated: 1 or more, found '0'", 2),
        ("A{99999999999999999999}", "expected at most 64 steps, found more", 2),
        (
            "(A -> B) | C",
            "expected a letter on either side of |, found a sequence, or an absence",
            0,
        ),
        ("A -> !(B -> C) -> D", "expected a letter, or several with |, behind !", 6),
        ("A -> !B{2} -> D", "expected a letter, or several with |, behind !", 6),
        ("(A -> B", "expected ')', found the end", 7),
        ("A{2", "expected '}', found the end", 3),
        ("(" * 40 + "A" + ")" * 40, "expected at most 32 nested parentheses, found more", 32),
        ("A->" * 3000, "expected at most 4096 characters", 4096),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str, position: int) -> None:
    with pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(text)

    assert message in str(caught.value)
    assert caught.value.position == position
    assert str(caught.value).splitlines()[-1].endswith("^")


@given(st.text("AB!|(){}->2 ", max_size=20))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        pattern = parse_pattern(text)
    except PatternSyntaxError:
        return

    assert parse_pattern(str(pattern)) == pattern


WHERE = {"A": "a = 1", "B": "b = 1"}


def test_the_filters_become_one_subscription() -> None:
    what = Detection.of("A -> B", WHERE, sync="[class,eq,'end']")

    assert what.union == "(a = 1) OR (b = 1) OR (class = 'end')"
    assert Detection.read(what.fields()) == what


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ({"A": "a = 1"}, {}, "where: no filter for B, which is in the pattern A -> B"),
        ({**WHERE, "C": "c = 1"}, {}, "where: a filter for C, which is not in A -> B"),
        ({"A": "a = 1", "B": "b ="}, {}, "filter of B: expected"),
        (WHERE, {"policy": "all"}, "policy: one of 'contiguous', 'next', 'any' expected, 'all'"),
        (WHERE, {"policy": "any"}, "within: a number of publications expected, as policy 'any'"),
        (WHERE, {"within": 1}, "within: 1, but A -> B has 2 places to fill"),
        (WHERE, {"within": True}, "within: a number of publications expected, True found"),
        (WHERE, {"within": 10**9}, "within: at most 10000 expected, 1000000000 found"),
        (WHERE, {"policy": "any", "within": 5000}, "within: at most 1000 expected, 5000 found"),
        (WHERE, {"late": "wait"}, "late: one of 'uncertain', 'drop' expected, 'wait' found"),
        (WHERE, {"sync": "="}, "filter of sync: expected"),
        ({"A": "a = '" + "x" * 9000 + "'", "B": "b = '" + "x" * 9000 + "'"}, {}, "all filters"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    where: dict[str, str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(PatternError) as caught:
        Detection.of("A -> B", where, **options)  # type: ignore[arg-type]

    assert message in str(caught.value)
