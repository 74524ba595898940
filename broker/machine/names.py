"""Who may be called what, everywhere in the overlay.

A name is one node, and of a client one life at a time: publications are known by their publisher,
its incarnation and their number. So nobody is let in whose publications would be taken for others:
an older life than one that is remembered, or the same life, counting from the beginning once more.

Nobody keeps a list of all names. Whoever wants to join is a *claim* (`Claim`), which goes to all
brokers, as an advertisement does: the one who joins is let in when all of them have confirmed. Who
objects refuses, which goes back to where the claim came from. Two claims of one name meet wherever
they have both been, and the later life wins; equal ones may both lose, and never both win.

A name is in use while its client is connected: then no later life takes it away. One that is away
gives way to any life but an older one, wherever that joins.

Whether a client is connected, and who was here once, a broker that is rebuilt may not know. So the
log says which claims were refused, and nothing is decided a second time.
"""

from collections.abc import Callable, Collection
from typing import Final

import attrs

from plait.broker.limits import Limits
from plait.broker.machine.neighbours import Below, Neighbour, Neighbours, is_client
from plait.broker.machine.requests import Requests
from plait.broker.machine.steps import Steps
from plait.broker.messages import Claim, NodeKind, RefusalCode
from plait.routing.ids import NodeId, OperationId

AGAIN: Final = "refused, as before"
"""What is said once more of a claim after a rebuild, in a message that is on its way already."""


@attrs.define(eq=False)
class Newcomer:
    """Somebody who has asked to join here, while all others are asked."""

    neighbour: Below
    join: OperationId
    claim: Claim
    since: float

    def gives_way_to(self, other: Claim) -> bool:
        """Whether another one who asks for the same name, elsewhere, is let in instead.

        An equal one may be the same, which has lost its connection: then this is what is left of
        its first attempt. Otherwise equals do not give way, and it may be that neither is let in.
        """
        if self.neighbour.is_cut:
            return other.incarnation >= self.claim.incarnation
        return _rank(other) > _rank(self.claim)


@attrs.frozen
class _Life:
    """Somebody who was here."""

    incarnation: int
    published: int
    """The number of its last publication."""
    taken: int
    """The last of its steps that was taken."""


class Names:
    """The names that one broker knows, and what it knows them by."""

    def __init__(
        self,
        node: NodeId,
        *,
        limits: Limits,
        neighbours: Neighbours,
        requests: Requests,
        steps: Steps,
        admit: Callable[[Newcomer, float], None],
        remove: Callable[[Below, str, float], None],
    ) -> None:
        """Begin with nobody here; `admit` lets somebody in, `remove` takes a neighbour out."""
        self._node = node
        self._limits = limits
        self._neighbours = neighbours
        self._requests = requests
        self._steps = steps
        self._admit = admit
        self._remove = remove
        self._newcomers: dict[NodeId, Newcomer] = {}
        self._past: dict[NodeId, _Life] = {}
        """Who was here and is gone: the last ones."""
        self.refused_before: Collection[OperationId] | None = None
        """When a step is taken again: the claims that it refused, and no others. Whom it let in is
        in the log as well: confirmations may come earlier than at first, as some come twice."""

    @property
    def remembered(self) -> int:
        """Of how many clients it is known how far they have published; some are gone."""
        return len(self._past) + sum(is_client(below) for below in self._neighbours.below.values())

    # --- at the door ------------------------------------------------------------------------

    def objection_to(
        self, node: NodeId, kind: NodeKind, incarnation: int, published: int
    ) -> str | None:
        """Why nobody is let in who greets like this; None if others may be asked."""
        if node == self._node:
            return named_like_a_broker(node, kind)
        known = self._neighbours.named(node)
        if known is not None and known.kind is not kind:
            return f"{node} is the name of a {known.kind} in this overlay"
        if isinstance(known, Below) and not known.has_joined:
            may_replace = known.is_cut or incarnation > known.incarnation
            return None if may_replace else f"{node} is just about to join {self._node}"
        if known is not None and not (isinstance(known, Below) and _is_absent(known)):
            return self._in_use(known)
        return self._objection_of_memory(node, kind, incarnation, published)

    def _in_use(self, known: Neighbour) -> str:
        if not isinstance(known, Below) or known.kind is NodeKind.BROKER:
            return named_like_a_broker(known.node, known.kind)
        return (
            f"the name {known.node} is taken by incarnation {known.incarnation}, which is at "
            f"{self._node}: wait until it has left, or choose another name"
        )

    def _objection_of_memory(
        self, node: NodeId, kind: NodeKind, incarnation: int, published: int
    ) -> str | None:
        """Whether others would take what it is going to publish for what they have already."""
        here = self._neighbours.below.get(node)
        life = _life_of(here) if here is not None else self._past.get(node)
        if life is None or kind is not NodeKind.CLIENT:
            return None
        if life.incarnation > incarnation:
            return (
                f"{node} was here as incarnation {life.incarnation}, and {incarnation} is older: "
                f"is this machine's clock behind?"
            )
        if life.incarnation == incarnation and life.published > published:
            return (
                f"{node} has published up to {life.published} in incarnation {incarnation}, and "
                f"would go on at {published + 1}: a new life takes a higher incarnation"
            )
        return None

    def left_off(self, node: NodeId, incarnation: int) -> tuple[int, int] | None:
        """What was the last publication, and the last step, of this life of a client that is gone.

        None if that is not known here: then nobody can tell what of it has been taken.
        """
        life = self._past.get(node)
        if life is None or life.incarnation != incarnation:
            return None
        return life.published, life.taken

    # --- where somebody wants to join -------------------------------------------------------

    def claim(self, neighbour: Below, join: OperationId, now: float) -> None:
        """Somebody wants to join here: ask all others, and let it in when nobody objects."""
        known = self._newcomers.get(neighbour.node)
        if known is not None and known.neighbour is neighbour:
            known.join = join  # after a rebuild it asks again
            return
        claim = Claim(
            operation=self._steps.new_operation(),
            node=neighbour.node,
            kind=neighbour.kind,
            incarnation=neighbour.incarnation,
            published=neighbour.published,
            broker=self._node,
        )
        self._newcomers[neighbour.node] = Newcomer(neighbour, join, claim, now)
        others = self._neighbours.other_brokers(neighbour)
        self._requests.pass_on(claim.operation, None, [(other, claim) for other in others], now)

    def admit_again(self, neighbour: Below, now: float) -> bool:
        """When a step is taken again that let somebody in: nobody objects, whoever is still asked.

        Returns whether anybody is; if not, the claim is forgotten, as are the confirmations.
        """
        newcomer = self._newcomers.pop(neighbour.node, None)
        if newcomer is not None:
            self._requests.call_off(newcomer.claim.operation)
            self._admit(newcomer, now)
        return newcomer is not None

    def advance(self, now: float) -> None:
        """At the end of a step: let those in whose claims everybody has confirmed."""
        if not self._newcomers or self.refused_before is not None:
            return
        for node, newcomer in list(self._newcomers.items()):
            if newcomer.claim.operation not in self._requests:
                del self._newcomers[node]
                self._admit(newcomer, now)

    def on_refuse(self, operation: OperationId, reason: str, now: float) -> None:
        """Somebody objects to a claim: to one of this broker's own, or to one that passed it."""
        pending = self._requests.call_off(operation)
        source = None if pending is None or pending.source is None else pending.source
        if source is not None:
            asking = self._neighbours.get(source)
            if asking is not None:
                self._requests.refuse(asking, operation, RefusalCode.NAME_TAKEN, reason)
        for newcomer in list(self._newcomers.values()):
            if newcomer.claim.operation == operation:
                self._turn_away(newcomer, reason, now)

    def _turn_away(self, newcomer: Newcomer, reason: str, now: float) -> None:
        del self._newcomers[newcomer.neighbour.node]
        self._requests.call_off(newcomer.claim.operation)
        self._requests.refuse(newcomer.neighbour, newcomer.join, RefusalCode.NAME_TAKEN, reason)
        self._remove(newcomer.neighbour, reason, now)

    # --- where others ask -------------------------------------------------------------------

    def on_claim(self, source: Neighbour, claim: Claim, now: float) -> None:
        """A broker asks whether somebody may join there: object, or ask on."""
        objection = self._objection_to_claim(claim)
        if objection is not None:
            self._steps.changes.refused.append(claim.operation)
            self._requests.call_off(claim.operation)
            self._requests.refuse(source, claim.operation, RefusalCode.NAME_TAKEN, objection)
            return
        self._make_room_for(claim, now)
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(claim.operation, source, [(other, claim) for other in others], now)

    def _objection_to_claim(self, claim: Claim) -> str | None:
        if self.refused_before is not None:
            return AGAIN if claim.operation in self.refused_before else None
        if claim.node == self._node:
            return named_like_a_broker(claim.node, claim.kind)
        here = self._neighbours.below.get(claim.node)
        if here is not None and here.has_joined:
            if here.kind is not claim.kind:
                return f"{claim.node} is the name of a {here.kind} in this overlay"
            if not _is_absent(here):
                return self._in_use(here)
        newcomer = self._newcomers.get(claim.node)
        if newcomer is not None and not newcomer.gives_way_to(claim):
            return f"the name {claim.node} is asked for at {self._node} at the same time"
        if here is None or here.has_joined:
            return self._objection_of_memory(
                claim.node, claim.kind, claim.incarnation, claim.published
            )
        return None

    def _make_room_for(self, claim: Claim, now: float) -> None:
        """Nobody here is called like that any more."""
        newcomer = self._newcomers.get(claim.node)
        if newcomer is not None:
            reason = f"the name {claim.node} is asked for at {claim.broker} at the same time"
            self._turn_away(newcomer, reason, now)
        here = self._neighbours.below.get(claim.node)
        if here is not None and here.has_joined and is_client(here):
            reason = f"replaced by incarnation {claim.incarnation}, which joins at {claim.broker}"
            self._remove(here, reason, now)

    # --- who goes ---------------------------------------------------------------------------

    def forget(self, gone: Below) -> None:
        """Somebody is no neighbour any more; for a while it is remembered who it was."""
        newcomer = self._newcomers.get(gone.node)
        if newcomer is not None and newcomer.neighbour is gone:
            del self._newcomers[gone.node]
            self._requests.call_off(newcomer.claim.operation)
        if is_client(gone) and gone.has_joined:
            self._past.pop(gone.node, None)
            self._past[gone.node] = _life_of(gone)
            if len(self._past) > self._limits.dropped_clients_max:
                del self._past[next(iter(self._past))]


def _life_of(client: Below) -> _Life:
    return _Life(client.incarnation, client.published + client.received.count, client.taken)


def named_like_a_broker(node: NodeId, kind: NodeKind) -> str:
    """Why somebody may not come, in words for it: a broker is called so."""
    if kind is NodeKind.BROKER:
        return f"the name {node} is taken by a broker of this overlay: choose another name"
    return f"{node} is the name of a broker in this overlay"


def _is_absent(known: Below) -> bool:
    """Whether it is a client whose connection has ended."""
    return is_client(known) and (known.is_cut or known.is_away)


def _rank(claim: Claim) -> tuple[bool, int]:
    """Of two who want to join under one name at the same time, the one with more is let in."""
    return claim.kind is NodeKind.BROKER, claim.incarnation
