"""What is looked for: a pattern, with a filter for each letter, and how its places are filled.

Of all that a subscriber is given, only what matches one of the filters counts here, in its order:
the *restricted sequence*. Which of it is a match is a question of that sequence alone, of no clock
and no time of arrival. So whoever is given the same sequence finds the same.

============  =====================================================================================
policy        what is a match
============  =====================================================================================
`contiguous`  publications that stand directly behind one another
`next`        an A, then the next B behind it, then the next C behind that. As soon as a match is
              there, all up to its end is used up; of several that end there, it is the longest
`any`         every way of filling the places, in order
============  =====================================================================================

`within` is how many publications of the restricted sequence a match may span at most, those at its
ends included.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from plait.routing.errors import FilterSyntaxError, PatternError
from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.limits import (
    DETECTION_ANY_WITHIN_MAX,
    DETECTION_WITHIN_MAX,
    PATTERN_LETTERS_MAX,
)
from plait.routing.patterns.pattern import Pattern, parse_pattern
from plait.routing.values import Content


class Policy(enum.StrEnum):
    """How the places of a pattern are filled."""

    CONTIGUOUS = "contiguous"
    NEXT = "next"
    ANY = "any"


class Late(enum.StrEnum):
    """What becomes of a publication that comes out of order, where that is told."""

    UNCERTAIN = "uncertain"
    """It counts where it comes, and no match that spans it is certain."""
    DROP = "drop"
    """It is left out."""


@attrs.frozen(kw_only=True)
class Detection:
    """What a detector looks for."""

    pattern: Pattern
    where: Mapping[str, Filter]
    """By letter."""
    policy: Policy = Policy.NEXT
    within: int | None = None
    sync: Filter | None = None
    """At a publication that matches this, every detector begins anew, in the same state."""
    late: Late = Late.UNCERTAIN

    @classmethod
    def of(
        cls,
        pattern: str,
        where: Mapping[str, str],
        *,
        policy: str = Policy.NEXT,
        within: int | None = None,
        sync: str | None = None,
        late: str = Late.UNCERTAIN,
    ) -> Self:
        """Read what people write; `PatternError` says what is wrong with it."""
        parsed = parse_pattern(pattern)
        _check_letters(parsed, where)
        detection = cls(
            pattern=parsed,
            where={letter: _filter_of(letter, where[letter]) for letter in parsed.letters},
            policy=_one_of(Policy, "policy", policy),
            within=within,
            sync=None if sync is None else _filter_of("sync", sync),
            late=_one_of(Late, "late", late),
        )
        _check_within(detection)
        try:
            parse_filter(detection.union)
        except FilterSyntaxError as error:
            raise PatternError(f"all filters together, in one subscription: {error}") from error
        return detection

    @property
    def union(self) -> str:
        """The filter of everything that counts here."""
        filters = [*self.where.values(), *([self.sync] if self.sync else [])]
        return " OR ".join(dict.fromkeys(f"({each.sql})" for each in filters))

    def fields(self) -> dict[str, Any]:
        """All of it, in plain words, as histories have it; `read` gives an equal one."""
        return {
            "pattern": str(self.pattern),
            "where": {letter: each.sql for letter, each in self.where.items()},
            "policy": self.policy.value,
            "within": self.within,
            "sync": None if self.sync is None else self.sync.sql,
            "late": self.late.value,
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """The one that has these `fields`; `PatternError` says why there is none."""
        return cls.of(
            fields["pattern"],
            fields["where"],
            policy=fields["policy"],
            within=fields.get("within"),
            sync=fields.get("sync"),
            late=fields["late"],
        )

    def bits_of(self, content: Content) -> int:
        """Which letters a publication is, as bits in the order of `where`, and `SYNC`."""
        bits = 0
        for number, wanted in enumerate(self.where.values(), start=1):
            if wanted.matches(content):
                bits |= 1 << number
        if self.sync is not None and self.sync.matches(content):
            bits |= SYNC
        return bits


SYNC: Final = 1
"""The bit of a publication at which every detector begins anew."""


def _check_letters(pattern: Pattern, where: Mapping[str, str]) -> None:
    letters = pattern.letters
    if len(letters) > PATTERN_LETTERS_MAX:
        raise PatternError(
            f"pattern: at most {PATTERN_LETTERS_MAX} different letters expected, "
            f"{len(letters)} found"
        )
    for letter in letters:
        if letter not in where:
            raise PatternError(f"where: no filter for {letter}, which is in the pattern {pattern}")
    for letter in where:
        if letter not in letters:
            raise PatternError(f"where: a filter for {letter}, which is not in {pattern}")


def _filter_of(name: str, text: str) -> Filter:
    try:
        return parse_filter(text)
    except FilterSyntaxError as error:
        raise PatternError(f"filter of {name}: {error}") from error


def _one_of(choices: type[Any], what: str, found: str) -> Any:
    try:
        return choices(found)
    except ValueError:
        expected = ", ".join(repr(choice.value) for choice in choices)
        raise PatternError(f"{what}: one of {expected} expected, {found!r} found") from None


def _check_within(detection: Detection) -> None:
    within, steps = detection.within, len(detection.pattern.steps)
    is_any = detection.policy is Policy.ANY
    most = DETECTION_ANY_WITHIN_MAX if is_any else DETECTION_WITHIN_MAX
    if within is None:
        if is_any:
            raise PatternError(
                "within: a number of publications expected, as policy 'any' would have to keep "
                "everything"
            )
    elif not isinstance(within, int) or isinstance(within, bool):
        raise PatternError(f"within: a number of publications expected, {within!r} found")
    elif within < steps:
        raise PatternError(f"within: {within}, but {detection.pattern} has {steps} places to fill")
    elif within > most:
        raise PatternError(f"within: at most {most} expected, {within} found")
