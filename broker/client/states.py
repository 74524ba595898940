"""Where a client stands: with its connection, with its session, and as its application sees it.

The *contact* is about one connection at a time: it is dialled, greeted, perhaps asked what this
client has of a broker that is being taken up (*attaching*), and then joins it to its broker.

The *session* outlives connections. It begins when a broker takes the client in, stands as long as
somebody plays that broker who knows the client, and is begun anew where nobody does.
"""

import enum
from collections.abc import Mapping
from typing import Final, TypeVar

from plait.broker.errors import LocalProtocolError
from plait.broker.messages import (
    AttachRequest,
    Begun,
    Confirm,
    EndOfStep,
    Goodbye,
    Heartbeat,
    Progress,
    Publish,
    Refuse,
    Revoke,
    Seating,
    Stamped,
    Welcome,
)


class ClientState(enum.StrEnum):
    """Where a client stands with its overlay."""

    CONNECTING = "connecting"
    READY = "ready"
    RECONNECTING = "reconnecting"
    LEAVING = "leaving"
    CLOSED = "closed"


class Contact(enum.StrEnum):
    """Where the connection stands."""

    APART = "apart"
    DIALLING = "dialling"
    GREETING = "greeting"
    ATTACHING = "attaching"
    CONNECTED = "connected"


class ContactEvent(enum.StrEnum):
    """What happens with a connection."""

    DIALLED = "dialled"
    FAILED = "failed"
    OPENED = "opened"
    ASKED_TO_ATTACH = "asked to attach"
    WELCOMED = "welcomed"
    LOST = "lost"


class Session(enum.StrEnum):
    """Where the session stands."""

    NONE = "none"
    JOINING = "joining"
    """For the first time: nothing was installed before."""
    STANDING = "standing"
    REJOINING = "rejoining"
    """Nobody knows this client any more."""
    RESTORING = "restoring"
    """What it had advertised is being installed again; until then nothing may be published."""
    LEAVING = "leaving"
    """It stays until everything is stable that it has to do with."""
    PARTING = "parting"
    """The broker is asked to confirm that it has left."""
    OVER = "over"


class SessionEvent(enum.StrEnum):
    """What happens with a session."""

    BEGUN = "begun"
    """A broker has welcomed somebody whom it does not know."""
    JOINED = "joined"
    RESTORED = "restored"
    LEFT = "left"
    """By its own wish."""
    SETTLED = "settled"
    """Everything is stable that it has to do with."""
    ENDED = "ended"


CONTACTS: Final[Mapping[tuple[Contact, ContactEvent], Contact]] = {
    (Contact.APART, ContactEvent.DIALLED): Contact.DIALLING,
    (Contact.DIALLING, ContactEvent.FAILED): Contact.APART,
    (Contact.DIALLING, ContactEvent.OPENED): Contact.GREETING,
    (Contact.GREETING, ContactEvent.ASKED_TO_ATTACH): Contact.ATTACHING,
    (Contact.GREETING, ContactEvent.WELCOMED): Contact.CONNECTED,
    (Contact.GREETING, ContactEvent.LOST): Contact.APART,
    (Contact.ATTACHING, ContactEvent.WELCOMED): Contact.CONNECTED,
    (Contact.ATTACHING, ContactEvent.LOST): Contact.APART,
    (Contact.CONNECTED, ContactEvent.LOST): Contact.APART,
}

SESSIONS: Final[Mapping[tuple[Session, SessionEvent], Session]] = {
    (Session.NONE, SessionEvent.BEGUN): Session.JOINING,
    (Session.NONE, SessionEvent.ENDED): Session.OVER,
    (Session.JOINING, SessionEvent.BEGUN): Session.JOINING,
    (Session.JOINING, SessionEvent.JOINED): Session.STANDING,
    (Session.JOINING, SessionEvent.ENDED): Session.OVER,
    (Session.STANDING, SessionEvent.BEGUN): Session.REJOINING,
    (Session.STANDING, SessionEvent.LEFT): Session.LEAVING,
    (Session.STANDING, SessionEvent.ENDED): Session.OVER,
    (Session.REJOINING, SessionEvent.BEGUN): Session.REJOINING,
    (Session.REJOINING, SessionEvent.JOINED): Session.RESTORING,
    (Session.REJOINING, SessionEvent.ENDED): Session.OVER,
    (Session.RESTORING, SessionEvent.BEGUN): Session.REJOINING,
    (Session.RESTORING, SessionEvent.RESTORED): Session.STANDING,
    (Session.RESTORING, SessionEvent.ENDED): Session.OVER,
    (Session.LEAVING, SessionEvent.SETTLED): Session.PARTING,
    (Session.LEAVING, SessionEvent.ENDED): Session.OVER,
    (Session.PARTING, SessionEvent.ENDED): Session.OVER,
}

State = TypeVar("State", Contact, Session)
Event = TypeVar("Event", ContactEvent, SessionEvent)


def after(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    """Return the state that follows; `LocalProtocolError` if this cannot happen there."""
    try:
        return table[state, event]
    except KeyError:
        raise LocalProtocolError(f"'{event}' cannot happen to what is '{state}'") from None


_SEEN: Final[Mapping[Session, tuple[ClientState, ClientState]]] = {
    Session.NONE: (ClientState.CONNECTING, ClientState.CONNECTING),
    Session.JOINING: (ClientState.CONNECTING, ClientState.CONNECTING),
    Session.STANDING: (ClientState.RECONNECTING, ClientState.READY),
    Session.REJOINING: (ClientState.RECONNECTING, ClientState.RECONNECTING),
    Session.RESTORING: (ClientState.RECONNECTING, ClientState.RECONNECTING),
    Session.LEAVING: (ClientState.LEAVING, ClientState.LEAVING),
    Session.PARTING: (ClientState.LEAVING, ClientState.LEAVING),
    Session.OVER: (ClientState.CLOSED, ClientState.CLOSED),
}
"""Without a connection to the broker, and with one."""


def seen(contact: Contact, session: Session) -> ClientState:
    """Where the client stands for its application."""
    return _SEEN[session][contact is Contact.CONNECTED]


LEGAL: Final[Mapping[Contact, frozenset[type]]] = {
    Contact.APART: frozenset(),
    Contact.DIALLING: frozenset(),
    Contact.GREETING: frozenset({Welcome, AttachRequest, Seating, Heartbeat, Goodbye}),
    Contact.ATTACHING: frozenset({Welcome, Seating, Heartbeat, Goodbye}),
    Contact.CONNECTED: frozenset(
        {Publish, Stamped, Begun, Confirm, Refuse, EndOfStep, Progress}
        | {Seating, Revoke, Heartbeat, Goodbye}
    ),
}
"""What a broker may say when; anything else breaks the protocol."""

IN_BATCHES: Final = frozenset({Publish, Stamped, Begun, Confirm, Refuse})
"""What is a part of a batch; everything else stands between batches."""
