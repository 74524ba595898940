"""What a client writes into its history, and how it names what it writes of."""

from typing import Any

from plait.broker.outbox import Outbox
from plait.routing.ids import NodeId


class Journal:
    """The records of one client, if it keeps any."""

    def __init__(self, node: NodeId, incarnation: int, outbox: Outbox, *, is_kept: bool) -> None:
        """Write for this life of a client."""
        self.is_kept = is_kept
        self._node = node
        self._incarnation = incarnation
        self._outbox = outbox

    def of_publication(self, kind: str, seq: int, **fields: Any) -> None:
        """Write what has become of one of its publications."""
        if self.is_kept:
            self._outbox.record(
                kind,
                publisher=self._node,
                publisher_incarnation=self._incarnation,
                seq=seq,
                **fields,
            )

    def of_interest(self, kind: str, **fields: Any) -> None:
        """Write what has become of an advertisement or a subscription."""
        if self.is_kept:
            self._outbox.record(kind, client=self._node, **fields)
