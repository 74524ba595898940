"""Patterns: the text that people write, and what it says. Its language lives only here.

A pattern is a sequence of steps, `A -> B -> C`. Each letter stands for a filter (`detection.py`).

=====================  ============================================================================
`A -> B`               an A, and then a B
`A | B`, `(A | B)`     either of them, in one place
`A -> !X -> B`         an A and then a B, without an X between them
`A{3}`                 three of them, one after the other; `(A -> B){2}` is `A -> B -> A -> B`
=====================  ============================================================================
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

import attrs

from plait.routing.errors import PatternSyntaxError
from plait.routing.limits import (
    CACHED_PATTERNS_MAX,
    PATTERN_DEPTH_MAX,
    PATTERN_STEPS_MAX,
    PATTERN_TEXT_CHARACTERS_MAX,
)


@attrs.frozen
class Step:
    """One place of a pattern."""

    letters: tuple[str, ...]
    """Any of these may stand here."""
    absent: tuple[str, ...] = ()
    """None of these may come between the step before and this one."""


@attrs.frozen
class Pattern:
    """A sequence of steps. Patterns of the same text are equal."""

    steps: tuple[Step, ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """All that it speaks of, each once, in the order in which they turn up."""
        found: dict[str, None] = {}
        for step in self.steps:
            found.update(dict.fromkeys(step.absent))
            found.update(dict.fromkeys(step.letters))
        return tuple(found)

    def __str__(self) -> str:
        """The canonical text; reading it gives an equal pattern."""
        parts: list[tuple[str, int]] = []
        for step in self.steps:
            if step.absent:
                parts.append((f"!{_either(step.absent)}", 1))
                parts.append((_either(step.letters), 1))
            elif parts and parts[-1][0] == _either(step.letters):
                parts[-1] = (parts[-1][0], parts[-1][1] + 1)
            else:
                parts.append((_either(step.letters), 1))
        return " -> ".join(f"{text}{{{count}}}" if count > 1 else text for text, count in parts)


def _either(letters: Sequence[str]) -> str:
    return letters[0] if len(letters) == 1 else f"({' | '.join(letters)})"


@lru_cache(CACHED_PATTERNS_MAX)
def parse_pattern(text: str) -> Pattern:
    """Read a pattern; `PatternSyntaxError` says where it cannot be read, and why."""
    return _Parser(text).read()


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Part(NamedTuple):
    """A place of a pattern that is being read, or an absence."""

    letters: tuple[str, ...]
    is_absence: bool
    position: int


_TOKEN: Final = re.compile(
    r"(?P<arrow>->)|(?P<symbol>[|!(){}])|(?P<number>[0-9]+)|(?P<letter>[^\W\d]\w*)"
)

_SHOWN_CHARACTERS: Final = 24


class _Parser:
    """Reads one text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > PATTERN_TEXT_CHARACTERS_MAX:
            self._fail(
                PATTERN_TEXT_CHARACTERS_MAX,
                f"at most {PATTERN_TEXT_CHARACTERS_MAX} characters",
                str(len(text)),
            )
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def read(self) -> Pattern:
        """Read all of it."""
        parts = self._sequence()
        if self._peek.kind != "end":
            self._fail_here("'->' and what comes then, or the end")
        steps: list[Step] = []
        absent: dict[str, None] = {}
        for part in parts:
            if part.is_absence:
                if not steps:
                    self._fail(
                        part.position, "a letter first: absence is between two", "nothing before it"
                    )
                absent.update(dict.fromkeys(part.letters))
            else:
                steps.append(Step(part.letters, tuple(absent)))
                absent.clear()
        if absent:
            self._fail(parts[-1].position, "a letter behind it: absence is between two", "the end")
        return Pattern(tuple(steps))

    # --- grammar ----------------------------------------------------------------------------

    def _sequence(self) -> list[_Part]:
        parts = self._place()
        while self._accept("->"):
            position = self._peek.position
            parts += self._place()
            self._check_length(len(parts), position)
        return parts

    def _place(self) -> list[_Part]:
        position = self._peek.position
        if self._accept("!"):
            beginning = self._peek.position
            (part,) = self._single(self._atom(), beginning, "a letter, or several with |, behind !")
            return [part._replace(is_absence=True, position=position)]
        parts = self._atom()
        if self._peek.text != "|":
            return parts
        letters = dict.fromkeys(self._single(parts, position, _SIDE)[0].letters)
        while self._accept("|"):
            beginning = self._peek.position
            (part,) = self._single(self._atom(), beginning, _SIDE)
            letters.update(dict.fromkeys(part.letters))
        return [_Part(tuple(letters), is_absence=False, position=position)]

    def _atom(self) -> list[_Part]:
        token = self._peek
        if token.kind == "letter":
            self._next += 1
            parts = [_Part((token.text,), is_absence=False, position=token.position)]
        elif self._accept("("):
            self._depth += 1
            if self._depth > PATTERN_DEPTH_MAX:
                self._fail(
                    token.position, f"at most {PATTERN_DEPTH_MAX} nested parentheses", "more"
                )
            parts = self._sequence()
            self._depth -= 1
            if not self._accept(")"):
                self._fail_here("')'")
        else:
            self._fail_here("a letter")
        if not self._accept("{"):
            return parts
        return parts * self._count(len(parts))

    def _count(self, length: int) -> int:
        token = self._peek
        # Compared as text first: no number that counts needs more digits.
        digits = token.text.lstrip("0")
        if token.kind != "number" or not digits:
            self._fail_here("how often it is repeated: 1 or more")
        count = PATTERN_STEPS_MAX + 1
        if len(digits) <= len(str(PATTERN_STEPS_MAX)):
            count = int(digits)
        self._next += 1
        self._check_length(length * count, token.position)
        if not self._accept("}"):
            self._fail_here("'}'")
        return count

    def _single(self, parts: list[_Part], position: int, expected: str) -> list[_Part]:
        if len(parts) != 1 or parts[0].is_absence:
            self._fail(position, expected, "a sequence, or an absence")
        return parts

    def _check_length(self, length: int, position: int) -> None:
        if length > PATTERN_STEPS_MAX:
            self._fail(position, f"at most {PATTERN_STEPS_MAX} steps", "more")

    # --- tokens -----------------------------------------------------------------------------

    def _split(self) -> list[_Token]:
        tokens, position = [], 0
        while position < len(self._text):
            if self._text[position].isspace():
                position += 1
                continue
            found = _TOKEN.match(self._text, position)
            if found is None:
                self._fail(
                    position, "a letter, '->', '|', '!', '{' or '('", repr(self._text[position])
                )
            tokens.append(_Token(str(found.lastgroup), found.group(), position))
            position = found.end()
        return [*tokens, _Token("end", "", len(self._text))]

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, text: str) -> bool:
        is_there = self._peek.text == text
        self._next += is_there
        return is_there

    def _fail_here(self, expected: str) -> NoReturn:
        token = self._peek
        shown = token.text[:_SHOWN_CHARACTERS]
        self._fail(token.position, expected, repr(shown) if shown else "the end")

    def _fail(self, position: int, expected: str, found: str) -> NoReturn:
        raise PatternSyntaxError(self._text, position, expected=expected, found=found)


_SIDE: Final = "a letter on either side of |"
