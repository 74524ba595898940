"""Real brokers, killed or stopped under load: nobody misses anything, and nobody waits for long.

`plait chaos` does the same to random trees, as often as one likes.
"""

from pathlib import Path

import pytest

from plait.scripts.chaos import Attack, Blow, Outcome, perform
from plait.topologies.builders import balanced_tree, with_clients

pytestmark = pytest.mark.processes

TREE = with_clients(balanced_tree(fanout=2, height=2), publishers=8, subscribers=8)
"""b0 is the root, with b1 and b2 below it; the clients are at the leaves, b3 to b6."""
STALL_MAX_MS = 3000
"""A tenth of that is usual; whoever had to wait for `heartbeat_timeout_s` would take longer."""


async def survive(directory: Path, blow: Blow, *victims: str) -> Outcome:
    """Strike; as many failures are to be survived as there are. A restart is none."""
    delta = 1 if blow is Blow.RESTART else len(victims)
    attack = Attack(overlay=TREE, delta=delta, victims=victims, blow=blow, seed=1, stopped_s=9.0)
    outcome = await perform(attack, directory)
    print(f"{attack.describe()}: longest stall {outcome.stall_ms:.0f} ms")

    assert outcome.failures == ()
    assert outcome.published > 100
    assert outcome.delivered > 4 * outcome.published
    return outcome


def is_short(outcome: Outcome) -> bool:
    """Whether nobody waited for long, by the measure of a machine that may be busy elsewhere."""
    return outcome.stall_ms < STALL_MAX_MS + 10 * outcome.calm_ms


@pytest.mark.parametrize("victim", ["b1", "b3", "b0"], ids=["inner", "edge", "root"])
async def test_nobody_misses_a_broker_that_is_killed(tmp_path: Path, victim: str) -> None:
    outcome = await survive(tmp_path, Blow.KILL, victim)

    assert is_short(outcome)


@pytest.mark.parametrize("victims", [("b1", "b4"), ("b0", "b2")], ids=["branch", "top"])
async def test_nobody_misses_two_neighbours_that_are_killed(
    tmp_path: Path, victims: tuple[str, str]
) -> None:
    outcome = await survive(tmp_path, Blow.KILL, *victims)

    assert is_short(outcome)


@pytest.mark.parametrize("victim", ["b1", "b0"], ids=["inner", "root"])
async def test_a_broker_that_was_killed_recovers_under_load(tmp_path: Path, victim: str) -> None:
    outcome = await survive(tmp_path, Blow.KILL_AND_RECOVER, victim)

    assert is_short(outcome)


@pytest.mark.parametrize("victim", ["b1", "b3"], ids=["inner", "edge"])
async def test_a_broker_that_was_stopped_comes_back_as_its_own_successor(
    tmp_path: Path, victim: str
) -> None:
    await survive(tmp_path, Blow.STOP, victim)


async def test_nobody_misses_brokers_that_are_restarted_in_turn(tmp_path: Path) -> None:
    """The root, a broker between, and one with clients only."""
    outcome = await survive(tmp_path, Blow.RESTART, "b1", "b3", "b0")

    assert is_short(outcome)
