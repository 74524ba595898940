"""Nothing grows with history: who came and went is forgotten, but for some that came last."""

import gc
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import attrs
import pytest

from plait.broker.sim.world import SIMULATED_LIMITS
from plait.routing.ids import NodeId
from tests.host.worlds import Client, Conversation

FEW = attrs.evolve(
    SIMULATED_LIMITS,
    dropped_clients_max=2,
    gone_hosts_max=2,
    departed_brokers_max=2,
    cached_routes_max=4,
    heartbeat_interval_s=0.1,
    resume_timeout_s=0.5,
)
_NOT_KEPT = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)


def size(root: Any) -> int:
    """How many objects are kept by one."""
    seen, queue = {id(root)}, [root]
    while queue:
        for each in gc.get_referents(queue.pop()):
            if id(each) not in seen and not isinstance(each, _NOT_KEPT):
                seen.add(id(each))
                queue.append(each)
    return len(seen)


def _look_away(_: object) -> None:
    """What steps led to is kept by whoever compares."""


class Overlay:
    """Three hosts, a publisher and a subscriber, of which all but history stays the same."""

    def __init__(self, **settings: Any) -> None:
        self.overlay = Conversation(limits=FEW, **settings)
        self.overlay.cores.comparison.stepped = _look_away  # type: ignore[assignment, method-assign]
        self.overlay.brokers("b1", b2="b1", b3="b2")
        self.ticker, self.reader = self.overlay.client("ticker", "b2"), self._reader()
        self.ticker.advertises("TRUE")
        self.overlay.settle()
        self.number = 0

    def _reader(self) -> Client:
        reader = self.overlay.client("reader", "b1")
        reader.subscribes("TRUE")
        return reader

    def sizes(self) -> list[int]:
        """Of all that lasts, with nothing under way."""
        self.ticker.publishes(x=1)
        self.overlay.settle(2.0)
        for client in (self.ticker, self.reader):
            client.deliveries.clear()
            client.answered.clear()
        hosts = [self.overlay.host(name).parts for name in ("b1", "b2", "b3")]
        return [size(each) for each in (*hosts, self.ticker.core, self.reader.core)]

    def next(self) -> int:
        self.number += 1
        return self.number


def passing_publisher(over: Overlay) -> None:
    overlay, number = over.overlay, over.next()
    client = overlay.client(f"p{number}", "b2")
    client.advertises(f"x = {number}")
    subscription = client.subscribes(f"x = {number}")
    overlay.settle(0.05)
    client.publishes(x=number)
    overlay.settle(0.05)
    client.unsubscribes(subscription)
    overlay.settle(0.05)
    client.leaves()
    overlay.settle(0.05)


def client_that_vanishes(over: Overlay) -> None:
    overlay, number = over.overlay, over.next()
    client = overlay.client(f"p{number}", "b3")
    client.subscribes("TRUE")
    client.advertises("TRUE")
    overlay.settle(0.05)
    client.publishes(x=number)
    overlay.crashes(client.node.name)
    overlay.settle(1.0)
    del overlay.world.nodes[client.node.name]


def client_that_loses_its_connection(over: Overlay) -> None:
    over.ticker.publishes(x=over.next())
    over.overlay.loses_connection("reader", "b1")
    over.overlay.settle(0.2)


def host_that_stands_by_for_a_while(over: Overlay) -> None:
    name = f"spare{over.next()}"
    over.overlay.standby(name, "b2")
    over.overlay.crashes(name)
    over.overlay.settle(1.0)
    del over.overlay.world.nodes[NodeId(name)]


def broker_that_is_moved(over: Overlay) -> None:
    overlay = over.overlay
    for host in ("b3", "b2"):
        over.ticker.publishes(x=over.next())
        overlay.relocates("b2", host=host)
        overlay.settle(2.0)
        assert overlay.players("b2") == [host]


def publications(over: Overlay) -> None:
    for _ in range(20):
        over.ticker.publishes(x=over.next())
    over.overlay.settle(0.2)


def interests_that_change(over: Overlay) -> None:
    number = over.next()
    name = over.reader.subscribes(f"x = {number}")
    announced = over.ticker.advertises(f"x = {number}")
    over.overlay.settle(0.05)
    over.reader.unsubscribes(name)
    over.ticker.unadvertises(announced)
    over.overlay.settle(0.05)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept up to a limit is at that limit soon."""
    for limit, most in (
        ("plait.broker.client.interests.MATCHES_REMEMBERED", 4),
        ("plait.broker.log_codec.TOLD_MAX", 4),
        ("plait.broker.machine.counting.LATENCIES_MAX", 4),
        ("plait.broker.machine.neighbours.MARKS_AT_ONCE", 2),
        ("plait.faulttol.steplog.GONE_REMEMBERED", 2),
    ):
        monkeypatch.setattr(limit, most)


EPISODES = [
    passing_publisher,
    client_that_vanishes,
    client_that_loses_its_connection,
    host_that_stands_by_for_a_while,
    broker_that_is_moved,
    publications,
    interests_that_change,
]


@pytest.mark.parametrize("episode", EPISODES, ids=lambda episode: episode.__name__)
def test_what_is_over_is_forgotten(episode: Callable[[Overlay], None]) -> None:
    over = Overlay()
    for _ in range(14):
        episode(over)
    before = over.sizes()
    for _ in range(10):
        episode(over)
    after = over.sizes()

    assert [b for a, b in zip(before, after, strict=True) if b > a + 20] == [], (before, after)
