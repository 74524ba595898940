"""Detectors of patterns: how much they take in, and how far two of them agree.

A detector is given trades of three symbols, and looks for one that is dear, one that is cheap and
one in between, in this order: three filters are asked about every delivery. Then two detectors, at
two ends of a random tree, look for A -> B -> C in what is published on five topics, five times a
second each, over links like those of a report on order among topics (MIDLAB TR 9/2011, section
6.1): most are fast, a fifth is slow, and every message takes its own time.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, Final

import attrs
import click

from plait.broker.client.core import ClientCore
from plait.broker.sim.world import World
from plait.faulttol.guarantees import check
from plait.routing.ids import NodeId
from plait.routing.patterns.detection import Detection, Policy
from plait.routing.patterns.detector import Detector
from plait.routing.values import Content
from plait.scripts.bench.topics_workload import WIDE_AREA
from plait.scripts.bench.topics_world import TopicsWorld
from plait.scripts.options import json_option
from plait.scripts.tables import print_table

STEPS: Final = "A -> B -> C"
TRADES: Final = {
    "A": "symbol = 'IBM' AND price > 100",
    "B": "symbol = 'BP' AND price < 110",
    "C": "symbol = 'SONY' AND price BETWEEN 95 AND 105",
}
SEARCHES: Final = (
    (Policy.CONTIGUOUS, None),
    (Policy.NEXT, None),
    (Policy.NEXT, 50),
    (Policy.ANY, 20),
)
ORDERINGS: Final = ("fifo", "pairwise", "sequencer", "tno")

TOPICS: Final = "abcde"
RATE: Final = 5.0
"""Publications a second on each topic."""
BROKERS: Final = 12
_BEGIN_S: Final = 60.0
_LONG_AFTER_S: Final = 120.0


@attrs.frozen(kw_only=True)
class Speed:
    """How much one detector takes in."""

    policy: str
    within: int | None
    deliveries_per_s: float
    matches: int


@attrs.frozen(kw_only=True)
class Agreement:
    """What two detectors have found under one ordering, in all trees together."""

    ordering: str
    policy: str
    matches: int
    alike: int

    @property
    def percent(self) -> float:
        """Of all that either of them has found, what both have."""
        return 100 * self.alike / max(1, self.matches)


def measure_speeds(deliveries: int, seed: int) -> Iterator[Speed]:
    """Give the same trades to a detector for each kind of search."""
    chance = random.Random(seed)
    trades: list[Content] = [
        {"symbol": symbol, "price": price}
        for symbol in ("IBM", "BP", "SONY")
        for price in range(90, 120)
    ]
    given = [chance.choice(trades) for _ in range(deliveries)]
    for policy, within in SEARCHES:
        what = Detection.of(STEPS, TRADES, policy=policy, within=within)
        detector: Detector[int] = Detector(what)
        matches = 0
        started = time.process_time()
        for number, content in enumerate(given):
            matches += len(detector.take(number, content))
        seconds = time.process_time() - started
        yield Speed(
            policy=policy.value,
            within=within,
            deliveries_per_s=deliveries / seconds,
            matches=matches,
        )


def measure_agreement(trees: int, seconds: float, seed: int) -> Iterator[Agreement]:
    """Let two detectors look for the same, under one ordering after the other."""
    for policy in (Policy.CONTIGUOUS, Policy.NEXT):
        for ordering in ORDERINGS:
            figures: Counter[str] = Counter()
            for tree in range(trees):
                figures.update(_play(seed + tree, ordering, policy, seconds))
            yield Agreement(
                ordering=ordering,
                policy=policy.value,
                matches=figures["matches"],
                alike=figures["matches alike"],
            )


# --- two detectors on a tree ----------------------------------------------------------------------


def _play(seed: int, ordering: str, policy: Policy, seconds: float) -> Mapping[str, int]:
    """Play one scene, the same under all orderings; returns what the judge has counted."""
    chance = random.Random(seed)
    world = TopicsWorld(seed, WIDE_AREA)
    brokers = [NodeId(f"b{number}") for number in range(BROKERS)]
    parents: dict[NodeId, NodeId | None] = {brokers[0]: None}
    for number in range(1, BROKERS):
        parents[brokers[number]] = brokers[chance.randrange(number)]
    for broker, parent in parents.items():
        world.add_broker(broker, parent, ordering=ordering)
    world.run(until=_BEGIN_S)
    for topic in TOPICS:
        _begin(world, f"p{topic}", chance.choice(brokers), "advertise", f"topic = '{topic}'")
    world.run(until=2 * _BEGIN_S)
    topics = ", ".join(f"'{topic}'" for topic in TOPICS)
    where = {letter: f"kind = '{letter}' AND topic IN ({topics})" for letter in "ABC"}
    what = Detection.of(STEPS, where, policy=policy)
    for name, broker in zip("st", _two_ends(parents), strict=True):
        _begin(world, name, broker, "detect", what)
    world.run(until=3 * _BEGIN_S)
    _publish_all(world, chance, seconds)
    world.run(until=world.now + seconds + _LONG_AFTER_S)
    report = check(world.records(), ordering=ordering)
    assert report.is_clean, f"{ordering}, seed {seed}: {report.violations[0]}"
    return report.figures


def _two_ends(parents: Mapping[NodeId, NodeId | None]) -> tuple[NodeId, NodeId]:
    """Return two brokers as far from each other as there are."""

    def way_up(broker: NodeId | None) -> list[NodeId]:
        return [] if broker is None else [broker, *way_up(parents[broker])]

    def distance(ends: tuple[NodeId, NodeId]) -> int:
        one, other = map(way_up, ends)
        return len({*one} ^ {*other})

    return max(combinations(parents, 2), key=distance)


def _publish_all(world: World, chance: random.Random, seconds: float) -> None:
    for topic in TOPICS:
        at = chance.expovariate(RATE)
        while at < seconds:
            content = {"topic": topic, "kind": chance.choice("ABC")}
            world.at(world.now + at, _call, world, NodeId(f"p{topic}"), "publish", content)
            at += chance.expovariate(RATE)


def _begin(world: World, name: str, broker: NodeId, what: str, about: Any) -> None:
    node = world.add_client(NodeId(name), broker)
    world.when_ready(node, partial(_call, world, NodeId(name), what, about))


def _call(world: World, name: NodeId, what: str, about: Any) -> None:
    node = world.nodes[name]
    assert isinstance(node.core, ClientCore)
    getattr(node.core, what)(world.now, about)
    world.carry_out_calls(node)


# --- the command ----------------------------------------------------------------------------------


@click.command()
@click.option("--deliveries", type=click.IntRange(min=1), default=200_000, show_default=True)
@click.option("--trees", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=40.0,
    show_default=True,
    help="Virtual seconds in which is published, on each tree.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of both workloads.")
@json_option("the figures")
def command(deliveries: int, trees: int, seconds: float, seed: int, as_json: bool) -> None:
    """Measure how much a detector takes in, and how far two agree under each ordering."""
    speeds = list(measure_speeds(deliveries, seed))
    agreements = list(measure_agreement(trees, seconds, seed))
    if as_json:
        figures = [[attrs.asdict(each) for each in part] for part in (speeds, agreements)]
        click.echo(json.dumps(dict(zip(("speeds", "agreements"), figures, strict=True))))
    else:
        _report(speeds, agreements)


def _report(speeds: Sequence[Speed], agreements: Sequence[Agreement]) -> None:
    print_table(
        ("policy", "within", "deliveries a second", "matches"),
        [
            (each.policy, each.within or "-", f"{each.deliveries_per_s:,.0f}", each.matches)
            for each in speeds
        ],
    )
    click.echo()
    print_table(
        ("ordering", "policy", "matches", "found by both", "alike"),
        [
            (each.ordering, each.policy, each.matches, each.alike, f"{each.percent:.0f} %")
            for each in agreements
        ],
    )
