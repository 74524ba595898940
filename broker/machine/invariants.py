"""What is true of a broker after every step, whatever it took: counted again, and compared.

Tests call this after every step of every run. A count that is kept by hand, or a table that points
to nobody, is found when it goes wrong, and not when somebody notices what came of it.
"""

import operator
from collections.abc import Iterator, Sequence

from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import UP, Arrival, Below, Neighbour, is_client
from plait.broker.machine.queues import QueuedPublications
from plait.routing.ids import NodeId


def check_invariants(machine: Machine) -> None:
    """Raise AssertionError with all that is not as it should be."""
    broken = broken_invariants(machine)
    assert not broken, f"{machine.node} after step {machine.steps.number}: " + "; ".join(broken)


def broken_invariants(machine: Machine) -> list[str]:
    """All that is not as it should be, in words."""
    arrivals = _arrivals(machine)
    return [
        *_counts(machine, arrivals),
        *_streams(machine),
        *_tables(machine),
        *_operations(machine),
        *_log(machine, arrivals),
    ]


def _arrivals(machine: Machine) -> list[Arrival]:
    """Every publication here that is not stable, whoever it came from."""
    streams = [neighbour.received for neighbour in machine.neighbours.all()]
    arrivals = [a for s in streams for each in (s.confirmed, s.unconfirmed) for a in each]
    arrivals += machine.publications.of_the_gone()
    return [arrival for arrival in arrivals if not arrival.stable]


def _counts(machine: Machine, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Confirmations that are missing, publications that are unstable, and what is held."""
    publications = machine.publications
    if publications.unstable != len(arrivals):
        yield f"{publications.unstable} unstable, {len(arrivals)} are there"
    held = publications.ordering.held
    if any(arrival.settled_in for arrival in held):
        yield "something is held that has been settled"
    if {id(arrival) for arrival in held} - {id(arrival) for arrival in arrivals}:
        yield "something is held that is not there"
    if not arrivals:
        return
    confirmed = {
        neighbour.hop: {id(arrival) for arrival in neighbour.sent.confirmed}
        for neighbour in machine.neighbours.below.values()
    }
    for arrival in arrivals:
        missing = _missing(machine, arrival, confirmed)
        if arrival.missing != missing and not arrival.is_over:
            yield f"{arrival.key} lacks {missing} confirmations and counts {arrival.missing}"


def _missing(machine: Machine, arrival: Arrival, confirmed: dict[NodeId, set[int]]) -> int:
    """How many confirmations a publication lacks, and whether it has to be settled here."""
    below = machine.neighbours.below
    receivers = [n for n in arrival.route.down if below.get(n.node) is n]
    missing = sum(id(arrival) not in confirmed[receiver.hop] for receiver in receivers)
    if not arrival.settled_in:
        missing += 1
        if not isinstance(machine.publications, QueuedPublications):
            # Who is gone is counted until it is settled: nobody has it.
            missing += len(arrival.route.down) - len(receivers)
    source = arrival.source
    if isinstance(source, Below) and not is_client(source) and below.get(source.node) is source:
        missing += any(each is arrival for each in source.received.unconfirmed)
    return missing


def _streams(machine: Machine) -> Iterator[str]:
    """What travels between this broker and each neighbour."""
    for neighbour in machine.neighbours.all():
        yield from _grown(neighbour)
        if neighbour.taken < neighbour.taken_at_base:
            yield f"less is taken of {neighbour.node} than at the base, {neighbour.taken_at_base}"
        last, count = 0, neighbour.sent.count
        for control in neighbour.controls:
            if control.step < last:
                yield f"controls to {neighbour.node} go back in time, from step {last}"
            if control.position > count:
                yield f"a control to {neighbour.node} lies beyond the stream"
            last = control.step
    awaiting = machine.publications.awaiting
    if not awaiting:
        return
    parent = machine.neighbours.parent
    sent = [] if parent is None else parent.sent.keep()
    for number, arrival in awaiting.items():
        assert parent is not None
        place = number - parent.sent.stable_count - 1
        if not arrival.waits or not 0 <= place < len(sent) or sent[place] is not arrival:
            yield f"{arrival.key} is awaited as number {number}, and is not that"


def _grown(neighbour: Neighbour) -> Iterator[str]:
    """Counters only grow."""
    sent, received = neighbour.sent, neighbour.received
    now = (
        sent.count,
        sent.stable_count,
        received.count,
        received.stable_count,
        neighbour.taken,
        neighbour.forgot,
    )
    before = neighbour.counted
    if now != before:
        if any(map(operator.lt, now, before)):
            yield f"counters of {neighbour.node} shrank from {before} to {now}"
        neighbour.counted = now


def _tables(machine: Machine) -> Iterator[str]:
    """Every way leads to a neighbour."""
    interests, neighbours = machine.interests, machine.neighbours
    hops = {neighbour.hop for neighbour in neighbours.all()}
    for table in (interests.advertisements, interests.subscriptions):
        for entry in table:
            if entry.hop not in hops:
                yield f"{entry.id} lies behind {entry.hop}, who is no neighbour"
    for entry in interests.subscriptions:
        for hop in interests.forwarded(entry.id):
            if hop == entry.hop or hop not in hops:
                yield f"{entry.id} was passed on to {hop}"
    if neighbours.get(UP) is None and neighbours.parent is not None:
        yield "the parent is not where it should be"


def _operations(machine: Machine) -> Iterator[str]:
    """Whoever has to confirm, or waits for it, is a neighbour."""
    if not len(machine.requests):
        return
    for operation, (source, missing) in machine.requests.waiting().items():
        for hop in (*missing, *([] if source is None else [source])):
            if machine.neighbours.get(hop) is None:
                yield f"{operation} waits for {hop}, who is no neighbour"
        if not missing:
            yield f"{operation} waits for nobody"


def _log(machine: Machine, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """The log ends with the last step, and its base is before everything that is not stable."""
    log = machine.steps.log
    if log.last != machine.steps.number:
        yield f"the log ends with step {log.last}"
    unstable = min((arrival.step for arrival in arrivals), default=None)
    firsts = (unstable, machine.requests.first_step)
    if any(first is not None and first <= log.base for first in firsts):
        yield f"the log begins after step {log.base}, and {firsts} are not stable"
