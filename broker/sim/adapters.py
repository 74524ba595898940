"""The doors of today's cores: a broker's process plays that broker, and no other."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from broker.client_core import ClientCore, ClientState
from broker.core import BrokerCore
from broker.effects import Effect
from broker.inputs import Input
from broker.limits import Limits
from broker.sim.cores import ClientCalls, ClientDoor, Cores, HostDoor, Resident
from faulttol.neighbourhood import Life, Neighbourhood
from routing.ids import NodeId


class _BrokerDoor(HostDoor):
    """A process that is one broker."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def step(self, now: float, happened: Input) -> list[Effect]:
        return self._core.step(now, happened)

    @property
    def incarnation(self) -> int:
        return self._core.incarnation

    @property
    def brokers(self) -> Sequence[NodeId]:
        return () if self._core.has_stopped else (self._core.node,)

    def start(self, now: float) -> list[Effect]:
        return self._core.start(now)

    def unfinished(self) -> list[str]:
        return self._core.unfinished()

    def status(self) -> dict[str, Any]:
        return self._core.status()

    def describe_held(self, now: float) -> list[dict[str, Any]]:
        return self._core.publications.describe_held(now)

    def known_interests(self) -> list[str]:
        tables = (self._core.interests.advertisements, self._core.interests.subscriptions)
        return [entry.id for table in tables for entry in table]

    def can_hand_over(self) -> bool:
        neighbours = self._core.neighbours
        return bool(neighbours.children()) and len(neighbours.below) > 1

    def hand_over(self, now: float, random: Random) -> list[Effect]:
        neighbours = self._core.neighbours
        taker = random.choice(neighbours.children()).node
        others = [name for name in neighbours.below if name != taker]
        moved = random.sample(others, random.randint(1, len(others)))
        _, effects = self._core.move(now, taker, moved)
        return effects


class _ClientDoor(ClientDoor):
    """A client of today's brokers."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    @property
    def calls(self) -> ClientCalls:
        return self._core

    @property
    def incarnation(self) -> int:
        return self._core.incarnation

    def start(self, now: float) -> list[Effect]:
        self._core.start(now)
        return self._core.take_effects()

    def step(self, now: float, happened: Input) -> list[Effect]:
        self._core.step(now, happened)
        return self._core.take_effects()

    def take_effects(self) -> list[Effect]:
        return self._core.take_effects()

    @property
    def broker(self) -> NodeId | None:
        return self._core.broker

    @property
    def is_open(self) -> bool:
        return self._core.state not in (ClientState.LEAVING, ClientState.CLOSED)

    @property
    def is_connected(self) -> bool:
        return self._core.state is not ClientState.RECONNECTING

    @property
    def unconfirmed(self) -> int:
        return self._core.unconfirmed

    @property
    def interests(self) -> Collection[str]:
        return self._core.claims

    @property
    def has_lost_session(self) -> bool:
        return self._core.has_lost_session

    def unfinished(self) -> list[str]:
        core = self._core
        if core.state is not ClientState.READY:
            return [f"is {core.state}"]
        if core.unconfirmed:
            return [f"{core.unconfirmed} publications were never confirmed"]
        return [f"{core.kept} publications kept for ever"] if core.kept else []


class TodaysCores(Cores):
    """Brokers that re-form around those that have failed."""

    def host(
        self,
        name: NodeId,
        incarnation: int,
        *,
        address: str,
        remembered: Any,
        entropy: bytes,
        limits: Limits,
        settings: Mapping[str, Any],
    ) -> tuple[Any, HostDoor]:
        """Make a broker."""
        core = BrokerCore(
            name,
            incarnation,
            address=address,
            remembered=remembered or (),
            entropy=entropy,
            limits=limits,
            **settings,
        )
        return core, _BrokerDoor(core)

    def client(
        self, name: NodeId, incarnation: int, *, brokers: Sequence[NodeId], limits: Limits
    ) -> tuple[Any, ClientDoor]:
        """Make a client."""
        core = ClientCore(name, incarnation, brokers=brokers, limits=limits, recording=True)
        return core, _ClientDoor(core)

    def unresolved(self, nodes: Collection[Resident]) -> list[NodeId]:
        """The brokers that have failed and that somebody still reckons with, and the frozen ones.

        Or that others take for failed, and that do not know it yet; but a client that is off the
        net may take for failed whom it likes.
        """
        known = _known_to(node for node in nodes if node.is_alive)
        known_to_brokers = _known_to(n for n in nodes if n.is_alive and n.host is not None)

        def is_unresolved(node: Resident) -> bool:
            if not node.is_alive:
                return any(node.name in neighbourhood for neighbourhood in known)
            life = Life(node.name, node.core.incarnation)
            return (
                node.is_frozen
                or (not node.is_ready and node.core.incarnation > 1)
                or any(neighbourhood.has_failed(life) for neighbourhood in known_to_brokers)
            )

        return [node.name for node in nodes if node.host is not None and is_unresolved(node)]


def _known_to(nodes: Iterable[Resident]) -> list[Neighbourhood]:
    return [node.core.neighbourhood for node in nodes if node.core.neighbourhood is not None]
