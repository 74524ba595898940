"""Random runs keep every guarantee; and broken nodes are found out by the same runs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import broker.client_core
import broker.publications
from broker.client_core import ClientCore
from broker.effects import Deliver
from broker.last_seen import NEVER, LastSeen, Stamp
from broker.messages import Publish
from broker.neighbours import NOWHERE
from broker.publications import Publications
from broker.sim.runs import SimulatedRun, simulate
from broker.sim.workloads import Workload
from faulttol.history import read_run
from routing.ids import NodeId
from tests.processes import finished

A_FEW_SEEDS = range(150)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "ordering", ["none", "fifo", "pairwise", "sequencer", "sequencer-filtered"]
)
@pytest.mark.parametrize("delta", [0, 1, 2])
def test_every_seed_keeps_every_guarantee(ordering: str, delta: int) -> None:
    for seed in A_FEW_SEEDS:
        run = simulate(seed, ordering=ordering, delta=delta)
        assert run.failures == [], f"seed {seed}"


@pytest.mark.parametrize(
    ("seed", "delta", "crashes", "recoveries"),
    [
        (3598, 1, 1, 0),
        (7186, 1, 2, 0),
        (5456, 2, 2, 0),
        (3725, 2, 2, 0),
        (6662, 2, 4, 0),
        (11578, 2, 4, 0),
        (11800, 2, 4, 0),
        (1300395, 2, 4, 0),
        (1306178, 2, 4, 0),
        (6694, 3, 6, 0),
        (3164, 1, 1, 1),
        (2863, 1, 1, 1),
        (50612, 2, 2, 2),
        (51190, 2, 2, 2),
        (7370, 2, 3, 2),
        (512623, 2, 4, 2),
        (1100985, 2, 4, 2),
        (1126264, 2, 4, 2),
        (5952, 3, 3, 3),
        (16782, 3, 3, 3),
        (1206695, 3, 6, 3),
        (1207860, 3, 6, 3),
        (2004670, 3, 6, 3),
        (2016175, 3, 6, 3),
        (2029050, 3, 6, 3),
        (2044125, 3, 6, 3),
        (2209109, 3, 6, 3),
        (2402019, 3, 6, 3),
        (2413775, 3, 6, 3),
        (2421847, 3, 6, 3),
        (2422579, 3, 6, 3),
        (2424625, 3, 6, 3),
        (2614921, 3, 6, 3),
        (2618456, 3, 6, 3),
        (4005471, 3, 6, 3),
        (5005330, 3, 6, 3),
        (6010170, 3, 6, 3),
        (8009065, 3, 6, 3),
        (80000513, 3, 6, 3),
        (80006824, 3, 6, 3),
        (80001492, 3, 6, 3),
        (80001664, 3, 6, 3),
        (80028146, 3, 6, 3),
        (90024141, 3, 6, 3),
        (110022309, 3, 6, 3),
        (130022638, 3, 6, 3),
        (150008671, 3, 6, 3),
        (210002137, 3, 6, 3),
        (80033332, 3, 6, 3),
        (6308449, 2, 4, 2),
        (170069753, 2, 4, 2),
        (5318065, 2, 4, 2),
        (400031036, 2, 4, 2),
    ],
)
def test_schedules_that_once_went_wrong(
    seed: int, delta: int, crashes: int, recoveries: int
) -> None:
    """What each of them was is in the history; with links of equal delay few of them come about."""
    workload = Workload(crashes=crashes, recoveries=recoveries)

    assert simulate(seed, delta=delta, workload=workload).failures == []


@pytest.mark.parametrize(
    ("seed", "delta"),
    [
        (402086, 1),
        (404632, 1),
        (408923, 1),
        (424139, 1),
        (453280, 1),
        (540236, 2),
        (600478, 3),
        (602408, 3),
        (604412, 3),
        (605085, 3),
        (606549, 3),
        (642138, 3),
        (87000390, 2),
    ],
)
def test_schedules_with_moves_that_once_went_wrong(seed: int, delta: int) -> None:
    recoveries = max(2, delta)
    workload = Workload(crashes=2 * delta, recoveries=recoveries, moves=1, standbys=1)

    assert simulate(seed, delta=delta, workload=workload).failures == []


@pytest.mark.parametrize(
    ("seed", "delta"),
    [
        (2106547, 1),
        (2112819, 1),
        (2144291, 1),
        (2150626, 1),
        (2300622, 1),
        (2308876, 1),
        (2316076, 1),
        (2912397, 1),
        (4132697, 1),
        (4133690, 1),
        (200011102, 1),
        (290074570, 1),
        (300641, 2),
        (302906, 2),
        (303020, 2),
        (303822, 2),
        (304381, 2),
        (1401822, 2),
        (83012222, 2),
        (83012677, 2),
        (260015105, 2),
        (260021087, 2),
        (310033604, 2),
        (390005523, 2),
    ],
)
def test_schedules_beyond_delta_that_once_went_wrong(seed: int, delta: int) -> None:
    workload = Workload(crashes=4, recoveries=2, is_limited=False)

    assert simulate(seed, delta=delta, workload=workload).failures == []


@pytest.mark.parametrize(("seed", "delta"), [(503, 3)])
def test_schedules_with_freezes_that_once_went_wrong(seed: int, delta: int) -> None:
    workload = Workload(crashes=delta, recoveries=1, freezes=2)

    assert simulate(seed, delta=delta, workload=workload).failures == []


@pytest.mark.parametrize(
    ("seed", "delta"),
    [
        (467003448, 1),
        (467005256, 1),
        (471006089, 1),
        (466002741, 2),
        (466002808, 2),
        (466005356, 2),
        (466010573, 2),
        (466012987, 2),
        (470003242, 2),
    ],
)
def test_schedules_with_moves_and_freezes_that_once_went_wrong(seed: int, delta: int) -> None:
    some = 3 - delta
    workload = Workload(crashes=2 * delta, recoveries=delta, freezes=1, moves=some, standbys=some)

    assert simulate(seed, delta=delta, workload=workload).failures == []


def test_a_broker_may_freeze_at_any_moment() -> None:
    workload = Workload(freezes=2)
    for seed in range(20):
        assert simulate(seed, workload=workload).failures == [], f"seed {seed}"


@pytest.mark.parametrize(
    "ordering", ["published", "published-progressive", "published-whole-queue"]
)
def test_as_published_nothing_but_the_order_is_violated(ordering: str) -> None:
    runs = [simulate(seed, ordering=ordering) for seed in A_FEW_SEEDS]
    guarantees = {violation.guarantee for run in runs for violation in run.report.violations}
    wrong = sum(not run.is_clean for run in runs)

    assert guarantees == {"pairwise"}
    assert [run.leftovers for run in runs if run.leftovers] == []
    assert 0.01 < wrong / len(runs) < 0.2


def test_a_seed_repeats_exactly() -> None:
    first, again = (simulate(7, is_traced=True) for _ in range(2))

    assert first.trace == again.trace
    assert first.records == again.records
    assert len(first.trace) > 100


def test_a_seed_repeats_exactly_in_another_process() -> None:
    """Where hashes of strings are others, and with them the order of sets."""
    program = (
        "from broker.sim.runs import simulate; from broker.sim.workloads import Workload;"
        "workload = Workload(crashes=6, recoveries=3);"
        "runs = [simulate(7000000 + n, delta=3, workload=workload, is_traced=True)"
        " for n in (16, 17, 18, 19)];"
        "print([run.trace for run in runs])"
    )
    traces = {
        finished(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
        ).stdout
        for seed in "123"
    }

    assert len(traces) == 1


def test_the_workload_does_what_it_is_meant_to_do() -> None:
    """Together the seeds see churn, cut connections, late joins and lost sessions."""
    kinds: dict[str, int] = {}
    lines: list[str] = []
    for seed in A_FEW_SEEDS:
        run = simulate(seed, workload=Workload(absences=0.3), is_traced=True)
        lines.extend(run.trace)
        for record in run.records:
            kinds[record["kind"]] = kinds.get(record["kind"], 0) + 1

    assert kinds["delivered"] > 1000
    assert kinds["unsubscribed"] > 100
    assert kinds["unadvertised"] > 10
    assert kinds["skipped"] > 0
    text = "\n".join(lines)
    for event in ("lose their connection", "link resumed", "session lost", "stops, left"):
        assert event in text


def test_a_run_is_written_as_a_run_over_tcp_is(tmp_path: Any) -> None:
    run = simulate(3)
    run.write(tmp_path)
    history = read_run(tmp_path)

    assert history.problems == ()
    assert history.manifest == run.manifest
    key = ("node", "n")
    assert sorted(history.records, key=lambda r: [r[k] for k in key]) == sorted(
        run.records, key=lambda r: [r[k] for k in key]
    )


Sabotage = Callable[[pytest.MonkeyPatch], None]


def _sends_nothing_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker.publications, "unreceived", lambda stream, received: [])


def _sends_everything_again_and_delivers_it(patch: pytest.MonkeyPatch) -> None:
    class Forgetful(LastSeen):
        def get(self, publisher: NodeId) -> Stamp:
            return NEVER

    create = ClientCore.__init__

    def forgetful(self: ClientCore, *arguments: Any, **settings: Any) -> None:
        create(self, *arguments, **settings)
        self._last_seen = Forgetful(1)

    patch.setattr(ClientCore, "__init__", forgetful)
    publish = Publications.on_publish

    def twice(self: Publications, source: Any, publication: Any, now: float) -> None:
        self._last_seen[publication.publisher] = NEVER
        publish(self, source, publication, now)

    patch.setattr(Publications, "on_publish", twice)
    patch.setattr(
        broker.client_core,
        "unreceived",
        lambda stream, received: list(stream.keep()),
    )


def _forgets_a_hop(patch: pytest.MonkeyPatch) -> None:
    compute = Publications.compute_route

    def short(self: Publications, source: Any, publication: Publish) -> Any:
        route = compute(self, source, publication)
        return NOWHERE if len(route.down) == 2 else route

    patch.setattr(Publications, "compute_route", short)


def _delivers_what_nobody_asked_for(patch: pytest.MonkeyPatch) -> None:
    match = ClientCore._match

    def generous(self: ClientCore, encoded: bytes) -> Any:
        content, _, is_in_order = match(self, encoded)
        return content, tuple(self._subscriptions), is_in_order

    patch.setattr(ClientCore, "_match", generous)


def _swaps_the_deliveries_of_a_pair(patch: pytest.MonkeyPatch) -> None:
    take = ClientCore.take_effects

    def swapped(self: ClientCore) -> list[Any]:
        effects = take(self)
        held = self.__dict__.setdefault("held", [])
        deliveries = [e for e in effects if isinstance(e, Deliver)]
        others = [e for e in effects if not isinstance(e, Deliver)]
        held.extend(deliveries)
        if len(held) < 2:
            return others
        held.reverse()
        for position, effect in enumerate(held, start=self.__dict__.get("given", 0) + 1):
            effect.delivery.position = position
        self.__dict__["given"] = self.__dict__.get("given", 0) + len(held)
        released, self.__dict__["held"] = held, []
        return [*others, *released]

    patch.setattr(ClientCore, "take_effects", swapped)


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        (_sends_nothing_again, {"loss", "left over"}),
        (_sends_everything_again_and_delivers_it, {"duplicate"}),
        (_forgets_a_hop, {"loss"}),
        (_delivers_what_nobody_asked_for, {"spurious"}),
        (_swaps_the_deliveries_of_a_pair, {"fifo"}),
    ],
)
def test_a_sabotaged_node_is_found_out(
    sabotage: Sabotage, found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)

    seen: set[str] = set()
    for seed in range(500):
        seen |= _kinds_of_failure(simulate(seed, workload=Workload(absences=0.0)))
        if found <= seen:
            return
    pytest.fail(f"{found} expected, {seen} found")


def _kinds_of_failure(run: SimulatedRun) -> set[str]:
    kinds = {violation.guarantee for violation in run.report.violations}
    return kinds | ({"left over"} if run.leftovers else set())


@pytest.mark.parametrize("delta", [1, 2])
def test_crashes_up_to_delta_at_a_time_cost_nothing(delta: int) -> None:
    """Nothing lost, doubled, out of order or left over, and no failure taken for an excuse."""
    workload = Workload(crashes=delta)
    failures = [
        run.failures
        for run in (simulate(seed, delta=delta, workload=workload) for seed in range(60))
    ]

    assert failures == [[]] * 60


def test_more_crashes_than_delta_cost_safety_nothing() -> None:
    workload = Workload(crashes=4, is_limited=False)
    violations = [
        simulate(seed, delta=1, workload=workload).report.violations for seed in range(60)
    ]

    assert not any(violations)


def test_the_crashes_of_a_workload_happen() -> None:
    run = simulate(1, delta=1, workload=Workload(crashes=1))
    kinds = {record["kind"] for record in run.records}

    assert {"crashed", "suspected", "reformed"} <= kinds


def test_moves_cost_nothing_with_crashes_and_without() -> None:
    for workload in (Workload(moves=3), Workload(moves=2, crashes=1)):
        runs = [simulate(seed, delta=1, workload=workload) for seed in range(40)]

        assert [run.failures for run in runs] == [[]] * 40


def test_the_moves_of_a_workload_happen() -> None:
    run = simulate(1, workload=Workload(moves=3), is_traced=True)

    assert any(" info moved " in line for line in run.trace)


def test_standbys_take_over_and_nothing_is_lost() -> None:
    workload = Workload(standbys=7, crashes=1)
    runs = [simulate(seed, delta=1, workload=workload, is_traced=True) for seed in range(25)]

    assert [run.failures for run in runs] == [[]] * 25
    assert any("takes over" in line for run in runs for line in run.trace)
