"""A world of nodes and links in virtual time: clock, events, delays, faults, all from one seed.

The world carries out what the cores ask for. Time passes only from event to event, so an hour
costs nothing, and whatever happens is repeated exactly by the same seed. Every link has a delay of
its own and every message a little more of it; a link keeps its order, as TCP does.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, assert_never

import attrs

from broker.client_core import ClientCore
from broker.core import BrokerCore
from broker.effects import (
    BecomeReady,
    CloseLink,
    Deliver,
    Delivery,
    Effect,
    EndOperation,
    OpenLink,
    RecordHistory,
    Refusal,
    RememberLinks,
    ReportConfirmed,
    ReportSkipped,
    SendMessage,
    SetTimer,
    Stop,
    WriteLog,
)
from broker.holding import describe_held
from broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    ShutdownRequested,
    TimerFired,
)
from broker.limits import Limits
from broker.messages import Message
from broker.sim.trace_text import describe_delivery, describe_message
from faulttol.history import MemoryHistory, Record
from faulttol.neighbourhood import TopologyLink
from routing.conflicts import FAST
from routing.ids import NodeId, OperationId
from routing.orderings import DEFAULT_ORDERING

LAUNCHER: Final = NodeId("plait-launcher")
"""Who writes down what was done to nodes."""

SIMULATED_LIMITS: Final = Limits(
    # Most runs are over before the first tick, and so are not slowed down by heartbeats.
    heartbeat_interval_s=5.0,
    heartbeat_timeout_s=20.0,
    stall_timeout_s=20.0,
    resume_timeout_s=5.0,
    # And portions so small that there are several.
    move_portion=2,
    # And hardly anybody is remembered by what was published before.
    publishers_remembered_max=1,
)
LIVELY_LIMITS: Final = attrs.evolve(
    # Where brokers freeze, others notice by heartbeats, long before clients despair.
    SIMULATED_LIMITS,
    heartbeat_interval_s=1.0,
    heartbeat_timeout_s=4.0,
)


@attrs.define(eq=False)
class End:
    """One end of a link: what its node knows it by, and what travels towards it."""

    link: LinkId
    node: "Node"
    delay: float
    peer: "End | None" = None
    is_open: bool = True
    last_arrival: float = 0.0


@attrs.define(eq=False)
class Node:
    """A core in the world."""

    name: NodeId
    core: BrokerCore | ClientCore
    history: MemoryHistory
    disk: Sequence[TopologyLink] = ()
    """What it will know again after a crash."""
    start_again: "Callable[..., Node] | None" = None
    """How a broker is started, as it was at first, but for what it remembers."""
    timer: int = 0
    """Which of its timers counts: the one set last."""
    is_ready: bool = False
    stopped: str | None = None
    frozen: list[Input] | None = None
    """What it will hear of when it goes on; None if it is not frozen."""
    on_ready: list[Callable[[], None]] = attrs.field(factory=list)
    on_delivery: Callable[[Delivery], None] | None = None
    held: dict[str, float] = attrs.field(factory=dict)
    """What a broker holds, and since when; kept for the trace."""
    outcomes: dict[OperationId, Callable[[Refusal | None], None]] = attrs.field(factory=dict)


class World:
    """Everything there is in one run."""

    def __init__(
        self,
        seed: int,
        *,
        run: str = "simulated",
        limits: Limits = SIMULATED_LIMITS,
        delay_s: tuple[float, float] = (0.001, 0.02),
        jitter: float = 1.0,
        is_traced: bool = False,
    ) -> None:
        """Begin at time 0 with nobody; a link's delay is drawn from `delay_s`.

        A message takes up to `jitter` times the delay of its link longer than the delay itself.
        """
        self.random = random.Random(seed)
        self._seed = seed
        self.now = 0.0
        self.limits = limits
        self.nodes: dict[NodeId, Node] = {}
        self.former: list[Node] = []
        """Earlier incarnations."""
        self.trace: list[str] = []
        self.messages_carried = 0
        self.on_effects: Callable[[Node, list[Effect]], None] | None = None
        """Who is shown what every node wants done, before it is."""
        self.off_the_net: set[NodeId] = set()
        """Nodes that cannot connect to anybody."""
        self.have_been_away: set[NodeId] = set()
        """Those that once could not."""
        self._launcher = MemoryHistory(run, LAUNCHER, 1)
        self._is_traced = is_traced
        self._run = run
        self._delay_s = delay_s
        self._jitter = jitter
        self._ends: dict[LinkId, End] = {}
        self._link_numbers = itertools.count(1)
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._event_numbers = itertools.count()

    # --- building ---------------------------------------------------------------------------

    def add_broker(
        self,
        name: NodeId,
        join: NodeId | None,
        *,
        fallbacks: Sequence[NodeId] = (),
        remembered: Sequence[TopologyLink] = (),
        incarnation: int = 1,
        ordering: str = DEFAULT_ORDERING,
        policy: str = "filter",
        delta: int = 1,
        detection: str = FAST,
        standby: int = 0,
    ) -> Node:
        """Start a broker; its address is its name."""
        settings: dict[str, Any] = {
            "join": join,
            "fallbacks": fallbacks,
            "ordering": ordering,
            "policy": policy,
            "delta": delta,
            "detection": detection,
            "standby": standby,
        }
        core = BrokerCore(
            name,
            incarnation,
            address=name,
            remembered=remembered,
            entropy=f"{self._seed} {name} {incarnation}".encode(),
            limits=self.limits,
            **settings,
        )
        node = self._add(name, core, incarnation)
        node.disk, node.start_again = remembered, partial(self.add_broker, name, **settings)
        self._carry_out(node, core.start(self.now))
        return node

    def add_client(self, name: NodeId, *brokers: NodeId, incarnation: int = 1) -> Node:
        """Start a client that connects to the first of these brokers that it reaches."""
        core = ClientCore(name, incarnation, brokers=brokers, limits=self.limits, recording=True)
        node = self._add(name, core, incarnation)
        core.start(self.now)
        self.carry_out_calls(node)
        return node

    def _add(self, name: NodeId, core: BrokerCore | ClientCore, incarnation: int) -> Node:
        node = Node(name, core, MemoryHistory(self._run, name, incarnation))
        if name in self.nodes:
            self.former.append(self.nodes[name])
            self._launcher.write(self.now, "restarted", about=name)
        self.nodes[name] = node
        return node

    # --- time -------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something at a time that has not passed."""
        heapq.heappush(self._events, (time, next(self._event_numbers), action, arguments))

    def after(self, delay: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something a while from now."""
        self.at(self.now + delay, action, *arguments)

    def run(self, until: float) -> None:
        """Let everything happen that is due by then."""
        events = self._events
        pop = heapq.heappop
        while events and events[0][0] <= until:
            self.now, _, action, arguments = pop(events)
            action(*arguments)
        self.now = until

    # --- what the application does ------------------------------------------------------------

    def when_ready(self, node: Node, action: Callable[[], None]) -> None:
        """Do something as soon as a node has joined."""
        if node.is_ready:
            action()
        else:
            node.on_ready.append(action)

    def carry_out_calls(self, node: Node) -> None:
        """Carry out what calls to a client's core have asked for."""
        assert isinstance(node.core, ClientCore)
        self._carry_out(node, node.core.take_effects())

    def move(self, giver: NodeId, taker: NodeId, *children: NodeId) -> bool:
        """Ask a broker to hand children over to another child; returns whether it tries."""
        node = self.nodes[giver]
        assert isinstance(node.core, BrokerCore)
        begun, effects = node.core.move(self.now, taker, children)
        self._carry_out(node, effects)
        return begun

    def stop(self, node: Node) -> None:
        """Ask a node to finish and stop, as SIGTERM does."""
        self._tell(node, ShutdownRequested())

    # --- faults -------------------------------------------------------------------------------

    def break_link(self, one: NodeId, other: NodeId) -> bool:
        """Cut the connection between two nodes; what was on its way is gone. False if none."""
        for end in list(self._ends.values()):
            peer = end.peer
            if end.node.name == one and peer is not None and peer.node.name == other:
                self._note(f"{one} and {other} lose their connection")
                for lost in (end, peer):
                    self._forget(lost)
                    self.after(lost.delay, self._tell, lost.node, LinkClosed(lost.link, "cut"))
                return True
        return False

    def take_off_the_net(self, name: NodeId, broker: NodeId, seconds: float) -> None:
        """Cut a client from its broker, and every attempt to come back within this time."""
        self.off_the_net.add(name)
        self.have_been_away.add(name)
        self.break_link(name, broker)
        self.after(seconds, self.off_the_net.discard, name)

    def crash(self, name: NodeId) -> None:
        """Kill a node. Of what it sent last, its peers get some, and then they notice."""
        node = self.nodes[name]
        node.stopped, node.frozen = "crashed", None
        self._launcher.write(self.now, "crashed", about=name)
        self._note(f"{name} crashes")
        for end in [end for end in self._ends.values() if end.node is node]:
            self._forget(end)
            peer = end.peer
            if peer is not None and peer.is_open:
                noticed = self.random.uniform(self.now, max(self.now, peer.last_arrival))
                self.at(noticed + peer.delay, self._hear_of_close, peer)

    def restart(self, name: NodeId) -> None:
        """Start a broker again that has crashed, as at first, but with what is on its disk."""
        node = self.nodes[name]
        if node.stopped is not None:
            assert node.start_again is not None, f"{name} is no broker"
            self._note(f"{name} is started again")
            node.start_again(remembered=node.disk, incarnation=node.core.incarnation + 1)

    def freeze(self, name: NodeId) -> None:
        """Stop a node where it is, as SIGSTOP does; connections stay as they are."""
        node = self.nodes[name]
        if node.stopped is None and node.frozen is None:
            node.frozen = []
            self._launcher.write(self.now, "frozen", about=name)
            self._note(f"{name} is frozen")

    def unfreeze(self, name: NodeId) -> None:
        """Let it go on, with everything that has happened in the meantime."""
        node = self.nodes[name]
        missed, node.frozen = node.frozen, None
        if missed is not None and node.stopped is None:
            self._launcher.write(self.now, "unfrozen", about=name)
            self._note(f"{name} goes on")
            for happened in missed:
                self._tell(node, happened)

    def links(self) -> list[tuple[NodeId, NodeId]]:
        """Who is connected with whom, each pair once."""
        return [
            (end.node.name, end.peer.node.name)
            for end in self._ends.values()
            if end.peer is not None and end.link < end.peer.link
        ]

    # --- carrying out -------------------------------------------------------------------------

    def _tell(self, node: Node, happened: Input) -> None:
        """Tell a node what has happened, and do what it wants done."""
        if node.stopped is not None:
            return
        if node.frozen is not None:
            node.frozen.append(happened)
            return
        core = node.core
        if isinstance(core, BrokerCore):
            self._carry_out(node, core.step(self.now, happened))
            if self._is_traced:
                self._note_held(node, core)
        else:
            core.step(self.now, happened)
            self._carry_out(node, core.take_effects())

    def _carry_out(self, node: Node, effects: list[Effect]) -> None:
        if self.on_effects is not None:
            self.on_effects(node, effects)
        for effect in effects:
            match effect:
                case SendMessage(links, message):
                    for link in links:
                        self._send(link, message)
                case SetTimer(at):
                    node.timer += 1
                    self.at(at, self._fire, node, node.timer)
                case RecordHistory(kind, fields):
                    node.history.write(self.now, kind, **fields)
                case Deliver(delivery):
                    self._deliver(node, delivery)
                case OpenLink(address):
                    delay = self.random.uniform(*self._delay_s)
                    self.after(delay, self._connect, node, NodeId(address), delay)
                case CloseLink(link):
                    self._close(link)
                case EndOperation(operation, refusal):
                    outcome = node.outcomes.pop(operation, None)
                    if outcome is not None:
                        outcome(refusal)
                case RememberLinks(links):
                    node.disk = links
                case BecomeReady():
                    node.is_ready = True
                    actions, node.on_ready = node.on_ready, []
                    for action in actions:
                        action()
                case Stop(reason, comes_back):
                    self._stop(node, reason)
                    if comes_back:
                        self.after(self._delay_s[1], self.restart, node.name)
                case ReportConfirmed() | ReportSkipped():
                    pass
                case WriteLog(level, event, fields):
                    if self._is_traced:
                        details = " ".join(f"{name}={value}" for name, value in fields.items())
                        self._note(f"{node.name}: {level} {event} {details}".rstrip())
                case _:
                    _refuse(effect)

    def _note_held(self, node: Node, core: BrokerCore) -> None:
        """Tell what a broker holds since this step, and what it does not hold any more."""
        before, node.held = node.held, {}
        for held in core.publications.describe_held(self.now):
            name = f"{held['publisher']}:{held['number']}"
            is_new = name not in before
            node.held[name] = before.pop(name, self.now)
            if is_new:
                self._note(f"{node.name}: {describe_held(held)}")
        for name, since in before.items():
            self._note(f"{node.name}: settles {name}, held for {1000 * (self.now - since):.3f} ms")

    def _fire(self, node: Node, timer: int) -> None:
        if timer == node.timer:
            self._tell(node, TimerFired())

    def _connect(self, node: Node, address: NodeId, delay: float) -> None:
        if node.stopped is not None:
            return
        found = self.nodes.get(address)
        if node.name in self.off_the_net:
            self._tell(node, LinkFailed(address, "network is unreachable"))
            return
        if found is None or found.stopped is not None:
            self._tell(node, LinkFailed(address, "connection refused", is_refused=True))
            return
        here = End(LinkId(next(self._link_numbers)), node, delay)
        there = End(LinkId(next(self._link_numbers)), found, delay, peer=here)
        here.peer = there
        self._ends[here.link], self._ends[there.link] = here, there
        self._tell(found, LinkOpened(there.link))
        self._tell(node, LinkOpened(here.link, address))

    def _send(self, link: LinkId, message: Message) -> None:
        end = self._ends.get(link)
        if end is None or end.peer is None:
            return
        self.messages_carried += 1
        peer = end.peer
        arrival = self.now + peer.delay * (1 + self._jitter * self.random.random())
        if arrival < peer.last_arrival:
            arrival = peer.last_arrival
        peer.last_arrival = arrival
        self.at(arrival, self._arrive, peer, message, end.node.name)

    def _arrive(self, end: End, message: Message, sender: NodeId) -> None:
        if not end.is_open:
            return
        if self._is_traced:
            self._note(f"{sender} -> {end.node.name}: {describe_message(message)}")
        self._tell(end.node, MessagesReceived(end.link, [message]))

    def _deliver(self, node: Node, delivery: Delivery) -> None:
        if self._is_traced:
            self._note(f"{node.name}: {describe_delivery(delivery)}")
        node.history.write(self.now, "delivered", **delivery.record_fields(node.name))
        if node.on_delivery is not None:
            node.on_delivery(delivery)

    def _close(self, link: LinkId) -> None:
        """One side closes; the other hears of it after all that was sent before."""
        end = self._ends.get(link)
        if end is None:
            return
        self._forget(end)
        peer = end.peer
        if peer is not None and peer.is_open:
            arrival = max(self.now + peer.delay, peer.last_arrival)
            self.at(arrival, self._hear_of_close, peer)

    def _hear_of_close(self, end: End) -> None:
        if end.is_open:
            self._forget(end)
            self._tell(end.node, LinkClosed(end.link, "closed by the other side"))

    def _forget(self, end: End) -> None:
        end.is_open = False
        self._ends.pop(end.link, None)

    def _stop(self, node: Node, reason: str) -> None:
        node.stopped = reason
        self._note(f"{node.name}: stops, {reason}")
        for end in [end for end in self._ends.values() if end.node is node]:
            self._close(end.link)

    def _note(self, text: str) -> None:
        if self._is_traced:
            self.trace.append(f"{self.now:10.6f}  {text}")

    # --- the record ---------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Everything that was recorded, node by node."""
        histories = [node.history for node in (*self.former, *self.nodes.values())]
        if self._launcher.records:
            histories.append(self._launcher)
        return [record for history in histories for record in history.records]


def _refuse(effect: NoReturn) -> NoReturn:
    assert_never(effect)
