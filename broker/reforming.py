"""Brokers fail: whom this broker believes to have failed, and how the tree closes around the gap.

A failure is noticed when a neighbour's connection is lost and cannot be made again, when it is
silent for too long, or when somebody says so. From then on nobody here listens to that incarnation
any more, whatever it may still say: it is *buried*.

The nodes next to a connected set of failed brokers, its *boundary*, agree without a word on one of
them, the *hub*: the parent of the topmost failed broker, or, if that was the root, the first broker
of the boundary by name. The others become its children (`Attach`). When everybody has come whom the
hub knows to stand there, or is known to have failed as well, the hub puts together what is left of
the publications under way (`broker/reunion.py`), and the tree is whole again.

If more than δ brokers hang together that have failed, somebody may be missing whom nobody here
knows. Then nothing under way is delivered that might be out of order: both sides forget each other,
and what is left of the branch joins anew as a whole, wherever it can.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

import attrs

from broker.codec import decode_content
from broker.effects import Level, OpenLink
from broker.inputs import LinkId
from broker.messages import (
    Advertise,
    Attach,
    GoodbyeCode,
    Hello,
    Join,
    Message,
    Neighbourhood,
    NodeKind,
    Present,
    Subscribe,
    Summon,
)
from broker.names import digest_of
from broker.neighbours import UP, Above, Below, Neighbour, is_client
from broker.orphans import Orphan
from broker.reunion import Reunion
from broker.sequenced_reunion import SequencedReunion
from broker.ticks import tick_at
from faulttol.neighbourhood import Life, Place, TopologyLink
from routing.ids import NodeId

if TYPE_CHECKING:
    from broker.core import BrokerCore

PATIENCE_WITH_CLIENTS: Final = 1.25
PATIENCE: Final = 2.5
"""Heartbeat timeouts that a hub waits for those who do not come: they have to notice first. For a
broker longer, because giving it up means taking it for failed. With everybody who is found to have
failed as well it begins anew: others may have waited for that one before they come here."""


@attrs.frozen
class _Sought:
    """A hub, and what was known of it when it was dialled."""

    hub: NodeId
    place: Place
    link: TopologyLink | None


@attrs.define(eq=False)
class _Visit:
    """A connection that is made only to see whether somebody lives, and to tell it who does not."""

    life: Life
    link: LinkId | None = None
    is_repeated: bool = False
    asks: bool = False
    """Whether a stranger has spoken in its name, so that it is asked itself."""
    is_to_be_asked: bool = False
    """The same, but since it has been told something else."""
    is_doubted_since: bool = False
    """Somebody has said since that it has failed, which an answer does not disprove that was given
    before."""


@attrs.define(eq=False)
class _Gap:
    """A failed neighbour of this broker, which is the hub of the re-forming."""

    dead: Neighbour
    since: float
    visit_at: float
    deadline: float = 0.0
    deadline_of_clients: float = 0.0
    size: int = 0
    """How many have failed that hang together."""
    orphans: dict[NodeId, Orphan] = attrs.field(factory=dict)
    lost: set[NodeId] = attrs.field(factory=set)
    """Of the boundary, those that will not come."""

    def wait_from(self, now: float, timeout_s: float) -> None:
        """Give everybody time to come."""
        self.deadline = now + PATIENCE * timeout_s
        self.deadline_of_clients = now + PATIENCE_WITH_CLIENTS * timeout_s


class Reforming:
    """The failures that one broker knows of."""

    def __init__(self, core: "BrokerCore") -> None:
        """Begin with everybody alive."""
        self._core = core
        self._gaps: dict[NodeId, _Gap] = {}
        """By the direction of the failed neighbour."""
        self._visits: dict[str, _Visit] = {}
        """Whom this broker dials, by address, and has not heard of yet."""
        self._returning: list[tuple[LinkId, Hello, float]] = []
        """Greetings of brokers of which an earlier incarnation has failed, and since when."""
        self._waiting: list[tuple[LinkId, Hello]] = []
        """Greetings of orphans of this broker's own parent."""
        self._doubted: list[tuple[LinkId, Hello]] = []
        """Greetings of clients whose broker has failed, they say."""
        self._sought: _Sought | None = None
        """The hub that has been dialled."""
        self._orphaned_by: Life | None = None
        """Whose place a hub takes that has heard of this branch and has not taken it in yet."""
        self._replaced: dict[NodeId, int] = {}
        """Whose place this broker has taken as the hub; their incarnations."""
        self._sent_away: dict[NodeId, int] = {}
        """Who took this broker for the hub and has been told that it is not; their incarnations."""
        self._referred: dict[NodeId, Life] = {}
        """Clients that have been told who is above their broker, and which one that was."""
        self.reformed = 0
        self.circles = 0

    # --- who has failed -------------------------------------------------------------------------

    def suspect(self, life: Life, reason: str) -> bool:
        """Bury a node: whatever it was, it is so no more. Returns whether that was news."""
        core = self._core
        if life.node == core.node:
            if life.incarnation >= core.incarnation:
                core.fence(f"others take it for failed: {reason}")
            return False
        if not core.neighbourhood.bury(life):
            return False
        self._visits = {at: visit for at, visit in self._visits.items() if visit.life != life}
        core.outbox.log(Level.WARNING, "suspected", peer=life.node, reason=reason)
        core.outbox.record("suspected", about=life.node, members=[core.node], millis=0)
        neighbour = core.neighbours.named(life.node)
        if neighbour is not None and neighbour.incarnation <= life.incarnation:
            core.hang_up(neighbour, GoodbyeCode.FENCED, reason)
        for gap in self._gaps.values():
            orphan = gap.orphans.pop(life.node, None)
            if orphan is not None:
                core.hang_up(orphan.neighbour, GoodbyeCode.FENCED, reason)
        return True

    def review(self) -> None:
        """Somebody has failed or has come: find out what is to be done now."""
        core = self._core
        self._learn_own_place()
        self._step_down_if_superseded()
        parent = core.neighbours.parent
        if parent is not None and self._is_dead(parent) and parent.hop not in self._gaps:
            if core.is_ready:
                self._seek_hub(parent)
            else:
                core.cut_off("the join point has failed")
        for child in core.neighbours.children():
            if not self._is_dead(child) or child.hop in self._gaps:
                continue
            if not child.has_joined:
                core.forget_newcomer(child)
            elif not core.moving.is_undecided(child.node):
                self._open_gap(child)
        for gap in list(self._gaps.values()):
            self._close_gap_if_possible(gap)
        if self._waiting and (UP in self._gaps or not self.is_seeking):
            self._answer_waiting()
        self._answer_doubted()
        self._answer_returning()

    def _learn_own_place(self) -> None:
        """Giver and taker have failed, and others know that the taker had taken this broker over.

        What it stands next to is the taker, then, and perhaps not the giver any more.
        """
        core = self._core
        parent = core.neighbours.parent
        own = core.neighbourhood.link_of(core.node)
        if parent is None or own is None or own.is_root or self._orphaned_by is not None:
            return
        taker = Life(own.parent, own.parent_incarnation)
        if (
            taker.node != parent.node
            and self._is_dead(parent)
            and core.neighbourhood.has_failed(taker)
        ):
            core.become_child_of(own)

    def _is_dead(self, neighbour: Neighbour) -> bool:
        life = Life(neighbour.node, neighbour.incarnation)
        return self._core.neighbourhood.has_failed(life)

    @property
    def is_seeking(self) -> bool:
        """Whether the parent has failed and nobody has taken its place yet."""
        parent = self._core.neighbours.parent
        return parent is not None and parent.link is None and self._is_dead(parent)

    @property
    def who_has_failed(self) -> tuple[Life, ...]:
        """What a hub is told that is to take the parent's place, until it has."""
        known = self._core.neighbourhood
        return known.buried if self.is_seeking or self._orphaned_by else ()

    @property
    def is_busy(self) -> bool:
        """Whether there is a gap, above or below."""
        return bool(self._gaps) or self.is_seeking or self._orphaned_by is not None

    def describe(self) -> list[str]:
        """What is being waited for, in words."""
        texts = [
            f"{gap.dead.node} has failed, {', '.join(missing)} to come"
            for gap in self._gaps.values()
            if (missing := self._missing(gap))
        ]
        if self.is_seeking:
            texts.append("its parent has failed")
        return texts

    # --- as an orphan ---------------------------------------------------------------------------

    def _seek_hub(self, parent: Above) -> None:
        core = self._core
        if core.moving.on_parent_failed(parent):
            return
        region = core.neighbourhood.failed_region(parent.node)
        hub = core.neighbourhood.hub(region) if len(region) <= core.delta else None
        if hub is None:
            core.cut_off(f"{len(region)} brokers failed, δ is {core.delta}")
        elif hub == core.node and self._is_late:
            core.cut_off("somebody else is the root by now")
        elif hub == core.node:
            self._orphaned_by = self._sought = None
            core.stop_looking()
            self._open_gap(parent)
        else:
            place = core.neighbourhood.place_of(hub)
            assert place is not None
            if self._sought is None or self._sought.place != place:
                self._sought = _Sought(hub, place, core.neighbourhood.link_of(hub))
                core.dial_parent(place.address)

    @property
    def _is_late(self) -> bool:
        """Whether somebody has taken the root's place without this branch, or not knowing of it."""
        return self._core.neighbourhood.other_root() is not None

    def on_dial_failed(self, address: str, reason: str) -> None:
        """Nobody answers at the address of the parent, or of the hub that is to take its place."""
        core = self._core
        parent = core.neighbours.parent
        assert parent is not None
        if not self._is_dead(parent):
            self.suspect(Life(parent.node, parent.incarnation), reason)
        else:
            for life in core.neighbourhood.lives_at(address):
                self.suspect(life, reason)
        self.review()

    @property
    def expected_incarnation(self) -> int:
        """Of the parent, or of the hub that is to take its place."""
        if self.is_seeking:
            return self._sought.place.incarnation if self._sought is not None else 0
        parent = self._core.neighbours.parent
        return parent.incarnation if parent is not None else 0

    def on_no_hub(self, incarnation: int) -> None:
        """Who was to be the hub is not in the tree itself: somebody else is.

        It has not joined yet, and nobody stands behind it; or it has been restarted, and what it
        was before has failed, but who stood around that is to be known.
        """
        core = self._core
        sought, self._sought = self._sought, None
        if sought is not None:
            if sought.place.incarnation < incarnation:
                self.suspect(Life(sought.hub, sought.place.incarnation), "it has been restarted")
            elif core.neighbourhood.link_of(sought.hub) == sought.link:  # or it has joined by now
                core.neighbourhood.remove(sought.hub)
            self.review()

    def on_cut_off(self) -> None:
        """Nobody adopts this branch: it joins anew, and whoever has failed is not its concern."""
        self._orphaned_by = None
        self._sought = None

    def seek_again(self) -> None:
        """Somebody knows better who stands around the failed, and has told."""
        self._sought = None
        self.review()

    def on_sent_away(self, sent: Summon) -> None:
        """Who was to be the hub knows that somebody else is, and of whom else to think."""
        core = self._core
        parent = core.neighbours.parent
        if parent is None:
            return  # it looked for a join point, not for a hub
        if self._orphaned_by is not None and not self._is_dead(parent):
            core.hang_up(parent, GoodbyeCode.LEFT, "sent to another hub")
            parent.node, parent.incarnation = attrs.astuple(self._orphaned_by)
            self._orphaned_by = None
        self._believe(sent)
        self.seek_again()

    def attach(self, parent: Above, failed: Life) -> None:
        """A hub has answered and waits for everything that passed between the old parent and us."""
        core = self._core
        assert parent.link is not None
        failed = self._orphaned_by = self._orphaned_by or failed
        self._sought = None
        core.take_over_if_first()
        around = core.neighbourhood.for_newcomer(brokers_only=False)  # from the old place
        own = core.new_own_link(parent)  # which is so only when the hub has said it, to everybody
        received, sent, settled, had = core.publications.begin_anew_above(parent)
        kept = {publication.content for publication in (*received, *sent)}
        advertisements, subscriptions = core.interests.claims_above(map(decode_content, kept))
        contents = {publication.content for publication in sent}
        claims = [
            *(advertise.advertisement for advertise in advertisements),
            *(subscribe.subscription for subscribe in subscriptions),
        ]
        attach = Attach(
            now=next(core.neighbours.clock),
            advertisements=len(advertisements),
            subscriptions=tuple(core.interests.confirmed_at(s.subscription for s in subscriptions)),
            received=len(received),
            sent=tuple(tick_at(arrival.since) for arrival in parent.sent.keep()),
            links=(*(link for link in around if link.child != core.node), own),
            seen=core.publications.last_seen,
            stable=core.publications.lately_stable,
            place=core.publications.place,
            settled=settled,
            had=had,
            failed=(failed,),
            confirmed=core.requests.ticks.of(failed, claims),
            learnt=core.interests.learnt_from_above(map(decode_content, contents)),
        )
        messages: list[Message] = [attach, *advertisements, *subscriptions, *received, *sent]
        for message in messages:
            core.outbox.send(parent.link, message)
        core.requests.send_again(parent, core.now)
        self.tell_neighbourhood_to(parent)
        core.outbox.log(Level.INFO, "attached", hub=parent.node, sent=len(sent))

    # --- as the hub -----------------------------------------------------------------------------

    def _open_gap(self, dead: Neighbour) -> None:
        now, limits = self._core.now, self._core.limits
        gap = _Gap(dead, since=now, visit_at=now + limits.redial_first_s)
        gap.wait_from(now, limits.heartbeat_timeout_s)
        self._gaps[dead.hop] = gap
        self._core.moving.end_pause()  # what the orphans bring is new, and cannot wait outside

    def _region(self, gap: _Gap) -> list[NodeId]:
        return self._core.neighbourhood.failed_region(gap.dead.node)

    def _missing(self, gap: _Gap) -> list[NodeId]:
        """Who stands next to the gap and has not come yet."""
        around = dict.fromkeys(self._core.neighbourhood.boundary(self._region(gap)))
        around |= dict.fromkeys(gap.orphans)
        return [
            node
            for node in around
            if node != self._core.node
            and node not in gap.lost
            and not (node in gap.orphans and gap.orphans[node].is_complete)
        ]

    def _gap_of(self, node: NodeId, incarnation: int) -> _Gap | None:
        place = self._core.neighbourhood.place_of(node)
        if place is None or place.incarnation != incarnation:
            return None
        for gap in self._gaps.values():
            if node not in gap.lost and node in self._core.neighbourhood.boundary(
                self._region(gap)
            ):
                return gap
        return None

    def on_hello(self, link: LinkId, hello: Hello) -> bool:
        """Someone asks to be adopted. Returns whether it is; None of this is for newcomers."""
        core = self._core
        claimed = [life for life in map(self._as_seen, hello.failed) if life.node != core.node]
        unknown = [life for life in claimed if not core.neighbourhood.has_failed(life)]
        place = core.neighbourhood.place_of(hello.node)
        if hello.kind is NodeKind.CLIENT:
            broker = Life(NodeId(hello.peer), hello.peer_incarnation)
            if broker in unknown and self._refers(link, hello, broker):
                return True
        elif place is not None and place.incarnation == hello.incarnation:
            for life in map(self._as_seen, hello.failed):
                self.suspect(life, f"so says {hello.node}")
            self.review()
            return False
        for life in unknown:
            self._visit(life)
        self.review()
        if self._is_visiting(unknown):
            self._doubted.append((link, hello))
            return True
        return False

    def _as_seen(self, life: Life) -> Life:
        """What somebody says of a life is true at most of the last one that is known here.

        Nobody is buried in an incarnation that has never been: it could not come back before that.
        """
        place = self._core.neighbourhood.place_of(life.node)
        if place is None or place.incarnation >= life.incarnation:
            return life
        return Life(life.node, place.incarnation)

    def _refers(self, link: LinkId, hello: Hello, broker: Life) -> bool:
        """Whether a client says that its broker has failed, and does not know who is above that.

        It is told so at once. Whether its broker lives is seen there: the hub may see it before
        this broker, and does not wait for its clients as long as it takes to see it here as well.
        It is told once; if it comes again all the same, what it says is looked into.
        """
        known = self._core.neighbourhood
        region = known.failed_region(broker.node, doubted=hello.failed)
        hub = known.hub(region)
        if hub in (None, self._core.node) or self._referred.get(hello.node) == broker:
            return False
        self._referred[hello.node] = broker
        self.send_to_hub(link, region, f"{hub} is above {broker.node}")
        return True

    def has_orphan(self, node: NodeId) -> bool:
        """Whether a node is here whose broker has failed, and waits for its place."""
        return any(node in gap.orphans for gap in self._gaps.values())

    def receive_orphan(self, link: LinkId, hello: Hello) -> Below | None:
        """Take in an orphan, if it is one of ours."""
        gap = self._gap_of(hello.node, hello.incarnation)
        if gap is None:
            return None
        neighbour = Below(
            node=hello.node,
            incarnation=hello.incarnation,
            link=link,
            kind=hello.kind,
            address=hello.address,
            published=hello.past.published,
            key=digest_of(hello.past.secret),
        )
        gap.orphans[hello.node] = Orphan(neighbour, welcomed_at=next(self._core.neighbours.clock))
        self._sent_away.pop(hello.node, None)
        self._referred.pop(hello.node, None)
        return neighbour

    def postpones(self, link: LinkId, hello: Hello) -> bool:
        """Whether a broker that is back has to wait until the tree does without what it was."""
        core = self._core
        place = core.neighbourhood.place_of(hello.node)
        if hello.kind is not NodeKind.BROKER or core.delta == 0:
            return False
        if place is None or place.incarnation >= hello.incarnation:
            return False
        self._returning.append((link, hello, core.now))
        self.suspect(Life(hello.node, place.incarnation), "it has been restarted")
        self.review()
        return True

    def _answer_returning(self) -> None:
        """Greet those who are back and whom nobody takes for what they were any more."""
        core = self._core
        returning, self._returning = self._returning, []
        for link, hello, since in returning:
            is_over = core.now - since > PATIENCE * core.limits.heartbeat_timeout_s
            if core.neighbourhood.place_of(hello.node) is None or is_over:
                core.greet_again(link, hello)
            else:
                self._returning.append((link, hello, since))

    def keep_waiting(self, link: LinkId, hello: Hello) -> None:
        """Somebody takes this broker for the hub, which does not know yet whether it is."""
        self._waiting.append((link, hello))

    def has_replaced(self, failed: Life) -> bool:
        """Whether this broker has been the hub in its place: who has not come then is too late."""
        return self._replaced.get(failed.node) == failed.incarnation

    def _step_down_if_superseded(self) -> None:
        """More have failed around this hub, and by name somebody else is the first around them."""
        core = self._core
        gap = self._gaps.get(UP)
        if gap is None:
            return
        region = self._region(gap)
        if len(region) > core.delta or core.neighbourhood.hub(region) in (None, core.node):
            return
        del self._gaps[UP]
        core.outbox.log(Level.INFO, "not the hub any more", around=gap.dead.node)
        for orphan in gap.orphans.values():
            self._send_orphan_away(orphan, region)

    def _send_strays_away(self, gap: _Gap, region: list[NodeId]) -> None:
        """Some orphans are of a region of its own, with another hub: their parent had moved.

        They had not heard of that, nor had this broker when it took them in.
        """
        around = self._core.neighbourhood.boundary(region)
        for node in [node for node in gap.orphans if node not in around]:
            parent = self._core.neighbourhood.parent_of(node)
            elsewhere = self._region_of_another_hub(parent) if parent is not None else []
            if elsewhere:
                self._send_orphan_away(gap.orphans.pop(node), elsewhere)

    def _send_orphan_away(self, orphan: Orphan, region: list[NodeId]) -> None:
        neighbour = orphan.neighbour
        assert neighbour.link is not None
        self._sent_away[neighbour.node] = neighbour.incarnation
        self._tell_who_failed(neighbour.link, region)
        self._core.hang_up(neighbour, GoodbyeCode.ELSEWHERE, "there is another hub")

    def sends_away(self, link: LinkId, hello: Hello) -> bool:
        """Whether somebody looks for the hub here and is told at once that it is somebody else.

        It is told once who this broker knows to have failed. If it comes again all the same, it
        knows something else that this broker does not know yet, and may be right.
        """
        core = self._core
        was_orphan = (hello.peer, hello.peer_incarnation) == (core.node, core.incarnation)
        was_told = self._sent_away.get(hello.node) == hello.incarnation
        if was_orphan != was_told:
            return False
        parent = core.neighbours.parent
        if was_told or self._sought is not None:
            region = [] if parent is None else core.neighbourhood.failed_region(parent.node)
        else:
            region = self._region_of_another_hub(NodeId(hello.peer)) if UP in self._gaps else []
            if not region:
                return False
        self._sent_away[hello.node] = hello.incarnation
        self.send_to_hub(link, region, "there is another hub")
        return True

    def _region_of_another_hub(self, failed: NodeId) -> list[NodeId]:
        """The region of somebody who has failed, if its hub is known to be somebody else.

        Who stands around it must not wait here until this hub's own region is whole: the other hub
        may not wait as long.
        """
        known = self._core.neighbourhood
        region = known.failed_region(failed) if known.is_buried(failed) else []
        is_elsewhere = region and known.hub(region) not in (None, self._core.node)
        return region if is_elsewhere else []

    def disowns(self, link: LinkId, hello: Hello) -> bool:
        """Whether somebody takes this broker for the hub that never stood next to who has failed.

        It may have begun to join there. It says so once, as above.
        """
        core = self._core
        failed = Life(NodeId(hello.peer), hello.peer_incarnation)
        is_concerned = failed not in hello.failed or self.has_replaced(failed)
        if is_concerned or core.neighbourhood.place_of(failed.node) is not None:
            return False
        if hello.is_top or self._sent_away.get(hello.node) == hello.incarnation:
            return False
        self._sent_away[hello.node] = hello.incarnation
        reason = f"{core.node} does not stand around {failed.node}"
        core.say_farewell(link, GoodbyeCode.STRANDED, reason)
        return True

    def _tell_who_failed(self, link: LinkId, region: list[NodeId]) -> None:
        """Let an orphan of this region find the hub that this broker would ask in its place."""
        core = self._core
        failed, links = core.neighbourhood.buried, core.neighbourhood.around(region)
        core.outbox.send(link, Summon(hub=core.node, failed=failed, address="", links=links))

    def send_to_hub(self, link: LinkId, region: list[NodeId], reason: str) -> None:
        """Somebody looks for the hub of this region in vain here: it is told all it needs."""
        self._tell_who_failed(link, region)
        self._core.say_farewell(link, GoodbyeCode.ELSEWHERE, reason)

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for link, hello in waiting:
            self._core.greet_again(link, hello)

    def give_up_on(self, node: NodeId) -> None:
        """Somebody who stood next to a gap has begun anew, and brings nothing along."""
        for gap in self._gaps.values():
            is_given_up = node in gap.lost and node not in gap.orphans
            if not is_given_up and node in self._core.neighbourhood.boundary(self._region(gap)):
                self._note_loss(gap, node)
                gap.orphans.pop(node, None)
                gap.visit_at = self._core.now

    def _give_up_on_newcomers(self) -> None:
        """Who asks to join somewhere has begun anew; and all have to answer, also those who wait.

        But who has come here as an orphan is not who asks there under its name.
        """
        for claim in self._core.requests.claims():
            if not self.has_orphan(claim.node):
                self.give_up_on(claim.node)

    def on_orphan_message(self, neighbour: Below, message: Message) -> None:
        """An orphan tells what it knows."""
        for gap in self._gaps.values():
            orphan = gap.orphans.get(neighbour.node)
            if orphan is not None and orphan.neighbour is neighbour:
                was_complete = orphan.is_complete
                if isinstance(message, Advertise | Subscribe):
                    self._core.interests.require_readable(message)
                orphan.take(message, next(self._core.neighbours.clock))
                if self._learn_who_moved(orphan, message) or orphan.is_complete != was_complete:
                    self._close_gap_if_possible(gap)
                return

    def _learn_who_moved(self, orphan: Orphan, message: Message) -> bool:
        """Who has joined an orphan in the meantime is not waited for."""
        others: list[TopologyLink] = []
        match message:
            case Attach(links=links) | Neighbourhood(links=links):
                others = [link for link in links if link.child != orphan.neighbour.node]
            case Join(link=link):
                others = [link]
        is_news = self._core.neighbourhood.add_all(others)
        self._learn_own_place()
        return is_news

    def on_orphan_lost(self, neighbour: Below) -> None:
        """The connection of an orphan is gone; it will come again, or somebody will miss it."""
        for gap in self._gaps.values():
            orphan = gap.orphans.get(neighbour.node)
            if orphan is not None and orphan.neighbour is neighbour:
                del gap.orphans[neighbour.node]
                gap.visit_at = self._core.now + self._core.limits.redial_first_s

    def _close_gap_if_possible(self, gap: _Gap) -> None:
        core = self._core
        if self._gaps.get(gap.dead.hop) is not gap:
            return  # it has been closed on the way
        if core.moving.is_asking:
            return  # nothing may be sent to those who take part
        self._give_up_on_newcomers()
        region = self._region(gap)
        if len(region) > gap.size:
            gap.size = len(region)
            gap.wait_from(core.now, core.limits.heartbeat_timeout_s)
        if len(region) > core.delta:
            self._abandon(gap, f"{len(region)} brokers failed, δ is {core.delta}")
        elif isinstance(gap.dead, Above) and self._is_late:
            self._abandon(gap, "somebody else is the root by now")
        else:
            self._send_strays_away(gap, region)
            if not self._missing(gap):
                self._close(gap, region)

    def _abandon(self, gap: _Gap, reason: str) -> None:
        """Too many have failed: nobody is adopted, and those who ask are to join anew."""
        core = self._core
        del self._gaps[gap.dead.hop]
        for orphan in gap.orphans.values():
            core.hang_up(orphan.neighbour, GoodbyeCode.LEFT, reason)
        if isinstance(gap.dead, Above):
            core.cut_off(reason)
        else:
            core.drop(gap.dead, reason)
        self._answer_returning()

    def _close(self, gap: _Gap, region: list[NodeId]) -> None:
        """Everybody is there: the tree becomes whole."""
        core = self._core
        dead = gap.dead
        del self._gaps[dead.hop]
        orphans = [gap.orphans[name] for name in sorted(gap.orphans)]
        successions = list(self._successions(region, list(gap.orphans)))
        for orphan in orphans:
            orphan.neighbour.came_from = core.neighbourhood.parent_of(orphan.neighbour.node)
        core.take_out_of_tree(dead)
        for orphan in orphans:
            if isinstance(dead, Below):
                orphan.neighbour.adopted_from = dead.lane
            core.take_into_tree(orphan.neighbour)
            assert orphan.attach is not None
            core.neighbourhood.add_all(_with_key(orphan))
            core.note_standby(orphan.neighbour)
        core.names.on_adopted(gap.orphans)
        core.neighbourhood.close(region)
        self._replaced |= {
            life.node: life.incarnation for life in core.neighbourhood.buried if life.node in region
        }
        adoption = core.interests.adopt(dead, orphans)
        self.tell_neighbourhood(None)
        reunion = (
            SequencedReunion(core.publications, dead, orphans, now=core.now)
            if core.publications.ordering.settles_at_root
            else Reunion(core.publications, dead, orphans, now=core.now, since=adoption.since)
        )
        self.circles += reunion.run()
        core.publications.note_stable(
            last for orphan in orphans if orphan.attach for last in orphan.attach.stable
        )
        core.interests.draw_towards(adoption.unfinished_advertisements, core.now)
        core.requests.redirect(
            dead, lambda request: core.interests.targets_among(orphans, request), core.now
        )
        core.interests.withdraw_unclaimed(adoption, core.now)
        for node in sorted(gap.lost):
            core.interests.spread_withdrawal(node, core.now)
        self.reformed += 1
        members = [orphan.neighbour.node for orphan in orphans]
        millis = round(1000 * (core.now - gap.since), 3)
        core.outbox.log(Level.WARNING, "re-formed", around=dead.node, members=", ".join(members))
        core.outbox.record(
            "reformed", about=dead.node, members=[core.node, *members], millis=millis
        )
        for orphan in orphans:
            for message in orphan.said:
                core.hear(orphan.neighbour, message)
        self._answer_returning()
        for standby, children in successions:
            core.moving.want(standby, children)

    def _successions(
        self, region: list[NodeId], orphans: list[NodeId]
    ) -> Iterator[tuple[NodeId, list[NodeId]]]:
        """Who stood by for whom, and whom it is to have below it instead of the hub."""
        known = self._core.neighbourhood
        for failed in region:
            line = known.standbys_of(failed)
            standby = next((name for name in line if name in orphans), None)
            children = [name for name in orphans if known.parent_of(name) == failed]
            if standby is not None and self._core.node not in line and len(children) > 1:
                yield standby, [name for name in children if name != standby]

    # --- telling others -------------------------------------------------------------------------

    def on_neighbourhood(self, source: Neighbour, told: Neighbourhood) -> None:
        """A neighbour tells how the tree looks around it."""
        core = self._core
        is_adopted = False
        if isinstance(source, Above) and self._orphaned_by is not None:
            is_adopted, self._orphaned_by = True, None
            self.tell_what_is_known_to(source)
        gone = list(map(self._as_seen, told.closed))
        suspected = [self.suspect(life, f"so says {source.node}") for life in gone]
        news = core.neighbourhood.add_all(told.links) or any(suspected) or is_adopted
        concerned = {node for gap in self._gaps.values() for node in self._region(gap)}
        if self.is_seeking and core.neighbours.parent is not None:
            concerned.update(core.neighbourhood.failed_region(core.neighbours.parent.node))
        closed = [node for node in core.neighbourhood.still_gone(gone) if node not in concerned]
        if core.neighbourhood.close(closed) or news:
            self.tell_neighbourhood(source)
        self.review()

    def tell_what_is_known_to(self, parent: Above) -> None:
        """Let the parent compare; it may have been lost, so again with every new connection."""
        for known in self._core.interests.known_from_above():
            self._core.publications.send(parent, known)

    def tell_neighbourhood(self, source: Neighbour | None) -> None:
        """Tell every neighbour but one how the tree looks from here."""
        core = self._core
        for neighbour in core.neighbours.others(source):
            self.tell_neighbourhood_to(neighbour)

    def tell_neighbourhood_to(self, neighbour: Neighbour) -> None:
        """Tell one neighbour; who is absent is told when it comes back."""
        known = self._core.neighbourhood
        links = known.for_newcomer(brokers_only=is_client(neighbour))
        if neighbour.link is not None:
            self._core.outbox.send(neighbour.link, Neighbourhood(links=links, closed=known.closed))

    def visit_child(self, child: Below) -> None:
        """The connection to a child is lost: see whether it lives."""
        if child.kind is NodeKind.BROKER and child.address:
            self._visit(Life(child.node, child.incarnation))

    def _visit(self, life: Life, *, asks: bool = False) -> None:
        core = self._core
        place = core.neighbourhood.place_of(life.node)
        if place is None or place.incarnation != life.incarnation or not place.address:
            return
        if core.neighbourhood.has_failed(life):
            return
        under_way = self._visits.get(place.address)
        if under_way is None:
            self._visits[place.address] = _Visit(life, asks=asks)
            core.outbox.add(OpenLink(place.address))
        elif under_way.link is None:
            under_way.asks |= asks
        elif asks:
            under_way.is_to_be_asked = True
        else:
            under_way.is_doubted_since = True

    def _is_visiting(self, lives: Iterable[Life]) -> bool:
        return any(visit.life in lives for visit in self._visits.values())

    def is_visit(self, address: str) -> bool:
        """Whether this broker dialled only to see whether somebody lives there."""
        visit = self._visits.get(address)
        return visit is not None and visit.link is None

    def on_visit_failed(self, address: str, reason: str) -> None:
        """Nobody lives there."""
        visit = self._visits.pop(address, None)
        if visit is not None:
            self.suspect(visit.life, reason)
        self.review()

    def on_visit(self, link: LinkId, address: str) -> None:
        """A connection is there: tell whoever lives there what it may not have noticed."""
        core, visit = self._core, self._visits[address]
        visit.link = link
        if visit.asks:
            core.outbox.send(link, Summon(hub=core.node, failed=(), address=""))
        else:
            core.outbox.send(link, self._verdict())

    def _verdict(self) -> Summon:
        """Who has failed, and who stands around the gaps here."""
        core = self._core
        known = core.neighbourhood
        regions = [self._region(gap) for gap in self._gaps.values()]
        around = dict.fromkeys(chain.from_iterable(map(known.around, regions)))
        return Summon(hub=core.node, failed=known.buried, address=core.address, links=tuple(around))

    def answer(self, link: LinkId, summon: Summon) -> None:
        """Somebody came to see whether this broker lives, and where, or to ask what it knows."""
        core = self._core
        own, parent = core.neighbourhood.link_of(core.node), core.neighbours.parent
        if not summon.failed:
            core.outbox.send(link, self._verdict())
        elif (
            own is not None
            and own.moves
            and parent is not None
            and parent.node != summon.hub
            and not self.is_seeking
        ):
            core.outbox.send(link, Summon(hub=core.node, failed=(), address="", links=(own,)))
        core.outbox.send(link, Present(node=core.node, incarnation=core.incarnation))

    def on_answer(self, link: LinkId, told: Summon) -> None:
        """Who has been visited, where it is known to be, tells what it knows."""
        if self._visit_by(link)[1] is not None:
            self._believe(told)

    def on_present(self, link: LinkId, found: Life) -> None:
        """Somebody lives there; perhaps even the one that was visited."""
        address, visit = self._visit_by(link)
        if visit is None:
            return
        del self._visits[address]
        if found != visit.life:
            self.suspect(visit.life, f"{found.node}, incarnation {found.incarnation}, is there")
        elif visit.is_to_be_asked or visit.is_doubted_since:
            self._visit(visit.life, asks=visit.is_to_be_asked)
        self.review()

    def on_no_answer(self, link: LinkId) -> None:
        """It has closed the connection without a word: if it has died, nobody answers any more."""
        address, visit = self._visit_by(link)
        if visit is None:
            return
        if visit.is_repeated:
            self.on_visit_failed(address, "it closes connections without a word")
        else:
            visit.link, visit.is_repeated = None, True
            self._core.outbox.add(OpenLink(address))

    def on_silent_visit(self, link: LinkId, reason: str) -> None:
        """The operating system has accepted for it, and that is all."""
        address, visit = self._visit_by(link)
        if visit is None:
            return
        if self._core.delta > 0:
            self.on_visit_failed(address, reason)
        else:
            del self._visits[address]  # without δ, who is stopped is waited for

    def _visit_by(self, link: LinkId) -> tuple[str, _Visit | None]:
        for address, visit in self._visits.items():
            if visit.link == link:
                return address, visit
        return "", None

    def on_summon(self, summon: Summon) -> None:
        """A hub waits for this broker, perhaps; who says so has not greeted, and may be anybody.

        So nothing of it is believed. If there is such a hub, it is asked, where it is known to be.
        """
        core = self._core
        core.join_instead(summon.address)
        place = core.neighbourhood.place_of(summon.hub)
        if summon.failed and place is not None and summon.hub != core.node:
            self._visit(Life(summon.hub, place.incarnation), asks=True)

    def _believe(self, summon: Summon) -> None:
        """Take in who stands where, and who has failed: also who stands elsewhere since."""
        known = self._core.neighbourhood
        for link in summon.links:
            before = known.place_of(link.child)
            if before is not None and before.incarnation < link.incarnation:
                self.suspect(Life(link.child, before.incarnation), "it has been restarted")
        known.add_all(summon.links)  # those of the failed as well, before they are buried
        for life in map(self._as_seen, summon.failed):
            self.suspect(life, f"so says {summon.hub}")

    def _answer_doubted(self) -> None:
        """Clients that say their broker has failed are answered when that is known."""
        doubted, self._doubted = self._doubted, []
        for link, hello in doubted:
            if self._is_visiting(hello.failed):
                self._doubted.append((link, hello))
            else:
                self._core.greet_again(link, hello)

    # --- time -----------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When something is due."""
        times = [
            min(gap.visit_at, gap.deadline, gap.deadline_of_clients) for gap in self._gaps.values()
        ]
        return min(times, default=None)

    def on_timer(self) -> None:
        """Look after those who have not come."""
        core = self._core
        if self._gaps:
            self._give_up_on_newcomers()
        for gap in list(self._gaps.values()):
            if gap.dead.hop not in self._gaps:
                continue
            missing = self._missing(gap)
            is_time_to_visit = core.now >= gap.visit_at
            if is_time_to_visit:
                gap.visit_at = core.now + core.limits.redial_last_s
            if core.now >= gap.deadline:
                self._give_up_waiting(gap, missing)
            elif core.now >= gap.deadline_of_clients:
                gap.deadline_of_clients = gap.deadline
                for node in missing:
                    if not self._is_broker(node):
                        self._lose(gap, node, "did not come to the hub in time")
                self._close_gap_if_possible(gap)
            elif not missing:
                self._close_gap_if_possible(gap)
            elif is_time_to_visit:
                for node in missing:
                    place = core.neighbourhood.place_of(node)
                    if place is not None and node not in gap.orphans:
                        self._visit(Life(node, place.incarnation))

    def _give_up_waiting(self, gap: _Gap, missing: list[NodeId]) -> None:
        core = self._core
        patience = PATIENCE * core.limits.heartbeat_timeout_s
        gap.deadline = gap.deadline_of_clients = core.now + patience
        for node in missing:
            place = core.neighbourhood.place_of(node)
            if place is not None and self._is_broker(node):
                self.suspect(Life(node, place.incarnation), "did not come to the hub")
            else:
                self._lose(gap, node, "did not come to the hub")
        self.review()

    def _lose(self, gap: _Gap, node: NodeId, reason: str) -> None:
        """Go on without a client."""
        self._note_loss(gap, node)
        orphan = gap.orphans.pop(node, None)
        if orphan is not None:
            self._core.hang_up(orphan.neighbour, GoodbyeCode.LEFT, reason)

    def _note_loss(self, gap: _Gap, node: NodeId) -> None:
        gap.lost.add(node)
        core = self._core
        millis = round(1000 * (core.now - gap.since), 3)
        core.outbox.record("suspected", about=node, members=[core.node], millis=millis)

    def _is_broker(self, node: NodeId) -> bool:
        place = self._core.neighbourhood.place_of(node)
        return place is not None and bool(place.address)


def _with_key(orphan: Orphan) -> Iterator[TopologyLink]:
    """What an orphan has told of the tree; a client's place goes with what it proves itself by."""
    assert orphan.attach is not None
    key = orphan.neighbour.key
    for link in orphan.attach.links:
        yield attrs.evolve(link, key=key) if key else link
