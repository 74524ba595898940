"""Crowded runs: all that is hard at once."""

import pytest

from plait.broker.sim.crowds import Crowd
from plait.broker.sim.runs import simulate_crowd
from tests.sweeps import Seeds


def crowded_run(seed: int, *, has_moves: bool = False, is_mixed: bool = False) -> list[str]:
    """What is wrong at the end of this run."""
    return simulate_crowd(seed, Crowd(has_moves=has_moves, is_mixed=is_mixed)).failures


@pytest.mark.parametrize("has_moves", [False, True])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_nothing_goes_wrong_in_a_crowd(*, has_moves: bool, is_mixed: bool, seeds: Seeds) -> None:
    for seed in seeds(25, 400):
        assert crowded_run(seed, has_moves=has_moves, is_mixed=is_mixed) == [], f"seed {seed}"
