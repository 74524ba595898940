"""`plait broker`: one broker, until it is told to stop."""

import contextlib
import gc
import json
import os
from pathlib import Path
from typing import Final

import attrs
import click
import trio

from plait.broker.effects import Level
from plait.broker.errors import AddressError, ListenError, StateError
from plait.broker.limits import DEFAULT_LIMITS, INCARNATION_MAX
from plait.broker.net.broker_process import BrokerAddresses, BrokerSettings, serve_broker
from plait.broker.net.security import RULES
from plait.routing.ids import NodeId
from plait.routing.orderings import DEFAULT_ORDERING, ORDERINGS_OF_HOSTS
from plait.scripts.async_entry import run_async
from plait.scripts.errors import BadInputError, EnvironmentFailedError
from plait.scripts.options import AddressType, detection_option, examples, managers_option
from plait.scripts.rules_file import load_rules
from plait.scripts.run_directory import checked_run_id
from plait.scripts.standard_streams import say
from plait.scripts.supervision import accept_supervision

POLICIES: Final = ("filter", "flooding")

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""A broker keeps thousands of publications for a moment and makes no cycles of them: to look for
cycles after every 700 new objects, as Python does by itself, takes an eighth of its time."""


@click.command(
    epilog=examples(
        "plait broker --name b1 --listen :4000",
        "plait broker --name b2 --listen :4001 --join :4000 --metrics :9101",
        "plait broker --name b3 --tls certs --listen 0.0.0.0:4000 --listen-brokers 0.0.0.0:4001 "
        "--join b1.example:4001",
    )
)
@click.option("--name", required=True, help="Its name, unique in the overlay.")
@click.option(
    "--listen",
    type=AddressType(listens=True),
    default="127.0.0.1:0",
    show_default=True,
    help="Where brokers and clients connect, with --tls clients; port 0 is any that is free.",
)
@click.option(
    "--tls",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Let nobody in who has not shown who it is: what `plait certs init` makes.",
)
@click.option(
    "--listen-brokers",
    type=AddressType(listens=True),
    help="With --tls, where brokers connect; any free port beside --listen if not given.",
)
@click.option(
    "--join",
    type=AddressType(),
    multiple=True,
    help="A broker of the overlay; the root joins nobody. Given more than once, the others are "
    "asked if the first cannot be reached, now or after too many crashes.",
)
@click.option(
    "--ordering",
    type=click.Choice(list(ORDERINGS_OF_HOSTS)),
    default=DEFAULT_ORDERING,
    show_default=True,
    help="What subscribers are promised; the same on all brokers.",
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default=POLICIES[0],
    show_default=True,
    help="Publications go where they are wanted, or everywhere; the same on all brokers.",
)
@click.option(
    "--delta",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Crashes at a time to survive; the same on all brokers.",
)
@detection_option
@managers_option
@click.option(
    "--heartbeat-interval",
    "interval_ms",
    metavar="MS",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMITS.heartbeat_interval_ms,
    show_default=True,
    help="Of the root: how often neighbours hear of each other. Who joins takes it from there.",
)
@click.option(
    "--heartbeat-timeout",
    "timeout_ms",
    metavar="MS",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMITS.heartbeat_timeout_ms,
    show_default=True,
    help="Of the root: whoever is silent for so long has failed. Who joins takes it from there.",
)
@click.option(
    "--standby",
    type=click.IntRange(min=0),
    default=0,
    help="Only wait until the broker at the join point fails; 1 is the first to take over.",
)
@click.option(
    "--metrics",
    type=AddressType(listens=True),
    help="Answer HTTP there: /metrics, /status.",
)
@click.option(
    "--address", type=AddressType(), help="Where others reach it, if not where it listens."
)
@click.option(
    "--address-brokers", type=AddressType(), help="The same, of where --listen-brokers listens."
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen at addresses that other machines reach, and believe whoever comes.",
)
@click.option(
    "--rules",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Who may publish, subscribe, monitor and operate, and how much; `plait can` explains it. "
    "What it does not allow is refused. Read again at SIGHUP. With --tls, FOLDER/rules if it is "
    "there.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of its own, by which it finds the others again after a crash.",
)
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a history into this run directory.",
)
@click.option("--run-id", default="", help="The run that the history belongs to.")
@click.option(
    "--events-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append a line for every publication that it sends on, as `plait events` shows them.",
)
@click.option(
    "--incarnation",
    type=click.IntRange(min=1, max=INCARNATION_MAX),
    default=1,
    show_default=True,
    help="Counts up with every start under the same name and run.",
)
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to log, instead of standard error.",
)
@click.option(
    "--log-level",
    type=click.Choice([level.value for level in Level]),
    default=Level.INFO.value,
    show_default=True,
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the line that says it is ready as JSON."
)
@click.option("--supervised", is_flag=True, hidden=True, help="See scripts/supervision.py.")
def command(
    name: str,
    listen: str,
    tls: Path | None,
    listen_brokers: str | None,
    join: tuple[str, ...],
    ordering: str,
    policy: str,
    delta: int,
    detection: str,
    managers: str,
    interval_ms: int,
    timeout_ms: int,
    standby: int,
    metrics: str | None,
    address: str | None,
    address_brokers: str | None,
    insecure: bool,
    rules: Path | None,
    state: Path | None,
    run_dir: Path | None,
    run_id: str,
    events_file: Path | None,
    incarnation: int,
    log_file: Path | None,
    log_level: str,
    as_json: bool,
    supervised: bool,
) -> None:
    """Run one broker. It prints one line when it has joined and serves.

    The first broker of an overlay is the root; every other one joins at any broker that is there
    already, and clients connect to any of them. SIGTERM or Ctrl-C stops it as soon as everything
    it has accepted is where it belongs; a second one stops it at once.
    """
    if rules is None and tls is not None and (tls / RULES).exists():
        rules = tls / RULES
    if rules is not None:
        load_rules(str(rules))  # for all that is wrong with it, with its places
    if tls is not None and insecure:
        raise click.UsageError("--tls lets nobody in uninvited and --insecure everybody: take one.")
    if tls is None and (listen_brokers or address_brokers):
        raise click.UsageError("Brokers have a door of their own with --tls FOLDER only.")
    join_point, *fallbacks = [accept_supervision()] if supervised else (join or [""])
    try:
        limits = DEFAULT_LIMITS.with_heartbeats(interval_ms, timeout_ms)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    settings = BrokerSettings(
        node=NodeId(name),
        incarnation=incarnation,
        listen=listen,
        tls=tls,
        listen_brokers=listen_brokers,
        is_insecure=insecure,
        address=address,
        address_brokers=address_brokers,
        join=join_point or None,
        fallbacks=tuple(fallbacks),
        limits=limits,
        ordering=ordering,
        policy=policy,
        delta=delta,
        detection=detection,
        managers=managers,
        standby=standby,
        metrics=metrics,
        rules=rules,
        state=state,
        run_dir=run_dir,
        run_id=checked_run_id(run_id),
        events_file=events_file,
        log_file=log_file,
        log_level=Level(log_level),
    )
    try:
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        run_async(_serve, settings, as_json)
    except StateError as error:
        raise BadInputError(
            f"{error}; remove it, and the broker begins anew, with --incarnation N if others "
            "remember an earlier one"
        ) from error
    except AddressError as error:
        raise BadInputError(str(error)) from error
    except ListenError as error:
        raise EnvironmentFailedError(
            f"{error}; choose another port, or port 0 for any that is free"
        ) from error


async def _serve(settings: BrokerSettings, as_json: bool) -> None:
    joined = trio.Event()
    settings = attrs.evolve(settings, on_ready=joined.set)
    async with trio.open_nursery() as nursery:
        addresses: BrokerAddresses = await nursery.start(_serve_to_the_end, settings, nursery)
        # Joining may be what it never gets to do; then its end says why.
        await joined.wait()
        with contextlib.suppress(OSError):
            say(_ready(settings, addresses, as_json))


async def _serve_to_the_end(
    settings: BrokerSettings,
    nursery: trio.Nursery,
    *,
    task_status: trio.TaskStatus[BrokerAddresses],
) -> None:
    await serve_broker(settings, task_status=task_status)
    nursery.cancel_scope.cancel()


def _ready(settings: BrokerSettings, addresses: BrokerAddresses, as_json: bool) -> str:
    """Return the line that says that it serves."""
    if as_json:
        ready = {
            "name": settings.node,
            "address": settings.address or addresses.broker,
            "brokers": settings.address_brokers or addresses.for_brokers,
            "metrics": addresses.metrics,
            "pid": os.getpid(),
        }
        return json.dumps(ready)
    brokers = f", for brokers at {addresses.brokers}" if addresses.brokers else ""
    scheme = "https" if settings.tls else "http"
    metrics = f", metrics at {scheme}://{addresses.metrics}/metrics" if addresses.metrics else ""
    return f"{settings.node} is ready at {addresses.broker}{brokers}{metrics}"
