"""A stage in virtual time: the same cores as on TCP, and a `Wait 30000` costs nothing."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from broker.client_core import ClientCore
from broker.core import BrokerCore
from broker.effects import Delivery, Refusal
from broker.sim.world import Node, World
from routing.ids import NodeId, OperationId, SubscriptionId
from routing.values import Content
from scripts.errors import GuaranteeViolatedError
from scripts.happenings import (
    Advertised,
    Delivered,
    Published,
    Stable,
    Subscribed,
    Tell,
    Unsubscribed,
)
from scripts.status_reports import StatusReport, Unreachable
from topologies.configuration import Configuration

TICK_S: Final = 0.0005
"""How much time passes between two looks at whether an operation is confirmed."""
SETTLE_TICK_S: Final = 0.01
"""And between two looks at whether all is stable, which cost more and wait for longer."""
PATIENCE_S: Final = 24 * 3600.0
"""Virtual seconds, and so cheap: streams may be long. What takes longer never ends."""


class SimulatedStage:
    """An overlay in a `World`. Its calls never suspend: all of time passes inside of them."""

    def __init__(
        self, world: World, configuration: Configuration, *, ordering: str, delta: int, tell: Tell
    ) -> None:
        self._world = world
        self._tell = tell
        self._streams = 0
        self._published = 0
        self._delivered = 0
        self._subscriptions: dict[tuple[str, str], list[SubscriptionId]] = {}
        self._clients: dict[str, Node] = {}
        overlay = configuration.overlay
        self._brokers = [
            self._world.add_broker(
                NodeId(broker),
                NodeId(parent) if (parent := overlay.parent_of(broker)) else None,
                ordering=ordering,
                policy=configuration.routing_policy.value,
                delta=delta,
                detection=configuration.detection.value,
            )
            for broker in overlay.brokers
        ]
        self._wait_until(lambda: all(broker.is_ready for broker in self._brokers))
        for name in overlay.publishers + overlay.subscribers:
            self._clients[name] = self._add_client(name, overlay.broker_of(name))
        self._wait_until(lambda: all(client.is_ready for client in self._clients.values()))

    def _add_client(self, name: str, broker: str) -> Node:
        node = self._world.add_client(NodeId(name), NodeId(broker))

        def note(delivery: Delivery) -> None:
            self._delivered += 1
            self._tell(Delivered(name, delivery.publisher, delivery.seq, delivery.content))

        node.on_delivery = note
        return node

    async def advertise(self, publisher: str, filter_text: str) -> None:
        """Let a publisher advertise."""
        node, core = self._client(publisher)
        _, operation = core.advertise(self._world.now, filter_text)
        self._await(node, operation)
        self._tell(Advertised(publisher, filter_text))

    async def subscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber subscribe."""
        node, core = self._client(subscriber)
        subscription, operation = core.subscribe(self._world.now, filter_text)
        self._await(node, operation)
        self._subscriptions.setdefault((subscriber, filter_text), []).append(subscription)
        self._tell(Subscribed(subscriber, filter_text))

    async def unsubscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber end its latest subscription with this filter; none is none."""
        subscriptions = self._subscriptions.get((subscriber, filter_text))
        if subscriptions:
            node, core = self._client(subscriber)
            self._await(node, core.unsubscribe(self._world.now, subscriptions.pop()))
            self._tell(Unsubscribed(subscriber, filter_text))

    async def begin_stream(
        self, publisher: str, contents: Iterator[Content], interval_s: float
    ) -> None:
        """Let a publisher publish one of these now, and the others by and by, on the side."""
        self._streams += 1
        self._publish_next(publisher, contents, interval_s)

    def _publish_next(self, publisher: str, contents: Iterator[Content], interval_s: float) -> None:
        node, core = self._client(publisher)
        if core.room > 0:
            content = next(contents, None)
            if content is None:
                self._streams -= 1
                return
            seq = core.publish(self._world.now, content)
            self._published += 1
            self._tell(Published(publisher, seq, content))
            self._world.carry_out_calls(node)
        # Without an interval time passes all the same, a little: the others want their turn.
        self._world.after(interval_s or TICK_S, self._publish_next, publisher, contents, interval_s)

    async def pass_time(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        self._pass_time(seconds)

    async def settle(self) -> Stable:
        """Let everything come to its end."""
        self._wait_until(lambda: not self._streams and not self._unfinished(), tick_s=SETTLE_TICK_S)
        return Stable(self._published, self._delivered)

    def _unfinished(self) -> list[str]:
        brokers = [text for node in self._brokers for text in _broker(node).unfinished()]
        clients = [name for name in self._clients if self._client(name)[1].unconfirmed]
        return [*brokers, *(f"{name} waits for confirmations" for name in clients)]

    async def status(self) -> list[StatusReport | Unreachable]:
        """Ask every broker how it is."""
        return [_broker(node).status() for node in self._brokers]

    def _client(self, name: str) -> tuple[Node, ClientCore]:
        node = self._clients[name]
        assert isinstance(node.core, ClientCore)
        return node, node.core

    def _await(self, node: Node, operation: OperationId) -> None:
        answers: list[Refusal | None] = []
        node.outcomes[operation] = answers.append
        self._world.carry_out_calls(node)
        self._wait_until(lambda: bool(answers))
        assert answers == [None], f"{node.name} was refused: {answers}"

    def _wait_until(self, condition: Callable[[], bool], tick_s: float = TICK_S) -> None:
        deadline = self._world.now + PATIENCE_S
        while not condition():
            if self._world.now > deadline:
                unfinished = "; ".join(self._unfinished())
                raise GuaranteeViolatedError(f"not stable after {PATIENCE_S:.0f} s: {unfinished}")
            self._pass_time(tick_s)

    def _pass_time(self, seconds: float) -> None:
        # The clock goes from event to event: an event at the end takes it there.
        self._world.after(seconds, _nothing)
        self._world.run(until=self._world.now + seconds)


def perform_at_once(performance: Coroutine[Any, Any, None]) -> None:
    """Run to its end what never suspends."""
    try:
        performance.send(None)
    except StopIteration:
        return
    raise AssertionError("a simulated stage does not suspend")


def _broker(node: Node) -> BrokerCore:
    assert isinstance(node.core, BrokerCore)
    return node.core


def _nothing() -> None:
    pass
