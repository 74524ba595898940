"""What a neighbour of a broker that has failed has of it, as messages and back.

First comes how far both streams of the link had come (`Attach`), then what was told of tables and
logs, in parts (`AttachTables`), then what was in the streams, as ordinary messages: a publication
is not encoded again. Nothing of it is believed that the sender could not have said to the broker
that has failed: a client attaches what is its own.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Any, Final, TypeVar

import attrs

from plait.broker.codec import decode_content
from plait.broker.errors import RemoteProtocolError
from plait.broker.host.link_states import IN_BATCHES, LinkState, Speaker, require_legal
from plait.broker.limits import DEFAULT_LIMITS, STEPS_AT_ONCE, Limits
from plait.broker.log_codec import LogReader, LogWriter
from plait.broker.machine.neighbours import Control
from plait.broker.machine.rebuild import Attachment, StreamEnd, Told, Travelling
from plait.broker.messages import (
    Attach,
    AttachRequest,
    AttachTables,
    Message,
    NodeKind,
    Publish,
    SentControl,
    ToldEntry,
)
from plait.faulttol.steplog import LogPart, StepLog
from plait.routing.errors import FilterSyntaxError
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId, owner_of
from plait.routing.tables import RoutingEntry

Element = TypeVar("Element")

ITEM_BYTES: Final = 512
"""What a part of an attachment counts as, beside contents and bodies: its objects."""

_WHOLE: Final = -1
"""A log since this step is all that is known of it."""


# To messages


def attachment_messages(
    attachment: Attachment,
    term: int,
    request: AttachRequest | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[Message]:
    """All that an attachment says of a broker, which had failed in this term, to whoever asks."""
    sent, received = attachment.sent, attachment.received
    head = Attach(
        node=attachment.node,
        kind=attachment.kind,
        incarnation=attachment.incarnation,
        to=attachment.to,
        term=term,
        taken=attachment.taken,
        sent_stable=sent.stable,
        sent_steps=tuple([each.step for each in sent.kept]),
        received_stable=received.stable,
        received_steps=tuple([each.step for each in received.kept]),
    )
    return [
        head,
        *_tables(attachment, request, limits),
        *(each.publication for each in sent.kept),
        *(each.publication for each in received.kept),
        *(control.message for control in attachment.controls),
    ]


def _tables(
    attachment: Attachment, request: AttachRequest | None, limits: Limits
) -> list[AttachTables]:
    """In parts, each of which has something of all that there is more of."""
    most = limits.attach_portion
    columns: dict[str, Iterator[Any]] = {
        "controls": _portions([_sent_control(c) for c in attachment.controls], most),
        "advertisements": _portions([_told_entry(t) for t in attachment.advertisements], most),
        "subscriptions": _portions([_told_entry(t) for t in attachment.subscriptions], most),
        "known_advertisements": _portions(sorted(attachment.known_advertisements), most),
        "known_subscriptions": _portions(sorted(attachment.known_subscriptions), most),
        "logs": _logs(attachment, request, limits),
    }
    rows = [
        {name: value for name, value in zip(columns, row, strict=True) if value}
        for row in zip_longest(*columns.values())
    ] or [{}]
    last = len(rows) - 1
    era = attachment.era
    return [AttachTables(**row, era=era, is_last=place == last) for place, row in enumerate(rows)]


def _portions(elements: Sequence[Element], most: int) -> Iterator[tuple[Element, ...]]:
    for at in range(0, len(elements), most):
        yield tuple(elements[at : at + most])


def _logs(attachment: Attachment, request: AttachRequest | None, limits: Limits) -> Iterator[bytes]:
    """The logs, in parts that follow each other as over a connection."""
    writer = LogWriter()
    parts: dict[NodeId, LogPart] = {}
    left = limits.attach_steps
    for node, log in attachment.logs.items():
        rest = log.since(log.base if _is_base_known(request, node, log) else _WHOLE)
        while len(rest.entries) > left:
            parts[node] = attrs.evolve(rest, entries=rest.entries[:left])
            yield writer.write(parts)
            rest = LogPart(
                rest.base, rest.first + left, rest.entries[left:], neighbours={}, term=rest.term
            )
            parts, left = {}, limits.attach_steps
        parts[node] = rest
        left -= len(rest.entries)
    yield writer.write(parts)


def _is_base_known(request: AttachRequest | None, broker: NodeId, log: StepLog) -> bool:
    """Whether whoever asks knows who stood next to a broker where its log begins."""
    return (
        request is not None
        and (request.broker, request.known_term) == (broker, log.term)
        and request.known_step >= log.base
    )


def _sent_control(control: Control) -> SentControl:
    publisher, incarnation, seq = control.key or ("", 0, 0)
    return SentControl(
        step=control.step,
        position=control.position,
        publisher=publisher,
        incarnation=incarnation,
        seq=seq,
    )


def _told_entry(told: Told[Any]) -> ToldEntry:
    entry = told.entry
    return ToldEntry(
        id=entry.id,
        client=entry.client,
        filter=entry.filter.sql,
        ordered=entry.ordered,
        path=entry.path,
        told_in=told.told_in,
        withdrawn_in=told.withdrawn_in or 0,
    )


# And back


class AttachmentReader:
    """Puts together what one node says of one broker that has failed."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        """Begin with nothing said."""
        self._limits = limits
        self._head: Attach | None = None
        self._are_tables_complete = False
        self._places: list[SentControl] = []
        self._advertisements: list[Told[Any]] = []
        self._subscriptions: list[Told[Any]] = []
        self._known_advertisements: set[AdvertisementId] = set()
        self._known_subscriptions: set[SubscriptionId] = set()
        self._log_reader = LogReader(limits)
        self._logs: dict[NodeId, StepLog] = {}
        self._sent: list[Travelling] = []
        self._received: list[Travelling] = []
        self._controls: list[Control] = []
        self._contents: set[bytes] = set()
        """Those that can be read."""
        self._era = 0
        self._items = 0
        self._bytes = 0

    @property
    def term(self) -> int:
        """In which the broker has failed, as the sender knows."""
        return 0 if self._head is None else self._head.term

    @property
    def kept_bytes(self) -> int:
        """About how much is kept until all has come."""
        return self._bytes + ITEM_BYTES * self._items

    def feed(self, message: Message) -> Attachment | None:
        """Take what comes next; returns the attachment, once it is complete."""
        head = self._head
        if isinstance(message, Attach):
            if head is not None:
                raise RemoteProtocolError(f"Attach of {message.node} inside of one")
            self._begin(message)
        elif head is None:
            raise RemoteProtocolError(f"{type(message).__name__} before Attach")
        elif isinstance(message, AttachTables):
            if self._are_tables_complete:
                raise RemoteProtocolError("AttachTables after the last one")
            self._take_tables(head, message)
        elif not self._are_tables_complete:
            raise RemoteProtocolError(f"{type(message).__name__} before the last AttachTables")
        elif len(self._sent) < len(head.sent_steps):
            self._take_publication(head, message, head.sent_steps, head.sent_stable, self._sent)
        elif len(self._received) < len(head.received_steps):
            self._take_publication(
                head, message, head.received_steps, head.received_stable, self._received
            )
        elif len(self._controls) < len(self._places):
            self._take_control(head, message)
        else:
            raise RemoteProtocolError(f"{type(message).__name__} after the end of an attachment")
        return self._complete()

    # --- the parts --------------------------------------------------------------------------

    def _begin(self, head: Attach) -> None:
        for what, steps in (("sent", head.sent_steps), ("received", head.received_steps)):
            self._count(len(steps))
            if any(step > after for step, after in pairwise(steps)):
                raise RemoteProtocolError(f"Attach: steps of what was {what} that go back")
        if head.received_steps and head.received_steps[-1] > head.taken:
            raise RemoteProtocolError(f"Attach: step {head.received_steps[-1]} of {head.taken}")
        self._head = head

    def _take_tables(self, head: Attach, tables: AttachTables) -> None:
        lists: tuple[tuple[Any, ...], ...] = (
            tables.controls,
            tables.advertisements,
            tables.subscriptions,
            tables.known_advertisements,
            tables.known_subscriptions,
        )
        self._count(sum(map(len, lists)))
        if max(map(len, lists)) > self._limits.attach_portion:
            raise RemoteProtocolError(
                f"AttachTables of more than {self._limits.attach_portion} entries"
            )
        if not (any(lists) or tables.logs or tables.is_last):
            raise RemoteProtocolError("AttachTables with nothing in it")
        self._places += tables.controls
        self._advertisements += [_told(head, entry) for entry in tables.advertisements]
        self._subscriptions += [_told(head, entry) for entry in tables.subscriptions]
        self._known_advertisements.update(tables.known_advertisements)
        self._known_subscriptions.update(tables.known_subscriptions)
        for node, part in self._log_reader.read(tables.logs).items():
            self._count(len(part.entries))
            self._logs.setdefault(node, StepLog()).learn(part)
        self._era = tables.era
        self._are_tables_complete = tables.is_last

    def _take_publication(
        self,
        head: Attach,
        message: Message,
        steps: Sequence[int],
        stable: int,
        stream: list[Travelling],
    ) -> None:
        if not isinstance(message, Publish):
            raise RemoteProtocolError(f"{type(message).__name__} among publications of Attach")
        self._count_bytes(len(message.body) + len(message.content))
        if message.content not in self._contents:
            decode_content(message.content)  # later there is nobody to blame
            self._contents.add(message.content)
        if stream is self._sent:
            self._require_own(head, message)
            self._require_next(head, message)
        place = len(stream)
        stream.append(Travelling(stable + place + 1, steps[place], message))

    def _take_control(self, head: Attach, message: Message) -> None:
        place = self._places[len(self._controls)]
        if type(message) not in IN_BATCHES or isinstance(message, Publish):
            raise RemoteProtocolError(f"{type(message).__name__} is no control of a stream")
        self._require_own(head, message)
        count = head.sent_stable + len(head.sent_steps)
        if place.position > count:
            raise RemoteProtocolError(f"Attach: a control behind {place.position} of {count}")
        key = (NodeId(place.publisher), place.incarnation, place.seq) if place.publisher else None
        self._controls.append(Control(place.step, place.position, message, None, key))

    @staticmethod
    def _require_own(head: Attach, message: Message) -> None:
        """Only what it may say to a broker it can have said to one."""
        is_client = head.kind is NodeKind.CLIENT
        state = LinkState.TO_CLIENT if is_client else LinkState.TO_BROKER
        speaker = Speaker(here=head.to, node=head.node, incarnation=head.incarnation)
        require_legal(state, speaker, message)

    def _require_next(self, head: Attach, publication: Publish) -> None:
        """A client counts its publications."""
        last = self._sent[-1].publication.seq if self._sent else publication.seq - 1
        if head.kind is NodeKind.CLIENT and publication.seq != last + 1:
            raise RemoteProtocolError(
                f"publication {publication.seq} of {head.node} behind number {last}"
            )

    def _count(self, items: int) -> None:
        self._items += items
        if self._items > self._limits.attached_items_max:
            raise RemoteProtocolError(
                f"an attachment of more than {self._limits.attached_items_max} items"
            )

    def _count_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > self._limits.attached_bytes_max:
            raise RemoteProtocolError(
                f"an attachment of more than {self._limits.attached_bytes_max} bytes"
            )

    # --- all of it --------------------------------------------------------------------------

    def _complete(self) -> Attachment | None:
        head = self._head
        if (
            head is None
            or not self._are_tables_complete
            or len(self._sent) < len(head.sent_steps)
            or len(self._received) < len(head.received_steps)
            or len(self._controls) < len(self._places)
        ):
            return None
        self._require_log(head)
        return Attachment(
            node=head.node,
            kind=head.kind,
            incarnation=head.incarnation,
            to=head.to,
            taken=head.taken,
            sent=StreamEnd(stable=head.sent_stable, kept=tuple(self._sent)),
            received=StreamEnd(
                stable=head.received_stable,
                kept=tuple(self._received),
            ),
            controls=tuple(self._controls),
            advertisements=tuple(self._advertisements),
            subscriptions=tuple(self._subscriptions),
            known_advertisements=frozenset(self._known_advertisements),
            known_subscriptions=frozenset(self._known_subscriptions),
            logs=self._logs,
            era=self._era,
        )

    def _require_log(self, head: Attach) -> None:
        """Whoever has taken a step was told the log up to that: a broker perhaps in other words."""
        last = self._logs.get(head.to, StepLog()).last
        if head.taken > last + (0 if head.kind is NodeKind.CLIENT else STEPS_AT_ONCE):
            raise RemoteProtocolError(
                f"Attach: step {head.taken} of {head.to} was taken, and nothing told beyond {last}"
            )


def _told(head: Attach, told: ToldEntry) -> Told[Any]:
    if told.path[-1:] != (head.node,):
        raise RemoteProtocolError(f"{told.id} by {told.path}, expected to come by {head.node}")
    if head.kind is NodeKind.CLIENT and (told.client, len(told.path)) != (head.node, 1):
        raise RemoteProtocolError(f"{told.id} of {told.client}, attached by {head.node}")
    if owner_of(SubscriptionId(told.id)) != told.client:
        raise RemoteProtocolError(f"{head.node} says that {told.id} is {told.client}'s")
    try:
        parsed = parse_filter(told.filter)
    except FilterSyntaxError as error:
        raise RemoteProtocolError(f"{told.id} of {told.client}: {error}") from None
    entry: RoutingEntry[Any] = RoutingEntry(
        id=told.id, client=told.client, filter=parsed, path=told.path, ordered=told.ordered
    )
    return Told(entry, told.told_in, told.withdrawn_in or None)
