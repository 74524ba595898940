"""A broker as a deterministic machine: what it does follows from what it takes, in which order.

It has no clock of its own, no connections and no failures: its host (`host.py`) sees to those, and
tells it which batch to take next. What the host decides by a clock (a client is given up) is an
input like any other. So the step log (`faulttol/steplog.py`) says everything about a broker that
its neighbours do not have anyway, and `rebuild.py` makes the same broker again from both.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from broker.effects import Level
from broker.errors import RemoteProtocolError
from broker.interests import Observer
from broker.limits import Limits
from broker.machine.interests import Interests
from broker.machine.neighbours import Below, Neighbour, Neighbours, Progress, is_client
from broker.machine.places import PlacedPublications
from broker.machine.publications import Publications
from broker.machine.published import PublishedPublications
from broker.machine.requests import Requests
from broker.machine.steps import Steps
from broker.messages import (
    Advertise,
    Confirm,
    Join,
    Leave,
    Message,
    NodeKind,
    Publish,
    Refuse,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from broker.outbox import Outbox
from faulttol.steplog import Taken
from routing.conflicts import FAST
from routing.ids import NodeId
from routing.orderings import (
    DEFAULT_ORDERING,
    ORDERINGS,
    FilteredSequencer,
    Published,
    PublishedProgressive,
    PublishedWholeQueue,
)
from routing.published import OverlapTables
from routing.tables import Advertisement, Subscription

_PARTS: Final[Mapping[str, tuple[type[Publications], type[Observer] | None]]] = {
    FilteredSequencer.name: (PlacedPublications, None),
    Published.name: (PublishedPublications, OverlapTables),
    PublishedProgressive.name: (PublishedPublications, OverlapTables),
    PublishedWholeQueue.name: (PublishedPublications, OverlapTables),
}
"""What an ordering needs that does more than decide when something is settled."""


@attrs.frozen(kw_only=True)
class Settings:
    """What all brokers of an overlay have in common."""

    ordering: str = DEFAULT_ORDERING
    policy: str = "filter"
    delta: int = 1
    detection: str = FAST


@attrs.frozen(eq=False)
class Batch:
    """What a neighbour sent in one step of its own, or in several."""

    upto: int
    """The step of the sender that it ends with."""
    messages: Sequence[Message]


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
        orders = ORDERINGS[settings.ordering]
        publications, observer = _PARTS.get(settings.ordering, (Publications, None))
        self.requests = Requests(
            self.neighbours,
            self.steps,
            self._send_in_turn,
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
        )
        self.publications = publications(
            ordering=orders(),
            limits=limits,
            neighbours=self.neighbours,
            interests=self.interests,
            steps=self.steps,
            outbox=outbox,
        )

    def _send_in_turn(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        self.publications.send_in_turn(neighbour, message, about)

    # --- steps ------------------------------------------------------------------------------

    def take(self, source: Neighbour, batch: Batch, now: float) -> list[Neighbour]:
        """Take what a neighbour sent; returns who gets something from this step."""
        self.begin_batch(source, batch.upto)
        for message in batch.messages:
            self.take_one(source, message, now)
        return self.end_step()

    def begin_batch(self, source: Neighbour, upto: int) -> None:
        """Begin the step that takes a batch."""
        if upto <= source.taken:
            raise RemoteProtocolError(f"{source.node} sends step {upto} after {source.taken}")
        self.steps.begin(Taken.BATCH, source.node, upto)
        source.taken = upto
        self.publications.tell_lazily(source)

    def take_one(self, source: Neighbour, message: Message, now: float) -> None:
        """Take one message of a batch."""
        if type(message) is Publish:
            self.publications.on_publish(source, message, now)
            return
        match message:
            case Confirm(operation=operation):
                self.requests.on_confirm(source, operation)
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
            case Leave():
                self._on_leave(source, message, now)
            case Refuse(reason=reason):
                raise RemoteProtocolError(f"{source.node} refuses what a broker asks: {reason}")
            case _:
                self.publications.on_notice(source, message)

    def end_step(self) -> list[Neighbour]:
        """End the step; returns who gets something from it."""
        self.publications.end_step()
        source = self.neighbours.named(self.steps.source)
        if source is not None:
            source.received_marks.add(source.taken, source.received.count)
        return self.steps.end()

    def decide(self, kind: Taken, neighbour: Below, reason: str, now: float) -> list[Neighbour]:
        """Take what the host has decided about a neighbour."""
        self.steps.begin(kind, neighbour.node)
        if kind is Taken.GONE:
            self._outbox.log(Level.WARNING, "neighbour dropped", peer=neighbour.node, reason=reason)
            self.remove(neighbour, now)
        else:
            neighbour.is_away = kind is Taken.AWAY
        return self.end_step()

    def send_again(self) -> list[Neighbour]:
        """After a rebuild: whatever a neighbour may lack, and may have to be asked again."""
        self.publications.release_what_is_due()
        for neighbour in self.neighbours.all():
            self.ask_again(neighbour)
        return self.end_step()

    def ask_again(self, neighbour: Neighbour) -> None:
        """Ask what a neighbour has not confirmed: it, or this broker, is another process now."""
        unsent = [delayed.message for delayed in self.publications.delayed_for(neighbour)]
        self.requests.ask_again(neighbour, unsent, self.interests.is_outdated)
        self.publications.say_again(neighbour)
        self.steps.touch(neighbour)
        self.publications.tell_lazily(neighbour)

    # --- neighbours that come and go --------------------------------------------------------

    def add_below(self, node: NodeId, kind: NodeKind, incarnation: int) -> Below:
        """Somebody stands below from now on."""
        newcomer = Below(node, kind=kind, incarnation=incarnation)
        self.neighbours.below[node] = newcomer
        self.neighbours.version += 1
        return newcomer

    def _on_join(self, source: Neighbour, join: Join, now: float) -> None:
        """A new neighbour has taken its place; who asks again is told again."""
        self.requests.pass_on(join.operation, source, [], now)
        if not is_client(source):
            self.interests.introduce(source, now)

    def _on_leave(self, source: Neighbour, leave: Leave, now: float) -> None:
        assert isinstance(source, Below)
        self.requests.pass_on(leave.operation, source, [], now)
        self.remove(source, now)

    def remove(self, neighbour: Below, now: float) -> None:
        """Take a neighbour out of the tree, with all that lies behind it."""
        del self.neighbours.below[neighbour.node]
        self.neighbours.version += 1
        self.interests.forget(neighbour, now)
        self.requests.forget(neighbour)
        self.publications.forget(neighbour)

    # --- progress ---------------------------------------------------------------------------

    def on_progress(self, source: Neighbour, progress: Progress) -> None:
        """A neighbour says how far things are; what follows from that is no step."""
        self.publications.on_progress(source, progress)
        if progress.forgotten > source.forgot:
            source.forgot = progress.forgotten
            source.base = progress.base
            while source.controls and source.controls[0].step <= source.forgot:
                source.controls.popleft()

    def flush(self, now: float) -> list[tuple[Neighbour, Progress]]:
        """At the end of a step: whom to tell now how far things are, and what."""
        due = self.publications.flush(now)
        return self._progress_for(due) if due else []

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
                news.append((neighbour, Progress(*told)))
        return news

    def _forget_what_is_stable(self) -> None:
        """Forget the log up to where everything is stable and confirmed."""
        firsts = (self.publications.first_unstable_step(), self.requests.first_step)
        first = min((step for step in firsts if step is not None), default=self.steps.number + 1)
        log = self.steps.log
        if first - 1 > log.base:
            log.forget(first - 1)
            for node, taken in log.taken.items():
                neighbour = self.neighbours.named(node)
                if neighbour is not None:
                    neighbour.taken_at_base = taken
