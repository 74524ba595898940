"""Conflict detection on bit sets says what asking everybody says."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.conflicts import DETECTIONS, EXACT, FAST, Conflicts
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.tables import Advertisement, RoutingEntry, Subscription, SubscriptionTable
from tests.routing.strategies import thorough

ABOVE = NodeId("above")
CHILD = NodeId("child")
HOPS = {"s": ABOVE, "t": CHILD, "u": ABOVE, "v": CHILD, "w": NodeId("w")}
"""Where each subscriber lies, seen from the broker in the middle."""
VALUES = range(4)


class Seen:
    """A broker's tables, and its conflicts, as they come and go."""

    def __init__(self, detection: str) -> None:
        self.table = SubscriptionTable()
        self.conflicts = Conflicts(self.table.index, detection=detection)
        self.announced: list[Advertisement] = []

    def subscribe(self, name: str, filter_text: str, *, ordered: bool = True) -> None:
        client = NodeId(name.partition("/")[0])
        entry: Subscription = RoutingEntry(
            id=SubscriptionId(name),
            client=client,
            filter=parse_filter(filter_text),
            path=(HOPS[client],),
            ordered=ordered,
        )
        self.table.add(entry)
        self.conflicts.add_subscription(entry)

    def unsubscribe(self, name: str) -> None:
        self.conflicts.remove_subscription(self.table.remove(SubscriptionId(name)))

    def announce(self, name: str, filter_text: str) -> None:
        entry: Advertisement = RoutingEntry(
            id=AdvertisementId(name),
            client=NodeId("p"),
            filter=parse_filter(filter_text),
            path=(ABOVE,),
        )
        self.announced.append(entry)
        self.conflicts.add_advertisement(entry)

    def withdraw(self, name: str) -> None:
        [entry] = [entry for entry in self.announced if entry.id == name]
        self.announced.remove(entry)
        self.conflicts.remove_advertisement(entry)

    def is_conflict(self, x: int, *, unseen_at: NodeId | None = None) -> bool:
        matching = self.table.index.matching_bits({"x": x})
        return self.conflicts.is_conflict(matching, ABOVE, unseen_at=unseen_at)

    # The same, by asking everybody.

    def wanted_by(self, x: int) -> dict[NodeId, list[Subscription]]:
        """Who wants it in order, with all that each of them asked for in order."""
        ordered = [entry for entry in self.table if entry.ordered]
        clients = {entry.client for entry in ordered if entry.filter.matches({"x": x})}
        return {client: [e for e in ordered if e.client == client] for client in sorted(clients)}

    def can_come(self, *wishes: Sequence[Subscription]) -> bool:
        """Whether something from above is for all of these subscribers."""
        return any(
            entry.filter.matches({"x": x})
            and all(any(one.filter.matches({"x": x}) for one in wish) for wish in wishes)
            for entry in self.announced
            for x in VALUES
        )

    def is_conflict_by_asking(self, x: int, detection: str) -> bool:
        wanted = self.wanted_by(x)
        return any(
            self.can_come(wanted[t], wanted[s]) if detection == EXACT else self.can_come(wanted[t])
            for s in wanted
            for t in wanted
            if HOPS[s] == ABOVE != HOPS[t]
        )


@attrs.frozen
class Change:
    """Something comes, or whatever has this number goes."""

    comes: bool
    kind: str
    number: int
    filter_text: str
    ordered: bool


filters = st.sets(st.sampled_from(VALUES), min_size=1).map(
    lambda values: f"x IN ({', '.join(map(str, sorted(values)))})"
)
changes = st.builds(
    Change,
    st.booleans() | st.just(True),
    st.sampled_from(["advertisement", *HOPS]),
    st.integers(0, 2),
    filters,
    st.booleans() | st.just(True),
)


def _make(seen: Seen, change: Change) -> None:
    name = f"{change.kind}/{change.number}"
    is_known = name in {str(entry.id) for entry in (*seen.table, *seen.announced)}
    if change.comes == is_known:
        return
    if change.kind == "advertisement":
        if change.comes:
            seen.announce(name, change.filter_text)
        else:
            seen.withdraw(name)
    elif change.comes:
        seen.subscribe(name, change.filter_text, ordered=change.ordered)
    else:
        seen.unsubscribe(name)


@thorough
@given(st.sampled_from(DETECTIONS), st.lists(changes, max_size=20))
def test_it_says_what_asking_everybody_says(detection: str, history: list[Change]) -> None:
    seen = Seen(detection)
    for change in history:
        _make(seen, change)
        for x in VALUES:
            assert seen.is_conflict(x) == seen.is_conflict_by_asking(x, detection)


@thorough
@given(st.lists(changes, max_size=20))
def test_two_contents_share_a_bit_if_and_only_if_they_share_a_subscriber(
    history: list[Change],
) -> None:
    seen = Seen(FAST)
    for change in history:
        _make(seen, change)
    for x in VALUES:
        for y in VALUES:
            one, two = (
                seen.conflicts.subscribers(seen.table.index.matching_bits({"x": value}))
                for value in (x, y)
            )
            assert bool(one & two) == bool(seen.wanted_by(x).keys() & seen.wanted_by(y).keys())


@pytest.mark.parametrize("detection", DETECTIONS)
def test_unordered_subscriptions_make_nobody_wait(detection: str) -> None:
    seen = Seen(detection)
    seen.announce("a", "TRUE")
    seen.subscribe("s/1", "TRUE")
    seen.subscribe("t/1", "TRUE", ordered=False)

    assert not seen.is_conflict(1, unseen_at=CHILD)
    assert seen.conflicts.subscribers(seen.table.index.matching_bits({"x": 1})).bit_count() == 1


def test_the_exact_test_tells_what_the_fast_one_cannot() -> None:
    """What comes from above is for either of the two, and never for both."""
    verdicts = {}
    for detection in DETECTIONS:
        seen = Seen(detection)
        seen.announce("a", "x > 1")
        seen.subscribe("s/1", "x <= 2")
        seen.subscribe("t/1", "x = 1 OR x >= 3")
        verdicts[detection] = seen.is_conflict(1)

    assert verdicts == {FAST: True, EXACT: False}


def test_what_the_algebra_cannot_decide_is_a_conflict() -> None:
    seen = Seen(EXACT)
    seen.announce("a", "x * x < 0")
    seen.subscribe("s/1", "TRUE")
    seen.subscribe("t/1", "TRUE")

    assert seen.is_conflict(1)


@pytest.mark.parametrize(("detection", "is_believed"), [(FAST, True), (EXACT, False)])
def test_a_child_that_waits_is_believed_unless_everything_is_known(
    detection: str, is_believed: bool
) -> None:
    seen = Seen(detection)
    seen.announce("a", "x = 2")
    seen.subscribe("s/1", "TRUE")
    seen.subscribe("t/1", "x = 2")

    assert not seen.is_conflict(1)
    assert seen.is_conflict(1, unseen_at=CHILD) == is_believed
    assert not seen.is_conflict(1, unseen_at=HOPS["w"])
