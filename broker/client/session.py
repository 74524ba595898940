"""A client's session with its broker, over one connection after the other.

Dialling, greeting, joining, going on where the last connection ended, saying what there is of a
broker that is being taken up, and beginning anew where nobody knows this client any more: then it
joins, advertises and subscribes again, as what may have been taken before cannot be sent again.
"""

from typing import Final

from plait.broker.client.interests import Interests
from plait.broker.client.publishing import Publishing
from plait.broker.client.states import (
    CONTACTS,
    LEGAL,
    SESSIONS,
    ClientState,
    Contact,
    ContactEvent,
    Session,
    SessionEvent,
    after,
    seen,
)
from plait.broker.client.stream import Stream
from plait.broker.client.whereabouts import Whereabouts
from plait.broker.effects import BecomeReady, CloseLink, Level, OpenLink, Refusal, Stop
from plait.broker.errors import RemoteProtocolError
from plait.broker.host.attaching import attachment_messages
from plait.broker.inputs import LinkId
from plait.broker.limits import Limits
from plait.broker.messages import (
    PROTOCOL_VERSION,
    AttachRequest,
    Goodbye,
    GoodbyeCode,
    Hello,
    Join,
    Leave,
    Message,
    NodeKind,
    Past,
    Seating,
    Welcome,
)
from plait.broker.outbox import Outbox
from plait.routing.ids import NodeId, OperationId

RECONNECT_TIMEOUT_S: Final = 30.0
"""So long a client that was connected looks for a broker before it gives up."""

FATAL: Final = frozenset({GoodbyeCode.REFUSED, GoodbyeCode.PROTOCOL, GoodbyeCode.ISOLATED})
"""Why a broker may take its leave for good."""

GOING: Final = (Session.LEAVING, Session.PARTING)


class SessionKeeper:
    """Keeps one client in the overlay."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        limits: Limits,
        stream: Stream,
        interests: Interests,
        publishing: Publishing,
        whereabouts: Whereabouts,
        outbox: Outbox,
    ) -> None:
        """Begin without a connection and without a session."""
        self._node = node
        self._incarnation = incarnation
        self._limits = limits
        self._stream = stream
        self._interests = interests
        self._publishing = publishing
        self._whereabouts = whereabouts
        self._outbox = outbox
        self.contact = Contact.APART
        self.session = Session.NONE
        self.state = ClientState.CONNECTING
        """As the application sees it."""
        self.link: LinkId | None = None
        self.broker: NodeId | None = None
        self.term = 0
        self.has_lost_session = False
        """Whether a broker has once not known this client that had joined the overlay."""
        self._secret = ""
        """That the broker gave to it when the session began, and whoever goes on with it asks."""
        self._entering: OperationId | None = None
        """The joining that is not confirmed."""
        self._leaving: OperationId | None = None
        """Likewise, of leaving."""
        self._has_connected = False
        self._lost_at = 0.0
        self._failure = ""
        """Why the last connection did not come about."""
        self.redial_at: float | None = None
        self._pause_s = limits.redial_first_s

    # --- what has become of it ----------------------------------------------------------------

    def _on_contact(self, event: ContactEvent) -> None:
        self.contact = after(CONTACTS, self.contact, event)
        self.state = seen(self.contact, self.session)

    def _on_session(self, event: SessionEvent) -> None:
        self.session = after(SESSIONS, self.session, event)
        self.state = seen(self.contact, self.session)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.session is Session.OVER

    # --- dialling -----------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Dial the first address."""
        self._lost_at = now
        self._whereabouts.aim()
        self.dial()

    def dial(self) -> None:
        """Try to get a connection."""
        self.redial_at = None
        self._on_contact(ContactEvent.DIALLED)
        self._outbox.add(OpenLink(self._whereabouts.target.address))

    def on_opened(self, link: LinkId, now: float) -> None:
        """A connection has come about: say who this is, and what it has."""
        if self.contact is not Contact.DIALLING or self.is_over:
            self._outbox.add(CloseLink(link, GoodbyeCode.LEFT, "not needed any more"))
            return
        self.link = link
        self._has_connected = True
        self._on_contact(ContactEvent.OPENED)
        wanted = self._whereabouts.target.broker
        hello = Hello(
            version=PROTOCOL_VERSION,
            node=self._node,
            kind=NodeKind.CLIENT,
            incarnation=self._incarnation,
            host=self._node,
            to=wanted,
            known_term=self.term if wanted else 0,
            taken=self._stream.taken if wanted else 0,
            absent_ms=round(1000 * (now - self._lost_at)) if self.term else 0,
            past=Past(published=self._publishing.handed_over, secret=self._secret),
        )
        self._outbox.send(link, hello)
        self._outbox.log(
            Level.DEBUG, "connected", address=self._whereabouts.target.address, wanted=wanted
        )

    def on_failed(self, dialled: str, reason: str, *, is_refused: bool, now: float) -> None:
        """No connection has come about."""
        if self.contact is not Contact.DIALLING:
            return
        self._on_contact(ContactEvent.FAILED)
        self._failure = reason
        if is_refused:
            self._whereabouts.refused()
        else:
            self._whereabouts.silent()
        self._outbox.log(Level.WARNING, "broker not reached", address=dialled, reason=reason)
        if not self._has_connected and self._whereabouts.has_tried_all:
            self._give_up(f"no broker at {', '.join(self._whereabouts.addresses)}: {reason}")
        else:
            self._redial_later(now)

    def _redial_later(self, now: float) -> None:
        if now - self._lost_at > RECONNECT_TIMEOUT_S:
            addresses = ", ".join(self._whereabouts.addresses)
            because = f": {self._failure}" if self._failure else ""
            self._give_up(f"no broker at {addresses} for {RECONNECT_TIMEOUT_S:g} s{because}")
        elif self._whereabouts.aim():
            self.redial_at = now
        else:
            self.redial_at = now + self._pause_s
            limits = self._limits
            self._pause_s = min(max(2 * self._pause_s, limits.redial_first_s), limits.redial_last_s)

    def _give_up(self, reason: str) -> None:
        # Whoever was leaving has left, also where nobody is there to confirm it.
        self.stop("left" if self.session in GOING else reason)

    # --- connections that end -----------------------------------------------------------------

    def on_lost(self, reason: str, now: float) -> None:
        """The connection is gone; look for the broker again, or for who takes it up."""
        self.link = None
        self._stream.disconnect()
        self._outbox.log(Level.WARNING, "connection lost", broker=self.broker, reason=reason)
        if self.contact in (Contact.CONNECTED, Contact.ATTACHING):
            self._lost_at = now
            self._pause_s = 0.0
        self._on_contact(ContactEvent.LOST)
        self._redial_later(now)

    def hang_up(self, reason: str, now: float) -> None:
        """End the connection from this side."""
        assert self.link is not None
        self._outbox.add(CloseLink(self.link, GoodbyeCode.LEFT, reason))
        self.on_lost(reason, now)

    def on_silence(self, reason: str, now: float) -> None:
        """Who should have said something has not."""
        self._whereabouts.silent()
        self.hang_up(reason, now)

    def stop(self, reason: str) -> None:
        """This is the end."""
        if self.is_over:
            return
        self._on_session(SessionEvent.ENDED)
        self._publishing.give_up(reason)
        self._stream.end_step()
        if self.link is not None:
            self._outbox.add(CloseLink(self.link, GoodbyeCode.LEFT, reason))
            self._stream.disconnect()
            self.link = None
        self._outbox.add(Stop(reason))

    # --- what a broker says between batches ---------------------------------------------------

    def require_legal(self, message: Message) -> None:
        """Raise `RemoteProtocolError` for what may not be said at this stage."""
        if type(message) not in LEGAL[self.contact]:
            raise RemoteProtocolError(
                f"{type(message).__name__} is not expected on a link that is '{self.contact}'"
            )

    def on_welcome(self, welcome: Welcome, now: float) -> None:
        """The broker is played there."""
        if welcome.node == self.broker and welcome.term < self.term:
            self._whereabouts.refused()  # it has been taken up since, and does not know it
            self.hang_up(f"{welcome.node} of term {welcome.term}, which is over", now)
            return
        if not welcome.resumed and self.session in GOING:
            self.stop("left")
            return
        if welcome.resumed and (welcome.node != self.broker or not self.term):
            raise RemoteProtocolError(f"{welcome.node} resumes a session that it does not have")
        self._on_contact(ContactEvent.WELCOMED)
        self._pause_s = self._limits.redial_first_s
        self._whereabouts.welcomed(welcome)
        if welcome.resumed:
            self._go_on(welcome)
        else:
            self._begin(welcome)

    def _go_on(self, welcome: Welcome) -> None:
        """The broker knows this client: go on where the last connection ended."""
        assert self.link is not None
        if welcome.term > self.term:
            self._ask_again()
        self.term = welcome.term
        self._stream.go_on(self.link, welcome.taken)
        self._publishing.note_handed_over()
        if self.session is Session.STANDING:
            self._outbox.add(BecomeReady())

    def _ask_again(self) -> None:
        """The broker was rebuilt: what it was to confirm, it may know nothing of."""
        self._stream.end_step()
        if self._entering is not None:
            self._stream.request(Join(operation=self._entering))
        self._interests.ask_again()
        if self.session is Session.PARTING and self._leaving is not None:
            self._stream.request(self._leave_message(self._leaving))

    def _begin(self, welcome: Welcome) -> None:
        """The broker does not know this client: join, and say all of it again."""
        assert self.link is not None
        if self.session is not Session.NONE:
            self._outbox.log(Level.WARNING, "session lost", broker=welcome.node)
        self.has_lost_session |= self.session in (Session.STANDING, Session.RESTORING)
        is_same = welcome.node == self.broker and welcome.taken > 0
        self._stream.end_step()
        self._publishing.begin_anew(self._stream.sent_after(welcome.taken) if is_same else ())
        self._stream.begin_anew()
        self._interests.begin_anew()
        self._interests.withdraw_up_to(self._publishing.stable)
        self._on_session(SessionEvent.BEGUN)
        self.broker, self.term, self._secret = welcome.node, welcome.term, welcome.secret
        self._stream.connect(self.link)
        self._entering = self._interests.new_operation()
        self._stream.request(Join(operation=self._entering))

    def on_attach_request(self, request: AttachRequest) -> None:
        """The broker is being taken up here: say what there is of it."""
        assert self.link is not None
        if request.broker != self.broker:
            raise RemoteProtocolError(f"AttachRequest for {request.broker}, not {self.broker}")
        self._on_contact(ContactEvent.ASKED_TO_ATTACH)
        self._stream.end_step()
        attachment = self._stream.attachment(
            self._node,
            self._incarnation,
            request.broker,
            self._interests.told_advertisements(),
            self._interests.told_subscriptions(),
        )
        for message in attachment_messages(attachment, self.term, request, self._limits):
            self._outbox.send(self.link, message)
        self._outbox.log(Level.INFO, "attached", broker=request.broker)

    def on_seating(self, seating: Seating) -> None:
        """Whoever is there tells who plays what."""
        self._whereabouts.learn(seating)

    def on_goodbye(self, goodbye: Goodbye, now: float) -> None:
        """Whoever is there takes its leave."""
        reason = goodbye.reason
        match goodbye.code:
            case code if code in FATAL:
                self.stop(f"{code.value} by {self.broker or 'the broker'}: {reason}")
                return
            case GoodbyeCode.SHUTTING_DOWN if self.contact is Contact.CONNECTED:
                self._outbox.log(
                    Level.INFO, "broker is stopping", broker=self.broker, reason=reason
                )
                return
            case GoodbyeCode.ELSEWHERE:
                self._whereabouts.told_elsewhere()
            case GoodbyeCode.DECLINED:
                self._whereabouts.sent_away()
            case GoodbyeCode.TIMEOUT:  # it does not hear this client: nothing gets there
                self._whereabouts.silent()
        self.hang_up(reason, now)

    # --- joining and leaving ------------------------------------------------------------------

    def on_confirm(self, operation: OperationId) -> bool:
        """Take a confirmation; returns whether it was of joining or leaving."""
        if operation == self._entering:
            self._entering = None
            self._on_session(SessionEvent.JOINED)
            self._interests.restore()
            if self.session is Session.STANDING:
                self._begin_standing()
            else:
                self.look_whether_restored()
            return True
        if operation == self._leaving:
            self.stop("left")
            return True
        return False

    def on_refuse(self, operation: OperationId, refusal: Refusal) -> bool:
        """Take a refusal; returns whether it was of joining or leaving."""
        if operation not in (self._entering, self._leaving):
            return False
        self.stop(f"{refusal.reason} ({refusal.code})")
        return True

    def look_whether_restored(self) -> None:
        """Once everything stands again that was advertised, publications may flow."""
        if self.session is Session.RESTORING and self._interests.is_restored:
            self._on_session(SessionEvent.RESTORED)
            self._begin_standing()

    def _begin_standing(self) -> None:
        self._publishing.let_flow()
        self._outbox.add(BecomeReady())

    def leave(self) -> OperationId:
        """Leave the overlay; without a session that stands, that is done at once."""
        operation = self._interests.new_operation()
        if self.session is Session.STANDING:
            self._interests.unsubscribe_all()
            self._on_session(SessionEvent.LEFT)
            self._leaving = operation
            self.look_whether_it_may_leave()
        else:
            self.go("left without a connection")
        return operation

    def go(self, reason: str) -> None:
        """Leave at once. What is not stable may be lost, if the broker fails now as well."""
        if self.is_over:
            return
        self._interests.unsubscribe_all()
        if self.contact is Contact.CONNECTED and self.session is not Session.PARTING:
            self._stream.request(self._leave_message(self._interests.new_operation()))
        self.stop(reason)

    def look_whether_it_may_leave(self) -> None:
        """Ask to be let go once everything is stable that has passed between here and the broker.

        Were the broker to fail before, this client might be the only one that knows of it.
        """
        if self.session is not Session.LEAVING or self._interests.is_subscribed:
            return
        if not self._stream.received.kept and not self._publishing.unconfirmed:
            assert self._leaving is not None
            self._on_session(SessionEvent.SETTLED)
            self._stream.request(self._leave_message(self._leaving))

    def _leave_message(self, operation: OperationId) -> Leave:
        return Leave(operation=operation, node=self._node)
