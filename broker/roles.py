"""What a role may say, and on what condition.

Which types of message are expected of a peer is `LEGAL`, in `broker/link_states.py`. Here is what a
message of such a type may say there: a client speaks of itself alone, a monitor only asks, and only
brokers tell each other who has come, gone and failed. Whoever says more breaks the protocol.

Whether a broker is what it says no rule can tell that reads its messages.
"""

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from broker.errors import RemoteProtocolError
from broker.limits import MOVES_MAX
from broker.link_states import LEGAL, LinkState
from broker.messages import (
    Adopt,
    Advertise,
    Attach,
    Flag,
    Goodbye,
    GoodbyeCode,
    Hello,
    Join,
    Leave,
    Message,
    Moved,
    NodeKind,
    Prepare,
    Subscribe,
    Welcome,
)
from faulttol.neighbourhood import TopologyLink
from routing.ids import NodeId


@attrs.frozen(kw_only=True)
class Speaker:
    """Who speaks on a link, and to whom."""

    here: NodeId
    """Whom it speaks to."""
    delta: int
    node: NodeId
    """Its name; empty before it has said who it is, and of a monitor."""
    incarnation: int


Condition = Callable[[Speaker, Message], str | None]
"""What is wrong with a message of somebody; None if nothing is."""

FAREWELLS: Final = frozenset(
    {GoodbyeCode.LEFT, GoodbyeCode.SHUTTING_DOWN, GoodbyeCode.PROTOCOL, GoodbyeCode.TIMEOUT}
)
"""Why anybody may go. All other codes are what brokers tell each other, or their clients."""

CLIENT_FLAGS: Final = Flag.UNORDERED | Flag.URGENT
"""What a publisher may ask for."""
_BEHIND_ATTACH: Final = Flag.NOTICE | Flag.ACKNOWLEDGED

FORBIDDEN_TO_CLIENTS: Final = ~CLIENT_FLAGS
"""Flags that go from hop to hop, and the place that the root gives."""
FORBIDDEN_FROM_BELOW: Final = _BEHIND_ATTACH
FORBIDDEN_FROM_ABOVE: Final = _BEHIND_ATTACH | Flag.AWAITED
"""A parent settles, and waits for no child."""


def condition_of(state: LinkState, kind: type[Message]) -> Condition | None:
    """On what condition this type of message is legal, if on any; it may not be legal at all."""
    if kind not in LEGAL[state]:
        raise RemoteProtocolError(f"{kind.__name__} is not expected on a link in state '{state}'")
    return CONDITIONS[state].get(kind)


def require(condition: Condition, speaker: Speaker, message: Message) -> None:
    """Raise `RemoteProtocolError` if the speaker may not say this."""
    objection = condition(speaker, message)
    if objection is not None:
        raise RemoteProtocolError(f"{type(message).__name__}: {objection}")


def _greets_as_what_it_is(_: Speaker, hello: Message) -> str | None:
    assert isinstance(hello, Hello)
    if hello.kind is NodeKind.BROKER:
        return None if hello.address else f"the broker {hello.node} does not say where it listens"
    if hello.kind is NodeKind.HOST:
        return f"{hello.node} greets as a host, which has no place in the tree"
    if hello.address or hello.is_top:
        return f"the {hello.kind} {hello.node} greets as only a broker may (address, is_top)"
    asks = hello.failed or hello.peer or hello.expected or hello.is_moving
    if hello.kind is NodeKind.MONITOR and asks:
        return f"the monitor {hello.node} asks for a place in the tree"
    return None


def _welcomes_with_what_can_be(speaker: Speaker, welcome: Message) -> str | None:
    assert isinstance(welcome, Welcome)
    return "by this very node" if welcome.node == speaker.here else None


def _goes_as_anybody_may(_: Speaker, goodbye: Message) -> str | None:
    assert isinstance(goodbye, Goodbye)
    if goodbye.code in FAREWELLS:
        return None
    return f"code '{goodbye.code}' of somebody who is no broker"


def _is_about_itself(speaker: Speaker, told: Message) -> str | None:
    """Joining and leaving are a client's own affair, at its own broker."""
    assert isinstance(told, Join | Leave)
    if told.distance:
        return f"{speaker.node} is no broker and speaks from a distance of {told.distance}"
    if isinstance(told, Leave):
        return None
    link = told.link
    return _of_client(speaker, link)


def _of_client(speaker: Speaker, link: TopologyLink) -> str | None:
    """A client has one place, and nobody looks for it there."""
    own = (link.child, link.incarnation, link.kind, link.address, link.standby)
    if own == (speaker.node, speaker.incarnation, NodeKind.CLIENT.value, "", 0):
        return None if link.moves <= MOVES_MAX else f"{link.moves} moves, at most {MOVES_MAX}"
    return (
        f"{link.kind} {link.child}, incarnation {link.incarnation}, at '{link.address}', "
        f"standby {link.standby}; the client {speaker.node}, incarnation {speaker.incarnation}, "
        "without an address expected"
    )


def _is_from_below(speaker: Speaker, told: Message) -> str | None:
    assert isinstance(told, Join | Leave)
    if told.distance > speaker.delta:
        return f"distance {told.distance}, at most {speaker.delta} expected"
    if (
        isinstance(told, Join)
        and told.distance == 0
        and told.link.incarnation != speaker.incarnation
    ):
        return (
            f"{speaker.node} joins as incarnation {told.link.incarnation}, "
            f"{speaker.incarnation} expected"
        )
    return None


def _is_from_above(speaker: Speaker, told: Message) -> str | None:
    assert isinstance(told, Join | Leave)
    if 1 <= told.distance <= speaker.delta:
        return None
    return f"distance {told.distance} of a parent, 1 to {speaker.delta} expected"


def _is_own_claim(speaker: Speaker, claim: Message) -> str | None:
    """What a client brings along is its own."""
    assert isinstance(claim, Advertise | Subscribe)
    if claim.client == speaker.node and claim.path == (speaker.node,):
        return None
    return f"of {claim.client}, by {claim.path}; of {speaker.node} itself expected"


def _comes_by(speaker: Speaker, claim: Message) -> str | None:
    """What a broker brings along came by that broker."""
    assert isinstance(claim, Advertise | Subscribe)
    if claim.path[-1:] == (speaker.node,):
        return None
    return f"by {claim.path}, expected to come by {speaker.node}"


def _tells_of_itself(speaker: Speaker, attach: Message) -> str | None:
    """A client knows its own place, and no other."""
    assert isinstance(attach, Attach)
    return next(filter(None, (_of_client(speaker, link) for link in attach.links)), None)


def _is_meant_for(speaker: Speaker, move: Message) -> str | None:
    """Who is moved is told of its own place."""
    assert isinstance(move, Moved | Prepare)
    child = move.link.child
    return None if child == speaker.here else f"of {child}, told to {speaker.here}"


def _is_somebody_else(speaker: Speaker, adopt: Message) -> str | None:
    assert isinstance(adopt, Adopt)
    child, kind = adopt.link.child, adopt.link.kind
    if kind not in (NodeKind.BROKER, NodeKind.CLIENT):
        return f"{child} is said to be a '{kind}', broker or client expected"
    return f"of {child} itself" if child == speaker.here else None


_OF_CLIENT: Final[Mapping[type[Message], Condition]] = {
    Join: _is_about_itself,
    Leave: _is_about_itself,
    Goodbye: _goes_as_anybody_may,
}

CONDITIONS: Final[Mapping[LinkState, Mapping[type[Message], Condition]]] = {
    LinkState.AWAITING_HELLO: {Hello: _greets_as_what_it_is},
    LinkState.AWAITING_WELCOME: {Welcome: _welcomes_with_what_can_be, Moved: _is_meant_for},
    LinkState.AWAITING_SIGN_OF_LIFE: {},
    LinkState.TO_PARENT: {
        Join: _is_from_above,
        Leave: _is_from_above,
        Adopt: _is_somebody_else,
        Prepare: _is_meant_for,
        Moved: _is_meant_for,
    },
    LinkState.TO_CHILD: {Join: _is_from_below, Leave: _is_from_below},
    LinkState.TO_CLIENT: _OF_CLIENT,
    LinkState.TO_ORPHAN: {
        Join: _is_from_below,
        Leave: _is_from_below,
        Advertise: _comes_by,
        Subscribe: _comes_by,
    },
    LinkState.TO_ORPHANED_CLIENT: {
        **_OF_CLIENT,
        Advertise: _is_own_claim,
        Subscribe: _is_own_claim,
        Attach: _tells_of_itself,
    },
    LinkState.TO_MONITOR: {Goodbye: _goes_as_anybody_may},
}
"""On what condition a message is legal that `LEGAL` has."""
