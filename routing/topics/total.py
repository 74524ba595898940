"""Everybody is told in order, nothing is tagged and nothing is lost: what both documents want.

Managers stamp a publication with its number on its topic, with what they know of lower topics, and
with what managers of higher topics fill in; a subscriber delivers when it has had all that a stamp
names. What makes that end for everybody is `Structure`: all that passes a manager goes on to the
same next one. It stands for an *epoch*. When a pair of topics comes to be shared that was not, or
topics change places, the coordinator ends the epoch: managers stop giving out numbers (what is
published waits), let what is under way pass, and begin the next one, from the numbers reached (the
*base*). Subscribers have all of an epoch before anything of the next.

Why any two subscribers agree: in an epoch every two publications of shared topics meet at the
manager of the higher one, and one of them names the other. Why nobody waits for ever: let all
stamps run on to the root of their tree; the order there extends the order of every manager.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from plait.routing.ids import NodeId
from plait.routing.topics.popularity import COUNT, FIXED, is_due, passing, rate_of
from plait.routing.topics.protocol import (
    COORDINATOR,
    Appoint,
    Create,
    Effect,
    Fill,
    Follow,
    Label,
    ManagerOf,
    Notify,
    Numbers,
    Send,
    Stamp,
    Stamped,
    Subscribed,
    Topic,
    Unfollow,
    WantSwap,
    raised,
)
from plait.routing.topics.structure import Structure, shared_pairs
from plait.routing.topics.tagging import swapped

LINGERING_MAX: Final = 64
"""Subscribers who have left something, whom a coordinator remembers: then it ends the epoch."""


FROM_NOTHING: Final[Numbers] = {}


@attrs.frozen(kw_only=True)
class Ask:
    """A subscriber tells the coordinator to what it is going to be subscribed."""

    subscriber: NodeId
    topics: frozenset[Topic]
    added: Topic


@attrs.frozen(kw_only=True)
class Left:
    """A subscriber tells the coordinator what it still has."""

    subscriber: NodeId
    topics: frozenset[Topic]
    is_gone: bool = False
    """Whether it will never have anything any more."""


@attrs.frozen(kw_only=True)
class WantAbove:
    """A topic is to be above another one: they change places if it is not."""

    topic: Topic
    other: Topic


@attrs.frozen(kw_only=True)
class Granted:
    """Everybody orders what is shared by now."""

    added: Topic


@attrs.frozen(kw_only=True)
class Read:
    """A subscriber asks a manager how far its topic is."""

    subscriber: NodeId


@attrs.frozen(kw_only=True)
class Value:
    """So far."""

    topic: Topic
    number: int


@attrs.frozen(kw_only=True)
class Prepare:
    """The coordinator ends the epoch before this one: no more numbers."""

    epoch: int


@attrs.frozen(kw_only=True)
class Close:
    """From one manager to the next: nothing more comes on this way before this epoch begins."""

    epoch: int
    topic: Topic


@attrs.frozen(kw_only=True)
class Closed:
    """A manager has let everything pass, and given out so many numbers."""

    epoch: int
    topic: Topic
    number: int


@attrs.frozen(kw_only=True)
class Start:
    """An epoch begins."""

    structure: Structure


@attrs.frozen(kw_only=True)
class Base:
    """For subscribers: what everybody has before anything of this epoch."""

    epoch: int
    base: Numbers


class Manager:
    """The manager of one topic."""

    def __init__(self, topic: Topic, structure: Structure, adapting: str = FIXED) -> None:
        """Begin with an epoch; topics change places by how much is published on them, or do not."""
        self.topic = topic
        self._adapting = adapting
        self._rates: dict[Topic, int] = {}
        """How much of what has come by of late was on which topic."""
        self.number = 0
        """Of the last publication on this topic."""
        self._structure = structure
        self._passed = dict.fromkeys(structure.order, 0)
        """The last number of each topic that has passed here."""
        self._preparing: int | None = None
        self._is_closed = False
        self._closed_below: dict[int, set[Topic]] = defaultdict(set)
        """By epoch, whose stamps have all passed."""
        self._unstamped: list[Create] = []
        """What is published while an epoch ends."""
        self._early: list[Fill] = []
        """What is of an epoch that has not begun here."""

    @property
    def waiting(self) -> tuple[Label, ...]:
        """What is held here until the epoch has changed."""
        early = [fill.label for fill in self._early]
        return (*early, *(request.label for request in self._unstamped))

    def take(self, message: object) -> list[Effect]:
        """Take a message."""
        match message:
            case Create():
                return self._create(message)
            case Fill():
                return self._fill(message)
            case Read(subscriber=subscriber):
                return [Send(subscriber, Value(topic=self.topic, number=self.number))]
            case Prepare(epoch=epoch):
                self._preparing = epoch
                return self._close_if_all_is_past()
            case Close(epoch=epoch, topic=topic):
                self._closed_below[epoch].add(topic)
                return self._close_if_all_is_past()
            case Start(structure=structure):
                return self._start(structure)
        raise TypeError(f"a topic manager does not take {message}")

    def want_swap(self, one: Topic, other: Topic) -> list[Effect]:
        """Ask for two topics to change places."""
        return [Send(COORDINATOR, WantSwap(one=one, other=other))]

    def _create(self, request: Create) -> list[Effect]:
        if self._preparing is not None:
            self._unstamped.append(request)
            return []
        structure = self._structure
        self.number += 1
        entries = {
            each: self._passed[each]
            for each in sorted(structure.shared[self.topic])
            if structure.is_lower(each, self.topic)
        }
        fill = Fill(
            label=request.label,
            publisher=request.publisher,
            topic=self.topic,
            stamp=Stamp(entries={**entries, self.topic: self.number}, epoch=structure.epoch),
            path=structure.path(self.topic),
        )
        self._look_how_popular(fill)
        return self._pass_on(fill)

    def _look_how_popular(self, fill: Fill) -> bool:
        """Whether what passes should be on a topic in this one's place."""
        if self._adapting == FIXED:
            return False
        if self._adapting == COUNT:
            return is_due(fill.stamp.entries[fill.topic], self.number)
        passing(self._rates, fill.topic, self._structure.rank)
        return is_due(rate_of(self._rates, fill.topic), rate_of(self._rates, self.topic))

    @staticmethod
    def _pass_on(fill: Fill) -> list[Effect]:
        if fill.path:
            return [Send(ManagerOf(fill.path[0]), attrs.evolve(fill, path=fill.path[1:]))]
        stamped = Stamped(label=fill.label, topic=fill.topic, stamp=fill.stamp)
        effects: list[Effect] = [Send(fill.publisher, stamped)]
        if fill.passes:  # the highest one asks
            wanted = WantAbove(topic=fill.topic, other=Topic(fill.passes))
            effects.append(Send(COORDINATOR, wanted))
        return effects

    def _fill(self, fill: Fill) -> list[Effect]:
        structure, topic, stamp = self._structure, fill.topic, fill.stamp
        if stamp.epoch > structure.epoch:
            self._early.append(fill)
            return []
        is_over = stamp.epoch < structure.epoch or self._is_closed
        assert not is_over, f"{fill} of an epoch that has ended"
        if self.topic in structure.shared[topic]:
            number = stamp.entries[topic]
            assert self._passed[topic] < number, f"{fill} after {self._passed[topic]}"
            self._passed[topic] = number
            stamp = attrs.evolve(stamp, entries={**stamp.entries, self.topic: self.number})
        if self._look_how_popular(fill):
            fill = attrs.evolve(fill, passes=self.topic)
        return self._pass_on(attrs.evolve(fill, stamp=stamp))

    # --- from one epoch to the next ---------------------------------------------------------

    def _close_if_all_is_past(self) -> list[Effect]:
        epoch = self._preparing
        if epoch is None or self._is_closed:
            return []
        if self._closed_below[epoch] != self._structure.children[self.topic]:
            return []
        self._is_closed = True
        effects: list[Effect] = []
        parent = self._structure.parent.get(self.topic)
        if parent is not None:
            effects.append(Send(ManagerOf(parent), Close(epoch=epoch, topic=self.topic)))
        closed = Closed(epoch=epoch, topic=self.topic, number=self.number)
        return [*effects, Send(COORDINATOR, closed)]

    def _start(self, structure: Structure) -> list[Effect]:
        self._closed_below.pop(structure.epoch, None)
        self._structure, self._preparing, self._is_closed = structure, None, False
        self._passed = raised(self._passed, structure.base)
        early, self._early = self._early, []
        unstamped, self._unstamped = self._unstamped, []
        effects: list[Effect] = []
        for fill in early:
            effects += self._fill(fill)
        for request in unstamped:
            effects += self._create(request)
        return effects


class TotalCoordinator:
    """Knows who has subscribed to what, and when an epoch has to end. One change at a time."""

    def __init__(
        self,
        structure: Structure,
        table: Mapping[NodeId, Collection[Topic]],
        sharers: int = 2,
    ) -> None:
        """Begin with the first epoch. A pair of topics is shared if so many subscribers have it.

        With one it is enough that somebody has both: then all that one publisher publishes in turn
        comes to each subscriber in that order, too.
        """
        self.structure = structure
        self._sharers = sharers
        self.changes = 0
        """How many epochs have ended."""
        self._order = structure.order
        self._table = {name: frozenset(topics) for name, topics in table.items()}
        self._lingering: dict[NodeId, frozenset[Topic]] = {}
        """What subscribers have left in this epoch: of that they had something."""
        self._to_grant: list[tuple[NodeId, Topic]] = []
        self._is_changing = self._is_to_change_again = False
        self._later: list[Ask] = []
        """What names new topics, while an epoch ends in which they are not."""
        self._numbers: dict[Topic, int] = {}

    def take(self, message: object) -> list[Effect]:
        """Take a message."""
        match message:
            case Ask():
                return self._ask(message)
            case Left():
                return self._left(message)
            case WantSwap(one=one, other=other):
                if not {one, other} <= set(self._order):
                    return []
                self._order = swapped(self._order, one, other)
                return self._change()
            case WantAbove(topic=topic, other=other):
                return self._rank(topic, other)
            case Closed():
                return self._note_closed(message)
        raise TypeError(f"the coordinator does not take {message}")

    def _ask(self, ask: Ask) -> list[Effect]:
        new = sorted(ask.topics - set(self._order))
        if new and self._is_changing:
            self._later.append(ask)
            return []
        self._order += tuple(new)
        effects: list[Effect] = [Appoint(topic) for topic in new]
        self._table[ask.subscriber] = ask.topics
        had = {
            name: self._table.get(name, frozenset()) | self._lingering.get(name, frozenset())
            for name in self._table.keys() | self._lingering.keys()
        }
        if shared_pairs(had, self._sharers) <= set(self.structure.pairs):
            return [*effects, Send(ask.subscriber, Granted(added=ask.added))]
        self._to_grant.append((ask.subscriber, ask.added))
        return [*effects, *self._change()]

    def _left(self, left: Left) -> list[Effect]:
        """Remember what somebody has left until the epoch ends; if that gets too much, end it."""
        name = left.subscriber
        had = self._table.pop(name, frozenset())
        gone = had - left.topics
        if not left.is_gone:
            self._table[name] = had & left.topics
        if gone:
            self._lingering[name] = self._lingering.get(name, frozenset()) | gone
        return self._change() if len(self._lingering) > LINGERING_MAX else []

    def _rank(self, topic: Topic, other: Topic) -> list[Effect]:
        """Asked twice, it is done once; and what nobody has subscribed to is nowhere."""
        if not {topic, other} <= set(self._order):
            return []
        if self._order.index(topic) <= self._order.index(other):
            return []
        self._order = swapped(self._order, topic, other)
        return self._change()

    def _change(self) -> list[Effect]:
        if self._is_changing:
            self._is_to_change_again = True
            return []
        self._is_changing, self._numbers = True, {}
        prepare = Prepare(epoch=self.structure.epoch + 1)
        return [Send(ManagerOf(topic), prepare) for topic in self._order]

    def _note_closed(self, closed: Closed) -> list[Effect]:
        if closed.topic in self._order:  # else nobody has subscribed to it yet
            self._numbers[closed.topic] = closed.number
        if len(self._numbers) < len(self._order):
            return []
        self._lingering.clear()
        pairs = shared_pairs(self._table, self._sharers)
        self.structure = structure = Structure(closed.epoch, self._order, pairs, self._numbers)
        self.changes += 1
        base = Base(epoch=structure.epoch, base=structure.base)
        start = Start(structure=structure)
        effects: list[Effect] = [Send(ManagerOf(topic), start) for topic in structure.order]
        effects += [Send(name, base) for name in sorted(self._table)]
        effects += [Send(name, Granted(added=topic)) for name, topic in self._to_grant]
        self._to_grant.clear()
        self._is_changing = False
        later, self._later = self._later, []
        for ask in later:
            effects += self._ask(ask)
        if self._is_to_change_again and not self._is_changing:
            self._is_to_change_again = False
            effects += self._change()
        return effects


@attrs.frozen
class _Waiting:
    """What has come, and may not be delivered yet."""

    label: Label | None
    """None if it is never going to be published."""
    topic: Topic
    stamp: Stamp


class Subscriber:
    """What stands between a subscriber's application and what notifies it."""

    def __init__(
        self, name: NodeId, topics: Iterable[Topic], epoch: int = 0, base: Numbers = FROM_NOTHING
    ) -> None:
        """Begin with these topics, of which nothing has been published; in this epoch."""
        self.name = name
        self.topics = set(topics)
        self.clock = dict.fromkeys(sorted(self.topics), 0)
        """The last number of each topic that it has had, or had missed when it came."""
        self._seen: dict[Topic, int] = {}
        """What stamps named of whatever topic: of that it must not get anything later."""
        self._bases: dict[int, Numbers] = {epoch: base}
        self._waiting: list[_Waiting] = []
        self._pending: Topic | None = None
        self._next: list[Topic] = []

    @property
    def held(self) -> list[Label]:
        """The publications that wait, in the order in which they came."""
        return [each.label for each in self._waiting if each.label is not None]

    @property
    def is_pending(self) -> bool:
        """Whether it does not have yet all that it has asked for."""
        return self._pending is not None

    def leave(self) -> list[Effect]:
        """Leave all topics, for ever."""
        left = Left(subscriber=self.name, topics=frozenset(), is_gone=True)
        return [Send(COORDINATOR, left)]

    def subscribe(self, topic: Topic) -> list[Effect]:
        """Add a topic."""
        if topic in self.topics or topic == self._pending or topic in self._next:
            return []
        if self._pending is not None:
            self._next.append(topic)
            return []
        self._pending = topic
        topics = frozenset(self.topics.union(self._next, [topic]))
        return [Send(COORDINATOR, Ask(subscriber=self.name, topics=topics, added=topic))]

    def unsubscribe(self, topic: Topic) -> list[Effect]:
        """Leave a topic."""
        if topic not in self.topics:
            return []
        self.topics.discard(topic)
        del self.clock[topic]
        asked = self._next if self._pending is None else [*self._next, self._pending]
        left = Left(subscriber=self.name, topics=frozenset(self.topics.union(asked)))
        return [Unfollow(topic), Send(COORDINATOR, left), *self._release()]

    def take(self, message: object) -> list[Effect]:
        """Take what a manager or the coordinator says."""
        match message:
            case Granted(added=topic):
                return [Follow(topic), Send(ManagerOf(topic), Read(subscriber=self.name))]
            case Value(topic=topic, number=number):
                self._pending = None
                self.topics.add(topic)
                self.clock[topic] = max(number, self._seen.get(topic, 0))
                effects: list[Effect] = [Subscribed(topic), *self._release()]
                if self._next:
                    effects += self.subscribe(self._next.pop(0))
                return effects
            case Base(epoch=epoch, base=base):
                self._bases[epoch] = base
                return self._release()
        raise TypeError(f"a subscriber does not take {message}")

    def notify(self, label: Label | None, topic: Topic, stamp: Stamp) -> list[Effect]:
        """Take in a publication; returns what may be delivered now.

        Without a label it has a number, and whoever was to publish it is gone.
        """
        self._waiting.append(_Waiting(label, topic, stamp))
        return self._release()

    def _release(self) -> list[Effect]:
        """Deliver what waits for nothing any more, and look again whenever something was."""
        effects: list[Effect] = []
        has_moved = True
        while has_moved:
            has_moved = False
            for each in list(self._waiting):
                if self._is_of_no_use(each):
                    self._waiting.remove(each)
                elif each.topic in self.clock and self.lacking(each.topic, each.stamp) is None:
                    self._waiting.remove(each)
                    self._deliver(each)
                    has_moved = True
                    if each.label is not None:
                        effects.append(Notify(each.label))
        self._forget_bases()
        return effects

    def _forget_bases(self) -> None:
        """Whoever has all that was published before an epoch gets nothing more of those before."""
        for epoch in sorted(self._bases)[1:]:
            base = self._bases[epoch]
            if self._pending is not None or any(n < base.get(x, 0) for x, n in self.clock.items()):
                return
            for earlier in [each for each in self._bases if each < epoch]:
                del self._bases[earlier]

    def _is_of_no_use(self, each: _Waiting) -> bool:
        """Whether nobody has subscribed to it, or it was published before that."""
        topic = each.topic
        if topic not in self.topics:
            return topic != self._pending
        return topic in self.clock and each.stamp.entries[topic] <= self.clock[topic]

    def lacking(self, topic: Topic, stamp: Stamp) -> Numbers | None:
        """What has to come before something with this stamp, by topic; None if nothing has to.

        No numbers, if it is of an epoch that has not begun here.
        """
        base = self._bases.get(stamp.epoch)
        if base is None:
            return {}
        due = raised(stamp.entries, base)
        due[topic] = max(stamp.entries[topic] - 1, base.get(topic, 0))
        missing = {x: n for x, n in due.items() if x in self.clock and self.clock[x] < n}
        return missing or None

    def _deliver(self, each: _Waiting) -> None:
        self.clock[each.topic] += 1
        self._seen = raised(self._seen, each.stamp.entries)
        self._seen = raised(self._seen, self._bases[each.stamp.epoch])
