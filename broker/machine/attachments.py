"""What a node says of its link to a neighbour that has failed, or of which it was away."""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar, cast

import attrs

from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import Control
from plait.broker.machine.streams import Travelling, kept
from plait.broker.messages import NodeKind, Unadvertise, Unsubscribe
from plait.faulttol.steplog import StepLog
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.tables import Advertisement, Subscription

Entry_ = TypeVar("Entry_", Advertisement, Subscription)

_NEVER: Final = 1 << 62


@attrs.frozen(kw_only=True)
class StreamEnd:
    """One direction of a link, as one of its ends has it."""

    stable: int
    kept: tuple[Travelling, ...]


@attrs.frozen
class Told(Generic[Entry_]):
    """What a node of the boundary had told its neighbour in the region."""

    entry: Entry_
    told_in: int
    """The step, of the node that told it; 0 if that is long ago."""
    withdrawn_in: int | None = None
    """And the one in which it was withdrawn; None if it stands."""


@attrs.frozen(kw_only=True)
class Attachment:
    """What a node of the boundary says of itself and its neighbour in the region."""

    node: NodeId
    kind: NodeKind
    incarnation: int
    to: NodeId
    """The neighbour in the region."""
    taken: int
    """The last step of that which was taken here."""
    sent: StreamEnd
    received: StreamEnd
    controls: tuple[Control, ...]
    """What was sent beside publications, and the neighbour may need again."""
    advertisements: tuple[Told[Advertisement], ...]
    subscriptions: tuple[Told[Subscription], ...]
    known_advertisements: frozenset[AdvertisementId]
    """What the neighbour has told."""
    known_subscriptions: frozenset[SubscriptionId]
    logs: Mapping[NodeId, StepLog]
    """Of brokers of the region, as far as they are known here."""
    era: int = 0
    """How often the streams between the two have begun anew."""


def attach(machine: Machine, to: NodeId, logs: Mapping[NodeId, StepLog]) -> Attachment:
    """What a live broker says when its neighbour has failed."""
    neighbour = machine.neighbours.named(to)
    assert neighbour is not None
    received = neighbour.received.keep()
    first = neighbour.received.count - len(received) + 1
    interests = machine.interests
    advertisements = [
        Told(onwards(machine, entry), neighbour.told_of[entry.id])
        for entry in interests.advertisements
        if entry.id in neighbour.told_of
    ]
    subscriptions = [
        Told(onwards(machine, entry), neighbour.told_of[entry.id])
        for entry in interests.subscriptions
        if entry.id in neighbour.told_of
    ]
    withdrawn = [(c.message, c.about, c.told_in, c.step) for c in neighbour.controls]
    # What waits behind held publications to be withdrawn still stands there.
    for delayed in machine.publications.delayed_for(neighbour):
        if delayed.about is not None and delayed.about.id in neighbour.told_of:
            told_in = neighbour.told_of[delayed.about.id]
            withdrawn.append((delayed.message, delayed.about, told_in, _NEVER))
    for message, about, told_in, step in withdrawn:
        if isinstance(message, Unadvertise) and about is not None:
            announced = onwards(machine, cast("Advertisement", about))
            advertisements.append(Told(announced, told_in, step))
        elif isinstance(message, Unsubscribe) and about is not None:
            asked = onwards(machine, cast("Subscription", about))
            subscriptions.append(Told(asked, told_in, step))
    return Attachment(
        node=machine.node,
        kind=NodeKind.BROKER,
        incarnation=0,
        to=to,
        taken=neighbour.taken,
        sent=StreamEnd(
            stable=neighbour.sent.stable_count,
            kept=tuple(kept(neighbour)),
        ),
        received=StreamEnd(
            stable=neighbour.received.stable_count,
            kept=tuple(
                Travelling(n, neighbour.received_marks.step_of(n), arrival.publication)
                for n, arrival in enumerate(received, first)
            ),
        ),
        controls=tuple(neighbour.controls),
        advertisements=tuple(advertisements),
        subscriptions=tuple(subscriptions),
        known_advertisements=frozenset(
            e.id for e in interests.advertisements if e.hop == neighbour.hop
        ),
        known_subscriptions=frozenset(
            e.id for e in interests.subscriptions if e.hop == neighbour.hop
        ),
        logs=logs,
        era=neighbour.era,
    )


def testimony(broker: NodeId, logs: Mapping[NodeId, StepLog]) -> Attachment:
    """What the host says that has given a broker up: it has no stream, and knows all logs."""
    nothing = StreamEnd(stable=0, kept=())
    return Attachment(
        node=broker,
        kind=NodeKind.BROKER,
        incarnation=0,
        to=broker,
        taken=0,
        sent=nothing,
        received=nothing,
        controls=(),
        advertisements=(),
        subscriptions=(),
        known_advertisements=frozenset(),
        known_subscriptions=frozenset(),
        logs=logs,
    )


def onwards(machine: Machine, entry: Entry_) -> Entry_:
    """An entry as the next broker is told of it."""
    return attrs.evolve(entry, path=machine.interests.path_onwards(entry))
