"""A name is one node, and what belongs to it nobody else can touch."""

import contextlib
from functools import partial
from typing import Any

import pytest

from broker.client_core import ClientState
from broker.codec import encode_content
from broker.core import BrokerCore
from broker.effects import SendMessage
from broker.errors import NotAdvertisedError
from broker.inputs import LinkClosed, LinkId, LinkOpened, MessagesReceived
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
    Past,
    Publish,
    RefusalCode,
    Refuse,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from broker.names import SECRET_CHARS
from broker.sim.adapters import TodaysCores
from broker.sim.nodes import Node
from broker.sim.world import World
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.conversation import Client, Conversation


class Stranger:
    """Somebody who speaks the protocol by hand, to one broker that is told nothing by others."""

    links = 100

    def __init__(
        self,
        core: BrokerCore,
        name: str,
        *,
        published: int = 0,
        secret: str = "",
        **greeting: object,
    ) -> None:
        Stranger.links += 1
        self.core, self.name, self.link = core, NodeId(name), LinkId(Stranger.links)
        self._count = 0
        core.step(core.now, LinkOpened(self.link))
        past = Past(published=published, secret=secret)
        fields = {"kind": NodeKind.CLIENT, "incarnation": 1, "past": past} | greeting
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
    core = lone_broker()
    alice, mallory = Stranger(core, "alice"), Stranger(core, "mallory")
    for each in (alice, mallory):
        each.joins()
    assert refusals(alice.subscribes("alice/2")) == []

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


# Overlay-wide


def who_is_ready(*clients: Client) -> list[int]:
    return [
        client.core.incarnation
        for client in clients
        if client.node.stopped is None and client.core.state is ClientState.READY
    ]


def what_is_left(overlay: Conversation) -> list[str]:
    """What the brokers have not come to an end with."""
    return [text for name in BROKERS for text in overlay.broker(name).unfinished()]


BROKERS = ("b1", "b2", "b3", "b4", "b5", "b6")


def a_wide_tree(**settings: Any) -> Conversation:
    overlay = Conversation(**settings)
    overlay.brokers("b1", b2="b1", b3="b2", b4="b3", b5="b1", b6="b5")
    return overlay


@pytest.mark.parametrize("at", ["b1", "b2", "b4", "b6"])
@pytest.mark.parametrize("incarnation", [1, 2, 3])
def test_a_name_that_is_in_use_anywhere_is_refused_and_its_owner_notices_nothing(
    at: str, incarnation: int
) -> None:
    overlay = a_wide_tree()
    first = overlay.client("same", at="b4", incarnation=2)
    first.subscribes("TRUE")
    ticker = overlay.client("ticker", at="b1")
    ticker.advertises("TRUE")
    overlay.settle()
    second = overlay.client("same", at=at, incarnation=incarnation)
    ticker.publishes(x=1)
    overlay.settle()

    assert first.received == ["ticker:1"]
    reasons = {1: "is this machine's clock behind?", 2: "at b4: wait until", 3: "at b4: wait until"}
    assert reasons[incarnation] in str(second.node.stopped)
    told = [line for line in overlay.world.trace if "warning" in line and "same" in line]
    assert any("name refused" in line or "code=refused" in line for line in told)
    assert what_is_left(overlay) == []


@pytest.mark.parametrize("at", ["b1", "b2", "b4", "b6"])
def test_one_that_is_gone_is_replaced_at_once_and_refused_when_it_comes_back(at: str) -> None:
    overlay = a_wide_tree()
    first = overlay.client("same", at="b4", incarnation=1)
    first.subscribes("TRUE")
    overlay.settle()
    overlay.world.off_the_net.add(NodeId("same"))
    overlay.loses_connection("same", "b4")
    overlay.settle(0.1)
    overlay.world.off_the_net.clear()
    second = overlay.world.add_client(NodeId("same"), NodeId(at), incarnation=2)
    overlay.settle(3)

    assert who_is_ready(first, Client(overlay.world, second)) == [2]
    assert "refused by" in str(first.node.stopped)
    assert "incarnation 2" in str(first.node.stopped)
    assert "which is at b" in str(first.node.stopped) or "is older" in str(first.node.stopped)
    assert what_is_left(overlay) == []


def test_one_that_has_left_is_followed_by_another_anywhere() -> None:
    overlay = a_wide_tree()
    for incarnation, at in enumerate(("b4", "b6", "b1"), start=1):
        client = overlay.client("same", at=at, incarnation=incarnation)
        assert client.core.state is ClientState.READY
        client.leaves()
        overlay.settle()
    assert what_is_left(overlay) == []


@pytest.mark.parametrize("ahead", [0.0, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.006])
@pytest.mark.parametrize("incarnations", [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("places", [("b4", "b6"), ("b6", "b4"), ("b3", "b4"), ("b1", "b4")])
def test_of_two_who_come_at_the_same_time_at_most_one_is_let_in(
    ahead: float, incarnations: tuple[int, int], places: tuple[str, str]
) -> None:
    overlay = a_wide_tree()
    world = overlay.world
    nodes = []
    for incarnation, at in zip(incarnations, places, strict=True):
        nodes.append(world.add_client(NodeId("same"), NodeId(at), incarnation=incarnation))
        overlay.settle(ahead)
    overlay.settle(3)
    clients = [Client(world, node) for node in nodes]

    ready = who_is_ready(*clients)
    assert len(ready) == 1 or (ready == [] and incarnations == (1, 1))
    for refused in [client for client in clients if client.core.state is ClientState.CLOSED]:
        assert "refused by b" in str(refused.node.stopped)
        assert "same" in str(refused.node.stopped)
    assert what_is_left(overlay) == []


@pytest.mark.parametrize("at", ["b1", "b3", "b6"])
def test_no_client_takes_the_name_of_a_broker_at_any_distance(at: str) -> None:
    overlay = a_wide_tree(delta=0)
    broker = overlay.world.nodes[NodeId("b4")]
    impostor = overlay.client("b4", at=at, incarnation=1000)
    overlay.world.nodes[NodeId("b4")] = broker

    assert "b4 is the name of a broker" in str(impostor.node.stopped)
    assert what_is_left(overlay) == []


@pytest.mark.parametrize("at", ["b1", "b3", "b6"])
def test_no_broker_takes_the_name_of_a_client_or_of_a_broker_at_any_distance(at: str) -> None:
    overlay = a_wide_tree(delta=0)
    reader = overlay.client("reader", at="b4")
    broker = overlay.world.nodes[NodeId("b4")]
    for name in ("reader", "b4"):
        second = overlay.world.add_broker(NodeId(name), NodeId(at), delta=0)
        overlay.settle()
        assert "refused by the join point: " in str(second.stopped)
    overlay.world.nodes[NodeId("b4")] = broker

    assert reader.core.state is ClientState.READY


def test_nobody_asks_for_anything_before_its_name_is_its_own() -> None:
    core = lone_broker()
    eager = Stranger(core, "eager")

    assert "Subscribe of eager, whose joining is not confirmed yet" in reason_of(
        eager.subscribes("eager/1")
    )


def test_an_older_life_is_refused_by_whoever_has_seen_the_later_one() -> None:
    """No broker near the second remembers anything: the publications went another way."""
    overlay = a_wide_tree()
    reader = overlay.client("reader", at="b4")
    reader.subscribes("TRUE")
    overlay.settle()
    first = overlay.client("clk", at="b3", incarnation=5000)
    first.advertises("TRUE")
    overlay.settle()
    first.publishes(x=1)
    overlay.settle()
    first.leaves()
    overlay.settle()
    assert overlay.broker("b6").publications.latest_of(NodeId("clk")) == (0, 0)
    second = overlay.client("clk", at="b6", incarnation=4000)

    assert "clk was here as incarnation 5000, and 4000 is older" in str(second.node.stopped)
    assert reader.received == ["clk:1"]


@pytest.mark.parametrize("seed", range(40))
def test_of_clients_of_one_name_none_loses_anything_without_being_told(seed: int) -> None:
    """They come and go at random brokers, with random incarnations, and vanish without a word."""
    world = World(seed, delay_s=(0.001, 0.02), cores=TodaysCores(), is_traced=True)
    overlay = Conversation(world=world)
    overlay.brokers("b1", b2="b1", b3="b2", b4="b2", b5="b1")
    brokers = [NodeId(f"b{number}") for number in range(1, 6)]
    readers = [overlay.client(f"reader-{at}", at=at) for at in ("b1", "b3", "b5")]
    for reader in readers:
        reader.subscribes("TRUE")
    overlay.settle()
    lives: list[Client] = []
    published: dict[tuple[int, int], int] = {}

    def comes() -> None:
        incarnation = round(world.now) + world.random.randint(1, 4)
        node = world.add_client(
            NodeId("same"), world.random.choice(brokers), incarnation=incarnation
        )
        life = Client(world, node)
        lives.append(life)
        world.when_ready(node, partial(begins, life))

    def begins(life: Client) -> None:
        life.advertises("TRUE")
        world.after(0.2, speaks, life)

    def speaks(life: Client) -> None:
        is_over = world.now > 20
        if life.core.state is ClientState.READY and life.core._advertisements and not is_over:
            with contextlib.suppress(NotAdvertisedError):
                number = len(published)
                seq = life.publishes(x=number)
                published[id(life), seq] = number
            world.after(world.random.uniform(0.01, 0.4), speaks, life)

    def goes() -> None:
        for life in lives:
            if life.node.stopped is None and life.core.state is ClientState.READY:
                if world.random.random() < 0.5:
                    life.leaves()
                else:
                    _vanish(world, life.node)

    for moment in range(12):
        for _ in range(2):
            world.after(moment + world.random.uniform(0, 1), comes)
        world.after(moment + world.random.uniform(0, 1), goes)
        for tenth in range(10):
            world.after(moment + 0.1 * tenth, _at_most_one_is_ready, lives)
    overlay.settle(30)

    confirmed = [
        published[id(life), seq]
        for life in lives
        for seq in range(1, life.core._seq - life.core.unconfirmed + 1)
        if (id(life), seq) in published
    ]
    assert confirmed
    assert [life for life in lives if life.node.stopped is None and life.core.unconfirmed] == []
    for reader in readers:
        got = [delivery.content["x"] for delivery in reader.deliveries]
        assert len(got) == len(set(got))
        assert [number for number in sorted(confirmed) if number not in got] == []
    assert len(who_is_ready(*lives)) <= 1


def _vanish(world: World, node: Node) -> None:
    """It ends as by `kill -9`, also when there is another of its name by now."""
    now, world.nodes[node.name] = world.nodes[node.name], node
    world.crash(node.name)
    world.nodes[node.name] = now
    node.stopped = "vanished"


def _at_most_one_is_ready(lives: list[Client]) -> None:
    assert len(who_is_ready(*lives)) <= 1


@pytest.mark.parametrize("after_ms", range(7))
@pytest.mark.parametrize(("first", "second"), [("b4", "b6"), ("b6", "b4")])
def test_one_whose_broker_fails_while_others_are_asked_is_let_in_elsewhere(
    first: str, second: str, after_ms: int
) -> None:
    """What is left of its first attempt is no objection to the second."""
    overlay = a_wide_tree()
    world = overlay.world
    client = world.add_client(NodeId("same"), NodeId(first), NodeId(second))
    broker = world.add_broker(NodeId("late"), NodeId(first), fallbacks=[NodeId(second)])
    overlay.settle(0.0035 + 0.001 * after_ms)
    overlay.crashes(first)
    overlay.settle(5)

    assert who_is_ready(Client(world, client)) == [1]
    assert broker.is_ready


# Sessions


def a_session() -> tuple[BrokerCore, Stranger, str]:
    """Somebody who has joined, and the secret of the session."""
    core = lone_broker(entropy=b"nobody knows")
    victim = Stranger(core, "victim")
    [welcome] = victim.greeted
    assert isinstance(welcome, Welcome)
    victim.joins()
    return core, victim, welcome.secret


def comes_back(core: BrokerCore, secret: str) -> list[Message]:
    """Somebody greets who would go on with that session."""
    return Stranger(core, "victim", peer=core.node, peer_incarnation=1, secret=secret).greeted


def test_a_session_goes_on_for_whoever_knows_its_secret() -> None:
    core, victim, secret = a_session()
    [welcome] = [said for said in comes_back(core, secret) if isinstance(said, Welcome)]

    assert len(secret) == SECRET_CHARS
    assert welcome.resumed
    assert welcome.secret == ""
    assert core.neighbours.below[NodeId("victim")].link != victim.link


@pytest.mark.parametrize("secret", ["", "0" * SECRET_CHARS, "ä"])
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_session_is_not_taken_over_with_a_name_alone(secret: str, is_connected: bool) -> None:
    core, victim, right = a_session()
    if not is_connected:
        core.step(core.now, LinkClosed(victim.link, "cut"))
    said = comes_back(core, secret)

    assert "not gone on with without its secret" in reason_of(said)
    assert core.neighbours.below[NodeId("victim")].link == (victim.link if is_connected else None)
    [welcome] = [said for said in comes_back(core, right) if isinstance(said, Welcome)]
    assert welcome.resumed, "and the one whose session it is goes on with it"


def test_no_two_sessions_have_the_same_secret() -> None:
    core = lone_broker(entropy=b"nobody knows")
    elsewhere = lone_broker(entropy=b"nobody else")
    secrets = {
        Stranger(broker, f"client-{n}").greeted[0].secret  # type: ignore[union-attr]
        for broker in (core, elsewhere)
        for n in range(10)
    }

    assert len(secrets) == 20


@pytest.mark.parametrize("knows", [True, False])
def test_who_takes_the_place_of_a_failed_broker_asks_for_the_secret_as_well(knows: bool) -> None:
    overlay = a_wide_tree()
    victim = overlay.client("victim", at="b4")
    overlay.freezes("victim")
    overlay.crashes("b4")
    overlay.settle(0.1)
    hub = overlay.broker("b3")
    thief = Stranger(
        hub,
        "victim",
        peer="b4",
        peer_incarnation=1,
        failed=(Life(NodeId("b4"), 1),),
        secret=victim.core._secret if knows else "",
    )

    assert ("without its secret" in reason_of(thief.greeted)) == (not knows)
    assert knows == any(isinstance(m, Welcome) and m.adopts for m in thief.greeted)


def test_a_client_goes_on_wherever_its_session_goes() -> None:
    """Taken over by a hub, handed over to a child of that, and connected anew each time."""
    overlay = a_wide_tree()
    reader = overlay.client("reader", at="b4")
    reader.subscribes("TRUE")
    ticker = overlay.client("ticker", at="b1")
    ticker.advertises("TRUE")
    overlay.settle()
    overlay.crashes("b4")
    overlay.settle(3)
    assert reader.core.broker == "b3"
    overlay.loses_connection("reader", "b3")
    overlay.settle()
    overlay.world.add_broker(NodeId("b7"), NodeId("b3"))
    overlay.settle()
    assert overlay.world.move(NodeId("b3"), NodeId("b7"), NodeId("reader"))
    overlay.settle()
    assert reader.core.broker == "b7"
    overlay.loses_connection("reader", "b7")
    overlay.settle()
    ticker.publishes(x=1)
    overlay.settle()

    assert reader.received == ["ticker:1"]
    assert not reader.core.has_lost_session
    assert all(core.neighbours.below[NodeId("reader")].key for core in [overlay.broker("b7")])
