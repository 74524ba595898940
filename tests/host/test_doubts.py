"""What a host thinks of others, and what it says of them when it is asked."""

from plait.broker.effects import SendMessage
from plait.broker.host import testimony
from plait.broker.host.connections import Connection, Connections
from plait.broker.host.doubts import Doubts, Sign, Standing
from plait.broker.host.identity import Identity
from plait.broker.host.link_states import LinkState
from plait.broker.host.seats import Seats
from plait.broker.inputs import LinkId
from plait.broker.limits import Limits
from plait.broker.messages import Life, Message, ProbeReply, Settings
from plait.broker.outbox import Outbox
from plait.routing.ids import NodeId

LIMITS = Limits(heartbeat_timeout_s=3.0, visit_timeout_s=1.0)
OTHER = Life(NodeId("other"), 1)


class Doubting:
    """One host, which looks at another one."""

    def __init__(self) -> None:
        self.visited: list[Life] = []
        self.me = Identity(NodeId("me"), 1, "", LIMITS, Settings())
        self.doubts = Doubts(self.me, self.visited.append)

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


class Witness(Doubting):
    """One that somebody asks of whom it has heard."""

    def __init__(self) -> None:
        super().__init__()
        self._outbox = Outbox()
        connections = Connections(self._outbox, lambda _: None)
        self._connection = Connection(LinkId(1), LinkState.TO_HOST, 0.0, 0.0)
        connections.add(self._connection)
        self.testimony = testimony.Testimony(self.me, connections, Seats(), self.doubts)

    def is_asked(self, *lives: Life) -> list[Message]:
        self.testimony.ask(self._connection, lives)
        return self.says()

    def says(self) -> list[Message]:
        self.testimony.advance()
        return [e.message for e in self._outbox.take() if isinstance(e, SendMessage)]


def test_a_witness_says_of_whom_it_has_heard() -> None:
    witness = Witness()
    witness.doubts.heard(OTHER, 0.0)

    me = witness.me.life
    assert witness.is_asked(OTHER, me) == [ProbeReply(life=me, heard=(OTHER, me))]


def test_a_witness_that_has_heard_nothing_visits_before_it_says_so() -> None:
    witness = Witness()
    assert witness.is_asked(OTHER) == []
    witness.doubts.forget_but(())  # it does not know yet who that is
    assert witness.says() == []
    assert witness.visited == [OTHER, OTHER]
    witness.waits(1.0)

    assert witness.says() == [ProbeReply(life=witness.me.life, heard=())]
