"""Who stands next to a broker in the tree, and what it keeps about each.

All state about a neighbour is in one object, `Above` for the parent, `Below` for a child broker or
a client. A connection comes and goes without touching it.
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Final

import attrs

from broker.inputs import LinkId
from broker.messages import Flag, NodeKind, Notice, Publish
from broker.roles import FORBIDDEN_FROM_ABOVE, FORBIDDEN_FROM_BELOW, FORBIDDEN_TO_CLIENTS
from broker.ticks import Clock
from faulttol.merging import Key
from faulttol.stability import Lag, StreamAbove, StreamBelow, Unstable
from routing.conflicts import Conflicts
from routing.ids import NodeId

UP: Final = NodeId("")
"""The direction of the parent, whoever that is at the moment; no node is called so."""


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

    hop: ClassVar = UP
    lane: ClassVar = UP
    forbidden_flags: ClassVar = FORBIDDEN_FROM_ABOVE
    sent: StreamAbove["Arrival"] = attrs.field(factory=StreamAbove)
    received: StreamAbove["Arrival"] = attrs.field(factory=StreamAbove)
    is_way_up_open: bool = True
    """Whether publications go up; not yet, after a branch that was cut off has joined."""
    is_way_down_open: bool = True
    """Whether those that come down go on; likewise."""

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
    is_standby: bool = False
    """Whether it only waits to take over, and gets nothing that nobody behind it has asked for."""
    sent: StreamBelow["Arrival"] = attrs.field(factory=StreamBelow)
    received: StreamBelow["Arrival"] = attrs.field(factory=StreamBelow)
    absent_since: float | None = None
    homeless_since: float | None = None
    """When a client that begins anew here lost its broker, and its session with that."""
    adopted_from: NodeId | None = None
    """The failed child in whose place it was adopted: what came by that child, and what comes from
    its orphans now, is one stream to those who must not change its order."""
    adopted_at: int = 0
    """When that was, by this broker's clock."""
    came_from: NodeId | None = None
    """The failed broker that was its parent, and that is given it back."""
    published: int = 0
    """The last publication that a client had handed over, to whomever, when it greeted last: those
    up to there may come again."""
    key: str = ""
    """Of a client: the digest of the secret that it has to know to go on with its session."""
    is_branch: bool = False
    """Whether it comes with all that is below it, which has joined before."""
    lag: Lag = attrs.field(factory=Lag)
    """How far it is behind with what it was sent."""
    forbidden_flags: int = attrs.field(init=False)
    """What its publications must not carry."""

    @forbidden_flags.default
    def _forbidden_to_its_kind(self) -> int:
        is_client = self.kind is NodeKind.CLIENT
        return FORBIDDEN_TO_CLIENTS if is_client else FORBIDDEN_FROM_BELOW

    @property
    def hop(self) -> NodeId:
        """The direction of this neighbour, in the tables."""
        return self.node

    @property
    def lane(self) -> NodeId:
        """What comes from one lane is settled in the order in which it comes."""
        return self.adopted_from or self.node

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
    version: int = -1
    """Of the neighbours, when this was found out."""
    matching: int = 0
    """The subscriptions that match it: a bit set, see `routing/matching.py`."""
    detector: Conflicts | None = None
    """Who knows the subscribers, if anything can be held."""
    conflicts: bool = False
    """Whether it has to be settled above before it is settled here."""
    conflicts_if_awaited: bool = False
    """The same, if the child it comes from waits for it to be settled here."""
    climbs_unordered: bool = False
    """Whether it is not for those above who ask for order."""

    @cached_property
    def subscribers(self) -> int:
        """Who gets it, in order: a bit set, see `routing/conflicts.py`.

        Found out when it is first asked for, because only what is held is asked, or what comes
        while something is. It has to be asked first while the tables are those of the route.
        """
        return self.detector.subscribers(self.matching) if self.detector else 0


GONE: Final = Below(node=NodeId("\0"), incarnation=0, link=None)
"""Where publications came from whose origin nobody knows any more; no node is called so."""

NOWHERE = Route(down=(), climbs=False, links=(), is_allowed=True)


_NO_PLACES: Final[Mapping[NodeId, int]] = MappingProxyType({})


@attrs.define(eq=False)
class Arrival(Unstable[Publish | Notice]):
    """A publication at this broker, from its arrival until it is stable.

    A notice travels in the same streams, and is one there for the sake of their counters.
    """

    source: Neighbour = attrs.field(kw_only=True)
    route: Route = attrs.field(kw_only=True)
    is_urgent: bool = attrs.field(kw_only=True, default=False)
    is_awaited: bool = attrs.field(kw_only=True, default=False)
    """Whether the child it came from waits, or waited, until it is settled here."""
    waits: bool = attrs.field(kw_only=True, default=False)
    """Whether it waits until the parent has settled it."""
    since: float = attrs.field(kw_only=True, default=0.0)
    number: int = attrs.field(init=False, default=0)
    """Among those that came from its source: 1, 2, 3 ..."""
    is_settled: bool = attrs.field(init=False, default=False)
    settled_at: int = attrs.field(init=False, default=0)
    """When this broker settled it, by its clock; 0 if it has not."""
    is_told: bool = attrs.field(init=False, default=False)
    """Whether the child that waits has been told that it is settled."""
    has_waited: bool = attrs.field(init=False, default=False)
    """Whether it waits, or waited, until the parent has settled it."""
    settles: "Arrival | None" = attrs.field(init=False, default=None)
    """What a `Settled` is about."""
    adopted_by: "tuple[Below, ...]" = attrs.field(init=False, default=())
    """Who else has it: orphans of a failed broker, which got it from there or in its stead."""
    placed_at: Mapping[NodeId, int] = attrs.field(init=False, default=_NO_PLACES)
    """When adopted neighbours had it in order, if they had it already when they were adopted or it
    had been settled here by then; by this broker's clock, 0 if they do not have it in order. All
    else they have, as all others do, since it was settled here."""

    @property
    def key(self) -> Key:
        """What identifies the publication."""
        publication = self.publication
        assert isinstance(publication, Publish)
        return publication.publisher, publication.incarnation, publication.seq

    def is_later_than(self, other: "Arrival") -> bool:
        """Whether both are of one publisher, and the other goes first."""
        return self.publisher == other.publisher and self.key > other.key

    @property
    def publisher(self) -> NodeId:
        """Who published it."""
        assert isinstance(self.publication, Publish)
        return self.publication.publisher

    @property
    def is_unordered(self) -> bool:
        """Whether nobody gets it in order."""
        assert isinstance(self.publication, Publish)
        return self.publication.flags & (Flag.UNORDERED | Flag.UNORDERED_ONLY) != 0

    @property
    def flag_upwards(self) -> int:
        """What the parent has to know about it."""
        if self.waits:
            return Flag.AWAITED
        return Flag.UNORDERED_ONLY if self.route.climbs_unordered else 0

    @property
    def hop(self) -> NodeId:
        """Where it came from."""
        return self.source.lane

    @property
    def climbs(self) -> bool:
        """Whether it goes to the parent."""
        return self.route.climbs

    @property
    def descends(self) -> bool:
        """Whether it came from the parent."""
        return isinstance(self.source, Above)

    @property
    def subscribers(self) -> int:
        """Who gets it, in order."""
        return 0 if self.is_unordered else self.route.subscribers


class Neighbours:
    """All neighbours of one broker."""

    def __init__(self) -> None:
        """Begin alone."""
        self.parent: Above | None = None
        self._below: dict[NodeId, Below] = {}
        self.below: Mapping[NodeId, Below] = MappingProxyType(self._below)
        """All below, by name; of thousands of clients only a few questions have to look at each."""
        self._children: dict[NodeId, Below] = {}
        """The brokers among them."""
        self.clock = Clock()
        """Ticks when anything is installed or settled, so that it can be told what came first."""
        self.version = 0
        """Goes up whenever routes may have changed: with tables, neighbours and connections."""

    def put(self, neighbour: Below) -> None:
        """Let somebody stand below, in the place of whoever had that name."""
        self._below[neighbour.node] = neighbour
        if neighbour.kind is NodeKind.BROKER:
            self._children[neighbour.node] = neighbour
        else:
            self._children.pop(neighbour.node, None)

    def take_out(self, neighbour: Below) -> None:
        """Somebody does not stand below any more."""
        del self._below[neighbour.node]
        self._children.pop(neighbour.node, None)

    def get(self, hop: NodeId) -> Neighbour | None:
        """The neighbour in this direction."""
        return self.parent if hop == UP else self.below.get(hop)

    def named(self, node: NodeId) -> Neighbour | None:
        """The neighbour of this name."""
        if self.parent is not None and self.parent.node == node:
            return self.parent
        return self.below.get(node)

    def open_way(self, *, up: bool) -> None:
        """What comes down goes on from now on, and publications go up as well, or not yet."""
        parent = self.parent
        if parent is not None and (parent.is_way_down_open, parent.is_way_up_open) != (True, up):
            parent.is_way_down_open, parent.is_way_up_open = True, up
            self.version += 1

    def others(self, source: Neighbour | None) -> list[Neighbour]:
        """Every neighbour that has joined, but for one."""
        return self._joined(self._below, source)

    def other_brokers(self, source: Neighbour | None) -> list[Neighbour]:
        """The same without clients."""
        return self._joined(self._children, source)

    def _joined(self, below: Mapping[NodeId, Below], source: Neighbour | None) -> list[Neighbour]:
        others: list[Neighbour] = []
        if self.parent is not None and self.parent is not source:
            others.append(self.parent)
        others.extend(n for n in below.values() if n.has_joined and n is not source)
        return others

    @property
    def client_count(self) -> int:
        """How many clients there are."""
        return len(self._below) - len(self._children)

    def children(self) -> list[Below]:
        """The brokers below."""
        return list(self._children.values())

    def clients(self) -> list[Below]:
        """The clients."""
        return [n for n in self.below.values() if n.kind is NodeKind.CLIENT]
