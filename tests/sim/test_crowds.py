"""Crowded runs that once went wrong, and a few others."""

import pytest

from tests.sim.crowds import crowded_run


@pytest.mark.parametrize("seed", [9526, 36316, 1018933])
def test_crowds_that_once_went_wrong(seed: int) -> None:
    assert crowded_run(seed) == []


def test_nothing_goes_wrong_in_a_crowd() -> None:
    for seed in range(200):
        assert crowded_run(seed) == [], f"seed {seed}"
