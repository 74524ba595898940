"""The figures of orderings, for people."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from plait.scripts.bench.figures import Trials
from plait.scripts.bench.order_delays import Point
from plait.scripts.bench.order_figures import MTPUT, Goal, OrderFigures, interests
from plait.scripts.bench.order_throughput import Throughput
from plait.scripts.bench.peers import PeerFigures
from plait.scripts.bench.report import others_text, trials_table

_WIDTH: Final = 22


def report(figures: OrderFigures) -> str:
    """Set the figures in tables, with what is wanted below."""
    lines: list[str] = []
    for (brokers, sharing), points in figures.by_place.items():
        lines += _delays(points, f"{brokers} brokers, conflicting topics shared by {sharing}")
    if figures.throughput is not None:
        lines += _throughput(figures.throughput)
    if figures.trials:
        lines += _trials(figures.trials)
    if figures.peers is not None:
        lines += _peers(figures.peers)
    lines += ["", *map(goal_line, figures.goals)]
    return "\n".join(lines).lstrip("\n")


def _delays(points: Sequence[Point], title: str) -> Iterator[str]:
    yield ""
    yield f"{title}; virtual time, ms from publisher to subscriber"
    yield (
        f"{'interests, conflicting':<{_WIDTH}} {'ordering':<10}{'p50':>6}{'p99':>6}{'max':>6}"
        f"{'at home':>9}{'others':>8}{'messages':>10}{'degree':>8}{'detection':>11}"
    )
    for point in points:
        scene, ours = point.scene, point.conflicting
        yield (
            f"{f'{interests(point):,}, {scene.conflicting:.0%}':<{_WIDTH}} {point.ordering:<10}"
            f"{_ms(ours.p50_ms):>6}{_ms(ours.p99_ms):>6}{_ms(ours.max_ms):>6}"
            f"{_ms(ours.local_p50_ms):>9}{_ms(point.others.p50_ms):>8}{point.messages:>10.1f}"
            f"{point.ordering_degree:>8.4f}{_or_none(point.detection_us, '.1f', ' µs'):>11}"
        )


def _throughput(throughput: Throughput) -> Iterator[str]:
    yield ""
    yield (
        f"publications a second that get through; virtual time, brokers as busy as they really "
        f"are; {throughput.rate_per_s:,.0f} a second and publisher"
    )
    yield (
        f"{'publishers':<{_WIDTH}} {'ordering':<10}{'offered':>10}{'done':>10}"
        f"{'busiest broker':>16}"
    )
    for load in throughput.loads:
        yield (
            f"{load.publishers:<{_WIDTH}} {load.ordering:<10}{load.offered_per_s:>10,.0f}"
            f"{load.done_per_s:>10,.0f}{min(1.0, load.busiest):>16.0%}"
        )


def _trials(trials: Sequence[Trials]) -> Iterator[str]:
    yield ""
    yield "mtput over TCP: clients at three brokers, everything conflicts; medians"
    rows = [(f"{one.system.title:<{_WIDTH}} {one.system.ordering}", one) for one in trials]
    yield from trials_table(rows, label=f"{'':<{_WIDTH}} ordering", width=_WIDTH + 11)


def _peers(peers: PeerFigures) -> Iterator[str]:
    yield ""
    yield f"mtput with {peers.daemons} daemons each: " + "; ".join(peers.versions.values())
    yield f"{'':<{_WIDTH}} {'msg/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'disagree':>10}{'others':>9}"
    for name in peers.versions:
        disagreeing, pairs = peers.disagreeing(MTPUT, name)
        yield (
            f"{name:<{_WIDTH}} {peers.messages_per_s(MTPUT, name):>9,.0f}"
            f"{peers.latency_ms(MTPUT, name):>9.2f}{peers.latency_ms(MTPUT, name, 'p99'):>9.2f}"
            f"{f'{disagreeing} of {pairs}':>10}"
            f"{others_text(peers.others_percent(MTPUT, name)):>9}"
        )
    for name, reason in peers.left_out.items():
        yield f"{name} is left out: {reason}"


def goal_line(goal: Goal) -> str:
    """One figure with what is wanted of it."""
    verdict = {True: "met   ", False: "MISSED", None: "      "}[goal.is_met]
    value = "none" if math.isnan(goal.value) else f"{goal.value:,.5g}"
    wanted = f" (wanted: {goal.wanted})" if goal.wanted else ""
    return f"{verdict}{value:>8}  {goal.name}{wanted}; {goal.baseline}"


def _ms(value: float) -> str:
    return _or_none(value, ".0f")


def _or_none(value: float, how: str, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:{how}}{unit}"
