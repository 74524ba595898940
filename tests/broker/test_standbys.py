r"""Sites with standbys: who takes over, what becomes of the others, and who lines up again.

a - m - b       a and m have standbys, a2, and m2 and m3
\- c - c1
"""

from collections.abc import Callable

import pytest

from routing.ids import NodeId
from tests.conversation import Client, Conversation

MS = 0.001
AT_ANY_TIME = [0.5, 2.5, 4.5, 6.5, 60.5]


class Sites:
    """Some sites with clients, all of whom want all there is."""

    def __init__(self, *, policy: str = "filter") -> None:
        self.overlay = overlay = Conversation(policy=policy)
        overlay.brokers("a", m="a", b="m", c="m", c1="c")
        for standby, broker, rank in (("m2", "m", 1), ("m3", "m", 2), ("a2", "a", 1)):
            overlay.world.add_broker(NodeId(standby), NodeId(broker), standby=rank, policy=policy)
            overlay.settle()
        self.clients = [overlay.client(f"at-{name}", at=name) for name in ("a", "m", "b", "c1")]
        for client in self.clients:
            client.advertises("TRUE")
            client.subscribes("TRUE")
        overlay.settle()

    def publish(self) -> None:
        for number, client in enumerate(self.clients):
            client.publishes(x=number)

    def place_of(self, name: str) -> tuple[str | None, int]:
        """Below whom a broker is, and its rank as a standby."""
        return self.overlay.parent_of(name), self.overlay.broker(name).standby

    def troubles(self) -> list[str]:
        """What is wrong when all has come to its end."""
        counts = [len(client.received) for client in self.clients]
        found = [] if len(set(counts)) == 1 else [f"received {counts}"]
        return found + self.overlay.troubles()


def sites_in_which(name: str, happens: Callable[[Conversation, str], None]) -> list[Sites]:
    """Sites after that has happened to a broker, each at another moment of the traffic."""
    found = []
    for ms in AT_ANY_TIME:
        sites = Sites()
        sites.publish()
        sites.overlay.settle(ms * MS)
        happens(sites.overlay, name)
        sites.publish()
        sites.overlay.settle(30)
        found.append(sites)
    return found


def test_the_first_standby_takes_the_place_of_the_broker_of_its_site() -> None:
    for sites in sites_in_which("m", Conversation.crashes):
        assert sites.place_of("m2") == ("a", 0)
        assert [sites.place_of(name) for name in ("b", "c")] == [("m2", 0)] * 2
        assert sites.place_of("m3") == ("m2", 2)
        assert sites.clients[1].core.broker == "m2"
        assert sites.troubles() == []


def test_if_the_root_fails_its_standby_is_the_root() -> None:
    for sites in sites_in_which("a", Conversation.crashes):
        assert sites.place_of("a2") == (None, 0)
        assert sites.place_of("m") == ("a2", 0)
        assert sites.clients[0].core.broker == "a2"
        assert sites.troubles() == []


def test_the_next_in_the_line_takes_over_if_the_first_has_failed_before() -> None:
    sites = Sites()
    sites.overlay.crashes("m2")
    sites.overlay.settle(5)
    sites.overlay.crashes("m")
    sites.overlay.settle(5)

    assert sites.place_of("m3") == ("a", 0)
    assert sites.place_of("b") == ("m3", 0)
    assert sites.troubles() == []


@pytest.mark.parametrize("name", ["m", "a"])
def test_a_broker_that_is_back_stands_by_for_the_one_that_took_over(name: str) -> None:
    sites = Sites()
    sites.overlay.crashes(name)
    sites.overlay.settle(5)
    sites.overlay.restarts(name)
    sites.overlay.settle(5)

    parent, rank = sites.place_of(name)
    assert parent == f"{name}2"
    assert rank > 0
    assert sites.troubles() == []


def test_a_broker_that_was_frozen_comes_back_as_a_standby() -> None:
    sites = Sites()
    sites.overlay.freezes("m")
    sites.overlay.settle(60)
    sites.overlay.goes_on("m")
    sites.overlay.settle(30)

    assert sites.place_of("m2") == ("a", 0)
    assert sites.place_of("m") == ("m2", 3)
    assert sites.overlay.troubles() == []


def test_it_takes_over_again_when_it_is_its_turn() -> None:
    sites = Sites()
    for name in ("m", "m3", "m2"):
        sites.overlay.crashes(name)
        sites.overlay.settle(5)
        if name == "m":
            sites.overlay.restarts(name)
            sites.overlay.settle(5)

    assert sites.place_of("m") == ("a", 0)
    assert [sites.place_of(name) for name in ("b", "c")] == [("m", 0)] * 2
    assert sites.troubles() == []


def test_a_standby_says_what_it_is() -> None:
    sites = Sites()

    states = [sites.overlay.broker(name).status()["state"] for name in ("m", "m2")]
    assert states == ["operational", "standby"]


@pytest.mark.parametrize("policy", ["filter", "flooding"])
def test_a_standby_carries_no_traffic_while_it_waits(policy: str) -> None:
    sites = Sites(policy=policy)
    sites.publish()
    sites.overlay.settle()

    assert sites.overlay.broker("m2").publications.counters.received == 0
    assert sites.troubles() == []


@pytest.mark.parametrize("policy", ["filter", "flooding"])
def test_and_all_of_it_when_it_has_taken_over(policy: str) -> None:
    sites = Sites(policy=policy)
    sites.overlay.crashes("m")
    sites.overlay.settle(5)
    before = sites.overlay.broker("m2").publications.counters.received
    sites.publish()
    sites.overlay.settle()

    assert sites.overlay.broker("m2").publications.counters.received == before + len(sites.clients)
    assert sites.troubles() == []


def client_that_only_publishes(overlay: Conversation) -> Client:
    client = overlay.client("late", at="m")
    client.advertises("TRUE")
    return client


def test_whoever_only_publishes_moves_as_well() -> None:
    sites = Sites()
    late = client_that_only_publishes(sites.overlay)
    sites.overlay.settle()
    sites.overlay.crashes("m")
    sites.overlay.settle(5)
    late.publishes(x=1)
    sites.overlay.settle()

    assert late.core.broker == "m2"
    assert sites.clients[0].received == ["late:1"]
    assert sites.troubles() == []
