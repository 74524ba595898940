"""Every match of a pattern in a sequence, found the obvious way: by trying all that there is."""

from collections.abc import Sequence
from itertools import combinations

from plait.routing.patterns.pattern import Step

Letters = frozenset[str]
Places = tuple[int, ...]


def is_match(steps: Sequence[Step], sequence: Sequence[Letters], places: Places) -> bool:
    """Whether these places, which ascend, are filled as the pattern says."""
    for step, place in zip(steps, places, strict=True):
        if not sequence[place] & {*step.letters}:
            return False
    for number in range(1, len(steps)):
        between = sequence[places[number - 1] + 1 : places[number]]
        if any(each & {*steps[number].absent} for each in between):
            return False
    return True


def any_of(steps: Sequence[Step], sequence: Sequence[Letters], within: int) -> set[Places]:
    return {
        places
        for places in combinations(range(len(sequence)), len(steps))
        if places[-1] - places[0] < within and is_match(steps, sequence, places)
    }


def contiguous(steps: Sequence[Step], sequence: Sequence[Letters]) -> set[Places]:
    windows = (
        tuple(range(first, first + len(steps))) for first in range(len(sequence) - len(steps) + 1)
    )
    return {places for places in windows if is_match(steps, sequence, places)}


def next_ones(
    steps: Sequence[Step], sequence: Sequence[Letters], within: int | None
) -> list[Places]:
    found: list[Places] = []
    unused = 0
    while True:
        runs = [
            run
            for first in range(unused, len(sequence))
            if (run := _run(steps, sequence, first)) is not None
            and (within is None or run[-1] - run[0] < within)
        ]
        if not runs:
            return found
        found.append(min(runs, key=lambda run: (run[-1], run[0])))
        unused = found[-1][-1] + 1


def _run(steps: Sequence[Step], sequence: Sequence[Letters], first: int) -> Places | None:
    """The first publication, and for each further step the next one that fills it."""
    if not sequence[first] & {*steps[0].letters}:
        return None
    places = [first]
    for step in steps[1:]:
        for place in range(places[-1] + 1, len(sequence)):
            if sequence[place] & {*step.letters}:
                places.append(place)
                break
            if sequence[place] & {*step.absent}:
                return None
        else:
            return None
    return tuple(places)
