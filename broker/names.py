"""Who may be called what, everywhere in the overlay.

A name is one node, and of a client one life at a time: publications are known by their publisher,
its incarnation and their number, and what is known already is taken for a duplicate. So nobody is
let in whose publications would be: an older life than one that has been seen, or the same life,
counting from the beginning once more.

Nobody keeps a list of all names. Each broker knows its own neighbours and whose publications it
has seen, and whoever wants to join is a *claim* (`Claim`), which goes to all brokers, as an
advertisement does: the one who joins is let in when all of them have confirmed. Who objects
refuses, which goes back to where the claim came from. Two claims of one name meet wherever they
have both been, and the later life wins.

A name is in use while its client is connected. Then no later life takes it away: whoever has the
name of somebody who is there is refused, and told where that is. A client whose connection is lost
may come back for a while; if a later life of it comes first, wherever that may be, it takes its
place, and the older one is refused when it comes.

Whoever goes on with a session has to know its secret, which `Welcome` has given to the client when
it began. The broker keeps a digest of it, which goes with the link of the client (`TopologyLink`):
to the neighbours, one of which may have to take the session over, and to whom the client is moved.
"""

import hmac
from collections.abc import Collection
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import attrs

from broker.effects import Level
from broker.messages import Claim, Hello, Join, NodeKind, RefusalCode
from broker.neighbours import Below, Neighbour, is_client
from routing.ids import NodeId, OperationId

if TYPE_CHECKING:
    from broker.core import BrokerCore


SECRET_CHARS: Final = 32
"""Hexadecimal digits: 128 bits, which nobody guesses."""


@attrs.define(eq=False)
class _Newcomer:
    """Somebody who has come here to join, while all others are asked."""

    neighbour: Below
    join: Join
    claim: Claim

    def gives_way_to(self, other: Claim) -> bool:
        """Whether another one who asks for the same name, elsewhere, is let in instead.

        An equal one may be the same, which has lost its connection: then this is what is left of
        its first attempt. Otherwise equals do not give way, and it may be that neither is let in.
        """
        if self.neighbour.link is None:
            return other.incarnation >= self.claim.incarnation
        return _rank(other) > _rank(self.claim)


def digest_of(secret: str) -> str:
    """What may be told to other brokers of the secret of a session."""
    return sha256(secret.encode()).hexdigest() if secret else ""


class Names:
    """The names that one broker knows, and what it knows them by."""

    def __init__(self, core: "BrokerCore", *, wall_clock_ms: int, entropy: bytes) -> None:
        """Begin when the clock on the wall shows this; secrets are derived from the entropy."""
        self._core = core
        self._entropy = entropy
        self._secrets = 0
        self._wall_clock_ms = wall_clock_ms
        self._newcomers: dict[NodeId, _Newcomer] = {}
        """Of each name the one who has asked last; all of them have connections here."""

    # --- at the door ------------------------------------------------------------------------

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
            return self._objection_of_memory(hello.node, hello.incarnation, hello.past.published)
        return None

    def new_secret(self) -> str:
        """For a session that begins: nobody can tell it from others, or guess it."""
        self._secrets += 1
        counted = f"{self._core.node}#{self._core.incarnation}.{self._secrets}".encode()
        return hmac.new(self._entropy, counted, sha256).hexdigest()[:SECRET_CHARS]

    def knows_secret(self, hello: Hello, known: Below | None) -> bool:
        """Whether somebody may go on with a session that is here, or comes to be here."""
        link = self._core.neighbourhood.link_of(hello.node)
        if known is not None:
            key = known.key
        elif link is not None and link.incarnation == hello.incarnation:
            key = link.key
        else:
            return True  # nobody has a session of that name here
        return not key or hmac.compare_digest(key, digest_of(hello.past.secret))

    def may_replace(self, known: Below, incarnation: int) -> bool:
        """Whether somebody who greets like this takes the place of the one that is known here."""
        if is_client(known) and known.has_joined:
            return known.link is None and incarnation >= known.incarnation
        return incarnation > known.incarnation

    def in_use(self, known: Below) -> str:
        """What is said to whoever has the name of this neighbour."""
        return (
            f"the name {known.node} is taken by incarnation {known.incarnation}, which is at "
            f"{self._core.node}: wait until it has left, or choose another name"
        )

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
        core = self._core
        last_incarnation, last_seq = core.publications.latest_of(node)
        link = core.neighbourhood.link_of(node)
        last_life = max(last_incarnation, link.incarnation if link is not None else 0)
        if last_life > incarnation:
            return (
                f"{node} was here as incarnation {last_life}, and {incarnation} is older: "
                f"is this machine's clock behind?"
            )
        if last_incarnation == incarnation and last_seq > published:
            return (
                f"{node} has published up to {last_seq} in incarnation {incarnation}, and would "
                f"go on at {published + 1}: a new life takes a higher incarnation"
            )
        return None

    # --- where somebody wants to join -----------------------------------------------------------

    def claim(self, neighbour: Below, join: Join) -> None:
        """Somebody wants to join here: ask all others, and let it in when nobody objects."""
        core = self._core
        newcomer = self._newcomers.get(neighbour.node)
        if newcomer is not None and newcomer.neighbour is neighbour:
            newcomer.join = join  # on a new connection it asks again
            return
        if neighbour.is_branch:
            core.admit(neighbour, join)  # all who are behind it have their names already
            return
        claim = Claim(
            operation=core.requests.new_operation(),
            node=neighbour.node,
            kind=neighbour.kind,
            incarnation=neighbour.incarnation,
            published=neighbour.published,
            broker=core.node,
        )
        self._newcomers[neighbour.node] = _Newcomer(neighbour, join, claim)
        others = core.neighbours.other_brokers(neighbour)
        core.requests.pass_on(claim.operation, None, [(n, claim) for n in others], core.now)
        self.advance()

    def advance(self) -> None:
        """Let those in to whom nobody has objected."""
        core = self._core
        if not self._newcomers or core.moving.is_paused or core.moving.is_asking:
            return
        for node, newcomer in list(self._newcomers.items()):
            neighbour = newcomer.neighbour
            if core.neighbours.below.get(node) is not neighbour:
                del self._newcomers[node]  # it is gone, or has begun once more
            elif neighbour.link is None or core.requests.are_under_way([newcomer.claim.operation]):
                continue
            else:
                del self._newcomers[node]
                core.admit(neighbour, newcomer.join)

    def on_refused(self, operation: OperationId, reason: str) -> None:
        """Somebody objects to one who wants to join here."""
        for node, newcomer in list(self._newcomers.items()):
            if newcomer.claim.operation == operation:
                del self._newcomers[node]
                if self._core.neighbours.below.get(node) is newcomer.neighbour:
                    self._core.turn_away(newcomer.neighbour, reason)

    # --- where others ask -------------------------------------------------------------------------

    def on_claim(self, source: Neighbour, claim: Claim) -> None:
        """A broker asks whether somebody may join there: object, or ask on."""
        core = self._core
        objection = self._objection_to_claim(claim)
        if objection is not None:
            self._say_no(claim, objection)
            core.requests.refuse(source, claim.operation, RefusalCode.NAME_TAKEN, objection)
            return
        self._make_room_for(claim)
        others = core.neighbours.other_brokers(source)
        core.requests.pass_on(claim.operation, source, [(n, claim) for n in others], core.now)

    def on_adopted(self, nodes: Collection[NodeId]) -> None:
        """These have come from a broker that has failed, whom nobody could ask any more."""
        core = self._core
        for claim in core.requests.claims():
            if claim.node in nodes:
                objection = self.in_use(core.neighbours.below[claim.node])
                self._say_no(claim, objection)
                if core.requests.call_off(claim.operation, RefusalCode.NAME_TAKEN, objection):
                    self.on_refused(claim.operation, objection)

    def _say_no(self, claim: Claim, objection: str) -> None:
        self._core.outbox.log(
            Level.WARNING, "name refused", peer=claim.node, at=claim.broker, reason=objection
        )

    def _objection_to_claim(self, claim: Claim) -> str | None:
        core = self._core
        if claim.node == core.node:
            return f"{claim.node} is the name of a broker in this overlay, which is there"
        here = core.neighbours.below.get(claim.node)
        if here is not None and here.has_joined and here.kind is not claim.kind:
            return f"{claim.node} is the name of a {here.kind} in this overlay"
        newcomer = self._newcomers.get(claim.node)
        if newcomer is not None and newcomer.claim != claim and not newcomer.gives_way_to(claim):
            return f"the name {claim.node} is asked for at {core.node} at the same time"
        if claim.kind is not NodeKind.CLIENT:
            return None
        objection = self._objection_of_memory(claim.node, claim.incarnation, claim.published)
        if objection is not None:
            return objection
        is_there = here is not None and here.has_joined and here.link is not None
        if here is not None and (is_there or core.moving.is_undecided(claim.node)):
            return self.in_use(here)
        if core.reforming.has_orphan(claim.node):
            return f"{claim.node} is being moved to {core.node}, as its broker has failed"
        return None

    def _make_room_for(self, claim: Claim) -> None:
        """Nobody here is called like that any more."""
        core = self._core
        newcomer = self._newcomers.get(claim.node)
        if newcomer is not None and newcomer.claim != claim:
            reason = f"the name {claim.node} is asked for at {claim.broker} at the same time"
            core.requests.call_off(newcomer.claim.operation, RefusalCode.NAME_TAKEN, reason)
            self.on_refused(newcomer.claim.operation, reason)
        if claim.kind is not NodeKind.CLIENT:
            return
        here = core.neighbours.below.get(claim.node)
        if here is not None and here.has_joined:
            reason = f"replaced by incarnation {claim.incarnation}, which joins at {claim.broker}"
            core.drop(here, reason)


def _rank(claim: Claim) -> tuple[bool, int]:
    """Of two who want to join under one name at the same time, the one with more is let in."""
    return claim.kind is NodeKind.BROKER, claim.incarnation
