"""Everything a person wants to know about a host and the brokers that it plays, as JSON."""

from collections.abc import Mapping
from typing import Any

import attrs

from plait.broker.fences import Fences
from plait.broker.holding import Holds, explain_held
from plait.broker.host.parts import Parts
from plait.broker.host.playing import Played
from plait.broker.machine.counting import Counters
from plait.broker.machine.neighbours import Above, Neighbour, is_client
from plait.broker.messages import HostPlace, NodeKind
from plait.routing.orderings import Cause


@attrs.frozen(kw_only=True)
class Situation:
    """What only the host itself knows."""

    state: str
    is_vulnerable: bool
    """Whether a failure is not over, so that one more would count in addition."""
    standby: int
    fences: Fences
    relocations: list[dict[str, Any]]


@attrs.frozen
class Statistics:
    """What is counted, for metrics: over all brokers that a host plays, and has played."""

    publications: Counters
    skipped: int
    unstable: int
    held: int
    topics_managed: int
    hold_times: Mapping[Cause, Holds]
    subscriptions: int
    advertisements: int
    operations_pending: int
    operations_refused: int
    clients_isolated: int
    publishers_remembered: int
    protocol_errors: int


def count(parts: Parts, *, protocol_errors: int) -> Statistics:
    """The counters of a host as they stand."""
    machines = [played.machine for played in parts.playing.brokers.values()]
    counters = parts.playing.counters
    return Statistics(
        publications=counters,
        skipped=parts.losses.count,
        unstable=sum(machine.publications.unstable for machine in machines),
        held=sum(len(machine.publications.ordering.held) for machine in machines),
        topics_managed=sum(machine.publications.topics_managed for machine in machines),
        hold_times=counters.hold_times.by_cause,
        subscriptions=sum(len(machine.interests.subscriptions) for machine in machines),
        advertisements=sum(len(machine.interests.advertisements) for machine in machines),
        operations_pending=sum(len(machine.requests) for machine in machines),
        operations_refused=counters.operations_refused,
        clients_isolated=parts.clients.isolated,
        publishers_remembered=sum(machine.names.remembered for machine in machines),
        protocol_errors=protocol_errors,
    )


def describe_held(parts: Parts) -> list[dict[str, Any]]:
    """What the brokers here hold, those first that came first at each; no more than a few."""
    most = parts.me.limits.status_held_max
    held: list[dict[str, Any]] = []
    for node, played in parts.playing.brokers.items():
        publications = played.machine.publications
        explained = explain_held(
            publications.ordering,
            publications.waits_for,
            parts.me.now,
            most=most - len(held),
            lacks=publications.lacks,
        )
        held += [{"broker": node, **each} for each in explained]
    return held


def describe(parts: Parts, situation: Situation) -> dict[str, Any]:
    """Report on a host; what is counted is counted over all brokers that it plays."""
    me = parts.me
    brokers = [_describe_broker(parts, played) for played in parts.playing.brokers.values()]
    return {
        "node": me.name,
        "host": me.name,
        "incarnation": me.incarnation,
        "state": situation.state,
        "address": me.clients_address or me.address,
        "protection": me.protection.value,
        "ordering": me.settings.ordering,
        "policy": me.settings.policy,
        "delta": me.settings.delta,
        "detection": me.settings.detection,
        "managers": me.settings.managers,
        "standby": situation.standby,
        "vulnerable": situation.is_vulnerable,
        "brokers": brokers,
        "seats": [attrs.asdict(seat) for seat in parts.seats.everything().seats],
        "hosts": [attrs.asdict(place) for place in _living(parts)],
        "neighbours": [each for broker in brokers for each in broker["neighbours"]],
        **{what: sum(broker[what] for broker in brokers) for what in _COUNTED},
        "held": describe_held(parts),
        "skipped_count": parts.losses.count,
        "skipped": parts.losses.describe(),
        "not_taken_up": [
            {"brokers": sorted(takeover.region), "reason": takeover.obstacle}
            for takeover in parts.takeovers
            if takeover.obstacle
        ],
        "relocations": situation.relocations,
        "fenced": situation.fences.describe(),
    }


def _living(parts: Parts) -> list[HostPlace]:
    """Where all other hosts listen that live, as far as this one knows."""
    places = (parts.seats.place_of(host) for host in parts.seats.hosts())
    return [place for place in places if place is not None and place.host != parts.me.name]


_COUNTED = (
    "clients",
    "subscriptions",
    "advertisements",
    "operations_pending",
    "unstable",
    "held_count",
)


def _describe_broker(parts: Parts, played: Played) -> dict[str, Any]:
    """One broker that is played here."""
    machine = played.machine
    neighbours = [n for n in machine.neighbours.all() if not is_client(n)]
    clients = [n for n in machine.neighbours.below.values() if is_client(n)]
    shown = [*neighbours, *clients[: parts.me.limits.status_clients_max]]
    return {
        "broker": played.node,
        "term": played.term,
        "step": machine.steps.number,
        "log": len(machine.steps.log.entries),
        "neighbours": [_describe_neighbour(parts, neighbour) for neighbour in shown],
        "clients": len(clients),
        "subscriptions": len(machine.interests.subscriptions),
        "advertisements": len(machine.interests.advertisements),
        "operations_pending": len(machine.requests),
        "unstable": machine.publications.unstable,
        "held_count": len(machine.publications.ordering.held),
    }


def _describe_neighbour(parts: Parts, neighbour: Neighbour) -> dict[str, Any]:
    """One neighbour, as `plait status` shows it."""
    seat = parts.seats.seat_of(neighbour.node)
    place = None if seat is None else parts.seats.place_of(seat.host)
    unconfirmed = len(neighbour.sent.unconfirmed)
    if isinstance(neighbour, Above):
        role, kind = "parent", NodeKind.BROKER
        unconfirmed += len(neighbour.received.unconfirmed)
    else:
        role, kind = "client" if is_client(neighbour) else "child", neighbour.kind
    is_here = neighbour.node in parts.playing.brokers
    return {
        "name": neighbour.node,
        "role": role,
        "kind": kind.value,
        "address": "" if is_client(neighbour) or place is None else place.address_for_clients,
        "host": neighbour.node if is_client(neighbour) or seat is None else seat.host,
        "is_connected": is_here or neighbour.link is not None,
        "unconfirmed": unconfirmed,
        "sent": neighbour.sent.count,
        "received": neighbour.received.count,
    }
