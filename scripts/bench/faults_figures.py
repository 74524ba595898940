"""What a session of `plait bench faults` has found out, and whether that is what is wanted."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.broker.limits import DEFAULT_LIMITS
from plait.scripts.bench.faults_cost import Cost
from plait.scripts.bench.faults_memory import Hour
from plait.scripts.bench.faults_outage import DIAL_DELAYS, Outage
from plait.scripts.bench.faults_rate import Rate
from plait.scripts.bench.faults_recovery import Phase, Recovery
from plait.scripts.bench.faults_tcp import BROKERS, Stall
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.order_figures import Goal, none_wanted
from plait.scripts.bench.plots import Chart, Line

OUTAGE_DELAYS: Final = 6
"""From the end of detection to the first delivery, at most."""
RATE: Final = 0.97
"""Delivered, at least, with ..."""
RATE_FAILED: Final = 0.17
"""... so many of the brokers failed, and ..."""
RATE_DELTA: Final = 3
"""... this δ."""
FAULT_FREE: Final = 0.8
"""Of the throughput of δ = 0, at least."""
SHORT_S: Final = 0.001
"""What takes less than this is noise."""
SAME_SHARE: Final = 0.01
"""A share of brokers is a number of brokers, rounded."""
STALL_MS: Final = 1000.0
"""Of any subscriber, at most, when one broker of several is killed; detection included."""
FLAT: Final = 1.25
"""What brokers hold after an hour, divided by what they hold after a quarter of it, at most: a
broker that has been restarted a moment ago holds less than the others."""
LINEAR: Final = 1.2
"""Work that grows with this power of the size, or a lower one, passes for linear."""


@attrs.frozen(kw_only=True)
class FaultFigures:
    """Everything."""

    outages: Sequence[Outage] = ()
    costs: Sequence[Cost] = ()
    recoveries: Sequence[Recovery] = ()
    rates: Sequence[Rate] = ()
    hours: Sequence[Hour] = ()
    stalls: Sequence[Stall] = ()
    trials: Sequence[Trials] = ()

    @property
    def goals(self) -> list[Goal]:
        """All that this session allows to be judged."""
        return [
            *self._of_outages(),
            *self._of_costs(),
            *self._of_recoveries(),
            *self._of_rates(),
            *self._of_hours(),
            *self._of_stalls(),
            *self._of_trials(),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything, down to each single trial."""
        return {
            "outages": [attrs.asdict(outage) for outage in self.outages],
            "costs": [attrs.asdict(cost) for cost in self.costs],
            "recoveries": [attrs.asdict(recovery) for recovery in self.recoveries],
            "rates": [
                {**attrs.asdict(rate), "share_delivered": rate.share_delivered}
                for rate in self.rates
            ],
            "hours": [attrs.asdict(hour) for hour in self.hours],
            "stalls": [attrs.asdict(stall) for stall in self.stalls],
            "trials": [
                {
                    "workload": trials.workload.name,
                    "delta": trials.system.delta,
                    "outcomes": [attrs.asdict(outcome) for outcome in trials.outcomes],
                }
                for trials in self.trials
            ],
            "goals": [attrs.asdict(goal) for goal in self.goals],
        }

    # --- judged -----------------------------------------------------------------------------

    def _of_outages(self) -> Iterator[Goal]:
        for dialling in DIAL_DELAYS:
            ours = [outage for outage in self.outages if outage.dialling == dialling]
            is_usual = DIAL_DELAYS[dialling] == 1
            for victim in dict.fromkeys(outage.victim for outage in ours):
                worst = max(
                    (outage for outage in ours if outage.victim == victim),
                    key=lambda outage: outage.first_since_noticed,
                )
                value = worst.first_since_noticed
                yield Goal(
                    name=f"link delays without delivery across the {victim}, after detection; "
                    f"{dialling}",
                    value=value,
                    wanted=f"at most {OUTAGE_DELAYS}" if is_usual else "",
                    is_met=value <= OUTAGE_DELAYS if is_usual else None,
                    baseline=f"{worst.first:g} after the connections were lost; taken up "
                    f"{worst.taken_up - worst.noticed:g} after detection",
                )
        if self.outages:
            yield none_wanted(
                "violations and leftovers after one crash",
                sum(outage.violations + outage.leftovers for outage in self.outages),
                f"{len(self.outages)} crashes",
            )

    def _of_costs(self) -> Iterator[Goal]:
        if not self.costs:
            return
        yield none_wanted(
            "deliveries missing, violations and leftovers after a takeover",
            sum(cost.missing + cost.violations + cost.leftovers for cost in self.costs),
            f"{len(self.costs)} takeovers",
        )
        largest = max(self.costs, key=lambda cost: cost.bytes)
        if largest.unstable:
            others = largest.neighbours - 1
            idle = [c for c in self.costs if c.neighbours == largest.neighbours and not c.unstable]
            fixed = idle[0].bytes if idle else 0
            yield Goal(
                name="bytes of a takeover per unstable publication and neighbour",
                value=(largest.bytes - fixed) / others / largest.unstable,
                wanted="",
                is_met=None,
                baseline=f"{largest.neighbours} neighbours, {largest.unstable:,} publications, "
                f"{largest.bytes:,} bytes in {largest.message_count:,} messages",
            )
        by_neighbours: dict[int, list[Cost]] = {}
        for cost in self.costs:
            by_neighbours.setdefault(cost.neighbours, []).append(cost)
        for neighbours, ours in by_neighbours.items():
            points = [(cost.unstable, cost.coordinator_cpu_s) for cost in ours if cost.unstable]
            yield from _growth(
                f"the coordinator's processor time, {neighbours} neighbours, with the unstable "
                "publications",
                points,
            )

    def _of_recoveries(self) -> Iterator[Goal]:
        for policy, ours in self.by_policy.items():
            phases = {
                "takeover": [(r.subscriptions, r.takeover) for r in ours],
                "recovery": [(r.subscriptions, r.recovery) for r in ours],
            }
            for name, points in phases.items():
                largest, phase = max(points, key=lambda point: point[0])
                yield Goal(
                    name=f"seconds of virtual time of a {name} with {largest:,} subscriptions, "
                    f"{policy}",
                    value=phase.virtual_s,
                    wanted="",
                    is_met=None,
                    baseline=f"{phase.calm_s:.3g} s until all is calm, {phase.total_cpu_s:.3g} s "
                    "of processor time",
                )
                limit = DEFAULT_LIMITS.heartbeat_timeout_s
                yield Goal(
                    name=f"seconds without a sign of life during a {name}, {policy}",
                    value=phase.longest_step_s,
                    wanted=f"below {limit:g}, or others take the broker for failed",
                    is_met=phase.longest_step_s < limit,
                    baseline=f"{largest:,} subscriptions",
                )
                yield from _growth(
                    f"processor time of a {name}, {policy}, with the subscriptions",
                    [(size, phase.total_cpu_s) for size, phase in points],
                )
        if self.recoveries:
            yield none_wanted(
                "leftovers after a recovery",
                sum(recovery.leftovers for recovery in self.recoveries),
                f"{len(self.recoveries)} recoveries",
            )

    def _of_rates(self) -> Iterator[Goal]:
        if not self.rates:
            return
        asked = [
            rate
            for rate in self.rates
            if rate.delta == RATE_DELTA and abs(rate.share_failed - RATE_FAILED) < SAME_SHARE
        ]
        for brokers in dict.fromkeys(rate.brokers for rate in asked):
            ours = [rate for rate in asked if rate.brokers == brokers]
            delivered = sum(rate.delivered for rate in ours)
            owed = sum(rate.owed for rate in ours)
            at_worst = min(rate.share_delivered for rate in ours)
            at_first = sum(rate.delivered_at_first for rate in ours) / sum(
                rate.owed_at_first for rate in ours
            )
            yield Goal(
                name=f"delivered with {ours[0].share_failed:.0%} of {brokers} brokers "
                f"failed at once, δ = {RATE_DELTA}",
                value=delivered / owed,
                wanted=f"more than {RATE}",
                is_met=delivered / owed > RATE,
                baseline=f"{delivered:,} of {owed:,} in {len(ours)} crashes, at worst "
                f"{at_worst:.2%}; in the first second {at_first:.2%}",
            )
        within = [rate for rate in self.rates if not rate.too_large]
        if within:
            yield none_wanted(
                "deliveries missing where no more than δ failed brokers hang together",
                sum(
                    rate.owed - rate.delivered + rate.owed_later - rate.delivered_later
                    for rate in within
                ),
                f"{len(within)} crashes, {sum(rate.owed + rate.owed_later for rate in within):,} "
                "owed",
            )
        kinds: dict[str, int] = {}
        for rate in self.rates:
            for guarantee, count in rate.unsafe.items():
                kinds[guarantee] = kinds.get(guarantee, 0) + count
        told = ", ".join(f"{guarantee}: {count}" for guarantee, count in kinds.items())
        yield none_wanted(
            "violations of safety, whatever share has failed",
            sum(kinds.values()),
            told or f"{sum(rate.delivered for rate in self.rates):,} deliveries",
        )
        worst = min(self.rates, key=lambda rate: rate.share_delivered_later)
        yield Goal(
            name="delivered of what was published when all timeouts were over, at worst",
            value=worst.share_delivered_later,
            wanted="",
            is_met=None,
            baseline=f"{worst.share_failed:.0%} failed, δ = {worst.delta}; brokers without a place "
            f"{worst.not_operational}, clients lost {worst.clients_lost}",
        )

    def _of_hours(self) -> Iterator[Goal]:
        for hour in self.hours:
            first, last = hour.moments[0], hour.moments[-1]
            yield Goal(
                name="what brokers hold after an hour, divided by what they held after a quarter",
                value=last.bytes / first.bytes,
                wanted=f"at most {FLAT}",
                is_met=last.bytes / first.bytes <= FLAT,
                baseline=f"{last.bytes / 1e3:,.0f} and {first.bytes / 1e3:,.0f} kB, "
                f"{last.published:,} publications, {hour.crashes} crashes",
            )
        if self.hours:
            yield none_wanted(
                "violations in an hour of crashes and recoveries",
                sum(hour.violations for hour in self.hours),
                f"{sum(hour.crashes for hour in self.hours)} crashes",
            )

    def _of_stalls(self) -> Iterator[Goal]:
        if not self.stalls:
            return
        worst = max(self.stalls, key=lambda stall: stall.stall_ms)
        yield Goal(
            name=f"ms that anybody waits when one of {BROKERS} brokers is killed, over TCP",
            value=worst.stall_ms,
            wanted=f"at most {STALL_MS:g}, detection included",
            is_met=worst.stall_ms <= STALL_MS,
            baseline=f"{worst.what}, the worst of {len(self.stalls)}; "
            f"{worst.calm_ms:.0f} ms before",
        )
        yield none_wanted(
            "violations and leftovers after a broker was killed, over TCP",
            sum(stall.failures for stall in self.stalls),
            f"{sum(stall.delivered for stall in self.stalls):,} deliveries",
        )

    def _of_trials(self) -> Iterator[Goal]:
        for name in dict.fromkeys(trials.workload.name for trials in self.trials):
            ours, plain = (
                next(t for t in self.trials if t.workload.name == name and t.system.delta == delta)
                for delta in (1, 0)
            )
            ratio = statistics.median(
                one.messages_per_s / other.messages_per_s
                for one, other in zip(ours.outcomes, plain.outcomes, strict=True)
            )
            yield Goal(
                name=f"throughput with δ = 1, divided by that with δ = 0; {name}",
                value=ratio,
                wanted=f"at least {FAULT_FREE}",
                is_met=ratio >= FAULT_FREE,
                baseline=f"{ours.median.messages_per_s:,.0f} and "
                f"{plain.median.messages_per_s:,.0f} publications a second",
            )

    # --- drawn ------------------------------------------------------------------------------

    @property
    def by_policy(self) -> dict[str, list[Recovery]]:
        """The recoveries, smallest tables first."""
        found: dict[str, list[Recovery]] = {}
        for recovery in sorted(self.recoveries, key=lambda one: one.subscriptions):
            found.setdefault(recovery.policy, []).append(recovery)
        return found

    def charts(self) -> dict[str, Chart]:
        """Draw what has more than one point, by the names of files."""
        charts = {}
        if self.costs:
            charts["cost-bytes"] = Chart(
                title="What a takeover sends",
                x="unstable publications",
                y="kB",
                lines=[
                    Line(
                        f"{neighbours} neighbours",
                        [
                            (cost.unstable, cost.bytes / 1e3)
                            for cost in self.costs
                            if cost.neighbours == neighbours
                        ],
                    )
                    for neighbours in dict.fromkeys(cost.neighbours for cost in self.costs)
                ],
            )
        if self.recoveries:
            charts["recovery"] = Chart(
                title="Large routing tables",
                x="subscriptions",
                y="seconds, as brokers are busy",
                lines=[
                    Line(f"{name}, {policy}", points)
                    for policy, ours in self.by_policy.items()
                    for name, points in _virtual(ours).items()
                ],
            )
        if self.rates:
            charts["rate"] = Chart(
                title="What is delivered when brokers fail at once",
                x="% of brokers failed",
                y="% delivered",
                lines=[
                    Line(
                        f"{brokers}, δ = {delta}",
                        [
                            (round(100 * share, 1), 100 * statistics.fmean(delivered))
                            for share, delivered in self._delivered(brokers, delta).items()
                        ],
                    )
                    for brokers, delta in dict.fromkeys((r.brokers, r.delta) for r in self.rates)
                ],
            )
        return charts

    def _delivered(self, brokers: int, delta: int) -> dict[float, list[float]]:
        """Return what was delivered with each share of brokers failed, seed by seed."""
        found: dict[float, list[float]] = {}
        for rate in self.rates:
            if (rate.brokers, rate.delta) == (brokers, delta):
                found.setdefault(rate.share_failed, []).append(rate.share_delivered)
        return found


def _virtual(ours: Sequence[Recovery]) -> Mapping[str, list[tuple[float, float]]]:
    def points(phase_of: str) -> list[tuple[float, float]]:
        phases: list[tuple[int, Phase]] = [(r.subscriptions, getattr(r, phase_of)) for r in ours]
        return [(size, phase.calm_s) for size, phase in phases]

    return {"takeover": points("takeover"), "recovery": points("recovery")}


def _growth(what: str, points: Sequence[tuple[float, float]]) -> Iterator[Goal]:
    """Judge with which power work grows, from the second largest size to the largest."""
    if len(points) < 2:
        return
    (small, little), (large, much) = sorted(points)[-2:]
    if small == large or little < SHORT_S:
        return
    power = math.log(much / little) / math.log(large / small)
    yield Goal(
        name=f"power with which it grows: {what}",
        value=power,
        wanted=f"at most {LINEAR}, so no square",
        is_met=power <= LINEAR,
        baseline=f"{little:.3g} s at {small:,}, {much:.3g} s at {large:,}",
    )
