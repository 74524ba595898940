"""What the grammars of both filter languages share: tokens, numbers, and what is wrong."""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from plait.routing.errors import FilterSyntaxError
from plait.routing.expressions import Constant
from plait.routing.limits import FILTER_TEXT_CHARACTERS_MAX
from plait.routing.values import INTEGER_MAX, INTEGER_MIN, LONE_SURROGATE

NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FOUND_CHARACTERS_MAX: Final = 24


class Token(NamedTuple):
    """A piece of the text that the grammar does not look into."""

    kind: str
    """number, name, string, symbol (with the keywords), bare (PADRES) or end."""
    value: str
    """What it means: quotes removed, keywords in upper case."""
    text: str
    position: int


class Parser:
    """Reads tokens one after the other and says what is wrong with them."""

    def __init__(self, text: str, token_pattern: re.Pattern[str]) -> None:
        check_text(text)
        self._text = text
        self._tokens = tuple(self._split(token_pattern))
        self._next = 0

    def _split(self, token_pattern: re.Pattern[str]) -> Iterator[Token]:
        position = self._past_blanks(0)
        while position < len(self._text):
            token = token_pattern.match(self._text, position)
            if token is None:
                raise self._split_error(position)
            yield self._token(cast("str", token.lastgroup), token.group(), position)
            position = self._past_blanks(token.end())
        yield Token("end", "", "", len(self._text))

    def _past_blanks(self, position: int) -> int:
        while position < len(self._text) and self._text[position].isspace():
            position += 1
        return position

    def _token(self, kind: str, text: str, position: int) -> Token:
        match kind:
            case "string" | "quoted_name":
                quote = text[0]
                value = text[1:-1].replace(quote + quote, quote)
                return Token("string" if kind == "string" else "name", value, text, position)
            case "symbol":
                return Token(kind, text.upper(), text, position)
            case "bare":
                return Token(kind, text.rstrip(), text, position)
        return Token(kind, text, text, position)

    def _split_error(self, position: int) -> FilterSyntaxError:
        character = self._text[position]
        if character in "'\"":
            expected, found = f"a closing {character}", "none"
        else:
            expected, found = "a name, a value or an operator", repr(character)
        return FilterSyntaxError(self._text, position, expected=expected, found=found)

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        # Nothing advances past the end: no rule accepts it.
        self._next += 1
        return token

    def _advance_over(self, *kinds: str, expected: str) -> Token:
        if self._peek.kind in kinds:
            return self._advance()
        raise self._error(expected)

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _accept(self, *symbols: str) -> Token | None:
        token = self._peek
        return self._advance() if token.kind == "symbol" and token.value in symbols else None

    def _expect(self, symbol: str, *, expected: str) -> None:
        if not self._accept(symbol):
            raise self._error(expected)

    def _error(self, expected: str, token: Token | None = None) -> FilterSyntaxError:
        token = token or self._peek
        shown = token.text[:_FOUND_CHARACTERS_MAX]
        found = "the end"
        if token.text:
            found = shown if token.kind == "string" else repr(shown)
        if shown != token.text:
            found += "..."
        return FilterSyntaxError(self._text, token.position, expected=expected, found=found)

    def _number(self, token: Token, literal: str) -> Constant:
        """Read a number, which may have a sign."""
        if literal.lstrip("+-").isdecimal():
            # Python refuses to convert the longest of texts; no number in range needs that.
            significant = literal.lstrip("+-").lstrip("0") or "0"
            if len(significant) <= _INTEGER_DIGITS_MAX:
                integer = -int(significant) if literal.startswith("-") else int(significant)
                if INTEGER_MIN <= integer <= INTEGER_MAX:
                    return Constant(integer)
        elif math.isfinite(number := float(literal)):
            return Constant(number)
        raise self._error("a number that fits into 64 bits", token)


_INTEGER_DIGITS_MAX: Final = len(str(INTEGER_MAX))


def check_text(text: str) -> None:
    """Raise FilterSyntaxError for what no grammar needs to look at."""
    if len(text) > FILTER_TEXT_CHARACTERS_MAX:
        raise FilterSyntaxError(
            text,
            FILTER_TEXT_CHARACTERS_MAX,
            expected=f"at most {FILTER_TEXT_CHARACTERS_MAX} characters",
            found=f"{len(text)}",
        )
    if surrogate := LONE_SURROGATE.search(text):
        raise FilterSyntaxError(
            text, surrogate.start(), expected="text UTF-8 can hold", found="half a surrogate pair"
        )
