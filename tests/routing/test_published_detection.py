"""Detection as published: what the tables answer, and who waits for whom."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.published import UNMARKED, Mark, OverlapTables, Plan, make_plan
from plait.routing.tables import Advertisement, RoutingEntry, Subscription

A, B, C = (NodeId(name) for name in "abc")
CLIENT = NodeId("client")
X = frozenset(range(4))
numbers = st.frozensets(st.sampled_from(sorted(X)), min_size=1, max_size=3)


def filter_text(allowed: frozenset[int]) -> str:
    return f"x IN ({', '.join(map(str, sorted(allowed)))})"


def subscription(name: str, hop: NodeId, allowed: frozenset[int]) -> Subscription:
    return RoutingEntry(
        id=SubscriptionId(name),
        client=NodeId(name),
        filter=parse_filter(filter_text(allowed)),
        path=(hop,),
    )


def advertisement(name: str, hop: NodeId, allowed: frozenset[int]) -> Advertisement:
    return RoutingEntry(
        id=AdvertisementId(name),
        client=NodeId(name),
        filter=parse_filter(filter_text(allowed)),
        path=(hop,),
    )


Placed = tuple[NodeId, frozenset[int], bool]
placed: st.SearchStrategy[list[Placed]] = st.lists(
    st.tuples(st.sampled_from([A, B]), numbers, st.booleans()), max_size=5
)


@given(placed, placed)
def test_the_tables_answer_as_the_definition_does(
    advertised: Sequence[Placed], subscribed: Sequence[Placed]
) -> None:
    tables = OverlapTables()
    for number, (hop, allowed, is_removed) in enumerate(subscribed[:2]):
        gone = subscription(f"gone{number}", hop, allowed)
        tables.add_subscription(gone)
        if is_removed:
            tables.remove_subscription(gone)
    for number, (hop, allowed, is_removed) in enumerate(advertised):
        announced = advertisement(f"a{number}", hop, allowed)
        tables.add_advertisement(announced)
        if is_removed:
            tables.remove_advertisement(announced)
    entries = [
        subscription(f"s{number}", hop, allowed)
        for number, (hop, allowed, _) in enumerate(subscribed)
    ]
    for entry in entries:
        tables.add_subscription(entry)
    wanted = {f"s{number}": allowed for number, (_, allowed, _) in enumerate(subscribed)}
    there = [entry for entry in entries if entry.hop == A]
    elsewhere = [entry for entry in entries if entry.hop == B]
    from_there = [allowed for hop, allowed, is_removed in advertised if hop == A and not is_removed]

    assert tables.is_reached_from(A, there) == any(
        wanted[s.id] & allowed for s in there for allowed in from_there
    )
    assert [t.id for t in tables.conflicting(A, there, elsewhere)] == [
        t.id
        for t in elsewhere
        if any(wanted[t.id] & wanted[s.id] & allowed for s in there for allowed in from_there)
    ]


def plan(
    advertised: dict[NodeId, set[int]],
    subscribed: dict[NodeId, Sequence[set[int]]],
    *,
    source: NodeId = CLIENT,
    mark: Mark = UNMARKED,
    is_fast: bool = True,
) -> Plan:
    tables = OverlapTables()
    behind: dict[NodeId, list[Subscription]] = {}
    for hop, wishes in subscribed.items():
        for number, allowed in enumerate(wishes):
            entry = subscription(f"{hop}/{number}", hop, frozenset(allowed))
            tables.add_subscription(entry)
            behind.setdefault(hop, []).append(entry)
    for hop, numbers_ in advertised.items():
        tables.add_advertisement(advertisement(f"ad of {hop}", hop, frozenset(numbers_)))
    return make_plan(tables, behind, clients={CLIENT}, source=source, mark=mark, is_fast=is_fast)


def test_in_a_single_direction_there_is_nothing_to_ask() -> None:
    found = plan({A: {1}}, {A: [{1}, {1}]})

    assert (found.awaited, found.marks) == ({}, {})


def test_who_publishes_is_asked_and_the_others_wait() -> None:
    found = plan({A: {1}}, {A: [{1}], B: [{1}], CLIENT: [{1}]})

    assert found.awaited == {B: (A,), CLIENT: (A,)}
    assert found.marks == {A: Mark(requests=True), B: Mark(waits=True)}


def test_an_advertisement_that_reaches_one_side_only_makes_nobody_wait() -> None:
    found = plan({A: {2}}, {A: [{1, 2}], CLIENT: [{1, 3}]})

    assert found.awaited == {}


def test_two_overlaps_with_one_advertisement_are_no_conflict_without_a_common_publication() -> None:
    found = plan({A: {2, 3}}, {A: [{1, 2}], CLIENT: [{1, 3}]})

    assert found.awaited == {}


def test_without_fast_detection_those_who_wait_are_named() -> None:
    subscribed: dict[NodeId, Sequence[set[int]]] = {A: [{1, 2}], B: [{1}, {1, 2}]}

    assert plan({A: {2}}, subscribed).marks[B] == Mark(waits=True)
    assert plan({A: {2}}, subscribed, is_fast=False).marks[B] == Mark(
        waits=True, waiting=frozenset({SubscriptionId("b/1")})
    )


def test_those_who_are_named_wait_for_the_broker_it_came_from() -> None:
    named = Mark(waits=True, waiting=frozenset({SubscriptionId("b/0")}))
    subscribed: dict[NodeId, Sequence[set[int]]] = {B: [{1}], CLIENT: [{1}]}

    assert plan({}, subscribed, source=A, mark=named, is_fast=False).awaited == {B: (A,)}
    assert plan({}, subscribed, source=A, mark=Mark(waits=True)).awaited == {B: (A,), CLIENT: (A,)}


def test_a_request_goes_on_to_where_such_publications_come_from() -> None:
    found = plan({B: {1}}, {B: [{1}], CLIENT: [{2}]}, source=A, mark=Mark(requests=True))

    assert found.awaited[A] == (B,)
    assert found.awaited[CLIENT] == (B,), "whoever hands a request on waits for the answer too"
    assert found.marks[B].requests
    assert not found.is_answered


def test_a_request_is_answered_where_nothing_of_the_kind_lies_beyond() -> None:
    found = plan({B: {2}}, {B: [{1}]}, source=A, mark=Mark(requests=True))

    assert found.is_answered
    assert found.awaited == {}
