"""In which order a broker took its inputs: its step log, and what is known of others' logs.

A broker is a deterministic machine: what it does follows from the order in which it took what its
neighbours sent. The neighbours keep what they sent; the order is told along with everything that
the broker sends. When it fails, another process takes the same inputs in the same order, and is
that broker, as it was after the last step of which anybody alive has seen anything. (Causal message
logging with f = δ: Alvisi and Marzullo, 1998; Elnozahy, Alvisi, Wang and Johnson, 2002, section 4.)

An entry says what was taken in one step, and what the step decided that does not follow from that
once the stable part of it is forgotten: which publications were held on arrival, in which order
others were settled when a held one was among them, and which advertisements and subscriptions were
installed. And it says who came and went, so whoever knows a log knows who stands next to that
broker, and for whom to wait when it has failed.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from plait.routing.ids import NodeId, OperationId
from plait.routing.topics.protocol import Topic

Key = tuple[NodeId, int, int]
"""What identifies a publication: its publisher, the publisher's incarnation, its number."""


Place = tuple[int, NodeId, int, int]
"""Of a publication in the order of the root: the root's step, and what identifies it."""
NO_PLACE: Final[Place] = (0, NodeId("-"), 0, 0)
"""Before all places."""

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
    JOINED = 5
    """Somebody has greeted, and stands below from now on; it is about to ask to be let in."""
    ANEW = 6
    """More than δ had failed: new streams begin between this broker and a neighbour, in the era
    that `upto` says. About nobody, it is the first step of one that knows nothing of its past."""


CLIENT: Final = "client"
BROKER: Final = "broker"


@attrs.frozen(kw_only=True)
class Interest:
    """An advertisement or a subscription of a client, as it had told it when it went away."""

    name: str
    filter: str
    is_advertisement: bool = False
    is_ordered: bool = True
    withdrawn_in: int = 0
    """The step in which it was withdrawn; 0 if it stands."""


@attrs.frozen(kw_only=True, cache_hash=True)
class Standing:
    """Who stands below a broker, as of some step of that."""

    kind: str = CLIENT
    incarnation: int = 0
    """0 for a broker."""
    key: str = ""
    """The digest of the secret with which a client goes on with its session."""
    published: int = 0
    """The number of the last publication that it had handed over before it came."""
    upto: int = 0
    """The last of its steps that was taken."""
    is_away: bool = False
    """Whether its connection has ended: nobody waits for it when the broker has failed."""
    has_joined: bool = False
    """Whether its name is its own: nobody in the overlay has objected."""
    interests: tuple[Interest, ...] = ()
    """Of one who is away: what it had told, as nobody waits for it to say that again."""
    place: Place = NO_PLACE
    """Under `sequencer-filtered`, of what a client was handed last."""
    era: int = 0
    """How often new streams have begun between a broker and this one."""


@attrs.frozen(kw_only=True)
class Membership:
    """What one step decided about neighbours below, and about names."""

    joined: Standing | None = None
    """As what the newcomer of a `JOINED` stands here."""
    interests: tuple[Interest, ...] = ()
    """What the client of an `AWAY` had told."""
    admitted: tuple[NodeId, ...] = ()
    """Newcomers to whom nobody had objected: each has joined."""
    removed: tuple[NodeId, ...] = ()
    """Who is no neighbour any more: they left, were turned away, or made room for a later life."""
    refused: tuple[OperationId, ...] = ()
    """Claims of others to which this broker objected."""
    forbidden: tuple[str, ...] = ()
    """What clients had asked for, by name, and may not have by the rules of its host."""


UNCHANGED: Final = Membership()


@attrs.frozen(kw_only=True)
class TopicStanding:
    """Under `tno`, what a broker knows of a topic beside how far its numbers are."""

    place: str
    """Where its manager is, as `broker/machine/topics.py` has it."""
    hop: str
    """And by which child."""
    is_left: bool
    """Whether somebody has left it who may have one now that is ordered with it."""


@attrs.define(unsafe_hash=True)
class Entry:
    """One step of a broker.

    Not frozen, as one is made for every step, and for everybody who is told of it.
    """

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
    members: Membership = UNCHANGED
    handed: tuple[tuple[NodeId, tuple[Key, ...]], ...] = ()
    """Of clients before whom something is held, or was until this step: what each was handed in it,
    in order."""
    places: tuple[tuple[NodeId, Place], ...] = ()
    """Under `sequencer-filtered`, of what clients were handed last in this step."""
    numbers: tuple[tuple[Topic, int], ...] = ()
    """Under `tno`, of the last publications on topics, where they have come further."""
    topics: tuple[tuple[Topic, TopicStanding], ...] = ()
    """What else has changed of topics."""
    stamps: tuple[tuple[Key, tuple[int, ...], tuple[Topic, ...]], ...] = ()
    """The stamps on which this step wrote: the number of a publication, and of others' topics."""
    memory: tuple[tuple[str, str], ...] = ()
    """Where managers of topics are machines of their own: what has changed of what the broker knows
    of them, each thing with a name; empty if it is known no more."""


@attrs.define
class LogPart:
    """What is told of a log to somebody who knows it up to some step.

    Not frozen either.
    """

    base: int
    """Up to where it is forgotten, as everything there is stable and confirmed."""
    first: int
    """The entries follow this step."""
    entries: tuple[Entry, ...]
    neighbours: Mapping[NodeId, Standing | None]
    """Who stood below at the base, and as what, as far as it may be news; None: nobody any more.
    Of the parent, how much of it had been taken."""
    is_whole: bool = False
    """Whether these are all: whoever is not among them is no neighbour."""
    term: int = 0
    """In which the broker takes these steps, or took them over: what is known of an earlier term
    may have steps that left no trace, and have not happened."""
    numbers: Mapping[Topic, int] = attrs.field(factory=dict)
    """Under `tno`, of the last publications on topics at the base, as far as it may be news."""
    topics: Mapping[Topic, TopicStanding] = attrs.field(factory=dict)
    """What else was known of topics then."""
    memory: Mapping[str, str] | None = None
    """And all that was known of managers, if it may be news."""


GONE_REMEMBERED: Final = 1024
"""Neighbours that a log knows to be gone; whoever knows it up to where more have gone since is told
who is left."""


@attrs.define
class _Known:
    """Of a neighbour, in what is forgotten."""

    _standing: Standing | None
    """With `upto` as it was when that was last asked for."""
    upto: int
    step: int
    """In which any of that changed last."""

    @property
    def is_gone(self) -> bool:
        """Whether it is no neighbour any more."""
        return self._standing is None

    @property
    def standing(self) -> Standing | None:
        """As what it stood there; None if it was gone."""
        if self._standing is not None and self._standing.upto != self.upto:
            self._standing = attrs.evolve(self._standing, upto=self.upto)
        return self._standing

    def copy(self) -> "_Known":
        """Return the same, to be changed apart."""
        return _Known(self._standing, self.upto, self.step)


class StepLog:
    """The entries of one broker after a base: up to there everything is stable and confirmed.

    Of what is forgotten this is remembered: who stood next to the broker, and how much it had taken
    of each.
    """

    def __init__(self, base: int = 0, term: int = 0) -> None:
        """Begin knowing nothing."""
        self.base = base
        self.term = term
        """The latest term of the broker in which anything of this was told."""
        self.entries: list[Entry] = []
        self.version = 0
        """Goes up whenever more becomes known."""
        self._known: dict[NodeId, _Known] = {}
        self._gone: dict[NodeId, None] = {}
        """Those of them who are no neighbours any more, in the order in which they went."""
        self._gone_unknown = 0
        """The last step in which somebody went of whom that is not remembered."""
        self._numbers: dict[Topic, tuple[int, int]] = {}
        """How far topics were, each with the step in which that changed last."""
        self._topics: dict[Topic, tuple[TopicStanding, int]] = {}
        self._memory: dict[str, str] | None = None
        """What was known of managers; None if nothing ever was."""

    @property
    def last(self) -> int:
        """The last step that is known."""
        return self.base + len(self.entries)

    def taken_of(self, node: NodeId) -> int:
        """The last step of a neighbour that had been taken at the base."""
        known = self._known.get(node)
        return 0 if known is None or known.is_gone else known.upto

    def neighbours_at_base(self) -> dict[NodeId, Standing]:
        """Who stood next to the broker at the base. Of the parent only `upto` and `era` count."""
        standings = ((node, known.standing) for node, known in self._known.items())
        return {node: standing for node, standing in standings if standing is not None}

    def numbers_at_base(self) -> dict[Topic, int]:
        """How far the numbers of topics were at the base."""
        return {topic: number for topic, (number, _) in self._numbers.items()}

    def topics_at_base(self) -> dict[Topic, TopicStanding]:
        """What else was known of topics at the base."""
        return {topic: standing for topic, (standing, _) in self._topics.items()}

    def memory_at_base(self) -> dict[str, str]:
        """What was known of managers at the base."""
        return dict(self._memory or {})

    def neighbours(self) -> dict[NodeId, Standing]:
        """Who stands next to the broker as of its last step. Of the parent only `upto` is known.

        For those that are not away a coordinator waits, when the broker has failed.
        """
        log = self.copy()
        log.forget(log.last)
        return log.neighbours_at_base()

    def begin(self, base: int, neighbours: Mapping[NodeId, Standing]) -> None:
        """Begin at a step, with these neighbours, knowing nothing of what was before."""
        self.base = base
        for node, standing in neighbours.items():
            self._note(node, standing, base)

    def append(self, entry: Entry) -> int:
        """Take note of one more step; returns its number."""
        self.entries.append(entry)
        self.version += 1
        return self.last

    def since(self, step: int) -> LogPart:
        """What somebody lacks who knows everything up to `step`."""
        if step >= self.base:  # the usual case; who stands at the base is not news
            entries = tuple(self.entries[step - self.base :])
            return LogPart(self.base, step, entries, {}, term=self.term)
        is_whole = step < self._gone_unknown
        return LogPart(
            self.base,
            self.base,
            tuple(self.entries),
            {
                node: known.standing
                for node, known in self._known.items()
                if (known.standing is not None if is_whole else known.step > step)
            },
            is_whole,
            self.term,
            {topic: number for topic, (number, at) in self._numbers.items() if at > step},
            {topic: standing for topic, (standing, at) in self._topics.items() if at > step},
            None if self._memory is None else dict(self._memory),
        )

    def learn(self, part: LogPart) -> None:
        """Take in a part of it, which may be known already, in whole or in part.

        What is told of a later term replaces all that is known: it begins where that term does.
        """
        if part.term < self.term:
            return
        if part.first == self.last and (part.base, part.term) == (self.base, self.term):
            if part.entries:
                self.entries.extend(part.entries)
                self.version += 1
            if not (part.neighbours or part.is_whole or part.numbers or part.topics):
                return  # the usual case
        if part.term > self.term:
            self._begin_anew(part.term)
        if part.first > self.last:
            # Everything up to there is stable, or whoever tells would not have forgotten it.
            assert part.first == part.base, f"steps {self.last + 1} to {part.first} are missing"
            self.forget(part.first)
            self.entries = list(part.entries)
            self.version += 1
        elif self.last < part.first + len(part.entries):
            self.entries.extend(part.entries[self.last - part.first :])
            self.version += 1
        self.forget(part.base)
        if self.base == part.base:
            self._learn_neighbours(part)
            for topic, number in part.numbers.items():
                self._numbers[topic] = number, part.base
            for topic, standing in part.topics.items():
                self._topics[topic] = standing, part.base
            if part.memory is not None:
                self._memory = dict(part.memory)

    def _begin_anew(self, term: int) -> None:
        self.term = term
        self.version += 1
        self.base, self.entries = 0, []
        self._known, self._gone, self._gone_unknown = {}, {}, 0
        self._numbers, self._topics, self._memory = {}, {}, None

    def _learn_neighbours(self, part: LogPart) -> None:
        if part.is_whole:
            for node in [n for n in self._known if n not in part.neighbours]:
                self._note(node, None, part.base)
            self._gone_unknown = max(self._gone_unknown, part.base)
        for node, standing in part.neighbours.items():
            known = self._known.get(node)
            if known is None or known.standing != standing:
                self._note(node, standing, part.base)

    def forget(self, base: int) -> None:
        """Everything up to `base` is stable and confirmed."""
        count = max(0, min(base, self.last) - self.base)
        for step, entry in enumerate(self.entries[:count], self.base + 1):
            self._fold(step, entry)
        del self.entries[:count]
        if base > self.base:
            self.base = base
            self.version += 1

    def _fold(self, step: int, entry: Entry) -> None:
        """Remember of an entry who stands next to the broker after it."""
        source, members = entry.source, entry.members
        if entry.kind is Taken.BATCH:
            known = self._known.get(source)
            if known is None:
                self._note(source, Standing(kind=BROKER, upto=entry.upto, has_joined=True), step)
            else:
                known.upto, known.step = entry.upto, step
        elif entry.kind is Taken.GONE:
            self._note(source, None, step)
        elif entry.kind is Taken.JOINED:
            self._note(source, members.joined, step)
        elif entry.kind is Taken.AWAY:
            self._change(source, step, is_away=True, interests=members.interests)
        elif entry.kind is Taken.BACK:
            self._change(source, step, is_away=False, interests=())
        elif entry.kind is Taken.ANEW and source != NOBODY:
            known = self._known.get(source)
            before = None if known is None else known.standing
            before = before or Standing(kind=BROKER, has_joined=True)
            self._note(source, attrs.evolve(before, era=entry.upto, upto=0), step)
        for node, place in entry.places:
            self._change(node, step, place=place)
        for topic, number in entry.numbers:
            self._numbers[topic] = number, step
        for topic, standing in entry.topics:
            self._topics[topic] = standing, step
        if entry.memory:
            self._memory = remembering(self._memory or {}, entry.memory)
        if members is not UNCHANGED:
            for node in members.admitted:
                self._change(node, step, has_joined=True)
            for node in members.removed:
                self._note(node, None, step)

    def _change(self, node: NodeId, step: int, **changes: Any) -> None:
        known = self._known.get(node)
        if known is not None and known.standing is not None:
            self._note(node, attrs.evolve(known.standing, **changes), step)

    def _note(self, node: NodeId, standing: Standing | None, step: int) -> None:
        self.version += 1
        self._known[node] = _Known(standing, standing.upto if standing else 0, step)
        self._gone.pop(node, None)
        if standing is None:
            self._gone[node] = None
            if len(self._gone) > GONE_REMEMBERED:
                first = next(iter(self._gone))
                del self._gone[first]
                self._gone_unknown = max(self._gone_unknown, self._known.pop(first).step)

    def copy(self) -> "StepLog":
        """Return the same, to be changed apart."""
        log = StepLog(self.base, self.term)
        log.entries = list(self.entries)
        log._known = {node: known.copy() for node, known in self._known.items()}
        log._gone = dict(self._gone)
        log._gone_unknown = self._gone_unknown
        log._numbers, log._topics = dict(self._numbers), dict(self._topics)
        log._memory = None if self._memory is None else dict(self._memory)
        return log


def remembering(memory: dict[str, str], changes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a memory after these changes; it is changed itself."""
    for name, text in changes:
        if text:
            memory[name] = text
        else:
            memory.pop(name, None)
    return memory


def longest(logs: Iterable[StepLog]) -> StepLog:
    """Return the log that tells most of a broker, of those that several nodes know."""
    known = list(logs)
    best = max(known, key=lambda log: (log.term, log.last)).copy()
    # The base of another one may be later: what is forgotten somewhere is stable everywhere.
    best.forget(max(log.base for log in known))
    return best
