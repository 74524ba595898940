"""What a host is made of: handed to those of its parts that need the others."""

import attrs

from plait.broker.host.announcing import Announcements
from plait.broker.host.clients import Clients
from plait.broker.host.connections import Connections
from plait.broker.host.dialling import Dialling
from plait.broker.host.doubts import Doubts
from plait.broker.host.identity import Identity
from plait.broker.host.library import Library
from plait.broker.host.playing import Playing
from plait.broker.host.seats import Seats
from plait.broker.host.takeover import Takeovers
from plait.broker.host.testimony import Testimony
from plait.broker.losses import Losses
from plait.broker.messages import Seat
from plait.broker.outbox import Outbox
from plait.routing.ids import NodeId


@attrs.define(eq=False)
class Parts:
    """The parts of a host."""

    me: Identity
    outbox: Outbox
    connections: Connections
    dialling: Dialling
    seats: Seats
    doubts: Doubts
    library: Library
    playing: Playing
    takeovers: Takeovers
    clients: Clients
    losses: Losses
    announcements: Announcements
    testimony: Testimony
    sealed: dict[tuple[NodeId, NodeId], int] = attrs.field(factory=dict)
    """By a broker here and its neighbour: the last term in which it does not listen to that."""
    terms: dict[tuple[NodeId, NodeId], int] = attrs.field(factory=dict)
    """Likewise: in which term it heard it last."""

    def own_seat(self, broker: NodeId) -> Seat | None:
        """The seat of a broker that is played here; None as long as others do not know of it."""
        played, seat = self.playing.brokers.get(broker), self.seats.seat_of(broker)
        if played is None or seat is None or seat.left:
            return None
        is_of_now = (seat.life, seat.term) == (self.me.life, played.term)
        return seat if is_of_now else None
