"""Random overlays that order by topics: every guarantee holds, and stamps say the same."""

import pytest

from plait.broker.sim.crowds import Crowd
from plait.broker.sim.faults import Troubles
from plait.broker.sim.runs import SimulatedRun, simulate, simulate_crowd
from plait.broker.sim.workloads import Workload
from plait.faulttol.stamps import verify_order
from tests.rules import rule_of
from tests.sweeps import Seeds

EACH = pytest.mark.parametrize("ordering", ["tno", "tno@root", "tno@hash", "tno-tagged"])


def troubles(run: SimulatedRun) -> list[str]:
    """What is wrong at the end of a run."""
    return [*run.failures, *map(str, verify_order(run.records).violations)]


@EACH
def test_nothing_goes_wrong_while_brokers_crash(ordering: str, seeds: Seeds) -> None:
    workload = Workload(crashes=2)
    for seed in seeds(8, 300):
        run = simulate(seed, **rule_of(ordering), delta=1 + seed % 2, workload=workload)
        assert troubles(run) == [], f"seed {seed}"


@EACH
def test_nothing_goes_wrong_in_a_crowd(ordering: str, seeds: Seeds) -> None:
    for seed in seeds(10, 300):
        crowd = Crowd(**rule_of(ordering), has_moves=seed % 2 == 0)
        assert troubles(simulate_crowd(seed, crowd)) == [], f"seed {seed}"


def test_as_published_in_2015_somebody_waits_for_ever() -> None:
    runs = [simulate(seed, **rule_of("tno-published-2015")) for seed in range(4)]

    assert any(run.failures for run in runs)
    assert not any("pairwise" in failure for run in runs for failure in run.failures)


def test_as_published_in_2011_everybody_is_told_of_everything_through_crashes() -> None:
    tagged = 0
    for seed in range(4):
        run = simulate(seed, **rule_of("tno-published-2011"), workload=Workload(crashes=2))
        assert run.failures == [], f"seed {seed}"
        tagged += sum(record.get("in_order") is False for record in run.records)

    assert tagged > 0


@pytest.mark.parametrize("ordering", ["tno", "tno-tagged"])
def test_nothing_goes_wrong_while_connections_end(ordering: str, seeds: Seeds) -> None:
    workload = Workload(breaks=4, troubles=Troubles(cuts=1))
    for seed in seeds(6, 100):
        run = simulate(seed, **rule_of(ordering), workload=workload)
        assert troubles(run) == [], f"seed {seed}"
