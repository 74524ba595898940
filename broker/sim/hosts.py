"""The doors of hosts, which may play several brokers, and of their clients; and every step checked.

In the simulator everybody who has failed is still at hand. So each broker that is taken up is
compared with the one that it replaces, as that was after the step at which it is taken up: they
have to be the same. And after every step of every broker its invariants are checked.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any

from plait.broker.client.core import ClientCore
from plait.broker.client.invariants import check_invariants
from plait.broker.client.states import ClientState, Contact
from plait.broker.effects import Effect
from plait.broker.host.host import Host
from plait.broker.inputs import Input
from plait.broker.limits import Limits
from plait.broker.machine.invariants import broken_invariants
from plait.broker.machine.machine import Machine
from plait.broker.sim.comparison import Snapshot, differences, snapshot
from plait.broker.sim.doors import ClientDoor, HostDoor
from plait.broker.sim.failures import Failures
from plait.broker.sim.nodes import Node
from plait.faulttol.steplog import StepLog, Taken
from plait.routing.ids import NodeId


class Comparison:
    """Every state that a broker may have to be taken up in, and what came of it when it was."""

    def __init__(self) -> None:
        """Begin with none."""
        self._states: dict[NodeId, dict[int, dict[int, Snapshot]]] = {}
        """By broker, term and step: a host that does not know yet that others have gone on without
        it makes steps of its own, which have the same numbers as theirs."""
        self.residents: Callable[[], Collection[Node]] = list
        self.compared = 0
        self._broken: set[NodeId] = set()
        """Whose invariants did not hold: what comes after that says no more."""
        self.found: list[str] = []
        """In what brokers differ from those that they replace, or from what they have to be."""

    def stepped(self, machine: Machine) -> None:
        """A broker has made a step."""
        broken = broken_invariants(machine)
        if broken and machine.node not in self._broken:
            self._broken.add(machine.node)
            self.found.append(f"{machine.node} after step {machine.steps.number}: {broken[0]}")
        log = machine.steps.log
        terms = self._states.setdefault(machine.node, {})
        terms.setdefault(log.term, {})[machine.steps.number] = snapshot(machine)
        for term, states in terms.items():
            if term <= log.term:
                while states and (first := next(iter(states))) < log.base:
                    del states[first]

    def contradicted(self, reason: str) -> None:
        """Something was said that cannot be so; and here nobody makes anything up."""
        self.found.append(reason)

    def rebuilt(self, machine: Machine) -> None:
        """A broker was taken up in this state."""
        if any(entry.kind is Taken.ANEW for entry in machine.steps.log.entries):
            return  # what was given up is forgotten
        lost = self._lost(machine)
        if lost is not None:
            self.compared += 1
            found = snapshot(machine)
            gone = {n.name for n in self.residents() if _is_gone(n)} - found.taken.keys()
            self.found += differences(lost, found, gone)

    def _lost(self, machine: Machine) -> Snapshot | None:
        """What a broker was, by the log with which it was rebuilt: later terms replace earlier."""
        terms, step = self._states.get(machine.node, {}), machine.steps.number
        known = [term for term in terms if term <= machine.steps.log.term and step in terms[term]]
        return terms[max(known)][step] if known else None


def _is_gone(node: Node) -> bool:
    """Whether a client has failed, has left, or is where no broker can hear of it."""
    if node.client is None:
        return False
    return not (node.is_alive and (node.client.is_connected or node.client.is_attached))


class _HostDoor(HostDoor):
    """A process that plays as many brokers as it may have to."""

    def __init__(self, host: Host) -> None:
        """Be the door of this host."""
        self._host = host

    @property
    def incarnation(self) -> int:
        return self._host.me.incarnation

    @property
    def brokers(self) -> Sequence[NodeId]:
        return () if self._host.has_stopped else tuple(self._host.parts.playing.brokers)

    def start(self, now: float) -> list[Effect]:
        return self._host.start(now)

    def step(self, now: float, happened: Input) -> list[Effect]:
        return self._host.step(now, happened)

    def unfinished(self) -> list[str]:
        return self._host.unfinished()

    def status(self) -> dict[str, Any]:
        return self._host.status()

    def describe_held(self) -> list[dict[str, Any]]:
        return self._host.describe_held()

    def known_interests(self) -> list[str]:
        return self._host.known_interests()

    def known_logs(self) -> Sequence[StepLog]:
        library = self._host.parts.library
        return [library.log_of(broker) for broker in library.known()]

    def can_hand_over(self) -> bool:
        return bool(self.brokers) and len(self._host.parts.seats.hosts()) > 1

    def hand_over(self, now: float, random: Random) -> list[Effect]:
        broker = random.choice(sorted(self.brokers))
        others = [h for h in self._host.parts.seats.hosts() if h != self._host.me.name]
        return self._host.relocate(now, broker, random.choice(others))[1]


class _ClientDoor(ClientDoor):
    """A client of such hosts."""

    def __init__(self, core: ClientCore) -> None:
        """Be the door of this core."""
        self._core = core

    @property
    def calls(self) -> ClientCore:
        return self._core

    @property
    def incarnation(self) -> int:
        return self._core.incarnation

    def start(self, now: float) -> list[Effect]:
        self._core.start(now)
        return self.take_effects()

    def step(self, now: float, happened: Input) -> list[Effect]:
        self._core.step(now, happened)
        return self.take_effects()

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
    def is_attached(self) -> bool:
        return self._core.session.contact is Contact.ATTACHING

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


class _CheckedClientDoor(_ClientDoor):
    """A client whose invariants are checked after every step and every call."""

    def take_effects(self) -> list[Effect]:
        check_invariants(self._core)
        return super().take_effects()


class HostCores:
    """Makes what lives in a world: hosts that take up what others have lost, and clients."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._failures = Failures()

    def attend(self, residents: Callable[[], Collection[Node]]) -> None:
        """Be told how to ask for everybody who lives, or lived, in the world of these cores."""

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
        """Make a host that knows what its disk has; returns it and its door."""
        host = Host(
            name,
            incarnation,
            address=address,
            remembered=remembered,
            entropy=entropy,
            limits=limits,
            **settings,
        )
        self._failures.watch(host)
        return host, _HostDoor(host)

    def client(
        self, name: NodeId, incarnation: int, *, brokers: Sequence[NodeId], limits: Limits
    ) -> tuple[Any, ClientDoor]:
        """Make a client, which keeps a history; returns it and its door."""
        core = ClientCore(name, incarnation, brokers=brokers, limits=limits, recording=True)
        return core, _ClientDoor(core)

    def unresolved(self, nodes: Collection[Node]) -> list[NodeId]:
        """Who has failed, and is not got over: each counts as one of δ; see `failures.py`."""
        return self._failures.not_over(nodes)

    def differences(self) -> list[str]:
        """In what cores are not as they have to be, in words; asked when a run is over."""
        return []


class StepCores(HostCores):
    """Hosts every step of which is checked, and that take up exactly what others have lost."""

    def __init__(self) -> None:
        """Compare from the beginning."""
        super().__init__()
        self.comparison = Comparison()

    def attend(self, residents: Callable[[], Collection[Node]]) -> None:
        """Let it be known who is gone: what those had asked for is not brought back."""
        self.comparison.residents = residents

    def host(self, name: NodeId, incarnation: int, **what: Any) -> tuple[Any, HostDoor]:
        """Make a host that is looked at."""
        host, door = super().host(name, incarnation, **what)
        host.parts.playing.observer = self.comparison
        return host, door

    def client(
        self, name: NodeId, incarnation: int, *, brokers: Sequence[NodeId], limits: Limits
    ) -> tuple[ClientCore, ClientDoor]:
        """Make a client that is looked at."""
        core, _ = super().client(name, incarnation, brokers=brokers, limits=limits)
        return core, _CheckedClientDoor(core)

    def differences(self) -> list[str]:
        """In what brokers are not those that they replace, or not as they have to be."""
        return self.comparison.found
