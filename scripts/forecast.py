"""What is going to wait where, told from filters and places alone, before anything runs.

This is the question of `routing/conflicts.py`, asked for every publication that an advertisement
allows, by somebody who sees the whole overlay. Nobody is asked to be quick here, so everything is
compared with everything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce

import attrs

from plait.routing.conflicts import EXACT
from plait.routing.filter_text import parse_filter, topic_filter
from plait.routing.filters import Filter
from plait.routing.regions import in_common
from plait.scripts.scenario import detection_of, filter_of
from plait.topologies.overlay import Overlay
from plait.topologies.script import Advertise, Command, Detect, PublishStream, Subscribe, Topic


@attrs.frozen
class Announcement:
    """An advertisement, written in the script or made for a topic that is published on."""

    publisher: str
    filter: Filter

    def __str__(self) -> str:
        return f"{self.publisher}: {self.filter}"


@attrs.frozen(kw_only=True)
class Wait:
    """At a broker, publications of one advertisement wait because of those of another."""

    broker: str
    parent: str
    """Whose acknowledgement they wait for."""
    waiting: Announcement
    meeting: Announcement
    above: tuple[str, ...]
    """The subscribers beyond the parent for whose sake they wait."""
    below: tuple[str, ...]
    """The other subscribers: these have to wait."""
    is_in_vain: bool
    """Whether no publication of the other advertisement is for somebody above and somebody below;
    the fast test cannot tell."""


def announcements_of(commands: Iterable[Command]) -> list[Announcement]:
    """Return everything that a script advertises at any time."""
    announced: dict[Announcement, None] = {}
    for command in commands:
        match command:
            case Advertise(process, where):
                announced[Announcement(process, filter_of(where))] = None
            case PublishStream(process, content=Topic(name)):
                # As when the script is performed: not if it is advertised already.
                mine = [one.filter for one in announced if one.publisher == process]
                if not any(filter_.matches({"topic": name}) for filter_ in mine):
                    announced[Announcement(process, topic_filter(name))] = None
    return list(announced)


def wishes_of(commands: Iterable[Command]) -> dict[str, list[Filter]]:
    """Return everything that each subscriber asks for at any time, and may give up again."""
    wishes: dict[str, list[Filter]] = {}
    for command in commands:
        if isinstance(command, Detect):
            union = parse_filter(detection_of(command).union)
            wishes.setdefault(command.process, []).append(union)
        elif isinstance(command, Subscribe):
            wishes.setdefault(command.process, []).append(filter_of(command.interest))
    return wishes


@attrs.frozen
class Forecast:
    """An overlay, and all that is announced and asked for in it."""

    overlay: Overlay
    announced: Sequence[Announcement]
    wishes: Mapping[str, Sequence[Filter]]
    detection: str
    _verdicts: dict[tuple[str, Announcement], bool] = attrs.field(factory=dict, init=False)
    """What `_does_wait` has found out."""

    def waits(self) -> list[Wait]:
        """Return every wait that may come, by brokers from the root on."""
        return [wait for broker in self.overlay.brokers for wait in self._waits_at(broker)]

    def _waits_at(self, broker: str) -> Iterator[Wait]:
        parent = self.overlay.parent_of(broker)
        if parent is None:
            return  # what comes here is settled here
        below = self._below[broker]
        for waiting in self.announced:
            if self.overlay.broker_of(waiting.publisher) not in below:
                continue
            for meeting in self.announced:
                if self.overlay.broker_of(meeting.publisher) in below:
                    continue
                pairs = self._pairs(broker, waiting, meeting)
                if pairs:
                    yield Wait(
                        broker=broker,
                        parent=parent,
                        waiting=waiting,
                        meeting=meeting,
                        above=tuple(dict.fromkeys(s for s, _ in pairs)),
                        below=tuple(dict.fromkeys(t for _, t in pairs)),
                        is_in_vain=not any(
                            self._is_for_both(meeting, s, t) and self._is_for_both(waiting, s, t)
                            for s, t in pairs
                        ),
                    )

    def _pairs(
        self, broker: str, waiting: Announcement, meeting: Announcement
    ) -> list[tuple[str, str]]:
        """Return a subscriber above and one below, for every two that make the broker wait."""
        is_below = {s: self.overlay.broker_of(s) in self._below[broker] for s in self.wishes}
        pairs = []
        for s in [s for s, is_one in is_below.items() if not is_one and self._wants(s, waiting)]:
            for t in [t for t, is_one in is_below.items() if is_one]:
                if self.detection == EXACT:
                    may_wait = self._is_for_both(waiting, s, t) and self._is_for_both(meeting, s, t)
                else:
                    may_wait = self._wants(t, meeting) and (
                        self._is_for_both(waiting, s, t) or self._is_believed(broker, waiting, t)
                    )
                if may_wait:
                    pairs.append((s, t))
        return pairs

    def _is_believed(self, broker: str, waiting: Announcement, subscriber: str) -> bool:
        """Whether somebody behind a child counts because the child waits, see the fast test."""
        children = [
            child
            for child in self.overlay.children_of(broker)
            if self.overlay.broker_of(waiting.publisher) in self._below[child]
            and self.overlay.broker_of(subscriber) in self._below[child]
        ]
        return any(self._does_wait(child, waiting) for child in children)

    def _does_wait(self, broker: str, waiting: Announcement) -> bool:
        """Whether publications of an advertisement below may wait at a broker for any reason."""
        asked = broker, waiting
        if asked not in self._verdicts:
            self._verdicts[asked] = any(
                self._pairs(broker, waiting, meeting)
                for meeting in self.announced
                if self.overlay.broker_of(meeting.publisher) not in self._below[broker]
            )
        return self._verdicts[asked]

    def _wants(self, subscriber: str, announced: Announcement) -> bool:
        return any(announced.filter.overlaps(wish) for wish in self.wishes[subscriber])

    def _is_for_both(self, announced: Announcement, one: str, other: str) -> bool:
        """Whether a publication of this advertisement could be for both subscribers."""
        return any(
            _have_in_common(announced.filter, wish, other_wish)
            for wish in self.wishes[one]
            for other_wish in self.wishes[other]
        )

    @cached_property
    def _below(self) -> Mapping[str, frozenset[str]]:
        """For each broker, itself and all brokers below it."""
        below: dict[str, frozenset[str]] = {}
        for broker in reversed(self.overlay.brokers):
            children = (below[child] for child in self.overlay.children_of(broker))
            below[broker] = frozenset([broker]).union(*children)
        return below


def _have_in_common(*filters: Filter) -> bool:
    return bool(reduce(in_common, (filter_.regions for filter_ in filters)))
