"""What a node knows of the tree around it: every link within distance δ + 1 of itself.

A crash of up to δ brokers in a row leaves a node that knows who stood behind them. The join of a
node builds its neighbourhood (the join point tells what lies within distance δ of itself, which is
within δ + 1 of the newcomer) and extends everybody else's (`Join` travels δ hops on from the join
point). Brokers keep clients and brokers; a client keeps brokers alone, because only they are of
use to it, and an edge broker with a thousand clients need not introduce each to all others.

This is the seed's topology routing information TOP_N and its Eq. 1.
"""

from collections.abc import Iterable, Iterator

import attrs

from routing.ids import NodeId


@attrs.frozen(kw_only=True)
class TopologyLink:
    """An edge of the tree: `child` joined the overlay at `parent`."""

    child: NodeId
    parent: NodeId
    kind: str
    """What the child is, `broker` or `client`."""
    incarnation: int
    address: str
    """Where the child listens, `host:port`; empty for a client."""


class Neighbourhood:
    """The links around one node, none of them further than `reach` hops away."""

    def __init__(self, centre: NodeId, *, delta: int) -> None:
        """Begin with nothing but the node itself."""
        self.centre = centre
        self.reach = delta + 1
        self._link_of_child: dict[NodeId, TopologyLink] = {}
        self._adjacent: dict[NodeId, dict[NodeId, None]] = {centre: {}}

    def __iter__(self) -> Iterator[TopologyLink]:
        """Every known link, in the order in which they became known."""
        return iter(self._link_of_child.values())

    def __len__(self) -> int:
        """How many links are known."""
        return len(self._link_of_child)

    def add(self, link: TopologyLink) -> None:
        """Learn a link; a later incarnation of its child replaces an earlier one."""
        known = self._link_of_child.get(link.child)
        if known is not None:
            self._cut(known)
        self._link_of_child[link.child] = link
        self._adjacent.setdefault(link.child, {})[link.parent] = None
        self._adjacent.setdefault(link.parent, {})[link.child] = None

    def add_all(self, links: Iterable[TopologyLink]) -> None:
        """Learn several links."""
        for link in links:
            self.add(link)

    def remove(self, child: NodeId) -> None:
        """Forget a node that is gone, with all that can be reached only through it."""
        link = self._link_of_child.get(child)
        if link is None:
            return
        self._cut(link)
        reachable = self.distances()
        for lost in [link for link in self if link.parent not in reachable]:
            self._cut(lost)

    def _cut(self, link: TopologyLink) -> None:
        del self._link_of_child[link.child]
        for one, other in ((link.child, link.parent), (link.parent, link.child)):
            neighbours = self._adjacent[one]
            del neighbours[other]
            if not neighbours and one != self.centre:
                del self._adjacent[one]

    def link_of(self, child: NodeId) -> TopologyLink | None:
        """The link by which a node joined, if it is known here."""
        return self._link_of_child.get(child)

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
            for link in self
            if link.child in near
            and link.parent in near
            and not (brokers_only and link.kind != "broker")
        )
