"""Many faults, at random moments, one after the other and while another is being mended."""

import random

import pytest

from tests.client.story import Fault, Story, cut_both, cut_reader, cut_ticker
from tests.client.world import World

RUNS = 150


def crash_and_cut(story: Story) -> None:
    """Those who attach lose their connections meanwhile."""
    story.crash()
    story.passes(0.1)
    cut_both(story)
    story.passes(0.3)
    story.rebuild()


def fail_twice(story: Story) -> None:
    """The host that has just taken the broker up fails before anybody has heard of it."""
    story.broker_fails()
    story.broker_fails()


FAULTS: list[Fault] = [
    cut_ticker,
    cut_reader,
    cut_both,
    Story.broker_fails,
    crash_and_cut,
    fail_twice,
]


@pytest.mark.parametrize("seed", range(RUNS))
def test_random_faults_cost_nothing(world: World, seed: int) -> None:
    dice = random.Random(seed)
    faults = {dice.randrange(110): dice.choice(FAULTS) for _ in range(dice.randrange(2, 9))}
    story = Story(world)
    story.run(faults)
    story.check()
