"""Everybody is told at once, and whether it was in order: stamps of the topics above.

After Baldoni, Bonomi, Platania and Querzoni, *Dynamic Message Ordering for Topic-Based
Publish/Subscribe Systems*, MIDLAB 9/2011. A publication's stamp has its number on its topic, which
the topic's manager gives out, and the present numbers of all higher topics that two subscribers
share with it, which their managers fill in. Subscribers compare stamps with what they have had;
what does not fit is delivered *tagged*. Any two of them have what is untagged in the same order.

As published that does not hold. `Correction` has what is missing, each with the schedule on which
it is missed (`tests/routing/topics/schedules.py`).
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from plait.routing.ids import NodeId
from plait.routing.topics.protocol import (
    COORDINATOR,
    Completed,
    Create,
    Effect,
    Fill,
    FillSubscription,
    Follow,
    Label,
    ManagerOf,
    Notify,
    Numbers,
    Renew,
    Send,
    Stamp,
    Stamped,
    Subscribed,
    Swap,
    Topic,
    Unfollow,
    UpdateSubscription,
    WantSwap,
    raised,
)
from plait.routing.topics.structure import companions


class Correction(enum.StrEnum):
    """What the document lacks."""

    OWN = "own"
    """A publication is later only if its number on its own topic is (T1)."""
    MERGE = "merge"
    """A clock is never set back, and remembers topics that were left (T2)."""
    VERSIONS = "versions"
    """Of what is told of a subscriber the latest counts, and names what it is about to have."""
    FLOORS = "floors"
    """Who leaves a topic says what it has had, and later stamps of its other topics say so (T3)."""
    MARKS = "marks"
    """And so does who subscribes to one (T4, T7)."""
    BOUNCE = "bounce"
    """What was stamped in an earlier epoch is stamped anew, and not lost (T6)."""


CORRECTED: Final = frozenset(Correction)
AS_PUBLISHED: Final[frozenset[Correction]] = frozenset()


class TaggingManager:
    """The manager of one topic."""

    def __init__(
        self,
        topic: Topic,
        order: Iterable[Topic],
        table: Mapping[NodeId, Collection[Topic]],
        corrections: Collection[Correction] = CORRECTED,
    ) -> None:
        """Begin with what everybody has subscribed to."""
        self.topic = topic
        self.order = tuple(order)
        self.number = 0
        """Of the last publication on this topic."""
        self.epoch = 0
        self._corrections = corrections
        self._subscribers = {
            name: (0, frozenset(topics)) for name, topics in table.items() if topic in topics
        }
        """Of everybody here: the version of what is known, and all its topics."""
        self._floor: dict[Topic, int] = {}
        """What everybody has had who was here and comes to share a topic, or shared one."""

    def know(self, topics: Iterable[Topic]) -> None:
        """Where nobody has said in which order topics are, it is that of their names."""
        self.order = tuple(sorted({*self.order, *topics}))

    def take(self, message: object) -> list[Effect]:
        """Take a message."""
        match message:
            case Create():
                return self._create(message)
            case Fill():
                return self._fill(message)
            case FillSubscription():
                return self._fill_subscription(message)
            case UpdateSubscription():
                return self._update(message)
            case Swap():
                return self._swap(message)
        raise TypeError(f"a topic manager does not take {message}")

    def want_swap(self, one: Topic, other: Topic) -> list[Effect]:
        """Ask for two topics to change places."""
        return [Send(COORDINATOR, WantSwap(one=one, other=other))]

    def _above(self) -> tuple[Topic, ...]:
        """The higher topics that two subscribers share with this one, the nearest first."""
        shared = companions(self.topic, (topics for _, topics in self._subscribers.values()))
        higher = self.order[: self.order.index(self.topic)]
        return tuple(topic for topic in reversed(higher) if topic in shared)

    def _create(self, request: Create) -> list[Effect]:
        self.number += 1
        fill = Fill(
            label=request.label,
            publisher=request.publisher,
            topic=self.topic,
            stamp=Stamp(entries={**self._floor, self.topic: self.number}, epoch=self.epoch),
            path=self._above(),
            order=self.order,
        )
        return self._pass_on(fill)

    @staticmethod
    def _pass_on(fill: Fill) -> list[Effect]:
        if fill.path:
            return [Send(ManagerOf(fill.path[0]), attrs.evolve(fill, path=fill.path[1:]))]
        return [Send(fill.publisher, Stamped(label=fill.label, topic=fill.topic, stamp=fill.stamp))]

    def _fill(self, fill: Fill) -> list[Effect]:
        if fill.stamp.epoch < self.epoch:  # "it simply discards that message"
            if Correction.BOUNCE not in self._corrections:
                return []
            again = Create(label=fill.label, publisher=fill.publisher)
            return [Send(ManagerOf(fill.topic), again)]
        self._learn(fill.stamp.epoch, fill.order)
        return self._pass_on(attrs.evolve(fill, stamp=self._entered(fill.stamp)))

    def _entered(self, stamp: Stamp) -> Stamp:
        return attrs.evolve(stamp, entries={**stamp.entries, self.topic: self.number})

    def _learn(self, epoch: int, order: tuple[Topic, ...]) -> None:
        if epoch > self.epoch:
            self.epoch, self.order = epoch, order

    def _swap(self, swap: Swap) -> list[Effect]:
        self._learn(swap.epoch, swap.order)
        if not swap.path:
            return []
        return [Send(ManagerOf(swap.path[0]), attrs.evolve(swap, path=swap.path[1:]))]

    # --- subscribers ------------------------------------------------------------------------

    def _fill_subscription(self, request: FillSubscription) -> list[Effect]:
        subscriber = request.subscriber
        if Correction.BOUNCE in self._corrections:
            if request.stamp.epoch < self.epoch:
                return [Send(subscriber, Renew(epoch=self.epoch, order=self.order))]
            self._learn(request.stamp.epoch, request.order)
        if not self._is_outdated(subscriber, request.version):
            self._subscribers[subscriber] = request.version, request.topics
        if Correction.MARKS in self._corrections:
            self._raise_floor(request.stamp.entries)
            self._raise_floor(request.clock)
        self.number += 1
        stamp = self._entered(request.stamp)
        if not request.path:
            return [Send(subscriber, Completed(added=request.added, stamp=stamp))]
        onwards = attrs.evolve(request, stamp=stamp, path=request.path[1:])
        return [Send(ManagerOf(request.path[0]), onwards)]

    def _update(self, update: UpdateSubscription) -> list[Effect]:
        if self._is_outdated(update.subscriber, update.version):
            return []
        if update.topics or Correction.VERSIONS in self._corrections:
            self._subscribers[update.subscriber] = update.version, update.topics
        else:
            self._subscribers.pop(update.subscriber, None)
        self._raise_floor(update.clock)
        return []

    def _is_outdated(self, subscriber: NodeId, version: int) -> bool:
        """Whether something later is known of a subscriber."""
        if Correction.VERSIONS not in self._corrections:
            return False
        known, _ = self._subscribers.get(subscriber, (-1, frozenset()))
        return known >= version

    def _raise_floor(self, clock: Numbers) -> None:
        self._floor = raised(self._floor, clock)
        self._floor.pop(self.topic, None)


class TaggingCoordinator:
    """The manager of the special topic: numbers the orders of topics."""

    def __init__(self, order: Iterable[Topic]) -> None:
        """Begin with an order."""
        self.order = tuple(order)
        self.epoch = 0

    def take(self, message: object) -> list[Effect]:
        """Let two topics change places, and tell everybody, the lowest first."""
        if not isinstance(message, WantSwap):
            raise TypeError(f"the coordinator does not take {message}")
        self.order = swapped(self.order, message.one, message.other)
        self.epoch += 1
        lowest, *path = reversed(self.order)
        swap = Swap(epoch=self.epoch, order=self.order, path=tuple(path))
        return [Send(ManagerOf(lowest), swap)]


def swapped(order: tuple[Topic, ...], one: Topic, other: Topic) -> tuple[Topic, ...]:
    """The order with two topics in each other's place."""
    places = {one: other, other: one}
    return tuple(places.get(topic, topic) for topic in order)


class TaggingSubscriber:
    """What stands between a subscriber's application and what notifies it."""

    def __init__(
        self,
        name: NodeId,
        topics: Iterable[Topic],
        order: Iterable[Topic],
        corrections: Collection[Correction] = CORRECTED,
    ) -> None:
        """Begin with these topics, of which nothing has been published."""
        self.name = name
        self.topics = set(topics)
        self.order = tuple(order)
        self.epoch = 0
        """Of the order that it knows."""
        self.clock = dict.fromkeys(sorted(self.topics), 0)
        """The last number of each topic that it has had, or has to have."""
        self._epoch_had = 0
        """The latest of what it has had."""
        self._corrections = corrections
        self._version = 0
        self._pending: Topic | None = None
        self._next: list[Topic] = []
        """To be subscribed to afterwards, one at a time."""

    # --- subscribing ------------------------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """Whether it does not have yet all that it has asked for."""
        return self._pending is not None

    def know(self, topics: Iterable[Topic]) -> None:
        """Where nobody has said in which order topics are, it is that of their names."""
        self.order = tuple(sorted({*self.order, *topics}))

    def leave(self) -> list[Effect]:
        """Leave all topics."""
        return [effect for topic in sorted(self.topics) for effect in self.unsubscribe(topic)]

    def subscribe(self, topic: Topic) -> list[Effect]:
        """Add a topic."""
        if topic in self.topics or topic == self._pending or topic in self._next:
            return []
        if self._pending is not None:
            self._next.append(topic)
            return []
        self._pending = topic
        return self._fill_in(topic)

    def _fill_in(self, added: Topic) -> list[Effect]:
        self._version += 1
        topics = frozenset(self.topics | {added})
        lowest, *path = (topic for topic in reversed(self.order) if topic in topics)
        request = FillSubscription(
            subscriber=self.name,
            topics=topics,
            added=added,
            stamp=Stamp(entries={}, epoch=self.epoch),
            path=tuple(path),
            version=self._version,
            order=self.order,
            clock=dict(self.clock) if Correction.MARKS in self._corrections else {},
        )
        return [Send(ManagerOf(lowest), request)]

    def unsubscribe(self, topic: Topic) -> list[Effect]:
        """Leave a topic."""
        if topic not in self.topics:
            return []
        self.topics.discard(topic)
        self._version += 1
        told = set(self.topics)
        if Correction.VERSIONS in self._corrections and self._pending is not None:
            told.add(self._pending)
        update = UpdateSubscription(
            subscriber=self.name,
            topics=frozenset(told),
            version=self._version,
            clock=dict(self.clock) if Correction.FLOORS in self._corrections else {},
        )
        gone = attrs.evolve(update, topics=frozenset(), clock={})
        return [
            Unfollow(topic),
            *(Send(ManagerOf(each), update) for each in sorted(told)),
            Send(ManagerOf(topic), gone),
        ]

    def take(self, message: object) -> list[Effect]:
        """Take what a manager answers."""
        match message:
            case Renew(epoch=epoch, order=order) if self._pending is not None:
                self.epoch, self.order = epoch, order
                return self._fill_in(self._pending)
            case Completed():
                return self._complete(message)
        raise TypeError(f"a subscriber does not take {message}")

    def _complete(self, completed: Completed) -> list[Effect]:
        if Correction.MERGE in self._corrections:
            self.clock = raised(self.clock, completed.stamp.entries)
        else:
            self.clock = dict(completed.stamp.entries)
        self._pending = None
        self.topics.add(completed.added)
        effects: list[Effect] = [Follow(completed.added), Subscribed(completed.added)]
        if self._next:
            effects += self.subscribe(self._next.pop(0))
        return effects

    # --- publications -----------------------------------------------------------------------

    def notify(self, label: Label, topic: Topic, stamp: Stamp) -> list[Effect]:
        """Hand a publication on, and say whether it comes in order."""
        if topic not in self.topics:
            return []
        in_order = self._is_in_order(topic, stamp)
        if in_order:
            entries = stamp.entries
            if not {Correction.MERGE, Correction.OWN} & set(self._corrections):
                entries = {x: number for x, number in entries.items() if x in self.clock}
            self.clock = raised(self.clock, entries)
            self._epoch_had = max(self._epoch_had, stamp.epoch)
        return [Notify(label, in_order)]

    def _is_in_order(self, topic: Topic, stamp: Stamp) -> bool:
        clock = self.clock
        both = [x for x in stamp.entries if x in clock]
        if stamp.epoch < self._epoch_had or any(clock[x] > stamp.entries[x] for x in both):
            return False
        if Correction.OWN in self._corrections:
            return clock.get(topic, 0) < stamp.entries[topic]
        return stamp.epoch > self._epoch_had or any(clock[x] < stamp.entries[x] for x in both)
