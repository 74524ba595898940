"""Total notification order: as published it fails on named schedules, and as corrected on none.

Longer sweeps: `python -m tests.routing.topics.world MODE CROWD LOW HIGH [WITHOUT ...]`.
"""

import itertools
from typing import Any

import attrs
import pytest

from plait.routing.ids import NodeId
from plait.routing.topics.protocol import Effect, Topic
from plait.routing.topics.structure import Structure, shared_pairs
from plait.routing.topics.tagging import AS_PUBLISHED, CORRECTED, Correction
from plait.routing.topics.total import Base, Manager, Subscriber, TotalCoordinator
from tests.routing.topics.schedules import SCHEDULES
from tests.routing.topics.world import CROWDS, World, random_run

EACH = pytest.mark.parametrize("name", SCHEDULES)
OF_TAGS = [name for name, schedule in SCHEDULES.items() if schedule.mode == "tagging"]


@EACH
def test_what_was_published_goes_wrong_as_said(name: str) -> None:
    schedule = SCHEDULES[name]

    troubles = schedule.play(schedule.mode, AS_PUBLISHED).troubles()

    for expected in schedule.published:
        assert any(trouble.startswith(expected) for trouble in troubles), troubles


@EACH
def test_who_waits_is_told_of_everything_in_order(name: str) -> None:
    schedule = SCHEDULES[name]

    world = schedule.play("total")

    assert world.troubles() == []
    for subscriber, labels in schedule.total.items():
        assert " ".join(map(str, world.log[NodeId(subscriber)])) == labels


@pytest.mark.parametrize("name", OF_TAGS)
def test_who_does_not_wait_is_told_what_is_out_of_order(name: str) -> None:
    schedule = SCHEDULES[name]

    world = schedule.play("tagging")

    assert world.troubles() == []
    assert {n: " ".join(map(str, x)) for n, x in world.tagged.items() if x} == schedule.tagged


@pytest.mark.parametrize(
    ("correction", "name"),
    [
        (Correction.OWN, "T1"),
        (Correction.MERGE, "T2"),
        (Correction.FLOORS, "T3"),
        (Correction.MARKS, "T4"),
    ],
)
def test_it_is_missed_if_a_correction_is_left_out(correction: Correction, name: str) -> None:
    without = SCHEDULES[name].play("tagging", CORRECTED - {correction})

    assert without.inversions()


def test_what_is_stamped_in_an_ended_epoch_is_stamped_anew() -> None:
    """Two swaps while a request is on its way: dropped as published, and asked for again."""

    def play(corrections: frozenset[Correction]) -> tuple[list[str], float]:
        slow = {"Fill": 20.0}
        table = {"s": "12", "t": "12"}
        world = World("tagging", "12", table, lambda kind, *_: slow.get(kind, 1.0), corrections)
        world.at(0, world.swap, "1", "2")
        world.at(0, world.publish, "p2", "e2", "2")
        world.run()
        return world.troubles(), world.messages["Create"]

    assert play(AS_PUBLISHED) == ([], 2)  # by the publisher, which has waited for long
    assert play(CORRECTED)[0] == []


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("mode", ["tagging", "total"])
def test_any_run_keeps_every_promise(mode: str, crowd: str) -> None:
    for seed in range(150):
        assert random_run(mode, seed, CROWDS[crowd]).troubles() == [], seed


def test_random_runs_find_what_is_wrong_with_what_was_published() -> None:
    tags = [random_run("tagging", seed, CROWDS["all"], AS_PUBLISHED) for seed in range(300)]
    waits = [random_run("buffering", seed, CROWDS["static"]) for seed in range(300)]

    assert any(world.inversions() for world in tags)
    assert any(world.held() for world in waits)
    assert not any(world.inversions() for world in waits)


def test_somebody_waits_for_ever_if_stamps_visit_only_who_has_an_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way of both documents, in place of the forest."""

    def through_the_group(structure: Structure, topic: Topic) -> tuple[Topic, ...]:
        rank = structure.rank
        above = [x for x in structure.shared[topic] if rank[x] < rank[topic]]
        return tuple(sorted(above, key=rank.__getitem__, reverse=True))

    monkeypatch.setattr(Structure, "path", through_the_group)

    for name in ("B1", "B6"):
        assert SCHEDULES[name].play("total").held()


def test_it_is_missed_if_nobody_remembers_what_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    take = TotalCoordinator.take

    def forgetful(coordinator: TotalCoordinator, message: object) -> list[Effect]:
        coordinator._lingering.clear()
        return take(coordinator, message)

    monkeypatch.setattr(TotalCoordinator, "take", forgetful)

    assert SCHEDULES["T7"].play("total").inversions()


def test_it_is_missed_if_an_epoch_has_no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the next epoch nobody shares any more what two had shared in the last."""
    schedule = SCHEDULES["T3"]
    swap = (12.0, "1", "swap", "2")
    later = attrs.evolve(schedule, script=(*schedule.script[:2], swap, schedule.script[2]))
    assert later.play("total").troubles() == []
    take = Subscriber.take

    def baseless(subscriber: Subscriber, message: object) -> list[Effect]:
        if isinstance(message, Base):
            message = attrs.evolve(message, base={})
        return take(subscriber, message)

    monkeypatch.setattr(Subscriber, "take", baseless)

    assert later.play("total").troubles()


def test_it_is_missed_if_subscribers_forget_what_stamps_have_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(subscriber: Subscriber, each: Any) -> None:
        subscriber.clock[each.topic] += 1

    monkeypatch.setattr(Subscriber, "_deliver", forgetful)

    runs = (random_run("total", seed, CROWDS["subscriptions"]) for seed in range(1400, 1600))
    assert any(world.troubles() for world in runs)


# --- epochs ---------------------------------------------------------------------------------------


def quiet(order: str, table: dict[str, str]) -> World:
    return World("total", order, table, lambda *_: 1.0)


def test_a_topic_that_nobody_shares_is_stamped_by_its_manager_alone() -> None:
    world = quiet("123", {"s": "12", "t": "3"})
    world.publish("p", "e", "1")
    world.run()

    assert world.stamps["e"].entries == {"1": 1}
    assert world.messages == {"Create": 1, "Stamped": 1}


def test_a_subscription_that_brings_no_new_pair_changes_no_epoch() -> None:
    world = quiet("123", {"s": "12", "t": "12", "u": "1"})
    world.subscribe("u", "2")
    world.run()

    assert world.messages["Prepare"] == 0


def test_two_managers_that_want_a_change_at_once_get_it() -> None:
    world = quiet("123", {"s": "123", "t": "123"})
    world.swap("1", "2")
    world.swap("3", "2")
    for n in range(6):
        world.at(n / 2, world.publish, "p", f"e{n}", "123"[n % 3])
    world.run()

    assert world.troubles() == []
    managers = [each for each in world.machines.values() if isinstance(each, Manager)]
    assert len({manager._structure.order for manager in managers}) == 1


def test_what_is_published_during_a_change_is_late_and_not_refused() -> None:
    """At most by two heights of the forest and a round trip to the coordinator."""
    world = quiet("123", {"s": "123", "t": "123"})
    world.swap("1", "2")
    world.at(1.5, world.publish, "p", "e", "3")
    world.run()

    assert world.troubles() == []
    assert world.now <= 1.5 + 3 + 2 + 2 * 2 + 2


def test_a_storm_of_changes_loses_and_holds_up_nothing() -> None:
    for seed in range(100):
        world = quiet("1234", {"s": "1234", "t": "123", "u": "234"})
        for n in range(40):
            world.at(n / 4, world.publish, "p", f"e{n}", "1234"[n * 7 % 4])
            if n % 5 == seed % 5:
                pairs = list(itertools.permutations("1234", 2))
                one, other = pairs[(seed + n) % len(pairs)]
                world.at(n / 4, world.swap, one, other)
        world.run()
        assert world.troubles() == []


def test_the_forest_leads_every_stamp_on_to_the_same_next_manager() -> None:
    order = [Topic(x) for x in "12345"]
    table = {"u": "1345", "a": "15", "b": "35", "c": "34", "d": "124", "e": "24"}
    names = {NodeId(name): {Topic(x) for x in topics} for name, topics in table.items()}
    structure = Structure(0, order, shared_pairs(names), {})

    nexts: dict[Topic, set[Topic]] = {}
    for topic in order:
        path = (topic, *structure.path(topic))
        assert structure.shared[topic] >= set(path[-1:]) - {topic}
        for one, other in itertools.pairwise(path):
            nexts.setdefault(one, set()).add(other)

    assert all(len(others) == 1 for others in nexts.values())
