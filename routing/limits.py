"""Every bound on filters, named with its unit and its reason.

Filters come from strangers: to read, compare and evaluate one has to stay cheap whatever it says.
"""

from typing import Final

FILTER_TEXT_CHARACTERS_MAX: Final = 16_384
"""Of the text as written and of its canonical SQL. A membership list of 1,000 names fits."""

FILTER_NODES_MAX: Final = 2_048
"""Attributes, constants and operators of one filter. Bounds the time of one evaluation."""

LIKE_WILDCARDS_MAX: Final = 64
"""Of one LIKE pattern: each begins another search of the text."""

LIKE_MIXED_CHARACTERS_MAX: Final = 256
"""Of all LIKE patterns of one filter, between two `%`, where texts and `_` take turns: those are
compared at every place of a text, which takes as many steps as there are of both together."""

FILTER_DEPTH_MAX: Final = 32
"""Levels of nesting. The parser needs eight Python frames per level; 1,000 is the usual limit."""

TOPIC_CHARACTERS_MAX: Final = 255
"""Of a topic, where topics are ordered: its name goes with publications, and is in step logs."""

CACHED_FILTERS_MAX: Final = 1_024
"""Texts whose filter is remembered, so that subscribers of the same text share one filter."""

CACHED_ATTRIBUTES_MAX: Final = 1_024
"""Attribute names of which all filters share one copy."""

CACHED_EVALUATORS_MAX: Final = 1_024
"""Compiled evaluators remembered. Filters that differ only in names and constants share one."""

REGIONS_MAX: Final = 32
"""Alternatives kept in a filter's normal form. Two filters compare in REGIONS_MAX squared steps."""

CACHED_SETS_MAX: Final = 1_024
"""Sets of values of single comparisons, which filters with the same constants share."""

CACHED_SHAPES_MAX: Final = 64
"""Combinations of attributes for which an index remembers whom the missing ones rule out."""

PATTERN_TEXT_CHARACTERS_MAX: Final = 4_096
"""Of a pattern of publications, as written."""

PATTERN_STEPS_MAX: Final = 64
"""Places of a pattern, repetitions counted as often as they are repeated."""

PATTERN_LETTERS_MAX: Final = 64
"""Different letters of a pattern. Each is a filter that is asked about every publication."""

PATTERN_DEPTH_MAX: Final = 32
"""Nested parentheses of a pattern."""

CACHED_PATTERNS_MAX: Final = 256
"""Texts whose pattern is remembered."""

DETECTION_WITHIN_MAX: Final = 10_000
"""Publications that a match may span: so many a detector keeps, with their bodies."""

DETECTION_ANY_WITHIN_MAX: Final = 1_000
"""The same where every way of filling the places counts: it looks back over all of them."""

MATCHES_AT_ONCE_MAX: Final = 1_000
"""Reported of those that end with one publication. There may be as many as there are ways to
choose three of a thousand."""

RULES_CHARACTERS_MAX: Final = 4 << 20
"""Of a file that says who may do what."""

RULES_MAX: Final = 20_000
"""Lines of it."""

CACHED_DECISIONS_MAX: Final = 4_096
"""Requests of which it is remembered what the rules say about them."""
