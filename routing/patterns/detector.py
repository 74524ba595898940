"""Finds the matches of a pattern in what a subscriber is given, one publication at a time.

A detector may begin in the middle. What it then finds may differ from what another one finds that
began earlier, as long as it could make a difference how far that one was. A match is *certain* if
every detector that began earlier, and is given the same from here on, finds it too:

- `contiguous` and `any`: always, as a match depends on nothing but what lies between its ends.
- `next`: a match uses up what it spans, so it depends on where the one before ended. A detector
  that begins follows all states in which another one could be (`_Greedy` with a *ghost*: a match
  that has begun before). It is *in step* as soon as they have all become the same state. With
  `A -> B` that is so after the first match; with `A -> B -> A -> B`, in A B A B A B ..., never,
  and that is the truth: nobody can know which A is the first one of the pair.

A publication that matches `sync` puts all detectors in step, and no match spans one.

All that is kept is bounded: the last `within` publications, or one match in the making for each
place of the pattern if `within` is not given.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs

from plait.routing.limits import MATCHES_AT_ONCE_MAX
from plait.routing.patterns.detection import SYNC, Detection, Late, Policy
from plait.routing.patterns.pattern import Pattern
from plait.routing.values import Content

Event = TypeVar("Event")
"""A publication, as whoever uses a detector knows it."""


@attrs.frozen
class Match(Generic[Event]):
    """What fills the places of a pattern."""

    events: tuple[Event, ...]
    """One for each step."""
    certain: bool
    """Whether every other detector of the same that was there as well finds it."""


class Detector(Generic[Event]):
    """Finds the matches of one pattern."""

    def __init__(self, detection: Detection) -> None:
        """Begin as one that does not know what was before."""
        self.detection = detection
        self.cut_short = 0
        """How many publications ended more matches than are reported of one."""
        self._drops_late = detection.late is Late.DROP
        self._count = 0
        """How many publications of the restricted sequence there have been."""
        self._late_at = 0
        """The last of them that came out of order."""
        self._finder = _FINDERS[detection.policy](detection, 0)

    @property
    def is_in_step(self) -> bool:
        """Whether it is in the state in which every one is that began earlier."""
        return self._finder.is_in_step

    def begin_anew(self) -> None:
        """Something is missing from here on: begin as one that does not know what was before."""
        self._finder = _FINDERS[self.detection.policy](self.detection, self._count)

    def take(
        self, event: Event, content: Content, *, in_order: bool = True
    ) -> Sequence[Match[Event]]:
        """Take the next publication; returns the matches that end with it."""
        return self.take_bits(event, self.detection.bits_of(content), in_order=in_order)

    def take_bits(
        self, event: Event, bits: int, *, in_order: bool = True
    ) -> Sequence[Match[Event]]:
        """Take the next publication, of which it is known which letters it is."""
        if not in_order:
            if self._drops_late:
                return ()
            self._late_at = self._count + 1
        if bits & SYNC:
            self._finder = _FINDERS[self.detection.policy](self.detection, self._count)
            self._finder.get_in_step()
        self._count = number = self._count + 1
        found = self._finder.take(number, event, bits)
        if not found:
            return ()
        if self._finder.is_cut_short:
            self.cut_short += 1
        late_at = self._late_at
        return [Match(events, certain and first > late_at) for events, first, certain in found]


Found = tuple[tuple[Any, ...], int, bool]
"""The publications of a match, the number of the first one, and whether others find it too."""


class _Table(dict[int, tuple[int, int]]):
    """For each set of letters: the steps where it may stand, and before which it must not come."""

    def __init__(self, pattern: Pattern) -> None:
        bit_of = {letter: 2 << place for place, letter in enumerate(pattern.letters)}
        self._steps = [
            (sum(bit_of[each] for each in step.letters), sum(bit_of[each] for each in step.absent))
            for step in pattern.steps
        ]

    def __missing__(self, bits: int) -> tuple[int, int]:
        stands = ends = 0
        for place, (letters, absent) in enumerate(self._steps):
            stands |= bool(bits & letters) << place
            ends |= bool(bits & absent) << place
        if len(self) >= _COMBINATIONS_MAX:
            self.clear()
        self[bits] = stands, ends
        return stands, ends


_COMBINATIONS_MAX: Final = 4096
"""Sets of letters that are remembered. Few publications are more than one or two letters."""


class _Finder(Protocol):
    """One policy."""

    is_cut_short: bool
    """Whether there were more matches than those just found."""

    def __init__(self, detection: Detection, begin: int) -> None:
        """Begin after so many publications."""

    @property
    def is_in_step(self) -> bool:
        """Whether what was before makes no difference."""

    def get_in_step(self) -> None:
        """What was before makes no difference for anybody."""

    def take(self, number: int, event: Any, bits: int) -> Sequence[Found]:
        """Take the next publication."""


class _Memoryless:
    """A policy by which a match depends on nothing but what lies between its ends."""

    is_cut_short = False
    is_in_step = True

    def get_in_step(self) -> None:
        """It always is."""


class _Contiguous(_Memoryless):
    """Follows all beginnings at once, one bit for each step they have reached (Shift-And)."""

    def __init__(self, detection: Detection, begin: int) -> None:
        del begin
        self._table = _Table(detection.pattern)
        self._length = len(detection.pattern.steps)
        self._last = 1 << (self._length - 1)
        self._latest: deque[Any] = deque(maxlen=self._length)
        self._reached = 0

    def take(self, number: int, event: Any, bits: int) -> Sequence[Found]:
        stands, _ = self._table[bits]
        self._latest.append(event)
        self._reached = (self._reached << 1 | 1) & stands
        if not self._reached & self._last:
            return ()
        return ((tuple(self._latest), number - self._length + 1, True),)


_Chain = tuple[Any, Any]
"""The last publication of a match in the making, and the chain of those before, or None."""


def _events_of(chain: _Chain | None) -> tuple[Any, ...]:
    events = []
    while chain is not None:
        event, chain = chain
        events.append(event)
    return tuple(reversed(events))


class _Greedy:
    """One state in which a detector under `next` may be.

    A run is a match in the making. All runs that wait for the same step go on together; those that
    began earlier are further, or as far. So as soon as a run is complete, whatever began before is
    complete with it, or has ended.
    """

    def __init__(self, detection: Detection, begin: int, *, ghost: int = 0) -> None:
        """Have no run, or one that began before the beginning and has reached step `ghost`."""
        self._within = detection.within
        self._length = len(detection.pattern.steps)
        self._begin = begin
        self.runs: list[deque[tuple[int, _Chain]]] = [deque() for _ in range(self._length)]
        """By how many steps they have reached; each is the number of its first publication."""
        self._waiting = 0
        """The steps that some run waits for, as bits."""
        if ghost:
            self.runs[ghost].append((begin, (None, None)))
            self._waiting = 1 << ghost

    def take(self, number: int, event: Any, stands: int, ends: int) -> tuple[int, _Chain] | None:
        """Take the next publication; returns the match that ends with it."""
        runs, last = self.runs, self._length - 1
        if self._within is not None and self._waiting:
            self._expire(number - self._within)
        hit = self._waiting & stands
        ended = self._waiting & ends & ~stands
        while ended:
            step = ended.bit_length() - 1
            ended ^= 1 << step
            runs[step].clear()
            self._waiting ^= 1 << step
        while hit:
            step = hit.bit_length() - 1
            hit ^= 1 << step
            if step == last:
                first, chain = runs[step][0]
                self._use_up()
                return first, (event, chain)
            self._go_on(step, event)
        if stands & 1:
            if not last:
                return number, (event, None)
            if self._within is not None or not runs[1]:
                runs[1].append((number, (event, None)))
                self._waiting |= 2
        return None

    def _go_on(self, step: int, event: Any) -> None:
        ahead = self.runs[step + 1]
        for first, chain in self.runs[step]:
            if self._within is not None or not ahead:
                ahead.append((first, (event, chain)))
        self.runs[step].clear()
        self._waiting = self._waiting & ~(1 << step) | 2 << step

    def _expire(self, last: int) -> None:
        """Let go what has begun too long ago to end now, up to this publication."""
        for step in range(self._length - 1, 0, -1):
            runs = self.runs[step]
            while runs and runs[0][0] <= last:
                runs.popleft()
                if not runs:
                    self._waiting &= ~(1 << step)

    def _use_up(self) -> None:
        for runs in self.runs:
            runs.clear()
        self._waiting = 0

    def is_like(self, other: "_Greedy") -> bool:
        """Whether both will find the same whatever comes.

        A run is known by its first publication and how far it is: how it got there is certain. One
        that is a ghost is like none.
        """
        return self._waiting == other._waiting and all(
            len(ours) == len(theirs)
            and all(one[0] == two[0] > self._begin for one, two in zip(ours, theirs, strict=True))
            for ours, theirs in zip(self.runs, other.runs, strict=True)
        )


class _Next:
    """A detector under `next`, and all states in which one could be that began earlier."""

    is_cut_short = False

    def __init__(self, detection: Detection, begin: int) -> None:
        self._table = _Table(detection.pattern)
        self._state = _Greedy(detection, begin)
        # One ghost at a time is enough. Of several, the one that is furthest comes first: it is
        # complete, and all others are used up, or it ends, and then they go on without it.
        self._others = [
            _Greedy(detection, begin, ghost=step) for step in range(1, len(detection.pattern.steps))
        ]

    @property
    def is_in_step(self) -> bool:
        return not self._others

    def get_in_step(self) -> None:
        self._others.clear()

    def take(self, number: int, event: Any, bits: int) -> Sequence[Found]:
        stands, ends = self._table[bits]
        found = self._state.take(number, event, stands, ends)
        certain = True
        if self._others:
            certain = self._follow(number, event, stands, ends, None if found is None else found[0])
        if found is None:
            return ()
        first, chain = found
        return ((_events_of(chain), first, certain),)

    def _follow(self, number: int, event: Any, stands: int, ends: int, first: int | None) -> bool:
        """Let all other states take it; returns whether they all find what was found here."""
        certain = True
        for other in self._others:
            theirs = other.take(number, event, stands, ends)
            certain &= (None if theirs is None else theirs[0]) == first
        self._others = [each for each in self._others if not each.is_like(self._state)]
        return certain


class _Any(_Memoryless):
    """Keeps the last publications, and looks back over them whenever one may be the last."""

    def __init__(self, detection: Detection, begin: int) -> None:
        del begin
        assert detection.within is not None
        self._table = _Table(detection.pattern)
        self._length = len(detection.pattern.steps)
        self._last = 1 << (self._length - 1)
        self._latest: deque[tuple[Any, int, int]] = deque(maxlen=detection.within)
        self._reached = 0
        """The steps that some publication ever could fill, all before it filled: a first sieve."""

    def take(self, number: int, event: Any, bits: int) -> Sequence[Found]:
        stands, ends = self._table[bits]
        self._latest.append((event, stands, ends))
        hit = (self._reached << 1 | 1) & stands
        self._reached |= hit
        self.is_cut_short = False
        if not hit & self._last:
            return ()
        found: list[Found] = []
        for match in self._look_back(number):
            if len(found) == MATCHES_AT_ONCE_MAX:
                self.is_cut_short = True
                break
            found.append(match)
        return found

    def _look_back(self, number: int) -> Iterator[Found]:
        """The matches that end here, of those that begin later first.

        So if there are too many, a detector that began later reports the same ones as far as it
        has been there.
        """
        latest = list(self._latest)
        fits = self._fitting(latest)
        before = number - len(latest) + 1
        for place in range(len(latest) - 1, -1, -1):
            if fits[place] & 1:
                for chain in self._chains(latest, fits, place, 0):
                    yield chain, before + place, True

    def _fitting(self, latest: Sequence[tuple[Any, int, int]]) -> list[int]:
        """For each of the latest: the steps that it may fill so that a match ends here."""
        fits = [0] * len(latest)
        fits[-1] = self._last
        reach = self._last >> 1
        for place in range(len(latest) - 2, -1, -1):
            _, stands, ends = latest[place]
            fits[place] = fit = stands & reach
            reach = (reach & ~(ends >> 1)) | fit >> 1
            if not reach:
                break
        return fits

    def _chains(
        self, latest: Sequence[tuple[Any, int, int]], fits: Sequence[int], place: int, step: int
    ) -> Iterator[tuple[Any, ...]]:
        event = latest[place][0]
        if step == self._length - 1:
            yield (event,)
            return
        wanted = 2 << step
        for later in range(place + 1, len(latest)):
            if fits[later] & wanted:
                for rest in self._chains(latest, fits, later, step + 1):
                    yield (event, *rest)
            if latest[later][2] & wanted:
                break


_FINDERS: Final[dict[Policy, Callable[[Detection, int], _Finder]]] = {
    Policy.CONTIGUOUS: _Contiguous,
    Policy.NEXT: _Next,
    Policy.ANY: _Any,
}
