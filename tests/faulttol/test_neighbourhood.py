"""The neighbourhood against the seed: its Eq. 1, its levels of consistency, and its Table 1."""

from collections.abc import Mapping
from functools import partial

import attrs
from hypothesis import given
from hypothesis import strategies as st

from broker.client_core import ClientCore
from broker.core import BrokerCore
from broker.sim.adapters import TodaysCores
from broker.sim.nodes import Node
from broker.sim.world import World
from faulttol.neighbourhood import Life, Neighbourhood, TopologyLink
from routing.ids import NodeId
from tests.conversation import Conversation
from topologies.builders import random_tree
from topologies.overlay import Overlay, Site


def link(
    child: str, parent: str, kind: str = "broker", *, incarnation: int = 1, moves: int = 0
) -> TopologyLink:
    return TopologyLink(
        child=NodeId(child),
        parent=NodeId(parent),
        kind=kind,
        incarnation=incarnation,
        address=child if kind == "broker" else "",
        parent_address=parent,
        moves=moves,
    )


def a_tree(centre: str, *, delta: int = 1) -> Neighbourhood:
    r"""A root with a broker above two others, each with a client; one of them has a child.

    r - m - b - d
         \   \ client
          c
    """
    known = Neighbourhood(NodeId(centre), delta=delta)
    known.add_all(
        [
            link("r", "r"),
            link("m", "r"),
            link("b", "m"),
            link("c", "m"),
            link("d", "b"),
            link("client", "b", kind="client"),
        ]
    )
    return known


def region(known: Neighbourhood, *failed: str) -> list[NodeId]:
    for name in failed:
        known.bury(Life(NodeId(name), 1))
    return known.failed_region(NodeId(failed[0]))


def children(known: Neighbourhood) -> list[str]:
    return [link.child for link in known]


def test_distances_are_counted_in_links() -> None:
    known = Neighbourhood(NodeId("a"), delta=2)
    known.add_all([link("b", "a"), link("c", "b"), link("d", "a")])

    assert known.distances() == {"a": 0, "b": 1, "d": 1, "c": 2}


def test_a_newcomer_is_told_of_links_within_delta_only() -> None:
    known = Neighbourhood(NodeId("a"), delta=1)
    known.add_all([link("b", "a"), link("c", "b"), link("client", "a", kind="client")])

    assert known.for_newcomer(brokers_only=False) == (
        link("b", "a"),
        link("client", "a", kind="client"),
    )
    assert known.for_newcomer(brokers_only=True) == (link("b", "a"),)


def test_what_lies_behind_a_node_that_is_gone_is_forgotten_too() -> None:
    known = Neighbourhood(NodeId("b"), delta=2)
    known.add_all([link("b", "a"), link("c", "b"), link("d", "c"), link("x", "a")])
    known.remove(NodeId("c"))
    assert [kept.child for kept in known] == ["b", "x"]
    known.remove(NodeId("b"))

    assert list(known) == []


def test_removing_a_link_that_is_not_known_changes_nothing() -> None:
    known = Neighbourhood(NodeId("a"), delta=1)
    known.remove(NodeId("b"))

    assert len(known) == 0


def test_a_later_incarnation_replaces_an_earlier_one() -> None:
    known = Neighbourhood(NodeId("a"), delta=1)
    known.add(link("b", "a"))
    again = link("b", "a", incarnation=2)
    known.add(again)
    assert not known.add(link("b", "x", moves=7)), "what comes last may be old"

    assert list(known) == [again]


def test_of_one_incarnation_the_link_after_the_most_moves_counts() -> None:
    known = a_tree("b")
    assert known.add(link("b", "r", moves=1))
    assert not known.add(link("b", "m"))
    assert not known.add(link("b", "c", moves=1)), "the same age is no news"

    assert known.parent_of(NodeId("b")) == "r"
    assert known.distances()[NodeId("r")] == 1


def test_a_root_is_nobodys_child_and_no_link() -> None:
    known = a_tree("m")

    assert known.parent_of(NodeId("r")) is None
    assert "r" not in children(known)
    assert known.link_of(NodeId("r")) == link("r", "r")


def test_a_broker_that_becomes_the_root_is_nobodys_child_any_more() -> None:
    known = a_tree("b")
    known.add(link("b", "b", moves=1))

    assert known.parent_of(NodeId("b")) is None
    assert known.distances() == {"b": 0, "d": 1, "client": 1}


# --- who has failed --------------------------------------------------------------------------


def test_the_links_of_a_failed_broker_are_kept_until_the_tree_is_whole() -> None:
    known = a_tree("b")

    assert known.bury(Life(NodeId("m"), 1))
    assert not known.bury(Life(NodeId("m"), 1)), "that is no news"
    assert known.is_buried(NodeId("m"))
    assert known.parent_of(NodeId("c")) == "m"
    assert list(known.closed) == []


def test_an_earlier_incarnation_has_failed_with_a_later_one() -> None:
    known = a_tree("b")
    known.bury(Life(NodeId("m"), 2))

    assert known.has_failed(Life(NodeId("m"), 1))
    assert known.has_failed(Life(NodeId("m"), 2))
    assert not known.has_failed(Life(NodeId("m"), 3))
    assert not known.bury(Life(NodeId("m"), 1))


def test_nobody_is_believed_who_still_speaks_of_the_dead() -> None:
    known = a_tree("b")
    known.close(region(known, "m"))

    assert not known.add(link("m", "r"))
    assert known.add(link("m", "r", incarnation=2))
    assert not known.is_buried(NodeId("m"))


def test_whoever_fails_again_is_not_closed() -> None:
    known = a_tree("b")
    known.close(region(known, "m"))
    assert list(known.closed) == [Life(NodeId("m"), 1)]
    known.bury(Life(NodeId("m"), 2))

    assert list(known.closed) == []
    assert known.buried == (Life(NodeId("m"), 2),)


def test_failed_brokers_that_hang_together_are_one_region() -> None:
    known = a_tree("b", delta=2)

    assert region(known, "m", "c") == ["m", "c"]
    assert region(known, "d") == ["d"], "b is between them, and alive"


def test_the_boundary_is_who_is_left_around_by_name() -> None:
    known = a_tree("b", delta=2)

    assert known.boundary(region(known, "m")) == ["b", "c", "r"]
    assert known.boundary(region(known, "m", "c")) == ["b", "r"]
    assert known.boundary([NodeId("b")]) == ["client", "d", "m"]


def test_the_hub_is_the_parent_of_the_topmost() -> None:
    known = a_tree("b", delta=2)

    assert known.hub([NodeId("b")]) == "m"
    assert known.hub([NodeId("b"), NodeId("m")]) == "r"


def test_a_standby_of_a_root_is_the_hub_before_anybody_else() -> None:
    known = a_tree("m", delta=2)
    for name, rank in (("x", 2), ("z", 1)):
        known.add(attrs.evolve(link(name, "r"), standby=rank))

    assert known.standbys_of(NodeId("r")) == ["z", "x"]
    assert known.hub(region(known, "r")) == "z"
    assert known.hub(region(known, "r", "z")) == "x"


def test_a_broker_that_moved_before_it_failed_stood_where_it_had_moved() -> None:
    known = a_tree("m")
    known.bury(Life(NodeId("b"), 1))
    known.add(link("b", "c", moves=1))

    assert known.hub(region(known, "b")) == "c"
    assert not known.add(link("b", "m", incarnation=1, moves=0))


def test_behind_a_neighbour_is_all_that_is_reached_by_it() -> None:
    known = a_tree("m")

    assert [link.child for link in known.behind(NodeId("b"))] == ["d", "client"]
    assert known.behind(NodeId("c")) == ()


def test_around_a_region_are_its_links_and_those_of_its_boundary() -> None:
    known = a_tree("r", delta=2)

    around = {link.child for link in known.around(region(known, "b"))}
    assert around == {"b", "m", "d", "client", "r"}


def test_the_hub_in_the_place_of_a_root_is_the_first_broker_by_name() -> None:
    known = Neighbourhood(NodeId("c"), delta=1)
    known.add(link("r", "r"))
    known.add_all([link("c", "r"), link("b", "r"), link("a", "r", kind="client")])

    assert known.hub([NodeId("r")]) == "b"


def test_who_lives_and_is_the_root_has_taken_the_place_of_a_root_that_failed() -> None:
    known = a_tree("d")
    region(known, "m", "b", "r")
    assert known.other_root() is None

    known.add(link("c", "c", moves=1))
    assert known.other_root() == "c"
    known.bury(Life(NodeId("c"), 1))
    assert known.other_root() is None


def test_there_is_no_hub_if_nobody_but_clients_is_left() -> None:
    known = Neighbourhood(NodeId("a"), delta=1)
    known.add_all([link("r", "r"), link("a", "r", kind="client")])

    assert known.hub([NodeId("r")]) is None


def test_there_is_no_hub_beyond_what_is_known() -> None:
    known = Neighbourhood(NodeId("b"), delta=1)
    known.add_all([link("b", "m"), link("m", "r")])

    assert known.hub([NodeId("m")]) == "r"
    assert known.hub([NodeId("m"), NodeId("r")]) is None


def test_there_is_no_hub_above_brokers_each_of_which_was_below_the_other() -> None:
    known = Neighbourhood(NodeId("b"), delta=2)
    known.add_all([link("c", "m"), link("m", "c", incarnation=2), link("b", "m")])

    assert known.hub([NodeId("c"), NodeId("m")]) is None


def test_closing_forgets_the_dead_and_what_is_too_far_away_without_them() -> None:
    known = Neighbourhood(NodeId("b"), delta=1)
    known.add_all([link("r", "r"), link("m", "r"), link("b", "m"), link("d", "b")])
    known.bury(Life(NodeId("d"), 1))
    known.add(link("e", "d"))
    known.add(link("e", "b", moves=1))

    assert known.close([NodeId("d")])
    assert not known.close([NodeId("d")]), "that is no news"
    assert sorted(children(known)) == ["b", "e", "m"]
    assert NodeId("d") not in known


def test_closing_spares_a_later_incarnation_and_who_has_joined_it() -> None:
    known = a_tree("b", delta=2)
    known.bury(Life(NodeId("m"), 1))
    known.add(link("b", "r", moves=1))
    known.add(link("m", "b", incarnation=2))
    known.add(attrs.evolve(link("x", "m"), parent_incarnation=2))
    known.close([NodeId("m")])

    assert known.parent_of(NodeId("m")) == "b"
    assert known.parent_of(NodeId("x")) == "m"
    assert known.parent_of(NodeId("c")) is None, "it was the child of the one that failed"


def test_a_broker_that_joins_its_former_child_is_not_forgotten_with_its_former_link() -> None:
    known = a_tree("b")
    known.bury(Life(NodeId("m"), 1))
    known.add(link("m", "b", incarnation=2))
    known.add(link("b", "r", moves=1))
    known.close([NodeId("m")])

    assert known.distances()[NodeId("m")] == 1


def test_who_stood_around_a_broker_that_is_back_is_known_until_the_tree_does_without_it() -> None:
    known = a_tree("r")
    around = known.boundary(region(known, "m"))
    known.add(link("m", "r", incarnation=2))

    assert known.boundary(known.failed_region(NodeId("m"))) == around
    known.close([NodeId("m")])
    assert known.parent_of(NodeId("m")) == "r"


# --- Eq. 1 -----------------------------------------------------------------------------------


@given(size=st.integers(1, 10), seed=st.integers(0, 1000), delta=st.integers(0, 3))
def test_eq_1_every_broker_knows_exactly_the_links_within_delta_plus_1(
    size: int, seed: int, delta: int
) -> None:
    """All brokers are started at once, so that joins happen side by side."""
    overlay = random_tree(size, seed)
    world = World(seed, cores=TodaysCores())
    for name in overlay.brokers:
        parent = overlay.parent_of(name)
        world.add_broker(NodeId(name), NodeId(parent) if parent else None, delta=delta)
    world.run(until=4.9)

    for name in overlay.brokers:
        core = world.nodes[NodeId(name)].core
        assert isinstance(core, BrokerCore)
        known = {(known.child, known.parent) for known in core.neighbourhood}
        assert known == _links_within(overlay, name, delta + 1)


def _links_within(overlay: Overlay, name: str, reach: int) -> set[tuple[str, str]]:
    distance = overlay.distances_from(name)
    return {
        (child, parent)
        for child in overlay.brokers
        if (parent := overlay.parent_of(child)) is not None
        and distance[child] <= reach
        and distance[parent] <= reach
    }


@given(
    size=st.integers(3, 10),
    seed=st.integers(0, 1000),
    delta=st.integers(1, 3),
    victim=st.integers(0, 9),
)
def test_eq_1_holds_in_the_re_formed_tree(size: int, seed: int, delta: int, victim: int) -> None:
    overlay = random_tree(size, seed)
    names = list(overlay.brokers)
    world = World(seed, cores=TodaysCores())
    for name in names:
        parent = overlay.parent_of(name)
        world.add_broker(NodeId(name), NodeId(parent) if parent else None, delta=delta)
    world.run(until=2)
    dead = names[victim % size]
    world.crash(NodeId(dead))
    world.run(until=4.9)

    alive = {name: world.nodes[NodeId(name)].core for name in names if name != dead}
    parents = {}
    for name, core in alive.items():
        assert isinstance(core, BrokerCore)
        assert core.unfinished() == []
        above = core.neighbours.parent
        parents[name] = above.node if above else None
    re_formed = Overlay([Site(name, parent, (name,)) for name, parent in parents.items()])
    for name, core in alive.items():
        assert core.neighbourhood is not None
        known = {(known.child, known.parent) for known in core.neighbourhood}
        assert known == _links_within(re_formed, name, delta + 1)


# --- the seed's two levels of consistency ----------------------------------------------------


@given(
    size=st.integers(1, 8),
    seed=st.integers(0, 1000),
    delta=st.integers(0, 3),
    clients=st.lists(st.integers(0, 7), min_size=1, max_size=4),
)
def test_every_broker_knows_the_way_to_who_asks_or_offers_as_far_as_delta_plus_1(
    size: int, seed: int, delta: int, clients: list[int]
) -> None:
    """Level 1: it knows each final destination within δ + 1. Level 2: or who is δ + 1 nearer to it.

    Joins and operations happen side by side, and some of these are taken back.
    """
    overlay = random_tree(size, seed)
    names = list(overlay.brokers)
    world = World(seed, cores=TodaysCores())
    for name in names:
        parent = overlay.parent_of(name)
        world.add_broker(
            NodeId(name), NodeId(parent) if parent else None, delta=delta, policy="flooding"
        )
    for number, place in enumerate(clients):
        client = world.add_client(NodeId(f"client{number}"), NodeId(names[place % size]))
        world.when_ready(client, partial(_ask_and_offer, world, client))
    world.run(until=4.9)

    cores = [node.core for node in world.nodes.values()]
    brokers = {core.node: core for core in cores if isinstance(core, BrokerCore)}
    for core in brokers.values():
        subscriptions, advertisements = core.interests.subscriptions, core.interests.advertisements
        assert len(subscriptions) == len(advertisements) == len(clients)
        for entry in (*subscriptions, *advertisements):
            # The furthest first; the nearest is the next hop.
            way = _way_to(entry.client, core.node, brokers)
            assert entry.path == tuple(reversed(way[: delta + 1]))


def _ask_and_offer(world: World, client: Node) -> None:
    core = client.core
    assert isinstance(core, ClientCore)
    core.advertise(world.now, "TRUE")
    core.subscribe(world.now, "TRUE")
    subscription, _ = core.subscribe(world.now, "x = 1")
    core.unsubscribe(world.now, subscription)
    world.carry_out_calls(client)


def _way_to(client: NodeId, start: NodeId, brokers: Mapping[NodeId, BrokerCore]) -> list[NodeId]:
    """The hops from a broker to a client, as the tree is."""
    ways = {start: [start]}
    queue = [start]
    for name in queue:
        neighbours = brokers[name].neighbours
        above = [neighbours.parent.node] if neighbours.parent is not None else []
        for other in (*above, *neighbours.below):
            if other not in ways:
                ways[other] = [*ways[name], other]
                queue += [other] if other in brokers else []
    return ways[client][1:]


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
            overlay.client(name, at=broker).advertises("TRUE")
        for name, broker in (("s1", "n2"), ("s4", "n3")):
            overlay.client(name, at=broker).subscribes("TRUE")
        overlay.settle()

        found = {
            name: {entry.path[0] for entry in overlay.broker(name).interests.subscriptions}
            for name in recipients
        }
        assert found == recipients


def test_a_life_that_has_ended_is_not_told_from_the_next_one_by_who_is_behind_the_times() -> None:
    known = Neighbourhood(NodeId("a"), delta=1)
    b = NodeId("b")
    known.bury(Life(b, 1))
    assert known.still_gone([Life(b, 1)]) == [b]

    known.bury(Life(b, 2))
    assert known.still_gone([Life(b, 1)]) == []
    assert known.still_gone([Life(b, 1), Life(b, 2)]) == [b]
