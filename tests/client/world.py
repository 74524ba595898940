"""Clients' cores, and a host that plays one broker for them: a real machine, everything in memory.

Every message passes through the codec. Nothing happens by itself: a test decides when which
connection carries its next message, when it is cut, and when time passes.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import attrs

from plait.broker.client.core import ClientCore
from plait.broker.client.invariants import check_invariants
from plait.broker.codec import FrameDecoder, encode
from plait.broker.effects import (
    BecomeReady,
    BeginDetection,
    CloseLink,
    Deliver,
    Effect,
    EndOperation,
    Match,
    OpenLink,
    RecordHistory,
    Refusal,
    ReportConfirmed,
    ReportMatch,
    ReportSkipped,
    SendMessage,
    SetTimer,
    Stop,
    WriteLog,
)
from plait.broker.host.attaching import AttachmentReader
from plait.broker.host.link_states import LinkState, Speaker, require_legal
from plait.broker.inputs import (
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    TimerFired,
)
from plait.broker.limits import Limits
from plait.broker.log_codec import LogWriter
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import Below, Neighbour
from plait.broker.machine.neighbours import Progress as Counted
from plait.broker.machine.rebuild import Attachment, kept, rebuild
from plait.broker.messages import (
    AttachRequest,
    EndOfStep,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    HostPlace,
    Join,
    Message,
    NodeKind,
    Progress,
    RefusalCode,
    Seat,
    Seating,
    Settings,
    Welcome,
)
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import Standing, Taken
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId

LIMITS: Final = Limits(heartbeat_interval_s=1.0, heartbeat_timeout_s=4.0)
BROKER: Final = NodeId("b")


@attrs.define(eq=False)
class Line:
    """A connection between a client and a host."""

    link: LinkId
    client: "Client"
    host: "Host"
    up: deque[Message] = attrs.field(factory=deque)
    down: deque[Message] = attrs.field(factory=deque)
    is_silent: bool = False
    """Whether nothing arrives at either end."""
    step: int = 0
    """Of the last batch up."""


class Client:
    """A client, and what has become of what it asked for."""

    def __init__(self, world: "World", name: str, *addresses: str, incarnation: int = 1) -> None:
        self.world = world
        self.core = ClientCore(
            NodeId(name),
            incarnation,
            brokers=addresses or ("one",),
            limits=world.limits,
            recording=True,
        )
        self.timer: float | None = None
        self.received: list[str] = []
        self.found: dict[SubscriptionId, list[Match]] = {}
        """By the detectors that have begun."""
        self.answers: dict[OperationId, Refusal | None] = {}
        self.asked: list[OperationId] = []
        self.confirmed = 0
        self.skipped: list[int] = []
        self.stopped: str | None = None
        self.ready = 0
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.dialled: list[str] = []
        self.sent: list[Message] = []
        self.core.start(world.now)
        self.carry_out()

    def step(self, happened: Any) -> None:
        if self.stopped is None:
            self.core.step(self.world.now, happened)
            self.carry_out()

    def carry_out(self) -> None:
        for effect in self.core.take_effects():
            self._carry_out(effect)
        check_invariants(self.core)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendMessage(links, message):
                self.sent.append(message)
                for link in links:
                    self.world.send_up(link, message)
            case OpenLink(address):
                self.dialled.append(address)
                self.world.dialling.append((self, address))
            case CloseLink(link):
                self.world.close(link)
            case SetTimer(at):
                self.timer = at
            case Deliver(delivery):
                self.received.append(f"{delivery.publisher}:{delivery.seq}")
                assert delivery.position == len(self.received)
            case BeginDetection(detector):
                self.found.setdefault(detector, [])
            case ReportMatch(detector, match):
                self.found[detector].append(match)
            case EndOperation(operation, refusal):
                assert operation not in self.answers
                self.answers[operation] = refusal
            case ReportConfirmed(seq):
                assert seq > self.confirmed
                self.confirmed = seq
            case ReportSkipped(seq):
                self.skipped.append(seq)
            case RecordHistory(kind, fields):
                self.records.append((kind, dict(fields)))
            case BecomeReady():
                self.ready += 1
            case Stop(reason):
                self.stopped = reason
            case WriteLog():
                pass
            case _:
                raise AssertionError(effect)

    # --- what it does -----------------------------------------------------------------------

    def advertises(self, text: str) -> AdvertisementId:
        name, operation = self.core.advertise(self.world.now, text)
        self.asks(operation)
        return name

    def subscribes(self, text: str) -> SubscriptionId:
        name, operation = self.core.subscribe(self.world.now, text)
        self.asks(operation)
        return name

    def unsubscribes(self, name: SubscriptionId) -> None:
        self.asks(self.core.unsubscribe(self.world.now, name))

    def unadvertises(self, name: AdvertisementId) -> None:
        self.asks(self.core.unadvertise(self.world.now, name))

    def publishes(self, *values: int, urgent: bool = False) -> None:
        """Publish all of these in one step."""
        for value in values:
            self.core.publish(self.world.now, {"x": value}, urgent=urgent)
        self.carry_out()

    def leaves(self) -> None:
        self.core.leave(self.world.now)
        self.carry_out()

    def asks(self, operation: OperationId) -> None:
        self.asked.append(operation)
        self.carry_out()

    @property
    def unanswered(self) -> list[OperationId]:
        return [operation for operation in self.asked if operation not in self.answers]

    def recorded(self, kind: str) -> list[dict[str, Any]]:
        return [fields for each, fields in self.records if each == kind]


@attrs.define
class Known:
    """What a host knows of a client."""

    secret: str
    incarnation: int


class Host:
    """A process that plays the broker, or another one, or is going to."""

    def __init__(self, world: "World", name: str, broker: NodeId | None = None) -> None:
        self.world, self.name = world, name
        self.broker = broker
        self.term = 1
        self.outbox = Outbox()
        self.machine: Machine | None = None
        if broker is not None:
            self.machine = Machine(
                broker, None, settings=Settings(), limits=world.limits, outbox=self.outbox
            )
        self.taking_up: NodeId | None = None
        self.is_refusing = self.is_deaf = False
        self.refused_names: set[str] = set()
        self.lines: dict[NodeId, Line] = {}
        self.told: dict[NodeId, int] = {}
        """How far a client knows the log."""
        self.writers: dict[NodeId, LogWriter] = {}
        self.batches: dict[LinkId, list[Message]] = {}
        self.readers: dict[LinkId, AttachmentReader] = {}
        self.attachments: dict[NodeId, Attachment] = {}
        self.heard: list[Message] = []

    # --- what comes -------------------------------------------------------------------------

    def hears(self, line: Line, message: Message) -> None:
        self.heard.append(message)
        self.require_legal(line, message)
        match message:
            case Hello():
                self.greeted(line, message)
            case EndOfStep(step=step):
                self.take(line, step, self.batches.pop(line.link, []))
            case Progress():
                machine, neighbour = self._of(line)
                machine.on_progress(
                    neighbour,
                    Counted(message.received, message.sent, message.forgotten),
                )
                self.flush()
            case Heartbeat() | Goodbye():
                pass
            case _ if line.link in self.readers:
                attachment = self.readers[line.link].feed(message)
                if attachment is not None:
                    self.attached(line, attachment)
            case _:
                self.batches.setdefault(line.link, []).append(message)

    def require_legal(self, line: Line, message: Message) -> None:
        """No client says what a host would not hear."""
        core = line.client.core
        state = LinkState.TO_CLIENT
        if line.link in self.readers:
            state = LinkState.ATTACHED
        elif self.lines.get(core.node) is not line:
            state = LinkState.AWAITING_HELLO
        is_known = state is not LinkState.AWAITING_HELLO
        speaker = Speaker(
            here=self.broker or self.taking_up or NodeId(""),
            node=core.node if is_known else NodeId(""),
            incarnation=core.incarnation,
            kind=NodeKind.CLIENT if is_known else None,
            step=line.step,
        )
        require_legal(state, speaker, message)
        if isinstance(message, EndOfStep):
            line.step = message.step

    def _of(self, line: Line) -> tuple[Machine, Neighbour]:
        assert self.machine is not None
        neighbour = self.machine.neighbours.named(line.client.core.node)
        assert neighbour is not None
        return self.machine, neighbour

    def greeted(self, line: Line, hello: Hello) -> None:
        assert hello.version == 2
        wanted = hello.to or self.broker
        if wanted is not None and wanted == self.taking_up:
            self.asks_to_attach(line)
        elif self.machine is None or wanted != self.broker:
            self.tell(line, self.world.seating())
            self.tell(line, Goodbye(code=GoodbyeCode.ELSEWHERE, reason="look there"))
            self.world.end(line)
        else:
            known = self.world.known.get((self.machine.node, hello.node))
            neighbour = self.machine.neighbours.named(hello.node)
            if known and neighbour and hello.known_term and known.secret == hello.past.secret:
                if hello.known_term < self.term:
                    self.asks_to_attach(line)
                else:
                    self.resumes(line, hello.taken)
            else:
                self.takes_in(line, hello.node, hello.incarnation, hello.past.published)

    def asks_to_attach(self, line: Line) -> None:
        broker = self.taking_up or self.broker
        assert broker is not None
        self.lines[line.client.core.node] = line
        self.readers[line.link] = AttachmentReader(self.world.limits)
        self.tell(line, AttachRequest(broker=broker))

    def attached(self, line: Line, attachment: Attachment) -> None:
        if self.taking_up is not None:
            self.attachments[attachment.node] = attachment
        else:  # it was away when the broker was rebuilt
            del self.readers[line.link]
            self.resumes(line, attachment.taken)

    def takes_in(self, line: Line, node: NodeId, incarnation: int, published: int) -> None:
        machine = self.machine
        assert machine is not None
        published, taken = machine.names.left_off(node, incarnation) or (published, 0)
        if machine.neighbours.named(node) is None:
            machine.welcome(node, Standing(incarnation=incarnation, published=published))
        secret = f"secret {next(self.world.numbers)}"
        self.world.known[machine.node, node] = Known(secret, incarnation)
        self.tell(line, self.welcome(secret=secret, taken=taken))
        self.connected(line)

    def resumes(self, line: Line, taken: int) -> None:
        machine, neighbour = self._of(line)
        self.tell(line, self.welcome(resumed=True, taken=neighbour.taken))
        self.connected(line)
        self.send_since(line, taken)
        machine.publications.tell_lazily(neighbour)

    def send_since(self, line: Line, taken: int) -> None:
        machine, neighbour = self._of(line)
        again: list[tuple[int, int, Message]] = [
            (each.number, 0, each.publication) for each in kept(neighbour) if each.step > taken
        ]
        again += [(c.position, 1, c.message) for c in neighbour.controls if c.step > taken]
        for _, _, message in sorted(again, key=lambda item: item[:2]):
            self.tell(line, message)
        if again:
            self.tell(line, self.end_of_step(line))
        neighbour.told = (-1, -1, -1, -1)
        machine.publications.tell_lazily(neighbour)

    def welcome(self, *, resumed: bool = False, taken: int = 0, secret: str = "") -> Welcome:
        assert self.broker is not None
        return Welcome(
            node=self.broker,
            term=self.term,
            host=NodeId(self.name),
            incarnation=1,
            settings=Settings(ordering="pairwise"),
            heartbeat_interval_ms=self.world.limits.heartbeat_interval_ms,
            heartbeat_timeout_ms=self.world.limits.heartbeat_timeout_ms,
            resumed=resumed,
            taken=taken,
            secret=secret,
        )

    def connected(self, line: Line) -> None:
        machine, neighbour = self._of(line)
        neighbour.link = line.link
        machine.neighbours.version += 1
        self.lines[neighbour.node] = line
        self.told[neighbour.node] = 0
        self.writers[neighbour.node] = LogWriter()
        self.tell(line, self.world.seating())

    def lost(self, line: Line) -> None:
        self.batches.pop(line.link, None)
        node = line.client.core.node
        if self.lines.get(node) is line:
            del self.lines[node]
            neighbour = self.machine.neighbours.named(node) if self.machine else None
            if self.machine is not None and neighbour is not None:
                neighbour.link = None
                self.machine.neighbours.version += 1

    # --- steps ------------------------------------------------------------------------------

    def take(self, line: Line, step: int, batch: list[Message]) -> None:
        machine, neighbour = self._of(line)
        if step <= neighbour.taken:
            return
        machine.begin_batch(neighbour, step)
        for message in batch:
            if isinstance(message, Join) and neighbour.node in self.refused_names:
                machine.requests.refuse(
                    neighbour, message.operation, RefusalCode.NAME_TAKEN, "it is taken"
                )
            else:
                machine.take_one(neighbour, message, self.world.now)
        self.end(machine, machine.end_step())

    def end(self, machine: Machine, touched: list[Neighbour]) -> None:
        self.carry_out()
        for neighbour in touched:
            line = self.lines.get(neighbour.node)
            if line is not None and neighbour.link == line.link:
                self.tell(line, self.end_of_step(line))
        self.flush()

    def end_of_step(self, line: Line) -> EndOfStep:
        assert self.machine is not None
        logs = self.logs_for(line.client.core.node)
        return EndOfStep(step=self.machine.steps.number, logs=logs)

    def logs_for(self, client: NodeId) -> bytes:
        """What it has not been told of the log on this connection."""
        assert self.machine is not None
        log = self.machine.steps.log
        part = log.since(self.told[client])
        self.told[client] = log.last
        return self.writers[client].write({self.machine.node: part})

    def flush(self) -> None:
        assert self.machine is not None
        self.tell_progress(self.machine.flush(self.world.now))

    def tell_all(self) -> None:
        """Tell all progress that could wait."""
        if self.machine is not None:
            self.tell_progress(self.machine.tell_all())

    def tell_progress(self, news: list[tuple[Neighbour, Counted]]) -> None:
        for neighbour, counted in news:
            line = self.lines.get(neighbour.node)
            if line is not None:
                progress = Progress(
                    received=counted.received,
                    sent=counted.sent,
                    forgotten=counted.forgotten,
                    logs=self.logs_for(neighbour.node),
                )
                self.tell(line, progress)

    def carry_out(self) -> None:
        for effect in self.outbox.take():
            if isinstance(effect, SendMessage):
                for link in effect.links:
                    if link in self.world.lines:
                        self.tell(self.world.lines[link], effect.message)

    def tell(self, line: Line, message: Message) -> None:
        line.down.append(through_codec(message))

    # --- faults -----------------------------------------------------------------------------

    def gives_up(self, client: Client) -> None:
        """The client has been away for too long."""
        assert self.machine is not None
        neighbour = self.machine.neighbours.below[client.core.node]
        assert isinstance(neighbour, Below)
        self.end(self.machine, self.machine.decide(Taken.GONE, neighbour, "away", self.world.now))

    def takes_up(self, broker: NodeId) -> None:
        """Ask whoever comes what it has of a broker that has failed."""
        self.taking_up = broker

    def rebuilds(self, *clients: Client) -> None:
        """Play the broker that was to be taken up, which these stood around."""
        broker = self.taking_up
        assert broker is not None
        nodes = [client.core.node for client in clients]
        assert set(nodes) == set(self.attachments), (nodes, list(self.attachments))
        machines = rebuild(
            {broker: None},
            self.attachments.values(),
            settings=Settings(),
            limits=self.world.limits,
            outbox=self.outbox,
            now=self.world.now,
        )
        attached, self.attachments = self.attachments, {}
        self.readers.clear()
        self.taking_up, self.broker, self.machine = None, broker, machines[broker]
        self.term = self.world.next_term()
        machine = self.machine
        machine.steps.begin(Taken.REPLAY)
        machine.send_again()
        self.outbox.take()
        for client in clients:
            line = self.lines.get(client.core.node)
            if line is not None:
                neighbour = machine.neighbours.named(client.core.node)
                if neighbour is None:  # nobody had heard that it was about to join
                    core = client.core
                    self.takes_in(line, core.node, core.incarnation, core.publishing.handed_over)
                    continue
                self.tell(line, self.welcome(resumed=True, taken=neighbour.taken))
                self.connected(line)
                self.send_since(line, attached[client.core.node].taken)
        self.flush()


def through_codec(message: Message) -> Message:
    """The message as it comes out at the other end."""
    [read] = FrameDecoder().feed(encode(message))
    return read


class World:
    """All there is."""

    def __init__(self, *, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.now = 0.0
        self.numbers = itertools.count(1)
        self.lines: dict[LinkId, Line] = {}
        self.dialling: deque[tuple[Client, str]] = deque()
        self.known: dict[tuple[NodeId, NodeId], Known] = {}
        self.clients: list[Client] = []
        self.hosts: dict[str, Host] = {}
        self.failed: set[str] = set()
        """Hosts of which the others know that they have failed."""
        self.carried = 0
        self.term = 1

    def host(self, name: str, broker: NodeId | None = None) -> Host:
        self.hosts[name] = Host(self, name, broker)
        return self.hosts[name]

    def client(self, name: str, *addresses: str, incarnation: int = 1) -> Client:
        client = Client(self, name, *addresses, incarnation=incarnation)
        self.clients.append(client)
        return client

    def next_term(self) -> int:
        self.term += 1
        return self.term

    def seating(self) -> Seating:
        """What every host knows."""
        return Seating(
            seats=tuple(
                Seat(
                    broker=host.broker,
                    parent="" if host.broker == BROKER else BROKER,
                    term=host.term,
                    host=NodeId(host.name),
                    incarnation=1,
                )
                for host in self.hosts.values()
                if host.broker is not None
            ),
            hosts=tuple(
                HostPlace(host=NodeId(name), incarnation=1, address=name) for name in self.hosts
            ),
            failed=tuple(
                Seat(broker=BROKER, parent="", term=1, host=NodeId(name), incarnation=1).life
                for name in sorted(self.failed)
            ),
        )

    # --- connections ------------------------------------------------------------------------

    def send_up(self, link: LinkId, message: Message) -> None:
        line = self.lines.get(link)
        if line is not None:
            line.up.append(through_codec(message))

    def close(self, link: LinkId) -> None:
        """The client has closed it."""
        line = self.lines.pop(link, None)
        if line is not None:
            while line.up and not line.is_silent:
                line.host.hears(line, line.up.popleft())
            line.host.lost(line)

    def end(self, line: Line) -> None:
        """The host has closed it; the client hears of it after all that was said before."""
        line.down.append(_END)

    def cut(self, client: Client) -> bool:
        """Cut its connection; what is on its way is lost. False if it has none."""
        for line in list(self.lines.values()):
            if line.client is client:
                del self.lines[line.link]
                line.host.lost(line)
                client.step(LinkClosed(line.link, "cut"))
                return True
        return False

    def crash(self, name: str) -> None:
        """A host ends: nobody listens there any more."""
        host = self.hosts[name]
        host.is_refusing = True
        for line in [line for line in self.lines.values() if line.host is host]:
            del self.lines[line.link]
            line.client.step(LinkClosed(line.link, "reset"))

    # --- time -------------------------------------------------------------------------------

    def happenings(self) -> Iterator[Any]:
        """What may happen next without any time passing, in a fixed order."""
        if self.dialling:
            yield self._dial
        for line in list(self.lines.values()):
            if not line.is_silent and not line.host.is_deaf:
                if line.up:
                    yield lambda line=line: line.host.hears(line, line.up.popleft())
                if line.down:
                    yield lambda line=line: self._down(line)

    def _dial(self) -> None:
        client, address = self.dialling.popleft()
        host = self.hosts.get(address)
        if host is None or host.is_refusing:
            client.step(LinkFailed(address, "connection refused", is_refused=True))
            return
        line = Line(LinkId(next(self.numbers)), client, host)
        self.lines[line.link] = line
        client.step(LinkOpened(line.link, address))

    def _down(self, line: Line) -> None:
        message = line.down.popleft()
        if message is _END:
            self.lines.pop(line.link, None)
            line.client.step(LinkClosed(line.link, "closed by the other side"))
        else:
            line.client.step(MessagesReceived(line.link, [message]))

    def carry(self, steps: int | None = None) -> int:
        """Let so many things happen, or all; returns how many did."""
        done = 0
        while steps is None or done < steps:
            happening = next(self.happenings(), None)
            if happening is None:
                return done
            happening()
            done += 1
            assert done < 100_000
        return done

    def passes(self, seconds: float) -> None:
        """Let time pass, and everything happen meanwhile."""
        until = self.now + seconds
        self.carry()
        while True:
            timers = [c.timer for c in self.clients if c.timer is not None and c.stopped is None]
            at = min(timers, default=until + 1)
            if at > until:
                break
            self.now = max(self.now, at)
            for client in self.clients:
                if client.timer is not None and client.timer <= self.now:
                    client.timer = None
                    client.step(TimerFired())
            self.beat()
            self.carry()
        self.now = until

    def beat(self) -> None:
        """Hosts say that they are there, and tell what could wait."""
        for line in self.lines.values():
            if not line.host.is_deaf:
                line.down.append(Heartbeat())
        for host in self.hosts.values():
            if not host.is_refusing and not host.is_deaf:
                host.tell_all()

    def settle(self, seconds: float = 3.0) -> None:
        self.passes(seconds)


_END: Any = object()
