"""Topics that change places (figures 16 to 20), in a model of 10,000 nodes and 1,000 topics.

With 100 topics each, so many subscribers share every two topics. So a stamp visits the manager of
every topic above its own, and what it takes follows from its topic's rank: so many routes, of as
many hops as Pastry needs, and the tree of SCRIBE after that.
"""

import enum
import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from plait.routing.topics.popularity import ALPHA, BETA, WINDOW
from plait.scripts.bench.topics_workload import WIDE_AREA, Law, popularity

NODES: Final = 10_000
TOPICS: Final = 1_000
SECONDS: Final = 1_800
SHUFFLED_AT: Final = 300
AVERAGED: Final = 10
"""Publications for a point in a figure of latencies, as in the document."""
ENTRY_BYTES: Final = 24
REMEMBERED_S: Final = float(WINDOW)
"""A publication counts for 1/e as much after so long, where rates count: brokers count in
publications, of which here there is one a second.
"""


class Order(enum.StrEnum):
    """How the order of topics comes about."""

    BEST = "static, by popularity"
    RANDOM = "static, random"
    COUNTED = "dynamic, by numbers (as published)"
    RATED = "dynamic, by rates"


@attrs.frozen(kw_only=True)
class Swapping:
    """What came of one run."""

    visited: Sequence[int]
    """By each publication in turn, one a second: managers above that of its topic."""
    latency_s: Sequence[float]
    swaps: int

    def mean_visited(self, first: int, last: int) -> float:
        """From one second to another."""
        part = self.visited[first:last]
        return sum(part) / len(part)

    def averaged_s(self) -> Iterator[tuple[float, float]]:
        """Latencies of several publications at a time, with when they were published."""
        yield from _averaged(self.latency_s)

    def averaged_bytes(self) -> Iterator[tuple[float, float]]:
        """Of stamps: an entry for each manager above, its own, and that of the epoch."""
        yield from _averaged([ENTRY_BYTES * (visited + 2) for visited in self.visited])


def _averaged(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    for first in range(0, len(values), AVERAGED):
        part = values[first : first + AVERAGED]
        yield first + len(part) / 2, sum(part) / len(part)


class _Counts:
    """How often each topic was published on: all in all, or lately."""

    def __init__(self, topics: int, remembered_s: float) -> None:
        self._counts = [0.0] * topics
        self._since = [0.0] * topics
        self._remembered_s = remembered_s

    def add(self, topic: int, now: float) -> None:
        """One more."""
        self._counts[topic] = self.of(topic, now) + 1
        self._since[topic] = now

    def of(self, topic: int, now: float) -> float:
        """By now."""
        age = now - self._since[topic]
        return self._counts[topic] * math.exp(-age / self._remembered_s)


def standing(count: float, alpha: float) -> float:
    """What the document compares: f(x) = e^(-1 / (α (x + 1)))."""
    return math.exp(-1 / (alpha * (count + 1)))


def count_that_exceeds(count: float, alpha: float, beta: float) -> float:
    """How much has to be published on a topic that is to go above one with this count."""
    bound = standing(count, alpha) + beta
    return -1 / (alpha * math.log(bound)) - 1 if bound < 1 else math.inf


def swap(
    order: Order,
    *,
    alpha: float = ALPHA,
    beta: float = BETA,
    shuffled_at: int | None = None,
    topics: int = TOPICS,
    seconds: int = SECONDS,
    seed: int = 0,
) -> Swapping:
    """Publish once a second, and let topics change places.

    Of all managers that a stamp passes and that would change places, the highest one does.
    """
    chance = random.Random(seed)
    weights = popularity(Law.STEEP, topics)
    popular = list(range(topics))
    chance.shuffle(popular)
    ranked = list(popular)
    if order is not Order.BEST:
        chance.shuffle(ranked)
    place = {topic: rank for rank, topic in enumerate(ranked)}
    counts = _Counts(topics, REMEMBERED_S if order is Order.RATED else math.inf)
    visited, latency_s, swaps = [], [], 0
    for now in range(seconds):
        if now == shuffled_at:
            chance.shuffle(popular)
        topic = popular[chance.choices(range(topics), weights)[0]]
        rank = place[topic]
        visited.append(rank)
        latency_s.append(_latency_s(rank, chance))
        counts.add(topic, now)
        if order in (Order.COUNTED, Order.RATED):
            own = standing(counts.of(topic, now), alpha)
            for above in range(rank):
                if own > standing(counts.of(ranked[above], now), alpha) + beta:
                    other = ranked[above]
                    ranked[above], ranked[rank] = topic, other
                    place[topic], place[other] = above, rank
                    swaps += 1
                    break
    return Swapping(visited=visited, latency_s=latency_s, swaps=swaps)


def _latency_s(visited: int, chance: random.Random) -> float:
    """To the first manager, past those above it, back, and then to all subscribers."""
    hops = math.log(NODES, 16)
    mean_s, variance = _hop()
    stamping = (visited + 2) * hops
    # To the root of the tree and down it; the last of many has a slow link on its way.
    notifying = hops * mean_s + WIDE_AREA.slow_s[0] + WIDE_AREA.slow_s[1] * 2
    return max(0.0, chance.gauss(stamping * mean_s, math.sqrt(stamping * variance))) + notifying


def _hop() -> tuple[float, float]:
    """Mean and variance of what a hop takes."""
    share, fast, slow = WIDE_AREA.share_fast, WIDE_AREA.fast_s, WIDE_AREA.slow_s
    mean = share * fast[0] + (1 - share) * slow[0]
    square = share * (fast[0] ** 2 + fast[1] ** 2) + (1 - share) * (slow[0] ** 2 + slow[1] ** 2)
    return mean, square - mean**2


@attrs.frozen(kw_only=True)
class Shuffle:
    """How far stamps travelled before popularity was shuffled, and after it."""

    at: int
    before: float
    just_after: float
    later: float
    """From 600 s after it on."""

    @property
    def quotient(self) -> float:
        """Later to before."""
        return self.later / self.before


RECOVERED_AFTER_S: Final = 600
WINDOW_S: Final = 300


def shuffle(order: Order, at: int, seeds: Sequence[int]) -> Shuffle:
    """Shuffle popularity at some time; means over several runs."""
    runs = [
        swap(order, shuffled_at=at, seconds=at + RECOVERED_AFTER_S + WINDOW_S, seed=seed)
        for seed in seeds
    ]
    back = at + RECOVERED_AFTER_S

    def mean(first: int, last: int) -> float:
        return sum(run.mean_visited(first, last) for run in runs) / len(runs)

    return Shuffle(
        at=at,
        before=mean(max(0, at - WINDOW_S), at),
        just_after=mean(at, at + 100),
        later=mean(back, back + WINDOW_S),
    )
