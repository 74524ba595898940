"""Random runs, judged: one seed in, everything that happened and the verdict out."""

from pathlib import Path
from typing import Final

import attrs

from plait.broker.client.session import RECONNECT_TIMEOUT_S
from plait.broker.machine.machine import can_begin_anew
from plait.broker.sim.crowds import Crowd, CrowdedRun
from plait.broker.sim.faults import CUT, NO_TROUBLES
from plait.broker.sim.liars import contained
from plait.broker.sim.nodes import Node
from plait.broker.sim.workloads import RandomRun, Workload
from plait.broker.sim.world import LIVELY_LIMITS, SIMULATED_LIMITS, World
from plait.faulttol.guarantees import Report, check
from plait.faulttol.history import Manifest, Record, write_run
from plait.routing.conflicts import FAST
from plait.routing.orderings import DEFAULT_ORDERING, SUMMIT

BEFORE_FIRST_TICK_S: Final = 4.9
TIMEOUTS_AFTER: Final = 6
"""Of heartbeats: so much longer than any client looks for a broker a run may take to be over."""
NEVER_TOO_MANY: Final = 1 << 30
"""As a δ to judge by: that brokers failed excuses nothing."""


@attrs.frozen(kw_only=True)
class SimulatedRun:
    """What one seed led to."""

    seed: int
    manifest: Manifest
    records: list[Record]
    report: Report
    differences: tuple[str, ...]
    """In what brokers are not as they have to be, or not as those that they replaced, in words."""
    leftovers: tuple[str, ...]
    """What should have come to an end and has not, in words."""
    trace: tuple[str, ...]
    messages_carried: int

    @property
    def is_clean(self) -> bool:
        """Every guarantee held, every broker was taken up as it was, and nothing is left."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """What went wrong, a line each."""
        return [*map(str, self.report.violations), *self.differences, *self.leftovers]

    def write(self, directory: Path) -> None:
        """Leave a run directory, as a run over TCP does."""
        write_run(directory, self.manifest, self.records)


def simulate(
    seed: int,
    *,
    ordering: str = DEFAULT_ORDERING,
    delta: int = 1,
    policy: str | None = None,
    detection: str = FAST,
    managers: str = SUMMIT,
    workload: Workload | None = None,
    is_traced: bool = False,
) -> SimulatedRun:
    """Run a random overlay under a random workload; the policy is drawn too unless it is given.

    That brokers failed excuses nothing, and all has to come to its end. If more than δ may fail at
    a time, sessions may be lost, and publications that are named. Where brokers do not begin anew
    then, what was lost is excused, and only what came is judged.
    """
    workload = workload or Workload()
    limits = LIVELY_LIMITS if workload.is_timed else SIMULATED_LIMITS
    troubles = workload.troubles
    world = World(
        seed,
        run=f"simulated-{seed}",
        limits=limits,
        drift=troubles.drift / 100,
        step_cost_s=troubles.step_cost_ms / 1000,
        tears_all=workload.client_crashes > 0 or troubles != NO_TROUBLES,
        is_traced=is_traced,
    )
    if policy is None:
        policy = world.random.choice(("filter", "filter", "flooding"))
    run = RandomRun(
        world,
        workload,
        ordering=ordering,
        delta=delta,
        policy=policy,
        detection=detection,
        managers=managers,
    )
    world.run(until=BEFORE_FIRST_TICK_S)
    if leftovers(world, run) or workload.has_failures or workload.liars:
        # Somebody waits for a timeout, such as a broker for a client that left while cut off.
        until = RECONNECT_TIMEOUT_S + TIMEOUTS_AFTER * limits.heartbeat_timeout_s
        if troubles != NO_TROUBLES:
            until += 2 * run.duration_s + max(CUT) * limits.heartbeat_timeout_s
        world.run_to_rest(until, lambda: not leftovers(world, run))
    overlay = run.overlay
    ends_well = (workload.is_limited or can_begin_anew(ordering)) and not workload.liars
    return _judged(
        world,
        seed,
        {broker: overlay.parent_of(broker) for broker in overlay.brokers},
        ordering=ordering,
        delta=delta,
        judged_delta=NEVER_TOO_MANY if ends_well else delta,
        unfinished=leftovers(world, run) if ends_well else [],
    )


def simulate_crowd(seed: int, crowd: Crowd, *, is_traced: bool = False) -> SimulatedRun:
    """Run a crowd: nothing is excused, and all has to come to its end."""
    run = CrowdedRun(seed, crowd, run=f"simulated-{seed}", is_traced=is_traced)
    run.play()
    return _judged(
        run.world,
        seed,
        run.parents,
        ordering=crowd.ordering,
        delta=run.delta,
        judged_delta=NEVER_TOO_MANY,
        unfinished=run.leftovers(),
    )


def _judged(
    world: World,
    seed: int,
    topology: dict[str, str | None],
    *,
    ordering: str,
    delta: int,
    judged_delta: int,
    unfinished: list[str],
) -> SimulatedRun:
    records = world.records()
    report = check(records, ordering=ordering, delta=judged_delta)
    found = world.cores.differences()
    if world.liars:
        lied = [broker for liar in world.liars.values() for broker in liar.brokers]
        violations = contained(records, topology, lied, ordering=ordering, delta=judged_delta)
        report = attrs.evolve(report, violations=tuple(violations))
        # What is rebuilt of lies is not what it was.
        found, unfinished = [], [*unfinished, *ended_by_lies(world)]
    manifest = Manifest(
        run=f"simulated-{seed}",
        topology=topology,
        ordering=ordering,
        delta=delta,
        seed=seed,
        started=0.0,
        ended=world.now,
        simulated=True,
    )
    return SimulatedRun(
        seed=seed,
        manifest=manifest,
        records=records,
        report=report,
        differences=tuple(found),
        leftovers=tuple(unfinished),
        trace=tuple(world.trace),
        messages_carried=world.messages_carried,
    )


def ended_by_lies(world: World) -> list[str]:
    """Hosts that do not lie themselves, and have been ended all the same, by what they were told.

    Who has no place in the overlay yet may be turned away, and serves nobody. Who is taken for
    failed begins a new life (`fenced`), which costs no more than a crash.
    """
    return [
        f"{node.name} was ended: {node.stopped}"
        for node in (*world.former, *world.residents())
        if node.host is not None
        and node.is_ready
        and node.address not in world.liars
        and node.stopped not in (None, "crashed", "left", "stopped")
        and not node.stopped.startswith("fenced")
    ]


def leftovers(world: World, run: RandomRun) -> list[str]:
    """Whatever is not finished although nothing more will happen."""
    found = []
    if run.unanswered:
        found.append(f"{run.unanswered} calls of clients were never answered")
    found.extend(f"{name} has failed, and is not got over" for name in world.unresolved())
    living = [node for node in world.residents() if node.is_alive]
    claimed = {name for node in living if node.client for name in node.client.interests}
    for node in living:
        if node.host is not None:
            known = [name for name in node.host.known_interests() if name not in claimed]
            found.extend(f"{node.name}: knows {name}, which nobody has" for name in known)
    names = {node.name for node in living}
    for node in world.residents():
        # Of two processes of one name, one has to give way.
        has_given_way = node.host is not None and not node.is_alive and node.name in names
        if node.stopped not in ("crashed", "left") and not has_given_way:
            is_away = node.name in world.have_been_away or not run.workload.is_limited
            found.extend(_leftovers_of(node, may_lose_session=is_away))
    return found


def _leftovers_of(node: Node, *, may_lose_session: bool) -> list[str]:
    if not node.is_alive:
        return [f"{node.name} stopped: {node.stopped}"]
    unfinished = [f"{node.name}: {text}" for text in node.door.unfinished()]
    if node.client is not None and node.client.has_lost_session and not may_lose_session:
        unfinished.append(f"{node.name} has lost its session")
    return unfinished
