"""Who gets what: advertisements, subscriptions and publications across brokers."""

import pytest

from plait.broker.errors import NotAdvertisedError
from plait.broker.inputs import LinkId, MessagesReceived
from plait.broker.messages import Heartbeat
from plait.routing.ids import NodeId
from tests.host.worlds import Conversation

POLICIES = pytest.mark.parametrize("policy", ["filter", "flooding"])


@POLICIES
def test_a_publication_reaches_who_asked_for_it_and_nobody_else(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1", b3="b1", b4="b3")
    cheap = overlay.client("cheap", "b2")
    dear = overlay.client("dear", "b4")
    both = overlay.client("both", "b1")
    cheap.subscribes("price < 10")
    dear.subscribes("price >= 10")
    both.subscribes("price < 10")
    both.subscribes("price > 5")
    ticker = overlay.client("ticker", "b3")
    ticker.advertises("price >= 0")
    overlay.settle()
    for price in (5, 15, 7):
        ticker.publishes(price=price)
    overlay.settle()

    assert cheap.received == ["ticker:1", "ticker:3"]
    assert dear.received == ["ticker:2"]
    assert both.received == ["ticker:1", "ticker:2", "ticker:3"]
    assert overlay.violations("fifo") == []


@POLICIES
def test_a_client_gets_its_own_publications_if_it_asks_for_them(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    alice = overlay.client("alice", "b2")
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
    overlay.client("ticker", "b2").advertises("topic = '/stocks'")
    reader = overlay.client("reader", "b1")
    reader.subscribes("topic = '/stocks'")
    reader.subscribes("topic = '/weather'")
    overlay.settle()

    assert len(overlay.machine("b2").interests.subscriptions) == 1
    assert len(overlay.machine("b3").interests.subscriptions) == 0


def test_a_new_advertisement_draws_the_subscriptions_that_overlap_it() -> None:
    overlay = Conversation(policy="filter")
    overlay.brokers("b1", b2="b1", b3="b2")
    reader = overlay.client("reader", "b1")
    reader.subscribes("topic = '/stocks'")
    overlay.settle()
    assert len(overlay.machine("b3").interests.subscriptions) == 0
    ticker = overlay.client("ticker", "b3")
    ticker.advertises("TRUE")
    overlay.settle()

    assert len(overlay.machine("b3").interests.subscriptions) == 1
    ticker.publishes(topic="/stocks")
    overlay.settle()
    assert reader.received == ["ticker:1"]


def test_withdrawing_an_advertisement_takes_its_subscriptions_back() -> None:
    overlay = Conversation(policy="filter")
    overlay.brokers("b1", b2="b1")
    ticker = overlay.client("ticker", "b2")
    stocks = ticker.advertises("topic = '/stocks'")
    everything = ticker.advertises("TRUE")
    reader = overlay.client("reader", "b1")
    reader.subscribes("topic = '/stocks'")
    overlay.settle()

    ticker.unadvertises(stocks)
    overlay.settle()
    assert len(overlay.machine("b2").interests.subscriptions) == 1, (
        "the other advertisement overlaps too"
    )
    ticker.unadvertises(everything)
    overlay.settle()
    assert len(overlay.machine("b2").interests.subscriptions) == 0
    assert len(overlay.machine("b1").interests.advertisements) == 0
    assert len(overlay.machine("b1").interests.subscriptions) == 1


@POLICIES
def test_nothing_is_delivered_after_unsubscribing(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    ticker = overlay.client("ticker", "b2")
    ticker.advertises("TRUE")
    reader = overlay.client("reader", "b1")
    subscription = reader.subscribes("TRUE")
    overlay.settle()
    ticker.publishes(x=1)
    reader.unsubscribes(subscription)
    overlay.settle()

    assert reader.received == []
    assert ticker.core.unconfirmed == 0
    assert all(len(overlay.machine(b).interests.subscriptions) == 0 for b in ("b1", "b2"))
    assert overlay.violations("fifo") == []


@POLICIES
def test_a_client_that_leaves_leaves_nothing_behind(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    client = overlay.client("client", "b2")
    client.advertises("TRUE")
    client.subscribes("TRUE")
    overlay.settle()
    client.leaves()
    overlay.settle()

    for name, other in (("b1", "b2"), ("b2", "b1")):
        machine = overlay.machine(name)
        assert len(machine.interests.subscriptions) == len(machine.interests.advertisements) == 0
        assert [neighbour.node for neighbour in machine.neighbours.all()] == [other]
    assert overlay.unfinished() == []
    assert client.node.stopped == "left"


@POLICIES
def test_a_broker_that_joins_later_serves_like_the_others(policy: str) -> None:
    overlay = Conversation(policy=policy)
    overlay.brokers("b1")
    ticker = overlay.client("ticker", "b1")
    ticker.advertises("TRUE")
    overlay.settle()
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"), policy=policy)
    overlay.settle()
    reader = overlay.client("reader", "b2")
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

    assert overlay.host("b2").me.settings == overlay.host("b1").me.settings
    assert overlay.machine("b2").settings == overlay.machine("b1").settings


def test_publishing_before_advertising_says_what_to_do() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    alice = overlay.client("alice", "b1")

    with pytest.raises(NotAdvertisedError, match="has advertised nothing yet: call advertise"):
        alice.publishes(x=1)


def test_publishing_outside_the_advertisement_names_both() -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    alice = overlay.client("alice", "b1")
    alice.advertises("x > 1")
    overlay.settle()

    with pytest.raises(NotAdvertisedError, match=r"'x': 1.*lies outside .* x > 1"):
        alice.publishes(x=1)


@POLICIES
def test_a_publication_is_confirmed_only_when_its_subscribers_have_it(policy: str) -> None:
    """Every link takes a millisecond: three down to the subscriber, and the way back."""
    overlay = Conversation(policy=policy)
    overlay.brokers("b1", b2="b1")
    reader = overlay.client("reader", "b2")
    reader.subscribes("TRUE")
    ticker = overlay.client("ticker", "b1")
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
    host, link = overlay.host("b1"), LinkId(999)
    effects = host.step(1.0, MessagesReceived(link, [Heartbeat()]))

    assert effects == []
    assert host.kind_of(link) is None
