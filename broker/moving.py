"""A planned move: a broker hands some of its children over to another of its children.

The *giver* stays where it is, and so does the *taker*, a broker below it. The moved *children*,
brokers or clients, hang below the taker afterwards, each with all that is behind it. Nobody further
away takes part, and applications see nothing but a pause.

Why nothing is lost, doubled or out of order: at the moment of the move nothing is under way that
could be. Whoever takes part lets nothing new in, which stays on the links as far as anybody can
tell (it is *parked*), and waits until what is in has come to its end.

0. The giver tells the taker of the subscriptions that it will have to know, as it tells of any
   subscription, a portion at a time: with large tables that takes its time, and nobody waits.
1. The giver asks the taker to `Pause`, which from then on takes in nothing from below, and tells
   the children where they are going (`Prepare`). Each says that it is `Prepared`. What the taker
   had sent up before has arrived by then.
2. The giver parks what comes from below. When its parent has settled whatever it holds, it parks
   what comes from above, too. So it has an order of everything that it has ever taken in, and
   whoever is below, the taker too, has been or is being told in that order.
3. The giver waits until everything that it has exchanged with the children is stable: all who had
   to get it have it. Then the links to the children are empty, as if they had just joined, except
   for what the children have sent and the giver has not taken in: that they will send again.
4. The giver tells the taker what lies behind each child, and since when, and what the child knows
   (`Adopt`); what of that is not confirmed yet; and what is stable, as those behind the child may
   not have heard that when it fails. From then on it confirms nothing to anybody. The taker
   holds nothing: all it ever sent up has been settled above, and it heard of that before. It
   enters the child into its tables in the same place of its order in which the giver is in, and
   in which the child is. **That is the moment of the move**; the taker says so with `Adopted`.
5. The giver enters the child behind the taker, tells it that it has `Moved`, and lets in what is
   parked (`Resume` for the taker). The child connects to the taker as to a parent whose connection
   was lost: the counters of both streams go on as they were.

Operations under way are not waited for. Those that the child has not confirmed, the giver asks of
the taker, which may be busy with them itself and from then on confirms them for both; those that
the giver has not confirmed, the child sends again to the taker.

If anything goes wrong before the giver has sent `Adopt`, or if it takes too long, the giver gives
up and lets in what is parked. After that the taker alone knows. If the taker fails, nothing has
happened. If the giver fails, the children, which are prepared, do not look for a hub but ask the
taker: it goes on with those that it has taken over and declines the others, from then on for good.

Whoever has moved a moment before a crash may be looked for where it was. Brokers that know better
say so (`redirects`).
"""

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from broker.effects import Level
from broker.errors import RemoteProtocolError
from broker.inputs import LinkId
from broker.interests import Interests
from broker.messages import (
    Adopt,
    Adopted,
    Advertise,
    Asked,
    Claim,
    Confirm,
    GoodbyeCode,
    Hello,
    Join,
    Leave,
    Message,
    Moved,
    NodeKind,
    Operation,
    Pause,
    Prepare,
    Prepared,
    Progress,
    Publish,
    Refuse,
    Resume,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Withdraw,
)
from broker.neighbours import Above, Below, Neighbour
from broker.orphans import Orphan
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import NodeId, OperationId, SubscriptionId

if TYPE_CHECKING:
    from broker.core import BrokerCore

_PARKED: Final = (
    *(Publish, Settled, Confirm),
    *(Refuse, Claim, Join, Leave, Advertise, Unadvertise, Subscribe, Unsubscribe, Withdraw),
)
"""What waits outside while nothing new is let in."""


class _Phase(enum.Enum):
    TELLING = enum.auto()
    PREPARING = enum.auto()
    SETTLING = enum.auto()
    EMPTYING = enum.auto()
    ASKING = enum.auto()


@attrs.define(eq=False)
class _Move:
    """A move of which this broker is the giver."""

    number: int
    taker: Below
    children: list[Below]
    deadline: float
    links: tuple[LinkId | None, ...]
    """The connections of all who take part, when it began."""
    unprepared: set[NodeId]
    to_tell: list[SubscriptionId]
    """Subscriptions that the taker has to know."""
    told: list[OperationId] = attrs.field(factory=list)
    """By which it has been told of the last portion of those."""
    phase: _Phase = _Phase.TELLING
    taker_link: LinkId | None = None
    """Over which it has been asked."""
    answers: dict[NodeId, bool] = attrs.field(factory=dict)


@attrs.define(eq=False)
class _Handover:
    """What a giver tells of one child, as far as it has arrived."""

    header: Adopt
    link: LinkId | None
    """Over which it comes; of what is begun on one connection nothing comes on the next."""
    told: list[Advertise | Subscribe] = attrs.field(factory=list)

    @property
    def expects(self) -> type[Advertise | Subscribe]:
        """What comes next: twice, advertisements before subscriptions."""
        header, behind = self.header, len(self.told)
        if behind >= header.advertisements + len(header.subscriptions):
            behind -= len(header.subscriptions)
            return Advertise if behind < header.advertisements + header.told else Subscribe
        return Advertise if behind < header.advertisements else Subscribe

    @property
    def is_complete(self) -> bool:
        header = self.header
        advertisements = header.advertisements + header.told
        return len(self.told) == advertisements + len(header.subscriptions) + len(header.known)


class Moving:
    """The moves in which one broker takes part."""

    def __init__(self, core: "BrokerCore") -> None:
        """Begin with none."""
        self._core = core
        self.is_paused = False
        """Whether nothing new is let in from below."""
        self._is_paused_above = False
        self._parked: list[tuple[LinkId, Message]] = []
        self._parking: set[LinkId] = set()
        """The connections over which something came that is parked."""
        self._progress: dict[LinkId, Progress] = {}
        """What was said last of the progress of what is parked."""
        self._wishes: list[tuple[NodeId, list[NodeId]]] = []
        """Which children another child is to have, and has not yet."""
        self._next_try_at = 0.0
        self._count = 0
        self._move: _Move | None = None
        self._pause: tuple[int, LinkId] | None = None
        """For which move of the parent this broker pauses, and the connection."""
        self._paused_at = 0
        """When it began to: the parent tells of the children later than that."""
        self._handover: _Handover | None = None
        self._expected: dict[NodeId, tuple[Adopt, float]] = {}
        """Taken over, and since when; nobody else knows that yet, perhaps."""
        self._prepared: tuple[TopologyLink, Life] | None = None
        """Where this broker is going to be moved, and by whom."""
        self._visits_since: float | None = None
        self._redirected: dict[NodeId, int] = {}
        """Who has been told where this broker is now, as it looked for it elsewhere."""
        self.completed = 0

    # --- letting nothing in -------------------------------------------------------------------

    def parks(self, link: LinkId, source: Neighbour, message: Message) -> bool:
        """Whether a message has to wait outside."""
        if isinstance(source, Above) and (
            not self._is_paused_above or self._belongs_to_handover(message)
        ):
            return False
        has_parked = link in self._parking
        if isinstance(message, Progress) and has_parked:
            self._progress[link] = message
            known = Progress(message.received, min(message.sent, source.received.count))
            self._core.publications.on_progress(source, known)
            return True
        # What the taker has been told to be unconfirmed has to stay so while it decides.
        is_answer = isinstance(message, Confirm | Refuse)
        if is_answer and not has_parked and not self.is_asking:
            return False
        if isinstance(message, _PARKED):
            self._parked.append((link, message))
            self._parking.add(link)
            return True
        return False

    def _let_in(self) -> None:
        """Take in what was parked, in the order in which it came."""
        self.is_paused = self._is_paused_above = False
        parked, self._parked = self._parked, []
        self._parking.clear()
        progress, self._progress = self._progress, {}
        for link, message in (*parked, *progress.items()):
            self._core.hear_parked(link, message)

    # --- as the giver -------------------------------------------------------------------------

    @property
    def is_asking(self) -> bool:
        """Whether the taker decides at this moment: nothing may be sent to those who take part."""
        return self._move is not None and self._move.phase is _Phase.ASKING

    @property
    def is_busy(self) -> bool:
        """Whether this broker gives or takes."""
        return self._move is not None or self._pause is not None or bool(self._expected)

    @property
    def is_idle(self) -> bool:
        """Whether it does not, and does not want to either."""
        return not (self.is_busy or self._wishes)

    def want(self, taker: NodeId, children: Sequence[NodeId]) -> None:
        """Hand children over to another child, as soon as that is possible."""
        self._wishes.append((taker, list(children)))
        self._next_try_at = self._core.now

    def give_back(self, newcomer: Below) -> None:
        """A broker that had failed is back: hand over to it who was below it before."""
        below = self._core.neighbours.below.values()
        children = [child.node for child in below if child.came_from == newcomer.node]
        if children and not newcomer.is_standby:
            self.want(newcomer.node, children)

    def _try_wishes(self) -> None:
        """Begin with what is wanted, if it is time for that; forget who is not there any more."""
        core = self._core
        if self.is_busy or not self._wishes or core.now < self._next_try_at:
            return
        below = core.neighbours.below
        wishes = [
            (taker, [name for name in children if name in below])
            for taker, children in self._wishes
            if taker in below
        ]
        self._wishes = [(taker, children) for taker, children in wishes if children]
        for taker, children in self._wishes:
            if self.begin(taker, [name for name in children if _is_at_hand(below[name])]):
                return
        self._try_later()

    def _try_later(self) -> None:
        self._next_try_at = self._core.now + self._core.limits.move_pause_s

    def begin(self, taker: NodeId, children: Sequence[NodeId]) -> bool:
        """Try to hand children over to another child; returns whether it may come of it."""
        core = self._core
        below = core.neighbours.below
        gone = [name for name in (taker, *children) if not _is_at_hand(below.get(name))]
        may_move = core.is_settled_in and core.publications.ordering.survives_crashes
        if gone or self.is_busy or not children or taker in children or not may_move:
            return False
        if below[taker].is_standby and below[taker].came_from is None:
            return False  # it waits for this broker to fail, and all others know that it does
        moved = [below[name] for name in children]
        if not all(self._is_flowing(child) for child in moved):
            return False
        links = [core.neighbourhood.link_of(child.node) for child in moved]
        place = core.neighbourhood.link_of(taker)
        if below[taker].kind is not NodeKind.BROKER or place is None or None in links:
            return False
        self._count += 1
        self._move = move = _Move(
            self._count,
            below[taker],
            moved,
            deadline=core.now + core.limits.move_timeout_s,
            links=self._connections(below[taker], moved),
            unprepared={taker, *children},
            to_tell=core.interests.unknown_to(below[taker], moved),
        )
        self._tell(move)
        return True

    def _tell(self, move: _Move) -> None:
        """When the taker has confirmed what it has been told, tell it more, or begin in earnest."""
        core = self._core
        if core.requests.are_under_way(move.told):
            return
        move.deadline = core.now + core.limits.move_timeout_s
        move.told, most = [], core.limits.move_portion
        while move.to_tell and not move.told:
            portion, move.to_tell = move.to_tell[:most], move.to_tell[most:]
            move.told = core.interests.tell(move.taker, portion, core.now)
        if not move.told:
            self._prepare(move)

    def _prepare(self, move: _Move) -> None:
        outbox = self._core.outbox
        move.phase = _Phase.PREPARING
        assert move.taker.link is not None
        outbox.send(move.taker.link, Pause(move=move.number))
        for child in move.children:
            assert child.link is not None
            link = self._link_to_be(child, move.taker)
            outbox.send(child.link, Prepare(move=move.number, link=link))

    def _is_flowing(self, child: Below) -> bool:
        """Whether nothing takes so long that a move would, too, and stop the traffic in vain."""
        recently = self._core.now - self._core.limits.move_timeout_s / 4
        return all(
            arrival.since >= recently or not isinstance(arrival.publication, Publish)
            for stream in (child.sent, child.received)
            for arrival in stream.keep()[:1]
        )

    def _link_to_be(self, child: Below, taker: Below) -> TopologyLink:
        link = self._core.neighbourhood.link_of(child.node)
        assert link is not None
        return attrs.evolve(
            link,
            parent=taker.node,
            parent_incarnation=taker.incarnation,
            parent_address=taker.address,
            moves=link.moves + 1,
        )

    def _connections(self, taker: Below, children: Sequence[Below]) -> tuple[LinkId | None, ...]:
        parent = self._core.neighbours.parent
        return (parent.link if parent else None, taker.link, *(child.link for child in children))

    def on_prepared(self, source: Neighbour, prepared: Prepared) -> None:
        """One who takes part is prepared, or will not be."""
        move = self._move
        if move is None or prepared.move != move.number:
            return
        if source is not move.taker and source not in move.children:
            return  # nobody has asked it
        if prepared.accepts:
            move.unprepared.discard(source.node)
        elif move.phase is _Phase.PREPARING:
            self._give_up(f"{source.node} declines")

    def advance(self) -> bool:
        """At the end of a step: go on as far as possible; returns whether anything was done."""
        if self.is_idle:
            return False
        self._end_pause_if_cut_off()
        self._try_wishes()
        move = self._move
        if move is None:
            return False
        if move.phase is _Phase.ASKING:
            return self._go_on_asking(move)
        core = self._core
        if core.now >= move.deadline:
            self._give_up("it takes too long")
            return True
        if (
            not core.is_settled_in
            or self._connections(move.taker, move.children) != move.links
            or any(core.neighbours.below.get(n.node) is not n for n in (move.taker, *move.children))
        ):
            self._give_up("somebody has failed, or lost a connection")
            return True
        if move.phase is _Phase.TELLING:
            self._tell(move)
        if move.phase is _Phase.PREPARING and not move.unprepared:
            move.phase = _Phase.SETTLING
            self.is_paused = True
        if move.phase is _Phase.SETTLING and self._has_settled_all:
            move.phase = _Phase.EMPTYING
            self._is_paused_above = True
        if move.phase is _Phase.EMPTYING:
            core.publications.tell_all()
            if all(map(self._is_empty, move.children)):
                move.phase = _Phase.ASKING
                self._ask(move)
        return False

    def _is_empty(self, child: Below) -> bool:
        """Whether nothing is under way to or from a child that others could not carry on.

        What the child need not know any more the taker may have to know itself, so that it cannot
        be asked to pass that on.
        """
        core = self._core
        taken_back = core.requests.taken_back_from(child)
        too_many = len(core.requests.unconfirmed_by(child)) > core.limits.known_at_once
        return not (child.sent.keep() or child.received.keep() or taken_back or too_many)

    @property
    def _has_settled_all(self) -> bool:
        """Whether nothing from below waits for the parent; the sequencer sends back all it gets."""
        publications = self._core.publications
        parent = self._core.neighbours.parent
        if publications.ordering.settles_at_root and parent is not None:
            return not parent.sent.keep()
        return not publications.ordering.held

    def _ask(self, move: _Move) -> None:
        """Tell the taker all about the children that it has not answered for."""
        core = self._core
        move.taker_link = move.taker.link
        assert move.taker.link is not None
        stable = core.publications.lately_stable
        for child in move.children:
            if child.node in move.answers:
                continue
            advertisements, subscriptions, told, known = core.interests.claims_of(child, move.taker)
            header = Adopt(
                move=move.number,
                now=next(core.neighbours.clock),
                link=self._link_to_be(child, move.taker),
                received=child.received.count,
                sent=child.sent.count,
                links=core.neighbourhood.behind(child.node),
                stable=stable,
                asked=tuple(core.requests.unconfirmed_by(child)),
                advertisements=len(advertisements),
                subscriptions=_confirmed_at(core.interests, subscriptions),
                told=len(told),
                known=_confirmed_at(core.interests, known),
            )
            messages: list[Message] = [header, *advertisements, *subscriptions, *told, *known]
            for message in messages:
                core.outbox.send(move.taker.link, message)
            stable = ()

    def _go_on_asking(self, move: _Move) -> bool:
        core = self._core
        if core.neighbourhood.has_failed(Life(move.taker.node, move.taker.incarnation)):
            self._give_up(f"{move.taker.node} has failed")
            core.reforming.review()
            return True
        if move.taker.link not in (None, move.taker_link):
            self._ask(move)
        return False

    def on_adopted(self, source: Neighbour, adopted: Adopted) -> None:
        """The taker has decided about one of the children."""
        move = self._move
        if move is None or adopted.move != move.number or source is not move.taker:
            return
        move.answers[adopted.node] = adopted.accepts
        if all(child.node in move.answers for child in move.children):
            self._finish(move)

    def _finish(self, move: _Move) -> None:
        """The taker has taken over; say so to everybody, and let in what has come meanwhile."""
        core = self._core
        taker = move.taker
        self._move = None
        taker.is_standby = False
        moved = [child for child in move.children if move.answers[child.node]]
        for child in moved:
            link = self._link_to_be(child, taker)
            core.neighbourhood.add(link)
            if child.link is not None:
                core.outbox.send(child.link, Moved(link=link))
            core.give_away(child, taker)
            core.interests.hand_over(child, taker)
        asked = core.requests.hand_over(
            moved, taker, lambda request: self._targets(taker, request), core.now
        )
        self._forget_confirmations(taker, asked)
        self._say_resume(move)
        core.reforming.tell_neighbourhood(None)
        names = ", ".join(child.node for child in moved)
        core.outbox.log(Level.INFO, "moved", taker=taker.node, members=names)
        self.completed += len(moved)
        self._let_in()
        core.reforming.review()

    def _forget_confirmations(self, taker: Below, asked: Collection[OperationId]) -> None:
        """What is parked of these the taker has said without those who are behind it now."""
        self._parked = [
            (link, message)
            for link, message in self._parked
            if link != taker.link
            or not isinstance(message, Confirm)
            or message.operation not in asked
        ]

    def _targets(self, taker: Below, request: Operation) -> list[NodeId]:
        return [] if self._core.interests.is_void(request, taker) else [taker.hop]

    def _give_up(self, reason: str) -> None:
        move = self._move
        assert move is not None
        self._move = None
        self._core.outbox.log(Level.INFO, "not moved", taker=move.taker.node, reason=reason)
        self._try_later()
        self._say_resume(move)
        self._let_in()

    def _say_resume(self, move: _Move) -> None:
        if move.taker.link is not None:
            self._core.outbox.send(move.taker.link, Resume(move=move.number))

    # --- as the taker -------------------------------------------------------------------------

    def on_pause(self, source: Neighbour, pause: Pause) -> None:
        """The parent is going to hand somebody over to this broker."""
        core = self._core
        assert source.link is not None
        accepts = core.is_settled_in and not self.is_busy
        if accepts:
            self._pause = (pause.move, source.link)
            self._paused_at = next(core.neighbours.clock)
            self.is_paused = True
        core.outbox.send(source.link, Prepared(move=pause.move, accepts=accepts))

    def on_resume(self, resume: Resume) -> None:
        """The parent has done what it could."""
        if self._pause is not None and self._pause[0] == resume.move:
            self.end_pause()
            if self._expected:
                for node in list(self._expected):
                    self._make_known(node)
                self._core.reforming.tell_neighbourhood(self._core.neighbours.parent)

    def end_pause(self) -> None:
        """Take nobody over any more, until the parent asks again."""
        if self._pause is not None:
            self._pause = None
            self._let_in()

    def _end_pause_if_cut_off(self) -> None:
        if self._pause is not None and self._link_above != self._pause[1]:
            self.end_pause()

    @property
    def _link_above(self) -> LinkId | None:
        parent = self._core.neighbours.parent
        return parent.link if parent is not None else None

    def on_adopt(self, adopt: Adopt) -> None:
        """The parent begins to hand over a child."""
        self._handover = _Handover(adopt, self._link_above)
        self._take_if_complete()

    def takes(self, message: Message) -> bool:
        """Whether a message of the parent is a part of what it hands over."""
        handover = self._handover
        if handover is None or not self._belongs_to_handover(message):
            return False
        assert isinstance(message, Advertise | Subscribe)
        if not isinstance(message, handover.expects):
            raise RemoteProtocolError(f"{type(message).__name__} amid what Adopt announced")
        self._core.interests.require_readable(message)
        handover.told.append(message)
        self._take_if_complete()
        return True

    def _belongs_to_handover(self, message: Message) -> bool:
        if self._handover is not None and self._handover.link != self._link_above:
            self._handover = None
        return self._handover is not None and isinstance(message, Advertise | Subscribe)

    def _take_if_complete(self) -> None:
        handover = self._handover
        if handover is None or not handover.is_complete:
            return
        self._handover = None
        core = self._core
        header, child = handover.header, handover.header.link
        core.publications.note_stable(header.stable)
        known = core.neighbours.below.get(child.child)
        if known is not None and not known.has_joined:  # it began to join here, and did elsewhere
            core.hang_up(known, GoodbyeCode.LEFT, "it has joined elsewhere")
            core.forget_newcomer(known)
            known = None
        is_here = known is not None and known.incarnation == child.incarnation
        is_paused = self._pause is not None and self._pause[0] == header.move
        if is_paused and known is None and not core.publications.ordering.held:
            self._take(header, handover.told)
            is_here = True
        parent = core.neighbours.parent
        assert parent is not None
        assert parent.link is not None
        adopted = Adopted(move=header.move, node=child.child, accepts=is_here)
        core.outbox.send(parent.link, adopted)

    def _take(self, header: Adopt, told: Sequence[Advertise | Subscribe]) -> None:
        core = self._core
        link = header.link
        child = Below(
            node=link.child,
            incarnation=link.incarnation,
            link=None,
            kind=NodeKind(link.kind),
            address=link.address,
            has_joined=True,
            absent_since=core.now,
            is_standby=link.standby > 0,
            key=link.key,
        )
        child.received.stable_count, child.sent.stable_count = header.received, header.sent
        core.neighbours.put(child)
        self._expected[child.node] = (header, core.now)
        here = next(core.neighbours.clock)
        asked, known = (
            [
                then.translated(told_at=header.now, since=self._paused_at, by=here)
                for then in told_of
            ]
            for told_of in (header.subscriptions, header.known)
        )
        core.interests.take_over(child, told, header.advertisements, asked, known, core.now)
        # What this broker has asked of the parent, the parent has asked of the child. And what the
        # parent has asked of both, it is going to ask this broker again, for the child.
        core.requests.ask_too(
            core.neighbours.parent, lambda r: core.interests.targets_among([Orphan(child)], r)
        )
        core.requests.wait_for(child, header.asked)
        core.outbox.log(Level.INFO, "taken over", peer=child.node)
        if core.standby:  # those before it in the line have failed, too
            core.become_active()
            core.neighbourhood.add(core.new_own_link(core.neighbours.parent))

    def is_undecided(self, node: NodeId) -> bool:
        """Whether some do not know yet whose child this is, so that nobody stands in for it."""
        is_given = self._move is not None and node in [c.node for c in self._move.children]
        return (self.is_asking and is_given) or node in self._expected

    def on_child_came(self, child: Below) -> None:
        """A child is connected, of which nobody else may know yet that it is one."""
        if child.node in self._expected:
            self._make_known(child.node)
            self._core.reforming.tell_neighbourhood(child)

    def _make_known(self, node: NodeId) -> None:
        header, _ = self._expected.pop(node)
        self._core.neighbourhood.add_all((header.link, *header.links))

    def declines(self, link: LinkId, hello: Hello) -> bool:
        """Whether somebody comes who has not been handed over; then it will not be any more."""
        core = self._core
        known = core.neighbours.below.get(hello.node)
        if not hello.is_moving or (known is not None and known.has_joined):
            return False
        core.say_farewell(link, GoodbyeCode.DECLINED, f"{hello.node} has not been moved here")
        self.end_pause()
        return True

    @property
    def wake_at(self) -> float | None:
        """When a move takes too long, or is to be tried again."""
        if self._move is not None:
            return None if self.is_asking else self._move.deadline
        return self._next_try_at if self._wishes and not self.is_busy else None

    def on_tick(self) -> None:
        """Do not wait for ever for somebody to say how a move has ended."""
        core = self._core
        patience = core.limits.heartbeat_timeout_s
        for node, (_, since) in list(self._expected.items()):
            if self._pause is None and core.now - since > patience:
                self._make_known(node)
                core.reforming.tell_neighbourhood(None)
        if self._visits_since is not None and core.now - self._visits_since > patience:
            self.on_declined()

    # --- as the one who is moved ----------------------------------------------------------------

    def on_prepare(self, source: Neighbour, prepare: Prepare) -> None:
        """The parent is going to move this broker."""
        assert source.link is not None
        accepts = self._core.is_ready
        if accepts:
            self._prepared = (prepare.link, Life(source.node, source.incarnation))
            self._core.expect_move(prepare.link)
        self._core.outbox.send(source.link, Prepared(move=prepare.move, accepts=accepts))

    def on_moved(self, moved: Moved) -> None:
        """The parent has moved this broker: go on with the new one."""
        core = self._core
        parent = core.neighbours.parent
        link = moved.link
        core.neighbourhood.add(link)
        is_here = parent is not None and parent.node == link.parent
        if parent is None or is_here or core.neighbourhood.link_of(core.node) != link:
            return
        self._prepared = None
        core.hang_up(parent, GoodbyeCode.LEFT, "moved")
        core.become_child_of(link)
        core.reforming.tell_neighbourhood(parent)
        core.dial_parent(link.parent_address)

    @property
    def visits(self) -> TopologyLink | None:
        """Where this broker asks whether it has been moved, since its parent has failed."""
        return self._prepared[0] if self._visits_since is not None and self._prepared else None

    def on_parent_failed(self, parent: Above) -> bool:
        """Who was taken over will come. Returns whether to ask a taker before looking for a hub."""
        core = self._core
        for node in list(self._expected):
            self._make_known(node)
        if self._prepared is None:
            return False
        link, giver = self._prepared
        is_gone = core.neighbourhood.has_failed(Life(link.parent, link.parent_incarnation))
        if giver != Life(parent.node, parent.incarnation) or is_gone:
            self._prepared = self._visits_since = None
            return False
        if self._visits_since is None:
            self._visits_since = core.now
            core.dial_parent(link.parent_address)
        return True

    def on_welcomed_back(self, parent: Above) -> None:
        """The taker had taken this broker over before the giver failed."""
        link = self.visits
        if link is not None:
            self._prepared = self._visits_since = None
            self._core.neighbourhood.add(link)
            self._core.become_child_of(link)
            self._core.reforming.tell_neighbourhood(parent)

    def on_declined(self) -> None:
        """The taker had not; so this broker is an orphan as any other."""
        self._prepared = self._visits_since = None
        self._core.reforming.review()

    # --- those who look in the wrong place --------------------------------------------------------

    def redirects(self, link: LinkId, hello: Hello) -> bool:
        """Whether somebody comes who does not know yet who has moved where; then it is told."""
        core = self._core
        known = core.neighbourhood
        own = known.link_of(hello.node)
        if not hello.failed:
            is_former = (hello.peer, hello.peer_incarnation) == (core.node, core.incarnation)
            if (
                is_former
                and own is not None
                and own.incarnation == hello.incarnation
                and own.parent != core.node
            ):
                core.outbox.send(link, Moved(link=own))
                core.say_farewell(link, GoodbyeCode.ELSEWHERE, f"{hello.node} has moved")
                return True
            return False
        if hello.is_top or hello.peer not in {life.node for life in hello.failed}:
            return False  # it looks for nobody's place, or has found it already
        last = known.place_of(NodeId(hello.peer))
        if last is not None and last.incarnation > hello.peer_incarnation:
            return False  # the tree does without that one, and nobody takes its place any more
        failed = Life(NodeId(hello.peer), hello.peer_incarnation)
        if not known.has_failed(failed):
            return False  # it lives, and whoever has taken it for failed is forgotten there
        is_here = own is None or own.parent == hello.peer
        if is_here and core.reforming.has_replaced(failed):
            return False  # nobody else will
        region = known.failed_region(NodeId(hello.peer))
        hub = known.hub(region)
        if hub == core.node:
            return False
        if hub is None:
            # It may have taken this broker for the hub because of where it once was.
            place = known.link_of(core.node)
            if place is None or not place.moves or self._redirected.get(hello.node) == place.moves:
                return False
            self._redirected[hello.node] = place.moves
        reason = f"{hub or 'somebody else'} takes the place of {hello.peer}"
        core.reforming.send_to_hub(link, region, reason)
        return True


def _is_at_hand(neighbour: Below | None) -> bool:
    return neighbour is not None and neighbour.has_joined and neighbour.link is not None


def _confirmed_at(interests: Interests, claims: Iterable[Subscribe]) -> tuple[Asked, ...]:
    return tuple(interests.confirmed_at(claim.subscription for claim in claims))
