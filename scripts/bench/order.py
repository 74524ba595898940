"""What order costs: every ordering plays the same scenes, in virtual time and over TCP.

Read `order_workload.py` for what is tried, `order_world.py` for how time passes, `order_delays.py`
for what an ordering may cost, and `order_figures.py` for what is wanted of it.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from plait.routing.orderings import ORDERINGS
from plait.scripts.async_entry import run_async
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.order_delays import Point, look_at
from plait.scripts.bench.order_figures import FIFO, MTPUT, PAIRWISE, PUBLISHED, OrderFigures
from plait.scripts.bench.order_report import report
from plait.scripts.bench.order_throughput import (
    PUBLISHERS,
    SEQUENCER,
    Throughput,
    measure_throughput,
)
from plait.scripts.bench.order_workload import EDGES_PER_CORE, PAIRS, PUBLICATIONS, SHARINGS, Scene
from plait.scripts.bench.order_world import play
from plait.scripts.bench.peers import ORDERED_PEERS, PeerFigures, measure_peers
from plait.scripts.bench.session import (
    cleaning_up_when_told_to_stop,
    peers_option,
    plots_option,
    rounds_option,
    seconds_option,
    tell_terminal,
    write_plots,
)
from plait.scripts.bench.trials import System, run_trial
from plait.scripts.bench.workloads import SUBSCRIBERS, WORKLOADS
from plait.scripts.options import json_option

COMPARED: Final = tuple(n for n in (FIFO, SEQUENCER, PUBLISHED, PAIRWISE) if n in ORDERINGS)
"""Those that are, in the order in which they are shown."""

DELAY: Final = "delay"
THROUGHPUT: Final = "throughput"
TCP: Final = "tcp"
SCENARIOS: Final = (DELAY, THROUGHPUT, TCP)

SIZES: Final = {24: (100, 300, 1_000), 96: (480,)}
"""Brokers, and how many advertisements and subscriptions, half of them each."""
CONFLICTING: Final = (0.0, 0.25, 0.5, 1.0)
TCP_BROKERS: Final = 3


@attrs.frozen(kw_only=True)
class OrderSession:
    """What to measure."""

    scenarios: Sequence[str] = SCENARIOS
    orderings: Sequence[str] = COMPARED
    sizes: Sequence[int] = tuple(SIZES)
    interests: Sequence[int] = ()
    """Instead of those that `SIZES` has."""
    conflicting: Sequence[float] = CONFLICTING
    publications: int = PUBLICATIONS
    """Of every scene."""
    publishers: Sequence[int] = PUBLISHERS
    seconds: float = 4.0
    rounds: int = 3
    subscribers: int = SUBSCRIBERS
    peers: Path | None = None
    """The harness for other systems."""
    tell: Callable[[str], None] = lambda _: None
    """Is told what comes next."""


def measure(session: OrderSession) -> OrderFigures:
    """Measure all that a session is to measure."""
    return OrderFigures(
        peers=_measure_peers(session),  # first: the harness may turn out to be none
        points=list(_measure_delays(session)) if DELAY in session.scenarios else (),
        throughput=_measure_throughput(session),
        trials=_measure_trials(session) if TCP in session.scenarios else (),
    )


def _measure_delays(session: OrderSession) -> Iterable[Point]:
    for brokers in session.sizes:
        scenes = [
            Scene(
                cores=brokers // (1 + EDGES_PER_CORE),
                publishers=interests // 2,
                subscribers=interests // 2,
                conflicting=conflicting,
                sharing=sharing,
                publications=session.publications,
            )
            for sharing, interests, conflicting in itertools.product(
                SHARINGS, session.interests or SIZES[brokers], session.conflicting
            )
            if conflicting or sharing == PAIRS  # where nothing is shared, it is all the same
        ]
        for number, scene in enumerate(scenes, 1):
            session.tell(f"scene {number} of {len(scenes)} with {brokers} brokers")
            fifo = play(scene, FIFO)
            for ordering in session.orderings:
                outcome = fifo if ordering == FIFO else play(scene, ordering)
                yield look_at(scene, outcome, fifo)


def _measure_throughput(session: OrderSession) -> Throughput | None:
    if THROUGHPUT not in session.scenarios:
        return None
    return measure_throughput(
        session.orderings,
        cores=min(SIZES) // (1 + EDGES_PER_CORE),
        publishers=session.publishers,
        rounds=session.rounds,
        tell=session.tell,
    )


def _measure_trials(session: OrderSession) -> list[Trials]:
    workload = attrs.evolve(WORKLOADS[MTPUT], subscribers=session.subscribers)
    trials = [
        Trials(
            system=System(
                name="bare_everywhere" if is_bare else "everywhere",
                title="bare clients" if is_bare else "client library",
                brokers=TCP_BROKERS,
                is_spread=True,
                publishes_everywhere=True,
                is_bare=is_bare,
                ordering=ordering,
            ),
            workload=workload,
            outcomes=[],
        )
        for is_bare in (True, False)
        for ordering in session.orderings
    ]
    for number in range(1, session.rounds + 1):
        for one in trials:
            system = one.system
            session.tell(f"round {number} of {session.rounds}: {system.ordering}, {system.title}")
            one.outcomes.append(run_async(run_trial, system, workload, session.seconds))
    return trials


def _measure_peers(session: OrderSession) -> PeerFigures | None:
    if session.peers is None:
        return None
    return measure_peers(
        session.peers,
        [MTPUT],
        rounds=session.rounds,
        seconds=session.seconds,
        subscribers=session.subscribers,
        ordering=PAIRWISE,
        peers=ORDERED_PEERS,
        daemons=TCP_BROKERS,
        tell=session.tell,
    )


@click.command()
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(SCENARIOS),
    multiple=True,
    help="Only this one; may be given several times.  [default: all, or none with --peers]",
)
@click.option(
    "--brokers",
    "sizes",
    type=click.Choice(list(map(str, SIZES))),
    multiple=True,
    default=list(map(str, SIZES)),
    help="Of the scenario 'delay'; may be given several times.  [default: all]",
)
@click.option(
    "--interests",
    type=click.IntRange(min=2),
    multiple=True,
    help="Advertisements and subscriptions, half of them each; may be given several times.  "
    "[default: 100, 300 and 1,000 at 24 brokers, 480 at 96]",
)
@seconds_option
@rounds_option
@peers_option
@plots_option
@json_option("the figures, with those of every round,")
def command(
    scenarios: Sequence[str],
    sizes: Sequence[str],
    interests: Sequence[int],
    seconds: float,
    rounds: int,
    peers: Path | None,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Compare orderings: what they cost, and what that is worth.

    \b
    delay       virtual time, every link 10 ms: delays and messages of each publication
    throughput  virtual time, brokers as busy as their cores really are, up to 240 publishers
    tcp         10 publishers and 10 subscribers at three brokers, as fast as it goes

    In the first two, core brokers form a chain with the root in its middle, and each has five edge
    brokers with the clients. Topics conflict if they have publishers and subscribers at several
    edge brokers: at two of them, drawn at random ('pairs'), or at all ('everybody'). If at all,
    whatever is published has to come by the root; then the shortest way that keeps the order is
    that of a sequencer at the root, and pairwise can be as fast, but not faster. 'at home' are
    deliveries at the publisher's own broker, 'others' those that cannot conflict.

    With --peers, RabbitMQ streams and Spread run 'mtput' of a harness with three daemons each, and
    plait with three brokers and its client library. See plait bench overlay --help for the
    environment; Spread is looked for in the folder SPREAD_HOME.

    \b
    Examples:
      plait bench order --scenario delay --brokers 96 --plots plots
      plait bench order --scenario tcp --rounds 5
      plait bench order --peers HARNESS --json
    """  # noqa: D301 - a raw string has no \b, by which click tells what not to wrap
    session = OrderSession(
        scenarios=scenarios or (() if peers else SCENARIOS),
        sizes=tuple(map(int, sizes)),
        interests=interests,
        seconds=seconds,
        rounds=rounds,
        peers=peers,
        tell=tell_terminal,
    )
    with cleaning_up_when_told_to_stop():
        figures = measure(session)
    write_plots(plots, figures.charts())
    click.echo(json.dumps(figures.to_json()) if as_json else report(figures))
