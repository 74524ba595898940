"""Who may do what: rules by filter, and what they say about a request.

A rule names principals, a right and a filter. A request is allowed if the filter of one `allow`
covers what is asked for, and that of no `deny` overlaps it. `covers` never says yes wrongly and
`overlaps` never no, so nothing passes that no rule allows, and nothing that a rule denies. They may
err to the other side, and then a request is refused that could be allowed: also one that several
rules allow only together. What no rule is about is denied.

Whoever may advertise something may publish it: publications are held to their advertisements anyway
(`broker/machine/publications.py`), so none is looked at a second time.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs

from plait.routing import value_sets
from plait.routing.expressions import And, Comparison, Constant, Like, Membership, Not, Or
from plait.routing.filters import Filter
from plait.routing.limits import CACHED_DECISIONS_MAX
from plait.routing.regions import hull
from plait.routing.value_sets import Cut, ValueSet
from plait.routing.values import Content

ANYBODY: Final = "*"

PLACEHOLDER: Final = "{principal}"
"""In a text of a rule's filter: the name of whoever asks."""


class Right(StrEnum):
    """What a rule is about."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    MONITOR = "monitor"
    """See the state of a broker: its filter is about the attribute `broker`."""
    OPERATE = "operate"
    """Have a broker moved: likewise."""


class Quantity(StrEnum):
    """What a principal may have so much of, at each broker."""

    CONNECTIONS = "connections"
    SUBSCRIPTIONS = "subscriptions"
    MATCHING = "matching"
    """The sizes of its subscriptions' filters together (`size_of` in `filter_text.py`)."""
    PUBLICATIONS = "publications"
    """A second."""
    BYTES = "bytes"
    """Of publications, a second."""
    UNCONFIRMED = "unconfirmed"
    """Publications."""


@attrs.frozen
class Who:
    """Principals: by their names, and by patterns with `*` for any text."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def includes(self, principal: str) -> bool:
        """Whether this one is meant."""
        if principal in self.names or ANYBODY in self.patterns:
            return True
        return any(_expression_of(pattern).fullmatch(principal) for pattern in self.patterns)


@lru_cache(CACHED_DECISIONS_MAX)
def _expression_of(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@attrs.frozen(kw_only=True, eq=False)
class Rule:
    """One line that allows or denies something."""

    line: int
    text: str
    is_allow: bool
    who: Who
    right: Right
    filter: Filter
    is_personal: bool = False
    """Whether the filter has the name of whoever asks in it."""

    def filter_for(self, principal: str) -> Filter:
        """The filter, as it is for this principal."""
        return _personal(self.filter, principal) if self.is_personal else self.filter

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@lru_cache(CACHED_DECISIONS_MAX)
def _personal(filter_: Filter, principal: str) -> Filter:
    return Filter(_named(filter_.condition, principal))


def _named(node: Any, principal: str) -> Any:
    """A condition with the name in place: in its tree, so that a name is never read as a filter."""

    def text(value: Any) -> Any:
        return value.replace(PLACEHOLDER, principal) if isinstance(value, str) else value

    match node:
        case Constant(value):
            return Constant(text(value))
        case Membership(attribute, values):
            return Membership(attribute, tuple(map(text, values)))
        case Like(attribute, pattern):
            return Like(attribute, tuple(map(text, pattern)))
        case Comparison(operator, left, right):
            return Comparison(operator, _named(left, principal), _named(right, principal))
        case Not(part):
            return Not(_named(part, principal))
        case And(parts):
            return And(tuple(_named(part, principal) for part in parts))
        case Or(parts):
            return Or(tuple(_named(part, principal) for part in parts))
    return node


@attrs.frozen(kw_only=True)
class Limit:
    """One line that says how much somebody may have."""

    line: int
    text: str
    who: Who
    quantity: Quantity
    amount: int


@attrs.frozen(eq=False)
class Decision:
    """Whether something is allowed, and by which rule."""

    is_allowed: bool
    rule: Rule | None = None
    """None if no rule allows it."""
    in_part: tuple[Rule, ...] = ()
    """Those that allow a part of it, if none allows all and none denies it."""


Quotas: TypeAlias = Mapping[Quantity, int]
"""What a principal may have; all of what is not there."""


class Rules:
    """All rules of a file."""

    def __init__(self, rules: Iterable[Rule] = (), limits: Iterable[Limit] = ()) -> None:
        """Have these, in the order of their lines."""
        self.rules = tuple(rules)
        self.limits = tuple(limits)
        self._allowing = {right: _Ranges(self._about(right, is_allow=True)) for right in Right}
        self._denying = {right: _Ranges(self._about(right, is_allow=False)) for right in Right}
        self._decided: dict[tuple[str, Right, Filter], Decision] = {}
        self._quotas: dict[str, Quotas] = {}

    def _about(self, right: Right, *, is_allow: bool) -> list[Rule]:
        return [r for r in self.rules if r.right is right and r.is_allow is is_allow]

    def decide(self, principal: str, right: Right, asked: Filter) -> Decision:
        """Whether a principal may publish, or subscribe to, all that a filter matches."""
        key = principal, right, asked
        decision = self._decided.get(key)
        if decision is None:
            if len(self._decided) >= CACHED_DECISIONS_MAX:
                self._decided.clear()
            decision = self._decided[key] = self._decide(principal, right, asked)
        return decision

    def _decide(self, principal: str, right: Right, asked: Filter) -> Decision:
        for rule in self._denying[right].touching(asked):
            if rule.who.includes(principal) and rule.filter_for(principal).overlaps(asked):
                return Decision(False, rule)
        for rule in self._allowing[right].around(asked):
            if rule.who.includes(principal) and rule.filter_for(principal).covers(asked):
                return Decision(True, rule)
        return Decision(False)

    def explain(self, principal: str, right: Right, asked: Filter) -> Decision:
        """The same, with the rules that allow a part of what is asked for."""
        decision = self.decide(principal, right, asked)
        if decision.is_allowed or decision.rule is not None:
            return decision
        touching = self._allowing[right].touching(asked)
        in_part = [
            rule
            for rule in touching
            if rule.who.includes(principal) and rule.filter_for(principal).overlaps(asked)
        ]
        return Decision(False, None, tuple(in_part))

    def decide_about(self, principal: str, right: Right, content: Content) -> Decision:
        """Whether a principal has a right to one thing, such as a broker."""

        def is_about(rule: Rule) -> bool:
            return (
                rule.right is right
                and rule.who.includes(principal)
                and rule.filter_for(principal).matches(content)
            )

        about = list(filter(is_about, self.rules))
        rule = next((rule for rule in about if not rule.is_allow), about[0] if about else None)
        return Decision(rule is not None and rule.is_allow, rule)

    def quotas_of(self, principal: str) -> Quotas:
        """How much a principal may have: of several lines about the same, the last one counts."""
        quotas = self._quotas.get(principal)
        if quotas is None:
            if len(self._quotas) >= CACHED_DECISIONS_MAX:
                self._quotas.clear()
            meant = (limit for limit in self.limits if limit.who.includes(principal))
            quotas = self._quotas[principal] = {each.quantity: each.amount for each in meant}
        return quotas


class _Ranges:
    """Rules by the range of one attribute each: of many, few have to be compared with a request."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._anywhere: list[Rule] = []
        self._by_attribute: dict[str, list[tuple[Cut, Cut, Rule]]] = {}
        for rule in rules:
            sets = {} if rule.is_personal else _hull_of(rule.filter)
            if not sets:
                self._anywhere.append(rule)
                continue
            name = min(sorted(sets), key=lambda name: _width(sets[name]))
            values = sets[name]
            self._by_attribute.setdefault(name, []).append((values[0], values[-1], rule))

    def around(self, asked: Filter) -> list[Rule]:
        """Those that may cover it, in the order of their lines."""
        return self._found(asked, is_around=True)

    def touching(self, asked: Filter) -> list[Rule]:
        """Those that may overlap it."""
        return self._found(asked, is_around=False)

    def _found(self, asked: Filter, *, is_around: bool) -> list[Rule]:
        sets = _hull_of(asked)
        if sets is None:  # nothing matches what is asked for: all cover it, and none overlaps it
            everything = [rule for each in self._by_attribute.values() for _, _, rule in each]
            return sorted(self._anywhere + everything, key=_line) if is_around else []
        found = list(self._anywhere)
        for name, ranges in self._by_attribute.items():
            values = sets.get(name, value_sets.ANYTHING)
            start, end = values[0], values[-1]
            if is_around:
                found += [rule for low, high, rule in ranges if low <= start and end <= high]
            else:
                found += [rule for low, high, rule in ranges if low < end and start < high]
        return sorted(found, key=_line)


def _line(rule: Rule) -> int:
    return rule.line


def _hull_of(filter_: Filter) -> Mapping[str, ValueSet] | None:
    """One set for each attribute that a filter restricts; None if nothing matches it."""
    return hull(filter_.regions) if filter_.regions else None


def _width(values: ValueSet) -> int:
    """How much a range lets through: one value least, then what has two ends."""
    start, end = values[0], values[-1]
    if len(values) == 2 and end == (*start, 1):
        return 0
    return 1 if len(start) > 1 and len(end) > 1 else 2
