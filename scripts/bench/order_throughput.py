"""How much an ordering lets through as publishers grow in number, in virtual time.

For this, brokers are busy for as long as the real core and codec are, sockets left out. The
report's sequencer was saturated by 130 publishers; what a publisher publishes here per second is
chosen so that under `sequencer` 130 of them are as much as gets through, and so it says how the
other orderings compare, whatever machine this is.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from plait.scripts.bench.garbage import no_garbage_collection
from plait.scripts.bench.order_workload import PAIRS, Scene
from plait.scripts.bench.order_world import play

SEQUENCER: Final = "sequencer"
PUBLISHERS: Final = (65, 130, 180, 240)
"""The report goes to 240, too."""
SATURATING_PUBLISHERS: Final = 130
DURATION_S: Final = 0.15
"""For how long publishers publish; whatever is delivered later does not count."""
LINK_DELAY_S: Final = 0.0002
MEASURED_FROM: Final = 0.4
"""Of the duration: by then, all queues are as full as they get, or growing."""
SATURATED_BELOW: Final = 0.95
"""Of what is offered."""
FIRST_GUESS_PER_S: Final = 300.0
OVERLOAD: Final = 2.0
"""What gets through is asked with so many times what seems to be enough: a broker that is late
takes more at once, and so can do more."""


@attrs.frozen(kw_only=True)
class Load:
    """What came of so many publishers."""

    ordering: str
    publishers: int
    offered_per_s: float
    """Publications of all publishers together."""
    done: float
    """Deliveries in the time looked at, as a share of those owed for what was published in it."""
    busiest: float
    """The share of the time that the broker with most work worked."""

    @property
    def done_per_s(self) -> float:
        """Publications per second that get through."""
        return self.done * self.offered_per_s


@attrs.frozen(kw_only=True)
class Throughput:
    """What came of all of them."""

    rate_per_s: float
    """Of every publisher."""
    loads: Sequence[Load]

    def saturated_by(self, ordering: str) -> int | None:
        """How many publishers are the first that are too many, among those that were tried."""
        for load in self.loads:
            if load.ordering == ordering and load.done < SATURATED_BELOW:
                return load.publishers
        return None


def scene_of(publishers: int, rate_per_s: float, cores: int) -> Scene:
    """So many publishers, everything conflicting; two subscribers at every edge broker."""
    return Scene(
        cores=cores,
        publishers=publishers,
        subscribers=10 * cores,
        sharing=PAIRS,
        publications=max(publishers, round(publishers * rate_per_s * DURATION_S)),
        interval_s=1 / rate_per_s,
    )


def measure_throughput(
    orderings: Sequence[str],
    *,
    cores: int,
    publishers: Sequence[int] = PUBLISHERS,
    rounds: int,
    tell: Callable[[str], None],
) -> Throughput:
    """Find the rate, and let publishers grow in number; orderings take turns."""
    tell(f"what is too much for {SEQUENCER}")
    guess = try_load(SATURATING_PUBLISHERS, FIRST_GUESS_PER_S, SEQUENCER, cores)
    too_much = OVERLOAD * FIRST_GUESS_PER_S / guess.busiest
    most = try_load(SATURATING_PUBLISHERS, too_much, SEQUENCER, cores)
    rate = most.done_per_s / SATURATING_PUBLISHERS
    loads = []
    for count in publishers:
        tried: dict[str, list[Load]] = {ordering: [] for ordering in orderings}
        for number in range(rounds):
            for ordering in orderings:
                tell(f"round {number + 1} of {rounds}: {count} publishers under {ordering}")
                tried[ordering].append(try_load(count, rate, ordering, cores))
        loads += [
            sorted(tries, key=lambda load: load.done)[rounds // 2] for tries in tried.values()
        ]
    return Throughput(rate_per_s=rate, loads=loads)


def try_load(publishers: int, rate_per_s: float, ordering: str, cores: int) -> Load:
    """Let so many publishers publish at this rate."""
    scene = scene_of(publishers, rate_per_s, cores)
    with no_garbage_collection():
        outcome = play(
            scene, ordering, link_delay_s=LINK_DELAY_S, are_brokers_busy=True, until_s=DURATION_S
        )
    begins = MEASURED_FROM * DURATION_S
    cast, subscribers = scene.cast()
    subscriptions = Counter(party.topic for party in subscribers)
    owed = sum(
        subscriptions[cast[publisher].topic]
        for at, publisher in scene.calendar()
        if begins <= at < DURATION_S
    )
    return Load(
        ordering=ordering,
        publishers=publishers,
        offered_per_s=publishers * rate_per_s,
        done=sum(at >= begins for at in outcome.delivered_at_s) / owed,
        busiest=max(outcome.busy_s.values()) / DURATION_S,
    )
