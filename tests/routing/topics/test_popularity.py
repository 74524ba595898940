"""Topics change places by how much is published on them: as published until all is popular."""

import random
from collections.abc import Sequence
from statistics import mean

import pytest

from plait.routing.ids import NodeId
from plait.routing.topics.popularity import COUNT, FIXED, RATE, is_due, passing, rate_of
from plait.routing.topics.protocol import (
    COORDINATOR,
    Create,
    Effect,
    ManagerOf,
    Send,
    Stamped,
    Topic,
)
from plait.routing.topics.structure import Structure, shared_pairs
from plait.routing.topics.total import Manager, TotalCoordinator, WantAbove

TOPICS = [Topic(f"t{n:02}") for n in range(20)]
A, B = TOPICS[:2]


class Quiet:
    """Managers of topics that all share, and nothing takes any time."""

    def __init__(self, adapting: str) -> None:
        everything = {NodeId(name): TOPICS for name in "st"}
        structure = Structure(0, TOPICS, shared_pairs(everything), {})
        self.coordinator = TotalCoordinator(structure, everything)
        self.managers = {topic: Manager(topic, structure, adapting) for topic in TOPICS}
        self.stamped = 0

    def publish(self, topic: Topic) -> int:
        """Publish on a topic; returns how many managers its stamp has visited."""
        visited = self.coordinator.structure.rank[topic]
        self._perform(self.managers[topic].take(Create(label=0, publisher=NodeId("p"))))
        return visited

    def _perform(self, effects: Sequence[Effect]) -> None:
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            assert isinstance(effect, Send)
            if isinstance(effect.message, Stamped):
                self.stamped += 1
            elif isinstance(effect.to, ManagerOf):
                todo += self.managers[effect.to.topic].take(effect.message)
            elif effect.to == COORDINATOR:
                todo += self.coordinator.take(effect.message)

    def visits(self, rng: random.Random, popular: Sequence[Topic], count: int) -> float:
        """How many managers are visited on average, the first of the topics being most popular."""
        weights = [1 / (place + 1) ** 1.5 for place in range(len(popular))]
        return mean(self.publish(topic) for topic in rng.choices(popular, weights, k=count))


def shuffled(adapting: str, seed: int) -> tuple[float, float]:
    """Managers visited before other topics are popular, and long after that."""
    rng, world = random.Random(seed), Quiet(adapting)
    popular = rng.sample(TOPICS, len(TOPICS))
    world.visits(rng, popular, 600)
    before = world.visits(rng, popular, 300)
    other = popular[::-1]
    world.visits(rng, other, 600)
    after = world.visits(rng, other, 300)

    assert world.stamped == 1800
    return before, after


@pytest.mark.parametrize("seed", range(5))
def test_by_rate_topics_follow_what_is_popular_now(seed: int) -> None:
    before, after = shuffled(RATE, seed)

    assert after <= 1.5 * before


def test_as_published_nothing_moves_any_more_once_all_was_popular() -> None:
    assert mean(after / before for before, after in (shuffled(COUNT, n) for n in range(5))) > 1.5


def test_without_either_nothing_moves() -> None:
    world = Quiet(FIXED)
    world.visits(random.Random(1), TOPICS[::-1], 300)

    assert world.coordinator.structure.epoch == 0


def test_a_topic_with_44_publications_is_never_passed_again_as_published() -> None:
    assert is_due(10**9, 43)
    assert not is_due(10**9, 44)


def test_the_highest_manager_asks_and_twice_is_as_good_as_once() -> None:
    world = Quiet(FIXED)
    want = WantAbove(topic=TOPICS[9], other=A)
    for _ in range(2):
        world._perform(world.coordinator.take(want))

    assert world.coordinator.structure.order[0] == TOPICS[9]
    assert world.coordinator.structure.order[9] == A
    assert world.coordinator.structure.epoch == 1
    assert world.coordinator.take(WantAbove(topic=Topic("nobody's"), other=A)) == []


def test_a_rate_is_how_many_of_the_last_64_there_were() -> None:
    rates: dict[Topic, int] = {}
    for _ in range(1000):
        passing(rates, A, TOPICS)
    assert round(rate_of(rates, A)) == 64
    for _ in range(64):
        passing(rates, B, TOPICS)
    assert 20 < rate_of(rates, A) < 28
    for _ in range(2000):
        passing(rates, B, TOPICS)
    assert rate_of(rates, A) < 0.1
