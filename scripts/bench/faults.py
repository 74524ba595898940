"""What failures cost: outages, takeovers, recoveries, what gets lost, and δ itself.

Read `faults_world.py` for how time passes and what is counted; `faults_outage.py`,
`faults_cost.py`, `faults_recovery.py`, `faults_rate.py`, `faults_memory.py` and `faults_tcp.py` for
what is tried; and `faults_figures.py` for what is wanted of it.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from plait.broker.machine.interests import FILTER, FLOODING
from plait.routing.orderings import DEFAULT_ORDERING
from plait.scripts.async_entry import run_async
from plait.scripts.bench.faults_cost import measure_cost
from plait.scripts.bench.faults_figures import RATE_FAILED, FaultFigures
from plait.scripts.bench.faults_memory import measure_hour
from plait.scripts.bench.faults_outage import DIAL_DELAYS, VICTIMS, measure_outage
from plait.scripts.bench.faults_rate import CLIENTS, Rate, measure_rate
from plait.scripts.bench.faults_recovery import measure_recovery
from plait.scripts.bench.faults_report import report
from plait.scripts.bench.faults_tcp import Stall, measure_stall
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.session import (
    cleaning_up_when_told_to_stop,
    plots_option,
    rounds_option,
    seconds_option,
    tell_terminal,
    write_plots,
)
from plait.scripts.bench.trials import System, run_trial
from plait.scripts.bench.workloads import SUBSCRIBERS, WORKLOADS
from plait.scripts.options import json_option

OUTAGE: Final = "outage"
COST: Final = "cost"
RECOVERY: Final = "recovery"
RATE: Final = "rate"
MEMORY: Final = "memory"
TCP: Final = "tcp"
FAULT_FREE: Final = "fault-free"
SCENARIOS: Final = (OUTAGE, COST, RECOVERY, RATE, MEMORY, TCP, FAULT_FREE)

ORDERINGS: Final = (DEFAULT_ORDERING, "fifo")
UNSTABLE: Final = (0, 10, 100, 1_000)
NEIGHBOURS: Final = (2, 5, 10, 20, 50)
SIZES: Final = (1_000, 3_000, 10_000)
SHARES: Final = (0.0, 0.05, 0.1, RATE_FAILED, 0.25, 0.3)
DELTAS: Final = (1, 2, 3)
BROKERS: Final = (500,)
FAULT_FREE_WORKLOADS: Final = ("tput", "mtput")
TCP_BROKERS: Final = 3


@attrs.frozen(kw_only=True)
class FaultSession:
    """What to measure."""

    scenarios: Sequence[str] = SCENARIOS
    orderings: Sequence[str] = ORDERINGS
    unstable: Sequence[int] = UNSTABLE
    neighbours: Sequence[int] = NEIGHBOURS
    subscriptions: Sequence[int] = SIZES
    brokers: Sequence[int] = BROKERS
    shares: Sequence[float] = SHARES
    deltas: Sequence[int] = DELTAS
    clients: int = CLIENTS
    workloads: Sequence[str] = FAULT_FREE_WORKLOADS
    subscribers: int = SUBSCRIBERS
    seconds: float = 4.0
    rounds: int = 3
    repeat: int = 1
    """Crashes of the scenario 'rate' for each share and δ, every one with another seed."""
    seed: int = 0
    tell: Callable[[str], None] = lambda _: None
    """Is told what comes next."""


def measure(session: FaultSession) -> FaultFigures:
    """Measure all that a session is to measure."""
    wanted = session.scenarios
    return FaultFigures(
        outages=[
            measure_outage(victim, ordering, dialling, session.seed)
            for dialling in DIAL_DELAYS
            for ordering in session.orderings
            for victim in VICTIMS
        ]
        if OUTAGE in wanted
        else (),
        costs=[
            measure_cost(neighbours, unstable, session.seed)
            for neighbours, unstable in itertools.product(session.neighbours, session.unstable)
        ]
        if COST in wanted
        else (),
        recoveries=[
            measure_recovery(size, policy, session.seed)
            for policy in (FLOODING, FILTER)
            for size in session.subscriptions
        ]
        if RECOVERY in wanted
        else (),
        rates=list(_measure_rates(session)) if RATE in wanted else (),
        hours=[measure_hour(session.seed)] if MEMORY in wanted else (),
        stalls=list(_measure_stalls(session)) if TCP in wanted else (),
        trials=_measure_trials(session) if FAULT_FREE in wanted else (),
    )


def _measure_rates(session: FaultSession) -> Iterable[Rate]:
    for brokers, delta, share in itertools.product(session.brokers, session.deltas, session.shares):
        for seed in range(session.seed, session.seed + session.repeat):
            session.tell(f"{share:.0%} of {brokers} brokers, δ = {delta}, seed {seed}")
            yield measure_rate(brokers, delta, share, session.clients, seed)


def _measure_stalls(session: FaultSession) -> Iterable[Stall]:
    for seed in range(session.seed, session.seed + session.rounds):
        session.tell(f"a broker of seven processes is killed, seed {seed}")
        yield measure_stall(seed)


def _measure_trials(session: FaultSession) -> list[Trials]:
    trials = [
        Trials(
            system=System(
                name="everywhere",
                title="client library",
                brokers=TCP_BROKERS,
                is_spread=True,
                publishes_everywhere=True,
                ordering=DEFAULT_ORDERING,
                delta=delta,
            ),
            workload=attrs.evolve(WORKLOADS[name], subscribers=session.subscribers),
            outcomes=[],
        )
        for name in session.workloads
        for delta in (0, 1)
    ]
    for number in range(1, session.rounds + 1):
        for one in trials:
            session.tell(f"round {number} of {session.rounds}: δ = {one.system.delta}")
            outcome = run_async(run_trial, one.system, one.workload, session.seconds)
            one.outcomes.append(outcome)
    return trials


@click.command()
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(SCENARIOS),
    multiple=True,
    default=SCENARIOS,
    help="Only this one; may be given several times.  [default: all]",
)
@click.option(
    "--subscriptions",
    type=click.IntRange(min=3),
    multiple=True,
    default=SIZES,
    help="Of the scenario 'recovery'; may be given several times. 100,000 take minutes.  "
    "[default: 1,000, 3,000 and 10,000]",
)
@click.option(
    "--brokers",
    type=click.IntRange(min=10),
    multiple=True,
    default=BROKERS,
    help="Of the scenario 'rate'; may be given several times.  [default: 500]",
)
@click.option(
    "--share",
    "shares",
    type=click.FloatRange(min=0, max=1, max_open=True),
    multiple=True,
    default=SHARES,
    help="Of the scenario 'rate': the brokers killed; may be given several times.  "
    "[default: up to 0.3]",
)
@click.option(
    "--delta",
    "deltas",
    type=click.IntRange(min=0),
    multiple=True,
    default=DELTAS,
    help="Of the scenario 'rate'; may be given several times.  [default: 1, 2 and 3]",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of the scenario 'rate': so many seeds each.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of everything that is random."
)
@seconds_option
@rounds_option
@plots_option
@json_option("the figures, with those of every round,")
def command(
    scenarios: Sequence[str],
    subscriptions: Sequence[int],
    brokers: Sequence[int],
    shares: Sequence[float],
    deltas: Sequence[int],
    repeat: int,
    seed: int,
    seconds: float,
    rounds: int,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Kill brokers, and measure what becomes of the others.

    \b
    outage      one of seven brokers: how long nothing crosses it, in link delays, and why
    cost        messages and bytes of a takeover, up to 1,000 unstable publications, 50 neighbours
    recovery    a takeover and a recovery with large routing tables
    rate        up to 30 % of the brokers at once, δ = 1, 2 and 3: what is delivered all the same
    memory      an hour of traffic, crashes and recoveries: what brokers hold, quarter by quarter
    tcp         over TCP, one of seven brokers is killed under load: the longest stall, in ms
    fault-free  over TCP, nobody fails: the throughput of δ = 1 beside that of δ = 0

    All but the last two are in virtual time. In 'recovery' brokers take as long as they really do.
    Everything together takes some ten minutes.

    \b
    Examples:
      plait bench faults --scenario outage --scenario cost --plots plots
      plait bench faults --scenario recovery --subscriptions 100000
      plait bench faults --scenario rate --share 0.17 --delta 3 --repeat 10
      plait bench faults --scenario tcp --rounds 10
    """  # noqa: D301 - a raw string has no \b, by which click tells what not to wrap
    session = FaultSession(
        scenarios=scenarios,
        subscriptions=subscriptions,
        brokers=brokers,
        shares=shares,
        deltas=deltas,
        seconds=seconds,
        rounds=rounds,
        repeat=repeat,
        seed=seed,
        tell=tell_terminal,
    )
    with cleaning_up_when_told_to_stop():
        figures = measure(session)
    write_plots(plots, figures.charts())
    click.echo(json.dumps(figures.to_json()) if as_json else report(figures))
