"""What is known of the tree: all of who plays what, and of ways as far as δ + 1 (Table 1)."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.broker.client.core import ClientCore
from plait.broker.machine.interests import life_of
from plait.broker.machine.machine import Machine
from plait.broker.sim.hosts import StepCores
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import World
from plait.routing.ids import NodeId
from plait.topologies.builders import random_tree
from tests.host.worlds import Conversation


def begin(size: int, seed: int, **settings: object) -> tuple[World, list[NodeId]]:
    """All brokers are started at once, so that joins happen side by side."""
    overlay = random_tree(size, seed)
    world = World(seed, cores=StepCores())
    names = [NodeId(name) for name in overlay.brokers]
    for name in names:
        parent = overlay.parent_of(name)
        world.add_broker(name, NodeId(parent) if parent else None, **settings)  # type: ignore[arg-type]
    return world, names


def machines(world: World, names: list[NodeId]) -> dict[NodeId, Machine]:
    found = {}
    for name in names:
        player = world.who_plays(name)
        assert player is not None
        found[name] = player.core.parts.playing.machine(name)
    return found


@settings(max_examples=30)
@given(
    size=st.integers(2, 8),
    seed=st.integers(0, 1000),
    delta=st.integers(1, 3),
    victim=st.integers(0, 7),
)
def test_every_host_knows_the_whole_tree_and_who_plays_it(
    size: int, seed: int, delta: int, victim: int
) -> None:
    """Much more than the seed's Eq. 1 asks for, also when somebody has failed."""
    world, names = begin(size, seed, delta=delta)
    world.run(until=2)
    world.crash(names[victim % size])
    world.run(until=4.9)

    brokers = machines(world, names)
    players = {name: world.who_plays(name) for name in names}
    for node in world.hosts:
        if not node.is_alive:
            continue
        seats = node.core.parts.seats
        for name in names:
            above = brokers[name].neighbours.parent
            seat, player = seats.seat_of(name), players[name]
            assert player is not None
            assert seats.parent_of(name) == (above.node if above else None)
            assert (seat.host, seat.incarnation) == (player.name, player.door.incarnation)
            assert seats.place_of(seat.host).address == player.address


@settings(max_examples=30)
@given(
    size=st.integers(1, 7),
    seed=st.integers(0, 1000),
    delta=st.integers(0, 3),
    clients=st.lists(st.integers(0, 6), min_size=1, max_size=4),
)
def test_every_broker_knows_the_way_to_who_asks_or_offers_as_far_as_delta_plus_1(
    size: int, seed: int, delta: int, clients: list[int]
) -> None:
    """Level 1: it knows each final destination within δ + 1. Level 2: or who is δ + 1 nearer to it.

    Joins and operations happen side by side, and some of these are taken back.
    """
    world, names = begin(size, seed, delta=delta, policy="flooding")
    for number, place in enumerate(clients):
        client = world.add_client(NodeId(f"client{number}"), names[place % size])
        world.when_ready(client, partial(_ask_and_offer, world, client))
    world.run(until=4.9)

    brokers = machines(world, names)
    for machine in brokers.values():
        interests = machine.interests
        assert len(interests.subscriptions) == len(interests.advertisements) == len(clients)
        for entry in (*interests.subscriptions, *interests.advertisements):
            # The furthest first; the nearest is the next hop.
            way = _way_to(entry.client, machine.node, brokers)
            assert entry.path == tuple(reversed(way[: delta + 1]))


def _ask_and_offer(world: World, client: Node) -> None:
    core = client.core
    assert isinstance(core, ClientCore)
    core.advertise(world.now, "TRUE")
    core.subscribe(world.now, "TRUE")
    subscription, _ = core.subscribe(world.now, "x = 1")
    core.unsubscribe(world.now, subscription)
    world.carry_out_calls(client)


def _way_to(client: NodeId, start: NodeId, brokers: dict[NodeId, Machine]) -> list[NodeId]:
    """The hops from a broker to the life of a client, as the tree is."""
    ways = {start: [start]}
    queue = [start]
    for name in queue:
        for neighbour in brokers[name].neighbours.all():
            if neighbour.node not in ways:
                ways[neighbour.node] = [*ways[name], neighbour.node]
                queue += [neighbour.node] if neighbour.node in brokers else []
    *hops, _ = ways[client]
    return [*hops, life_of(client, 1)][1:]


def test_table_1_recipients_at_every_node_for_every_delta() -> None:
    """The seed's figure 5: n2 - n1 - n3 with s1 at n2 and s4 at n3; p1 publishes at n1.

    The recipient set of a node holds, for each matching subscription, the furthest node of the
    path that it knows.
    """
    expected = {
        0: {"n1": {"n2", "n3"}, "n2": {"s1", "n1"}, "n3": {"s4", "n1"}},
        1: {"n1": {"s1", "s4"}, "n2": {"s1", "n3"}, "n3": {"s4", "n2"}},
        2: {"n1": {"s1", "s4"}, "n2": {"s1", "s4"}, "n3": {"s1", "s4"}},
        3: {"n1": {"s1", "s4"}, "n2": {"s1", "s4"}, "n3": {"s1", "s4"}},
    }
    for delta, recipients in expected.items():
        overlay = Conversation(delta=delta)
        overlay.brokers("n1", n2="n1", n3="n1")
        for name, broker in (("p1", "n1"), ("q2", "n2"), ("q3", "n3")):
            # Everybody may publish, so that every broker has to know every subscription.
            overlay.client(name, broker).advertises("TRUE")
        for name, broker in (("s1", "n2"), ("s4", "n3")):
            overlay.client(name, broker).subscribes("TRUE")
        overlay.settle()

        found = {
            name: {_named(entry.path[0]) for entry in overlay.machine(name).interests.subscriptions}
            for name in recipients
        }
        assert found == recipients


def _named(hop: NodeId) -> str:
    """Who a hop is; a client is named by its life."""
    return hop.partition("/")[0]
