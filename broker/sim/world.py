"""A world of nodes and links in virtual time: clocks, events, delays, faults, all from one seed.

The world carries out what the cores ask for, whatever they are (`doors.py`). Time passes
only from event to event, so an hour costs nothing, and whatever happens is repeated exactly by the
same seed. Every link has a delay of its own and every message a little more of it; a link keeps its
order, as TCP does.

A node is told the time of its own machine's clock; the history has the time of the world.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar, assert_never

import attrs

from plait.broker.effects import (
    BecomeReady,
    BeginDetection,
    CloseLink,
    Deliver,
    Delivery,
    Effect,
    EndOperation,
    Match,
    OpenLink,
    RecordHistory,
    RememberSeats,
    ReportConfirmed,
    ReportMatch,
    ReportRevoked,
    ReportSkipped,
    SendMessage,
    SetTimer,
    Stop,
    WriteLog,
)
from plait.broker.holding import describe_held
from plait.broker.host.seats import next_incarnation
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    ShutdownRequested,
    TimerFired,
)
from plait.broker.limits import Limits
from plait.broker.messages import Heartbeat, Message, Seating
from plait.broker.principals import UNKNOWN_CALLER, Caller
from plait.broker.sim.clocks import Clock
from plait.broker.sim.cuts import Cut
from plait.broker.sim.doors import Door, HostDoor
from plait.broker.sim.hosts import HostCores, StepCores
from plait.broker.sim.liars import Liar
from plait.broker.sim.nodes import ENDING, DiskState, End, Ending, Node
from plait.broker.sim.trace_text import describe_delivery, describe_message
from plait.faulttol.history import MemoryHistory, Record
from plait.routing.conflicts import FAST
from plait.routing.ids import NodeId, SubscriptionId
from plait.routing.orderings import DEFAULT_ORDERING, SUMMIT
from plait.routing.rules import Rules

LAUNCHER: Final = NodeId("plait-launcher")
"""Who writes down what was done to nodes."""

CLOCKS_APART_S: Final = 1000.0
"""So much may clocks that drift differ at the beginning."""

SIMULATED_LIMITS: Final = Limits(
    # Most runs are over before the first tick, and so are not slowed down by heartbeats.
    heartbeat_interval_s=5.0,
    heartbeat_timeout_s=20.0,
    stall_timeout_s=20.0,
    resume_timeout_s=5.0,
)
LIVELY_LIMITS: Final = attrs.evolve(
    # Where brokers freeze, others notice by heartbeats, long before clients despair.
    SIMULATED_LIMITS,
    heartbeat_interval_s=1.0,
    heartbeat_timeout_s=4.0,
)


REST_TIMEOUTS: Final = 1.5
"""Of heartbeats: if for so long nobody has heard more of others than that they live, all rest."""
SYN_AGAIN_S: Final = 1.0
"""After so long a machine that was not answered asks again for a connection."""
COST_FACTORS: Final = (0.5, 2.0)
"""How much less or more than usual a message may take, where messages take time."""


_Task = TypeVar("_Task", bound=Input | list[Effect])


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
        drift: float = 0.0,
        step_cost_s: float = 0.0,
        tears_all: bool = False,
        cores: HostCores | None = None,
        is_traced: bool = False,
    ) -> None:
        """Begin at time 0 with nobody; a link's delay is drawn from `delay_s`.

        A message takes up to `jitter` times the delay of its link longer than the delay itself.
        With a `drift` every machine has a clock that begins anywhere and runs by up to that part
        too fast or too slow. With a `step_cost_s` a node takes about so long for each message, in
        which it does nothing else; what it sends leaves when it has done. Of what a node has sent
        that is killed, most comes as a rule; if that `tears_all`, as much as does not.
        """
        self.random = random.Random(seed)
        self._seed = seed
        self.now = 0.0
        self.limits = limits
        self.cores = cores or StepCores()
        self.cores.attend(self.residents)
        self.nodes: dict[NodeId, Node] = {}
        """By name; of two of the same name, the one that was there first."""
        self.twins: dict[NodeId, Node] = {}
        """Second processes of a name, by their addresses."""
        self.former: list[Node] = []
        """Earlier incarnations."""
        self.trace: list[str] = []
        self.messages_carried = 0
        self.on_effects: Callable[[Node, list[Effect]], None] | None = None
        """Who is shown what every node wants done, before it is."""
        self.on_step: Callable[[Node], None] | None = None
        """Who is shown every node that has taken a step, before it has any effect."""
        self.callers: dict[NodeId, Caller] = {}
        """As what nodes come that have proven who they are."""
        self.off_the_net: set[NodeId] = set()
        """Nodes that cannot connect to anybody."""
        self.have_been_away: set[NodeId] = set()
        """Those that once could not."""
        self.liars: dict[NodeId, Liar] = {}
        """By their addresses."""
        self.cuts: list[Cut] = []
        """Those that are not healed."""
        self._launcher = MemoryHistory(run, LAUNCHER, 1)
        self._is_traced = is_traced
        self._run = run
        self._delay_s = delay_s
        self._jitter = jitter
        self._drift = drift
        self._step_cost_s = step_cost_s
        self._tears_all = tears_all
        self._chances: dict[str, random.Random] = {}
        self._clocks: dict[NodeId, Clock] = {}
        self._histories: dict[tuple[NodeId, int], MemoryHistory] = {}
        self._ends: dict[LinkId, End] = {}
        self._link_numbers = itertools.count(1)
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._event_numbers = itertools.count()
        self._appointments = 0
        """What is going to happen beside timers and what is on its way."""
        self._stirred_at = 0.0
        """When anything but heartbeats was sent last, or happened."""

    def chance(self, about: str) -> random.Random:
        """Random numbers for one matter alone, so that one more matter changes no other."""
        if about not in self._chances:
            self._chances[about] = random.Random(f"{self._seed} {about}")
        return self._chances[about]

    # --- building ---------------------------------------------------------------------------

    def add_broker(
        self,
        name: NodeId,
        join: NodeId | None,
        *,
        fallbacks: Sequence[NodeId] = (),
        remembered: Any = None,
        incarnation: int = 1,
        address: NodeId | None = None,
        ordering: str = DEFAULT_ORDERING,
        policy: str = "filter",
        delta: int = 1,
        detection: str = FAST,
        managers: str = SUMMIT,
        standby: int = 0,
        rules: Rules | None = None,
    ) -> Node:
        """Start a broker; unless it is given another one, its address is its name."""
        settings: dict[str, Any] = {
            "fallbacks": fallbacks,
            "ordering": ordering,
            "policy": policy,
            "delta": delta,
            "detection": detection,
            "managers": managers,
            "standby": standby,
            "rules": rules,
        }
        core, door = self.cores.host(
            name,
            incarnation,
            address=address or name,
            remembered=remembered,
            entropy=f"{self._seed} {name} {incarnation}".encode(),
            limits=self.limits,
            settings={"join": join, **settings},
        )
        start_again = partial(self.add_broker, name, join=join, **settings)
        node = self.add_host(name, door, core, address=address, start_again=start_again)
        # What it found there is older than what it has written when it started.
        node.disk.versions.insert(0, (incarnation, remembered))
        return node

    def add_client(self, name: NodeId, *brokers: NodeId, incarnation: int = 1) -> Node:
        """Start a client that connects to the first of these brokers that it reaches."""
        core, door = self.cores.client(name, incarnation, brokers=brokers, limits=self.limits)
        node = self._new_node(name, door, core, address=None)
        node.client, node.start_again = door, partial(self.add_client, name, *brokers)
        self._start(node)
        return node

    def add_host(
        self,
        name: NodeId,
        door: HostDoor,
        core: Any = None,
        *,
        address: NodeId | None = None,
        start_again: Callable[..., Node] | None = None,
    ) -> Node:
        """Start a host, of whatever kind."""
        node = self._new_node(name, door, core, address=address)
        node.host, node.start_again = door, start_again
        self._start(node)
        return node

    def _new_node(self, name: NodeId, door: Door, core: Any, *, address: NodeId | None) -> Node:
        address = address or name
        life = name, door.incarnation
        history = self._histories.setdefault(life, MemoryHistory(self._run, *life))
        node = Node(name, address, door, core, history, self._clock_of(address))
        there = self.nodes if address == name else self.twins
        if address in there:
            former = there[address]
            self.former.append(former)
            node.disk = former.disk
            node.delivered_before = former.delivered_before + former.delivered
            self._launcher.write(self.now, "restarted", about=name)
        there[address] = node
        return node

    def _start(self, node: Node) -> None:
        self._carry_out(node, node.door.start(self.time_of(node)))

    def _clock_of(self, address: NodeId) -> Clock:
        clock = self._clocks.get(address)
        if clock is None:
            clock = Clock()
            if self._drift:
                chance = self.chance("drift")
                rate = chance.uniform(1 - self._drift, 1 + self._drift)
                clock = Clock(rate=rate, offset=chance.uniform(0, CLOCKS_APART_S))
            self._clocks[address] = clock
        return clock

    # --- who is there -----------------------------------------------------------------------

    def residents(self) -> list[Node]:
        """The last life of every process."""
        return [*self.nodes.values(), *self.twins.values()]

    @property
    def hosts(self) -> list[Node]:
        """Those of them that play brokers."""
        return [node for node in self.residents() if node.host is not None]

    def who_plays(self, broker: NodeId) -> Node | None:
        """The host that plays a broker, of several the one of the latest incarnation."""
        players = [
            node
            for node in self.hosts
            if node.is_alive and node.host is not None and broker in node.host.brokers
        ]
        return max(players, key=lambda node: node.door.incarnation, default=None)

    def at_address(self, address: NodeId) -> Node:
        """The last process that listened at an address."""
        return self.twins.get(address) or self.nodes[address]

    def unresolved(self) -> list[NodeId]:
        """Who has failed, and is not got over: each counts as one of δ."""
        return self.cores.unresolved(self.residents())

    def vulnerable(self) -> int:
        """How many failures are not over, cuts that are not healed included."""
        unresolved = self.unresolved()
        return len(unresolved) + len({cut.one for cut in self.cuts} - {*unresolved})

    # --- time -------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something at a time that has not passed."""
        self._appointments += 1
        self._push(time, self._keep, action, arguments)

    def _push(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Let something happen that goes on for ever: timers fire, heartbeats arrive."""
        heapq.heappush(self._events, (time, next(self._event_numbers), action, arguments))

    def _keep(self, action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._appointments -= 1
        self._stirred_at = self.now
        action(*arguments)

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

    def run_to_rest(self, until: float, is_over: Callable[[], bool]) -> None:
        """Let everything happen that is due by then, or until nothing more will.

        That is so if all is at its end, and for longer than anybody waits for anything nothing
        but heartbeats has been sent, and nothing else is going to happen.
        """
        patience = REST_TIMEOUTS * self.limits.heartbeat_timeout_s
        looked_at = self._stirred_at + patience
        while looked_at < until:
            self.run(looked_at)
            if self._stirred_at + patience > looked_at:
                looked_at = self._stirred_at + patience
            elif not self._appointments and is_over():
                return
            else:
                looked_at += patience
        self.run(until)

    def time_of(self, node: Node) -> float:
        """What its own clock shows."""
        return node.clock.at(self.now)

    # --- what the application does ------------------------------------------------------------

    def when_ready(self, node: Node, action: Callable[[], None]) -> None:
        """Do something as soon as a node has joined."""
        if node.is_ready:
            action()
        else:
            node.on_ready.append(action)

    def act(self, node: Node, action: Callable[..., object], *arguments: Any) -> None:
        """Let the application of a node do something, or if it is paused, when it goes on.

        One that has stopped does nothing any more.
        """
        if node.is_paused:
            node.on_going_on.append(partial(self.act, node, action, *arguments))
        elif node.is_alive:
            action(*arguments)

    def carry_out_calls(self, node: Node) -> None:
        """Carry out what calls to a client's core have asked for."""
        assert node.client is not None
        effects = node.client.take_effects()
        if self._step_cost_s and effects:
            self._put_to_work(node, effects)
        else:
            self._carry_out(node, effects)

    def hand_over(self, node: Node, chance: random.Random) -> None:
        """Let a host move something elsewhere that it can."""
        assert node.host is not None
        self._carry_out(node, node.host.hand_over(self.time_of(node), chance))

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

    def crash(self, address: NodeId) -> None:
        """Kill a process. Of what it sent last, its peers get some, and then they notice."""
        node = self.at_address(address)
        if node.is_paused:
            self._leave_pause(node)
        node.stopped, node.frozen, node.work, node.done = "crashed", None, None, None
        self._launcher.write(self.now, "crashed", about=node.name)
        self._note(f"{address} crashes")
        for end in [end for end in self._ends.values() if end.node is node]:
            self._forget(end)
            peer = end.peer
            if peer is not None and peer.is_open:
                noticed = self.random.uniform(self.now, max(self.now, peer.last_arrival))
                noticed += peer.delay
                if self._tears_all:
                    first = self.now + peer.delay
                    last = max(first, peer.last_arrival)
                    noticed = self.chance("tears").uniform(first, last)
                self.at(noticed, self._hear_of_close, peer)

    def restart(
        self, address: NodeId, disk: DiskState = DiskState.KEPT, **changes: Any
    ) -> Node | None:
        """Start a process again that has stopped, as at first, but for what is on its disk.

        `changes` are other settings than before. None if it is running.
        """
        node = self.at_address(address)
        if node.is_alive:
            return None
        self._note(f"{address} is started again" + ("" if disk is DiskState.KEPT else f", {disk}"))
        return self._start_again(node, address, disk, changes)

    def start_twin(self, name: NodeId, disk: DiskState = DiskState.KEPT, **changes: Any) -> Node:
        """Start a host a second time, at another address, while the first one runs."""
        address = NodeId(f"{name}~2")
        assert address not in self.twins, f"{address} has been started before"
        self._note(f"{name} is started a second time, at {address}")
        node = self._start_again(self.nodes[name], address, disk, changes)
        assert node is not None
        return node

    def _start_again(
        self, before: Node, address: NodeId, disk: DiskState, changes: dict[str, Any]
    ) -> Node:
        assert before.start_again is not None, f"{before.name} cannot be started again"
        if before.host is None:
            return before.start_again(incarnation=before.door.incarnation + 1)
        written = before.disk.versions
        remembered = None
        if disk is not DiskState.LOST:
            old = disk is DiskState.OLD
            _, remembered = self.chance("disks").choice(written) if old else written[-1]
        # It is taken from the clock on the wall, whatever the disk says.
        lives = [
            node.door.incarnation
            for node in (*self.former, *self.residents())
            if node.name == before.name
        ]
        following = 1 + max(lives)
        if isinstance(remembered, Seating):
            following = next_incarnation(before.name, max(lives), remembered)
        return before.start_again(
            incarnation=following, remembered=remembered, address=address, **changes
        )

    def freeze(self, address: NodeId) -> None:
        """Stop a process where it is, as SIGSTOP does; clock and connections stay as they are."""
        node = self.at_address(address)
        if node.stopped is None and node.frozen is None:
            node.frozen = []
            self._launcher.write(self.now, "frozen", about=node.name)
            self._note(f"{address} is frozen")

    def unfreeze(self, address: NodeId) -> None:
        """Let it go on, with everything that has happened in the meantime."""
        node = self.at_address(address)
        if node.is_frozen:
            missed, node.frozen = node.frozen, None
            self._launcher.write(self.now, "unfrozen", about=node.name)
            self._note(f"{address} goes on")
            self._catch_up_with_work(node)
            for happened in missed or ():
                self._tell(node, happened)

    def pause(self, address: NodeId, seconds: float) -> None:
        """Stop a machine for a while, clock and all; to itself, no time passes.

        What comes for it waits, and then comes as one read from each connection. It is not in the
        history: nobody is to notice.
        """
        node = self.at_address(address)
        if node.stopped is None and node.frozen is None:
            self._note(f"{address} is paused for {seconds:.3f} s")
            node.frozen, node.is_paused = [], True
            node.timer += 1  # it is armed again at the end
            node.clock.stop(self.now)
            self.after(seconds, self._end_pause, node)

    def _end_pause(self, node: Node) -> None:
        if not node.is_paused:
            return
        missed = self._leave_pause(node)
        self._note(f"{node.address} goes on")
        self._arm(node)
        self._catch_up_with_work(node)
        for happened in _as_reads(missed):
            self._tell(node, happened)
        actions, node.on_going_on = node.on_going_on, []
        for action in actions:
            action()

    def _leave_pause(self, node: Node) -> list[Input]:
        missed, node.frozen = node.frozen or [], None
        node.is_paused = False
        node.clock.go_on(self.now)
        return missed

    def jump(self, address: NodeId, seconds: float) -> None:
        """Set the clock of a machine forward; what is due by then is due."""
        node = self.at_address(address)
        self._note(f"the clock of {address} goes {seconds:.3f} s forward")
        node.clock.jump(self.now, seconds)
        if not node.is_paused:
            self._arm(node)

    def cut(self, cut: Cut) -> None:
        """Let nothing through there until `heal`: what is sent waits, and who dials is not heard.

        Nodes are named by their addresses.
        """
        self._note(str(cut))
        self.cuts.append(cut)

    def heal(self, cut: Cut) -> None:
        """Let everything through again, and what has waited on connections that both ends have."""
        self.cuts.remove(cut)
        self._note(f"no more: {cut}")
        for end in list(self._ends.values()):
            if end.waiting:
                self.after(end.delay, self._come_through, end)

    def _is_cut(self, sender: NodeId, receiver: NodeId) -> bool:
        return any(cut.stops(sender, receiver) for cut in self.cuts)

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
        elif self._step_cost_s:
            self._put_to_work(node, happened)
        else:
            self._carry_out(node, self._step(node, happened))
            if self._is_traced and node.host is not None:
                self._note_held(node, node.host)

    def _step(self, node: Node, happened: Input) -> list[Effect]:
        effects = node.door.step(node.clock.at(self.now), happened)
        liar = self.liars.get(node.address)
        if liar is not None and node.host is not None:
            liar.look_at(node.host)
        if self.on_step is not None:
            self.on_step(node)
        return effects

    # Where steps take time, a node does one thing after the other.

    def _put_to_work(self, node: Node, task: Input | list[Effect]) -> None:
        """Let a node do something, or carry out what it was called for, when it has time."""
        if node.work is None:
            node.work = deque()
            self._work(node, task)
        else:
            node.work.append(task)

    def _work(self, node: Node, task: Input | list[Effect]) -> None:
        if isinstance(task, list):
            effects, size = task, sum(isinstance(effect, SendMessage) for effect in task)
        else:
            effects = self._step(node, task)
            size = len(task.messages) if isinstance(task, MessagesReceived) else 1
        cost = sum(self.chance("step cost").uniform(*COST_FACTORS) for _ in range(size))
        self._push(self.now + cost * self._step_cost_s, self._end_work, node, effects)

    def _end_work(self, node: Node, effects: list[Effect]) -> None:
        """Send what the node has to send by now, and turn to what has come meanwhile."""
        if node.stopped is not None:
            return
        if node.frozen is not None:
            node.done = effects
            return
        self._carry_out(node, effects)
        if self._is_traced and node.host is not None:
            self._note_held(node, node.host)
        if not node.work:
            node.work = None
            return
        task = node.work.popleft()
        if isinstance(task, MessagesReceived):
            # As one read from a socket would, it takes all that has come there.
            task, *others = _as_reads([task, *node.work])
            node.work.clear()
            node.work.extend(others)
        self._work(node, task)

    def _catch_up_with_work(self, node: Node) -> None:
        """Send what it would have sent, had it not been frozen."""
        effects, node.done = node.done, None
        if effects is not None:
            self._end_work(node, effects)

    def _carry_out(self, node: Node, effects: list[Effect]) -> None:
        if self.on_effects is not None:
            self.on_effects(node, effects)
        for effect in effects:
            match effect:
                case SendMessage(links, message):
                    for link in links:
                        self._send(link, message)
                case SetTimer(at):
                    node.timer_at = at
                    self._arm(node)
                case RecordHistory(kind, fields):
                    node.history.write(self.now, kind, **fields)
                case Deliver(delivery):
                    self._deliver(node, delivery)
                case ReportMatch(detector, found):
                    self._report(node, detector, found)
                case OpenLink(address):
                    delay = self.random.uniform(*self._delay_s)
                    self.after(delay, self._connect, node, NodeId(address), delay)
                case CloseLink(link):
                    self._close(link)
                case EndOperation(operation, refusal):
                    outcome = node.outcomes.pop(operation, None)
                    if outcome is not None:
                        outcome(refusal)
                case RememberSeats(seating):
                    node.disk.versions.append((node.door.incarnation, seating))
                case BecomeReady():
                    node.is_ready = True
                    actions, node.on_ready = node.on_ready, []
                    for action in actions:
                        action()
                case Stop(reason, comes_back):
                    self._stop(node, reason)
                    if comes_back:
                        self.after(self._delay_s[1], self.restart, node.address)
                case ReportConfirmed() | ReportSkipped() | ReportRevoked() | BeginDetection():
                    pass
                case WriteLog(level, event, fields):
                    if self._is_traced:
                        details = " ".join(f"{name}={value}" for name, value in fields.items())
                        self._note(f"{node.name}: {level} {event} {details}".rstrip())
                case _:
                    _refuse(effect)

    def _note_held(self, node: Node, host: HostDoor) -> None:
        """Tell what a broker holds since this step, and what it does not hold any more."""
        before, node.held = node.held, {}
        for held in host.describe_held():
            broker = held["broker"]
            name = (broker, f"{held['publisher']}:{held['number']}")
            is_new = name not in before
            node.held[name] = before.pop(name, self.now)
            if is_new:
                self._note(f"{broker}: {describe_held(held)}")
        for (broker, publication), since in before.items():
            if broker in host.brokers:  # or somebody else plays it, who holds it now
                millis = 1000 * (self.now - since)
                self._note(f"{broker}: settles {publication}, held for {millis:.3f} ms")

    def _arm(self, node: Node) -> None:
        """See to it that the timer of a node fires when its clock shows the time."""
        node.timer += 1
        if node.timer_at is not None:
            at = max(node.clock.when(node.timer_at), self.now)
            self._push(at, self._fire, node, node.timer)

    def _fire(self, node: Node, timer: int) -> None:
        if timer == node.timer and node.timer_at is not None:
            node.clock.reach(node.timer_at)
            node.timer_at = None
            self._tell(node, TimerFired())

    def _connect(self, node: Node, address: NodeId, delay: float) -> None:
        if node.stopped is not None:
            return
        if node.name in self.off_the_net:
            self._tell(node, LinkFailed(address, "network is unreachable"))
            return
        if self._is_out_of_reach(node, address):
            given_up_at = self.now - delay + self.limits.dial_timeout_s
            self._dial_again_later(node, address, delay, given_up_at)
            return
        found = self.twins.get(address) or self.nodes.get(address)
        if found is None or found.stopped is not None:
            self._tell(node, LinkFailed(address, "connection refused", is_refused=True))
            return
        here = End(LinkId(next(self._link_numbers)), node, delay)
        there = End(LinkId(next(self._link_numbers)), found, delay, peer=here)
        here.peer = there
        self._ends[here.link], self._ends[there.link] = here, there
        caller = self.callers.get(node.name, UNKNOWN_CALLER)
        self._tell(found, LinkOpened(there.link, caller=caller))
        self._tell(node, LinkOpened(here.link, address))

    def _is_out_of_reach(self, node: Node, address: NodeId) -> bool:
        """Whether nobody there answers, not even to say that nobody listens."""
        found = self.twins.get(address) or self.nodes.get(address)
        return (
            self._is_cut(node.address, address)
            or self._is_cut(address, node.address)
            or (found is not None and found.is_paused)
        )

    def _dial_again_later(
        self, node: Node, address: NodeId, delay: float, given_up_at: float
    ) -> None:
        at = min(self.now + SYN_AGAIN_S, given_up_at)
        self.at(max(at, self.now), self._dial_again, node, address, delay, given_up_at)

    def _dial_again(self, node: Node, address: NodeId, delay: float, given_up_at: float) -> None:
        if self.now >= given_up_at:
            reason = f"no answer within {self.limits.dial_timeout_s:g} s"
            self._tell(node, LinkFailed(address, reason))
        elif self._is_out_of_reach(node, address):
            self._dial_again_later(node, address, delay, given_up_at)
        else:
            self._connect(node, address, delay)

    def _send(self, link: LinkId, message: Message) -> None:
        end = self._ends.get(link)
        if end is None or end.peer is None:
            return
        if type(message) is not Heartbeat:
            self._stirred_at = self.now
        peer = end.peer
        liar = self.liars.get(end.node.address)
        for said in (message,) if liar is None else liar.say(message, peer.node.address):
            self._put_on_the_way(peer, said, end.node.name)

    def _put_on_the_way(self, peer: End, message: Message, sender: NodeId) -> None:
        self.messages_carried += 1
        arrival = self.now + peer.delay * (1 + self._jitter * self.random.random())
        if arrival < peer.last_arrival:
            arrival = peer.last_arrival
        peer.last_arrival = arrival
        self._push(arrival, self._arrive, peer, message, sender)

    def _arrive(self, end: End, message: Message, sender: NodeId) -> None:
        if not end.is_open or self._waits(end, message):
            return
        if self._is_traced:
            self._note(f"{sender} -> {end.node.name}: {describe_message(message)}")
        self._tell(end.node, MessagesReceived(end.link, [message]))

    def _waits(self, end: End, coming: Message | Ending) -> bool:
        """Whether what comes does not get through, or what came before it did not.

        TCP sends it again until it does. But of what waits when the other side closes, or is
        killed, some is never sent again.
        """
        if not (self.cuts or end.waiting) or end.peer is None:
            return False
        if not end.waiting and not self._is_cut(end.peer.node.address, end.node.address):
            return False
        if isinstance(coming, Ending):
            del end.waiting[self.chance("cuts").randint(0, len(end.waiting)) :]
        if not end.waiting or end.waiting[-1] is not ENDING:
            end.waiting.append(coming)
        return True

    def _come_through(self, end: End) -> None:
        """Let arrive what has waited, if the cut is still healed."""
        assert end.peer is not None
        sender = end.peer.node
        if self._is_cut(sender.address, end.node.address):
            return
        waiting, end.waiting = end.waiting, []
        for coming in waiting:
            if isinstance(coming, Ending):
                self._hear_of_close(end)
            else:
                self._arrive(end, coming, sender.name)

    def _deliver(self, node: Node, delivery: Delivery) -> None:
        if self._is_traced:
            self._note(f"{node.name}: {describe_delivery(delivery)}")
        fields = delivery.record_fields(node.name)
        fields["position"] += node.delivered_before
        node.delivered += 1
        node.history.write(self.now, "delivered", **fields)
        if node.on_delivery is not None:
            node.on_delivery(delivery)

    def _report(self, node: Node, detector: SubscriptionId, found: Match) -> None:
        fields = found.record_fields(detector)
        fields["position"] += node.delivered_before
        node.history.write(self.now, "detected", **fields)
        if node.on_match is not None:
            node.on_match(detector, found)

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
        if end.is_open and not self._waits(end, ENDING):
            self._forget(end)
            self._tell(end.node, LinkClosed(end.link, "closed by the other side"))

    def _forget(self, end: End) -> None:
        end.is_open = False
        self._ends.pop(end.link, None)

    def _stop(self, node: Node, reason: str) -> None:
        node.stopped, node.work = reason, None
        self._note(f"{node.name}: stops, {reason}")
        for end in [end for end in self._ends.values() if end.node is node]:
            self._close(end.link)

    def _note(self, text: str) -> None:
        if self._is_traced:
            self.trace.append(f"{self.now:10.6f}  {text}")

    # --- the record ---------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Everything that was recorded, node by node."""
        nodes = (*self.former, *self.residents())
        histories = list({id(node.history): node.history for node in nodes}.values())
        if self._launcher.records:
            histories.append(self._launcher)
        return [record for history in histories for record in history.records]


def _as_reads(tasks: Iterable[_Task]) -> list[_Task]:
    """Put together what came over one link, where the first of it stands."""
    reads: list[_Task] = []
    places: dict[LinkId, int] = {}
    for task in tasks:
        if isinstance(task, MessagesReceived) and task.link in places:
            place = places[task.link]
            read = reads[place]
            assert isinstance(read, MessagesReceived)
            reads[place] = attrs.evolve(read, messages=[*read.messages, *task.messages])
            continue
        if isinstance(task, MessagesReceived):
            places[task.link] = len(reads)
        reads.append(task)
    return reads


def _refuse(effect: NoReturn) -> NoReturn:
    assert_never(effect)
