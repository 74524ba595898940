"""The figures of brokers that fail, for people."""

from collections.abc import Iterator, Sequence

from plait.scripts.bench.faults_cost import Cost
from plait.scripts.bench.faults_figures import FaultFigures
from plait.scripts.bench.faults_memory import Hour
from plait.scripts.bench.faults_outage import Outage
from plait.scripts.bench.faults_rate import Rate
from plait.scripts.bench.faults_recovery import Recovery
from plait.scripts.bench.faults_tcp import Stall
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.order_report import goal_line
from plait.scripts.bench.report import trials_table


def report(figures: FaultFigures) -> str:
    """Set the figures in tables, with what is wanted below."""
    lines: list[str] = []
    if figures.outages:
        lines += _outages(figures.outages)
    if figures.costs:
        lines += _costs(figures.costs)
    if figures.recoveries:
        lines += _recoveries([one for ours in figures.by_policy.values() for one in ours])
    if figures.rates:
        lines += _rates(figures.rates)
    for hour in figures.hours:
        lines += _hour(hour)
    if figures.stalls:
        lines += _stalls(figures.stalls)
    if figures.trials:
        lines += _trials(figures.trials)
    lines += ["", *map(goal_line, figures.goals)]
    return "\n".join(lines).lstrip("\n")


def _outages(outages: Sequence[Outage]) -> Iterator[str]:
    yield ""
    yield "one broker of seven killed, δ = 1; link delays since the last connection was lost"
    yield (
        f"{'':<14} {'ordering':<10}{'noticed':>8}{'played':>7}{'first':>7}{'last':>6}  "
        "deliveries that had to cross it"
    )
    for one in outages:
        yield (
            f"{one.victim:<14} {one.ordering:<10}{one.noticed:>8g}{one.taken_up:>7g}"
            f"{one.first:>7g}{one.last:>6g}  {one.dialling}"
        )
    for victim in dict.fromkeys(outage.victim for outage in outages):
        one = next(outage for outage in outages if outage.victim == victim)
        yield ""
        yield f"what led to the first delivery; {victim}, {one.ordering}, {one.dialling}"
        for at, text in one.way:
            yield f"{at:>6g}  {text}"


def _costs(costs: Sequence[Cost]) -> Iterator[str]:
    yield ""
    yield "one takeover; every neighbour has every unstable publication, of 200 bytes"
    yield (
        f"{'neighbours':>10}{'unstable':>10}{'messages':>10}{'kB':>10}{'its ms':>9}"
        f"{'longest ms':>12}  publications and others"
    )
    for one in costs:
        publications = one.messages.get("Publish", 0)
        yield (
            f"{one.neighbours:>10}{one.unstable:>10,}{one.message_count:>10,}"
            f"{one.bytes / 1e3:>10,.1f}{1e3 * one.coordinator_cpu_s:>9,.1f}"
            f"{1e3 * one.longest_step_s:>12,.1f}  "
            f"{publications:,} + {one.message_count - publications:,}"
        )


def _recoveries(recoveries: Sequence[Recovery]) -> Iterator[str]:
    yield ""
    yield "large routing tables; virtual time, brokers as busy as they really are"
    yield (
        f"{'subscriptions':>13} {'policy':<10}{'':<12}{'ends ms':>9}{'calm ms':>9}{'CPU ms':>9}"
        f"{'longest ms':>12}{'messages':>10}{'kB':>9}  table after recovery"
    )
    for one in recoveries:
        for name, phase in (("takeover", one.takeover), ("recovery", one.recovery)):
            table = f"{one.recovered_subscriptions:,}" if phase is one.recovery else ""
            yield (
                f"{one.subscriptions:>13,} {one.policy:<10}{name:<12}{1e3 * phase.virtual_s:>9,.1f}"
                f"{1e3 * phase.calm_s:>9,.1f}{1e3 * phase.total_cpu_s:>9,.1f}"
                f"{1e3 * phase.longest_step_s:>12,.1f}{phase.messages:>10,}"
                f"{phase.bytes / 1e3:>9,.0f}  {table}".rstrip()
            )


def _rates(rates: Sequence[Rate]) -> Iterator[str]:
    yield ""
    yield "brokers of a random tree killed all at once"
    yield (
        f"{'brokers':>7}{'δ':>3}{'failed':>8}{'regions > δ':>13}{'delivered':>11}{'at first':>10}"
        f"{'later':>9}{'unsafe':>8}{'no place':>10}{'clients lost':>14}"
    )
    for one in rates:
        yield (
            f"{one.brokers:>7}{one.delta:>3}{one.share_failed:>8.0%}{one.too_large:>13}"
            f"{one.share_delivered:>11.2%}{one.share_delivered_at_first:>10.2%}"
            f"{one.share_delivered_later:>9.2%}"
            f"{sum(one.unsafe.values()):>8}{one.not_operational:>10}{one.clients_lost:>14}"
        )


def _hour(hour: Hour) -> Iterator[str]:
    yield ""
    yield "an hour of traffic, crashes and recoveries; what all seven brokers hold together"
    yield (
        f"{'minutes':>7}{'kB':>8}{'unstable':>10}{'held':>6}{'subs':>6}{'ads':>5}{'pending':>9}"
        f"{'seats':>7}{'published':>11}"
    )
    for one in hour.moments:
        yield (
            f"{one.at_s / 60:>7g}{one.bytes / 1e3:>8,.0f}{one.unstable:>10,}{one.held:>6,}"
            f"{one.subscriptions:>6}{one.advertisements:>5}{one.operations:>9}{one.seats:>7}"
            f"{one.published:>11,}"
        )


def _stalls(stalls: Sequence[Stall]) -> Iterator[str]:
    yield ""
    yield "one broker of seven processes killed under load, over TCP"
    yield f"{'longest ms':>10}{'before':>8}{'published':>11}{'delivered':>11}  who"
    for one in stalls:
        yield (
            f"{one.stall_ms:>10,.0f}{one.calm_ms:>8,.0f}{one.published:>11,}{one.delivered:>11,}"
            f"  {one.what}"
        )


def _trials(trials: Sequence[Trials]) -> Iterator[str]:
    yield ""
    yield "no failure, over TCP: a line of three brokers, clients at all of them; medians"
    rows = [(f"{one.workload.name:<8}{one.system.delta:>3}", one) for one in trials]
    yield from trials_table(rows, label=f"{'':<8}{'δ':>3}", width=11)
