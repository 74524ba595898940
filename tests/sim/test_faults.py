"""What goes wrong in random runs does go wrong, and no more of it at a time than may."""

from collections.abc import Callable

import pytest

from plait.broker.sim.faults import NO_TROUBLES, Troubles
from plait.broker.sim.runs import simulate
from plait.broker.sim.workloads import RandomRun, Workload
from plait.broker.sim.world import LIVELY_LIMITS, World
from plait.routing.ids import NodeId
from plait.routing.orderings import SUMMIT

EVERYTHING = Workload(
    crashes=2,
    recoveries=2,
    client_crashes=2,
    troubles=Troubles(
        drift=10, jumps=1, pauses=1, step_cost_ms=0.2, cuts=1, twins=1, bad_disks=True
    ),
)


def _run(world: World, workload: Workload, *, delta: int = 1) -> RandomRun:
    return RandomRun(
        world,
        workload,
        ordering="pairwise",
        delta=delta,
        policy="filter",
        detection="fast",
        managers=SUMMIT,
    )


def _trace(workload: Workload, *, seeds: int = 12, until: float = 12.0) -> str:
    """What happens in some runs, whatever comes of it."""
    lines: list[str] = []
    for seed in range(seeds):
        world = World(seed, limits=LIVELY_LIMITS, is_traced=True)
        _run(world, workload)
        world.run(until=until)
        lines += world.trace
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("workload", "signs"),
    [
        (Workload(troubles=Troubles(pauses=2)), ["is paused for", "goes on"]),
        (Workload(troubles=Troubles(jumps=2)), ["s forward"]),
        (
            Workload(troubles=Troubles(cuts=2)),
            [
                "do not reach each other",
                "does not reach",
                "is not reached by",
                "all others",
                "no more: ",
            ],
        ),
        (Workload(troubles=Troubles(twins=1)), ["is started a second time, at b"]),
        (
            Workload(crashes=2, recoveries=2, troubles=Troubles(bad_disks=True)),
            ["is started again, old", "is started again, lost"],
        ),
        (Workload(client_crashes=3), ["p1 crashes", "s1 crashes", "p1 is started again"]),
    ],
    ids=["pauses", "jumps", "cuts", "twins", "disks", "clients"],
)
def test_what_is_asked_for_happens(workload: Workload, signs: list[str]) -> None:
    trace = _trace(workload)

    assert [sign for sign in signs if sign not in trace] == []


def test_a_machine_next_to_one_that_is_killed_may_be_paused_just_then() -> None:
    trace = _trace(Workload(crashes=1, troubles=Troubles(pauses=1)), seeds=20)
    crashes = [line.split()[0] for line in trace.splitlines() if line.endswith(" crashes")]
    pauses = [line.split()[0] for line in trace.splitlines() if " is paused for " in line]

    assert set(crashes) & set(pauses)


def test_two_that_are_far_apart_are_killed_at_the_same_moment() -> None:
    killed: list[tuple[float, set[NodeId]]] = []
    """When, and whoever was at most one connection away, for each."""
    for seed in range(12):
        world = World(seed, limits=LIVELY_LIMITS)
        _run(world, Workload(shape="chain", troubles=Troubles(pairs=1)))
        plain = world.crash

        def crash(
            address: NodeId, world: World = world, plain: Callable[[NodeId], None] = plain
        ) -> None:
            near = {name for link in world.links() if address in link for name in link}
            killed.append((world.now, near))
            plain(address)

        world.crash = crash  # type: ignore[method-assign]
        world.run(until=12)
    pairs = list(zip(killed[::2], killed[1::2], strict=True))

    assert len(pairs) > 5
    assert all(one[0] == other[0] and not one[1] & other[1] for one, other in pairs)


def test_a_publisher_dies_in_the_middle_of_what_it_publishes_at_once() -> None:
    cut_short = 0
    for seed in range(40):
        run = simulate(seed, workload=Workload(client_crashes=3), is_traced=True)
        for record in run.records:
            if record["kind"] == "crashed" and record["about"].startswith("p"):
                at, name = record["at"], record["about"]
                last = [
                    r["seq"]
                    for r in run.records
                    if r["kind"] == "published" and r["node"] == name and r["at"] == at
                ]
                came = [s for s in last if any(f" Publish {name}:{s} " in x for x in run.trace)]
                cut_short += 0 < len(came) < len(last)

    assert cut_short > 0


@pytest.mark.parametrize("shape", ["chain", "star"])
def test_trees_have_the_shape_that_was_asked_for(shape: str) -> None:
    run = _run(World(0), Workload(brokers=50, shape=shape))
    parents = [run.overlay.parent_of(f"b{number}") for number in range(1, 50)]

    assert parents == [f"b{number if shape == 'chain' else 0}" for number in range(49)]


def test_no_more_than_delta_are_made_to_fail_at_a_time() -> None:
    for seed in range(8):
        world = World(seed, limits=LIVELY_LIMITS)
        run = _run(world, Workload(crashes=3, freezes=2, troubles=Troubles(cuts=3)), delta=2)
        failed = 0
        plain = run.world.crash

        def crash(
            address: NodeId, world: World = world, plain: Callable[[NodeId], None] = plain
        ) -> None:
            nonlocal failed
            failed = max(failed, world.vulnerable())
            plain(address)

        world.crash = crash  # type: ignore[method-assign]
        world.run(until=30)

        assert failed < 2


def test_a_run_in_which_everything_goes_wrong_repeats_exactly() -> None:
    one, other = (simulate(5, workload=EVERYTHING, is_traced=True) for _ in range(2))

    assert one.trace == other.trace
    assert one.records == other.records


def test_nothing_goes_wrong_unless_it_is_asked_for() -> None:
    assert Workload().troubles == NO_TROUBLES
    assert not NO_TROUBLES.are_timed
