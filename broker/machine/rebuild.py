"""A broker that has failed is made again, as it was after the last step that anybody knows of.

Failed brokers that hang together are a *region*; the live nodes next to it are its *boundary*. Each
node of the boundary says what it sent into the region and what it got from there (`Attachment`),
and what it knows of the logs of those who have failed. From that alone the brokers of the region
take their steps again: same inputs, same order, same broker.

What is stable is forgotten by those who sent it, and is missing among the inputs. So nothing is
decided again that depended on it: what was held, and when it was settled, is in the log.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

import attrs

from plait.broker.errors import RemoteProtocolError
from plait.broker.limits import Limits
from plait.broker.machine.attachments import Attachment, StreamEnd, Told, attach, onwards
from plait.broker.machine.interests import life_of
from plait.broker.machine.invariants import broken_invariants
from plait.broker.machine.joining import join_streams, waiting
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import UP, Above, Arrival, Below, Control, Marks, Neighbour
from plait.broker.machine.publications import Remembered
from plait.broker.machine.queues import QueuedPublications
from plait.broker.machine.steps import REPLAYED
from plait.broker.machine.streams import Travelling, in_order, kept, kept_from
from plait.broker.messages import (
    Acknowledge,
    NodeKind,
    Settings,
    Settled,
    Stamped,
)
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import BROKER, Entry, Interest, Key, Standing, StepLog, Taken, longest
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.orderings import Ordering, ordering_of
from plait.routing.tables import Advertisement, Id, RoutingEntry, Subscription

__all__ = [
    "Attachment",
    "ContradictionError",
    "Rebuilding",
    "StreamEnd",
    "Told",
    "TooManyFailedError",
    "Travelling",
    "attach",
    "kept",
    "rebuild",
]


class TooManyFailedError(Exception):
    """A step was taken that depends on one which nobody alive knows: more than δ have failed."""


class ContradictionError(Exception):
    """What is said of a region cannot be so: somebody has made a part of it up."""


class _Again:
    """Decides nothing: what was held, and when it was settled, is in the log."""

    def __init__(self, ordering: type[Ordering[Arrival]]) -> None:
        self.settles_at_root = ordering.settles_at_root
        self.held_now: dict[Key, Arrival] = {}
        self.entry = Entry(Taken.REPLAY)
        self._left: list[Key] = []
        self._held: dict[Key, bool] = {}

    def begin(self, entry: Entry) -> None:
        """Take the step of this entry."""
        self.entry = entry
        self._left = list(entry.order)
        self._held = dict(entry.held)

    @property
    def held(self) -> Collection[Arrival]:
        return list(self.held_now.values())

    def waited(self, key: Key) -> bool:
        """Whether a publication of this step waited for the parent."""
        return self._held.get(key, False)

    def arrived(self, arrival: Arrival) -> Sequence[Arrival]:
        key = arrival.key
        waits = self._held.get(key)
        arrival.waits = arrival.has_waited = bool(waits)
        if waits is not None:
            self.held_now[key] = arrival
            return ()
        return (*self.released_before(key), arrival)

    def released_before(self, key: Key | None) -> list[Arrival]:
        """What was settled in this step before that; without a key, all that is left."""
        released = []
        while self._left and self._left[0] != key:
            arrival = self.held_now.pop(self._left.pop(0), None)
            if arrival is not None:
                released.append(arrival)
        if self._left and key is not None:
            self._left.pop(0)
        return released

    def acknowledged(self, arrival: Arrival) -> Sequence[Arrival]:
        arrival.waits = False
        return ()


def rebuild(
    region: Mapping[NodeId, NodeId | None],
    attachments: Iterable[Attachment],
    *,
    settings: Settings,
    limits: Limits,
    outbox: Outbox,
    now: float,
) -> dict[NodeId, Machine]:
    """The brokers of a region, each given with its parent, as they were."""
    rebuilding = Rebuilding(
        region, attachments, settings=settings, limits=limits, outbox=outbox, now=now
    )
    while not rebuilding.advance(PIECES_AT_ONCE):
        pass
    return rebuilding.machines


PIECES_AT_ONCE: Final = 1000
"""Of a rebuild: some 20 ms of work."""


@attrs.frozen
class _Span:
    """From when to when a broker knew something, by its own steps."""

    told_in: int
    """0 if that was before its log begins."""
    withdrawn_in: int | None
    is_late: bool
    """Whether nobody has the message any more with which it was told."""


class _Index:
    """Where a log says what, so that nobody reads all of it for one question."""

    def __init__(self, log: StepLog) -> None:
        self.installed: dict[str, int] = {}
        """The first step in which each was installed."""
        self.forbidden: set[str] = set()
        """What was refused, and has not been installed since."""
        self.taken: dict[NodeId, list[tuple[int, int]]] = {}
        """Of each neighbour: with which step of its batches end, and the step that took them."""
        for step, entry in enumerate(log.entries, log.base + 1):
            for name in entry.installed:
                self.installed.setdefault(name, step)
                self.forbidden.discard(name)
            self.forbidden.update(entry.members.forbidden)
            if entry.kind is Taken.BATCH:
                self.taken.setdefault(entry.source, []).append((entry.upto, step))
            elif entry.kind is Taken.JOINED:
                self.taken[entry.source] = []


class _Members:
    """Who stood below a broker that is rebuilt: when its log begins, and who has come since.

    Brought back are those who stand there when the log ends, and have attached, or are in the
    region themselves, or are away; the last are *detached*, and heard when they come back.
    """

    def __init__(
        self,
        log: StepLog,
        region: Mapping[NodeId, NodeId | None],
        node: NodeId,
        attached: Mapping[NodeId, Attachment],
    ) -> None:
        parent = region[node]
        last, first = log.neighbours(), log.neighbours_at_base()
        for name in [name for name, above in region.items() if above == node]:
            last.setdefault(name, Standing(kind=BROKER, has_joined=True))
        if parent is not None:
            last.pop(parent, None)
        self.detached = {name: standing for name, standing in last.items() if standing.is_away}
        here = {
            name: standing
            for name, standing in last.items()
            if standing.is_away
            or region.get(name) == node
            or (name in attached and attached[name].incarnation == standing.incarnation)
        }
        self.joined_in: dict[NodeId, int] = {}
        """When those came who came after the log begins."""
        self.admitted_in: dict[NodeId, int] = {}
        """And when whoever is here was let in, if that was after the log begins."""
        for step, entry in enumerate(log.entries, log.base + 1):
            if entry.kind is Taken.JOINED and entry.source in here:
                self.joined_in[entry.source] = step
            for name in entry.members.admitted:
                self.admitted_in[name] = step
        self.at_base = {
            name: first.get(name, Standing(kind=standing.kind, has_joined=True))
            for name, standing in here.items()
            if name not in self.joined_in
        }
        self.gone = [name for name in last if name not in here]
        """Who stands there by the log, and has failed."""
        self.ignored = [
            name
            for name in attached
            if name != parent and (name not in here or name in self.detached)
        ]
        """Who has attached and is no neighbour, or is away and comes back later."""

    def has_joined_at_base(self, name: NodeId) -> bool:
        """Whether somebody had been let in when the log begins."""
        return name in self.at_base and self.at_base[name].has_joined


class _Sent:
    """What one node sent another, taken step by step."""

    def __init__(
        self, publications: Callable[[int], Iterator[Travelling]], controls: Sequence[Control]
    ) -> None:
        """Begin at the beginning; `publications` lists what follows on so many of them."""
        self._publications = publications
        self._controls = controls
        self._place = self._place_of_control = 0

    def take(self, after: int, upto: int) -> list[Travelling | Control]:
        """What was sent in these steps, which follow those of the last time."""
        publications, controls = [], []
        for each in self._publications(self._place):
            if each.step > upto:
                break
            self._place += 1
            if each.step > after:
                publications.append(each)
        while self._place_of_control < len(self._controls):
            control = self._controls[self._place_of_control]
            if control.step > upto:
                break
            self._place_of_control += 1
            if control.step > after:
                controls.append(control)
        return in_order(publications, controls)


class Rebuilding:
    """The work of `rebuild`, in pieces: a coordinator has other things to do meanwhile."""

    def __init__(
        self,
        region: Mapping[NodeId, NodeId | None],
        attachments: Iterable[Attachment],
        *,
        settings: Settings,
        limits: Limits,
        outbox: Outbox,
        now: float,
        logs: Mapping[NodeId, StepLog] | None = None,
        known_to_hosts: Mapping[NodeId, int] | None = None,
        known_to: Mapping[tuple[NodeId, NodeId], int] | None = None,
    ) -> None:
        """Begin; every broker of the region is given with its parent.

        There may be `logs` that are known otherwise than by an attachment. Steps beyond those that
        are `known_to_hosts` are known by the word of a client, and looked at twice; but not what a
        client itself knows that sent it (`known_to`): it may have forgotten what that was.
        """
        self._known_to_hosts = known_to_hosts or {}
        self._known_to = known_to or {}
        self.machines: dict[NodeId, Machine] = {}
        """When all is done, the brokers of the region."""
        self._region = region
        self.attachments = list(attachments)
        self._attached = {(each.node, each.to): each for each in self.attachments}
        self._now = now
        self._settings = settings
        self._ordering = ordering_of(settings.ordering, settings.managers)
        self._limits = limits
        self._outbox = outbox
        self._orderings: dict[NodeId, _Again] = {}
        self._known_logs = [each.logs for each in self.attachments] + ([logs] if logs else [])
        self._logs: dict[NodeId, StepLog] = {}
        self._indexes: dict[NodeId, _Index] = {}
        self._members: dict[NodeId, _Members] = {}
        self._sent: dict[tuple[NodeId, NodeId], _Sent] = {}
        """How far what one node sent another has been taken again."""
        self._late: dict[NodeId, dict[str, Callable[[], None]]] = {}
        """How to install what was told before the log begins, but was taken later."""
        self._withdrawn: dict[NodeId, dict[int, list[tuple[str, NodeId]]]] = {}
        """What clients that are away had withdrawn in which step."""
        self._announced: dict[NodeId, dict[AdvertisementId, Told[Advertisement]]] = {}
        """What each broker knows of advertisements, and since when."""
        self._asked: dict[NodeId, set[SubscriptionId]] = {}
        self._work = self._all()

    def advance(self, pieces: int) -> bool:
        """Go on for so many pieces, of some 20 µs each; returns whether all is done."""
        try:
            return len(list(islice(self._work, pieces))) < pieces
        except (ContradictionError, TooManyFailedError):
            raise
        except Exception as error:  # what is taken again here, somebody else has said
            raise ContradictionError(f"{type(error).__name__}: {error}") from error

    def _all(self) -> Iterator[None]:
        """Take all steps again, then join the streams to those of the boundary."""
        for node in self._region:
            self._begin(node)
            yield
        yield from self._lay_the_base()
        yield from self._take_steps()
        for node, machine in self.machines.items():
            for neighbour in machine.neighbours.all():
                attachment = self._attached.get((neighbour.node, node))
                if attachment is not None and attachment.era == neighbour.era:
                    yield from join_streams(machine, neighbour, attachment)
                elif neighbour.node in self._region:
                    self._require_one_era(machine, neighbour)
                    self._leave_out_what_is_stable(machine, neighbour)
                yield
        for node, machine in self.machines.items():
            yield from self._order_anew(machine)
            for gone in self._members[node].gone:  # in the step that comes next
                machine.note_failed(gone)
        for node, machine in self.machines.items():
            if machine.steps.number > self._known_to_hosts.get(node, machine.steps.number):
                self._require_possible(machine)
                yield

    def _require_possible(self, machine: Machine) -> None:
        """See that a broker which was rebuilt by the word of a client could be as it is."""
        for attachment in (each for each in self.attachments if each.to == machine.node):
            neighbour, node = machine.neighbours.named(attachment.node), attachment.node
            if isinstance(neighbour, Below) and neighbour.kind is not attachment.kind:
                raise ContradictionError(f"{node} stands at {machine.node} as a {neighbour.kind}")
            if neighbour is not None and neighbour.era != attachment.era:
                raise ContradictionError(f"{machine.node} is in era {neighbour.era} with {node}")
        broken = broken_invariants(machine)
        if broken:
            raise ContradictionError(f"{machine.node}: {broken[0]}")

    def _begin(self, node: NodeId) -> None:
        """Begin with one broker where its log begins."""
        machine = Machine(
            node,
            self._region[node],
            settings=self._settings,
            limits=self._limits,
            outbox=self._outbox,
        )
        attached = [each for each in self._attached.values() if each.to == node]
        log = longest([StepLog(), *(logs[node] for logs in self._known_logs if node in logs)])
        members = _Members(log, self._region, node, {each.node: each for each in attached})
        self._require_brokers(node, log, members.ignored)
        for ignored in members.ignored:
            del self._attached[ignored, node]
        self._leave_out_earlier_eras(node, log)
        self._members[node] = members
        self._add_neighbours(machine, log)
        self._orderings[node] = again = _Again(self._ordering)
        if not isinstance(machine.publications, QueuedPublications):
            machine.publications.ordering = cast("Ordering[Arrival]", again)
        self.machines[node] = machine
        self._late[node], self._announced[node], self._asked[node] = {}, {}, set()
        self._withdrawn[node] = {}

    def _leave_out_earlier_eras(self, node: NodeId, log: StepLog) -> None:
        """Whoever has not begun anew with this broker yet has nothing to say of these streams."""
        known = log.neighbours()
        for each in [each for each in self._attached.values() if each.to == node]:
            era = known.get(each.node, Standing()).era
            if each.era < era:
                del self._attached[each.node, node]
            elif each.era == era and each.taken > log.last:
                raise TooManyFailedError(
                    f"{each.node} took step {each.taken} of {node}, of which nobody knows more "
                    f"than {log.last}"
                )

    # --- what there was before the logs begin -----------------------------------------------

    def _add_neighbours(self, machine: Machine, log: StepLog) -> None:
        """Begin where the log begins, with what had been taken of each neighbour by then."""
        members = self._members[machine.node]
        for name, standing in members.at_base.items():
            below = machine.add_below(name, standing)
            below.is_away = standing.is_away
            below.is_detached = name in members.detached
        at_base = log.neighbours_at_base()
        for neighbour in machine.neighbours.all():
            neighbour.taken = neighbour.taken_at_base = log.taken_of(neighbour.node)
            neighbour.era = at_base.get(neighbour.node, Standing()).era
        machine.has_joined |= log.base > 0
        self._logs[machine.node] = log
        self._indexes[machine.node] = _Index(log)
        machine.steps.log = log.copy()
        machine.steps.log.entries.clear()
        machine.steps.number = log.base
        machine.publications.begin_life(log)

    def _require_brokers(self, node: NodeId, log: StepLog, ignored: Iterable[NodeId]) -> None:
        """See that no broker which lives has gone by the word of a client."""
        known = self._known_to_hosts.get(node, log.last)
        if known >= log.last:
            return
        before = log.copy()
        del before.entries[max(0, known - log.base) :]
        gone = before.neighbours().keys() & ignored
        for name in sorted(gone):
            if self._attached[name, node].kind is NodeKind.BROKER:
                raise ContradictionError(f"{name} is no neighbour of {node}, and lives")

    def _lay_the_base(self) -> Iterator[None]:
        """Know what had been told before: by the boundary, and then from broker to broker.

        A broker of the region knew something when its log begins, and no step of the log says that
        it was installed later; or it takes it in a step of the log, with the message that says so.
        What clients that are away had told is in the log.
        """
        for (node, to), attachment in self._attached.items():
            for announced in attachment.advertisements:
                advertisement = _as_taken(attachment, announced.entry)
                self._advertised(node, to, advertisement, self._span(node, to, announced))
                yield
        for to, life, interest in self._of_the_absent(is_advertisement=True):
            node, _ = life
            announced_entry: Advertisement = _entry(AdvertisementId(interest.name), life, interest)
            self._advertised(node, to, announced_entry, self._span_of_interest(to, node, interest))
            yield
        for (node, to), attachment in self._attached.items():
            for asked in attachment.subscriptions:
                subscription = _as_taken(attachment, asked.entry)
                self._subscribed(node, to, subscription, self._span(node, to, asked))
                yield
        for to, life, interest in self._of_the_absent(is_advertisement=False):
            node, _ = life
            asked_entry: Subscription = _entry(SubscriptionId(interest.name), life, interest)
            self._subscribed(node, to, asked_entry, self._span_of_interest(to, node, interest))
            yield

    def _of_the_absent(
        self, *, is_advertisement: bool
    ) -> Iterator[tuple[NodeId, tuple[NodeId, int], Interest]]:
        for to, members in self._members.items():
            for node, standing in members.detached.items():
                for interest in standing.interests:
                    if interest.is_advertisement == is_advertisement:
                        yield to, (node, standing.incarnation), interest

    def _span_of_interest(self, to: NodeId, node: NodeId, interest: Interest) -> "_Span | None":
        """From when to when a broker knew what a client had told it that is away."""
        withdrawn_in = interest.withdrawn_in
        if 0 < withdrawn_in <= self._logs[to].base:
            return None
        told_in = self._installed_in(to, interest.name)
        if withdrawn_in:
            self._withdrawn[to].setdefault(withdrawn_in, []).append((interest.name, node))
        return _Span(told_in, withdrawn_in or None, is_late=told_in > 0)

    def _advertised(
        self, source: NodeId, to: NodeId, entry: Advertisement, span: "_Span | None"
    ) -> None:
        """A broker of the region was told of an advertisement, and told those beyond."""
        machine = self.machines[to]
        interests = machine.interests
        if span is None or entry.id in self._announced[to]:
            return
        own = attrs.evolve(entry, hop=_hop_of(machine, source))
        if span.is_late:
            self._late[to][own.id] = lambda: interests.learn_advertisement(own, self._now)
        elif not span.told_in:
            interests.put_in_advertisement(own)
            machine.neighbours.version += 1
            for neighbour in machine.neighbours.other_brokers(None):
                if neighbour.node != source:
                    neighbour.told_of[own.id] = 0
        self._announced[to][own.id] = Told(own, span.told_in, span.withdrawn_in)
        for there, _, since in self._region_around(to):
            if there != source:
                told = Told(onwards(machine, own), max(span.told_in, since), span.withdrawn_in)
                self._advertised(to, there, told.entry, self._span(to, there, told))

    def _region_around(self, node: NodeId) -> Iterator[tuple[NodeId, NodeId, int]]:
        """The neighbours of a broker within the region that are told things: where, since when."""
        parent, members = self._region[node], self._members[node]
        if parent is not None and parent in self._region:
            yield parent, UP, 0
        for child, above in self._region.items():
            if above == node:
                since = 0 if members.has_joined_at_base(child) else members.admitted_in.get(child)
                if since is not None:
                    yield child, child, since

    def _subscribed(
        self, source: NodeId, to: NodeId, entry: Subscription, span: "_Span | None"
    ) -> None:
        """The same of a subscription, told where advertisements drew it, as soon as they did."""
        machine = self.machines[to]
        interests = machine.interests
        if span is None or entry.id in self._asked[to]:
            return
        own = attrs.evolve(entry, hop=_hop_of(machine, source))
        self._asked[to].add(own.id)
        if span.is_late:
            self._late[to][own.id] = lambda: interests.learn_subscription(own, self._now)
        elif not span.told_in:
            told_before = interests.brokers_to_tell(own)
            interests.put_in_subscription(own, [n.hop for n in told_before])
            machine.neighbours.version += 1
            for neighbour in told_before:
                neighbour.told_of[own.id] = 0
        for there, hop, since in self._region_around(to):
            if hop != own.hop:
                told = self._drawn(to, hop, own, span)
                if told is not None:
                    told = attrs.evolve(told, told_in=max(told.told_in, since))
                    self._subscribed(to, there, told.entry, self._span(to, there, told))

    def _drawn(
        self, by: NodeId, hop: NodeId, entry: Subscription, span: "_Span"
    ) -> Told[Subscription] | None:
        """When a broker of the region told another one of a subscription; None if it did not."""
        interests = self.machines[by].interests
        there = onwards(self.machines[by], entry)
        if interests.is_told_anyway(hop):
            return Told(there, span.told_in, span.withdrawn_in)
        drawing = [
            each
            for each in self._announced[by].values()
            if each.entry.hop == hop and each.entry.filter.overlaps(entry.filter)
        ]
        if not drawing:
            return None
        told_in = max(span.told_in, min(each.told_in for each in drawing))
        return Told(there, told_in, span.withdrawn_in)

    def _span(self, source: NodeId, to: NodeId, told: Told[Any]) -> "_Span | None":
        """From when to when a broker of the region knew what it was told, in its own steps.

        None if it did not take it, refused it, or had forgotten it when its log begins.
        """
        if told.entry.id in self._indexes[to].forbidden:
            return None
        neighbour = self.machines[to].neighbours.named(source)
        base = 0 if neighbour is None else neighbour.taken_at_base
        withdrawn_in = None
        if told.withdrawn_in is not None:
            if told.withdrawn_in <= base:
                return None
            withdrawn_in = self._taken_in(to, source, told.withdrawn_in)
        if told.told_in <= base:
            late = self._installed_in(to, told.entry.id)
            return _Span(late, withdrawn_in, is_late=late > 0)
        told_in = self._taken_in(to, source, told.told_in)
        return None if told_in is None else _Span(told_in, withdrawn_in, is_late=False)

    def _taken_in(self, node: NodeId, source: NodeId, step: int) -> int | None:
        """In which of its steps a broker took a step of a neighbour's; None if it did not."""
        taken = self._indexes[node].taken.get(source, ())
        place = bisect_left(taken, (step, 0))
        return taken[place][1] if place < len(taken) else None

    def _installed_in(self, node: NodeId, name: str) -> int:
        """The step of its log in which a broker took what was told before; 0 if it was earlier."""
        return self._indexes[node].installed.get(name, 0)

    # --- the steps --------------------------------------------------------------------------

    def _take_steps(self) -> Iterator[None]:
        """Take every step of every log, each when what it took is there."""
        remaining = dict.fromkeys(self._region)
        while remaining:
            before = sum(machine.steps.number for machine in self.machines.values())
            for node in list(remaining):
                yield from self._take_steps_of(node)
                if self.machines[node].steps.number == self._logs[node].last:
                    del remaining[node]
            if remaining and before == sum(m.steps.number for m in self.machines.values()):
                raise AssertionError(f"steps of {list(remaining)} wait for one another")

    def _take_steps_of(self, node: NodeId) -> Iterator[None]:
        """Take the steps of one broker, as far as possible."""
        machine, log = self.machines[node], self._logs[node]
        while machine.steps.number < log.last:
            entry = log.entries[machine.steps.number - log.base]
            source = machine.neighbours.named(entry.source)
            items: list[Travelling | Control] = []
            is_heard = not isinstance(source, Below) or not source.is_detached
            if entry.kind is Taken.BATCH and source is not None and is_heard:
                found = self._items(source.node, node, source.taken, entry.upto)
                if found is None:
                    return
                items = found
                if self._is_doubtful(node, source.node):
                    self._require_sent(node, source.node, entry.upto, items)
            yield from self._take_again(machine, source, entry, items)

    def _is_doubtful(self, node: NodeId, source: NodeId) -> bool:
        """Whether only a client says that a broker has taken its next step of somebody alive."""
        number = self.machines[node].steps.number
        known_to_hosts = self._known_to_hosts.get(node, number + 1)
        is_known = number < max(known_to_hosts, self._known_to.get((source, node), 0))
        return not is_known and (source, node) in self._attached

    def _require_sent(
        self, node: NodeId, source: NodeId, upto: int, items: Sequence[Travelling | Control]
    ) -> None:
        """See that somebody who lives has sent what a broker has taken."""
        attachment = self._attached[source, node]
        steps = [each.step for each in attachment.sent.kept]
        steps += [control.step for control in attachment.controls]
        steps += [logs[source].last for logs in self._known_logs if source in logs]
        last = max(steps, default=0)
        if not items or upto > last:
            raise ContradictionError(
                f"{node} took step {upto} of {source}, which has made {last} and has "
                f"{'' if items else 'not '}sent anything since"
            )

    def _items(
        self, source: NodeId, to: NodeId, after: int, upto: int
    ) -> list[Travelling | Control] | None:
        """What one node sent another in these steps; None if it has not taken them again yet."""
        if (source, to) not in self._attached and source not in self._region:
            return []  # of streams that have begun anew since, and are forgotten there
        sent = self._sent.get((source, to))
        if sent is None:
            sent = self._sent[source, to] = self._begin_to_send(source, to)
        if (source, to) not in self._attached:
            last = self._logs[source].last
            if upto > last:
                raise TooManyFailedError(
                    f"{to} took step {upto} of {source}, of which nobody knows more than {last}"
                )
            if self.machines[source].steps.number < upto:
                return None
        return sent.take(after, upto)

    def _begin_to_send(self, source: NodeId, to: NodeId) -> "_Sent":
        attachment = self._attached.get((source, to))
        if attachment is not None:
            kept_there = attachment.sent.kept
            return _Sent(
                lambda place: (kept_there[n] for n in range(place, len(kept_there))),
                attachment.controls,
            )
        neighbour = self.machines[source].neighbours.named(to)
        assert neighbour is not None
        return _Sent(lambda place: kept_from(neighbour, place), neighbour.controls)

    def _take_again(
        self,
        machine: Machine,
        source: Neighbour | None,
        entry: Entry,
        items: Sequence[Travelling | Control],
    ) -> Iterator[None]:
        """Take one step again."""
        ordering = self._orderings[machine.node]
        ordering.begin(entry)
        machine.names.refused_before = entry.members.refused
        machine.interests.forbidden_before = entry.members.forbidden
        publications = machine.publications
        publications.begin_again(entry)
        machine.steps.begin(entry.kind, entry.source, entry.upto)
        # First of all: the batch may withdraw it.
        yield from self._install_late(machine, entry)
        if entry.kind is Taken.BATCH and source is not None:
            source.taken = max(source.taken, entry.upto)
            keys = {item.key for item in items if isinstance(item, Travelling)}
            for item in items:
                try:
                    if isinstance(item, Travelling) or _is_there(item, keys):
                        self._take_one_again(machine, source, item, ordering)
                except RemoteProtocolError:
                    break  # the step ended there, see `Machine.take`
                yield
        else:
            self._decide_again(machine, source, entry)
        yield from self._withdraw_again(machine)
        for arrival in ordering.released_before(None):
            machine.publications.release(arrival)
        self._admit_again(machine, entry)
        publications.end_again()
        machine.end_step()
        machine.steps.log.entries[-1] = entry
        yield

    def _take_one_again(
        self, machine: Machine, source: Neighbour, item: Travelling | Control, ordering: _Again
    ) -> None:
        """Take one message of a step again."""
        if isinstance(item, Travelling):
            remembered = Remembered(item.number, ordering.waited(item.key))
            machine.publications.on_publish(source, item.publication, self._now, remembered)
        elif isinstance(item.message, Settled):
            # Which may be stable by now, and so not here.
            settled = ordering.held_now.get(item.key) if item.key else None
            if settled is not None:
                machine.publications.acknowledge(settled)
        else:
            machine.take_one(source, item.message, self._now)

    def _decide_again(self, machine: Machine, source: Neighbour | None, entry: Entry) -> None:
        """Take a step again that took nothing of a neighbour, but was about one, or about none."""
        members = self._members[machine.node]
        if entry.kind is Taken.JOINED:
            if machine.steps.number == members.joined_in.get(entry.source):
                assert entry.members.joined is not None
                newcomer = machine.add_below(entry.source, entry.members.joined)
                newcomer.joined_in = machine.steps.number
                newcomer.is_detached = newcomer.node in members.detached
        elif entry.kind is Taken.REPLAY:
            machine.ask_to_join()
        elif entry.kind is Taken.ANEW and source is None:
            machine.meet_all(self._now)
        elif entry.kind is Taken.ANEW:
            assert source is not None
            self._sent.pop((machine.node, source.node), None)
            machine.start_over(source, entry.upto, self._now)
        elif isinstance(source, Below):
            # Who was given up in the end has not been brought back.
            assert entry.kind is not Taken.GONE, f"{source.node} is gone and stands here"
            source.is_away = entry.kind is Taken.AWAY

    def _admit_again(self, machine: Machine, entry: Entry) -> None:
        """Let those in whom this step let in, though confirmations may be forgotten by now."""
        for name in entry.members.admitted:
            newcomer = machine.neighbours.below.get(name)
            if newcomer is not None and not machine.names.admit_again(newcomer, self._now):
                machine.steps.mark = REPLAYED
                machine.let_in(newcomer, self._now)
                machine.steps.mark = ""

    def _install_late(self, machine: Machine, entry: Entry) -> Iterator[None]:
        """Install what nobody has the messages of any more."""
        late = self._late[machine.node]
        machine.steps.mark = REPLAYED
        for name in entry.installed:
            install = late.pop(name, None)
            if install is not None:
                install()
                yield
        machine.steps.mark = ""

    def _withdraw_again(self, machine: Machine) -> Iterator[None]:
        """Withdraw what clients did that are away, and say nothing of it themselves."""
        steps = machine.steps
        steps.mark = REPLAYED
        for name, node in self._withdrawn[machine.node].get(steps.number, ()):
            client = machine.neighbours.named(node)
            if client is not None:
                machine.interests.withdraw_again(name, client, self._now)
                yield
        steps.mark = ""

    # --- the streams ------------------------------------------------------------------------

    def _require_one_era(self, machine: Machine, neighbour: Neighbour) -> None:
        """What both have of each other has to be of the same streams, and to be known."""
        other = self.machines[neighbour.node].neighbours.named(machine.node)
        if other is None or other.era != neighbour.era:
            raise TooManyFailedError(
                f"{machine.node} is in era {neighbour.era} with {neighbour.node}, and that is not"
            )
        last = self._logs[neighbour.node].last
        if neighbour.taken > last:
            raise TooManyFailedError(
                f"{machine.node} took step {neighbour.taken} of {neighbour.node}, of which nobody "
                f"knows more than {last}"
            )

    def _leave_out_what_is_stable(self, machine: Machine, neighbour: Neighbour) -> None:
        """What the neighbour had taken before its log begins is stable, and it does not have it."""
        other = self.machines[neighbour.node].neighbours.named(machine.node)
        assert other is not None
        sent = list(kept(neighbour))
        arrivals = neighbour.sent.keep()
        count = sum(1 for each in sent if each.step <= other.taken_at_base)
        for arrival in arrivals[:count]:
            machine.publications.note_stable(arrival, neighbour)
        neighbour.sent.confirmed.clear()
        neighbour.sent.unconfirmed[:] = arrivals[count:]
        neighbour.sent_marks = Marks()
        for number, each in enumerate(sent[count:], 1):
            neighbour.sent_marks.add(each.step, number)
        again = [attrs.evolve(c, position=max(0, c.position - count)) for c in neighbour.controls]
        neighbour.controls.clear()
        neighbour.controls.extend(again)
        if isinstance(neighbour, Above):
            neighbour.sent.advance_confirmed()
            machine.publications.awaiting = waiting(neighbour)
            _count_less(other, count)

    def _order_anew(self, machine: Machine) -> Iterator[None]:
        """Give what is held back to the ordering, in the order of its arrival."""
        machine.names.refused_before = machine.interests.forbidden_before = None
        if isinstance(machine.publications, QueuedPublications):
            machine.publications.go_on()
            return
        ordering: Ordering[Arrival] = self._ordering()
        held = machine.publications.ordering.held
        machine.publications.ordering = ordering
        for arrival in held:
            ready = ordering.arrived(arrival)
            assert not ready, f"{arrival.key} is held at {machine.node} behind nothing"
            yield
        machine.publications.go_on()


def _count_less(child: Neighbour, count: int) -> None:
    """A child has so many less of what it had sent up: all that it has it numbers anew."""
    for arrival in child.received.keep():
        arrival.number = max(0, arrival.number - count)
    for _ in range(len(child.controls)):
        control = child.controls.popleft()
        if isinstance(control.message, Settled):
            number = control.message.number - count
            if number <= 0:
                continue  # it is about something that is stable
            control = attrs.evolve(control, message=Settled(number))
        child.controls.append(control)


def _is_there(control: Control, keys: Collection[Key]) -> bool:
    """Whether the publication that a message is about is in the same batch, if it has to be."""
    is_any = isinstance(control.message, Settled | Acknowledge | Stamped)
    return is_any or control.key is None or control.key in keys


def _hop_of(machine: Machine, source: NodeId) -> NodeId:
    """The direction of a neighbour, which may be about to join."""
    parent = machine.neighbours.parent
    return UP if parent is not None and parent.node == source else source


def _entry(name: Any, life: tuple[NodeId, int], interest: Interest) -> Any:
    """What a client has told in one life, as its broker has it in a table."""
    return RoutingEntry(
        id=name,
        client=life[0],
        filter=parse_filter(interest.filter),
        path=(life_of(*life),),
        ordered=interest.is_ordered,
    )


def _as_taken(attachment: Attachment, entry: RoutingEntry[Id]) -> RoutingEntry[Id]:
    """What a node of the boundary has told, as the broker that took it has it in a table."""
    if attachment.kind is not NodeKind.CLIENT:
        return entry
    return attrs.evolve(entry, path=(life_of(attachment.node, attachment.incarnation),))
