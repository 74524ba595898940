"""In which order a broker took its inputs: its step log, and what is known of others' logs.

A broker is a deterministic machine: what it does follows from the order in which it took what its
neighbours sent. The neighbours keep what they sent; the order is told along with everything that
the broker sends. When it fails, another process takes the same inputs in the same order, and is
that broker, as it was after the last step of which anybody alive has seen anything. (Causal message
logging with f = δ: Alvisi and Marzullo, 1998; Elnozahy, Alvisi, Wang and Johnson, 2002, section 4.)

An entry says what was taken in one step, and what the step decided that does not follow from that
once the stable part of it is forgotten: which publications were held on arrival, in which order
others were settled when a held one was among them, and which advertisements and subscriptions were
installed.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from routing.ids import NodeId

Key = tuple[NodeId, int, int]
"""What identifies a publication: its publisher, the publisher's incarnation, its number."""


NOBODY: Final = NodeId("")


class Taken(enum.IntEnum):
    """What kind of input a step took."""

    BATCH = 0
    """What a neighbour sent in one step of its own, or in several."""
    REPLAY = 1
    """Nothing: the step after a rebuild, which sends again whatever somebody may lack."""
    AWAY = 2
    """A client's connection has ended; it may come back."""
    BACK = 3
    """And has come back."""
    GONE = 4
    """A neighbour was given up."""


@attrs.frozen
class Entry:
    """One step of a broker."""

    kind: Taken
    source: NodeId = NOBODY
    """The neighbour whose batch was taken, or about which something was decided."""
    upto: int = 0
    """Of a batch: the neighbour's step that it ends with."""
    held: tuple[tuple[Key, bool], ...] = ()
    """The publications of the batch that were not settled on arrival, each with whether it waits
    for the parent itself."""
    order: tuple[Key, ...] = ()
    """All that was settled in this step, in order, if anything was that had been held before."""
    installed: tuple[str, ...] = ()
    """The advertisements and subscriptions installed in this step."""


@attrs.frozen
class LogPart:
    """What is told of a log to somebody who knows it up to some step."""

    base: int
    """Up to where it is forgotten, as everything there is stable and confirmed."""
    first: int
    """The entries follow this step."""
    entries: tuple[Entry, ...]
    taken: Mapping[NodeId, int]
    """What had been taken of neighbours at the base, as far as it may be news."""


@attrs.define
class _LastTaken:
    """Of a neighbour, in what is forgotten."""

    upto: int
    step: int


class StepLog:
    """The entries of one broker after a base: up to there everything is stable and confirmed.

    Of what is forgotten one thing is remembered: how much had been taken of each neighbour.
    """

    def __init__(self, base: int = 0) -> None:
        """Begin knowing nothing."""
        self.base = base
        self.entries: list[Entry] = []
        self._taken: dict[NodeId, _LastTaken] = {}

    @property
    def last(self) -> int:
        """The last step that is known."""
        return self.base + len(self.entries)

    @property
    def taken(self) -> dict[NodeId, int]:
        """The last step of each neighbour that had been taken at the base."""
        return {node: last.upto for node, last in self._taken.items()}

    def append(self, entry: Entry) -> int:
        """Take note of one more step; returns its number."""
        self.entries.append(entry)
        return self.last

    def since(self, step: int) -> LogPart:
        """What somebody lacks who knows everything up to `step`."""
        first = max(step, self.base)
        return LogPart(
            self.base,
            first,
            tuple(self.entries[first - self.base :]),
            {node: last.upto for node, last in self._taken.items() if last.step > step},
        )

    def learn(self, part: LogPart) -> None:
        """Take in a part of it, which may be known already, in whole or in part."""
        if part.first > self.last:
            # Everything up to there is stable, or whoever tells would not have forgotten it.
            assert part.first == part.base, f"steps {self.last + 1} to {part.first} are missing"
            self.forget(part.first)
            self.entries = list(part.entries)
        else:
            self.entries.extend(part.entries[self.last - part.first :])
        self.forget(part.base)
        for node, upto in part.taken.items():
            known = self._taken.get(node)
            if known is None or known.upto < upto:
                self._taken[node] = _LastTaken(upto, part.base)

    def forget(self, base: int) -> None:
        """Everything up to `base` is stable and confirmed."""
        count = max(0, min(base, self.last) - self.base)
        for step, entry in enumerate(self.entries[:count], self.base + 1):
            if entry.kind is Taken.BATCH:
                self._taken[entry.source] = _LastTaken(entry.upto, step)
            elif entry.kind is Taken.GONE:
                self._taken.pop(entry.source, None)
        del self.entries[:count]
        self.base = max(self.base, base)

    def note_taken(self, node: NodeId, upto: int) -> None:
        """So much of a neighbour had been taken at the base, it says itself."""
        if upto > self.taken.get(node, 0):
            self._taken[node] = _LastTaken(upto, self.base)

    def copy(self) -> "StepLog":
        """Return the same, to be changed apart."""
        log = StepLog()
        log.base, log.entries, log._taken = self.base, list(self.entries), dict(self._taken)
        return log


def longest(logs: Iterable[StepLog]) -> StepLog:
    """Return the log that tells most of a broker, of those that several nodes know."""
    known = list(logs)
    best = max(known, key=lambda log: log.last).copy()
    # The base of another one may be later: what is forgotten somewhere is stable everywhere.
    best.forget(max(log.base for log in known))
    return best
