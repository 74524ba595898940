"""What somebody can still do who says that it is a broker: nothing here can tell that it is none.

Each test documents harm that is known. Whoever makes brokers prove who they are turns its assertion
round. None of it ends a process: a broker that is fenced comes back, and waits longer each time.
"""

import attrs
import pytest

from broker.messages import (
    Goodbye,
    GoodbyeCode,
    Hello,
    Join,
    Message,
    Neighbourhood,
    NodeKind,
    Publish,
)
from faulttol.neighbourhood import Life
from routing.ids import NodeId
from tests.broker.test_link_states import hello, join
from tests.conversation import Client, Conversation

EVIL = NodeId("evil")
B2, B3 = NodeId("b2"), NodeId("b3")


def a_line() -> Conversation:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1", b3="b2")
    return overlay


def a_broker(name: NodeId = EVIL, incarnation: int = 1, **changes: object) -> Hello:
    greeting = attrs.evolve(hello(NodeKind.BROKER), node=name, incarnation=incarnation)
    return attrs.evolve(greeting, **changes)  # type: ignore[arg-type]


def joining(at: str) -> Join:
    return join(EVIL, at, "broker", 0)


@pytest.mark.parametrize(
    "said",
    [
        Goodbye(code=GoodbyeCode.FENCED, reason="because I say so"),
        Neighbourhood(links=(), closed=(Life(B2, 1),)),
    ],
    ids=["goodbye", "neighbourhood"],
)
def test_who_joins_as_a_broker_can_have_its_parent_begin_anew(said: Message) -> None:
    overlay = a_line()
    overlay.is_told_by_stranger("b2", a_broker(), joining("b2"), said)
    overlay.settle(30)

    assert overlay.broker("b2").incarnation == 2
    assert overlay.broker("b2").status()["state"] == "operational"


def test_who_greets_as_a_broker_that_is_known_here_is_believed_about_others() -> None:
    overlay = a_line()
    said = a_broker(B3, failed=(Life(B2, 1),), peer="b2", peer_incarnation=1)
    overlay.is_told_by_stranger("b1", said)
    overlay.settle(30)

    assert overlay.broker("b2").incarnation == 2


def test_who_greets_by_the_name_of_a_broker_takes_its_place() -> None:
    overlay = a_line()
    overlay.is_told_by_stranger("b2", a_broker(B3, incarnation=2))
    overlay.settle(0.1)

    assert Life(B3, 1) in overlay.broker("b2").neighbourhood.buried


def a_publisher_and_a_reader(overlay: Conversation) -> tuple[Client, Client]:
    nyse, alice = overlay.client("nyse", at="b1"), overlay.client("alice", at="b3")
    nyse.advertises("TRUE")
    alice.subscribes("TRUE")
    overlay.settle()
    return nyse, alice


def test_who_joins_as_a_broker_publishes_in_the_name_of_others() -> None:
    overlay = a_line()
    nyse, alice = a_publisher_and_a_reader(overlay)
    forged = Publish(NodeId("nyse"), 1, 1, 0, b"\x80", b"sell everything")
    overlay.is_told_by_stranger("b2", a_broker(), joining("b2"), forged)
    overlay.settle()
    nyse.publishes(b"the real one", x=1)
    overlay.settle()

    assert [delivery.body for delivery in alice.deliveries] == [b"sell everything"]
