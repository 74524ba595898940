"""How much one principal may have at this host: what rules limit (`routing/rules.py`, `Quantity`).

Who wants more connections or subscriptions than it may have is refused, with a sentence. Who
publishes more than it may is slowed down: its connections are not read for a while (`pause_s`), so
that TCP holds it back, and nothing is lost. All connections of a principal share what it has; each
host counts for itself.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from plait.broker.effects import Refusal
from plait.broker.host.connections import Connection, Connections
from plait.broker.host.link_states import LinkState
from plait.broker.limits import Limits
from plait.broker.machine.machine import Machine
from plait.broker.messages import Hello, Message, NodeKind, Publish, RefusalCode
from plait.routing.filter_text import size_of
from plait.routing.filters import Filter
from plait.routing.rules import Quantity, Quotas

BURST_S: Final = 1.0
"""So much of what it may publish a principal may publish at once."""

_GREETED: Final = frozenset({LinkState.TO_CLIENT, LinkState.TO_MONITOR, LinkState.ATTACHED})


@attrs.define(eq=False)
class _Bucket:
    """What is spent of a rate, and flows off with time."""

    at: float
    spent: float = 0.0

    def spend(self, amount: float, rate: float, now: float) -> None:
        """So much more has been."""
        self.spent = max(0.0, self.spent - (now - self.at) * rate) + amount
        self.at = now

    def pause_s(self, rate: float, now: float) -> float:
        """How long until it is no more than may be spent at once."""
        return self.spent / rate - (now - self.at) - BURST_S


class Usage:
    """What principals have at one host."""

    def __init__(
        self,
        connections: Connections,
        machine: Callable[[Connection], Machine | None],
        name_of: Callable[[Connection], str],
        quotas_of: Callable[[str], Quotas],
        limits: Limits,
    ) -> None:
        """Begin with nothing."""
        self._connections = connections
        self._machine = machine
        self._name_of = name_of
        self._quotas_of = quotas_of
        self._limits = limits
        self._buckets: dict[tuple[str, Quantity], _Bucket] = {}

    def _of(self, principal: str) -> list[Connection]:
        """The connections of a principal that has greeted."""
        return [
            connection
            for connection in self._connections.with_state(*_GREETED)
            if not connection.is_between_hosts and self._name_of(connection) == principal
        ]

    def objection_to_hello(self, connection: Connection, hello: Hello) -> str | None:
        """Whether somebody has connections enough; one that it replaces does not count."""
        principal = self._name_of(connection)
        most = self._quotas_of(principal).get(Quantity.CONNECTIONS)
        is_new = hello.kind in (NodeKind.CLIENT, NodeKind.MONITOR) and not hello.known_term
        if most is None or not is_new:
            return None
        others = [c for c in self._of(principal) if c.peer != hello.node or not c.peer]
        if len(others) < most:
            return None
        return f"{principal} has {len(others)} connections, at most {most} allowed"

    def refusal_of(self, line: Connection, asked: Filter) -> Refusal | None:
        """Whether a client may have one subscription more."""
        principal = self._name_of(line)
        quotas = self._quotas_of(principal)
        subscriptions = quotas.get(Quantity.SUBSCRIPTIONS)
        matching = quotas.get(Quantity.MATCHING)
        if subscriptions is None and matching is None:
            return None
        have = [filter_ for each in self._of(principal) for filter_ in self._filters_of(each)]
        reason = None
        if subscriptions is not None and len(have) >= subscriptions:
            reason = f"{principal} has {len(have)} subscriptions, at most {subscriptions} allowed"
        elif matching is not None:
            size = sum(map(size_of, have)) + size_of(asked)
            if size > matching:
                reason = f"filters of {principal} of {size} parts, at most {matching} allowed"
        return None if reason is None else Refusal(RefusalCode.TOO_MANY, reason)

    def _filters_of(self, connection: Connection) -> list[Filter]:
        machine = self._machine(connection)
        if machine is None:
            return []
        return [each.filter for each in machine.interests.subscriptions.of_client(connection.peer)]

    def spend(self, connection: Connection, messages: Sequence[Message], now: float) -> None:
        """A client has published this."""
        principal = self._name_of(connection)
        quotas = self._quotas_of(principal)
        for quantity in (Quantity.PUBLICATIONS, Quantity.BYTES):
            rate = quotas.get(quantity)
            if rate is not None:
                if len(self._buckets) > 2 * self._limits.clients_max:
                    self._buckets.clear()
                bucket = self._buckets.setdefault((principal, quantity), _Bucket(now))
                bucket.spend(_amount(quantity, messages), max(rate, 1), now)

    def pause_s(self, connection: Connection, now: float) -> float:
        """For how long nothing more is to be taken in that a client says."""
        principal = self._name_of(connection)
        quotas = self._quotas_of(principal)
        pauses = [0.0]
        for quantity in (Quantity.PUBLICATIONS, Quantity.BYTES):
            rate, bucket = quotas.get(quantity), self._buckets.get((principal, quantity))
            if rate is not None and bucket is not None:
                pauses.append(bucket.pause_s(max(rate, 1), now))
        most = quotas.get(Quantity.UNCONFIRMED)
        if most is not None and self._unconfirmed(principal) > most:
            pauses.append(self._limits.unconfirmed_pause_s)
        return max(pauses)

    def _unconfirmed(self, principal: str) -> int:
        """How many publications of a principal are not stable."""
        count = 0
        for connection in self._of(principal):
            machine = self._machine(connection)
            client = None if machine is None else machine.neighbours.below.get(connection.peer)
            count += 0 if client is None else len(client.received.confirmed)
        return count

    def forget_all(self) -> None:
        """Rules have changed: what was spent by those of before does not count."""
        self._buckets.clear()


def _amount(quantity: Quantity, messages: Sequence[Message]) -> int:
    publications = [message for message in messages if type(message) is Publish]
    if quantity is Quantity.PUBLICATIONS:
        return len(publications)
    return sum(len(each.content) + len(each.body) for each in publications)
