"""Hosts in the simulated world: brokers that fail are taken up as they were, and given back.

After every step the invariants of the broker are checked, and each broker that is taken up is
compared with the one that it replaces (`broker/sim/hosts.py`).
"""

import pytest

from plait.broker.sim.comparison import snapshot
from plait.broker.sim.hosts import StepCores
from plait.broker.sim.nodes import Node
from plait.broker.sim.runs import simulate
from plait.broker.sim.workloads import Workload
from plait.broker.sim.world import World
from plait.routing.ids import NodeId


class Overlay:
    """Three hosts in a line, a publisher at the first and a subscriber at the last."""

    def __init__(self, seed: int = 1, *, delta: int = 1) -> None:
        self.cores = StepCores()
        self.world = World(seed, cores=self.cores)
        for name, parent in (("a", None), ("b", "a"), ("c", "b")):
            join = None if parent is None else NodeId(parent)
            self.world.add_broker(NodeId(name), join, delta=delta)
        self.run(0.5)
        self.publisher = self.world.add_client(NodeId("p"), NodeId("a"))
        self.subscriber = self.world.add_client(NodeId("s"), NodeId("c"))
        self.got: list[int] = []
        self.subscriber.on_delivery = lambda delivery: self.got.append(delivery.seq)
        self.run(0.5)
        self._call(self.publisher, "advertise", "x > 0")
        self._call(self.subscriber, "subscribe", "x > 0")
        self.run(0.5)

    def run(self, seconds: float) -> None:
        self.world.run(until=self.world.now + seconds)

    def _call(self, client: Node, what: str, argument: object) -> None:
        getattr(client.core, what)(self.world.now, argument)
        self.world.carry_out_calls(client)

    def publish(self, count: int) -> None:
        for number in range(1, count + 1):
            self._call(self.publisher, "publish", {"x": number})

    def term_of(self, broker: str) -> tuple[NodeId, int]:
        host = self.world.who_plays(NodeId(broker))
        assert host is not None
        return host.name, host.core.parts.playing.brokers[broker].term

    def require_rest(self) -> None:
        """Nothing is under way, and nobody has found anything wrong."""
        unfinished = [n.door.unfinished() for n in self.world.residents() if n.is_alive]
        assert not any(unfinished)
        assert self.cores.comparison.found == []
        assert self.publisher.core.unconfirmed == 0


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_broker_that_fails_beside_traffic_is_taken_up_as_it_was(victim: str) -> None:
    overlay = Overlay()
    overlay.publish(3)
    overlay.run(0.03)
    overlay.world.crash(NodeId(victim))
    overlay.publish(3)
    overlay.run(1.0)

    assert overlay.got == [1, 2, 3, 4, 5, 6]
    host, term = overlay.term_of(victim)
    assert (host != victim, term) == (True, 2)
    assert overlay.cores.comparison.compared == 1
    overlay.require_rest()


def test_a_host_that_comes_back_is_given_its_broker_back() -> None:
    overlay = Overlay()
    overlay.world.crash(NodeId("b"))
    overlay.run(1.0)
    assert overlay.term_of("b") == ("a", 2)
    overlay.world.restart(NodeId("b"))
    overlay.publish(4)
    overlay.run(6.0)

    assert overlay.term_of("b") == ("b", 3)
    assert overlay.got == [1, 2, 3, 4]
    overlay.require_rest()


def test_a_host_that_plays_two_brokers_fails() -> None:
    overlay = Overlay()
    overlay.world.crash(NodeId("b"))
    overlay.run(1.0)
    overlay.publish(2)
    overlay.run(0.02)
    overlay.world.crash(NodeId("a"))
    overlay.publish(2)
    overlay.run(1.0)

    assert overlay.term_of("a") == ("c", 2)
    assert overlay.term_of("b") == ("c", 3)
    assert overlay.got == [1, 2, 3, 4]
    overlay.require_rest()


def test_a_broker_moves_to_another_host_while_traffic_runs() -> None:
    overlay = Overlay()
    overlay.publish(3)
    host = overlay.world.nodes[NodeId("b")]
    before = snapshot(host.core.parts.playing.brokers["b"].machine)
    reason, effects = host.core.relocate(overlay.world.now, NodeId("b"), NodeId("c"))
    overlay.world._carry_out(host, effects)
    overlay.publish(3)
    overlay.run(1.0)

    assert reason == ""
    assert overlay.term_of("b") == ("c", 2)
    assert overlay.got == [1, 2, 3, 4, 5, 6]
    after = snapshot(overlay.world.nodes[NodeId("c")].core.parts.playing.brokers["b"].machine)
    assert after.subscriptions == before.subscriptions
    overlay.require_rest()


def test_a_rebuild_in_many_pieces_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.broker.host.failover.PIECES_AT_ONCE", 3)
    for seed in (7, 54, 60):
        assert simulate(seed, workload=Workload(crashes=2, recoveries=2)).failures == []


@pytest.mark.parametrize(
    ("delta", "workload"),
    [
        (1, Workload()),
        (1, Workload(crashes=2)),
        (1, Workload(crashes=3, recoveries=3)),
    ],
    ids=["breaks", "crashes", "returns"],
)
def test_random_runs_are_clean(delta: int, workload: Workload) -> None:
    for seed in range(15):
        run = simulate(seed, delta=delta, workload=workload)
        assert run.failures == [], f"seed {seed}"
