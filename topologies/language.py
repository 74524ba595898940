"""Lines and words: how text is cut up before anybody asks what it means.

People wrote these files on every system and by hand: keywords come in any case, blanks and tabs
anywhere, lines end in LF, CRLF, CR CR LF or not at all, and a byte-order mark may open the file,
or a line in the middle once two files have been joined.
"""

import enum
import re
from collections.abc import Iterator
from typing import Final

import attrs

from plait.topologies.errors import Position, Problem, ScriptError, nearest

# str.splitlines would also split at characters that editors keep within the line, and so
# disagree with them on line numbers.
LINE_END: Final = re.compile(r"\r{0,2}\n|\r")

BLANKS: Final = re.compile(r"\s*")
WORD: Final = re.compile(r"\S+")
COMMENT: Final = re.compile(r"//|$")

# What people open comments with elsewhere. At the end of a line only where nothing else may come:
# a topic may begin like that.
REMARK: Final = re.compile(r"[#%;]")

# In what is left of a line, `//` begins a comment where a word could begin, outside quotes.
REST: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|(?!(?<!\S)//).)*""")

# Names become file names: 255 bytes at most, at up to four bytes a letter, and with an ending.
NAME: Final = re.compile(r"\w[\w.-]*")
NAME_LENGTH_MAX: Final = 48

# In milliseconds eleven days, and more events than anybody will wait for.
NUMBER_MAX: Final = 999_999_999
NUMBER: Final = re.compile(r"[0-9]{1,9}")
DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

# How text that came from a file has the bytes that are no UTF-8.
ODD_BYTE: Final = re.compile(r"[\udc80-\udcff]")

# What is found may be a whole file without a blank.
QUOTED_LENGTH_MAX: Final = 40


class NoticeKind(enum.StrEnum):
    """What a notice is about, for those who count them or want some of them only."""

    DISABLED_LINE = "disabled line"
    FOREIGN_LINE = "foreign line"
    LEFT_OUT = "not understood"
    END_MARK = "end mark"
    REPEATED_SETTING = "repeated setting"
    UNUSED_LINE = "unused line"
    REPEATED_LINE = "repeated line"
    NO_CHOICE = "no choice"
    NO_SITE = "no site"
    NO_BROKER = "no broker"
    ODD_URL = "odd URL"
    UNKNOWN_PROCESS = "unknown process"
    CRASHED_PROCESS = "crashed process"
    LAST_BROKER = "last broker"
    NO_EFFECT = "no effect"
    STAYS_FROZEN = "stays frozen"
    PLAIN_STAR = "plain star"


@attrs.frozen
class Notice:
    """Something odd that keeps nobody from going on."""

    kind: NoticeKind
    at: Position
    text: str

    def __str__(self) -> str:
        """Render as it is shown to people."""
        return f"{self.at}: {self.kind}: {self.text}"


def one_of(choices: tuple[str, ...]) -> str:
    """Return `a, b or c`."""
    *most, last = choices
    return f"{', '.join(most)} or {last}" if most else last


def quoted(text: str) -> str:
    """Return text for a message: on one line, not endless, and visible."""
    shown = text if len(text) <= QUOTED_LENGTH_MAX else f"{text[:QUOTED_LENGTH_MAX]}..."
    return f"'{shown}'" if shown.isprintable() else ascii(shown)


def lines(text: str, file: str) -> Iterator["Line"]:
    """Yield the lines of a text that say something: not the blank ones, not mere comments."""
    for number, content in enumerate(LINE_END.split(text), start=1):
        line = Line(file, number, content.lstrip("\ufeff"))
        if not (line.is_at_end or line.is_at_remark):
            yield line


@attrs.define
class Line:
    """One line, read from left to right; what does not fit raises a ScriptError that says where."""

    file: str
    number: int
    text: str
    offset: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.take(BLANKS)

    @property
    def start(self) -> Position:
        """Where the first word begins."""
        return Position(self.file, self.number, len(self.text) - len(self.text.lstrip()) + 1)

    @property
    def here(self) -> Position:
        """Where the next word begins."""
        return Position(self.file, self.number, self.offset + 1)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing but a comment is left."""
        return COMMENT.match(self.text, self.offset) is not None

    @property
    def is_at_remark(self) -> bool:
        """Whether something comes next that is a comment, if nothing else may come."""
        return REMARK.match(self.text, self.offset) is not None

    def wrong(self, expected: str, *candidates: str) -> ScriptError:
        """Return the error that says what comes next and that `expected` should have."""
        word = self.peek()
        found = quoted(word) if word else "end of line"
        return ScriptError([Problem(self.here, found, expected, nearest(word, candidates))])

    @property
    def comment_at(self) -> int:
        """The offset at which a comment begins, where one may begin."""
        rest = REST.match(self.text, self.offset)
        assert rest is not None  # there may be nothing, and it matches
        return rest.end()

    def odd_bytes(self, end: int) -> list[Problem]:
        """Return what is wrong if not all up to there is text; in comments nobody minds.

        No guess at other encodings: a wrong one would silently change a topic.
        """
        odd = ODD_BYTE.search(self.text, 0, end)
        if odd is None:
            return []
        at = Position(self.file, self.number, odd.start() + 1)
        found = f"byte 0x{odd[0].encode(errors='surrogateescape').hex()}"
        return [Problem(at, found, "UTF-8 text")]

    def peek(self) -> str:
        """Return the next word, to be read again; an empty string at the end."""
        word = WORD.match(self.text, self.offset)
        return "" if word is None or self.is_at_end else word[0]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what matches, if it comes next, and the blanks behind it."""
        match = pattern.match(self.text, self.offset)
        if match is not None:
            blanks = BLANKS.match(self.text, match.end())
            assert blanks is not None  # there may be none, and they match
            self.offset = blanks.end()
        return match

    def word(self, expected: str) -> str:
        """Read any word."""
        word = self.peek()
        if not word:
            raise self.wrong(expected)
        self.take(WORD)
        return word

    def keyword(self, *choices: str, expected: str = "") -> str:
        """Read one of `choices`, in any case, and return it as spelled there."""
        found = self.peek().lower()
        for choice in choices:
            if choice.lower() == found:
                self.take(WORD)
                return choice
        raise self.wrong(expected or one_of(choices), *choices)

    def name(self, kind: str) -> str:
        """Read the name of a site or process."""
        word = self.peek()
        if not NAME.fullmatch(word) or len(word) > NAME_LENGTH_MAX:
            raise self.wrong(
                f"a {kind} name: letters, digits, '_', '-' and '.', at most {NAME_LENGTH_MAX}"
            )
        self.take(WORD)
        return word

    def whole_number(self, unit: str) -> int:
        """Read a count of something."""
        word = self.peek()
        if not NUMBER.fullmatch(word):
            raise self.wrong(f"a whole number of {unit}, at most {NUMBER_MAX}")
        self.take(WORD)
        return int(word)

    def measure(self, unit: str) -> float:
        """Read a measure of something, which may have decimals."""
        word = self.peek()
        if not DECIMAL.fullmatch(word):
            raise self.wrong(f"a number of {unit}, at most {NUMBER_MAX}")
        self.take(WORD)
        return float(word)

    def rest(self, expected: str) -> str:
        """Read all that is left, blanks and quotes included, up to a comment."""
        if self.is_at_end:
            raise self.wrong(expected)
        rest = self.take(REST)
        assert rest is not None  # there may be nothing, and it matches
        return rest[0].rstrip()

    def end(self) -> None:
        """Make sure that nothing is left."""
        if not (self.is_at_end or self.is_at_remark):
            raise self.wrong("end of line")
