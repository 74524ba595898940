"""A stage in virtual time: the same cores as on TCP, and a `Wait 30000` costs nothing."""

import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.effects import Delivery, Refusal
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import World
from plait.routing.ids import NodeId, OperationId, SubscriptionId
from plait.routing.patterns.detection import Detection
from plait.routing.values import Content
from plait.scripts.errors import GuaranteeViolatedError
from plait.scripts.happenings import (
    Advertised,
    ClientLost,
    Crashed,
    Delivered,
    Detecting,
    Frozen,
    Happening,
    Published,
    Recovered,
    Stable,
    Subscribed,
    Tell,
    Unfrozen,
    Unsettled,
    Unsubscribed,
    detected,
)
from plait.scripts.stage import Faults
from plait.scripts.status_reports import ClientReport, Report, Unreachable
from plait.topologies.configuration import Configuration

TICK_S: Final = 0.0005
"""How much time passes between two looks at whether an operation is confirmed."""
SETTLE_TICK_S: Final = 0.01
"""And between two looks at whether all is stable, which cost more and wait for longer."""
PATIENCE_S: Final = 24 * 3600.0
"""Virtual seconds, and so cheap: streams may be long. What takes longer never ends."""
SILENCE_S: Final = 60.0
"""After faults: when for so long nothing is confirmed or delivered, nothing will be any more."""


@attrs.define(eq=False)
class _Puppet:
    """A client, and what it has been told to do and has not done."""

    node: Node
    jobs: deque[Callable[[], None]] = attrs.field(factory=deque)
    is_busy: bool = False

    @property
    def core(self) -> ClientCore:
        """What decides for it."""
        assert isinstance(self.node.core, ClientCore)
        return self.node.core

    @property
    def is_gone(self) -> bool:
        """Whether it has crashed, or has lost the overlay for good."""
        return self.node.stopped is not None

    @property
    def may_act(self) -> bool:
        """Whether it is not frozen."""
        return self.node.frozen is None


class SimulatedStage:
    """An overlay in a `World`. Its calls never suspend: all of time passes inside of them."""

    def __init__(
        self, world: World, configuration: Configuration, *, ordering: str, delta: int, tell: Tell
    ) -> None:
        self.faults = Faults()
        self._world = world
        self._configuration = configuration
        self._ordering = ordering
        self._delta = delta
        self._tell = tell
        self._streams = 0
        self._blocked = 0
        self._published = 0
        self._delivered = 0
        self._subscriptions: dict[tuple[str, str], list[SubscriptionId]] = {}
        self._detectors: set[SubscriptionId] = set()
        self._puppets: dict[str, _Puppet] = {}
        self._lost: set[str] = set()
        overlay = configuration.overlay
        for broker in overlay.broker_processes:
            self._add_broker(broker)
        self._wait_until(lambda: all(broker.is_ready for broker in self._brokers()))
        for name in overlay.publishers + overlay.subscribers:
            self._puppets[name] = self._add_client(
                name, overlay.distances_from(overlay.broker_of(name))
            )
        self._wait_until(lambda: all(one.node.is_ready for one in self._puppets.values()))

    def _brokers(self) -> Iterator[Node]:
        """Yield the present life of every broker: one that the others gave up begins another."""
        for name in self._configuration.overlay.broker_processes:
            yield self._world.nodes[NodeId(name)]

    def _add_broker(self, name: str) -> None:
        overlay = self._configuration.overlay
        parent = overlay.join_point_of(name)
        self._world.add_broker(
            NodeId(name),
            None if parent is None else NodeId(parent),
            ordering=self._ordering,
            policy=self._configuration.routing_policy.value,
            delta=self._delta,
            detection=self._configuration.detection.value,
            managers=self._configuration.managers.value,
            standby=overlay.rank_of(name),
        )

    def _add_client(self, name: str, brokers: Iterable[str]) -> _Puppet:
        node = self._world.add_client(NodeId(name), *map(NodeId, brokers))

        def note(delivery: Delivery) -> None:
            self._delivered += 1
            if self._detectors.issuperset(delivery.subscriptions):
                return  # of these, the application gets matches
            self._tell(Delivered(name, delivery.publisher, delivery.seq, delivery.content))

        node.on_delivery = note
        node.on_match = lambda _, match: self._tell(detected(name, match))
        return _Puppet(node)

    # --- clients ----------------------------------------------------------------------------

    async def advertise(self, publisher: str, filter_text: str) -> None:
        """Let a publisher advertise."""
        self._ask(
            publisher,
            lambda core: core.advertise(self._world.now, filter_text)[1],
            Advertised(publisher, filter_text),
        )

    async def subscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber subscribe."""

        def subscribe(core: ClientCore) -> OperationId:
            subscription, operation = core.subscribe(self._world.now, filter_text)
            self._subscriptions.setdefault((subscriber, filter_text), []).append(subscription)
            return operation

        self._ask(subscriber, subscribe, Subscribed(subscriber, filter_text))

    async def unsubscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber end its latest subscription with this filter; none is none."""

        def unsubscribe(core: ClientCore) -> OperationId | None:
            subscriptions = self._subscriptions.get((subscriber, filter_text))
            if not subscriptions:
                return None
            return core.unsubscribe(self._world.now, subscriptions.pop())

        self._ask(subscriber, unsubscribe, Unsubscribed(subscriber, filter_text))

    async def detect(self, subscriber: str, detection: Detection) -> None:
        """Let a subscriber look for a pattern, until it leaves."""

        def detect(core: ClientCore) -> OperationId:
            detector, operation = core.detect(self._world.now, detection)
            self._detectors.add(detector)
            return operation

        self._ask(subscriber, detect, Detecting(subscriber, str(detection.pattern)))

    async def begin_stream(
        self, publisher: str, contents: Iterator[Content], interval_s: float
    ) -> None:
        """Let a publisher publish one of these now, and the others by and by, on the side."""

        def begin(_: ClientCore) -> None:
            self._streams += 1
            self._publish_next(publisher, contents, interval_s)

        self._ask(publisher, begin)

    def _ask(
        self,
        name: str,
        action: Callable[[ClientCore], OperationId | None],
        outcome: Happening | None = None,
    ) -> None:
        """Have something done after all that was asked for before, and wait as long as it pays."""
        puppet = self._puppets[name]
        done = []

        def begin() -> None:
            operation = action(puppet.core)
            if operation is None:
                done.append(True)
            else:
                puppet.is_busy = True
                puppet.node.outcomes[operation] = end

        def end(refusal: Refusal | None) -> None:
            assert refusal is None, f"{name} was refused: {refusal}"
            puppet.is_busy = False
            done.append(True)
            if outcome is not None:
                self._tell(outcome)
            self._world.after(0, self._go_on, puppet)

        puppet.jobs.append(begin)
        self._go_on(puppet)
        self._wait_until(lambda: bool(done) or puppet.is_gone, patience_s=self.faults.patience_s)

    def _go_on(self, puppet: _Puppet) -> None:
        """Let a client do what comes next, unless it waits for something."""
        while puppet.jobs and puppet.may_act and not (puppet.is_busy or puppet.is_gone):
            puppet.jobs.popleft()()
            self._world.carry_out_calls(puppet.node)

    def _publish_next(
        self, publisher: str, contents: Iterator[Content], interval_s: float, was_blocked: int = 0
    ) -> None:
        puppet = self._puppets[publisher]
        self._blocked -= was_blocked
        if puppet.is_gone:
            self._streams -= 1
            return
        if not (puppet.may_act and puppet.core.window.lets_in(self._world.now)):
            self._blocked += 1
            pause = max(interval_s, SETTLE_TICK_S)
            self._world.after(pause, self._publish_next, publisher, contents, interval_s, 1)
            return
        content = next(contents, None)
        if content is None:
            self._streams -= 1
            return
        seq = puppet.core.publish(self._world.now, content)
        self._published += 1
        self._tell(Published(publisher, seq, content))
        self._world.carry_out_calls(puppet.node)
        # Without an interval time passes all the same, a little: the others want their turn.
        self._world.after(interval_s or TICK_S, self._publish_next, publisher, contents, interval_s)

    # --- faults -----------------------------------------------------------------------------

    async def crash(self, process: str) -> None:
        """End a process in the middle of whatever it does."""
        self.faults.crash(process)
        self._world.crash(NodeId(process))
        self._tell(Crashed(process))

    async def recover(self, process: str) -> None:
        """Start a broker that crashed in its next life; wait until it serves, if it ever does."""
        self._world.restart(NodeId(process))
        self._wait_until(lambda: self._world.nodes[NodeId(process)].is_ready, patience_s=SILENCE_S)
        self.faults.crashed.discard(process)
        self._tell(Recovered(process))

    async def freeze(self, process: str) -> None:
        """Let a process do nothing until it is told to go on."""
        self.faults.freeze(process)
        self._world.freeze(NodeId(process))
        self._tell(Frozen(process))

    async def unfreeze(self, process: str) -> None:
        """Let a frozen process go on with what has arrived meanwhile."""
        del self.faults.frozen[process]
        self._tell(Unfrozen(process))
        self._world.unfreeze(NodeId(process))
        if process in self._puppets:
            self._go_on(self._puppets[process])

    # --- time -------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        self._pass_time(seconds)

    async def settle(self) -> Stable | Unsettled:
        """Let everything come to its end."""
        state, since = self._state(), self._world.now

        def is_over() -> bool:
            nonlocal state, since
            if not self._streams and not self._unfinished():
                return True
            now = self._state()
            if now != state or self._streams > self._blocked:
                state, since = now, self._world.now
            return self.faults.have_been and self._world.now - since > SILENCE_S

        self._wait_until(is_over, tick_s=SETTLE_TICK_S)
        self._tell_who_is_lost()
        if unfinished := self._unfinished():
            return Unsettled("; ".join(unfinished))
        return Stable(self._published, self._delivered)

    def _tell_who_is_lost(self) -> None:
        for name, puppet in self._puppets.items():
            if puppet.is_gone and name not in self.faults.crashed | self._lost:
                self._lost.add(name)
                self._tell(ClientLost(name, str(puppet.node.stopped)))

    def _state(self) -> tuple[int, ...]:
        """Whatever changes as long as anything happens."""
        unconfirmed = sum(puppet.core.unconfirmed for puppet in self._puppets.values())
        return self._published, self._delivered, unconfirmed

    def _unfinished(self) -> list[str]:
        """Say what has not come to its end; nothing of those who have crashed."""
        return [
            *(text for node in self._brokers() if node.is_alive for text in node.door.unfinished()),
            *(
                f"{name} waits for confirmations"
                for name, puppet in self._puppets.items()
                if not puppet.is_gone and (puppet.core.unconfirmed or puppet.jobs or puppet.is_busy)
            ),
        ]

    async def status(self) -> list[Report]:
        """Ask every broker and every client how it is."""
        reports: list[Report] = []
        for node in self._brokers():
            if node.stopped is not None:
                reports.append(Unreachable(node.name, node.name, f"it has {node.stopped}"))
            elif node.frozen is not None:
                reports.append(Unreachable(node.name, node.name, "it is frozen"))
            elif node.host is not None:
                reports.append(node.host.status())
        return [*reports, *map(self._client_report, self._puppets.items())]

    def _client_report(self, named: tuple[str, _Puppet]) -> ClientReport:
        name, puppet = named
        return ClientReport(
            name,
            self.faults.state_of(name) or puppet.core.state.value,
            puppet.core.broker or "",
            sum(len(ids) for (who, _), ids in self._subscriptions.items() if who == name),
            puppet.core.unconfirmed,
        )

    def _wait_until(
        self,
        condition: Callable[[], bool],
        *,
        tick_s: float = TICK_S,
        patience_s: float = math.inf,
    ) -> None:
        deadline = self._world.now + min(patience_s, PATIENCE_S)
        while not condition():
            if self._world.now > deadline:
                if patience_s < PATIENCE_S:
                    return
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


def _nothing() -> None:
    pass
