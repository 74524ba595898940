"""More than δ hosts fail at once: nothing is guessed, and every loss has a name."""

import pytest

from plait.broker.sim.runs import simulate
from plait.broker.sim.workloads import Workload
from plait.routing.ids import NodeId
from tests.host.worlds import LINK_DELAY_S, Client, Lively


class Line:
    """Five hosts in a line, with somebody at both ends who publishes and listens."""

    def __init__(self) -> None:
        self.overlay = Lively()
        self.overlay.brokers("b0", b1="b0", b2="b1", b3="b2", b4="b3")
        self.first, self.last = self._client("first", "b0"), self._client("last", "b4")

    def _client(self, name: str, broker: str) -> Client:
        client = self.overlay.client(name, broker)
        client.advertises("TRUE")
        client.subscribes("TRUE")
        self.overlay.passes(0.5)
        return client

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.first.publishes(x=1)
            self.last.publishes(x=1)
            self.overlay.passes(LINK_DELAY_S / 3)

    def lose_the_middle(self) -> None:
        for name in ("b1", "b2", "b3"):
            self.overlay.crashes(name)

    def skipped(self) -> set[tuple[str, int]]:
        """What brokers have given up for everybody beyond them."""
        return {
            (record["publisher"], record["seq"])
            for record in self.overlay.world.records()
            if record["kind"] == "skipped" and record["subscriber"] is None
        }


def test_traffic_goes_on_and_every_loss_is_named() -> None:
    line = Line()
    line.publish(10)
    line.lose_the_middle()
    line.publish(10)
    line.overlay.passes(3.0)
    line.publish(3)
    line.overlay.passes(1.0)

    assert line.overlay.troubles() == []
    for mine, other in ((line.first, "last"), (line.last, "first")):
        missing = {(other, n) for n in range(1, 24)} - {
            (delivery.publisher, delivery.seq) for delivery in mine.deliveries
        }
        assert missing
        assert missing <= line.skipped()
        assert [f"{other}:{n}" for n in (21, 22, 23)] == [
            each for each in mine.received if each.startswith(other)
        ][-3:]


def test_what_was_asked_through_them_is_confirmed_in_the_end() -> None:
    line = Line()
    newcomer = line.overlay.client("newcomer", "b4")
    newcomer.subscribes("TRUE")
    line.overlay.passes(2.5 * LINK_DELAY_S)  # it is on its way, and not confirmed
    line.lose_the_middle()
    line.overlay.passes(3.0)
    line.publish(3)
    line.overlay.passes(1.0)

    assert line.overlay.troubles() == []
    assert newcomer.received.count("first:3") == 1


@pytest.mark.parametrize(("next_one", "other"), [("b0", "b4"), ("b4", "b0")])
def test_those_who_have_begun_anew_are_rebuilt_like_others(next_one: str, other: str) -> None:
    line = Line()
    line.publish(5)
    line.lose_the_middle()
    line.overlay.passes(3.0)
    line.publish(5)
    line.overlay.crashes(next_one)
    line.publish(5)
    line.overlay.passes(5.0)
    line.publish(3)
    line.overlay.passes(1.0)

    assert line.overlay.cores.comparison.found == []
    assert line.overlay.world.unresolved() == []
    assert line.last.received[-6:].count("first:18") == 1
    assert line.overlay.players(next_one) == [other]


def test_status_says_what_was_given_up() -> None:
    line = Line()
    line.publish(10)
    line.lose_the_middle()
    line.overlay.passes(3.0)

    status = line.overlay.host("b0").status()
    assert status["skipped_count"] > 0
    assert any("has lost its past" in each["reason"] for each in status["skipped"])
    assert not status["vulnerable"]
    assert line.overlay.world.who_plays(NodeId("b2")) is not None


@pytest.mark.parametrize("seed", [8, 16])
def test_who_was_about_to_join_what_it_takes_up_empty_itself_joins_it_once_more(seed: int) -> None:
    workload = Workload(brokers=9, crashes=9, is_limited=False, duration_s=0.2)

    assert simulate(seed, delta=1, workload=workload).failures == []


def test_what_is_published_before_all_clients_of_forgotten_sessions_are_back_has_a_name() -> None:
    overlay = Lively()
    overlay.brokers("b0", b1="b0")
    reader, writer = overlay.client("reader", "b1"), overlay.client("writer", "b0")
    reader.subscribes("TRUE")
    writer.advertises("TRUE")
    overlay.passes(0.5)
    overlay.crashes("b0")
    overlay.crashes("b1")
    cut = overlay.cuts("reader")
    overlay.restarts("b0")
    overlay.restarts("b1")
    overlay.passes(2.0)
    writer.publishes(x=1)
    overlay.passes(0.5)
    overlay.heals(cut)
    overlay.passes(4.0)
    writer.publishes(x=2)
    overlay.passes(0.5)

    assert reader.received == ["writer:2"]
    assert overlay.violations() == []
    assert overlay.host("b0").parts.losses.count == 1
