"""What a broker decides. No socket, no clock, no randomness: an input and a time in, effects out.

The broker is a node of a rooted tree. Its neighbours are its parent (none for the root) and, below,
child brokers and clients. All state about one of them is in one object, `Above` or `Below`; a
connection (`_Link`) comes and goes without touching it, as long as the peer comes back in the same
incarnation and within its time.

Read `step` first, then `_on_publish`: that is the life of a publication.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

import attrs

from broker.codec import decode_content
from broker.effects import (
    BecomeReady,
    CloseLink,
    Effect,
    Level,
    OpenLink,
    RecordHistory,
    SendMessage,
    SetTimer,
    Stop,
    WriteLog,
)
from broker.errors import RemoteProtocolError
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
from broker.limits import DEFAULT_LIMITS, Limits
from broker.link_states import LEGAL, LinkState
from broker.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Confirm,
    Flag,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Join,
    Leave,
    Message,
    Neighbourhood,
    NodeKind,
    Operation,
    Progress,
    Publish,
    RefusalCode,
    Refuse,
    StatusReply,
    StatusRequest,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from faulttol import neighbourhood
from faulttol.neighbourhood import TopologyLink
from faulttol.operations import Operations, Pending
from faulttol.stability import CountError, StreamAbove, StreamBelow, Unstable, unreceived
from routing.filter_text import FilterSyntaxError, parse_filter
from routing.filters import Filter
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from routing.orderings import ORDERINGS
from routing.tables import AdvertisementTable, RoutingEntry, SubscriptionTable

REDIAL_FIRST_S: Final = 0.05
"""The first pause before dialling again; doubled every time."""
REDIAL_LAST_S: Final = 1.0


@attrs.define(eq=False)
class _Neighbour:
    """What both kinds of neighbour have."""

    node: NodeId
    incarnation: int
    link: LinkId | None
    told: tuple[int, int] = (0, 0)
    """The progress it was told last."""
    is_urgent: bool = False
    """Somebody waits for the progress that is to be told."""
    routes: dict[bytes, "_Route"] = attrs.field(factory=dict)
    """Where contents that come from here go; valid for one version of the tables."""
    routes_version: int = -1


@attrs.define(eq=False)
class Above(_Neighbour):
    """The parent: our side confirms to it, and it declares stable."""

    sent: StreamAbove["_Arrival"] = attrs.field(factory=StreamAbove)
    received: StreamAbove["_Arrival"] = attrs.field(factory=StreamAbove)

    @property
    def progress(self) -> tuple[int, int]:
        """How far our side has come, with what we received and with what we sent."""
        return self.received.confirmed_count, self.sent.confirmed_count


@attrs.define(eq=False)
class Below(_Neighbour):
    """A child broker or a client: it confirms to us, and hears what is stable."""

    kind: NodeKind = NodeKind.CLIENT
    address: str = ""
    has_joined: bool = False
    sent: StreamBelow["_Arrival"] = attrs.field(factory=StreamBelow)
    received: StreamBelow["_Arrival"] = attrs.field(factory=StreamBelow)
    absent_since: float | None = None
    confirmed_before: int = 0
    """What it had confirmed when it was last looked at, for the detection of stalls."""
    stalled_since: float | None = None

    @property
    def progress(self) -> tuple[int, int]:
        """How far everybody has come, with what we received and with what we sent."""
        return self.received.stable_count, self.sent.stable_count


@attrs.define(eq=False)
class _Arrival(Unstable[Publish]):
    """A publication at this broker."""

    source: Above | Below = attrs.field(kw_only=True)
    route: "_Route" = attrs.field(kw_only=True)


@attrs.frozen(eq=False)
class _Route:
    """Where a content goes from here, if it came from one given neighbour."""

    down: tuple[Below, ...]
    climbs: bool
    links: tuple[LinkId, ...]
    """The links of `down`, without those of absent clients."""
    is_allowed: bool
    """Whether the client it comes from has advertised it."""


_NOWHERE: Final = _Route(down=(), climbs=False, links=(), is_allowed=True)


@attrs.define
class _Link:
    """One connection, greeted or not."""

    link: LinkId
    state: LinkState
    opened_at: float
    heard_at: float
    neighbour: Above | Below | None = None


@attrs.define
class Statistics:
    """What the broker has counted since it started."""

    publications_in: int = 0
    publications_out: int = 0
    publications_matched: int = 0
    publications_duplicate: int = 0
    publications_stable: int = 0
    routes_cached: int = 0
    routes_computed: int = 0
    clients_isolated: int = 0
    protocol_errors: int = 0
    operations_confirmed: int = 0
    operations_refused: int = 0
    operation_seconds: list[float] = attrs.field(factory=list)
    """Of operations confirmed since somebody last took them; bounded, see `take_latencies`."""


LATENCIES_MAX: Final = 10_000


class BrokerCore:
    """One broker."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        *,
        address: str = "",
        join: str | None = None,
        ordering: str = "fifo",
        policy: str = "filter",
        delta: int = 1,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Be `node`, reachable at `address`; join the overlay at `join`, or be its root."""
        self.node = node
        self.incarnation = incarnation
        self.address = address
        self.limits = limits
        self._join = join
        self._adopt(ordering, policy, delta)
        self.parent: Above | None = None
        self.below: dict[NodeId, Below] = {}
        self.advertisements = AdvertisementTable()
        self.subscriptions = SubscriptionTable()
        self.unstable_count = 0
        self._forwarded: dict[SubscriptionId, dict[NodeId, None]] = {}
        self._last_seen: dict[NodeId, tuple[int, int]] = {}
        self._operations: Operations[Operation] = Operations()
        self._operation_count = 0
        self._join_operation: OperationId | None = None
        self._joining_since = 0.0
        self._links: dict[LinkId, _Link] = {}
        self._is_ready = False
        self._drain_until: float | None = None
        self._has_stopped = False
        self._greetings: list[tuple[LinkId, Hello]] = []
        """Of nodes that came before this broker was ready."""
        self._redial_at: float | None = None
        self._redial_pause = REDIAL_FIRST_S
        self._tables_version = 0
        self._touched: dict[NodeId, Below] = {}
        """Neighbours below for whom something may have become stable in this step."""
        self._lazy: dict[NodeId, Above | Below] = {}
        """Neighbours to be told of progress when the timer fires."""
        self._progress_at: float | None = None
        self._tick_at: float | None = None
        self._timer_at: float | None = None
        self._effects: list[Effect] = []
        self._now = 0.0
        self._statistics = Statistics()

    def _adopt(self, ordering: str, policy: str, delta: int) -> None:
        """Take the overlay's settings; a broker that joins takes those of its join point."""
        self.ordering = ORDERINGS[ordering]()
        self.policy = policy
        self.delta = delta
        self.neighbourhood = neighbourhood.Neighbourhood(self.node, delta=delta)

    # --- the door ---------------------------------------------------------------------------

    def start(self, now: float) -> list[Effect]:
        """Begin: join, or be the root."""
        self._now = now
        self._joining_since = now
        self._tick_at = now + self.limits.heartbeat_interval_s
        if self._join is None:
            self._become_ready()
        else:
            self._effects.append(OpenLink(self._join))
        return self._end_step()

    def step(self, now: float, happened: Input) -> list[Effect]:
        """Take in what has happened; returns what is to be done, in this order.

        History records come before the messages that make them known to others, and a
        confirmation comes after everything it confirms.
        """
        self._now = now
        match happened:
            case MessagesReceived(link_id, messages):
                self._on_messages(link_id, messages)
            case TimerFired():
                self._on_timer()
            case LinkOpened(link_id, dialled):
                self._on_link_opened(link_id, dialled)
            case LinkFailed(dialled, reason):
                self._on_link_failed(dialled, reason)
            case LinkClosed(link_id, reason):
                self._on_link_closed(link_id, reason)
            case ShutdownRequested():
                self._on_shutdown()
        return self._end_step()

    def kind_of(self, link_id: LinkId) -> NodeKind | None:
        """What is at the other end of a link; None before it has said so."""
        link = self._links.get(link_id)
        if link is None:
            return None
        match link.state:
            case LinkState.TO_CLIENT:
                return NodeKind.CLIENT
            case LinkState.TO_PARENT | LinkState.TO_CHILD:
                return NodeKind.BROKER
            case LinkState.TO_MONITOR:
                return NodeKind.MONITOR
            case _:
                return None

    def statistics(self) -> Statistics:
        """The counters, live."""
        return self._statistics

    def take_latencies(self) -> list[float]:
        """How long operations took that were confirmed since the last call, in seconds."""
        taken, self._statistics.operation_seconds = self._statistics.operation_seconds, []
        return taken

    def status(self) -> dict[str, Any]:
        """Everything a person wants to know about this broker, as JSON."""
        neighbours = [
            {
                "name": neighbour.node,
                "role": "parent",
                "kind": NodeKind.BROKER.value,
                "address": self._join or "",
                "incarnation": neighbour.incarnation,
                "is_connected": neighbour.link is not None,
                "unconfirmed": len(neighbour.sent.unconfirmed)
                + len(neighbour.received.unconfirmed),
                "sent": neighbour.sent.count,
                "received": neighbour.received.count,
            }
            for neighbour in ([self.parent] if self.parent else [])
        ] + [
            {
                "name": neighbour.node,
                "role": "child" if neighbour.kind is NodeKind.BROKER else "client",
                "kind": neighbour.kind.value,
                "address": neighbour.address,
                "incarnation": neighbour.incarnation,
                "is_connected": neighbour.link is not None,
                "unconfirmed": len(neighbour.sent.unconfirmed),
                "sent": neighbour.sent.count,
                "received": neighbour.received.count,
            }
            for neighbour in self.below.values()
        ]
        return {
            "node": self.node,
            "incarnation": self.incarnation,
            "state": self._state_name(),
            "address": self.address,
            "ordering": self.ordering.name,
            "policy": self.policy,
            "delta": self.delta,
            "neighbours": neighbours,
            "neighbourhood": [attrs.asdict(link) for link in self.neighbourhood],
            "subscriptions": len(self.subscriptions),
            "advertisements": len(self.advertisements),
            "operations_pending": len(self._operations),
            "unstable": self.unstable_count,
            "held": [],
        }

    def unfinished(self) -> list[str]:
        """What is under way here, in words; nothing, once everything is stable."""
        texts = []
        if not self._is_ready:
            texts.append("has not joined")
        if self.unstable_count:
            texts.append(f"{self.unstable_count} publications unstable")
        if self._operations:
            texts.append(f"{len(self._operations)} operations unconfirmed")
        texts.extend(
            f"{neighbour.node} is not connected"
            for neighbour in self._others(None)
            if neighbour.link is None
        )
        return texts

    def _state_name(self) -> str:
        if self._has_stopped:
            return "stopped"
        if self._drain_until is not None:
            return "stopping"
        if not self._is_ready:
            return "joining"
        if self.parent is not None and self.parent.link is None:
            return "cut off from its parent"
        return "operational"

    # --- links ------------------------------------------------------------------------------

    def _on_link_opened(self, link_id: LinkId, dialled: str) -> None:
        state = LinkState.AWAITING_WELCOME if dialled else LinkState.AWAITING_HELLO
        self._links[link_id] = _Link(link_id, state, self._now, self._now)
        if dialled:
            parent = self.parent
            self._send(
                link_id,
                Hello(
                    version=PROTOCOL_VERSION,
                    node=self.node,
                    kind=NodeKind.BROKER,
                    incarnation=self.incarnation,
                    address=self.address,
                    peer_incarnation=parent.incarnation if parent else 0,
                    received=parent.received.count if parent else 0,
                ),
            )

    def _on_link_failed(self, dialled: str, reason: str) -> None:
        self._log(Level.WARNING, "join point not reached", address=dialled, reason=reason)
        self._redial_later()

    def _redial_later(self) -> None:
        if self._drain_until is None:
            self._redial_at = self._now + self._redial_pause
            self._redial_pause = min(2 * self._redial_pause, REDIAL_LAST_S)

    def _on_link_closed(self, link_id: LinkId, reason: str) -> None:
        link = self._links.pop(link_id, None)
        if link is None:
            return
        if link.state is LinkState.AWAITING_WELCOME:
            self._redial_later()
        neighbour = link.neighbour
        if neighbour is None or neighbour.link != link_id:
            return
        self._log(Level.WARNING, "link lost", peer=neighbour.node, reason=reason)
        self._detach(neighbour)

    def _detach(self, neighbour: Above | Below) -> None:
        """The connection is gone, the neighbour may come back."""
        neighbour.link = None
        self._tables_version += 1
        if isinstance(neighbour, Above):
            self._redial_later()
        else:
            neighbour.absent_since = self._now

    def _close(self, link: _Link, code: GoodbyeCode, reason: str) -> None:
        """End a connection from this side, saying why to the peer and to the log."""
        del self._links[link.link]
        self._send(link.link, Goodbye(code=code, reason=reason))
        self._effects.append(CloseLink(link.link, code, reason))
        peer = link.neighbour.node if link.neighbour else "unknown"
        self._log(Level.WARNING, "link closed", peer=peer, code=code.value, reason=reason)
        neighbour = link.neighbour
        if neighbour is not None and neighbour.link == link.link:
            self._detach(neighbour)

    # --- messages ---------------------------------------------------------------------------

    def _on_messages(self, link_id: LinkId, messages: list[Message]) -> None:
        link = self._links.get(link_id)
        if link is None:  # closed from this side while these were on their way
            return
        link.heard_at = self._now
        try:
            for message in messages:
                if link.state is LinkState.AWAITING_HELLO or link.neighbour is None:
                    self._on_unfamiliar(link, message)
                elif type(message) is Publish:
                    self._on_publish(link.neighbour, message)
                else:
                    self._on_familiar(link, link.neighbour, message)
                if link_id not in self._links:
                    return
        except (RemoteProtocolError, CountError) as broken:
            self._statistics.protocol_errors += 1
            if link_id in self._links:
                self._close(link, GoodbyeCode.PROTOCOL, str(broken))

    def _require_legal(self, link: _Link, message: Message) -> None:
        if type(message) not in LEGAL[link.state]:
            raise RemoteProtocolError(
                f"{type(message).__name__} is not expected on a link in state '{link.state}'"
            )

    def _on_unfamiliar(self, link: _Link, message: Message) -> None:
        """A message on a link whose peer is not a neighbour: greetings and monitors."""
        self._require_legal(link, message)
        match message:
            case Hello():
                self._on_hello(link, message)
            case Welcome():
                self._on_welcome(link, message)
            case StatusRequest():
                report = json.dumps(self.status(), ensure_ascii=False).encode()
                self._send(link.link, StatusReply(report=report))
            case Goodbye(code=code, reason=reason):
                self._on_goodbye(link, code, reason)

    def _on_familiar(self, link: _Link, source: Above | Below, message: Message) -> None:
        """A message from a neighbour."""
        self._require_legal(link, message)
        match message:
            case Progress(received, sent):
                self._on_progress(source, received, sent)
            case Confirm(operation=operation):
                self._finish(self._operations.confirm(operation, source.node))
            case Advertise():
                self._on_advertise(source, message)
            case Unadvertise():
                self._on_unadvertise(source, message)
            case Subscribe():
                self._on_subscribe(source, message)
            case Unsubscribe():
                self._on_unsubscribe(source, message)
            case Join():
                self._on_join(source, message)
            case Leave():
                self._on_leave(source, message)
            case Neighbourhood(links=links):
                self.neighbourhood.add_all(links)
            case Refuse(code=code, reason=reason):
                self._give_up(f"refused by {source.node}: {reason} ({code})")
            case Goodbye(code=code, reason=reason):
                self._on_goodbye(link, code, reason)

    # --- greetings --------------------------------------------------------------------------

    def _on_hello(self, link: _Link, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION:
            self._close(
                link,
                GoodbyeCode.REFUSED,
                f"protocol version {hello.version}, {PROTOCOL_VERSION} expected",
            )
        elif hello.kind is NodeKind.MONITOR:
            link.state = LinkState.TO_MONITOR
            self._welcome(link.link, resumed=False, received=0)
        elif self._drain_until is not None:
            self._close(link, GoodbyeCode.SHUTTING_DOWN, f"{self.node} is stopping")
        elif not self._is_ready:
            self._greetings.append((link.link, hello))
        else:
            self._greet(link, hello)

    def _greet(self, link: _Link, hello: Hello) -> None:
        if hello.node == self.node or (self.parent and hello.node == self.parent.node):
            self._close(link, GoodbyeCode.REFUSED, f"the name {hello.node} is taken")
            return
        known = self.below.get(hello.node)
        if known is not None and hello.incarnation > known.incarnation:
            self._drop(known, f"replaced by incarnation {hello.incarnation}")
        elif known is not None and (known.incarnation, self.incarnation) == (
            hello.incarnation,
            hello.peer_incarnation,
        ):
            self._resume(link, known, hello)
            return
        elif known is not None and not known.has_joined and not hello.peer_incarnation:
            # Our welcome was lost with the connection, so the peer begins once more.
            self._supersede(known)
        elif known is not None:
            reason = f"the name {hello.node} is taken by incarnation {known.incarnation}"
            self._close(link, GoodbyeCode.REFUSED, reason)
            return
        newcomer = Below(
            node=hello.node,
            incarnation=hello.incarnation,
            link=link.link,
            kind=hello.kind,
            address=hello.address,
            has_joined=False,
        )
        self.below[hello.node] = newcomer
        self._attach(link, newcomer)
        self._welcome(link.link, resumed=False, received=0)

    def _attach(self, link: _Link, neighbour: Below) -> None:
        link.neighbour = neighbour
        link.state = (
            LinkState.TO_CLIENT if neighbour.kind is NodeKind.CLIENT else LinkState.TO_CHILD
        )
        self._tables_version += 1

    def _resume(self, link: _Link, neighbour: Below, hello: Hello) -> None:
        """A neighbour is back on a new connection: go on where the old one ended."""
        again = unreceived(neighbour.sent, hello.received)
        self._supersede(neighbour)
        neighbour.link = link.link
        neighbour.absent_since = None
        self._attach(link, neighbour)
        self._welcome(link.link, resumed=True, received=neighbour.received.count)
        self._send_again(neighbour, again)
        self._log(Level.INFO, "link resumed", peer=neighbour.node, sent_again=len(again))

    def _supersede(self, neighbour: Below) -> None:
        """Close the connection that a neighbour has already replaced by a new one."""
        old = self._links.get(neighbour.link) if neighbour.link is not None else None
        if old is not None:
            self._close(old, GoodbyeCode.LEFT, "replaced by a new connection")

    def _send_again(self, neighbour: Above | Below, again: Iterable["_Arrival"]) -> None:
        assert neighbour.link is not None
        for entry in again:
            self._send(neighbour.link, entry.publication)
        for request in self._operations.unconfirmed_by(neighbour.node):
            self._send(neighbour.link, request)
        neighbour.told = (0, 0)  # the peer may have missed any of it
        self._tell_progress(neighbour)

    def _welcome(self, link_id: LinkId, *, resumed: bool, received: int) -> None:
        self._send(
            link_id,
            Welcome(
                node=self.node,
                incarnation=self.incarnation,
                ordering=self.ordering.name,
                policy=self.policy,
                delta=self.delta,
                resumed=resumed,
                received=received,
            ),
        )

    def _on_welcome(self, link: _Link, welcome: Welcome) -> None:
        link.state = LinkState.TO_PARENT
        self._redial_pause = REDIAL_FIRST_S
        parent = self.parent
        if parent is not None and not welcome.resumed:
            self._give_up(
                f"{welcome.node} knows nothing of this branch any more "
                f"(incarnation {parent.incarnation} before, {welcome.incarnation} now)"
            )
            return
        if parent is not None:
            parent.link = link.link
            link.neighbour = parent
            self._tables_version += 1
            self._send_again(parent, unreceived(parent.sent, welcome.received))
            return
        if welcome.ordering not in ORDERINGS:
            self._give_up(f"{welcome.node} orders by '{welcome.ordering}', unknown here")
            return
        self._adopt(welcome.ordering, welcome.policy, welcome.delta)
        self.parent = Above(node=welcome.node, incarnation=welcome.incarnation, link=link.link)
        link.neighbour = self.parent
        own = TopologyLink(
            child=self.node,
            parent=welcome.node,
            kind=NodeKind.BROKER.value,
            incarnation=self.incarnation,
            address=self.address,
        )
        self.neighbourhood.add(own)
        join = Join(operation=self._new_operation(), link=own, distance=0)
        self._join_operation = join.operation
        self._start_operation(join.operation, None, [(self.parent, join)])

    def _become_ready(self) -> None:
        self._is_ready = True
        self._effects.append(BecomeReady())
        self._record(
            "joined",
            about=self.node,
            members=[self.node] + [link.child for link in self.neighbourhood],
            millis=round(1000 * (self._now - self._joining_since), 3),
        )
        greetings, self._greetings = self._greetings, []
        for link_id, hello in greetings:
            if link_id in self._links:
                self._greet(self._links[link_id], hello)

    def _on_goodbye(self, link: _Link, code: GoodbyeCode, reason: str) -> None:
        """The peer ends the link, or is about to."""
        neighbour = link.neighbour
        peer = neighbour.node if neighbour else "unknown"
        self._log(Level.INFO, "goodbye", peer=peer, code=code.value, reason=reason)
        is_upwards = link.state in (LinkState.AWAITING_WELCOME, LinkState.TO_PARENT)
        if code is GoodbyeCode.REFUSED and is_upwards:
            self._give_up(f"refused by the join point: {reason}")
        elif code is not GoodbyeCode.SHUTTING_DOWN or neighbour is None:
            # A parent that is stopping closes in its own time; whoever else says goodbye is gone.
            del self._links[link.link]
            self._effects.append(CloseLink(link.link, code, reason))
            if neighbour is not None:
                self._detach(neighbour)
            elif link.state is LinkState.AWAITING_WELCOME:
                self._redial_later()

    # --- publications -----------------------------------------------------------------------

    def _on_publish(self, source: Above | Below, publication: Publish) -> None:
        """Take in a publication: find out who wants it, and settle what may be settled."""
        statistics = self._statistics
        statistics.publications_in += 1
        stamp = (publication.incarnation, publication.seq)
        if self._last_seen.get(publication.publisher, (0, 0)) >= stamp:
            statistics.publications_duplicate += 1
            route = _NOWHERE
        else:
            route = self._route(source, publication.content)
            if isinstance(source, Below) and source.kind is NodeKind.CLIENT:
                self._require_publishable(source, publication, route)
            self._last_seen[publication.publisher] = stamp
            if route.down or route.climbs:
                statistics.publications_matched += 1

        arrival = _Arrival(publication, 1 + len(route.down), source=source, route=route)
        self.unstable_count += 1
        if isinstance(source, Above):
            source.received.append(arrival)
        elif source.kind is NodeKind.CLIENT:
            # A client has settled what it publishes by publishing it.
            source.received.append_confirmed(arrival)
        else:
            arrival.missing += 1
            source.received.append(arrival)
        if route.climbs:
            parent = self.parent
            assert parent is not None
            parent.sent.append(arrival)
            if parent.link is not None:
                statistics.publications_out += 1
                self._effects.append(SendMessage((parent.link,), publication))
        for settled in self.ordering.arrived(arrival):
            self._settle(settled)

    def _settle(self, arrival: _Arrival) -> None:
        """Fix the publication's place in this broker's order, and send it down in that order."""
        route = arrival.route
        if route.down:
            for neighbour in route.down:
                sent = neighbour.sent
                sent.count += 1  # StreamBelow.append, without the call: the hottest loop there is
                sent.unconfirmed.append(arrival)
            if route.links:
                self._statistics.publications_out += len(route.links)
                self._effects.append(SendMessage(route.links, arrival.publication))
        arrival.missing -= 1
        if not arrival.missing:
            self._complete(arrival)

    def _complete(self, arrival: _Arrival) -> None:
        """Our side has settled the publication: tell the parent, or declare it stable."""
        source = arrival.source
        if arrival.route.climbs or isinstance(source, Above):
            parent = self.parent
            assert parent is not None
            stream = parent.sent if arrival.route.climbs else parent.received
            stream.advance_confirmed()
            if arrival.publication.flags & Flag.URGENT:
                parent.is_urgent = True
            self._lazy[parent.node] = parent
        else:
            arrival.stable = True
            self._pass_on_stable(arrival)

    def _pass_on_stable(self, arrival: _Arrival) -> None:
        """The publication is stable: whoever below had to do with it is to hear of it."""
        self.unstable_count -= 1
        self._statistics.publications_stable += 1
        touched = self._touched
        source = arrival.source
        for neighbour in arrival.route.down:
            touched[neighbour.node] = neighbour
        if isinstance(source, Below):
            touched[source.node] = source
            if arrival.publication.flags & Flag.URGENT:
                source.is_urgent = True

    def _on_progress(self, source: Above | Below, received: int, sent: int) -> None:
        """A neighbour's side has come further; what it received is what we sent, and vice versa."""
        if isinstance(source, Above):
            for arrival in source.sent.stable_up_to(received):
                self._pass_on_stable(arrival)
            for arrival in source.received.stable_up_to(sent):
                self._pass_on_stable(arrival)
        else:
            for arrival in source.sent.confirm_up_to(received):
                self._complete(arrival)
            if source.kind is not NodeKind.CLIENT:
                for arrival in source.received.confirm_up_to(sent):
                    self._complete(arrival)
            self._touched[source.node] = source

    def _route(self, source: Above | Below, content: bytes) -> _Route:
        """Where this content goes, from here and from this source; remembered."""
        if source.routes_version != self._tables_version:
            source.routes.clear()
            source.routes_version = self._tables_version
        route = source.routes.get(content)
        if route is None:
            if len(source.routes) >= self.limits.cached_routes_max:
                source.routes.clear()
            route = source.routes[content] = self._compute_route(source, content)
            self._statistics.routes_computed += 1
        else:
            self._statistics.routes_cached += 1
        return route

    def _compute_route(self, source: Above | Below, content: bytes) -> _Route:
        attributes = decode_content(content)
        is_allowed = isinstance(source, Above) or (
            source.kind is not NodeKind.CLIENT
            or any(
                entry.filter.matches(attributes)
                for entry in self.advertisements.of_client(source.node)
            )
        )
        hops = self.subscriptions.hops(attributes)
        parent = self.parent
        from_broker = (
            source if isinstance(source, Above) or source.kind is NodeKind.BROKER else None
        )
        if self.policy == "flooding":
            interested = dict.fromkeys(hops)
            down = [
                neighbour
                for neighbour in self.below.values()
                if neighbour.has_joined
                and (neighbour.kind is NodeKind.BROKER or neighbour.node in interested)
            ]
            climbs = parent is not None and parent is not from_broker
        else:
            down = [self.below[hop] for hop in hops if hop in self.below]
            climbs = parent is not None and parent is not from_broker and parent.node in hops
        down = [neighbour for neighbour in down if neighbour is not from_broker]
        return _Route(
            down=tuple(down),
            climbs=climbs,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
            is_allowed=is_allowed,
        )

    def _require_publishable(self, source: Below, publication: Publish, route: _Route) -> None:
        if publication.publisher != source.node or publication.incarnation != source.incarnation:
            raise RemoteProtocolError(
                f"a publication of {publication.publisher}, incarnation "
                f"{publication.incarnation}, from {source.node}, incarnation {source.incarnation}"
            )
        if not route.is_allowed:
            raise RemoteProtocolError(
                f"publication {publication.seq} of {source.node} lies outside what it has "
                f"advertised: {decode_content(publication.content)}"
            )

    # --- progress ---------------------------------------------------------------------------

    def _end_step(self) -> list[Effect]:
        """What is done once per step, however much came in: progress, and the timer."""
        if self._touched:
            for node, below in self._touched.items():
                below.sent.advance_stable()
                below.received.advance_stable()
                self._lazy[node] = below
            self._touched.clear()
        if self._lazy and self._progress_at is None:
            self._progress_at = self._now + self.limits.progress_delay_s
        for neighbour in [n for n in self._lazy.values() if self._is_progress_due(n)]:
            del self._lazy[neighbour.node]
            self._tell_progress(neighbour)
        if self._drain_until is not None and not self._has_stopped:
            self._stop_if_drained()
        self._arm_timer()
        effects, self._effects = self._effects, []
        return effects

    def _is_progress_due(self, neighbour: Above | Below) -> bool:
        if neighbour.is_urgent:
            return True
        return sum(neighbour.progress) - sum(neighbour.told) >= self.limits.progress_batch

    def _tell_progress(self, neighbour: Above | Below) -> None:
        neighbour.is_urgent = False
        if neighbour.link is None:
            return
        progress = neighbour.progress
        if progress != neighbour.told:
            neighbour.told = progress
            self._send(neighbour.link, Progress(*progress))

    # --- joining and leaving ----------------------------------------------------------------

    def _on_join(self, source: Above | Below, join: Join) -> None:
        newcomer = join.link.child
        if join.distance == 0:
            if not isinstance(source, Below) or newcomer != source.node:
                raise RemoteProtocolError(f"{source.node} lets {newcomer} join here")
            if join.link.parent != self.node or join.link.kind != source.kind.value:
                raise RemoteProtocolError(
                    f"{newcomer} joins as a {join.link.kind} at {join.link.parent}, "
                    f"as a {source.kind} at {self.node} expected"
                )
            if source.has_joined:
                self._confirm_again(source, join.operation)
                return
            self._introduce(source)
            self._record("joined", about=newcomer, members=[self.node, newcomer], millis=0)
        self.neighbourhood.add(join.link)
        onwards = attrs.evolve(join, distance=join.distance + 1)
        told = self._told_of(join.link, onwards.distance, source)
        self._start_operation(join.operation, source, [(other, onwards) for other in told])

    def _introduce(self, newcomer: Below) -> None:
        """Tell a node that joins here all it has to know of what is there already."""
        assert newcomer.link is not None
        newcomer.has_joined = True
        self._tables_version += 1
        is_client = newcomer.kind is NodeKind.CLIENT
        links = self.neighbourhood.for_newcomer(brokers_only=is_client)
        self._send(newcomer.link, Neighbourhood(links=links))
        if is_client:
            return
        for entry in self.advertisements:
            advertise = self._advertise_onwards(self._new_operation(), entry)
            self._start_operation(advertise.operation, None, [(newcomer, advertise)])
        if self.policy == "flooding":
            for subscription in self.subscriptions:
                self._forward_subscription(subscription, newcomer)

    def _on_leave(self, source: Above | Below, leave: Leave) -> None:
        if leave.distance == 0:
            if not isinstance(source, Below) or leave.node != source.node:
                raise RemoteProtocolError(f"{source.node} lets {leave.node} leave")
            link_id = source.link
            assert link_id is not None
            self._remove(source, leave.operation)
            self._send(link_id, Confirm(operation=leave.operation))
            link = self._links.pop(link_id)
            self._effects.append(CloseLink(link.link, GoodbyeCode.LEFT, f"{source.node} left"))
            return
        self._spread_leave(leave, source)

    def _spread_leave(self, leave: Leave, source: Above | Below | None) -> None:
        """Forget a node, and let those know who know it."""
        link = self.neighbourhood.link_of(leave.node)
        told = [] if link is None else self._told_of(link, leave.distance + 1, source)
        self.neighbourhood.remove(leave.node)
        onwards = attrs.evolve(leave, distance=leave.distance + 1)
        self._start_operation(leave.operation, source, [(other, onwards) for other in told])

    def _told_of(
        self, link: TopologyLink, distance: int, source: Above | Below | None
    ) -> list[Above | Below]:
        """Whom to tell that a node came or went: a client is of interest to brokers only."""
        if distance > self.delta:
            return []
        is_broker = link.kind == NodeKind.BROKER.value
        return [other for other in self._others(source) if is_broker or not _is_client(other)]

    def _drop(self, neighbour: Below, reason: str) -> None:
        """A neighbour is gone for good and did not take its leave."""
        self._log(Level.WARNING, "neighbour dropped", peer=neighbour.node, reason=reason)
        self._record("suspected", about=neighbour.node, members=[self.node], millis=0)
        if neighbour.kind is NodeKind.CLIENT:
            for arrival in neighbour.sent.unconfirmed:
                self._record(
                    "skipped",
                    publisher=arrival.publication.publisher,
                    seq=arrival.publication.seq,
                    subscriber=neighbour.node,
                    reason=reason,
                )
        link = self._links.get(neighbour.link) if neighbour.link is not None else None
        neighbour.link = None  # or closing would take the neighbour for absent
        if link is not None:
            self._close(link, GoodbyeCode.ISOLATED, reason)
        self._remove(neighbour, self._new_operation())

    def _remove(self, neighbour: Below, operation: OperationId) -> None:
        """Take a neighbour out of the tree, with all that lies behind it."""
        del self.below[neighbour.node]
        self._lazy.pop(neighbour.node, None)
        self._tables_version += 1
        for subscription in [e for e in self.subscriptions if e.hop == neighbour.node]:
            self._withdraw_subscription(self._new_operation(), subscription, None)
        for advertisement in [e for e in self.advertisements if e.hop == neighbour.node]:
            self._withdraw_advertisement(self._new_operation(), advertisement, None)
        for hops in self._forwarded.values():
            hops.pop(neighbour.node, None)
        for pending in self._operations.forget(neighbour.node):
            self._finish(pending)
        neighbour.link = None
        # What it has not confirmed it never will: nobody is to wait for it.
        for stream in (neighbour.sent, neighbour.received):
            for arrival in stream.confirm_up_to(stream.count):
                self._complete(arrival)
        self._spread_leave(Leave(operation=operation, node=neighbour.node, distance=0), None)

    # --- advertisements and subscriptions ---------------------------------------------------

    def _on_advertise(self, source: Above | Below, advertise: Advertise) -> None:
        if advertise.advertisement in self.advertisements:
            self._confirm_again(source, advertise.operation)
            return
        accepted = self._accept(source, advertise, advertise.advertisement)
        if accepted is None:
            return
        entry = RoutingEntry(
            id=advertise.advertisement,
            client=advertise.client,
            filter=accepted,
            path=advertise.path,
        )
        self.advertisements.add(entry)
        self._tables_version += 1
        if self.policy != "flooding" and not _is_client(source):
            for subscription in self.subscriptions.overlapping(accepted, excluding=source.node):
                if source.node not in self._forwarded[subscription.id]:
                    self._forward_subscription(subscription, source)
        onwards = self._advertise_onwards(advertise.operation, entry)
        self._start_operation(
            advertise.operation,
            source,
            [(other, onwards) for other in self._others(source) if not _is_client(other)],
        )

    def _on_unadvertise(self, source: Above | Below, unadvertise: Unadvertise) -> None:
        entry = self.advertisements.get(unadvertise.advertisement)
        if entry is None:
            self._confirm_again(source, unadvertise.operation)
        elif entry.hop != source.node:
            raise RemoteProtocolError(f"{source.node} withdraws {entry.id}, which is not its own")
        else:
            self._withdraw_advertisement(unadvertise.operation, entry, source)

    def _withdraw_advertisement(
        self,
        operation: OperationId,
        entry: RoutingEntry[AdvertisementId],
        source: Above | Below | None,
    ) -> None:
        self.advertisements.remove(entry.id)
        self._tables_version += 1
        onwards = Unadvertise(operation=operation, advertisement=entry.id)
        self._start_operation(
            operation,
            source,
            [(other, onwards) for other in self._others(source) if not _is_client(other)],
        )
        if self.policy != "flooding" and source is not None and not _is_client(source):
            self._prune(entry, source)

    def _prune(self, withdrawn: RoutingEntry[AdvertisementId], source: Above | Below) -> None:
        """Take back the subscriptions that only this advertisement drew towards `source`."""
        for subscription in self.subscriptions.overlapping(withdrawn.filter, excluding=source.node):
            hops = self._forwarded[subscription.id]
            if source.node in hops and source.node not in self.advertisements.hops_overlapping(
                subscription.filter, excluding=subscription.hop
            ):
                del hops[source.node]
                operation = self._new_operation()
                back = Unsubscribe(operation=operation, subscription=subscription.id)
                self._start_operation(operation, None, [(source, back)])

    def _on_subscribe(self, source: Above | Below, subscribe: Subscribe) -> None:
        if subscribe.subscription in self._forwarded:
            self._confirm_again(source, subscribe.operation)
            return
        accepted = self._accept(source, subscribe, subscribe.subscription)
        if accepted is None:
            return
        entry = RoutingEntry(
            id=subscribe.subscription,
            client=subscribe.client,
            filter=accepted,
            path=subscribe.path,
            ordered=subscribe.ordered,
        )
        self.subscriptions.add(entry)
        self._tables_version += 1
        if self.policy == "flooding":
            targets = [other for other in self._others(source) if not _is_client(other)]
        else:
            hops = self.advertisements.hops_overlapping(accepted, excluding=source.node)
            targets = [
                neighbour
                for neighbour in map(self._neighbour, hops)
                if neighbour is not None and not _is_client(neighbour)
            ]
        self._forwarded[entry.id] = {target.node: None for target in targets}
        onwards = self._subscribe_onwards(subscribe.operation, entry)
        self._start_operation(subscribe.operation, source, [(t, onwards) for t in targets])

    def _forward_subscription(
        self, entry: RoutingEntry[SubscriptionId], target: Above | Below
    ) -> None:
        """Send a subscription on to a neighbour from which matching publications may now come."""
        self._forwarded[entry.id][target.node] = None
        onwards = self._subscribe_onwards(self._new_operation(), entry)
        self._start_operation(onwards.operation, None, [(target, onwards)])

    def _on_unsubscribe(self, source: Above | Below, unsubscribe: Unsubscribe) -> None:
        entry = self.subscriptions.get(unsubscribe.subscription)
        if entry is None:
            self._confirm_again(source, unsubscribe.operation)
        elif entry.hop != source.node:
            raise RemoteProtocolError(f"{source.node} withdraws {entry.id}, which is not its own")
        else:
            self._withdraw_subscription(unsubscribe.operation, entry, source)

    def _withdraw_subscription(
        self,
        operation: OperationId,
        entry: RoutingEntry[SubscriptionId],
        source: Above | Below | None,
    ) -> None:
        self.subscriptions.remove(entry.id)
        self._tables_version += 1
        onwards = Unsubscribe(operation=operation, subscription=entry.id)
        targets = [
            neighbour
            for neighbour in map(self._neighbour, self._forwarded.pop(entry.id))
            if neighbour is not None
        ]
        self._start_operation(operation, source, [(target, onwards) for target in targets])

    def _accept(
        self, source: Above | Below, request: Advertise | Subscribe, name: str
    ) -> Filter | None:
        """The filter of a request that may be installed; None if it has been refused."""
        try:
            parsed = parse_filter(request.filter)
        except FilterSyntaxError as error:
            if not _is_client(source):
                raise RemoteProtocolError(f"{name} of {source.node}: {error}") from None
            self._refuse(source, request.operation, RefusalCode.BAD_FILTER, str(error))
            return None
        if not _is_client(source):
            if request.path[-1:] != (source.node,):
                raise RemoteProtocolError(f"{name} of {source.node} came by {request.path}")
            return parsed
        if request.client != source.node or request.path != (source.node,):
            reason = f"{name} belongs to {request.client}, not to {source.node}"
            self._refuse(source, request.operation, RefusalCode.NOT_OWNER, reason)
            return None
        if isinstance(request, Advertise):
            count = len(self.advertisements.of_client(source.node))
            most = self.limits.advertisements_per_client_max
        else:
            count = len(self.subscriptions.of_client(source.node))
            most = self.limits.subscriptions_per_client_max
        if count >= most:
            reason = f"{source.node} has {count} already, at most {most} allowed"
            self._refuse(source, request.operation, RefusalCode.TOO_MANY, reason)
            return None
        return parsed

    def _advertise_onwards(
        self, operation: OperationId, entry: RoutingEntry[AdvertisementId]
    ) -> Advertise:
        return Advertise(
            operation=operation,
            advertisement=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            path=self._path_onwards(entry.path),
        )

    def _subscribe_onwards(
        self, operation: OperationId, entry: RoutingEntry[SubscriptionId]
    ) -> Subscribe:
        return Subscribe(
            operation=operation,
            subscription=entry.id,
            client=entry.client,
            filter=entry.filter.sql,
            ordered=entry.ordered,
            path=self._path_onwards(entry.path),
        )

    def _path_onwards(self, path: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """The last δ + 1 hops, seen from the next node."""
        return (*path, self.node)[-(self.delta + 1) :]

    # --- operations -------------------------------------------------------------------------

    def _new_operation(self) -> OperationId:
        self._operation_count += 1
        return OperationId(f"{self.node}#{self.incarnation}.{self._operation_count}")

    def _start_operation(
        self,
        operation: OperationId,
        source: Above | Below | None,
        requests: list[tuple[Above | Below, Operation]],
    ) -> None:
        """Pass an operation on; with nobody to pass it on to, it is confirmed at once."""
        for neighbour, request in requests:
            if neighbour.link is not None:
                self._send(neighbour.link, request)
        begun = self._operations.begin(
            operation,
            source.node if source else None,
            [(neighbour.node, request) for neighbour, request in requests],
            self._now,
        )
        if begun is None and source is not None:
            self._confirm(source, operation)

    def _finish(self, done: Pending[Operation] | None) -> None:
        """An operation has been confirmed from everywhere it was passed on to."""
        if done is None:
            return
        self._statistics.operations_confirmed += 1
        if len(self._statistics.operation_seconds) < LATENCIES_MAX:
            self._statistics.operation_seconds.append(self._now - done.since)
        source = self._neighbour(done.source) if done.source is not None else None
        if source is not None:
            self._confirm(source, done.operation)
        elif done.operation == self._join_operation:
            self._become_ready()

    def _confirm(self, source: Above | Below, operation: OperationId) -> None:
        if source.link is not None:
            self._send(source.link, Confirm(operation=operation))

    def _confirm_again(self, source: Above | Below, operation: OperationId) -> None:
        """A request came again after a broken connection; if it is done, say so again."""
        if operation not in self._operations:
            self._confirm(source, operation)

    def _refuse(
        self, source: Above | Below, operation: OperationId, code: RefusalCode, reason: str
    ) -> None:
        self._statistics.operations_refused += 1
        if source.link is not None:
            self._send(source.link, Refuse(operation=operation, code=code, reason=reason))

    # --- time -------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        self._timer_at = None
        now = self._now
        if self._progress_at is not None and now >= self._progress_at:
            self._progress_at = None
            lazy, self._lazy = self._lazy, {}
            for neighbour in lazy.values():
                self._tell_progress(neighbour)
        if self._redial_at is not None and now >= self._redial_at:
            self._redial_at = None
            assert self._join is not None
            self._effects.append(OpenLink(self._join))
        if self._tick_at is not None and now >= self._tick_at:
            self._tick_at = now + self.limits.heartbeat_interval_s
            self._on_tick()

    def _on_tick(self) -> None:
        """Once per heartbeat: greet the living, look for the dead and the stuck."""
        limits = self.limits
        for link in list(self._links.values()):
            silent = self._now - link.heard_at
            if link.neighbour is None and link.state is not LinkState.TO_MONITOR:
                if self._now - link.opened_at > limits.greeting_timeout_s and self._is_ready:
                    reason = f"no greeting within {limits.greeting_timeout_s:g} s"
                    self._close(link, GoodbyeCode.TIMEOUT, reason)
            elif silent > limits.heartbeat_timeout_s:
                self._close(link, GoodbyeCode.TIMEOUT, f"silent for {silent:.1f} s")
        alive = tuple(link.link for link in self._links.values() if link.neighbour is not None)
        if alive:
            self._effects.append(SendMessage(alive, Heartbeat()))
        for neighbour in list(self.below.values()):
            if neighbour.kind is NodeKind.CLIENT or not neighbour.has_joined:
                why = self._reason_to_isolate(neighbour)
                if why is not None:
                    self._statistics.clients_isolated += 1
                    self._drop(neighbour, why)

    def _reason_to_isolate(self, client: Below) -> str | None:
        limits = self.limits
        unconfirmed = len(client.sent.unconfirmed)
        if unconfirmed > limits.unconfirmed_publications_max:
            return f"{unconfirmed} publications unconfirmed"
        if client.absent_since is not None:
            absent = self._now - client.absent_since
            return f"absent for {absent:.1f} s" if absent > limits.resume_timeout_s else None
        confirmed = client.sent.confirmed_count
        if not unconfirmed or confirmed != client.confirmed_before:
            client.confirmed_before = confirmed
            client.stalled_since = None
        elif client.stalled_since is None:
            client.stalled_since = self._now
        elif self._now - client.stalled_since > limits.stall_timeout_s:
            return f"{unconfirmed} publications, none confirmed for {limits.stall_timeout_s:g} s"
        return None

    def _arm_timer(self) -> None:
        due = [
            at
            for at in (self._progress_at, self._tick_at, self._redial_at, self._drain_until)
            if at is not None
        ]
        if self._has_stopped or not due:
            return
        at = min(due)
        if self._timer_at is None or at < self._timer_at:
            self._timer_at = at
            self._effects.append(SetTimer(at))

    # --- stopping ---------------------------------------------------------------------------

    def _on_shutdown(self) -> None:
        """Take nothing new, finish what was accepted, then stop."""
        if self._drain_until is not None:
            return
        self._drain_until = self._now + self.limits.drain_timeout_s
        self._log(Level.INFO, "stopping", unstable=self.unstable_count)
        clients = tuple(
            neighbour.link
            for neighbour in self.below.values()
            if neighbour.kind is NodeKind.CLIENT and neighbour.link is not None
        )
        if clients:
            reason = f"{self.node} is stopping"
            farewell = Goodbye(code=GoodbyeCode.SHUTTING_DOWN, reason=reason)
            self._effects.append(SendMessage(clients, farewell))

    def _stop_if_drained(self) -> None:
        assert self._drain_until is not None
        is_late = self._now >= self._drain_until
        if (self.unstable_count or len(self._operations)) and not is_late:
            return
        self._has_stopped = True
        for neighbour in self._lazy.values():
            self._tell_progress(neighbour)
        if self.unstable_count:
            self._log(
                Level.WARNING, "stopped before everything was stable", unstable=self.unstable_count
            )
        parent = self.parent
        if parent is not None and parent.link is not None and not self._children():
            # A leaf leaves the tree; a broker with children below it can only be missed.
            leave = Leave(operation=self._new_operation(), node=self.node, distance=0)
            self._send(parent.link, leave)
        for link in list(self._links.values()):
            self._effects.append(CloseLink(link.link, GoodbyeCode.SHUTTING_DOWN, "stopped"))
        self._links.clear()
        self._effects.append(Stop("stopped"))

    def _give_up(self, reason: str) -> None:
        """Nothing can be done here without a person."""
        self._log(Level.ERROR, "gave up", reason=reason)
        self._has_stopped = True
        self._effects.append(Stop(reason))

    # --- small things -----------------------------------------------------------------------

    def _neighbour(self, node: NodeId) -> Above | Below | None:
        if self.parent is not None and self.parent.node == node:
            return self.parent
        return self.below.get(node)

    def _others(self, source: Above | Below | None) -> list[Above | Below]:
        """Every neighbour that has joined, but for one."""
        others: list[Above | Below] = []
        if self.parent is not None and self.parent is not source:
            others.append(self.parent)
        others.extend(n for n in self.below.values() if n.has_joined and n is not source)
        return others

    def _children(self) -> list[Below]:
        return [n for n in self.below.values() if n.kind is NodeKind.BROKER]

    def _send(self, link_id: LinkId, message: Message) -> None:
        self._effects.append(SendMessage((link_id,), message))

    def _record(self, kind: str, **fields: Any) -> None:
        self._effects.append(RecordHistory(kind, fields))

    def _log(self, level: Level, event: str, **fields: Any) -> None:
        self._effects.append(WriteLog(level, event, fields))


def _is_client(neighbour: Above | Below) -> bool:
    return isinstance(neighbour, Below) and neighbour.kind is NodeKind.CLIENT
