"""Overlays of well-known shapes. Every broker is alone in a site of its own name: b0, b1, b2 ...

Shapes that start from a weighted network of possible links are in `graphs.py`.
"""

import random
from collections.abc import Iterable, Mapping

import attrs

from plait.topologies.overlay import Overlay, Site


def line(length: int) -> Overlay:
    """Return brokers in a row, the root at one end."""
    return _overlay(range(-1, length - 1))


def star(leaves: int) -> Overlay:
    """Return a root with so many children."""
    return _overlay([-1, *[0] * leaves])


def balanced_tree(fanout: int, height: int) -> Overlay:
    """Return a tree in which every broker above the lowest level has `fanout` children."""
    size = sum(fanout**level for level in range(height + 1))
    return _overlay((number - 1) // fanout for number in range(size))


def filled_tree(nodes: int, fanout: int) -> Overlay:
    """Return so many brokers, each with up to `fanout` children, filled level by level."""
    return _overlay((number - 1) // fanout if number else -1 for number in range(nodes))


def chain_of_cores(cores: int, edges: int) -> Overlay:
    """Return interconnected data centres: a chain of core brokers, each with so many edge brokers.

    The root is the core in the middle of the chain, so that no publication climbs farther than it
    must. Cores come first (b0 is the root), then the edge brokers of b0, of b1, and so on.
    """
    # From the middle outwards, by turns: -1, 0, 0, 1, 2, 3 ... are the parents of b0, b1, b2 ...
    chain = [-1, 0, *range(cores - 2)][:cores]
    return _overlay([*chain, *(core for core in range(cores) for _ in range(edges))])


def random_tree(nodes: int, seed: int) -> Overlay:
    """Return a random recursive tree: each broker joined at any of those before it, all as likely.

    The simulator builds hundreds of these a second, hence no graph library on the way.
    """
    rng = random.Random(seed)
    return _overlay(rng.randrange(number) if number else -1 for number in range(nodes))


def _overlay(parents: Iterable[int]) -> Overlay:
    """Return the overlay in which broker i joined at broker parents[i]; the root has -1."""
    return Overlay(
        tuple(
            Site(f"b{number}", f"b{parent}" if parent >= 0 else None, (f"b{number}",))
            for number, parent in enumerate(parents)
        )
    )


def with_clients(overlay: Overlay, publishers: int, subscribers: int) -> Overlay:
    """Return the overlay with clients p0, p1 ... and s0, s1 ..., by turns at its ends.

    An end is a broker with one neighbour at most; the root may be one, or nothing would ever cross
    a line.
    """
    ends = [broker for broker in overlay.brokers if len(overlay.neighbours_of(broker)) <= 1]
    return Overlay(
        tuple(
            attrs.evolve(
                site,
                publishers=_every(ends, site.broker, "p", publishers),
                subscribers=_every(ends, site.broker, "s", subscribers),
            )
            for site in overlay.sites
        )
    )


def _every(ends: list[str], broker: str, letter: str, count: int) -> tuple[str, ...]:
    if broker not in ends:
        return ()
    return tuple(f"{letter}{n}" for n in range(ends.index(broker), count, len(ends)))


def middle_of_traffic(overlay: Overlay, traffic: Mapping[str, float]) -> str:
    """Return the broker at which a root makes publications climb least in total.

    `traffic` says how much is published and delivered at each broker. In a tree that broker is
    the one with at most half of all traffic beyond any of its links; how long the links are does
    not matter.
    """
    at_or_below = {broker: traffic.get(broker, 0.0) for broker in overlay.brokers}
    for broker in reversed(overlay.brokers):
        if (parent := overlay.parent_of(broker)) is not None:
            at_or_below[parent] += at_or_below[broker]
    half = at_or_below[overlay.root] / 2
    middle = overlay.root
    while heavy := [child for child in overlay.children_of(middle) if at_or_below[child] > half]:
        middle = heavy[0]
    return middle


def rerooted(overlay: Overlay, root: str) -> Overlay:
    """Return the same sites and links, with `root` as the root."""
    parents: dict[str, str | None] = {overlay.site_of(root).name: None}
    for broker in overlay.distances_from(root):
        site = overlay.site_of(broker)
        for neighbour in overlay.neighbours_of(broker):
            parents.setdefault(overlay.site_of(neighbour).name, site.name)
    sites = {site.name: site for site in overlay.sites}
    return Overlay(tuple(attrs.evolve(sites[name], parent=up) for name, up in parents.items()))
