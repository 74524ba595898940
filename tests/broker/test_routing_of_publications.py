"""Who gets what: advertisements, subscriptions and publications across brokers."""

import pytest

from broker.errors import NotAdvertisedError
from broker.inputs import LinkOpened, MessagesReceived
from routing.ids import NodeId
from tests.conversation import Conversation

POLICIES = pytest.mark.parametrize("policy", ["filter", "flooding"])


@POLICIES
def test_a_publication_reaches_who_asked_for_it_and_nobody_else(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1", b3="b1", b4="b3")
    cheap = overlay.client("cheap", at="b2")
    dear = overlay.client("dear", at="b4")
    both = overlay.client("both", at="b1")
    cheap.subscribes("price < 10")
    dear.subscribes("price >= 10")
    both.subscribes("price < 10")
    both.subscribes("price > 5")
    ticker = overlay.client("ticker", at="b3")
    ticker.advertises("price >= 0")
    overlay.settle()
    for price in (5, 15, 7):
        ticker.publishes(price=price)
    overlay.settle()

    assert cheap.received == ["ticker:1", "ticker:3"]
    assert dear.received == ["ticker:2"]
    assert both.received == ["ticker:1", "ticker:2", "ticker:3"]
    assert overlay.judge().is_clean


@POLICIES
def test_a_client_gets_its_own_publications_if_it_asks_for_them(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    alice = overlay.client("alice", at="b2")
    alice.advertises("TRUE")
    alice.subscribes("TRUE")
    overlay.settle()
    alice.publishes(x=1)
    overlay.settle()

    assert alice.received == ["alice:1"]
    assert alice.core.unconfirmed == 0


def test_subscriptions_go_only_where_matching_publications_can_come_from() -> None:
    overlay = Conversation(policy="filter")
    overlay.brokers("b1", b2="b1", b3="b1")
    overlay.client("ticker", at="b2").advertises("topic = '/stocks'")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("topic = '/stocks'")
    reader.subscribes("topic = '/weather'")
    overlay.settle()

    assert len(overlay.broker("b2").interests.subscriptions) == 1
    assert len(overlay.broker("b3").interests.subscriptions) == 0


def test_a_new_advertisement_draws_the_subscriptions_that_overlap_it() -> None:
    overlay = Conversation(policy="filter")
    overlay.brokers("b1", b2="b1", b3="b2")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("topic = '/stocks'")
    overlay.settle()
    assert len(overlay.broker("b3").interests.subscriptions) == 0
    ticker = overlay.client("ticker", at="b3")
    ticker.advertises("TRUE")
    overlay.settle()

    assert len(overlay.broker("b3").interests.subscriptions) == 1
    ticker.publishes(topic="/stocks")
    overlay.settle()
    assert reader.received == ["ticker:1"]


def test_withdrawing_an_advertisement_takes_its_subscriptions_back() -> None:
    overlay = Conversation(policy="filter")
    overlay.brokers("b1", b2="b1")
    ticker = overlay.client("ticker", at="b2")
    stocks = ticker.advertises("topic = '/stocks'")
    everything = ticker.advertises("TRUE")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("topic = '/stocks'")
    overlay.settle()

    ticker.unadvertises(stocks)
    overlay.settle()
    assert len(overlay.broker("b2").interests.subscriptions) == 1, (
        "the other advertisement overlaps too"
    )
    ticker.unadvertises(everything)
    overlay.settle()
    assert len(overlay.broker("b2").interests.subscriptions) == 0
    assert len(overlay.broker("b1").interests.advertisements) == 0
    assert len(overlay.broker("b1").interests.subscriptions) == 1


@POLICIES
def test_nothing_is_delivered_after_unsubscribing(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    ticker = overlay.client("ticker", at="b2")
    ticker.advertises("TRUE")
    reader = overlay.client("reader", at="b1")
    subscription = reader.subscribes("TRUE")
    overlay.settle()
    ticker.publishes(x=1)
    reader.unsubscribes(subscription)
    overlay.settle()

    assert reader.received == []
    assert ticker.core.unconfirmed == 0
    assert all(len(overlay.broker(b).interests.subscriptions) == 0 for b in ("b1", "b2"))
    assert overlay.judge().is_clean


@POLICIES
def test_a_client_that_leaves_leaves_nothing_behind(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    client = overlay.client("client", at="b2")
    client.advertises("TRUE")
    client.subscribes("TRUE")
    overlay.settle()
    client.leaves()
    overlay.settle()

    for name in ("b1", "b2"):
        core = overlay.broker(name)
        assert len(core.interests.subscriptions) == len(core.interests.advertisements) == 0
        assert [link.child for link in core.neighbourhood] == ["b2"]
        assert core.unfinished() == []
    assert client.node.stopped == "left"


@POLICIES
def test_a_broker_that_joins_later_serves_like_the_others(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1")
    ticker = overlay.client("ticker", at="b1")
    ticker.advertises("TRUE")
    overlay.settle()
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"), policy=policy)
    overlay.settle()
    reader = overlay.client("reader", at="b2")
    reader.subscribes("x > 1")
    overlay.settle()
    ticker.publishes(x=2)
    overlay.settle()

    assert reader.received == ["ticker:1"]


def test_a_joining_broker_takes_the_settings_of_the_overlay() -> None:
    overlay = Conversation(policy="flooding", delta=3, ordering="none")
    overlay.brokers("b1")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"), policy="filter", delta=0)
    overlay.settle()

    assert overlay.broker("b2").status()["policy"] == "flooding"
    assert overlay.broker("b2").delta == 3
    assert overlay.broker("b2").publications.ordering.name == "none"


def test_publishing_before_advertising_says_what_to_do() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    alice = overlay.client("alice", at="b1")

    with pytest.raises(NotAdvertisedError, match="has advertised nothing yet: call advertise"):
        alice.publishes(x=1)


def test_publishing_outside_the_advertisement_names_both() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    alice = overlay.client("alice", at="b1")
    alice.advertises("x > 1")
    overlay.settle()

    with pytest.raises(NotAdvertisedError, match=r"'x': 1.*lies outside .* x > 1"):
        alice.publishes(x=1)


def test_a_client_that_publishes_outside_its_advertisement_all_the_same_is_cut_off() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("TRUE")
    liar = overlay.client("liar", at="b1")
    liar.advertises("x > 1")
    overlay.settle()
    for interest in liar.core._advertisements.values():
        interest.filter = reader.core._subscriptions[next(iter(reader.core._subscriptions))].filter
    liar.publishes(x=0)
    overlay.settle()

    assert reader.received == []
    assert liar.node.stopped is not None
    assert "publication 1 of liar lies outside what it has advertised" in liar.node.stopped


def test_a_publication_that_comes_twice_is_delivered_once() -> None:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1")
    reader = overlay.client("reader", at="b1")
    reader.subscribes("TRUE")
    ticker = overlay.client("ticker", at="b2")
    ticker.advertises("TRUE")
    overlay.settle()
    ticker.publishes(x=1)
    overlay.broker("b2").neighbours.below[NodeId("ticker")].published = 1  # as if it came anew
    first = ticker.core._sent.keep()[0]
    overlay.world._send(ticker.core._link, first)  # type: ignore[arg-type]
    overlay.settle()

    assert reader.received == ["ticker:1"]
    assert overlay.broker("b2").publications.counters.duplicate == 1
    assert overlay.broker("b2").publications.unstable == 0


@POLICIES
def test_a_publication_is_confirmed_only_when_its_subscribers_have_it(policy: str) -> None:
    """Every link takes a millisecond: three down to the subscriber, and the way back."""
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    reader = overlay.client("reader", at="b2")
    reader.subscribes("TRUE")
    ticker = overlay.client("ticker", at="b1")
    ticker.advertises("TRUE")
    overlay.settle()
    ticker.publishes(x=1, urgent=True)
    overlay.settle(0.0055)
    assert reader.received == ["ticker:1"]
    assert ticker.core.unconfirmed == 1
    overlay.settle(0.001)

    assert ticker.core.unconfirmed == 0


def test_an_input_for_a_link_that_is_closed_is_passed_over() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    core = overlay.broker("b1")
    effects = core.step(1.0, MessagesReceived(link=999, messages=[]))  # type: ignore[arg-type]

    assert effects == []
    assert core.kind_of(999) is None  # type: ignore[arg-type]
    core.step(1.0, LinkOpened(999))  # type: ignore[arg-type]
    assert core.kind_of(999) is None  # type: ignore[arg-type]
