"""Hosts and clients in the simulator, without randomness, for tests to let things happen to.

As `tests/conversation.py`, with hosts that take up what others have lost; every rebuilt broker is
compared with the one that it replaces.
"""

from typing import Any

import attrs

from broker.effects import Delivery
from broker.host.host import Host
from broker.host.link_states import LinkState
from broker.inputs import LinkClosed, MessagesReceived
from broker.sim.cuts import Cut
from broker.sim.hosts import StepCores
from broker.sim.nodes import Node
from broker.sim.runs import NEVER_TOO_MANY
from broker.sim.world import LIVELY_LIMITS, World
from broker.vocabulary import Seating
from faulttol.guarantees import check
from routing.ids import NodeId
from routing.values import Value

LINK_DELAY_S = 0.01
TIMEOUT_S = LIVELY_LIMITS.heartbeat_timeout_s
INTERVAL_S = LIVELY_LIMITS.heartbeat_interval_s


class Client:
    """A client, told what to do in the present tense."""

    def __init__(self, world: World, node: Node) -> None:
        self._world = world
        self.node = node
        self.deliveries: list[Delivery] = []
        node.on_delivery = self.deliveries.append

    @property
    def received(self) -> list[str]:
        """What was delivered, in order, as publisher:seq."""
        return [f"{delivery.publisher}:{delivery.seq}" for delivery in self.deliveries]

    def _calls(self) -> Any:
        assert self.node.client is not None
        return self.node.client.calls

    def subscribes(self, filter_text: str, *, ordered: bool = True) -> None:
        self._calls().subscribe(self._world.time_of(self.node), filter_text, ordered=ordered)
        self._world.carry_out_calls(self.node)

    def advertises(self, filter_text: str) -> None:
        self._calls().advertise(self._world.time_of(self.node), filter_text)
        self._world.carry_out_calls(self.node)

    def publishes(self, **content: Value) -> None:
        self._calls().publish(self._world.time_of(self.node), content, b"")
        self._world.carry_out_calls(self.node)

    def leaves(self) -> None:
        self._calls().leave(self._world.time_of(self.node))
        self._world.carry_out_calls(self.node)


class Lively:
    """An overlay in which others notice by heartbeats who is silent, and all else is prompt."""

    def __init__(self, *, delta: int = 1, world: World | None = None) -> None:
        self.cores = StepCores()
        self.world = world or World(
            0,
            limits=LIVELY_LIMITS,
            delay_s=(LINK_DELAY_S, LINK_DELAY_S),
            jitter=0.0,
            cores=self.cores,
            is_traced=True,
        )
        self._delta = delta

    def brokers(self, root: str, **join_points: str) -> None:
        """Start the root, and every other broker at its join point; wait until all are there."""
        self.world.add_broker(NodeId(root), None, delta=self._delta)
        for name, join_point in join_points.items():
            others = [node.name for node in self.world.hosts]
            self.world.add_broker(
                NodeId(name), NodeId(join_point), fallbacks=others, delta=self._delta
            )
            self.passes(0.5)

    def standby(self, name: str, broker: str) -> None:
        """Start a host that stands by for a broker."""
        self.world.add_broker(NodeId(name), NodeId(broker), standby=1, delta=self._delta)
        self.passes(0.5)

    def client(self, name: str, *at: str) -> Client:
        """Start a client that knows these brokers, and wait until it has joined."""
        node = self.world.add_client(NodeId(name), *(NodeId(broker) for broker in at))
        self.passes(0.5)
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

    def troubles(self) -> list[str]:
        """Guarantees that did not hold, differences, and what has not come to an end."""
        report = check(self.world.records(), ordering="pairwise", delta=NEVER_TOO_MANY)
        found = [str(violation) for violation in report.violations]
        found += self.cores.comparison.found
        found += [f"{name} is not got over" for name in self.world.unresolved()]
        for node in self.world.residents():
            if node.stopped not in ("crashed", "left"):
                texts = node.door.unfinished() if node.is_alive else [f"stopped: {node.stopped}"]
                found += [f"{node.name}: {text}" for text in texts]
                if node.client is not None and node.client.has_lost_session:
                    found.append(f"{node.name} has lost its session")
        return found
