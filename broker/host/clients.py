"""Clients of the brokers that are played here: who may come in, who is away, who harms others."""

import hmac
from hashlib import sha256
from typing import Final

import attrs

from broker.host.identity import Identity
from broker.machine.machine import Machine
from broker.machine.neighbours import Below, is_client
from broker.vocabulary import Hello
from faulttol.stability import Lag
from routing.ids import NodeId

SECRET_CHARS: Final = 32
"""Hexadecimal digits: 128 bits, which nobody guesses."""


@attrs.define
class _Client:
    """What this host knows of a client beside what its broker does."""

    absent_since: float | None = None
    lag: Lag = attrs.field(factory=Lag)


def digest_of(secret: str) -> str:
    """What may be told to others of the secret of a session."""
    return sha256(secret.encode()).hexdigest() if secret else ""


class Clients:
    """The clients of all brokers that are played here."""

    def __init__(self, me: Identity, *, wall_clock_ms: int, entropy: bytes) -> None:
        """Begin when the clock on the wall shows this; secrets are derived from the entropy."""
        self._me = me
        self._wall_clock_ms = wall_clock_ms
        self._entropy = entropy
        self._secrets = 0
        self._known: dict[tuple[NodeId, NodeId], _Client] = {}
        self.isolated = 0

    # --- at the door ------------------------------------------------------------------------

    def new_secret(self) -> str:
        """For a session that begins: nobody can tell it from others, or guess it."""
        self._secrets += 1
        counted = f"{self._me.name}#{self._me.incarnation}.{self._secrets}".encode()
        return hmac.new(self._entropy, counted, sha256).hexdigest()[:SECRET_CHARS]

    @staticmethod
    def knows_secret(hello: Hello, key: str) -> bool:
        """Whether somebody may go on with a session of which this is the digest."""
        return not key or hmac.compare_digest(key, digest_of(hello.past.secret))

    def objection_to(self, hello: Hello) -> str | None:
        """Incarnations are taken from clocks: one that is far ahead would bar all that follow."""
        elapsed_s = self._me.now - self._me.started_at
        newest = self._wall_clock_ms + round(
            1000 * (elapsed_s + self._me.limits.clocks_apart_max_s)
        )
        if hello.incarnation <= newest:
            return None
        return (
            f"incarnation {hello.incarnation} of {hello.node} is more than a day ahead of the "
            f"clock of {self._me.name}, {newest} is the highest allowed: is one of the two "
            f"clocks wrong?"
        )

    # --- there and away -----------------------------------------------------------------------

    def note_absent(self, broker: NodeId, client: NodeId, now: float) -> None:
        """Its connection has ended."""
        known = self._known.setdefault((broker, client), _Client())
        if known.absent_since is None:
            known.absent_since = now

    def note_there(self, broker: NodeId, client: NodeId) -> None:
        """It has a connection."""
        known = self._known.get((broker, client))
        if known is not None:
            known.absent_since = None

    def forget(self, broker: NodeId, client: NodeId) -> None:
        """It is no client any more."""
        self._known.pop((broker, client), None)

    def forget_broker(self, broker: NodeId) -> None:
        """That one is not played here any more."""
        for key in [key for key in self._known if key[0] == broker]:
            del self._known[key]

    def absent(self, machine: Machine) -> list[Below]:
        """Whose connection has ended, and whose broker does not know it yet."""
        below = machine.neighbours.below
        return [
            below[client]
            for (broker, client), known in self._known.items()
            if broker == machine.node
            and known.absent_since is not None
            and client in below
            and is_client(below[client])
            and not below[client].is_away
        ]

    def behind_s(self, machine: Machine, client: Below, now: float) -> float:
        """For how long it has been away, or has not confirmed what it was sent."""
        known = self._known.get((machine.node, client.node))
        if known is not None and known.absent_since is not None:
            return now - known.absent_since
        return self._lag_of(machine, client, now)

    # --- harm ---------------------------------------------------------------------------------

    def _lag_of(self, machine: Machine, client: Below, now: float) -> float:
        known = self._known.setdefault((machine.node, client.node), _Client())
        return known.lag.look(client.sent.count, client.sent.confirmed_count, now)

    def harmful(self, machine: Machine, now: float) -> list[tuple[Below, str]]:
        """Who is to be isolated, and why."""
        found = []
        for client in machine.neighbours.below.values():
            # Or a broker that has come and never said anything.
            if is_client(client) or not client.taken:
                reason = self._reason_to_isolate(machine, client, now)
                if reason is not None:
                    found.append((client, reason))
        return found

    def _reason_to_isolate(self, machine: Machine, client: Below, now: float) -> str | None:
        limits = self._me.limits
        unconfirmed = len(client.sent.unconfirmed)
        lag = self._lag_of(machine, client, now)
        if unconfirmed > limits.unconfirmed_publications_max:
            return f"{unconfirmed} publications unconfirmed"
        own = client.received.confirmed  # of what it has published, what is not stable
        if len(own) > limits.publish_window_max:
            return f"{len(own)} publications of its own unconfirmed"
        if len(own) * limits.frame_bytes_max > limits.publish_window_bytes_max:
            own_bytes = sum(len(each.publication.body) for each in own)
            if own_bytes > limits.publish_window_bytes_max + limits.frame_bytes_max:
                return f"{own_bytes} bytes of its own publications unconfirmed"
        known = self._known[machine.node, client.node]
        if known.absent_since is not None:
            absent = now - known.absent_since
            return f"absent for {absent:.1f} s" if absent > limits.resume_timeout_s else None
        if lag >= limits.stall_timeout_s:
            return f"{unconfirmed} publications unconfirmed, the first for {lag:.1f} s"
        return None
