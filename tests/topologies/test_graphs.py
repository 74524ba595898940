import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.topologies.builders import random_tree
from plait.topologies.errors import OverlayError
from plait.topologies.graphs import from_networkx, minimum_spanning_overlay, to_networkx
from plait.topologies.overlay import Overlay, Site


def network(*links: tuple[str, str, float]) -> "nx.Graph[str]":
    graph: nx.Graph[str] = nx.Graph()
    graph.add_weighted_edges_from(links, weight="delay_ms")
    return graph


EARTH = network(
    ("newyork", "london", 35),
    ("london", "frankfurt", 5),
    ("newyork", "frankfurt", 40),
    ("newyork", "tokyo", 80),
    ("frankfurt", "tokyo", 110),
)


def test_sites_standbys_and_clients_survive_the_way_to_networkx_and_back() -> None:
    overlay = Overlay(
        (
            Site("s", None, ("a", "a2"), ("p",), ("q", "r")),
            Site("t", "s", ("b",)),
        )
    )

    assert from_networkx(to_networkx(overlay)) == overlay


@given(st.integers(1, 15), st.integers(0))
def test_any_tree_survives_the_way_to_networkx_and_back(nodes: int, seed: int) -> None:
    overlay = random_tree(nodes, seed)

    assert from_networkx(to_networkx(overlay)) == overlay


@given(st.integers(1, 15), st.integers(0))
def test_distances_are_those_of_networkx(nodes: int, seed: int) -> None:
    overlay = random_tree(nodes, seed)
    graph = to_networkx(overlay).to_undirected()

    assert overlay.distances_from(overlay.brokers[-1]) == (
        nx.single_source_shortest_path_length(graph, overlay.brokers[-1])
    )


def test_a_broker_with_two_parents_is_refused_by_name() -> None:
    diamond: nx.DiGraph[str] = nx.DiGraph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])

    with pytest.raises(OverlayError, match="d: found parents b, c, expected at most one parent"):
        from_networkx(diamond)


def test_a_graph_in_two_parts_is_refused_by_name() -> None:
    with pytest.raises(OverlayError, match="c: found a second root 'c'"):
        from_networkx(nx.DiGraph([("a", "b"), ("c", "d")]))


def test_the_links_of_least_delay_make_the_overlay() -> None:
    overlay = minimum_spanning_overlay(EARTH, {"newyork": 1})

    assert {broker: overlay.parent_of(broker) for broker in overlay.brokers} == {
        "newyork": None,
        "london": "newyork",
        "tokyo": "newyork",
        "frankfurt": "london",
    }


@pytest.mark.parametrize(("city", "share"), [("frankfurt", 9), ("tokyo", 9), ("london", 9)])
def test_the_root_goes_where_the_traffic_is(city: str, share: int) -> None:
    traffic = dict.fromkeys(EARTH, 1) | {city: share}

    assert minimum_spanning_overlay(EARTH, traffic).root == city


def test_without_figures_every_broker_counts_the_same() -> None:
    chain = network(("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "e", 1))

    assert minimum_spanning_overlay(chain).root == "c"


def test_what_a_network_says_of_its_brokers_is_kept() -> None:
    chain = network(("a", "b", 1))
    chain.nodes["b"]["subscribers"] = ("alice",)

    assert minimum_spanning_overlay(chain).subscribers == ("alice",)


def test_a_broker_that_cannot_be_reached_is_named() -> None:
    parts = network(("a", "b", 1), ("c", "d", 1))

    with pytest.raises(OverlayError) as caught:
        minimum_spanning_overlay(parts)

    assert [flaw.node for flaw in caught.value.flaws] == ["c", "d"]


def test_a_network_without_brokers_is_refused() -> None:
    with pytest.raises(OverlayError, match="found no broker"):
        minimum_spanning_overlay(nx.Graph())
