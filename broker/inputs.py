"""What has happened: everything a core is ever told; the time is an argument of `step`."""

from typing import NewType

import attrs

from plait.broker.messages import Message
from plait.broker.principals import UNKNOWN_CALLER, Caller
from plait.routing.rules import Rules

LinkId = NewType("LinkId", int)
"""A connection, as its driver numbers it; a new one after every reconnection."""


@attrs.frozen
class LinkOpened:
    """A connection exists; `dialled` is the address asked for, or empty if the peer dialled."""

    link: LinkId
    dialled: str = ""
    caller: Caller = UNKNOWN_CALLER
    """Who is at the other end, as far as it has proven that: the driver has seen to it."""


@attrs.frozen
class LinkFailed:
    """A connection this node asked for could not be made."""

    dialled: str
    reason: str
    is_refused: bool = False
    """Whether the machine there said that nobody listens: so no process does, which is proof. All
    else, such as no answer, is silence, and may be the network."""


@attrs.frozen
class LinkClosed:
    """A connection is gone, for whatever reason; nothing more arrives over it."""

    link: LinkId
    reason: str


@attrs.define
class MessagesReceived:
    """Messages that one read of a connection brought, in their order."""

    link: LinkId
    messages: list[Message]


@attrs.frozen
class TimerFired:
    """The time asked for by the last `SetTimer` has come."""


@attrs.frozen
class ShutdownRequested:
    """Finish what was accepted, then stop."""


@attrs.frozen
class RulesChanged:
    """From now on a host decides by these rules; without any, everybody may do everything."""

    rules: Rules | None


Input = (
    LinkOpened
    | LinkFailed
    | LinkClosed
    | MessagesReceived
    | TimerFired
    | ShutdownRequested
    | RulesChanged
)
