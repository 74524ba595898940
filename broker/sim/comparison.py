"""A broker that was taken up, and the one that it replaces: in what they differ."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

from plait.broker.machine.machine import Machine
from plait.faulttol.steplog import Key
from plait.routing.ids import NodeId


@attrs.frozen(kw_only=True)
class Snapshot:
    """The state of a broker that has to be rebuilt, in a form that can be compared."""

    node: NodeId
    step: int
    taken: dict[NodeId, int]
    advertisements: dict[str, tuple[Any, ...]]
    subscriptions: dict[str, tuple[Any, ...]]
    arrivals: dict[tuple[NodeId, Key], tuple[Any, ...]]
    held: list[Key]
    topics: Mapping[Any, tuple[Any, ...]]
    """Where topics are ordered."""


def snapshot(machine: Machine) -> Snapshot:
    """What a broker knows and has not finished."""
    interests = machine.interests
    neighbours = list(machine.neighbours.all())
    arrivals = {}
    below = machine.neighbours.below
    for neighbour in neighbours:
        stream = neighbour.received
        if not (stream.confirmed or stream.unconfirmed):
            continue
        for arrival in stream.keep():
            if not arrival.stable:
                arrivals[neighbour.node, arrival.key] = (
                    tuple(sorted(n.node for n in arrival.route.down if below.get(n.node) is n)),
                    arrival.route.climbs,
                    arrival.waits,
                    arrival.has_waited,
                    arrival.is_awaited,
                    arrival.step,
                    arrival.settled_in,
                    arrival.position,
                )
    return Snapshot(
        node=machine.node,
        step=machine.steps.number,
        taken={n.node: n.taken for n in neighbours},
        advertisements={e.id: (e.client, e.hop, e.path) for e in interests.advertisements},
        subscriptions={
            e.id: (e.client, e.hop, e.path, e.ordered, tuple(sorted(interests.forwarded(e.id))))
            for e in interests.subscriptions
        },
        arrivals=arrivals,
        held=[arrival.key for arrival in machine.publications.ordering.held],
        topics=machine.publications.state().get("topics", {}),
    )


def _without(state: Snapshot, dead: set[NodeId]) -> Snapshot:
    """The state without what has to do with clients that have failed."""
    return attrs.evolve(
        state,
        taken={n: t for n, t in state.taken.items() if n not in dead},
        advertisements={n: e for n, e in state.advertisements.items() if e[0] not in dead},
        # Where their advertisements drew a subscription, nobody will publish.
        subscriptions={
            n: e[: 4 if dead else 5] for n, e in state.subscriptions.items() if e[0] not in dead
        },
        arrivals={
            name: (tuple(n for n in arrival[0] if n not in dead), *arrival[1:])
            for name, arrival in state.arrivals.items()
            if name[1][0] not in dead
        },
        held=[key for key in state.held if key[0] not in dead],
    )


def differences(lost: Snapshot, found: Snapshot, gone: Collection[NodeId] = ()) -> list[str]:
    """In what a rebuilt broker is not the one that was lost, in words; stable things apart.

    Clients that failed with it, or are `gone` since, are not brought back, nor what came from them.
    """
    dead = (set(lost.taken) - set(found.taken)) | set(gone)
    lost, found = _without(lost, dead), _without(found, dead)
    asked = lost.subscriptions
    if dead:  # what only their advertisements had drawn there, nobody needs any more
        drawn = [n for n in asked if n not in found.subscriptions]
        asked = {n: e for n, e in asked.items() if n not in drawn or e[1] == e[0]}
    both = lost.arrivals.keys() & found.arrivals.keys()
    texts = [
        f"so much was taken of {neighbour}: {taken}, and then {found.taken[neighbour]}"
        for neighbour, taken in lost.taken.items()
        if found.taken[neighbour] < taken
    ]
    texts += _changes("advertisement", lost.advertisements, found.advertisements)
    texts += _changes("subscription", asked, found.subscriptions)
    texts += _changes(
        "publication",
        {name: entry for name, entry in lost.arrivals.items() if name in both},
        {name: entry for name, entry in found.arrivals.items() if name in both},
    )
    if not dead:  # whom a manager had gone after
        texts += _changes("topic", lost.topics, found.topics)
    held = [key for key in lost.held if key in found.held]
    if held != [key for key in found.held if key in lost.held]:
        texts.append(f"held in this order: {lost.held}, and then {found.held}")
    return [f"{lost.node} was not taken up as it was after step {lost.step}: {t}" for t in texts]


def _changes(
    what: str, before: Mapping[Any, tuple[Any, ...]], after: Mapping[Any, tuple[Any, ...]]
) -> Iterator[str]:
    """Say which entries of a table are others than they were."""
    for name in [*before, *(name for name in after if name not in before)]:
        was, became = before.get(name, "unknown"), after.get(name, "unknown")
        if was != became:
            yield f"{what} {name}: {was}, and then {became}"
