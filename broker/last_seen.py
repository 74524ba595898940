"""The last publication of each publisher that came by a node: of all publishers that matter still.

By it a broker recognises what a client sends again after it has lost its session there, and a hub
learns what those who attach to it have had already. Both are about publications of late: either
somebody still keeps them, because they are not stable everywhere, or their client is here, or was
dropped here. So a publisher is forgotten when nothing of that is so and many others have published
since; it may be back, with a number or an incarnation that goes on where it was.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from broker.messages import PublicationId
from routing.ids import NodeId

Stamp = tuple[int, int]
"""An incarnation of a publisher, and a number within it."""

NEVER: Final[Stamp] = (0, 0)


class LastSeen:
    """Stamps by publisher, of two generations of them.

    When `most` publishers have been seen since that was done last, those that were seen before, and
    not since, are forgotten. So looking somebody up, and noting somebody, cost what they cost in a
    dictionary, and at most twice as many are kept, apart from those that have to be.
    """

    def __init__(self, most: int) -> None:
        """Begin with none."""
        self._most = most
        self._of_late: dict[NodeId, Stamp] = {}
        self._before: dict[NodeId, Stamp] = {}

    def __len__(self) -> int:
        """How many publishers are remembered."""
        return len(self._before.keys() | self._of_late.keys())

    def get(self, publisher: NodeId) -> Stamp:
        """Its last publication."""
        return self._of_late.get(publisher) or self._before.get(publisher, NEVER)

    def __setitem__(self, publisher: NodeId, stamp: Stamp) -> None:
        """This is its last publication."""
        self._of_late[publisher] = stamp

    def forget(self, publisher: NodeId) -> None:
        """It begins anew: nothing that it publishes from now on has been here."""
        self._of_late.pop(publisher, None)
        self._before.pop(publisher, None)

    def __iter__(self) -> Iterator[PublicationId]:
        """The last publications of all that are remembered."""
        stamps = self._before | self._of_late
        return (PublicationId(publisher, *stamp) for publisher, stamp in stamps.items())

    def forget_some(self, find_needed: Callable[[], Collection[NodeId]]) -> None:
        """If it is time, forget those that have not been seen for long and are not needed."""
        if len(self._of_late) <= self._most:
            return
        needed = find_needed()
        stay = {name: stamp for name, stamp in self._before.items() if name in needed}
        self._before = stay | self._of_late
        self._of_late = {}


class Dropped:
    """The clients that a broker has dropped of late, who may come back and send again."""

    def __init__(self, most: int) -> None:
        """Begin with none."""
        self._most = most
        self._incarnations: dict[NodeId, int] = {}
        self._has_forgotten = False

    def __iter__(self) -> Iterator[NodeId]:
        """Who they are."""
        return iter(self._incarnations)

    def note(self, client: NodeId, incarnation: int) -> None:
        """It has been dropped; the one that was dropped first is forgotten if there are many."""
        self._incarnations.pop(client, None)
        self._incarnations[client] = incarnation
        if len(self._incarnations) > self._most:
            del self._incarnations[next(iter(self._incarnations))]
            self._has_forgotten = True

    def may_have_been_forgotten(self, client: NodeId, incarnation: int) -> bool:
        """Whether what it sends again might not be recognised, if it has had a session here."""
        return self._has_forgotten and self._incarnations.get(client) != incarnation
