"""Between overlays and networkx, and the overlay that a network of possible links suggests.

The only module here that imports networkx: a broker that reads its configuration should not
wait for a graph library.
"""

from collections.abc import Mapping

import networkx as nx

from plait.topologies.builders import middle_of_traffic, rerooted
from plait.topologies.errors import Flaw, OverlayError, Problem, ScriptError
from plait.topologies.language import lines
from plait.topologies.overlay import Overlay, Site


def to_networkx(overlay: Overlay) -> "nx.DiGraph[str]":
    """Return the tree of brokers: an edge from each to every child, its site on each node."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for site in overlay.sites:
        graph.add_node(
            site.broker,
            site=site.name,
            standbys=site.standbys,
            publishers=site.publishers,
            subscribers=site.subscribers,
        )
        if (parent := overlay.parent_of(site.broker)) is not None:
            graph.add_edge(parent, site.broker)
    return graph


def from_networkx(graph: "nx.DiGraph[str]") -> Overlay:
    """Return the overlay of a graph like that of `to_networkx`; attributes may be left out."""
    if flaws := [
        Flaw(node, f"parents {', '.join(graph.predecessors(node))}", "at most one parent")
        for node in graph
        if graph.in_degree(node) > 1
    ]:
        raise OverlayError(flaws)
    return Overlay(tuple(_site(graph, broker) for broker in graph))


def _site(graph: "nx.DiGraph[str]", broker: str) -> Site:
    parents = [graph.nodes[parent].get("site", parent) for parent in graph.predecessors(broker)]
    about = graph.nodes[broker]
    return Site(
        name=about.get("site", broker),
        parent=parents[0] if parents else None,
        brokers=(broker, *about.get("standbys", ())),
        publishers=tuple(about.get("publishers", ())),
        subscribers=tuple(about.get("subscribers", ())),
    )


def read_network(text: str, file: str) -> "nx.Graph[str]":
    """Return the network in a text whose lines are `A B DELAY`, with the delay in milliseconds."""
    network: nx.Graph[str] = nx.Graph()
    problems: list[Problem] = []
    for line in lines(text, file):
        try:
            at = line.here
            one, other = line.name("broker"), line.name("broker")
            delay = line.measure("milliseconds")
            line.end()
            if one == other:
                raise ScriptError([Problem(at, f"a link from '{one}' to itself", "two brokers")])
        except ScriptError as error:
            problems += error.problems
        else:
            network.add_edge(one, other, delay_ms=delay)
    if problems:
        raise ScriptError(problems)
    return network


def minimum_spanning_overlay(
    network: "nx.Graph[str]", traffic: Mapping[str, float] | None = None, delay: str = "delay_ms"
) -> Overlay:
    """Return the overlay whose links have the least delay in total, rooted amid its traffic.

    `network` has an edge for every link that could be, with its delay as the attribute `delay`.
    Without figures for `traffic`, all brokers are taken to have the same.
    """
    links = nx.minimum_spanning_tree(network, weight=delay)
    tree = nx.bfs_tree(links, _first_of_all(network))
    tree.add_nodes_from(network.nodes(data=True))
    overlay = from_networkx(tree)
    weights = dict.fromkeys(overlay.brokers, 1.0) if traffic is None else traffic
    return rerooted(overlay, middle_of_traffic(overlay, weights))


def _first_of_all(network: "nx.Graph[str]") -> str:
    """Return the first node, provided that there is one and that it reaches all others."""
    first = next(iter(network), None)
    if first is None:
        raise OverlayError([Flaw("network", "no broker", "at least one broker")])
    reached = nx.node_connected_component(network, first)
    if cut_off := [node for node in network if node not in reached]:
        raise OverlayError(
            [Flaw(node, f"no way to '{first}'", "a connected network") for node in cut_off]
        )
    return first
