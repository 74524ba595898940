"""Crowded runs that once went wrong, and a few others."""

import pytest

from broker.sim.crowds import Crowd
from broker.sim.runs import simulate_crowd


def crowded_run(seed: int, *, has_moves: bool = False, is_mixed: bool = False) -> list[str]:
    """What is wrong at the end of this run."""
    return simulate_crowd(seed, Crowd(has_moves=has_moves, is_mixed=is_mixed)).failures


@pytest.mark.parametrize("seed", [9526, 36316, 1018933])
def test_crowds_that_once_went_wrong(seed: int) -> None:
    assert crowded_run(seed) == []


@pytest.mark.parametrize(
    "seed",
    [
        3001689,
        3003726,
        3006506,
        3022480,
        3023807,
        3028124,
        3117755,
        3118153,
        3121335,
        4021742,
        4124507,
    ],
)
def test_crowds_with_moves_that_once_went_wrong(seed: int) -> None:
    assert crowded_run(seed, has_moves=True) == []


@pytest.mark.parametrize("seed", [5001932])
def test_mixed_crowds_that_once_went_wrong(seed: int) -> None:
    assert crowded_run(seed, is_mixed=True) == []


@pytest.mark.parametrize(
    "seed", [5218910, 5229638, 5234784, 5250573, 5526297, 5626334, 6105659, 6111247]
)
def test_mixed_crowds_with_moves_that_once_went_wrong(seed: int) -> None:
    assert crowded_run(seed, is_mixed=True, has_moves=True) == []


@pytest.mark.parametrize("has_moves", [False, True])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_nothing_goes_wrong_in_a_crowd(*, has_moves: bool, is_mixed: bool) -> None:
    for seed in range(100):
        assert crowded_run(seed, has_moves=has_moves, is_mixed=is_mixed) == [], f"seed {seed}"
