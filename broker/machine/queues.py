"""Publications that brokers pass on at once, and hold before clients.

Each client has a queue. What a client is handed when may depend on publications that are stable by
the time at which the broker is rebuilt, and missing. So for every client before which something is
held, the log says what it was handed in a step, in order; and then nothing is decided again.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

import attrs

from plait.broker.machine.neighbours import Arrival, Below, Neighbour, is_client
from plait.broker.machine.publications import Delayed, Publications
from plait.broker.messages import Message
from plait.faulttol.steplog import Entry, Key
from plait.routing.ids import NodeId
from plait.routing.orderings import HoldBeforeClients
from plait.routing.tables import Advertisement, Subscription


@attrs.define
class _Queue:
    """What is held before one client, and what else must not overtake it."""

    arrivals: list[Arrival] = attrs.field(factory=list)
    behind: list[Delayed] = attrs.field(factory=list)


class QueuedPublications(Publications):
    """The publications under way at a broker that holds them before clients."""

    ordering: HoldBeforeClients[Arrival]
    can_begin_anew: ClassVar = False

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._queues: dict[NodeId, _Queue] = {}
        self._places = count(1)
        """In which order publications were queued up."""
        self._handed: dict[NodeId, list[Key]] = {}
        """What each client was handed in this step."""
        self._of_note: dict[NodeId, None] = {}
        """The clients before whom something is held in this step, or was until now."""
        self._again: Mapping[NodeId, Sequence[Key]] | None = None
        """While steps are taken again: what the log says of the present one."""

    # --- on their way -----------------------------------------------------------------------

    def _climb(self, arrival: Arrival) -> None:
        parent = self.neighbours.parent
        assert parent is not None
        self._pass_on(parent, arrival)

    def _settle(self, arrival: Arrival) -> None:
        """Send a publication to every broker, and to those clients whose turn it is."""
        for neighbour in arrival.route.down:
            if is_client(neighbour):
                self._offer(neighbour, arrival)
            else:
                self._pass_on(neighbour, arrival)
        if not self.ordering.places(arrival):
            self._end(arrival)

    def _end(self, arrival: Arrival) -> None:
        """Everybody here has it."""
        arrival.settled_in = self._steps.number
        arrival.missing -= 1
        if not arrival.missing:
            self._complete(arrival)

    def _pass_on(self, neighbour: Neighbour, arrival: Arrival) -> None:
        neighbour.sent.append(arrival)
        self._steps.touch(neighbour)
        if is_client(neighbour):
            self._handed.setdefault(neighbour.node, []).append(arrival.key)
        if neighbour.link is not None:
            self.counters.sent += 1
            self._outbox.send(neighbour.link, arrival.towards(neighbour))

    def _offer(self, client: Below, arrival: Arrival) -> None:
        """Hand it to a client, or hold it."""
        if self._again is None:
            is_held = not self._is_due(client, arrival)
        else:  # what was not held may have gone before what was, and it has a place in the log
            is_held = client.node in self._again
        if is_held:
            self._hold_before(client, arrival)
        else:
            self._pass_on(client, arrival)

    def _hold_before(self, client: Below, arrival: Arrival) -> None:
        self._of_note[client.node] = None
        self._queues.setdefault(client.node, _Queue()).arrivals.append(arrival)
        self.ordering.hold(arrival, {client.node: next(self._places)})

    def _is_due(self, client: Below, arrival: Arrival) -> bool:
        """Whether a client may have what has just arrived."""
        raise NotImplementedError

    def _hand_over(self, client: Below, released: Sequence[Arrival]) -> None:
        """Send a client what was held before it, and then what was behind that."""
        self._of_note[client.node] = None
        queue = self._queues[client.node]
        for arrival in released:
            queue.arrivals.remove(arrival)
            self._pass_on(client, arrival)
            self._let_go(client, arrival)
        gone = {id(arrival) for arrival in released}
        for delayed in queue.behind:
            delayed.unsettled -= gone
        while queue.behind and not queue.behind[0].unsettled:
            delayed = queue.behind.pop(0)
            self._steps.send(client, delayed.message, delayed.about)
        if not queue.arrivals:
            del self._queues[client.node]

    def _let_go(self, client: Below, arrival: Arrival) -> None:
        self.ordering.let_go(arrival, client.node)
        if not self.ordering.places(arrival):
            self._end(arrival)

    def queued_for(self, client: NodeId) -> Sequence[Arrival]:
        """What is held before a client."""
        queue = self._queues.get(client)
        return queue.arrivals if queue is not None else ()

    def send_in_turn(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        """Send a message behind what is held before this neighbour."""
        queue = self._queues.get(neighbour.node)
        if queue is None:
            self._steps.send(neighbour, message, about)
        else:
            behind = {id(arrival) for arrival in queue.arrivals}
            queue.behind.append(Delayed(behind, neighbour, message, about))

    def delayed_for(self, neighbour: Neighbour) -> list[Delayed]:
        """What waits behind held publications to be sent to a neighbour."""
        queue = self._queues.get(neighbour.node)
        return [] if queue is None else queue.behind

    def end_step(self) -> None:
        """Say in the log what clients were handed before whom something is held, or was."""
        self._steps.handed = tuple(
            (client, tuple(self._handed.get(client, ()))) for client in self._of_note
        )
        self._of_note.clear()
        self._handed.clear()

    def forget(self, gone: Below) -> None:
        """What is held before a neighbour that is gone, nobody waits for."""
        super().forget(gone)
        queue = self._queues.pop(gone.node, _Queue())
        for arrival in queue.arrivals:
            arrival.missing -= 1
            self._let_go(gone, arrival)

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""
        self._again = dict(entry.handed)

    def end_again(self) -> None:
        """Hand over what was handed over in this step, in the same order."""
        for node, keys in (self._again or {}).items():
            held = {arrival.key: arrival for arrival in self.queued_for(node)}
            released = [held[key] for key in keys if key in held]
            if released:
                self._hand_over(self.neighbours.below[node], released)

    def go_on(self) -> None:
        """All steps have been taken again: what comes next is decided here."""
        self._again = None
        self.complete_what_lacks_nothing()

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {
            "queues": {
                client: tuple(arrival.key for arrival in queue.arrivals)
                for client, queue in self._queues.items()
            }
        }
