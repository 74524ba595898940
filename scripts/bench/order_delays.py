"""What an ordering costs in time and messages, publication by publication, beside `fifo`.

All orderings play the same scene, so every delivery of one has its like in the other. What may be
added to it is a matter of geometry. A publication climbs from its publisher's broker to a *summit*,
the lowest broker that has all its subscribers below it. On its way it passes the broker where the
way to a given subscriber branches off. That broker may have to wait for the summit, so a round trip
between the two, the *conflict path*, is what this subscriber may have to wait longer. Where the
ways of subscribers branch off at the summit itself, nobody below them waits, and no more do they.
"""

import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import attrs

from plait.faulttol.guarantees import check
from plait.routing.orderings import DEFAULT_ORDERING
from plait.scripts.bench.order_workload import Party, Scene
from plait.scripts.bench.order_world import LINK_DELAY_S, Outcome, PublicationId
from plait.scripts.bench.trials import quantile
from plait.topologies.overlay import Overlay

_TOLERANCE_S: Final = 1e-9
"""Times are sums of the same numbers, but not always in the same order."""
PAIRS_LOOKED_AT: Final = 50
"""Pairs of subscribers whose streams are compared for the ordering degree."""


@attrs.frozen(kw_only=True)
class Delays:
    """The delays of many deliveries."""

    deliveries: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    local_p50_ms: float
    """Of those to a subscriber at the publisher's own broker: the report looks at no others."""


@attrs.frozen(kw_only=True)
class Point:
    """One scene under one ordering."""

    scene: Scene
    ordering: str
    conflicting: Delays
    others: Delays
    """Those that cannot conflict."""
    messages_per_publication: Mapping[str, float]
    """By type."""
    ordering_degree: float
    """1 if any two subscribers agree on the order of what they share."""
    disagreements: int
    """Pairs of subscribers that disagree, as `faulttol/guarantees.py` sees it."""
    other_violations: int
    leftovers: tuple[str, ...]
    detection_us: float
    """Median time to find out whether a publication conflicts; NaN if this ordering never asks."""
    against_fifo: "AgainstFifo"

    @property
    def messages(self) -> float:
        """Of all types, per publication."""
        return sum(self.messages_per_publication.values())


@attrs.frozen(kw_only=True)
class AgainstFifo:
    """What an ordering adds to the same deliveries under `fifo`."""

    others_changed: int
    """Publications that cannot conflict, with another delay or another number of copies."""
    others: int
    messages_added: int
    """Of any type, in the whole scene."""
    waited: int
    """Deliveries of conflicting publications that came later than under fifo."""
    waited_too_long: int
    """Later than by a round trip of the conflict path."""
    longest_wait_in_round_trips: float
    above: int
    """Deliveries of conflicting publications to subscribers above all brokers that wait."""
    above_later: int
    """Those of them that came later than under fifo."""


class Geometry:
    """Where publications climb to, and where the ways to their subscribers branch off."""

    def __init__(self, overlay: Overlay, subscribers: Sequence[Party]) -> None:
        """Look at an overlay with these subscribers."""
        self._to_root: dict[str, list[str]] = {}
        for broker in overlay.brokers:
            parent = overlay.parent_of(broker)
            self._to_root[broker] = [broker, *(self._to_root[parent] if parent else ())]
        self._brokers: dict[str, set[str]] = {}
        """Of the subscribers of each topic."""
        for party in subscribers:
            self._brokers.setdefault(party.topic, set()).add(party.broker)

    def depth_of_meeting(self, one: str, other: str) -> int:
        """How many links lie between the root and the broker where two ways to it meet."""
        return len(set(self._to_root[one]) & set(self._to_root[other])) - 1

    def conflict_path(self, publisher: Party, subscriber: Party) -> int:
        """The links between the broker where the way to a subscriber branches off, and the top."""
        summit = min(
            self.depth_of_meeting(publisher.broker, broker)
            for broker in self._brokers[publisher.topic]
        )
        return self.depth_of_meeting(publisher.broker, subscriber.broker) - summit


def look_at(
    scene: Scene, outcome: Outcome, fifo: Outcome, *, link_delay_s: float = LINK_DELAY_S
) -> Point:
    """Find out everything about a scene that has been played, under `fifo` too."""
    publishers, subscribers = scene.cast()
    parties = {party.name: party for party in (*publishers, *subscribers)}
    report = check(outcome.records, ordering=DEFAULT_ORDERING)
    disagreements = sum(violation.guarantee == DEFAULT_ORDERING for violation in report.violations)
    return Point(
        scene=scene,
        ordering=outcome.ordering,
        conflicting=_delays(outcome, parties, is_conflicting=True),
        others=_delays(outcome, parties, is_conflicting=False),
        messages_per_publication={
            kind: count / len(outcome.delays_s) for kind, count in outcome.messages.items()
        },
        ordering_degree=_mean_ordering_degree(scene, outcome, subscribers),
        disagreements=disagreements,
        other_violations=len(report.violations) - disagreements,
        leftovers=outcome.leftovers,
        detection_us=quantile(sorted(outcome.detections_us), 0.50),
        against_fifo=_compare(outcome, fifo, parties, scene.overlay, link_delay_s),
    )


def _delays(outcome: Outcome, parties: Mapping[str, Party], *, is_conflicting: bool) -> Delays:
    delays_ms, local_ms = [], []
    for (publisher, _), delays in outcome.delays_s.items():
        if parties[publisher].conflicts == is_conflicting:
            for subscriber, delay in delays.items():
                delays_ms.append(1e3 * delay)
                if parties[publisher].broker == parties[subscriber].broker:
                    local_ms.append(1e3 * delay)
    delays_ms.sort()
    return Delays(
        deliveries=len(delays_ms),
        p50_ms=quantile(delays_ms, 0.50),
        p99_ms=quantile(delays_ms, 0.99),
        max_ms=quantile(delays_ms, 1.0),
        local_p50_ms=quantile(sorted(local_ms), 0.50),
    )


def _compare(
    outcome: Outcome,
    fifo: Outcome,
    parties: Mapping[str, Party],
    overlay: Overlay,
    link_delay_s: float,
) -> AgainstFifo:
    geometry = Geometry(overlay, [p for name, p in parties.items() if name in outcome.streams])
    counts: Counter[str] = Counter()
    longest = 0.0
    for publication, delays in outcome.delays_s.items():
        publisher = parties[publication[0]]
        before = fifo.delays_s[publication]
        assert before.keys() == delays.keys(), f"{publication} went elsewhere under fifo"
        if not publisher.conflicts:
            counts["others"] += 1
            counts["others changed"] += (
                any(abs(delays[name] - before[name]) > _TOLERANCE_S for name in delays)
                or outcome.copies[publication] != fifo.copies[publication]
            )
            continue
        for name, delay in delays.items():
            added = delay - before[name]
            round_trip = 2 * link_delay_s * geometry.conflict_path(publisher, parties[name])
            counts["waited"] += added > _TOLERANCE_S
            counts["too long"] += added > round_trip + _TOLERANCE_S
            if round_trip:
                longest = max(longest, added / round_trip)
            else:
                counts["above"] += 1
                counts["above later"] += added > _TOLERANCE_S
    return AgainstFifo(
        others=counts["others"],
        others_changed=counts["others changed"],
        messages_added=sum(outcome.messages.values()) - sum(fifo.messages.values()),
        waited=counts["waited"],
        waited_too_long=counts["too long"],
        longest_wait_in_round_trips=longest,
        above=counts["above"],
        above_later=counts["above later"],
    )


def _mean_ordering_degree(scene: Scene, outcome: Outcome, subscribers: Sequence[Party]) -> float:
    """Compare random pairs of subscribers at different brokers, as the report does."""
    pairs = [
        (one.name, other.name)
        for one, other in combinations([party for party in subscribers if party.conflicts], 2)
        if one.topic == other.topic and one.broker != other.broker
    ]
    random.Random(scene.seed).shuffle(pairs)
    degrees = [
        ordering_degree(outcome.streams[one], outcome.streams[other])
        for one, other in pairs[:PAIRS_LOOKED_AT]
    ]
    return statistics.fmean(degrees) if degrees else 1.0


def ordering_degree(one: Sequence[PublicationId], other: Sequence[PublicationId]) -> float:
    """Say how well two streams agree on what is in both: 1 is perfectly.

    A publication that is displaced by D in a stream of S counts S - D; that is divided by what it
    could be at most, S * S.
    """
    common = set(one) & set(other)
    if not common:
        return 1.0
    place = {name: number for number, name in enumerate(n for n in one if n in common)}
    displaced = (
        abs(place[name] - number) for number, name in enumerate(n for n in other if n in common)
    )
    return sum(len(common) - distance for distance in displaced) / len(common) ** 2
