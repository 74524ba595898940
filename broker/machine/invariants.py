"""What is true of a broker after every step, whatever it took: counted again, and compared.

Tests call this after every step of every run. A count that is kept by hand, or a table that points
to nobody, is found when it goes wrong, and not when somebody notices what came of it.
"""

from collections.abc import Iterator

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
    return [
        *_counts(machine),
        *_streams(machine),
        *_tables(machine),
        *_operations(machine),
        *_log(machine),
    ]


def _arrivals(machine: Machine) -> list[Arrival]:
    """Every publication here that is not stable, whoever it came from."""
    publications = machine.publications
    streams = [neighbour.received.keep() for neighbour in machine.neighbours.all()]
    return [
        arrival
        for arrivals in (*streams, publications.of_the_gone())
        for arrival in arrivals
        if not arrival.stable
    ]


def _counts(machine: Machine) -> Iterator[str]:
    """Confirmations that are missing, publications that are unstable, and what is held."""
    arrivals = _arrivals(machine)
    publications = machine.publications
    if publications.unstable != len(arrivals):
        yield f"{publications.unstable} unstable, {len(arrivals)} are there"
    confirmed = {
        neighbour.hop: {id(arrival) for arrival in neighbour.sent.confirmed}
        for neighbour in machine.neighbours.below.values()
    }
    for arrival in arrivals:
        missing = _missing(machine, arrival, confirmed)
        if arrival.missing != missing and not arrival.is_over:
            yield f"{arrival.key} lacks {missing} confirmations and counts {arrival.missing}"
    held = publications.ordering.held
    if any(arrival.settled_in for arrival in held):
        yield "something is held that has been settled"
    if {id(arrival) for arrival in held} - {id(arrival) for arrival in arrivals}:
        yield "something is held that is not there"


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
        steps = [control.step for control in neighbour.controls]
        if steps != sorted(steps):
            yield f"controls to {neighbour.node} go back in time: {steps}"
        if any(control.position > neighbour.sent.count for control in neighbour.controls):
            yield f"a control to {neighbour.node} lies beyond the stream"
    parent = machine.neighbours.parent
    sent = [] if parent is None else parent.sent.keep()
    for number, arrival in machine.publications.awaiting.items():
        assert parent is not None
        place = number - parent.sent.stable_count - 1
        if not arrival.waits or not 0 <= place < len(sent) or sent[place] is not arrival:
            yield f"{arrival.key} is awaited as number {number}, and is not that"


def _grown(neighbour: Neighbour) -> Iterator[str]:
    """Counters only grow."""
    now = (
        neighbour.sent.count,
        neighbour.sent.stable_count,
        neighbour.received.count,
        neighbour.received.stable_count,
        neighbour.taken,
        neighbour.forgot,
    )
    if any(after < before for before, after in zip(neighbour.counted, now, strict=False)):
        yield f"counters of {neighbour.node} shrank from {neighbour.counted} to {now}"
    neighbour.counted = now


def _tables(machine: Machine) -> Iterator[str]:
    """Every way leads to a neighbour."""
    interests, neighbours = machine.interests, machine.neighbours
    for table in (interests.advertisements, interests.subscriptions):
        for entry in table:
            if neighbours.get(entry.hop) is None:
                yield f"{entry.id} lies behind {entry.hop}, who is no neighbour"
    for entry in interests.subscriptions:
        for hop in interests.forwarded(entry.id):
            if neighbours.get(hop) is None or hop == entry.hop:
                yield f"{entry.id} was passed on to {hop}"
    if neighbours.get(UP) is None and neighbours.parent is not None:
        yield "the parent is not where it should be"


def _operations(machine: Machine) -> Iterator[str]:
    """Whoever has to confirm, or waits for it, is a neighbour."""
    for operation, (source, missing) in machine.requests.waiting().items():
        for hop in (*missing, *([] if source is None else [source])):
            if machine.neighbours.get(hop) is None:
                yield f"{operation} waits for {hop}, who is no neighbour"
        if not missing:
            yield f"{operation} waits for nobody"


def _log(machine: Machine) -> Iterator[str]:
    """The log ends with the last step, and its base is before everything that is not stable."""
    log = machine.steps.log
    if log.last != machine.steps.number:
        yield f"the log ends with step {log.last}"
    unstable = min((arrival.step for arrival in _arrivals(machine)), default=None)
    firsts = (unstable, machine.requests.first_step)
    if any(first is not None and first <= log.base for first in firsts):
        yield f"the log begins after step {log.base}, and {firsts} are not stable"
