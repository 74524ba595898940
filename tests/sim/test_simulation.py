"""Random runs keep every guarantee; and broken nodes are found out by the same runs."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from plait.broker.client.core import ClientCore
from plait.broker.client.interests import Interests
from plait.broker.client.stream import Stream
from plait.broker.effects import Deliver
from plait.broker.machine.attachments import Attachment, attach
from plait.broker.machine.joining import NOWHERE
from plait.broker.machine.machine import Machine
from plait.broker.machine.publications import Publications
from plait.broker.messages import Message, Publish
from plait.broker.sim.runs import SimulatedRun, simulate
from plait.broker.sim.workloads import Workload
from plait.faulttol.guarantees import Excuse
from plait.faulttol.history import read_run
from tests.processes import finished
from tests.sweeps import Seeds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "ordering", ["none", "fifo", "pairwise", "sequencer", "sequencer-filtered"]
)
@pytest.mark.parametrize("delta", [0, 1, 2])
def test_every_seed_keeps_every_guarantee(ordering: str, delta: int, seeds: Seeds) -> None:
    for seed in seeds(10, 150):
        run = simulate(seed, ordering=ordering, delta=delta)
        assert run.failures == [], f"seed {seed}"


def test_a_broker_may_freeze_at_any_moment(seeds: Seeds) -> None:
    workload = Workload(freezes=2)
    for seed in seeds(6, 60):
        assert simulate(seed, workload=workload).failures == [], f"seed {seed}"


@pytest.mark.parametrize(
    "ordering", ["published", "published-progressive", "published-whole-queue"]
)
def test_as_published_nothing_but_the_order_is_violated(ordering: str) -> None:
    runs = [simulate(seed, ordering=ordering) for seed in range(40)]
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
        "from plait.broker.sim.runs import simulate;"
        "from plait.broker.sim.workloads import Workload;"
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
    for seed in range(30):
        run = simulate(seed, workload=Workload(absences=0.3), is_traced=True)
        lines.extend(run.trace)
        for record in run.records:
            kinds[record["kind"]] = kinds.get(record["kind"], 0) + 1

    assert kinds["delivered"] > 500
    assert kinds["unsubscribed"] > 30
    assert kinds["unadvertised"] > 3
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
    patch.setattr(Machine, "sent_since", lambda *_: [])
    patch.setattr(Stream, "_since", lambda *_: [])


def _sends_everything_again(patch: pytest.MonkeyPatch) -> None:
    sent = Machine.sent_since

    def all_of_it(self: Machine, neighbour: Any, step: int) -> list[Message]:
        return sent(self, neighbour, 0)

    patch.setattr(Machine, "sent_since", all_of_it)


def _forgets_a_hop(patch: pytest.MonkeyPatch) -> None:
    compute = Publications._compute_route

    def short(self: Publications, source: Any, publication: Publish) -> Any:
        route = compute(self, source, publication)
        return NOWHERE if len(route.down) == 2 else route

    patch.setattr(Publications, "_compute_route", short)


def _delivers_what_nobody_asked_for(patch: pytest.MonkeyPatch) -> None:
    match = Interests.match

    def generous(self: Interests, encoded: bytes) -> Any:
        content, _ = match(self, encoded)
        return content, tuple(self._subscriptions)

    patch.setattr(Interests, "match", generous)


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
        (_sends_nothing_again, {"left over"}),
        (_sends_everything_again, {"duplicate"}),
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
    for seed in range(100):
        seen |= _kinds_of_failure(simulate(seed, workload=Workload(absences=0.0, breaks=12)))
        if found <= seen:
            return
    pytest.fail(f"{found} expected, {seen} found")


def test_a_broker_that_is_not_taken_up_as_it_was_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*given: Any) -> Attachment:
        return attrs.evolve(attach(*given), advertisements=())

    monkeypatch.setattr("plait.broker.host.failover.attach", silent)
    runs = [simulate(seed, workload=Workload(crashes=1)) for seed in range(10)]
    differences = [text for run in runs for text in run.differences]

    assert differences
    for text in differences:
        assert re.match(r"b\d was not taken up as it was after step \d+: ", text)
        assert "advertisement " in text or "subscription " in text


def test_a_count_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publications, "_pass_on_stable", lambda *_: None)
    run = simulate(3)

    assert re.match(r"b\d after step \d+: \d+ unstable, \d+ are there", run.differences[0])


def _kinds_of_failure(run: SimulatedRun) -> set[str]:
    kinds = {violation.guarantee for violation in run.report.violations}
    return kinds | ({"left over"} if run.leftovers else set())


@pytest.mark.parametrize("delta", [1, 2])
def test_crashes_up_to_delta_at_a_time_cost_nothing(delta: int, seeds: Seeds) -> None:
    """Nothing lost, doubled, out of order or left over, and no failure taken for an excuse."""
    workload = Workload(crashes=delta)
    for seed in seeds(15, 150):
        assert simulate(seed, delta=delta, workload=workload).failures == [], f"seed {seed}"


def test_more_crashes_than_delta_cost_nothing_but_what_is_named(seeds: Seeds) -> None:
    workload = Workload(crashes=4, recoveries=2, is_limited=False)
    for seed in seeds(16, 150):
        run = simulate(seed, delta=1, workload=workload)
        assert run.failures == [], f"seed {seed}"
        assert run.report.excused.keys() <= {Excuse.SKIPPED, Excuse.WITHDRAWN}, f"seed {seed}"


def test_the_crashes_of_a_workload_happen() -> None:
    run = simulate(1, delta=1, workload=Workload(crashes=1))
    kinds = {record["kind"] for record in run.records}

    assert {"crashed", "taken_up"} <= kinds


@pytest.mark.parametrize("workload", [Workload(moves=3), Workload(moves=2, crashes=1)])
def test_moves_cost_nothing_with_crashes_and_without(workload: Workload, seeds: Seeds) -> None:
    for seed in seeds(15, 150):
        assert simulate(seed, delta=1, workload=workload).failures == [], f"seed {seed}"


def test_the_moves_of_a_workload_happen() -> None:
    run = simulate(1, workload=Workload(moves=3), is_traced=True)

    assert any(" given up " in line for line in run.trace)


def test_standbys_take_over_and_nothing_is_lost() -> None:
    workload = Workload(standbys=7, crashes=1)
    runs = [simulate(seed, delta=1, workload=workload, is_traced=True) for seed in range(10)]

    assert [run.failures for run in runs] == [[]] * 10
    taken_up = [r["host"] for run in runs for r in run.records if r["kind"] == "taken_up"]
    assert taken_up
    assert all(host.endswith("-2") for host in taken_up)
