"""What a node of `exploration.py` is, whatever its history: a form that equal states share.

Everything that hangs on a node is in it, by reflection, but for what is named here. Who adds a
field to a machine has it in the form without doing anything.
"""

import hashlib
import itertools
import marshal
import types
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.broker.machine.neighbours import Above, Arrival, Below, Progress, Route
from plait.broker.machine.steps import Steps
from plait.broker.messages import Publish
from plait.faulttol.steplog import LogPart
from plait.routing.ids import NodeId
from plait.routing.tables import AdvertisementTable, SubscriptionTable
from tests.machine.overlay import Leaf

_VALUES: dict[Any, int] = {}
_LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    # What never changes, is a copy of something else, or is read by tests only.
    "Machine": frozenset(
        {"limits", "settings", "_outbox", "node", "_departures", "_losses", "_now"}
    ),
    "Neighbours": frozenset({"version"}),
    "Above": frozenset({"counted", "routes", "routes_version"}),
    "Below": frozenset({"counted", "routes", "routes_version"}),
    "Publications": frozenset({"counters", "_outbox", "_limits", "flush_at", "_lazy"}),
    "Interests": frozenset({"conflicts", "observer", "_limits", "_withdrawn"}),
    "Names": frozenset({"_limits", "_admit", "_remove"}),
    "Steps": frozenset({"_outbox"}),
    "Leaf": frozenset({"world"}),
}
_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    if kind not in _FIELDS:
        left_out = _left_out(kind)
        if attrs.has(kind):
            names = [field.name for field in attrs.fields(kind)]
        else:
            slots = [getattr(base, "__slots__", ()) for base in kind.__mro__]
            names = [name for each in slots for name in each]
        _FIELDS[kind] = tuple(name for name in names if name not in left_out)
    return _FIELDS[kind]


_OF_LOGS: Final[Mapping[str, frozenset[str]]] = {
    # What only a crash asks for, and who has not heard yet that a broker has been rebuilt.
    "Above": frozenset({"taken_at_base", "controls", "told_of", "sent_marks", "received_marks"}),
    "Leaf": frozenset({"controls", "told_in", "forgot", "base"}),
    "Steps": frozenset({"log", "source"}),
}


class Form:
    """Brings an object, with all that hangs on it, into a form that equal ones share.

    After the crash, nobody needs logs any more, nor what is kept to be sent again, except to those
    that are `down`.
    """

    def __init__(self, *, is_after: bool = False, down: Collection[NodeId] = ()) -> None:
        self._seen: dict[int, int] = {}
        self._is_after = is_after
        self._down = down

    def of(self, thing: Any) -> Any:
        kind = type(thing)
        if kind in (str, bytes, bool, type(None), float):
            return thing
        if kind is int:  # some tables have objects by their identity
            return thing if thing < 1 << 40 else ("#", self._seen[thing])
        if kind in (list, tuple, deque):
            return tuple(map(self.of, thing))
        if kind is dict:
            return tuple((self.of(key), self.of(value)) for key, value in thing.items())
        if kind in (set, frozenset):
            return tuple(sorted(map(self.of, thing), key=repr))
        if isinstance(thing, int):
            return int(thing)
        if kind is Publish:
            return (thing.publisher, thing.seq, thing.flags)
        if isinstance(thing, types.BuiltinMethodType | types.MethodType | types.FunctionType):
            return None
        if isinstance(thing, itertools.count):
            return repr(thing)
        if kind is not LogPart and _is_value(kind):
            return _VALUES.setdefault(thing, len(_VALUES))
        return self._of_object(kind, thing)

    def _of_object(self, kind: type, thing: Any) -> Any:
        if kind is Route:
            down = tuple(neighbour.node for neighbour in thing.down)
            return (down, thing.climbs, thing.conflicts, thing.conflicts_if_awaited)
        if id(thing) in self._seen:
            return ("#", self._seen[id(thing)])
        self._seen[id(thing)] = len(self._seen)
        if isinstance(thing, AdvertisementTable | SubscriptionTable):
            return tuple(map(self.of, thing))
        parts = [(name, getattr(thing, name, None)) for name in _fields(kind)]
        parts = parts or [(n, v) for n, v in vars(thing).items() if n not in _left_out(kind)]
        if self._is_after:
            parts = self._without_logs(kind, thing, parts)
        return tuple(self.of(part) for _, part in parts)

    def _without_logs(
        self, kind: type, thing: Any, parts: list[tuple[str, Any]]
    ) -> list[tuple[str, Any]]:
        if kind is Progress:
            return parts[:2]
        if kind is Arrival:
            return [(n, v > 0 if n in ("step", "settled_in") else v) for n, v in parts]
        if kind in (Above, Below) and thing.node not in self._down:
            parts = [(n, v[:2] if n == "told" else v) for n, v in parts]
            return [(n, v) for n, v in parts if n not in _OF_LOGS["Above"] | {"forgot", "base"}]
        if kind is Steps:
            return [(n, v) for n, v in parts if n not in _OF_LOGS["Steps"]]
        if kind is Leaf and not self._down:
            parts = [(n, v) for n, v in parts if n not in _OF_LOGS["Leaf"] | {"sent", "received"}]
            streams = [(each.stable_count, len(each.kept)) for each in (thing.sent, thing.received)]
            return [*parts, ("streams", streams)]
        return parts


def _left_out(kind: type) -> frozenset[str]:
    return _LEFT_OUT.get(kind.__name__, frozenset())


def _is_value(kind: type) -> bool:
    """Whether what is equal cannot be told apart."""
    hashes: Any = kind.__hash__
    return hashes is not None and hashes is not object.__hash__


def digest(things: Sequence[Any], form: Form) -> bytes:
    canonical = tuple(map(form.of, things))
    return hashlib.blake2b(marshal.dumps(canonical, 2), digest_size=12).digest()
