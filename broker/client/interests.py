"""What a client has advertised and subscribed to, and the operations by which that comes about.

The broker is told of each in the stream; what it has not confirmed is asked again after it was
rebuilt. In a new session all that stands is told anew, under new names: the old ones may still be
on their way out of the overlay.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import attrs

from plait.broker.client.journal import Journal
from plait.broker.client.stream import Stream
from plait.broker.codec import decode_content
from plait.broker.effects import EndOperation, Refusal, ReportRevoked
from plait.broker.machine.rebuild import Told
from plait.broker.messages import Advertise, Rank, Subscribe, Unadvertise, Unsubscribe
from plait.broker.outbox import Outbox
from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.tables import Advertisement, RoutingEntry, Subscription
from plait.routing.topics.protocol import Topic
from plait.routing.topics.table import topics_of
from plait.routing.values import Content

MATCHES_REMEMBERED: Final = 4096

Name = TypeVar("Name", AdvertisementId, SubscriptionId)
_Operation = Advertise | Unadvertise | Subscribe | Unsubscribe


@attrs.define(eq=False)
class Interest(Generic[Name]):
    """An advertisement or a subscription of this client's."""

    name: Name
    """As the application knows it."""
    filter: Filter
    wire_id: Name
    """As the overlay does; a new name in every session."""
    ordered: bool = True
    is_installed: bool = False
    is_withdrawn: bool = False
    """By the application; the broker hears of it when it may."""
    told_in: int = 0
    """The step in which the broker of this session was told; 0 if it has not been."""
    withdrawn_in: int = 0
    """And in which it was told that this is over."""

    @property
    def is_active(self) -> bool:
        """Whether publications are published or delivered under it."""
        return self.is_installed and not self.is_withdrawn


@attrs.define(eq=False)
class _Request:
    """An operation that is not confirmed yet."""

    interest: Interest[Any]
    is_withdrawal: bool
    is_told_anew: bool = False
    """Whether it stood already in an earlier session."""
    message: _Operation | None = None
    """As the broker of this session was told; None if it has not been."""


class Interests:
    """All advertisements and subscriptions of one client."""

    def __init__(
        self, node: NodeId, incarnation: int, stream: Stream, journal: Journal, outbox: Outbox
    ) -> None:
        """Begin with none, and without a session."""
        self._node = node
        self._incarnation = incarnation
        self._stream = stream
        self._journal = journal
        self._outbox = outbox
        self._counter = 0
        self._sessions = 0
        self._may_tell = False
        """Whether the broker has taken this client in."""
        self._advertisements: dict[AdvertisementId, Interest[AdvertisementId]] = {}
        self._subscriptions: dict[SubscriptionId, Interest[SubscriptionId]] = {}
        self._requests: dict[OperationId, _Request] = {}
        self._rankings: dict[OperationId, Rank] = {}
        """That topics are to change places, until it is confirmed: to ask twice does no harm."""
        self._withdrawals: dict[OperationId, tuple[int, AdvertisementId]] = {}
        """Advertisements to be withdrawn once the publication of this number is stable."""
        self._restoring: set[OperationId] = set()
        self._matches: dict[bytes, tuple[Content, tuple[SubscriptionId, ...]]] = {}

    # --- what the application asks for --------------------------------------------------------

    def new_operation(self) -> OperationId:
        """A name for an operation of this client's."""
        self._counter += 1
        return OperationId(f"{self._node}#{self._incarnation}.{self._counter}")

    def _new_name(self) -> str:
        self._counter += 1
        return f"{self._node}/{self._counter}"

    def advertise(self, filter_text: str) -> tuple[AdvertisementId, OperationId]:
        """Ask for the right to publish what this filter matches."""
        name = AdvertisementId(self._new_name())
        interest = Interest(name, parse_filter(filter_text), name)
        self._advertisements[name] = interest
        return name, self._ask(interest, self.new_operation())

    def subscribe(self, filter_text: str, *, ordered: bool) -> tuple[SubscriptionId, OperationId]:
        """Ask for every publication that this filter matches."""
        name = SubscriptionId(self._new_name())
        interest = Interest(name, parse_filter(filter_text), name, ordered)
        self._subscriptions[name] = interest
        return name, self._ask(interest, self.new_operation())

    def unadvertise(self, name: AdvertisementId, *, last: int, stable: int) -> OperationId:
        """Give an advertisement back, once the publications up to the `last` one are stable.

        Until then they may have to be sent again, and need the advertisement for that.
        """
        operation = self.new_operation()
        interest = self._advertisements.get(name)
        if interest is not None:
            interest.is_withdrawn = True
        self._withdrawals[operation] = (last, name)
        self.withdraw_up_to(stable)
        return operation

    def withdraw_up_to(self, seq: int) -> None:
        """Tell the broker of what was withdrawn after publications that are stable by now."""
        for operation, (last, name) in list(self._withdrawals.items()):
            if last <= seq:
                del self._withdrawals[operation]
                self._withdraw(self._advertisements.get(name), operation)

    def unsubscribe(self, name: SubscriptionId) -> OperationId:
        """Nothing is delivered to this subscription from now on."""
        operation = self.new_operation()
        interest = self._subscriptions.get(name)
        if interest is not None:
            self._end_deliveries(interest)
        self._withdraw(interest, operation)
        return operation

    def revoke(self, wire_id: str, reason: str, *, last: int, stable: int) -> None:
        """The broker says that this client may not have this any more: withdraw it, and say so."""
        for interest in list(self._all()):
            if interest.wire_id == wire_id and not interest.is_withdrawn:
                if interest.name in self._advertisements:
                    self.unadvertise(interest.name, last=last, stable=stable)
                else:
                    self.unsubscribe(interest.name)
                self._outbox.add(ReportRevoked(interest.name, reason))

    def unsubscribe_all(self) -> None:
        """The client leaves: nothing is delivered from now on."""
        for interest in list(self._subscriptions.values()):
            if not interest.is_withdrawn:
                self.unsubscribe(interest.name)

    def rank(self, topic: Topic, above: Topic) -> OperationId:
        """Ask for a topic to rank above another one."""
        operation = self.new_operation()
        self._rankings[operation] = Rank(operation=operation, topic=topic, above=above)
        if self._may_tell:
            self._stream.request(self._rankings[operation])
        return operation

    @property
    def sessions(self) -> int:
        """How many have begun."""
        return self._sessions

    def subscription(self, name: SubscriptionId) -> Interest[SubscriptionId] | None:
        """What has become of a subscription; None if it was refused, or is withdrawn."""
        return self._subscriptions.get(name)

    @property
    def is_subscribed(self) -> bool:
        """Whether anything may still come."""
        return bool(self._subscriptions)

    def _end_deliveries(self, interest: Interest[SubscriptionId]) -> None:
        interest.is_withdrawn = True
        self._uninstall(interest)

    # --- what the broker is told ----------------------------------------------------------------

    def _ask(
        self, interest: Interest[Any], operation: OperationId, *, is_told_anew: bool = False
    ) -> OperationId:
        request = _Request(interest, is_withdrawal=False, is_told_anew=is_told_anew)
        self._requests[operation] = request
        if self._may_tell:
            request.message = self._asking(interest, operation)
            interest.told_in = self._stream.request(request.message)
        return operation

    def _asking(self, interest: Interest[Any], operation: OperationId) -> Advertise | Subscribe:
        if interest.name in self._advertisements:
            return Advertise(
                operation=operation,
                advertisement=interest.wire_id,
                client=self._node,
                filter=interest.filter.sql,
                path=(self._node,),
            )
        return Subscribe(
            operation=operation,
            subscription=interest.wire_id,
            client=self._node,
            filter=interest.filter.sql,
            ordered=interest.ordered,
            path=(self._node,),
        )

    def _withdraw(self, interest: Interest[Any] | None, operation: OperationId) -> None:
        if interest is None:  # refused, before its caller heard of it
            self._outbox.add(EndOperation(operation, None))
            return
        request = self._requests[operation] = _Request(interest, is_withdrawal=True)
        if not interest.told_in:  # nobody knows of it, or of it any more
            self.on_confirm(operation)
            return
        if interest.name in self._advertisements:
            request.message = Unadvertise(operation=operation, advertisement=interest.wire_id)
        else:
            request.message = Unsubscribe(operation=operation, subscription=interest.wire_id)
        if interest.withdrawn_in:
            self._stream.request(request.message)
        else:
            entry = self._entry(interest)
            interest.withdrawn_in = self._stream.request(request.message, entry, interest.told_in)

    def ask_again(self) -> None:
        """The broker was rebuilt, and may not know what it was to confirm."""
        for request in self._requests.values():
            # What is withdrawn must not come back.
            if request.message and (request.is_withdrawal or not request.interest.withdrawn_in):
                self._stream.request(request.message)
        for ranking in self._rankings.values():
            self._stream.request(ranking)

    # --- what the broker answers ----------------------------------------------------------------

    def on_confirm(self, operation: OperationId) -> None:
        """An operation has come to its end; of one that nobody waits for it says nothing."""
        if self._rankings.pop(operation, None) is not None:
            self._outbox.add(EndOperation(operation, None))
        request = self._requests.pop(operation, None)
        if request is None:
            return
        if request.is_withdrawal:
            self._forget(request.interest)
        elif not (request.interest.is_installed or self._is_gone(request.interest)):
            self._install(request.interest)
        self._restoring.discard(operation)
        self._outbox.add(EndOperation(operation, None))

    def on_refuse(self, operation: OperationId, refusal: Refusal) -> None:
        """Nothing has come of an operation."""
        if self._rankings.pop(operation, None) is not None:
            self._outbox.add(EndOperation(operation, refusal))
        request = self._requests.pop(operation, None)
        if request is None:
            return
        self._restoring.discard(operation)
        if not request.is_withdrawal:
            self._remove(request.interest)
        if request.is_told_anew:  # its application was told that it has it, and waits for nothing
            self._outbox.add(ReportRevoked(request.interest.name, refusal.reason))
        self._outbox.add(EndOperation(operation, refusal))

    def _is_gone(self, interest: Interest[Any]) -> bool:
        """Whether nothing is to be installed any more."""
        if interest.name in self._subscriptions:
            return interest.is_withdrawn
        return interest.name not in self._advertisements

    def _install(self, interest: Interest[Any]) -> None:
        interest.is_installed = True
        if interest.name in self._advertisements:
            self._record("advertised", "advertisement", interest)
        else:
            self._matches.clear()
            self._record("subscribed", "subscription", interest, ordered=interest.ordered)

    def _uninstall(self, interest: Interest[SubscriptionId]) -> None:
        if interest.is_installed:
            self._record("unsubscribed", "subscription", interest, ordered=interest.ordered)
        interest.is_installed = False
        self._matches.clear()

    def _forget(self, interest: Interest[Any]) -> None:
        """It is withdrawn everywhere; whoever still asked for it has been overtaken."""
        for operation, request in list(self._requests.items()):
            if request.interest is interest and not request.is_withdrawal:
                del self._requests[operation]
                self._restoring.discard(operation)
                self._outbox.add(EndOperation(operation, None))
        if interest.name in self._advertisements and interest.is_installed:
            self._record("unadvertised", "advertisement", interest)
        self._remove(interest)

    def _remove(self, interest: Interest[Any]) -> None:
        self._advertisements.pop(interest.name, None)
        self._subscriptions.pop(interest.name, None)

    def _record(self, kind: str, what: str, interest: Interest[Any], **fields: Any) -> None:
        self._journal.of_interest(
            kind, **{what: interest.name}, filter=interest.filter.sql, **fields
        )

    # --- sessions -------------------------------------------------------------------------------

    def begin_anew(self) -> None:
        """Nobody knows of any of it any more."""
        self._sessions += 1
        self._may_tell = False
        self._restoring.clear()
        for interest in self._all():
            interest.told_in = interest.withdrawn_in = 0
        for operation, request in list(self._requests.items()):
            request.message = None
            if request.is_withdrawal:
                self.on_confirm(operation)  # the lost session took it along
        for subscription in self._subscriptions.values():
            self._uninstall(subscription)

    def restore(self) -> None:
        """The broker has taken this client in: tell it what was advertised and subscribed to."""
        self._may_tell = True
        asking = {r.interest.name: operation for operation, r in self._requests.items()}
        still_needed = {name for _, name in self._withdrawals.values()}
        for advertisement in self._advertisements.values():
            if not advertisement.is_withdrawn or advertisement.name in still_needed:
                advertisement.wire_id = AdvertisementId(self._name_now(advertisement.name))
                operation = self._ask_anew(advertisement, asking)
                if advertisement.is_installed:
                    self._restoring.add(operation)
        for subscription in self._subscriptions.values():
            subscription.wire_id = SubscriptionId(self._name_now(subscription.name))
            self._ask_anew(subscription, asking)
        for ranking in self._rankings.values():
            self._stream.request(ranking)

    def _ask_anew(self, interest: Interest[Any], asking: Mapping[Any, OperationId]) -> OperationId:
        operation = asking.get(interest.name)
        if operation is not None:
            return self._ask(interest, operation)
        return self._ask(interest, self.new_operation(), is_told_anew=True)

    @property
    def is_restored(self) -> bool:
        """Whether everything stands again that was advertised before the session was lost."""
        return not self._restoring

    def _name_now(self, name: str) -> str:
        return name if self._sessions == 1 else f"{name}'{self._sessions}"

    # --- what it is good for --------------------------------------------------------------------

    def allow(self, content: Content) -> bool:
        """Whether this lies within what has been advertised."""
        for interest in self._advertisements.values():
            if interest.is_active and interest.filter.matches(content):
                return True
        return False

    @property
    def advertised(self) -> list[str]:
        """The filters under which this client may publish."""
        return [i.filter.sql for i in self._advertisements.values() if i.is_active]

    def topics(self) -> frozenset[Topic]:
        """The topics that its subscriptions name."""
        active = (i for i in self._subscriptions.values() if i.is_active)
        return frozenset().union(*(topics_of(i.filter) or () for i in active))

    def match(self, encoded: bytes) -> tuple[Content, tuple[SubscriptionId, ...]]:
        """The content, and which subscriptions want it; kept while those stand still."""
        matched = self._matches.get(encoded)
        if matched is None:
            if len(self._matches) >= MATCHES_REMEMBERED:
                self._matches.clear()
            matched = self._matches[encoded] = self._match(encoded)
        return matched

    def _match(self, encoded: bytes) -> tuple[Content, tuple[SubscriptionId, ...]]:
        content: Mapping[str, Any] = MappingProxyType(decode_content(encoded))
        return content, tuple(
            subscription
            for subscription, interest in self._subscriptions.items()
            if interest.is_active and interest.filter.matches(content)
        )

    # --- what is said of it ---------------------------------------------------------------------

    @property
    def claims(self) -> frozenset[str]:
        """What the overlay calls them."""
        return frozenset(interest.wire_id for interest in self._all())

    def contradictions(self) -> Iterator[str]:
        """What cannot be true of all this at the same time; there is none."""
        last = self._stream.step + 1
        for interest in self._all():
            if not 0 <= interest.told_in <= last or not 0 <= interest.withdrawn_in <= last:
                yield f"{interest.name} was told in step {interest.told_in}, {last} is under way"
            # One step may tell and withdraw, in this order: of a client that has just been let in.
            if interest.withdrawn_in and not 0 < interest.told_in <= interest.withdrawn_in:
                yield f"{interest.name} was withdrawn before it was told"
            if interest.told_in and not self._may_tell:
                yield f"{interest.name} was told to nobody"
        for operation, request in self._requests.items():
            if request.message is None and self._may_tell:
                yield f"{operation} waits for an answer, and was not asked"
        if not self._restoring <= self._requests.keys():
            yield f"{self._restoring - self._requests.keys()} are restored, and not asked for"

    def told_advertisements(self) -> list[Told[Advertisement]]:
        """What the broker was told in this session, as far as it may be needed again."""
        return self._told(self._advertisements, Unadvertise)

    def told_subscriptions(self) -> list[Told[Subscription]]:
        """The same of subscriptions."""
        return self._told(self._subscriptions, Unsubscribe)

    def _told(self, table: Mapping[Any, Interest[Any]], withdrawal: type) -> list[Told[Any]]:
        told: list[Told[Any]] = [
            Told(self._entry(interest), interest.told_in)
            for interest in table.values()
            if interest.told_in and not interest.withdrawn_in
        ]
        for control in self._stream.controls:
            if control.about is not None and isinstance(control.message, withdrawal):
                told.append(Told(control.about, control.told_in, control.step))
        return told

    def _entry(self, interest: Interest[Any]) -> RoutingEntry[Any]:
        return RoutingEntry(
            id=interest.wire_id,
            client=self._node,
            filter=interest.filter,
            path=(self._node,),
            ordered=interest.ordered,
        )

    def _all(self) -> Iterator[Interest[Any]]:
        yield from self._advertisements.values()
        yield from self._subscriptions.values()
