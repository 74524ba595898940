"""Who stands next to a broker in the tree, and what it keeps about each.

All state about a neighbour is in one object, `Above` for the parent, `Below` for a child broker or
a client. A connection comes and goes without touching it.
"""

import attrs

from broker.inputs import LinkId
from broker.messages import NodeKind, Publish
from faulttol.stability import StreamAbove, StreamBelow, Unstable
from routing.ids import NodeId


@attrs.define(eq=False)
class _Neighbour:
    """What both kinds of neighbour have."""

    node: NodeId
    incarnation: int
    link: LinkId | None
    told: tuple[int, int] = (0, 0)
    """The progress it was told last."""
    is_urgent: bool = False
    """Somebody waits for the progress that is to be told."""
    routes: dict[bytes, "Route"] = attrs.field(factory=dict)
    """Where contents that come from here go, while the tables stand still."""
    routes_version: int = -1


@attrs.define(eq=False)
class Above(_Neighbour):
    """The parent: our side confirms to it, and it declares stable."""

    sent: StreamAbove["Arrival"] = attrs.field(factory=StreamAbove)
    received: StreamAbove["Arrival"] = attrs.field(factory=StreamAbove)

    @property
    def progress(self) -> tuple[int, int]:
        """How far our side has come, with what we received and with what we sent."""
        return self.received.confirmed_count, self.sent.confirmed_count


@attrs.define(eq=False)
class Below(_Neighbour):
    """A child broker or a client: it confirms to us, and hears what is stable."""

    kind: NodeKind = NodeKind.CLIENT
    address: str = ""
    has_joined: bool = False
    sent: StreamBelow["Arrival"] = attrs.field(factory=StreamBelow)
    received: StreamBelow["Arrival"] = attrs.field(factory=StreamBelow)
    absent_since: float | None = None
    confirmed_before: int = 0
    """What it had confirmed when it was last looked at, for the detection of stalls."""
    stalled_since: float | None = None

    @property
    def progress(self) -> tuple[int, int]:
        """How far everybody has come, with what we received and with what we sent."""
        return self.received.stable_count, self.sent.stable_count


Neighbour = Above | Below


def is_client(neighbour: Neighbour) -> bool:
    """Whether this is a leaf of the tree."""
    return isinstance(neighbour, Below) and neighbour.kind is NodeKind.CLIENT


@attrs.frozen(eq=False)
class Route:
    """Where a content goes from here, if it came from one given neighbour."""

    down: tuple[Below, ...]
    climbs: bool
    links: tuple[LinkId, ...]
    """The links of `down`, without those of absent neighbours."""
    is_allowed: bool
    """Whether the client it comes from has advertised it."""


NOWHERE = Route(down=(), climbs=False, links=(), is_allowed=True)


@attrs.define(eq=False)
class Arrival(Unstable[Publish]):
    """A publication at this broker, from its arrival until it is stable."""

    source: Neighbour = attrs.field(kw_only=True)
    route: Route = attrs.field(kw_only=True)


class Neighbours:
    """All neighbours of one broker."""

    def __init__(self) -> None:
        """Begin alone."""
        self.parent: Above | None = None
        self.below: dict[NodeId, Below] = {}
        self.version = 0
        """Goes up whenever routes may have changed: with tables, neighbours and connections."""

    def get(self, node: NodeId) -> Neighbour | None:
        """The neighbour of this name."""
        if self.parent is not None and self.parent.node == node:
            return self.parent
        return self.below.get(node)

    def others(self, source: Neighbour | None) -> list[Neighbour]:
        """Every neighbour that has joined, but for one."""
        others: list[Neighbour] = []
        if self.parent is not None and self.parent is not source:
            others.append(self.parent)
        others.extend(n for n in self.below.values() if n.has_joined and n is not source)
        return others

    def other_brokers(self, source: Neighbour | None) -> list[Neighbour]:
        """The same without clients."""
        return [neighbour for neighbour in self.others(source) if not is_client(neighbour)]

    def children(self) -> list[Below]:
        """The brokers below."""
        return [n for n in self.below.values() if n.kind is NodeKind.BROKER]

    def clients(self) -> list[Below]:
        """The clients."""
        return [n for n in self.below.values() if n.kind is NodeKind.CLIENT]
