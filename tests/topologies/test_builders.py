import random
import subprocess
import sys

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.topologies.builders import (
    balanced_tree,
    chain_of_cores,
    filled_tree,
    line,
    middle_of_traffic,
    random_tree,
    rerooted,
    star,
    with_clients,
)
from plait.topologies.errors import OverlayError
from plait.topologies.graphs import to_networkx
from plait.topologies.overlay import Overlay


def parents(overlay: Overlay) -> str:
    return " ".join(f"{broker}<{overlay.parent_of(broker) or ''}" for broker in overlay.brokers)


def test_a_line_has_its_root_at_one_end() -> None:
    assert parents(line(4)) == "b0< b1<b0 b2<b1 b3<b2"


def test_a_star_has_its_root_in_the_centre() -> None:
    assert parents(star(3)) == "b0< b1<b0 b2<b0 b3<b0"


def test_a_balanced_tree_is_filled_level_by_level() -> None:
    assert parents(balanced_tree(2, 2)) == "b0< b1<b0 b2<b0 b3<b1 b4<b1 b5<b2 b6<b2"
    assert parents(balanced_tree(1, 2)) == "b0< b1<b0 b2<b1"
    assert parents(balanced_tree(3, 0)) == "b0<"


def test_a_filled_tree_has_any_number_of_brokers() -> None:
    assert parents(filled_tree(7, 2)) == parents(balanced_tree(2, 2))
    assert parents(filled_tree(5, 3)) == "b0< b1<b0 b2<b0 b3<b0 b4<b1"
    assert parents(filled_tree(1, 3)) == "b0<"


def test_a_chain_of_cores_has_its_root_in_the_middle_and_edges_at_every_core() -> None:
    #   b4 - b2 - b0 - b1 - b3, each with one edge broker
    assert parents(chain_of_cores(5, 1)) == (
        "b0< b1<b0 b2<b0 b3<b1 b4<b2 b5<b0 b6<b1 b7<b2 b8<b3 b9<b4"
    )
    assert parents(chain_of_cores(1, 2)) == "b0< b1<b0 b2<b0"


@pytest.mark.parametrize("nodes", [1, 2, 7, 50])
def test_a_random_tree_has_the_size_asked_for(nodes: int) -> None:
    overlay = random_tree(nodes, seed=1)

    assert len(overlay.brokers) == nodes
    assert nx.is_arborescence(to_networkx(overlay))


def test_a_random_tree_is_repeated_by_its_seed() -> None:
    trees = [parents(random_tree(7, seed)) for seed in range(30)]

    assert [parents(random_tree(7, seed)) for seed in range(30)] == trees
    assert len(set(trees)) > 25


def test_a_tree_without_brokers_is_refused() -> None:
    with pytest.raises(OverlayError, match="found no root"):
        random_tree(0, seed=1)


def test_neither_the_simulator_nor_a_broker_waits_for_a_graph_library() -> None:
    program = (
        "import sys, topologies.builders, topologies.reading; print('networkx' in sys.modules)"
    )

    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


@given(st.integers(1, 12), st.integers(0), st.integers(0))
def test_the_middle_of_traffic_is_where_publications_climb_least(
    nodes: int, tree_seed: int, traffic_seed: int
) -> None:
    overlay = random_tree(nodes, tree_seed)
    rng = random.Random(traffic_seed)
    traffic = {broker: rng.randrange(4) for broker in overlay.brokers}

    def cost(root: str) -> int:
        distances = overlay.distances_from(root)
        return sum(distances[broker] * traffic[broker] for broker in traffic)

    middle = middle_of_traffic(overlay, traffic)

    assert cost(middle) == min(map(cost, overlay.brokers))


def test_the_root_stays_where_it_is_as_long_as_it_is_in_the_middle() -> None:
    assert middle_of_traffic(line(2), {"b0": 1, "b1": 1}) == "b0"
    assert middle_of_traffic(line(3), {}) == "b0"


@given(st.integers(1, 12), st.integers(0), st.data())
def test_another_root_keeps_the_links(nodes: int, seed: int, data: st.DataObject) -> None:
    overlay = random_tree(nodes, seed)
    root = data.draw(st.sampled_from(overlay.brokers))
    turned = rerooted(overlay, root)

    assert turned.root == root
    assert {b: set(turned.neighbours_of(b)) for b in turned.brokers} == {
        b: set(overlay.neighbours_of(b)) for b in overlay.brokers
    }


@pytest.mark.parametrize(
    ("overlay", "homes"),
    [
        (line(50), {"b0": ["p0", "s0", "s2"], "b49": ["p1", "s1"]}),
        (line(1), {"b0": ["p0", "p1", "s0", "s1", "s2"]}),
        (star(2), {"b1": ["p0", "s0", "s2"], "b2": ["p1", "s1"]}),
        (balanced_tree(2, 1), {"b1": ["p0", "s0", "s2"], "b2": ["p1", "s1"]}),
    ],
)
def test_clients_are_at_all_ends(overlay: Overlay, homes: dict[str, list[str]]) -> None:
    sites = with_clients(overlay, 2, 3).sites

    assert {
        site.broker: [*site.publishers, *site.subscribers]
        for site in sites
        if site.publishers or site.subscribers
    } == homes
