"""Machines without hosts, in any order of events: crashes, rebuilds, and comparison with the lost.

Nobody detects anything here and nobody chooses a coordinator: everybody around a region notices in
random order, and when all have, the region is rebuilt. What is tested is the log and `rebuild`.
"""

import itertools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from plait.broker.codec import encode_content
from plait.broker.limits import Limits
from plait.broker.machine.attachments import Attachment, StreamEnd, Told, attach
from plait.broker.machine.invariants import check_invariants
from plait.broker.machine.joining import reattach
from plait.broker.machine.machine import Batch, Machine
from plait.broker.machine.neighbours import UP, Below, Control, Neighbour, Progress
from plait.broker.machine.rebuild import TooManyFailedError, rebuild
from plait.broker.machine.steps import subject
from plait.broker.machine.streams import Travelling
from plait.broker.messages import (
    Advertise,
    Begun,
    Claim,
    Confirm,
    Flag,
    Join,
    Leave,
    Message,
    NodeKind,
    Publish,
    Rank,
    Settings,
    Stamped,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from plait.broker.outbox import Outbox
from plait.faulttol.stability import LeafStream
from plait.faulttol.steplog import BROKER, Key, LogPart, Standing, StepLog, Taken, longest
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.orderings import ORDERINGS_OF_TOPICS, TaggedNotification
from plait.routing.tables import RoutingEntry
from plait.routing.topics.position import Clock, Position
from plait.routing.topics.protocol import Topic
from plait.routing.values import Content
from tests.machine.wire import Lines, through_bytes
from tests.rules import rule_of

LIMITS: Final = Limits(progress_batch=3)
Parcel = tuple[int, list[Message], dict[NodeId, LogPart]]

News = tuple[Progress, dict[NodeId, LogPart]]


def content_of(value: int) -> Content:
    """What is published, also where it needs a topic."""
    return {"x": value, "topic": f"t{value}"}


def wanted(low: int, high: int, ordering: str) -> str:
    """A filter for these values."""
    if rule_of(ordering)["ordering"] in ORDERINGS_OF_TOPICS:
        topics = ", ".join(f"'t{value}'" for value in range(low, high + 1))
        return f"topic IN ({topics})"
    return f"x BETWEEN {low} AND {high}"


class Leaf:
    """A client: as simple as may be, but with steps, and with everything kept that has to be."""

    def __init__(self, world: "World", node: NodeId, broker: NodeId) -> None:
        self.world, self.node, self.broker = world, node, broker
        self.step = 0
        self.taken = 0
        self.seq = 0
        self.sent: LeafStream[tuple[int, Publish]] = LeafStream()
        self.received: LeafStream[tuple[int, Publish]] = LeafStream()
        self.controls: deque[Control] = deque()
        self.waiting: dict[OperationId, Message] = {}
        self.subscriptions: dict[SubscriptionId, tuple[str, bool]] = {}
        """With whether it has been confirmed."""
        self.advertisements: dict[AdvertisementId, tuple[str, bool]] = {}
        self.delivered: list[tuple[Key, int]] = []
        self.forgot = 0
        self.names = 0
        self.told_in: dict[str, int] = {}
        self.has_joined = False
        self.is_connected = False
        self.is_back = False
        """Whether its broker has heard that it is back; not all around have."""
        self.is_leaving = False
        self.clock = Clock()
        self.position: Position | None = None
        """Of what comes next."""
        self.tagged: set[Key] = set()
        """What came elsewhere than its stamp says."""

    def entry(self, name: Any, text: str) -> Any:
        """As a table has it."""
        return RoutingEntry(id=name, client=self.node, filter=parse_filter(text), path=(self.node,))

    def request(self, message: Any, about: Any = None) -> None:
        """Ask for something, in a step of its own."""
        self.step += 1
        self.waiting[message.operation] = message
        if isinstance(message, Advertise | Subscribe):
            self.told_in[subject(message)] = self.step
        self.controls.append(Control(self.step, self.sent.count, message, about))
        self.world.transmit(self.node, self.broker, self.step, [message])

    def operation(self) -> OperationId:
        self.names += 1
        return OperationId(f"{self.node}#{self.names}")

    def advertise(self, text: str) -> None:
        operation = self.operation()
        name = AdvertisementId(f"{self.node}/{self.names}")
        self.advertisements[name] = (text, False)
        self.request(
            Advertise(
                operation=operation,
                advertisement=name,
                client=self.node,
                filter=text,
                path=(self.node,),
            )
        )

    def subscribe(self, text: str, *, ordered: bool = True) -> None:
        operation = self.operation()
        name = SubscriptionId(f"{self.node}/{self.names}")
        self.subscriptions[name] = (text, False)
        self.world.asked[name] = [self.node, text, None, None]
        self.request(
            Subscribe(
                operation=operation,
                subscription=name,
                client=self.node,
                filter=text,
                ordered=ordered,
                path=(self.node,),
            )
        )

    def unsubscribe(self, name: SubscriptionId) -> None:
        about = self.entry(name, self.subscriptions.pop(name)[0])
        self.world.asked[name][3] = self.world.time
        self.request(Unsubscribe(operation=self.operation(), subscription=name), about)

    def unadvertise(self, name: AdvertisementId) -> None:
        about = self.entry(name, self.advertisements.pop(name)[0])
        self.request(Unadvertise(operation=self.operation(), advertisement=name), about)

    def rank(self, topic: Topic, above: Topic) -> None:
        self.request(Rank(operation=self.operation(), topic=topic, above=above))

    def join(self) -> None:
        """Greet, and ask to be let in."""
        self.is_connected = True
        self.request(Join(operation=self.operation()))

    def leave(self) -> None:
        """Go for good; nothing is under way any more."""
        self.is_leaving = True
        for name in self.subscriptions:
            self.world.asked[name][3] = self.world.time
        self.request(Leave(operation=self.operation(), node=self.node))

    def publish(self, count: int, value: int, flags: int) -> None:
        """Publish some, in one step."""
        self.step += 1
        messages: list[Message] = []
        for _ in range(count):
            self.seq += 1
            publication = Publish(
                self.node, 1, self.seq, flags, encode_content(content_of(value)), b""
            )
            self.sent.append((self.step, publication))
            self.world.published[self.node, 1, self.seq] = (self.world.time, value, flags)
            messages.append(publication)
        self.world.transmit(self.node, self.broker, self.step, messages)

    def take(self, upto: int, messages: Sequence[Message]) -> None:
        """Take a batch of the broker's."""
        self.taken = upto
        for message in messages:
            if isinstance(message, Confirm):
                request = self.waiting.pop(message.operation, None)
                self.has_joined |= isinstance(request, Join)
                if isinstance(request, Leave):
                    self.world.left(self)
                    return
                if isinstance(request, Subscribe) and request.subscription in self.subscriptions:
                    text, _ = self.subscriptions[request.subscription]
                    self.subscriptions[request.subscription] = (text, True)
                    entry = self.world.asked[request.subscription]
                    entry[2] = self.world.time if entry[2] is None else entry[2]
                if isinstance(request, Advertise) and request.advertisement in self.advertisements:
                    text, _ = self.advertisements[request.advertisement]
                    self.advertisements[request.advertisement] = (text, True)
            elif isinstance(message, Publish):
                self.received.append((upto, message))
                value = self.world.published[message.publisher, message.incarnation, message.seq][1]
                if any(
                    is_active and parse_filter(text).matches(content_of(value))
                    for text, is_active in self.subscriptions.values()
                ):
                    key = (message.publisher, message.incarnation, message.seq)
                    self.delivered.append((key, self.world.time))
                    self._judge(key, value, self.position)
                self.position = None
            elif isinstance(message, Stamped):
                self.position = message.position
            elif isinstance(message, Begun):
                self.clock.begin(message.numbers)
            else:
                raise AssertionError(message)

    def _judge(self, key: Key, value: int, position: Position | None) -> None:
        """Whether it comes where its stamp says, if there are stamps."""
        is_unordered = self.world.published[key][2] & Flag.UNORDERED
        if self.world.settings.ordering in ORDERINGS_OF_TOPICS and not is_unordered:
            assert position is not None, f"{self.node} got {key} without a stamp"
            self.world.stats["stamped" if position.number else "stamped without a number"] += 1
            before = dict(self.clock.numbers)
            if self.clock.takes_in_order(Topic(f"t{value}"), position):
                return
            if self.world.settings.ordering == TaggedNotification.name:
                self.world.stats["tagged"] += 1
                self.tagged.add(key)
            else:
                self.world.disordered.append(f"{self.node} got {key} {position} after {before}")

    def progress(self) -> Progress:
        return Progress(self.received.count, self.sent.count, self.taken)

    def on_progress(self, progress: Progress) -> None:
        self.sent.stable_up_to(progress.received)
        self.received.stable_up_to(progress.sent)
        self.forgot = progress.forgotten
        while self.controls and self.controls[0].step <= self.forgot:
            self.controls.popleft()

    def attach(self, logs: Mapping[NodeId, StepLog]) -> Attachment:
        sent = [
            Travelling(n, step, publication)
            for n, (step, publication) in enumerate(self.sent.kept, self.sent.stable_count + 1)
        ]
        received = [
            Travelling(n, step, publication)
            for n, (step, publication) in enumerate(
                self.received.kept, self.received.stable_count + 1
            )
        ]
        return Attachment(
            node=self.node,
            kind=NodeKind.CLIENT,
            incarnation=1,
            to=self.broker,
            taken=self.taken,
            sent=StreamEnd(stable=self.sent.stable_count, kept=tuple(sent)),
            received=StreamEnd(
                stable=self.received.stable_count,
                kept=tuple(received),
            ),
            controls=tuple(self.controls),
            advertisements=tuple(self._advertised()),
            subscriptions=tuple(self._subscribed()),
            known_advertisements=frozenset(),
            known_subscriptions=frozenset(),
            logs=logs,
        )

    def _advertised(self) -> list[Any]:
        return self._entries_of(Advertise)

    def _subscribed(self) -> list[Any]:
        return self._entries_of(Subscribe)

    def _entries_of(self, kind: type) -> list[Told[Any]]:
        """What it has told its broker, as entries of a table."""
        told: Any = self.subscriptions if kind is Subscribe else self.advertisements
        entries = [
            Told(self.entry(name, text), self.told_in[name]) for name, (text, _) in told.items()
        ]
        withdrawal = Unsubscribe if kind is Subscribe else Unadvertise
        for control in self.controls:
            if isinstance(control.message, withdrawal) and control.about is not None:
                about: Any = control.about
                entries.append(Told(about, self.told_in[about.id], control.step))
        return entries

    def since(self, step: int) -> tuple[int, list[Message]]:
        """What the broker has not taken."""
        items: list[tuple[int, int, Message]] = [
            (n, 0, publication)
            for n, (own, publication) in enumerate(self.sent.kept, self.sent.stable_count + 1)
            if own > step
        ]
        items += [(c.position, 1, c.message) for c in self.controls if c.step > step]
        items.sort(key=lambda item: item[:2])
        return self.step, [message for _, _, message in items]

    def ask_again(self) -> None:
        self.step += 1
        for message in self.waiting.values():
            if isinstance(message, Subscribe) and message.subscription not in self.subscriptions:
                continue
            if isinstance(message, Advertise) and message.advertisement not in self.advertisements:
                continue
            self.controls.append(Control(self.step, self.sent.count, message))


class World:
    """An overlay, and everything that happens to it."""

    def __init__(
        self,
        seed: int,
        *,
        delta: int,
        ordering: str = "pairwise",
        policy: str = "filter",
        brokers: int = 7,
        is_uneven: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.is_uneven = is_uneven
        """Whether some links are much slower than others, and neighbours fail together."""
        self.speeds: dict[tuple[NodeId, NodeId], float] = {}
        """Of links, where they are uneven."""
        self.meanings: dict[NodeId, dict[OperationId, Any]] = defaultdict(dict)
        """What each operation is about of which a broker has heard since it was taken up last."""
        self.delta = delta
        self.settings = Settings(**rule_of(ordering), policy=policy, delta=delta)
        self.time = 0
        self.stats: Counter[str] = Counter()
        self.differences: list[str] = []
        self.disordered: list[str] = []
        """What came elsewhere than its stamp says."""
        self.published: dict[Key, tuple[int, int, int]] = {}
        self.asked: dict[SubscriptionId, list[Any]] = {}
        self.links: dict[tuple[NodeId, NodeId], deque[Parcel | News]] = defaultdict(deque)
        self.machines: dict[NodeId, Machine] = {}
        self.leaves: dict[NodeId, Leaf] = {}
        self.parent: dict[NodeId, NodeId | None] = {}
        self.host: dict[NodeId, NodeId] = {}
        self.dead: set[NodeId] = set()
        """Hosts."""
        self.library: dict[NodeId, dict[NodeId, StepLog]] = defaultdict(dict)
        self.told: dict[tuple[NodeId, NodeId, NodeId], int] = {}
        self.lines = Lines()
        self.attached: dict[NodeId, dict[frozenset[NodeId], Attachment]] = defaultdict(dict)
        self.fresh: dict[tuple[NodeId, NodeId, int], tuple[int, frozenset[NodeId]]] = {}
        """Steps of which a neighbour on another host has to hear, how far it passes that on, and
        which brokers were taken up, whose failure is not over before."""
        self.snapshots: dict[tuple[NodeId, int], Any] = {}
        count = self.random.randint(2, brokers)
        names = [NodeId(f"b{n}") for n in range(count)]
        self.place: dict[NodeId, NodeId] = {
            name: names[self.random.randrange(n)] for n, name in enumerate(names) if n
        }
        """Where everybody is going to join."""
        self.parent[names[0]] = None
        self.host[names[0]] = names[0]
        self.machines[names[0]] = self._machine(names[0])
        for n in range(self.random.randint(3, 9)):
            leaf = NodeId(f"c{n}")
            self.place[leaf] = self.random.choice(names)
            self.host[leaf] = leaf
            self.leaves[leaf] = Leaf(self, leaf, self.place[leaf])

    def _machine(self, name: NodeId) -> Machine:
        return Machine(
            name, self.parent[name], settings=self.settings, limits=LIMITS, outbox=Outbox()
        )

    # --- coming and going -------------------------------------------------------------------

    def joining(self) -> list[NodeId]:
        """Who may join now: its broker is there, and has joined itself."""
        return [
            node
            for node, place in self.place.items()
            if node not in self.parent
            and place in self.machines
            and not self.is_dead(place)
            and self.machines[place].has_joined
            and not (node in self.leaves and self.is_dead(node))
        ]

    def join(self, node: NodeId) -> None:
        place = self.place[node]
        machine = self.machines[place]
        self.parent[node] = place
        known = machine.neighbours.below.get(node)
        if known is not None:  # what is left of an attempt
            self.carry_out(machine, machine.decide(Taken.GONE, known, "begins anew", 0.0))
        if node in self.leaves:
            standing = Standing(incarnation=1, key=f"key of {node}")
        else:
            standing = Standing(kind=BROKER)
            self.host[node] = node
            self.machines[node] = self._machine(node)
        assert machine.names.objection_to(node, NodeKind(standing.kind), 1, 0) is None
        machine.welcome(node, standing)
        self.carry_out(machine, [])
        if node in self.leaves:
            self.leaves[node].join()
        else:
            newcomer = self.machines[node]
            newcomer.steps.begin(Taken.REPLAY)
            self.carry_out(newcomer, newcomer.send_again())

    def left(self, leaf: Leaf) -> None:
        """A client has left."""
        self.stats["left"] += 1
        self.dead.add(leaf.node)
        leaf.is_connected = False

    def begin_anew(self, node: NodeId) -> None:
        """Whoever was about to join a broker that was rebuilt without knowing it asks again."""
        self.stats["begun anew"] += 1
        del self.parent[node]
        self.lose_connection(node, self.place[node])
        self.library.pop(node, None)
        if node in self.leaves:
            assert not self.leaves[node].has_joined, f"{node} had joined, and is not known any more"
            self.leaves[node] = Leaf(self, node, self.place[node])
        else:
            assert not self.machines[node].has_joined, f"{node} had joined, and is not known now"
            del self.machines[node]
            for logs in self.library.values():  # it begins with step 1 once more
                logs.pop(node, None)
            self.told = {told: step for told, step in self.told.items() if told[2] != node}

    def cut(self, leaf: Leaf) -> None:
        """The connection of a client ends."""
        self.stats["cut"] += 1
        leaf.is_connected = leaf.is_back = False
        self.lose_connection(leaf.node, leaf.broker)
        if not self.is_dead(leaf.broker):
            machine = self.machines[leaf.broker]
            machine.disconnected(machine.neighbours.below[leaf.node])

    def lose_connection(self, one: NodeId, other: NodeId) -> None:
        """What was under way is lost, and what was told may not have come."""
        for sender, to in ((one, other), (other, one)):
            self.links[sender, to].clear()
            self.forget_told(self.host[sender], self.host[to])

    def absent(self) -> list[Below]:
        """The clients that may be entered as away."""
        return [
            below
            for node, machine in self.machines.items()
            if not self.is_dead(node)
            for below in machine.neighbours.below.values()
            if machine.may_go_away(below)
        ]

    def go_away(self, client: Below) -> None:
        self.stats["away"] += 1
        machine = self.machines[self.leaves[client.node].broker]
        self.carry_out(machine, machine.decide(Taken.AWAY, client, "", 0.0))

    def returning(self) -> list[Leaf]:
        """The clients that may come back now: to their broker, and when that is known around it."""
        return [
            leaf
            for leaf in self.leaves.values()
            if leaf.has_joined
            and not leaf.is_connected
            and not self.is_dead(leaf.node)
            and not self.is_dead(leaf.broker)
            and not self.has_stopped_listening(leaf.node, leaf.broker)
            and not (leaf.is_back and self.fresh)
        ]

    def come_back(self, leaf: Leaf) -> None:
        machine = self.machines[leaf.broker]
        neighbour = machine.neighbours.below[leaf.node]
        if neighbour.is_away:
            self.stats["back"] += 1
            if neighbour.is_detached:
                self.stats["reattached"] += 1
                logs = {machine.node: self.log_at(leaf.node, machine.node)}
                reattach(machine, neighbour, through_bytes(leaf.attach(logs)))
            leaf.is_back = True
            touched = machine.come_back(neighbour)
            for other in touched:
                if other.node in self.machines and self.host[other.node] != self.host[machine.node]:
                    key = machine.node, other.node, machine.steps.number
                    self.fresh[key] = (self.delta, frozenset())
            self.carry_out(machine, touched)
            return
        leaf.is_connected, leaf.is_back = True, False
        leaf.ask_again()
        machine.connected(neighbour)
        self._send_since(leaf.node, machine.node)
        self._send_since(machine.node, leaf.node)
        self.tell(machine, machine.tell_all())

    def give_up_absent(self, leaf: Leaf) -> None:
        """A client that has not come back in time: it has lost its session."""
        self.stats["given up"] += 1
        self.dead.add(leaf.node)
        self.give_up(leaf.node)

    # --- links ------------------------------------------------------------------------------

    def neighbours(self, node: NodeId) -> list[NodeId]:
        found = [n for n, parent in self.parent.items() if parent == node]
        found = [n for n in found if not (n in self.leaves and self.is_dead(n))]
        parent = self.parent[node]
        return found if parent is None else [parent, *found]

    def is_dead(self, node: NodeId) -> bool:
        return self.host[node] in self.dead

    def distance(self, one: NodeId, other: NodeId) -> int:
        """Between hosts."""
        graph: dict[NodeId, set[NodeId]] = defaultdict(set)
        for child, parent in self.parent.items():
            if parent is not None and self.host[child] != self.host[parent]:
                graph[self.host[child]].add(self.host[parent])
                graph[self.host[parent]].add(self.host[child])
        distance, queue = {one: 0}, deque([one])
        while queue:
            node = queue.popleft()
            for near in graph[node]:
                if near not in distance:
                    distance[near] = distance[node] + 1
                    queue.append(near)
        return distance.get(other, 99)

    def log_at(self, host: NodeId, broker: NodeId) -> StepLog:
        if self.host[broker] == host and host not in self.dead:
            return self.machines[broker].steps.log
        return self.library[host].setdefault(broker, StepLog())

    def logs_for(self, sender: NodeId, receiver: NodeId) -> dict[NodeId, LogPart]:
        """What a host tells another one of step logs, with what it sends there."""
        parts = {}
        for broker in self.machines:
            host = self.host[broker]
            if host != receiver and self.distance(sender, host) <= self.delta - 1:
                log = self.log_at(sender, broker)
                told = self.told.get((sender, receiver, broker), 0)
                parts[broker] = log.since(told)
                self.told[sender, receiver, broker] = log.last
        return self.lines.tell(sender, receiver, parts)

    def forget_told(self, sender: NodeId, receiver: NodeId) -> None:
        """What was told over a connection that is gone may not have come."""
        for told in [t for t in self.told if t[:2] == (sender, receiver)]:
            del self.told[told]
        self.lines.end(sender, receiver)

    def transmit(self, sender: NodeId, to: NodeId, step: int, messages: list[Message]) -> None:
        if not self.is_connected(sender, to):
            return
        logs = {}
        if sender in self.machines and self.host[sender] != self.host[to]:
            logs = self.logs_for(self.host[sender], self.host[to])
        self.links[sender, to].append((step, messages, logs))

    def _note_meaning(self, node: NodeId, message: Message) -> None:
        """Whoever hears of an operation twice hears the same.

        But for what a broker asks on behalf of clients: of those that failed with it, it asks
        nothing when it is rebuilt, and so it counts the others otherwise.
        """
        if self.stats["clients that failed"]:
            return
        match message:
            case Join(operation=operation) | Leave(operation=operation):
                meaning: Any = type(message)
            case Claim(operation=operation):
                meaning = Claim, message.node, message.broker
            case Advertise(operation=operation) | Unadvertise(operation=operation):
                meaning = type(message), message.advertisement
            case Subscribe(operation=operation) | Unsubscribe(operation=operation):
                meaning = type(message), message.subscription
            case _:
                return
        known = self.meanings[node].setdefault(operation, meaning)
        if known != meaning:
            self.differences.append(f"{node} hears that {operation} is {known}, and {meaning}")

    def is_connected(self, node: NodeId, to: NodeId) -> bool:
        """Whether what is sent from here to there has a chance to arrive."""
        cut = [n for n in (node, to) if n in self.leaves and not self.leaves[n].is_connected]
        return not cut and not self.is_dead(to) and not self.has_stopped_listening(node, to)

    def has_stopped_listening(self, node: NodeId, to: NodeId) -> bool:
        return any(to in region for region in self.attached[node])

    def carry_out(self, machine: Machine, touched: list[Neighbour]) -> None:
        """Send what a step has for each neighbour."""
        self.snapshots[machine.node, machine.steps.number] = snapshot(machine)
        check_invariants(machine)
        for neighbour in touched:
            messages = machine.sent_since(neighbour, machine.steps.number - 1)
            self.transmit(machine.node, neighbour.node, machine.steps.number, messages)
        self.tell(machine, machine.flush(float(self.time)))

    def tell(self, machine: Machine, news: Sequence[tuple[Neighbour, Progress]]) -> None:
        for neighbour, progress in news:
            if self.is_connected(machine.node, neighbour.node):
                logs = self.logs_with_news(self.host[machine.node], self.host[neighbour.node])
                self.links[machine.node, neighbour.node].append((progress, logs))

    def logs_with_news(self, sender: NodeId, receiver: NodeId) -> dict[NodeId, LogPart]:
        """What is stable depends on steps of which the receiver may not have heard yet."""
        return self.logs_for(sender, receiver) if sender != receiver else {}

    def receive(self, sender: NodeId, to: NodeId) -> None:
        parcel = self.links[sender, to].popleft()
        self.learn(self.host[to], parcel[-1])
        if isinstance(parcel[0], Progress):
            if to in self.leaves:
                self.leaves[to].on_progress(parcel[0])
            else:
                machine = self.machines[to]
                neighbour = machine.neighbours.named(sender)
                if neighbour is None:
                    assert self.leaves[sender].is_leaving
                    return
                machine.on_progress(neighbour, parcel[0])
                self.tell(machine, machine.flush(float(self.time)))
                check_invariants(machine)
            return
        assert len(parcel) == 3
        step, messages, _ = parcel
        host = self.host[to]
        heard = [f for f in self.fresh if f[:2] == (sender, to) and f[2] <= step]
        ttl, origin = 0, frozenset[NodeId]()
        for waiting in heard:
            reach, taken_up = self.fresh.pop(waiting)
            ttl, origin = max(ttl, reach), origin | taken_up
        if to in self.leaves:
            leaf = self.leaves[to]
            if step > leaf.taken:
                leaf.take(step, messages)
                if leaf.is_connected:
                    self.links[to, sender].append((leaf.progress(), {}))
            return
        machine = self.machines[to]
        neighbour = machine.neighbours.named(sender)
        if neighbour is None:
            assert self.leaves[sender].is_leaving
        elif step > neighbour.taken:
            for message in messages:
                self._note_meaning(to, message)
            self.carry_out(machine, machine.take(neighbour, Batch(step, messages), 0.0))
        if ttl > 1:
            for broker in sorted(b for b in self.machines if self.host[b] == host):
                self.announce(broker, ttl - 1, origin)

    def learn(self, host: NodeId, logs: Mapping[NodeId, LogPart]) -> None:
        """Take note of what is told of step logs."""
        for broker, part in logs.items():
            if self.host[broker] != host:
                self.library[host].setdefault(broker, StepLog()).learn(part)

    def announce(self, broker: NodeId, ttl: int, origin: frozenset[NodeId]) -> None:
        """Let hosts around hear up to where the logs are that this one knows."""
        machine = self.machines[broker]
        machine.steps.begin(Taken.REPLAY)
        for neighbour in machine.neighbours.all():
            machine.steps.touch(neighbour)
            if self.host[neighbour.node] != self.host[broker] and neighbour.node in self.machines:
                key = broker, neighbour.node, machine.steps.number
                self.fresh[key] = (ttl, origin)
        self.carry_out(machine, machine.end_step())

    # --- failures ---------------------------------------------------------------------------

    def crash(self, host: NodeId) -> None:
        self.dead.add(host)
        self.stats["crashes"] += 1
        for (sender, to), queue in self.links.items():
            if self.host[to] == host:
                queue.clear()
            elif self.host[sender] == host:
                for _ in range(self.random.randint(0, len(queue))):
                    queue.pop()

    def die(self, leaf: NodeId) -> None:
        """A client fails; what it sent last may be lost."""
        self.stats["clients that failed"] += 1
        self.crash(leaf)
        self.stats["crashes"] -= 1

    def to_be_given_up(self) -> list[NodeId]:
        """The clients that have failed, and whose brokers do not know it yet."""
        return [
            leaf
            for leaf in self.leaves
            if self.is_dead(leaf)
            and leaf in self.parent
            and not self.is_dead(self.leaves[leaf].broker)
            and leaf in self.machines[self.leaves[leaf].broker].neighbours.below
        ]

    def give_up(self, leaf: NodeId) -> None:
        """Its broker gives a client up."""
        machine = self.machines[self.leaves[leaf].broker]
        neighbour = machine.neighbours.below[leaf]
        self.links[leaf, machine.node].clear()
        self.carry_out(machine, machine.decide(Taken.GONE, neighbour, "silent", 0.0))

    def region_of(self, broker: NodeId) -> frozenset[NodeId]:
        region = [broker]
        for member in region:
            region += [n for n in self.neighbours(member) if self.is_dead(n) and n not in region]
        return frozenset(region)

    def regions(self) -> set[frozenset[NodeId]]:
        return {self.region_of(broker) for broker in self.machines if self.is_dead(broker)}

    def noticeable(self) -> list[tuple[NodeId, frozenset[NodeId]]]:
        found = []
        for region in self.regions():
            for member in region:
                for node in self.neighbours(member):
                    if node not in region and region not in self.attached[node]:
                        found.append((node, region))
        return sorted(found, key=lambda each: (each[0], sorted(each[1])))

    def notice(self, node: NodeId, region: frozenset[NodeId]) -> None:
        """Stop listening to a region, and say what was exchanged with it."""
        (to,) = [n for n in self.neighbours(node) if n in region]
        self.links[to, node].clear()
        self.links[node, to].clear()
        logs = {b: self.log_at(self.host[node], b).copy() for b in region}
        if node in self.leaves:
            attachment = self.leaves[node].attach(logs)
        else:
            attachment = attach(self.machines[node], to, logs)
        for old in [r for r in self.attached[node] if r < region]:
            del self.attached[node][old]
        self.attached[node][region] = attachment
        self.rebuild_what_is_ready()

    def rebuild_what_is_ready(self) -> None:
        """Rebuild every region around which all have said what they have."""
        for each in self.regions():
            around = {n for m in each for n in self.neighbours(m)} - each
            attached = {n for n in around if each in self.attached[n]}
            if all(n in attached or self._is_dispensable(n, each, attached) for n in around):
                self.rebuild(each, sorted(attached))

    def _is_dispensable(
        self, node: NodeId, region: frozenset[NodeId], attached: set[NodeId]
    ) -> bool:
        """Whether a coordinator does not wait for it: it was away, by all that is known."""
        if node not in self.leaves or self.leaves[node].is_connected:
            return False
        broker = self.leaves[node].broker
        logs = [self.attached[n][region].logs[broker] for n in attached]
        standing = longest([StepLog(), *logs]).neighbours().get(node)
        return standing is None or standing.is_away

    def rebuild(self, region: frozenset[NodeId], boundary: list[NodeId]) -> None:
        attachments = [self.attached[n].pop(region) for n in boundary]
        top = next(m for m in region if self.parent[m] not in region)
        parent = self.parent[top]
        joined = [n for n in boundary if n in self.machines and self.machines[n].has_joined]
        hosts = sorted(self.host[n] for n in joined)
        if parent is None and not hosts:
            raise StopIteration
        host = hosts[0] if parent is None else self.host[parent]
        attachments = list(map(through_bytes, attachments))
        new = rebuild(
            {m: self.parent[m] for m in sorted(region)},
            attachments,
            settings=self.settings,
            limits=LIMITS,
            outbox=Outbox(),
            now=float(self.time),
        )
        self.stats["rebuilt"] += len(new)
        dead = {leaf for leaf in self.leaves if self.is_dead(leaf)}
        dead |= {  # and who had left by the log of its broker, of which others had not heard
            leaf.node
            for leaf in self.leaves.values()
            if leaf.broker in new
            and leaf.is_leaving
            and leaf.node not in new[leaf.broker].neighbours.below
        }
        stable = known_to_be_stable(new) | {
            arrival.key
            for machine in self.machines.values()
            for neighbour in machine.neighbours.all()
            if neighbour.node in new and machine.node not in new
            for arrival in neighbour.sent.keep()
            if arrival.stable
        }
        for node, machine in new.items():
            # Beyond the log there may be steps of which no trace is left but that they are over.
            known = max(a.logs[node].last for a in attachments)
            lost = self.snapshots.get((node, known))
            if lost is not None and known == machine.steps.number:
                self.stats["compared"] += 1
                found = snapshot(machine)
                self.differences += compare(lost, found, dead, stable, new)
        # With who fails before all around have heard of it, what it had taken up fails once more.
        origin = frozenset(region).union(*(t[1] for f, t in self.fresh.items() if f[0] in region))
        self.fresh = {f: t for f, t in self.fresh.items() if f[0] not in region}
        for node, machine in new.items():
            self.machines[node] = machine
            self.host[node] = host
            self.attached.pop(node, None)
            self.meanings.pop(node, None)
        self.inherit_logs(host, boundary)
        for leaf in self.leaves.values():
            if leaf.broker not in new or leaf.node not in self.parent:
                continue
            leaf.is_connected = leaf.is_back = False
            self.attached.pop(leaf.node, None)
            if self.is_dead(leaf.node):  # whoever failed with its broker is not known there now
                self.links[leaf.node, leaf.broker].clear()
        boundary = [n for n in boundary if self._is_known_again(n)]
        self.told, self.lines = {}, Lines()
        # What these asked and nobody answered they ask again, and so do those around them.
        for machine in new.values():
            machine.steps.begin(Taken.REPLAY)
            touched = machine.send_again()
            for neighbour in touched:
                if neighbour.node in self.machines and self.host[neighbour.node] != host:
                    key = machine.node, neighbour.node, machine.steps.number
                    self.fresh[key] = (self.delta, origin)
            self.snapshots[machine.node, machine.steps.number] = snapshot(machine)
            check_invariants(machine)
        for node in (*boundary, *new):
            for member in self.neighbours(node):
                if member in new and node not in new:
                    self._resume(node, member)
        for one in new:
            for other in self.neighbours(one):
                self._send_since(one, other)
                if other in new:
                    pass
        for machine in list(new.values()):
            self.tell(machine, machine.tell_all())
        for broker in sorted(b for b in self.machines if self.host[b] == host and b not in new):
            self.announce(broker, self.delta, origin)

    def inherit_logs(self, host: NodeId, boundary: Sequence[NodeId]) -> None:
        """A host that has taken a region up knows what the rebuilt brokers knew of others' logs."""
        for node in boundary:
            for broker in self.machines:
                if self.host[broker] != host:
                    part = self.log_at(self.host[node], broker).since(0)
                    self.library[host].setdefault(broker, StepLog()).learn(part)

    def _is_known_again(self, node: NodeId) -> bool:
        """Whether a rebuilt neighbour goes on with somebody who has attached."""
        parent = self.parent[node]
        known = True
        if parent is not None and parent in self.machines:
            neighbour = self.machines[parent].neighbours.below.get(node)
            known = neighbour is not None
            if neighbour is not None and neighbour.is_away:
                return False  # it comes back later
        if not known and node in self.leaves and self.leaves[node].is_leaving:
            self.left(self.leaves[node])
        elif not known:
            self.begin_anew(node)
        elif node in self.leaves:
            self.leaves[node].is_connected = True
        return known

    def _resume(self, node: NodeId, to: NodeId) -> None:
        """A neighbour of the region asks again, and sends again what was not taken."""
        if node in self.leaves:
            self.leaves[node].ask_again()
        else:
            machine = self.machines[node]
            neighbour = machine.neighbours.named(to)
            assert neighbour is not None
            machine.steps.begin(Taken.REPLAY)
            machine.ask_again(neighbour)
            self.carry_out(machine, machine.end_step())
            self.links[node, to].clear()
            self.forget_told(self.host[node], self.host[to])
        self._send_since(node, to)

    def _send_since(self, sender: NodeId, to: NodeId) -> None:
        """Send whatever the other end has not taken."""
        if not self.is_connected(sender, to):
            return
        if to in self.leaves:
            taken = self.leaves[to].taken
        else:
            neighbour = self.machines[to].neighbours.named(sender)
            assert neighbour is not None
            taken = neighbour.taken
        if sender in self.leaves:
            step, messages = self.leaves[sender].since(taken)
        else:
            machine = self.machines[sender]
            other = machine.neighbours.named(to)
            assert other is not None
            machine.connected(other)
            step, messages = machine.steps.number, machine.sent_since(other, taken)
        if step > taken:
            self.transmit(sender, to, step, messages)
        if to in self.leaves:
            self.links[to, sender].append((self.leaves[to].progress(), {}))

    # --- everything that can happen -----------------------------------------------------------

    def vulnerable(self) -> int:
        """How many failures are not over: hosts that are down, and brokers just taken up."""
        # Not all around have heard of those yet. Who fails before they have counts for both: for
        # itself, and for the failure of which it alone had been told everything.
        waiting = frozenset[NodeId]().union(*(origin for _, origin in self.fresh.values()))
        return len(self.dead_with_brokers()) + len(waiting)

    def dead_with_brokers(self) -> set[NodeId]:
        return {self.host[b] for b in self.machines if self.is_dead(b)}

    def run(
        self, todo: list[tuple[Any, ...]], crashes: int, deaths: int = 0, cuts: int = 0
    ) -> None:
        """Let everything happen, in random order."""
        is_calm = self.random.random() < 0.7  # while somebody is about to join
        rate = self.random.choice((0.04, 0.02, 0.01))  # of crashes
        for _ in range(60_000):
            self.time += 1
            actions: list[tuple[str, Any]] = []
            arriving = [
                pair
                for pair, queue in self.links.items()
                if queue
                and not self.is_dead(pair[1])
                and not self.has_stopped_listening(pair[1], pair[0])
            ]
            noticing = self.noticeable() if self.dead_with_brokers() else []
            living = sorted(
                {
                    self.host[b]
                    for b, m in self.machines.items()
                    if not self.is_dead(b) and m.has_joined
                }
            )
            if arriving:
                actions += [("receive", arriving)] * 6
            if noticing:
                actions += [("notice", noticing)] * 3
            if todo and self.is_possible(todo[0]):
                actions += [("do", None)] * 4
            joining = self.joining()
            if joining:
                actions += [("join", joining)]
            absent = self.absent()
            if absent:
                actions += [("go away", absent)]
            returning = self.returning()
            flushing = [
                b
                for b in self.machines
                if not self.is_dead(b) and self.machines[b].is_progress_waiting
            ]
            if flushing:
                actions += [("flush", flushing)]
            lost = self.to_be_given_up()
            if lost:
                actions += [("give up", lost)]
            if returning and (not actions or self.random.random() < 0.2):
                actions += [("come back", returning)]
            alive = [leaf for leaf in self.leaves if not self.is_dead(leaf)]
            if deaths and alive and self.random.random() < 0.02:
                deaths -= 1
                self.die(self.random.choice(alive))
                self.rebuild_what_is_ready()
                continue
            if cuts and self.random.random() < 0.03:
                connected = [leaf for leaf in self.leaves.values() if self.may_be_cut(leaf)]
                if connected:
                    cuts -= 1
                    self.cut(self.random.choice(connected))
                    continue
            if cuts and returning and self.random.random() < 0.005:
                self.give_up_absent(self.random.choice(returning))
                continue
            may_crash = crashes and self.vulnerable() < self.delta and len(living) > 1
            may_crash = may_crash and not (is_calm and joining)
            if may_crash and (not actions or self.random.random() < rate):
                actions = [("crash", living)]
            if not actions:
                return
            what, among = self.random.choice(actions)
            if what == "receive":
                self.receive(*self._next_to_arrive(sorted(among)))
            elif what == "notice":
                self.notice(*self.random.choice(among))
            elif what == "crash":
                for victim in self._victims(among)[:crashes]:
                    crashes -= 1
                    self.crash(victim)
            elif what == "give up":
                self.give_up(self.random.choice(among))
            elif what == "join":
                self.join(self.random.choice(among))
            elif what == "go away":
                self.go_away(self.random.choice(among))
            elif what == "come back":
                self.come_back(self.random.choice(among))
            elif what == "flush":
                machine = self.machines[self.random.choice(sorted(among))]
                self.tell(machine, machine.tell_all())
            else:
                self.do(todo.pop(0))
        raise AssertionError("no end")

    def _next_to_arrive(self, arriving: Sequence[tuple[NodeId, NodeId]]) -> tuple[NodeId, NodeId]:
        """On which link something arrives next."""
        if not self.is_uneven:
            return self.random.choice(arriving)
        for pair in arriving:
            if pair not in self.speeds:
                self.speeds[pair] = self.random.choice((1.0, 1.0, 0.3, 0.02))
        return self.random.choices(arriving, [self.speeds[pair] for pair in arriving])[0]

    def _victims(self, living: Sequence[NodeId]) -> list[NodeId]:
        """Who fails now: a host, and where links are uneven perhaps one next to it, too."""
        victim = self.random.choice(living)
        near = [host for host in living if self.distance(host, victim) == 1]
        is_room = self.vulnerable() + 1 < self.delta and len(living) > 2
        if not self.is_uneven or not is_room or not near or self.random.random() < 0.5:
            return [victim]
        return [victim, self.random.choice(near)]

    def may_be_cut(self, leaf: Leaf) -> bool:
        is_there = leaf.is_connected and not self.is_dead(leaf.node)
        return is_there and leaf.has_joined and not leaf.is_leaving

    def is_possible(self, what: tuple[Any, ...]) -> bool:
        leaf = self.leaves[what[1]]
        return leaf.has_joined or self.is_dead(leaf.node)

    def do(self, what: tuple[Any, ...]) -> None:
        leaf = self.leaves[what[1]]
        if self.is_dead(leaf.node) or leaf.is_leaving:
            return
        match what[0]:
            case "leave":
                is_idle = not (leaf.waiting or leaf.sent.kept or leaf.received.kept)
                if leaf.is_connected and is_idle:
                    leaf.leave()
            case "subscribe":
                leaf.subscribe(what[2])
            case "unsubscribe":
                mine = [n for n, (_, is_active) in leaf.subscriptions.items() if is_active]
                if mine:
                    leaf.unsubscribe(self.random.choice(mine))
            case "advertise":
                leaf.advertise(what[2])
            case "unadvertise":
                mine_too = [n for n, (_, is_active) in leaf.advertisements.items() if is_active]
                if len(mine_too) > 1 and not leaf.sent.kept:
                    leaf.unadvertise(self.random.choice(mine_too))
            case "rank":
                leaf.rank(Topic(what[2]), Topic(what[3]))
            case "publish":
                if any(
                    is_active and parse_filter(text).matches(content_of(what[3]))
                    for text, is_active in leaf.advertisements.values()
                ):
                    leaf.publish(what[2], what[3], what[4])

    def troubles(self) -> list[str]:
        """Everything that should not be."""
        found = [*self.differences, *self.disordered]
        dead = {leaf for leaf in self.leaves if self.is_dead(leaf)}
        for leaf in self.leaves.values():
            got = [key for key, _ in leaf.delivered]
            found += wrong_in(leaf.node, got)
            owed = {
                key
                for key, (time, value, _) in self.published.items()
                for node, text, since_, until in self.asked.values()
                if node == leaf.node
                and node not in dead
                and key[0] not in dead
                and since_ is not None
                and since_ < time
                and until is None
                and parse_filter(text).matches(content_of(value))
            }
            if owed - set(got):
                found.append(f"{leaf.node} lacks {sorted(owed - set(got))}")
        found += self._disorder()
        for machine in self.machines.values():
            unstable = [
                a.key
                for n in machine.neighbours.all()
                for a in (*n.received.keep(), *n.sent.keep())
            ]
            if unstable:
                found.append(f"{machine.node} keeps {sorted(set(unstable))}")
            if len(machine.requests):
                found.append(f"{machine.node} waits for {machine.requests.waiting()}")
            tables = (machine.interests.advertisements, machine.interests.subscriptions)
            left = [entry.id for table in tables for entry in table if entry.client in dead]
            if left:
                found.append(f"{machine.node} knows {left}, which nobody has")
            if machine.publications.ordering.held:
                found.append(f"{machine.node} holds something")
        for leaf in self.leaves.values():
            if leaf.node in dead:
                continue
            if leaf.waiting:
                found.append(f"{leaf.node} has no answer to {list(leaf.waiting)}")
            if leaf.sent.kept:
                found.append(f"{leaf.node} has no confirmation of {leaf.sent.kept}")
        if self.dead_with_brokers():
            found.append(f"{self.dead_with_brokers()} were never rebuilt")
        return found

    def _disorder(self) -> list[str]:
        if self.settings.ordering in ("none", "fifo") or "published" in self.settings.ordering:
            return []  # what was published does not keep the order that it set out to keep
        streams = {
            leaf.node: [
                key
                for key, _ in leaf.delivered
                if not self.published[key][2] & Flag.UNORDERED and key not in leaf.tagged
            ]
            for leaf in self.leaves.values()
        }
        return disagreements(streams)


def wrong_in(node: NodeId, got: Sequence[Key]) -> list[str]:
    """What one client got twice, or out of the order of its publisher."""
    found = []
    if len(set(got)) != len(got):
        found.append(f"{node} got something twice: {got}")
    last: dict[NodeId, int] = {}
    for publisher, _, seq in got:
        if last.get(publisher, 0) > seq:
            found.append(f"{node} got {publisher} out of order: {got}")
        last[publisher] = seq
    return found


def disagreements(streams: Mapping[NodeId, Sequence[Key]]) -> list[str]:
    """What two clients got in two orders."""
    found = []
    for one, other in itertools.combinations(sorted(streams), 2):
        both = set(streams[one]) & set(streams[other])
        first = [k for k in streams[one] if k in both]
        second = [k for k in streams[other] if k in both]
        if first != second:
            found.append(f"{one} and {other} disagree: {first} {second}")
    return found


def snapshot(machine: Machine) -> dict[str, Any]:
    """The state that has to be rebuilt, in a form that can be compared."""
    interests = machine.interests
    arrivals = {}
    for neighbour in machine.neighbours.all():
        for arrival in neighbour.received.keep():
            if not arrival.stable:
                arrivals[neighbour.node, arrival.key] = (
                    tuple(sorted(n.node for n in arrival.route.down)),
                    arrival.route.climbs,
                    arrival.waits,
                    arrival.has_waited,
                    arrival.is_awaited,
                    arrival.step,
                    arrival.settled_in,
                    arrival.position,
                )
    return {
        "taken": {n.node: n.taken for n in machine.neighbours.all()},
        "advertisements": {e.id: (e.client, e.hop, e.path) for e in interests.advertisements},
        "subscriptions": {
            e.id: (e.client, e.hop, e.path, e.ordered, tuple(sorted(interests.forwarded(e.id))))
            for e in interests.subscriptions
        },
        "arrivals": arrivals,
        "held": [a.key for a in machine.publications.ordering.held],
        "state": machine.publications.state(),
        "node": machine.node,
        "parent": machine.neighbours.parent and machine.neighbours.parent.node,
    }


def without(state: dict[str, Any], dead: set[NodeId]) -> dict[str, Any]:
    """The state without what has to do with clients that have failed."""
    return state | {
        "taken": {n: t for n, t in state["taken"].items() if n not in dead},
        "advertisements": {n: e for n, e in state["advertisements"].items() if e[0] not in dead},
        # Where their advertisements drew a subscription, nobody will publish.
        "subscriptions": {
            n: e[: 4 if dead else 5] for n, e in state["subscriptions"].items() if e[0] not in dead
        },
        "arrivals": {
            name: (tuple(n for n in arrival[0] if n not in dead), *arrival[1:])
            for name, arrival in state["arrivals"].items()
            if name[1][0] not in dead
        },
        "held": [key for key in state["held"] if key[0] not in dead],
    }


def known_to_be_stable(region: Mapping[NodeId, Machine]) -> set[Key]:
    """What some broker of a region does not have any more, and others still keep."""
    unstable = {
        node: {a.key for n in machine.neighbours.all() for a in n.received.keep() if not a.stable}
        for node, machine in region.items()
    }
    return {
        arrival.key
        for machine in region.values()
        for neighbour in machine.neighbours.all()
        if neighbour.node in region
        for arrival in neighbour.received.keep()
        if arrival.key not in unstable[neighbour.node]
    }


def compare(
    lost: dict[str, Any],
    found: dict[str, Any],
    dead: set[NodeId],
    stable: Collection[Key] = (),
    region: Collection[NodeId] = (),
) -> list[str]:
    """In what a rebuilt broker is not the one that was lost, stable things apart.

    Clients that failed with it (`dead`) are not brought back, nor what came from them.
    """
    lost = without(lost, dead)
    found = without(found, dead)
    node = lost["node"]
    differences = []
    for neighbour, taken in lost["taken"].items():
        if found["taken"][neighbour] < taken:
            differences.append(f"{node} taken of {neighbour}: {lost} became {found}")
    if dead:  # what only their advertisements had drawn there, nobody needs any more
        drawn = [n for n in lost["subscriptions"] if n not in found["subscriptions"]]
        lost["subscriptions"] = {
            n: e for n, e in lost["subscriptions"].items() if n not in drawn or e[1] == e[0]
        }
    for what in ("advertisements", "subscriptions"):
        if found["parent"] in region:  # which told them in turn, perhaps behind what is stable now
            names = {
                n
                for n in lost[what].keys() ^ found[what].keys()
                if _is_from_above(n, what, lost, found)
            }
            lost[what], found[what] = (
                {n: e for n, e in each[what].items() if n not in names} for each in (lost, found)
            )
        if lost[what] != found[what]:
            differences.append(f"{node} {what}: {lost[what]} became {found[what]}")
    for name, arrival in found["arrivals"].items():
        before = lost["arrivals"].get(name)
        if before is not None and name[1] in stable:  # nobody asks any more where it belongs
            before, arrival = (*before[:-1], None), (*arrival[:-1], None)
        if before is not None and not _goes_the_same_ways(before, arrival, found["parent"], region):
            differences.append(f"{node} {name}: {before} became {arrival}")
    held = [k for k in lost["held"] if k in found["held"]]
    if held != [k for k in found["held"] if k in lost["held"]]:
        differences.append(f"{node} held: {lost['held']} became {found['held']}")
    if not dead:
        differences += _compare_state(node, lost["state"], found, stable)
    return differences


def _is_from_above(name: str, what: str, *states: Mapping[str, Any]) -> bool:
    """Whether a broker knows an advertisement or a subscription from its parent."""
    return any(state[what].get(name, ("", ""))[1] == UP for state in states)


def _goes_the_same_ways(
    before: tuple[Any, ...], after: tuple[Any, ...], parent: NodeId | None, region: Collection[Any]
) -> bool:
    """Whether a publication is where it was, and goes where it went.

    But for brokers that have failed, too: what was withdrawn there is forgotten when all is stable
    there, and nobody asks for it.
    """
    down, climbs, *rest = before
    left_out = set(down) - set(after[0])
    return (
        rest == list(after[2:])
        and set(after[0]) <= set(down)
        and all(node in region for node in left_out)
        and (climbs == after[1] or (climbs and parent in region))
    )


def _compare_state(
    node: NodeId, lost: Mapping[str, Any], found: dict[str, Any], stable: Collection[Key]
) -> list[str]:
    """The same of what publications know beyond streams."""
    differences = []
    unstable = {key for _, key in found["arrivals"]} - set(stable)
    for what, after in found["state"].items():
        before = lost[what]
        if what in ("awaited", "unanswered"):
            before, after = (
                {key: hops for key, hops in each.items() if key in unstable}
                for each in (before, after)
            )
        if before != after:
            differences.append(f"{node} {what}: {before} became {after}")
    return differences


def random_world(
    seed: int,
    *,
    delta: int,
    crashes: int,
    ordering: str = "pairwise",
    deaths: int = 0,
    cuts: int = 0,
    is_uneven: bool = False,
) -> World:
    """A random overlay, and what becomes of it."""
    world = World(
        seed,
        delta=delta,
        ordering=ordering,
        policy=random.Random(seed).choice(("filter", "flooding")),
        is_uneven=is_uneven,
    )
    rng = world.random
    leaves = sorted(world.leaves)
    todo: list[tuple[Any, ...]] = []
    for leaf in leaves:
        if rng.random() < 0.7:
            todo.append(("advertise", leaf, rng.choice(("x >= 0", "x < 5", "x >= 3"))))
        if rng.random() < 0.8:
            low = rng.randrange(8)
            todo.append(("subscribe", leaf, wanted(low, low + rng.randrange(8), ordering)))
    rng.shuffle(todo)
    for _ in range(rng.randint(10, 60)):
        leaf = rng.choice(leaves)
        mood = rng.random()
        if mood < 0.7:
            flags = Flag.UNORDERED if rng.random() < 0.1 else 0
            todo.append(("publish", leaf, rng.choice((1, 1, 1, 3)), rng.randrange(10), flags))
        elif mood < 0.82:
            low = rng.randrange(8)
            todo.append(("subscribe", leaf, wanted(low, low + rng.randrange(8), ordering)))
        elif mood < 0.92:
            todo.append(("unsubscribe", leaf))
        elif mood < 0.95:
            todo.append(("leave", leaf))
        elif mood < 0.98:
            todo.append(("advertise", leaf, rng.choice(("x >= 0", "x < 5", "x >= 3"))))
        else:
            todo.append(("unadvertise", leaf))
    try:
        world.run(todo, crashes, deaths, cuts)
    except StopIteration:
        world.stats["nobody left"] += 1
    return world


def crowded_world(
    seed: int,
    *,
    delta: int,
    crashes: int,
    ordering: str = "pairwise",
    deaths: int = 0,
    cuts: int = 0,
    is_uneven: bool = False,
) -> World:
    """One of few brokers, where all publish for all and some change their mind: most is held."""
    world = World(seed, delta=delta, ordering=ordering, brokers=4, is_uneven=is_uneven)
    leaves = sorted(world.leaves)
    todo: list[tuple[Any, ...]] = [("advertise", leaf, "x >= 0") for leaf in leaves]
    todo += [("subscribe", leaf, "x >= 0") for leaf in leaves[1:]]
    world.run(todo, 0)
    todo = [("publish", world.random.choice(leaves), 1, 1, 0) for _ in range(40)]
    if is_uneven:
        for place in range(0, 40, 4):
            what = world.random.choice(_CHANGES)
            todo.insert(place, (what[0], world.random.choice(leaves), *what[1:]))
    try:
        world.run(todo, crashes, deaths, cuts)
    except StopIteration:
        world.stats["nobody left"] += 1
    return world


_CHANGES: Final[Sequence[tuple[str, ...]]] = (
    ("subscribe", "x >= 0"),
    ("unsubscribe",),
    ("advertise", "x >= 0"),
    ("unadvertise",),
)


def main() -> None:
    """Run: `python -m tests.machine.overlay LOW HIGH DELTA CRASHES [ORDERING [DEATHS [CUTS]]]`."""
    import sys
    import traceback

    low, high, delta, crashes = map(int, sys.argv[1:5])
    ordering = sys.argv[5] if len(sys.argv) > 5 else "pairwise"
    deaths = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    cuts = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    stats: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    shown = 0
    for seed in range(low, high):
        try:
            world = random_world(
                seed, delta=delta, crashes=crashes, ordering=ordering, deaths=deaths, cuts=cuts
            )
        except (AssertionError, TooManyFailedError, KeyError, Exception) as error:
            kinds[f"{type(error).__name__} {str(error)[:60]}"] += 1
            if shown < 3:
                shown += 1
                print("seed", seed)
                traceback.print_exc()
            continue
        stats.update(world.stats)
        if world.stats["nobody left"]:
            continue
        troubles = world.troubles()
        for trouble in troubles:
            kinds[" ".join(trouble.split()[1:3])] += 1
        if troubles:
            stats["bad runs"] += 1
            if shown < 4:
                shown += 1
                print("seed", seed, *troubles[:4], sep="\n   ")
    print(dict(stats))
    print(dict(kinds))


if __name__ == "__main__":
    main()
