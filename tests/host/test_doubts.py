"""What a host thinks of others, and what it says of them when it is asked."""

from broker.host.doubts import Doubts, Sign, Standing
from broker.host.identity import Identity
from broker.limits import Limits
from broker.machine.machine import Settings
from broker.vocabulary import Life
from routing.ids import NodeId

LIMITS = Limits(heartbeat_timeout_s=3.0, visit_timeout_s=1.0)
OTHER = Life(NodeId("other"), 1)


class Doubting:
    """One host, which looks at another one."""

    def __init__(self) -> None:
        self.visited: list[Life] = []
        me = Identity(NodeId("me"), 1, "", LIMITS, Settings())
        self.doubts = Doubts(me, self.visited.append)

    def waits(self, until: float) -> Standing:
        for life in self.doubts.overdue_visits(until):
            self.doubts.note(life, Sign.UNANSWERED, until)
        return self.doubts.standing_of(OTHER)


def test_somebody_who_was_heard_is_not_doubted_within_the_timeout() -> None:
    host = Doubting()
    host.doubts.heard(OTHER, 0.0)
    host.doubts.note(OTHER, Sign.LOST, 0.5)

    assert host.visited == [OTHER]
    assert host.waits(2.9) is Standing.VISITED
    assert host.doubts.lives(OTHER, 2.9) is True
    assert host.doubts.wake_at() == 3.0
    assert host.waits(3.0) is Standing.SILENT
    assert host.doubts.lives(OTHER, 3.0) is False


def test_somebody_who_was_never_heard_is_visited_first() -> None:
    host = Doubting()
    assert host.doubts.lives(OTHER, 5.0) is None
    host.doubts.note(OTHER, Sign.LOST, 5.0)

    assert host.visited == [OTHER]
    assert host.doubts.lives(OTHER, 5.9) is None
    assert host.waits(6.0) is Standing.SILENT
    assert host.doubts.lives(OTHER, 6.0) is False


def test_an_answer_ends_every_doubt_but_a_proof() -> None:
    host = Doubting()
    host.doubts.note(OTHER, Sign.LOST, 0.0)
    assert host.waits(1.0) is Standing.SILENT
    assert host.doubts.note(OTHER, Sign.HEARD, 1.5) is Standing.TRUSTED
    host.doubts.note(OTHER, Sign.REFUSED, 2.0)

    assert host.doubts.note(OTHER, Sign.HEARD, 2.5) is Standing.PROVEN
    assert host.doubts.lives(OTHER, 2.5) is False
