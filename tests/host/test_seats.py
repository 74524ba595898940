"""What follows from who plays what, where, and who has failed; no order of news matters."""

import itertools
from collections.abc import Collection, Sequence
from random import Random
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.broker.host.seats import Seats
from plait.broker.limits import Limits
from plait.broker.messages import HostPlace, Life, Seat, Seating
from plait.routing.ids import NodeId

Piece = Seat | HostPlace | tuple[Life, bool]

PARENTS: Final = {"a": "", "b": "a", "c": "a", "d": "b", "e": "d"}


def seat(
    broker: str,
    parent: str,
    host: str = "",
    *,
    term: int = 1,
    incarnation: int = 1,
    taker: str = "",
) -> Seat:
    return Seat(
        broker=NodeId(broker),
        parent=parent,
        term=term,
        host=NodeId(host or f"h{broker}"),
        incarnation=incarnation,
        is_vacant=bool(taker),
        taker=taker,
    )


def place(host: str, *, incarnation: int = 1, site: str = "", rank: int = 0) -> HostPlace:
    address = f"{host}:1"
    return HostPlace(
        host=NodeId(host), incarnation=incarnation, address=address, site=site, rank=rank
    )


def life(host: str, incarnation: int = 1) -> Life:
    return Life(NodeId(host), incarnation)


def names(*given_names: str) -> frozenset[NodeId]:
    return frozenset(map(NodeId, given_names))


def knowing(*pieces: Piece, limits: Limits | None = None) -> Seats:
    seats = Seats(limits or Limits())
    for piece in pieces:
        tell(seats, piece)
    return seats


def tell(seats: Seats, piece: Piece) -> bool:
    match piece:
        case Seat():
            return seats.put(piece)
        case HostPlace():
            return seats.place(piece)
        case buried, is_proven:
            return seats.bury(buried, is_proven=is_proven)


def a_tree(**hosts: str) -> Seats:
    r"""Five brokers, each on a host of its own if nothing else is said.

    a - b - d - e
     \
      c
    """
    seats = [seat(broker, parent, hosts.get(broker, "")) for broker, parent in PARENTS.items()]
    return knowing(*seats, *(place(each.host) for each in seats))


def bury(seats: Seats, *hosts: str) -> Seats:
    for host in hosts:
        seats.bury(life(host))
    return seats


hosts = st.sampled_from(["ha", "hb", "hc", "hd"]).map(NodeId)
incarnations = st.integers(1, 3)
lives = st.builds(Life, hosts, incarnations)
places = st.builds(
    HostPlace,
    host=hosts,
    incarnation=incarnations,
    address=st.sampled_from(["x", "y"]),
    site=st.sampled_from(["", "a", "b", "d"]),
    rank=st.integers(0, 2),
)
seatings = st.builds(
    Seat,
    broker=st.sampled_from(sorted(PARENTS)).map(NodeId),
    parent=st.just(""),
    term=st.integers(1, 3),
    host=hosts,
    incarnation=incarnations,
    is_vacant=st.booleans(),
    taker=st.sampled_from(["", "ha", "hb"]),
    left=st.sampled_from([0, 0, 0, 1, 2]),
).map(lambda each: attrs.evolve(each, parent=PARENTS[each.broker]))
pieces = st.lists(st.one_of(seatings, places, st.tuples(lives, st.booleans())), max_size=20)
doubts = st.frozensets(lives, max_size=3)


def by_one_host(known: Sequence[Piece]) -> list[Piece]:
    """The same, with each term of a broker begun by one host."""
    begun: dict[tuple[NodeId, int], Life] = {}
    return [
        attrs.evolve(each, host=first.host, incarnation=first.incarnation)
        if isinstance(each, Seat)
        and (first := begun.setdefault((each.broker, each.term), each.life))
        else each
        for each in known
    ]


# --- merging --------------------------------------------------------------------------------------


@given(pieces, st.randoms(use_true_random=False))
def test_no_order_of_news_matters(known: list[Piece], random: Random) -> None:
    again = [*known, *known[::2]]
    random.shuffle(again)

    assert knowing(*again).everything() == knowing(*known).everything()


@given(pieces, pieces)
def test_merging_commutes_and_is_idempotent(one: list[Piece], other: list[Piece]) -> None:
    first, second = knowing(*one), knowing(*other)
    mine, yours = first.everything(), second.everything()
    first.learn(yours)
    second.learn(mine)

    assert first.everything() == second.everything()
    assert not first.learn(mine)
    assert not first.learn(second.everything())


@given(pieces, st.lists(st.integers(0, 20)))
def test_changes_are_enough_for_whoever_has_heard_the_rest(
    known: list[Piece], told_after: list[int]
) -> None:
    teller, listener, told = Seats(), Seats(), 0
    for number, piece in enumerate(known):
        tell(teller, piece)
        if number in told_after:
            listener.learn(teller.changes_since(told))
            told = teller.version
            assert teller.changes_since(told) == Seating()
    listener.learn(teller.changes_since(told))

    assert listener.everything() == teller.everything()
    assert teller.changes_since(0) == teller.everything()


def test_of_two_seats_the_later_term_counts() -> None:
    seats = knowing(seat("b", "a", "new", term=2), seat("b", "a", "old", taker="x"))

    assert seats.seat_of(NodeId("b")) == seat("b", "a", "new", term=2)


def test_a_seat_that_was_given_up_counts_more_than_the_same_one_before() -> None:
    seats = knowing(seat("b", "a", taker="x"), seat("b", "a"))

    assert seats.is_lost(NodeId("b"))
    assert seats.played_by(life("hb")) == ()


def test_a_later_life_of_a_host_buries_the_earlier_one() -> None:
    seats = knowing(seat("b", "a"), place("hb", incarnation=2))

    assert seats.is_lost(NodeId("b"))
    assert seats.hosts() == (NodeId("hb"),)
    assert seats.life_of(NodeId("hb")) == life("hb", 2)


def test_a_burial_is_dropped_when_a_later_life_says_the_same() -> None:
    seats = knowing(seat("b", "a"), (life("hb"), True), place("hb", incarnation=2))

    assert seats.everything().failed == seats.everything().proven == ()
    assert not seats.bury(life("hb"), is_proven=True)
    assert seats.has_failed(life("hb"))


# --- what is bounded ------------------------------------------------------------------------------


def test_a_host_that_comes_back_again_and_again_leaves_no_trace() -> None:
    seats = knowing(seat("b", "a"))
    for incarnation in range(1, 1000):
        seats.place(place("hb", incarnation=incarnation))
        seats.bury(life("hb", incarnation), is_proven=True)

    assert seats.everything() == Seating(
        seats=(seat("b", "a"),),
        hosts=(place("hb", incarnation=999),),
        failed=(life("hb", 999),),
        proven=(life("hb", 999),),
    )


def test_hosts_that_have_gone_are_remembered_up_to_a_limit() -> None:
    limits = Limits(gone_hosts_max=3)
    gone = [(place(f"s{n}", incarnation=n), (life(f"s{n}", n), True)) for n in range(1, 10)]
    everything: list[Piece] = [seat("b", "a"), (life("hb"), True)]
    everything += itertools.chain.from_iterable(gone)
    seats = knowing(*everything, limits=limits)

    assert [each.host for each in seats.everything().failed] == ["hb", "s7", "s8", "s9"]
    assert [each.host for each in seats.everything().hosts] == ["s7", "s8", "s9"]
    assert seats.is_lost(NodeId("b"))


def test_brokers_that_have_left_are_remembered_up_to_a_limit() -> None:
    seats = knowing(seat("a", ""), limits=Limits(departed_brokers_max=3))
    for n in range(9):
        seats.put(seat(f"b{n}", "a"))
        seats.leave(NodeId(f"b{n}"))

    assert seats.brokers() == ("a",)
    assert [each.broker for each in seats.everything().seats] == ["a", "b6", "b7", "b8"]


def test_a_broker_that_has_left_is_not_lost_and_does_not_come_back_by_hearsay() -> None:
    seats = a_tree()
    seats.leave(NodeId("c"))
    bury(seats, "ha", "hc")
    is_news = seats.put(seat("c", "a"))

    assert not is_news
    assert not seats.is_lost(NodeId("c"))
    assert seats.boundary(seats.region_of(NodeId("a"))) == {"b"}
    assert seats.put(seat("c", "b", term=2))
    assert seats.children_of(NodeId("b")) == ("c", "d")


# --- the tree -------------------------------------------------------------------------------------


def test_the_tree_is_read_off_the_seats() -> None:
    seats = a_tree(d="hb")

    assert seats.brokers() == ("a", "b", "c", "d", "e")
    assert seats.root() == "a"
    assert seats.children_of(NodeId("a")) == ("b", "c")
    assert seats.parent_of(NodeId("d")) == "b"
    assert seats.parent_of(NodeId("a")) is None
    assert seats.played_by(life("hb")) == ("b", "d")
    assert seats.hosts() == ("ha", "hb", "hc", "he")


def test_hosts_are_adjacent_if_they_play_neighbours() -> None:
    seats = a_tree(d="hc")

    assert seats.host_distances(NodeId("hc")) == {"hc": 0, "ha": 1, "hb": 1, "he": 1}
    assert seats.host_distances(NodeId("spare")) == {"spare": 0}
    seats.put(seat("d", "b", "he", term=2))
    assert seats.host_distances(NodeId("hc")) == {"hc": 0, "ha": 1, "hb": 2, "he": 3}


@given(pieces, st.sampled_from(sorted(PARENTS)), st.integers(0, 5))
def test_what_is_around_a_broker_is_a_part_of_everything(
    known: list[Piece], broker: str, reach: int
) -> None:
    seats = knowing(*known)
    everything = seats.everything()
    for field in attrs.fields(Seating):
        part = getattr(seats.around(NodeId(broker), reach), field.name)

        assert set(part) <= set(getattr(everything, field.name))


@given(pieces, st.sampled_from(sorted(PARENTS)))
def test_a_client_that_is_told_what_is_around_its_broker_finds_who_takes_it_up(
    known: list[Piece], broker: str
) -> None:
    seats = knowing(*known)
    region = seats.region_of(NodeId(broker))
    if not region or not any(seats.seat_of(b) for b in seats.boundary(region)):
        return
    client = Seats()
    client.learn(seats.around(NodeId(broker), len(region)))

    assert client.coordinator(client.region_of(NodeId(broker))) == seats.coordinator(region)


def test_a_client_is_told_no_more_than_it_needs() -> None:
    seats = a_tree()
    for each in (place("s1", site="e"), place("s2", site="a"), place("hx", site="d")):
        seats.place(each)
    seats.put(seat("x", "c"))
    around = seats.around(NodeId("e"), 1)

    assert [each.broker for each in around.seats] == ["d", "e"]
    assert [each.host for each in around.hosts] == ["hd", "he", "s1", "s2"]


# --- regions --------------------------------------------------------------------------------------


@given(pieces, doubts)
def test_regions_are_disjoint_and_closed(known: list[Piece], doubted: frozenset[Life]) -> None:
    seats = knowing(*known)
    regions = seats.regions(doubted)
    lost = [broker for broker in seats.brokers() if seats.is_lost(broker, doubted)]

    assert sorted(itertools.chain.from_iterable(regions)) == lost
    for region in regions:
        assert all(seats.region_of(broker, doubted) == region for broker in region)
        assert not any(seats.is_lost(broker, doubted) for broker in seats.boundary(region))


@given(pieces, st.data())
def test_more_knowledge_never_brings_a_lost_broker_back_in_the_same_term(
    known: list[Piece], data: st.DataObject
) -> None:
    known = by_one_host(known)
    count = data.draw(st.integers(0, len(known)))
    seats = knowing(*known[:count])
    lost = {b: seats.seat_of(b) for b in seats.brokers() if seats.is_lost(b)}
    for piece in known[count:]:
        tell(seats, piece)
    for broker, before in lost.items():
        after = seats.seat_of(broker)
        assert before is not None
        assert after is not None

        assert after.term > before.term or after.left or seats.is_lost(broker)


def test_what_the_asker_doubts_is_lost_for_the_asker() -> None:
    seats = bury(a_tree(), "hd")

    assert seats.region_of(NodeId("d")) == {"d"}
    assert seats.region_of(NodeId("d"), [life("hb")]) == {"b", "d"}
    assert seats.region_of(NodeId("b")) == frozenset()
    assert seats.boundary(names("b", "d")) == {"a", "e"}


def test_several_brokers_on_one_host_are_one_failure() -> None:
    seats = bury(a_tree(d="hb"), "hb", "ha")
    (region,) = seats.regions()

    assert region == {"a", "b", "d"}
    assert seats.failed_hosts_of(region) == {life("ha"), life("hb")}


def test_an_earlier_life_of_a_host_has_failed_if_a_seat_names_a_later_one() -> None:
    seats = knowing(seat("a", "", "h"), seat("b", "a", "h", incarnation=2))

    assert seats.has_failed(life("h"))
    assert seats.regions() == [names("a")]


def test_one_host_may_leave_two_regions() -> None:
    seats = bury(a_tree(e="hc"), "hc")

    assert seats.regions() == [names("c"), names("e")]


def test_somebody_of_whom_nothing_is_known_but_the_name_is_waited_for() -> None:
    seats = bury(knowing(seat("b", "a"), seat("c", "b")), "hb")

    assert seats.boundary(names("b")) == {"a", "c"}
    assert seats.coordinator(names("b")) == "hc"


# --- the coordinator ------------------------------------------------------------------------------


@given(pieces, doubts)
def test_a_coordinator_is_not_in_doubt_itself(known: list[Piece], doubted: frozenset[Life]) -> None:
    seats = knowing(*known)
    for region in seats.regions(doubted):
        found = seats.coordinator(region, doubted)
        living = [h for h in seats.hosts() if seats.life_of(h) not in doubted]

        assert found in living if living else found is None


@given(pieces, doubts, st.randoms(use_true_random=False))
def test_two_that_know_the_same_name_the_same_coordinator(
    known: list[Piece], doubted: frozenset[Life], random: Random
) -> None:
    one = knowing(*known)
    random.shuffle(known)
    other = knowing(*known)

    assert one.regions(doubted) == other.regions(doubted)
    for region in one.regions(doubted):
        assert one.coordinator(region, doubted) == other.coordinator(region, doubted)


def test_the_host_of_the_parent_takes_up_what_is_below_it() -> None:
    seats = bury(a_tree(), "hb", "hd")

    assert seats.coordinator(names("b", "d")) == "ha"


def test_the_first_around_takes_up_the_root() -> None:
    seats = bury(a_tree(b="z"), "ha")

    assert seats.coordinator(names("a")) == "z"
    assert seats.coordinator(names("a", "b"), [life("z")]) == "hc"


def test_those_that_stand_by_for_a_site_take_over_in_their_order() -> None:
    seats = bury(a_tree(), "hb")
    seats.place(place("s2", site="b", rank=1))
    seats.place(place("s1", site="b", rank=2))
    seats.place(place("s0", site="c", rank=0))
    region = names("b")

    assert seats.coordinator(region) == "s2"
    assert seats.coordinator(region, [life("s2")]) == "s1"
    seats.bury(life("s2"))
    assert seats.coordinator(region) == "s1"
    seats.put(seat("e", "d", "s1", term=2))
    assert seats.coordinator(region) == "ha"


def test_what_was_given_up_goes_to_its_taker_while_that_lives() -> None:
    seats = a_tree()
    seats.place(place("s", site="b"))
    seats.put(seat("b", "a", taker="he"))

    assert seats.coordinator(names("b")) == "he"
    assert seats.coordinator(names("b"), [life("he")]) == "s"
    bury(seats, "he")
    assert seats.coordinator(names("b")) == "s"


def test_the_taker_of_what_is_below_has_what_failed_above_as_well() -> None:
    seats = bury(a_tree(), "hb")
    seats.put(seat("d", "b", taker="hc"))

    assert seats.coordinator(seats.region_of(NodeId("d"))) == "hc"


@pytest.mark.parametrize("left", ["ha", "hc", "he"])
def test_the_last_host_takes_up_everything(left: str) -> None:
    seats = a_tree()
    bury(seats, *({"ha", "hb", "hc", "hd", "he"} - {left}))

    assert {seats.coordinator(region) for region in seats.regions()} == {left}


def test_a_spare_takes_up_an_overlay_that_has_failed_as_a_whole() -> None:
    seats = bury(a_tree(), "ha", "hb", "hc", "hd", "he")
    (region,) = seats.regions()

    assert seats.coordinator(region) is None
    seats.place(place("s"))
    assert seats.coordinator(region) == "s"


# --- majorities -----------------------------------------------------------------------------------


def running(count: int, dead: int = 0) -> list[Piece]:
    return [place(f"h{n}") for n in range(count + dead)]


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("dead", range(3))
def test_two_parts_never_both_are_a_majority_whatever_each_knows_of_who_failed(
    count: int, dead: int
) -> None:
    everybody = [NodeId(f"h{n}") for n in range(count)]
    over = [life(f"h{n}") for n in range(count, count + dead)]
    sides = [
        names(*side) for n in range(count + 1) for side in itertools.combinations(everybody, n)
    ]
    proofs = [set(p) for n in range(dead + 1) for p in itertools.combinations(over, n)]

    def wins(side: Collection[NodeId], proven: Collection[Life]) -> bool:
        seats = knowing(*running(count, dead))
        for host in {*everybody} - {*side}:
            seats.bury(life(host))  # of those that are silent, whatever may be said
        return seats.is_majority(side, proven)

    for side in sides:
        one = any(wins(side, proven) for proven in proofs)
        other = any(wins({*everybody} - side, proven) for proven in proofs)
        assert not (one and other)
        assert one or other or dead


def test_who_is_proven_dead_does_not_count() -> None:
    seats = knowing(*running(5), (life("h3"), True))

    assert not seats.is_majority(names("h1", "h2"))
    assert seats.is_majority(names("h1", "h2"), [life("h4")])
    assert not seats.is_majority(names("h1"), [life("h4")])


def test_who_is_back_counts_again() -> None:
    seats = knowing(*running(3), (life("h0"), True), (life("h1"), True))
    is_majority_before = seats.is_majority(names("h2"))
    seats.place(place("h0", incarnation=2))
    seats.place(place("h1", incarnation=2))

    assert is_majority_before
    assert not seats.is_majority(names("h2"))


def test_of_two_halves_the_one_with_the_first_name_is_the_majority() -> None:
    seats = knowing(*running(4))

    assert seats.is_majority(names("h0", "h3"))
    assert not seats.is_majority(names("h1", "h2"))


def test_a_host_that_knows_of_nobody_is_no_majority() -> None:
    assert not Seats().is_majority(names("h1"))
