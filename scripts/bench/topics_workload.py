"""Who publishes on which topic, who wants it, how long links take: the settings of the document.

The document is "Dynamic Message Ordering for Topic-Based Publish/Subscribe Systems", MIDLAB 9/2011,
section 6.1. It gives power laws by what they come to: with shape 0.269, 40 % of the topics get 80 %
of what is published, with shape 0.901, 0.5 % of them. Here that is Zipf's law, with the exponent
for which this holds among a thousand topics, which is what the document has most of.
"""

import enum
import functools
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from plait.topologies.builders import chain_of_cores, filled_tree, random_tree
from plait.topologies.overlay import Overlay

FANOUT: Final = 16
"""Of a broker: Pastry's digits are hexadecimal, and so SCRIBE's trees are about as wide."""
PUBLISHERS_MAX: Final = 20
SUBSCRIBERS_MAX: Final = 100
"""More than that say no more about the last of them, and each is known to every broker."""
_CALIBRATED_WITH: Final = 1_000
"""Topics."""


class Law(enum.StrEnum):
    """On which topics most is published, or most subscribe."""

    UNIFORM = "uniform"
    WORST = "worst case"
    """All on the topic that comes last in the order of topics."""
    FLAT = "power law 0.269"
    STEEP = "power law 0.901"


_SHARES: Final = {Law.FLAT: (0.4, 0.8), Law.STEEP: (0.005, 0.8)}
"""Such a part of the topics gets such a part of all."""


@functools.cache
def exponent(law: Law) -> float:
    """Of Zipf's law."""
    part, mass = _SHARES[law]
    low, high = 0.0, 5.0
    for _ in range(50):
        middle = (low + high) / 2
        weights = zipf(middle, _CALIBRATED_WITH)
        reached = sum(weights[: round(part * _CALIBRATED_WITH)])
        low, high = (middle, high) if reached < mass else (low, middle)
    return low


def zipf(steepness: float, topics: int) -> list[float]:
    """How much each topic has of all, the most popular one first."""
    weights = [(rank + 1) ** -steepness for rank in range(topics)]
    total = sum(weights)
    return [weight / total for weight in weights]


def popularity(law: Law, topics: int) -> list[float]:
    """How much each topic has of all, in an order of topics with the most popular one first."""
    if law is Law.UNIFORM:
        return [1 / topics] * topics
    if law is Law.WORST:
        return [*[0.0] * (topics - 1), 1.0]
    return zipf(exponent(law), topics)


def draw_topics(
    chance: random.Random, weights: Sequence[float], names: Sequence[str], count: int
) -> frozenset[str]:
    """So many different topics, the popular ones rather than others."""
    if count >= len(names):
        return frozenset(names)
    # The largest of u^(1/w) are a sample without replacement, by weight (Efraimidis, Spirakis).
    keys = {
        name: chance.random() ** (1 / weight)
        for name, weight in zip(names, weights, strict=True)
        if weight
    }
    return frozenset(sorted(keys, key=keys.__getitem__, reverse=True)[:count])


# --- links ----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Links:
    """How long messages take on links between brokers; each link is of one class for good."""

    fast_s: tuple[float, float] = (0.021, 0.01085)
    """Mean and standard deviation of a normal distribution."""
    slow_s: tuple[float, float] = (0.240, 0.12927)
    share_fast: float = 0.8
    shortest_s: float = 0.001
    """Where the distribution is cut off: it has negative values, too."""
    client_s: float = 0.0
    """Between a client and its broker: in the document they are one process."""
    uplink_bits_per_s: float | None = None
    """What a broker can send in all; None is as much as it likes."""

    def draw_class(self, chance: random.Random) -> tuple[float, float]:
        """The class of a link."""
        return self.fast_s if chance.random() < self.share_fast else self.slow_s

    def draw(self, chance: random.Random, kind: tuple[float, float]) -> float:
        """How long one message takes on a link of this class."""
        return max(self.shortest_s, chance.gauss(*kind))


WIDE_AREA: Final = Links()
UPLINK_BITS_PER_S: Final = 1_000_000.0
"""The document says "standard ADSL bandwidth"; this is what that was in 2011, at best."""
ADSL: Final = Links(share_fast=1.0, uplink_bits_per_s=UPLINK_BITS_PER_S)
"""What the document's prototype ran on: machines 21 ms apart."""
ALIKE: Final = Links(fast_s=(0.01, 0.0), share_fast=1.0, client_s=0.01)


# --- scenes ---------------------------------------------------------------------------------------


@attrs.frozen
class Event:
    """Something that is published."""

    at: float
    publisher: str
    topic: str
    kind: str = ""
    """What it is, for who looks for patterns."""


@attrs.frozen(kw_only=True)
class Scene:
    """What is to be tried."""

    name: str
    overlay: Overlay
    topics: tuple[str, ...]
    """In the order of topics, highest first."""
    subscribers: Mapping[str, tuple[str, frozenset[str]]]
    """The broker and the topics of each."""
    publishers: Mapping[str, str]
    """The broker of each."""
    events: Mapping[str, tuple[Event, ...]]
    """By the name of a part: parts are played one after the other in one overlay."""
    links: Links = WIDE_AREA
    body_bytes: int = 0
    """Of each publication."""
    seed: int = 0

    @property
    def brokers(self) -> int:
        """How many."""
        return len(self.overlay.brokers)


def topic_names(count: int) -> tuple[str, ...]:
    """Names, the highest first."""
    return tuple(f"t{number}" for number in range(count))


def calendar(
    chance: random.Random,
    publishers: Sequence[str],
    topics: Sequence[str],
    weights: Sequence[float],
    *,
    rate: float,
    count: int,
) -> tuple[Event, ...]:
    """So many publications at random moments, so many a second."""
    times = itertools.accumulate(chance.expovariate(rate) for _ in range(count))
    drawn = chance.choices(topics, weights, k=count)
    return tuple(
        Event(at, chance.choice(publishers), topic) for at, topic in zip(times, drawn, strict=True)
    )


def everybody_wants_everything(
    brokers: int,
    laws: Sequence[Law],
    *,
    topics: int,
    count: int,
    rate: float = 1.0,
    publishers: int = PUBLISHERS_MAX,
    subscribers: int = SUBSCRIBERS_MAX,
    fanout: int = FANOUT,
    links: Links = WIDE_AREA,
    body_bytes: int = 0,
    seed: int = 0,
) -> Scene:
    """Figures 9 to 12 and 22 to 24: all subscribe to all topics; a part for each law."""
    chance = random.Random(seed)
    overlay = filled_tree(brokers, fanout)
    names = topic_names(topics)
    at = _spread(chance, overlay, subscribers)
    theirs = {f"p{n}": broker for n, broker in enumerate(_spread(chance, overlay, publishers))}
    return Scene(
        name=f"{brokers} brokers",
        overlay=overlay,
        topics=names,
        subscribers={f"s{n}": (broker, frozenset(names)) for n, broker in enumerate(at)},
        publishers=theirs,
        events={
            law: calendar(
                chance, sorted(theirs), names, popularity(law, topics), rate=rate, count=count
            )
            for law in laws
        },
        links=links,
        body_bytes=body_bytes,
        seed=seed,
    )


def some_want_some(
    brokers: int,
    law: Law,
    *,
    topics: int,
    each: int,
    count: int,
    is_worst_order: bool = False,
    rate: float = 1.0,
    seed: int = 0,
) -> Scene:
    """Figures 13 to 15: everybody subscribes to so many topics, by the law of publications."""
    chance = random.Random(seed)
    overlay = filled_tree(brokers, FANOUT)
    names = topic_names(topics)
    weights = popularity(law, topics)
    if is_worst_order:
        weights.reverse()
    at = _spread(chance, overlay, SUBSCRIBERS_MAX)
    theirs = {f"p{n}": broker for n, broker in enumerate(_spread(chance, overlay, PUBLISHERS_MAX))}
    return Scene(
        name=f"{law}, {each} topics each",
        overlay=overlay,
        topics=names,
        subscribers={
            f"s{n}": (broker, draw_topics(chance, weights, names, each))
            for n, broker in enumerate(at)
        },
        publishers=theirs,
        events={law: calendar(chance, sorted(theirs), names, weights, rate=rate, count=count)},
        seed=seed,
    )


def detectors(
    brokers: int, rates: Sequence[float], *, count: int, topics: int = 5, seed: int = 0
) -> Scene:
    """Figure 21: two subscribers look for a pattern in what is published on all topics.

    A part for each rate, in publications a second and topic. Everybody is anywhere in a random
    tree, where ways are of different lengths.
    """
    chance = random.Random(seed)
    overlay = random_tree(brokers, seed)
    names = topic_names(topics)
    places = chance.sample(overlay.brokers, topics + 2)
    publishers = {f"p{n}": places[n] for n in range(topics)}
    events: dict[str, tuple[Event, ...]] = {}
    for rate in rates:
        times = itertools.accumulate(chance.expovariate(rate * topics) for _ in range(count))
        drawn = [chance.randrange(topics) for _ in range(count)]
        events[f"{rate:g}"] = tuple(
            Event(at, f"p{number}", names[number], chance.choice("ABC"))
            for at, number in zip(times, drawn, strict=True)
        )
    return Scene(
        name="two detectors",
        overlay=overlay,
        topics=names,
        subscribers={f"s{n}": (places[topics + n], frozenset(names)) for n in range(2)},
        publishers=publishers,
        events=events,
        seed=seed,
    )


def moving_topics(brokers: int, topics: int, count: int, seed: int = 0) -> Scene:
    """Figure 20 on the cores: in the middle of it, other topics are popular."""
    scene = everybody_wants_everything(brokers, (), topics=topics, count=count, seed=seed)
    chance = random.Random(f"moving {seed}")
    events: list[Event] = []
    for part in (count // 2, count - count // 2):
        weights = popularity(Law.STEEP, topics)
        chance.shuffle(weights)
        began = events[-1].at if events else 0.0
        drawn = calendar(
            chance, sorted(scene.publishers), scene.topics, weights, rate=1.0, count=part
        )
        events += [attrs.evolve(event, at=began + event.at) for event in drawn]
    return attrs.evolve(scene, events={Law.STEEP: tuple(events)})


def _spread(chance: random.Random, overlay: Overlay, most: int) -> list[str]:
    """One for every broker, or so many at brokers drawn at random."""
    brokers = list(overlay.brokers)
    return brokers if len(brokers) <= most else chance.sample(brokers, most)


# --- what order costs -----------------------------------------------------------------------------

CORES: Final = 4
EDGES: Final = 5
COST_SUBSCRIBERS: Final = 40
COST_PUBLICATIONS: Final = 300
COST_SECONDS: Final = 3.0
COST_WORKLOADS: Final = ("all of 20 topics", "4 of 20", "2 of 40", "4 of 5 in the region")


def cost_scene(workload: str, seed: int = 0) -> Scene:
    """24 brokers, links alike: what `tno` costs beside `pairwise`."""
    chance = random.Random(f"{workload} {seed}")
    overlay = chain_of_cores(CORES, EDGES)
    edges = overlay.brokers[CORES:]
    count = {"all of 20 topics": 20, "4 of 20": 20, "2 of 40": 40}.get(workload, 5 * CORES)
    names = topic_names(count)
    subscribers = {}
    publishers = {f"p{number}": edge for number, edge in enumerate(edges)}
    for number in range(COST_SUBSCRIBERS):
        edge = number % len(edges)
        wanted: Sequence[str] = names
        if workload.endswith("region"):
            wanted = chance.sample(_of_region(names, edge), 4)
        elif workload != COST_WORKLOADS[0]:
            wanted = chance.sample(names, int(workload[0]))
        subscribers[f"s{number}"] = (edges[edge], frozenset(wanted))
    events = []
    for number in range(COST_PUBLICATIONS):
        edge = chance.randrange(len(edges))
        topics = _of_region(names, edge) if workload.endswith("region") else names
        at = COST_SECONDS * number / COST_PUBLICATIONS
        events.append(Event(at, f"p{edge}", chance.choice(topics)))
    return Scene(
        name=workload,
        overlay=overlay,
        topics=names,
        subscribers=subscribers,
        publishers=publishers,
        events={workload: tuple(events)},
        links=ALIKE,
        seed=seed,
    )


def _of_region(names: Sequence[str], edge: int) -> Sequence[str]:
    """The topics of the core broker below which an edge broker is."""
    each = len(names) // CORES
    region = edge // EDGES
    return names[region * each : (region + 1) * each]
