"""What is to be done: verb and object, carried out by a driver in the order given."""

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from broker.inputs import LinkId
from broker.messages import GoodbyeCode, Message, RefusalCode
from routing.ids import NodeId, OperationId, SubscriptionId
from routing.values import Content


@attrs.define
class SendMessage:
    """Put one message on each of these links; encoded once. A link that is gone is passed over."""

    links: tuple[LinkId, ...]
    message: Message


@attrs.frozen
class OpenLink:
    """Dial an address; `LinkOpened` or `LinkFailed` follows."""

    address: str


@attrs.frozen
class CloseLink:
    """Send what is buffered, as far as it goes at once, then close. No `LinkClosed` follows."""

    link: LinkId
    code: GoodbyeCode
    reason: str


@attrs.frozen
class SetTimer:
    """Send `TimerFired` at this time; replaces the time set before."""

    at: float


@attrs.define
class RecordHistory:
    """Append a record to this node's history (`faulttol/history.py`)."""

    kind: str
    fields: Mapping[str, Any]


class Level(enum.StrEnum):
    """How loud a log line is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen
class WriteLog:
    """One structured line for whoever runs this node."""

    level: Level
    event: str
    fields: Mapping[str, Any]


@attrs.frozen
class BecomeReady:
    """The node has joined the overlay: from now on it serves."""


@attrs.frozen
class Stop:
    """The node has nothing left to do; its driver closes everything and ends."""

    reason: str
    comes_back: bool = False
    """Whether it is to be started again, as a new incarnation of itself."""


# Only a client's core has these.


@attrs.define
class Delivery:
    """A publication as a subscriber's application gets it."""

    publisher: NodeId
    seq: int
    content: Content
    body: bytes
    position: int
    """1, 2, 3 ... in the order in which this subscriber was given its publications."""
    subscriptions: tuple[SubscriptionId, ...]
    """Those of this client that asked for it."""


@attrs.define
class Deliver:
    """Hand a publication to the application."""

    delivery: Delivery


@attrs.frozen
class ReportConfirmed:
    """Every publication of this client up to `seq` is stable: all who were owed it have it."""

    seq: int


@attrs.frozen
class ReportSkipped:
    """This publication will not be confirmed: delivered to all, to some or to nobody."""

    seq: int
    reason: str


@attrs.frozen
class Refusal:
    """A definite no."""

    code: RefusalCode
    reason: str


@attrs.frozen
class EndOperation:
    """An operation has been confirmed, or refused."""

    operation: OperationId
    refusal: Refusal | None


Effect = (
    SendMessage
    | OpenLink
    | CloseLink
    | SetTimer
    | RecordHistory
    | WriteLog
    | BecomeReady
    | Stop
    | Deliver
    | ReportConfirmed
    | ReportSkipped
    | EndOperation
)
