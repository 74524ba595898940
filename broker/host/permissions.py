"""What those may do who come to this host: the rules, held against what they ask for.

That is decided once, where it comes in: what a broker has accepted other brokers believe, and a
publication is held to its advertisement. A request that is refused is in the step log by name
(`Membership.forbidden`), as another host may have other rules when it takes the broker up.

Rules change, and clients come from other hosts. Whatever a client has asked for before is then
looked at again, some of it at a time, and what is not allowed any more the client is told to
withdraw (`Revoke`). So nothing is lost that it may have. Who does not withdraw it is dropped.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from plait.broker.effects import Level, Refusal
from plait.broker.host.connections import Connection
from plait.broker.host.link_states import LinkState
from plait.broker.host.parts import Parts
from plait.broker.host.quotas import Usage
from plait.broker.inputs import LinkId
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import Below, Neighbour
from plait.broker.messages import (
    Advertise,
    GoodbyeCode,
    Hello,
    Message,
    NodeKind,
    RefusalCode,
    Revoke,
    Subscribe,
)
from plait.broker.principals import Door
from plait.routing.filters import Filter
from plait.routing.ids import AdvertisementId, NodeId, SubscriptionId
from plait.routing.rules import Right, Rules
from plait.routing.tables import Advertisement, Subscription

ANONYMOUS: Final = "anonymous"
"""Whoever comes where nobody has to prove anything."""

Drop = Callable[[Machine, Below, str], None]


@attrs.define(eq=False)
class _Review:
    """A connection, and what of its client is to be looked at again."""

    link: LinkId
    entries: deque[Advertisement | Subscription]


class Permissions:
    """The rules of one host, and whom they concern."""

    def __init__(self, parts: Parts, rules: Rules | None, drop: Drop) -> None:
        """Begin with these rules; without any, everybody may do everything."""
        self._parts = parts
        self._rules = rules
        self._usage = Usage(
            parts.connections,
            lambda connection: parts.playing.machine(connection.node),
            _name_of,
            lambda principal: {} if self._rules is None else self._rules.quotas_of(principal),
            parts.me.limits,
        )
        self._drop = drop
        self._version = 1
        """Goes up with every change of the rules."""
        self._reviewed: dict[LinkId, int] = {}
        """Of each client's connection: the version by which it was looked at."""
        self._reviews: deque[_Review] = deque()
        self._revoked: dict[tuple[NodeId, NodeId, str], float] = {}
        """By broker, client and name of an entry: until when it is to be withdrawn."""
        self._wake_at: float | None = None

    def forget(self, link: LinkId) -> None:
        """A connection is gone."""
        self._reviewed.pop(link, None)

    # --- what they ask for --------------------------------------------------------------------

    def judge(
        self, machine: Machine, client: Neighbour, request: Advertise | Subscribe, asked: Filter
    ) -> Refusal | None:
        """Whether a client may have what it asks a broker here for."""
        line = self._parts.connections.line(machine.node, client.node)
        if self._rules is None or line is None:
            return None
        right = Right.PUBLISH if isinstance(request, Advertise) else Right.SUBSCRIBE
        reason = self._objection_to(line, right, asked)
        if reason is not None:
            return Refusal(RefusalCode.NOT_ALLOWED, reason)
        return None if right is Right.PUBLISH else self._usage.refusal_of(line, asked)

    def _objection_to(self, line: Connection, right: Right, asked: Filter) -> str | None:
        """What a client is told of a request; by which rule, only whoever runs the broker is."""
        if self._rules is None:
            return None
        principal = _name_of(line)
        decision = self._rules.decide(principal, right, asked)
        if decision.is_allowed:
            return None
        rule = "no rule allows it" if decision.rule is None else str(decision.rule)
        fields = {"principal": principal, "peer": line.peer, "right": right.value}
        self._parts.outbox.log(Level.WARNING, "not allowed", **fields, filter=asked.sql, rule=rule)
        to = " to" if right is Right.SUBSCRIBE else ""
        return f"{principal} may not {right}{to} {asked.sql}"

    def objection_to_hello(self, connection: Connection, hello: Hello) -> str | None:
        """Whether somebody may not come in, or not see the state of what is played here."""
        objection = None
        if hello.kind is NodeKind.MONITOR:
            objection = self._objection_about(connection, Right.MONITOR, self._parts.me.name)
        return objection or self._usage.objection_to_hello(connection, hello)

    def objection_to_relocate(self, connection: Connection, broker: NodeId) -> str | None:
        """Whether somebody may not have a broker moved; hosts may."""
        caller = connection.caller
        if connection.state is not LinkState.TO_MONITOR:
            return None
        if self._rules is None and caller.door is Door.CLIENTS and not caller.principal.is_operator:
            return f"{caller.principal.name} may not move brokers: name it in the file operators"
        return self._objection_about(connection, Right.OPERATE, broker)

    def _objection_about(self, connection: Connection, right: Right, broker: NodeId) -> str | None:
        if self._rules is None or connection.caller.door is Door.BROKERS:
            return None  # whoever has a key of a broker has all of that broker anyway
        principal = _name_of(connection)
        decision = self._rules.decide_about(principal, right, {"broker": broker})
        return None if decision.is_allowed else f"{principal} may not {right} {broker}"

    # --- how much they have -------------------------------------------------------------------

    @property
    def has_limits(self) -> bool:
        """Whether it matters how much anybody has."""
        return self._rules is not None and bool(self._rules.limits)

    def spend(self, connection: Connection, messages: Sequence[Message]) -> None:
        """A client has said this."""
        self._usage.spend(connection, messages, self._parts.me.now)

    def pause_s(self, link: LinkId) -> float:
        """For how long nothing more is to be taken in that comes over a link."""
        line = self._parts.connections.get(link) if self.has_limits else None
        if line is None or line.state is not LinkState.TO_CLIENT:
            return 0.0
        return self._usage.pause_s(line, self._parts.me.now)

    # --- what they had asked for --------------------------------------------------------------

    def change(self, rules: Rules | None) -> None:
        """From now on, these rules: what was allowed before is looked at again."""
        self._rules = rules
        self._usage.forget_all()
        self._version += 1
        self._revoked.clear()
        self._parts.outbox.log(Level.INFO, "rules", count=0 if rules is None else len(rules.rules))
        for monitor in self._parts.connections.with_state(LinkState.TO_MONITOR):
            reason = self._objection_about(monitor, Right.MONITOR, self._parts.me.name)
            if reason is not None:
                self._parts.connections.close(monitor, GoodbyeCode.REFUSED, reason)
        self.look()

    def look(self) -> None:
        """Look at all clients that have not been looked at by these rules."""
        connections = self._parts.connections
        if self._rules is None:
            return
        for line in connections.with_state(LinkState.TO_CLIENT):
            if self._reviewed.get(line.link) == self._version:
                continue
            self._reviewed[line.link] = self._version
            machine = self._parts.playing.machine(line.node)
            if machine is not None:
                interests = machine.interests
                entries: deque[Advertisement | Subscription] = deque()
                entries.extend(interests.advertisements.of_client(line.peer))
                entries.extend(interests.subscriptions.of_client(line.peer))
                self._reviews.append(_Review(line.link, entries))
        if self._reviews and self._wake_at is None:
            self._wake_at = self._parts.me.now

    def wake_at(self) -> float | None:
        """When there is something to look at, or somebody has not withdrawn what it is to."""
        times = (self._wake_at, next(iter(self._revoked.values()), None))
        return min((at for at in times if at is not None), default=None)

    def advance(self) -> None:
        """Look at some of it, if it is time to."""
        now, limits = self._parts.me.now, self._parts.me.limits
        if self._wake_at is not None and now >= self._wake_at:
            for _ in range(limits.reviewed_at_once):
                if not self._reviews:
                    break
                self._review(self._reviews[0])
            self._wake_at = now + limits.review_pause_s if self._reviews else None
        while self._revoked:
            key, until = next(iter(self._revoked.items()))
            if now < until:
                break
            del self._revoked[key]
            self._enforce(*key)

    def _review(self, review: _Review) -> None:
        """Look at one entry of a client."""
        line = self._parts.connections.get(review.link)
        if not review.entries or line is None or line.state is not LinkState.TO_CLIENT:
            self._reviews.popleft()
            return
        entry = review.entries.popleft()
        machine = self._parts.playing.machine(line.node)
        right = _right_to(machine, entry)
        if right is None:
            return
        reason = self._objection_to(line, right, entry.filter)
        if reason is not None:
            self._parts.connections.send(line, Revoke(name=entry.id, reason=reason))
            until = self._parts.me.now + self._parts.me.limits.revoke_timeout_s
            self._revoked[line.node, line.peer, entry.id] = until

    def _enforce(self, broker: NodeId, client: NodeId, name: str) -> None:
        """Whoever has not withdrawn what it may not have is given up."""
        machine = self._parts.playing.machine(broker)
        known = None if machine is None else machine.neighbours.below.get(client)
        if machine is not None and known is not None and machine.interests.knows(name):
            self._drop(machine, known, f"{name} is not allowed any more, and was not withdrawn")


def _name_of(connection: Connection) -> str:
    """What rules call whoever is at the other end."""
    return connection.caller.principal.name or ANONYMOUS


def _right_to(machine: Machine | None, entry: Advertisement | Subscription) -> Right | None:
    """What an entry is about, if it is still there."""
    if machine is None:
        return None
    if AdvertisementId(entry.id) in machine.interests.advertisements:
        return Right.PUBLISH
    return Right.SUBSCRIBE if SubscriptionId(entry.id) in machine.interests.subscriptions else None
