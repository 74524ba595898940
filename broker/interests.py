"""Advertisements and subscriptions at one broker: installing them, and spreading them.

Advertisements are flooded to every broker. Subscriptions go to neighbours from which an overlapping
advertisement came (`filter`) or everywhere (`flooding`, or if conflicts are detected exactly). A
later advertisement draws the subscriptions that overlap it; because links are FIFO they are on
their way before it is confirmed, so that whoever publishes under it is heard by all.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final, Protocol

import attrs

from broker.errors import RemoteProtocolError
from broker.limits import Limits
from broker.messages import (
    NO_OPERATION,
    NOT_YET,
    Advertise,
    Asked,
    Join,
    Known,
    Learnt,
    Leave,
    NodeKind,
    Operation,
    RefusalCode,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Withdraw,
)
from broker.neighbours import UP, Above, Below, Neighbour, Neighbours, is_client
from broker.orphans import Orphan
from broker.requests import Requests
from broker.ticks import LONG_AGO, Ticks
from routing.conflicts import EXACT, Conflicts
from routing.filter_text import FilterSyntaxError, parse_filter
from routing.filters import Filter
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId, owner_of
from routing.tables import (
    Advertisement,
    AdvertisementTable,
    RoutingEntry,
    Subscription,
    SubscriptionTable,
)
from routing.values import Content

FLOODING: Final = "flooding"
FILTER: Final = "filter"
POLICIES: Final = (FLOODING, FILTER)


class Observer(Protocol):
    """Who has to know of every advertisement and subscription, for the sake of an ordering."""

    def add_advertisement(self, entry: Advertisement) -> None:
        """It is installed now."""

    def remove_advertisement(self, entry: Advertisement) -> None:
        """It no longer is."""

    def add_subscription(self, entry: Subscription) -> None:
        """It is installed now."""

    def remove_subscription(self, entry: Subscription) -> None:
        """It no longer is."""


@attrs.frozen
class Adoption:
    """What comes of orphans' claims."""

    since: int
    """What is known here since before this tick, was known here without them."""
    advertisements: dict[AdvertisementId, Advertisement]
    """Those that nobody has claimed."""
    subscriptions: dict[SubscriptionId, Subscription]
    unfinished_advertisements: dict[AdvertisementId, None] = attrs.field(factory=dict)
    """Those that are still being installed."""
    unfinished_subscriptions: dict[SubscriptionId, None] = attrs.field(factory=dict)


class Interests:
    """Who will publish what, and who wants what, seen from one broker."""

    def __init__(
        self,
        node: NodeId,
        *,
        policy: str,
        delta: int,
        limits: Limits,
        neighbours: Neighbours,
        requests: Requests,
        detection: str | None,
        observer: Observer | None,
        is_root_to_know: bool,
    ) -> None:
        """Begin knowing nobody; `detection` is how conflicts are found, if the ordering asks."""
        self.advertisements = AdvertisementTable()
        self.subscriptions = SubscriptionTable()
        self.policy = policy
        self.conflicts: Conflicts | None = None
        """Kept up to date only for an ordering that waits for them."""
        self.observer = observer
        if detection is not None:
            self.conflicts = Conflicts(self.subscriptions.index, detection=detection)
        self._is_told_everywhere = policy == FLOODING or detection == EXACT
        """Whether subscriptions go to every broker, drawn by an advertisement or not."""
        self._is_root_to_know = is_root_to_know
        """Whether subscriptions go up in any case, because all publications do."""
        self._node = node
        self._delta = delta
        self._limits = limits
        self._neighbours = neighbours
        self._requests = requests
        self._unconfirmed: dict[SubscriptionId, OperationId] = {}
        """Those that clients have asked for and do not have yet."""
        self._asked_for_by: dict[OperationId, SubscriptionId] = {}
        """The same the other way round."""
        self._lately_confirmed: dict[SubscriptionId, Asked] = {}
        """When others were confirmed to those who ask for them; long ago, if it is not here."""
        self._lately_withdrawn: deque[tuple[Subscription, int, int]] = deque(
            maxlen=limits.lately_changed_max
        )
        """Ordered ones that clients had, and from when to when; but not those that nobody claimed
        when a broker had failed, who may not have got what was sent there."""
        self._comes_again: dict[str, OperationId] = {}
        """What was adopted while it was being installed, and by which operation it comes again."""
        self._forwarded: dict[SubscriptionId, dict[NodeId, None]] = {}
        """To which neighbours each subscription has been passed on."""

    def note_confirmed(self, operation: OperationId) -> None:
        """Whoever has asked for it is going to hear that it is done."""
        subscription = self._asked_for_by.get(operation)
        if subscription is not None:
            self._forget_request(subscription)
            self._note_confirmed(subscription)

    def _note_request(self, subscription: SubscriptionId, operation: OperationId) -> None:
        self._forget_request(subscription)
        if operation in self._asked_for_by:
            # In a new session a client asks by the same operation, under another name.
            self._forget_request(self._asked_for_by[operation])
        self._unconfirmed[subscription] = operation
        self._asked_for_by[operation] = subscription

    def _forget_request(self, subscription: SubscriptionId) -> None:
        operation = self._unconfirmed.pop(subscription, None)
        if operation is not None:
            del self._asked_for_by[operation]

    def _note_confirmed(self, subscription: SubscriptionId, asked: Asked | None = None) -> None:
        """It is confirmed now, or was then."""
        asked = asked or Asked.at(next(self._neighbours.clock))
        if asked.latest != LONG_AGO:
            self._lately_confirmed[subscription] = asked
        if len(self._lately_confirmed) > self._limits.lately_changed_max:
            del self._lately_confirmed[next(iter(self._lately_confirmed))]

    def confirmed_at(self, subscriptions: Iterable[SubscriptionId]) -> list[Asked]:
        """From when on clients have had these."""
        long_ago = Asked.at(LONG_AGO)
        return [
            NOT_YET if name in self._unconfirmed else self._lately_confirmed.get(name, long_ago)
            for name in subscriptions
        ]

    def learnt_from_above(self, contents: Iterable[Content]) -> tuple[Learnt, ...]:
        """Since when this broker knows who beyond its parent asks for these; of many, the last."""
        names = {name for content in contents for name in self.subscriptions.index.match(content)}
        entries = filter(None, map(self.subscriptions.get, names))
        learnt = [Learnt(entry.id, entry.tick) for entry in entries if entry.hop == UP]
        learnt.sort(key=attrgetter("tick"))
        return tuple(learnt[-self._limits.lately_changed_max :])

    def got_once(self, content: Content, settled_at: int) -> list[Subscription]:
        """By which subscriptions that are withdrawn by now somebody got what was settled then."""
        return [
            entry
            for entry, confirmed_at, withdrawn_at in self._lately_withdrawn
            if confirmed_at <= settled_at < withdrawn_at and entry.filter.matches(content)
        ]

    @property
    def ticks(self) -> Ticks:
        """When neighbours confirmed what they were told."""
        return self._requests.ticks

    def has_advertised(self, client: NodeId) -> bool:
        """Whether it has anything installed under which it may publish."""
        return self.advertisements.count_of_client(client) > 0

    def announced(self, publisher: NodeId, content: Content) -> list[Advertisement]:
        """Under which advertisements something like this may have been published."""
        mine = self.advertisements.of_client(publisher)
        return [entry for entry in mine if entry.filter.matches(content)]

    def could_share(
        self, clients: Iterable[NodeId], others: Iterable[NodeId], dead: Below, before: int
    ) -> bool:
        """Whether something from above could be for one of the clients and one of those above.

        As a failed child knew it: what that had told before this tick, and what it had confirmed.
        """
        if self.conflicts is None:
            return False
        pending = self._requests.pending_at(dead.hop)
        known = [e for e in self.advertisements if e.hop == UP and e.id not in pending]
        return any(
            self.conflicts.may_share(entry, others, known)
            for client in clients
            for entry in self.subscriptions.of_client(client)
            if entry.ordered and entry.tick < before
        )

    # --- advertisements ---------------------------------------------------------------------

    def on_advertise(self, source: Neighbour, advertise: Advertise, now: float) -> None:
        """Install an advertisement, pass it on, and send back the subscriptions it draws."""
        known = self.advertisements.get(advertise.advertisement)
        accepted = self._accept(source, advertise, advertise.advertisement, is_new=known is None)
        if accepted is None:
            return
        self._comes_again.pop(advertise.advertisement, None)
        if known is not None:  # it comes again, and perhaps from elsewhere: the tree has changed
            self._take_out_advertisement(known)
        entry = RoutingEntry(
            id=advertise.advertisement,
            client=advertise.client,
            filter=accepted,
            path=advertise.path,
            hop=source.hop,
            tick=next(self._neighbours.clock) if known is None else known.tick,
        )
        self._put_in_advertisement(entry)
        self._neighbours.version += 1
        if not self._is_told_everywhere and not is_client(source):
            for subscription in self.subscriptions.overlapping(accepted, excluding=source.hop):
                if source.hop not in self._forwarded[subscription.id]:
                    self._forward(subscription, source, now)
        onwards = self._advertise_onwards(advertise.operation, entry)
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(
            advertise.operation, source, [(other, onwards) for other in others], now
        )

    def on_unadvertise(self, source: Neighbour, unadvertise: Unadvertise, now: float) -> None:
        """Take an advertisement out, here and everywhere."""
        entry = self.advertisements.get(unadvertise.advertisement)
        if entry is None or self._is_elsewhere(source, entry):
            self._requests.pass_on(unadvertise.operation, source, [], now)
        else:
            self._withdraw_advertisement(unadvertise.operation, entry, source, now)

    def _withdraw_advertisement(
        self, operation: OperationId, entry: Advertisement, source: Neighbour | None, now: float
    ) -> None:
        self._comes_again.pop(entry.id, None)
        self._take_out_advertisement(entry)
        self._neighbours.version += 1
        onwards = Unadvertise(operation=operation, advertisement=entry.id)
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(operation, source, [(other, onwards) for other in others], now)
        if not self._is_told_everywhere and source is not None and not is_client(source):
            self._prune(entry, source, now)

    def _put_in_advertisement(self, entry: Advertisement) -> None:
        self.advertisements.add(entry)
        if self.conflicts is not None and entry.hop == UP:
            self.conflicts.add_advertisement(entry)
        if self.observer is not None:
            self.observer.add_advertisement(entry)

    def _take_out_advertisement(self, entry: Advertisement) -> None:
        self.advertisements.remove(entry.id)
        if self.conflicts is not None:
            self.conflicts.remove_advertisement(entry)
        if self.observer is not None:
            self.observer.remove_advertisement(entry)

    def _prune(self, withdrawn: Advertisement, source: Neighbour, now: float) -> None:
        """Take back the subscriptions that only this advertisement drew towards `source`."""
        if self._is_root_to_know and isinstance(source, Above):
            return
        for subscription in self.subscriptions.overlapping(withdrawn.filter, excluding=source.hop):
            hops = self._forwarded[subscription.id]
            if source.hop in hops and source.hop not in self.advertisements.hops_overlapping(
                subscription.filter, excluding=subscription.hop
            ):
                del hops[source.hop]
                operation = self._requests.new_operation()
                back = Unsubscribe(operation=operation, subscription=subscription.id)
                self._requests.pass_on(operation, None, [(source, back)], now)

    def _advertise_onwards(self, operation: OperationId, entry: Advertisement) -> Advertise:
        return self._advertise_by(entry, self._path_onwards(entry), operation)

    def _advertise_by(
        self, entry: Advertisement, path: tuple[NodeId, ...], operation: OperationId = NO_OPERATION
    ) -> Advertise:
        return Advertise(
            operation=operation,
            advertisement=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            path=path,
        )

    # --- subscriptions ----------------------------------------------------------------------

    def on_subscribe(self, source: Neighbour, subscribe: Subscribe, now: float) -> None:
        """Install a subscription, and pass it on to where matching publications come from."""
        known = self.subscriptions.get(subscribe.subscription)
        accepted = self._accept(source, subscribe, subscribe.subscription, is_new=known is None)
        if accepted is None:
            return
        is_done = known is not None and known.id not in self._unconfirmed
        is_done &= self._comes_again.pop(subscribe.subscription, None) is None
        forwarded: dict[NodeId, None] = {}
        if known is not None:  # as with advertisements
            entry = self._move_subscription(known, subscribe.path, source.hop)
            forwarded = self._forwarded[known.id]
            forwarded.pop(source.hop, None)
        else:
            entry = RoutingEntry(
                id=subscribe.subscription,
                client=subscribe.client,
                filter=accepted,
                path=subscribe.path,
                hop=source.hop,
                ordered=subscribe.ordered,
                tick=next(self._neighbours.clock),
            )
            self._put_in_subscription(entry)
        if not is_done and _is_of_client(subscribe):
            self._note_request(entry.id, subscribe.operation)
        elif known is None:
            self._note_confirmed(entry.id)
        self._neighbours.version += 1
        hops = self._hops_to_tell(entry)
        # Those who were told before are told again: it may have been under another operation, which
        # is not confirmed yet, and this one vouches for all.
        targets = [t for t in self._neighbours.other_brokers(source) if t.hop in hops]
        self._forwarded[entry.id] = forwarded | {target.hop: None for target in targets}
        onwards = self._subscribe_onwards(subscribe.operation, entry)
        self._requests.pass_on(
            subscribe.operation, source, [(target, onwards) for target in targets], now
        )

    def on_unsubscribe(self, source: Neighbour, unsubscribe: Unsubscribe, now: float) -> None:
        """Take a subscription out, here and wherever it was passed on to."""
        entry = self.subscriptions.get(unsubscribe.subscription)
        if entry is None or self._is_elsewhere(source, entry):
            self._requests.pass_on(unsubscribe.operation, source, [], now)
        else:
            self._withdraw_subscription(unsubscribe.operation, entry, source, now)

    def _withdraw_subscription(
        self, operation: OperationId, entry: Subscription, source: Neighbour | None, now: float
    ) -> None:
        self._comes_again.pop(entry.id, None)
        self._take_out_subscription(entry)
        self._neighbours.version += 1
        onwards = Unsubscribe(operation=operation, subscription=entry.id)
        targets = map(self._neighbours.get, self._forwarded.pop(entry.id))
        self._requests.pass_on(
            operation, source, [(target, onwards) for target in targets if target], now
        )

    def _put_in_subscription(self, entry: Subscription) -> None:
        self.subscriptions.add(entry)
        if self.conflicts is not None:
            self.conflicts.add_subscription(entry)
        if self.observer is not None:
            self.observer.add_subscription(entry)

    def _move_subscription(
        self, known: Subscription, path: tuple[NodeId, ...], hop: NodeId
    ) -> Subscription:
        entry = self.subscriptions.move(known.id, path, hop)
        if self.conflicts is not None:
            self.conflicts.move_subscription(entry)
        if self.observer is not None:
            self.observer.remove_subscription(known)
            self.observer.add_subscription(entry)
        return entry

    def _take_out_subscription(self, entry: Subscription) -> None:
        since = self.confirmed_at([entry.id])[0].latest
        self._lately_confirmed.pop(entry.id, None)
        self._forget_request(entry.id)
        is_claimed = entry.hop == entry.client or self._neighbours.get(entry.hop) is not None
        if since and entry.ordered and is_claimed:
            self._lately_withdrawn.append((entry, since, next(self._neighbours.clock)))
        self.subscriptions.remove(entry.id)
        if self.conflicts is not None:
            self.conflicts.remove_subscription(entry)
        if self.observer is not None:
            self.observer.remove_subscription(entry)

    def _hops_to_tell(
        self, entry: Subscription, unfinished: Collection[AdvertisementId] = ()
    ) -> list[NodeId]:
        """Where publications come from that this subscription may match."""
        if self._is_told_everywhere:
            hops = [neighbour.hop for neighbour in self._neighbours.other_brokers(None)]
        else:
            overlapping = self.advertisements.overlapping(entry.filter, excluding=entry.hop)
            hops = list(dict.fromkeys(a.hop for a in overlapping if a.id not in unfinished))
            if self._is_root_to_know and self._neighbours.parent is not None:
                hops.append(UP)
        return [hop for hop in hops if hop != entry.hop]

    def _forward(self, entry: Subscription, target: Neighbour, now: float) -> OperationId:
        """Pass a subscription on to a neighbour from which matching publications may now come."""
        self._forwarded[entry.id][target.hop] = None
        onwards = self._subscribe_onwards(self._requests.new_operation(), entry)
        self._requests.pass_on(onwards.operation, None, [(target, onwards)], now)
        return onwards.operation

    def _subscribe_onwards(self, operation: OperationId, entry: Subscription) -> Subscribe:
        return self._subscribe_by(entry, self._path_onwards(entry), operation)

    def _subscribe_by(
        self, entry: Subscription, path: tuple[NodeId, ...], operation: OperationId = NO_OPERATION
    ) -> Subscribe:
        return Subscribe(
            operation=operation,
            subscription=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            ordered=entry.ordered,
            path=path,
        )

    # --- neighbours that come and go --------------------------------------------------------

    def introduce(self, newcomer: Neighbour, now: float) -> None:
        """Tell a broker that joins here what there is already."""
        for advertisement in self.advertisements:
            advertise = self._advertise_onwards(self._requests.new_operation(), advertisement)
            self._requests.pass_on(advertise.operation, None, [(newcomer, advertise)], now)
        if self._is_told_everywhere:
            for subscription in self.subscriptions:
                self._forward(subscription, newcomer, now)

    def forget(self, gone: Neighbour, now: float) -> None:
        """Take out everything that lies behind a neighbour that is gone."""
        subscriptions: Iterable[Subscription] = self.subscriptions
        advertisements: Iterable[Advertisement] = self.advertisements
        if is_client(gone):  # of whom there may be thousands to go at once
            subscriptions = self.subscriptions.of_client(gone.node)
            advertisements = self.advertisements.of_client(gone.node)
        else:
            for hops in self._forwarded.values():
                hops.pop(gone.hop, None)
        for subscription in [e for e in subscriptions if e.hop == gone.hop]:
            self._withdraw_subscription(self._requests.new_operation(), subscription, None, now)
        for advertisement in [e for e in advertisements if e.hop == gone.hop]:
            self._withdraw_advertisement(self._requests.new_operation(), advertisement, None, now)

    def as_of_now(self, hop: NodeId, request: Operation) -> Operation | None:
        """What of a request is to be sent again to a neighbour.

        Nobody is to forget again what it has been told anew since, nor to know again what it was
        to forget; nor to withdraw a client that has come back, with all that it has now.
        """
        match request:
            case Subscribe(subscription=subscription):
                return request if hop in self._forwarded.get(subscription, ()) else None
            case Unsubscribe(subscription=subscription):
                return None if hop in self._forwarded.get(subscription, ()) else request
            case Withdraw(client=client):
                return attrs.evolve(request, but=self._all_of(client))
        return request

    def _all_of(self, client: NodeId) -> tuple[str, ...]:
        tables = (self.advertisements, self.subscriptions)
        return tuple(entry.id for table in tables for entry in table.of_client(client))

    # --- in the place of brokers that have failed -----------------------------------------------

    def claims_above(self, contents: Iterable[Content]) -> tuple[list[Advertise], list[Subscribe]]:
        """What lies on this side of the parent: for a hub that takes the place of the parent.

        It has to know who on this side has these contents, which may come from this side only; from
        now on all of them count as told above.
        """
        pending = self._comes_again | self._requests.pending_at(UP)
        for name in set(chain.from_iterable(map(self.subscriptions.index.match, contents))):
            entry = self.subscriptions.get(name)
            if entry is not None and entry.hop != UP:
                self._forwarded[name][UP] = None
        advertisements = [
            self._advertise_onwards(pending.get(entry.id, NO_OPERATION), entry)
            for entry in self.advertisements
            if entry.hop != UP
        ]
        subscriptions = [
            self._subscribe_onwards(pending.get(entry.id, NO_OPERATION), entry)
            for entry in self.subscriptions
            if UP in self._forwarded[entry.id]
        ]
        return advertisements, subscriptions

    def adopt(self, dead: Neighbour, orphans: Sequence[Orphan]) -> Adoption:
        """Install what lies behind the orphans of a failed neighbour, in place of what it knew.

        What is still being installed is not told to anybody yet: its operation will come again.
        """
        adoption = Adoption(
            since=next(self._neighbours.clock),
            advertisements={e.id: e for e in self.advertisements if e.hop == dead.hop},
            subscriptions={e.id: e for e in self.subscriptions if e.hop == dead.hop},
        )
        for orphan in orphans:
            for advertise in orphan.advertisements.values():
                self._adopt_advertisement(orphan, advertise, adoption)
            asked_at = orphan.asked_at
            for subscribe in orphan.subscriptions.values():
                self._adopt_subscription(orphan, subscribe, adoption)
                if subscribe.subscription not in self._lately_confirmed:
                    asked = orphan.asked_here(asked_at[subscribe.subscription])
                    self._note_confirmed(subscribe.subscription, asked)
        for name in self._comes_again | self._requests.pending_at(dead.hop):
            if AdvertisementId(name) in self.advertisements:
                adoption.unfinished_advertisements[AdvertisementId(name)] = None
            elif SubscriptionId(name) in self.subscriptions:
                adoption.unfinished_subscriptions[SubscriptionId(name)] = None
        hops_of_orphans = {orphan.neighbour.hop for orphan in orphans}
        hops_to_tell: dict[tuple[Filter | None, NodeId], list[NodeId]] = {}
        brokers = {neighbour.hop for neighbour in self._neighbours.other_brokers(None)}
        for entry in self.subscriptions:
            forwarded = self._forwarded[entry.id]
            was_there = forwarded.pop(dead.hop, entry) is None
            if entry.id in adoption.unfinished_subscriptions:
                continue
            if was_there or entry.hop in hops_of_orphans:
                place = (None if self._is_told_everywhere else entry.filter, entry.hop)
                if place not in hops_to_tell:
                    hops_to_tell[place] = self._hops_to_tell(
                        entry, adoption.unfinished_advertisements
                    )
                for hop in hops_to_tell[place]:
                    if hop in brokers and (hop in hops_of_orphans or entry.hop in hops_of_orphans):
                        forwarded[hop] = None
        self._neighbours.version += 1
        return adoption

    def _adopt_advertisement(
        self, orphan: Orphan, advertise: Advertise, adoption: "Adoption"
    ) -> None:
        self._note_unfinished(advertise)
        adoption.advertisements.pop(advertise.advertisement, None)
        self._announce(advertise, orphan.neighbour.hop)

    def _adopt_subscription(
        self, orphan: Orphan, subscribe: Subscribe, adoption: "Adoption"
    ) -> None:
        self._note_unfinished(subscribe)
        adoption.subscriptions.pop(subscribe.subscription, None)
        hop = orphan.neighbour.hop
        self._install(subscribe, hop)
        self._forwarded.setdefault(subscribe.subscription, {}).pop(hop, None)

    def known_from_above(self) -> Iterator[Known]:
        """What a hub that has taken this broker in cannot know that it knows, in portions."""
        advertisements = [entry.id for entry in self.advertisements if entry.hop == UP]
        subscriptions = [entry.id for entry in self.subscriptions if entry.hop == UP]
        most = self._limits.known_at_once
        for start in range(0, max(len(advertisements), len(subscriptions)), most):
            part = slice(start, start + most)
            yield Known(
                advertisements=tuple(advertisements[part]), subscriptions=tuple(subscriptions[part])
            )

    def on_known(self, source: Below, known: Known, now: float) -> None:
        """Let an adopted broker forget what is no more, and remember that it knows the rest."""
        backs: list[Operation] = []
        taken_back = self._requests.taken_back_from(source)
        for name in known.subscriptions:
            entry = self.subscriptions.get(name)
            if entry is None:
                operation = self._requests.new_operation()
                backs.append(Unsubscribe(operation=operation, subscription=name))
            elif entry.hop != source.hop and name not in taken_back:
                self._forwarded[name][source.hop] = None
        for advertisement in known.advertisements:
            if advertisement not in self.advertisements:
                operation = self._requests.new_operation()
                backs.append(Unadvertise(operation=operation, advertisement=advertisement))
        for back in backs:
            self._requests.pass_on(back.operation, None, [(source, back)], now)

    def targets_among(self, orphans: Sequence[Orphan], request: Operation) -> list[NodeId]:
        """Which of the orphans are to be told what the failed neighbour has not confirmed."""
        brokers = [o.neighbour.hop for o in orphans if o.neighbour.kind is NodeKind.BROKER]
        match request:
            case Subscribe(subscription=subscription):
                entry = self.subscriptions.get(subscription)
                if entry is None:
                    return []
                hops = self._hops_to_tell(entry)
                targets = [hop for hop in brokers if hop in hops]
                self._forwarded[subscription].update(dict.fromkeys(targets))
                return targets
            case Unsubscribe(subscription=subscription) if subscription in self.subscriptions:
                # It was not needed there any more, which it may be behind some of the orphans.
                return [hop for hop in brokers if hop not in self._forwarded[subscription]]
            case Join(link=link) if link.kind == NodeKind.BROKER.value:
                return [orphan.neighbour.hop for orphan in orphans]
            case Leave():
                return [orphan.neighbour.hop for orphan in orphans]
            case _:
                return brokers

    def draw_towards(self, advertisements: Iterable[AdvertisementId], now: float) -> None:
        """Pass on to them what they draw; nobody can say whether the failed neighbour had."""
        for name in advertisements:
            advertisement = self.advertisements.get(name)
            target = self._neighbours.get(advertisement.hop) if advertisement else None
            if advertisement is None or target is None or is_client(target):
                continue
            if not self._is_told_everywhere:
                for subscription in self.subscriptions.overlapping(
                    advertisement.filter, excluding=advertisement.hop
                ):
                    is_there = self._neighbours.get(subscription.hop) is not None  # or unclaimed
                    if is_there and target.hop not in self._forwarded[subscription.id]:
                        self._forward(subscription, target, now)

    def withdraw_unclaimed(self, adoption: "Adoption", now: float) -> None:
        """What lay behind the failed neighbour and behind none of its orphans, is no more."""
        for subscription in adoption.subscriptions.values():
            self._forwarded[subscription.id] = {
                neighbour.hop: None for neighbour in self._neighbours.other_brokers(None)
            }
            self._withdraw_subscription(self._requests.new_operation(), subscription, None, now)
        for advertisement in adoption.advertisements.values():
            self._withdraw_advertisement(self._requests.new_operation(), advertisement, None, now)

    def spread_withdrawal(self, client: NodeId, now: float) -> None:
        """A client is gone that was behind a failed broker: let others forget it.

        They may know what this broker does not. It may be back already, at another place.
        """
        self._pass_on_withdrawal(self._requests.new_operation(), client, None, now)

    def on_withdraw(self, source: Neighbour, withdraw: Withdraw, now: float) -> None:
        """A client is gone that was somewhere behind this neighbour: forget it here and beyond."""
        subscriptions = [
            e
            for e in self.subscriptions.of_client(withdraw.client)
            if e.hop == source.hop and e.id not in withdraw.but
        ]
        advertisements = [
            e
            for e in self.advertisements.of_client(withdraw.client)
            if e.hop == source.hop and e.id not in withdraw.but
        ]
        for subscription in subscriptions:
            self._withdraw_subscription(self._requests.new_operation(), subscription, None, now)
        for advertisement in advertisements:
            self._withdraw_advertisement(self._requests.new_operation(), advertisement, None, now)
        if subscriptions or advertisements:
            self._pass_on_withdrawal(withdraw.operation, withdraw.client, source, now)
        else:
            self._requests.pass_on(withdraw.operation, source, [], now)

    def _pass_on_withdrawal(
        self, operation: OperationId, client: NodeId, source: Neighbour | None, now: float
    ) -> None:
        onwards = Withdraw(operation=operation, client=client, but=self._all_of(client))
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(operation, source, [(other, onwards) for other in others], now)

    # --- when a child is handed over to another one ---------------------------------------------

    def claims_of(
        self, child: Below, taker: Below
    ) -> tuple[list[Advertise], list[Subscribe], list[Advertise], list[Subscribe]]:
        """What lies behind a child, and what was told or drawn there: for the one that takes it.

        What is still being installed has the operation by which that is done, as for a hub; and of
        what was told, what the child has not confirmed has the one by which it was asked.
        """
        pending = self._requests.pending_at(child.hop)
        unfinished = self._comes_again | self._requests.pending_for(child.hop)
        known = {name for name, hops in self._forwarded.items() if child.hop in hops}
        known.update(self._drawn_by(child))
        advertisements_told = [
            self._advertise_by(entry, entry.path, pending[entry.id])
            for entry in self.advertisements
            if entry.id in pending and entry.hop != child.hop
        ]
        subscriptions_told = [
            # Whoever takes it knows by the path which of them are its own.
            self._subscribe_by(
                entry,
                entry.path if entry.hop == taker.hop else self._path_onwards(entry),
                pending.get(entry.id, NO_OPERATION),
            )
            for entry in self.subscriptions
            if entry.id in known
        ]
        advertisements = [
            self._advertise_by(entry, entry.path, unfinished.get(entry.id, NO_OPERATION))
            for entry in self.advertisements
            if entry.hop == child.hop
        ]
        subscriptions = [
            self._subscribe_by(entry, entry.path, unfinished.get(entry.id, NO_OPERATION))
            for entry in self.subscriptions
            if entry.hop == child.hop
        ]
        return advertisements, subscriptions, advertisements_told, subscriptions_told

    def unknown_to(self, taker: Below, children: Iterable[Below]) -> list[SubscriptionId]:
        """What a taker of these children does not know yet, and will have to."""
        names: dict[SubscriptionId, None] = {}
        for child in children:
            names |= dict.fromkeys(e.id for e in self.subscriptions if e.hop == child.hop)
            names |= dict.fromkeys(self._drawn_by(child))
        return [entry.id for entry in self._news_to(taker, names)]

    def tell(
        self, taker: Below, subscriptions: Iterable[SubscriptionId], now: float
    ) -> list[OperationId]:
        """Pass on to a taker those of them that are still there, and still news to it."""
        return [self._forward(entry, taker, now) for entry in self._news_to(taker, subscriptions)]

    def _news_to(self, taker: Below, names: Iterable[SubscriptionId]) -> list[Subscription]:
        entries = map(self.subscriptions.get, names)
        return [
            entry
            for entry in entries
            if entry is not None
            and entry.hop != taker.hop
            and taker.hop not in self._forwarded[entry.id]
        ]

    def _drawn_by(self, child: Below) -> list[SubscriptionId]:
        """What whoever has this child has to know; a client itself is not told of it."""
        return [
            subscription.id
            for advertisement in self.advertisements
            if advertisement.hop == child.hop
            for subscription in self.subscriptions.overlapping(
                advertisement.filter, excluding=child.hop
            )
        ]

    def hand_over(self, child: Below, taker: Below) -> None:
        """From now on everything that lay behind a child lies behind the one that took it."""
        for name in self._drawn_by(child):
            self._forwarded[name][taker.hop] = None
        for advertisement in [e for e in self.advertisements if e.hop == child.hop]:
            self._take_out_advertisement(advertisement)
            path = self._extended(advertisement.path, taker.node)
            self._put_in_advertisement(attrs.evolve(advertisement, path=path, hop=taker.hop))
        for subscription in [e for e in self.subscriptions if e.hop == child.hop]:
            path = self._extended(subscription.path, taker.node)
            self._move_subscription(subscription, path, taker.hop)
            if subscription.id in self._unconfirmed:  # the taker confirms it, from now on
                self._forget_request(subscription.id)
                self._note_confirmed(subscription.id)
        for entry in self.subscriptions:
            forwarded = self._forwarded[entry.id]
            if child.hop in forwarded:
                del forwarded[child.hop]
                forwarded[taker.hop] = None
            if entry.hop == taker.hop:
                forwarded.pop(taker.hop, None)
        self._neighbours.version += 1

    def is_void(self, request: Operation, taker: Below) -> bool:
        """Whether a taker need not be told: it told that itself, or it has been withdrawn."""
        return isinstance(request, Advertise | Subscribe) and self.hop_of(request) in (
            None,
            taker.hop,
        )

    def hop_of(self, request: Advertise | Subscribe) -> NodeId | None:
        """Where that lies which is asked for here, if it is known already."""
        known: Advertisement | Subscription | None
        if isinstance(request, Advertise):
            known = self.advertisements.get(request.advertisement)
        else:
            known = self.subscriptions.get(request.subscription)
        return None if known is None else known.hop

    def take_over(
        self,
        child: Below,
        handed: Sequence[Advertise | Subscribe],
        advertised: int,
        asked: Sequence[Asked | None],
        known: Sequence[Asked | None],
        now: float,
    ) -> None:
        """The parent hands over a child, and says what lies behind it, and then what it knows.

        First come so many advertisements, and then the subscriptions that were confirmed then. All
        of it stays where it is everywhere else, so that nobody else is told of it. What the child
        knows ends with subscriptions, of which it is said as well when they were confirmed.
        """
        advertisements = [each for each in handed if isinstance(each, Advertise)]
        subscriptions = [each for each in handed if isinstance(each, Subscribe)]
        for advertise in advertisements[:advertised]:
            self._note_unfinished(advertise)
            self._announce(advertise, child.hop)
        for subscribe, then in zip(subscriptions[: len(asked)], asked, strict=True):
            self._note_unfinished(subscribe)
            self._install(subscribe, child.hop)
            self._lately_confirmed.pop(subscribe.subscription, None)
            self._note_confirmed(subscribe.subscription, then)
            forwarded = self._forwarded.setdefault(subscribe.subscription, {})
            forwarded.pop(child.hop, None)
            forwarded[UP] = None
        for advertise in advertisements[advertised:]:
            if entry := self.advertisements.get(advertise.advertisement):
                onwards = self._advertise_onwards(self._requests.new_operation(), entry)
                self._requests.pass_on(onwards.operation, None, [(child, onwards)], now)
        for subscribe, then in zip(subscriptions[len(asked) :], known, strict=True):
            self._note_told(child, subscribe, then, now)
        self._neighbours.version += 1
        drawing = [entry.id for entry in self.advertisements if entry.hop == child.hop]
        self.draw_towards(drawing, now)

    def _note_told(self, child: Below, told: Subscribe, then: Asked | None, now: float) -> None:
        """A child that has been taken over was told of a subscription, and may have heard of it.

        For the child it may count since long before this broker has heard of it.
        """
        if told.subscription not in self.subscriptions:
            if told.path[-1] == self._node:  # withdrawn, which the parent does not know
                if not is_client(child):
                    operation = self._requests.new_operation()
                    back = Unsubscribe(operation=operation, subscription=told.subscription)
                    self._requests.pass_on(operation, None, [(child, back)], now)
                return
            self._install(told, UP)
        self._forwarded.setdefault(told.subscription, {})
        entry = self.subscriptions.get(told.subscription)
        assert entry is not None
        if entry.hop == UP and then is not None:
            self._lately_confirmed.pop(entry.id, None)
            self._note_confirmed(entry.id, then)
        if told.operation != NO_OPERATION:
            self._forward(entry, child, now)
        elif not is_client(child):
            self._forwarded[entry.id][child.hop] = None

    def _note_unfinished(self, claim: Advertise | Subscribe) -> None:
        """What is being installed on behalf of a new neighbour will come again from there."""
        if claim.operation == NO_OPERATION:
            return
        if isinstance(claim, Advertise):
            self._comes_again[claim.advertisement] = claim.operation
        else:
            self._comes_again[claim.subscription] = claim.operation
            if _is_of_client(claim):
                self._note_request(claim.subscription, claim.operation)

    def _announce(self, advertise: Advertise, hop: NodeId) -> None:
        known = self.advertisements.get(advertise.advertisement)
        if known is not None:
            self._take_out_advertisement(known)
        self._put_in_advertisement(
            RoutingEntry(
                id=advertise.advertisement,
                client=advertise.client,
                filter=parse_filter(advertise.filter),
                path=advertise.path,
                hop=hop,
                tick=next(self._neighbours.clock) if known is None else known.tick,
            )
        )

    def _install(self, subscribe: Subscribe, hop: NodeId) -> None:
        known = self.subscriptions.get(subscribe.subscription)
        if known is not None:
            self._move_subscription(known, subscribe.path, hop)
            return
        self._put_in_subscription(
            RoutingEntry(
                id=subscribe.subscription,
                client=subscribe.client,
                filter=parse_filter(subscribe.filter),
                path=subscribe.path,
                ordered=subscribe.ordered,
                hop=hop,
                tick=next(self._neighbours.clock),
            )
        )

    # --- whom to believe --------------------------------------------------------------------

    def require_readable(self, claim: Advertise | Subscribe) -> None:
        """Raise `RemoteProtocolError` if this, which is installed later, cannot be."""
        known: Advertisement | Subscription | None
        if isinstance(claim, Advertise):
            known = self.advertisements.get(claim.advertisement)
        else:
            known = self.subscriptions.get(claim.subscription)
        if not claim.path:
            raise RemoteProtocolError(f"{type(claim).__name__} of {claim.client} by nobody")
        if known is None or known.filter.sql != claim.filter:
            try:
                parse_filter(claim.filter)
            except FilterSyntaxError as error:
                raise RemoteProtocolError(f"{type(claim).__name__}: {error}") from None

    def _accept(
        self,
        source: Neighbour,
        request: Advertise | Subscribe,
        name: AdvertisementId | SubscriptionId,
        *,
        is_new: bool,
    ) -> Filter | None:
        """The filter of a request that may be installed; None if it has been refused."""
        try:
            parsed = parse_filter(request.filter)
        except FilterSyntaxError as error:
            if not is_client(source):
                raise RemoteProtocolError(f"{name} of {source.node}: {error}") from None
            self._requests.refuse(source, request.operation, RefusalCode.BAD_FILTER, str(error))
            return None
        if not is_client(source):
            if request.path[-1:] != (source.node,):
                raise RemoteProtocolError(f"{name} of {source.node} came by {request.path}")
            if owner_of(name) != request.client:
                raise RemoteProtocolError(f"{source.node} says that {name} is {request.client}'s")
            return parsed
        if {request.client, owner_of(name)} != {source.node} or request.path != (source.node,):
            reason = f"{name} of {request.client} is not {source.node}'s to ask for"
            self._requests.refuse(source, request.operation, RefusalCode.NOT_OWNER, reason)
            return None
        if isinstance(request, Advertise):
            count = self.advertisements.count_of_client(source.node)
            most = self._limits.advertisements_per_client_max
        else:
            count = self.subscriptions.count_of_client(source.node)
            most = self._limits.subscriptions_per_client_max
        if is_new and count >= most:
            reason = f"{source.node} has {count} already, at most {most} allowed"
            self._requests.refuse(source, request.operation, RefusalCode.TOO_MANY, reason)
            return None
        return parsed

    @staticmethod
    def _is_elsewhere(source: Neighbour, entry: Advertisement | Subscription) -> bool:
        """Whether an entry lies in another direction than that from which it is withdrawn.

        Between brokers that comes of a tree that has changed, and is of no consequence.
        """
        if entry.hop != source.hop and is_client(source):
            raise RemoteProtocolError(f"{source.node} withdraws {entry.id}, which is not its own")
        return entry.hop != source.hop

    def _path_onwards(self, entry: Advertisement | Subscription) -> tuple[NodeId, ...]:
        """The last δ + 1 hops, seen from the next node."""
        return self._extended(entry.path, self._node)

    def _extended(self, path: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
        return (*path, node)[-(self._delta + 1) :]


def _is_of_client(subscribe: Subscribe) -> bool:
    """Whether its client waits for this operation, or some broker passes on what it knew."""
    return subscribe.operation.startswith(f"{subscribe.client}#")
