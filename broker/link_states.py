"""A link from its first byte to its last: which messages are legal when.

A node that dials says `Hello` and waits for `Welcome`; a node that is dialled waits for `Hello` and
answers `Welcome`, or lets the other hear that it lives until it can. (Who dials only to `Summon`
says just that, and waits for `Present`.) From then on the link's state is the role of the peer, and
the role says what the peer may send: here, which types of message, and in `broker/roles.py`, on
what condition. Everything else breaks the protocol: the link is closed with a
reason that names the message and the state, and nothing else happens.
"""

import enum
from typing import Final

from broker.errors import RemoteProtocolError
from broker.limits import Limits
from broker.messages import (
    Acknowledge,
    Adopt,
    Adopted,
    Advertise,
    Attach,
    Claim,
    Confirm,
    Defer,
    Goodbye,
    Heartbeat,
    Hello,
    Join,
    Known,
    Leave,
    Message,
    Moved,
    Neighbourhood,
    Pause,
    Placed,
    PlacesReply,
    PlacesRequest,
    Prepare,
    Prepared,
    Present,
    Progress,
    Publish,
    Refuse,
    Resume,
    Settled,
    StatusReply,
    StatusRequest,
    Subscribe,
    Summon,
    Top,
    Unadvertise,
    Unsubscribe,
    Welcome,
    Withdraw,
)


class LinkState(enum.StrEnum):
    """What this end of a link waits for, or knows the peer to be."""

    AWAITING_HELLO = "awaiting hello"
    AWAITING_WELCOME = "awaiting welcome"
    AWAITING_SIGN_OF_LIFE = "awaiting sign of life"
    TO_PARENT = "to parent"
    TO_CHILD = "to child"
    TO_CLIENT = "to client"
    TO_MONITOR = "to monitor"
    TO_ORPHAN = "to orphan"
    TO_ORPHANED_CLIENT = "to orphaned client"


_OWN_OPERATIONS: Final = frozenset({Join, Leave, Advertise, Unadvertise, Subscribe, Unsubscribe})
_OPERATIONS: Final = _OWN_OPERATIONS | {Withdraw}
_TRAFFIC: Final = frozenset({Publish, Progress, Confirm, Heartbeat, Goodbye})
_BETWEEN_BROKERS: Final = frozenset({Claim, Refuse, Acknowledge, Defer, Placed})

LEGAL: Final[dict[LinkState, frozenset[type[Message]]]] = {
    LinkState.AWAITING_HELLO: frozenset({Hello, Summon}),
    # Whoever has been asked for a place may know better where it is.
    LinkState.AWAITING_WELCOME: frozenset({Welcome, Heartbeat, Goodbye, Moved, Summon}),
    # Before it says that it lives, it may say where, and what it knows.
    LinkState.AWAITING_SIGN_OF_LIFE: frozenset({Present, Summon}),
    LinkState.TO_PARENT: _OPERATIONS
    | _TRAFFIC
    | _BETWEEN_BROKERS
    | {Neighbourhood, PlacesReply, Settled, Summon, Top}
    | {Pause, Prepare, Adopt, Moved, Resume},
    LinkState.TO_CHILD: _OPERATIONS
    | _TRAFFIC
    | _BETWEEN_BROKERS
    | {Known, Neighbourhood, PlacesRequest, Prepared, Adopted},
    LinkState.TO_CLIENT: _OWN_OPERATIONS | _TRAFFIC | {Prepared},
    # An orphan speaks as a child or a client does, but is heard only when the tree is re-formed.
    LinkState.TO_ORPHAN: _OPERATIONS | _TRAFFIC | {Claim, Refuse, Neighbourhood, Attach},
    LinkState.TO_ORPHANED_CLIENT: _OWN_OPERATIONS | _TRAFFIC | {Prepared, Attach},
    LinkState.TO_MONITOR: frozenset({StatusRequest, Heartbeat, Goodbye}),
}


def with_heartbeats_of(welcome: Welcome, limits: Limits) -> Limits:
    """Return the limits of a node that joins where it has been welcomed like this."""
    try:
        return limits.with_heartbeats(welcome.heartbeat_interval_ms, welcome.heartbeat_timeout_ms)
    except ValueError as error:
        raise RemoteProtocolError(f"Welcome: {error}") from error


assert all(StatusReply not in legal for legal in LEGAL.values()), "only monitors get replies"
