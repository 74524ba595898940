"""The step that a broker is making: what it took, what it decides, and who gets something from it.

A step is one call that changes anything on which others can come to depend. They are numbered
1, 2, 3 ... through all lives of a broker.
"""

from collections import Counter
from typing import Final

import attrs

from plait.broker.machine.neighbours import Arrival, Control, Neighbour, Route
from plait.broker.messages import Advertise, Message, Subscribe
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import (
    NOBODY,
    UNCHANGED,
    Entry,
    Interest,
    Key,
    Membership,
    Place,
    Standing,
    StepLog,
    Taken,
    TopicStanding,
)
from plait.routing.ids import NodeId, OperationId
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics.protocol import Topic

REPLAYED: Final = "r"
"""Marks operations that had another name when their step was taken first, and"""
AGREED: Final = "t"
"""those by which tables come to agree before the first step after a rebuild."""


@attrs.define
class _Changes:
    """What the present step decides about neighbours and names."""

    joined: Standing | None = None
    interests: tuple[Interest, ...] = ()
    admitted: list[NodeId] = attrs.field(factory=list)
    removed: list[NodeId] = attrs.field(factory=list)
    refused: list[OperationId] = attrs.field(factory=list)
    forbidden: list[str] = attrs.field(factory=list)

    def membership(self) -> Membership:
        """As it is written down."""
        return Membership(
            joined=self.joined,
            interests=self.interests,
            admitted=tuple(self.admitted),
            removed=tuple(self.removed),
            refused=tuple(self.refused),
            forbidden=tuple(self.forbidden),
        )


class Steps:
    """What is under way in the present step, and the log of those before."""

    def __init__(self, node: NodeId, outbox: Outbox) -> None:
        """Begin before the first step."""
        self.log = StepLog()
        self.number = 0
        """Of the step that is being made, or was made last."""
        self._node = node
        self._outbox = outbox
        self._kind = Taken.BATCH
        self.source = NodeId("")
        self._upto = 0
        self._held: list[tuple[Key, bool]] = []
        self.order: list[Key] | None = None
        """All that has been settled in this step, once something was that had been held before."""
        self._installed: list[str] = []
        self.handed: tuple[tuple[NodeId, tuple[Key, ...]], ...] = ()
        """What clients were handed in this step before whom something is held, or was."""
        self.places: tuple[tuple[NodeId, Place], ...] = ()
        """Of what they were handed last in this step."""
        self.numbers: tuple[tuple[Topic, int], ...] = ()
        """How far the numbers of topics have come in this step."""
        self.topics: tuple[tuple[Topic, TopicStanding], ...] = ()
        """Those of which something else has changed."""
        self.stamps: tuple[tuple[Key, tuple[int, ...], tuple[Topic, ...]], ...] = ()
        """What was written on stamps."""
        self.memory: tuple[tuple[str, str], ...] = ()
        """What has changed of what is known of managers."""
        self._changes: _Changes | None = None
        self._touched: dict[NodeId, Neighbour] = {}
        self._ways: dict[Route, None] = {}
        """The routes of what was settled: one entry for many publications that go the same ways."""
        self._operations: Counter[str] = Counter()
        self.mark = ""
        """Of the operations that begin now: of those that a step begins when it is taken first, and
        others, no two have one name, though they may begin in steps of one number."""

    def begin(self, kind: Taken, source: NodeId = NOBODY, upto: int = 0) -> None:
        """Begin the next step."""
        self.number = self.log.last + 1
        self._kind, self.source, self._upto = kind, source, upto
        self._operations.clear()

    def end(self) -> list[Neighbour]:
        """Write the step down; returns those who get something from it."""
        self.log.append(
            Entry(
                self._kind,
                self.source,
                self._upto,
                tuple(self._held),
                tuple(self.order or ()),
                tuple(self._installed),
                UNCHANGED if self._changes is None else self._changes.membership(),
                self.handed,
                self.places,
                self.numbers,
                self.topics,
                self.stamps,
                self.memory,
            )
        )
        touched = self._touched
        for route in self._ways:
            for below in route.down:
                touched[below.hop] = below
        for neighbour in touched.values():
            neighbour.sent_marks.add(self.number, neighbour.sent.count)
        self._held, self.order, self._installed = [], None, []
        self.handed, self.places = (), ()
        self.numbers, self.topics, self.stamps, self.memory = (), (), (), ()
        self._changes = None
        self._touched = {}
        self._ways.clear()
        return list(touched.values())

    def new_operation(self) -> OperationId:
        """A name for an operation that begins in this step."""
        self._operations[self.mark] += 1
        number = f"{self.mark}{self._operations[self.mark]}"
        return OperationId(f"{self._node}#{self.number}.{number}")

    # --- what it decides --------------------------------------------------------------------

    def note_held(self, arrival: Arrival) -> None:
        """A publication was not settled on arrival."""
        self._held.append((arrival.key, arrival.waits))

    def note_installed(self, name: str) -> None:
        """An advertisement or a subscription is known here now."""
        self._installed.append(name)

    @property
    def changes(self) -> _Changes:
        """What is to be noted of neighbours that come and go, and of names that are refused."""
        if self._changes is None:
            self._changes = _Changes()
        return self._changes

    # --- what it sends ----------------------------------------------------------------------

    def touch(self, neighbour: Neighbour) -> None:
        """It gets something from this step."""
        self._touched[neighbour.hop] = neighbour

    def touch_all(self, route: Route) -> None:
        """All to whom this route leads get something from this step."""
        self._ways[route] = None

    def send(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
        key: Key | None = None,
    ) -> None:
        """Send a message that is no publication, in the stream of those."""
        told_in = 0
        if isinstance(message, Advertise | Subscribe):
            neighbour.told_of.setdefault(subject(message), self.number)
        elif about is not None:
            told_in = neighbour.told_of.pop(about.id, 0)
        control = Control(self.number, neighbour.sent.count, message, about, key, told_in)
        neighbour.controls.append(control)
        self._touched[neighbour.hop] = neighbour
        if neighbour.link is not None:
            self._outbox.send(neighbour.link, message)


def subject(request: Advertise | Subscribe) -> str:
    """The name of what is asked for."""
    return request.advertisement if isinstance(request, Advertise) else request.subscription
