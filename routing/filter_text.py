"""From text to filter: the two languages, and topics.

The languages are described where they are read: `sql_grammar` and `padres_grammar`. Everything is
bounded by `limits`: the text's length, the depth of nesting, the number of nodes and the patterns.
"""

from collections.abc import Iterator
from functools import lru_cache

from plait.routing.errors import FilterSyntaxError
from plait.routing.expressions import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Expression,
    IsNull,
    Like,
    Membership,
    Negative,
    Not,
    Or,
    Pattern,
    Wildcard,
    core_of,
    run_length,
    runs_of,
    shared_attribute,
)
from plait.routing.filters import Filter
from plait.routing.limits import (
    CACHED_FILTERS_MAX,
    FILTER_NODES_MAX,
    FILTER_TEXT_CHARACTERS_MAX,
    LIKE_MIXED_CHARACTERS_MAX,
    LIKE_WILDCARDS_MAX,
)
from plait.routing.padres_grammar import read_padres
from plait.routing.parsing import check_text
from plait.routing.sql_grammar import read_sql

__all__ = [
    "FilterSyntaxError",
    "parse_filter",
    "parse_padres",
    "parse_sql",
    "size_of",
    "topic_filter",
]


def parse_filter(text: str) -> Filter:
    """Read a filter in either language: a text that starts with a bracket is PADRES's."""
    return _parsed(text)


def parse_sql(text: str) -> Filter:
    """Read an SQL selector."""
    return _filter(text, read_sql(text))


def parse_padres(text: str) -> Filter:
    """Read a conjunction of PADRES predicates."""
    return _filter(text, read_padres(text))


def topic_filter(pattern: str) -> Filter:
    """Make the filter of a topic, or of everything under a prefix: `/a/*` is not `/a` itself."""
    check_text(pattern)
    if not pattern:
        raise FilterSyntaxError(pattern, 0, expected="a topic", found="nothing")
    topic = shared_attribute("topic")
    if pattern.endswith("/*"):
        return _filter(pattern, Like(topic, (pattern[:-1], Wildcard.ANY_TEXT)))
    return _filter(pattern, Comparison("=", topic, Constant(pattern)))


@lru_cache(CACHED_FILTERS_MAX)
def _parsed(text: str) -> Filter:
    return parse_padres(text) if text.lstrip().startswith("[") else parse_sql(text)


def _filter(text: str, condition: Condition) -> Filter:
    """Refuse a filter that could be written but, its canonical text being longer, not read back."""
    filter_ = Filter(condition)
    if len(filter_.sql) > FILTER_TEXT_CHARACTERS_MAX:
        raise FilterSyntaxError(
            text,
            len(text),
            expected=f"a filter of at most {FILTER_TEXT_CHARACTERS_MAX} characters as SQL",
            found=f"{len(filter_.sql)}",
        )
    if (nodes := _nodes(condition)) > FILTER_NODES_MAX:
        raise FilterSyntaxError(
            text, len(text), expected=f"at most {FILTER_NODES_MAX} nodes", found=f"{nodes}"
        )
    patterns = list(_patterns(condition))
    wildcards = max(map(_wildcards, patterns), default=0)
    if wildcards > LIKE_WILDCARDS_MAX:
        raise FilterSyntaxError(
            text,
            len(text),
            expected=f"patterns with at most {LIKE_WILDCARDS_MAX} wildcards each",
            found=f"one with {wildcards}",
        )
    if (mixed := sum(map(_mixed_characters, patterns))) > LIKE_MIXED_CHARACTERS_MAX:
        raise FilterSyntaxError(
            text,
            len(text),
            expected=f"patterns with at most {LIKE_MIXED_CHARACTERS_MAX} characters in all between "
            "two % where _ and text take turns",
            found=f"{mixed}",
        )
    return filter_


@lru_cache(CACHED_FILTERS_MAX)
def size_of(filter_: Filter) -> int:
    """About what it takes to hold a content against a filter: its parts, and its odd patterns."""
    patterns = _patterns(filter_.condition)
    return _nodes(filter_.condition) + sum(map(_mixed_characters, patterns))


def _patterns(condition: Condition) -> Iterator[Pattern]:
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _patterns(part)
        case Not(part):
            yield from _patterns(part)
        case Like(_, pattern):
            yield pattern


def _wildcards(pattern: Pattern) -> int:
    return sum(isinstance(piece, Wildcard) for piece in pattern)


def _mixed_characters(pattern: Pattern) -> int:
    """How many characters are compared at every place of a text, at worst."""
    return sum(
        run_length(core) for run in runs_of(pattern)[1:-1] if len(core := core_of(run)[1]) > 1
    )


def _nodes(expression: Expression) -> int:
    match expression:
        case And(parts) | Or(parts):
            return 1 + sum(map(_nodes, parts))
        case Comparison(_, left, right) | Arithmetic(_, left, right):
            return 1 + _nodes(left) + _nodes(right)
        case Not(part) | Negative(part):
            return 1 + _nodes(part)
        case Membership(_, values):
            return 2 + len(values)
        case Like() | IsNull():
            return 2
        case Attribute() | Constant():
            return 1
