"""What a node knows of the tree around it: every link within distance δ + 1 of itself.

A crash of up to δ brokers in a row leaves a node that knows who stood behind them. The join of a
node builds its neighbourhood (the join point tells what lies within distance δ of itself, which is
within δ + 1 of the newcomer) and extends everybody else's (`Join` travels δ hops on from the join
point). Brokers keep clients and brokers; a client keeps brokers alone, because only they are of
use to it, and an edge broker with a thousand clients need not introduce each to all others.

This is the seed's topology routing information TOP_N and its Eq. 1.

Nodes fail and others take their places: a link says how often its child has moved, so that the
newest is told from an older one whichever comes last, and a node that has failed stays *buried*,
that incarnation of it, whoever still speaks of it. Its links are kept until the tree has been
re-formed, for they tell who stood around it.
"""

from collections.abc import Iterable, Iterator

import attrs

from routing.ids import NodeId


@attrs.frozen(kw_only=True)
class TopologyLink:
    """An edge of the tree: `child` joined the overlay at `parent`. A root is its own parent."""

    child: NodeId
    parent: NodeId
    kind: str
    """What the child is, `broker` or `client`."""
    incarnation: int
    address: str
    """Where the child listens, `host:port`; empty for a client."""
    parent_incarnation: int = 1
    parent_address: str = ""
    """Where the parent listens: for those who see it only at the end of this link."""
    moves: int = 0
    """How many parents this incarnation has had before this one."""
    standby: int = 0
    """A child that stands by for its parent takes over in this order, 1 first; 0 does not."""
    key: str = ""
    """Of a client: the digest of the secret by which it goes on with its session, wherever that
    goes. Empty if nothing is known of that."""

    @property
    def is_root(self) -> bool:
        """Whether this says who the root is, and no more."""
        return self.child == self.parent

    @property
    def age(self) -> tuple[int, int]:
        """Of two links of one child the one with the larger age is the newer."""
        return self.incarnation, self.moves


@attrs.frozen
class Life:
    """One incarnation of a node."""

    node: NodeId
    incarnation: int


@attrs.frozen
class Place:
    """Where a node is to be found."""

    address: str
    incarnation: int


class Neighbourhood:
    """The links around one node, none of them further than `reach` hops away."""

    def __init__(self, centre: NodeId, *, delta: int) -> None:
        """Begin with nothing but the node itself."""
        self.centre = centre
        self.reach = delta + 1
        self._link_of_child: dict[NodeId, TopologyLink] = {}
        self._adjacent: dict[NodeId, dict[NodeId, None]] = {centre: {}}
        self._buried: dict[NodeId, int] = {}
        """The last incarnation of each node that has failed."""
        self._closed: dict[NodeId, None] = {}
        self._back: dict[NodeId, TopologyLink] = {}
        """Where nodes are that have failed and are back, while their old places are open."""
        self.version = 0
        """Goes up with every link between brokers that is learnt or forgotten."""

    def __iter__(self) -> Iterator[TopologyLink]:
        """Every known link, in the order in which they became known."""
        return (link for link in self._link_of_child.values() if not link.is_root)

    def __len__(self) -> int:
        """How many links are known."""
        return sum(1 for _ in self)

    def __contains__(self, node: NodeId) -> bool:
        """Whether this node is known, near or far."""
        return node in self._adjacent

    def add(self, link: TopologyLink) -> bool:
        """Learn a link, unless a newer one of its child is known; returns whether it was news."""
        known = self._link_of_child.get(link.child)
        if known is not None and known.age >= link.age:
            return False
        is_buried = self._buried.get(link.child, 0) >= link.incarnation
        if is_buried and (known is None or known.incarnation != link.incarnation):
            return False  # but if it is known still, it may have moved before it failed
        parent = Life(link.parent, link.parent_incarnation)
        if link.parent in self._closed and self.has_failed(parent):
            return False  # wherever it is, it is there no more
        place = self.place_of(link.child)
        if place is not None and place.incarnation < link.incarnation and self._is_open(link.child):
            # Who stood around what it was has to be known until the tree does without that.
            self._back[link.child] = link
            return False
        if known is not None:
            self._cut(known)
        self._link_of_child[link.child] = link
        self.version += link.kind == "broker"
        self._adjacent.setdefault(link.child, {})
        if not link.is_root:
            self._adjacent[link.child][link.parent] = None
            self._adjacent.setdefault(link.parent, {})[link.child] = None
        return True

    def add_all(self, links: Iterable[TopologyLink]) -> bool:
        """Learn several links; returns whether any was news."""
        news = [self.add(link) for link in links]
        return any(news)

    def remove(self, child: NodeId) -> None:
        """Forget a node that is gone, with all that can be reached only through it."""
        link = self._link_of_child.get(child)
        if link is None:
            return
        self._cut(link)
        if link.kind == "broker" or child in self._adjacent:
            # Behind a client there is nobody: thousands may go at once, and cost nothing each.
            self._forget_beyond(len(self._adjacent))

    def _cut(self, link: TopologyLink) -> None:
        del self._link_of_child[link.child]
        self.version += link.kind == "broker"
        back = self._link_of_child.get(link.parent)
        is_still_there = back is not None and back.parent == link.child
        for one, other in ((link.child, link.parent), (link.parent, link.child)):
            neighbours = self._adjacent.get(one, {})
            if not is_still_there:
                neighbours.pop(other, None)
            if not neighbours and one != self.centre:
                self._adjacent.pop(one, None)

    def _forget_beyond(self, reach: int) -> bool:
        """Forget every link with an end further away than that; returns whether there was one."""
        near = self.distances(limit=reach)
        lost = [
            link
            for link in self._link_of_child.values()
            if link.child not in near or link.parent not in near
        ]
        for link in lost:
            self._cut(link)
        return bool(lost)

    def link_of(self, child: NodeId) -> TopologyLink | None:
        """The link by which a node joined, if it is known here."""
        return self._link_of_child.get(child)

    def place_of(self, node: NodeId) -> "Place | None":
        """Where a node can be found, and in which incarnation, if that is known here."""
        link = self._link_of_child.get(node)
        if link is not None:
            return Place(link.address, link.incarnation)
        for other in self._adjacent.get(node, ()):
            link = self._link_of_child.get(other)
            if link is not None and link.parent == node:
                return Place(link.parent_address, link.parent_incarnation)
        return None

    def kind_of(self, node: NodeId) -> str | None:
        """What a node is, if it is known here; whoever is only seen as a parent is a broker."""
        link = self._link_of_child.get(node)
        if link is not None:
            return link.kind
        return "broker" if self._adjacent.get(node) else None

    def parent_of(self, child: NodeId) -> NodeId | None:
        """The node above this one; None for a root, and for a node of which it is not known."""
        link = self._link_of_child.get(child)
        return None if link is None or link.is_root else link.parent

    def distances(self, *, limit: int | None = None) -> dict[NodeId, int]:
        """Every known node with its distance, nearest first."""
        distance = {self.centre: 0}
        queue = [self.centre]
        for node in queue:
            if distance[node] == limit:
                continue
            for neighbour in self._adjacent.get(node, ()):
                if neighbour not in distance:
                    distance[neighbour] = distance[node] + 1
                    queue.append(neighbour)
        return distance

    def for_newcomer(self, *, brokers_only: bool) -> tuple[TopologyLink, ...]:
        """What a node that joins here is told: the links within distance δ of this one."""
        near = self.distances(limit=self.reach - 1)
        return tuple(
            link
            for link in self._link_of_child.values()
            if link.child in near
            and link.parent in near
            and not (brokers_only and link.kind != "broker")
        )

    def behind(self, neighbour: NodeId) -> tuple[TopologyLink, ...]:
        """The links on the other side of a neighbour, as far as they are known."""
        seen = {self.centre, neighbour}
        queue = [neighbour]
        for node in queue:
            found = [other for other in self._adjacent.get(node, ()) if other not in seen]
            seen.update(found)
            queue.extend(found)
        return tuple(
            link
            for link in self._link_of_child.values()
            if link.child in queue and link.parent in queue
        )

    def between_brokers(self) -> tuple[TopologyLink, ...]:
        """What a broker has to know again when it has been restarted."""
        return tuple(link for link in self._link_of_child.values() if link.kind == "broker")

    # --- nodes that have failed ---------------------------------------------------------------

    @property
    def buried(self) -> tuple[Life, ...]:
        """Who is known to have failed."""
        return tuple(Life(node, incarnation) for node, incarnation in self._buried.items())

    @property
    def closed(self) -> tuple[Life, ...]:
        """Those without whom the tree has been re-formed."""
        return tuple(life for life in self.buried if life.node in self._closed)

    def still_gone(self, closed: Iterable[Life]) -> list[NodeId]:
        """Who has not come back since, and failed again, which whoever tells may not know yet."""
        return [life.node for life in closed if self._buried.get(life.node) == life.incarnation]

    def bury(self, life: Life) -> bool:
        """Take note that a node has failed; its links stay. Returns whether that was news."""
        if self._buried.get(life.node, 0) >= life.incarnation:
            return False
        self._buried[life.node] = life.incarnation
        self._closed.pop(life.node, None)
        return True

    def has_failed(self, life: Life) -> bool:
        """Whether this incarnation, or a later one, is known to have failed."""
        return self._buried.get(life.node, 0) >= life.incarnation

    def lives_at(self, address: str) -> list[Life]:
        """Who listens at this address, as far as is known."""
        places = [(node, self.place_of(node)) for node in self._adjacent]
        return [
            Life(node, place.incarnation)
            for node, place in places
            if place and place.address == address
        ]

    def is_buried(self, node: NodeId) -> bool:
        """Whether the newest incarnation of the node that is known here has failed."""
        return self._is_newest(Life(node, self._buried.get(node, 0)))

    def _is_newest(self, life: Life) -> bool:
        place = self.place_of(life.node)
        return place is not None and life.incarnation >= place.incarnation

    def _is_open(self, node: NodeId) -> bool:
        return self.is_buried(node) and node not in self._closed

    def failed_region(self, node: NodeId, *, doubted: Iterable[Life] = ()) -> list[NodeId]:
        """The nodes that have failed and hang together with this one, itself first.

        And those of whom somebody says so, without anybody taking note of it.
        """
        said = {life.node for life in doubted if self._is_newest(life)}
        region = [node]
        for member in region:
            region.extend(
                neighbour
                for neighbour in self._adjacent.get(member, ())
                if neighbour not in region and (neighbour in said or self.is_buried(neighbour))
            )
        return region

    def boundary(self, region: list[NodeId]) -> list[NodeId]:
        """The nodes next to a region, by name: whoever computes it gets the same."""
        return sorted(
            {
                neighbour
                for member in region
                for neighbour in self._adjacent.get(member, ())
                if neighbour not in region
            }
        )

    def standbys_of(self, node: NodeId) -> list[NodeId]:
        """Who stands by for a broker and has not failed, the first first."""
        links = [
            link
            for link in self._link_of_child.values()
            if link.standby and link.parent == node and not self.is_buried(link.child)
        ]
        return [link.child for link in sorted(links, key=lambda link: (link.standby, link.child))]

    def around(self, region: list[NodeId]) -> tuple[TopologyLink, ...]:
        """The links of a region, of its boundary and of this node, which may not stand there.

        And of whoever has moved: where they stand who stood around others that have failed.
        """
        links = {node: link for node, link in self._link_of_child.items() if link.moves}
        for node in (*region, *self.boundary(region), self.centre):
            if node in self._link_of_child:
                links[node] = self._link_of_child[node]
        return tuple(links.values())

    def hub(self, region: list[NodeId]) -> NodeId | None:
        """Who takes the place of a region that has failed; None if nobody is known who could.

        The parent of its topmost broker, or, if that was the root, its first standby or else the
        first broker by name of those around it. Everybody around it knows all of them, and so they
        agree. Who has failed may have gone below one another in the meantime, one link of which is
        known still and another one already: nobody is known above a region that goes round.
        """
        node = region[0]
        left = set(region)
        while node in left:
            left.remove(node)
            link = self._link_of_child.get(node)
            if link is None:
                return None
            if link.is_root:
                brokers = [*self.standbys_of(node), *filter(self._is_broker, self.boundary(region))]
                return next((broker for broker in brokers if broker not in region), None)
            node = link.parent
        return node if node not in region and self.place_of(node) is not None else None

    def other_root(self) -> NodeId | None:
        """A broker other than this one that lives, and is the root by what is known here."""
        for link in self._link_of_child.values():
            is_alive = not self.has_failed(Life(link.child, link.incarnation))
            if link.is_root and link.child != self.centre and is_alive:
                return link.child
        return None

    def _is_broker(self, node: NodeId) -> bool:
        link = self._link_of_child.get(node)
        return link is None or link.kind == "broker"  # whoever is only seen as a parent is one

    def close(self, region: list[NodeId]) -> bool:
        """The tree has been re-formed without these: forget them, and what is too far away now.

        Returns whether that was news of any of them.
        """
        known = len(self._closed)
        self._closed.update(dict.fromkeys(region))
        for node in region:
            buried = self._buried.get(node, 0)  # a later incarnation may be back already
            for other in (node, *self._adjacent.get(node, ())):
                link = self._link_of_child.get(other)
                if link is None:
                    continue
                is_itself = other == node and link.incarnation <= buried
                if is_itself or (link.parent == node and link.parent_incarnation <= buried):
                    self._cut(link)
        self.add_all([self._back.pop(node) for node in region if node in self._back])
        self._forget_beyond(self.reach)
        return len(self._closed) > known
