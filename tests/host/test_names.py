"""A name is one node, and what belongs to it nobody else can touch; whoever plays its broker."""

import contextlib
from functools import partial
from typing import Any

import pytest

from plait.broker.client.states import ClientState
from plait.broker.errors import NotAdvertisedError
from plait.broker.host.clients import SECRET_CHARS
from plait.broker.limits import Limits
from plait.broker.messages import NodeKind, RefusalCode, Unsubscribe
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import World
from plait.routing.ids import NodeId, OperationId, SubscriptionId
from tests.host.peers import Alone, Peer, Visited
from tests.host.worlds import Client, Conversation, Lively

AFTER_A_HEARTBEAT_S = 12.0
"""At the broker of a name it is not seen at once that its owner is there."""


def a_line() -> tuple[Conversation, Client]:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1", b3="b2")
    reader = overlay.client("reader", "b3")
    reader.subscribes("TRUE")
    overlay.settle()
    return overlay, reader


def a_wide_tree(**settings: Any) -> Conversation:
    overlay = Conversation(**settings)
    overlay.brokers("b1", b2="b1", b3="b2", b4="b3", b5="b1", b6="b5")
    return overlay


def who_is_ready(*clients: Client) -> list[int]:
    return [
        client.core.incarnation
        for client in clients
        if client.node.stopped is None and client.core.state is ClientState.READY
    ]


# What belongs to a client


@pytest.mark.parametrize("name", ["alice/2", "alice", "/2", "alice/mallory/2"])
def test_what_is_called_after_another_client_is_not_ones_own(name: str) -> None:
    def mallory() -> Peer:
        return host.peer("mallory", incarnation=len(host.sent) + 1).joins()

    host = Alone()
    alice = host.peer("alice").joins()
    alice.steps(alice.subscription("alice/2"))
    thieves = [mallory() for _ in range(3)]
    thieves[0].steps(thieves[0].subscription(name))
    thief = mallory()
    thief.steps(thief.advertisement(name))
    other = mallory()
    other.steps(other.subscription(name, client=NodeId("alice")))

    for each in (thieves[0], thief, other):
        assert f"{name}, which does not belong to mallory" in each.reason
    assert [entry.id for entry in host.machine.interests.subscriptions] == ["alice/2"]
    assert alice.goodbye is None


def test_what_a_client_calls_its_own_is_its_own() -> None:
    host = Alone()
    mallory = host.peer("mallory").joins()
    mallory.steps(mallory.subscription("mallory/1", client=NodeId("alice")))
    mallory.steps(mallory.subscription("mallory/2", path=(NodeId("alice"), NodeId("mallory"))))

    assert mallory.refusals == [RefusalCode.NOT_OWNER, RefusalCode.NOT_OWNER]


def test_a_broker_that_says_that_something_is_anothers_is_not_believed() -> None:
    overlay, _ = a_line()
    ears = Visited(overlay)
    evil = ears.peer("evil", "b1", kind=NodeKind.BROKER).joins()
    overlay.settle(0.1)
    evil.steps(evil.subscription("reader/2", client=NodeId("mallory")))

    assert "evil says that reader/2 is mallory's" in evil.reason


@pytest.mark.parametrize("operation", ["alice#1.3", "b1#1.3", "mallory", ""])
def test_nobody_asks_under_the_operation_of_another(operation: str) -> None:
    host = Alone()
    mallory = host.peer("mallory").joins()
    mallory.steps(
        Unsubscribe(operation=OperationId(operation), subscription=SubscriptionId("mallory/1"))
    )

    assert "asked by mallory" in mallory.reason


# Whose name is whose


@pytest.mark.parametrize("at", ["b1", "b3", "b6"])
def test_no_client_takes_the_name_of_a_broker_at_any_distance(at: str) -> None:
    overlay = a_wide_tree(delta=0)
    broker = overlay.world.nodes[NodeId("b4")]
    impostor = overlay.client("b4", at, incarnation=1000)
    overlay.settle(AFTER_A_HEARTBEAT_S)
    overlay.world.nodes[NodeId("b4")] = broker

    assert "b4 is the name of a broker" in str(impostor.node.stopped)
    assert overlay.unfinished() == []


@pytest.mark.parametrize("at", ["b1", "b3", "b6"])
def test_no_broker_takes_the_name_of_a_client_at_any_distance(at: str) -> None:
    overlay = a_wide_tree(delta=0)
    reader = overlay.client("reader", "b4")
    second = overlay.world.add_broker(NodeId("reader"), NodeId(at), delta=0)
    overlay.settle()

    assert "refused by the join point: " in str(second.stopped)
    assert "reader is the name of a client" in str(second.stopped)
    assert reader.core.state is ClientState.READY


# Which life of it


def test_an_older_life_is_told_that_a_clock_is_behind() -> None:
    overlay, _ = a_line()
    first = overlay.client("clk", "b1", incarnation=5000)
    first.leaves()
    overlay.settle()
    second = overlay.client("clk", "b2", incarnation=4000)

    assert str(second.node.stopped).startswith(
        "clk was here as incarnation 5000, and 4000 is older: is this machine's clock behind?"
    )


def test_a_life_that_counts_from_the_beginning_once_more_is_refused() -> None:
    overlay, reader = a_line()
    first = overlay.client("clk", "b1", incarnation=5000)
    first.advertises("TRUE")
    overlay.settle()
    first.publishes(x=1)
    overlay.settle()
    first.leaves()
    overlay.settle()
    second = overlay.client("clk", "b1", incarnation=5000)

    assert "clk has published up to 1 in incarnation 5000" in str(second.node.stopped)
    assert reader.received == ["clk:1"]


@pytest.mark.parametrize("kind", [NodeKind.CLIENT, NodeKind.BROKER, NodeKind.HOST])
def test_an_incarnation_far_ahead_of_the_clock_is_refused(kind: NodeKind) -> None:
    day_ms = round(1000 * Limits().clocks_apart_max_s)
    host = Alone(wall_clock_ms=10_000)

    def greeted(name: str, incarnation: int) -> Peer:
        return host.peer(name, kind=kind, incarnation=incarnation + day_ms)

    assert greeted("soon", 10_000).welcome is not None
    assert "is one of the two clocks wrong?" in greeted("too-soon", 10_001).reason
    host.now = 1.0
    assert greeted("later", 11_000).welcome is not None, "the clock goes on"


# Overlay-wide


@pytest.mark.parametrize("at", ["b1", "b2", "b4", "b6"])
@pytest.mark.parametrize("incarnation", [1, 2, 3])
def test_a_name_that_is_in_use_anywhere_is_refused_and_its_owner_notices_nothing(
    at: str, incarnation: int
) -> None:
    overlay = a_wide_tree()
    first = overlay.client("same", "b4", incarnation=2)
    first.subscribes("TRUE")
    ticker = overlay.client("ticker", "b1")
    ticker.advertises("TRUE")
    overlay.settle()
    second = overlay.client("same", at, incarnation=incarnation)
    ticker.publishes(x=1)
    overlay.settle(AFTER_A_HEARTBEAT_S)

    assert first.received == ["ticker:1"]
    assert "which is at b4: wait until it has left" in str(second.node.stopped)
    assert overlay.unfinished() == [f"same: stopped: {second.node.stopped}"]


@pytest.mark.parametrize("at", ["b1", "b2", "b4", "b6"])
def test_one_that_is_gone_is_replaced_at_once_and_refused_when_it_comes_back(at: str) -> None:
    overlay = a_wide_tree()
    first = overlay.client("same", "b4", incarnation=1)
    first.subscribes("TRUE")
    overlay.settle()
    overlay.world.take_off_the_net(NodeId("same"), NodeId("b4"), 0.1)
    overlay.settle(0.1)
    second = overlay.world.add_client(NodeId("same"), NodeId(at), incarnation=2)
    overlay.settle(AFTER_A_HEARTBEAT_S)

    assert who_is_ready(first, Client(overlay.world, second)) == [2]
    reason = str(first.node.stopped)
    assert "incarnation 2" in reason
    assert "which is at b" in reason or "is older" in reason
    assert overlay.unfinished() == []


@pytest.mark.parametrize("ahead", [0.0, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.006])
@pytest.mark.parametrize("incarnations", [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("places", [("b4", "b6"), ("b3", "b4"), ("b1", "b4")])
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
        assert "the name same is" in str(refused.node.stopped)
    assert not [text for text in overlay.unfinished() if not text.startswith("same: stopped")]


def test_nobody_asks_for_anything_before_its_name_is_its_own() -> None:
    overlay = a_wide_tree()
    ears = Visited(overlay)
    eager = ears.peer("eager", "b1")
    eager.steps(eager.subscription("eager/1"))

    assert "Subscribe of eager, which has not joined yet" in eager.reason
    assert not len(overlay.machine("b1").interests.subscriptions)


@pytest.mark.parametrize("seed", range(12))
def test_of_clients_of_one_name_none_loses_anything_without_being_told(seed: int) -> None:
    """They come and go at random brokers, with random incarnations, and vanish without a word."""
    overlay = Lively(seed=seed)
    world = overlay.world
    overlay.brokers("b1", b2="b1", b3="b2", b4="b2", b5="b1")
    brokers = [NodeId(f"b{number}") for number in range(1, 6)]
    readers = [overlay.client(f"reader-{at}", at) for at in ("b1", "b3", "b5")]
    for reader in readers:
        reader.subscribes("TRUE")
    overlay.passes(1.0)
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
        if life.core.state is ClientState.READY and world.now < 12:
            with contextlib.suppress(NotAdvertisedError):
                number = len(published)
                life.publishes(x=number)
                published[id(life), life.core.publishing.seq] = number
            world.after(world.random.uniform(0.01, 0.4), speaks, life)

    def goes() -> None:
        for life in lives:
            if life.node.stopped is None and life.core.state is ClientState.READY:
                if world.random.random() < 0.5:
                    life.leaves()
                else:
                    _vanish(world, life.node)

    for moment in range(8):
        for _ in range(2):
            world.after(moment + world.random.uniform(0, 1), comes)
        world.after(moment + world.random.uniform(0, 1), goes)
        for tenth in range(10):
            world.after(moment + 0.1 * tenth, _at_most_one_is_ready, lives)
    overlay.passes(25)

    confirmed = [
        published[id(life), seq]
        for life in lives
        for seq in range(1, life.core.publishing.seq - life.core.unconfirmed + 1)
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
def test_one_whose_broker_fails_while_others_are_asked_is_let_in_in_the_end(
    first: str, second: str, after_ms: int
) -> None:
    """What is left of its first attempt is no objection to the second."""
    overlay = a_wide_tree()
    world = overlay.world
    client = world.add_client(NodeId("same"), NodeId(first), NodeId(second))
    broker = world.add_broker(NodeId("late"), NodeId(first), fallbacks=[NodeId(second)])
    overlay.settle(0.0035 + 0.001 * after_ms)
    overlay.crashes(first)
    overlay.settle(12)

    assert who_is_ready(Client(world, client)) == [1]
    assert broker.is_ready


# Sessions


def a_session() -> tuple[Alone, Peer, str]:
    """Somebody who has joined, and the secret of the session."""
    host = Alone(entropy=b"nobody knows")
    victim = host.peer("victim").joins()
    assert victim.welcome is not None
    return host, victim, victim.welcome.secret


def comes_back(host: Alone, secret: str) -> Peer:
    """Somebody greets who would go on with that session."""
    return host.peer("victim", secret=secret, to="b1", known_term=1)


def test_a_session_goes_on_for_whoever_knows_its_secret() -> None:
    host, victim, secret = a_session()
    back = comes_back(host, secret)

    assert len(secret) == SECRET_CHARS
    assert back.welcome is not None
    assert back.welcome.resumed
    assert back.welcome.secret == ""
    assert host.machine.neighbours.below[NodeId("victim")].link == back.link
    assert victim.reason == "replaced by a new connection"


@pytest.mark.parametrize("secret", ["", "0" * SECRET_CHARS, "ä"])
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_session_is_not_taken_over_with_a_name_alone(secret: str, is_connected: bool) -> None:
    host, victim, right = a_session()
    if not is_connected:
        victim.hangs_up()
    thief = comes_back(host, secret)

    assert "not gone on with without its secret" in thief.reason
    client = host.machine.neighbours.below[NodeId("victim")]
    assert client.link == (victim.link if is_connected else None)
    back = comes_back(host, right)
    assert back.welcome is not None
    assert back.welcome.resumed, "and the one whose session it is goes on with it"


def test_no_two_sessions_have_the_same_secret() -> None:
    hosts = [Alone(entropy=entropy) for entropy in (b"nobody knows", b"nobody else")]
    welcomes = [host.peer(f"client-{n}").welcome for host in hosts for n in range(10)]

    assert len({welcome.secret for welcome in welcomes if welcome is not None}) == 20


@pytest.mark.parametrize("knows", [True, False])
def test_who_takes_up_a_broker_asks_for_the_secret_as_well(knows: bool) -> None:
    overlay = a_wide_tree()
    victim = overlay.client("victim", "b4")
    ears = Visited(overlay)
    overlay.freezes("victim")
    overlay.crashes("b4")
    overlay.settle(0.1)
    thief = ears.peer(
        "victim",
        "b3",
        secret=victim.core.session._secret if knows else "",
        to="b4",
        known_term=1,
    )

    assert thief.is_to_attach == knows
    assert thief.reason == ""
    overlay.goes_on("victim")
    overlay.settle(1.0)
    assert ("without its secret" in thief.reason) == (not knows)
    assert thief.welcome is None
    if not knows:
        assert overlay.troubles() == []


def test_a_client_goes_on_wherever_its_broker_goes() -> None:
    """Taken up by another host, given to a third one, and connected anew each time."""
    overlay = a_wide_tree()
    reader, ticker = overlay.client("reader", "b4"), overlay.client("ticker", "b1")
    reader.subscribes("TRUE")
    ticker.advertises("TRUE")
    overlay.settle()
    overlay.crashes("b4")
    overlay.settle(3)
    assert overlay.players("b4") == ["b3"]
    overlay.loses_connection("reader", "b3")
    overlay.settle()
    overlay.relocates("b4", host="b6")
    overlay.settle()
    assert overlay.players("b4") == ["b6"]
    overlay.loses_connection("reader", "b6")
    overlay.settle()
    ticker.publishes(x=1)
    overlay.settle()

    assert reader.received == ["ticker:1"]
    assert not reader.core.has_lost_session
    assert overlay.machine("b4").neighbours.below[NodeId("reader")].key


# One process is a host


def why_it_ended(overlay: Lively, name: str) -> list[str]:
    nodes = [*overlay.world.former, *overlay.world.residents()]
    return [node.stopped for node in nodes if node.name == name and node.stopped is not None]


def test_a_second_process_of_a_host_ends_and_the_first_one_notices_nothing() -> None:
    overlay, reader = a_line()
    overlay.world.start_twin(NodeId("b2"))
    overlay.settle(60)

    assert why_it_ended(overlay, "b2") == ["another process is b2, incarnation 1, at b2"]
    assert overlay.host("b2").me.incarnation == 1
    assert overlay.players("b2") == ["b2"]
    assert reader.node.stopped is None


def test_one_that_was_frozen_ends_when_another_process_has_its_name_by_now() -> None:
    overlay = Lively()
    overlay.brokers("b1", b2="b1", b3="b2")
    overlay.freezes("b2")
    overlay.passes(30)
    overlay.world.start_twin(NodeId("b2"))
    overlay.passes(30)
    overlay.goes_on("b2")
    overlay.passes(30)

    assert why_it_ended(overlay, "b2") == [
        "fenced: others go on without this life",
        "another process is b2, incarnation 2, at b2~2",
    ]
    assert overlay.world.twins[NodeId("b2~2")].is_alive
    assert overlay.players("b2") == ["b2"]


def test_where_a_host_was_somebody_else_may_be_now() -> None:
    overlay = Lively()
    overlay.brokers("b1", b2="b1", b3="b2")
    overlay.crashes("b2")
    overlay.passes(10)
    overlay.world.add_broker(NodeId("b4"), NodeId("b1"), address=NodeId("b2"))
    overlay.passes(10)
    overlay.world.start_twin(NodeId("b2"))
    overlay.passes(30)

    assert why_it_ended(overlay, "b2") == ["crashed"]
    assert overlay.players("b2") == ["b2"]


def test_what_an_earlier_life_had_said_does_not_prove_that_it_goes_on() -> None:
    """It arrives behind the greeting of the next one; what is said later is a proof."""
    for goes_on in (False, True):
        alone = Alone()
        interval_s = alone.host.me.limits.heartbeat_interval_s
        before = alone.peer("c").joins()
        alone.passes(1.0, before)
        after = alone.peer("c", incarnation=2)
        alone.passes(0.01)
        before.steps(before.subscription("c/1"))
        if not goes_on:
            before.hangs_up()
        alone.passes(2 * interval_s, *[before] * goes_on)

        assert (after.welcome is None) == goes_on
        assert ("wait until it has left" in after.reason) == goes_on


@pytest.mark.parametrize(
    ("name", "at"), [("b1", "b1"), ("b2", "b1"), ("b1", "b2"), ("b2", "b2"), ("b3", "b2")]
)
def test_a_process_called_as_a_broker_that_is_there_is_told_so(name: str, at: str) -> None:
    """By that broker itself, and by its neighbours."""
    overlay, _ = a_line()
    newcomer = Visited(overlay).peer(name, at, kind=NodeKind.BROKER, term=1)
    if newcomer.goodbye is None:
        newcomer.joins()
        overlay.settle()

    assert f"the name {name} is taken by a broker of this overlay" in newcomer.reason


@pytest.mark.parametrize("is_there", [True, False])
def test_a_process_called_as_a_broker_further_away_ends_if_that_one_lives(is_there: bool) -> None:
    """The join point has to look first: it never hears anything of that broker."""
    overlay = Lively()
    overlay.brokers("b1", b2="b1", b3="b2", b4="b3")
    if not is_there:
        overlay.crashes("b4")
    newcomer = overlay.world.add_broker(
        NodeId("b4"), NodeId("b1"), fallbacks=[NodeId("b2")], address=NodeId("b4~2")
    )
    overlay.passes(30)

    if is_there:
        assert newcomer.stopped is not None
        assert newcomer.stopped.startswith("refused by the join point: another process is b4")
    assert overlay.players("b4") == ["b4"]
    assert len([n for n in overlay.world.hosts if n.name == "b4" and n.is_alive]) == 1
