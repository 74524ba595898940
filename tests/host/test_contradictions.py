"""What a broker says that cannot be so is not taken; what is said by others goes on."""

from plait.broker.messages import NodeKind, Publish
from plait.routing.ids import NodeId
from tests.host.peers import CONTENT
from tests.host.test_hearsay import Line


def test_who_joins_as_a_broker_publishes_nothing_in_the_name_of_others() -> None:
    line = Line()
    evil = line.ears.peer("evil", "b2", kind=NodeKind.BROKER).joins()
    line.overlay.passes(0.1)
    evil.steps(Publish(NodeId("nyse"), 1, 1, 0, CONTENT, b"sell everything"))
    line.overlay.passes(0.1)

    assert line.alice.deliveries == []
