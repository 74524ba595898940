"""What the simulator asks of the cores that live in it.

The world carries effects out and knows nothing of what a core is. Whatever it, the workloads and
the judge of a run want to know of one, they ask at its *door*, of which there are two kinds: a
host's, which plays brokers, and a client's.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Any, Protocol

from plait.broker.effects import Effect
from plait.broker.inputs import Input
from plait.faulttol.steplog import StepLog
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.values import Content


class Door(Protocol):
    """One core, whatever it is."""

    @property
    def incarnation(self) -> int:
        """Which life of its process this is."""
        raise NotImplementedError

    def start(self, now: float) -> list[Effect]:
        """Let it begin; the time is that of its own clock, here and everywhere."""
        raise NotImplementedError

    def step(self, now: float, happened: Input) -> list[Effect]:
        """Tell it what has happened, and take what it wants done."""
        raise NotImplementedError

    def unfinished(self) -> list[str]:
        """What it is still about, in words; asked when nothing more will happen."""
        return []


class HostDoor(Door, Protocol):
    """A process that plays brokers."""

    @property
    def brokers(self) -> Sequence[NodeId]:
        """The brokers that it plays now."""
        return ()

    def status(self) -> dict[str, Any]:
        """What `plait status` shows."""
        return {}

    def describe_held(self) -> list[dict[str, Any]]:
        """What it holds, as its status has it; see `broker/holding.py`."""
        return []

    def known_interests(self) -> list[str]:
        """The advertisements and subscriptions that it knows, by their names in the overlay."""
        return []

    def known_logs(self) -> Sequence[StepLog]:
        """The step logs that it tells others of, its own and others'."""
        return ()

    def can_hand_over(self) -> bool:
        """Whether there is anything that it could move elsewhere."""
        return False

    def hand_over(self, now: float, random: Random) -> list[Effect]:  # noqa: ARG002 - as above
        """Begin to move something elsewhere; asked if it can."""
        return []


class ClientCalls(Protocol):
    """What an application asks of its client."""

    def publish(
        self,
        now: float,
        content: Content,
        body: bytes = b"",
        *,
        ordered: bool = True,
        urgent: bool = False,
    ) -> int:
        """Hand over one publication; returns its number."""

    def advertise(self, now: float, filter_text: str) -> tuple[AdvertisementId, OperationId]:
        """Ask for the right to publish what this filter matches."""

    def unadvertise(self, now: float, advertisement: AdvertisementId) -> OperationId:
        """Give that right back."""

    def subscribe(
        self, now: float, filter_text: str, *, ordered: bool = True
    ) -> tuple[SubscriptionId, OperationId]:
        """Ask for every publication that this filter matches."""

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> OperationId:
        """Give a subscription up."""

    def leave(self, now: float) -> OperationId:
        """Leave the overlay."""


class ClientDoor(Door, Protocol):
    """A client, and what its application asks and sees of it."""

    @property
    def calls(self) -> ClientCalls:
        """What the application may ask; `take_effects` has what comes of it."""

    def take_effects(self) -> list[Effect]:
        """Take what calls have asked for since the last time."""

    @property
    def broker(self) -> NodeId | None:
        """The broker that it is at, as far as it knows."""

    @property
    def is_open(self) -> bool:
        """Whether there is anything left to ask of it."""

    @property
    def is_connected(self) -> bool:
        """Whether it does not look for a broker just now, after it had one."""

    @property
    def is_attached(self) -> bool:
        """Whether it waits for a broker that is to be taken up, and says what it has of that."""

    @property
    def unconfirmed(self) -> int:
        """How many publications it has handed over that are not confirmed."""

    @property
    def interests(self) -> Collection[str]:
        """Its advertisements and subscriptions, by their names in the overlay."""

    @property
    def has_lost_session(self) -> bool:
        """Whether a broker has once not known it that had joined."""
