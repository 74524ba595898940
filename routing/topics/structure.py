"""Who shares which topics, and the ways on which stamps are filled."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from plait.routing.ids import NodeId
from plait.routing.topics.protocol import Numbers, Topic

Pair = frozenset[Topic]


def shared_pairs(table: Mapping[NodeId, Collection[Topic]], sharers: int = 2) -> set[Pair]:
    """The pairs of topics that two subscribers have in common: only there can they disagree."""
    counts = Counter(p for topics in table.values() for p in combinations(sorted(topics), 2))
    return {frozenset(pair) for pair, count in counts.items() if count >= sharers}


def companions(topic: Topic, sets: Iterable[Collection[Topic]]) -> set[Topic]:
    """The topics that two of these sets, all with `topic`, have in common beside that."""
    counts = Counter(each for topics in sets for each in topics)
    return {each for each, count in counts.items() if count > 1} - {topic}


class Structure:
    """What everybody knows of an epoch: the order, who shares what, and the sequencing forest.

    The forest is the elimination tree of the graph of shared pairs, lowest rank first: a topic's
    parent is the lowest of the higher ones that it, or one below it, shares. All that passes a
    topic manager goes on to the same next one. So there is one way between any two managers, and
    links that keep an order keep what a manager has decided. With two ways there may be no order in
    which everybody could deliver (schedules B1 and B6). A topic of which it does not know is shared
    with no other.
    """

    def __init__(
        self, epoch: int, order: Iterable[Topic], pairs: Collection[Pair], base: Numbers
    ) -> None:
        """Begin the epoch with the numbers that had been given out before it."""
        self.epoch = epoch
        self.order = tuple(order)
        self.pairs = pairs
        self.base = dict(base)
        self.rank = rank = {topic: place for place, topic in enumerate(self.order)}
        """0 is the highest."""
        self.shared: dict[Topic, set[Topic]] = defaultdict(set)
        for one, other in map(sorted, pairs):
            self.shared[one].add(other)
            self.shared[other].add(one)
        filled = {
            topic: {other for other in self.shared[topic] if rank[other] < rank[topic]}
            for topic in self.order
        }
        self.parent: dict[Topic, Topic] = {}
        """Of a topic that has one."""
        self.children: dict[Topic, set[Topic]] = defaultdict(set)
        for topic in reversed(self.order):
            above = filled[topic]
            parent = max(above, key=rank.__getitem__, default=None)
            if parent is not None:
                self.parent[topic] = parent
                self.children[parent].add(topic)
                filled[parent] |= above - {parent}

    def is_lower(self, topic: Topic, other: Topic) -> bool:
        """Whether a topic ranks below another one."""
        return self.rank[topic] > self.rank[other]

    def path(self, topic: Topic) -> tuple[Topic, ...]:
        """Whom a stamp visits after the manager of its topic: up to the highest that shares it."""
        if not self.shared[topic]:
            return ()
        top = min((*self.shared[topic], topic), key=self.rank.__getitem__)
        path = []
        while topic != top:
            topic = self.parent[topic]
            path.append(topic)
        return tuple(path)
