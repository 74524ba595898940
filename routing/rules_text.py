"""The file that says who may do what, line by line.

    group traders alice bob
    allow @traders publish market = 'NYSE' AND volume < 10000
    allow sensor-* publish topic LIKE '/sensors/{principal}/%'
    deny  mallory subscribe
    limit * connections 10

What begins with `#` is a comment. A principal is a name, `*` stands for any text in it, `@` goes
before a group. Without a filter a rule is about everything.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from plait.routing.errors import FilterSyntaxError, RulesError, RulesProblem
from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.limits import RULES_CHARACTERS_MAX, RULES_MAX
from plait.routing.rules import PLACEHOLDER, Limit, Quantity, Right, Rule, Rules, Who

EVERYTHING: Final = "TRUE"

VERBS: Final = ("allow", "deny", "group", "limit")
_GROUP: Final = "@"
_ANY: Final = "*"


@attrs.frozen
class _Word:
    text: str
    column: int


@attrs.frozen
class _Line:
    number: int
    words: tuple[_Word, ...]
    text: str


def is_rules(text: str) -> bool:
    """Whether a text is meant as such a file: it begins with one of its words."""
    first = next(_lines(text), None)
    return first is not None and first.words[0].text in VERBS


def read_rules(text: str) -> Rules:
    """Read a file; `RulesError` has all that is wrong with it."""
    reading = _Reading(text)
    if reading.problems:
        raise RulesError(sorted(reading.problems, key=lambda p: (p.line, p.column)))
    return Rules(reading.rules, reading.limits)


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), 1):
        words = tuple(_words(line))
        if words and not words[0].text.startswith("#"):
            yield _Line(number, words, line)


def _words(line: str) -> Iterator[_Word]:
    """What stands between spaces; one in double quotes may have some itself."""
    place = 0
    while place < len(line):
        if line[place].isspace():
            place += 1
            continue
        start, is_quoted = place, line[place] == '"'
        end = line.find('"', start + 1) if is_quoted else -1
        if end > 0:
            place = end + 1
            yield _Word(line[start + 1 : end], start)
            continue
        while place < len(line) and not line[place].isspace():
            place += 1
        yield _Word(line[start:place], start)


class _Reading:
    """One file, read."""

    def __init__(self, text: str) -> None:
        self.problems: list[RulesProblem] = []
        self.rules: list[Rule] = []
        self.limits: list[Limit] = []
        if len(text) > RULES_CHARACTERS_MAX:
            found = f"{len(text)} characters"
            self._object(0, 0, found, f"at most {RULES_CHARACTERS_MAX}")
            return
        lines = list(_lines(text))
        if len(lines) > RULES_MAX:
            self._object(0, 0, f"{len(lines)} rules", f"at most {RULES_MAX}")
            return
        self._groups: dict[str, _Line] = {}
        for line in lines:
            if line.words[0].text == "group":
                self._declare(line)
        self._members = {name: self._resolve(name, ()) for name in self._groups}
        for line in lines:
            self._read(line)

    def _object(
        self, line: int, column: int, found: str, expected: str, choices: tuple[str, ...] = ()
    ) -> None:
        self.problems.append(RulesProblem(line, column, found, expected, choices))

    def _read(self, line: _Line) -> None:
        match line.words[0].text:
            case "allow" | "deny":
                self._read_rule(line)
            case "limit":
                self._read_limit(line)
            case "group":
                pass
            case word:
                expected = "allow, deny, group or limit"
                self._object(line.number, line.words[0].column, f"'{word}'", expected, VERBS)

    def _word(self, line: _Line, place: int, expected: str) -> _Word | None:
        if place < len(line.words):
            return line.words[place]
        self._object(line.number, len(line.text.rstrip()), "the end of the line", expected)
        return None

    # --- groups -------------------------------------------------------------------------------

    def _declare(self, line: _Line) -> None:
        name = self._word(line, 1, "the name of a group")
        if name is None:
            return
        if name.text.startswith(_GROUP) or _ANY in name.text or not name.text:
            self._object(line.number, name.column, f"'{name.text}'", "a name without @ and *")
        elif name.text in self._groups:
            there = self._groups[name.text].number
            found = f"the group '{name.text}', as in line {there}"
            self._object(line.number, name.column, found, "one line for each group")
        else:
            self._groups[name.text] = line

    def _resolve(self, name: str, within: tuple[str, ...]) -> Who:
        """Who belongs to a group, also by way of others."""
        line, names, patterns = self._groups[name], set[str](), list[str]()
        for word in line.words[2:]:
            member = word.text.removeprefix(_GROUP)
            if not word.text.startswith(_GROUP):
                (patterns.append if _ANY in member else names.add)(member)
            elif member == name or member in within:
                if not within:
                    found = f"@{member}, which is in itself"
                    self._object(line.number, word.column, found, "another group")
            elif member in self._groups:
                others = self._resolve(member, (*within, name))
                names |= others.names
                patterns += others.patterns
            elif not within:
                self._object_to_group(line, word)
        return Who(frozenset(names), tuple(patterns))

    def _object_to_group(self, line: _Line, word: _Word) -> None:
        choices = tuple(f"{_GROUP}{name}" for name in self._groups)
        self._object(line.number, word.column, f"'{word.text}'", "a group of this file", choices)

    def _who(self, line: _Line) -> Who | None:
        word = self._word(line, 1, "a principal, * or @GROUP")
        if word is None:
            return None
        if word.text.startswith(_GROUP):
            name = word.text.removeprefix(_GROUP)
            if name not in self._members:
                self._object_to_group(line, word)
                return None
            return self._members[name]
        if not word.text:
            self._object(line.number, word.column, "an empty name", "a principal, * or @GROUP")
            return None
        if _ANY in word.text:
            return Who(patterns=(word.text,))
        return Who(frozenset([word.text]))

    # --- rules --------------------------------------------------------------------------------

    def _read_rule(self, line: _Line) -> None:
        who = self._who(line)
        word = self._word(line, 2, "publish, subscribe, monitor or operate")
        if word is None:
            return
        rights: Mapping[str, Right] = {right.value: right for right in Right}
        right = rights.get(word.text)
        if right is None:
            expected = "publish, subscribe, monitor or operate"
            self._object(line.number, word.column, f"'{word.text}'", expected, tuple(rights))
        filter_ = self._filter(line)
        if who is None or right is None or filter_ is None:
            return
        self.rules.append(
            Rule(
                line=line.number,
                text=line.text.strip(),
                is_allow=line.words[0].text == "allow",
                who=who,
                right=right,
                filter=filter_,
                is_personal=PLACEHOLDER in filter_.sql,
            )
        )

    def _filter(self, line: _Line) -> Filter | None:
        start = line.words[3].column if len(line.words) > 3 else len(line.text)
        text = line.text[start:].strip() or EVERYTHING
        try:
            return parse_filter(text)
        except FilterSyntaxError as error:
            self._object(line.number, start + error.position, error.found, error.expected)
            return None

    # --- limits -------------------------------------------------------------------------------

    def _read_limit(self, line: _Line) -> None:
        who = self._who(line)
        quantities = {quantity.value: quantity for quantity in Quantity}
        expected = ", ".join(quantities)
        word = self._word(line, 2, expected)
        if word is None:
            return
        quantity = quantities.get(word.text)
        if quantity is None:
            found = f"'{word.text}'"
            self._object(line.number, word.column, found, expected, tuple(quantities))
        amount = self._word(line, 3, "a number")
        if amount is None:
            return
        if not (amount.text.isascii() and amount.text.isdigit()):
            self._object(line.number, amount.column, f"'{amount.text}'", "a number")
            return
        if len(line.words) > 4:
            more = line.words[4]
            self._object(line.number, more.column, f"'{more.text}'", "the end of the line")
        if who is not None and quantity is not None:
            self.limits.append(
                Limit(
                    line=line.number,
                    text=line.text.strip(),
                    who=who,
                    quantity=quantity,
                    amount=int(amount.text),
                )
            )
