"""What there is in a world: processes, their disks, and the ends of their connections."""

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import attrs

from plait.broker.effects import Delivery, Effect, Match, Refusal
from plait.broker.inputs import Input, LinkId
from plait.broker.messages import Message
from plait.broker.sim.clocks import Clock
from plait.broker.sim.doors import ClientDoor, Door, HostDoor
from plait.faulttol.history import MemoryHistory
from plait.routing.ids import NodeId, OperationId, SubscriptionId


class DiskState(enum.StrEnum):
    """What a host that is started again finds on its disk."""

    KEPT = "kept"
    """What it wrote last."""
    OLD = "old"
    """What it wrote some time ago: somebody has restored a copy."""
    LOST = "lost"


@attrs.define
class Disk:
    """What a host has written, first things first: in which incarnation, and what."""

    versions: list[tuple[int, Any]] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class Ending:
    """What comes to an end of a link after the last message."""


ENDING: Final = Ending()


@attrs.define(eq=False)
class End:
    """One end of a link: what its node knows it by, and what travels towards it."""

    link: LinkId
    node: "Node"
    delay: float
    peer: "End | None" = None
    is_open: bool = True
    last_arrival: float = 0.0
    waiting: list[Message | Ending] = attrs.field(factory=list)
    """What has not come through a cut yet."""


@attrs.define(eq=False)
class Node:
    """A process in the world: a host or a client."""

    name: NodeId
    address: NodeId
    """Where it listens: its name, unless another process of that name listens there."""
    door: Door
    core: Any
    """What is behind the door."""
    history: MemoryHistory
    clock: Clock
    host: HostDoor | None = None
    client: ClientDoor | None = None
    disk: Disk = attrs.field(factory=Disk)
    """What it will know again after a crash."""
    start_again: "Callable[..., Node] | None" = None
    """How it is started, as it was at first, but for incarnation and memory."""
    timer: int = 0
    """Which of its timers counts: the one set last."""
    timer_at: float | None = None
    """When that fires, by its own clock."""
    delivered_before: int = 0
    """How many publications its former lives were given: a history counts on."""
    delivered: int = 0
    is_ready: bool = False
    stopped: str | None = None
    frozen: list[Input] | None = None
    """What it will hear of when it goes on; None if it is not frozen."""
    is_paused: bool = False
    """Whether it is frozen together with its machine."""
    on_going_on: list[Callable[[], object]] = attrs.field(factory=list)
    """What its application is about to do when it goes on after a pause."""
    work: deque[Input | list[Effect]] | None = None
    """What waits until it has done what it is doing; None if it is not busy."""
    done: list[Effect] | None = None
    """What it would have sent by now, were it not frozen."""
    on_ready: list[Callable[[], None]] = attrs.field(factory=list)
    on_delivery: Callable[[Delivery], None] | None = None
    on_match: Callable[[SubscriptionId, Match], None] | None = None
    held: dict[tuple[str, str], float] = attrs.field(factory=dict)
    """What each broker here holds, and since when; kept for the trace."""
    outcomes: dict[OperationId, Callable[[Refusal | None], None]] = attrs.field(factory=dict)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, frozen or not."""
        return self.stopped is None

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped where it is, while its clock goes on."""
        return self.frozen is not None and not self.is_paused
