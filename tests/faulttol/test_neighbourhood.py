"""The neighbourhood against the definition: Eq. 1 of the seed, and its Table 1."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core import BrokerCore
from broker.sim.world import World
from faulttol.neighbourhood import Neighbourhood, TopologyLink
from routing.ids import NodeId
from tests.conversation import Conversation
from topologies.builders import random_tree
from topologies.overlay import Overlay


def link(child: str, parent: str, kind: str = "broker") -> TopologyLink:
    return TopologyLink(
        child=NodeId(child), parent=NodeId(parent), kind=kind, incarnation=1, address=child
    )


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
    again = TopologyLink(
        child=NodeId("b"), parent=NodeId("a"), kind="broker", incarnation=2, address="b"
    )
    known.add(again)

    assert list(known) == [again]


@given(size=st.integers(1, 10), seed=st.integers(0, 1000), delta=st.integers(0, 3))
def test_eq_1_every_broker_knows_exactly_the_links_within_delta_plus_1(
    size: int, seed: int, delta: int
) -> None:
    """All brokers are started at once, so that joins happen side by side."""
    overlay = random_tree(size, seed)
    world = World(seed)
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
