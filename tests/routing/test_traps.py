"""Filters that match nothing and are right by the rules: somebody says a word."""

import pytest

from plait.routing.filter_text import parse_filter, topic_filter
from plait.routing.traps import traps_of_filter

TEXT = "compares two attributes, symbol and IBM; a text stands in single quotes: symbol = 'IBM'"


@pytest.mark.parametrize(
    "text",
    [
        "symbol = IBM",
        'symbol = "IBM"',
        "price > 3 AND (volume < 2 OR symbol = IBM)",
        "NOT symbol = IBM",
    ],
)
def test_a_text_without_quotes_is_an_attribute(text: str) -> None:
    (trap,) = traps_of_filter(parse_filter(text))

    assert trap == f"symbol = IBM {TEXT}"


@pytest.mark.parametrize(
    ("topic", "wildcard", "meant"),
    [
        ("news.*", "*", "did you mean 'news/*', everything under 'news/'?"),
        ("/a/#", "#", "did you mean '/a/*', everything under '/a/'?"),
        ("/a/*/b", "*", "did you mean '/a/*', everything under '/a/'?"),
        ("/a/+/b", "+", "did you mean '/a/*', everything under '/a/'?"),
        ("/a*", "*", "did you mean '/a/*', everything under '/a/'?"),
        ("/a*/*", "*", "did you mean '/a/*', everything under '/a/'?"),
        ("*", "*", "the filter TRUE is everything"),
        ("#", "#", "the filter TRUE is everything"),
    ],
)
def test_a_wildcard_stands_for_itself_anywhere_but_at_the_end(
    topic: str, wildcard: str, meant: str
) -> None:
    (trap,) = traps_of_filter(topic_filter(topic))

    assert trap == f"topic '{topic}': the {wildcard} stands for itself; {meant}"


@pytest.mark.parametrize(
    "text",
    [
        "symbol = 'IBM'",
        "[symbol,eq,IBM]",
        "bid < ask",
        "a * 2 = b + 1",
        "topic = '/a/b'",
        "topic LIKE '/a/%'",
        "topic = '/lang/c++' OR topic = '/lang/C#'",
        "name = 'a*'",
    ],
)
def test_what_is_meant_is_left_alone(text: str) -> None:
    assert [*traps_of_filter(parse_filter(text))] == []
