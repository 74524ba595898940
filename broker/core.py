"""What a broker decides. No socket, no clock, no randomness: an input and a time in, effects out.

The broker is a node of a rooted tree. This module has its door (`step`), its connections and
greetings, how nodes join and leave, and its sense of time. What it routes is elsewhere:
`broker/publications.py` and `broker/interests.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from broker.effects import (
    BecomeReady,
    CloseLink,
    Effect,
    Level,
    OpenLink,
    RememberLinks,
    SendMessage,
    Stop,
)
from broker.errors import RemoteProtocolError
from broker.fences import NEVER_FENCED, Fences
from broker.holding import Holds
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
from broker.interests import POLICIES, Interests, Observer
from broker.limits import DEFAULT_LIMITS, Limits
from broker.link_states import LinkState, with_heartbeats_of
from broker.losses import Losses
from broker.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Adopt,
    Adopted,
    Advertise,
    Claim,
    Confirm,
    Defer,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Join,
    Known,
    Leave,
    Message,
    Moved,
    Neighbourhood,
    NodeKind,
    Operation,
    Pause,
    Placed,
    PlacesReply,
    PlacesRequest,
    Prepare,
    Prepared,
    Present,
    Progress,
    Publish,
    Refuse,
    Resume,
    Settled,
    StatusReply,
    StatusRequest,
    Subscribe,
    Summon,
    Top,
    Unadvertise,
    Unsubscribe,
    Welcome,
    Withdraw,
)
from broker.moving import Moving
from broker.names import Names, digest_of
from broker.neighbours import UP, Above, Arrival, Below, Neighbour, Neighbours, is_client
from broker.outbox import Outbox
from broker.places import PlacedPublications, Whereabouts
from broker.publications import Counters, Publications
from broker.published import PublishedPublications
from broker.reforming import Reforming
from broker.reports import report_within
from broker.requests import Requests
from broker.roles import Speaker, condition_of, require
from faulttol import neighbourhood
from faulttol.neighbourhood import Life, TopologyLink
from faulttol.stability import CountError
from routing.conflicts import DETECTIONS, FAST
from routing.ids import NodeId, OperationId, asker_of
from routing.orderings import (
    DEFAULT_ORDERING,
    ORDERINGS,
    Cause,
    FilteredSequencer,
    Published,
    PublishedProgressive,
    PublishedWholeQueue,
)
from routing.published import OverlapTables


@attrs.define
class _Link:
    """One connection, greeted or not."""

    link: LinkId
    state: LinkState
    opened_at: float
    heard_at: float
    neighbour: Neighbour | None = None
    has_greeted: bool = False


@attrs.frozen
class Statistics:
    """What the broker counts, for metrics."""

    publications: Counters
    skipped: int
    unstable: int
    held: int
    hold_times: Mapping[Cause, Holds]
    subscriptions: int
    advertisements: int
    operations_pending: int
    operations_refused: int
    clients_isolated: int
    publishers_remembered: int
    protocol_errors: int


class BrokerCore:
    """One broker."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        *,
        address: str = "",
        join: str | None = None,
        fallbacks: Sequence[str] = (),
        remembered: Sequence[TopologyLink] = (),
        ordering: str = DEFAULT_ORDERING,
        policy: str = "filter",
        delta: int = 1,
        detection: str = FAST,
        standby: int = 0,
        wall_clock_ms: int = 0,
        fences: Fences = NEVER_FENCED,
        entropy: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Be `node`, reachable at `address`; join the overlay at `join`, or be its root.

        If nobody is there to join, any of `fallbacks` will do. With the links that an earlier
        incarnation remembered, it recovers: it joins whoever is left of those. A `standby` waits
        until the broker at its join point fails, 1 being the first to take over. What the clock on
        the wall shows when it starts is for comparison with the incarnations of others, and the
        `entropy`, which nobody else knows, for the secrets of sessions.
        """
        self.node = node
        self.incarnation = incarnation
        self.address = address
        self.limits = limits
        self.neighbours = Neighbours()
        self.outbox = Outbox()
        self.requests = Requests(
            node,
            incarnation,
            self.neighbours,
            self.outbox,
            lambda neighbour, message: self.publications.send_in_turn(neighbour, message),
            lambda operation: self.interests.note_confirmed(operation),
            self._as_of_now,
        )
        self._losses = Losses(self.outbox, most=limits.status_skipped_max)
        self.reforming = Reforming(self)
        self.moving = Moving(self)
        self.names = Names(self, wall_clock_ms=wall_clock_ms, entropy=entropy)
        self._fences = fences
        """What became of its lives before this one."""
        self._join = join
        self._join_operation: OperationId | None = None
        self.started_at = 0.0
        self._adopt(ordering, policy, delta, detection)
        self._links: dict[LinkId, _Link] = {}
        self._greetings: list[tuple[LinkId, Hello]] = []
        """Of nodes that came before this broker was ready."""
        self.is_ready = False
        self._has_stopped = False
        self._clients_isolated = 0
        self._protocol_errors = 0
        self.now = 0.0
        self._tick_at: float | None = None
        self._redial_at: float | None = None
        self._redial_pause = self.limits.redial_first_s
        self._drain_until: float | None = None
        self._isolate_at: float | None = None
        """When it goes on to isolate clients, if there are more than one step can bear."""
        self._ticked_at = 0.0
        self._moves = -1
        """How often it has changed its place in the tree."""
        self._is_cut_off = False
        """Whether its parent failed and nobody could take its place."""
        self._is_rejoining = False
        """Whether the new parent of such a branch is telling what there is."""
        self._lost_parent_at = 0.0
        self._alone_since: float | None = None
        """Until a branch that was cut off has told and been told all that others have to know."""
        self._has_to_be_told: frozenset[OperationId] = frozenset()
        """What of that was not confirmed yet when the branch had joined."""
        self._has_to_hear: frozenset[OperationId] = frozenset()
        """What others advertise, of which not all of the branch had heard by then."""
        self._has_to_be_asked: frozenset[OperationId] | None = None
        """The subscriptions that it then asked of them, once all of it has heard."""
        self._top = ""
        """Where the top of this branch listens, as far as it is known."""
        self._is_stranded = False
        """Whether its join point failed before it had joined."""
        self._recovers = _places_in(remembered, self.node)
        self.standby, self._site = _standing(remembered, self.node, standby)
        """Its place among the standbys of its parent, if that is a broker of its site."""
        self._was_root = any(link.is_root and link.child == node for link in remembered)
        self._refused = 0
        """How many of those it asked in a row had no place for it."""
        self._candidates = list(dict.fromkeys([*self._recovers, *filter(None, [join]), *fallbacks]))
        """Where to look for a parent."""
        self._told_at_first = tuple(self._candidates)
        """Those of them that it knew from the beginning."""
        if self._recovers:
            self._is_stranded = True
            self._join = self._candidates[0]
        self._links_remembered = -1

    def _adopt(self, ordering: str, policy: str, delta: int, detection: str) -> None:
        """Take the overlay's settings; a broker that joins takes those of its join point."""
        orders = ORDERINGS[ordering]
        self.delta = delta if orders.survives_crashes else 0
        self.detection = detection
        makes_publications, makes_observer = _CARRIED_OUT_BY.get(ordering, (Publications, None))
        self.neighbourhood = neighbourhood.Neighbourhood(self.node, delta=self.delta)
        self.interests = Interests(
            self.node,
            policy=policy,
            delta=self.delta,
            limits=self.limits,
            neighbours=self.neighbours,
            requests=self.requests,
            detection=detection if orders.waits_for_conflicts else None,
            observer=None if makes_observer is None else makes_observer(),
            is_root_to_know=orders.settles_at_root,
        )
        self.publications = makes_publications(
            ordering=orders(),
            limits=self.limits,
            neighbours=self.neighbours,
            interests=self.interests,
            outbox=self.outbox,
        )

    # --- the door ---------------------------------------------------------------------------

    def start(self, now: float) -> list[Effect]:
        """Begin: join, or be the root."""
        self.now = self.neighbours.clock.now = self.started_at = now
        self._ticked_at = now
        self._tick_at = now + self.limits.heartbeat_interval_s
        if self._recovers:
            self.outbox.record("recovering", about=self.node, members=[], millis=0)
        if self._join is None:
            self._become_root()
        else:
            self.outbox.add(OpenLink(self._join))
        return self._end_step()

    def move(
        self, now: float, taker: NodeId, children: Sequence[NodeId]
    ) -> tuple[bool, list[Effect]]:
        """Begin to hand children over to another child; the first says whether that may be."""
        self.now = self.neighbours.clock.now = now
        begun = self.moving.begin(taker, children)
        return begun, self._end_step()

    def step(self, now: float, happened: Input) -> list[Effect]:
        """Take in what has happened; returns what is to be done, in this order.

        History records come before the messages that make them known to others, and a
        confirmation comes after everything it confirms.
        """
        self.now = self.neighbours.clock.now = now
        if self._has_overslept():
            self.fence(f"did nothing for {now - self._ticked_at:.1f} s")
            return self.outbox.take()
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

    def _end_step(self) -> list[Effect]:
        """Do what is done once per step, however much came in."""
        if self._links_remembered != self.neighbourhood.version and self.is_ready:
            self._links_remembered = self.neighbourhood.version
            self.outbox.add(RememberLinks(self.neighbourhood.between_brokers()))
        self._end_solitude_if_possible()
        self.names.advance()
        self.publications.flush(self.now)
        if self.moving.advance():
            self.publications.flush(self.now)
        if self._drain_until is not None and not self._has_stopped:
            self._stop_if_drained()
        self._arm_timer()
        return self.outbox.take()

    # --- questions --------------------------------------------------------------------------

    def kind_of(self, link_id: LinkId) -> NodeKind | None:
        """What is at the other end of a link; None before it has said so."""
        link = self._links.get(link_id)
        return None if link is None else _KIND_OF_PEER.get(link.state)

    @property
    def has_stopped(self) -> bool:
        """Whether it does nothing any more."""
        return self._has_stopped

    def is_stranger(self, link_id: LinkId) -> bool:
        """Whether whoever came over a link has not said who it is."""
        link = self._links.get(link_id)
        return link is None or (link.state is LinkState.AWAITING_HELLO and not link.has_greeted)

    @property
    def is_settled_in(self) -> bool:
        """Whether this broker has its place in the tree, and all around it have theirs."""
        parent = self.neighbours.parent
        return (
            self.is_ready
            and not (self._is_cut_off or self._is_rejoining or self.reforming.is_busy)
            and self._drain_until is None
            and (parent is None or parent.link is not None)
        )

    def statistics(self) -> Statistics:
        """The counters as they stand."""
        return Statistics(
            publications=self.publications.counters,
            skipped=self._losses.count,
            unstable=self.publications.unstable,
            held=len(self.publications.ordering.held),
            hold_times=self.publications.hold_times.by_cause,
            subscriptions=len(self.interests.subscriptions),
            advertisements=len(self.interests.advertisements),
            operations_pending=len(self.requests),
            operations_refused=self.requests.refused,
            clients_isolated=self._clients_isolated,
            publishers_remembered=self.publications.publishers_remembered,
            protocol_errors=self._protocol_errors,
        )

    def take_latencies(self) -> list[float]:
        """How long operations took that were confirmed since the last call, in seconds."""
        return self.requests.take_latencies()

    def status(self) -> dict[str, Any]:
        """Everything a person wants to know about this broker, as JSON."""
        parent = self.neighbours.parent
        clients = self.neighbours.clients()
        neighbours = [_describe(parent) | {"address": self._join}] if parent else []
        neighbours += [_describe(child) for child in self.neighbours.children()]
        neighbours += [_describe(client) for client in clients[: self.limits.status_clients_max]]
        return {
            "node": self.node,
            "incarnation": self.incarnation,
            "state": self._state_name(),
            "address": self.address,
            "ordering": self.publications.ordering.name,
            "policy": self.interests.policy,
            "delta": self.delta,
            "detection": self.detection,
            "standby": self.standby,
            "neighbours": neighbours,
            "clients": len(clients),
            "neighbourhood": [
                attrs.asdict(link)
                for link in self.neighbourhood
                if link.kind == NodeKind.BROKER.value
            ],
            "subscriptions": len(self.interests.subscriptions),
            "advertisements": len(self.interests.advertisements),
            "operations_pending": len(self.requests),
            "unstable": self.publications.unstable,
            "held_count": len(self.publications.ordering.held),
            "held": self.publications.describe_held(self.now),
            "skipped_count": self._losses.count,
            "skipped": self._losses.describe(),
            "fenced": self._fences.describe(),
        }

    def _state_name(self) -> str:
        if self._has_stopped:
            return "stopped"
        if self._recovers and not self.is_ready:
            return "recovering"
        if self._is_cut_off:
            return "cut off"
        if self.reforming.is_busy:
            return "re-forming"
        if self._drain_until is not None:
            return "stopping"
        if not self.is_ready:
            return "joining"
        if self.standby:
            return "standby"
        parent = self.neighbours.parent
        return "operational" if parent is None or parent.link else "cut off from its parent"

    def unfinished(self) -> list[str]:
        """What is under way here, in words; nothing, once everything is stable."""
        texts = []
        if not self.is_ready:
            texts.append("has not joined")
        if self.publications.unstable:
            texts.append(f"{self.publications.unstable} publications unstable")
        if self.requests:
            texts.append(f"{len(self.requests)} operations unconfirmed")
        texts.extend(self.reforming.describe())
        if not self.moving.is_idle:
            texts.append("children are being moved")
        texts.extend(
            f"{neighbour.node} is not connected"
            for neighbour in self.neighbours.others(None)
            if neighbour.link is None
        )
        return texts

    # --- connections ------------------------------------------------------------------------

    def _on_link_failed(self, dialled: str, reason: str) -> None:
        if self.reforming.is_visit(dialled):
            self.reforming.on_visit_failed(dialled, reason)
        elif dialled != self._join:
            pass  # it was dialled for a reason that is none any more
        elif self.neighbours.parent is not None:
            self.reforming.on_dial_failed(dialled, reason)
        else:
            self.outbox.log(Level.WARNING, "join point not reached", address=dialled, reason=reason)
            self._try_next_candidate()

    def _on_link_opened(self, link_id: LinkId, dialled: str) -> None:
        if dialled and self.reforming.is_visit(dialled):
            state = LinkState.AWAITING_SIGN_OF_LIFE
            self._links[link_id] = _Link(link_id, state, self.now, self.now)
            self.reforming.on_visit(link_id, dialled)
            return
        if dialled and (dialled != self._join or self._has_asked):
            self.outbox.add(CloseLink(link_id, GoodbyeCode.LEFT, "not needed any more"))
            return
        state = LinkState.AWAITING_WELCOME if dialled else LinkState.AWAITING_HELLO
        self._links[link_id] = _Link(link_id, state, self.now, self.now)
        if dialled:
            parent = self.neighbours.parent
            visited = self.moving.visits
            hello = Hello(
                version=PROTOCOL_VERSION,
                node=self.node,
                kind=NodeKind.BROKER,
                incarnation=self.incarnation,
                address=self.address,
                peer=visited.parent if visited else parent.node if parent else NodeId(""),
                peer_incarnation=(
                    visited.parent_incarnation if visited else parent.incarnation if parent else 0
                ),
                received=parent.received.count if parent else 0,
                failed=() if visited else self.reforming.who_has_failed,
                is_top=self._is_cut_off,
                expected=0 if visited else self.reforming.expected_incarnation,
                is_moving=visited is not None,
            )
            self.outbox.send(link_id, hello)

    @property
    def _has_asked(self) -> bool:
        """Whether somebody is its parent, or is just asked; whoever was dialled before is late."""
        parent = self.neighbours.parent
        is_asking = any(link.state is LinkState.AWAITING_WELCOME for link in self._links.values())
        return is_asking or (parent is not None and parent.link is not None)

    def _on_link_closed(self, link_id: LinkId, reason: str) -> None:
        link = self._links.pop(link_id, None)
        if link is None:
            return
        if link.state is LinkState.AWAITING_WELCOME:
            self._redial_later()
        elif link.state is LinkState.AWAITING_SIGN_OF_LIFE:
            self.reforming.on_no_answer(link_id)
        neighbour = link.neighbour
        if neighbour is not None and neighbour.link == link_id:
            self.outbox.log(Level.WARNING, "link lost", peer=neighbour.node, reason=reason)
            self._detach(neighbour)

    def _redial_later(self) -> None:
        if self._drain_until is None:
            self._redial_at = self.now + self._redial_pause
            self._redial_pause = min(
                max(2 * self._redial_pause, self.limits.redial_first_s), self.limits.redial_last_s
            )

    def _detach(self, neighbour: Neighbour) -> None:
        """The connection is gone, the neighbour may come back."""
        self._disconnect(neighbour)
        if isinstance(neighbour, Above):
            self._redial_pause = 0.0
            self._redial_later()
        elif self.neighbours.below.get(neighbour.node) is neighbour:
            neighbour.absent_since = self.now
            self.reforming.visit_child(neighbour)
        else:
            self.reforming.on_orphan_lost(neighbour)

    def _disconnect(self, neighbour: Neighbour) -> None:
        if isinstance(neighbour, Above) and neighbour.link is not None:
            self._lost_parent_at = self.now
        neighbour.link = None
        self.neighbours.version += 1

    def _close(self, link: _Link, code: GoodbyeCode, reason: str, instead: str = "") -> None:
        """End a connection from this side, saying why to the peer and to the log."""
        del self._links[link.link]
        goodbye = Goodbye(code=code, reason=reason, incarnation=self.incarnation, instead=instead)
        self.outbox.send(link.link, goodbye)
        self.outbox.add(CloseLink(link.link, code, reason))
        neighbour = link.neighbour
        peer = neighbour.node if neighbour else "unknown"
        self.outbox.log(Level.WARNING, "link closed", peer=peer, code=code.value, reason=reason)
        if neighbour is not None and neighbour.link == link.link:
            self._detach(neighbour)

    def _supersede(self, neighbour: Below) -> None:
        """Close the connection that a neighbour has already replaced by a new one."""
        old = self._links.get(neighbour.link) if neighbour.link is not None else None
        if old is not None:
            self._close(old, GoodbyeCode.LEFT, "replaced by a new connection")

    # --- messages ---------------------------------------------------------------------------

    def _on_messages(self, link_id: LinkId, messages: list[Message]) -> None:
        link = self._links.get(link_id)
        if link is None:  # closed from this side while these were on their way
            return
        link.heard_at = self.now
        try:
            for message in messages:
                source = link.neighbour
                if source is None:
                    self._on_unfamiliar(link, message)
                elif link.state in _ORPHANED:
                    self._on_orphan(link, source, message)
                elif self.moving.is_paused and self.moving.parks(link_id, source, message):
                    pass
                elif type(message) is Publish:
                    self.publications.on_publish(source, message, self.now)
                else:
                    self._on_familiar(link, source, message)
                if link_id not in self._links:
                    return
        except (RemoteProtocolError, CountError) as broken:
            self._on_broken(link, str(broken))

    def _on_broken(self, link: _Link, reason: str) -> None:
        """The peer has broken the protocol: the connection ends, and who needs one dials again."""
        self._protocol_errors += 1
        if link.link not in self._links:  # it has been closed before that was noticed
            return
        state = link.state
        self._close(link, GoodbyeCode.PROTOCOL, reason)
        if state is LinkState.AWAITING_WELCOME:
            self._redial_later()
        elif state is LinkState.AWAITING_SIGN_OF_LIFE:
            self.reforming.on_no_answer(link.link)

    def _require_legal(self, link: _Link, message: Message) -> None:
        """Whoever says what is not for its role to say has broken the protocol."""
        condition = condition_of(link.state, type(message))
        if condition is not None:
            peer = link.neighbour
            speaker = Speaker(
                here=self.node,
                delta=self.delta,
                node=peer.node if peer else NodeId(""),
                incarnation=peer.incarnation if peer else 0,
            )
            require(condition, speaker, message)

    def _on_unfamiliar(self, link: _Link, message: Message) -> None:
        """A message on a link whose peer is not a neighbour: greetings and monitors."""
        self._require_legal(link, message)
        match message:
            case Hello():
                self._on_hello(link, message)
            case Summon() if link.state is LinkState.AWAITING_WELCOME:
                self.reforming.on_sent_away(message)
            case Summon() if link.state is LinkState.AWAITING_SIGN_OF_LIFE:
                self.reforming.on_answer(link.link, message)
            case Summon():
                self.reforming.answer(link.link, message)
                self.end_visit(link.link)
                self.reforming.on_summon(message)
            case Present(node=node, incarnation=incarnation):
                self.end_visit(link.link)
                self.reforming.on_present(link.link, Life(node, incarnation))
            case Welcome():
                self._on_welcome(link, message)
            case Moved():
                self.moving.on_moved(message)
            case StatusRequest():
                report = report_within(self.limits.report_bytes_max, self.status())
                self.outbox.send(link.link, StatusReply(report=report))
            case Goodbye():
                self._on_goodbye(link, message)

    def _on_orphan(self, link: _Link, source: Neighbour, message: Message) -> None:
        """A message from a node that waits until the tree has been re-formed around it."""
        self._require_legal(link, message)
        assert isinstance(source, Below)
        match message:
            case Heartbeat():
                pass
            case Goodbye():
                self._on_goodbye(link, message)
            case _:
                self.reforming.on_orphan_message(source, message)

    def hear_parked(self, link_id: LinkId, message: Message) -> None:
        """Take in what had to wait; what came over a connection that is gone will come again."""
        self._on_messages(link_id, [message])

    def hear(self, source: Below, message: Message) -> None:
        """Take in what an orphan said while it waited."""
        link = self._links.get(source.link) if source.link is not None else None
        if link is None:
            return  # it will say it again
        try:
            if isinstance(message, Publish):
                self._require_legal(link, message)
                self.publications.on_publish(source, message, self.now)
            else:
                self._on_familiar(link, source, message)
        except (RemoteProtocolError, CountError) as broken:
            self._on_broken(link, str(broken))

    def _on_familiar(self, link: _Link, source: Neighbour, message: Message) -> None:
        """A message from a neighbour."""
        self._require_legal(link, message)
        if isinstance(source, Below) and is_client(source) and isinstance(message, Operation):
            _require_own(source, message)
        if isinstance(source, Above) and self.moving.takes(message):
            return
        match message:
            case Progress():
                self.publications.on_progress(source, message)
            case Confirm(operation=operation, tick=tick):
                is_own = self.requests.on_confirm(source, operation, tick, self.now)
                if is_own and operation == self._join_operation:
                    self._become_ready()
            case Advertise() | Subscribe() if self._is_outdated(source, message):
                self.requests.pass_on(message.operation, source, [], self.now)
            case Advertise():
                if not (is_client(source) or self.interests.has_advertised(message.client)):
                    self.publications.forget_last_seen(message.client)
                self.interests.on_advertise(source, message, self.now)
            case Unadvertise():
                self.interests.on_unadvertise(source, message, self.now)
            case Subscribe():
                self.interests.on_subscribe(source, message, self.now)
            case Unsubscribe():
                self.interests.on_unsubscribe(source, message, self.now)
            case Join():
                self._on_join(source, message)
            case Claim():
                self.names.on_claim(source, message)
            case Leave():
                self._on_leave(source, message)
            case Neighbourhood():
                self.reforming.on_neighbourhood(source, message)
            case Known() if isinstance(source, Below):
                self.interests.on_known(source, message, self.now)
            case Top(address=address):
                self._note_top(address)
            case Summon():
                self.reforming.on_sent_away(message)
            case Withdraw():
                self.interests.on_withdraw(source, message, self.now)
            case Pause():
                self.moving.on_pause(source, message)
            case Prepare():
                self.moving.on_prepare(source, message)
            case Prepared():
                self.moving.on_prepared(source, message)
            case Adopt():
                self.moving.on_adopt(message)
            case Adopted():
                self.moving.on_adopted(source, message)
            case Moved():
                self.moving.on_moved(message)
            case Resume():
                self.moving.on_resume(message)
            case Settled(number):
                self.publications.on_settled(source, number, self.now)
            case Acknowledge() | Defer() | PlacesRequest() | PlacesReply() | Placed():
                self.publications.on_notice(source, message)
            case Refuse():
                if self.requests.on_refuse(source, message):
                    self.names.on_refused(message.operation, message.reason)
            case Goodbye():
                self._on_goodbye(link, message)

    def _is_outdated(self, source: Neighbour, request: Advertise | Subscribe) -> bool:
        """Whether the parent tells of something that lies below, and does not know that yet.

        Either this broker brings it along, with a branch that was cut off; or it has just been
        handed over, and the parent asks again, on another connection, what it had asked before.
        """
        if not isinstance(source, Above):
            return False
        hop = self.interests.hop_of(request)
        return hop not in (None, UP) and (self._is_rejoining or self.moving.is_undecided(hop))

    def _on_goodbye(self, link: _Link, goodbye: Goodbye) -> None:
        """The peer ends the link, or is about to."""
        neighbour = link.neighbour
        peer = neighbour.node if neighbour else "unknown"
        code, reason = goodbye.code, goodbye.reason
        self.outbox.log(Level.INFO, "goodbye", peer=peer, code=code.value, reason=reason)
        is_upwards = link.state in (LinkState.AWAITING_WELCOME, LinkState.TO_PARENT)
        if code is GoodbyeCode.FENCED:
            self.fence(reason)
        elif code is GoodbyeCode.REFUSED and is_upwards and self._may_give_up:
            self._give_up(f"refused by the join point: {reason}")
        elif (
            code is GoodbyeCode.REFUSED
            and is_upwards
            and (self.neighbours.parent is not None or self._recovers)
        ):
            # This life of it has no place any more, and no person is there who started it.
            self.fence(f"refused by {peer}: {reason}")
        elif code is not GoodbyeCode.SHUTTING_DOWN or neighbour is None:
            # A parent that is stopping closes in its own time; whoever else says goodbye is gone.
            del self._links[link.link]
            self.outbox.add(CloseLink(link.link, code, reason))
            if neighbour is not None:
                self._detach(neighbour)
            elif link.state is LinkState.AWAITING_WELCOME:
                if self.moving.visits is not None:
                    self.moving.on_declined()
                elif code is GoodbyeCode.STRANDED and self.reforming.is_seeking:
                    self.reforming.on_no_hub(goodbye.incarnation)
                elif code is GoodbyeCode.ELSEWHERE and self.reforming.is_seeking:
                    self.reforming.seek_again()
                elif code is GoodbyeCode.STRANDED and self.neighbours.parent is not None:
                    self._on_parent_restarted()
                elif self._is_cut_off and goodbye.instead not in ("", self.address):
                    self._ask_first(goodbye.instead)
                else:
                    self._try_next_candidate()

    @property
    def _may_give_up(self) -> bool:
        """Whether a person started this broker to join just there, and it never had a place.

        Else somebody answers who was found on the way, and may be anybody.
        """
        is_new = not (self.is_ready or self._recovers)
        return is_new and self._join in self._told_at_first

    def end_visit(self, link_id: LinkId) -> None:
        """Close a connection that has served its purpose."""
        if self._links.pop(link_id, None) is not None:
            self.outbox.add(CloseLink(link_id, GoodbyeCode.LEFT, "no more to say"))

    # --- greetings --------------------------------------------------------------------------

    def _on_hello(self, link: _Link, hello: Hello) -> None:
        link.has_greeted = True
        if hello.version != PROTOCOL_VERSION:
            reason = f"protocol version {hello.version}, {PROTOCOL_VERSION} expected"
            self._close(link, GoodbyeCode.REFUSED, reason)
        elif hello.kind is NodeKind.MONITOR:
            link.state = LinkState.TO_MONITOR
            self._welcome(link.link, resumed=False, received=0)
        elif self._drain_until is not None:
            self._close(link, GoodbyeCode.SHUTTING_DOWN, f"{self.node} is stopping")
        elif (objection := self.names.objection_to(hello)) is not None:
            self._close(link, GoodbyeCode.REFUSED, objection)
        elif self.neighbourhood.has_failed(Life(hello.node, hello.incarnation)):
            self._close(link, GoodbyeCode.FENCED, f"{hello.node} was taken for failed")
        elif 0 < hello.expected < self.incarnation:
            self._close(link, GoodbyeCode.STRANDED, f"{self.node} has been restarted")
        elif self._is_stranded and self._may_be_waited_for(hello):
            self._close(link, GoodbyeCode.STRANDED, f"{self.node} looks for a join point itself")
            if hello.address:  # it will be somewhere in the tree, sooner or later
                self._note_candidate(hello.address)
        elif not self.is_ready:
            self._greetings.append((link.link, hello))
        elif not (
            self.reforming.on_hello(link.link, hello)
            or self.reforming.postpones(link.link, hello)
            or link.link not in self._links
        ):
            self._greet(link, hello)

    def _may_be_waited_for(self, hello: Hello) -> bool:
        """Whether somebody in the tree may wait for a node that greets before this one is ready.

        Its answer must not wait then until this broker has joined, which may be when that node
        is back. But who says that the very join point has failed can wait: whether that came
        before or after this broker was in the tree, is known soon, and is the same to all.
        """
        parent = self.neighbours.parent
        if parent is not None and Life(parent.node, parent.incarnation) in hello.failed:
            return False
        return bool(hello.failed) or hello.kind is NodeKind.BROKER or hello.peer == self.node

    def greet_again(self, link_id: LinkId, hello: Hello) -> None:
        """Answer a greeting that had to wait, unless whoever greeted is gone again."""
        link = self._links.get(link_id)
        if link is not None:
            link.heard_at = self.now  # who waits for an answer has nothing to say
            self._greet(link, hello)

    def _greet(self, link: _Link, hello: Hello) -> None:
        parent = self.neighbours.parent
        above = [Life(self.node, self.incarnation)]
        above += [Life(parent.node, parent.incarnation)] if parent else []
        if hello.is_top and Life(hello.node, hello.incarnation) in above:
            self._close(link, GoodbyeCode.STRANDED, f"{self.node} belongs to this branch")
            return
        if self.moving.declines(link.link, hello):
            return
        if hello.node == self.node or (parent and hello.node == parent.node):
            self._close(link, GoodbyeCode.REFUSED, f"the name {hello.node} is taken")
            return
        known = self.neighbours.below.get(hello.node)
        is_known = known is not None and known.has_joined and known.incarnation == hello.incarnation
        if self._claims_session(hello, known) and not self.names.knows_secret(hello, known):
            reason = f"a session of {hello.node} is not gone on with without its secret"
            self._close(link, GoodbyeCode.REFUSED, reason)
            return
        if hello.failed and not is_known:
            orphan = self.reforming.receive_orphan(link.link, hello)
            if orphan is not None:
                if known is not None and is_client(known) and not known.has_joined:
                    self.turn_away(known, f"{hello.node} comes from a broker that has failed")
                elif known is not None and not known.has_joined:
                    self.forget_newcomer(known)
                link.neighbour = orphan
                link.state = (
                    LinkState.TO_ORPHANED_CLIENT if is_client(orphan) else LinkState.TO_ORPHAN
                )
                self._welcome(link.link, resumed=False, received=0, adopts=True)
                return
            if self.reforming.sends_away(link.link, hello):
                return
            if self.reforming.is_seeking or self.moving.is_undecided(NodeId(hello.peer)):
                self.reforming.keep_waiting(link.link, hello)
                return
            if self.reforming.disowns(link.link, hello):
                return
        if known is None and self.moving.redirects(link.link, hello):
            return
        had_session = (hello.peer, hello.peer_incarnation) == (self.node, self.incarnation)
        if known is None and had_session and self._has_forgotten(hello):
            reason = f"{hello.node} was dropped too long ago to go on: it has to begin anew"
            self._close(link, GoodbyeCode.REFUSED, reason)
            return
        if known is not None and self._is_session(known, hello):
            self._resume(link, known, hello)
            return
        if known is not None and self.names.may_replace(known, hello.incarnation):
            self.drop(known, f"replaced by incarnation {hello.incarnation}")
        elif known is not None and not known.has_joined:
            # Our welcome was lost with the connection, so the peer begins once more.
            self._supersede(known)
        elif known is not None:
            self._close(link, GoodbyeCode.REFUSED, self.names.in_use(known))
            return
        if hello.is_top and not self._lets_branch_in(link, hello):
            return
        most = self.limits.clients_max
        if hello.kind is NodeKind.CLIENT and self.neighbours.client_count >= most:
            self._close(link, GoodbyeCode.DECLINED, f"{self.node} has {most} clients, and no room")
            return
        self.reforming.give_up_on(hello.node)
        newcomer = Below(
            node=hello.node,
            incarnation=hello.incarnation,
            link=link.link,
            kind=hello.kind,
            address=hello.address,
            homeless_since=self.now - hello.absent_ms / 1000 if hello.absent_ms else None,
            published=hello.past.published,
            is_branch=hello.is_top,
        )
        secret = self.names.new_secret() if is_client(newcomer) else ""
        newcomer.key = digest_of(secret)
        self.neighbours.put(newcomer)
        self._attach(link, newcomer)
        self._welcome(link.link, resumed=False, received=0, secret=secret)

    def _claims_session(self, hello: Hello, known: Below | None) -> bool:
        """Whether a client means a session: one that it has here, or had at a failed broker."""
        if hello.kind is not NodeKind.CLIENT:
            return False
        return bool(hello.failed) or (known is not None and self._is_session(known, hello))

    def _has_forgotten(self, hello: Hello) -> bool:
        """Whether a client might send what it has published before, and nobody would know it."""
        dropped = self.publications.dropped
        has_published = hello.kind is NodeKind.CLIENT and hello.past.published > 0
        return has_published and dropped.may_have_been_forgotten(hello.node, hello.incarnation)

    def _is_session(self, known: Below, hello: Hello) -> bool:
        """Whether a neighbour means the session that it has here."""
        if is_client(known) and not known.has_joined:
            return False  # it means one before this
        return (known.incarnation, self.node, self.incarnation) == (
            hello.incarnation,
            hello.peer,
            hello.peer_incarnation,
        )

    def _lets_branch_in(self, link: _Link, hello: Hello) -> bool:
        """Whether a branch may join here; if not, its top is told whom to ask.

        A branch joins another one at the top, never further down, or it might join itself. Of two
        tops that look for each other, the first by name lets the other in, so that there is no
        circle, however many of them look at the same time.
        """
        parent = self.neighbours.parent
        if parent is not None:
            is_way_up = parent.link is not None and not self.reforming.is_busy
            reason = f"{parent.node} is further up"
            self._close(link, GoodbyeCode.STRANDED, reason, self._top * is_way_up)
            return False
        if self._is_cut_off and hello.node < self.node:
            self._note_candidate(hello.address)
            self._close(link, GoodbyeCode.STRANDED, f"{self.node} is cut off itself")
            return False
        return True

    def _attach(self, link: _Link, neighbour: Neighbour) -> None:
        """From now on this connection leads to this neighbour."""
        neighbour.link = link.link
        link.neighbour = neighbour
        if isinstance(neighbour, Above):
            link.state = LinkState.TO_PARENT
        else:
            neighbour.absent_since = None
            link.state = LinkState.TO_CLIENT if is_client(neighbour) else LinkState.TO_CHILD
        self.neighbours.version += 1

    def _resume(self, link: _Link, neighbour: Below, hello: Hello) -> None:
        """A neighbour is back on a new connection: go on where the old one ended."""
        self._supersede(neighbour)
        self._attach(link, neighbour)
        neighbour.published = hello.past.published
        self._welcome(link.link, resumed=True, received=neighbour.received.count)
        self.moving.on_child_came(neighbour)
        self._send_again(neighbour, hello.received)

    def _send_again(self, neighbour: Neighbour, received: int) -> None:
        self.reforming.tell_neighbourhood_to(neighbour)
        sent_again = self.publications.send_again(neighbour, received)
        self.requests.send_again(neighbour, self.now)
        if isinstance(neighbour, Above):
            self.reforming.tell_what_is_known_to(neighbour)
        self.outbox.log(Level.INFO, "link resumed", peer=neighbour.node, sent_again=sent_again)

    def _welcome(
        self,
        link_id: LinkId,
        *,
        resumed: bool,
        received: int,
        adopts: bool = False,
        secret: str = "",
    ) -> None:
        welcome = Welcome(
            node=self.node,
            incarnation=self.incarnation,
            ordering=self.publications.ordering.name,
            policy=self.interests.policy,
            delta=self.delta,
            detection=self.detection,
            heartbeat_interval_ms=self.limits.heartbeat_interval_ms,
            heartbeat_timeout_ms=self.limits.heartbeat_timeout_ms,
            resumed=resumed,
            received=received,
            adopts=adopts,
            top=self._top,
            secret=secret,
        )
        self.outbox.send(link_id, welcome)

    def _on_welcome(self, link: _Link, welcome: Welcome) -> None:
        self._redial_pause = self.limits.redial_first_s
        self._redial_at = None
        parent = self.neighbours.parent
        if parent is None:
            if self.is_ready:
                self._rejoin_at(link, welcome)
            else:
                self._join_at(link, welcome)
        elif welcome.resumed:
            visited = self.moving.visits
            asked = (
                (visited.parent, visited.parent_incarnation)
                if visited
                else (parent.node, parent.incarnation)
            )
            if asked != (welcome.node, welcome.incarnation):
                raise RemoteProtocolError(
                    f"Welcome: {welcome.node}, incarnation {welcome.incarnation}, resumes; "
                    f"{asked[0]}, incarnation {asked[1]}, was asked"
                )
            self.moving.on_welcomed_back(parent)
            self._attach(link, parent)
            self._send_again(parent, welcome.received)
        elif welcome.adopts:
            failed = Life(parent.node, parent.incarnation)
            parent.node, parent.incarnation = welcome.node, welcome.incarnation
            self._attach(link, parent)
            self.reforming.attach(parent, failed)
        else:
            # A hub that does not know this branch. It is no stranger any more, to be hung up on.
            link.state, address = LinkState.TO_PARENT, self._join
            self.cut_off(f"{welcome.node} knows nothing of this branch any more")
            self._join = address
            self._redial_at = None
            self._rejoin_at(link, welcome)
        self._note_top(welcome.top)

    def _on_parent_restarted(self) -> None:
        """Another incarnation answers where the parent was."""
        parent = self.neighbours.parent
        assert parent is not None
        self.reforming.suspect(Life(parent.node, parent.incarnation), "it has been restarted")
        self.reforming.review()

    # --- joining and leaving ----------------------------------------------------------------

    def _join_at(self, link: _Link, welcome: Welcome) -> None:
        """The join point has answered: adopt its settings and join."""
        limits = with_heartbeats_of(welcome, self.limits)
        for what, value, known in (
            ("orders by", welcome.ordering, ORDERINGS),
            ("detects conflicts by", welcome.detection, DETECTIONS),
            ("routes by", welcome.policy, POLICIES),
            ("tolerates", welcome.delta, range(self.limits.path_nodes_max)),
        ):
            if value not in known:
                self._decline(link, f"{welcome.node} {what} '{value}', unknown here")
                return
        self.limits = limits
        self._adopt(welcome.ordering, welcome.policy, welcome.delta, welcome.detection)
        self._become_child(link, welcome)

    def _decline(self, link: _Link, reason: str) -> None:
        """This is no place for this broker; if it was told of no other, a person has to help."""
        if self._may_give_up:
            self._give_up(reason)
            return
        self._close(link, GoodbyeCode.LEFT, reason)
        self._try_next_candidate()

    def _rejoin_at(self, link: _Link, welcome: Welcome) -> None:
        """A branch that was cut off joins as a whole, and tells who it brings along."""
        if (welcome.ordering, welcome.policy) != (
            self.publications.ordering.name,
            self.interests.policy,
        ):
            self._decline(
                link, f"{welcome.node} orders by '{welcome.ordering}', not as this branch does"
            )
            return
        self._is_cut_off = False
        self._is_rejoining = True
        self._become_child(link, welcome)
        parent = self.neighbours.parent
        assert parent is not None
        self.interests.introduce(parent, self.now)
        self.reforming.tell_neighbourhood(None)

    def _end_solitude_if_possible(self) -> None:
        """A branch that was cut off is a part of the tree when both sides know all of each other.

        Until then nothing goes up from here: somebody behind may have settled it who did not know
        yet what others publish, and in which order those who share it would have to get it. What
        comes down goes no further until others know who asks for it here, and all here what they
        may publish: before, others may have settled it as if nobody here shared it.
        """
        if self._alone_since is None or self._is_cut_off or self._is_rejoining:
            return
        if self.requests.are_under_way(self._has_to_hear):
            return
        if self._has_to_be_asked is None:
            self._has_to_be_asked = self.requests.subscribed_at(UP)
        if self.requests.are_under_way(self._has_to_be_asked):
            return
        is_told = not self.requests.are_under_way(self._has_to_be_told)
        self.neighbours.open_way(up=is_told)
        if is_told:
            self._record_place("operational", since=self._alone_since)
            self._alone_since = None

    def new_own_link(self, parent: Above | None) -> TopologyLink:
        """How this broker hangs in the tree from now on; a root is its own parent."""
        self._moves += 1
        if parent is None:
            self.become_active()
        return TopologyLink(
            child=self.node,
            parent=parent.node if parent else self.node,
            parent_incarnation=parent.incarnation if parent else self.incarnation,
            parent_address=(self._join or "") if parent else self.address,
            kind=NodeKind.BROKER.value,
            incarnation=self.incarnation,
            address=self.address,
            moves=self._moves,
            standby=self.standby,
        )

    def expect_move(self, own: TopologyLink) -> None:
        """Others may take this broker to be there from now on: where it goes next is newer."""
        self._moves = max(self._moves, own.moves)

    def take_over_if_first(self) -> None:
        """The broker that this one stood by for has failed: it is its turn, if nobody is before."""
        own = self.neighbourhood.link_of(self.node)
        if own is not None and self.neighbourhood.standbys_of(own.parent)[:1] == [self.node]:
            self.become_active()

    def become_active(self) -> None:
        """It stands by for nobody any more."""
        if self.standby:
            self.outbox.log(Level.INFO, "takes over")
            self.standby = 0

    def _become_child(self, link: _Link, welcome: Welcome) -> None:
        parent = Above(
            node=welcome.node,
            incarnation=welcome.incarnation,
            link=link.link,
            is_way_up_open=self._alone_since is None,
            is_way_down_open=self._alone_since is None,
        )
        self.neighbours.parent = parent
        if self._site and welcome.node not in self._site:
            self.standby = 0
        self._attach(link, parent)
        own = self.new_own_link(parent)
        self.neighbourhood.add(own)
        join = Join(operation=self.requests.new_operation(), link=own, distance=0)
        self._join_operation = join.operation
        self.requests.pass_on(join.operation, None, [(parent, join)], self.now)

    def _become_root(self) -> None:
        """Begin without a parent."""
        self._become_top()
        self._become_ready()

    def _become_top(self) -> None:
        """Nobody is above any more."""
        self.neighbourhood.add(self.new_own_link(None))
        self._note_top(self.address)

    def _note_top(self, address: str) -> None:
        """Take note of who the top of this branch is, and tell those below."""
        if address != self._top:
            self._top = address
            for child in self.neighbours.children():
                self._tell_top(child)

    def _tell_top(self, child: Below) -> None:
        if child.link is not None and child.kind is NodeKind.BROKER:
            self.outbox.send(child.link, Top(address=self._top))

    def _become_ready(self) -> None:
        self.is_ready = True
        self._is_stranded = self._is_rejoining = False
        self._was_root = False  # from now on it is, or others do without
        self.outbox.add(BecomeReady())
        if self._alone_since is None:
            self._record_place("operational" if self._recovers else "joined", since=self.started_at)
        else:
            self._has_to_be_told = self.requests.under_way
            self._has_to_hear = self.requests.asked_by(UP)
            self._has_to_be_asked = None
        self._greet_waiting()

    def _record_place(self, kind: str, *, since: float) -> None:
        members = list(self.neighbourhood.distances())
        millis = _millis(self.now - since)
        self.outbox.record(kind, about=self.node, members=members, millis=millis)

    def _greet_waiting(self) -> None:
        """Answer those who came too early, for whom it may be too late by now."""
        greetings, self._greetings = self._greetings, []
        for link_id, hello in greetings:
            link = self._links.get(link_id)
            if link is not None:
                link.heard_at = self.now  # who waits for an answer has nothing to say
                self._on_hello(link, hello)

    def _on_join(self, source: Neighbour, join: Join) -> None:
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
                self.requests.confirm_again(source, join.operation)
                return
            if is_client(source):
                # Where this broker is others know from this broker, not from what a client dialled.
                link = attrs.evolve(
                    join.link,
                    parent_incarnation=self.incarnation,
                    parent_address=self.address,
                    key=source.key,
                )
                join = attrs.evolve(join, link=link)
            self.names.claim(source, join)
            return
        self._spread_join(source, join)

    def admit(self, newcomer: Below, join: Join) -> None:
        """Nobody objects to its name: let a node join."""
        self._introduce(newcomer)
        self._spread_join(newcomer, join)

    def _spread_join(self, source: Neighbour, join: Join) -> None:
        """Learn who has joined where, and let those know who have to."""
        newcomer = join.link.child
        self.neighbourhood.add(join.link)
        if isinstance(source, Below) and newcomer == source.node:
            self.note_standby(source)
            self.moving.give_back(source)
        onwards = attrs.evolve(join, distance=join.distance + 1)
        told = self._told_of(join.link, onwards.distance, source)
        self.requests.pass_on(
            join.operation, source, [(other, onwards) for other in told], self.now
        )

    def _introduce(self, newcomer: Below) -> None:
        """Tell a node that joins here all it has to know of what is there already."""
        assert newcomer.link is not None
        newcomer.has_joined = True
        self.neighbours.version += 1
        since = self.now if newcomer.homeless_since is None else newcomer.homeless_since
        millis = _millis(self.now - since)
        self.outbox.record("joined", about=newcomer.node, members=[self.node], millis=millis)
        links = self.neighbourhood.for_newcomer(brokers_only=is_client(newcomer))
        self.outbox.send(
            newcomer.link, Neighbourhood(links=links, closed=self.neighbourhood.closed)
        )
        if not is_client(newcomer):
            self.interests.introduce(newcomer, self.now)

    def _told_of(
        self, link: TopologyLink, distance: int, source: Neighbour | None
    ) -> list[Neighbour]:
        """Whom to tell that a node came or went: a client is of interest to brokers only."""
        if distance > self.delta:
            return []
        if link.kind == NodeKind.BROKER.value:
            return self.neighbours.others(source)
        return self.neighbours.other_brokers(source)

    def _on_leave(self, source: Neighbour, leave: Leave) -> None:
        if leave.distance > 0:
            self._spread_leave(leave, source)
            return
        if not isinstance(source, Below) or leave.node != source.node:
            raise RemoteProtocolError(f"{source.node} lets {leave.node} leave")
        link_id = source.link
        assert link_id is not None
        self._remove(source, leave.operation)
        self.outbox.send(link_id, Confirm(operation=leave.operation))
        self.outbox.add(CloseLink(link_id, GoodbyeCode.LEFT, f"{source.node} left"))
        del self._links[link_id]

    def _as_of_now(self, hop: NodeId, request: Operation) -> Operation | None:
        """What of a request is to be sent again; nobody is to forget who has joined anew."""
        if isinstance(request, Leave):
            return None if self.neighbourhood.link_of(request.node) is not None else request
        parent = self.neighbours.parent
        if isinstance(request, Join) and request.distance == 0 and parent is not None:
            # This broker's own, begun at a parent that has failed: by now it is somebody else's.
            link = attrs.evolve(
                request.link, parent=parent.node, parent_incarnation=parent.incarnation
            )
            return attrs.evolve(request, link=link)
        return self.interests.as_of_now(hop, request)

    def _spread_leave(self, leave: Leave, source: Neighbour | None) -> None:
        """Forget a node, and let those know who know it."""
        link = self.neighbourhood.link_of(leave.node)
        told = [] if link is None else self._told_of(link, leave.distance + 1, source)
        self.neighbourhood.remove(leave.node)
        onwards = attrs.evolve(leave, distance=leave.distance + 1)
        self.requests.pass_on(
            leave.operation, source, [(other, onwards) for other in told], self.now
        )

    def drop(self, neighbour: Below, reason: str) -> None:
        """A neighbour is gone for good and did not take its leave."""
        self.outbox.log(Level.WARNING, "neighbour dropped", peer=neighbour.node, reason=reason)
        since = neighbour.absent_since
        behind = self._lag_of(neighbour) if since is None else self.now - since
        millis = _millis(behind)
        self.outbox.record("suspected", about=neighbour.node, members=[self.node], millis=millis)
        if is_client(neighbour):
            self.publications.dropped.note(neighbour.node, neighbour.incarnation)
            self._losses.give_up(neighbour.sent.unconfirmed, neighbour.node, reason)
        link = self._links.get(neighbour.link) if neighbour.link is not None else None
        neighbour.link = None  # or closing would take the neighbour for absent
        if link is not None:
            self._close(link, GoodbyeCode.ISOLATED, reason)
        self._remove(neighbour, self.requests.new_operation())

    def turn_away(self, newcomer: Below, reason: str) -> None:
        """Somebody has asked to join here, and may not."""
        link = self._links.get(newcomer.link) if newcomer.link is not None else None
        newcomer.link = None  # or closing would take it for absent
        if link is not None:
            self._close(link, GoodbyeCode.REFUSED, reason)
        self.forget_newcomer(newcomer)

    def forget_newcomer(self, newcomer: Below) -> None:
        """It has failed, or begins once more, before it had joined, and nobody has been told."""
        self._remove(newcomer, self.requests.new_operation())

    def _remove(self, neighbour: Below, operation: OperationId) -> None:
        """Take a neighbour out of the tree, with all that lies behind it."""
        neighbour.link = None
        self.neighbours.take_out(neighbour)
        self.neighbours.version += 1
        self.interests.forget(neighbour, self.now)
        self.requests.forget(neighbour, self.now)
        self.publications.forget(neighbour)
        if neighbour.has_joined:  # or nobody has been told of it
            self._spread_leave(Leave(operation=operation, node=neighbour.node, distance=0), None)

    # --- failures ---------------------------------------------------------------------------

    def hang_up(self, neighbour: Neighbour, code: GoodbyeCode, reason: str) -> None:
        """Listen no more to a neighbour, or to what was one."""
        link = self._links.get(neighbour.link) if neighbour.link is not None else None
        self._disconnect(neighbour)
        if link is not None:
            self._close(link, code, reason)

    def dial_parent(self, address: str) -> None:
        """Look for a parent there, now."""
        self._join = address
        self._redial_at = None
        self._redial_pause = 0.0
        self._hang_up_on_strangers()
        self.outbox.add(OpenLink(address))

    def stop_looking(self) -> None:
        """Whoever has been dialled for a place, and answers only now, is no parent."""
        self._join = None
        self._redial_at = None
        self._hang_up_on_strangers()

    def _hang_up_on_strangers(self) -> None:
        """Whoever has been asked for a place and has not answered need not any more."""
        for link in list(self._links.values()):
            if link.state is LinkState.AWAITING_WELCOME:
                del self._links[link.link]
                self.outbox.add(CloseLink(link.link, GoodbyeCode.LEFT, "not needed any more"))

    def join_instead(self, address: str) -> None:
        """Somebody in the tree offers a place to a broker that looks for one."""
        is_looking = self._is_stranded and self.neighbours.parent is None
        if is_looking and address not in ("", self._join):
            self._ask_first(address)

    def _ask_first(self, address: str) -> None:
        """Ask there, and who has been asked last only after everybody else."""
        others = [other for other in self._candidates if other not in (address, self._join)]
        last = [self._join] if self._join in self._candidates else []
        others = others[: self.limits.candidates_max]
        self._candidates = list(dict.fromkeys([address, *others, *last]))
        self.dial_parent(address)

    def _join_elsewhere(self, reason: str) -> None:
        """The join point has failed before this broker had joined: begin anew, with another."""
        parent = self.neighbours.parent
        assert parent is not None
        self._is_stranded = True
        self.outbox.log(Level.WARNING, "join point failed", parent=parent.node, reason=reason)
        self.hang_up(parent, GoodbyeCode.LEFT, reason)
        self._hang_up_on_strangers()
        self.neighbours.parent = None
        self.requests.forget(parent, self.now)
        self._join_operation = None
        self._greet_waiting()
        for node in self.neighbourhood.distances():
            place = self.neighbourhood.place_of(node)
            if node != self.node and place is not None and place.address:
                self._candidates.append(place.address)
        self._candidates = list(dict.fromkeys(self._candidates))
        self._redial_pause = 0.0
        self._try_next_candidate()

    def cut_off(self, reason: str) -> None:
        """Nobody takes the place of the parent: go on alone, and look for anybody to join."""
        parent = self.neighbours.parent
        assert parent is not None
        if not self.is_ready:
            self._join_elsewhere(reason)
            return
        self.outbox.log(Level.ERROR, "cut off", parent=parent.node, reason=reason)
        self._is_cut_off = True
        if self._alone_since is None:
            self._alone_since = self._lost_parent_at if parent.link is None else self.now
            millis = _millis(self.now - self._alone_since)
            self.outbox.record("recovering", about=self.node, members=[parent.node], millis=millis)
        self.reforming.on_cut_off()
        self.hang_up(parent, GoodbyeCode.LEFT, reason)
        known = [self._join, *self._places_upwards(), *self._told_at_first]
        self._candidates = list(dict.fromkeys(filter(None, known)))
        self._candidates.sort(key=self._has_failed_at)
        self._join = self._candidates[0]
        self.take_out_of_tree(parent)
        self._join = self._candidates[0]
        self._losses.give_up(self.publications.forget_above(parent), None, f"{self.node}: {reason}")
        self.interests.forget(parent, self.now)
        self.requests.forget(parent, self.now)
        self.neighbourhood.remove(self.node)
        self._redial_pause = 0.0
        self._redial_later()

    def _has_failed_at(self, address: str) -> bool:
        """Whether whoever is known to listen there has failed, so that others are asked first."""
        lives = self.neighbourhood.lives_at(address)
        return bool(lives) and all(map(self.neighbourhood.has_failed, lives))

    def _places_upwards(self) -> list[str]:
        """The brokers that are known and are not behind a child: nobody joins its own branch."""
        parent = self.neighbours.parent
        assert parent is not None
        behind = [self.node, *(child.node for child in self.neighbours.children())]
        for node in behind:
            behind.extend(
                link.child
                for link in self.neighbourhood
                if link.parent == node and link.child not in behind
            )
        places = [
            self.neighbourhood.place_of(node)
            for node in self.neighbourhood.distances()
            if node not in behind
        ]
        return [place.address for place in places if place is not None]

    def _note_candidate(self, address: str) -> None:
        """Ask there as well, in its turn; strangers say so, of whom there may be many."""
        if len(self._candidates) < self.limits.candidates_max:
            self._candidates = list(dict.fromkeys([*self._candidates, address]))

    def _try_next_candidate(self) -> None:
        """Ask the next one, at once; when everybody has been asked in vain, after a pause."""
        self._refused += 1
        if self._was_root and self._refused > 2 * len(self._candidates):
            # Whoever is left of the overlay looks for its root, and that is this broker.
            self._join = None
            self._redial_at = None
            self._become_root()
            return
        if self.neighbours.parent is None and self._join in self._candidates:
            position = self._candidates.index(self._join)
            self._join = self._candidates[(position + 1) % len(self._candidates)]
        if self.is_ready and not self._is_cut_off:
            return
        if self._refused % len(self._candidates) == 0:
            self._redial_later()
        elif self._drain_until is None:
            self._redial_at = self.now

    def take_out_of_tree(self, neighbour: Neighbour) -> None:
        """It is a neighbour no more; what it knew and had under way is taken care of elsewhere."""
        if isinstance(neighbour, Above):
            self.neighbours.parent = None
            self.stop_looking()
            self._become_top()
        else:
            self.neighbours.take_out(neighbour)
        self.neighbours.version += 1

    def note_standby(self, child: Below) -> None:
        """See from its link whether a child only stands by."""
        link = self.neighbourhood.link_of(child.node)
        child.is_standby = link is not None and link.standby > 0
        self.neighbours.version += 1

    def give_away(self, child: Below, taker: Below) -> None:
        """Another child has taken this one over, with which nothing is under way any more."""
        link = child.link
        child.link = None
        self.neighbours.take_out(child)
        self.neighbours.version += 1
        self.publications.forget(child)
        if link is not None:
            reason = f"{child.node} has moved to {taker.node}"
            self.outbox.add(CloseLink(link, GoodbyeCode.LEFT, reason))
            self.forget_link(link)

    def say_farewell(self, link: LinkId, code: GoodbyeCode, reason: str) -> None:
        """Send somebody elsewhere who is no neighbour, or is none any more."""
        self.outbox.send(link, Goodbye(code=code, reason=reason))
        self.outbox.add(CloseLink(link, code, reason))
        self.forget_link(link)

    def forget_link(self, link: LinkId) -> None:
        """It has been closed from this side, and nothing more is heard of it."""
        del self._links[link]

    def become_child_of(self, own: TopologyLink) -> None:
        """The parent has handed this broker over to another one, and all goes on with that."""
        parent = self.neighbours.parent
        assert parent is not None
        parent.node, parent.incarnation = own.parent, own.parent_incarnation
        self.expect_move(own)
        self._join = own.parent_address

    def take_into_tree(self, orphan: Below) -> None:
        """An orphan becomes a child, or a client."""
        assert orphan.link is not None
        orphan.has_joined = True
        self.neighbours.put(orphan)
        self._attach(self._links[orphan.link], orphan)
        self._tell_top(orphan)

    def _has_overslept(self) -> bool:
        """Whether others may have taken this broker for failed in the meantime."""
        silent = self.now - self._ticked_at
        return self.delta > 0 and silent > self.limits.heartbeat_timeout_s and not self._has_stopped

    def fence(self, reason: str) -> None:
        """Others go on without this incarnation: it has nothing to say any more."""
        if self._has_stopped:
            return
        self.outbox.log(Level.ERROR, "fenced", reason=reason)
        self._has_stopped = True
        self._links.clear()
        self.outbox.add(Stop(f"fenced: {reason}", comes_back=True))

    # --- time -------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        self.outbox.woken()
        if self._redial_at is not None and self.now >= self._redial_at:
            self._redial_at = None
            assert self._join is not None
            self.outbox.add(OpenLink(self._join))
        self.reforming.on_timer()
        if self._isolate_at is not None and self.now >= self._isolate_at:
            self._isolate_clients()
        if self._tick_at is not None and self.now >= self._tick_at:
            self._tick_at = self.now + self.limits.heartbeat_interval_s
            self._on_tick()

    def _on_tick(self) -> None:
        """Once per heartbeat: greet the living, look for the dead and the stuck."""
        limits = self.limits
        self._ticked_at = self.now
        for link in self._open_links():
            silent = self.now - link.heard_at
            if link.state is not LinkState.AWAITING_HELLO and silent > limits.heartbeat_timeout_s:
                self._on_silence(link, f"silent for {silent:.1f} s")
        for child in self.neighbours.children():
            if child.link is None:
                self.reforming.visit_child(child)
        self._look_elsewhere()
        self.moving.on_tick()
        self.reforming.review()
        self._hang_up_on_the_silent()
        # Also those who have greeted and wait for an answer, lest they take this broker for failed.
        alive = tuple(
            link.link
            for link in self._links.values()
            if link.neighbour is not None
            or (link.has_greeted and link.state is LinkState.AWAITING_HELLO)
        )
        if alive:
            self.outbox.add(SendMessage(alive, Heartbeat()))
        self._isolate_clients()

    def _open_links(self) -> Iterator[_Link]:
        """Every connection that is still open when its turn comes, as one may end with another."""
        for link in list(self._links.values()):
            if link.link in self._links:
                yield link

    def _hang_up_on_the_silent(self) -> None:
        """Who does not say who it is in good time has nothing to say, and there may be many."""
        if not self.is_ready:
            return
        timeout_s = self.limits.greeting_timeout_s
        silent = [
            link
            for link in self._links.values()
            if self.is_stranger(link.link) and self.now - link.opened_at > timeout_s
        ]
        for link in silent[: self.limits.timeouts_per_tick]:
            self._close(link, GoodbyeCode.TIMEOUT, f"no greeting within {timeout_s:g} s")

    def _look_elsewhere(self) -> None:
        """Do not wait for ever for a place at a broker that may wait for one itself."""
        for link in self._open_links():
            waits = link.state is LinkState.AWAITING_WELCOME and self.neighbours.parent is None
            long = self.now - link.opened_at > self.limits.greeting_timeout_s
            if waits and long and len(self._candidates) > 1:
                self._hang_up_on_strangers()
                self._try_next_candidate()

    def _on_silence(self, link: _Link, reason: str) -> None:
        neighbour = link.neighbour
        if link.state is LinkState.AWAITING_WELCOME:
            self._close(link, GoodbyeCode.TIMEOUT, reason)
            if self.delta > 0 or self.neighbours.parent is None:
                # Who is stopped still lets connections come about: this is as if none had.
                assert self._join is not None
                self._on_link_failed(self._join, reason)
            else:
                self._redial_later()
            return
        if link.state is LinkState.AWAITING_SIGN_OF_LIFE:
            self.end_visit(link.link)
            self.reforming.on_silent_visit(link.link, reason)
            return
        is_broker = neighbour is not None and not is_client(neighbour)
        if is_broker and self.delta > 0 and link.state is not LinkState.TO_ORPHAN:
            assert neighbour is not None
            self.reforming.suspect(Life(neighbour.node, neighbour.incarnation), reason)
        else:
            self._close(link, GoodbyeCode.TIMEOUT, reason)

    def _isolate_clients(self) -> None:
        """Drop who harms others; of many at once only some, and the others in a moment."""
        self._isolate_at = None
        count = skipped = 0
        for neighbour in list(self.neighbours.below.values()):
            if self.moving.is_asking:
                break  # what is said of those who take part has to stay true
            if neighbour.has_joined and not is_client(neighbour):
                continue
            reason = self._reason_to_isolate(neighbour)
            if reason is None:
                continue
            if count >= self.limits.isolated_at_once or skipped >= self.limits.skipped_at_once:
                self._isolate_at = self.now + self.limits.isolation_pause_s
                break
            count += 1
            skipped += len(neighbour.sent.unconfirmed)
            self.drop(neighbour, reason)
        self._clients_isolated += count

    def _lag_of(self, neighbour: Below) -> float:
        confirmed = neighbour.sent.confirmed_count
        sent = confirmed + len(neighbour.sent.unconfirmed)
        return neighbour.lag.look(sent, confirmed, self.now)

    def _reason_to_isolate(self, client: Below) -> str | None:
        limits = self.limits
        unconfirmed = len(client.sent.unconfirmed)
        lag = self._lag_of(client)
        if unconfirmed > limits.unconfirmed_publications_max:
            return f"{unconfirmed} publications unconfirmed"
        own = client.received.confirmed  # of what it has published, what is not stable
        if len(own) > limits.publish_window_max:
            return f"{len(own)} publications of its own unconfirmed"
        if len(own) * limits.frame_bytes_max > limits.publish_window_bytes_max:
            own_bytes = sum(map(_body_bytes, own))
            if own_bytes > limits.publish_window_bytes_max + limits.frame_bytes_max:
                return f"{own_bytes} bytes of its own publications unconfirmed"
        if client.absent_since is not None:
            absent = self.now - client.absent_since
            return f"absent for {absent:.1f} s" if absent > limits.resume_timeout_s else None
        if lag >= limits.stall_timeout_s:
            return f"{unconfirmed} publications unconfirmed, the first for {lag:.1f} s"
        return None

    def _arm_timer(self) -> None:
        if not self._has_stopped:
            self.outbox.wake_at(
                self.publications.flush_at,
                self._tick_at,
                self._redial_at,
                self._drain_until,
                self._isolate_at,
                self.reforming.wake_at,
                self.moving.wake_at,
            )

    # --- stopping ---------------------------------------------------------------------------

    def _on_shutdown(self) -> None:
        """Take nothing new, finish what was accepted, then stop."""
        if self._drain_until is not None:
            return
        self._drain_until = self.now + self.limits.drain_timeout_s
        self.outbox.log(Level.INFO, "stopping", unstable=self.publications.unstable)
        clients = tuple(c.link for c in self.neighbours.clients() if c.link is not None)
        if clients:
            reason = f"{self.node} is stopping"
            farewell = Goodbye(code=GoodbyeCode.SHUTTING_DOWN, reason=reason)
            self.outbox.add(SendMessage(clients, farewell))

    def _stop_if_drained(self) -> None:
        assert self._drain_until is not None
        unstable = self.publications.unstable
        is_cut_off = any(n.link is None for n in self.neighbours.other_brokers(None))
        # Operations wait for the far ends; if some of those are out of reach, they wait in vain.
        is_busy = unstable or (self.requests and not is_cut_off)
        if is_busy and self.now < self._drain_until:
            return
        self._has_stopped = True
        self.publications.tell_all()
        if unstable:
            self.outbox.log(Level.WARNING, "stopped before all was stable", unstable=unstable)
        parent = self.neighbours.parent
        if parent is not None and parent.link is not None and not self.neighbours.children():
            # A leaf leaves the tree; a broker with children below it can only be missed.
            operation = self.requests.new_operation()
            self.outbox.send(parent.link, Leave(operation=operation, node=self.node, distance=0))
        for link_id in self._links:
            self.outbox.add(CloseLink(link_id, GoodbyeCode.SHUTTING_DOWN, "stopped"))
        self._links.clear()
        self.outbox.add(Stop("stopped"))

    def _give_up(self, reason: str) -> None:
        """Nothing can be done here without a person."""
        self.outbox.log(Level.ERROR, "gave up", reason=reason)
        self._has_stopped = True
        self.outbox.add(Stop(reason))


_CARRIED_OUT_BY: Final[dict[str, tuple[type[Publications], type[Observer] | None]]] = {
    FilteredSequencer.name: (PlacedPublications, Whereabouts),
    **{
        ordering.name: (PublishedPublications, OverlapTables)
        for ordering in (Published, PublishedProgressive, PublishedWholeQueue)
    },
}
"""Orderings that take more than to decide when something is settled, and whom to keep informed."""


def _places_in(remembered: Sequence[TopologyLink], node: NodeId) -> list[str]:
    """Where those listen whom a broker remembers, its standbys and its own parent first."""
    standbys = [link for link in remembered if link.standby and link.parent == node]
    own = [link.address for link in sorted(standbys, key=lambda link: link.standby)]
    own += [link.parent_address for link in remembered if link.child == node and not link.is_root]
    # Of the children of a root that has failed, the first by name takes its place.
    links = sorted(remembered, key=lambda link: (0, link.child) if link.parent == node else (1, ""))
    others = [link.address for link in links if link.child != node]
    others += [link.parent_address for link in remembered if link.parent != node]
    return list(dict.fromkeys([*own, *others]))


def _standing(
    remembered: Sequence[TopologyLink], node: NodeId, standby: int
) -> tuple[int, frozenset[NodeId]]:
    """How a broker stands by, and for whom, empty meaning whoever it joins.

    One that is back and had standbys lines up behind them, as one of them is in its place by now.
    """
    own = next((link for link in remembered if link.child == node), None)
    head = own.parent if own is not None and own.standby else node
    line = [link for link in remembered if link.standby and link.parent == head]
    if own is not None and own.standby:
        return own.standby, frozenset([head, *(link.child for link in line)]) - {node}
    if line:
        return 1 + max(link.standby for link in line), frozenset(link.child for link in line)
    return 0 if own is not None else standby, frozenset()


def _body_bytes(arrival: Arrival) -> int:
    publication = arrival.publication
    return len(publication.body) if isinstance(publication, Publish) else 0


def _millis(seconds: float) -> float:
    return round(1000 * seconds, 3)


_ORPHANED: Final = (LinkState.TO_ORPHAN, LinkState.TO_ORPHANED_CLIENT)
"""Whose parent has failed, and who waits until the tree has been re-formed."""

_KIND_OF_PEER: Final = {
    LinkState.TO_CLIENT: NodeKind.CLIENT,
    LinkState.TO_PARENT: NodeKind.BROKER,
    LinkState.TO_CHILD: NodeKind.BROKER,
    LinkState.TO_ORPHAN: NodeKind.BROKER,
    LinkState.TO_ORPHANED_CLIENT: NodeKind.CLIENT,
    LinkState.TO_MONITOR: NodeKind.MONITOR,
}


def _require_own(client: Below, request: Operation) -> None:
    """By the id of an operation it is known to whom to confirm it: nobody takes another's.

    And nobody asks for anything before all others know that the name is its own.
    """
    if not client.has_joined and not isinstance(request, Join):
        what = type(request).__name__
        raise RemoteProtocolError(f"{what} of {client.node}, whose joining is not confirmed yet")
    if asker_of(request.operation) != client.node:
        raise RemoteProtocolError(
            f"operation {request.operation} of {client.node}, "
            f"{client.node}#{client.incarnation} and a number expected"
        )


def _describe(neighbour: Neighbour) -> dict[str, Any]:
    """One neighbour, as `plait status` shows it."""
    if isinstance(neighbour, Above):
        role, kind, address = "parent", NodeKind.BROKER, ""
        unconfirmed = len(neighbour.sent.unconfirmed) + len(neighbour.received.unconfirmed)
    else:
        role = "client" if is_client(neighbour) else "child"
        kind, address = neighbour.kind, neighbour.address
        unconfirmed = len(neighbour.sent.unconfirmed)
    return {
        "name": neighbour.node,
        "role": role,
        "kind": kind.value,
        "address": address,
        "incarnation": neighbour.incarnation,
        "is_connected": neighbour.link is not None,
        "unconfirmed": unconfirmed,
        "sent": neighbour.sent.count,
        "received": neighbour.received.count,
    }
