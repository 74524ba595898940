"""Virtual time for hosts that fail: links are alike, messages and bytes counted, work timed.

Hosts and clients are the real cores. Usually a host takes no time, so that a time is a number of
link delays. To see what large tables cost, a host may also take the time that its core and the
codec really take; then whatever happens to it meanwhile waits.
"""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.codec import FrameDecoder, encode
from plait.broker.effects import Effect, Refusal, SendMessage
from plait.broker.host.host import Host
from plait.broker.inputs import Input, LinkId, MessagesReceived
from plait.broker.machine.machine import Machine
from plait.broker.messages import Message
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.nodes import End, Node
from plait.broker.sim.world import World
from plait.routing.ids import NodeId, OperationId
from plait.routing.values import Value
from plait.scripts.bench.order_world import LIMITS
from plait.topologies.overlay import Overlay

LINK_DELAY_S: Final = 0.01
CALM_S: Final = 1000.0
"""When nothing is due for so long, nothing is going on."""
_LONGEST_S: Final = 100_000.0
"""By then it is calm, or never."""


@attrs.define
class Spent:
    """What some phase took."""

    messages: Counter[str] = attrs.field(factory=Counter)
    """By type."""
    bytes: int = 0
    cpu_s: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    """Of each broker."""
    longest_step_s: float = 0.0
    """The longest time for which a broker did nothing else."""
    last_at: float = 0.0
    """When a message arrived, or a broker that was busy had done its work."""

    @property
    def message_count(self) -> int:
        """Of all types."""
        return sum(self.messages.values())


@attrs.frozen(eq=False)
class Step:
    """Something that happened, and what it came of."""

    at: float
    text: str
    cause: "Step | None"

    def way_from(self, time_s: float) -> list["Step"]:
        """What led to this from a time on, first things first."""
        way = [self]
        while (cause := way[-1].cause) is not None and cause.at >= time_s:
            way.append(cause)
        return way[::-1]


class FaultWorld(World):
    """A world in which links are alike, and everything is counted."""

    def __init__(
        self,
        seed: int,
        *,
        link_delay_s: float = LINK_DELAY_S,
        dial_delays: int = 1,
        has_causes: bool = False,
    ) -> None:
        """Begin with nobody; a connection takes `dial_delays` link delays, made or refused."""
        super().__init__(
            seed,
            limits=LIMITS,
            delay_s=(link_delay_s, link_delay_s),
            jitter=0.0,
            cores=HostCores(),
        )
        self.spent = Spent()
        self.are_brokers_busy = False
        self.on_told: Callable[[Node], None] | None = None
        """Who is shown every node that something has happened to."""
        self.on_sent: Callable[[Node, Node, Message], None] | None = None
        """Who is shown every message with its two ends."""
        self.step: Step | None = None
        """What happens now; only with causes."""
        self._dial_delays = dial_delays
        self._has_causes = has_causes
        self._is_timed = False
        self._waiting: dict[Node, deque[Input]] = {}
        """What brokers that are busy have not looked at yet."""

    def begin_phase(self) -> Spent:
        """Count from now on; what is returned goes on counting until the phase ends."""
        self.spent = Spent(last_at=self.now)
        self._is_timed = True
        return self.spent

    def end_phase(self) -> None:
        """Count for nobody from now on, and do not ask for the time, which takes its own."""
        self.spent = Spent()
        self._is_timed = False

    def add_overlay(self, overlay: Overlay, **settings: Any) -> None:
        """Start all brokers of an overlay."""
        for broker in overlay.brokers:
            parent = overlay.parent_of(broker)
            self.add_broker(NodeId(broker), NodeId(parent) if parent else None, **settings)

    def run_until_calm(self) -> None:
        """Let everything happen until nothing is going on."""
        while self._events and self._events[0][0] < min(self.now + CALM_S, _LONGEST_S):
            self.run(until=self._events[0][0])
        assert self.now < _LONGEST_S, "it never becomes calm"

    def unfinished(self) -> list[str]:
        """What is under way although it is calm, in words."""
        hosts = [node for node in self.hosts if node.is_alive]
        return [f"{node.name}: {text}" for node in hosts for text in node.door.unfinished()]

    # --- what comes of what -------------------------------------------------------------------

    def _push(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        if self._has_causes:
            step = Step(time, _in_words(action, arguments), self.step)
            super()._push(time, self._take, step, action, arguments)
        else:
            super()._push(time, action, *arguments)

    def _take(self, step: Step, action: Callable[..., object], arguments: Iterable[Any]) -> None:
        self.step = step
        action(*arguments)
        self.step = None

    # --- links --------------------------------------------------------------------------------

    def _connect(self, node: Node, address: NodeId, delay: float) -> None:
        self.after((self._dial_delays - 1) * delay, self._dialled, node, address, delay)

    def _dialled(self, node: Node, address: NodeId, delay: float) -> None:
        super()._connect(node, address, delay)

    def _send(self, link: LinkId, message: Message) -> None:
        end = self._ends.get(link)
        if end is not None and end.peer is not None:
            self.spent.messages[type(message).__name__] += 1
            self.spent.bytes += len(encode(message))
            if self.on_sent is not None:
                self.on_sent(end.node, end.peer.node, message)
        super()._send(link, message)

    def _arrive(self, end: End, message: Message, sender: NodeId) -> None:
        self.spent.last_at = self.now
        super()._arrive(end, message, sender)

    # --- work ---------------------------------------------------------------------------------

    def _tell(self, node: Node, happened: Input) -> None:
        is_at_work = node.host is not None and not node.stopped and node.frozen is None
        if not is_at_work or not self._is_timed:
            super()._tell(node, happened)
        elif not self.are_brokers_busy:
            self._carry_out(node, self._timed_step(node, happened)[0])
        elif node in self._waiting:
            self._waiting[node].append(happened)
        else:
            self._waiting[node] = deque([happened])
            self._serve(node)
        if self.on_told is not None:
            self.on_told(node)

    def _serve(self, node: Node) -> None:
        waiting = self._waiting[node]
        if not waiting or node.stopped is not None:
            del self._waiting[node]
            return
        effects, taken_s = self._timed_step(node, waiting.popleft())
        self.after(taken_s, self._finish, node, effects)

    def _finish(self, node: Node, effects: list[Effect]) -> None:
        if node.stopped is None:
            self.spent.last_at = self.now
            self._carry_out(node, effects)
        self._serve(node)

    def _timed_step(self, node: Node, happened: Input) -> tuple[list[Effect], float]:
        data = b""
        if isinstance(happened, MessagesReceived):
            data = b"".join(map(encode, happened.messages))
        started = time.thread_time_ns()
        if isinstance(happened, MessagesReceived):
            happened = MessagesReceived(happened.link, FrameDecoder().feed(data))
        effects = node.door.step(self.now, happened)
        for effect in effects:
            if isinstance(effect, SendMessage):
                encode(effect.message)
        taken_s = (time.thread_time_ns() - started) / 1e9
        self.spent.cpu_s[node.name] += taken_s
        self.spent.longest_step_s = max(self.spent.longest_step_s, taken_s)
        return effects, taken_s

    # --- clients ------------------------------------------------------------------------------

    def advertise(self, client: NodeId, filter_text: str) -> None:
        """Let a client advertise; whoever refuses ends the run."""
        core = self.client(client)
        self._expect(client, core.advertise(self.now, filter_text)[1])

    def subscribe(self, client: NodeId, filter_text: str) -> None:
        """Let a client subscribe; whoever refuses ends the run."""
        core = self.client(client)
        self._expect(client, core.subscribe(self.now, filter_text)[1])

    def publish(self, client: NodeId, content: Mapping[str, Value], body: bytes = b"") -> int:
        """Let a client publish; returns the number of the publication."""
        seq = self.client(client).publish(self.now, content, body)
        self.carry_out_calls(self.nodes[client])
        return seq

    def client(self, name: NodeId) -> ClientCore:
        """The core of a client."""
        core = self.nodes[name].core
        assert isinstance(core, ClientCore)
        return core

    def host(self, name: NodeId) -> Host:
        """The core of a host."""
        core = self.nodes[name].core
        assert isinstance(core, Host)
        return core

    def machine(self, broker: NodeId) -> Machine:
        """A broker, by whomever it is played."""
        node = self.who_plays(broker)
        assert node is not None, f"nobody plays {broker}"
        return self.host(node.name).parts.playing.brokers[broker].machine

    def _expect(self, client: NodeId, operation: OperationId) -> None:
        self.nodes[client].outcomes[operation] = partial(_check, client)
        self.carry_out_calls(self.nodes[client])


def _check(client: NodeId, refusal: Refusal | None) -> None:
    assert refusal is None, f"{client} was refused: {refusal}"


def _in_words(action: Callable[..., object], arguments: tuple[Any, ...]) -> str:
    match getattr(action, "__name__", ""), arguments:
        case "_keep", (appointed, its_arguments):
            return _in_words(appointed, its_arguments)
        case "_arrive", (end, message, sender):
            return f"{type(message).__name__} {sender} -> {end.node.name}"
        case "_dialled", (node, address, _):
            return f"{node.name} dials {address}"
        case "_hear_of_close", (end,):
            return f"{end.node.name} loses its connection"
        case "_fire", (node, _):
            return f"{node.name} wakes up"
        case _:
            return ""
