"""Peers that speak the protocol by hand, to a host that is alone or to one of an overlay."""

from collections.abc import Callable
from typing import Any

import attrs

from plait.broker.codec import encode_content
from plait.broker.effects import CloseLink, Effect, SendMessage, SetTimer, Stop
from plait.broker.host.attaching import attachment_messages
from plait.broker.host.host import Host
from plait.broker.inputs import Input, LinkClosed, LinkId, LinkOpened, MessagesReceived, TimerFired
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.machine.attachments import Attachment, StreamEnd
from plait.broker.machine.machine import Machine
from plait.broker.messages import (
    PROTOCOL_VERSION,
    Advertise,
    AttachRequest,
    EndOfStep,
    Goodbye,
    Heartbeat,
    Hello,
    Join,
    Message,
    NodeKind,
    Past,
    Progress,
    Publish,
    RefusalCode,
    Refuse,
    Subscribe,
    Welcome,
)
from plait.broker.principals import UNKNOWN_CALLER, Caller
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.host.worlds import Lively

CONTENT = encode_content({"x": 1})


class Ears:
    """Takes note of what a host says and does, whoever it is said to."""

    def __init__(self) -> None:
        self.sent: dict[LinkId, list[Message]] = {}
        self.closed: dict[LinkId, CloseLink] = {}
        self.stops: list[Stop] = []
        self.links = 1_000_000
        """Above those that a simulated world numbers."""

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendMessage(links, message):
                    for link in links:
                        self.sent.setdefault(link, []).append(message)
                case CloseLink(link):
                    self.closed[link] = effect
                case Stop():
                    self.stops.append(effect)

    def new_link(self) -> LinkId:
        self.links += 1
        return LinkId(self.links)


class Alone(Ears):
    """A host that plays one broker; time passes only when it is told to."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, **settings: Any) -> None:
        super().__init__()
        self.host = Host(NodeId("b1"), 1, address="b1", limits=limits, **settings)
        self.now = 0.0
        self.timer: float | None = None
        self.take(self.host.start(self.now))

    @property
    def machine(self) -> Machine:
        machine = self.host.parts.playing.machine(NodeId("b1"))
        assert machine is not None
        return machine

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timer = effect.at
        super().take(effects)

    def tell(self, happened: Input) -> None:
        self.take(self.host.step(self.now, happened))

    def peer(self, name: str, **greeting: Any) -> "Peer":
        """Let somebody come, who greets."""
        return Peer(self, self.tell, NodeId(name), **greeting)

    def passes(self, seconds: float, *alive: "Peer") -> None:
        """Let time pass, with heartbeats of those alive."""
        until = self.now + seconds
        while self.timer is not None and self.timer <= until:
            self.now, self.timer = self.timer, None
            for peer in alive:
                peer.says(Heartbeat())
            self.tell(TimerFired())
        self.now = until

    def has(self, name: str) -> bool:
        return NodeId(name) in self.machine.neighbours.below


class Visited(Ears):
    """An overlay, to the hosts of which somebody speaks by hand."""

    def __init__(self, overlay: Lively) -> None:
        super().__init__()
        self.overlay = overlay
        overlay.world.on_effects = lambda _, effects: self.take(effects)

    def peer(self, name: str, host: str, **greeting: Any) -> "Peer":
        """Let somebody come to a host, who greets."""
        node = self.overlay.world.nodes[NodeId(host)]
        tell = lambda happened: self.overlay.world._tell(node, happened)  # noqa: E731
        return Peer(self, tell, NodeId(name), **greeting)


class Peer:
    """Somebody at the other end of a new connection."""

    def __init__(
        self,
        ears: Ears,
        tell: Callable[[Input], None],
        name: NodeId,
        *,
        kind: NodeKind = NodeKind.CLIENT,
        incarnation: int = 1,
        published: int = 0,
        secret: str = "",
        is_greeting: bool = True,
        caller: Caller = UNKNOWN_CALLER,
        **fields: Any,
    ) -> None:
        self.name, self.incarnation = name, incarnation
        self.link = ears.new_link()
        self._ears, self._tell = ears, tell
        self._steps = self._operations = self._published = 0
        self.heard: list[Message] = ears.sent.setdefault(self.link, [])
        tell(LinkOpened(self.link, caller=caller))
        is_process = kind in (NodeKind.BROKER, NodeKind.HOST)
        hello = Hello(
            version=PROTOCOL_VERSION,
            node=name,
            kind=kind,
            incarnation=incarnation,
            host=name,
            address=f"nobody-at-{name}" if is_process else "",
            past=Past(published=published, secret=secret),
        )
        if is_greeting:
            self.says(attrs.evolve(hello, **fields))

    # --- what it says -----------------------------------------------------------------------

    def says(self, *messages: Message) -> list[Message]:
        """Say this; returns what is said to it at once."""
        before = len(self.heard)
        self._tell(MessagesReceived(self.link, list(messages)))
        return self.heard[before:]

    def steps(self, *messages: Message) -> list[Message]:
        """Say this in a step."""
        self._steps += 1
        return self.says(*messages, EndOfStep(step=self._steps))

    def hangs_up(self) -> None:
        self._tell(LinkClosed(self.link, "reset"))

    @property
    def operation(self) -> OperationId:
        self._operations += 1
        return OperationId(f"{self.name}#{self.incarnation}.{self._operations}")

    def joins(self) -> "Peer":
        self.steps(Join(operation=self.operation))
        return self

    def subscription(self, name: str, **changes: Any) -> Subscribe:
        subscribe = Subscribe(
            operation=self.operation,
            subscription=SubscriptionId(name),
            client=self.name,
            filter="TRUE",
            ordered=True,
            path=(self.name,),
        )
        return attrs.evolve(subscribe, **changes)

    def advertisement(self, name: str, **changes: Any) -> Advertise:
        advertise = Advertise(
            operation=self.operation,
            advertisement=AdvertisementId(name),
            client=self.name,
            filter="TRUE",
            path=(self.name,),
        )
        return attrs.evolve(advertise, **changes)

    def publication(self, body: bytes = b"", **changes: Any) -> Publish:
        """The next one."""
        self._published += 1
        publication = Publish(self.name, self.incarnation, self._published, 0, CONTENT, body)
        return attrs.evolve(publication, **changes)

    def attaches(self, to: str, *, term: int = 1, **changes: Any) -> list[Message]:
        """Say what it has of a broker that has failed: nothing, unless told otherwise."""
        nothing = StreamEnd(stable=0, kept=())
        attachment = Attachment(
            node=self.name,
            kind=NodeKind.CLIENT,
            incarnation=self.incarnation,
            to=NodeId(to),
            taken=0,
            sent=nothing,
            received=nothing,
            controls=(),
            advertisements=(),
            subscriptions=(),
            known_advertisements=frozenset(),
            known_subscriptions=frozenset(),
            logs={},
        )
        return self.says(*attachment_messages(attrs.evolve(attachment, **changes), term))

    def confirms(self, count: int) -> None:
        """It has received so much."""
        self.says(Progress(received=count, sent=0, forgotten=0))

    # --- what it is told ----------------------------------------------------------------------

    @property
    def received(self) -> int:
        """Publications."""
        return sum(isinstance(message, Publish) for message in self.heard)

    @property
    def welcome(self) -> Welcome | None:
        """How it was welcomed, if it was."""
        return next((m for m in self.heard if isinstance(m, Welcome)), None)

    @property
    def step(self) -> int:
        """The last one of the broker that it was told."""
        return max((m.step for m in self.heard if isinstance(m, EndOfStep)), default=0)

    @property
    def is_to_attach(self) -> bool:
        return any(isinstance(message, AttachRequest) for message in self.heard)

    @property
    def goodbye(self) -> Goodbye | None:
        """How it was sent away, if it was."""
        return next((m for m in self.heard if isinstance(m, Goodbye)), None)

    @property
    def reason(self) -> str:
        """Why it was sent away; nothing if it was not."""
        return "" if self.goodbye is None else self.goodbye.reason

    @property
    def refusals(self) -> list[RefusalCode]:
        return [message.code for message in self.heard if isinstance(message, Refuse)]
