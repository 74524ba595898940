"""Whether other hosts live: what this host has seen itself, and nothing that others say.

A host whose connection has ended, or that is silent, is visited: dialled anew, and asked. A refusal
proves that this life of it is over, and so does a later life that answers. Nothing else proves
anything: who is silent may be stopped, or cut off, and so may this host. So nobody is doubted who
has been heard within the heartbeat timeout, whatever has become of its connection.

A doubt is this host's own and can be taken back; what follows from it is decided in `takeover.py`.
"""

import enum
import math
from collections.abc import Callable, Collection, Iterator

import attrs

from plait.broker.host.identity import Identity
from plait.broker.messages import Life


class Sign(enum.Enum):
    """What may happen with a host."""

    HEARD = "it said something"
    LOST = "its connection has ended"
    SILENT = "it said nothing for too long"
    REFUSED = "it does not listen any more"
    REPLACED = "a later life of it is there"
    UNANSWERED = "a visit led nowhere, and nothing was heard for too long"


class Standing(enum.Enum):
    """What this host thinks of another one."""

    TRUSTED = "trusted"
    VISITED = "visited"
    SILENT = "silent"
    PROVEN = "proven dead"


TABLE: dict[Standing, dict[Sign, Standing]] = {
    Standing.TRUSTED: {
        Sign.HEARD: Standing.TRUSTED,
        Sign.LOST: Standing.VISITED,
        Sign.SILENT: Standing.VISITED,
        Sign.REFUSED: Standing.PROVEN,
        Sign.REPLACED: Standing.PROVEN,
        Sign.UNANSWERED: Standing.VISITED,
    },
    Standing.VISITED: {
        Sign.HEARD: Standing.TRUSTED,
        Sign.LOST: Standing.VISITED,
        Sign.SILENT: Standing.VISITED,
        Sign.REFUSED: Standing.PROVEN,
        Sign.REPLACED: Standing.PROVEN,
        Sign.UNANSWERED: Standing.SILENT,
    },
    Standing.SILENT: {
        Sign.HEARD: Standing.TRUSTED,
        Sign.LOST: Standing.SILENT,
        Sign.SILENT: Standing.SILENT,
        Sign.REFUSED: Standing.PROVEN,
        Sign.REPLACED: Standing.PROVEN,
        Sign.UNANSWERED: Standing.SILENT,
    },
    # A life that is over does not begin again.
    Standing.PROVEN: dict.fromkeys(Sign, Standing.PROVEN),
}


@attrs.define
class _Known:
    """One life of a host, as it is seen from here."""

    standing: Standing = Standing.TRUSTED
    heard_at: float = -math.inf
    visited_at: float = 0.0


class Doubts:
    """What this host thinks of all others that it has had to do with."""

    def __init__(self, me: Identity, visit: Callable[[Life], None]) -> None:
        """Trust everybody; whoever is doubted is visited by `visit`."""
        self._me = me
        self._visit = visit
        self._known: dict[Life, _Known] = {}
        self._with: dict[frozenset[Standing], frozenset[Life]] = {}
        """Of whom so much is thought; found out when somebody asks, until that changes."""
        self.version = 0
        """Goes up whenever somebody comes to be doubted, or is not any more."""

    def note(self, life: Life, sign: Sign, now: float) -> Standing:
        """Take note of what has happened with somebody."""
        known = self._known.setdefault(life, _Known())
        before = known.standing
        known.standing = after = TABLE[before][sign]
        if sign is Sign.HEARD:
            known.heard_at = now
        if after is Standing.VISITED and before is not Standing.VISITED:
            known.visited_at = now
            self._visit(life)
        if before is not after:
            self._change()
        return after

    def heard(self, life: Life, now: float) -> None:
        """Somebody has said something: the usual case."""
        known = self._known.get(life)
        if known is not None and known.standing is Standing.TRUSTED:
            known.heard_at = now
        else:
            self.note(life, Sign.HEARD, now)

    def standing_of(self, life: Life) -> Standing:
        """What is thought of somebody."""
        known = self._known.get(life)
        return Standing.TRUSTED if known is None else known.standing

    def doubted(self) -> frozenset[Life]:
        """Who seems to have failed."""
        return self._who_is(_DOUBTED)

    def proven(self) -> frozenset[Life]:
        """Who has failed."""
        return self._who_is(_PROVEN)

    def _who_is(self, standings: frozenset[Standing]) -> frozenset[Life]:
        lives = self._with.get(standings)
        if lives is None:
            known = self._known.items()
            lives = frozenset(life for life, each in known if each.standing in standings)
            self._with[standings] = lives
        return lives

    def _change(self) -> None:
        self._with.clear()
        self.version += 1

    def unanswering(self) -> list[Life]:
        """Who does not answer, and has to be asked again."""
        return [life for life, known in self._known.items() if known.standing in _UNANSWERING]

    def has_heard(self, life: Life, now: float, *, within_s: float) -> bool:
        """Whether somebody has been heard of late, and its connection is there."""
        known = self._known.get(life)
        is_trusted = known is not None and known.standing is Standing.TRUSTED
        return known is not None and is_trusted and now - known.heard_at <= within_s

    def lives(self, life: Life, now: float) -> bool | None:
        """What this host can say of somebody; None before it has visited it."""
        known = self._known.get(life) or _Known()
        if known.standing in _DOUBTED:
            return False
        return True if now - known.heard_at <= self._me.limits.heartbeat_timeout_s else None

    def overdue_visits(self, now: float) -> Iterator[Life]:
        """Who has been visited and does not answer."""
        for life, known in list(self._known.items()):
            if known.standing is Standing.VISITED and now >= self._overdue_at(known):
                yield life

    def _overdue_at(self, known: _Known) -> float:
        limits = self._me.limits
        patience_ends = known.heard_at + limits.heartbeat_timeout_s
        return max(patience_ends, known.visited_at + limits.visit_timeout_s)

    def wake_at(self) -> float | None:
        """When the next visit is overdue."""
        if not self._who_is(_VISITED):
            return None
        visited = (k for k in self._known.values() if k.standing is Standing.VISITED)
        return min(map(self._overdue_at, visited))

    def forget_but(self, lives: Collection[Life]) -> None:
        """Forget all others: nobody asks for them any more."""
        for life in [life for life in self._known if life not in lives]:
            if self._known[life].standing is not Standing.PROVEN:
                self.version += 1
            self._with.clear()
            del self._known[life]


_PROVEN = frozenset({Standing.PROVEN})
_DOUBTED = _PROVEN | {Standing.SILENT}
_VISITED = frozenset({Standing.VISITED})
_UNANSWERING = frozenset({Standing.VISITED, Standing.SILENT})
