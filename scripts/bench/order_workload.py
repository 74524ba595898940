"""Who publishes what and who wants it, when orderings are compared: the workload of the report.

The report is "Total Order in Content-Based Publish/Subscribe Systems", section V. Its overlay is a
chain of core brokers, each with five edge brokers, where all clients are. Advertisements and
subscriptions are spread evenly over the edge brokers, one per client, and each publisher publishes
every four seconds. Some of the clients are of conflicting topics, the others of topics that cannot
conflict, though their publications cross the same brokers:

- A topic *conflicts* if it has publishers and subscribers at several edge brokers. Either all of
  them share one (`EVERYBODY`), or every two of them, drawn at random, have one (`PAIRS`).
- A topic does not conflict if all its publishers are at one edge broker. Its subscribers are there
  and at another one, half the overlay away.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from plait.topologies.builders import chain_of_cores
from plait.topologies.overlay import Overlay

EDGES_PER_CORE: Final = 5
INTERVAL_S: Final = 4.0
PUBLICATIONS: Final = 200
EVERYBODY: Final = "everybody"
PAIRS: Final = "pairs"
SHARINGS: Final = (EVERYBODY, PAIRS)


@attrs.frozen
class Party:
    """A client: a publisher or a subscriber of one topic."""

    name: str
    broker: str
    topic: str
    conflicts: bool


@attrs.frozen(kw_only=True)
class Scene:
    """What is to be tried; two scenes that are equal are the same down to the last publication."""

    cores: int
    publishers: int
    subscribers: int
    conflicting: float = 1.0
    """The share of publishers and subscribers with a conflicting topic."""
    sharing: str = EVERYBODY
    publications: int = PUBLICATIONS
    """Of all publishers together."""
    interval_s: float = INTERVAL_S
    """From one publication of a publisher to its next."""
    seed: int = 0

    @property
    def brokers(self) -> int:
        """How many brokers there are."""
        return self.cores * (1 + EDGES_PER_CORE)

    @property
    def overlay(self) -> Overlay:
        """The brokers."""
        return chain_of_cores(self.cores, EDGES_PER_CORE)

    @property
    def edges(self) -> tuple[str, ...]:
        """The brokers that have clients."""
        return self.overlay.brokers[self.cores :]

    def cast(self) -> tuple[list[Party], list[Party]]:
        """The publishers, and the subscribers."""
        chance = random.Random(self.seed)
        shared = _shared_topics(self.edges, self.sharing, chance)
        publishers = self._parties("p", self.publishers, shared, chance)
        subscribers = self._parties("s", self.subscribers, shared, chance)
        return publishers, subscribers

    def _parties(
        self, prefix: str, count: int, shared: Mapping[str, str], chance: random.Random
    ) -> list[Party]:
        edges = self.edges
        conflicting = [number < round(self.conflicting * count) for number in range(count)]
        chance.shuffle(conflicting)
        parties = []
        for number, conflicts in enumerate(conflicting):
            turn, place = divmod(number, len(edges))
            is_far = prefix == "s" and turn % 2 == 1
            home = edges[(place + is_far * (len(edges) // 2)) % len(edges)]
            topic = shared[edges[place]] if conflicts else f"of {home}"
            parties.append(Party(f"{prefix}{number}", edges[place], topic, conflicts))
        return parties

    def calendar(self) -> list[tuple[float, int]]:
        """When each publication is published, in seconds from the start, and by which publisher."""
        chance = random.Random(self.seed + 1)
        first = [chance.uniform(0, self.interval_s) for _ in range(self.publishers)]
        rounds = 1 + self.publications // self.publishers
        times = [
            (phase + turn * self.interval_s, publisher)
            for turn in range(rounds)
            for publisher, phase in enumerate(first)
        ]
        return sorted(times)[: self.publications]


def _shared_topics(edges: Sequence[str], sharing: str, chance: random.Random) -> Mapping[str, str]:
    """The conflicting topic of every edge broker."""
    if sharing == EVERYBODY:
        return dict.fromkeys(edges, EVERYBODY)
    shuffled = list(edges)
    chance.shuffle(shuffled)
    return {edge: f"pair {place // 2}" for place, edge in enumerate(shuffled)}
