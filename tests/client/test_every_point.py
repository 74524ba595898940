"""A connection is cut, or a broker fails, after every message of an exchange: nothing comes of it.

Nothing is lost, nothing comes twice, and everything is in order and answered in the end.
"""

import pytest

from tests.client.story import Fault, Story, cut_both, cut_reader, cut_ticker
from tests.client.world import World


def test_the_story_as_it_is_without_faults(world: World) -> None:
    story = Story(world)
    story.run({})
    story.check()


@pytest.mark.parametrize("fault", [cut_ticker, cut_reader, cut_both, Story.broker_fails])
@pytest.mark.parametrize("at", range(80))
def test_a_fault_at_any_point_costs_nothing(world: World, fault: Fault, at: int) -> None:
    story = Story(world)
    story.run({at: fault})
    story.check()


@pytest.mark.parametrize("at", range(0, 80, 3))
@pytest.mark.parametrize("later", [1, 2, 3, 5, 8])
def test_two_faults_cost_nothing(world: World, at: int, later: int) -> None:
    story = Story(world)
    story.run({at: cut_both, at + later: Story.broker_fails, at + 2 * later: cut_both})
    story.check()


@pytest.mark.parametrize("fault", [cut_both, Story.broker_fails])
@pytest.mark.parametrize("at", range(25))
def test_who_leaves_has_left_whatever_happens_meanwhile(
    world: World, fault: Fault, at: int
) -> None:
    story = Story(world)
    ticker, reader = story.ticker, story.reader
    ticker.advertises("TRUE")
    reader.subscribes("TRUE")
    world.settle()
    story.faults = {at: fault}
    ticker.publishes(1, 2)
    ticker.leaves()
    story.go_on(2)
    reader.leaves()
    story.until(lambda: bool(ticker.stopped and reader.stopped) and not story.faults_due())

    assert (ticker.stopped, reader.stopped) == ("left", "left")
    assert (ticker.confirmed, ticker.skipped) == (2, [])
