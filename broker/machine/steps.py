"""The step that a broker is making: what it took, what it decides, and who gets something from it.

A step is one call that changes anything on which others can come to depend. They are numbered
1, 2, 3 ... through all lives of a broker.
"""

from broker.machine.neighbours import Arrival, Control, Neighbour, Route
from broker.messages import Advertise, Message, Subscribe
from broker.outbox import Outbox
from faulttol.steplog import NOBODY, Entry, Key, Place, StepLog, Taken
from routing.ids import NodeId, OperationId
from routing.tables import Advertisement, Subscription


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
        self._touched: dict[NodeId, Neighbour] = {}
        self._ways: dict[Route, None] = {}
        """The routes of what was settled: one entry for many publications that go the same ways."""
        self._operations = 0
        self.is_replayed = False
        """Whether operations begin that had another name when this step was taken first."""

    def begin(self, kind: Taken, source: NodeId = NOBODY, upto: int = 0) -> None:
        """Begin the next step."""
        self.number = self.log.last + 1
        self._kind, self.source, self._upto = kind, source, upto
        self._operations = 0

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
                handed=self.handed,
                places=self.places,
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
        self._touched = {}
        self._ways.clear()
        return list(touched.values())

    def new_operation(self) -> OperationId:
        """A name for an operation that begins in this step."""
        self._operations += 1
        mark = "r" if self.is_replayed else ""
        return OperationId(f"{self._node}#{self.number}.{mark}{self._operations}")

    # --- what it decides --------------------------------------------------------------------

    def note_held(self, arrival: Arrival) -> None:
        """A publication was not settled on arrival."""
        self._held.append((arrival.key, arrival.waits))

    def note_installed(self, name: str) -> None:
        """An advertisement or a subscription is known here now."""
        self._installed.append(name)

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
