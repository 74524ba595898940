"""Finds the publications about whose order subscribers may disagree.

If each publication is linked to the one that some subscriber delivered next, then whatever was
delivered in two orders lies on a cycle; see `faulttol.guarantees.disagreements`. To look for
cycles in ten million links takes no more than a good guess of one order that all subscribers may
have followed:

- Any order will do, and one that is almost right is fast. Every cycle has a link *back*, from a
  later publication to an earlier one. Without links back, there is no cycle.
- If there are any, a cycle keeps to what the links back span. To get from its last publication to
  its first it has to come down, links back are the only way down, and so each publication between
  the two is passed over by one of them. So everything that no link back spans can be left out.

The guess is the order in which publications were first delivered to anyone.
"""

import numpy as np

from plait.faulttol.audit.columns import Numbers, Truths


def links_of(subscribers: Numbers, numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Link each publication to the one that the same subscriber delivered next."""
    is_same = subscribers[:-1] == subscribers[1:]
    return numbers[:-1][is_same], numbers[1:][is_same]


def places_by(first_at: np.ndarray) -> Numbers:
    """Return the place of each publication in the order that is guessed."""
    order = np.argsort(first_at, kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def spanned_by(sources: Numbers, targets: Numbers, count: int) -> Truths:
    """Tell of each place whether links that lead back span it."""
    back = sources > targets
    begun = np.bincount(targets[back], minlength=count)
    ended = np.bincount(sources[back] + 1, minlength=count)[:count]
    return np.cumsum(begun - ended) > 0


def within(sources: Numbers, targets: Numbers, chosen: Truths) -> tuple[Numbers, Numbers]:
    """Return the links between chosen places, each once, however often it is there."""
    is_within = chosen[sources] & chosen[targets]
    links = np.unique(sources[is_within] * len(chosen) + targets[is_within])
    return links // max(len(chosen), 1), links % max(len(chosen), 1)


def on_cycles(sources: Numbers, targets: Numbers, places: Numbers) -> Numbers:
    """Return the publications that lie on or between cycles of links between publications."""
    sources, targets = places[sources], places[targets]
    spanned = spanned_by(sources, targets, len(places))
    if not spanned.any():
        return np.zeros(0, np.int64)
    return at_places(core_of(*within(sources, targets, spanned)), places)


def at_places(chosen: Numbers, places: Numbers) -> Numbers:
    """Return the publications that have these places."""
    return np.argsort(places)[chosen]


def core_of(sources: Numbers, targets: Numbers) -> Numbers:
    """Return the nodes that are left when all that begin or end a path are taken away."""
    nodes, ends = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    sources, targets = ends[: len(sources)], ends[len(sources) :]
    count = len(nodes)
    for _ in range(2):
        order = np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
        starts = np.searchsorted(sources, np.arange(count + 1)).tolist()
        following = targets.tolist()
        incoming = np.bincount(targets, minlength=count).tolist()
        free = [node for node, links in enumerate(incoming) if not links]
        is_left = np.ones(count, np.bool_)
        while free:
            node = free.pop()
            is_left[node] = False
            for target in following[starts[node] : starts[node + 1]]:
                incoming[target] -= 1
                if not incoming[target]:
                    free.append(target)
        # And once more from the other end.
        is_kept = is_left[sources] & is_left[targets]
        sources, targets = targets[is_kept], sources[is_kept]
    return nodes[np.unique(sources)]
