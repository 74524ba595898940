"""What is to be done: verb and object, carried out by a driver in the order given."""

import enum
import zlib
from collections.abc import Mapping
from typing import Any

import attrs

from plait.broker.inputs import LinkId
from plait.broker.messages import GoodbyeCode, Message, RefusalCode, Seating
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.topics.position import Position
from plait.routing.values import Content


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
class RememberSeats:
    """Keep this on disk, in place of what was kept before: where to find others after a crash."""

    seating: Seating


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
    """A publication as a subscriber's application gets it.

    `publisher`, `publisher_incarnation` and `seq` together are its name: no other has all three.
    """

    publisher: NodeId
    publisher_incarnation: int
    """Which life of the publisher this is from: a later one has a higher number. A program that
    connects without an `incarnation` of its own has the time of its start, in milliseconds."""
    seq: int
    """1, 2, 3 ... in that life."""
    content: Content
    body: bytes
    position: int
    """1, 2, 3 ... in the order in which this subscriber was given its publications."""
    subscriptions: tuple[SubscriptionId, ...]
    """Those of this client that asked for it."""
    in_order: bool = True
    """Whether it comes where its stamp says, if it has one."""
    stamp: Position | None = None
    """Where it belongs among those on other topics, under an ordering that says so."""

    def record_fields(self, subscriber: NodeId) -> dict[str, Any]:
        """What the history says of it, as a record of the kind `delivered`."""
        fields = {
            "subscriber": subscriber,
            "publisher": self.publisher,
            "publisher_incarnation": self.publisher_incarnation,
            "seq": self.seq,
            "position": self.position,
            "subscriptions": list(self.subscriptions),
            "crc": zlib.crc32(self.body),
        }
        if self.stamp is not None:
            fields["in_order"] = self.in_order
            fields["stamp"] = {"number": self.stamp.number, "behind": dict(self.stamp.behind)}
        return fields


@attrs.define
class Deliver:
    """Hand a publication to the application."""

    delivery: Delivery


@attrs.frozen
class Match:
    """What a detector has found, as its application gets it."""

    events: tuple[Delivery, ...]
    """What fills the places of the pattern."""
    certain: bool
    """Whether every other detector of the same that was there as well finds it, where the overlay
    keeps an order among all publishers."""
    position: int
    """Of the delivery that completed it."""
    pattern: str
    """Its canonical text."""

    def record_fields(self, detector: SubscriptionId) -> dict[str, Any]:
        """What the history says of it, as a record of the kind `detected`."""
        return {
            "detector": detector,
            "pattern": self.pattern,
            "match": [[e.publisher, e.publisher_incarnation, e.seq] for e in self.events],
            "position": self.position,
            "certain": self.certain,
        }


@attrs.frozen
class BeginDetection:
    """A detector looks at what is delivered from here on; once more after a session was lost."""

    detector: SubscriptionId


@attrs.frozen
class ReportMatch:
    """Hand what a detector has found to the application; it is complete with the last delivery."""

    detector: SubscriptionId
    match: Match


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
class ReportRevoked:
    """This client may not have any more what it had advertised or subscribed to."""

    name: AdvertisementId | SubscriptionId
    """As the application knows it."""
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
    | RememberSeats
    | BecomeReady
    | Stop
    | Deliver
    | BeginDetection
    | ReportMatch
    | ReportConfirmed
    | ReportSkipped
    | ReportRevoked
    | EndOperation
)
