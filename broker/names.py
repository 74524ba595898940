"""Who may be called what, seen from one broker.

A name is one node, and of a client one life at a time: publications are known by their publisher,
its incarnation and their number, and what is known already is taken for a duplicate. So nobody is
let in whose publications would be: an older life than one that has been seen, or the same life,
counting from the beginning once more.
"""

from typing import TYPE_CHECKING

from broker.messages import Hello, NodeKind
from routing.ids import NodeId

if TYPE_CHECKING:
    from broker.core import BrokerCore


class Names:
    """The names that one broker knows, and what it knows them by."""

    def __init__(self, core: "BrokerCore", *, wall_clock_ms: int) -> None:
        """Begin when the clock on the wall shows this."""
        self._core = core
        self._wall_clock_ms = wall_clock_ms

    def objection_to(self, hello: Hello) -> str | None:
        """Why nobody is let in who greets like this; None if it may go on."""
        newest = self._newest_incarnation()
        if hello.incarnation > newest:
            return (
                f"incarnation {hello.incarnation} of {hello.node} is more than a day ahead of the "
                f"clock of {self._core.node}, {newest} is the highest allowed: is one of the two "
                f"clocks wrong?"
            )
        known = self._kind_of(hello.node)
        if known is not None and known is not hello.kind:
            return f"{hello.node} is the name of a {known} in this overlay"
        if hello.kind is NodeKind.CLIENT:
            return self._objection_of_memory(hello.node, hello.incarnation, hello.published)
        return None

    def _newest_incarnation(self) -> int:
        """Incarnations are taken from clocks: one that is far ahead would bar all that follow."""
        elapsed_s = self._core.now - self._core.started_at + self._core.limits.clocks_apart_max_s
        return self._wall_clock_ms + round(1000 * elapsed_s)

    def _kind_of(self, node: NodeId) -> NodeKind | None:
        core = self._core
        if node == core.node:
            return NodeKind.BROKER
        below = core.neighbours.below.get(node)
        if below is not None:
            return below.kind
        kind = core.neighbourhood.kind_of(node)
        return None if kind is None else NodeKind(kind)

    def _objection_of_memory(self, node: NodeId, incarnation: int, published: int) -> str | None:
        """Whether others would take what it is going to publish for what they have already."""
        last_incarnation, last_seq = self._core.publications.latest_of(node)
        if last_incarnation > incarnation:
            return (
                f"{node} was here as incarnation {last_incarnation}, and {incarnation} is older: "
                f"is this machine's clock behind?"
            )
        if last_incarnation == incarnation and last_seq > published:
            return (
                f"{node} has published up to {last_seq} in incarnation {incarnation}, and would "
                f"go on at {published + 1}: a new life takes a higher incarnation"
            )
        return None
