"""Everybody is told in order, and waits for that: stamps of both sides, as published.

After Baldoni, Bonomi, Platania and Querzoni, *Efficient Notification Ordering for Geo-Distributed
Pub/Sub Systems*, IEEE Transactions on Computers 64:10, 2015, supplemental material. Beside what
`tagging.py` has, a manager remembers of the lower topics what has passed it, and writes that on its
stamps; so a subscriber knows for what it has to wait.

It is here to be compared with. Nobody gets anything in a wrong order, but some wait for ever, and
some never get what they should (schedules B1 to B6); `total.py` has what holds. The figures have
slips, and are read kindly: only entries of topics that are subscribed to are compared; a clock
takes the values of the stamp, where the figure writes its own back; the second copy of a
subscriptionUpdate is dropped; what comes before a subscription is complete is kept.
"""

from collections.abc import Collection, Iterable, Mapping

import attrs

from plait.routing.ids import NodeId
from plait.routing.topics.protocol import (
    Announce,
    Completed,
    Create,
    Effect,
    Fill,
    FillSubscription,
    Follow,
    Label,
    ManagerOf,
    Notify,
    Send,
    Stamp,
    Stamped,
    Subscribed,
    Topic,
    Unfollow,
    UpdateSubscription,
    raised,
)
from plait.routing.topics.structure import companions


class BufferingManager:
    """The manager of one topic."""

    def __init__(
        self,
        topic: Topic,
        order: Iterable[Topic],
        table: Mapping[NodeId, Collection[Topic]],
    ) -> None:
        """Begin with what everybody has subscribed to."""
        self.topic = topic
        self.number = 0
        """Of the last publication on this topic."""
        self._rank = {each: place for place, each in enumerate(order)}
        self._subscribers = {
            name: frozenset(topics) for name, topics in table.items() if topic in topics
        }
        self._group = self._shared()
        self._passed = {each: 0 for each in self._group if self._is_lower(each)}
        """The last number of each lower topic that has passed here (LLC)."""

    def know(self, topics: Iterable[Topic]) -> None:
        """Where nobody has said in which order topics are, it is that of their names."""
        self._rank = {each: n for n, each in enumerate(sorted({*self._rank, *topics}))}

    def _shared(self) -> set[Topic]:
        return companions(self.topic, self._subscribers.values()) | {self.topic}

    def _is_lower(self, topic: Topic) -> bool:
        return self._rank[topic] > self._rank[self.topic]

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
        raise TypeError(f"a topic manager does not take {message}")

    def _create(self, request: Create) -> list[Effect]:
        entries = {each: self._passed.get(each, 0) for each in sorted(self._group)}
        self.number += 1
        entries[self.topic] = self.number
        above = [each for each in self._group - {self.topic} if not self._is_lower(each)]
        fill = Fill(
            label=request.label,
            publisher=request.publisher,
            topic=self.topic,
            stamp=Stamp(entries=entries),
            path=tuple(sorted(above, key=self._rank.__getitem__, reverse=True)),
        )
        return self._pass_on(fill)

    @staticmethod
    def _pass_on(fill: Fill) -> list[Effect]:
        if fill.path:
            return [Send(ManagerOf(fill.path[0]), attrs.evolve(fill, path=fill.path[1:]))]
        return [Send(fill.publisher, Stamped(label=fill.label, topic=fill.topic, stamp=fill.stamp))]

    def _fill(self, fill: Fill) -> list[Effect]:
        entries = fill.stamp.entries
        lower = {each: number for each, number in entries.items() if self._is_lower(each)}
        self._passed = raised(self._passed, lower)
        stamp = Stamp(entries={**entries, self.topic: self.number})
        return self._pass_on(attrs.evolve(fill, stamp=stamp))

    def _fill_subscription(self, request: FillSubscription) -> list[Effect]:
        self._subscribers[request.subscriber] = request.topics
        self._group = self._shared()
        entries = request.stamp.entries
        lower = {x: n for x, n in entries.items() if self._is_lower(x) and x in self._group}
        self._passed = raised(self._passed, lower)
        self.number += 1
        stamp = Stamp(entries={**entries, self.topic: self.number})
        if not request.path:
            return [Send(request.subscriber, Completed(added=request.added, stamp=stamp))]
        onwards = attrs.evolve(request, stamp=stamp, path=request.path[1:])
        return [Send(ManagerOf(request.path[0]), onwards)]

    def _update(self, update: UpdateSubscription) -> list[Effect]:
        if update.topics:
            self._subscribers[update.subscriber] = update.topics
        else:
            self._subscribers.pop(update.subscriber, None)
        self._group = self._shared()
        self._passed = {x: number for x, number in self._passed.items() if x in self._group}
        return []


@attrs.frozen
class _Kept:
    """What has come, and is not next."""

    topic: Topic
    stamp: Stamp
    label: Label | None
    """None if it is a subscriptionUpdate."""


class BufferingSubscriber:
    """What stands between a subscriber's application and what notifies it."""

    def __init__(self, name: NodeId, topics: Iterable[Topic], order: Iterable[Topic]) -> None:
        """Begin with these topics, of which nothing has been published."""
        self.name = name
        self.topics = set(topics)
        self.clock = dict.fromkeys(sorted(self.topics), 0)
        """The last number of each topic that it has had, or has to have."""
        self._order = tuple(order)
        self._waiting: list[_Kept] = []
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

    def know(self, topics: Iterable[Topic]) -> None:
        """Where nobody has said in which order topics are, it is that of their names."""
        self._order = tuple(sorted({*self._order, *topics}))

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
        self.topics.add(topic)
        lowest, *path = (each for each in reversed(self._order) if each in self.topics)
        request = FillSubscription(
            subscriber=self.name,
            topics=frozenset(self.topics),
            added=topic,
            stamp=Stamp(entries=dict.fromkeys(sorted(self.topics), 0)),
            path=tuple(path),
        )
        return [Follow(topic), Send(ManagerOf(lowest), request)]

    def unsubscribe(self, topic: Topic) -> list[Effect]:
        """Leave a topic."""
        if topic not in self.topics or topic == self._pending:
            return []
        self.topics.discard(topic)
        self.clock.pop(topic, None)
        update = UpdateSubscription(subscriber=self.name, topics=frozenset(self.topics))
        return [
            Unfollow(topic),
            *(Send(ManagerOf(each), update) for each in sorted(self.topics)),
            Send(ManagerOf(topic), attrs.evolve(update, topics=frozenset())),
        ]

    def take(self, message: object) -> list[Effect]:
        """Take what a manager answers."""
        if not isinstance(message, Completed):
            raise TypeError(f"a subscriber does not take {message}")
        stamp = message.stamp
        self._pending = None
        self.clock = {x: number for x, number in stamp.entries.items() if x in self.topics}
        effects: list[Effect] = []
        if message.added in self.topics:
            effects.append(Subscribed(message.added))
        effects += [Announce(topic, stamp) for topic in sorted(self.topics)]
        effects += self._release()
        if self._next:
            effects += self.subscribe(self._next.pop(0))
        return effects

    def notify(self, label: Label | None, topic: Topic, stamp: Stamp) -> list[Effect]:
        """Take in a publication, or a subscriptionUpdate, which has no label."""
        self._waiting.append(_Kept(topic, stamp, label))
        return self._release()

    def _release(self) -> list[Effect]:
        """Hand on what is next, and look again whenever something was."""
        effects: list[Effect] = []
        has_moved = True
        while has_moved:
            has_moved = False
            for each in list(self._waiting):
                if each.topic not in self.topics or self._is_over(each):
                    self._waiting.remove(each)
                elif self._is_next(each):
                    self._waiting.remove(each)
                    self._advance(each)
                    has_moved = True
                    if each.label is not None:
                        effects.append(Notify(each.label))
        return effects

    def _entries(self, each: _Kept) -> dict[Topic, int]:
        return {x: number for x, number in each.stamp.entries.items() if x in self.clock}

    def _is_over(self, each: _Kept) -> bool:
        """Whether it is a further copy of an update."""
        entries = self._entries(each)
        return each.label is None and all(self.clock[x] >= n for x, n in entries.items())

    def _is_next(self, each: _Kept) -> bool:
        entries = self._entries(each)
        own = entries.pop(each.topic, None)
        if each.label is None:
            return all(n == self.clock[x] + 1 for x, n in entries.items())
        return (
            own is not None
            and own == self.clock[each.topic] + 1
            and all(n == self.clock[x] for x, n in entries.items())
        )

    def _advance(self, each: _Kept) -> None:
        if each.label is None:
            self.clock = raised(self.clock, self._entries(each))
        else:
            self.clock[each.topic] = each.stamp.entries[each.topic]
