"""Conflict detection: how long it takes, and how often it makes a publication wait in vain.

*Time.* One broker, with ten neighbours and clients, one of them its parent, by which all the
advertisements lie. Advertisements and subscriptions are those of a stock market; every subscriber
has four subscriptions. Every publication is another content, so no route is remembered, and each
is timed by itself: does it conflict, given the bit set of the subscriptions that match? That set is
routing's: it is needed under every ordering, and its time is shown beside. So is the time to find
the subscribers, which is spent only on what is held, or comes while something is held. Nothing is
kept from one publication to the next by the fast test. The exact test keeps its verdicts on pairs
of subscriptions, as long as nobody withdraws anything, so there are two figures for it: with
nothing known, and once pairs are known.

*Waits in vain.* The same random overlay, calls and network twice, once with either test. The exact
test's waits are those that the definition asks for; what the fast test makes wait beside them need
not have waited.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import click

from plait.broker.client.core import ClientCore
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.nodes import Node
from plait.broker.sim.workloads import random_content, random_filter
from plait.broker.sim.world import World
from plait.routing.conflicts import DETECTIONS, EXACT, FAST, Conflicts
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.orderings import Cause
from plait.routing.tables import RoutingEntry, SubscriptionTable
from plait.routing.values import Content
from plait.scripts.bench.match import (
    HOPS,
    draw_publication,
    draw_subscription,
    draw_symbol,
    microseconds,
    quantile,
)
from plait.scripts.options import json_option
from plait.topologies.builders import random_tree

SUBSCRIPTIONS_EACH: Final = 4
SMALL: Final = (100, 1_000)
LARGE: Final = (1_000, 10_000)
"""Advertisements and subscriptions."""
LINK_DELAY_S: Final = 0.005
BROKERS: Final = 7
PUBLISHERS: Final = 5
SUBSCRIBERS: Final = 8
PUBLICATIONS: Final = 40
"""Of each publisher, within a second."""


@attrs.frozen(kw_only=True)
class Times:
    """Microseconds for one publication, with so many advertisements and subscriptions."""

    advertisements: int
    subscriptions: int
    conflicting_percent: float
    exactly_conflicting_percent: float
    matching_p50_us: float
    """To find the subscriptions that match, which routing does anyway."""
    subscribers_p50_us: float
    """To find who has these subscriptions, for what is held."""
    fast_p50_us: float
    fast_p99_us: float
    exact_new_p50_us: float
    """With no verdict on any pair kept."""
    exact_p50_us: float
    exact_p99_us: float


@attrs.frozen(kw_only=True)
class Waits:
    """How often publications waited for a parent, over many overlays of one kind."""

    workload: str
    overlays: int
    publications: int
    fast: int
    exact: int

    @property
    def in_vain_percent(self) -> float:
        """How much of the fast test's waiting need not have been."""
        return 100 * (self.fast - self.exact) / self.fast if self.fast else 0.0


@attrs.frozen(kw_only=True)
class Figures:
    """Everything."""

    seed: int
    small: Times
    large: Times
    waits: list[Waits]

    @property
    def times_slower_with_many(self) -> float:
        """How the fast test grows."""
        return self.large.fast_p50_us / self.small.fast_p50_us

    def to_json(self) -> dict[str, object]:
        """Everything, ratios included."""
        waits = [
            attrs.asdict(each) | {"in_vain_percent": each.in_vain_percent} for each in self.waits
        ]
        return {
            "seed": self.seed,
            "times": [attrs.asdict(self.small), attrs.asdict(self.large)],
            "times_slower_with_many": self.times_slower_with_many,
            "waits": waits,
        }


def measure(rounds: int = 2_000, overlays: int = 100, seed: int = 0) -> Figures:
    """Measure both sizes, and the waits of both workloads."""
    return Figures(
        seed=seed,
        small=measure_times(*SMALL, rounds=rounds, seed=seed),
        large=measure_times(*LARGE, rounds=rounds, seed=seed),
        waits=[measure_waits(name, overlays=overlays, seed=seed) for name in WORKLOADS],
    )


# --- time ---------------------------------------------------------------------------------------


def measure_times(advertisements: int, subscriptions: int, *, rounds: int, seed: int = 0) -> Times:
    """Time both tests at one broker."""
    chance = random.Random(seed)
    table = SubscriptionTable()
    tests = {name: Conflicts(table.index, detection=name) for name in DETECTIONS}
    for number in range(subscriptions):
        client = NodeId(f"s{number // SUBSCRIPTIONS_EACH}")
        entry = RoutingEntry(
            id=SubscriptionId(f"{client}/{number}"),
            client=client,
            filter=parse_filter(draw_subscription(chance)),
            path=(NodeId(f"hop{number // SUBSCRIPTIONS_EACH % HOPS}"),),
        )
        table.add(entry)
        for conflicts in tests.values():
            conflicts.add_subscription(entry)
    parent = NodeId("hop0")
    for number in range(advertisements):
        announced = RoutingEntry(
            id=AdvertisementId(f"p{number}/1"),
            client=NodeId(f"p{number}"),
            filter=parse_filter(f"symbol = '{draw_symbol(chance)}' AND price >= {number % 100}"),
            path=(parent,),
        )
        for conflicts in tests.values():
            conflicts.add_advertisement(announced)
    contents = [draw_publication(chance) for _ in range(rounds)]
    matching = [table.index.matching_bits(content) for content in contents]

    def ask(conflicts: Conflicts) -> Callable[[int], bool]:
        return lambda matching: conflicts.is_conflict(matching, parent)

    exact = ask(tests[EXACT])
    new = microseconds(exact, matching)
    fast = microseconds(ask(tests[FAST]), matching)
    known = microseconds(exact, matching)
    return Times(
        advertisements=advertisements,
        subscriptions=subscriptions,
        conflicting_percent=_percent(tests[FAST], matching, parent),
        exactly_conflicting_percent=_percent(tests[EXACT], matching, parent),
        matching_p50_us=quantile(microseconds(table.index.matching_bits, contents), 0.5),
        subscribers_p50_us=quantile(microseconds(tests[FAST].subscribers, matching), 0.5),
        fast_p50_us=quantile(fast, 0.5),
        fast_p99_us=quantile(fast, 0.99),
        exact_new_p50_us=quantile(new, 0.5),
        exact_p50_us=quantile(known, 0.5),
        exact_p99_us=quantile(known, 0.99),
    )


def _percent(conflicts: Conflicts, matching: Sequence[int], parent: NodeId) -> float:
    return 100 * sum(conflicts.is_conflict(bits, parent) for bits in matching) / len(matching)


# --- waits in vain ------------------------------------------------------------------------------


@attrs.frozen
class _Kind:
    """What clients of a workload ask for, announce and publish."""

    filter_of_subscription: Callable[[random.Random], str]
    filter_of_advertisement: Callable[[random.Random], str]
    content: Callable[[random.Random], Content]


def _ticker_advertisement(chance: random.Random) -> str:
    symbols = {draw_symbol(chance): None for _ in range(4)}
    return f"symbol IN ({', '.join(repr(symbol) for symbol in symbols)})"


WORKLOADS: Final[Mapping[str, _Kind]] = {
    "random": _Kind(
        lambda chance: random_filter(chance, width=6),
        lambda chance: random_filter(chance, width=10),
        random_content,
    ),
    "ticker": _Kind(draw_subscription, _ticker_advertisement, draw_publication),
}
"""As in `plait simulate`; and a stock market, where each exchange has a few of the symbols."""


def measure_waits(workload: str, *, overlays: int, seed: int = 0) -> Waits:
    """Count how often either test makes a publication wait, over so many overlays."""
    counted = dict.fromkeys(DETECTIONS, 0)
    publications = 0
    for number in range(overlays):
        for detection in DETECTIONS:
            run = _Run(WORKLOADS[workload], random.Random(f"{seed} {number}"), detection)
            counted[detection] += run.waits
        publications += run.published
    return Waits(
        workload=workload,
        overlays=overlays,
        publications=publications,
        fast=counted[FAST],
        exact=counted[EXACT],
    )


class _Run:
    """One overlay; all links take the same time, so that both tests see the same schedule."""

    def __init__(self, kind: _Kind, chance: random.Random, detection: str) -> None:
        self.published = 0
        delays = (LINK_DELAY_S, LINK_DELAY_S)
        self._world = World(0, delay_s=delays, jitter=0.0, cores=HostCores())
        overlay = random_tree(BROKERS, chance.randrange(1 << 30))
        for name in overlay.brokers:
            join = overlay.parent_of(name)
            parent = NodeId(join) if join is not None else None
            self._world.add_broker(NodeId(name), parent, detection=detection)
            self._pass_time()
        advertised = [
            (self._client(f"p{number}", chance.choice(overlay.brokers)), text)
            for number in range(PUBLISHERS)
            for text in [kind.filter_of_advertisement(chance)]
        ]
        subscribed = [
            (self._client(f"s{number}", chance.choice(overlay.brokers)), texts)
            for number in range(SUBSCRIBERS)
            for texts in [
                [kind.filter_of_subscription(chance) for _ in range(chance.randint(1, 3))]
            ]
        ]
        self._pass_time()
        for node, text in advertised:
            self._core(node).advertise(self._world.now, text)
            self._world.carry_out_calls(node)
        for node, texts in subscribed:
            for text in texts:
                self._core(node).subscribe(self._world.now, text)
            self._world.carry_out_calls(node)
        self._pass_time()
        for node, text in advertised:
            for content in _within(text, kind, chance):
                self._world.after(chance.random(), self._publish, node, content)
        self._pass_time(2.0)

    @property
    def waits(self) -> int:
        """How often a publication waited for a parent, at any broker."""
        return sum(
            node.core.statistics().hold_times[Cause.PARENT].count for node in self._world.hosts
        )

    def _client(self, name: str, broker: str) -> Node:
        return self._world.add_client(NodeId(name), NodeId(broker))

    @staticmethod
    def _core(node: Node) -> ClientCore:
        assert isinstance(node.core, ClientCore)
        return node.core

    def _publish(self, node: Node, content: Content) -> None:
        self._core(node).publish(self._world.now, content)
        self._world.carry_out_calls(node)
        self.published += 1

    def _pass_time(self, seconds: float = 0.5) -> None:
        self._world.run(until=self._world.now + seconds)


def _within(filter_text: str, kind: _Kind, chance: random.Random) -> Iterator[Content]:
    """Draw contents that an advertisement allows; there may be few, or none."""
    announced = parse_filter(filter_text)
    for _ in range(PUBLICATIONS):
        tries = (kind.content(chance) for _ in range(20))
        yield from [content for content in tries if announced.matches(content)][:1]


# --- showing it ---------------------------------------------------------------------------------


def report(figures: Figures) -> str:
    """Set the figures in tables."""
    lines = [
        f"{'p50, one publication':<26}{'matching':>12}{'fast':>10}{'exact':>10}{'exact, new':>12}"
        f"{'subscribers':>14}"
    ]
    for times in (figures.small, figures.large):
        name = f"{times.advertisements:,} adv., {times.subscriptions:,} subs."
        lines.append(
            f"{name:<26}{times.matching_p50_us:>9,.1f} µs{times.fast_p50_us:>7,.1f} µs"
            f"{times.exact_p50_us:>7,.1f} µs{times.exact_new_p50_us:>9,.1f} µs"
            f"{times.subscribers_p50_us:>11,.1f} µs"
        )
    lines.append(
        f"The fast test takes {figures.times_slower_with_many:.1f} times as long with many "
        f"(wanted: at most 3), "
        f"{figures.large.fast_p50_us / 1000:.4f} ms at p50 (wanted: at most 0.05)."
    )
    lines.append(
        f"Of the publications {figures.small.conflicting_percent:.0f} and "
        f"{figures.large.conflicting_percent:.0f} % conflict, by the exact test "
        f"{figures.small.exactly_conflicting_percent:.0f} and "
        f"{figures.large.exactly_conflicting_percent:.0f} %."
    )
    for waits in figures.waits:
        lines.append(
            f"Workload {waits.workload}: {waits.publications:,} publications wait {waits.fast:,} "
            f"times with the fast test and {waits.exact:,} times with the exact one: "
            f"{waits.in_vain_percent:.0f} % in vain."
        )
    return "\n".join(lines)


@click.command()
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=2_000,
    show_default=True,
    help="Publications to ask about, each of another content.",
)
@click.option(
    "--overlays",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Random overlays of each workload in which to count waits.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the workloads.")
@json_option("the figures")
def command(rounds: int, overlays: int, seed: int, as_json: bool) -> None:
    """Time the detection of conflicts, and count the waits that are in vain."""
    figures = measure(rounds, overlays, seed)
    click.echo(json.dumps(figures.to_json()) if as_json else report(figures))
