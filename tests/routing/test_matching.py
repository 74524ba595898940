"""The index says what a scan of all filters says, whatever has been added and removed before."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from plait.routing.bits import numbers_in
from plait.routing.errors import DuplicateEntryError, UnknownEntryError
from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.matching import Matcher, MatchingIndex, ScanningMatcher
from plait.routing.values import Content
from tests.routing.strategies import conjunctions, contents, filters

MATCHERS: list[Callable[[], Matcher[str]]] = [MatchingIndex, ScanningMatcher]
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")

hops = st.sampled_from([A, B, C])
any_filters = st.builds(Filter, conjunctions) | filters


class IndexBesideScan(RuleBasedStateMachine):
    keys: Bundle[int] = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.index: MatchingIndex[int] = MatchingIndex()
        self.scan: ScanningMatcher[int] = ScanningMatcher()
        self.hop_of: dict[int, NodeId] = {}
        self.next_key = 0

    @rule(target=keys, hop=hops, filter_=any_filters)
    def add(self, hop: NodeId, filter_: Filter) -> int:
        key = self.next_key
        self.next_key += 1
        self.index.add(key, hop, filter_)
        self.scan.add(key, hop, filter_)
        self.hop_of[key] = hop
        return key

    @rule(key=consumes(keys))
    def remove(self, key: int) -> None:
        self.index.remove(key)
        self.scan.remove(key)
        del self.hop_of[key]

    @rule(content=contents)
    def match(self, content: Content) -> None:
        assert self.index.match(content) == self.scan.match(content)
        assert self.index.hops(content) == self.scan.hops(content)
        slots = numbers_in(self.index.matching_bits(content))
        assert sorted(map(self.index.key_at, slots)) == self.scan.match(content)

    @invariant()
    def slots_and_keys_belong_together(self) -> None:
        assert len(self.index) == len(self.scan) == len(self.hop_of)
        for key, hop in self.hop_of.items():
            slot = self.index.slot_of(key)
            assert self.index.key_at(slot) == key
            assert self.index.bits_of_hop(hop) >> slot & 1
        all_slots = (
            self.index.bits_of_hop(A) | self.index.bits_of_hop(B) | self.index.bits_of_hop(C)
        )
        assert all_slots.bit_count() == len(self.hop_of)


TestIndexBesideScan = IndexBesideScan.TestCase
TestIndexBesideScan.settings = settings(max_examples=120, stateful_step_count=40)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 30)), min_size=150, max_size=400),
)
def test_many_ranges_are_cut_into_blocks_and_stay_right(
    ranges: list[tuple[int, int]],
) -> None:
    index: MatchingIndex[int] = MatchingIndex()
    for key, (low, width) in enumerate(ranges):
        index.add(key, A, parse_filter(f"x >= {low} AND x < {low + width}"))
        if key % 7 == 0:
            index.match({"x": low})
    for key in range(0, len(ranges), 3):
        index.remove(key)

    for x in range(-41, 72, 3):
        assert index.match({"x": x}) == [
            key
            for key, (low, width) in enumerate(ranges)
            if low <= x < low + width and key % 3 != 0
        ]


@pytest.mark.parametrize("make", MATCHERS)
def test_keys_and_hops_come_in_the_order_of_their_arrival(make: Callable[[], Matcher[str]]) -> None:
    matcher = make()
    everything = parse_filter("TRUE")
    matcher.add("first", B, everything)
    matcher.add("second", A, everything)
    matcher.add("third", C, everything)
    matcher.remove("first")
    matcher.add("fourth", B, everything)

    assert matcher.match({}) == ["second", "third", "fourth"]
    assert matcher.hops({}) == [A, C, B]
    assert len(matcher) == 3


@pytest.mark.parametrize("make", MATCHERS)
def test_a_hop_keeps_its_place_as_long_as_it_has_a_subscription(
    make: Callable[[], Matcher[str]],
) -> None:
    matcher = make()
    matcher.add("first", B, parse_filter("x = 1"))
    matcher.add("second", A, parse_filter("TRUE"))
    matcher.add("third", B, parse_filter("TRUE"))
    matcher.remove("first")

    assert matcher.hops({"x": 1}) == [B, A]


@pytest.mark.parametrize("make", MATCHERS)
def test_a_key_is_added_once_and_removed_once(make: Callable[[], Matcher[str]]) -> None:
    matcher = make()
    matcher.add("s", A, parse_filter("x = 1"))

    with pytest.raises(DuplicateEntryError, match="'s' has been added already"):
        matcher.add("s", B, parse_filter("x = 2"))
    assert matcher.hops({"x": 1}) == [A]
    assert matcher.hops({"x": 2}) == []
    matcher.remove("s")
    with pytest.raises(UnknownEntryError, match="there is no subscription 's'"):
        matcher.remove("s")
    assert matcher.hops({"x": 1}) == []


def test_few_matches_among_many_hops_are_read_one_by_one() -> None:
    """The other way, a test of every hop, is what most examples take."""
    index: MatchingIndex[int] = MatchingIndex()
    for key in range(40):
        index.add(key, NodeId(f"n{key}"), parse_filter(f"x = {key // 2}"))

    assert index.hops({"x": 3}) == ["n6", "n7"]
    assert index.hops({"x": 99}) == []


def test_a_free_slot_is_used_again_and_an_empty_one_has_no_key() -> None:
    index: MatchingIndex[str] = MatchingIndex()
    for key in ("p", "q", "r"):
        index.add(key, A, parse_filter("TRUE"))
    index.remove("p")
    index.remove("q")
    with pytest.raises(UnknownEntryError, match="slot 0"):
        index.key_at(0)
    with pytest.raises(UnknownEntryError, match="slot 3"):
        index.key_at(3)
    index.add("s", B, parse_filter("TRUE"))

    assert index.slot_of("s") == 0
    assert index.bits_of_hop(A) == 0b100
    assert index.bits_of_hop(B) == 0b001
    assert index.bits_of_hop(C) == 0


def test_a_value_that_many_want_is_kept_as_one_bit_set() -> None:
    index: MatchingIndex[int] = MatchingIndex()
    for key in range(40):
        index.add(key, A, parse_filter("x = 1"))
    for key in range(39):
        index.remove(key)

    assert index.match({"x": 1.0}) == [39]
    index.remove(39)
    assert index.match({"x": 1}) == []
    assert index.match({"x": True}) == []


def test_more_shapes_of_contents_than_are_remembered() -> None:
    index: MatchingIndex[str] = MatchingIndex()
    index.add("s", A, parse_filter("x IS NULL"))

    for n in range(100):
        assert index.match({f"y{n}": 1}) == ["s"]
        assert index.match({f"y{n}": 1, "x": 1}) == []
