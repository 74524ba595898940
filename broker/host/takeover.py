"""Brokers that have failed are taken up: who does it, on what evidence, and with what.

Failed brokers that hang together are a *region*, and the nodes next to it its *boundary*. Whoever
takes a region up (`Seats.coordinator`) needs two things, one after the other:

*Evidence*, for every host of the region: proof that it is dead, or that it has given its seat up;
or its silence, which counts only if this host hears from a majority of all hosts that are not
proven dead, none of which has heard from it either. Until then nothing has happened that could not
be taken back. With that it is certain: everybody is told that these hosts have failed.

*Attachments*, of every node of the boundary: what it had of its link to the region when it stopped
listening. Who has attached never listens to that term of that broker again. A client that does not
come within the time for which it may be away (`Limits.resume_timeout_s`) has failed, too; that time
begins when the failure of its broker is certain. And of every host that has given up a broker of
the region and lives: it knows all that this had done. So that a broker is given up is no failure,
whoever fails at the same time, or gives up its own.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from plait.broker.host.brought import Border, BroughtLogs
from plait.broker.host.doubts import Doubts, Standing
from plait.broker.host.identity import Identity
from plait.broker.host.library import Library
from plait.broker.host.playing import Playing
from plait.broker.host.seats import Seats
from plait.broker.machine.anew import begin_empty
from plait.broker.machine.attachments import Attachment, attach
from plait.broker.machine.machine import Machine
from plait.broker.machine.rebuild import Rebuilding
from plait.broker.messages import Life, NodeKind, Seat
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import CLIENT
from plait.routing.ids import NodeId

SET_ASIDE_MAX: Final = 8
"""Clients, for each of which a region is rebuilt once more without it. If there are more that
contradict others, it is taken up empty."""


@attrs.frozen
class Attached:
    """What a node of the boundary has said."""

    term: int
    """The last one of the broker that it may be about: later it counts no more."""
    attachment: Attachment
    key: str = ""
    """The digest of the secret that a client has greeted with."""


@attrs.define(eq=False)
class Vote:
    """All other hosts are asked of whom they have heard."""

    lives: frozenset[Life]
    begun_at: float
    asked: dict[NodeId, Life] = attrs.field(factory=dict)
    answered: dict[NodeId, frozenset[Life]] = attrs.field(factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether everybody has answered."""
        return len(self.answered) == len(self.asked)


@attrs.define(eq=False)
class Takeover:
    """One region that this host is to take up."""

    region: frozenset[NodeId]
    vote: Vote | None = None
    asked_at: float = -math.inf
    """When those were asked who have not attached."""
    work: Rebuilding | None = None
    """What has been done of it: the rest waits for its turn, as others have theirs."""
    obstacle: str = ""
    """Why it is not taken up at all: more than δ have failed, and the ordering does not survive
    that."""
    set_aside: dict[Border, str] = attrs.field(factory=dict)
    """Clients that have said of it what cannot be so, and why not."""
    is_cut_off: bool = False
    """Whether a vote has found that it is this host that is cut off."""


class Takeovers:
    """The regions that this host is to take up."""

    def __init__(
        self,
        me: Identity,
        *,
        seats: Seats,
        doubts: Doubts,
        library: Library,
        playing: Playing,
        ask: Callable[[Life, frozenset[Life]], None],
    ) -> None:
        """Begin with none; `ask` asks a host of whom it has heard."""
        self._me = me
        self._seats = seats
        self._doubts = doubts
        self._library = library
        self._brought = BroughtLogs(library)
        self._playing = playing
        self._ask = ask
        self._under_way: dict[frozenset[NodeId], Takeover] = {}
        self._attached: dict[Border, Attached] = {}
        self._certain_since: dict[NodeId, float] = {}
        """Since when it has been certain that brokers that are to be taken up here have failed."""

    def __iter__(self) -> Iterator[Takeover]:
        """All of them."""
        return iter(list(self._under_way.values()))

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    def regions(self) -> list[frozenset[NodeId]]:
        """What is to be taken up."""
        return list(self._under_way)

    def of(self, broker: NodeId) -> Takeover | None:
        """The one of which this broker is a part."""
        return next((t for region, t in self._under_way.items() if broker in region), None)

    # --- which -------------------------------------------------------------------------------

    def review(self, now: float) -> None:
        """Look again which regions this host is to take up; what has begun goes on."""
        doubted = self._doubts.doubted()
        due = [
            region
            for region in self._seats.regions(doubted)
            if self._seats.coordinator(region, doubted) == self._me.name
        ]
        before = self._under_way
        self._under_way = {region: before.get(region) or Takeover(region) for region in due}
        certain = [b for region in due for b in region if self._seats.is_lost(b)]
        self._certain_since = {b: self._certain_since.get(b, now) for b in certain}

    # --- attachments ---------------------------------------------------------------------------

    def note_attachment(self, term: int, attachment: Attachment, key: str) -> None:
        """A node of a boundary has said what it has, which it will not add to.

        It may have missed terms that did not go well: then it had nothing of those.
        """
        term = max(term, self._term_of(attachment.to))
        border = (attachment.node, attachment.to)
        is_client = attachment.kind is NodeKind.CLIENT
        if not is_client:
            self._library.learn_logs(attachment.logs)
        known = self._attached.get(border)
        if known is None or not self.is_own(border, known.key) or self.is_own(border, key):
            self._attached[border] = Attached(term, attachment, key)
            if is_client:
                self._brought.note(border, attachment.logs)

    def is_own(self, border: Border, key: str) -> bool:
        """Whether who has greeted with this secret is the one of whom the step logs tell."""
        node, broker = border
        standing = self._library.neighbours_of(broker).get(node)
        return standing is None or not standing.key or standing.key == key

    def attach_own(self, region: frozenset[NodeId]) -> None:
        """The brokers that are played here are a part of the boundary like others."""
        for node, played in self._playing.brokers.items():
            for neighbour in played.machine.neighbours.all():
                seat = self._seats.seat_of(neighbour.node)
                if neighbour.node in region and seat is not None:
                    own = attach(played.machine, neighbour.node, {})
                    self._attached[node, neighbour.node] = Attached(seat.term, own)

    def _has_attached(self, border: Border, term: int) -> bool:
        known = self._attached.get(border)
        return known is not None and known.term >= term and self.is_own(border, known.key)

    def borders(self, region: frozenset[NodeId]) -> list[tuple[Border, NodeKind]]:
        """Who stands next to it: brokers by their seats, and whoever the step logs name."""
        found: dict[Border, NodeKind] = {}
        for broker in sorted(region):
            parent = self._seats.parent_of(broker)
            for near in (*self._seats.children_of(broker), *([] if parent is None else [parent])):
                found[near, broker] = NodeKind.BROKER
            for node, standing in self._brought.neighbours_of(broker).items():
                kind = NodeKind(standing.kind)
                is_elsewhere = kind is NodeKind.BROKER and self._seats.is_there(node)
                # Else it has a seat beside this broker, and is found already; or it was about to
                # join this one, did not know that it might, and has its place somewhere else.
                if not (standing.is_away or is_elsewhere):
                    found.setdefault((node, broker), kind)
        return [(border, kind) for border, kind in found.items() if border[0] not in region]

    def missing(self, region: frozenset[NodeId]) -> list[tuple[Border, NodeKind]]:
        """Who has not attached yet; with a broker itself, the host that has given it up."""
        given_up = [((broker, broker), NodeKind.BROKER) for broker in self._given_up(region)]
        return [
            (border, kind)
            for border, kind in (*self.borders(region), *given_up)
            if border[0] not in self._playing.brokers
            and not self._has_attached(border, self._term_of(border[1]))
        ]

    def _given_up(self, region: Iterable[NodeId]) -> Iterator[NodeId]:
        """The brokers of a region whose host has given them up, and lives."""
        doubted = self._doubts.doubted()
        for broker in sorted(region):
            seat = self._seats.seat_of(broker)
            if seat is None or not seat.is_vacant or seat.host == self._me.name:
                continue
            if not self._seats.has_failed(seat.life) and seat.life not in doubted:
                yield broker

    def awaits(self, life: Life) -> bool:
        """Whether a host has given up what is being taken up here."""
        seats = [self._seats.seat_of(broker) for region in self._under_way for broker in region]
        return any(seat is not None and seat.is_vacant and seat.life == life for seat in seats)

    def given_up_by(self, life: Life) -> list[NodeId]:
        """Of what brokers a host is to say what they had done."""
        missing = [border for t in self._under_way.values() for border, _ in self.missing(t.region)]
        seats = [self._seats.seat_of(broker) for node, broker in missing if node == broker]
        return [seat.broker for seat in seats if seat is not None and seat.life == life]

    def _term_of(self, broker: NodeId) -> int:
        seat = self._seats.seat_of(broker)
        return 0 if seat is None else seat.term

    # --- whether -------------------------------------------------------------------------------

    def is_certain(self, broker: NodeId) -> bool:
        """Whether a broker is to be taken up here for which others may attach."""
        return broker in self._certain_since

    def waited_for(self, broker: NodeId, now: float) -> float:
        """For how long whoever stands next to a broker could know that it has to attach."""
        return now - self._certain_since.get(broker, now)

    def is_complete(self, takeover: Takeover, now: float) -> bool:
        """Whether everybody has attached who will."""
        for (node, broker), kind in self.missing(takeover.region):
            # Of a broker that was about to join nobody knows where it is.
            is_known = kind is NodeKind.BROKER and self._seats.is_there(node)
            if is_known or self.waited_for(broker, now) < self._me.limits.resume_timeout_s:
                return False
        return True

    def _silent(self, region: Iterable[NodeId]) -> frozenset[Life]:
        """Whose silence is the only evidence against them."""
        seats = [seat for seat in map(self._seats.seat_of, region) if seat is not None]
        return frozenset(
            seat.life
            for seat in seats
            if not seat.is_vacant
            and not self._seats.has_failed(seat.life)
            and self._doubts.standing_of(seat.life) is not Standing.PROVEN
        )

    def has_evidence(self, takeover: Takeover, now: float) -> bool:
        """Whether it may be said of all hosts of a region that they have failed."""
        silent = self._silent(takeover.region)
        if not silent:
            return True
        vote = takeover.vote
        if vote is None or vote.lives != silent:
            vote = takeover.vote = Vote(silent, now)
        self._ask_others(vote)
        heard = {self._me.name, *vote.answered}
        limits = self._me.limits
        if any(heard_of & silent for heard_of in vote.answered.values()):
            # Somebody is heard there: it is vouched for, and asked again later.
            if vote.is_complete or now - vote.begun_at > 2 * limits.visit_timeout_s:
                takeover.vote = None
            return False
        if self._seats.is_majority(heard, self._doubts.proven()):
            return True
        takeover.is_cut_off = now - vote.begun_at > limits.heartbeat_timeout_s
        return False

    def _ask_others(self, vote: Vote) -> None:
        """Ask everybody who may know better, also of whom this host has only just heard."""
        proven = self._doubts.proven()
        for life in map(self._seats.life_of, self._seats.hosts()):
            if life is None or life.host == self._me.name or life in vote.lives or life in proven:
                continue
            if vote.asked.get(life.host) != life:
                vote.asked[life.host] = life
                self._ask(life, vote.lives)

    def on_answer(self, host: NodeId, heard: Iterable[Life]) -> None:
        """A host lives, and says of whom it has heard."""
        for takeover in self._under_way.values():
            vote = takeover.vote
            if vote is not None and host in vote.asked:
                vote.answered[host] = frozenset(heard)

    def lives_of(self, region: Iterable[NodeId]) -> frozenset[Life]:
        """Who played it."""
        return self._seats.failed_hosts_of(frozenset(region))

    def failed_of(self, region: Iterable[NodeId]) -> list[Life]:
        """Who played it and has failed, and has not only given it up."""
        seats = [seat for seat in map(self._seats.seat_of, region) if seat is not None]
        return sorted({seat.life for seat in seats if not seat.is_vacant}, key=str)

    def questions_for(self, host: NodeId) -> frozenset[Life]:
        """Of whom a host is to be asked whether it has heard of them."""
        lives: set[Life] = set()
        for takeover in self._under_way.values():
            lives |= self.lives_of(takeover.region)
            if takeover.vote is not None and host in takeover.vote.asked:
                lives |= takeover.vote.lives
        return frozenset(lives)

    # --- doing it --------------------------------------------------------------------------------

    def begin_rebuilding(self, takeover: Takeover, outbox: Outbox) -> Rebuilding:
        """Begin to rebuild a region from what was attached."""
        region = takeover.region
        self.attach_own(region)
        # What hosts said of logs was learnt when they said it, and what givers said as well.
        logs = self._brought.known(region)
        attachments = []
        for border, attached in self._attached.items():
            node, to = border
            # Who has attached and then failed, too, is rebuilt.
            if node in region or not (
                to in region and self._has_attached(border, self._term_of(to))
            ):
                continue
            attachment = attached.attachment
            if attachment.kind is NodeKind.CLIENT and attachment.taken > logs[to].last:
                reason = f"{node} says that it took step {attachment.taken} of {to}"
                takeover.set_aside.setdefault(border, f"{reason}, and others know {logs[to].last}")
            if border not in takeover.set_aside:
                attachments.append(attachment)
        return Rebuilding(
            {broker: self._seats.parent_of(broker) for broker in sorted(region)},
            [attrs.evolve(attachment, logs=logs) for attachment in attachments],
            settings=self._me.settings,
            limits=self._me.limits,
            outbox=outbox,
            now=self._me.now,
            logs=logs,
            known_to_hosts={broker: self._library.log_of(broker).last for broker in region},
            known_to=self._brought.known_to(region),
        )

    def set_aside(self, takeover: Takeover, reason: str) -> list[NodeId]:
        """Something cannot be so: do without the clients by whose word it is; returns who they are.

        Nobody if it is not by the word of clients, or of too many.
        """
        bringers = self._brought.bringers(takeover.region)
        if len(takeover.set_aside) + len(bringers) > SET_ASIDE_MAX:
            return []
        takeover.work = None
        takeover.set_aside |= dict.fromkeys(bringers, reason)
        self._brought.forget(bringers)
        return [node for node, _ in bringers]

    def begin_empty(
        self, region: frozenset[NodeId], attachments: Iterable[Attachment], outbox: Outbox
    ) -> dict[NodeId, Machine]:
        """The brokers of a region of which nobody alive knows all that they did.

        Whoever was about to join one of them asks it once more.
        """
        return begin_empty(
            {broker: self._seats.parent_of(broker) for broker in sorted(region)},
            [each for each in attachments if self._has_joined(each.node)],
            settings=self._me.settings,
            limits=self._me.limits,
            outbox=outbox,
        )

    def _has_joined(self, broker: NodeId) -> bool:
        """Whether a broker stands in the tree; it has a seat as soon as it asks for that."""
        played = self._playing.brokers.get(broker)
        is_about_to = played is not None and not played.machine.has_joined
        return self._seats.is_there(broker) and not is_about_to

    def with_clients(self, region: Iterable[NodeId]) -> frozenset[NodeId]:
        """The brokers that had clients, or of which nobody knows whether they had."""
        return frozenset(
            broker
            for broker in region
            if not self._brought.log_of(broker).last
            or any(
                standing.kind == CLIENT for standing in self._brought.neighbours_of(broker).values()
            )
        )

    def new_seats(self, region: Iterable[NodeId], life: Life) -> list[Seat]:
        """The seats of a region once this host has taken it up."""
        seats = [self._seats.seat_of(broker) for broker in sorted(region)]
        return [
            attrs.evolve(
                seat,
                term=self._last_term_of(seat.broker) + 1,
                host=life.host,
                incarnation=life.incarnation,
                is_vacant=False,
                taker="",
            )
            for seat in seats
            if seat is not None
        ]

    def _last_term_of(self, broker: NodeId) -> int:
        """The last term of which anybody knows who has attached: nobody listens to that again.

        Whoever played it then may have failed before others had heard who that was.
        """
        attached = (each.term for (_, to), each in self._attached.items() if to == broker)
        return max(self._term_of(broker), self._brought.log_of(broker).term, *attached, 0)

    def end(
        self, region: frozenset[NodeId], attachments: Iterable[Attachment]
    ) -> frozenset[Border]:
        """It is taken up with these attachments; returns who has attached after that had begun."""
        self._under_way.pop(region, None)
        borders = [border for border in self._attached if border[1] in region]
        for border in borders:
            del self._attached[border]
        self._brought.forget(borders)
        return frozenset(borders) - {(each.node, each.to) for each in attachments}
