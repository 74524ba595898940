"""Who has subscribed to which topics, as one broker knows it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.regions import hull
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics.protocol import Topic
from plait.routing.value_sets import pairs_of
from plait.routing.values import Kind

TOPIC: Final = "topic"
"""The attribute that says on which topic something is published."""


def topics_of(wanted: Filter) -> frozenset[Topic] | None:
    """The topics that a filter names; None if what it lets through has no fixed set of them."""
    if not wanted.regions:
        return frozenset()
    topics = set()
    for first, last in pairs_of(hull(wanted.regions).get(TOPIC, ((), ()))):
        if len(first) != 2 or last != (*first, 1) or first[0] != Kind.STRING:
            return None
        topics.add(Topic(first[1]))
    return frozenset(topics)


def _ignore(topic: Topic, entry: Subscription) -> None:
    """Nobody has to know."""


class TopicTable:
    """Where subscribers of each topic are, and how many have two topics in common."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._hops: dict[Topic, Counter[NodeId]] = defaultdict(Counter)
        """How many subscriptions lie by each hop."""
        self._topics: dict[NodeId, Counter[Topic]] = defaultdict(Counter)
        """How many subscriptions to each topic a subscriber has."""
        self._in_common: dict[Topic, Counter[Topic]] = defaultdict(Counter)
        """With each other topic, how many subscribers have both."""
        self.left: set[Topic] = set()
        """Those that somebody has left who may have one of the others now."""
        self.when_subscribed: Callable[[Topic, Subscription], None] = _ignore
        self.when_left: Callable[[Topic, Subscription], None] = _ignore

    def hops(self, topic: Topic) -> Iterable[NodeId]:
        """Where subscribers of a topic are."""
        return self._hops.get(topic, {}).keys()

    def has(self, client: NodeId, topic: Topic) -> bool:
        """Whether a client has subscribed to a topic."""
        return topic in self._topics.get(client, ())

    def companions(self, topic: Topic) -> list[Topic]:
        """The topics whose order with this one matters to two subscribers, in a fixed order.

        That is, both have both; or one has both, and somebody has left one of them: that may have
        got something on it before it got anything on the other.
        """
        is_left = topic in self.left
        return sorted(
            other
            for other, count in self._in_common.get(topic, {}).items()
            if count > 1 or is_left or other in self.left
        )

    # --- as an observer of the tables -------------------------------------------------------

    def add_advertisement(self, entry: Advertisement) -> None:
        """Publishers do not matter here."""

    def remove_advertisement(self, entry: Advertisement) -> None:
        """Publishers do not matter here."""

    def add_subscription(self, entry: Subscription) -> None:
        """Somebody has subscribed."""
        own = self._topics[entry.client]
        for topic in sorted(topics_of(entry.filter) or ()):
            self._hops[topic][entry.hop] += 1
            own[topic] += 1
            if own[topic] == 1:
                self._count(topic, own, 1)
            self.when_subscribed(topic, entry)

    def remove_subscription(self, entry: Subscription) -> None:
        """Somebody has gone."""
        own = self._topics[entry.client]
        for topic in sorted(topics_of(entry.filter) or ()):
            _take_one(self._hops[topic], entry.hop)
            _take_one(own, topic)
            if topic not in own:
                self._count(topic, own, -1)
                self.left.add(topic)
            self.when_left(topic, entry)
        if not own:
            del self._topics[entry.client]

    def _count(self, topic: Topic, others: Iterable[Topic], change: int) -> None:
        for other in others:
            if other != topic:
                for one, two in ((topic, other), (other, topic)):
                    both = self._in_common[one]
                    both[two] += change
                    if not both[two]:
                        del both[two]


_Key = TypeVar("_Key")


def _take_one(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
