"""One run from its beginning to its verdict, on processes or in virtual time."""

import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import attrs
import trio

from plait.broker.effects import Effect
from plait.broker.event_lines import forward_lines
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.principals import Protection
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import LAUNCHER, World
from plait.faulttol.guarantees import Report, check_run, check_under
from plait.faulttol.history import (
    HistoryWriter,
    Manifest,
    read_run,
    write_manifest,
    write_run,
)
from plait.scripts.async_entry import run_async
from plait.scripts.console import Console
from plait.scripts.conversation import converse
from plait.scripts.event_log import NAME as EVENTS_NAME
from plait.scripts.event_log import EventLog
from plait.scripts.happenings import Happening, Tell
from plait.scripts.hosts import Host, ThisHost
from plait.scripts.launcher import BrokerPlan, launch
from plait.scripts.narration import Clock
from plait.scripts.process_stage import HistoryPlace, open_stage
from plait.scripts.puppet_master import PuppetMaster
from plait.scripts.run_directory import LOG_FOLDER, run_name, state_file, write_processes
from plait.scripts.run_security import FOLDER, RunSecurity, opened
from plait.scripts.scenario import Scenario
from plait.scripts.simulated_stage import SimulatedStage, perform_at_once
from plait.topologies.configuration import LoggingLevel
from plait.topologies.overlay import Overlay


@attrs.frozen(kw_only=True)
class RunPlan:
    """What to run, how, and where to leave what it writes."""

    scenario: Scenario
    ordering: str
    delta: int
    seed: int
    directory: Path
    open_teller: Callable[[Clock], Tell]
    """Makes who tells people what happens, given the clock of the run."""
    hosts: Mapping[str, Host] = attrs.field(factory=dict)
    """The machines of the brokers that do not run on this one."""
    addresses: Mapping[str, str] = attrs.field(factory=dict)
    """Where brokers are to listen, if not at any free port."""
    protection: Protection = Protection.LOOPBACK
    """What keeps others out, where brokers can be reached from other machines."""


def run_on_processes(plan: RunPlan) -> Report:
    """Run over TCP, one process per broker."""

    async def perform(master: PuppetMaster) -> None:
        await master.perform(plan.scenario.script.commands)

    return run_async(_run_on_processes, plan, perform)


def run_interactively(plan: RunPlan, console: Console) -> tuple[Report, int]:
    """Run over TCP: the script first, then what a person types, until the person quits.

    Returns the verdict, and with how many of the lines typed something was wrong.
    """
    mistakes = 0

    async def perform(master: PuppetMaster) -> None:
        nonlocal mistakes
        mistakes = await converse(master, plan.scenario, console)
        await master.finish()

    report = run_async(_run_on_processes, plan, perform)
    return report, mistakes


Performance = Callable[[PuppetMaster], Awaitable[None]]


async def _run_on_processes(plan: RunPlan, perform: Performance) -> Report:
    overlay = plan.scenario.configuration.overlay
    run_id = f"{run_name(plan.directory)}-{secrets.token_hex(4)}"
    manifest = Manifest(
        run=run_id,
        topology=_describe_topology(overlay),
        ordering=plan.ordering,
        delta=plan.delta,
        seed=None,
        started=time.time(),
        simulated=False,
    )
    write_manifest(plan.directory, manifest)
    began, epoch = trio.current_time(), time.time() - trio.current_time()
    show = plan.open_teller(lambda: trio.current_time() - began)
    logs = plan.directory / LOG_FOLDER
    with (
        HistoryWriter(plan.directory, run_id, LAUNCHER, incarnation=1) as history,
        EventLog(plan.directory) as events,
        contextlib.ExitStack() as stack,
    ):

        def note(kind: str, about: str) -> None:
            history.write(epoch + trio.current_time(), kind, about=about)
            history.flush()

        def tell(happening: Happening) -> None:
            events(happening)
            show(happening)

        security = stack.enter_context(_opened_security(plan, run_id))
        plans = _broker_plans(plan, run_id)
        async with launch(plans, log_directory=logs, tell=tell, note=note) as brokers:
            sites = {name: overlay.site_of(name).name for name in overlay.broker_processes}
            write_processes(plan.directory, brokers.describe(sites))
            place = HistoryPlace(
                directory=plan.directory, run_id=run_id, note=note, security=security
            )
            async with open_stage(overlay, brokers, place, tell) as stage:
                await perform(PuppetMaster(stage, overlay, seed=plan.seed, tell=tell))
        for broker in overlay.broker_processes:
            note("stopped", broker)
        for host in dict.fromkeys(plan.hosts.values()):
            host.fetch(plan.directory, run_id)
    write_manifest(plan.directory, attrs.evolve(manifest, ended=time.time()))
    return check_run(read_run(plan.directory))


def _broker_plans(plan: RunPlan, run_id: str) -> list[BrokerPlan]:
    overlay = plan.scenario.configuration.overlay
    return [
        BrokerPlan(
            name=broker,
            parent=overlay.join_point_of(broker),
            arguments=tuple(_broker_arguments(plan, run_id, broker)),
            is_guarded=plan.protection is Protection.TLS,
            listen=plan.addresses.get(broker, ""),
            host=plan.hosts.get(broker, ThisHost()),
        )
        for broker in overlay.broker_processes
    ]


def _broker_arguments(plan: RunPlan, run_id: str, broker: str) -> Iterator[str]:
    configuration = plan.scenario.configuration
    host = plan.hosts.get(broker, ThisHost())
    directory = host.run_directory(plan.directory, run_id)
    yield from ("--ordering", plan.ordering, "--delta", str(plan.delta))
    yield from ("--policy", configuration.routing_policy.value)
    yield from ("--detection", configuration.detection.value)
    yield from ("--managers", configuration.managers.value)
    if (heartbeat := configuration.heartbeat) is not None:
        yield from ("--heartbeat-interval", str(heartbeat.interval_ms))
        yield from ("--heartbeat-timeout", str(heartbeat.timeout_ms))
    yield from ("--run-dir", str(directory), "--run-id", run_id)
    yield from ("--standby", str(configuration.overlay.rank_of(broker)))
    yield from ("--state", str(state_file(directory, broker)))
    if configuration.logging_level is LoggingLevel.FULL:
        yield from ("--events-file", str(directory / f"{EVENTS_NAME}{host.suffix}"))
    if plan.protection is Protection.TLS:
        yield from ("--tls", str(directory / FOLDER / broker))
    elif plan.protection is Protection.INSECURE:
        yield "--insecure"


def _opened_security(
    plan: RunPlan, run_id: str
) -> contextlib.AbstractContextManager[RunSecurity | None]:
    if plan.protection is not Protection.TLS:
        return contextlib.nullcontext()
    overlay = plan.scenario.configuration.overlay
    hosts = {broker: plan.hosts.get(broker, ThisHost()) for broker in overlay.broker_processes}
    return opened(plan.directory, run_id, overlay, hosts)


def run_simulated(plan: RunPlan) -> Report:
    """Run in virtual time; the same plan has the same result, to the last record."""
    run_id = f"simulated-{plan.seed}"
    configuration = plan.scenario.configuration
    limits = DEFAULT_LIMITS  # what processes have: a freeze has the same end here as there
    if (heartbeat := configuration.heartbeat) is not None:
        limits = limits.with_heartbeats(heartbeat.interval_ms, heartbeat.timeout_ms)
    world = World(plan.seed, run=run_id, limits=limits)
    show = plan.open_teller(lambda: world.now)
    with EventLog(plan.directory) as events:

        def tell(happening: Happening) -> None:
            events(happening)
            show(happening)

        def show_forwards(node: Node, effects: list[Effect]) -> None:
            if node.host is not None:
                for line in forward_lines(node.core.node_at, effects):
                    events.write(line)

        if configuration.logging_level is LoggingLevel.FULL:
            world.on_effects = show_forwards
        stage = SimulatedStage(
            world, configuration, ordering=plan.ordering, delta=plan.delta, tell=tell
        )
        master = PuppetMaster(stage, configuration.overlay, seed=plan.seed, tell=tell)
        perform_at_once(master.perform(plan.scenario.script.commands))
    records = world.records()
    manifest = Manifest(
        run=run_id,
        topology=_describe_topology(configuration.overlay),
        ordering=plan.ordering,
        delta=plan.delta,
        seed=plan.seed,
        started=0.0,
        ended=world.now,
        simulated=True,
    )
    write_run(plan.directory, manifest, records)
    return check_under(manifest, records)


def _describe_topology(overlay: Overlay) -> dict[str, str | None]:
    """Return the tree as a manifest has it: each broker with where it joined."""
    return {broker: overlay.join_point_of(broker) for broker in overlay.broker_processes}
