"""Filters and topics that are right by the rules, and hardly what their author means.

People come from languages in which a word is a text, or `*` stands for something in the middle of a
topic. Here such a filter matches nothing, without a word: so somebody has to say one.
"""

import re
from collections.abc import Iterator
from typing import Final

from plait.routing.expressions import (
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Like,
    Not,
    Or,
    Wildcard,
)
from plait.routing.filters import Filter

_EQUALITIES: Final = ("=", "<>")
# Other languages have # and + for levels of a topic, so within a word they are letters: C#, C++.
_WILDCARD: Final = re.compile(r"\*|(?<![^/.])[#+](?![^/.])")


def traps_of_filter(filter_: Filter) -> Iterator[str]:
    """Yield a warning for each comparison that is probably not meant."""
    yield from _traps(filter_.condition)


def traps_of_topic(pattern: str) -> Iterator[str]:
    """Yield a warning if a topic has wildcards where they stand for themselves."""
    name = pattern.removesuffix("/*")
    if (wildcard := _WILDCARD.search(name)) is None:
        return
    # What is before it, up to where a level of the topic ends.
    prefix = name[: wildcard.start()].rstrip("/.")
    meant = (
        f"did you mean {_quoted(f'{prefix}/*')}, everything under {_quoted(f'{prefix}/')}?"
        if prefix
        else "the filter TRUE is everything"
    )
    yield f"topic {_quoted(pattern)}: the {wildcard[0]} stands for itself; {meant}"


def _traps(condition: Condition) -> Iterator[str]:
    match condition:
        case Comparison(operator, Attribute(left), Attribute(right)) if operator in _EQUALITIES:
            yield (
                f"{left} {operator} {right} compares two attributes, {left} and {right}; "
                f"a text stands in single quotes: {left} {operator} {_quoted(right)}"
            )
        case Comparison("=", Attribute("topic"), Constant(str() as pattern)):
            yield from traps_of_topic(pattern)
        case Like(Attribute("topic"), (str() as prefix, Wildcard.ANY_TEXT)) if prefix.endswith("/"):
            yield from traps_of_topic(f"{prefix}*")
        case Not(inner):
            yield from _traps(inner)
        case And(conditions) | Or(conditions):
            for inner in conditions:
                yield from _traps(inner)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else ascii(text)
