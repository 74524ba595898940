"""A name is one node, and what belongs to it nobody else can touch."""

import pytest

from broker.codec import encode_content
from broker.core import BrokerCore
from broker.effects import SendMessage
from broker.inputs import LinkId, LinkOpened, MessagesReceived
from broker.limits import Limits
from broker.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Goodbye,
    GoodbyeCode,
    Hello,
    Join,
    Message,
    NodeKind,
    Publish,
    RefusalCode,
    Refuse,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from faulttol.neighbourhood import TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.conversation import Client, Conversation


class Stranger:
    """Somebody who speaks the protocol by hand, to one broker that is told nothing by others."""

    links = 100

    def __init__(self, core: BrokerCore, name: str, **greeting: object) -> None:
        Stranger.links += 1
        self.core, self.name, self.link = core, NodeId(name), LinkId(Stranger.links)
        self._count = 0
        core.step(core.now, LinkOpened(self.link))
        fields = {"kind": NodeKind.CLIENT, "incarnation": 1} | greeting
        self.incarnation = fields["incarnation"]
        hello = Hello(version=PROTOCOL_VERSION, node=self.name, **fields)  # type: ignore[arg-type]
        self.greeted = self.says(hello)

    def says(self, message: Message) -> list[Message]:
        """Say this; returns what is said to it in the same step."""
        effects = self.core.step(self.core.now, MessagesReceived(self.link, [message]))
        return [e.message for e in effects if isinstance(e, SendMessage) and self.link in e.links]

    @property
    def operation(self) -> OperationId:
        self._count += 1
        return OperationId(f"{self.name}#{self.incarnation}.{self._count}")

    def joins(self) -> list[Message]:
        link = TopologyLink(
            child=self.name,
            parent=self.core.node,
            kind="client",
            incarnation=1,
            address="",
        )
        return self.says(Join(operation=self.operation, link=link, distance=0))

    def subscribes(self, name: str, client: str = "", operation: str = "") -> list[Message]:
        subscribe = Subscribe(
            operation=OperationId(operation) if operation else self.operation,
            subscription=SubscriptionId(name),
            client=NodeId(client or self.name),
            filter="x = 1",
            ordered=True,
            path=(self.name,),
        )
        return self.says(subscribe)

    def advertises(self, name: str) -> list[Message]:
        advertise = Advertise(
            operation=self.operation,
            advertisement=AdvertisementId(name),
            client=self.name,
            filter="TRUE",
            path=(self.name,),
        )
        return self.says(advertise)


def reason_of(said: list[Message]) -> str:
    """With which reason somebody has been sent away; nothing if it has not."""
    [reason] = [m.reason for m in said if isinstance(m, Goodbye)] or [""]
    return reason


def refusals(said: list[Message]) -> list[RefusalCode]:
    return [message.code for message in said if isinstance(message, Refuse)]


def lone_broker(**settings: object) -> BrokerCore:
    core = BrokerCore(NodeId("b1"), 1, **settings)  # type: ignore[arg-type]
    core.start(0.0)
    return core


def a_line() -> tuple[Conversation, Client]:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1", b3="b2")
    reader = overlay.client("reader", at="b3")
    reader.subscribes("TRUE")
    overlay.settle()
    return overlay, reader


# What belongs to a client


@pytest.mark.parametrize("name", ["alice/2", "alice", "/2", "alice/mallory/2"])
def test_what_is_called_after_another_client_is_not_ones_own(name: str) -> None:
    overlay, _ = a_line()
    alice = overlay.client("alice", at="b3")
    assert alice.subscribes("TRUE") == "alice/2"
    overlay.settle()
    mallory = Stranger(overlay.broker("b1"), "mallory")
    mallory.joins()

    assert refusals(mallory.subscribes(name)) == [RefusalCode.NOT_OWNER]
    assert refusals(mallory.subscribes(name, client="alice")) == [RefusalCode.NOT_OWNER]
    assert refusals(mallory.advertises(name)) == [RefusalCode.NOT_OWNER]


def test_a_broker_that_says_that_something_is_anothers_is_not_believed() -> None:
    overlay, _ = a_line()
    broker = overlay.broker("b1")
    link = broker.neighbours.below[NodeId("b2")].link
    assert link is not None
    forged = Subscribe(
        operation=OperationId("mallory#1.5"),
        subscription=SubscriptionId("reader/2"),
        client=NodeId("mallory"),
        filter="TRUE",
        ordered=True,
        path=(NodeId("b2"),),
    )
    effects = broker.step(broker.now, MessagesReceived(link, [forged]))
    said = [effect.message for effect in effects if isinstance(effect, SendMessage)]

    assert "b2 says that reader/2 is mallory's" in reason_of(said)


@pytest.mark.parametrize("operation", ["alice#1.3", "b1#1.3", "mallory", ""])
def test_nobody_asks_under_the_operation_of_another(operation: str) -> None:
    core = lone_broker()
    mallory = Stranger(core, "mallory")
    mallory.joins()
    unsubscribe = Unsubscribe(
        operation=OperationId(operation), subscription=SubscriptionId("mallory/1")
    )

    assert "mallory#1 and a number expected" in reason_of(mallory.says(unsubscribe))


# Whose name is whose


@pytest.mark.parametrize("at", ["b1", "b2", "b3"])
def test_no_client_takes_the_name_of_a_broker_nearby(at: str) -> None:
    overlay, _ = a_line()
    impostor = Stranger(overlay.broker(at), "b2", incarnation=1000)

    assert "b2 is the name of a broker" in reason_of(impostor.greeted)
    assert all(overlay.broker(name).unfinished() == [] for name in ("b1", "b2", "b3"))


def test_no_broker_takes_the_name_of_a_client() -> None:
    overlay, reader = a_line()
    overlay.world.add_broker(NodeId("reader"), NodeId("b3"))
    overlay.settle()

    assert "is the name of a client" in str(overlay.world.nodes[NodeId("reader")].stopped)
    assert reader.node.stopped is None


# Which life of it


def test_an_older_life_is_told_that_a_clock_is_behind() -> None:
    overlay, _ = a_line()
    first = overlay.client("clk", at="b1", incarnation=5000)
    first.advertises("TRUE")
    overlay.settle()
    first.publishes(x=1)
    overlay.settle()
    first.leaves()
    overlay.settle()
    second = overlay.client("clk", at="b2", incarnation=4000)

    assert (
        second.node.stopped == "refused by the broker: clk was here as incarnation 5000, and 4000 "
        "is older: is this machine's clock behind?"
    )


def test_a_life_that_counts_from_the_beginning_once_more_is_refused() -> None:
    overlay, reader = a_line()
    first = overlay.client("clk", at="b1", incarnation=5000)
    first.advertises("TRUE")
    overlay.settle()
    first.publishes(x=1)
    overlay.settle()
    first.leaves()
    overlay.settle()
    second = overlay.client("clk", at="b1", incarnation=5000)

    assert "clk has published up to 1 in incarnation 5000" in str(second.node.stopped)
    assert reader.received == ["clk:1"]


def test_a_life_that_goes_on_counting_is_let_in() -> None:
    core = lone_broker()
    first = Stranger(core, "clk")
    first.joins()
    first.advertises("clk/1")
    first.says(Publish(NodeId("clk"), 1, 7, 0, encode_content({"x": 1}), b""))
    first.says(Goodbye(code=GoodbyeCode.LEFT, reason=""))
    core.drop(core.neighbours.below[NodeId("clk")], "for the sake of the test")

    assert "published up to 7" in reason_of(Stranger(core, "clk", published=6).greeted)
    assert isinstance(Stranger(core, "clk", published=7).greeted[0], Welcome)


@pytest.mark.parametrize("kind", [NodeKind.CLIENT, NodeKind.BROKER])
def test_an_incarnation_far_ahead_of_the_clock_is_refused(kind: NodeKind) -> None:
    limits = Limits()
    day_ms = round(1000 * limits.clocks_apart_max_s)
    core = lone_broker(wall_clock_ms=10_000)
    address = "" if kind is NodeKind.CLIENT else "here:1"

    def greeted(name: str, incarnation: int) -> list[Message]:
        return Stranger(
            core, name, kind=kind, address=address, incarnation=incarnation + day_ms
        ).greeted

    assert isinstance(greeted("soon", 10_000)[0], Welcome)
    assert "is one of the two clocks wrong?" in reason_of(greeted("too-soon", 10_001))
    core.now = 1.0
    assert isinstance(greeted("later", 11_000)[0], Welcome), "the clock goes on"


def test_a_publication_is_confirmed_as_a_duplicate_only_if_it_is_one() -> None:
    core = lone_broker()
    nyse = Stranger(core, "nyse")
    nyse.joins()
    nyse.advertises("nyse/1")
    publication = Publish(NodeId("nyse"), 1, 1, 0, encode_content({"x": 1}), b"")
    assert reason_of(nyse.says(publication)) == ""
    said = nyse.says(publication)

    assert "publication 1 of nyse has been seen, or a later one" in reason_of(said)
    assert core.statistics().publications.duplicate == 0


def test_nobody_has_the_publications_of_another_confirmed() -> None:
    core = lone_broker()
    nyse, lse = Stranger(core, "nyse"), Stranger(core, "lse", published=9)
    for each in (nyse, lse):
        each.joins()
        each.advertises(f"{each.name}/1")
    publication = Publish(NodeId("nyse"), 1, 1, 0, encode_content({"x": 1}), b"")
    nyse.says(publication)

    assert "a publication of nyse, incarnation 1, from lse" in reason_of(lse.says(publication))
