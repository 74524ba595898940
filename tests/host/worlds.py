"""Hosts and clients in the simulator, without randomness, for tests to let things happen to.

As `tests/conversation.py`, with hosts that take up what others have lost; every rebuilt broker is
compared with the one that it replaces.
"""

from typing import Any

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.effects import Delivery, Refusal
from plait.broker.host.host import Host
from plait.broker.host.link_states import LinkState
from plait.broker.inputs import LinkClosed, MessagesReceived
from plait.broker.limits import Limits
from plait.broker.machine.machine import Machine
from plait.broker.messages import Seating
from plait.broker.sim.cuts import Cut
from plait.broker.sim.hosts import StepCores
from plait.broker.sim.nodes import Node
from plait.broker.sim.runs import NEVER_TOO_MANY
from plait.broker.sim.world import LIVELY_LIMITS, SIMULATED_LIMITS, World
from plait.faulttol.guarantees import check
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.values import Value

LINK_DELAY_S = 0.01
TIMEOUT_S = LIVELY_LIMITS.heartbeat_timeout_s
INTERVAL_S = LIVELY_LIMITS.heartbeat_interval_s
MS = 0.001


class Client:
    """A client, told what to do in the present tense."""

    def __init__(self, world: World, node: Node) -> None:
        self._world = world
        self.node = node
        self.deliveries: list[Delivery] = []
        self.answered: list[OperationId] = []
        self.refusals: list[Refusal] = []
        node.on_delivery = self.deliveries.append

    @property
    def core(self) -> ClientCore:
        assert isinstance(self.node.core, ClientCore)
        return self.node.core

    @property
    def received(self) -> list[str]:
        """What was delivered, in order, as publisher:seq."""
        return [f"{delivery.publisher}:{delivery.seq}" for delivery in self.deliveries]

    def subscribes(self, filter_text: str, **settings: Any) -> SubscriptionId:
        subscription, operation = self.core.subscribe(self._now, filter_text, **settings)
        self._asks(operation)
        return subscription

    def unsubscribes(self, subscription: SubscriptionId) -> None:
        self._asks(self.core.unsubscribe(self._now, subscription))

    def advertises(self, filter_text: str) -> AdvertisementId:
        advertisement, operation = self.core.advertise(self._now, filter_text)
        self._asks(operation)
        return advertisement

    def unadvertises(self, advertisement: AdvertisementId) -> None:
        self._asks(self.core.unadvertise(self._now, advertisement))

    def publishes(
        self, body: bytes = b"", *, urgent: bool = False, ordered: bool = True, **content: Value
    ) -> int:
        seq = self.core.publish(self._now, content, body, urgent=urgent, ordered=ordered)
        self._world.carry_out_calls(self.node)
        return seq

    def leaves(self) -> None:
        self.core.leave(self._now)
        self._world.carry_out_calls(self.node)

    @property
    def _now(self) -> float:
        return self._world.time_of(self.node)

    def _asks(self, operation: OperationId) -> None:
        def answered(refusal: Refusal | None) -> None:
            self.answered.append(operation)
            if refusal is not None:
                self.refusals.append(refusal)

        self.node.outcomes[operation] = answered
        self._world.carry_out_calls(self.node)


class Lively:
    """An overlay in which others notice by heartbeats who is silent, and all else is prompt."""

    limits = LIVELY_LIMITS
    link_delay_s = LINK_DELAY_S
    settling_s = 0.5
    """For whoever comes to join."""

    def __init__(
        self,
        *,
        world: World | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        """The `settings` are those of the whole overlay, such as `delta`."""
        self.world = world or World(
            seed,
            limits=limits or self.limits,
            delay_s=(self.link_delay_s, self.link_delay_s),
            jitter=0.0,
            cores=StepCores(),
            is_traced=True,
        )
        assert isinstance(self.world.cores, StepCores)
        self.cores = self.world.cores
        self._settings = settings

    def brokers(self, root: str, **join_points: str) -> None:
        """Start the root, and every other broker at its join point; wait until all are there."""
        self.world.add_broker(NodeId(root), None, **self._settings)
        for name, join_point in join_points.items():
            others = [node.name for node in self.world.hosts]
            self.world.add_broker(
                NodeId(name), NodeId(join_point), fallbacks=others, **self._settings
            )
            self.passes(self.settling_s)

    def standby(self, name: str, broker: str, rank: int = 1) -> None:
        """Start a host that stands by for a broker."""
        self.world.add_broker(NodeId(name), NodeId(broker), standby=rank, **self._settings)
        self.passes(self.settling_s)

    def client(self, name: str, *at: str, incarnation: int = 1) -> Client:
        """Start a client that knows these brokers, and wait until it has joined."""
        brokers = map(NodeId, at)
        node = self.world.add_client(NodeId(name), *brokers, incarnation=incarnation)
        self.passes(self.settling_s)
        return Client(self.world, node)

    def passes(self, seconds: float) -> None:
        """Let everything happen that is due within so many seconds."""
        self.world.run(until=self.world.now + seconds)

    # --- what happens to nodes ------------------------------------------------------------------

    def crashes(self, name: str) -> None:
        self.world.crash(NodeId(name))

    def restarts(self, name: str) -> None:
        self.world.restart(NodeId(name))

    def freezes(self, name: str) -> None:
        self.world.freeze(NodeId(name))

    def goes_on(self, name: str) -> None:
        self.world.unfreeze(NodeId(name))

    def jumps(self, name: str, seconds: float) -> None:
        """Let the clock of a machine go forward."""
        self.world.jump(NodeId(name), seconds)

    def cuts(self, one: str, other: str | None = None, **directions: bool) -> Cut:
        """Let nothing through between one and another one, or all others."""
        cut = Cut(one=NodeId(one), other=None if other is None else NodeId(other), **directions)
        self.world.cut(cut)
        return cut

    def heals(self, cut: Cut) -> None:
        self.world.heal(cut)

    def relocates(self, broker: str, *, host: str) -> None:
        """Ask whoever plays a broker to let another host have it."""
        node = self.world.who_plays(NodeId(broker))
        assert node is not None
        now = self.world.time_of(node)
        reason, effects = node.core.relocate(now, NodeId(broker), NodeId(host))
        assert not reason
        self.world._carry_out(node, effects)

    def hears_of_the_end_of(self, broker: str, *, taker: str) -> None:
        """Let the host that plays a broker hear that another one is going to."""
        node = self.world.who_plays(NodeId(broker))
        assert node is not None
        parts = node.core.parts
        seat = parts.seats.seat_of(NodeId(broker))
        vacant = attrs.evolve(seat, is_vacant=True, taker=taker)
        line = next(iter(parts.connections.with_state(LinkState.TO_BROKER)))
        heard = MessagesReceived(line.link, [Seating(seats=(vacant,))])
        self.world._tell(node, heard)

    def loses_connection(self, one: str, other: str) -> None:
        assert self.world.break_link(NodeId(one), NodeId(other))

    def loses_silently(self, one: str, other: str) -> None:
        """Let a connection end of which only the first of the two hears."""
        [end] = [
            end
            for end in self.world._ends.values()
            if end.node.name == one and end.peer is not None and end.peer.node.name == other
        ]
        self.world._forget(end)
        self.world._tell(end.node, LinkClosed(end.link, "lost"))

    # --- what came of it ------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        core = self.world.nodes[NodeId(name)].core
        assert isinstance(core, Host)
        return core

    def players(self, broker: str) -> list[str]:
        """Who plays a broker, as they themselves believe."""
        return [
            node.name
            for node in self.world.hosts
            if node.is_alive and node.host is not None and broker in node.host.brokers
        ]

    def machine(self, broker: str) -> Machine:
        """A broker, wherever it is played."""
        player = self.world.who_plays(NodeId(broker))
        assert player is not None
        machine = player.core.parts.playing.machine(NodeId(broker))
        assert isinstance(machine, Machine)
        return machine

    def held_at(self, broker: str) -> list[str]:
        """What a broker holds, as publisher:seq."""
        held = self.machine(broker).publications.ordering.held
        return [f"{arrival.publisher}:{arrival.publication.seq}" for arrival in held]

    def violations(self, ordering: str = "pairwise") -> list[str]:
        """The guarantees that did not hold."""
        patience = self.world.limits.resume_timeout_s
        report = check(
            self.world.records(), ordering=ordering, delta=NEVER_TOO_MANY, patience=patience
        )
        return [str(violation) for violation in report.violations]

    def troubles(self, ordering: str = "pairwise") -> list[str]:
        """Guarantees that did not hold, differences, and what has not come to an end."""
        found = self.violations(ordering)
        found += self.cores.comparison.found
        found += [f"{name} is not got over" for name in self.world.unresolved()]
        return found + self.unfinished()

    def unfinished(self) -> list[str]:
        """What has not come to an end."""
        found = []
        for node in self.world.residents():
            if node.stopped not in ("crashed", "left"):
                texts = node.door.unfinished() if node.is_alive else [f"stopped: {node.stopped}"]
                found += [f"{node.name}: {text}" for text in texts]
                if node.client is not None and node.client.has_lost_session:
                    found.append(f"{node.name} has lost its session")
        return found


class Conversation(Lively):
    """An overlay whose links all take a millisecond, in which most tests end before a heartbeat."""

    limits = SIMULATED_LIMITS
    link_delay_s = MS

    def settle(self, seconds: float = 1.0) -> None:
        """Let everything happen that is due; a second is an age for links of a millisecond."""
        self.passes(seconds)
