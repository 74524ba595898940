"""What comes over a link is taken batch by batch, and a batch has its limits."""

import attrs
import pytest

from plait.broker.effects import CloseLink
from plait.broker.host.host import Host
from plait.broker.inputs import LinkId, LinkOpened, MessagesReceived
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.messages import (
    PROTOCOL_VERSION,
    EndOfStep,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Join,
    Message,
    NodeKind,
    Progress,
    Publish,
)
from plait.routing.ids import NodeId, OperationId

LINK = LinkId(1)
CLIENT = NodeId("c")
PUBLICATION = Publish(CLIENT, 1, 1, 0, b"", bytes(236))
"""Counts as 300 bytes."""
NO_PROGRESS = Progress(received=0, sent=0, forgotten=0)


class Talk:
    """A host, and a client that has joined."""

    def __init__(self) -> None:
        self.host = Host(NodeId("b"), 1, limits=attrs.evolve(DEFAULT_LIMITS, batch_bytes_max=1000))
        self.host.start(0.0)
        self.host.step(0.0, LinkOpened(LINK))
        hello = Hello(
            version=PROTOCOL_VERSION, node=CLIENT, kind=NodeKind.CLIENT, incarnation=1, host=CLIENT
        )
        self.closed: list[CloseLink] = []
        self.says(hello, Join(operation=OperationId("c#1.1")), EndOfStep(step=1))

    def says(self, *messages: Message) -> None:
        effects = self.host.step(0.0, MessagesReceived(LINK, list(messages)))
        self.closed += [effect for effect in effects if isinstance(effect, CloseLink)]


@pytest.mark.parametrize("portions", [(4,), (3, 1), (1, 1, 1, 1)])
def test_a_batch_without_an_end_has_a_limit(portions: tuple[int, ...]) -> None:
    talk = Talk()
    for count in portions[:-1]:
        talk.says(*[PUBLICATION] * count)
    assert not talk.closed

    talk.says(*[PUBLICATION] * portions[-1])

    [closed] = talk.closed
    assert closed.code is GoodbyeCode.PROTOCOL
    assert closed.reason == "a batch of 1200 bytes, at most 1000 allowed"


def test_what_came_before_the_end_of_a_batch_does_not_count_for_the_next_one() -> None:
    talk = Talk()
    join = Join(operation=OperationId("c#1.1"))
    for step in range(2, 50, 2):
        talk.says(*[join] * 10, EndOfStep(step=step), *[join] * 2)
        talk.says(join, Heartbeat(), join, EndOfStep(step=step + 1), NO_PROGRESS, join)

    assert not talk.closed
