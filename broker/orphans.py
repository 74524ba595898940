"""Nodes whose parent has failed, as the hub that will adopt them knows them."""

from collections.abc import Iterable, Sequence

import attrs

from broker.codec import decode_content
from broker.errors import RemoteProtocolError
from broker.messages import (
    Advertise,
    Asked,
    Attach,
    Flag,
    Message,
    PublicationId,
    Publish,
    Subscribe,
)
from broker.neighbours import Arrival, Below, is_client
from broker.roles import FORBIDDEN_TO_CLIENTS
from broker.ticks import translated
from faulttol.merging import Key
from routing.ids import AdvertisementId, NodeId, SubscriptionId

LOG_FLAGS = Flag.NOTICE | Flag.ACKNOWLEDGED | Flag.AWAITED


@attrs.define(eq=False)
class Orphan:
    """One node that offers itself to the hub: first all it has to tell, then whatever it says."""

    neighbour: Below
    welcomed_at: int = 0
    """By the clock of the hub."""
    attached_at: int = 0
    """By the same."""
    attach: Attach | None = None
    advertisements: dict[AdvertisementId, Advertise] = attrs.field(factory=dict)
    subscriptions: dict[SubscriptionId, Subscribe] = attrs.field(factory=dict)
    received: list[Publish] = attrs.field(factory=list)
    sent: list[Publish] = attrs.field(factory=list)
    said: list[Message] = attrs.field(factory=list)
    """What it said after that; its turn comes when the tree has been re-formed."""
    seen: dict[NodeId, tuple[int, int]] = attrs.field(factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether it has told everything that it announced."""
        attach = self.attach
        return attach is not None and (
            len(self.advertisements) == attach.advertisements
            and len(self.subscriptions) == len(attach.subscriptions)
            and len(self.received) == attach.received
            and len(self.sent) == len(attach.sent)
        )

    def take(self, message: Message, now: int) -> None:
        """Take in the next thing it says; the hub's clock shows `now`."""
        attach = self.attach
        if attach is None:
            if not isinstance(message, Attach):
                raise RemoteProtocolError(f"{type(message).__name__} before Attach")
            self.attach, self.attached_at = message, now
            self.seen = {last.publisher: (last.incarnation, last.seq) for last in message.seen}
        elif self.is_complete:
            self.said.append(message)
        elif isinstance(message, Advertise):
            self.advertisements[message.advertisement] = message
        elif isinstance(message, Subscribe):
            self.subscriptions[message.subscription] = message
        elif not isinstance(message, Publish):
            raise RemoteProtocolError(f"{type(message).__name__} amid what was announced")
        elif len(self.received) < attach.received:
            self._require_believable(message, is_own=False)
            self.received.append(message)
        elif len(self.sent) < len(attach.sent):
            self._require_believable(message, is_own=is_client(self.neighbour))
            self.sent.append(message)
        else:
            raise RemoteProtocolError("more publications than were announced")

    def _require_believable(self, publication: Publish, *, is_own: bool) -> None:
        """What is kept here is looked at now: when it is put in order, nobody is there to blame."""
        decode_content(publication.content)
        node, flags = self.neighbour.node, publication.flags
        is_somebody_elses = is_own and key_of(publication)[:2] != (
            node,
            self.neighbour.incarnation,
        )
        forbidden = FORBIDDEN_TO_CLIENTS if is_own else LOG_FLAGS * is_client(self.neighbour)
        if is_somebody_elses or flags & forbidden:
            raise RemoteProtocolError(
                f"{node} brings along publication {publication.seq} of {publication.publisher}, "
                f"incarnation {publication.incarnation}, with flags {flags:#x}"
            )

    @property
    def settled_at(self) -> dict[Key, int]:
        """When it has settled what it told of, by its own clock."""
        assert self.attach is not None
        ticks = zip(self._told, self.attach.settled, strict=False)
        return {key: tick for key, tick in ticks if tick}

    @property
    def asked_at(self) -> dict[SubscriptionId, Asked]:
        """When its subscriptions were confirmed there, by the same clock."""
        assert self.attach is not None
        return dict(zip(self.subscriptions, self.attach.subscriptions, strict=True))

    @property
    def sent_at(self) -> dict[Key, int]:
        """When what it sent to the failed parent had come there, by the same clock."""
        assert self.attach is not None
        return dict(zip(map(key_of, self.sent), self.attach.sent, strict=True))

    def asked_here(self, asked: Asked) -> Asked | None:
        """The same by the hub's clock; None if it had not been confirmed when the orphan told."""
        assert self.attach is not None
        return asked.translated(
            told_at=self.attach.now, since=self.welcomed_at, by=self.attached_at
        )

    def at_earliest(self, tick: int) -> int:
        """What the hub's clock showed when the orphan's showed this; it may have been later."""
        return self._at(tick, self.welcomed_at)

    def at_latest(self, tick: int) -> int:
        """The same; it may have been earlier, but no more than it took to answer the hub."""
        return self._at(tick, self.attached_at)

    def _at(self, tick: int, then: int) -> int:
        """What the hub's clock showed if it showed `then` when the orphan told."""
        assert self.attach is not None
        return translated(tick, told_at=self.attach.now, here=then)

    @property
    def learnt_at(self) -> dict[SubscriptionId, int]:
        """Since when, by the same clock, it knows of subscriptions on other sides."""
        assert self.attach is not None
        return {learnt.subscription: learnt.tick for learnt in self.attach.learnt}

    @property
    def confirmed_at(self) -> dict[str, int]:
        """When its former parent confirmed what it asks for and announces, by that one's clock."""
        assert self.attach is not None
        names = (*self.advertisements, *self.subscriptions)
        return dict(zip(names, self.attach.confirmed, strict=False))

    @property
    def had(self) -> dict[Key, set[NodeId]]:
        """Who got what by subscriptions that it does not have any more."""
        assert self.attach is not None
        found: dict[Key, set[NodeId]] = {}
        told = self._told
        for had in self.attach.had:
            if had.place < len(told):
                found.setdefault(told[had.place], set()).add(had.client)
        return found

    @property
    def _told(self) -> list[Key]:
        return [key_of(publication) for publication in (*self.received, *self.sent)]

    def has_seen(self, key: Key) -> bool:
        """Whether it has seen this publication or a later one of the same publisher."""
        publisher, *stamp = key
        return self.seen.get(publisher, (0, 0)) >= tuple(stamp)


def known_to_be_stable(own: Iterable[PublicationId], orphans: Iterable[Orphan]) -> set[Key]:
    """What the hub, or an orphan, has heard lately that it is stable."""
    told = [orphan.attach.stable for orphan in orphans if orphan.attach is not None]
    return {
        (last.publisher, last.incarnation, last.seq) for heard in (own, *told) for last in heard
    }


def key_of(publication: Publish) -> Key:
    """What identifies a publication."""
    return publication.publisher, publication.incarnation, publication.seq


def without_log_flags(publication: Publish) -> Publish:
    """A publication as it is sent from hop to hop."""
    if not publication.flags & LOG_FLAGS:
        return publication
    return attrs.evolve(publication, flags=publication.flags & ~LOG_FLAGS, frame=None)


def log_of_received(stream: Sequence[Arrival]) -> list[Publish]:
    """What a node got from above, for `Attach`."""
    log = []
    for arrival in stream:
        if isinstance(arrival.publication, Publish):
            log.append(arrival.publication)
        else:
            assert arrival.settles is not None
            log.append(_flagged(arrival.settles.publication, Flag.NOTICE))
    return log


def log_of_sent(stream: Sequence[Arrival]) -> list[Publish]:
    """What a node gave to the broker above, for `Attach`."""
    log = []
    for arrival in stream:
        has_been_settled = arrival.has_waited and not arrival.waits
        flag = Flag.ACKNOWLEDGED if has_been_settled else arrival.flag_upwards
        log.append(_flagged(arrival.publication, flag))
    return log


def _flagged(publication: object, flag: int) -> Publish:
    assert isinstance(publication, Publish), "only publications go up"
    if not flag:
        return publication
    return attrs.evolve(publication, flags=publication.flags | flag, frame=None)
