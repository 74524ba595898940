"""What can go wrong in the content algebra and the routing tables."""

from collections.abc import Sequence

import attrs

from plait.errors import PlaitError

_SHOWN_BEFORE = 48
_SHOWN_AFTER = 24


_QUOTED_CHARACTERS_MAX = 200


class RoutingError(PlaitError):
    """Root of every error that `routing` raises on purpose."""


class ContentError(RoutingError, ValueError):
    """A publication's content holds something that no filter could be asked about."""


class TextSyntaxError(RoutingError, ValueError):
    """A text cannot be read; says where, what was found, and what was expected.

    `position` counts characters from 0 and is at most the length of the text.
    """

    def __init__(self, text: str, position: int, expected: str, found: str) -> None:
        super().__init__(text, position, expected, found)
        self.text = text
        self.position = position
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        start = max(0, self.position - _SHOWN_BEFORE)
        end = self.position + _SHOWN_AFTER
        before = ("..." if start else "") + _on_one_line(self.text[start : self.position])
        after = _on_one_line(self.text[self.position : end])
        ellipsis = "..." if end < len(self.text) else ""
        return (
            f"expected {self.expected}, found {self.found} at character {self.position + 1}\n"
            f"  {before}{after}{ellipsis}\n"
            f"  {' ' * len(before)}^"
        )


class FilterSyntaxError(TextSyntaxError):
    """A filter cannot be read."""


class PatternError(RoutingError, ValueError):
    """What is looked for makes no sense; says what of it, and why."""


class PatternSyntaxError(TextSyntaxError, PatternError):
    """A pattern cannot be read."""


@attrs.frozen
class RulesProblem:
    """One thing in a file of rules that is not understood, and what would have been."""

    line: int
    """From 1; 0 is the file as a whole."""
    column: int
    """From 0."""
    found: str
    expected: str
    choices: tuple[str, ...] = ()
    """What may have been meant."""

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column + 1}: " if self.line else ""
        return f"{place}found {self.found}, expected {self.expected}"


class RulesError(RoutingError, ValueError):
    """A file of rules is not usable; `problems` holds every reason, in the order of the text."""

    def __init__(self, problems: Sequence[RulesProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class TrapWarning(UserWarning):
    """A filter is right by the rules, and hardly what its author means; see `routing/traps.py`."""


class DuplicateEntryError(RoutingError, ValueError):
    """Something is added under a key that is taken."""


class UnknownEntryError(RoutingError, LookupError):
    """Something is asked of a key that nothing was added under."""


def shortened(text: str) -> str:
    """Return what a message quotes of a text that may be as long as a publication."""
    if len(text) <= _QUOTED_CHARACTERS_MAX:
        return text
    return f"{text[:_QUOTED_CHARACTERS_MAX]}... ({len(text):,} characters)"


def _on_one_line(text: str) -> str:
    """Keep one column per character, or the caret points at the wrong one."""
    return "".join(character if character.isprintable() else " " for character in text)
