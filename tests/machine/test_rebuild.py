"""Every broker that is rebuilt is the one that was lost, and each rule that makes it so is needed.

Longer sweeps: `python -m tests.machine.overlay LOW HIGH DELTA CRASHES [ORDERING [DEATHS [CUTS]]]`.
"""

from typing import Any, Final

import attrs
import pytest

from plait.broker.limits import Limits
from plait.broker.machine import rebuild as rebuilding
from plait.broker.machine.rebuild import TooManyFailedError
from plait.broker.messages import NodeKind, Settings
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import (
    GONE_REMEMBERED,
    Entry,
    Interest,
    LogPart,
    Membership,
    Standing,
    StepLog,
    Taken,
)
from plait.routing.ids import NodeId
from tests.machine.overlay import World, random_world
from tests.sweeps import Seeds

ORDERINGS: Final = (
    "none",
    "fifo",
    "pairwise",
    "sequencer",
    "sequencer-filtered",
    "published",
    "published-progressive",
    "published-whole-queue",
    "tno",
    "tno@root",
    "tno-tagged",
)


def troubles_of(seed: int, **settings: Any) -> list[str]:
    world = random_world(seed, **settings)
    return [] if world.stats["nobody left"] else world.troubles()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_without_crashes_everything_arrives_in_order_and_ends(ordering: str, seeds: Seeds) -> None:
    for seed in seeds(8, 40):
        assert troubles_of(seed, delta=1, crashes=0, ordering=ordering) == []


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_brokers_that_crash_one_after_another_are_rebuilt_as_they_were(
    ordering: str, seeds: Seeds
) -> None:
    for seed in seeds(12, 60):
        assert troubles_of(seed, delta=1, crashes=4, ordering=ordering) == []


def test_two_brokers_at_a_time_are_rebuilt_as_they_were(seeds: Seeds) -> None:
    for seed in seeds(20, 60):
        assert troubles_of(seed, delta=2, crashes=5) == []


def test_clients_that_fail_are_forgotten_with_what_they_asked_for(seeds: Seeds) -> None:
    for seed in seeds(20, 60):
        assert troubles_of(seed, delta=1, crashes=4, deaths=2) == []


def test_a_host_that_fails_before_others_heard_what_it_stands_for_counts_for_two() -> None:
    world = World(901, delta=2)
    world.join(NodeId("b1"))
    world.fresh[NodeId("b1"), NodeId("b0"), 4] = (2, frozenset({NodeId("b1")}))
    world.crash(NodeId("b1"))

    assert world.vulnerable() == 2


def test_clients_that_are_away_lose_nothing_while_brokers_fail(seeds: Seeds) -> None:
    for seed in seeds(20, 60):
        assert troubles_of(seed, delta=2, crashes=5, cuts=4) == []


def test_what_a_client_knew_to_be_stable_may_be_confirmed_once_more_by_others() -> None:
    """Else it lacks less than nothing in a rebuilt broker, and holds up the stream upwards."""
    assert troubles_of(21289, delta=2, crashes=5, deaths=1, cuts=3) == []


# --- the log ------------------------------------------------------------------------------------


def entry(source: str, upto: int) -> Entry:
    return Entry(Taken.BATCH, NodeId(source), upto)


def test_a_log_remembers_of_what_it_forgets_how_much_was_taken_of_each_neighbour() -> None:
    log = StepLog()
    for each in (entry("a", 3), entry("b", 1), entry("a", 5)):
        log.append(each)
    log.forget(2)

    assert (log.taken_of(NodeId("a")), log.taken_of(NodeId("b"))) == (3, 1)
    assert (log.base, log.last) == (2, 3)


def test_who_is_told_a_part_of_a_log_knows_what_whoever_tells_it_knows() -> None:
    log, other = StepLog(), StepLog()
    for each in (entry("a", 1), entry("b", 1)):
        log.append(each)
    other.learn(log.since(0))
    for each in (entry("a", 2), entry("c", 7), entry("b", 2)):
        log.append(each)
    log.forget(4)
    other.learn(log.since(2))

    assert (other.base, other.entries) == (log.base, log.entries)
    assert other.neighbours_at_base() == log.neighbours_at_base()


def joined(name: str, **standing: Any) -> Entry:
    return Entry(
        Taken.JOINED, NodeId(name), members=Membership(joined=Standing(incarnation=1, **standing))
    )


def admitted(source: str, upto: int, name: str) -> Entry:
    return attrs.evolve(entry(source, upto), members=Membership(admitted=(NodeId(name),)))


HERE: Final = Standing(incarnation=1, upto=1, has_joined=True)
GONE: Final = Entry(Taken.GONE, NodeId("alice"))
AWAY: Final = Entry(
    Taken.AWAY,
    NodeId("alice"),
    members=Membership(interests=(Interest(name="alice/1", filter="x > 0"),)),
)
BACK: Final = Entry(Taken.BACK, NodeId("alice"))
LEFT: Final = attrs.evolve(entry("alice", 2), members=Membership(removed=(NodeId("alice"),)))


@pytest.mark.parametrize(
    ("steps", "standing"),
    [
        ([joined("alice", key="k")], Standing(incarnation=1, key="k")),
        ([joined("alice"), entry("alice", 1)], Standing(incarnation=1, upto=1)),
        ([joined("alice"), entry("alice", 1), admitted("b", 1, "alice")], HERE),
        (
            [joined("alice"), admitted("alice", 1, "alice"), AWAY],
            attrs.evolve(HERE, is_away=True, interests=AWAY.members.interests),
        ),
        ([joined("alice"), admitted("alice", 1, "alice"), AWAY, BACK], HERE),
        ([joined("alice"), entry("alice", 1), AWAY, GONE], None),
        ([joined("alice"), entry("alice", 1), LEFT], None),
        ([joined("alice"), GONE, joined("alice", key="l")], Standing(incarnation=1, key="l")),
    ],
)
def test_whoever_knows_a_log_knows_who_stands_next_to_the_broker(
    steps: list[Entry], standing: Standing | None
) -> None:
    """Whatever of it is forgotten, and whatever it had been told before that."""
    log, alice = StepLog(), NodeId("alice")
    for each in steps:
        log.append(each)
    for forgotten in range(len(steps) + 1):
        later = log.copy()
        later.forget(forgotten)
        for known in range(len(steps) + 1):
            other = StepLog()
            for each in steps[:known]:
                other.append(each)
            other.learn(later.since(known))

            assert later.neighbours().get(alice) == standing
            assert other.neighbours() == later.neighbours()


def test_of_many_who_are_gone_a_log_remembers_some_and_tells_who_is_left() -> None:
    log, other = StepLog(), StepLog()
    log.append(joined("alice"))
    log.append(joined("old"))
    other.learn(log.since(0))
    for number in range(GONE_REMEMBERED):
        log.append(joined(f"c{number}"))
        log.append(Entry(Taken.GONE, NodeId(f"c{number}")))
    log.append(Entry(Taken.GONE, NodeId("old")))
    log.forget(log.last)
    log.append(entry("alice", 1))
    part = log.since(2)
    other.learn(part)

    assert part.is_whole
    assert list(other.neighbours()) == list(log.neighbours()) == [NodeId("alice")]
    third = StepLog()
    third.append(joined("alice"))
    third.append(joined("old"))
    third.learn(other.since(2))
    assert list(third.neighbours()) == [NodeId("alice")]


def test_what_is_told_twice_is_known_once() -> None:
    log, other = StepLog(), StepLog()
    log.append(entry("a", 1))
    first = log.since(0)
    log.append(entry("a", 2))
    other.learn(log.since(0))
    other.learn(first)

    assert other.entries == log.entries


def test_a_part_that_does_not_follow_is_no_log() -> None:
    with pytest.raises(AssertionError, match="steps 1 to 4 are missing"):
        StepLog().learn(LogPart(0, 4, (entry("a", 1),), {}))


def test_a_step_that_depends_on_one_that_nobody_knows_is_found() -> None:
    """A step 3 of b2 was taken, of which nobody has any: more than δ have failed."""
    log = StepLog()
    log.append(entry("b2", 3))
    attachment = rebuilding.Attachment(
        node=NodeId("b0"),
        kind=NodeKind.BROKER,
        incarnation=0,
        to=NodeId("b1"),
        taken=1,
        sent=rebuilding.StreamEnd(stable=0, kept=()),
        received=rebuilding.StreamEnd(stable=0, kept=()),
        controls=(),
        advertisements=(),
        subscriptions=(),
        known_advertisements=frozenset(),
        known_subscriptions=frozenset(),
        logs={NodeId("b1"): log},
    )

    with pytest.raises(TooManyFailedError, match="b1 took step 3 of b2"):
        rebuilding.rebuild(
            {NodeId("b1"): NodeId("b0"), NodeId("b2"): NodeId("b1")},
            [attachment],
            settings=Settings(delta=2),
            limits=Limits(),
            outbox=Outbox(),
            now=0.0,
        )
