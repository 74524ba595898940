"""What a client decides: a leaf of the tree, of the same kind as a broker's machine.

It keeps what it published and what it was sent until that is stable. So neither a lost connection
nor a failed broker costs anything, as long as somebody goes on with its *session*: whoever plays
the broker, or has rebuilt it, gets what that had not taken (`stream.py`). Where nobody knows the
client any more it begins anew (`session.py`).

Calls and `step` put effects into an outbox; the driver takes them with `take_effects`, and what it
takes at once is one batch.
"""

import math
from collections.abc import Sequence

from plait.broker.client.detecting import Detecting
from plait.broker.client.interests import Interests
from plait.broker.client.journal import Journal
from plait.broker.client.patience import Patience, Waiting
from plait.broker.client.publishing import Publishing
from plait.broker.client.session import SessionKeeper
from plait.broker.client.states import IN_BATCHES, ClientState, Contact
from plait.broker.client.stream import Stream
from plait.broker.client.whereabouts import Whereabouts
from plait.broker.codec import decode_content
from plait.broker.effects import Deliver, Delivery, Effect, Refusal
from plait.broker.errors import ClosedError, NoTopicError, RemoteProtocolError
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    ShutdownRequested,
    TimerFired,
)
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.messages import (
    AttachRequest,
    Begun,
    Confirm,
    EndOfStep,
    Flag,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Message,
    Progress,
    Publish,
    Refuse,
    Revoke,
    Seating,
    Stamped,
    Welcome,
)
from plait.broker.outbox import Outbox
from plait.broker.window import Window
from plait.faulttol.stability import CountError
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.limits import TOPIC_CHARACTERS_MAX
from plait.routing.orderings import (
    ORDERINGS_JUDGED_BY_BROKERS,
    ORDERINGS_OF_TOPICS,
    TaggedNotification,
)
from plait.routing.patterns.detection import Detection
from plait.routing.topics.position import Clock, Position
from plait.routing.topics.protocol import Topic
from plait.routing.topics.table import TOPIC
from plait.routing.values import Content


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
        self._outbox = outbox = Outbox()
        journal = Journal(node, incarnation, outbox, is_kept=recording)
        self.stream = stream = Stream(outbox, limits)
        self.interests = interests = Interests(node, incarnation, stream, journal, outbox)
        self.detecting = Detecting(interests, journal, outbox)
        self.publishing = publishing = Publishing(
            node, incarnation, limits, stream, interests, journal, outbox
        )
        self.session = SessionKeeper(
            node,
            incarnation,
            limits,
            stream,
            interests,
            publishing,
            Whereabouts(brokers, limits),
            outbox,
        )
        self._position = 0
        """Of the last delivery."""
        self._ordering = ""
        """Of the overlay, once it is known."""
        self._clock = Clock()
        self._stamp: Position | None = None
        """Of the publication that comes next."""
        self._waiting = Waiting()
        self._is_late = False
        """And whether its broker says that it comes out of order."""
        self._is_urgent = False
        self._heard_at = 0.0
        self._progress_at: float | None = None
        self._tick_at: float | None = None
        self._now = 0.0

    # --- what it is ---------------------------------------------------------------------------

    @property
    def state(self) -> ClientState:
        """Where this client stands with its overlay."""
        return self.session.state

    @property
    def broker(self) -> NodeId | None:
        """The broker it is, or was last, a client of."""
        return self.session.broker

    @property
    def has_lost_session(self) -> bool:
        """Whether a broker has once not known this client that had joined the overlay."""
        return self.session.has_lost_session

    @property
    def window(self) -> Window:
        """What whoever publishes has to look at before; the core takes whatever it is given."""
        return self.publishing.window

    @property
    def unconfirmed(self) -> int:
        """How many publications have been handed over and are not stable yet."""
        return self.publishing.unconfirmed

    @property
    def kept(self) -> int:
        """How many publications it was sent that are not stable yet, as far as it knows."""
        return len(self.stream.received.kept)

    @property
    def claims(self) -> frozenset[str]:
        """What the overlay calls its advertisements and subscriptions."""
        return self.interests.claims

    # --- calls --------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Dial the first broker."""
        self._now = self._heard_at = now
        self._tick_at = now + self.limits.heartbeat_interval_s
        self.session.start(now)
        self._arm_timer()

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
        self._now = now
        if ordered and self._ordering in ORDERINGS_OF_TOPICS:
            _require_topic(content, self._ordering)
        return self.publishing.publish(now, content, body, ordered=ordered, urgent=urgent)

    def advertise(self, now: float, filter_text: str) -> tuple[AdvertisementId, OperationId]:
        """Ask for the right to publish what this filter matches."""
        self._require_open()
        self._now = now
        return self.interests.advertise(filter_text)

    def unadvertise(self, now: float, advertisement: AdvertisementId) -> OperationId:
        """Give that right back; publications handed over before are not affected."""
        self._require_open()
        self._now = now
        publishing = self.publishing
        return self.interests.unadvertise(
            advertisement, last=publishing.seq, stable=publishing.stable
        )

    def subscribe(
        self,
        now: float,
        filter_text: str,
        *,
        ordered: bool = True,
        patience: Patience | None = None,
    ) -> tuple[SubscriptionId, OperationId]:
        """Ask for every publication that this filter matches.

        With patience, this client waits for what comes before others, in all that it gets.
        """
        self._require_open()
        self._now = now
        self._waiting.patience = patience or self._waiting.patience
        return self.interests.subscribe(filter_text, ordered=ordered)

    def detect(self, now: float, detection: Detection) -> tuple[SubscriptionId, OperationId]:
        """Look for a pattern in what is delivered, from the confirmation on."""
        self._require_open()
        self._now = now
        return self.detecting.detect(detection)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> OperationId:
        """Nothing is delivered to this subscription from now on, or found by this detector."""
        self._require_open()
        self._now = now
        self._wait_no_longer()
        self.detecting.forget(subscription)
        return self.interests.unsubscribe(subscription)

    def rank(self, now: float, topic: Topic, above: Topic) -> OperationId:
        """Ask for a topic to rank above another one, where topics have an order of their own."""
        self._require_open()
        self._now = now
        return self.interests.rank(topic, above)

    def leave(self, now: float) -> OperationId:
        """Leave the overlay when all is stable; `Stop` follows when the broker has confirmed it."""
        self._require_open()
        self._now = now
        self._wait_no_longer()
        return self.session.leave()

    def step(self, now: float, happened: Input) -> None:
        """Take in what has happened."""
        self._now = now
        match happened:
            case MessagesReceived(link, messages):
                self._on_messages(link, messages)
            case TimerFired():
                self._on_timer()
            case LinkOpened(link, _):
                self._heard_at = now
                self.session.on_opened(link, now)
            case LinkFailed(dialled, reason, is_refused):
                self.session.on_failed(dialled, reason, is_refused=is_refused, now=now)
            case LinkClosed(link, reason):
                if link == self.session.link:
                    self.session.on_lost(reason, now)
            case ShutdownRequested():
                self._wait_no_longer()
                self.session.go("shut down")
        self._hand_on()
        self.session.look_whether_it_may_leave()
        self._tell_progress_if_due()
        self._arm_timer()

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in this order; what is sent is one batch."""
        self.stream.end_step()
        return self._outbox.take()

    def take_part(self) -> list[Effect]:
        """The same, but what is sent next belongs to the same batch."""
        return self._outbox.take()

    def _require_open(self) -> None:
        if self.state in (ClientState.CLOSED, ClientState.LEAVING):
            raise ClosedError(f"client {self.node} is {self.state}")

    # --- messages -----------------------------------------------------------------------------

    def _on_messages(self, link: LinkId, messages: Sequence[Message]) -> None:
        self._heard_at = self._now
        try:
            for message in messages:
                if link != self.session.link:
                    return
                self.session.require_legal(message)
                if type(message) in IN_BATCHES:
                    self.stream.keep(message)
                else:
                    self._on_message(message)
        except (RemoteProtocolError, CountError) as broken:
            if self.session.link is not None:
                goodbye = Goodbye(code=GoodbyeCode.PROTOCOL, reason=str(broken))
                self._outbox.send(self.session.link, goodbye)
            self.session.stop(f"the broker broke the protocol: {broken}")

    def _on_message(self, message: Message) -> None:
        """Take what belongs to no batch, or ends one."""
        match message:
            case EndOfStep():
                self.stream.learn(message.logs)
                self._take(self.stream.take(message))
            case Progress():
                if self.stream.is_within_batch:
                    raise RemoteProtocolError("Progress within a batch")
                self.stream.learn(message.logs)
                self.publishing.on_stable(self.stream.on_progress(message))
            case Welcome():
                self._take_heartbeats_of(message)
                self._ordering = message.settings.ordering
                if not message.resumed:
                    self._wait_no_longer()
                self.session.on_welcome(message, self._now)
            case AttachRequest():
                self.session.on_attach_request(message)
            case Seating():
                self.session.on_seating(message)
            case Revoke(name=name, reason=reason):
                publishing = self.publishing
                self.interests.revoke(name, reason, last=publishing.seq, stable=publishing.stable)
            case Goodbye():
                self.session.on_goodbye(message, self._now)

    def _take_heartbeats_of(self, welcome: Welcome) -> None:
        try:
            self.limits = self.limits.with_heartbeats(
                welcome.heartbeat_interval_ms, welcome.heartbeat_timeout_ms
            )
        except ValueError as error:
            raise RemoteProtocolError(f"Welcome: {error}") from error

    def _take(self, batch: Sequence[Message]) -> None:
        """Take a batch whole."""
        for message in batch:
            if type(message) is Publish:
                self._on_publish(message)
                self._stamp = None
            elif isinstance(message, Stamped):
                self._stamp, self._is_late = message.position, message.is_late
            elif isinstance(message, Begun):
                self._clock.begin(message.numbers)
                self._waiting.begin(message.numbers)
            else:
                self._on_answer(message)

    def _on_publish(self, publication: Publish) -> None:
        if publication.flags & Flag.URGENT:
            self._is_urgent = True
        stamp = self._stamp
        is_tagged = self._ordering == TaggedNotification.name  # nowhere else is anything late
        if stamp is not None and is_tagged and self._waiting.patience is not None:
            topic = decode_content(publication.content).get(TOPIC)
            if isinstance(topic, str):
                self._waiting.put(publication, Topic(topic), stamp, self._now)
                self._hand_on()
                return
        self._deliver(publication, stamp)

    def _hand_on(self) -> None:
        """Deliver what has waited for long enough."""
        if self._waiting.wake_at is not None:
            for each in self._waiting.take(self.interests.topics(), self._now):
                self._deliver(each.publication, each.stamp)

    def _wait_no_longer(self) -> None:
        """Deliver all that waits: it is this client's, and has been confirmed."""
        for each in self._waiting.take((), math.inf):
            self._deliver(each.publication, each.stamp)

    def _deliver(self, publication: Publish, stamp: Position | None) -> None:
        content, subscriptions = self.interests.match(publication.content)
        if subscriptions:
            self._position += 1
            topic = content.get(TOPIC)
            in_order = stamp is None or not isinstance(topic, str)
            if stamp is not None and isinstance(topic, str):
                is_believed = self._ordering in ORDERINGS_JUDGED_BY_BROKERS
                in_order = is_believed or self._clock.takes_in_order(Topic(topic), stamp)
                in_order = in_order and not self._is_late
            delivery = Delivery(
                publication.publisher,
                publication.incarnation,
                publication.seq,
                content,
                publication.body,
                self._position,
                subscriptions,
                in_order,
                stamp,
            )
            self._outbox.add(Deliver(delivery))
            if self.detecting and not publication.flags & Flag.UNORDERED:
                self.detecting.take(delivery)

    def _on_answer(self, message: Message) -> None:
        match message:
            case Confirm(operation=operation):
                if not self.session.on_confirm(operation):
                    self.interests.on_confirm(operation)
            case Refuse(operation=operation, code=code, reason=reason):
                refusal = Refusal(code, reason)
                if not self.session.on_refuse(operation, refusal):
                    self.interests.on_refuse(operation, refusal)
        self.session.look_whether_restored()
        if self.detecting:
            self.detecting.look()

    # --- time ---------------------------------------------------------------------------------

    def _tell_progress_if_due(self) -> None:
        """Confirmations wait for company, but for urgent ones."""
        stream = self.stream
        if not stream.is_connected or stream.told == (stream.received.count, stream.taken):
            self._progress_at = None
            return
        received = stream.told[0] if stream.told else 0
        news = stream.received.count - received
        is_due = self._progress_at is not None and self._now >= self._progress_at
        is_urgent = self._is_urgent or self.state is ClientState.LEAVING
        if is_due or (news and is_urgent) or news >= self.limits.progress_batch:
            self._is_urgent = False
            self._progress_at = None
            stream.tell_progress()
        elif self._progress_at is None:
            self._progress_at = self._now + self.limits.progress_delay_s

    def _on_timer(self) -> None:
        self._outbox.woken()
        session = self.session
        if session.is_over:
            return
        if session.redial_at is not None and self._now >= session.redial_at:
            session.dial()
        if self._tick_at is not None and self._now >= self._tick_at:
            due, self._tick_at = self._tick_at, self._now + self.limits.heartbeat_interval_s
            self._on_tick(overslept=self._now - due > self.limits.heartbeat_timeout_s)

    def _on_tick(self, *, overslept: bool) -> None:
        session = self.session
        if session.contact is Contact.CONNECTED:
            self.stream.say(Heartbeat())
        elif session.contact is Contact.ATTACHING and session.link is not None:
            self._outbox.send(session.link, Heartbeat())
        silent = self._now - self._heard_at
        if session.link is not None and silent > self._patience_s:
            reason = f"silent for {silent:.1f} s"
            if overslept:  # it was this client that did not listen
                session.hang_up(reason, self._now)
            else:
                session.on_silence(reason, self._now)

    @property
    def _patience_s(self) -> float:
        """How long whoever is at the other end may be silent."""
        if self.session.contact is Contact.GREETING:
            return self.limits.answer_timeout_s
        return self.limits.heartbeat_timeout_s

    def _arm_timer(self) -> None:
        if not self.session.is_over:
            self._outbox.wake_at(
                self._progress_at, self._tick_at, self.session.redial_at, self._waiting.wake_at
            )


def _require_topic(content: Content, ordering: str) -> None:
    topic = content.get(TOPIC)
    if not isinstance(topic, str) or len(topic) > TOPIC_CHARACTERS_MAX:
        raise NoTopicError(
            f"under ordering {ordering} a publication has an attribute {TOPIC!r}, a string of at "
            f"most {TOPIC_CHARACTERS_MAX} characters; {topic!r} found"
        )
