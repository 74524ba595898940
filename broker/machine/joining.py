"""Joining the two ends of a link, one of which was rebuilt: both number alike what was in between.

It may be long, so it goes in pieces: these functions are generators, which yield after each.
"""

from collections.abc import Iterator

import attrs

from plait.broker.machine.attachments import Attachment
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import (
    Above,
    Arrival,
    Below,
    Marks,
    Neighbour,
    Route,
    is_client,
)
from plait.broker.machine.steps import AGREED
from plait.broker.machine.streams import kept
from plait.broker.messages import Publish, Unadvertise, Unsubscribe
from plait.faulttol.steplog import Key

NOWHERE = Route(down=(), climbs=False, links=(), is_allowed=True)


def join_streams(machine: Machine, neighbour: Neighbour, theirs: Attachment) -> Iterator[None]:
    """Number both streams as the neighbour does, who knows what was in them."""
    yield from _join_sent(machine, neighbour, theirs)
    yield from _join_received(neighbour, theirs)
    if isinstance(neighbour, Above):
        neighbour.sent.advance_confirmed()
        neighbour.received.advance_confirmed()
        machine.publications.awaiting = waiting(neighbour)
    yield
    _agree_on_tables(machine, neighbour, theirs)


def reattach(machine: Machine, client: Below, theirs: Attachment) -> None:
    """A client comes back that was away when this broker was rebuilt, and says what it has.

    What it lacks goes to it in the step that comes next: its `BACK`.
    """
    assert client.is_detached, f"{client.node} has said what it has"
    for _ in join_streams(machine, client, theirs):
        pass
    client.is_detached = False
    machine.publications.complete_what_lacks_nothing()


def waiting(parent: Above) -> dict[int, Arrival]:
    """What waits for the parent, by its number in the stream up."""
    numbered = enumerate(parent.sent.keep(), parent.sent.stable_count + 1)
    return {number: arrival for number, arrival in numbered if arrival.waits}


def _join_sent(machine: Machine, neighbour: Neighbour, theirs: Attachment) -> Iterator[None]:
    """What it has, then what it lacks; that goes to it in the step that comes next."""
    stream, next_step = neighbour.sent, machine.steps.number + 1
    native = []
    for each in kept(neighbour):
        native.append(each)
        yield
    left = dict(zip([each.key for each in native], stream.keep(), strict=True))
    marks, numbers, entries = Marks(), dict[Key, int](), list[Arrival]()
    for each in theirs.received.kept:
        known = left.pop(each.key) if each.key in left else None
        entries.append(known or _stable(each.publication, neighbour))
        numbers[each.key] = each.number
        marks.add(each.step, each.number)
        yield
    count = theirs.received.stable + len(entries)
    for each in native:
        if each.key in left and each.step > theirs.taken:
            count += 1
            entries.append(left.pop(each.key))
            numbers[each.key] = count
            marks.add(next_step, count)
        yield
    for arrival in left.values():  # it had that, and has it no more: it knows that it is stable
        machine.publications.note_stable(arrival, neighbour)
        yield
    stream.stable_count = theirs.received.stable
    stream.confirmed.clear()
    stream.unconfirmed[:] = entries
    neighbour.sent_marks = marks
    places = [theirs.received.stable]
    for each in native:
        places.append(max(places[-1], numbers.get(each.key, 0)))
        yield
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


def _join_received(neighbour: Neighbour, theirs: Attachment) -> Iterator[None]:
    """What it sent and was taken, as far as it keeps that."""
    stream = neighbour.received
    arrivals = {arrival.key: arrival for arrival in stream.keep()}
    taken = [each for each in theirs.sent.kept if each.step <= neighbour.taken]
    stream.stable_count = theirs.sent.stable
    stream.confirmed.clear()
    # What is not among them was stable when the log begins, which the neighbour may not know.
    joined = []
    neighbour.received_marks = Marks()
    for each in taken:
        known = arrivals.get(each.key)
        joined.append(known or _stable(each.publication, neighbour))
        neighbour.received_marks.add(each.step, each.number)
        yield
    stream.unconfirmed[:] = joined
    if is_client(neighbour):  # it has settled what it publishes by publishing it
        stream.confirmed[:], stream.unconfirmed[:] = stream.unconfirmed[:], []


def _agree_on_tables(machine: Machine, neighbour: Neighbour, theirs: Attachment) -> None:
    """What a neighbour was told by a client that has failed too is to be forgotten.

    And what such a client's advertisement drew there, it knows.
    """
    if is_client(neighbour):
        return
    interests, steps = machine.interests, machine.steps
    # What is withdrawn behind held publications is not withdrawn out of turn.
    about = [delayed.about for delayed in machine.publications.delayed_for(neighbour)]
    about += [control.about for control in neighbour.controls]
    withdrawn = {each.id for each in about if each is not None}
    last = steps.number
    steps.number += 1  # in the step that comes next
    steps.mark = AGREED
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
    steps.number, steps.mark = last, ""


def _stable(publication: Publish, source: Neighbour) -> Arrival:
    """Stands for what a neighbour has and nobody else keeps."""
    return Arrival(publication, 0, True, source=source, route=NOWHERE, step=0)
