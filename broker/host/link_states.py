"""A connection from its first byte to its last: what may be said when, and by whom.

Whoever dials says `Hello`, and waits. The answer is `Welcome`; or `AttachRequest`, and then it says
what it has of the broker that it wanted, and waits on; or where to look instead. From then on the
state of the connection is the role of who is at its other end. `LEGAL` says which types of message
such a one may send, `CONDITIONS` what these may say: a client speaks of itself alone, a monitor
only asks, and what hosts know of each other only hosts tell. Everything else breaks the protocol:
the connection is closed with a reason that names the message and the state, and nothing else
happens.

Whether a broker is what it says no rule can tell that reads its messages.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from plait.broker.errors import RemoteProtocolError
from plait.broker.limits import ERAS_MAX
from plait.broker.messages import (
    Acknowledge,
    Advertise,
    Announce,
    Announced,
    Attach,
    AttachRequest,
    AttachTables,
    Begun,
    Claim,
    Confirm,
    Defer,
    EndOfStep,
    Entrust,
    Errand,
    Flag,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Introduce,
    Join,
    Leave,
    Message,
    NodeKind,
    PlacesRequest,
    Probe,
    ProbeReply,
    Progress,
    Publish,
    Rank,
    Recall,
    Refuse,
    Relocate,
    Relocated,
    Seating,
    Settled,
    Stamped,
    StampReply,
    StampRequest,
    StatusRequest,
    Subscribe,
    Turns,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId, asker_of, owner_of


class LinkState(enum.StrEnum):
    """What this end of a connection waits for, or knows the other to be."""

    AWAITING_HELLO = "awaiting hello"
    """It was dialled, and may have greeted: whether the broker is played here is not known yet."""
    AWAITING_WELCOME = "awaiting welcome"
    """This end has dialled, and greeted."""
    ATTACHING = "attaching"
    """And was asked to say what it has of the broker."""
    ATTACHED = "attached"
    """The other end was asked that: it says what it has, and waits until the broker is played."""
    TO_BROKER = "to broker"
    TO_CLIENT = "to client"
    TO_MONITOR = "to monitor"
    TO_HOST = "to host"
    """One that stands by, or only asks something: no link of the tree."""


@attrs.frozen(kw_only=True)
class Speaker:
    """Who speaks on a connection, and to whom."""

    here: NodeId
    """Whom it speaks to; empty if that is not known yet."""
    node: NodeId
    """Its name; empty before it has said who it is, and of a monitor."""
    incarnation: int
    """Of a client, or of the host of a broker."""
    kind: NodeKind | None = None
    """As what it has greeted, if it has."""
    is_above: bool = False
    """Whether it is the parent."""
    step: int = 0
    """Of its last batch on this connection."""


Condition = Callable[[Speaker, Any], str | None]
"""What is wrong with a message of somebody; None if nothing is."""

FAREWELLS: Final = frozenset(
    {GoodbyeCode.LEFT, GoodbyeCode.SHUTTING_DOWN, GoodbyeCode.PROTOCOL, GoodbyeCode.TIMEOUT}
)
"""Why anybody may go. All other codes are what hosts tell each other, or their clients."""

FORBIDDEN_TO_CLIENTS: Final = ~(Flag.UNORDERED | Flag.URGENT)
"""All that a publisher may not ask for: flags that go from hop to hop."""
FORBIDDEN_FROM_ABOVE: Final = Flag.AWAITED
"""A parent settles, and waits for no child."""

_REQUESTS: Final = frozenset({Join, Leave, Advertise, Unadvertise, Subscribe, Unsubscribe, Rank})
IN_BATCHES: Final = _REQUESTS | {
    *(Publish, Settled, Acknowledge, Defer, PlacesRequest, Turns),
    *(Stamped, Recall, Entrust, StampRequest, StampReply, Begun, Errand),
    *(Confirm, Refuse, Claim, Introduce),
}
"""What batches between brokers are made of."""
_ALWAYS: Final = frozenset({Heartbeat, Goodbye})
_ANSWERS: Final = frozenset({Welcome, AttachRequest, Seating})
_BETWEEN_HOSTS: Final = frozenset({Seating, Probe, ProbeReply, Relocate, Relocated})
_OF_WHAT_WAS_GIVEN_UP: Final = frozenset({AttachRequest, Attach, AttachTables})

LEGAL: Final[Mapping[LinkState, frozenset[type[Message]]]] = {
    LinkState.AWAITING_HELLO: _ALWAYS | {Hello},
    LinkState.AWAITING_WELCOME: _ALWAYS | _ANSWERS,
    LinkState.ATTACHING: _ALWAYS | _ANSWERS,
    LinkState.ATTACHED: _ALWAYS | IN_BATCHES | {Attach, AttachTables},
    LinkState.TO_BROKER: _ALWAYS
    | IN_BATCHES
    | _BETWEEN_HOSTS
    | {EndOfStep, Progress, Announce, Announced},
    LinkState.TO_CLIENT: _ALWAYS | _REQUESTS | {Publish, EndOfStep, Progress},
    LinkState.TO_MONITOR: _ALWAYS | {StatusRequest, Relocate},
    LinkState.TO_HOST: _ALWAYS | _BETWEEN_HOSTS | _OF_WHAT_WAS_GIVEN_UP,
}


def require_legal(state: LinkState, speaker: Speaker, message: Message) -> None:
    """Raise `RemoteProtocolError` if this may not be said by this one, or not now."""
    kind = type(message)
    if kind not in LEGAL[state]:
        raise RemoteProtocolError(
            f"{kind.__name__} is not expected on a connection in state '{state}'"
        )
    condition = CONDITIONS[state].get(kind)
    objection = None if condition is None else condition(speaker, message)
    if objection is not None:
        raise RemoteProtocolError(f"{kind.__name__}: {objection}")


def is_usual_end(state: LinkState, step: int, message: Message) -> bool:
    """Whether this ends a batch after that step, as it may: asked first, for that is most often so.

    Of what is not, `require_legal` says why, or that it may be said all the same.
    """
    return (
        type(message) is EndOfStep
        and message.step > step
        and (state is LinkState.TO_BROKER or (state is LinkState.TO_CLIENT and not message.logs))
    )


# Greetings


def _greets_as_what_it_is(speaker: Speaker, hello: Hello) -> str | None:
    if speaker.node:
        return f"{speaker.node} has greeted already"
    who = f"the {hello.kind} {hello.node}"
    is_process = hello.kind in (NodeKind.BROKER, NodeKind.HOST)
    if is_process != bool(hello.address):
        return f"{who} greets with the address '{hello.address}'"
    if hello.kind is not NodeKind.BROKER and hello.host != hello.node:
        return f"{who} greets as the host {hello.host}"
    if hello.kind is not NodeKind.BROKER and hello.term:
        return f"{who} greets in term {hello.term}, which only a broker has"
    if hello.era > ERAS_MAX:
        return f"era {hello.era} of {hello.node}, at most {ERAS_MAX} allowed"
    asks = hello.to or hello.taken or hello.known_term
    if hello.kind in (NodeKind.HOST, NodeKind.MONITOR) and asks:
        return f"{who} asks for a place in the tree"
    return None


def _welcomes_with_what_can_be(speaker: Speaker, welcome: Welcome) -> str | None:
    if welcome.era > ERAS_MAX:
        return f"era {welcome.era} of {welcome.node}, at most {ERAS_MAX} allowed"
    return "by this very node" if welcome.node == speaker.here else None


def _goes_as_anybody_may(_: Speaker, goodbye: Goodbye) -> str | None:
    if goodbye.code in FAREWELLS:
        return None
    return f"code '{goodbye.code}' of somebody who is no broker"


# What goes on between neighbours


def _grows(speaker: Speaker, end: EndOfStep) -> str | None:
    if end.step > speaker.step:
        return None
    return f"step {end.step} after step {speaker.step}"


def _ends_own_step(speaker: Speaker, end: EndOfStep) -> str | None:
    if end.logs:
        return f"logs of {speaker.node}, which is no broker"
    return _grows(speaker, end)


def _counts_its_own(speaker: Speaker, progress: Progress) -> str | None:
    return f"logs of {speaker.node}, which is no broker" if progress.logs else None


def _is_asked_by_itself(speaker: Speaker, request: Any) -> str | None:
    """Nobody else can begin an operation of this name, or confuse whose it is."""
    asker = asker_of(request.operation)
    return None if asker == speaker.node else f"{request.operation}, asked by {speaker.node}"


def _is_own(name: AdvertisementId | SubscriptionId, speaker: Speaker, request: Any) -> str | None:
    owner = owner_of(name)
    if owner != speaker.node:
        return f"{name}, which does not belong to {speaker.node}"
    return _is_asked_by_itself(speaker, request)


def _is_own_advertisement(speaker: Speaker, request: Advertise | Unadvertise) -> str | None:
    return _is_own(request.advertisement, speaker, request)


def _is_own_subscription(speaker: Speaker, request: Subscribe | Unsubscribe) -> str | None:
    return _is_own(request.subscription, speaker, request)


def _leaves_itself(speaker: Speaker, leave: Leave) -> str | None:
    if leave.node != speaker.node:
        return f"of {leave.node}, by {speaker.node}"
    return _is_asked_by_itself(speaker, leave)


def _publishes_its_own(speaker: Speaker, publication: Publish) -> str | None:
    if (publication.publisher, publication.incarnation) != (speaker.node, speaker.incarnation):
        return (
            f"of {publication.publisher}, incarnation {publication.incarnation}, "
            f"by {speaker.node}, incarnation {speaker.incarnation}"
        )
    forbidden = publication.flags & FORBIDDEN_TO_CLIENTS
    return f"flags {publication.flags}, which no client may set" if forbidden else None


def _settles_above(speaker: Speaker, publication: Publish) -> str | None:
    if speaker.is_above and publication.flags & FORBIDDEN_FROM_ABOVE:
        return f"flags {publication.flags} of the parent, which waits for nobody"
    return None


def _comes_by(speaker: Speaker, request: Advertise | Subscribe) -> str | None:
    """What a broker tells of others came by that broker, and is theirs."""
    if request.path[-1:] != (speaker.node,):
        return f"by {request.path}, expected to come by {speaker.node}"
    name = request.advertisement if isinstance(request, Advertise) else request.subscription
    if owner_of(name) != request.client:
        return f"{speaker.node} says that {name} is {request.client}'s"
    return None


def _comes_from_below(speaker: Speaker, _: Join) -> str | None:
    return f"by {speaker.node}, the parent" if speaker.is_above else None


def _leaves_from_below(speaker: Speaker, leave: Leave) -> str | None:
    if speaker.is_above or leave.node != speaker.node:
        return f"of {leave.node}, by {speaker.node}"
    return None


# What is attached


def _attaches_itself(speaker: Speaker, attach: Attach) -> str | None:
    if (attach.node, attach.to) != (speaker.node, speaker.here):
        return f"of {attach.node} to {attach.to}, by {speaker.node} to {speaker.here}"
    if speaker.kind not in (None, attach.kind):
        return f"the {speaker.kind} {speaker.node} attaches as a {attach.kind}"
    if attach.kind is NodeKind.CLIENT and attach.incarnation != speaker.incarnation:
        return f"incarnation {attach.incarnation} of {attach.node}, now {speaker.incarnation}"
    return None


def _testifies(_: Speaker, attach: Attach) -> str | None:
    """A host has no streams, and speaks of what it has played itself."""
    if attach.node == attach.to and not (attach.sent_steps or attach.received_steps):
        return None
    return f"of {attach.node} to {attach.to}, by a host"


def _attaches_what_can_be(speaker: Speaker, tables: AttachTables) -> str | None:
    if tables.era <= ERAS_MAX:
        return None
    return f"era {tables.era} of {speaker.node}, at most {ERAS_MAX} allowed"


CONDITIONS: Final[Mapping[LinkState, Mapping[type[Message], Condition]]] = {
    LinkState.AWAITING_HELLO: {Hello: _greets_as_what_it_is},
    LinkState.AWAITING_WELCOME: {Welcome: _welcomes_with_what_can_be},
    LinkState.ATTACHING: {Welcome: _welcomes_with_what_can_be},
    LinkState.ATTACHED: {Attach: _attaches_itself, AttachTables: _attaches_what_can_be},
    LinkState.TO_BROKER: {
        EndOfStep: _grows,
        Publish: _settles_above,
        Advertise: _comes_by,
        Subscribe: _comes_by,
        Join: _comes_from_below,
        Leave: _leaves_from_below,
    },
    LinkState.TO_CLIENT: {
        EndOfStep: _ends_own_step,
        Progress: _counts_its_own,
        Publish: _publishes_its_own,
        Advertise: _is_own_advertisement,
        Unadvertise: _is_own_advertisement,
        Subscribe: _is_own_subscription,
        Unsubscribe: _is_own_subscription,
        Join: _is_asked_by_itself,
        Rank: _is_asked_by_itself,
        Leave: _leaves_itself,
        Goodbye: _goes_as_anybody_may,
    },
    LinkState.TO_MONITOR: {Goodbye: _goes_as_anybody_may},
    LinkState.TO_HOST: {Attach: _testifies, AttachTables: _attaches_what_can_be},
}
"""On what condition a message is legal that `LEGAL` has."""
UNCONDITIONAL: Final[Mapping[LinkState, frozenset[type[Message]]]] = {
    state: legal - CONDITIONS[state].keys() for state, legal in LEGAL.items()
}
"""What is legal whoever says it: most of what is said."""
