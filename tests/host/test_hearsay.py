"""What others say of hosts: who says it, what becomes of those of whom it is said."""

from typing import Any

import attrs
import pytest

from plait.broker.effects import OpenLink
from plait.broker.inputs import LinkOpened, MessagesReceived
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.messages import (
    Goodbye,
    GoodbyeCode,
    HostPlace,
    Life,
    Message,
    NodeKind,
    Probe,
    ProbeReply,
    Relocate,
    Seat,
    Seating,
    Welcome,
)
from plait.routing.ids import NodeId
from tests.host.peers import Visited
from tests.host.worlds import LINK_DELAY_S, TIMEOUT_S, Client, Lively

B1, B2 = NodeId("b1"), NodeId("b2")
BIGGEST = 2**63 - 1
A_DAY_MS = round(1000 * DEFAULT_LIMITS.clocks_apart_max_s)


class Line:
    """Three hosts in a line, a publisher at one end, a subscriber at the other, and a stranger."""

    def __init__(self) -> None:
        self.overlay = Lively()
        self.overlay.brokers("b1", b2="b1", b3="b2")
        self.nyse, self.alice = self._client("nyse", "b1"), self._client("alice", "b3")
        self.nyse.advertises("TRUE")
        self.alice.subscribes("TRUE")
        self.overlay.passes(0.5)
        self.ears = Visited(self.overlay)

    def _client(self, name: str, broker: str) -> Client:
        return self.overlay.client(name, broker)

    def says(
        self, told: str, *messages: Message, kind: NodeKind = NodeKind.HOST, **fields: Any
    ) -> None:
        """A stranger comes, greets, and says this."""
        self.ears.peer("stranger", told, kind=kind, **fields).says(*messages)

    def incarnations(self) -> list[int]:
        return [self.overlay.host(name).me.incarnation for name in ("b1", "b2", "b3")]

    def troubles_after(self, seconds: float) -> list[str]:
        """What is wrong after that, and after one more publication."""
        self.overlay.passes(seconds)
        self.nyse.publishes(x=1)
        self.overlay.passes(1.0)
        found = self.overlay.troubles()
        if not self.alice.received:
            found.append("nothing was delivered")
        for broker in ("b1", "b2", "b3"):
            if self.overlay.players(broker) != [broker]:
                found.append(f"{broker} is played by {self.overlay.players(broker)}")
        return found


def seat(broker: str, parent: str, **changes: Any) -> Seat:
    usual = Seat(broker=NodeId(broker), parent=parent, term=1, host=NodeId(broker), incarnation=1)
    return attrs.evolve(usual, **changes)


LIES: dict[str, Message] = {
    "failed": Seating(failed=(Life(B2, 1),), proven=(Life(B2, 1),)),
    "played": Seating(seats=(seat("b2", "b1", term=2, host=NodeId("evil")),)),
    "moved": Seating(hosts=(HostPlace(host=B2, incarnation=2, address="evil"),)),
    "asked": Probe(lives=(Life(B2, 1),)),
    "heard": ProbeReply(life=Life(B2, 1), heard=()),
    "relocate": Relocate(broker=B2, host=B1),
}


@pytest.mark.parametrize("kind", [NodeKind.CLIENT, NodeKind.MONITOR])
@pytest.mark.parametrize("lie", LIES)
def test_nobody_but_hosts_says_anything_of_others(kind: NodeKind, lie: str) -> None:
    """But for a person, who has brokers moved."""
    if (kind, lie) == (NodeKind.MONITOR, "relocate"):
        return
    line = Line()
    for told in ("b1", "b2", "b3"):
        line.says(told, LIES[lie], kind=kind)

    assert line.troubles_after(2 * TIMEOUT_S) == []
    assert line.incarnations() == [1, 1, 1]


@pytest.mark.parametrize("code", GoodbyeCode)
@pytest.mark.parametrize("kind", NodeKind)
def test_nobody_ends_a_host_by_taking_its_leave(kind: NodeKind, code: GoodbyeCode) -> None:
    line = Line()
    line.says("b2", Goodbye(code=code, reason="because I say so"), kind=kind)

    assert line.troubles_after(4 * TIMEOUT_S) == []
    assert line.incarnations() == [1, 1, 1]


@pytest.mark.parametrize("incarnation", [2, 1000, A_DAY_MS])
@pytest.mark.parametrize("told", ["b1", "b2", "b3"])
def test_who_is_said_to_have_failed_in_a_life_that_never_was_comes_back(
    told: str, incarnation: int
) -> None:
    line = Line()
    line.says(told, Seating(failed=(Life(B2, incarnation),)))

    assert line.troubles_after(6 * TIMEOUT_S) == []


@pytest.mark.parametrize(
    "lie",
    [
        Seating(failed=(Life(B2, BIGGEST),)),
        Seating(proven=(Life(B2, BIGGEST),)),
        Seating(hosts=(HostPlace(host=B2, incarnation=BIGGEST, address="evil"),)),
        Seating(seats=(seat("b2", "b1", incarnation=BIGGEST),)),
        Seating(seats=(seat("b2", "b1", term=BIGGEST),)),
    ],
)
def test_what_cannot_be_is_not_believed(lie: Seating) -> None:
    line = Line()
    for told in ("b1", "b2", "b3"):
        line.says(told, lie)

    assert line.troubles_after(TIMEOUT_S) == []
    assert line.incarnations() == [1, 1, 1]


def test_a_stranger_has_nobody_dialled_who_has_not_greeted() -> None:
    line = Line()
    host = line.overlay.host("b2")
    link = line.ears.new_link()
    host.step(0.0, LinkOpened(link))
    effects = host.step(0.0, MessagesReceived(link, [LIES["moved"]]))

    assert not [effect for effect in effects if isinstance(effect, OpenLink)]


@pytest.mark.parametrize("changes", [{"node": NodeId("evil")}, {"term": 0}])
def test_only_who_was_asked_goes_on_with_what_there_was(changes: dict[str, Any]) -> None:
    line = Line()
    line.overlay.loses_connection("b3", "b2")
    host = line.overlay.host("b3")
    line.overlay.passes(1.5 * LINK_DELAY_S)
    [[address, _]] = host.parts.dialling._under_way.items()
    link = line.ears.new_link()
    now = host.me.now
    host.step(now, LinkOpened(link, address))
    me = line.overlay.host("b2").me
    welcome = Welcome(
        node=B2,
        term=1,
        host=B2,
        incarnation=1,
        settings=me.settings,
        heartbeat_interval_ms=1000,
        heartbeat_timeout_ms=4000,
        resumed=True,
    )
    host.step(now, MessagesReceived(link, [attrs.evolve(welcome, **changes)]))

    assert host.parts.connections.line(NodeId("b3"), B2) is None


def test_nobody_greets_in_a_term_on_which_none_could_follow() -> None:
    line = Line()
    evil = line.ears.peer("evil", "b2", kind=NodeKind.BROKER, term=BIGGEST)

    [goodbye] = evil.heard
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason == f"term {BIGGEST} of evil, after term 0"
    assert line.troubles_after(2 * TIMEOUT_S) == []
    assert line.incarnations() == [1, 1, 1]
