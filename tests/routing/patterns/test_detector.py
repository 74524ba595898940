"""Detectors find what there is, and what they call certain is what every other one finds."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.limits import MATCHES_AT_ONCE_MAX
from plait.routing.patterns.detection import Detection
from plait.routing.patterns.detector import Detector, Match
from plait.routing.patterns.pattern import Pattern, Step
from tests.routing.patterns import oracle

LETTERS = "ABC"


def detection(pattern: str | Pattern, policy: str, within: int | None = None) -> Detection:
    text = str(pattern)
    letters = {letter for letter in "ABCX" if letter in text}
    return Detection.of(
        text, {letter: f"{letter} = 1" for letter in letters}, policy=policy, within=within
    )


def content(letters: oracle.Letters) -> dict[str, int]:
    return dict.fromkeys(sorted(letters), 1)


def found_by(
    detector: Detector[int], sequence: Sequence[oracle.Letters], first: int = 0
) -> list[Match[int]]:
    found: list[Match[int]] = []
    for place, letters in enumerate(sequence, start=first):
        found += detector.take(place, content(letters))
    return found


def places(found: Sequence[Match[int]]) -> list[tuple[int, ...]]:
    return [match.events for match in found]


def word(text: str) -> list[oracle.Letters]:
    return [frozenset({letter}) for letter in text]


some_letters = st.frozensets(st.sampled_from(LETTERS), min_size=1, max_size=2)
sequences = st.lists(
    st.one_of(st.sampled_from(LETTERS).map(lambda letter: frozenset({letter})), some_letters),
    max_size=14,
)
choices = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=2, unique=True).map(tuple)
absences = st.one_of(st.just(()), st.just(()), choices)


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    steps = [Step(draw(choices))]
    for _ in range(draw(st.integers(0, 3))):
        steps.append(Step(draw(choices), draw(absences)))
    return Pattern(tuple(steps))


@st.composite
def spans(draw: st.DrawFn, at_least: int) -> int:
    return draw(st.integers(at_least, 15))


@given(patterns(), sequences)
def test_contiguous_finds_what_stands_side_by_side(
    pattern: Pattern, sequence: list[oracle.Letters]
) -> None:
    found = found_by(Detector(detection(pattern, "contiguous")), _fitting(pattern, sequence))

    assert places(found) == sorted(oracle.contiguous(pattern.steps, _fitting(pattern, sequence)))
    assert all(match.certain for match in found)


@given(patterns(), sequences, st.data())
def test_any_finds_every_way_of_filling_the_places(
    pattern: Pattern, sequence: list[oracle.Letters], data: st.DataObject
) -> None:
    within = data.draw(spans(len(pattern.steps)))
    sequence = _fitting(pattern, sequence)
    found = places(found_by(Detector(detection(pattern, "any", within)), sequence))

    assert len(found) == len({*found})
    assert {*found} == oracle.any_of(pattern.steps, sequence, within)


@given(patterns(), sequences, st.data())
def test_next_finds_the_first_that_is_complete_and_goes_on_behind_it(
    pattern: Pattern, sequence: list[oracle.Letters], data: st.DataObject
) -> None:
    within = data.draw(st.one_of(st.none(), spans(len(pattern.steps))))
    sequence = _fitting(pattern, sequence)
    found = found_by(Detector(detection(pattern, "next", within)), sequence)

    assert places(found) == oracle.next_ones(pattern.steps, sequence, within)


@given(patterns(), sequences, sequences, sequences, st.data())
def test_what_is_certain_is_found_by_every_detector_that_began_earlier(
    pattern: Pattern,
    earliest: list[oracle.Letters],
    earlier: list[oracle.Letters],
    sequence: list[oracle.Letters],
    data: st.DataObject,
) -> None:
    policy = data.draw(st.sampled_from(["contiguous", "next", "any"]))
    within: int | None = data.draw(spans(len(pattern.steps)))
    if policy == "next":
        within = data.draw(st.sampled_from([within, None]))
    what = detection(pattern, policy, within)
    before = [*_fitting(pattern, earliest), *_fitting(pattern, earlier)]
    sequence = _fitting(pattern, sequence)
    one, other = Detector[int](what), Detector[int](what)
    found_by(one, before)

    for place, letters in enumerate(sequence, start=len(before)):
        is_in_step = other.is_in_step
        ours = one.take(place, content(letters))
        theirs = other.take(place, content(letters))
        certain = [match for match in theirs if match.certain]
        assert [match for match in ours if match.events in places(certain)] == [
            attrs.evolve(match, certain=one_is_certain(ours, match)) for match in certain
        ]
        if is_in_step:
            seen = [match for match in ours if match.events[0] >= len(before)]
            assert places(seen) == places(theirs)


def one_is_certain(ours: Sequence[Match[int]], match: Match[int]) -> bool:
    return next(each.certain for each in ours if each.events == match.events)


@given(sequences, sequences)
def test_after_a_publication_that_synchronises_all_detectors_are_in_step(
    before: list[oracle.Letters], sequence: list[oracle.Letters]
) -> None:
    what = Detection.of(
        "A -> B -> A -> B", {"A": "A = 1", "B": "B = 1"}, policy="next", sync="S = 1"
    )
    one, other = Detector[int](what), Detector[int](what)
    found_by(one, before)
    one.take(-1, {"S": 1})
    other.take(-1, {"S": 1})

    ours, theirs = found_by(one, sequence), found_by(other, sequence)
    assert ours == theirs
    assert all(match.certain for match in ours)


@pytest.mark.parametrize(
    ("pattern", "policy", "within", "text", "expected"),
    [
        ("A -> B -> C", "contiguous", None, "ABCABBCABC", [(0, 1, 2), (7, 8, 9)]),
        ("A -> B -> C", "next", None, "AABBCCABC", [(0, 2, 4), (6, 7, 8)]),
        ("A -> B", "any", 3, "AABB", [(1, 2), (0, 2), (1, 3)]),
        ("A -> B -> C", "next", 3, "AABC", [(1, 2, 3)]),
        ("A -> !X -> B", "next", None, "AXBAB", [(3, 4)]),
        ("A -> !X -> B", "next", None, "AXABB", [(2, 3)]),
        ("A -> (B | C){2}", "contiguous", None, "ABCACBAB", [(0, 1, 2), (3, 4, 5)]),
    ],
)
def test_examples(
    pattern: str,
    policy: str,
    within: int | None,
    text: str,
    expected: list[tuple[int, ...]],
) -> None:
    assert places(found_by(Detector(detection(pattern, policy, within)), word(text))) == expected


def test_a_pair_that_was_torn_apart_is_not_certain_before_the_phase_is_known() -> None:
    late = Detector[int](detection("A -> B -> A -> B", "next"))

    assert [match.certain for match in found_by(late, word("ABABABAB"))] == [False, False]
    assert not late.is_in_step


def test_after_the_first_match_of_a_simple_pattern_everything_is_certain() -> None:
    late = Detector[int](detection("A -> B", "next"))

    assert [match.certain for match in found_by(late, word("ABAB"))] == [False, True]


def test_a_match_that_spans_what_came_late_is_not_certain() -> None:
    detector = Detector[int](detection("A -> B", "contiguous"))

    assert detector.take(1, {"A": 1}) == ()
    assert detector.take(2, {"B": 1}, in_order=False) == [Match((1, 2), certain=False)]
    assert detector.take(3, {"A": 1}) == ()
    assert detector.take(4, {"B": 1}) == [Match((3, 4), certain=True)]


def test_what_comes_late_is_left_out_on_demand() -> None:
    what = Detection.of("A -> B", {"A": "A = 1", "B": "B = 1"}, policy="contiguous", late="drop")
    detector = Detector[int](what)

    assert detector.take(1, {"A": 1}) == ()
    assert detector.take(2, {"A": 1}, in_order=False) == ()
    assert detector.take(3, {"B": 1}) == [Match((1, 3), certain=True)]


def test_of_too_many_matches_those_are_reported_that_began_last() -> None:
    detector = Detector[int](detection("A -> A -> A -> B", "any", 100))
    found = found_by(detector, word("A" * 40 + "B"))
    later = found_by(Detector(detection("A -> A -> A -> B", "any", 100)), word("A" * 25 + "B"), 15)

    assert len(found) == MATCHES_AT_ONCE_MAX
    assert detector.cut_short == 1
    assert places(later) == places(found)


def test_what_is_kept_is_bounded() -> None:
    detector = Detector[int](detection("A -> B -> C", "next", 50))
    found_by(detector, word("AB" * 2000))

    state = detector._finder._state  # type: ignore[attr-defined]
    assert sum(len(runs) for runs in state.runs) <= 50


def _fitting(pattern: Pattern, sequence: list[oracle.Letters]) -> list[oracle.Letters]:
    """Only what is some letter of the pattern is in its restricted sequence."""
    of_pattern = frozenset(pattern.letters)
    return [letters & of_pattern for letters in sequence if letters & of_pattern]
