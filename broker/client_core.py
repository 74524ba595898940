"""What a client decides: a leaf of the tree, of the same kind as the broker's core.

The client keeps what it published until it is stable, and what it was sent likewise; so a broken
connection costs nothing if the broker still knows the client (the *session* is resumed), and if the
broker has failed, the hub that takes its place takes over the session as well. If nobody knows the
client any more it begins anew: it joins, advertises and subscribes again. What was not confirmed it
sends again only to the same broker, which recognises what it had before; to anybody else it might
come too late, after others have been given what they got after it, and so it is reported instead.

Calls and `step` put effects into an outbox; the driver takes them with `take_effects`.
"""

import enum
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from broker.codec import decode_content, encode_content
from broker.effects import (
    BecomeReady,
    CloseLink,
    Deliver,
    Delivery,
    Effect,
    EndOperation,
    Level,
    OpenLink,
    Refusal,
    ReportConfirmed,
    ReportSkipped,
    Stop,
)
from broker.errors import ClosedError, NotAdvertisedError, RemoteProtocolError
from broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    ShutdownRequested,
    TimerFired,
)
from broker.last_seen import LastSeen
from broker.limits import DEFAULT_LIMITS, Limits
from broker.link_states import LEGAL, LinkState, with_heartbeats_of
from broker.messages import (
    NO_OPERATION,
    NOT_YET,
    PROTOCOL_VERSION,
    Advertise,
    Asked,
    Attach,
    Claim,
    Confirm,
    Flag,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Join,
    Leave,
    Message,
    Moved,
    Neighbourhood,
    NodeKind,
    Operation,
    Past,
    Prepare,
    Prepared,
    Progress,
    PublicationId,
    Publish,
    Refuse,
    Subscribe,
    Summon,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from broker.outbox import Outbox
from broker.ticks import Ticks, tick_at
from broker.window import Window
from faulttol import neighbourhood
from faulttol.merging import Key
from faulttol.neighbourhood import Life, TopologyLink
from faulttol.stability import CountError, LeafStream, unreceived
from routing.errors import shortened
from routing.filter_text import parse_filter
from routing.filters import Filter
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from routing.values import Content, check_content

RECONNECT_TIMEOUT_S: Final = 30.0
"""So long a client that was connected looks for a broker before it gives up."""
MATCHES_REMEMBERED: Final = 4096
LATELY_STABLE_MAX: Final = 256
"""As `Limits.lately_stable_max`, of which a client sees little."""


class ClientState(enum.StrEnum):
    """Where a client stands with its overlay."""

    CONNECTING = "connecting"
    READY = "ready"
    RECONNECTING = "reconnecting"
    LEAVING = "leaving"
    CLOSED = "closed"


@attrs.define(eq=False)
class _Interest:
    """An advertisement or a subscription of this client's."""

    filter: Filter
    wire_id: str
    """Its name in the overlay; a new one whenever it has to be installed anew."""
    ordered: bool = True
    is_installed: bool = False
    installed_at: float = 0.0
    is_withdrawn: bool = False

    @property
    def is_active(self) -> bool:
        """Whether publications are published or delivered under it."""
        return self.is_installed and not self.is_withdrawn


@attrs.define(eq=False)
class _Request:
    """An operation that is not confirmed yet."""

    message: Operation
    subject: str = ""
    """The advertisement or subscription it is about."""


class ClientCore:
    """One client."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        *,
        brokers: Sequence[str],
        limits: Limits = DEFAULT_LIMITS,
        recording: bool = False,
    ) -> None:
        """Be `node`, at the first of `brokers` that can be reached."""
        if not brokers:
            raise ValueError("a client needs the address of at least one broker")
        self.node = node
        self.incarnation = incarnation
        self.limits = limits
        self.state = ClientState.CONNECTING
        self.broker: NodeId | None = None
        self.neighbourhood: neighbourhood.Neighbourhood | None = None
        self._brokers = list(brokers)
        self._dialled = 0
        self._address = ""
        """Of the broker it is connected to."""
        self._hub: NodeId | None = None
        """Who takes the place of the broker, which has failed, as far as this client knows."""
        self._prepared: TopologyLink | None = None
        """Where its broker is going to move it."""
        self._is_visiting = False
        """Whether it asks there, since its broker has failed, whether it has been moved."""
        self._is_alone = False
        """Whether its broker has failed, and nobody is known who could take its place."""
        self._ticks = Ticks()
        self._orphaned_by: Life | None = None
        """Whose place a hub takes that has heard of this client and has not taken it in yet."""
        self._moves = 0
        self._has_connected = False
        self._recording = recording
        self._advertisements: dict[AdvertisementId, _Interest] = {}
        self._subscriptions: dict[SubscriptionId, _Interest] = {}
        self._requests: dict[OperationId, _Request] = {}
        self._withdrawals: dict[OperationId, tuple[int, AdvertisementId]] = {}
        """Advertisements to be withdrawn once the publication of this number is stable."""
        self._restoring: set[OperationId] = set()
        """Advertisements to be confirmed before publications may flow in a new session."""
        self._counter = 0
        self._seq = 0
        self._handed_over = 0
        """The last publication that was given to a broker, of whatever became of it."""
        self._position = 0
        self._link: LinkId | None = None
        self._link_state = LinkState.AWAITING_WELCOME
        self._session: int | None = None
        """The incarnation of the broker that knows this client."""
        self._secret = ""
        """That the broker gave to it when its session began, and whoever goes on with it asks."""
        self._sessions = 0
        self.has_lost_session = False
        """Whether a broker has once not known this client that had joined the overlay."""
        self._has_joined = False
        self._sent: LeafStream[Publish] = LeafStream()
        self.window = Window(limits)
        """What whoever publishes has to look at before; the core takes whatever it is given."""
        self._published_at: dict[int, float] = {}
        """For each that is kept in that stream."""
        self._received: LeafStream[Publish] = LeafStream()
        self._told = (0, 0)
        self._is_urgent = False
        self._last_seen = LastSeen(limits.publishers_remembered_max)
        self._place = 0
        """Of the last publication received, where publications have places."""
        self._lately_stable: deque[Key] = deque(maxlen=LATELY_STABLE_MAX)
        self._not_in_order: set[Key] = set()
        """Of what is not stable, what nobody here asked for, or not in order."""
        self._matches: dict[bytes, tuple[Content, tuple[SubscriptionId, ...], bool]] = {}
        self._heard_at = 0.0
        self._lost_at = 0.0
        self._redial_at: float | None = None
        self._redial_pause = self.limits.redial_first_s
        self._progress_at: float | None = None
        self._tick_at: float | None = None
        self._outbox = Outbox()
        self._now = 0.0

    # --- calls ------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Dial the first broker."""
        self._now = self._heard_at = self._lost_at = now
        self._tick_at = now + self.limits.heartbeat_interval_s
        self._dial()
        self._arm_timer()

    @property
    def unconfirmed(self) -> int:
        """How many publications have been handed over and are not stable yet."""
        return self._sent.count - self._sent.stable_count

    @property
    def kept(self) -> int:
        """How many publications it was sent that are not stable yet, as far as it knows."""
        return self._received.count - self._received.stable_count

    @property
    def claims(self) -> frozenset[str]:
        """What the overlay calls its advertisements and subscriptions."""
        interests = (*self._advertisements.values(), *self._subscriptions.values())
        return frozenset(interest.wire_id for interest in interests)

    def publish(
        self,
        now: float,
        content: Content,
        body: bytes = b"",
        *,
        ordered: bool = True,
        urgent: bool = False,
    ) -> int:
        """Hand over one publication; returns its number, 1, 2, 3 ... in this incarnation."""
        self._require_open()
        check_content(content)
        for interest in self._advertisements.values():
            if interest.is_active and interest.filter.matches(content):
                break
        else:
            raise NotAdvertisedError(self._why_not_publishable(content))
        encoded = encode_content(content)  # may refuse; a number once taken has to be sent
        self._now = now
        self._seq = seq = self._seq + 1
        publication = Publish(
            self.node,
            self.incarnation,
            seq,
            (0 if ordered else Flag.UNORDERED) | (Flag.URGENT if urgent else 0),
            encoded,
            body,
        )
        self._sent.append(publication)
        self.window.add(len(body), now)
        self._published_at[seq] = now
        if self._recording:
            self._record(
                "published",
                **self._names(seq),
                content=dict(content),
                ordered=ordered,
                crc=zlib.crc32(body),
            )
        if self.state is ClientState.READY and self._link is not None:
            self._outbox.send(self._link, publication)
            self._handed_over = seq
        return seq

    def advertise(self, now: float, filter_text: str) -> tuple[AdvertisementId, OperationId]:
        """Ask for the right to publish what this filter matches."""
        self._require_open()
        self._now = now
        advertisement = AdvertisementId(self._new_name())
        interest = _Interest(parse_filter(filter_text), advertisement)
        self._advertisements[advertisement] = interest
        return advertisement, self._request_advertisement(advertisement, interest)

    def unadvertise(self, now: float, advertisement: AdvertisementId) -> OperationId:
        """Give that right back; publications handed over before are not affected.

        The overlay is told when they are stable: until then they may have to be sent again, and
        need the advertisement for that.
        """
        self._require_open()
        self._now = now
        operation = self._new_operation()
        if advertisement not in self._advertisements:  # refused, before its caller heard of it
            self._outbox.add(EndOperation(operation, None))
            return operation
        self._advertisements[advertisement].is_withdrawn = True
        self._withdrawals[operation] = (self._seq, advertisement)
        self._withdraw_up_to(self._seq - self.unconfirmed)
        return operation

    def _withdraw_up_to(self, seq: int) -> None:
        """Tell the overlay of what was withdrawn after publications that are stable by now."""
        for operation, (last, advertisement) in list(self._withdrawals.items()):
            if last <= seq:
                del self._withdrawals[operation]
                wire_id = AdvertisementId(self._advertisements[advertisement].wire_id)
                message = Unadvertise(operation=operation, advertisement=wire_id)
                self._request(message, advertisement)

    def subscribe(
        self, now: float, filter_text: str, *, ordered: bool = True
    ) -> tuple[SubscriptionId, OperationId]:
        """Ask for every publication that this filter matches."""
        self._require_open()
        self._now = now
        subscription = SubscriptionId(self._new_name())
        interest = _Interest(parse_filter(filter_text), subscription, ordered)
        self._subscriptions[subscription] = interest
        return subscription, self._request_subscription(subscription, interest)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> OperationId:
        """Nothing is delivered to this subscription from now on."""
        self._require_open()
        self._now = now
        operation = self._new_operation()
        if subscription not in self._subscriptions:  # refused, before its caller heard of it
            self._outbox.add(EndOperation(operation, None))
            return operation
        self._end_subscription(subscription)
        wire_id = SubscriptionId(self._subscriptions[subscription].wire_id)
        self._request(Unsubscribe(operation=operation, subscription=wire_id), subscription)
        return operation

    def leave(self, now: float) -> OperationId:
        """Leave the overlay; `Stop` follows when the broker has confirmed it."""
        self._require_open()
        self._now = now
        for subscription in self._subscriptions:
            self._end_subscription(subscription)
        operation = self._new_operation()
        was_connected = self.state is ClientState.READY
        self.state = ClientState.LEAVING
        if was_connected or self._may_move:
            self._request(Leave(operation=operation, node=self.node, distance=0))
        else:
            self._stop("left without a connection")
        return operation

    def step(self, now: float, happened: Input) -> None:
        """Take in what has happened."""
        self._now = now
        match happened:
            case MessagesReceived(link, messages):
                self._on_messages(link, messages)
            case TimerFired():
                self._on_timer()
            case LinkOpened(link, dialled):
                self._on_link_opened(link, dialled)
            case LinkFailed(dialled, reason):
                self._on_link_failed(dialled, reason)
            case LinkClosed(link, reason):
                if link == self._link:
                    self._lose_link(reason)
            case ShutdownRequested():
                self._stop("shut down")
        self._end_step()

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in this order."""
        return self._outbox.take()

    # --- connection -------------------------------------------------------------------------

    @property
    def _may_move(self) -> bool:
        """Whether another broker can take over, with all that is under way."""
        known = self.neighbourhood
        return self._has_joined and not self._restoring and known is not None and known.reach > 1

    def _dial(self) -> None:
        hub = self._place_of_hub()
        if self._is_visiting and self._prepared is not None:
            address = self._prepared.parent_address
        elif hub is not None:
            address = hub.address
        elif self._session is not None and not self._is_alone:
            address = self._address
        else:
            address = self._brokers[self._dialled % len(self._brokers)]
        self._outbox.add(OpenLink(address))

    @property
    def _life_of_broker(self) -> Life:
        return Life(self.broker or NodeId(""), self._session or 0)

    def _place_of_hub(self) -> neighbourhood.Place | None:
        if self._hub is None or self.neighbourhood is None:
            return None
        return self.neighbourhood.place_of(self._hub)

    @property
    def _expected_incarnation(self) -> int:
        """Of its broker, or of the hub that is to take the place of that; 0 if any will do."""
        hub = self._place_of_hub()
        if hub is not None:
            return hub.incarnation
        return 0 if self._is_alone else self._session or 0

    def _on_broker_failed(self) -> None:
        """Nobody answers where the broker was, or who was to take its place: find the next."""
        known = self.neighbourhood
        assert known is not None
        if self._is_visiting and self._prepared is not None:
            failed = Life(self._prepared.parent, self._prepared.parent_incarnation)
            self._prepared = None
        elif self._hub is None:
            failed = self._life_of_broker
        else:
            place = known.place_of(self._hub)
            assert place is not None
            failed = Life(self._hub, place.incarnation)
        known.bury(failed)
        self._find_hub()

    def _find_hub(self) -> None:
        known = self.neighbourhood
        assert known is not None
        assert self.broker is not None
        self._is_visiting = self._prepared is not None
        region = known.failed_region(self.broker)
        self._hub = known.hub(region) if len(region) < known.reach else None
        self._is_alone = self._hub is None

    def _on_link_opened(self, link: LinkId, dialled: str) -> None:
        if self._link is not None or self.state is ClientState.CLOSED:
            self._outbox.add(CloseLink(link, GoodbyeCode.LEFT, "not needed any more"))
            return
        self._link = link
        self._address = dialled
        self._has_connected = True
        self._link_state = LinkState.AWAITING_WELCOME
        self._heard_at = self._now
        visited = self._prepared if self._is_visiting else None
        self._send(
            Hello(
                version=PROTOCOL_VERSION,
                node=self.node,
                kind=NodeKind.CLIENT,
                incarnation=self.incarnation,
                address="",
                peer=visited.parent if visited else (self.broker or "") if self._session else "",
                peer_incarnation=visited.parent_incarnation if visited else self._session or 0,
                received=self._received.count,
                failed=() if visited else self._buried,
                expected=0 if visited else self._expected_incarnation,
                is_moving=visited is not None,
                absent_ms=round(1000 * (self._now - self._lost_at)) if self._session else 0,
                past=Past(published=self._handed_over, secret=self._secret),
            )
        )
        self._outbox.log(Level.DEBUG, "connected", address=dialled)

    @property
    def _buried(self) -> tuple[Life, ...]:
        if self.neighbourhood is None or not self._may_move:
            return ()
        if self._hub is None and self._orphaned_by is None:
            return ()
        return self.neighbourhood.buried

    def _on_link_failed(self, dialled: str, reason: str) -> None:
        if self._session is not None and (self._is_visiting or not self._is_alone):
            self._outbox.log(Level.WARNING, "broker failed", address=dialled, reason=reason)
            self._on_broker_failed()
            if self._hub is not None or self._is_visiting:
                self._redial_pause = 0.0
                self._redial_later()
                return
        self._dialled += 1
        if not self._has_connected and self._dialled >= len(self._brokers):
            self._stop(f"no broker at {', '.join(self._brokers)}: {reason}")
        else:
            self._outbox.log(Level.WARNING, "broker not reached", address=dialled, reason=reason)
            self._redial_later()

    def _redial_later(self) -> None:
        if self._now - self._lost_at > RECONNECT_TIMEOUT_S:
            self._stop(f"no broker at {', '.join(self._brokers)} for {RECONNECT_TIMEOUT_S:g} s")
            return
        self._redial_at = self._now + self._redial_pause
        self._redial_pause = min(
            max(2 * self._redial_pause, self.limits.redial_first_s), self.limits.redial_last_s
        )

    def _lose_link(self, reason: str) -> None:
        """The connection is gone; look for the broker again, or for another one."""
        self._link = None
        if self.state is ClientState.LEAVING and not self._may_move:
            self._stop("left")
        elif self.state is not ClientState.CLOSED:
            self._outbox.log(Level.WARNING, "connection lost", broker=self.broker, reason=reason)
            if self._link_state is LinkState.TO_PARENT:
                self._lost_at = self._now
                self._redial_pause = 0.0
            if self.state is ClientState.READY:
                self.state = ClientState.RECONNECTING
            self._redial_later()

    def _on_goodbye(self, goodbye: Goodbye) -> None:
        reason = goodbye.reason
        match goodbye.code:
            case _ if self._is_visiting or goodbye.code is GoodbyeCode.ELSEWHERE:
                self._prepared = None
                if self._hub is not None or self._is_visiting:
                    self._find_hub()
                self._hang_up(reason)
            case GoodbyeCode.STRANDED if self._session is not None and not self._is_alone:
                if self._hub is None or self._expected_incarnation < goodbye.incarnation:
                    self._on_broker_failed()
                else:
                    assert self.neighbourhood is not None
                    self.neighbourhood.remove(self._hub)
                    self._find_hub()
                self._hang_up(reason)
            case GoodbyeCode.SHUTTING_DOWN if self._link_state is LinkState.TO_PARENT:
                self._outbox.log(
                    Level.INFO, "broker is stopping", broker=self.broker, reason=reason
                )
            case GoodbyeCode.REFUSED | GoodbyeCode.PROTOCOL | GoodbyeCode.ISOLATED:
                self._stop(f"{goodbye.code.value} by {self.broker or 'the broker'}: {reason}")
            case _:
                self._hang_up(reason)

    def _hang_up(self, reason: str) -> None:
        """Close the connection from this side and look for another."""
        assert self._link is not None
        self._outbox.add(CloseLink(self._link, GoodbyeCode.LEFT, reason))
        self._lose_link(reason)

    def _on_welcome(self, welcome: Welcome) -> None:
        self.limits = with_heartbeats_of(welcome, self.limits)
        self._link_state = LinkState.TO_PARENT
        self._redial_pause = self.limits.redial_first_s
        if self._is_visiting and self._prepared is not None and welcome.resumed:
            self._become_client_of(self._prepared)
        if not welcome.resumed:
            self._prepared = None
        self._is_visiting = False
        before, self.broker = self._life_of_broker, welcome.node
        self._hub, self._is_alone = None, False
        if welcome.resumed:
            self._resume_session(welcome)
        elif welcome.adopts:
            self._move_session(welcome, before)
        elif self.state is ClientState.LEAVING:
            self._stop("left")
        else:
            # Who was to adopt this client, and has given that up, has not taken in what it sent.
            is_same = self._orphaned_by is None and before == Life(
                welcome.node, welcome.incarnation
            )
            self._begin_session(welcome, is_same=is_same)

    def _resume_session(self, welcome: Welcome) -> None:
        """The broker knows this client: go on where the old connection ended."""
        again = unreceived(self._sent, welcome.received)
        self._has_joined = not any(isinstance(r.message, Join) for r in self._requests.values())
        if self._has_joined and not self._restoring:
            self._become_ready()
            for publication in again:
                self._send(publication)
        for request in self._requests.values():
            self._send(request.message)
        self._told = (0, 0)
        self._progress_at = self._now

    def _on_moved(self, link: TopologyLink) -> None:
        """The broker has handed this client over to another one: go on there."""
        self._become_client_of(link)
        self._hang_up("moved")

    def _become_client_of(self, link: TopologyLink) -> None:
        self._known_neighbourhood().add(link)
        self.broker, self._session = link.parent, link.parent_incarnation
        self._address = link.parent_address
        self._moves = max(self._moves, link.moves)
        self._prepared, self._is_visiting = None, False
        self._hub = None

    def _on_sent_away(self, sent: Summon) -> None:
        """Who was to be the hub knows that somebody else is, and of whom else to think."""
        known = self._known_neighbourhood()
        if self._orphaned_by is not None and not known.has_failed(self._life_of_broker):
            self.broker, self._session = attrs.astuple(self._orphaned_by)
            self._orphaned_by = None
        known.add_all(sent.links)
        own = known.link_of(self.node)
        if own is not None and own.parent == self.broker:
            self._orphaned_by = None  # the hub had taken it in, and has failed since
        for life in sent.failed:
            known.bury(life)
        self._find_hub()
        self._hang_up("sent to another hub")

    def _move_session(self, welcome: Welcome, failed: Life) -> None:
        """The broker has failed, and this one takes its place: tell it everything under way."""
        received, sent = self._received.keep(), self._sent.keep()
        self._received, self._sent = LeafStream(), LeafStream()
        for stream, kept in ((self._received, received), (self._sent, sent)):
            for publication in kept:
                stream.append(publication)
        self._session = welcome.incarnation
        self._told = (0, 0)
        self._progress_at = self._now
        failed = self._orphaned_by = self._orphaned_by or failed
        self._moves += 1
        own = self._own_link(welcome.node)  # which is so only when the hub has taken it in
        advertisements, subscriptions = self._claims()
        installed_at = {i.wire_id: i.installed_at for i in self._subscriptions.values()}
        self._send(
            Attach(
                now=tick_at(self._now),
                advertisements=len(advertisements),
                subscriptions=tuple(
                    Asked.at(tick_at(installed_at[s.subscription]))
                    if s.operation == NO_OPERATION
                    else NOT_YET
                    for s in subscriptions
                ),
                received=len(received),
                sent=tuple(tick_at(self._published_at[p.seq]) for p in sent),
                links=(own,),
                seen=tuple(self._last_seen),
                stable=tuple(PublicationId(*key) for key in self._lately_stable),
                place=self._place,
                settled=tuple(
                    int((p.publisher, p.incarnation, p.seq) not in self._not_in_order)
                    for p in received
                ),
                failed=(failed,),
                confirmed=self._ticks.of(
                    failed,
                    [
                        *(advertise.advertisement for advertise in advertisements),
                        *(subscribe.subscription for subscribe in subscriptions),
                    ],
                ),
            )
        )
        messages: list[Message] = [*advertisements, *subscriptions, *received, *sent]
        for message in messages:
            self._send(message)
        for request in self._requests.values():
            self._send(request.message)
        self._become_ready()

    def _claims(self) -> tuple[list[Advertise], list[Subscribe]]:
        """What this client has advertised and asked for, and what of it is not confirmed yet."""
        pending = {
            request.subject: operation
            for operation, request in self._requests.items()
            if isinstance(request.message, Advertise | Subscribe)
        }
        on_their_way_out = {
            request.subject
            for request in self._requests.values()
            if isinstance(request.message, Unadvertise | Unsubscribe)
        }
        advertisements = [
            self._advertise_message(interest, pending.get(advertisement, NO_OPERATION))
            for advertisement, interest in self._advertisements.items()
            if advertisement not in on_their_way_out
        ]
        subscriptions = [
            self._subscribe_message(interest, pending.get(subscription, NO_OPERATION))
            for subscription, interest in self._subscriptions.items()
            if subscription not in on_their_way_out
        ]
        return advertisements, subscriptions

    def _own_link(self, broker: NodeId) -> TopologyLink:
        return TopologyLink(
            child=self.node,
            parent=broker,
            kind=NodeKind.CLIENT.value,
            incarnation=self.incarnation,
            address="",
            parent_incarnation=self._session or 0,
            parent_address=self._address,
            moves=self._moves,
        )

    def _begin_session(self, welcome: Welcome, *, is_same: bool) -> None:
        """The broker does not know this client: join, and install again what was installed."""
        if self._session is not None:
            self._outbox.log(Level.WARNING, "session lost", broker=welcome.node)
        self.has_lost_session |= self._has_joined
        self._session, self._secret = welcome.incarnation, welcome.secret
        self._has_joined, self._orphaned_by = False, None
        kept = list(self._sent.keep())
        if not is_same:
            self._skip([p for p in kept if p.seq <= self._handed_over], "the session was lost")
            kept = [p for p in kept if p.seq > self._handed_over]
            self._withdraw_up_to(kept[0].seq - 1 if kept else self._seq)
        self._sent, self._received = LeafStream(), LeafStream()
        for publication in kept:
            self._sent.append(publication)
        self._published_at = {p.seq: self._published_at[p.seq] for p in kept}
        self._told = (0, 0)
        self._sessions += 1
        self._moves += 1
        self.neighbourhood = neighbourhood.Neighbourhood(self.node, delta=welcome.delta)
        own = self._own_link(welcome.node)
        self.neighbourhood.add(own)
        join = Join(operation=self._new_operation(), link=own, distance=0)
        self._restoring.clear()
        for operation, request in list(self._requests.items()):
            if isinstance(request.message, Unadvertise | Unsubscribe):
                self._on_confirm(operation)  # the lost session took it along
            elif isinstance(request.message, Join):
                del self._requests[operation]
        for subscription, interest in self._subscriptions.items():
            if interest.is_active:
                self._record_unsubscribed(subscription)
                interest.is_installed = False
        self._request(join)

    def _on_joined(self) -> None:
        """The broker has installed this client; now install what it advertised and asked for."""
        outstanding, self._requests = self._requests, {}
        self._has_joined = True
        operations = {request.subject: operation for operation, request in outstanding.items()}
        still_needed = {advertisement for _, advertisement in self._withdrawals.values()}
        for advertisement, interest in self._advertisements.items():
            if not interest.is_withdrawn or advertisement in still_needed:
                interest.wire_id = self._wire_id(advertisement)
                operation = self._request_advertisement(
                    advertisement, interest, operations.get(advertisement)
                )
                if interest.is_installed:
                    self._restoring.add(operation)
        for subscription, interest in self._subscriptions.items():
            if not interest.is_withdrawn:
                interest.wire_id = self._wire_id(subscription)
                self._request_subscription(subscription, interest, operations.get(subscription))
        self._matches.clear()
        if not self._restoring:
            self._on_restored()

    def _wire_id(self, name: str) -> str:
        """A new name for every session: the old one may still be on its way out of the overlay."""
        return name if self._sessions == 1 else f"{name}'{self._sessions}"

    def _on_restored(self) -> None:
        """Everything published so far may flow, again or for the first time."""
        self._become_ready()
        for publication in self._sent.keep():
            self._send(publication)

    def _become_ready(self) -> None:
        self._handed_over = self._seq  # whatever is kept is sent now
        if self.state is not ClientState.LEAVING:
            self.state = ClientState.READY
        self._outbox.add(BecomeReady())

    # --- messages ---------------------------------------------------------------------------

    def _on_messages(self, link: LinkId, messages: list[Message]) -> None:
        self._heard_at = self._now
        try:
            for message in messages:
                if link != self._link:
                    return
                if type(message) is Publish:
                    self._on_publish(message)
                else:
                    self._on_message(message)
        except (RemoteProtocolError, CountError) as broken:
            self._send(Goodbye(code=GoodbyeCode.PROTOCOL, reason=str(broken)))
            self._stop(f"the broker broke the protocol: {broken}")

    def _on_message(self, message: Message) -> None:
        if type(message) not in LEGAL[self._link_state]:
            raise RemoteProtocolError(
                f"{type(message).__name__} is not expected on a link in state '{self._link_state}'"
            )
        match message:
            case Neighbourhood() | Moved() if self.neighbourhood is None:
                raise RemoteProtocolError(f"{type(message).__name__} before Welcome")
            case Progress(received, sent):
                self._on_progress(received, sent)
            case Confirm(operation=operation, tick=tick):
                self._note_tick(operation, tick)
                self._on_confirm(operation)
            case Refuse(operation=operation, code=code, reason=reason):
                self._on_refuse(operation, Refusal(code, reason))
            case Welcome():
                self._on_welcome(message)
            case Neighbourhood(links=links, closed=closed):
                known = self._known_neighbourhood()
                if self._link_state is LinkState.TO_PARENT and self.broker is not None:
                    self._orphaned_by = None
                    own = known.link_of(self.node)
                    if own is None or own.parent != self.broker:
                        known.add(self._own_link(self.broker))
                for life in closed:
                    known.bury(life)
                known.add_all(links)
                known.close(known.still_gone(closed))
            case Join():
                self._known_neighbourhood().add(message.link)
                self._send(Confirm(operation=message.operation))
            case Leave():
                self._known_neighbourhood().remove(message.node)
                self._send(Confirm(operation=message.operation))
            case Prepare():
                if self._has_joined:
                    self._prepared = message.link
                    # Others may take it to be there from now on: where it goes next is newer.
                    self._moves = max(self._moves, message.link.moves)
                self._send(Prepared(move=message.move, accepts=self._has_joined))
            case Moved():
                self._on_moved(message.link)
            case Summon():
                self._on_sent_away(message)
            case Goodbye():
                self._on_goodbye(message)
            case Advertise() | Unadvertise() | Subscribe() | Unsubscribe() | Claim():
                raise RemoteProtocolError(f"{type(message).__name__} sent to a client")

    def _known_neighbourhood(self) -> neighbourhood.Neighbourhood:
        assert self.neighbourhood is not None, "a welcome comes before everything else"
        return self.neighbourhood

    def _on_publish(self, publication: Publish) -> None:
        """Take in a publication: is it new, and which of the subscriptions want it."""
        if self._link_state is not LinkState.TO_PARENT:
            raise RemoteProtocolError("Publish before Welcome")
        self._received.append(publication)
        if publication.flags & Flag.URGENT:
            self._is_urgent = True
        stamp = (publication.incarnation, publication.seq)
        publisher = publication.publisher
        last = self._last_seen.get(publisher)
        # An older incarnation than the last was let in as a new one, where the last is forgotten.
        if last[0] == publication.incarnation and last >= stamp:
            return
        self._last_seen[publisher] = stamp
        self._place = publication.place
        matched = self._matches.get(publication.content)
        if matched is None:
            matched = self._match(publication.content)
        content, subscriptions, is_in_order = matched
        if publication.flags & Flag.UNORDERED_ONLY:
            is_in_order = False
            subscriptions = tuple(s for s in subscriptions if not self._subscriptions[s].ordered)
        if not is_in_order or publication.flags & Flag.UNORDERED:
            self._not_in_order.add((publisher, *stamp))
        if not subscriptions:
            return
        self._position += 1
        self._outbox.add(
            Deliver(
                Delivery(
                    publisher,
                    *stamp,
                    content,
                    publication.body,
                    self._position,
                    subscriptions,
                )
            )
        )

    def _match(self, encoded: bytes) -> tuple[Content, tuple[SubscriptionId, ...], bool]:
        """The content, who wants it, and whether in order; kept while subscriptions stand still."""
        if len(self._matches) >= MATCHES_REMEMBERED:
            self._matches.clear()
        content: Mapping[str, Any] = MappingProxyType(decode_content(encoded))
        wanted_by = tuple(
            subscription
            for subscription, interest in self._subscriptions.items()
            if interest.is_active and interest.filter.matches(content)
        )
        is_in_order = any(self._subscriptions[name].ordered for name in wanted_by)
        matched = self._matches[encoded] = (content, wanted_by, is_in_order)
        return matched

    def _on_progress(self, received: int, sent: int) -> None:
        """The broker counts what is stable: of what it received from here, and sent here."""
        last = None
        confirmed = self._sent.stable_up_to(received)
        self.window.confirm(len(confirmed))
        for publication in confirmed:
            last = publication.seq
            del self._published_at[last]
            self._lately_stable.append((self.node, self.incarnation, last))
            if self._recording:
                self._record("confirmed", **self._names(last))
        if last is not None:
            self._outbox.add(ReportConfirmed(last))
            self._withdraw_up_to(last)
        stable = [(p.publisher, p.incarnation, p.seq) for p in self._received.stable_up_to(sent)]
        self._lately_stable.extend(stable)
        if self._not_in_order:
            self._not_in_order.difference_update(stable)

    def _note_tick(self, operation: OperationId, tick: int) -> None:
        request = self._requests.get(operation)
        if request is not None:
            interest = self._advertisements.get(
                AdvertisementId(request.subject)
            ) or self._subscriptions.get(SubscriptionId(request.subject))
            if interest is not None:
                self._ticks.note(self._life_of_broker, interest.wire_id, tick)

    def _on_confirm(self, operation: OperationId) -> None:
        request = self._requests.pop(operation, None)
        if request is None:
            return
        match request.message:
            case Join():
                self._on_joined()
            case Leave():
                self._stop("left")
            case Advertise():
                self._on_advertised(operation, AdvertisementId(request.subject))
            case Unadvertise():
                # Withdrawn before it was answered, it may have been refused in the meantime.
                withdrawn = self._advertisements.pop(AdvertisementId(request.subject), None)
                if withdrawn is not None:
                    self._record_interest(
                        "unadvertised", "advertisement", request.subject, withdrawn
                    )
            case Subscribe():
                # Across a crash the end of a subscription may be confirmed before its beginning.
                interest = self._subscriptions.get(SubscriptionId(request.subject))
                if interest is not None and not interest.is_withdrawn:
                    interest.is_installed, interest.installed_at = True, self._now
                    self._matches.clear()
                    self._record_subscribed(SubscriptionId(request.subject))
            case Unsubscribe():
                self._subscriptions.pop(SubscriptionId(request.subject), None)  # likewise
        self._outbox.add(EndOperation(operation, None))

    def _on_advertised(self, operation: OperationId, advertisement: AdvertisementId) -> None:
        interest = self._advertisements.get(advertisement)
        if interest is not None and not interest.is_installed:
            interest.is_installed = True
            self._record_interest("advertised", "advertisement", advertisement, interest)
        self._restore(operation)

    def _restore(self, operation: OperationId) -> None:
        """Once every advertisement stands again, publications may flow."""
        if operation in self._restoring:
            self._restoring.remove(operation)
            if not self._restoring:
                self._on_restored()

    def _on_refuse(self, operation: OperationId, refusal: Refusal) -> None:
        request = self._requests.pop(operation, None)
        if request is None:
            return
        match request.message:
            case Join() | Leave():
                self._stop(f"{refusal.reason} ({refusal.code})")
            case Advertise():
                self._advertisements.pop(AdvertisementId(request.subject), None)
                self._restore(operation)
            case Subscribe():
                self._subscriptions.pop(SubscriptionId(request.subject), None)
        self._outbox.add(EndOperation(operation, refusal))

    # --- requests ---------------------------------------------------------------------------

    def _request_advertisement(
        self,
        advertisement: AdvertisementId,
        interest: _Interest,
        operation: OperationId | None = None,
    ) -> OperationId:
        message = self._advertise_message(interest, operation or self._new_operation())
        self._request(message, advertisement)
        return message.operation

    def _advertise_message(self, interest: _Interest, operation: OperationId) -> Advertise:
        return Advertise(
            operation=operation,
            advertisement=AdvertisementId(interest.wire_id),
            client=self.node,
            filter=interest.filter.sql,
            path=(self.node,),
        )

    def _request_subscription(
        self,
        subscription: SubscriptionId,
        interest: _Interest,
        operation: OperationId | None = None,
    ) -> OperationId:
        message = self._subscribe_message(interest, operation or self._new_operation())
        self._request(message, subscription)
        return message.operation

    def _subscribe_message(self, interest: _Interest, operation: OperationId) -> Subscribe:
        return Subscribe(
            operation=operation,
            subscription=SubscriptionId(interest.wire_id),
            client=self.node,
            filter=interest.filter.sql,
            ordered=interest.ordered,
            path=(self.node,),
        )

    def _request(self, message: Operation, subject: str = "") -> None:
        """Send an operation, and again with every new connection until it is confirmed."""
        self._requests[message.operation] = _Request(message, subject)
        is_connected = self._link is not None and self._link_state is LinkState.TO_PARENT
        if is_connected and (self._has_joined or isinstance(message, Join)):
            self._send(message)

    def _new_operation(self) -> OperationId:
        self._counter += 1
        return OperationId(f"{self.node}#{self.incarnation}.{self._counter}")

    def _new_name(self) -> str:
        self._counter += 1
        return f"{self.node}/{self._counter}"

    def _end_subscription(self, subscription: SubscriptionId) -> None:
        interest = self._subscriptions[subscription]
        if interest.is_installed:
            self._record_unsubscribed(subscription)
        interest.is_withdrawn, interest.is_installed = True, False
        self._matches.clear()

    # --- time -------------------------------------------------------------------------------

    def _end_step(self) -> None:
        self._last_seen.forget_some(lambda: {p.publisher for p in self._received.keep()})
        if self._link is not None and self._link_state is LinkState.TO_PARENT:
            news = self._received.count - self._told[0]
            if news and (self._is_urgent or news >= self.limits.progress_batch):
                self._tell_progress()
            elif news and self._progress_at is None:
                self._progress_at = self._now + self.limits.progress_delay_s
        self._arm_timer()

    def _tell_progress(self) -> None:
        self._is_urgent = False
        self._progress_at = None
        progress = (self._received.count, self._sent.count)
        if progress[0] != self._told[0]:
            self._told = progress
            self._send(Progress(*progress))

    def _on_timer(self) -> None:
        self._outbox.woken()
        if self.state is ClientState.CLOSED:
            return
        if self._progress_at is not None and self._now >= self._progress_at:
            self._progress_at = None
            if self._link is not None and self._link_state is LinkState.TO_PARENT:
                self._tell_progress()
        if self._redial_at is not None and self._now >= self._redial_at:
            self._redial_at = None
            if self._link is None:
                self._dial()
        if self._tick_at is not None and self._now >= self._tick_at:
            due, self._tick_at = self._tick_at, self._now + self.limits.heartbeat_interval_s
            self._on_tick(overslept=self._now - due > self.limits.heartbeat_timeout_s)

    def _on_tick(self, *, overslept: bool) -> None:
        if self._link is None:
            return
        if self._link_state is LinkState.TO_PARENT:
            self._send(Heartbeat())
        silent = self._now - self._heard_at
        if silent > self.limits.heartbeat_timeout_s:
            if self._may_move and self._session is not None and not (self._is_alone or overslept):
                # Who is stopped still lets connections come about: to dial again proves nothing.
                self._on_broker_failed()
            self._hang_up(f"silent for {silent:.1f} s")

    def _arm_timer(self) -> None:
        if self.state is not ClientState.CLOSED:
            self._outbox.wake_at(self._progress_at, self._tick_at, self._redial_at)

    # --- small things -----------------------------------------------------------------------

    def _stop(self, reason: str) -> None:
        if self.state is ClientState.CLOSED:
            return
        self.state = ClientState.CLOSED
        self._skip(self._sent.keep(), reason)
        if self._link is not None:
            self._outbox.add(CloseLink(self._link, GoodbyeCode.LEFT, reason))
            self._link = None
        self._outbox.add(Stop(reason))

    def _skip(self, publications: Sequence[Publish], reason: str) -> None:
        """Say of these that they will not be confirmed: who got them, nobody can tell."""
        for publication in publications:
            seq = publication.seq
            self._record("skipped", **self._names(seq), subscriber=None, reason=reason)
            self._outbox.add(ReportSkipped(seq, reason))

    def _require_open(self) -> None:
        if self.state in (ClientState.CLOSED, ClientState.LEAVING):
            raise ClosedError(f"client {self.node} is {self.state}")

    def _why_not_publishable(self, content: Content) -> str:
        advertised = [i.filter.sql for i in self._advertisements.values() if i.is_active]
        if not advertised:
            return f"{self.node} has advertised nothing yet: call advertise() and wait for it"
        return (
            f"{shortened(repr(dict(content)))} lies outside what {self.node} has advertised: "
            f"{shortened('; '.join(advertised))}"
        )

    def _send(self, message: Message) -> None:
        assert self._link is not None
        self._outbox.send(self._link, message)

    def _record(self, kind: str, **fields: Any) -> None:
        if self._recording:
            self._outbox.record(kind, **fields)

    def _names(self, seq: int) -> dict[str, Any]:
        """Name one of its publications, as records do."""
        return {"publisher": self.node, "publisher_incarnation": self.incarnation, "seq": seq}

    def _record_interest(self, kind: str, what: str, name: str, interest: _Interest) -> None:
        self._record(kind, client=self.node, **{what: name}, filter=interest.filter.sql)

    def _record_subscribed(self, subscription: SubscriptionId) -> None:
        interest = self._subscriptions[subscription]
        self._record(
            "subscribed",
            client=self.node,
            subscription=subscription,
            filter=interest.filter.sql,
            ordered=interest.ordered,
        )

    def _record_unsubscribed(self, subscription: SubscriptionId) -> None:
        interest = self._subscriptions[subscription]
        self._record(
            "unsubscribed",
            client=self.node,
            subscription=subscription,
            filter=interest.filter.sql,
            ordered=interest.ordered,
        )
