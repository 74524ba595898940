"""Which machines cannot reach which others for now, and in which direction."""

import attrs

from plait.routing.ids import NodeId


@attrs.frozen(eq=False, kw_only=True)
class Cut:
    """Nothing gets through between one node and another one, or all others, in one way or both."""

    one: NodeId
    other: NodeId | None = None
    """None: all others."""
    outgoing: bool = True
    """Whether nothing gets out of the one,"""
    incoming: bool = True
    """and whether nothing gets in."""

    def stops(self, sender: NodeId, receiver: NodeId) -> bool:
        """Whether what one node sends does not reach another one."""
        return (self.outgoing and sender == self.one and self.other in (None, receiver)) or (
            self.incoming and receiver == self.one and self.other in (None, sender)
        )

    def __str__(self) -> str:
        others = "all others" if self.other is None else self.other
        if self.outgoing and self.incoming:
            return f"{self.one} and {others} do not reach each other"
        if self.outgoing:
            return f"{self.one} does not reach {others}"
        return f"{self.one} is not reached by {others}"
