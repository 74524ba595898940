"""Who reads too slowly, or vanishes with thousands of others, harms itself only."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import attrs
import pytest

from broker.codec import encode_content
from broker.core import BrokerCore
from broker.effects import Effect, SendMessage, SetTimer
from broker.inputs import LinkClosed, LinkId, LinkOpened, MessagesReceived, TimerFired
from broker.limits import DEFAULT_LIMITS, Limits
from broker.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Goodbye,
    Heartbeat,
    Hello,
    Join,
    Message,
    NodeKind,
    Progress,
    Publish,
    Subscribe,
)
from faulttol.neighbourhood import TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.conversation import Conversation

CONTENT = encode_content({"x": 1})


class LoneBroker:
    """A broker and its peers, message by message; time passes only when it is told to."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.core = BrokerCore(NodeId("b"), 1, address="b", limits=limits)
        self.now = 0.0
        self.sent: dict[LinkId, list[Message]] = {}
        self.timer: float | None = None
        self.links = 0
        self._take(self.core.start(self.now))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timer = effect.at
            elif isinstance(effect, SendMessage):
                for link in effect.links:
                    self.sent.setdefault(link, []).append(effect.message)

    def hears(self, link: LinkId, *messages: Message) -> None:
        self._take(self.core.step(self.now, MessagesReceived(link, list(messages))))

    def loses(self, link: LinkId) -> None:
        self._take(self.core.step(self.now, LinkClosed(link, "reset")))

    def passes(self, seconds: float, alive: list[LinkId] | None = None) -> int:
        """Let time pass, with heartbeats of those alive; returns how often the timer fired."""
        until, fired = self.now + seconds, 0
        while self.timer is not None and self.timer <= until:
            self.now, self.timer = self.timer, None
            for link in alive or []:
                self.hears(link, Heartbeat())
            fired += 1
            self._take(self.core.step(self.now, TimerFired()))
        self.now = until
        return fired

    def client(self, name: str) -> LinkId:
        """Let a client join."""
        self.links += 1
        link, node = LinkId(self.links), NodeId(name)
        self._take(self.core.step(self.now, LinkOpened(link, "")))
        own = TopologyLink(child=node, parent=NodeId("b"), kind="client", incarnation=1, address="")
        self.hears(
            link,
            Hello(version=PROTOCOL_VERSION, node=node, kind=NodeKind.CLIENT, incarnation=1),
            Join(operation=OperationId(f"{name}#1.1"), link=own, distance=0),
        )
        return link

    def subscriber(self, name: str) -> LinkId:
        link = self.client(name)
        subscribe = Subscribe(
            operation=OperationId(f"{name}#1.2"),
            subscription=SubscriptionId(f"{name}/1"),
            client=NodeId(name),
            filter="x = 1",
            ordered=True,
            path=(NodeId(name),),
        )
        self.hears(link, subscribe)
        return link

    def publisher(self, name: str) -> LinkId:
        link = self.client(name)
        advertise = Advertise(
            operation=OperationId(f"{name}#1.2"),
            advertisement=AdvertisementId(f"{name}/1"),
            client=NodeId(name),
            filter="x = 1",
            path=(NodeId(name),),
        )
        self.hears(link, advertise)
        return link

    def received(self, link: LinkId) -> int:
        return sum(isinstance(message, Publish) for message in self.sent.get(link, []))

    def has(self, name: str) -> bool:
        return NodeId(name) in self.core.neighbours.below


def one_second(broker: LoneBroker, publisher: LinkId, rate: int, alive: list[LinkId]) -> None:
    for _ in range(10):
        first = 1 + broker.core.publications.counters.received
        broker.hears(
            publisher,
            *(
                Publish(NodeId("nyse"), 1, seq, 0, CONTENT, b"")
                for seq in range(first, first + rate // 10)
            ),
        )
        broker.passes(0.1, alive)


@pytest.mark.parametrize("trickle", [0, 1], ids=["nothing", "one in 5 s"])
def test_who_confirms_next_to_nothing_is_isolated_within_eleven_seconds(trickle: int) -> None:
    broker = LoneBroker()
    nyse, sloth = broker.publisher("nyse"), broker.subscriber("sloth")
    prompt = broker.subscriber("prompt")
    confirmed = 0
    for second in range(11):
        assert broker.has("sloth"), second
        one_second(broker, nyse, 50, [nyse, sloth, prompt])
        broker.hears(prompt, Progress(broker.received(prompt), 0))
        if second % 5 == 4:
            confirmed += trickle
            broker.hears(sloth, Progress(confirmed, 0))

    assert not broker.has("sloth")
    assert broker.has("prompt")
    assert broker.core.statistics().clients_isolated == 1
    one_second(broker, nyse, 10, [nyse, prompt])
    broker.hears(prompt, Progress(broker.received(prompt), 0))
    assert broker.core.statistics().unstable == 0


def test_who_is_nine_seconds_behind_all_the_time_is_not_isolated() -> None:
    broker = LoneBroker()
    nyse, slow = broker.publisher("nyse"), broker.subscriber("slow")
    for second in range(40):
        one_second(broker, nyse, 50, [nyse, slow])
        broker.hears(slow, Progress(max(0, 50 * (second - 7)), 0))

    assert broker.has("slow")


def test_who_keeps_its_bound_of_confirmations_is_isolated_for_its_number_only() -> None:
    limits = attrs.evolve(DEFAULT_LIMITS, unconfirmed_publications_max=100)
    broker = LoneBroker(limits)
    nyse, sloth = broker.publisher("nyse"), broker.subscriber("sloth")
    one_second(broker, nyse, 100, [nyse, sloth])
    assert broker.has("sloth")
    one_second(broker, nyse, 50, [nyse, sloth])

    assert not broker.has("sloth")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"publish_window_max": 100}, "120 publications of its own unconfirmed"),
        (
            {"publish_window_bytes_max": 90_000, "frame_bytes_max": 20_000},
            "120000 bytes of its own publications unconfirmed",
        ),
    ],
)
def test_who_publishes_beyond_its_window_is_isolated(limits: dict[str, int], reason: str) -> None:
    broker = LoneBroker(attrs.evolve(DEFAULT_LIMITS, **limits))
    nyse, modest = broker.publisher("nyse"), broker.publisher("modest")
    sloth = broker.subscriber("sloth")
    for seq in range(1, 121):
        broker.hears(nyse, Publish(NodeId("nyse"), 1, seq, 0, CONTENT, bytes(1000)))
    for seq in range(1, 101):
        broker.hears(modest, Publish(NodeId("modest"), 1, seq, 0, CONTENT, bytes(1000)))
    broker.passes(1.0, [nyse, modest, sloth])

    assert not broker.has("nyse")
    assert broker.has("modest")
    assert broker.has("sloth")
    goodbyes = [message for message in broker.sent[nyse] if isinstance(message, Goodbye)]
    assert [goodbye.reason for goodbye in goodbyes] == [reason]


def test_many_that_vanish_together_are_dropped_a_few_in_a_step_and_soon() -> None:
    broker = LoneBroker()
    stays = broker.client("stays")
    gone = [broker.client(f"c{i}") for i in range(950)]
    for link in gone:
        broker.loses(link)
    broker.passes(5.0, [stays])
    left: list[int] = []
    while len(broker.core.neighbours.below) > 1:
        assert len(left) < 1000
        left.append(len(broker.core.neighbours.below))
        assert broker.timer is not None
        broker.passes(broker.timer - broker.now, [stays])

    assert broker.has("stays")
    drops = [before - after for before, after in zip(left, [*left[1:], 1], strict=True)]
    assert max(drops) == DEFAULT_LIMITS.isolated_at_once
    assert broker.now < DEFAULT_LIMITS.resume_timeout_s + 1.5


def test_many_that_leave_much_behind_are_dropped_fewer_in_a_step() -> None:
    limits = attrs.evolve(DEFAULT_LIMITS, skipped_at_once=100)
    broker = LoneBroker(limits)
    nyse = broker.publisher("nyse")
    gone = [broker.subscriber(f"c{i}") for i in range(10)]
    one_second(broker, nyse, 60, [nyse])
    for link in gone:
        broker.loses(link)
    steps: dict[float, int] = {}
    while broker.has("c9"):
        assert broker.timer is not None
        broker.passes(broker.timer - broker.now, [nyse])
        steps[broker.now] = 11 - len(broker.core.neighbours.below)

    assert sorted(set(steps.values())) == [0, 2, 4, 6, 8, 10]
    assert broker.core.statistics().skipped == 600


def bytecodes(call: Callable[[], Any]) -> int:
    """How much a call does, whatever machine it runs on."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_to_drop_one_client_costs_the_same_among_ten_and_among_hundreds() -> None:
    def cost(clients: int) -> int:
        overlay = Conversation()
        overlay.brokers("b1", b2="b1")
        for i in range(clients):
            client = overlay.client(f"c{i}", at="b1")
            client.subscribes(f"x = {i}")
            client.advertises(f"x = {i}")
        overlay.crashes("b2")  # so that nothing that follows is confirmed
        broker = overlay.broker("b1")
        for i in range(clients // 2):
            broker.drop(broker.neighbours.below[NodeId(f"c{i}")], "it vanished")
        last = broker.neighbours.below[NodeId(f"c{clients - 1}")]
        return bytecodes(lambda: broker.drop(last, "it vanished"))

    assert cost(300) < 1.2 * cost(10)
