"""Whom a client dials, by what it was told and what it has met with."""

import attrs

from plait.broker.client.whereabouts import Whereabouts
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.messages import HostPlace, Life, Seat, Seating, Settings, Welcome
from plait.routing.ids import NodeId


def seat(broker: str, parent: str, host: str, term: int = 1) -> Seat:
    return Seat(broker=NodeId(broker), parent=parent, term=term, host=NodeId(host), incarnation=1)


def place(host: str, site: str = "", rank: int = 0) -> HostPlace:
    return HostPlace(host=NodeId(host), incarnation=1, address=f"{host}:1", site=site, rank=rank)


SEATING = Seating(
    seats=(seat("root", "", "h0"), seat("b", "root", "h1"), seat("c", "b", "h2")),
    hosts=(place("h0"), place("h1"), place("h2"), place("spare", "b", 1)),
)


def welcome(term: int = 1, host: str = "h1") -> Welcome:
    return Welcome(
        node=NodeId("b"),
        term=term,
        host=NodeId(host),
        incarnation=1,
        settings=Settings(ordering="pairwise"),
        heartbeat_interval_ms=500,
        heartbeat_timeout_ms=3000,
        resumed=False,
    )


def at_home(seating: Seating = SEATING) -> Whereabouts:
    """A client of `b`, which has reached that by an address of its own."""
    whereabouts = Whereabouts(["door:1", "other:1"], DEFAULT_LIMITS)
    whereabouts.aim()
    whereabouts.welcomed(welcome())
    whereabouts.learn(seating)
    return whereabouts


def next_of(whereabouts: Whereabouts) -> tuple[str, str]:
    whereabouts.aim()
    return whereabouts.target.address, whereabouts.target.broker


def test_a_newcomer_asks_at_all_addresses_in_turn() -> None:
    whereabouts = Whereabouts(["door:1", "other:1"], DEFAULT_LIMITS)
    assert next_of(whereabouts) == ("door:1", "")
    whereabouts.refused()
    assert not whereabouts.has_tried_all
    assert next_of(whereabouts) == ("other:1", "")
    whereabouts.silent()

    assert whereabouts.has_tried_all


def test_a_lost_connection_is_made_again_where_it_was() -> None:
    assert next_of(at_home()) == ("door:1", "b")


def test_who_refuses_is_gone_and_whoever_stands_by_is_asked() -> None:
    whereabouts = at_home()
    whereabouts.aim()
    whereabouts.refused()

    assert next_of(whereabouts) == ("spare:1", "b")


def test_without_anybody_who_stands_by_the_host_of_the_parent_is_asked() -> None:
    whereabouts = at_home(Seating(seats=SEATING.seats, hosts=SEATING.hosts[:3]))
    whereabouts.aim()
    whereabouts.refused()

    assert next_of(whereabouts) == ("h0:1", "b")


def test_silence_is_a_doubt_only_when_it_comes_again() -> None:
    whereabouts = at_home()
    whereabouts.silent()
    assert next_of(whereabouts) == ("door:1", "b")
    whereabouts.silent()

    assert next_of(whereabouts) == ("spare:1", "b")


def test_who_is_still_there_is_asked_in_turn_with_the_coordinator() -> None:
    whereabouts = at_home()
    asked = []
    for _ in range(6):
        is_new = whereabouts.aim()
        asked.append((whereabouts.target.address, is_new))
        if whereabouts.target.address == "spare:1":
            whereabouts.learn(SEATING)
            whereabouts.told_elsewhere()
        else:
            whereabouts.silent()

    assert asked == [
        ("door:1", True),
        ("door:1", False),
        ("spare:1", True),
        ("door:1", False),
        ("spare:1", False),
        ("door:1", False),
    ]


def test_who_is_told_of_a_later_term_goes_there() -> None:
    whereabouts = at_home()
    whereabouts.refused()
    whereabouts.aim()
    whereabouts.learn(Seating(seats=(seat("b", "root", "h2", term=2),)))
    whereabouts.told_elsewhere()

    assert next_of(whereabouts) == ("h2:1", "b")


def test_a_coordinator_that_has_failed_too_is_followed_by_the_next() -> None:
    whereabouts = at_home()
    asked = []
    for _ in range(5):
        asked.append(next_of(whereabouts)[0])
        whereabouts.refused()

    assert asked == ["door:1", "spare:1", "h0:1", "h2:1", "door:1"]


def test_when_nobody_is_left_whoever_was_doubted_is_asked_once_more() -> None:
    whereabouts = at_home(Seating())
    asked = []
    for _ in range(4):
        asked.append(next_of(whereabouts))
        whereabouts.refused()

    assert asked == [("door:1", "b"), ("door:1", "b"), ("other:1", "b"), ("door:1", "b")]


def test_a_broker_that_has_left_the_tree_is_looked_for_nowhere() -> None:
    whereabouts = at_home()
    gone = Seat(broker=NodeId("b"), parent="root", term=1, host=NodeId("h1"), incarnation=1, left=1)
    whereabouts.learn(Seating(seats=(gone,)))

    assert next_of(whereabouts) == ("door:1", "")


def test_who_is_not_let_in_goes_to_anybody() -> None:
    whereabouts = at_home()
    whereabouts.aim()
    whereabouts.sent_away()
    assert next_of(whereabouts) == ("door:1", "")
    whereabouts.sent_away()

    assert next_of(whereabouts) == ("other:1", "")


def test_a_welcome_of_a_later_term_says_where_the_broker_is() -> None:
    whereabouts = at_home()
    whereabouts.refused()
    whereabouts.aim()
    whereabouts.welcomed(welcome(term=2, host="spare"))

    assert next_of(whereabouts) == ("spare:1", "b")
    assert whereabouts.target.life == Life(NodeId("spare"), 1)


def test_who_has_given_the_broker_up_is_not_doubted_for_saying_so() -> None:
    seats = seat("root", "", "h1"), seat("b", "root", "h1"), seat("c", "b", "h3")
    whereabouts = at_home(Seating(seats=seats, hosts=(place("h1"), place("h2"), place("h3"))))
    whereabouts.aim()
    whereabouts.learn(Seating(seats=(attrs.evolve(seats[1], is_vacant=True, taker="h2"),)))
    whereabouts.told_elsewhere()
    assert next_of(whereabouts) == ("h2:1", "b")
    whereabouts.learn(Seating(seats=(seat("b", "root", "h2", term=2),)))
    whereabouts.refused()

    assert next_of(whereabouts) == ("door:1", "b")
