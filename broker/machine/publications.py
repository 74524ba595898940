"""Publications at one broker: who wants them, settling them, and keeping them until stable.

This is the hot path. `on_publish` runs once per publication, `_settle` touches every receiver, and
`flush` does once per step what need not be done once per publication.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any, ClassVar

import attrs

from plait.broker.codec import decode_content
from plait.broker.effects import SendMessage
from plait.broker.errors import RemoteProtocolError
from plait.broker.limits import Limits
from plait.broker.machine.counting import Counters
from plait.broker.machine.interests import FLOODING, Interests
from plait.broker.machine.neighbours import (
    UP,
    Above,
    Arrival,
    Below,
    Neighbour,
    Neighbours,
    Progress,
    Route,
    is_client,
)
from plait.broker.machine.steps import Steps
from plait.broker.messages import Flag, Message, NodeKind, Publish, Settled
from plait.broker.outbox import Outbox
from plait.faulttol.stability import StreamAbove, StreamBelow
from plait.faulttol.steplog import Entry, Key, StepLog
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.orderings import Ordering
from plait.routing.tables import Advertisement, Subscription
from plait.routing.topics.protocol import Topic


@attrs.define(eq=False)
class Delayed:
    """A message that must not overtake these publications."""

    unsettled: set[int]
    neighbour: Neighbour
    message: Message
    about: Advertisement | Subscription | None


@attrs.frozen
class Remembered:
    """What is known of a publication that is taken in again, in a step that is taken again."""

    number: int
    """By which the neighbour knows it: what came before it may be forgotten here."""
    has_waited: bool
    """Whether it waited for the parent, and so was sent there, whoever wanted it."""


class Publications:
    """The publications under way at one broker."""

    can_begin_anew: ClassVar = True
    """Whether it knows how to go on when more than δ have failed."""
    is_told_everywhere: ClassVar = False
    """Whether every broker has to know every subscription."""

    def __init__(
        self,
        *,
        ordering: Ordering[Arrival],
        limits: Limits,
        neighbours: Neighbours,
        interests: Interests,
        steps: Steps,
        outbox: Outbox,
        counters: Counters,
    ) -> None:
        """Begin with none."""
        self.ordering = ordering
        self.counters = counters
        self.unstable = 0
        """How many are kept because they are not stable."""
        self.flush_at: float | None = None
        """When progress is to be told that does not hurry."""
        self._limits = limits
        self.neighbours = neighbours
        self.interests = interests
        self._steps = steps
        self._outbox = outbox
        self._touched: dict[NodeId, Below] = {}
        """Neighbours below for whom something may have become stable in this step."""
        self._touched_routes: dict[Route, None] = {}
        """The same, by routes: one entry for many publications that went the same ways."""
        self.awaiting: dict[int, Arrival] = {}
        """What waits for the parent, by its number in the stream up."""
        self._delayed: deque[Delayed] = deque()
        self._of_the_gone: list[list[Arrival]] = []
        """What came from each neighbour that is none any more, and was not stable then."""
        self._lazy: dict[NodeId, Neighbour] = {}
        """Neighbours to be told of progress, sooner or later."""

    @property
    def topics_managed(self) -> int:
        """Of how many topics the manager is here, where topics are ordered."""
        return 0

    # --- on their way -----------------------------------------------------------------------

    def on_publish(
        self,
        source: Neighbour,
        publication: Publish,
        now: float,
        remembered: Remembered | None = None,
    ) -> None:
        """Take in a publication: find out who wants it, and settle what may be settled."""
        counters = self.counters
        counters.received += 1
        route = self._route(source, publication)
        if remembered is not None and remembered.has_waited and not route.climbs:
            route = attrs.evolve(route, climbs=True)
        if is_client(source):
            assert isinstance(source, Below)
            _require_publishable(source, publication, route)
        if route.down or route.climbs:
            counters.matched += 1
        flags = publication.flags
        is_awaited = flags & Flag.AWAITED != 0
        if is_awaited:
            publication = publication.with_flags(flags & ~Flag.AWAITED)
        arrival = Arrival(
            publication,
            1 + len(route.down),
            source=source,
            route=route,
            step=self._steps.number,
            is_urgent=flags & Flag.URGENT != 0,
            is_awaited=is_awaited,
            waits=(route.conflicts_if_awaited if is_awaited else route.conflicts)
            and not flags & Flag.UNORDERED,
            since=now,
        )
        arrival.has_waited = arrival.waits
        self._note_arrival(arrival)
        self.unstable += 1
        if isinstance(source, Above):
            source.received.append(arrival)
        elif source.kind is NodeKind.CLIENT:
            # A client has settled what it publishes by publishing it.
            source.received.append_confirmed(arrival)
        else:
            arrival.missing += 1
            source.received.append(arrival)
        if is_awaited:
            arrival.number = remembered.number if remembered else source.received.count
        if route.climbs:
            self._climb(arrival)
        settled = self.ordering.arrived(arrival)
        if not settled:
            self._steps.note_held(arrival)
        order = self._steps.order
        for each in settled:
            if order is not None:
                order.append(each.key)
            self._settle(each)

    def _note_arrival(self, arrival: Arrival) -> None:
        """A publication is here, and nothing has been done about it."""

    def _climb(self, arrival: Arrival) -> None:
        """Send a publication up, before and whether or not it is settled here."""
        parent = self.neighbours.parent
        assert parent is not None
        parent.sent.append(arrival)
        if arrival.waits:
            self.awaiting[parent.sent.count] = arrival
        self._steps.touch(parent)
        if parent.link is not None:
            self.counters.sent += 1
            self._outbox.send(parent.link, arrival.towards(parent))

    def on_settled(self, source: Neighbour, number: int) -> None:
        """The parent has settled a publication that waits for it: now it is this broker's turn."""
        arrival = self.awaiting.pop(number, None)
        if arrival is not None:
            self.acknowledge(arrival)
        elif not isinstance(source, Above) or number > source.sent.count:
            raise RemoteProtocolError(f"publication {number} is settled, which was never sent up")
        # Else it waited in a former life, and came from a client that failed with that.

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """A message that only some other ordering has a meaning for."""
        raise RemoteProtocolError(
            f"{type(notice).__name__} of {source.node} under ordering {self.ordering.name}"
        )

    def acknowledge(self, arrival: Arrival) -> None:
        """The parent has settled it, and it need not wait for that any more."""
        settled = self.ordering.acknowledged(arrival)
        now, hold_times = self.counters.clock(), self.counters.hold_times
        hold_times.note_acknowledged(arrival, now)
        hold_times.note_released(settled, now)
        for each in settled:
            self.release(each)

    def release(self, arrival: Arrival) -> None:
        """Settle what had been held before."""
        if self._steps.order is None:
            self._steps.order = self._settled_on_arrival()
        self._steps.order.append(arrival.key)
        self._settle(arrival)

    def _settled_on_arrival(self) -> list[Key]:
        """What has been settled in this step so far: only what arrived in it."""
        source = self.neighbours.named(self._steps.source)
        if source is None:
            return []
        stream, number = source.received, self._steps.number
        latest = chain(reversed(stream.unconfirmed), reversed(stream.confirmed))
        arrived = takewhile(lambda arrival: arrival.step == number, latest)
        return [arrival.key for arrival in arrived if arrival.settled_in][::-1]

    def _settle(self, arrival: Arrival) -> None:
        """Fix the publication's place in this broker's order, and send it down in that order."""
        route = arrival.route
        if route.version != self.neighbours.version:
            route = self._refresh(arrival)
        self._send_down(arrival, route)
        self._steps.touch_all(route)
        arrival.settled_in = self._steps.number
        if arrival.is_awaited:
            self._tell_settled(arrival)
        if self._delayed:
            self._pass_delayed(arrival)
        arrival.missing -= 1
        if not arrival.missing:
            self._complete(arrival)

    def _send_down(self, arrival: Arrival, route: Route) -> None:
        for neighbour in route.down:
            neighbour.sent.append(arrival)
        if route.links:
            self.counters.sent += len(route.links)
            self._outbox.add(SendMessage(route.links, arrival.publication))

    def _refresh(self, arrival: Arrival) -> Route:
        """Connections have changed since a publication arrived, and neighbours may be gone."""
        below = self.neighbours.below
        route = arrival.route
        down = tuple(n for n in route.down if below.get(n.node) is n)
        arrival.missing -= len(route.down) - len(down)
        links = tuple(neighbour.link for neighbour in down if neighbour.link is not None)
        arrival.route = attrs.evolve(route, down=down, links=links)
        return arrival.route

    def _tell_settled(self, arrival: Arrival) -> None:
        """Tell the child that waits for it; in its stream, after what was settled before."""
        self._steps.send(arrival.source, Settled(arrival.number), key=arrival.key)

    # --- held -------------------------------------------------------------------------------

    def send_in_turn(
        self,
        neighbour: Neighbour,
        message: Message,
        about: Advertisement | Subscription | None = None,
    ) -> None:
        """Send a message down behind every publication that is here already.

        A confirmation promises that whatever comes after it was routed with the operation in
        mind; a publication that is held was not. And who hears that an advertisement is withdrawn
        no longer waits for what was published under it.
        """
        held = self.ordering.held
        if held and isinstance(neighbour, Below):
            behind = {id(arrival) for arrival in held}
            self._delayed.append(Delayed(behind, neighbour, message, about))
        else:
            self._steps.send(neighbour, message, about)

    def _pass_delayed(self, arrival: Arrival) -> None:
        for delayed in self._delayed:
            delayed.unsettled.discard(id(arrival))
        while self._delayed and not self._delayed[0].unsettled:
            delayed = self._delayed.popleft()
            self._steps.send(delayed.neighbour, delayed.message, delayed.about)

    def delayed_for(self, neighbour: Neighbour) -> list[Delayed]:
        """What waits behind held publications to be sent to a neighbour."""
        return [delayed for delayed in self._delayed if delayed.neighbour is neighbour]

    def waits_for(self, arrival: Arrival) -> str | None:
        """Whose word a publication waits for that is held, if it is not only behind others."""
        parent = self.neighbours.parent
        return parent.node if parent is not None and arrival.waits else None

    def lacks(self, arrival: Arrival) -> str | None:
        """What has to come before a publication that is held, and is not here; in words."""
        del arrival
        return None

    # --- where to ---------------------------------------------------------------------------

    @staticmethod
    def objection_to(wanted: Filter) -> str:
        """Why a client cannot have such a subscription; empty if it can."""
        del wanted
        return ""

    def _route(self, source: Neighbour, publication: Publish) -> Route:
        """Where this goes, from here and from this source; remembered by its content."""
        content = publication.content
        if source.routes_version != self.neighbours.version:
            source.routes.clear()
            source.routes_version = self.neighbours.version
        route = source.routes.get(content)
        if route is None:
            if len(source.routes) >= self._limits.cached_routes_max:
                source.routes.clear()
            route = source.routes[content] = self._compute_route(source, publication)
            self.counters.routes_computed += 1
        else:
            self.counters.routes_cached += 1
        return route

    def _compute_route(self, source: Neighbour, publication: Publish) -> Route:
        """Where this goes, from here and from this source."""
        attributes = decode_content(publication.content)
        is_from_client = is_client(source)
        is_allowed = not is_from_client or any(
            advertisement.filter.matches(attributes)
            for advertisement in self.interests.advertisements.of_client(source.node)
        )
        version = self.neighbours.version
        parent = self.neighbours.parent
        if self.ordering.settles_at_root and parent is not None and source is not parent:
            return Route(down=(), climbs=True, links=(), is_allowed=is_allowed, version=version)
        index = self.interests.subscriptions.index
        matching = index.matching_bits(attributes)
        conflicts = self.interests.conflicts
        hops = index.hops_of(matching)
        below = self.neighbours.below
        if self.interests.policy == FLOODING:
            down = list(self.neighbours.children())
            down += [below[hop] for hop in hops if hop in below and below[hop] not in down]
            climbs = source is not parent and parent is not None
        else:
            down = [below[hop] for hop in hops if hop in below]
            climbs = source is not parent and UP in hops
        if not is_from_client and not self.ordering.settles_at_root:
            # Whoever is interested behind a broker has it already when it comes from there.
            down = [neighbour for neighbour in down if neighbour is not source]
        route = Route(
            down=tuple(down),
            climbs=climbs,
            links=tuple(neighbour.link for neighbour in down if neighbour.link is not None),
            is_allowed=is_allowed,
            version=version,
        )
        if conflicts is None or parent is None or source is parent:
            return route  # nothing is ever held at the root, nor if it comes from above
        is_conflict = climbs and conflicts.is_conflict(matching, UP)
        is_conflict_if_awaited = is_conflict or (
            climbs
            and not is_from_client
            and conflicts.is_conflict(matching, UP, unseen_at=source.hop)
        )
        route = attrs.evolve(
            route,
            matching=matching,
            detector=conflicts,
            conflicts=is_conflict,
            conflicts_if_awaited=is_conflict_if_awaited,
        )
        if is_conflict_if_awaited:
            _ = route.subscribers  # it will be held, and be asked when the tables have changed
        return route

    # --- until they are stable --------------------------------------------------------------

    def _complete(self, arrival: Arrival) -> None:
        """Our side has settled the publication: tell the parent, or declare it stable."""
        if arrival.stable:
            return
        if arrival.route.climbs or isinstance(arrival.source, Above):
            parent = self.neighbours.parent
            assert parent is not None
            stream = parent.sent if arrival.route.climbs else parent.received
            stream.advance_confirmed()
            if arrival.is_urgent:
                parent.is_urgent = True
            self._lazy[UP] = parent
        else:
            arrival.stable = True
            self._pass_on_stable(arrival)

    def _pass_on_stable(self, arrival: Arrival) -> None:
        """The publication is stable: whoever below had to do with it is to hear of it."""
        if arrival.step:  # or it only stands for what was stable before this life
            self.unstable -= 1
            self.counters.stable += 1
        self._touched_routes[arrival.route] = None
        source = arrival.source
        if isinstance(source, Below) and self.neighbours.below.get(source.node) is source:
            self._touched[source.node] = source
            if arrival.is_urgent:
                source.is_urgent = True

    def on_progress(self, source: Neighbour, progress: Progress) -> None:
        """A neighbour's side has come further; what it received is what we sent.

        One that was rebuilt counts confirmations anew, and may say again less than it once said.
        """
        sent, received = source.sent, source.received
        if isinstance(source, Above):
            assert isinstance(sent, StreamAbove)
            assert isinstance(received, StreamAbove)
            for stream, count in ((sent, progress.received), (received, progress.sent)):
                # What the parent knows to be stable, this broker may not have confirmed anew.
                for arrival in stream.unconfirmed[: max(0, count - stream.confirmed_count)]:
                    arrival.missing, arrival.is_over = 0, True
                stream.advance_confirmed()
                for arrival in stream.stable_up_to(max(count, stream.stable_count)):
                    self._pass_on_stable(arrival)
            _forget_marks(source)
        else:
            assert isinstance(sent, StreamBelow)
            assert isinstance(received, StreamBelow)
            for arrival in sent.confirm_up_to(max(progress.received, sent.confirmed_count)):
                self._complete(arrival)
            if not is_client(source):
                count = max(progress.sent, received.confirmed_count)
                for arrival in received.confirm_up_to(count):
                    self._complete(arrival)
            self._touched[source.node] = source

    def tell_lazily(self, neighbour: Neighbour) -> None:
        """There is something to tell it, sooner or later."""
        self._lazy[neighbour.hop] = neighbour

    @property
    def is_progress_waiting(self) -> bool:
        """Whether there is something to tell anybody, sooner or later."""
        return bool(self._lazy)

    def flush(self, now: float) -> list[Neighbour]:
        """At the end of a step: who is to be told of progress now."""
        present = self.neighbours.below
        for route in self._touched_routes:
            for below in route.down:
                if present.get(below.node) is below:
                    self._touched[below.node] = below
        self._touched_routes.clear()
        if self._touched:
            for node, below in self._touched.items():
                below.sent.advance_stable()
                below.received.advance_stable()
                _forget_marks(below)
                self._lazy[node] = below
            self._touched.clear()
        if self.flush_at is not None and now >= self.flush_at:
            self.flush_at = None
            return self.take_lazy()
        due = []
        if self._lazy:
            batch = self._limits.progress_batch
            for neighbour in list(self._lazy.values()):
                if (
                    neighbour.is_urgent
                    or sum(neighbour.progress) - sum(neighbour.told[:2]) >= batch
                ):
                    del self._lazy[neighbour.hop]
                    due.append(neighbour)
            if self._lazy and self.flush_at is None:
                self.flush_at = now + self._limits.progress_delay_s
        return due

    def take_lazy(self) -> list[Neighbour]:
        """All who do not know yet how far things are."""
        lazy, self._lazy = self._lazy, {}
        return list(lazy.values())

    def end_step(self) -> None:
        """The step is over, and is about to be written down."""

    def release_what_is_due(self) -> None:
        """After a rebuild: let go what only waited for something that will not come."""

    def rank(self, topic: Topic, above: Topic) -> str:
        """Have a topic rank above another one; returns why not, if that cannot be."""
        del topic, above
        return "topics have no order of their own here: under tno they do, with --managers hash"

    def introduce(self, newcomer: Below) -> None:
        """A broker has joined below, and is told what there is."""

    def say_again(self, neighbour: Neighbour) -> None:
        """After a rebuild: tell a neighbour once more what it may wait for."""

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_life(self, log: StepLog) -> None:
        """Begin where a log begins."""

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""

    def end_again(self) -> None:
        """What arrived in it has been taken: do what the log says and does not follow from that."""

    def go_on(self) -> None:
        """All steps have been taken again: what comes next is decided here."""
        self.complete_what_lacks_nothing()

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {}

    # --- neighbours that come and go --------------------------------------------------------

    def forget(self, gone: Below) -> None:
        """What a neighbour has not confirmed it never will: nobody is to wait for it."""
        for stream in (gone.sent, gone.received):
            for arrival in stream.confirm_up_to(stream.count):
                self._complete(arrival)
        left = [arrival for arrival in gone.received.keep() if not arrival.stable]
        if left:
            self._of_the_gone.append(left)
        self._lazy.pop(gone.hop, None)
        self._touched.pop(gone.hop, None)

    def give_up(self, neighbour: Neighbour) -> list[Publish]:
        """More than δ have failed beyond a neighbour, which is none now: returns what is given up.

        That is all that was on its way to it or has come from it and is not stable. What of it has
        not been settled is settled now, in its turn, for nobody.
        """
        is_parent = isinstance(neighbour, Above)
        lost: dict[Key, Publish] = {}
        sent = neighbour.sent.keep() if is_parent else neighbour.sent.unconfirmed
        for arrival in (*sent, *neighbour.received.keep()):
            if not arrival.stable and arrival.step:
                lost[arrival.key] = arrival.publication
        for arrival in list(self.ordering.held):
            if neighbour in arrival.route.down:
                lost[arrival.key] = arrival.publication
            if arrival.source is neighbour or (is_parent and arrival.climbs):
                arrival.missing -= len(arrival.route.down)
                arrival.route = attrs.evolve(arrival.route, down=(), links=())
        if isinstance(neighbour, Above):
            self._go_on_without_parent(neighbour)
        else:
            self.forget(neighbour)
        self._delayed = deque(d for d in self._delayed if d.neighbour is not neighbour)
        return list(lost.values())

    def _go_on_without_parent(self, parent: Above) -> None:
        """Nobody above settles anything any more, or declares it stable."""
        waiting = list(self.awaiting.values())
        self.awaiting.clear()
        for arrival in parent.sent.keep():
            arrival.route = attrs.evolve(arrival.route, climbs=False)
        for arrival in waiting:
            self.acknowledge(arrival)
        for arrival in parent.sent.keep():
            if not arrival.missing or arrival.is_over:
                self._complete(arrival)
        for arrival in parent.received.keep():
            if not arrival.stable:
                arrival.stable = True
                self._pass_on_stable(arrival)
        self._lazy.pop(UP, None)

    def note_stable(self, arrival: Arrival, neighbour: Neighbour) -> None:
        """After a rebuild: a neighbour knows that it is stable, and does not keep it any more."""
        if isinstance(neighbour, Below):
            # Nobody lacks it, and the parent, if it has it, will say so.
            arrival.missing, arrival.is_over = 0, True
        elif not arrival.stable:
            arrival.stable = True
            self._pass_on_stable(arrival)

    def complete_what_lacks_nothing(self) -> None:
        """After a rebuild: what every neighbour has confirmed, or does not keep any more.

        So it may be with what came from a neighbour that is none any more: one that was away
        meanwhile, and has confirmed it, says so only when it is back.
        """
        kept = (neighbour.received.keep() for neighbour in self.neighbours.all())
        for arrival in chain(chain.from_iterable(kept), self.of_the_gone()):
            if arrival.is_over or not arrival.missing:
                self._complete(arrival)
        for below in self.neighbours.below.values():
            self._touched[below.node] = below

    def of_the_gone(self) -> Iterator[Arrival]:
        """What came from neighbours that are none any more, and may not be stable."""
        return chain.from_iterable(self._of_the_gone)

    def first_unstable_step(self) -> int | None:
        """The first step in which something arrived that is not stable yet."""
        self._of_the_gone = [a for a in self._of_the_gone if not all(each.stable for each in a)]
        kept: list[Sequence[Arrival]] = [*self._of_the_gone]
        for neighbour in self.neighbours.all():
            stream = neighbour.received
            if stream.confirmed or stream.unconfirmed:  # most clients publish nothing
                kept += (stream.confirmed, stream.unconfirmed)
        firsts = (
            next((each.step for each in arrivals if not each.stable), None) for arrivals in kept
        )
        return min((step for step in firsts if step is not None), default=None)


def _forget_marks(neighbour: Neighbour) -> None:
    """Nobody asks any more when something was exchanged that is stable."""
    neighbour.sent_marks.forget(neighbour.sent.stable_count)
    neighbour.received_marks.forget(neighbour.received.stable_count)


def _require_publishable(source: Below, publication: Publish, route: Route) -> None:
    if publication.publisher != source.node or publication.incarnation != source.incarnation:
        raise RemoteProtocolError(
            f"a publication of {publication.publisher}, incarnation {publication.incarnation}, "
            f"from {source.node}, incarnation {source.incarnation}"
        )
    if not route.is_allowed:
        raise RemoteProtocolError(
            f"publication {publication.seq} of {source.node} lies outside what it has "
            f"advertised: {decode_content(publication.content)}"
        )
