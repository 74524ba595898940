"""What a host has dialled, and what for.

An address may be dialled for several purposes at a time. Whichever connection comes about first
serves the purpose that was dialled first: they all lead to the same place.
"""

from collections import deque

import attrs

from plait.broker.effects import OpenLink
from plait.broker.host.identity import Identity
from plait.broker.messages import Life
from plait.broker.outbox import Outbox
from plait.routing.ids import NodeId


@attrs.frozen
class ToBroker:
    """A broker that is played here needs a neighbour: the one who plays it, or takes it up."""

    node: NodeId
    broker: NodeId


@attrs.frozen
class ToJoin:
    """A host that plays nothing looks for a place in the tree, or for one where to stand by."""


@attrs.frozen
class ToVisit:
    """A host is asked whether it lives, and of whom it has heard."""

    life: Life


@attrs.frozen
class ToNamesake:
    """A host that begins looks whether another process goes by its name."""


Purpose = ToBroker | ToJoin | ToVisit | ToNamesake


@attrs.define
class _Pause:
    """Between two attempts."""

    seconds: float = 0.0
    until: float = 0.0


class Dialling:
    """The attempts of one host."""

    def __init__(self, outbox: Outbox, me: Identity) -> None:
        """Begin with none."""
        self._outbox = outbox
        self._me = me
        self._under_way: dict[str, deque[Purpose]] = {}
        self._wanted: dict[Purpose, None] = {}
        """Those whose connection is still to come."""
        self._pauses: dict[tuple[Purpose, str], _Pause] = {}
        """By purpose and address: somewhere else it may be tried at once."""

    def is_wanted(self, purpose: Purpose) -> bool:
        """Whether a connection for this is on its way."""
        return purpose in self._wanted

    def dial(self, purpose: Purpose, address: str, now: float) -> None:
        """Dial, unless that is under way, or has been tried in vain too shortly before."""
        pause = self._pauses.get((purpose, address))
        if purpose in self._wanted or (pause is not None and now < pause.until):
            return
        self._wanted[purpose] = None
        self._under_way.setdefault(address, deque()).append(purpose)
        self._outbox.add(OpenLink(address))

    def ended(self, address: str) -> Purpose | None:
        """An attempt has come to its end, one way or the other; None if nobody wants it now."""
        purposes = self._under_way.get(address)
        if not purposes:
            return None
        purpose = purposes.popleft()
        if not purposes:
            del self._under_way[address]
        if purpose not in self._wanted:
            return None
        del self._wanted[purpose]
        return purpose

    def call_off(self, purpose: Purpose) -> None:
        """It is not wanted any more."""
        self._wanted.pop(purpose, None)

    def pause(self, purpose: Purpose, address: str, now: float) -> float:
        """It was in vain: the next attempt is some time from now, and longer every time."""
        forgotten = now - self._me.limits.heartbeat_timeout_s
        for key in [key for key, pause in self._pauses.items() if pause.until < forgotten]:
            del self._pauses[key]
        pause = self._pauses.setdefault((purpose, address), _Pause())
        limits = self._me.limits
        pause.seconds = min(max(2 * pause.seconds, limits.redial_first_s), limits.redial_last_s)
        pause.until = now + pause.seconds
        return pause.until

    def succeeded(self, purpose: Purpose) -> None:
        """It was not in vain: the next attempt is made at once."""
        for key in [key for key in self._pauses if key[0] == purpose]:
            del self._pauses[key]

    def wake_at(self, now: float) -> float | None:
        """When the next pause ends."""
        return min((p.until for p in self._pauses.values() if p.until > now), default=None)
