"""Random histories: clean ones are called clean, and a planted defect is found and named."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import attrs
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from plait.faulttol.guarantees import GUARANTEES, Excuse, check, disagreements
from plait.faulttol.history import PublicationId, Record, publication_of
from tests.faulttol.broken_histories import Story

PUBLISHERS = ("p", "q", "r")
SUBSCRIBERS = ("s", "t", "u")


# A bus that keeps every promise


@attrs.define(eq=False)
class Waiting:
    """A publication on its way to one subscriber."""

    publication: PublicationId
    subscriptions: list[str]
    """Those that asked for it when it was published, and still do."""


class Bus:
    """One queue for each subscriber, filled in the order of publishing.

    What is ordered leaves its queue in that order; the rest leaves it at any time.
    """

    def __init__(self) -> None:
        self.story = Story()
        self.queues: dict[str, list[Waiting]] = {name: [] for name in SUBSCRIBERS}
        self.held: dict[str, dict[str, Record]] = {name: {} for name in SUBSCRIBERS}
        self.published: dict[PublicationId, Record] = {}
        self.on_the_way = Counter[PublicationId]()
        self.counts = Counter[str]()
        self.published_in = Counter[tuple[str, int]]()

    def subscribe(self, client: str, low: int, high: int, ordered: bool) -> None:
        self.counts[client] += 1
        where = f"price BETWEEN {low} AND {high}"
        self.story.subscribe(client, where, number=self.counts[client], ordered=ordered)
        self.held[client][f"{client}/{self.counts[client]}"] = {
            "prices": range(low, high + 1),
            "ordered": ordered,
        }

    def unsubscribe(self, client: str, choice: int) -> None:
        if not self.held[client]:
            return
        name = list(self.held[client])[choice % len(self.held[client])]
        self._end(client, name)
        for waiting in list(self.queues[client]):
            if name in waiting.subscriptions:
                waiting.subscriptions.remove(name)
                if not waiting.subscriptions:
                    self._leaves(client, waiting)

    def _end(self, client: str, name: str) -> None:
        del self.held[client][name]
        self.story.unsubscribe(client, number=int(name.partition("/")[2]))

    def publish(self, publisher: str, price: int, ordered: bool, crc: int) -> None:
        life = publisher, self.story.incarnation_of(publisher)
        self.published_in[life] += 1
        publication = *life, self.published_in[life]
        self.story.publish(publisher, price=price, ordered=ordered, crc=crc)
        self.published[publication] = self.story.records[-1]
        for client, held in self.held.items():
            names = [name for name, asked in held.items() if price in asked["prices"]]
            if names:
                self.queues[client].append(Waiting(publication, names))
                self.on_the_way[publication] += 1
        self._confirm_if_arrived(publication)

    def come_back(self, publisher: str) -> None:
        self.story.next_incarnation(publisher)

    def go_away(self, client: str) -> None:
        """For longer than a broker waits: what was under way is skipped, and the session lost."""
        self.story.give_up(client)
        for waiting in list(self.queues[client]):
            publisher, life, seq = waiting.publication
            self.story.skip("b1", publisher, seq, life=life, subscriber=client)
            self._leaves(client, waiting)
        self.story.broker("b1", "joined", client)
        for name in list(self.held[client]):
            self._end(client, name)

    def deliver(self, client: str, choice: int) -> None:
        """Deliver something that is not ordered, or else the next that is."""
        held = self.held[client]
        ready: list[Waiting] = []
        is_next = True
        for waiting in self.queues[client]:
            is_ordered = self.published[waiting.publication]["ordered"] and any(
                held[name]["ordered"] for name in waiting.subscriptions
            )
            if is_next or not is_ordered:
                ready.append(waiting)
            is_next = is_next and not is_ordered
        if ready:
            waiting = ready[choice % len(ready)]
            publisher, life, seq = waiting.publication
            self.story.deliver(
                client,
                publisher,
                seq,
                life=life,
                subscriptions=waiting.subscriptions,
                crc=self.published[waiting.publication]["crc"],
            )
            self._leaves(client, waiting)

    def _leaves(self, client: str, waiting: Waiting) -> None:
        self.queues[client].remove(waiting)
        self.on_the_way[waiting.publication] -= 1
        self._confirm_if_arrived(waiting.publication)

    def _confirm_if_arrived(self, publication: PublicationId) -> None:
        if not self.on_the_way[publication]:
            publisher, life, seq = publication
            self.story.confirm(publisher, seq, life=life)


CLIENTS = st.sampled_from(SUBSCRIBERS)
PRICES = st.integers(0, 9)
MOSTLY = st.sampled_from((True, True, True, False))
CHOICES = st.integers(0, 9)

SUBSCRIBE = st.tuples(st.just("subscribe"), CLIENTS, st.integers(0, 3), st.integers(6, 9), MOSTLY)
UNSUBSCRIBE = st.tuples(st.just("unsubscribe"), CLIENTS, CHOICES)
PUBLISH = st.tuples(st.just("publish"), st.sampled_from(PUBLISHERS), PRICES, MOSTLY, CHOICES)
COME_BACK = st.tuples(st.just("come_back"), st.sampled_from(PUBLISHERS))
GO_AWAY = st.tuples(st.just("go_away"), CLIENTS)
DELIVER = st.tuples(st.just("deliver"), CLIENTS, CHOICES)
USUAL = [SUBSCRIBE] * 2 + [UNSUBSCRIBE, COME_BACK] + [PUBLISH] * 5 + [DELIVER] * 5


@st.composite
def clean_histories(draw: st.DrawFn, *, unusual: Sequence[Any] = ()) -> list[Record]:
    steps: st.SearchStrategy[tuple[Any, ...]] = st.sampled_from([*USUAL, *unusual]).flatmap(
        lambda step: step
    )
    bus = Bus()
    for client in SUBSCRIBERS:
        bus.subscribe(client, 0, draw(st.integers(5, 9)), draw(MOSTLY))
    for step, *arguments in draw(st.lists(steps, min_size=20, max_size=60)):
        getattr(bus, step)(*arguments)
    for client, queue in bus.queues.items():
        while queue:
            bus.deliver(client, draw(CHOICES))
    return bus.story.records


def broken_guarantees(records: Sequence[Record]) -> set[str]:
    return {violation.guarantee for violation in check(records, ordering="pairwise").violations}


@settings(max_examples=200)
@given(clean_histories(), clean_histories(unusual=[GO_AWAY] * 2))
def test_what_a_sound_bus_did_is_clean(records: list[Record], with_absences: list[Record]) -> None:
    for ordering in GUARANTEES:
        report = check(records, ordering=ordering)
        away = check(with_absences, ordering=ordering)

        assert report.violations == away.violations == ()
        assert set(report.excused) <= {Excuse.WITHDRAWN}
        assert set(away.excused) <= {
            Excuse.WITHDRAWN,
            Excuse.SKIPPED,
            Excuse.SUBSCRIBER_FAILED,
        }


# Planted defects


@attrs.frozen
class Evidence:
    """A clean history, and where in it the things are that can be broken."""

    records: list[Record]

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["kind"] == kind]

    def ordered_deliveries(self) -> list[Record]:
        unordered = {
            publication_of(record) for record in self.of_kind("published") if not record["ordered"]
        }
        ordered_subscriptions = {
            record["subscription"] for record in self.of_kind("subscribed") if record["ordered"]
        }
        return [
            record
            for record in self.of_kind("delivered")
            if publication_of(record) not in unordered
            and ordered_subscriptions.intersection(record["subscriptions"])
        ]

    def swapped(self, one: Record, other: Record) -> list[Record]:
        exchange = {id(one): other, id(other): one}
        return recounted(exchange.get(id(record), record) for record in self.records)

    def without(self, left_out: Record) -> list[Record]:
        return [record for record in self.records if record is not left_out]

    def with_changed(self, changed: Record, **fields: Any) -> list[Record]:
        return [record | fields if record is changed else record for record in self.records]


def recounted(records: Iterator[Record]) -> list[Record]:
    """Number records and deliveries anew, so that only the defect itself is left to see."""
    n = Counter[tuple[str, int]]()
    position = Counter[str]()
    result = []
    for record in records:
        node = record["node"]
        life = node, record["incarnation"]
        n[life] += 1
        copy = record | {"n": n[life]}
        if record["kind"] == "delivered":
            position[node] += 1
            copy["position"] = position[node]
        result.append(copy)
    return result


Histories = Iterator[list[Record]]
DEFECTS: dict[str, tuple[str, Callable[[Evidence], Histories]]] = {}


def defect(guarantee: str) -> Callable[[Callable[[Evidence], Histories]], None]:
    """Register all the ways to plant a defect that breaks a guarantee."""

    def register(ways: Callable[[Evidence], Histories]) -> None:
        DEFECTS[ways.__name__] = guarantee, ways

    return register


@defect("duplicate")
def duplicated(evidence: Evidence) -> Histories:
    for delivery in evidence.of_kind("delivered"):
        yield recounted(
            copy
            for record in evidence.records
            for copy in ([record, record] if record is delivery else [record])
        )


@defect("loss")
def dropped(evidence: Evidence) -> Histories:
    withdrawn = {record["subscription"] for record in evidence.of_kind("unsubscribed")}
    for delivery in evidence.of_kind("delivered"):
        if not withdrawn.issuperset(delivery["subscriptions"]):
            yield recounted(iter(evidence.without(delivery)))


@defect("loss")
def given_up_though_never_away(evidence: Evidence) -> Histories:
    withdrawn = {record["subscription"] for record in evidence.of_kind("unsubscribed")}
    for delivery in evidence.of_kind("delivered"):
        if not withdrawn.issuperset(delivery["subscriptions"]):
            by_broker = {name: delivery[name] for name in ("run", "at")}
            by_broker |= {"node": "b1", "incarnation": 1, "n": 0}
            about = {"about": delivery["subscriber"], "members": []}
            names = ("publisher", "publisher_incarnation", "seq", "subscriber")
            skipped = {name: delivery[name] for name in names} | {"reason": "too slow"}
            instead = [
                {**by_broker, "kind": "suspected", **about, "millis": 100.0},
                {**by_broker, "kind": "skipped", **skipped},
                {**by_broker, "kind": "joined", **about, "millis": 50.0},
            ]
            yield recounted(
                one
                for record in evidence.records
                for one in (instead if record is delivery else [record])
            )


@defect("altered")
def body_altered(evidence: Evidence) -> Histories:
    for delivery in evidence.of_kind("delivered"):
        yield evidence.with_changed(delivery, crc=delivery["crc"] + 1)


@defect("spurious")
def content_altered(evidence: Evidence) -> Histories:
    delivered = {publication_of(delivery) for delivery in evidence.of_kind("delivered")}
    for publication in evidence.of_kind("published"):
        if publication_of(publication) in delivered:
            yield evidence.with_changed(publication, content={"price": -1})


@defect("spurious")
def never_published(evidence: Evidence) -> Histories:
    for delivery in evidence.of_kind("delivered"):
        yield evidence.with_changed(delivery, publisher="nobody")


@defect("spurious")
def of_a_life_that_published_nothing(evidence: Evidence) -> Histories:
    for delivery in evidence.of_kind("delivered"):
        yield evidence.with_changed(delivery, publisher_incarnation=99)


@defect("spurious")
def delivered_early(evidence: Evidence) -> Histories:
    """Before its subscriber had any subscription."""
    for delivery in evidence.of_kind("delivered"):
        yield recounted(iter([delivery, *evidence.without(delivery)]))


@defect("fifo")
def swapped_of_one_publisher(evidence: Evidence) -> Histories:
    for one, other in combinations(evidence.ordered_deliveries(), 2):
        if all(one[field] == other[field] for field in ("subscriber", "publisher")):
            # Also if the two are of two lives.
            yield evidence.swapped(one, other)


@defect("pairwise")
def swapped_at_one_of_two_subscribers(evidence: Evidence) -> Histories:
    of_one_subscriber = [
        (one, other, frozenset((publication_of(one), publication_of(other))))
        for one, other in combinations(evidence.ordered_deliveries(), 2)
        if one["subscriber"] == other["subscriber"]
    ]
    deliverers = Counter(publications for _, _, publications in of_one_subscriber)
    for one, other, publications in of_one_subscriber:
        if deliverers[publications] > 1:
            yield evidence.swapped(one, other)


@defect("record")
def record_missing(evidence: Evidence) -> Histories:
    last = {(record["node"], record["incarnation"]): record for record in evidence.records}
    for record in evidence.records:
        if record is not last[record["node"], record["incarnation"]]:
            yield evidence.without(record)


@defect("record")
def position_wrong(evidence: Evidence) -> Histories:
    for delivery in evidence.of_kind("delivered"):
        yield evidence.with_changed(delivery, position=delivery["position"] + 1)
        yield evidence.with_changed(delivery, position=delivery["position"] - 1)


@pytest.mark.parametrize("name", DEFECTS)
@settings(max_examples=50)
@given(records=clean_histories(), data=st.data())
def test_planted_defect_is_found_and_named(
    records: list[Record], name: str, data: st.DataObject
) -> None:
    guarantee, ways = DEFECTS[name]
    histories = list(ways(Evidence(records)))
    assume(histories)

    assert guarantee in broken_guarantees(data.draw(st.sampled_from(histories)))


# Pairwise order, by brute force


PUBLICATIONS = [("p", 1, seq) for seq in range(1, 8)]
SHUFFLED = st.lists(st.sampled_from(PUBLICATIONS), unique=True)
IN_ORDER = st.sets(st.sampled_from(PUBLICATIONS)).map(sorted)
ORDERS = st.dictionaries(
    st.sampled_from("stuvwx"), st.one_of(IN_ORDER, IN_ORDER, SHUFFLED), max_size=6
)
RINGS = st.permutations(PUBLICATIONS).flatmap(
    lambda ring: st.lists(st.integers(0, len(ring) - 1), min_size=2, max_size=6).map(
        lambda cuts: {
            f"s{number}": (ring[cut:] + ring[:cut])[: 2 + number % 3]
            for number, cut in enumerate(cuts)
        }
    )
)
"""Short pieces of one ring: full of cycles, and often without a disagreement."""


def disagree(order: list[PublicationId], other: list[PublicationId]) -> bool:
    return any(
        order.index(p) < order.index(q) and other.index(q) < other.index(p)
        for p in set(order).intersection(other)
        for q in set(order).intersection(other)
    )


@settings(max_examples=500)
@given(st.one_of(ORDERS, RINGS))
def test_disagreements_are_those_that_brute_force_finds(
    orders: dict[str, list[PublicationId]],
) -> None:
    found = list(disagreements(orders))
    expected = [
        {one, other}
        for one, other in combinations(orders, 2)
        if disagree(orders[one], orders[other])
    ]
    event(f"{'some' if expected else 'no'} disagreements")

    assert sorted(sorted((one, other)) for one, other, _, _ in found) == sorted(
        sorted(pair) for pair in expected
    )
    for one, other, p, q in found:
        common = [publication for publication in orders[one] if publication in orders[other]]
        assert (p, q) in pairwise(common)
        assert orders[other].index(q) < orders[other].index(p)


def test_disagreements_of_one_long_order_need_no_recursion() -> None:
    order = [("p", 1, seq) for seq in range(100_000)]

    assert list(disagreements({"s": order, "t": order})) == []
    assert list(disagreements({"s": order, "t": [order[-1], *order[:-1]]})) == [
        ("s", "t", order[-2], order[-1])
    ]
