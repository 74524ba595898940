"""Who stands next to a broker in the tree, and what it keeps about each.

Two neighbours exchange *batches*: what one sends the other in one step, known by the sender's step.
So after a lost connection as after a crash, one number answers "what have you got of me?". A batch
holds publications, which are kept until they are stable, and *controls* (operations, confirmations,
notices), which are kept until the neighbour has forgotten the step in which it took them.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, Final

import attrs

from plait.broker.inputs import LinkId
from plait.broker.messages import Flag, Message, NodeKind, Publish
from plait.faulttol.stability import StreamAbove, StreamBelow, Unstable
from plait.faulttol.steplog import Key
from plait.routing.conflicts import Conflicts
from plait.routing.ids import NodeId, OperationId
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics.position import Position

UP: Final = NodeId("")
"""The direction of the parent; no node is called so."""


MARKS_AT_ONCE: Final = 64
"""So many are forgotten together."""


class Marks:
    """At which step a stream of publications had come how far."""

    __slots__ = ("_counts", "_steps")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._steps: list[int] = []
        self._counts: list[int] = []

    def add(self, step: int, count: int) -> None:
        """With this step the stream has come to `count`."""
        if not self._counts or self._counts[-1] < count:
            self._steps.append(step)
            self._counts.append(count)

    def step_of(self, number: int) -> int:
        """In which step the publication of this number was exchanged, 1 being the first."""
        return self._steps[bisect_left(self._counts, number)]

    def forget(self, count: int) -> None:
        """What lies before `count` is stable."""
        place = bisect_left(self._counts, count + 1)
        if place > MARKS_AT_ONCE:  # now and then, as it costs as much as there is
            del self._steps[:place], self._counts[:place]


@attrs.frozen
class Progress:
    """How far the sender's side has come with the two streams of publications on a link.

    From below it counts what is confirmed, from above what is stable.
    """

    received: int
    """Of the publications the sender of this message received over the link."""
    sent: int
    """Of the publications the sender of this message sent over the link."""
    forgotten: int
    """The last step of the receiver of which the sender will never need anything again."""


@attrs.frozen(eq=False)
class Control:
    """A message of a batch that is no publication."""

    step: int
    """In which it was sent."""
    position: int
    """How many publications were in the stream before it."""
    message: Message
    about: "Advertisement | Subscription | None" = None
    """What it withdraws."""
    key: Key | None = None
    """The publication of which it says that it is settled."""
    told_in: int = 0
    """When the neighbour had been told of what it withdraws; 0 if that is long ago."""


@attrs.define(eq=False)
class _Neighbour:
    """What both kinds of neighbour have."""

    node: NodeId
    link: LinkId | None = None
    taken: int = 0
    """The last of its steps that was taken here."""
    taken_at_base: int = 0
    """The last of its steps that was taken before the log of this broker begins."""
    controls: deque[Control] = attrs.field(factory=deque)
    """What was sent to it beside publications, and may have to be sent again."""
    told_of: dict[str, int] = attrs.field(factory=dict)
    """The advertisements and subscriptions that it has been told of, each with the step in which
    it was first told; 0 if that is long ago."""
    sent_marks: Marks = attrs.field(factory=Marks)
    """By the steps of this broker."""
    received_marks: Marks = attrs.field(factory=Marks)
    """By the steps of the neighbour."""
    forgot: int = 0
    """The last of this broker's steps that the neighbour will never ask for again."""
    told: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The progress it was told last, and the base of the log that came with that."""
    counted: tuple[int, ...] = ()
    """How far all that is counted had come when it was last looked at."""
    is_urgent: bool = False
    """Somebody waits for the progress that is to be told."""
    era: int = 0
    """How often new streams have begun between the two, as more than δ had failed."""
    introduction: OperationId | None = None
    """Until this is confirmed, not all that lies beyond the neighbour is known here again."""
    routes: dict[bytes, "Route"] = attrs.field(factory=dict)
    """Where contents that come from here go, while the tables stand still."""
    routes_version: int = -1


@attrs.define(eq=False)
class Above(_Neighbour):
    """The parent: our side confirms to it, and it declares stable."""

    hop: ClassVar = UP
    kind: ClassVar = NodeKind.BROKER
    has_joined: ClassVar = True
    joined_in: int = 0
    """The step of this broker in which new streams began with it; 0 if none did."""
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
    incarnation: int = 0
    """Of a client."""
    key: str = ""
    """The digest of the secret with which a client goes on with its session."""
    published: int = 0
    """The number of the last publication that a client had handed over before it came."""
    joined_in: int = 0
    """The step of this broker in which it came; 0 if that is long ago."""
    has_joined: bool = False
    """Whether its name is its own: until then it is told nothing, and asks for nothing."""
    is_cut: bool = False
    """Whether the connection of a client has ended, as its host has noticed."""
    is_away: bool = False
    """Whether the log says that: nobody waits for it any more when this broker has failed."""
    is_detached: bool = False
    """Whether it was away when this broker was rebuilt, and has not said since what it has."""
    sent: StreamBelow["Arrival"] = attrs.field(factory=StreamBelow)
    received: StreamBelow["Arrival"] = attrs.field(factory=StreamBelow)

    @property
    def hop(self) -> NodeId:
        """The direction of this neighbour, in the tables."""
        return self.node

    @property
    def progress(self) -> tuple[int, int]:
        """How far everybody has come, with what we received and with what we sent."""
        return self.received.stable_count, self.sent.stable_count


Neighbour = Above | Below


def is_client(neighbour: Neighbour) -> bool:
    """Whether this is a leaf of the tree."""
    return neighbour.kind is NodeKind.CLIENT


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

    @cached_property
    def subscribers(self) -> int:
        """Who gets it, in order: a bit set, see `routing/conflicts.py`.

        Found out when it is first asked for, because only what is held is asked, or what comes
        while something is. It has to be asked first while the tables are those of the route.
        """
        return self.detector.subscribers(self.matching) if self.detector else 0

    def flags_for(self, hop: NodeId) -> int:
        """With which flags a neighbour gets it, beside its own."""
        del hop  # nobody is told anything
        return 0


@attrs.define(eq=False)
class Arrival(Unstable[Publish]):
    """A publication at this broker, from its arrival until it is stable."""

    source: Neighbour = attrs.field(kw_only=True)
    route: Route = attrs.field(kw_only=True)
    step: int = attrs.field(kw_only=True)
    """In which it arrived."""
    is_urgent: bool = attrs.field(kw_only=True, default=False)
    is_awaited: bool = attrs.field(kw_only=True, default=False)
    """Whether the child it came from waits, or waited, until it is settled here."""
    waits: bool = attrs.field(kw_only=True, default=False)
    """Whether it waits until the parent has settled it."""
    since: float = attrs.field(kw_only=True, default=0.0)
    number: int = attrs.field(init=False, default=0)
    """Among those that came from its source, if that waits for it: 1, 2, 3 ..."""
    settled_in: int = attrs.field(init=False, default=0)
    """The step in which it was settled; 0 if it has not been."""
    is_over: bool = attrs.field(init=False, default=False)
    """Whether it is known to be stable, whatever has been confirmed here."""
    has_waited: bool = attrs.field(init=False, default=False)
    """Whether it waits, or waited, until the parent has settled it."""
    position: Position | None = attrs.field(init=False, default=None)
    """Among those on other topics, as far as that is known here."""

    @property
    def key(self) -> Key:
        """What identifies the publication."""
        publication = self.publication
        return publication.publisher, publication.incarnation, publication.seq

    @property
    def publisher(self) -> NodeId:
        """Who published it."""
        return self.publication.publisher

    @property
    def is_unordered(self) -> bool:
        """Whether nobody gets it in order."""
        return self.publication.flags & Flag.UNORDERED != 0

    @property
    def hop(self) -> NodeId:
        """Where it came from."""
        return self.source.hop

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

    def towards(self, neighbour: Neighbour) -> Publish:
        """The publication as a neighbour gets it: flagged upwards, if this broker waits for it."""
        flags = self.route.flags_for(neighbour.hop)
        if self.has_waited and isinstance(neighbour, Above):
            flags |= Flag.AWAITED
        if not flags:
            return self.publication
        return self.publication.with_flags(self.publication.flags | flags)


class Neighbours:
    """All neighbours of one broker."""

    def __init__(self, parent: NodeId | None) -> None:
        """Begin with the parent, or as the root."""
        self.parent: Above | None = None if parent is None else Above(parent)
        self.below: dict[NodeId, Below] = {}
        self._brokers_below: dict[NodeId, Below] = {}
        """Those of them that are no clients, of which there may be thousands."""
        self.version = 0
        """Goes up whenever routes may have changed: with tables, neighbours and connections."""

    def get(self, hop: NodeId) -> Neighbour | None:
        """The neighbour in this direction."""
        return self.parent if hop == UP else self.below.get(hop)

    def named(self, node: NodeId) -> Neighbour | None:
        """The neighbour of this name."""
        if self.parent is not None and self.parent.node == node:
            return self.parent
        return self.below.get(node)

    def all(self) -> Iterator[Neighbour]:
        """Every neighbour, the parent first."""
        if self.parent is not None:
            yield self.parent
        yield from self.below.values()

    def remove(self, neighbour: Neighbour) -> None:
        """It is no neighbour any more."""
        if isinstance(neighbour, Above):
            self.parent = None
        else:
            del self.below[neighbour.node]
            self._brokers_below.pop(neighbour.node, None)
        self.version += 1

    def add(self, neighbour: Neighbour) -> None:
        """It is a neighbour from now on."""
        if isinstance(neighbour, Above):
            self.parent = neighbour
        else:
            self.below[neighbour.node] = neighbour
            if not is_client(neighbour):
                self._brokers_below[neighbour.node] = neighbour
        self.version += 1

    def strangers(self, source: Neighbour | None) -> list[Neighbour]:
        """Every broker but one of which not all is known that lies beyond it."""
        return [n for n in self.other_brokers(source) if n.introduction is not None]

    def other_brokers(self, source: Neighbour | None) -> list[Neighbour]:
        """Every broker but one; whoever is about to join is told nothing yet."""
        brokers: list[Neighbour] = [*self.children()]
        if self.parent is not None:
            brokers.insert(0, self.parent)
        return [n for n in brokers if n is not source]

    def children(self) -> list[Below]:
        """The brokers below."""
        return [n for n in self._brokers_below.values() if n.has_joined]
