"""What the nodes of a simulated world say to each other, as a text that people read.

A line is a message as its receiver takes it, with the time since the beginning in milliseconds.
Nodes of the tree have their names, `b@a` is the broker b as the host a plays it, and what is no
part of the tree is `host a`; `a/2` is the second life of the host a. Behind `logs:` is what was
told of step logs. Records of the history begin with a star. Heartbeats are left out, and of what a
host is told of seats, whatever it had been told before.
"""

import itertools
from typing import Any

from plait.broker.effects import Delivery, Effect, RecordHistory, SendMessage, WriteLog
from plait.broker.inputs import Input, LinkClosed, LinkFailed, LinkId, LinkOpened, MessagesReceived
from plait.broker.log_codec import LogReader
from plait.broker.messages import Attach, Heartbeat, Hello, Message, NodeKind, Seating, Welcome
from plait.broker.sim.hosts import StepCores
from plait.broker.sim.nodes import Node
from plait.broker.sim.trace_text import describe_logs, describe_message, facts_of
from plait.broker.sim.world import LIVELY_LIMITS, World
from tests.host.worlds import LINK_DELAY_S, Lively

WIDTH = 120

RECORDED = {
    "advertised": "advertisement",
    "subscribed": "subscription",
    "unsubscribed": "subscription",
    "published": "seq",
    "confirmed": "seq",
    "skipped": "publisher seq reason",
    "joined": "about",
    "suspected": "about",
    "operational": "about",
    "taken_up": "broker term step",
    "given_up": "broker term step",
}
"""What is told of each kind of record; kinds that are missing here are left out."""


class Overheard(World):
    """A world in which somebody listens."""

    def __init__(self) -> None:
        super().__init__(
            0,
            limits=LIVELY_LIMITS,
            delay_s=(LINK_DELAY_S, LINK_DELAY_S),
            jitter=0.0,
            cores=StepCores(),
        )
        self.transcript: Transcript | None = None

    def _step(self, node: Node, happened: Input) -> list[Effect]:
        if self.transcript is not None:
            self.transcript.hears(node, happened)
        return super()._step(node, happened)


class Transcript:
    """What was said in one story."""

    def __init__(self) -> None:
        self._world = Overheard()
        self._world.transcript = self
        self._world.on_effects = self._does
        self._is_listening = False
        self._began_at = 0.0
        self._now = 0
        self._heard: dict[tuple[str, ...], list[str]] = {}
        """At this moment, by who said it to whom: nodes do not depend on what others hear then."""
        self._here: dict[LinkId, str] = {}
        """By the end of a connection: who is at this end, as long as that is known,"""
        self._there: dict[LinkId, str] = {}
        """and at the other one."""
        self._logs: dict[LinkId, LogReader] = {}
        self._attached: dict[LinkId, LogReader] = {}
        self._facts: dict[str, dict[str, None]] = {}
        """About seats, by who has been told of them."""
        self.lines: list[str] = []

    def overlay(self, *, delta: int = 1) -> Lively:
        """Return the world in which the story happens."""
        return Lively(delta=delta, world=self._world)

    def tell(self, text: str) -> None:
        """Say something to the reader; from now on all is written down."""
        if not self._is_listening:
            self._is_listening = True
            self._began_at = self._world.now
            for node in self._world.residents():
                node.on_delivery = self._tell_delivery(node)
        self._write()
        self.lines += ["", f"-- {text}"]

    def _line(self, who: tuple[str, ...], text: str) -> None:
        """Say what somebody hears or does, now."""
        if self._is_listening:
            now = round(1000 * (self._world.now - self._began_at))
            if now != self._now:
                self._write()
            self._now = now
            self._heard.setdefault(who, []).append(text)

    def _write(self) -> None:
        """Write down what was heard at one moment."""
        time = f"{self._now:6}"
        for who, texts in self._heard.items():
            names = " -> ".join(who)
            for text, group in itertools.groupby(texts):
                count = sum(1 for _ in group)
                first, *rest = _wrapped(text if count == 1 else f"{text} ({count} times)")
                self.lines.append(f"{time:6}  {names:16}  {first}")
                self.lines += [f"{'':26}    {each}" for each in rest]
                time = names = ""
        self._heard.clear()

    # --- what nodes hear ------------------------------------------------------------------------

    def hears(self, node: Node, happened: Input) -> None:
        """Something happens to a node."""
        match happened:
            case LinkOpened(link, dialled):
                self._here[link] = node.name
                self._there[link] = f"host {dialled}"
                self._logs[link] = LogReader(LIVELY_LIMITS)
            case LinkFailed(dialled):
                self._line((node.name,), f"hears that nobody listens at {dialled}")
            case LinkClosed(link):
                there = self._there.get(link, "somebody")
                self._line((self._here[link],), f"has lost the connection to {there}")
            case MessagesReceived(link, messages):
                for message in messages:
                    self._message(node, link, message)

    def _message(self, node: Node, link: LinkId, message: Message) -> None:
        if isinstance(message, Hello):
            self._there[link] = _name(message.node, message.kind, message.host)
            self._here[link] = f"host {node.name}"
            if message.kind is not NodeKind.HOST:
                self._here[link] = _name(message.to or node.name, NodeKind.BROKER, node.name)
        elif isinstance(message, Welcome):
            kind = NodeKind.BROKER if message.term else NodeKind.HOST
            self._there[link] = _name(message.node, kind, message.host)
        elif isinstance(message, Attach):
            self._attached[link] = LogReader(LIVELY_LIMITS)
        text = describe_message(message)
        if isinstance(message, Seating):
            known = self._facts.setdefault(node.name, {})
            news = [fact for fact in facts_of(message) if fact not in known]
            known.update(dict.fromkeys(news))
            text = f"Seating {'; '.join(news) or 'without news'}"
        logs = getattr(message, "logs", b"")
        if logs:
            reader = self._attached[link] if hasattr(message, "is_last") else self._logs[link]
            text += f" logs: {describe_logs(reader.read(logs))}"
        if not isinstance(message, Heartbeat):
            self._line((self._there[link], self._here[link]), text)

    # --- what nodes do --------------------------------------------------------------------------

    def _does(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendMessage(links, Hello() as hello):
                    for link in links:
                        self._here[link] = _name(hello.node, hello.kind, hello.host)
                case RecordHistory(kind, fields) if kind in RECORDED:
                    told = " ".join(f"{name}={fields[name]}" for name in RECORDED[kind].split())
                    self._line((node.name,), f"* {kind} {told}")
                case WriteLog(_, "past lost", fields):
                    self._line((node.name,), f"finds out: {fields['reason']}")

    def _tell_delivery(self, node: Node) -> Any:
        before = node.on_delivery

        def tell(delivery: Delivery) -> None:
            number = f"{delivery.publisher}:{delivery.seq}"
            self._line((node.name,), f"* delivered {number} at position {delivery.position}")
            if before is not None:
                before(delivery)

        return tell

    # --- all of it ------------------------------------------------------------------------------

    def text(self, *title: str) -> str:
        """Return all that was written down, under a title."""
        self._write()
        return "\n".join([*title, *self.lines, ""])


def _name(node: str, kind: NodeKind, host: str) -> str:
    if kind is NodeKind.HOST:
        return f"host {node}"
    return node if node == host or kind is NodeKind.CLIENT else f"{node}@{host}"


def _wrapped(text: str) -> list[str]:
    """A long line as several."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > WIDTH - 26:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
