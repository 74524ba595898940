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
from typing import Any, Final, Generic, TypeVar, cast

import attrs

from broker.limits import Limits
from broker.machine.machine import Machine, Settings
from broker.machine.neighbours import (
    Above,
    Arrival,
    Below,
    Control,
    Marks,
    Neighbour,
    Route,
    is_client,
)
from broker.machine.places import PlacedPublications
from broker.machine.queues import QueuedPublications
from broker.messages import (
    Acknowledge,
    Flag,
    Message,
    NodeKind,
    Publish,
    Settled,
    Unadvertise,
    Unsubscribe,
)
from broker.outbox import Outbox
from faulttol.stability import StreamBelow
from faulttol.steplog import Entry, Key, StepLog, Taken, longest
from routing.ids import AdvertisementId, NodeId, SubscriptionId
from routing.orderings import ORDERINGS, Ordering
from routing.tables import Advertisement, Subscription

Entry_ = TypeVar("Entry_", Advertisement, Subscription)


class TooManyFailedError(Exception):
    """A step was taken that depends on one which nobody alive knows: more than δ have failed."""


@attrs.frozen
class Travelling:
    """A publication in the stream between two neighbours, which is not stable."""

    number: int
    step: int
    """Of whoever sent it."""
    publication: Publish

    @property
    def key(self) -> Key:
        """What identifies it."""
        return self.publication.publisher, self.publication.incarnation, self.publication.seq


@attrs.frozen(kw_only=True)
class StreamEnd:
    """One direction of a link, as one of its ends has it."""

    stable: int
    confirmed: int
    kept: tuple[Travelling, ...]


@attrs.frozen
class Told(Generic[Entry_]):
    """What a node of the boundary had told its neighbour in the region."""

    entry: Entry_
    told_in: int
    """The step, of the node that told it; 0 if that is long ago."""
    withdrawn_in: int | None = None
    """And the one in which it was withdrawn; None if it stands."""


@attrs.frozen(kw_only=True)
class Attachment:
    """What a node of the boundary says of itself and its neighbour in the region."""

    node: NodeId
    kind: NodeKind
    incarnation: int
    to: NodeId
    """The neighbour in the region."""
    taken: int
    """The last step of that which was taken here."""
    sent: StreamEnd
    received: StreamEnd
    controls: tuple[Control, ...]
    """What was sent beside publications, and the neighbour may need again."""
    advertisements: tuple[Told[Advertisement], ...]
    subscriptions: tuple[Told[Subscription], ...]
    known_advertisements: frozenset[AdvertisementId]
    """What the neighbour has told."""
    known_subscriptions: frozenset[SubscriptionId]
    forgot: int
    """The last step of this node of which the neighbour has said that it needs nothing again."""
    base: int
    """Up to which of the neighbour's steps everything is stable, as it said then."""
    logs: Mapping[NodeId, StepLog]
    """Of brokers of the region, as far as they are known here."""


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
    return _Rebuilding(region, list(attachments), settings, limits, outbox, now).run()


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
        self.taken: dict[NodeId, list[tuple[int, int]]] = {}
        """Of each neighbour: with which step of its batches end, and the step that took them."""
        for step, entry in enumerate(log.entries, log.base + 1):
            for name in entry.installed:
                self.installed.setdefault(name, step)
            if entry.kind is Taken.BATCH:
                self.taken.setdefault(entry.source, []).append((entry.upto, step))


class _Rebuilding:
    """The work of `rebuild`, which takes as many steps as there are in the logs."""

    def __init__(
        self,
        region: Mapping[NodeId, NodeId | None],
        attachments: list[Attachment],
        settings: Settings,
        limits: Limits,
        outbox: Outbox,
        now: float,
    ) -> None:
        self._region = region
        self._attached: dict[tuple[NodeId, NodeId], Attachment] = {
            (each.node, each.to): each for each in attachments
        }
        self._now = now
        self._orderings: dict[NodeId, _Again] = {}
        self._logs: dict[NodeId, StepLog] = {}
        self._indexes: dict[NodeId, _Index] = {}
        self._late: dict[NodeId, dict[str, Callable[[], None]]] = {}
        """How to install what was told before the log begins, but was taken later."""
        self._announced: dict[NodeId, dict[AdvertisementId, Told[Advertisement]]] = {}
        """What each broker knows of advertisements, and since when."""
        self._asked: dict[NodeId, set[SubscriptionId]] = {}
        self._settings = settings
        self.machines: dict[NodeId, Machine] = {}
        for node, parent in region.items():
            machine = Machine(node, parent, settings=settings, limits=limits, outbox=outbox)
            known = [StepLog(), *(each.logs[node] for each in attachments if node in each.logs)]
            self._add_neighbours(machine)
            self._know_what_was_taken(machine, longest(known))
            self._orderings[node] = again = _Again(ORDERINGS[settings.ordering])
            if not isinstance(machine.publications, QueuedPublications):
                machine.publications.ordering = cast("Ordering[Arrival]", again)
            self.machines[node] = machine
            self._late[node], self._announced[node], self._asked[node] = {}, {}, set()

    def run(self) -> dict[NodeId, Machine]:
        """Take all steps again, then join the streams to those of the boundary."""
        self._lay_the_base()
        self._take_steps()
        for node, machine in self.machines.items():
            for neighbour in machine.neighbours.all():
                attachment = self._attached.get((neighbour.node, node))
                if attachment is not None:
                    self._join_streams(machine, neighbour, attachment)
                elif neighbour.node in self._region:
                    self._leave_out_what_is_stable(machine, neighbour)
        for machine in self.machines.values():
            self._order_anew(machine)
        return self.machines

    # --- what there was before the logs begin -----------------------------------------------

    def _add_neighbours(self, machine: Machine) -> None:
        for child, parent in self._region.items():
            if parent == machine.node:
                machine.add_below(child, NodeKind.BROKER, 0)
        for (other, to), attachment in self._attached.items():
            if to == machine.node and other != self._region[to]:
                machine.add_below(other, attachment.kind, attachment.incarnation)

    def _know_what_was_taken(self, machine: Machine, log: StepLog) -> None:
        """Begin where the log begins, with what had been taken of each neighbour by then."""
        log.forget(max([0, *(e.base for e in self._attached.values() if e.to == machine.node)]))
        for neighbour in machine.neighbours.all():
            attachment = self._attached.get((neighbour.node, machine.node))
            if attachment is not None:
                log.note_taken(neighbour.node, attachment.forgot)
            neighbour.taken = neighbour.taken_at_base = log.taken.get(neighbour.node, 0)
        self._logs[machine.node] = log
        self._indexes[machine.node] = _Index(log)
        machine.steps.log = log.copy()
        machine.steps.log.entries.clear()
        machine.steps.number = log.base
        if isinstance(machine.publications, PlacedPublications):
            machine.publications.begin_life(log)

    def _lay_the_base(self) -> None:
        """Know what had been told before: by the boundary, and then from broker to broker.

        A broker of the region knew something when its log begins, and no step of the log says that
        it was installed later; or it takes it in a step of the log, with the message that says so.
        """
        for (node, to), attachment in self._attached.items():
            for announced in attachment.advertisements:
                self._advertised(node, to, announced)
        for (node, to), attachment in self._attached.items():
            for asked in attachment.subscriptions:
                self._subscribed(node, to, asked)

    def _advertised(self, source: NodeId, to: NodeId, told: Told[Advertisement]) -> None:
        """A broker of the region was told of an advertisement, and told those beyond."""
        machine = self.machines[to]
        interests = machine.interests
        span = self._span(source, to, told)
        if span is None or told.entry.id in self._announced[to]:
            return
        own = attrs.evolve(told.entry, hop=_hop_of(machine, source))
        if span.is_late:
            self._late[to][own.id] = lambda: interests.learn_advertisement(own, self._now)
        elif not span.told_in:
            interests.put_in_advertisement(own)
            machine.neighbours.version += 1
            for neighbour in machine.neighbours.other_brokers(None):
                if neighbour.node != source:
                    neighbour.told_of[own.id] = 0
        self._announced[to][own.id] = Told(own, span.told_in, span.withdrawn_in)
        onwards = Told(_onwards(machine, own), span.told_in, span.withdrawn_in)
        for neighbour in machine.neighbours.other_brokers(None):
            if neighbour.node != source and neighbour.node in self._region:
                self._advertised(to, neighbour.node, onwards)

    def _subscribed(self, source: NodeId, to: NodeId, told: Told[Subscription]) -> None:
        """The same of a subscription, told where advertisements drew it, as soon as they did."""
        machine = self.machines[to]
        interests = machine.interests
        span = self._span(source, to, told)
        if span is None or told.entry.id in self._asked[to]:
            return
        own = attrs.evolve(told.entry, hop=_hop_of(machine, source))
        self._asked[to].add(own.id)
        if span.is_late:
            self._late[to][own.id] = lambda: interests.learn_subscription(own, self._now)
        elif not span.told_in:
            told_before = interests.brokers_to_tell(own)
            interests.put_in_subscription(own, [n.hop for n in told_before])
            machine.neighbours.version += 1
            for neighbour in told_before:
                neighbour.told_of[own.id] = 0
        for neighbour in machine.neighbours.other_brokers(None):
            if neighbour.node in self._region and neighbour.hop != own.hop:
                onwards = self._drawn(to, neighbour, own, span)
                if onwards is not None:
                    self._subscribed(to, neighbour.node, onwards)

    def _drawn(
        self, by: NodeId, to: Neighbour, entry: Subscription, span: "_Span"
    ) -> Told[Subscription] | None:
        """When a broker of the region told another one of a subscription; None if it did not."""
        interests = self.machines[by].interests
        onwards = _onwards(self.machines[by], entry)
        if interests.is_told_anyway(to):
            return Told(onwards, span.told_in, span.withdrawn_in)
        drawing = [
            each
            for each in self._announced[by].values()
            if each.entry.hop == to.hop and each.entry.filter.overlaps(entry.filter)
        ]
        if not drawing:
            return None
        ends = [each.withdrawn_in for each in drawing]
        ended = [end for end in ends if end is not None]
        withdrawn = [max(ended)] if len(ended) == len(ends) else []
        withdrawn += [] if span.withdrawn_in is None else [span.withdrawn_in]
        told_in = max(span.told_in, min(each.told_in for each in drawing))
        return Told(onwards, told_in, min(withdrawn, default=None))

    def _span(self, source: NodeId, to: NodeId, told: Told[Any]) -> "_Span | None":
        """From when to when a broker of the region knew what it was told, in its own steps.

        None if it did not take it, or had forgotten it when its log begins.
        """
        neighbour = self.machines[to].neighbours.named(source)
        assert neighbour is not None
        base = neighbour.taken_at_base
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

    def _take_steps(self) -> None:
        """Take every step of every log, each when what it took is there."""
        remaining = dict.fromkeys(self._region)
        while remaining:
            before = sum(machine.steps.number for machine in self.machines.values())
            for node in list(remaining):
                if self._take_steps_of(node):
                    del remaining[node]
            if remaining and before == sum(m.steps.number for m in self.machines.values()):
                raise AssertionError(f"steps of {list(remaining)} wait for one another")

    def _take_steps_of(self, node: NodeId) -> bool:
        """Take the steps of one broker, as far as possible; returns whether that was all."""
        machine, log, ordering = self.machines[node], self._logs[node], self._orderings[node]
        while machine.steps.number < log.last:
            entry = log.entries[machine.steps.number - log.base]
            source = machine.neighbours.named(entry.source)
            items: list[Travelling | Control] = []
            if entry.kind is Taken.BATCH and source is not None:
                found = self._items(source.node, node, source.taken, entry.upto)
                if found is None:
                    return False
                items = found
            self._take_again(machine, source, entry, ordering, items)
        return True

    def _items(
        self, source: NodeId, to: NodeId, after: int, upto: int
    ) -> list[Travelling | Control] | None:
        """What one node sent another in these steps; None if it has not taken them again yet."""
        attachment = self._attached.get((source, to))
        if attachment is not None:
            return _in_order(attachment.sent.kept, attachment.controls, after, upto)
        sender = self.machines[source]
        last = self._logs[source].last
        if upto > last:
            raise TooManyFailedError(
                f"{to} took step {upto} of {source}, of which nobody knows more than {last}"
            )
        if sender.steps.number < upto:
            return None
        neighbour = sender.neighbours.named(to)
        assert neighbour is not None
        return _in_order(list(kept(neighbour)), neighbour.controls, after, upto)

    def _take_again(
        self,
        machine: Machine,
        source: Neighbour | None,
        entry: Entry,
        ordering: _Again,
        items: Sequence[Travelling | Control],
    ) -> None:
        """Take one step again."""
        ordering.begin(entry)
        steps, publications = machine.steps, machine.publications
        if isinstance(publications, QueuedPublications):
            publications.begin_again(entry)
        steps.begin(entry.kind, entry.source, entry.upto)
        if entry.kind is Taken.BATCH and source is not None:
            source.taken = max(source.taken, entry.upto)
            keys = {item.key for item in items if isinstance(item, Travelling)}
            for item in items:
                if isinstance(item, Travelling):
                    machine.publications.on_publish(source, item.publication, self._now)
                    if item.publication.flags & Flag.AWAITED:
                        self._number(source, item.number)
                elif isinstance(item.message, Settled):
                    # Which may be stable by now, and so not here.
                    settled = ordering.held_now.get(item.key) if item.key else None
                    if settled is not None:
                        machine.publications.acknowledge(settled)
                elif item.key is None or item.key in keys or isinstance(item.message, Acknowledge):
                    machine.take_one(source, item.message, self._now)
        elif entry.kind is Taken.GONE and isinstance(source, Below):
            machine.remove(source, self._now)
        withdrawn = {_withdrawn_by(item.message) for item in items if isinstance(item, Control)}
        for name in entry.installed:
            install = self._late[machine.node].pop(name, None)
            if name in withdrawn:
                continue  # in the same step
            if install is not None and not machine.interests.knows(name):
                steps.is_replayed = True
                install()
                steps.is_replayed = False
        for arrival in ordering.released_before(None):
            machine.publications.release(arrival)
        if isinstance(publications, QueuedPublications):
            publications.end_again()
        machine.end_step()
        steps.log.entries[-1] = entry

    @staticmethod
    def _number(source: Neighbour, number: int) -> None:
        """The number by which the neighbour knows the publication that has come from it last."""
        stream = source.received
        last = stream.unconfirmed[-1] if stream.unconfirmed else stream.confirmed[-1]
        last.number = number

    # --- the streams ------------------------------------------------------------------------

    def _join_streams(self, machine: Machine, neighbour: Neighbour, theirs: Attachment) -> None:
        """Number both streams as the neighbour does, who knows what was in them."""
        self._join_sent(machine, neighbour, theirs)
        self._join_received(neighbour, theirs)
        if isinstance(neighbour, Above):
            neighbour.sent.advance_confirmed()
            neighbour.received.advance_confirmed()
            machine.publications.awaiting = _waiting(neighbour)
        else:
            _confirm(neighbour.sent, theirs.received.confirmed)
            _confirm(neighbour.received, theirs.sent.confirmed)
        self._agree_on_tables(machine, neighbour, theirs)

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
            machine.publications.awaiting = _waiting(neighbour)
            for arrival in neighbour.sent.keep():
                for taken in other.received.keep():
                    if taken.key == arrival.key and taken.number:
                        taken.number -= count

    @staticmethod
    def _join_sent(machine: Machine, neighbour: Neighbour, theirs: Attachment) -> None:
        """What it has, then what it lacks; that goes to it in the step that comes next."""
        stream, next_step = neighbour.sent, machine.steps.number + 1
        native = list(kept(neighbour))
        left = dict(zip([each.key for each in native], stream.keep(), strict=True))
        marks, numbers, entries = Marks(), dict[Key, int](), list[Arrival]()
        for each in theirs.received.kept:
            known = left.pop(each.key) if each.key in left else None
            entries.append(known or _stable(each.publication, neighbour))
            numbers[each.key] = each.number
            marks.add(each.step, each.number)
        count = theirs.received.stable + len(entries)
        for each in native:
            if each.key in left and each.step > theirs.taken:
                count += 1
                entries.append(left.pop(each.key))
                numbers[each.key] = count
                marks.add(next_step, count)
        for arrival in left.values():  # it had that, and has it no more: it knows that it is stable
            machine.publications.note_stable(arrival, neighbour)
        stream.stable_count = theirs.received.stable
        stream.confirmed.clear()
        stream.unconfirmed[:] = entries
        neighbour.sent_marks = marks
        places = [theirs.received.stable]
        for each in native:
            places.append(max(places[-1], numbers.get(each.key, 0)))
        again = [
            attrs.evolve(
                control,
                step=control.step if control.step <= theirs.taken else next_step,
                position=places[control.position],
            )
            for control in neighbour.controls
        ]
        neighbour.controls.clear()
        neighbour.controls.extend(again)

    @staticmethod
    def _join_received(neighbour: Neighbour, theirs: Attachment) -> None:
        """What it sent and was taken, as far as it keeps that."""
        stream = neighbour.received
        arrivals = {arrival.key: arrival for arrival in stream.keep()}
        taken = [each for each in theirs.sent.kept if each.step <= neighbour.taken]
        stream.stable_count = theirs.sent.stable
        stream.confirmed.clear()
        # What is not among them was stable when the log begins, which the neighbour may not know.
        stream.unconfirmed[:] = [
            arrivals[each.key] if each.key in arrivals else _stable(each.publication, neighbour)
            for each in taken
        ]
        neighbour.received_marks = Marks()
        for each in taken:
            neighbour.received_marks.add(each.step, each.number)
        if is_client(neighbour):  # it has settled what it publishes by publishing it
            stream.confirmed[:], stream.unconfirmed[:] = stream.unconfirmed[:], []

    @staticmethod
    def _agree_on_tables(machine: Machine, neighbour: Neighbour, theirs: Attachment) -> None:
        """What a neighbour was told by a client that has failed too is to be forgotten.

        And what such a client's advertisement drew there, it knows.
        """
        if is_client(neighbour):
            return
        interests, steps = machine.interests, machine.steps
        withdrawn = {
            control.about.id for control in neighbour.controls if control.about is not None
        }
        last = steps.number
        steps.number += 1  # in the step that comes next
        for advertisement in sorted(theirs.known_advertisements - withdrawn):
            if advertisement not in interests.advertisements:
                operation = steps.new_operation()
                steps.send(neighbour, Unadvertise(operation=operation, advertisement=advertisement))
        for subscription in sorted(theirs.known_subscriptions - withdrawn):
            if subscription in interests.subscriptions:
                interests.note_forwarded(subscription, neighbour)
            else:
                operation = steps.new_operation()
                steps.send(neighbour, Unsubscribe(operation=operation, subscription=subscription))
        steps.number = last

    def _order_anew(self, machine: Machine) -> None:
        """Give what is held back to the ordering, in the order of its arrival."""
        if isinstance(machine.publications, QueuedPublications):
            machine.publications.go_on()
            return
        ordering: Ordering[Arrival] = ORDERINGS[self._settings.ordering]()
        held = machine.publications.ordering.held
        machine.publications.ordering = ordering
        for arrival in held:
            ready = ordering.arrived(arrival)
            assert not ready, f"{arrival.key} is held at {machine.node} behind nothing"
        machine.publications.complete_what_lacks_nothing()


_NEVER: Final = 1 << 62


def _waiting(parent: Above) -> dict[int, Arrival]:
    """What waits for the parent, by its number in the stream up."""
    numbered = enumerate(parent.sent.keep(), parent.sent.stable_count + 1)
    return {number: arrival for number, arrival in numbered if arrival.waits}


def _withdrawn_by(message: Message) -> str | None:
    """The name of what a message withdraws."""
    match message:
        case Unsubscribe(subscription=name):
            return name
        case Unadvertise(advertisement=name):
            return name
    return None


def _hop_of(machine: Machine, source: NodeId) -> NodeId:
    neighbour = machine.neighbours.named(source)
    assert neighbour is not None
    return neighbour.hop


def _confirm(stream: "StreamBelow[Arrival]", count: int) -> None:
    """What the neighbour has confirmed."""
    stream.confirm_up_to(max(stream.confirmed_count, min(count, stream.count)))


def _stable(publication: Publish, source: Neighbour) -> Arrival:
    """Stands for what a neighbour has and nobody else keeps."""
    return Arrival(publication, 0, True, source=source, route=NOWHERE, step=0)


NOWHERE = Route(down=(), climbs=False, links=(), is_allowed=True)


def kept(neighbour: Neighbour) -> Iterator[Travelling]:
    """What is in the stream to a neighbour, and not stable."""
    kept = neighbour.sent.keep()
    first = neighbour.sent.count - len(kept) + 1
    for number, arrival in enumerate(kept, first):
        yield Travelling(number, neighbour.sent_marks.step_of(number), arrival.towards(neighbour))


def _in_order(
    publications: Sequence[Travelling], controls: Iterable[Control], after: int, upto: int
) -> list[Travelling | Control]:
    """What was sent in these steps, as it was sent."""
    items: list[tuple[int, int, Travelling | Control]] = []
    items += [(p.number, 0, p) for p in publications if after < p.step <= upto]
    items += [(c.position, 1, c) for c in controls if after < c.step <= upto]
    items.sort(key=lambda item: item[:2])
    return [item for _, _, item in items]


def attach(machine: Machine, to: NodeId, logs: Mapping[NodeId, StepLog]) -> Attachment:
    """What a live broker says when its neighbour has failed."""
    neighbour = machine.neighbours.named(to)
    assert neighbour is not None
    received = neighbour.received.keep()
    first = neighbour.received.count - len(received) + 1
    interests = machine.interests
    advertisements = [
        Told(_onwards(machine, entry), neighbour.told_of[entry.id])
        for entry in interests.advertisements
        if entry.id in neighbour.told_of
    ]
    subscriptions = [
        Told(_onwards(machine, entry), neighbour.told_of[entry.id])
        for entry in interests.subscriptions
        if entry.id in neighbour.told_of
    ]
    withdrawn = [(c.message, c.about, c.told_in, c.step) for c in neighbour.controls]
    # What waits behind held publications to be withdrawn still stands there.
    for delayed in machine.publications.delayed_for(neighbour):
        if delayed.about is not None and delayed.about.id in neighbour.told_of:
            told_in = neighbour.told_of[delayed.about.id]
            withdrawn.append((delayed.message, delayed.about, told_in, _NEVER))
    for message, about, told_in, step in withdrawn:
        if isinstance(message, Unadvertise) and about is not None:
            announced = _onwards(machine, cast("Advertisement", about))
            advertisements.append(Told(announced, told_in, step))
        elif isinstance(message, Unsubscribe) and about is not None:
            asked = _onwards(machine, cast("Subscription", about))
            subscriptions.append(Told(asked, told_in, step))
    return Attachment(
        node=machine.node,
        kind=NodeKind.BROKER,
        incarnation=0,
        to=to,
        taken=neighbour.taken,
        sent=StreamEnd(
            stable=neighbour.sent.stable_count,
            confirmed=neighbour.sent.confirmed_count,
            kept=tuple(kept(neighbour)),
        ),
        received=StreamEnd(
            stable=neighbour.received.stable_count,
            confirmed=neighbour.received.confirmed_count,
            kept=tuple(
                Travelling(n, neighbour.received_marks.step_of(n), arrival.publication)
                for n, arrival in enumerate(received, first)
            ),
        ),
        controls=tuple(neighbour.controls),
        advertisements=tuple(advertisements),
        subscriptions=tuple(subscriptions),
        known_advertisements=frozenset(
            e.id for e in interests.advertisements if e.hop == neighbour.hop
        ),
        known_subscriptions=frozenset(
            e.id for e in interests.subscriptions if e.hop == neighbour.hop
        ),
        forgot=neighbour.forgot,
        base=neighbour.base,
        logs=logs,
    )


def _onwards(machine: Machine, entry: Entry_) -> Entry_:
    """An entry as the next broker is told of it."""
    return attrs.evolve(entry, path=machine.interests.path_onwards(entry))
