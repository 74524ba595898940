"""One run from its beginning to its verdict, on processes or in virtual time."""

import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.sim.world import World
from faulttol.guarantees import Report, check, check_run
from faulttol.history import HistoryWriter, Manifest, read_run, write_manifest, write_run
from scripts.async_entry import run_async
from scripts.console import Console
from scripts.conversation import converse
from scripts.happenings import Tell
from scripts.launcher import BrokerPlan, launch
from scripts.narration import Clock
from scripts.process_stage import HistoryPlace, open_stage
from scripts.puppet_master import PuppetMaster
from scripts.run_directory import LOG_FOLDER, write_processes
from scripts.scenario import Scenario
from scripts.simulated_stage import SimulatedStage, perform_at_once
from topologies.overlay import Overlay

LAUNCHER: Final = "plait-launcher"
"""The node that records what happened to the processes of others."""


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


def run_on_processes(plan: RunPlan) -> Report:
    """Run over TCP, one process per broker."""

    async def perform(master: PuppetMaster) -> None:
        await master.perform(plan.scenario.script.commands)

    return run_async(_run_on_processes, plan, perform)


def run_interactively(plan: RunPlan, console: Console) -> Report:
    """Run over TCP: the script first, then what a person types, until the person quits."""

    async def perform(master: PuppetMaster) -> None:
        await master.perform(plan.scenario.script.commands)
        await converse(master, plan.scenario, console)
        await master.perform([])

    return run_async(_run_on_processes, plan, perform)


Performance = Callable[[PuppetMaster], Awaitable[None]]


async def _run_on_processes(plan: RunPlan, perform: Performance) -> Report:
    overlay = plan.scenario.configuration.overlay
    run_id = f"{plan.directory.name}-{secrets.token_hex(4)}"
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
    began = trio.current_time()
    tell = plan.open_teller(lambda: trio.current_time() - began)
    logs = plan.directory / LOG_FOLDER
    async with launch(_broker_plans(plan, run_id), log_directory=logs, tell=tell) as brokers:
        write_processes(plan.directory, brokers.describe())
        place = HistoryPlace(directory=plan.directory, run_id=run_id)
        async with open_stage(overlay, brokers, place, tell) as stage:
            await perform(PuppetMaster(stage, seed=plan.seed, tell=tell))
    with HistoryWriter(plan.directory, run_id, LAUNCHER, incarnation=1) as history:
        for broker in overlay.brokers:
            history.write(time.time(), "stopped", about=broker)
    write_manifest(plan.directory, attrs.evolve(manifest, ended=time.time()))
    return check_run(read_run(plan.directory))


def _broker_plans(plan: RunPlan, run_id: str) -> list[BrokerPlan]:
    configuration = plan.scenario.configuration
    arguments = (
        *("--ordering", plan.ordering, "--delta", str(plan.delta)),
        *("--policy", configuration.routing_policy.value),
        *("--detection", configuration.detection.value),
        *("--run-dir", str(plan.directory), "--run-id", run_id),
    )
    overlay = configuration.overlay
    return [
        BrokerPlan(name=broker, parent=overlay.parent_of(broker), arguments=arguments)
        for broker in overlay.brokers
    ]


def run_simulated(plan: RunPlan) -> Report:
    """Run in virtual time; the same plan has the same result, to the last record."""
    run_id = f"simulated-{plan.seed}"
    world = World(plan.seed, run=run_id)
    tell = plan.open_teller(lambda: world.now)
    stage = SimulatedStage(
        world, plan.scenario.configuration, ordering=plan.ordering, delta=plan.delta, tell=tell
    )
    master = PuppetMaster(stage, seed=plan.seed, tell=tell)
    perform_at_once(master.perform(plan.scenario.script.commands))
    records = world.records()
    manifest = Manifest(
        run=run_id,
        topology=_describe_topology(plan.scenario.configuration.overlay),
        ordering=plan.ordering,
        delta=plan.delta,
        seed=plan.seed,
        started=0.0,
        ended=world.now,
        simulated=True,
    )
    write_run(plan.directory, manifest, records)
    return check(records, ordering=plan.ordering, delta=plan.delta)


def _describe_topology(overlay: Overlay) -> dict[str, str | None]:
    """Return the tree as a manifest has it: each broker with its parent."""
    return {broker: overlay.parent_of(broker) for broker in overlay.brokers}
