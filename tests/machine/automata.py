"""The nodes of `exploration.py`, and their states as far as they have been visited."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.broker.limits import Limits
from plait.broker.machine.invariants import check_invariants
from plait.broker.machine.machine import Batch, Machine
from plait.broker.machine.neighbours import Neighbour, Progress
from plait.broker.machine.rebuild import Attachment, attach
from plait.broker.messages import Message, Publish, Settings
from plait.faulttol.steplog import LogPart, StepLog, Taken
from plait.routing.ids import NodeId
from tests.machine.canonical import Form, digest
from tests.machine.overlay import Leaf

Call = tuple[Any, ...]
"""What a client does: `("publish", 1, 0)` publishes one with `x = 0`, `("subscribe", "x > 0")`,
or `("subscribe", "x > 0", "unordered")`, and `("unsubscribe", 0)` gives the first one up."""


@attrs.frozen
class Client:
    """A client at a broker."""

    name: str
    at: str
    before: Sequence[Call] = ()
    """Made in the set-up, each when everything before is over."""
    calls: Sequence[Call] = ()
    """Made in the search, in this order, at any moment."""


@attrs.frozen(eq=False)
class Batched:
    """What a node sends another in one step."""

    step: int
    messages: Sequence[Message]
    log: LogPart | None


@attrs.frozen(eq=False)
class News:
    """How far things are."""

    progress: Progress
    log: LogPart | None


@attrs.frozen(eq=False)
class Welcome:
    """A broker has been rebuilt, and has taken so many steps of the receiver."""

    taken: int


Parcel = Batched | News | Welcome
Sent = list[tuple[NodeId, Parcel]]

LAZY: Final = Limits(progress_batch=1_000_000)

FLUSH: Final = -1
CALL: Final = -2
"""What may happen to a node, beside what comes to it: it tells progress, or makes its next call."""
FAILED: Final = -3
"""And minus so much again, for each node: that node has failed."""


class _Node:
    """What brokers and clients have in common: what they know of the logs of others."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.library: dict[NodeId, StepLog] = {}
        self.down: set[NodeId] = set()
        """Neighbours that have failed, and of which nothing has been heard since."""
        self.is_after = False
        """Whether the crash is over; then nothing hurries but what has to be delivered."""
        self.out: Sent = []

    def fail(self, broker: NodeId, is_near: bool) -> None:
        """A broker has failed."""
        self.is_after = True
        if is_near:
            self.down.add(broker)

    def digest(self) -> bytes:
        """Stands for the state that it is in."""
        form = Form(is_after=self.is_after, down=self.down)
        return digest([*self.state(), self.is_after, self.down], form)

    def state(self) -> list[Any]:
        """What can make a difference."""
        raise NotImplementedError

    def learn(self, sender: NodeId, part: LogPart | None) -> None:
        if part is not None and not self.is_after:
            self.library.setdefault(sender, StepLog()).learn(part)

    def logs(self, broker: NodeId) -> dict[NodeId, StepLog]:
        return {broker: self.library.get(broker, StepLog()).copy()}


class BrokerNode(_Node):
    """A broker, alone on its host."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.node)
        self.machine = machine
        self.told: dict[NodeId, int] = {}
        """Up to which step of the log each neighbour has been told."""

    def state(self) -> list[Any]:
        logs = (
            [self.library if self.down else 0]
            if self.is_after
            else [self.library, sorted(self.told.items())]
        )
        return [self.machine, sorted(self.machine.publications._lazy), *logs]

    def fail(self, broker: NodeId, is_near: bool) -> None:
        super().fail(broker, is_near)
        self.machine.limits = self.machine.publications._limits = LAZY

    def is_lazy(self) -> bool:
        return any(n.node not in self.down for n in self.machine.publications._lazy.values())

    def receive(self, sender: NodeId, parcel: Parcel) -> None:
        neighbour = self.neighbour(sender)
        match parcel:
            case Batched(step, messages, log):
                self.learn(sender, log)
                if step > neighbour.taken:
                    self.carry_out(self.machine.take(neighbour, Batch(step, messages), 0.0))
            case News(progress, log):
                self.learn(sender, log)
                self.machine.on_progress(neighbour, progress)
                self.tell(self.machine.flush(0.0))
            case Welcome(taken):
                self.down.discard(sender)
                self.machine.steps.begin(Taken.REPLAY)
                self.machine.ask_again(neighbour)
                others = [n for n in self.machine.end_step() if n is not neighbour]
                self.send_since(neighbour, taken)
                self.carry_out(others)
        check_invariants(self.machine)

    def neighbour(self, node: NodeId) -> Neighbour:
        neighbour = self.machine.neighbours.named(node)
        assert neighbour is not None
        return neighbour

    def flush(self) -> None:
        self.tell(self.machine.tell_all())
        check_invariants(self.machine)

    def carry_out(self, touched: Sequence[Neighbour]) -> None:
        number = self.machine.steps.number
        for neighbour in touched:
            messages = self.machine.sent_since(neighbour, number - 1)
            self.send_batch(neighbour, number, messages)
        self.tell(self.machine.flush(0.0))

    def send_since(self, neighbour: Neighbour, taken: int) -> None:
        """To somebody who hears from this broker anew, whatever it has not taken."""
        neighbour.told = (-1, -1, -1, -1)
        self.told[neighbour.node] = 0
        step = self.machine.steps.number
        if step > taken:
            self.send_batch(neighbour, step, self.machine.sent_since(neighbour, taken))

    def send_batch(self, neighbour: Neighbour, step: int, messages: Sequence[Message]) -> None:
        if neighbour.node not in self.down:
            self.out.append((neighbour.node, Batched(step, messages, self.part_for(neighbour))))

    def tell(self, news: Sequence[tuple[Neighbour, Progress]]) -> None:
        for neighbour, progress in news:
            if neighbour.node not in self.down:
                self.out.append((neighbour.node, News(progress, self.part_with_news(neighbour))))

    def part_with_news(self, neighbour: Neighbour) -> LogPart | None:
        return self.part_for(neighbour)

    def part_for(self, neighbour: Neighbour) -> LogPart | None:
        if self.is_after:
            return None
        log = self.machine.steps.log
        part = log.since(self.told.get(neighbour.node, 0))
        self.told[neighbour.node] = log.last
        return part

    def attach(self, to: NodeId) -> Attachment:
        return attach(self.machine, to, self.logs(to))

    def unfinished(self) -> Iterator[str]:
        """What should be over when nothing is on its way any more."""
        machine = self.machine
        for neighbour in machine.neighbours.all():
            unstable = sorted({a.key for a in (*neighbour.received.keep(), *neighbour.sent.keep())})
            if unstable:
                yield f"{self.node} keeps {unstable} for {neighbour.node}"
        if len(machine.requests):
            yield f"{self.node} waits for {machine.requests.waiting()}"
        if machine.publications.ordering.held:
            yield f"{self.node} holds {[a.key for a in machine.publications.ordering.held]}"


class LeafNode(_Node):
    """A client, and what it is going to do; it is also the world that its `Leaf` knows."""

    def __init__(
        self, client: Client, settings: Settings, published: Mapping[Any, Any], *, is_quiet: bool
    ) -> None:
        super().__init__(NodeId(client.name))
        self.settings = settings
        self.is_quiet = is_quiet
        """Whether it tells how far things are only when nothing else happens."""
        self.published = dict(published)
        self.asked: dict[Any, list[Any]] = {}
        self.time = 0
        self.told = (0, 0)
        """How far things were when it told that last, after the crash."""
        self.calls = [*client.before, *client.calls]
        self.left_to_search = len(client.calls)
        self.leaf = Leaf(self, self.node, NodeId(client.at))  # type: ignore[arg-type]

    def state(self) -> list[Any]:
        logs = [] if self.is_after and not self.down else [self.library]
        return [self.leaf, len(self.calls), self.told, *logs]

    def transmit(self, sender: NodeId, to: NodeId, step: int, messages: list[Message]) -> None:
        if to not in self.down:
            self.out.append((to, Batched(step, messages, None)))

    def receive(self, sender: NodeId, parcel: Parcel) -> None:
        leaf = self.leaf
        match parcel:
            case Batched(step, messages, log):
                self.learn(sender, log)
                if step <= leaf.taken:
                    return
                leaf.take(step, messages)
            case News(progress, log):
                self.learn(sender, log)
                leaf.on_progress(progress)
                return
            case Welcome(taken):
                self.down.clear()
                leaf.ask_again()
                step, messages = leaf.since(taken)
                if step > taken:
                    self.transmit(leaf.node, sender, step, messages)
        if not (self.is_after or self.is_quiet):
            self.flush()

    def is_lazy(self) -> bool:
        return not self.down and self.told != self.heard()

    def heard(self) -> tuple[int, int]:
        return self.leaf.received.count, self.leaf.taken

    def flush(self) -> None:
        self.told = self.heard()
        self.out.append((self.leaf.broker, News(self.leaf.progress(), None)))

    def is_silent(self) -> bool:
        """Whether it says nothing more, unless it is to tell how far things are."""
        return not self.calls and not self.down

    def call(self) -> None:
        leaf, what = self.leaf, self.calls.pop(0)
        match what[0]:
            case "publish":
                leaf.publish(what[1], what[2], what[3] if len(what) > 3 else 0)
            case "advertise":
                leaf.advertise(what[1])
            case "subscribe":
                leaf.subscribe(what[1], ordered="unordered" not in what)
            case "unsubscribe":
                leaf.unsubscribe(list(leaf.subscriptions)[what[1]])
            case "unadvertise":
                leaf.unadvertise(list(leaf.advertisements)[what[1]])

    def attach(self, to: NodeId) -> Attachment:
        return self.leaf.attach(self.logs(to))

    def unfinished(self) -> Iterator[str]:
        if self.leaf.waiting:
            yield f"{self.node} has no answer to {list(self.leaf.waiting)}"
        if self.leaf.sent.kept:
            yield f"{self.node} has no confirmation of {self.leaf.sent.kept}"


Node = BrokerNode | LeafNode


@attrs.frozen
class Outcome:
    """What something that happens to a node leads to: another state, and parcels on their way."""

    state: int
    sent: tuple[tuple[NodeId, int], ...]


@attrs.frozen
class _Moment:
    """How a state came about first: it was born, or something happened in an earlier one."""

    earlier: int
    happening: int
    sender: NodeId
    bear: Callable[[], Node] | None


class Parcels:
    """Everything that is ever sent: what is equal has the same number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.parcels: list[Parcel] = []

    def number(self, parcel: Parcel, *, is_after: bool) -> int:
        number = self._numbers.setdefault(
            digest([parcel], Form(is_after=is_after)), len(self.parcels)
        )
        if number == len(self.parcels):
            self.parcels.append(parcel)
        return number


class Automaton:
    """The states of one node that have been visited, and what they lead to."""

    def __init__(self, name: NodeId, around: Sequence[NodeId], parcels: Parcels) -> None:
        self.name = name
        self._around = around
        self._parcels = parcels
        self._states: dict[bytes, int] = {}
        self._moments: list[_Moment] = []
        self._outcomes: dict[tuple[int, int, NodeId], Outcome] = {}
        self._cores: dict[int, Node] = {}
        """Nodes in a state that nobody has led them out of yet."""
        self._notes: dict[tuple[int, str], Any] = {}

    def __len__(self) -> int:
        return len(self._moments)

    def born(self, bear: Callable[[], Node]) -> Outcome:
        """A life begins; what `bear` returns may have sent something."""
        return self._arrive(bear(), _Moment(-1, 0, self.name, bear))

    def after(self, state: int, happening: int, sender: NodeId) -> Outcome:
        """What becomes of the node if this happens to it, or comes from there, in this state."""
        key = state, happening, sender
        outcome = self._outcomes.get(key)
        if outcome is None:
            node = self._cores.pop(state, None) or self._relive(state)
            self._befall(node, happening, sender)
            outcome = self._arrive(node, _Moment(state, happening, sender, None))
            self._outcomes[key] = outcome
        return outcome

    def note(self, state: int, about: str, look: Callable[[Any], Any]) -> Any:
        """What can be said of the node in a state; it is looked at only once."""
        key = state, about
        if key not in self._notes:
            if state not in self._cores:
                self._cores[state] = self._relive(state)
            self._notes[key] = look(self._cores[state])
        return self._notes[key]

    def _arrive(self, node: Node, moment: _Moment) -> Outcome:
        sent = tuple(
            (to, self._parcels.number(parcel, is_after=node.is_after)) for to, parcel in node.out
        )
        node.out.clear()
        state = self._states.setdefault(node.digest(), len(self._moments))
        if state == len(self._moments):
            self._moments.append(moment)
            self._cores[state] = node
        return Outcome(state, sent)

    def _befall(self, node: Node, happening: int, sender: NodeId) -> None:
        if happening >= 0:
            node.receive(sender, self._parcels.parcels[happening])
        elif happening == FAILED:
            node.fail(sender, sender in self._around)
        elif happening == FLUSH:
            node.flush()
        else:
            assert isinstance(node, LeafNode)
            node.call()

    def _relive(self, state: int) -> Node:
        """A node in this state, led there from its birth."""
        past = []
        moment = self._moments[state]
        while moment.bear is None:
            past.append(moment)
            moment = self._moments[moment.earlier]
        node = moment.bear()
        for each in reversed(past):
            self._befall(node, each.happening, each.sender)
        node.out.clear()
        return node


def described(parcel: Parcel) -> str:
    match parcel:
        case Batched(step, messages, _):
            texts = [
                f"{m.publisher}:{m.seq}" if isinstance(m, Publish) else repr(m) for m in messages
            ]
            return f"step {step}: " + ", ".join(texts)
        case News(progress, _):
            return repr(progress)
        case Welcome(taken):
            return f"Welcome, step {taken} is taken"


def number_of(node: BrokerNode) -> int:
    return node.machine.steps.number


def got(node: LeafNode) -> list[Any]:
    return [key for key, _ in node.leaf.delivered]


def wants(node: LeafNode) -> list[Any]:
    """The filters of subscriptions that have been confirmed."""
    names = node.leaf.subscriptions.items()
    return [node.leaf.entry(name, text).filter for name, (text, is_active) in names if is_active]


def count_of_published(node: LeafNode) -> int:
    return node.leaf.seq
