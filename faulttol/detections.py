"""What detectors have found, judged: the guarantee `detection`, and how far they agree.

Each detector has to have found what follows from what was delivered to it: the judge looks for the
pattern once more. And under an ordering of all publications any two detectors of the same, on
clients that were both there, have to have found the same. Of a match that one of them calls
certain, and that it has found while the other one was in step, and was given all of it, the other
one has to say the same.

A client is there from where its detector began (`detecting`), which is after all that it may have
missed; again and again, if it lost its session.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from plait.faulttol.history import PublicationId, Record
from plait.routing.errors import PatternError
from plait.routing.patterns.detection import Detection
from plait.routing.patterns.detector import Detector
from plait.routing.values import Content

Events = tuple[PublicationId, ...]
"""The publications of a match."""


@attrs.frozen
class Given:
    """A delivery to a detector."""

    publication: PublicationId
    record: Record

    @property
    def in_order(self) -> bool:
        """Whether it came where its stamp says, if it has one."""
        return self.record.get("in_order") is not False


@attrs.frozen
class Finding:
    """Something wrong with what detectors have found, with the records that show it."""

    text: str
    records: tuple[Record, ...]


@attrs.define(eq=False)
class Watch:
    """A detector, from where it began to where it ended, or began anew."""

    record: Record
    detection: Detection
    given: list[Given] = attrs.field(factory=list)
    detected: list[Record] = attrs.field(factory=list)
    is_over: bool = False
    """Whether its client has said so."""

    @property
    def name(self) -> str:
        """The subscription that it is."""
        return str(self.record["detector"])


def read_detection(record: Record) -> Detection:
    """Say what a detector looked for; `PatternError` says why nobody knows."""
    try:
        return Detection.read(record)
    except (TypeError, AttributeError) as error:
        raise PatternError(f"no pattern: {error}") from error


@attrs.define(eq=False)
class _Seen:
    """What one detector should have found."""

    watch: Watch
    places: dict[PublicationId, int] = attrs.field(factory=dict)
    """What it was given, in its order."""
    in_step_from: int | None = None
    """The place from which on it was in step; None if it never was."""
    found: dict[Events, tuple[int, bool]] = attrs.field(factory=dict)
    """Each match, with the position of its last delivery and whether it is certain."""

    def was_in_step(self, match: Events) -> bool:
        """Whether it was given all of a match, in step."""
        if self.in_step_from is None:
            return False
        places = [self.places.get(publication, -1) for publication in match]
        return min(places) >= self.in_step_from


@attrs.define(eq=False)
class Detections:
    """All that the detectors of a run were given and have found."""

    contents: Mapping[PublicationId, Content]
    """Of everything that was published in order."""
    given_up: frozenset[PublicationId]
    """What somebody has recorded not to deliver."""
    _seen: list[_Seen] = attrs.field(factory=list)

    def take_in(self, watches: Iterable[Watch]) -> None:
        """Find out what there was to be found."""
        self._seen = [self._look_again(watch) for watch in watches]

    def _look_again(self, watch: Watch) -> _Seen:
        seen = _Seen(watch)
        detector: Detector[PublicationId] = Detector(watch.detection)
        for place, given in enumerate(watch.given):
            content = self.contents.get(given.publication)
            if content is None:
                continue  # it was to be given out of turn, or was never published
            if seen.in_step_from is None and detector.is_in_step:
                seen.in_step_from = place
            seen.places.setdefault(given.publication, place)
            for match in detector.take(given.publication, content, in_order=given.in_order):
                seen.found[match.events] = given.record["position"], match.certain
        return seen

    # --- each by itself -----------------------------------------------------------------------

    def misfindings(self) -> Iterator[Finding]:
        """Find out which detectors did not find what they were given."""
        for seen in self._seen:
            yield from _misfindings(seen)

    # --- one against the other ----------------------------------------------------------------

    def disagreements(self) -> Iterator[Finding]:
        """Find what one detector has found, and another one of the same should have; one per two.

        Under an ordering that promises that they agree.
        """
        for same in self._by_pattern():
            for match, ones in _by_match(same).items():
                one = next((seen for seen in ones if seen.found[match][1]), None)
                if one is None:
                    continue
                for other in same:
                    is_found = other.found.get(match, (0, False))[1]
                    if is_found or not other.was_in_step(match) or self._differ(one, other):
                        continue
                    yield _disagreement(match, one, other)

    def _differ(self, one: _Seen, other: _Seen) -> bool:
        """Whether one of them was not given something that was given up."""
        return any(p in self.given_up for p in one.places.keys() ^ other.places.keys())

    def _by_pattern(self) -> list[list[_Seen]]:
        groups: dict[str, list[_Seen]] = {}
        for seen in self._seen:
            fields = seen.watch.detection.fields()
            fields["where"] = sorted(fields["where"].items())
            groups.setdefault(repr(fields), []).append(seen)
        return list(groups.values())

    # --- figures ------------------------------------------------------------------------------

    def figures(self) -> dict[str, int]:
        """Count detectors, matches, and those matches that all detectors of a pattern found."""
        matches = alike = 0
        for same in self._by_pattern():
            clients = {seen.watch.record["client"] for seen in same}
            for ones in _by_match(same).values():
                matches += 1
                alike += {seen.watch.record["client"] for seen in ones} == clients
        names = {(s.watch.record["client"], s.watch.name) for s in self._seen}
        return {"detectors": len(names), "matches": matches, "matches alike": alike}


def _by_match(seen: Iterable[_Seen]) -> dict[Events, list[_Seen]]:
    ones: dict[Events, list[_Seen]] = {}
    for each in seen:
        for match in each.found:
            ones.setdefault(match, []).append(each)
    return ones


_SHOWN: Final = 3


def _name(match: Sequence[Sequence[object]]) -> str:
    names = [f"{publication[0]}#{publication[-1]}" for publication in match if publication]
    if len(names) > 2 * _SHOWN:
        names[_SHOWN:-_SHOWN] = ["..."]
    return " -> ".join(names)


def _misfindings(seen: _Seen) -> Iterator[Finding]:
    """The first difference between what a detector found and what it should have."""
    watch = seen.watch
    expected = [(match, *what) for match, what in seen.found.items()]
    for number, record in enumerate(watch.detected):
        found = _found(record)
        if number >= len(expected) or found != expected[number]:
            position, certain = record["position"], record["certain"]
            text = (
                f"{watch.name} found {_name(record['match'])} at position {position}"
                f"{'' if certain else ', not certain'}, but what it was given has "
            )
            if number < len(expected):
                match, place, is_certain = expected[number]
                text += f"{_name(match)} at position {place}{'' if is_certain else ', not certain'}"
            else:
                text += "no further match"
            yield Finding(text, (watch.record, record))
            return
    missing = expected[len(watch.detected) :]
    last = watch.given[-1].record["position"] if watch.given else 0
    if not watch.is_over:  # whoever is killed may have written the delivery and no more
        missing = [each for each in missing if each[1] < last]
    for match, position, _ in missing[:1]:
        text = f"{watch.name} never found {_name(match)}, complete at position {position}"
        yield Finding(text, (watch.record,))


def _found(record: Record) -> tuple[Events, int, bool]:
    match = tuple(tuple(publication) for publication in record["match"])
    return match, record["position"], record["certain"]


def _disagreement(match: Events, one: _Seen, other: _Seen) -> Finding:
    position = one.found[match][0]
    places = ", ".join(
        str(other.watch.given[other.places[publication]].record["position"])
        for publication in match
    )
    what = "did not" if match not in other.found else "does not call it certain"
    return Finding(
        f"{one.watch.name} found {_name(match)} of {one.watch.detection.pattern} at position "
        f"{position}, but {other.watch.name}, which has these at positions {places}, {what}",
        (one.watch.record, other.watch.record),
    )
