"""Brokers over TCP beside the least that could do their work, and beside other systems.

Figures of different runs cannot be compared, not even on one machine. So one session measures all
that is to be compared, everybody taking turns, round after round, and prints medians and ratios.

Read `trials.py` for how a trial goes, `workloads.py` for what its clients do, `relay.py` for what
a broker is compared with, and `figures.py` for the ratios.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from plait.routing.orderings import ORDERINGS
from plait.scripts.async_entry import run_async
from plait.scripts.bench.connecting import CLIENTS, ConnectingFigures, measure_connecting
from plait.scripts.bench.figures import Figures, Trials
from plait.scripts.bench.memory import (
    BROKERS,
    STAGES,
    SUBSCRIPTIONS,
    MemoryFigures,
    measure_memory,
)
from plait.scripts.bench.peers import PeerFigures, measure_peers
from plait.scripts.bench.report import report
from plait.scripts.bench.session import (
    cleaning_up_when_told_to_stop,
    peers_option,
    rounds_option,
    seconds_option,
    tell_terminal,
)
from plait.scripts.bench.trials import (
    BARE_BROKER,
    BROKER,
    DEFAULT_ORDERING,
    FRAME_RELAY,
    LINE,
    RELAY,
    SPREAD_LINE,
    TLS_BROKER,
    System,
    run_trial,
)
from plait.scripts.bench.workloads import SUBSCRIBERS, THROUGHPUT, WORKLOADS
from plait.scripts.options import json_option

SYSTEMS: Final[dict[str, tuple[System, ...]]] = {
    "tput": (RELAY, BARE_BROKER, FRAME_RELAY, BROKER),
    "lat": (RELAY, BROKER),
    "mtput": (RELAY, BROKER),
    "mlat": (RELAY, BROKER),
    "sel": (BROKER,),
    "line": (BROKER, LINE, SPREAD_LINE),
    "tls": (BROKER, TLS_BROKER),
}
"""What is tried in which scenario. Two have no workload of their own, but that of `tput`."""

MEMORY: Final = "memory"
CONNECTING: Final = "connect"
SCENARIOS: Final = (*SYSTEMS, CONNECTING, MEMORY)


@attrs.frozen(kw_only=True)
class Session:
    """What to measure."""

    scenarios: Sequence[str] = SCENARIOS
    seconds: float = 4.0
    rounds: int = 3
    ordering: str = DEFAULT_ORDERING
    subscribers: int = SUBSCRIBERS
    subscriptions: int = SUBSCRIPTIONS
    brokers: int = BROKERS
    """In the overlay that holds them."""
    peers: Path | None = None
    """The harness for other systems."""
    tell: Callable[[str], None] = lambda _: None
    """Is told what comes next."""


def measure(session: Session) -> Figures:
    """Measure all that a session is to measure."""
    return Figures(
        seconds=session.seconds,
        rounds=session.rounds,
        ordering=session.ordering,
        peers=_measure_peers(session),  # first: the harness may turn out to be none
        trials=_measure_trials(session),
        connecting=_measure_connecting(session),
        memory=_measure_memory(session),
    )


def _measure_peers(session: Session) -> PeerFigures | None:
    if session.peers is None:
        return None
    return measure_peers(
        session.peers,
        [name for name in session.scenarios if name in WORKLOADS],
        rounds=session.rounds,
        seconds=session.seconds,
        subscribers=session.subscribers,
        ordering=session.ordering,
        tell=session.tell,
    )


def _measure_trials(session: Session) -> list[Trials]:
    workloads = {
        name: attrs.evolve(workload, subscribers=session.subscribers)
        for name, workload in (*WORKLOADS.items(), ("line", THROUGHPUT), ("tls", THROUGHPUT))
    }
    # What two scenarios have in common is tried once.
    trials = {
        (system.name, workloads[scenario].name): Trials(
            system=attrs.evolve(system, ordering=session.ordering),
            workload=workloads[scenario],
            outcomes=[],
        )
        for scenario in SYSTEMS
        if scenario in session.scenarios
        for system in SYSTEMS[scenario]
    }
    for number in range(1, session.rounds + 1):
        for one in trials.values():
            session.tell(
                f"round {number} of {session.rounds}: {one.workload.name}, {one.system.title}"
            )
            one.outcomes.append(run_async(run_trial, one.system, one.workload, session.seconds))
    return list(trials.values())


def _measure_connecting(session: Session) -> ConnectingFigures | None:
    if CONNECTING not in session.scenarios:
        return None
    session.tell(f"{CLIENTS:,} clients connect, without TLS and with it")
    return run_async(measure_connecting, CLIENTS)


def _measure_memory(session: Session) -> MemoryFigures | None:
    if MEMORY not in session.scenarios:
        return None
    session.tell(f"{session.subscriptions:,} subscriptions at {session.brokers} brokers")
    return run_async(measure_memory, session.subscriptions, session.brokers, session.ordering)


@click.command()
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(SCENARIOS),
    multiple=True,
    default=SCENARIOS,
    help="Only this one; may be given several times.  [default: all]",
)
@seconds_option
@rounds_option
@click.option(
    "--ordering",
    type=click.Choice(list(ORDERINGS)),
    default=DEFAULT_ORDERING,
    show_default=True,
    help="What the brokers promise.",
)
@click.option(
    "--subscriptions",
    type=click.IntRange(min=len(STAGES)),
    default=SUBSCRIPTIONS,
    show_default=True,
    help="Of the scenario 'memory'.",
)
@peers_option
@json_option("the figures, with those of every round,")
def command(
    scenarios: Sequence[str],
    seconds: float,
    rounds: int,
    ordering: str,
    subscriptions: int,
    peers: Path | None,
    as_json: bool,
) -> None:
    """Measure brokers over TCP, one process per broker and per client.

    \b
    tput    1 publisher, 10 subscribers, 200 bytes, as fast as the slowest one goes
    lat     1 publisher, 500 publications a second: how long each takes
    mtput   10 publishers, together as fast as the slowest subscriber goes
    mlat    10 publishers, 50 a second each
    sel     1 publisher, each publication wanted by 1 of the 10 subscribers
    line    'tput' over a line of five brokers, compared with one
    tls     'tput' by TLS, compared with one broker without
    connect 1,000 clients connect to one broker, without TLS and with it
    memory  10,000 subscriptions installed at all of seven brokers

    What brokers are compared with is a relay: trio, too, but it knows nothing but the lengths of
    frames. All that is compared is measured in the same session, by turns. Everything together
    takes some five minutes.

    With --peers, the same scenarios are also run with RabbitMQ and amqtt, and with plait as one
    more peer in their harness. Those that are not installed are left out. Their Python packages
    have to be where plait is, in an environment made for that:

    \b
      python3 -m venv peers-env
      peers-env/bin/pip install '.[bench]' pika==1.4.4 amqtt==0.12.1 paho-mqtt==2.2.0
      peers-env/bin/plait bench overlay --scenario tput --scenario lat --peers HARNESS

    \b
    Examples:
      plait bench overlay --scenario tput --seconds 10
      plait bench overlay --scenario line --scenario memory --json
    """  # noqa: D301 - a raw string has no \b, by which click tells what not to wrap
    session = Session(
        scenarios=scenarios,
        seconds=seconds,
        rounds=rounds,
        ordering=ordering,
        subscriptions=subscriptions,
        peers=peers,
        tell=tell_terminal,
    )
    with cleaning_up_when_told_to_stop():
        figures = measure(session)
    click.echo(json.dumps(figures.to_json()) if as_json else report(figures))
