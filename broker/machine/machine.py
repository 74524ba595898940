"""A broker as a deterministic machine: what it does follows from what it takes, in which order.

It has no clock of its own, no connections and no failures: its host (`host.py`) sees to those, and
tells it which batch to take next. What the host decides by a clock (a client is given up) is an
input like any other. So the step log (`faulttol/steplog.py`) says everything about a broker that
its neighbours do not have anyway, and `rebuild.py` makes the same broker again from both.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from plait.broker.effects import Level
from plait.broker.errors import RemoteProtocolError
from plait.broker.limits import Limits
from plait.broker.machine.counting import Counters
from plait.broker.machine.hashed import (
    CountingTopicPublications,
    HashedTopicPublications,
    RatingTopicPublications,
    TopicPublicationsOf2011,
    TopicPublicationsOf2015,
)
from plait.broker.machine.interests import Interests, Observer
from plait.broker.machine.names import Names, Newcomer
from plait.broker.machine.neighbours import Above, Below, Neighbour, Neighbours, Progress, is_client
from plait.broker.machine.places import PlacedPublications
from plait.broker.machine.publications import Publications
from plait.broker.machine.published import PublishedPublications
from plait.broker.machine.requests import Requests
from plait.broker.machine.steps import Steps
from plait.broker.machine.streams import sent_since
from plait.broker.machine.tagged import TaggedPublications
from plait.broker.machine.topics import RootedTopicPublications, TopicPublications
from plait.broker.messages import (
    Advertise,
    Claim,
    Confirm,
    Introduce,
    Join,
    Leave,
    Message,
    NodeKind,
    Operation,
    Publish,
    Rank,
    RefusalCode,
    Refuse,
    Settings,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import Standing, Taken
from plait.routing.ids import NodeId, OperationId
from plait.routing.orderings import (
    HASH,
    HASH_COUNT,
    HASH_RATE,
    ROOT,
    FilteredSequencer,
    NotificationOf2011,
    NotificationOf2015,
    Published,
    PublishedProgressive,
    PublishedWholeQueue,
    TaggedNotification,
    TotalNotification,
    ordering_of,
)
from plait.routing.published import OverlapTables
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics.table import TopicTable

_PARTS: Final[Mapping[str, tuple[type[Publications], type[Observer] | None]]] = {
    FilteredSequencer.name: (PlacedPublications, None),
    Published.name: (PublishedPublications, OverlapTables),
    PublishedProgressive.name: (PublishedPublications, OverlapTables),
    PublishedWholeQueue.name: (PublishedPublications, OverlapTables),
    TotalNotification.name: (TopicPublications, TopicTable),
    TaggedNotification.name: (TaggedPublications, TopicTable),
    NotificationOf2011.name: (TopicPublicationsOf2011, TopicTable),
    NotificationOf2015.name: (TopicPublicationsOf2015, TopicTable),
}
"""What an ordering needs that does more than decide when something is settled."""
_PARTS_OF_MANAGERS: Final[Mapping[tuple[str, str], type[Publications]]] = {
    (TotalNotification.name, ROOT): RootedTopicPublications,
    (TotalNotification.name, HASH): HashedTopicPublications,
    (TotalNotification.name, HASH_COUNT): CountingTopicPublications,
    (TotalNotification.name, HASH_RATE): RatingTopicPublications,
}
"""And where managers of topics are elsewhere than they are if nothing is said."""


def can_begin_anew(ordering: str) -> bool:
    """Whether brokers under an ordering begin anew when more than δ have failed."""
    publications, _ = _PARTS.get(ordering, (Publications, None))
    return publications.can_begin_anew


@attrs.frozen(eq=False)
class Batch:
    """What a neighbour sent in one step of its own, or in several."""

    upto: int
    """The step of the sender that it ends with."""
    messages: Sequence[Message]


class BrokenBatchError(RemoteProtocolError):
    """A batch broke the protocol, in a step that has ended with what came before that."""

    def __init__(self, reason: str, touched: Sequence[Neighbour]) -> None:
        """Note who gets something from that step."""
        super().__init__(reason)
        self.touched = touched


@attrs.frozen(kw_only=True)
class Departure:
    """Who is no neighbour any more."""

    node: NodeId
    incarnation: int
    reason: str
    """Why; empty if it has left."""
    owed: tuple[Publish, ...]
    """What it was owed and has not confirmed: it is not going to get that."""


@attrs.frozen
class Loss:
    """What is given up for everybody beyond this broker: more than δ have failed."""

    publications: tuple[Publish, ...]
    reason: str


NOTHING_TOLD: Final = (-1, -1, -1, -1)
"""The progress that was told to whoever has a new connection."""


class Machine:
    """One broker."""

    def __init__(
        self,
        node: NodeId,
        parent: NodeId | None,
        *,
        settings: Settings,
        limits: Limits,
        outbox: Outbox,
    ) -> None:
        """Be `node`, below `parent`, or the root."""
        self.node = node
        self.settings = settings
        self.limits = limits
        self._outbox = outbox
        self.neighbours = Neighbours(parent)
        self.steps = Steps(node, outbox)
        counters = Counters()
        orders = ordering_of(settings.ordering, settings.managers)
        publications, observer = _PARTS.get(settings.ordering, (Publications, None))
        at = settings.ordering, settings.managers
        publications = _PARTS_OF_MANAGERS.get(at, publications)
        self.requests = Requests(
            self.neighbours,
            self.steps,
            self._send_in_turn,
            counters,
        )
        self.interests = Interests(
            node,
            policy=settings.policy,
            delta=settings.delta,
            limits=limits,
            neighbours=self.neighbours,
            requests=self.requests,
            steps=self.steps,
            detection=settings.detection if orders.waits_for_conflicts else None,
            observer=observer() if observer else None,
            is_root_to_know=orders.settles_at_root,
            is_path_whole=publications is PlacedPublications,
            is_told_everywhere=publications.is_told_everywhere,
            objection_to=publications.objection_to,
        )
        self.publications = publications(
            ordering=orders(),
            limits=limits,
            neighbours=self.neighbours,
            interests=self.interests,
            steps=self.steps,
            outbox=outbox,
            counters=counters,
        )
        self.names = Names(
            node,
            limits=limits,
            neighbours=self.neighbours,
            requests=self.requests,
            steps=self.steps,
            admit=self._admit,
            remove=self.remove,
        )
        self.has_joined = parent is None
        """Whether the parent has let this broker in."""
        self.refusal: str | None = None
        """Why the parent has not."""
        self._departures: list[Departure] = []
        self._losses: list[Loss] = []
        self.has_forgotten_clients = False
        """Whether there may be clients of whom it does not know any more, and that come back: for a
        while, which whoever plays it sees to. What they miss meanwhile is named."""
        self._strangers: set[NodeId] = set()
        """The hops of the neighbours of which not all is known that lies beyond them."""
        self._now = 0.0

    def _send_in_turn(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        self.publications.send_in_turn(neighbour, message, about)

    def count_in(self, counters: Counters) -> None:
        """Count there from now on; what was counted so far was counted once already."""
        self.publications.counters = self.requests.counters = counters

    # --- steps ------------------------------------------------------------------------------

    def take(self, source: Neighbour, batch: Batch, now: float) -> list[Neighbour]:
        """Take what a neighbour sent; returns who gets something from this step.

        What breaks the protocol has no effect, and neither has what follows on it in the batch. But
        what came before has: so the step ends there (`BrokenBatchError`), as it does when it is
        taken again.
        """
        self.begin_batch(source, batch.upto)
        broken: RemoteProtocolError | None = None
        try:
            for message in batch.messages:
                self.take_one(source, message, now)
        except RemoteProtocolError as error:
            broken = error
        touched = self.end_step()
        if broken is not None:
            raise BrokenBatchError(str(broken), touched) from broken
        return touched

    def begin_batch(self, source: Neighbour, upto: int) -> None:
        """Begin the step that takes a batch."""
        if upto <= source.taken:
            raise RemoteProtocolError(f"{source.node} sends step {upto} after {source.taken}")
        self.steps.begin(Taken.BATCH, source.node, upto)
        source.taken = upto
        self.publications.tell_lazily(source)

    def take_one(self, source: Neighbour, message: Message, now: float) -> None:
        """Take one message of a batch."""
        if not source.has_joined:
            self._require_about_to_join(source, message)
        if type(message) is Publish:
            if is_client(source):
                _require_next(source, message)
            if self._strangers or self.has_forgotten_clients:
                self._note_unreached(source, message)
            self.publications.on_publish(source, message, now)
            return
        self._now = now
        match message:
            case Confirm(operation=operation):
                self._on_confirm(source, operation)
            case Settled(number):
                self.publications.on_settled(source, number)
            case Advertise():
                self.interests.on_advertise(source, message, now)
            case Unadvertise():
                self.interests.on_unadvertise(source, message, now)
            case Subscribe():
                self.interests.on_subscribe(source, message, now)
            case Unsubscribe():
                self.interests.on_unsubscribe(source, message, now)
            case Join():
                self._on_join(source, message, now)
            case Claim():
                self.names.on_claim(source, message, now)
            case Leave():
                self._on_leave(source, message, now)
            case Refuse():
                self._on_refuse(source, message, now)
            case Rank():
                self._on_rank(source, message, now)
            case Introduce(operation=operation):
                others = [(other, message) for other in self.neighbours.strangers(source)]
                self.requests.pass_on(operation, source, others, now)
            case _:
                self.publications.on_notice(source, message)

    def _require_about_to_join(self, source: Neighbour, message: Message) -> None:
        """Who has not joined yet may only ask to; who has left, say so once more."""
        is_gone = self.neighbours.below.get(source.node) is not source
        if not isinstance(message, Leave if is_gone else Join):
            name, what = type(message).__name__, "has left" if is_gone else "has not joined yet"
            raise RemoteProtocolError(f"{name} of {source.node}, which {what}")

    def end_step(self) -> list[Neighbour]:
        """End the step; returns who gets something from it."""
        self.names.advance(self._now)
        self.publications.end_step()
        source = self.neighbours.named(self.steps.source)
        if source is not None:
            source.received_marks.add(source.taken, source.received.count)
        return self.steps.end()

    def decide(self, kind: Taken, neighbour: Below, reason: str, now: float) -> list[Neighbour]:
        """Take what the host has decided about a neighbour: that it is away, or given up."""
        self._now = now
        self.steps.begin(kind, neighbour.node)
        if kind is Taken.GONE:
            self._outbox.log(Level.WARNING, "neighbour dropped", peer=neighbour.node, reason=reason)
            self._take_out(neighbour, reason, now)
        else:
            assert kind is Taken.AWAY, f"{kind} is decided elsewhere"
            neighbour.is_away = True
            self.steps.changes.interests = self.interests.of_client(neighbour.node)
        return self.end_step()

    def send_again(self) -> list[Neighbour]:
        """At first, and after a rebuild: what a neighbour may lack, and may have to be asked."""
        self.publications.release_what_is_due()
        for neighbour in self.neighbours.all():
            self.ask_again(neighbour)
        return self.end_step()

    def ask_again(self, neighbour: Neighbour) -> None:
        """Ask what a neighbour has not confirmed: it, or this broker, is another process now."""
        if isinstance(neighbour, Above):
            self.ask_to_join()
        unsent = [delayed.message for delayed in self.publications.delayed_for(neighbour)]
        self.requests.ask_again(neighbour, unsent, self.interests.is_outdated)
        self.publications.say_again(neighbour)
        self.steps.touch(neighbour)
        self.publications.tell_lazily(neighbour)

    def leave(self) -> list[Neighbour]:
        """Ask the parent to let this broker go: nobody stands below it, and all is stable."""
        parent = self.neighbours.parent
        assert parent is not None
        self.steps.begin(Taken.REPLAY)
        operation = OperationId(f"{self.node}#leave")
        self.steps.send(parent, Leave(operation=operation, node=self.node))
        return self.end_step()

    def ask_to_join(self) -> None:
        """Ask the parent to let this broker in, unless it has."""
        parent = self.neighbours.parent
        if parent is not None and not self.has_joined:
            self.steps.send(parent, Join(operation=self._own_join))

    def sent_since(self, neighbour: Neighbour, step: int) -> list[Message]:
        """What was sent to a neighbour after a step, in order: one batch, up to the last step."""
        return sent_since(neighbour, step)

    def connected(self, neighbour: Neighbour) -> None:
        """A connection begins: what it was told of progress may not have come."""
        neighbour.told = NOTHING_TOLD
        self.publications.tell_lazily(neighbour)
        if isinstance(neighbour, Below):
            neighbour.is_cut = False

    def disconnected(self, client: Below) -> None:
        """The connection of a client has ended; it may come back."""
        client.is_cut = True

    # --- neighbours that come and go --------------------------------------------------------

    def welcome(self, node: NodeId, standing: Standing) -> Below:
        """Somebody has greeted, to whom `names` does not object: it stands below from now on.

        That is a step, from which nobody gets anything. Whoever stands here under that name is to
        be given up before.
        """
        assert self.has_joined, f"{self.node} is about to join itself"
        assert node not in self.neighbours.below, f"{node} stands here"
        self.steps.begin(Taken.JOINED, node)
        self.steps.changes.joined = standing
        newcomer = self.add_below(node, standing)
        newcomer.joined_in = self.steps.number
        self.end_step()
        return newcomer

    def add_below(self, node: NodeId, standing: Standing) -> Below:
        """Somebody stands below from now on."""
        newcomer = Below(
            node,
            taken=standing.upto,
            kind=NodeKind(standing.kind),
            incarnation=standing.incarnation,
            key=standing.key,
            published=standing.published,
            has_joined=standing.has_joined,
            era=standing.era,
        )
        self.neighbours.add(newcomer)
        return newcomer

    def _on_join(self, source: Neighbour, join: Join, now: float) -> None:
        """A newcomer asks to be let in; who has joined, and asks again, is told again."""
        if source.has_joined:
            self.requests.pass_on(join.operation, source, [], now)
        else:
            assert isinstance(source, Below)
            self.names.claim(source, join.operation, now)

    def _admit(self, newcomer: Newcomer, now: float) -> None:
        """Nobody objects to a newcomer."""
        self.let_in(newcomer.neighbour, now)
        self.requests.pass_on(newcomer.join, newcomer.neighbour, [], newcomer.since)

    def let_in(self, neighbour: Below, now: float) -> None:
        """A newcomer has joined; a broker is told what there is.

        That is the last thing in a step: it may have to be done again when the claim is forgotten.
        """
        neighbour.has_joined = True
        self.neighbours.version += 1
        self.steps.changes.admitted.append(neighbour.node)
        if not is_client(neighbour):
            self.interests.introduce(neighbour, now)
            self.publications.introduce(neighbour)

    @property
    def _own_join(self) -> OperationId:
        return OperationId(f"{self.node}#join")

    def _on_confirm(self, source: Neighbour, operation: OperationId) -> None:
        if operation == self._own_join and isinstance(source, Above):
            self.has_joined = True
        else:
            if operation == source.introduction:
                source.introduction = None
                self._strangers.discard(source.hop)
                self.interests.withdraw_unsure(source.hop, self._now)
            self.requests.on_confirm(source, operation)

    def _on_rank(self, source: Neighbour, message: Rank, now: float) -> None:
        """Topics are to change places: the root sees to that, which has taken it then."""
        parent = self.neighbours.parent
        reason = self.publications.rank(message.topic, message.above)
        if reason:
            self.requests.refuse(source, message.operation, RefusalCode.NO_ORDER, reason)
        else:
            others: list[tuple[Neighbour, Operation]] = (
                [] if parent is None else [(parent, message)]
            )
            self.requests.pass_on(message.operation, source, others, now)

    def _on_refuse(self, source: Neighbour, refuse: Refuse, now: float) -> None:
        if refuse.operation == self._own_join and isinstance(source, Above):
            self.refusal = refuse.reason
        elif refuse.code is RefusalCode.NAME_TAKEN:
            self.names.on_refuse(refuse.operation, refuse.reason, now)
        else:
            reason = refuse.reason
            raise RemoteProtocolError(f"{source.node} refuses what a broker asks: {reason}")

    def _on_leave(self, source: Neighbour, leave: Leave, now: float) -> None:
        """Somebody has gone; if it has said so twice, nobody is there who may be told again."""
        if self.neighbours.below.get(source.node) is source:
            assert isinstance(source, Below)
            # Not in turn: nothing that is held goes to it any more.
            self.steps.send(source, Confirm(operation=leave.operation))
            self.remove(source, "", now)

    def remove(self, neighbour: Below, reason: str, now: float) -> None:
        """Take a neighbour out in a step that is not about it, and so has to say so."""
        self.steps.changes.removed.append(neighbour.node)
        self._take_out(neighbour, reason, now)

    def _take_out(self, neighbour: Below, reason: str, now: float) -> None:
        """Take a neighbour out of the tree, with all that lies behind it."""
        owed = tuple(arrival.publication for arrival in neighbour.sent.unconfirmed)
        self._departures.append(
            Departure(
                node=neighbour.node,
                incarnation=neighbour.incarnation,
                reason=reason,
                owed=owed if reason and is_client(neighbour) else (),
            )
        )
        self.neighbours.remove(neighbour)
        self._strangers.discard(neighbour.hop)
        self.names.forget(neighbour)
        self.interests.forget(neighbour, now)
        self.requests.forget(neighbour)
        self.publications.forget(neighbour)
        neighbour.has_joined = False

    # --- more than δ failures -----------------------------------------------------------------

    def begin(self, now: float) -> list[Neighbour]:
        """Make the first step of a broker that knows nothing of its past but who is around it."""
        self._now = now
        self.steps.begin(Taken.ANEW)
        self.meet_all(now)
        return self.end_step()

    def meet_all(self, now: float) -> None:
        """Ask all brokers around what there is: nothing is known here."""
        for neighbour in self.neighbours.other_brokers(None):
            self._meet(neighbour, now)

    def begin_anew(self, neighbour: Neighbour, era: int, now: float) -> list[Neighbour]:
        """A neighbour knows nothing of its past: new streams begin between the two."""
        self._now = now
        self.steps.begin(Taken.ANEW, neighbour.node, era)
        self.start_over(neighbour, era, now)
        return self.end_step()

    def start_over(self, neighbour: Neighbour, era: int, now: float) -> None:
        """Forget all that a neighbour has forgotten, and tell it once more what there is.

        Nothing that went through it and is not stable is delivered any more, but to those to whom
        it is on its way from here.
        """
        neighbour.link = None
        self.neighbours.remove(neighbour)
        lost = self.publications.give_up(neighbour)
        if lost:
            self._losses.append(Loss(tuple(lost), f"{neighbour.node} has lost its past"))
        self.interests.begin_anew(neighbour)
        step = self.steps.number
        fresh: Neighbour
        if isinstance(neighbour, Above):
            fresh = Above(neighbour.node, era=era, joined_in=step)
        else:
            kind = neighbour.kind
            fresh = Below(neighbour.node, era=era, kind=kind, has_joined=True, joined_in=step)
        self.neighbours.add(fresh)
        self._meet(fresh, now)
        self.requests.begin_anew(fresh, self.interests.is_to_be_asked_again)

    def _meet(self, stranger: Neighbour, now: float) -> None:
        """Tell a neighbour what there is, and ask what lies beyond it."""
        self.interests.introduce(stranger, now)
        name = OperationId(f"{self.node}#{self.steps.number}.to.{stranger.node}")
        introduce = Introduce(operation=name)
        stranger.introduction = name
        self._strangers.add(stranger.hop)
        self.requests.pass_on(introduce.operation, None, [(stranger, introduce)], now)

    def _note_unreached(self, source: Neighbour, publication: Publish) -> None:
        """Nobody here can tell who beyond a stranger has asked for a publication."""
        if self._strangers - {source.hop} or self.has_forgotten_clients:
            reason = f"beyond {self.node} it is not known yet who wants it"
            self._losses.append(Loss((publication,), reason))

    @property
    def is_among_strangers(self) -> bool:
        """Whether it is not known yet what lies beyond some neighbour."""
        return bool(self._strangers)

    def take_losses(self) -> list[Loss]:
        """What was given up for all beyond since this was last asked."""
        losses, self._losses = self._losses, []
        return losses

    # --- neighbours that are gone ---------------------------------------------------------------

    def note_failed(self, node: NodeId) -> None:
        """After a rebuild: somebody has failed as well, and is no neighbour after the next step."""
        self.steps.changes.removed.append(node)

    def take_departures(self) -> list[Departure]:
        """Who has gone since this was last asked, for the host to see to what is left of it."""
        departures, self._departures = self._departures, []
        return departures

    # --- clients that are away --------------------------------------------------------------

    def may_go_away(self, client: Below) -> bool:
        """Whether a client whose connection has ended may be entered as away.

        Not before all that was taken of it is stable and confirmed: nobody waits for it from then
        on when this broker has failed, and only the client has the rest.
        """
        return (
            client.is_cut
            and client.has_joined
            and not client.is_away
            and all(arrival.stable for arrival in client.received.keep())
            and not self.requests.has_any_of(client)
            and self.interests.count_of_client(client.node) <= self.limits.away_interests_max
        )

    def come_back(self, client: Below) -> list[Neighbour]:
        """Somebody who was away is back. If it was detached, `reattach` comes first.

        All brokers get something from this step. The host lets the client hear nothing, and hears
        nothing of it, until everybody within δ hosts has heard of that: who takes this broker up
        without knowing it does not wait for the client.
        """
        assert client.is_away, f"{client.node} was not away"
        assert not client.is_detached, f"{client.node} has not said yet what it has"
        self.steps.begin(Taken.BACK, client.node)
        client.is_away = client.is_cut = False
        for neighbour in (client, *self.neighbours.other_brokers(None)):
            self.steps.touch(neighbour)
        return self.end_step()

    # --- progress ---------------------------------------------------------------------------

    def on_progress(self, source: Neighbour, progress: Progress) -> None:
        """A neighbour says how far things are; what follows from that is no step."""
        self.publications.on_progress(source, progress)
        if progress.forgotten > source.forgot:
            source.forgot = progress.forgotten
            while source.controls and source.controls[0].step <= source.forgot:
                source.controls.popleft()

    def flush(self, now: float) -> list[tuple[Neighbour, Progress]]:
        """At the end of a step: whom to tell now how far things are, and what."""
        due = self.publications.flush(now)
        return self._progress_for(due) if due else []

    @property
    def is_progress_waiting(self) -> bool:
        """Whether somebody is to be told how far things are, sooner or later (`tell_all`)."""
        return self.publications.is_progress_waiting

    def tell_all(self) -> list[tuple[Neighbour, Progress]]:
        """Everybody who does not know how far things are."""
        return self._progress_for(self.publications.take_lazy())

    def _progress_for(self, neighbours: Sequence[Neighbour]) -> list[tuple[Neighbour, Progress]]:
        self._forget_what_is_stable()
        news = []
        for neighbour in neighbours:
            neighbour.is_urgent = False
            told = (*neighbour.progress, neighbour.taken_at_base, self.steps.log.base)
            if told != neighbour.told:
                neighbour.told = told
                news.append((neighbour, Progress(*told[:3])))
        return news

    def _forget_what_is_stable(self) -> None:
        """Forget the log up to where everything is stable and confirmed."""
        firsts = (
            self.publications.first_unstable_step(),
            self.requests.first_step,
            self.interests.first_unheard_step(),
        )
        first = min((step for step in firsts if step is not None), default=self.steps.number + 1)
        log = self.steps.log
        if first - 1 > log.base and self.has_joined:
            sources = {entry.source for entry in log.entries[: first - 1 - log.base]}
            log.forget(first - 1)
            self.interests.forget_withdrawn(log.base)
            for node in sources:
                neighbour = self.neighbours.named(node)
                if neighbour is not None and neighbour.joined_in <= log.base:
                    neighbour.taken_at_base = log.taken_of(node)


def _require_next(client: Neighbour, publication: Publish) -> None:
    """A client counts its publications, so that none is taken for another one."""
    assert isinstance(client, Below)
    last = client.published + client.received.count
    if publication.seq != last + 1:
        raise RemoteProtocolError(
            f"publication {publication.seq} of {client.node}, which has published {last}"
        )
