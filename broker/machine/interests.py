"""Advertisements and subscriptions at one broker: installing them, and spreading them.

Advertisements are flooded to every broker. Subscriptions go to neighbours from which an overlapping
advertisement came (`filter`) or everywhere (`flooding`, or if conflicts are detected exactly). A
later advertisement draws the subscriptions that overlap it; because links are FIFO they are on
their way before it is confirmed, so that whoever publishes under it is heard by all.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol, TypeVar

from plait.broker.effects import Refusal
from plait.broker.errors import RemoteProtocolError
from plait.broker.limits import Limits
from plait.broker.machine.neighbours import UP, Above, Below, Neighbour, Neighbours, is_client
from plait.broker.machine.requests import Requests
from plait.broker.machine.steps import Steps, subject
from plait.broker.messages import (
    Advertise,
    Operation,
    RefusalCode,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from plait.faulttol.steplog import Interest
from plait.routing.conflicts import EXACT, Conflicts
from plait.routing.filter_text import FilterSyntaxError, parse_filter
from plait.routing.filters import Filter
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.tables import (
    Advertisement,
    AdvertisementTable,
    RoutingEntry,
    Subscription,
    SubscriptionTable,
)

FLOODING: Final = "flooding"

FILTER: Final = "filter"

POLICIES: Final = (FLOODING, FILTER)

Entry_ = TypeVar("Entry_", Advertisement, Subscription)


Judge = Callable[[Neighbour, Advertise | Subscribe, Filter], Refusal | None]
"""Whether a client may have what it asks for, by the rules of whoever plays the broker."""

AS_BEFORE: Final = Refusal(RefusalCode.NOT_ALLOWED, "refused, as before")
"""What is said once more of a request after a rebuild, in a message that is on its way already."""


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
        steps: Steps,
        detection: str | None,
        observer: Observer | None,
        is_root_to_know: bool,
        is_path_whole: bool,
        is_told_everywhere: bool,
        objection_to: Callable[[Filter], str],
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
        self._is_told_everywhere = is_told_everywhere or policy == FLOODING or detection == EXACT
        """Whether subscriptions go to every broker, drawn by an advertisement or not."""
        self._is_root_to_know = is_root_to_know
        """Whether subscriptions go up in any case, because all publications do."""
        self._is_path_whole = is_path_whole
        """Whether the way to a client is told as a whole, because publications are sent by it."""
        self._objection_to = objection_to
        """Why the ordering has no place for a subscription."""
        self.node = node
        self._delta = delta
        self._limits = limits
        self._neighbours = neighbours
        self._requests = requests
        self._steps = steps
        self._forwarded: dict[SubscriptionId, dict[NodeId, None]] = {}
        """To which neighbours each subscription has been passed on."""
        self._unsure_subscriptions: dict[
            SubscriptionId, tuple[Subscription, dict[NodeId, None]]
        ] = {}
        """What lies behind neighbours with which this broker has begun anew, and others know."""
        self._unsure_advertisements: dict[AdvertisementId, Advertisement] = {}
        self._withdrawn: deque[tuple[NodeId, Interest]] = deque()
        """What clients here have withdrawn since the log begins."""
        self.judge: Judge | None = None
        """Who is asked about requests of clients; without one, they may have everything."""
        self.forbidden_before: Collection[str] | None = None
        """When a step is taken again: what it refused, and nothing else."""
        self._unheard: dict[NodeId, tuple[Neighbour, int]] = {}
        """To whom something was refused that has not said that it has heard so, and in which step:
        until then it tells others that it has asked for it."""

    # --- advertisements ---------------------------------------------------------------------

    def on_advertise(self, source: Neighbour, advertise: Advertise, now: float) -> None:
        """Install an advertisement, pass it on, and send back the subscriptions it draws."""
        known = self.advertisements.get(advertise.advertisement)
        accepted = self._accept(source, advertise, known)
        if accepted is None:
            return
        entry = known
        if entry is None:
            entry = RoutingEntry(
                id=advertise.advertisement,
                client=advertise.client,
                filter=accepted,
                path=_path_from(source, advertise),
                hop=source.hop,
            )
            self._install_advertisement(entry, source, now)
        self._spread_advertisement(advertise.operation, entry, source, now)

    def _install_advertisement(self, entry: Advertisement, source: Neighbour, now: float) -> None:
        """Know an advertisement in this step, and send back the subscriptions it draws."""
        self._unsure_advertisements.pop(entry.id, None)
        self.put_in_advertisement(entry)
        self._steps.note_installed(entry.id)
        self._neighbours.version += 1
        if not self._is_told_everywhere and not is_client(source):
            drawn = self.subscriptions.overlapping(entry.filter, excluding=source.hop)
            for subscription in _by_name(drawn):
                if source.hop not in self._forwarded[subscription.id]:
                    self._forward(subscription, source, now)

    def _spread_advertisement(
        self, operation: OperationId, entry: Advertisement, source: Neighbour, now: float
    ) -> None:
        onwards = self.advertise_onwards(operation, entry)
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(operation, source, [(other, onwards) for other in others], now)

    def learn_advertisement(self, entry: Advertisement, now: float) -> None:
        """Install what a neighbour told, in a message that is stable and nobody has any more."""
        source = self._neighbours.get(entry.hop)
        assert source is not None
        self._install_advertisement(entry, source, now)
        self._spread_advertisement(self._steps.new_operation(), entry, source, now)

    def on_unadvertise(self, source: Neighbour, unadvertise: Unadvertise, now: float) -> None:
        """Take an advertisement out, here and everywhere."""
        entry = self.advertisements.get(unadvertise.advertisement)
        if entry is None:  # it comes again, and is passed on again if it is under way
            others = self._neighbours.other_brokers(source)
            self._requests.pass_on(
                unadvertise.operation, source, [(other, unadvertise) for other in others], now
            )
            return
        _require_same_way(source, entry)
        self._withdraw_advertisement(unadvertise.operation, entry, source, now)

    def _withdraw_advertisement(
        self, operation: OperationId, entry: Advertisement, source: Neighbour | None, now: float
    ) -> None:
        self._take_out_advertisement(entry)
        self._tell_withdrawn(operation, entry, source, now)
        if not self._is_told_everywhere and source is not None and not is_client(source):
            self._prune(entry, source, now)

    def _take_out_advertisement(self, entry: Advertisement) -> None:
        self.advertisements.remove(entry.id)
        if entry.hop == entry.client:
            self._withdrawn.append((entry.client, _interest(entry, True, self._steps.number)))
        if self.conflicts is not None:
            self.conflicts.remove_advertisement(entry)
        if self.observer is not None:
            self.observer.remove_advertisement(entry)
        self._neighbours.version += 1

    def _tell_withdrawn(
        self,
        operation: OperationId,
        entry: Advertisement,
        source: Neighbour | None,
        now: float,
    ) -> None:
        onwards = Unadvertise(operation=operation, advertisement=entry.id)
        others = self._neighbours.other_brokers(source)
        self._requests.pass_on(
            operation, source, [(other, onwards) for other in others], now, entry
        )

    def put_in_advertisement(self, entry: Advertisement) -> None:
        """Know an advertisement from now on."""
        self.advertisements.add(entry)
        if self.conflicts is not None and entry.hop == UP:
            self.conflicts.add_advertisement(entry)
        if self.observer is not None:
            self.observer.add_advertisement(entry)

    def _prune(self, withdrawn: Advertisement, source: Neighbour, now: float) -> None:
        """Take back the subscriptions that only this advertisement drew towards `source`."""
        if self._is_root_to_know and isinstance(source, Above):
            return
        drawn = self.subscriptions.overlapping(withdrawn.filter, excluding=source.hop)
        for subscription in _by_name(drawn):
            hops = self._forwarded[subscription.id]
            if source.hop in hops and source.hop not in self.advertisements.hops_overlapping(
                subscription.filter, excluding=subscription.hop
            ):
                del hops[source.hop]
                operation = self._steps.new_operation()
                back = Unsubscribe(operation=operation, subscription=subscription.id)
                self._requests.pass_on(operation, None, [(source, back)], now, subscription)

    def advertise_onwards(self, operation: OperationId, entry: Advertisement) -> Advertise:
        """An advertisement as the next broker is told of it."""
        return Advertise(
            operation=operation,
            advertisement=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            path=self.path_onwards(entry),
        )

    # --- subscriptions ----------------------------------------------------------------------

    def on_subscribe(self, source: Neighbour, subscribe: Subscribe, now: float) -> None:
        """Install a subscription, and pass it on to where matching publications come from."""
        known = self.subscriptions.get(subscribe.subscription)
        accepted = self._accept(source, subscribe, known)
        if accepted is None:
            return
        entry = known
        if entry is None:
            entry = RoutingEntry(
                id=subscribe.subscription,
                client=subscribe.client,
                filter=accepted,
                path=_path_from(source, subscribe),
                hop=source.hop,
                ordered=subscribe.ordered,
            )
            self._install_subscription(entry)
        self._spread_subscription(subscribe.operation, entry, source, now)

    def _install_subscription(self, entry: Subscription) -> None:
        _, forwarded = self._unsure_subscriptions.pop(entry.id, (entry, {}))
        self.put_in_subscription(entry, forwarded)
        self._steps.note_installed(entry.id)
        self._neighbours.version += 1

    def _spread_subscription(
        self, operation: OperationId, entry: Subscription, source: Neighbour, now: float
    ) -> None:
        targets = self.brokers_to_tell(entry)
        self._forwarded[entry.id] |= {target.hop: None for target in targets}
        onwards = self.subscribe_onwards(operation, entry)
        self._requests.pass_on(operation, source, [(target, onwards) for target in targets], now)

    def learn_subscription(self, entry: Subscription, now: float) -> None:
        """Install what a neighbour told, in a message that is stable and nobody has any more."""
        source = self._neighbours.get(entry.hop)
        assert source is not None
        self._install_subscription(entry)
        self._spread_subscription(self._steps.new_operation(), entry, source, now)

    def on_unsubscribe(self, source: Neighbour, unsubscribe: Unsubscribe, now: float) -> None:
        """Take a subscription out, here and wherever it was passed on to."""
        entry = self.subscriptions.get(unsubscribe.subscription)
        if entry is None:
            self._requests.pass_on(unsubscribe.operation, source, [], now)
            return
        _require_same_way(source, entry)
        self._withdraw_subscription(unsubscribe.operation, entry, source, now)

    def _withdraw_subscription(
        self, operation: OperationId, entry: Subscription, source: Neighbour | None, now: float
    ) -> None:
        self._take_back(operation, entry, self._take_out_subscription(entry), source, now)

    def _take_out_subscription(self, entry: Subscription) -> dict[NodeId, None]:
        """Know it no more; returns to whom it was passed on."""
        self.subscriptions.remove(entry.id)
        if entry.hop == entry.client:
            self._withdrawn.append((entry.client, _interest(entry, False, self._steps.number)))
        if self.conflicts is not None:
            self.conflicts.remove_subscription(entry)
        if self.observer is not None:
            self.observer.remove_subscription(entry)
        self._neighbours.version += 1
        return self._forwarded.pop(entry.id)

    def _take_back(
        self,
        operation: OperationId,
        entry: Subscription,
        hops: Iterable[NodeId],
        source: Neighbour | None,
        now: float,
    ) -> None:
        onwards = Unsubscribe(operation=operation, subscription=entry.id)
        targets = map(self._neighbours.get, hops)
        self._requests.pass_on(
            operation, source, [(target, onwards) for target in targets if target], now, entry
        )

    def put_in_subscription(self, entry: Subscription, forwarded: Iterable[NodeId]) -> None:
        """Know a subscription from now on, which has been passed on to these neighbours."""
        self.subscriptions.add(entry)
        self._forwarded[entry.id] = dict.fromkeys(forwarded)
        if self.conflicts is not None:
            self.conflicts.add_subscription(entry)
        if self.observer is not None:
            self.observer.add_subscription(entry)

    def is_told_anyway(self, hop: NodeId) -> bool:
        """Whether a broker is told of every subscription, drawn by an advertisement or not."""
        return self._is_told_everywhere or (self._is_root_to_know and hop == UP)

    def _hops_to_tell(self, entry: Subscription) -> list[NodeId]:
        """Where publications come from that this subscription may match."""
        if self._is_told_everywhere:
            hops = [neighbour.hop for neighbour in self._neighbours.other_brokers(None)]
        else:
            hops = self.advertisements.hops_overlapping(entry.filter, excluding=entry.hop)
            if self._is_root_to_know and self._neighbours.parent is not None:
                hops.append(UP)
            # Publications may come from beyond whoever has not told yet of advertisements.
            hops += [neighbour.hop for neighbour in self._neighbours.strangers(None)]
        return [hop for hop in hops if hop != entry.hop]

    def brokers_to_tell(self, entry: Subscription) -> list[Neighbour]:
        """The brokers that have to know a subscription, as the advertisements stand."""
        hops = self._hops_to_tell(entry)
        return [n for n in self._neighbours.other_brokers(None) if n.hop in hops]

    def forwarded(self, subscription: SubscriptionId) -> list[NodeId]:
        """To which neighbours it has been passed on."""
        return list(self._forwarded[subscription])

    def note_forwarded(self, subscription: SubscriptionId, neighbour: Neighbour) -> None:
        """A neighbour knows it from here, whatever drew it there."""
        self._forwarded[subscription][neighbour.hop] = None
        neighbour.told_of.setdefault(subscription, 0)

    def _forward(self, entry: Subscription, target: Neighbour, now: float) -> None:
        """Pass a subscription on to a neighbour from which matching publications may now come."""
        self._forwarded[entry.id][target.hop] = None
        onwards = self.subscribe_onwards(self._steps.new_operation(), entry)
        self._requests.pass_on(onwards.operation, None, [(target, onwards)], now)

    def subscribe_onwards(self, operation: OperationId, entry: Subscription) -> Subscribe:
        """A subscription as the next broker is told of it."""
        return Subscribe(
            operation=operation,
            subscription=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            ordered=entry.ordered,
            path=self.path_onwards(entry),
        )

    def knows(self, name: str) -> bool:
        """Whether there is an advertisement or a subscription of this name."""
        return (
            AdvertisementId(name) in self.advertisements
            or SubscriptionId(name) in self.subscriptions
        )

    def is_outdated(self, hop: NodeId, request: Operation) -> bool:
        """Whether something later has been said to a neighbour of what this request is about."""
        match request:
            case Subscribe(subscription=subscription):
                return hop not in self._forwarded.get(subscription, ())
            case Unsubscribe(subscription=subscription):
                return hop in self._forwarded.get(subscription, ())
            case Advertise(advertisement=advertisement):
                return advertisement not in self.advertisements
            case Unadvertise(advertisement=advertisement):
                return advertisement in self.advertisements
        return False

    # --- neighbours that come and go --------------------------------------------------------

    def introduce(self, newcomer: Neighbour, now: float) -> None:
        """Tell a broker that joins here what there is already."""
        for advertisement in _by_name(self.advertisements):
            advertise = self.advertise_onwards(self._steps.new_operation(), advertisement)
            self._requests.pass_on(advertise.operation, None, [(newcomer, advertise)], now)
        if self._is_told_everywhere:
            for subscription in _by_name(self.subscriptions):
                self._forward(subscription, newcomer, now)

    def is_to_be_asked_again(self, hop: NodeId, request: Operation) -> bool:
        """Whether a neighbour that has forgotten everything has to be told this once more."""
        match request:
            case Subscribe(subscription=subscription):
                if subscription not in self.subscriptions:
                    return False
                self._forwarded[subscription][hop] = None
                return True
            case Advertise(advertisement=advertisement):
                return advertisement in self.advertisements
            case Unsubscribe() | Unadvertise():
                return False
        return True

    def begin_anew(self, stranger: Neighbour) -> None:
        """What lies behind a neighbour is not known here, until that has told it again.

        Others are not told meanwhile: they go on to send here what this broker has to name.
        """
        self._forget_forwarding(stranger.hop)
        for subscription in _by_name(e for e in self.subscriptions if e.hop == stranger.hop):
            forwarded = self._take_out_subscription(subscription)
            self._unsure_subscriptions[subscription.id] = subscription, forwarded
        for advertisement in _by_name(e for e in self.advertisements if e.hop == stranger.hop):
            self._take_out_advertisement(advertisement)
            self._unsure_advertisements[advertisement.id] = advertisement

    def withdraw_unsure(self, hop: NodeId, now: float) -> None:
        """A neighbour has told all that lies behind it: what it has not told again is not there."""
        for subscription, forwarded in list(self._unsure_subscriptions.values()):
            if subscription.hop == hop:
                del self._unsure_subscriptions[subscription.id]
                operation = self._steps.new_operation()
                self._take_back(operation, subscription, forwarded, None, now)
        for advertisement in list(self._unsure_advertisements.values()):
            if advertisement.hop == hop:
                del self._unsure_advertisements[advertisement.id]
                self._tell_withdrawn(
                    self._steps.new_operation(), advertisement, self._neighbours.get(hop), now
                )

    def _forget_forwarding(self, hop: NodeId) -> None:
        for hops in self._forwarded.values():
            hops.pop(hop, None)
        for _, hops in self._unsure_subscriptions.values():
            hops.pop(hop, None)

    def forget(self, gone: Neighbour, now: float) -> None:
        """Take out everything that lies behind a neighbour that is gone.

        What that costs for a client does not depend on how many others there are.
        """
        subscriptions: Iterable[Subscription]
        advertisements: Iterable[Advertisement]
        if is_client(gone):
            subscriptions = self.subscriptions.of_client(gone.node)
            advertisements = self.advertisements.of_client(gone.node)
        else:
            self._forget_forwarding(gone.hop)
            self.withdraw_unsure(gone.hop, now)
            subscriptions, advertisements = self.subscriptions, self.advertisements
        for subscription in _by_name(e for e in subscriptions if e.hop == gone.hop):
            self._withdraw_subscription(self._steps.new_operation(), subscription, None, now)
        for advertisement in _by_name(e for e in advertisements if e.hop == gone.hop):
            self._withdraw_advertisement(self._steps.new_operation(), advertisement, None, now)

    # --- clients that are away --------------------------------------------------------------

    def of_client(self, node: NodeId) -> tuple[Interest, ...]:
        """What a client has told, and what it has withdrawn since the log begins."""
        standing = [
            *(_interest(e, True) for e in self.advertisements.of_client(node)),
            *(_interest(e, False) for e in self.subscriptions.of_client(node)),
        ]
        return (*standing, *(each for client, each in self._withdrawn if client == node))

    def count_of_client(self, node: NodeId) -> int:
        """How much that is, at most."""
        tables = (self.advertisements, self.subscriptions)
        return len(self._withdrawn) + sum(table.count_of_client(node) for table in tables)

    def forget_withdrawn(self, base: int) -> None:
        """Nothing that is unstable depends on what was withdrawn in these steps."""
        while self._withdrawn and self._withdrawn[0][1].withdrawn_in <= base:
            self._withdrawn.popleft()

    def withdraw_again(self, name: str, source: Neighbour, now: float) -> None:
        """After a rebuild: a client that is away had withdrawn this in the present step."""
        operation = self._steps.new_operation()
        advertisement = self.advertisements.get(AdvertisementId(name))
        if advertisement is not None:
            self._withdraw_advertisement(operation, advertisement, source, now)
        subscription = self.subscriptions.get(SubscriptionId(name))
        if subscription is not None:
            self._withdraw_subscription(operation, subscription, source, now)

    # --- whom to believe --------------------------------------------------------------------

    def _accept(
        self,
        source: Neighbour,
        request: Advertise | Subscribe,
        known: Advertisement | Subscription | None,
    ) -> Filter | None:
        """The filter of a request that may be installed; None if it has been refused."""
        if known is not None:
            _require_same_way(source, known)
            return known.filter
        try:
            parsed = parse_filter(request.filter)
        except FilterSyntaxError as error:
            if not is_client(source):
                name = request.operation
                raise RemoteProtocolError(f"{name} of {source.node}: {error}") from None
            self._requests.refuse(source, request.operation, RefusalCode.BAD_FILTER, str(error))
            return None
        if not is_client(source):
            return parsed
        if request.client != source.node or request.path != (source.node,):
            reason = f"{request.operation} belongs to {request.client}, not to {source.node}"
            self._requests.refuse(source, request.operation, RefusalCode.NOT_OWNER, reason)
            return None
        refusal = self._judged(source, request, parsed)
        if refusal is not None:
            self._steps.changes.forbidden.append(subject(request))
            self._unheard.setdefault(source.node, (source, self._steps.number))
            self._requests.refuse(source, request.operation, refusal.code, refusal.reason)
            return None
        if isinstance(request, Advertise):
            count = self.advertisements.count_of_client(source.node)
            most = self._limits.advertisements_per_client_max
        else:
            count = self.subscriptions.count_of_client(source.node)
            most = self._limits.subscriptions_per_client_max
            reason = self._objection_to(parsed)
            if reason:
                self._requests.refuse(source, request.operation, RefusalCode.BAD_FILTER, reason)
                return None
        if count >= most:
            reason = f"{source.node} has {count} already, at most {most} allowed"
            self._requests.refuse(source, request.operation, RefusalCode.TOO_MANY, reason)
            return None
        return parsed

    def _judged(
        self, client: Neighbour, request: Advertise | Subscribe, parsed: Filter
    ) -> Refusal | None:
        if self.forbidden_before is not None:
            return AS_BEFORE if subject(request) in self.forbidden_before else None
        return None if self.judge is None else self.judge(client, request, parsed)

    def first_unheard_step(self) -> int | None:
        """The first step in which something was refused of which its client has not heard."""
        for node, (client, step) in list(self._unheard.items()):
            is_there = self._neighbours.named(node) is client
            is_long_ago = step < self._steps.number - self._limits.unheard_steps_max
            if client.forgot >= step or not is_there or is_long_ago:
                del self._unheard[node]
        return min((step for _, step in self._unheard.values()), default=None)

    def path_onwards(self, entry: Advertisement | Subscription) -> tuple[NodeId, ...]:
        """The last δ + 1 hops, seen from the next node; all, if publications go back by them."""
        whole = (*entry.path, self.node)
        return whole if self._is_path_whole else whole[-(self._delta + 1) :]


def life_of(client: NodeId, incarnation: int) -> NodeId:
    """The name of one life of a client: the beginning of every path from there."""
    return NodeId(f"{client}/{incarnation}")


def _path_from(source: Neighbour, request: Advertise | Subscribe) -> tuple[NodeId, ...]:
    if isinstance(source, Below) and is_client(source):
        return (life_of(source.node, source.incarnation),)
    return request.path


def _by_name(entries: Iterable[Entry_]) -> list[Entry_]:
    """In an order that does not depend on when they came, so that operations have their names."""
    return sorted(entries, key=lambda entry: entry.id)


def _interest(
    entry: Advertisement | Subscription, is_advertisement: bool, withdrawn_in: int = 0
) -> Interest:
    return Interest(
        name=entry.id,
        filter=entry.filter.sql,
        is_advertisement=is_advertisement,
        is_ordered=entry.ordered,
        withdrawn_in=withdrawn_in,
    )


def _require_same_way(source: Neighbour, entry: Advertisement | Subscription) -> None:
    """What is known comes by one way only, and only from there is it changed."""
    if entry.hop != source.hop:
        raise RemoteProtocolError(f"{source.node} speaks of {entry.id}, which is not its own")
