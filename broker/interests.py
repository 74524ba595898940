"""Advertisements and subscriptions at one broker: installing them, and spreading them.

Advertisements are flooded to every broker. Subscriptions go to neighbours from which an overlapping
advertisement came (`filter`) or everywhere (`flooding`). A later advertisement draws the
subscriptions that overlap it; because links are FIFO they are on their way before it is confirmed,
so that whoever publishes under it is heard by all.
"""

from typing import Final, Protocol

from broker.errors import RemoteProtocolError
from broker.limits import Limits
from broker.messages import Advertise, RefusalCode, Subscribe, Unadvertise, Unsubscribe
from broker.neighbours import UP, Above, Neighbour, Neighbours, is_client
from broker.requests import Requests
from routing.conflicts import Conflicts
from routing.filter_text import FilterSyntaxError, parse_filter
from routing.filters import Filter
from routing.ids import NodeId, OperationId, SubscriptionId
from routing.tables import (
    Advertisement,
    AdvertisementTable,
    RoutingEntry,
    Subscription,
    SubscriptionTable,
)

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
        conflicts: Conflicts | None,
        observer: Observer | None,
        is_root_to_know: bool,
    ) -> None:
        """Begin knowing nobody."""
        self.advertisements = AdvertisementTable()
        self.subscriptions = SubscriptionTable()
        self.policy = policy
        self.conflicts = conflicts
        """Kept up to date only for an ordering that waits for them."""
        self.observer = observer
        self._is_root_to_know = is_root_to_know
        """Whether subscriptions go up in any case, because all publications do."""
        self._node = node
        self._delta = delta
        self._limits = limits
        self._neighbours = neighbours
        self._requests = requests
        self._forwarded: dict[SubscriptionId, dict[NodeId, None]] = {}
        """To which neighbours each subscription has been passed on."""

    # --- advertisements ---------------------------------------------------------------------

    def on_advertise(self, source: Neighbour, advertise: Advertise, now: float) -> None:
        """Install an advertisement, pass it on, and send back the subscriptions it draws."""
        if advertise.advertisement in self.advertisements:
            self._requests.confirm_again(source, advertise.operation)
            return
        accepted = self._accept(source, advertise, advertise.advertisement)
        if accepted is None:
            return
        entry = RoutingEntry(
            id=advertise.advertisement,
            client=advertise.client,
            filter=accepted,
            path=advertise.path,
            hop=source.hop,
        )
        self.advertisements.add(entry)
        if self.conflicts is not None and isinstance(source, Above):
            self.conflicts.add_advertisement(entry)
        if self.observer is not None:
            self.observer.add_advertisement(entry)
        self._neighbours.version += 1
        if self.policy == FILTER and not is_client(source):
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
        if entry is None:
            self._requests.confirm_again(source, unadvertise.operation)
        else:
            self._require_owner(source, entry)
            self._withdraw_advertisement(unadvertise.operation, entry, source, now)

    def _withdraw_advertisement(
        self, operation: OperationId, entry: Advertisement, source: Neighbour | None, now: float
    ) -> None:
        self.advertisements.remove(entry.id)
        if self.conflicts is not None:
            self.conflicts.remove_advertisement(entry)
        if self.observer is not None:
            self.observer.remove_advertisement(entry)
        self._neighbours.version += 1
        onwards = Unadvertise(operation=operation, advertisement=entry.id)
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(operation, source, [(other, onwards) for other in others], now)
        if self.policy == FILTER and source is not None and not is_client(source):
            self._prune(entry, source, now)

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
        return Advertise(
            operation=operation,
            advertisement=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            path=self._path_onwards(entry),
        )

    # --- subscriptions ----------------------------------------------------------------------

    def on_subscribe(self, source: Neighbour, subscribe: Subscribe, now: float) -> None:
        """Install a subscription, and pass it on to where matching publications come from."""
        if subscribe.subscription in self._forwarded:
            self._requests.confirm_again(source, subscribe.operation)
            return
        accepted = self._accept(source, subscribe, subscribe.subscription)
        if accepted is None:
            return
        entry = RoutingEntry(
            id=subscribe.subscription,
            client=subscribe.client,
            filter=accepted,
            path=subscribe.path,
            hop=source.hop,
            ordered=subscribe.ordered,
        )
        self.subscriptions.add(entry)
        if self.conflicts is not None:
            self.conflicts.add_subscription(entry)
        if self.observer is not None:
            self.observer.add_subscription(entry)
        self._neighbours.version += 1
        targets = self._neighbours.other_brokers(source)
        if self.policy == FILTER:
            hops = self.advertisements.hops_overlapping(accepted, excluding=source.hop)
            if self._is_root_to_know and self._neighbours.parent is not None:
                hops.append(UP)
            targets = [target for target in targets if target.hop in hops]
        self._forwarded[entry.id] = {target.hop: None for target in targets}
        onwards = self._subscribe_onwards(subscribe.operation, entry)
        self._requests.pass_on(
            subscribe.operation, source, [(target, onwards) for target in targets], now
        )

    def on_unsubscribe(self, source: Neighbour, unsubscribe: Unsubscribe, now: float) -> None:
        """Take a subscription out, here and wherever it was passed on to."""
        entry = self.subscriptions.get(unsubscribe.subscription)
        if entry is None:
            self._requests.confirm_again(source, unsubscribe.operation)
        else:
            self._require_owner(source, entry)
            self._withdraw_subscription(unsubscribe.operation, entry, source, now)

    def _withdraw_subscription(
        self, operation: OperationId, entry: Subscription, source: Neighbour | None, now: float
    ) -> None:
        self.subscriptions.remove(entry.id)
        if self.conflicts is not None:
            self.conflicts.remove_subscription(entry)
        if self.observer is not None:
            self.observer.remove_subscription(entry)
        self._neighbours.version += 1
        onwards = Unsubscribe(operation=operation, subscription=entry.id)
        targets = map(self._neighbours.get, self._forwarded.pop(entry.id))
        self._requests.pass_on(
            operation, source, [(target, onwards) for target in targets if target], now
        )

    def _forward(self, entry: Subscription, target: Neighbour, now: float) -> None:
        """Pass a subscription on to a neighbour from which matching publications may now come."""
        self._forwarded[entry.id][target.hop] = None
        onwards = self._subscribe_onwards(self._requests.new_operation(), entry)
        self._requests.pass_on(onwards.operation, None, [(target, onwards)], now)

    def _subscribe_onwards(self, operation: OperationId, entry: Subscription) -> Subscribe:
        return Subscribe(
            operation=operation,
            subscription=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            ordered=entry.ordered,
            path=self._path_onwards(entry),
        )

    # --- neighbours that come and go --------------------------------------------------------

    def introduce(self, newcomer: Neighbour, now: float) -> None:
        """Tell a broker that joins here what there is already."""
        for advertisement in self.advertisements:
            advertise = self._advertise_onwards(self._requests.new_operation(), advertisement)
            self._requests.pass_on(advertise.operation, None, [(newcomer, advertise)], now)
        if self.policy == FLOODING:
            for subscription in self.subscriptions:
                self._forward(subscription, newcomer, now)

    def forget(self, gone: Neighbour, now: float) -> None:
        """Take out everything that lies behind a neighbour that is gone."""
        for subscription in [e for e in self.subscriptions if e.hop == gone.hop]:
            self._withdraw_subscription(self._requests.new_operation(), subscription, None, now)
        for advertisement in [e for e in self.advertisements if e.hop == gone.hop]:
            self._withdraw_advertisement(self._requests.new_operation(), advertisement, None, now)
        for hops in self._forwarded.values():
            hops.pop(gone.hop, None)

    # --- whom to believe --------------------------------------------------------------------

    def _accept(
        self, source: Neighbour, request: Advertise | Subscribe, name: str
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
            return parsed
        if request.client != source.node or request.path != (source.node,):
            reason = f"{name} belongs to {request.client}, not to {source.node}"
            self._requests.refuse(source, request.operation, RefusalCode.NOT_OWNER, reason)
            return None
        if isinstance(request, Advertise):
            count = self.advertisements.count_of_client(source.node)
            most = self._limits.advertisements_per_client_max
        else:
            count = self.subscriptions.count_of_client(source.node)
            most = self._limits.subscriptions_per_client_max
        if count >= most:
            reason = f"{source.node} has {count} already, at most {most} allowed"
            self._requests.refuse(source, request.operation, RefusalCode.TOO_MANY, reason)
            return None
        return parsed

    @staticmethod
    def _require_owner(source: Neighbour, entry: Advertisement | Subscription) -> None:
        if entry.hop != source.hop:
            raise RemoteProtocolError(f"{source.node} withdraws {entry.id}, which is not its own")

    def _path_onwards(self, entry: Advertisement | Subscription) -> tuple[NodeId, ...]:
        """The last δ + 1 hops, seen from the next node."""
        return (*entry.path, self._node)[-(self._delta + 1) :]
