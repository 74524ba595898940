"""Clients of the brokers that are played here: who may come in, who is away, who harms others."""

import hmac
from hashlib import sha256
from typing import Final

from plait.broker.host.identity import Identity
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import Below, is_client
from plait.broker.messages import Hello
from plait.faulttol.stability import Lag
from plait.routing.ids import NodeId

SECRET_CHARS: Final = 32
"""Hexadecimal digits: 128 bits, which nobody guesses."""


def digest_of(secret: str) -> str:
    """What may be told to others of the secret of a session."""
    return sha256(secret.encode()).hexdigest() if secret else ""


class Clients:
    """The clients of all brokers that are played here."""

    def __init__(self, me: Identity, *, entropy: bytes) -> None:
        """Begin with none; secrets are derived from the entropy."""
        self._me = me
        self._entropy = entropy
        self._secrets = 0
        self._lags: dict[tuple[NodeId, NodeId], Lag] = {}
        """Of each client, at its broker."""
        self._absent_since: dict[tuple[NodeId, NodeId], float] = {}
        """Whose connection has ended, and when."""
        self._unnoted: dict[tuple[NodeId, NodeId], None] = {}
        """Those of them of which their brokers do not know it yet."""
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
        """Whether the clocks of two machines are too far apart."""
        newest = self._me.newest_incarnation
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
        self._absent_since.setdefault((broker, client), now)
        self._unnoted[broker, client] = None

    def note_there(self, broker: NodeId, client: NodeId) -> None:
        """It has a connection."""
        self._absent_since.pop((broker, client), None)
        self._unnoted.pop((broker, client), None)

    def bear_with_all(self, now: float) -> None:
        """It may be this host that is cut off: whoever is away, it is not for that long."""
        self._absent_since = dict.fromkeys(self._absent_since, now)

    def forget(self, broker: NodeId, client: NodeId) -> None:
        """It is no client any more."""
        self.note_there(broker, client)
        self._lags.pop((broker, client), None)

    def forget_broker(self, broker: NodeId) -> None:
        """That one is not played here any more."""
        for key in [key for key in (*self._lags, *self._absent_since) if key[0] == broker]:
            self.forget(*key)

    def absent(self, machine: Machine) -> list[Below]:
        """Whose connection has ended, and whose broker does not know it yet."""
        found = []
        for broker, name in list(self._unnoted):
            client = machine.neighbours.below.get(name)
            if broker != machine.node:
                continue
            if client is None or client.is_away or not is_client(client):
                del self._unnoted[broker, name]
            else:
                found.append(client)
        return found

    def behind_s(self, machine: Machine, client: Below, now: float) -> float:
        """For how long it has been away, or has not confirmed what it was sent."""
        since = self._absent_since.get((machine.node, client.node))
        return self._lag_of(machine, client, now) if since is None else now - since

    # --- harm ---------------------------------------------------------------------------------

    def _lag_of(self, machine: Machine, client: Below, now: float) -> float:
        lag = self._lags.setdefault((machine.node, client.node), Lag())
        return lag.look(client.sent.count, client.sent.confirmed_count, now)

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
        since = self._absent_since.get((machine.node, client.node))
        if since is not None:
            absent = now - since
            return f"absent for {absent:.1f} s" if absent > limits.resume_timeout_s else None
        if lag >= limits.stall_timeout_s:
            return f"{unconfirmed} publications unconfirmed, the first for {lag:.1f} s"
        return None
