"""Step logs of failed brokers as their clients have them, apart from what hosts know.

A client that was told of a step may be the only one left that was: so what it brings is believed.
But it has only its own word for it. What hosts know is not touched by that, and what a client says
beyond it is set aside, with all else that it says, as soon as it turns out that it cannot be so.
"""

from collections.abc import Collection, Iterable, Mapping

import attrs

from plait.broker.host.library import Library
from plait.faulttol.steplog import Standing, StepLog
from plait.routing.ids import NodeId

Border = tuple[NodeId, NodeId]
"""A node of the boundary, and its neighbour in the region."""


@attrs.define(eq=False)
class _Whole:
    """What is known of one broker, with what clients have brought."""

    known: StepLog
    """What hosts know, as it was then: this version of it."""
    version: int
    log: StepLog
    by: Border | None = None
    """Who has brought the end of it; None if hosts know it."""
    _neighbours: Mapping[NodeId, Standing] | None = None

    @property
    def neighbours(self) -> Mapping[NodeId, Standing]:
        """Who stands next to the broker as of the last step."""
        if self._neighbours is None:
            self._neighbours = self.log.neighbours()
        return self._neighbours

    def add(self, border: Border, log: StepLog) -> None:
        """Take what a client has brought, as far as it says the same as what is here."""
        mine = self.log
        if not _goes_on(mine, log):
            return
        if log.term > mine.term or log.base > mine.last:
            self.log, self.by, self._neighbours = log.copy(), border, None
            return
        if log.last > mine.last:
            for entry in log.entries[mine.last - log.base :]:
                mine.append(entry)
            self.by, self._neighbours = border, None
        mine.forget(log.base)


class BroughtLogs:
    """What clients have brought of brokers that are taken up here."""

    def __init__(self, library: Library) -> None:
        """Begin with nothing."""
        self._library = library
        self._brought: dict[NodeId, dict[Border, StepLog]] = {}
        """By broker, and by who has brought it, of what."""
        self._wholes: dict[NodeId, _Whole] = {}

    def note(self, border: Border, logs: Mapping[NodeId, StepLog]) -> None:
        """A client has said what it knows."""
        self.forget([border])
        for broker, log in logs.items():
            self._brought.setdefault(broker, {})[border] = log
            whole = self._wholes.get(broker)
            if whole is not None:
                whole.add(border, log)

    def forget(self, borders: Collection[Border]) -> None:
        """What these have said does not count any more."""
        for broker, brought in list(self._brought.items()):
            found = [border for border in borders if brought.pop(border, None) is not None]
            if not brought:
                del self._brought[broker]
            if found:
                self._wholes.pop(broker, None)

    def log_of(self, broker: NodeId) -> StepLog:
        """The longest that anybody knows; not to be changed."""
        return self._whole(broker).log if broker in self._brought else self._library.log_of(broker)

    def neighbours_of(self, broker: NodeId) -> Mapping[NodeId, Standing]:
        """Who stands next to a broker as of the last step of that."""
        if broker in self._brought:
            return self._whole(broker).neighbours
        return self._library.neighbours_of(broker)

    def bringers(self, region: Iterable[NodeId]) -> list[Border]:
        """Who alone has said how the logs of these brokers end."""
        ends = [self._whole(broker).by for broker in sorted(region) if broker in self._brought]
        return list(dict.fromkeys(border for border in ends if border is not None))

    def known(self, region: Iterable[NodeId]) -> dict[NodeId, StepLog]:
        """Copies of all logs; those of a region as the one that knows most of each has it.

        Of a broker that lives, whoever stands between knows as much as any client does.
        """
        brought = {broker: self.log_of(broker).copy() for broker in region}
        return self._library.known() | brought

    def known_to(self, region: Iterable[NodeId]) -> dict[Border, int]:
        """The last step that each client has heard of, by the client and its broker."""
        return {
            (client, broker): log.last
            for broker in region
            for (client, to), log in self._brought.get(broker, {}).items()
            if to == broker
        }

    def _whole(self, broker: NodeId) -> _Whole:
        known = self._library.log_of(broker)
        whole = self._wholes.get(broker)
        if whole is None or whole.known is not known or whole.version != known.version:
            whole = self._wholes[broker] = _Whole(known, known.version, known.copy())
            for border, log in self._brought.get(broker, {}).items():
                whole.add(border, log)
        return whole


def _goes_on(known: StepLog, log: StepLog) -> bool:
    """Whether a log says the same as another one, as far as both say anything."""
    if log.term != known.term:
        return log.term > known.term
    first = max(known.base, log.base)
    ends = known.entries[first - known.base :], log.entries[first - log.base :]
    return all(one == other for one, other in zip(*ends, strict=False))
