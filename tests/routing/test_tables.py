"""The tables list what they were told, in the order in which they were told."""

import pytest

from plait.routing.errors import DuplicateEntryError, UnknownEntryError
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.tables import (
    Advertisement,
    AdvertisementTable,
    RoutingEntry,
    Subscription,
    SubscriptionTable,
)


def advertisement(id_: str, filter_text: str, *path: str) -> Advertisement:
    return RoutingEntry(
        id=AdvertisementId(id_),
        client=NodeId(id_.partition("/")[0]),
        filter=parse_filter(filter_text),
        path=tuple(map(NodeId, path)),
    )


def subscription(id_: str, filter_text: str, *path: str) -> Subscription:
    return RoutingEntry(
        id=SubscriptionId(id_),
        client=NodeId(id_.partition("/")[0]),
        filter=parse_filter(filter_text),
        path=tuple(map(NodeId, path)),
    )


def ids(entries: list[Subscription]) -> list[str]:
    return [entry.id for entry in entries]


def test_an_entry_lies_by_the_last_hop_of_its_path() -> None:
    assert subscription("s/1", "TRUE", "b1", "b2").hop == "b2"


def test_an_entry_has_come_from_somewhere() -> None:
    with pytest.raises(ValueError, match="path"):
        subscription("s/1", "TRUE")


def test_hops_with_an_overlapping_advertisement() -> None:
    table = AdvertisementTable()
    table.add(advertisement("p/1", "price > 100", "b2"))
    table.add(advertisement("q/1", "price < 50", "b1"))
    table.add(advertisement("q/2", "price > 100", "b1"))
    table.add(advertisement("r/1", "price > 100", "b2"))

    assert table.hops_overlapping(parse_filter("price > 200")) == ["b2", "b1"]
    assert table.hops_overlapping(parse_filter("price < 10")) == ["b1"]
    assert table.hops_overlapping(parse_filter("price = 75")) == []
    assert table.hops_overlapping(parse_filter("TRUE"), excluding=NodeId("b2")) == ["b1"]


def test_a_removed_advertisement_attracts_nothing() -> None:
    table = AdvertisementTable()
    entry = advertisement("p/1", "price > 100", "b2")
    table.add(entry)

    assert table.remove(entry.id) is entry
    assert table.hops_overlapping(parse_filter("TRUE")) == []
    assert entry.id not in table


def test_subscriptions_are_found_by_content_by_filter_and_by_client() -> None:
    table = SubscriptionTable()
    table.add(subscription("s/1", "price > 100", "b1"))
    table.add(subscription("t/1", "price > 200", "b2"))
    table.add(subscription("s/2", "symbol = 'IBM'", "b1"))

    assert table.hops({"price": 300}) == ["b1", "b2"]
    assert table.hops({"price": 150}) == ["b1"]
    assert ids(table.matching({"price": 300, "symbol": "IBM"})) == ["s/1", "t/1", "s/2"]
    assert ids(table.overlapping(parse_filter("price < 150"))) == ["s/1", "s/2"]
    assert ids(table.overlapping(parse_filter("TRUE"), excluding=NodeId("b1"))) == ["t/1"]
    assert ids(table.of_client(NodeId("s"))) == ["s/1", "s/2"]
    assert ids(list(table)) == ["s/1", "t/1", "s/2"]
    assert len(table) == 3


def test_a_removed_subscription_is_gone_from_everywhere() -> None:
    table = SubscriptionTable()
    entry = subscription("s/1", "price > 100", "b1")
    table.add(entry)

    assert table.get(entry.id) is entry
    assert table.remove(entry.id) is entry
    assert table.get(entry.id) is None
    assert table.hops({"price": 300}) == []
    assert table.overlapping(parse_filter("TRUE")) == []
    assert table.of_client(entry.client) == []
    assert len(table.index) == 0


def test_an_id_is_added_once_and_removed_once() -> None:
    table = SubscriptionTable()
    entry = subscription("s/1", "price > 100", "b1")
    table.add(entry)

    with pytest.raises(DuplicateEntryError, match="s/1 has been added already"):
        table.add(subscription("s/1", "TRUE", "b2"))
    assert table.hops({}) == []
    table.remove(entry.id)
    with pytest.raises(UnknownEntryError, match="there is no s/1"):
        table.remove(entry.id)
