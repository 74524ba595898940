"""What a session of `plait bench order` has found out, and whether that is what is wanted."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.routing.orderings import Fifo, Pairwise, Sequencer
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.order_delays import Point
from plait.scripts.bench.order_throughput import SATURATING_PUBLISHERS, SEQUENCER, Throughput
from plait.scripts.bench.order_workload import EVERYBODY
from plait.scripts.bench.peers import PLAIT, PeerFigures
from plait.scripts.bench.plots import Chart, Line

PAIRWISE: Final = Pairwise.name
FIFO: Final = Fifo.name
PUBLISHED: Final = "published"
ORDERED: Final = (PUBLISHED, SEQUENCER)
"""What `pairwise` is to be faster than."""
OVERHEAD: Final = 0.6
"""Of the throughput of `fifo`, at least."""
MTPUT: Final = "mtput"
_SAME: Final = 1e-9
"""Delays are sums of the same numbers, but not always in the same order."""

assert Sequencer.name == SEQUENCER


@attrs.frozen(kw_only=True)
class Goal:
    """One figure, with what is wanted of it and what it is compared with."""

    name: str
    value: float
    wanted: str
    is_met: bool | None
    """None if nothing is wanted: then it is there to be known."""
    baseline: str
    """What the value stands beside, from the same run."""


@attrs.frozen(kw_only=True)
class OrderFigures:
    """Everything."""

    points: Sequence[Point] = ()
    throughput: Throughput | None = None
    trials: Sequence[Trials] = ()
    peers: PeerFigures | None = None

    @property
    def goals(self) -> list[Goal]:
        """All that this session allows to be judged."""
        return [
            *self._of_order(),
            *self._of_delays(),
            *self._of_throughput(),
            *self._of_overhead(),
            *self._of_peers(),
        ]

    @property
    def by_place(self) -> dict[tuple[int, str], list[Point]]:
        """The points that can be compared: as many brokers, and topics shared by as many."""
        points: dict[tuple[int, str], list[Point]] = {}
        for point in self.points:
            points.setdefault((point.scene.brokers, point.scene.sharing), []).append(point)
        return points

    def to_json(self) -> dict[str, Any]:
        """Return everything, down to each single trial; what there is none of is null."""
        document = {
            "points": [
                {**attrs.asdict(point), "brokers": point.scene.brokers} for point in self.points
            ],
            "throughput": attrs.asdict(self.throughput) if self.throughput else None,
            "trials": [
                {
                    "system": trials.system.name,
                    "ordering": trials.system.ordering,
                    "median": attrs.asdict(trials.median),
                    "outcomes": [attrs.asdict(outcome) for outcome in trials.outcomes],
                }
                for trials in self.trials
            ],
            "peers": attrs.asdict(self.peers) if self.peers else None,
            "goals": [attrs.asdict(goal) for goal in self.goals],
        }
        cleaned: dict[str, Any] = without_nan(document)
        return cleaned

    # --- judged -----------------------------------------------------------------------------

    def _of(self, ordering: str) -> list[Point]:
        return [point for point in self.points if point.ordering == ordering]

    def _of_order(self) -> Iterator[Goal]:
        ours = self._of(PAIRWISE)
        if not ours:
            return
        theirs = "; ".join(
            f"{ordering}: {sum(point.disagreements for point in self._of(ordering)):,}"
            for ordering in dict.fromkeys(point.ordering for point in self.points)
            if ordering != PAIRWISE
        )
        yield none_wanted(
            "violations", sum(p.disagreements + p.other_violations for p in ours), theirs
        )
        yield none_wanted(
            "brokers and clients with something left at the end",
            sum(len(point.leftovers) for point in ours),
            f"{len(ours)} scenes",
        )

    def _of_delays(self) -> Iterator[Goal]:
        ours = [point.against_fifo for point in self._of(PAIRWISE)]
        if not ours:
            return
        yield none_wanted(
            "publications without conflict that fifo treats otherwise: delay or copies",
            sum(one.others_changed for one in ours),
            f"of {sum(one.others for one in ours):,}; {self._changed_by_others()}",
        )
        unconflicting = [p for p in self._of(PAIRWISE) if not p.scene.conflicting]
        if unconflicting:
            yield none_wanted(
                "messages of any type beyond fifo's, where nothing conflicts",
                sum(abs(point.against_fifo.messages_added) for point in unconflicting),
                f"of {sum(p.messages * p.scene.publications for p in unconflicting):,.0f}",
            )
        yield none_wanted(
            "deliveries later than fifo's by more than a round trip of the conflict path",
            sum(one.waited_too_long for one in ours),
            f"of {sum(one.waited for one in ours):,} that waited, at most "
            f"{max(one.longest_wait_in_round_trips for one in ours):.2f} round trips",
        )
        yield none_wanted(
            "deliveries above all waiting brokers that were later than fifo's",
            sum(one.above_later for one in ours),
            f"of {sum(one.above for one in ours):,}",
        )
        for point in self._of(PAIRWISE):
            if point.scene.conflicting == 1.0:
                yield from self._against(point)

    def _changed_by_others(self) -> str:
        return "; ".join(
            f"{ordering}: {sum(p.against_fifo.others_changed for p in self._of(ordering)):,}"
            for ordering in ORDERED
            if self._of(ordering)
        )

    def _against(self, ours: Point) -> Iterator[Goal]:
        """Compare with orderings that promise as much, in one scene where all conflicts."""
        for theirs in self.points:
            if theirs.scene != ours.scene or theirs.ordering not in ORDERED:
                continue
            quotient = ours.conflicting.p50_ms / theirs.conflicting.p50_ms
            delays = f"{ours.conflicting.p50_ms:.0f} ms, {theirs.conflicting.p50_ms:.0f} ms"
            is_forced = theirs.ordering == SEQUENCER and ours.scene.sharing == EVERYBODY
            yield Goal(
                name=f"p50 delay, divided by that of {theirs.ordering}; {describe(ours)}",
                value=quotient,
                wanted="below 1",
                is_met=quotient < 1 - _SAME,
                baseline=delays + "; the root is on every way" * is_forced,
            )

    def _of_throughput(self) -> Iterator[Goal]:
        if self.throughput is None:
            return
        for ordering in dict.fromkeys(load.ordering for load in self.throughput.loads):
            saturated = self.throughput.saturated_by(ordering)
            most = max(
                load.done_per_s for load in self.throughput.loads if load.ordering == ordering
            )
            yield Goal(
                name=f"publishers that are too many for {ordering}",
                value=math.nan if saturated is None else saturated,
                wanted="",
                is_met=None,
                baseline=f"scaled so that {SEQUENCER} can do with {SATURATING_PUBLISHERS}; "
                f"{most:,.0f} publications a second at most",
            )

    def _of_overhead(self) -> Iterator[Goal]:
        for clients in dict.fromkeys(trials.system.is_bare for trials in self.trials):
            trials = {
                one.system.ordering: one for one in self.trials if one.system.is_bare == clients
            }
            yield from self._overhead(trials, "bare clients" if clients else "client library")

    def _overhead(self, trials: Mapping[str, Trials], clients: str) -> Iterator[Goal]:
        ours, fifo = trials.get(PAIRWISE), trials.get(FIFO)
        if ours is None or fifo is None:
            return
        # Round by round: what disturbed one of a round will have disturbed the other, too.
        rates = [
            mine.messages_per_s / base.messages_per_s
            for mine, base in zip(ours.outcomes, fifo.outcomes, strict=True)
        ]
        yield Goal(
            name=f"throughput over TCP, divided by fifo's, all conflicting; {clients}",
            value=statistics.median(rates),
            wanted=f"at least {OVERHEAD}",
            is_met=statistics.median(rates) >= OVERHEAD,
            baseline=f"medians {ours.median.messages_per_s:,.0f} and "
            f"{fifo.median.messages_per_s:,.0f} a second",
        )
        work = [one.median.system_us + one.median.clients_us for one in (ours, fifo)]
        yield Goal(
            name=f"the same by processor time per delivery: fifo's divided by ours; {clients}",
            value=work[1] / work[0],
            wanted="",
            is_met=None,
            baseline=f"{work[1]:.2f} µs and {work[0]:.2f} µs, of which brokers "
            f"{fifo.median.system_us:.2f} and {ours.median.system_us:.2f}",
        )
        yield none_wanted(
            f"pairs of subscribers that disagree, over TCP; {clients}",
            max(outcome.disagreeing for outcome in ours.outcomes),
            f"under fifo {max(outcome.disagreeing for outcome in fifo.outcomes)}",
        )

    def _of_peers(self) -> Iterator[Goal]:
        if self.peers is None:
            return
        ours = self.peers.messages_per_s(MTPUT, PLAIT)
        for name in self.peers.others:
            theirs = self.peers.messages_per_s(MTPUT, name)
            wanted = self.peers.wanted[name]
            bound = float(wanted.split()[-1])
            yield Goal(
                name=f"throughput divided by that of {name}, {self.peers.daemons} daemons each",
                value=ours / theirs,
                wanted=wanted,
                is_met=ours / theirs > bound,
                baseline=f"medians {ours:,.0f} and {theirs:,.0f} a second",
            )
        disagreeing, pairs = self.peers.disagreeing(MTPUT, PLAIT)
        yield none_wanted(
            "pairs of subscribers that disagree, in the harness of the peers",
            disagreeing,
            f"of {pairs}; "
            + "; ".join(f"{n}: {self.peers.disagreeing(MTPUT, n)[0]}" for n in self.peers.others),
        )

    # --- drawn ------------------------------------------------------------------------------

    def charts(self) -> dict[str, Chart]:
        """The plots of the report, by the name of a file without its ending."""
        charts: dict[str, Chart] = {}
        for (brokers, sharing), points in self.by_place.items():
            where = f"{brokers} brokers, topics shared by {sharing}"
            charts |= {
                f"{name}-{brokers}-{sharing}": chart for name, chart in _charts(points, where)
            }
        if self.throughput is not None:
            charts["throughput"] = _chart_of_throughput(self.throughput)
        return charts


def describe(point: Point) -> str:
    """Say which scene a point is about."""
    scene = point.scene
    return (
        f"{scene.brokers} brokers, {scene.publishers + scene.subscribers:,} interests, "
        f"{scene.conflicting:.0%} conflicting, topics shared by {scene.sharing}"
    )


def interests(point: Point) -> int:
    """Advertisements and subscriptions together."""
    return point.scene.publishers + point.scene.subscribers


def _charts(points: Sequence[Point], where: str) -> Iterator[tuple[str, Chart]]:
    full = [point for point in points if point.scene.conflicting == 1.0]
    yield (
        "delay",
        Chart(
            title=f"Delay of conflicting publications: {where}",
            x="advertisements and subscriptions",
            y="ms, p50",
            lines=_lines([(p.ordering, interests(p), p.conflicting.p50_ms) for p in full]),
        ),
    )
    yield (
        "detection",
        Chart(
            title=f"To detect whether a publication conflicts: {where}",
            x="advertisements and subscriptions",
            y="µs, p50",
            lines=_lines([(p.ordering, interests(p), p.detection_us) for p in full]),
        ),
    )
    most = max(map(interests, points))
    yield (
        "messages",
        Chart(
            title=f"Messages per publication: {where}, {most:,} interests",
            x="conflicting, %",
            y="messages",
            lines=_lines(
                [
                    (p.ordering, 100 * p.scene.conflicting, p.messages)
                    for p in points
                    if interests(p) == most
                ]
            ),
        ),
    )


def _chart_of_throughput(throughput: Throughput) -> Chart:
    offered = {load.publishers: load.offered_per_s for load in throughput.loads}
    return Chart(
        title="Throughput as publishers grow in number",
        x="publishers",
        y="publications a second that get through",
        lines=[
            Line("offered", list(offered.items()), is_reference=True),
            *_lines([(one.ordering, one.publishers, one.done_per_s) for one in throughput.loads]),
        ],
    )


def _lines(points: Sequence[tuple[str, float, float]]) -> list[Line]:
    by_name: dict[str, list[tuple[float, float]]] = {}
    for name, x, y in points:
        if not math.isnan(y):
            by_name.setdefault(name, []).append((x, y))
    return [Line(name, sorted(places)) for name, places in by_name.items()]


def none_wanted(name: str, value: float, baseline: str) -> Goal:
    """None are wanted."""
    return Goal(name=name, value=value, wanted="0", is_met=value == 0, baseline=baseline)


def without_nan(value: Any) -> Any:
    """The same with null for what is no number, as JSON has none of those."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
