"""The order in which a failed region released its publications, from what is left of it.

A publication is written as its publisher and its number, `p1`; a side as what it got from the
region, what it gave to it, what it lacks, and who on it wants what.
"""

from itertools import combinations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faulttol.merging import Key, Merge, Side, merge
from routing.ids import NodeId, SubscriptionId

PUBLISHERS = "pqr"


def key(text: str) -> Key:
    return NodeId(text[0]), 1, int(text[1:])


def keys(text: str) -> list[Key]:
    return [key(word) for word in text.split()]


def in_words(order: tuple[Key, ...]) -> str:
    return " ".join(f"{publisher}{number}" for publisher, _, number in order)


def side(
    *,
    got: str = "",
    concern_all: str = "",
    gave: str = "",
    awaits: str = "",
    lacks: str = "",
    settled: str = "",
    had: str = "",
    decides: bool = False,
    **wanted: str,
) -> Side:
    """A side with a subscriber for each of `wanted`."""
    return Side(
        got=keys(got),
        concern_all=frozenset(keys(concern_all)),
        gave=keys(gave),
        awaits=frozenset(keys(awaits)),
        lacks=keys(lacks),
        settled=keys(settled),
        had=keys(had),
        decides=decides,
        subscribers=by_publication(wanted),
    )


def by_publication(wanted: dict[str, str]) -> dict[Key, frozenset[NodeId]]:
    subscribers: dict[Key, set[NodeId]] = {}
    for subscriber, publications in wanted.items():
        for publication in keys(publications):
            subscribers.setdefault(publication, set()).add(NodeId(subscriber))
    return {k: frozenset(clients) for k, clients in subscribers.items()}


def merged(publications: str, *sides: Side) -> tuple[str, str]:
    """What is decided and what is not, when these are named in this order."""
    result = merge(keys(publications), sides)
    assert result.circles == 0
    return in_words(result.decided), in_words(result.undecided)


def test_what_one_side_got_is_given_to_the_others_in_its_order() -> None:
    ahead = side(got="q1 p1", s="p1 q1")
    behind = side(lacks="p1 q1", t="p1 q1")

    assert merged("p1 q1", ahead, behind) == ("q1 p1", "")


def test_what_nobody_got_is_not_decided() -> None:
    giver = side(gave="p1 p2", s="p1 p2")
    taker = side(got="p1", lacks="p2", t="p1 p2")

    assert merged("p1 p2", giver, taker) == ("p1", "p2")


def test_what_a_side_lacks_comes_after_what_it_got_although_it_was_named_first() -> None:
    one = side(got="p1", lacks="q1", s="p1 q1")
    other = side(got="q1", t="q1", u="p1")
    neither = side(lacks="p1 q1", v="p1 q1")

    assert merged("q1 p1", one, other, neither) == ("p1 q1", "")


def test_what_is_ordered_differently_where_nobody_shares_both_is_no_circle() -> None:
    """Only s shares q1 and p1, only t shares p2 and q1; p1 comes before p2 all the same."""
    hub = side(gave="q1", settled="q1", lacks="p1", decides=True, s="q1 p1")
    other = side(got="p2", lacks="q1", t="p2 q1")

    result = merge(keys("p1 p2 q1"), [hub, other])
    assert result.passed_by == (frozenset(), frozenset())
    assert result.circles == 0


def test_an_earlier_one_of_the_publisher_is_decided_with_a_later_one() -> None:
    """Nobody has a subscription for both, and still p2 must not be there before p1."""
    giver = side(gave="p1 p2")
    taker = side(got="p2", s="p2")
    other = side(lacks="p1", t="p1")

    assert merged("p2 p1", giver, taker, other) == ("p1 p2", "")


def test_an_earlier_one_over_the_same_link_is_decided_if_somebody_wants_both() -> None:
    giver = side(gave="p1 q1")
    taker = side(got="q1", s="q1")
    common = side(lacks="p1 q1", t="p1 q1")
    apart = side(lacks="p1 q1", t="p1", u="q1")

    assert merged("q1 p1", giver, taker, common) == ("p1 q1", "")
    assert merged("q1 p1", giver, taker, apart) == ("q1", "p1")


def test_an_own_one_that_has_been_settled_concerns_everybody() -> None:
    """Who waited for p1 on its own side is not told, so q1 is after it, and r1 before."""
    publisher = side(gave="p1", got="r1 p1 q1", concern_all="p1", s="q1 r1")
    other = side(lacks="p1 q1 r1", t="p1 q1 r1")

    assert merged("q1 p1 r1", publisher, other) == ("r1 p1 q1", "")


def test_an_own_one_that_waits_comes_after_what_its_side_got() -> None:
    giver = side(gave="p1", awaits="p1", got="q1", s="p1 q1")
    taker = side(got="p1", t="p1")
    other = side(gave="q1", awaits="q1", lacks="p1", u="p1 q1")

    assert merged("p1 q1", giver, taker, other) == ("q1 p1", "")


def test_an_own_one_that_was_not_settled_is_not_decided() -> None:
    publisher = side(gave="p1", got="q1", s="p1 q1")
    other = side(lacks="p1 q1", t="p1 q1")

    assert merged("p1 q1", publisher, other) == ("q1", "p1")


def test_what_a_deciding_side_gave_is_decided_in_its_order_although_nobody_wants_two_of_it() -> (
    None
):
    hub = side(gave="q1 p1 r1", decides=True)
    others = [side(lacks=word, s=word) for word in ("p1", "q1", "r1")]

    assert merged("p1 q1 r1", hub, *others) == ("q1 p1 r1", "")


def test_what_a_deciding_side_got_is_not_decided_for_it_has_to_decide_that_itself() -> None:
    hub = side(got="p1", gave="q1", decides=True, s="p1 q1")
    giver = side(gave="p1", lacks="q1", t="p1 q1")

    assert merged("p1 q1", hub, giver) == ("q1", "p1")


def test_two_without_a_subscriber_in_common_have_no_order() -> None:
    one = side(got="p1 q1", s="p1", t="q1")
    other = side(got="q1 p1", u="p1", v="q1")

    assert merged("p1 q1", one, other) == ("p1 q1", "")


def test_three_of_which_each_two_have_one_subscriber_make_a_harmless_circle() -> None:
    """Each subscriber is alone in what it saw, so nobody can disagree with it."""
    one = side(got="p1 q1", s="p1 q1")
    two = side(got="q1 r1", t="q1 r1")
    three = side(got="r1 p1", u="r1 p1")

    assert merged("p1 q1 r1", one, two, three) == ("p1 q1 r1", "")


def test_a_real_contradiction_is_counted_and_nothing_is_left_out() -> None:
    one = side(got="p1 q1", s="p1 q1")
    other = side(got="q1 p1", t="p1 q1")

    third = side(lacks="p1 q1", u="p1 q1")

    assert merge(keys("p1 q1 r1"), [one, other, third]) == Merge(
        decided=tuple(keys("p1 q1")),
        undecided=tuple(keys("r1")),
        passed_by=(frozenset(),) * 3,
        circles=1,
    )


def test_a_side_that_wants_too_late_what_came_earlier_is_passed_by() -> None:
    ahead = side(got="p1 q1", s="p1 q1")
    late = side(got="q1", lacks="p1", t="p1 q1")

    result = merge(keys("p1 q1"), [ahead, late])
    assert result.passed_by == (frozenset(), frozenset(keys("p1")))
    assert result.circles == 0


def test_what_a_side_has_had_for_long_it_has_before_whatever_it_lacks() -> None:
    late = side(had="p1", lacks="q1", s="p1 q1")
    ahead = side(got="q1 p1", t="p1 q1")

    result = merge(keys("p1 q1"), [late, ahead])
    assert result.passed_by == (frozenset(keys("q1")), frozenset())
    assert result.circles == 0


@pytest.mark.parametrize("is_last", [False, True])
def test_of_two_that_may_be_late_it_is_not_who_got_something_earlier_by_that_subscription(
    is_last: bool,
) -> None:
    """Either was late for what only the other got; p1 was there before p2."""
    timely = side(got="p1 q1", settled="p1 q1", lacks="p2", s="p1 p2 q1")
    timely.subscriptions = dict.fromkeys(keys("p1 p2"), frozenset([SubscriptionId("s/1")]))
    late = side(got="p2", lacks="q1", t="p2 q1")
    sides = [late, timely] if is_last else [timely, late]

    result = merge(keys("p1 p2 q1"), sides)
    assert result.passed_by[sides.index(timely)] == frozenset()
    assert result.passed_by[sides.index(late)] == frozenset(keys("q1"))
    assert result.circles == 0


@pytest.mark.parametrize("is_last", [False, True])
def test_who_got_something_earlier_by_a_subscription_that_not_all_knew_yet_may_be_late(
    is_last: bool,
) -> None:
    """It came by on somebody else's account: the subscription was confirmed only later."""
    late = side(got="p1 q1", settled="q1", lacks="p2", s="p1 p2 q1")
    late.subscriptions = dict.fromkeys(keys("p1 p2"), frozenset([SubscriptionId("s/1")]))
    timely = side(got="p2", lacks="q1", t="p2 q1")
    timely.asked_in_time = keys("q1")
    sides = [late, timely] if is_last else [timely, late]

    result = merge(keys("p1 p2 q1"), sides)
    assert result.passed_by[sides.index(timely)] == frozenset()
    assert result.passed_by[sides.index(late)] == frozenset(keys("p2"))


@pytest.mark.parametrize("is_last", [False, True])
def test_of_two_that_may_be_late_it_is_not_who_asked_before_anything_was_published(
    is_last: bool,
) -> None:
    timely = side(got="p1", lacks="q1", s="p1 q1")
    timely.asked_in_time = keys("q1")
    late = side(got="q1", lacks="p1", t="p1 q1")
    sides = [late, timely] if is_last else [timely, late]

    result = merge(keys("p1 q1"), sides)
    assert result.passed_by[sides.index(timely)] == frozenset()
    assert result.passed_by[sides.index(late)] == frozenset(keys("p1"))
    assert result.circles == 0


def test_what_somebody_may_have_got_is_given_in_that_order() -> None:
    ahead = side(settled="q1 p1", gave="p1", got="q1", s="p1")
    ahead.may_have = by_publication({"s": "q1"})
    behind = side(lacks="p1 q1", t="p1 q1")

    assert " ".join(merged("p1 q1", ahead, behind)) == "q1 p1"


def test_who_cannot_have_asked_in_time_is_passed_by_for_somebody_who_may_have_got_it() -> None:
    ahead = side(settled="p1 q1", gave="p1 q1", decides=True, s="q1")
    ahead.may_have = by_publication({"s": "p1"})
    late = side(got="q1", lacks="p1", t="p1 q1")
    timely = attrs.evolve(late, asked_in_time=keys("p1"))

    assert merge(keys("p1 q1"), [ahead, late]).passed_by[1] == frozenset(keys("p1"))
    assert not any(merge(keys("p1 q1"), [ahead, timely]).passed_by)


def test_who_had_asked_beyond_doubt_is_passed_by_only_for_those_who_had_asked_long_before() -> None:
    ahead = side(settled="p1 q1", gave="p1 q1", decides=True, s="p1 q1")
    for_sure = attrs.evolve(ahead, for_long=ahead.subscribers)
    behind = side(got="q1", lacks="p1", t="p1 q1")
    behind.for_long = behind.subscribers
    behind.asked_in_time = behind.had_asked = keys("p1")

    assert not any(merge(keys("p1 q1"), [ahead, behind]).passed_by)
    assert merge(keys("p1 q1"), [for_sure, behind]).passed_by[1] == frozenset(keys("p1"))


def test_who_may_have_got_it_does_not_count_against_those_who_did() -> None:
    ahead = side(got="q1 p1", s="p1 q1")
    perhaps = side(settled="p1 q1", gave="p1", got="q1", t="q1")
    perhaps.may_have = by_publication({"t": "p1"})
    behind = side(got="q1", lacks="p1", u="p1 q1")

    result = merge(keys("p1 q1"), [ahead, perhaps, behind])
    assert result.decided == tuple(keys("q1 p1"))
    assert result.circles == 0
    assert not any(result.passed_by)


def test_who_has_it_in_another_order_than_the_rest_of_a_side_counts_with_that() -> None:
    hub = side(gave="q1 p1", settled="p1 q1", s="p1 q1")
    hub.settled_by = {NodeId("s"): keys("q1 p1")}
    behind = side(got="q1", lacks="p1", t="p1 q1")

    result = merge(keys("p1 q1"), [hub, behind])
    assert not any(result.passed_by)


@pytest.mark.parametrize("settled", ["p1 q1", "q1 p1"])
@pytest.mark.parametrize("decides", [False, True])
def test_what_a_side_gave_and_what_it_got_come_as_its_own_have_them(
    decides: bool, settled: str
) -> None:
    both = side(got="p1", gave="q1", settled=settled, decides=decides, s="p1 q1")
    behind = side(lacks="p1 q1", t="p1 q1")

    assert " ".join(merged("q1 p1", both, behind)).strip() == settled


def test_what_somebody_wanted_once_comes_in_the_order_in_which_he_got_it() -> None:
    """The subscription has been withdrawn since, and was for both."""
    ahead = side(got="q1 p1", concern_all="q1 p1")
    behind = side(lacks="p1 q1", t="p1 q1")

    assert merged("p1 q1", ahead, behind) == ("q1 p1", "")


def test_what_is_bound_by_nothing_keeps_the_order_in_which_it_was_named() -> None:
    assert merged("r1 p1 q1", side(gave="q1"), side(gave="p1"), side(gave="r1")) == ("", "r1 p1 q1")


# --- any sides -------------------------------------------------------------------------------

NAMES = [f"{publisher}{number}" for publisher in PUBLISHERS for number in (1, 2)]
SOME = st.lists(st.sampled_from(NAMES), unique=True).map(" ".join)


@st.composite
def any_side(draw: st.DrawFn, name: str) -> Side:
    got = draw(SOME)
    rest = [word for word in NAMES if word not in got.split()]
    lacks = " ".join(word for word in rest if draw(st.booleans()))
    own = " ".join(word for word in got.split() if draw(st.integers(0, 3)) == 0)
    wanted = {f"{name}{number}": draw(SOME) for number in range(2)}
    decides = name == "h" and draw(st.booleans())
    gave = draw(SOME)
    awaits = " ".join(word for word in gave.split() if not decides and draw(st.booleans()))
    return side(
        got=got,
        concern_all=own,
        gave=gave,
        awaits=awaits,
        lacks=lacks,
        decides=decides,
        **wanted,
    )


@given(publications=st.permutations(NAMES), sides=st.tuples(*map(any_side, "hxy")))
def test_any_result_keeps_every_binding_or_counts_circles(
    publications: list[str], sides: tuple[Side, ...]
) -> None:
    result = merge(keys(" ".join(publications)), sides)
    order = [*result.decided, *result.undecided]

    assert sorted(order) == sorted(keys(" ".join(publications)))
    place = {publication: number for number, publication in enumerate(order)}
    if result.circles == 0:
        for first, then in bindings(sides, result):
            assert place[first] < place[then]


@given(publications=st.permutations(NAMES), sides=st.tuples(*map(any_side, "hxy")))
def test_what_somebody_got_is_decided_whatever_else_is(
    publications: list[str], sides: tuple[Side, ...]
) -> None:
    result = merge(keys(" ".join(publications)), sides)

    for one in sides:
        assert set(one.gave if one.decides else one.got) <= set(result.decided)


def bindings(sides: tuple[Side, ...], result: Merge) -> set[tuple[Key, Key]]:
    """The definition, pair by pair."""
    everything = keys(" ".join(NAMES))

    def wishes(one: Side) -> dict[NodeId, set[Key]]:
        subscribers = {c for clients in one.subscribers.values() for c in clients}
        return {c: {k for k in everything if c in one.subscribers.get(k, ())} for c in subscribers}

    lacked = [set(s.lacks) - out for s, out in zip(sides, result.passed_by, strict=True)]
    bound: set[tuple[Key, Key]] = set()
    for one, lacks in zip(sides, lacked, strict=True):
        others = [
            (wanted, bool(wanted & misses))
            for other, misses in zip(sides, lacked, strict=True)
            for wanted in wishes(other).values()
            if other is not one
        ]
        for wanted in [*wishes(one).values(), set[Key]()]:
            concerned = wanted.union(one.concern_all)
            had = [a for a in one.got if a in concerned]
            pairs = [*combinations(had, 2)]
            pairs += [(a, b) for a in had for b in wanted & set(one.awaits)]
            bound.update(
                (a, b)
                for a, b in pairs
                if a != b and any(misses and {a, b} <= w for w, misses in others)
            )
            # Of what another wants as well, the last is enough: what it had before was before that.
            bound.update(
                (shared[-1], b)
                for w, _ in others
                if (shared := [a for a in had if a in w])
                for b in lacks & wanted & w
                if b != shared[-1]
            )
        for a, b in combinations(one.gave, 2):
            if one.decides or any({a, b} <= w for s in sides for w in wishes(s).values()):
                bound.add((a, b))
    bound.update((a, b) for a, b in combinations(everything, 2) if a[0] == b[0])
    return bound


# --- sides of one broker ---------------------------------------------------------------------


@attrs.frozen
class _Failed:
    """A broker that failed, as it was: its order, and what everybody around it has seen of it."""

    publications: list[Key]
    sides: list[Side]
    origin: dict[Key, int]
    released: dict[Key, None]
    """What the broker had put in order, in that order."""

    def seen_on(self, number: int, result: Merge) -> list[Key]:
        """The order in which this side releases everything, in the end."""
        one = self.sides[number]
        if one.decides:
            return [*self.released, *(k for k in result.undecided if k not in self.released)]
        out = result.passed_by[number].union(one.got)
        rest = (k for k in (*result.decided, *result.undecided) if k not in out)
        return [*one.got, *rest]

    def agree(self, result: Merge) -> bool:
        """Whether all see what they share in one order, and each publisher's in turn."""
        seen = {}
        for number, one in enumerate(self.sides):
            order = self.seen_on(number, result)
            for client in {c for clients in one.subscribers.values() for c in clients}:
                seen[client] = [k for k in order if client in one.subscribers.get(k, ())]
        for order in seen.values():
            if any(a[0] == b[0] and a > b for a, b in combinations(order, 2)):
                return False
        for one_order, other_order in combinations(seen.values(), 2):
            common = set(one_order) & set(other_order)
            if [k for k in one_order if k in common] != [k for k in other_order if k in common]:
                return False
        return True


@st.composite
def failed_broker(draw: st.DrawFn, *, has_parent: bool, are_late: bool = False) -> _Failed:
    """Everything that is published waits until the broker, or its parent, has put it in order.

    The order is any in which what one side gave stays in turn; of what the broker said to each
    side about it, each has received no more than a beginning. Who is late subscribed when the
    broker had gone on for a while.
    """
    count = draw(st.integers(2, 4))
    gave: list[list[Key]] = []
    for number in range(count):
        publishers = [f"{letter}" for letter in ("pq", "rs", "tu", "vw")[number]]
        words = draw(st.lists(st.sampled_from(publishers), max_size=4))
        gave.append([key(f"{w}{words[: i + 1].count(w)}") for i, w in enumerate(words)])
    origin = {k: number for number, given in enumerate(gave) for k in given}
    turns = draw(st.permutations([origin[k] for k in origin]))
    queues = [iter(given) for given in gave]
    order = [next(queues[number]) for number in turns]
    # Of what a side gave, the rest may not have arrived.
    arrived = [draw(st.integers(0, len(given))) for given in gave]
    if has_parent:
        arrived[0] = len(gave[0])
    known = {k for given, n in zip(gave, arrived, strict=True) for k in given[:n]}
    released = [k for k in order if k in known]
    if not has_parent:
        released = released[: draw(st.integers(0, len(released)))]
    clients = [[NodeId(f"{letter}{n}") for n in range(2)] for letter in "abcd"[:count]]
    wanted: dict[Key, set[NodeId]] = {
        k: draw(st.sets(st.sampled_from([c for side in clients for c in side]))) for k in order
    }
    sides = []
    for number in range(count):
        subscribers = {k: frozenset(w & set(clients[number])) for k, w in wanted.items()}
        subscribers = {k: w for k, w in subscribers.items() if w}
        if has_parent and number == 0:
            got = [k for k in released if origin[k] != 0]
            lacks = [k for k in order if k in subscribers and k not in known]
            sides.append(
                Side(got=got, gave=released, decides=True, lacks=lacks, subscribers=subscribers)
            )
            continue
        since = draw(st.integers(0, len(released))) if are_late else 0
        told = [k for k in released if origin[k] == number or k in subscribers]
        told = [k for k in told if origin[k] == number or released.index(k) >= since]
        told = told[: draw(st.integers(0, len(told)))]
        lacks = [k for k in order if k in subscribers and k not in told and origin[k] != number]
        sides.append(
            Side(
                got=told,
                concern_all=frozenset(k for k in told if origin[k] == number),
                gave=gave[number],
                awaits=frozenset(gave[number]) - frozenset(told),
                lacks=lacks,
                subscribers=subscribers,
            )
        )
    return _Failed(draw(st.permutations(order)), sides, origin, dict.fromkeys(released))


@pytest.mark.parametrize("has_parent", [False, True])
@given(data=st.data())
def test_after_one_order_there_is_no_circle_and_all_subscribers_agree(
    has_parent: bool, data: st.DataObject
) -> None:
    failed = data.draw(failed_broker(has_parent=has_parent))
    result = merge(failed.publications, failed.sides)

    assert result.circles == 0
    assert not any(result.passed_by)
    assert failed.agree(result)
    told = {k for one in failed.sides if not one.decides for k in one.got}
    assert told <= set(result.decided)


@pytest.mark.parametrize("has_parent", [False, True])
@given(data=st.data())
def test_whoever_is_late_is_passed_by_rather_than_given_anything_out_of_order(
    has_parent: bool, data: st.DataObject
) -> None:
    failed = data.draw(failed_broker(has_parent=has_parent, are_late=True))
    result = merge(failed.publications, failed.sides)

    assert result.circles == 0
    assert failed.agree(result)


@pytest.mark.parametrize("has_parent", [False, True])
@given(data=st.data())
def test_nothing_is_decided_that_did_not_come_before_something_that_was_released(
    has_parent: bool, data: st.DataObject
) -> None:
    """Or a publication that is on its way for the first time could not be held any more."""
    failed = data.draw(failed_broker(has_parent=has_parent))
    result = merge(failed.publications, failed.sides)

    assert set(result.decided) <= set(failed.released)
