"""What somebody can still do who says that it is a host: nothing here can tell that it is none.

Each test documents harm that is known. Whoever makes hosts prove who they are turns its assertion
round. None of it ends a process or bars a name: a host that is fenced comes back, and is given its
broker back.
"""

import pytest

from plait.broker.messages import HostPlace, Life, Message, NodeKind, Relocate, Seating
from tests.host.test_hearsay import B1, B2, Line
from tests.host.worlds import TIMEOUT_S


@pytest.mark.parametrize("told", ["b1", "b2", "b3"])
@pytest.mark.parametrize(
    "lie",
    [
        Seating(failed=(Life(B2, 1),)),
        Seating(hosts=(HostPlace(host=B2, incarnation=2, address="evil"),)),
    ],
    ids=["failed", "place"],
)
def test_who_greets_as_a_host_is_believed_about_others(told: str, lie: Message) -> None:
    line = Line()
    line.says(told, lie)

    assert line.troubles_after(6 * TIMEOUT_S) == []
    assert line.incarnations()[1] > 1


def test_who_greets_by_the_name_of_a_host_takes_its_place() -> None:
    line = Line()
    line.ears.peer("b2", "b1", kind=NodeKind.HOST, incarnation=2)

    assert line.troubles_after(6 * TIMEOUT_S) == []
    assert line.incarnations()[1] > 1


def test_who_greets_as_a_host_has_brokers_moved() -> None:
    line = Line()
    line.says("b2", Relocate(broker=B2, host=B1))
    line.overlay.passes(1.0)

    assert line.overlay.players("b2") == ["b1"]
