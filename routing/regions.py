"""The normal form of a filter: what it lets through, as a union of boxes.

A *region* is one conjunction: for each attribute it mentions, the set of values allowed, and beside
that a *residue*, the conditions that such sets cannot express (arithmetic, two attributes compared,
most LIKE patterns). Without its residue a region is too large, never too small. What must not miss
a match (`overlaps`, the index) can therefore leave the residue out; what must not claim too much
(`covers`) has to look at it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import attrs

from plait.routing import value_sets
from plait.routing.expressions import (
    MIRRORED,
    NEGATED,
    And,
    Arithmetic,
    Attribute,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    IsNull,
    Like,
    Membership,
    Negative,
    Not,
    Operand,
    Or,
    Pattern,
    Wildcard,
)
from plait.routing.limits import REGIONS_MAX
from plait.routing.value_sets import ValueSet
from plait.routing.values import KIND_OF_TYPE, Kind


@attrs.frozen(weakref_slot=False)
class Region:
    """The contents whose attributes are all in their sets, and that satisfy the residue."""

    sets: Mapping[str, ValueSet]
    residue: frozenset[Condition] = frozenset()

    def overlaps(self, other: "Region") -> bool:
        """Whether some content may lie in both; never a false no."""
        for name, values in self.sets.items():
            others = other.sets.get(name)
            if others is not None and not value_sets.intersects(values, others):
                return False
        return True

    def covers(self, other: "Region") -> bool:
        """Whether every content of the other certainly lies in this one; never a false yes."""
        if not self.residue <= other.residue:
            return False
        for name, values in self.sets.items():
            if not value_sets.is_subset(other.sets.get(name, value_sets.ANYTHING), values):
                return False
        return True


Regions = tuple[Region, ...]

_EVERYWHERE: Regions = (Region({}),)
_NOWHERE: Regions = ()


def regions_of(condition: Condition) -> Regions:
    """Regions that together hold exactly the contents of which the condition is true."""
    return _regions(condition, wanted=True)


def hull(regions: Regions) -> Mapping[str, ValueSet]:
    """One set for each attribute that every region restricts: a box around them all."""
    first, *others = regions
    sets = dict(first.sets)
    for other in others:
        sets = {
            name: value_sets.union(values, other.sets[name])
            for name, values in sets.items()
            if name in other.sets
        }
    return sets


def in_common(some: Regions, others: Regions) -> Regions:
    """Regions that together hold the contents that lie in some of these and in some of those."""
    return tuple(
        region
        for ours in some
        for theirs in others
        if (region := _common(ours, theirs)) is not None
    )


def _regions(condition: Condition, *, wanted: bool) -> Regions:
    """Regions where the condition is true, or where it is false."""
    match condition:
        case Constant(value):
            return _EVERYWHERE if value is wanted else _NOWHERE
        case Attribute():
            return _restricted(condition, value_sets.of_values([wanted]))
        case Comparison(operator, left, right):
            return _comparison(operator if wanted else NEGATED[operator], left, right)
        case Membership(attribute, values):
            if wanted:
                return _restricted(attribute, value_sets.of_values(values))
            kind = KIND_OF_TYPE[type(values[0])]
            return _restricted(attribute, value_sets.not_of_values(values, kind))
        case Like():
            return _like(condition, wanted=wanted)
        case IsNull(attribute):
            return _restricted(attribute, value_sets.MISSING if wanted else value_sets.PRESENT)
        case Not(negated):
            return _regions(negated, wanted=not wanted)
        case And(conditions) | Or(conditions):
            parts = [_regions(part, wanted=wanted) for part in conditions]
            if isinstance(condition, And) == wanted:
                return _all_of(parts, conditions, wanted=wanted)
            return _any_of(parts, condition, wanted=wanted)


def _restricted(attribute: Attribute, values: ValueSet) -> Regions:
    return (Region({attribute.name: values}),) if values else _NOWHERE


def _comparison(operator: ComparisonOperator, left: Operand, right: Operand) -> Regions:
    match left, right:
        case Attribute(), Constant(value):
            return _restricted(left, value_sets.compared(operator, value))
        case Constant(value), Attribute():
            return _restricted(right, value_sets.compared(MIRRORED[operator], value))
    # Beyond sets, but it is not true of a missing attribute, nor of arithmetic with anything else
    # than numbers.
    sets: dict[str, ValueSet] = {}
    for operand in (left, right):
        allowed = value_sets.PRESENT if isinstance(operand, Attribute) else _NUMBERS
        for name in _names(operand):
            sets[name] = value_sets.intersection(sets.get(name, allowed), allowed)
    return (Region(sets, frozenset([Comparison(operator, left, right)])),)


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Attribute(name):
            yield name
        case Negative(inner):
            yield from _names(inner)
        case Arithmetic(_, left, right):
            yield from _names(left)
            yield from _names(right)


def _like(like: Like, *, wanted: bool) -> Regions:
    fitting, is_exact = _fitting(like.pattern)
    if not is_exact:
        condition, values = (like, fitting) if wanted else (Not(like), _STRINGS)
        return (Region({like.attribute.name: values}, frozenset([condition])),)
    if wanted:
        return _restricted(like.attribute, fitting)
    others = value_sets.intersection(value_sets.complement(fitting), _STRINGS)
    return _restricted(like.attribute, others)


def _fitting(pattern: Pattern) -> tuple[ValueSet, bool]:
    """Find a set that holds all strings that fit the pattern, and whether it holds no others."""
    match pattern:
        case ():
            return value_sets.of_values([""]), True
        case (str(text),):
            return value_sets.of_values([text]), True
        case (str(prefix), Wildcard.ANY_TEXT):
            return value_sets.with_prefix(prefix), True
        case (Wildcard.ANY_TEXT,):
            return _STRINGS, True
        case (str(prefix), *_):
            return value_sets.with_prefix(prefix), False
    return _STRINGS, False


def _all_of(parts: Iterable[Regions], conditions: Iterable[Condition], *, wanted: bool) -> Regions:
    regions: Regions = _EVERYWHERE
    for part, condition in zip(parts, conditions, strict=True):
        if len(regions) * len(part) > REGIONS_MAX:
            part = _left_to_evaluation(condition, wanted=wanted)
        regions = in_common(regions, part)
    return regions


def _common(a: Region, b: Region) -> Region | None:
    sets = dict(a.sets)
    for name, values in b.sets.items():
        sets[name] = value_sets.intersection(sets.get(name, value_sets.ANYTHING), values)
        if not sets[name]:
            return None
    # Where there is nothing to join, `|` would make yet another empty set.
    return Region(sets, a.residue | b.residue if b.residue else a.residue)


def _any_of(parts: Iterable[Regions], condition: Condition, *, wanted: bool) -> Regions:
    """Join alternatives; those that concern one and the same attribute become one set."""
    by_name: dict[str, list[ValueSet]] = {}
    others: list[Region] = []
    for region in chain.from_iterable(parts):
        if len(region.sets) == 1 and not region.residue:
            ((name, values),) = region.sets.items()
            by_name.setdefault(name, []).append(values)
        else:
            others.append(region)
    joined = [Region({name: value_sets.union(*sets)}) for name, sets in by_name.items()]
    if len(joined) + len(others) > REGIONS_MAX:
        return _left_to_evaluation(condition, wanted=wanted)
    return (*joined, *others)


def _left_to_evaluation(condition: Condition, *, wanted: bool) -> Regions:
    return (Region({}, frozenset([condition if wanted else Not(condition)])),)


_NUMBERS = value_sets.of_kind(Kind.NUMBER)
_STRINGS = value_sets.of_kind(Kind.STRING)
