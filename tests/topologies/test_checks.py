import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from plait.topologies.checks import repeated_names, tree_flaws

NODES = "abcdefg"


@given(st.dictionaries(st.sampled_from(NODES), st.sampled_from([*NODES, None])))
def test_a_mapping_without_flaws_is_exactly_an_arborescence(parents: dict[str, str | None]) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(parents)
    graph.add_edges_from((parent, child) for child, parent in parents.items() if parent)
    is_tree = bool(parents) and set(graph) == set(parents) and nx.is_arborescence(graph)

    assert (not tree_flaws(parents)) == is_tree


def test_every_circle_is_named_once_and_nothing_that_hangs_below_it() -> None:
    parents = {"r": None, "a": "b", "b": "a", "c": "c", "below": "a"}

    assert [(flaw.node, flaw.found) for flaw in tree_flaws(parents)] == [
        ("a", "a circle a -> b -> a"),
        ("c", "a circle c -> c"),
    ]


def test_a_name_is_blamed_each_time_it_comes_again() -> None:
    assert [flaw.node for flaw in repeated_names("abacca", "site")] == ["a", "c", "a"]
