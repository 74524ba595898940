"""Machines of topics, and what they tell each other, as text: for a connection, and for a step log.

What is plain in JSON stays as it is; everything else is a list that begins with the name of its
type. A structure is larger than all else together and the same for everybody: it is written as the
number of its epoch, and whoever reads knows it, but where it is told for the first time. Nothing
can be read that is not listed here. Equal things have equal texts.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from plait.routing.topics import buffering, protocol, total
from plait.routing.topics.structure import Structure

_RECORDS: Final = {
    record.__name__: record
    for module in (buffering, protocol, total)
    for record in vars(module).values()
    if isinstance(record, type) and attrs.has(record)
}
_PLAIN: Final = (str, int, type(None))


class UnreadableError(ValueError):
    """A text that nobody here has written."""


def text_of(value: Any) -> str:
    """Return a message, or what a machine knows, as text."""
    return json.dumps(_portable(value), separators=(",", ":"), ensure_ascii=False)


def value_of(text: str, structures: Mapping[int, Structure]) -> Any:
    """Return what a text stands for."""
    try:
        return _Reader(structures).read(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"{text[:80]!r}: {error!r}") from None


def whole_text_of(structure: Structure) -> str:
    """Return all of a structure."""
    pairs = sorted(sorted(pair) for pair in structure.pairs)
    return text_of([structure.epoch, list(structure.order), pairs, structure.base])


def structure_of(text: str) -> Structure:
    """Read a structure."""
    epoch, order, pairs, base = value_of(text, {})
    return Structure(epoch, order, set(map(frozenset, pairs)), base)


def state_of(machine: object) -> str:
    """Return all that a machine knows."""
    return text_of(dict(vars(machine)))


def restore(machine: object, text: str, structures: Mapping[int, Structure]) -> None:
    """Let a machine know that, and nothing else."""
    vars(machine).clear()
    vars(machine).update(value_of(text, structures))


def _portable(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list):
        return ["list", *map(_portable, value)]
    if isinstance(value, tuple):
        return ["tuple", *map(_portable, value)]
    if isinstance(value, set | frozenset):
        return [type(value).__name__, *map(_portable, sorted(value))]
    if isinstance(value, Mapping):
        items = ([_portable(key), _portable(each)] for key, each in value.items())
        return ["sets" if isinstance(value, defaultdict) else "dict", *items]
    if isinstance(value, Structure):
        return ["Structure", value.epoch]
    name = type(value).__name__
    if _RECORDS.get(name) is not type(value):
        raise TypeError(f"{value!r} is not portable")
    return [name, *(_portable(getattr(value, each.name)) for each in attrs.fields(type(value)))]


class _Reader:
    def __init__(self, structures: Mapping[int, Structure]) -> None:
        self._structures = structures

    def read(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        kind, *parts = value
        if kind == "Structure":
            return self._structures[parts[0]]
        if kind in ("dict", "sets"):
            items = {self.read(key): self.read(each) for key, each in parts}
            return items if kind == "dict" else defaultdict(set, items)
        make = _COLLECTIONS.get(kind)
        if make is not None:
            return make(map(self.read, parts))
        record = _RECORDS[kind]
        names = [each.name for each in attrs.fields(record)]
        values = map(self.read, parts)
        return record(**{name.lstrip("_"): each for name, each in zip(names, values, strict=True)})


_COLLECTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
