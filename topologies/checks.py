"""Whether sites form a tree with one root and distinct names; and if not, which node breaks it."""

from collections.abc import Iterable, Iterator, Mapping

from plait.topologies.errors import Flaw


def repeated_names(names: Iterable[str], kind: str) -> list[Flaw]:
    """Return a flaw for every name that is taken when it comes up."""
    seen: set[str] = set()
    flaws = []
    for name in names:
        if name in seen:
            flaws.append(Flaw(name, f"a second {kind} '{name}'", f"a {kind} name not yet taken"))
        seen.add(name)
    return flaws


def tree_flaws(parents: Mapping[str, str | None]) -> list[Flaw]:
    """Return what keeps `parents` (child to parent, the root to None) from being one tree.

    No flaws means connected and acyclic with exactly one root. A node that only hangs below a
    flawed one is not blamed.
    """
    return [*root_flaws(parents), *unknown_parents(parents), *circles(parents)]


def root_flaws(parents: Mapping[str, str | None]) -> Iterator[Flaw]:
    """Yield a flaw unless exactly one node is without a parent."""
    roots = [node for node, parent in parents.items() if parent is None]
    if not roots:
        yield Flaw(next(iter(parents), "overlay"), "no root", "exactly one node without a parent")
    for root in roots[1:]:
        yield Flaw(root, f"a second root '{root}'", f"a parent, as '{roots[0]}' is the root")


def unknown_parents(parents: Mapping[str, str | None]) -> Iterator[Flaw]:
    """Yield the nodes whose parent is not there."""
    for node, parent in parents.items():
        if parent is not None and parent not in parents:
            yield Flaw(node, f"unknown parent '{parent}'", "a node of the overlay")


def circles(parents: Mapping[str, str | None]) -> Iterator[Flaw]:
    """Yield one node of every circle, and the way around it."""
    cleared: set[str] = set()
    for start in parents:
        climbed: dict[str, None] = {}
        node: str | None = start
        while node is not None and node in parents and node not in cleared:
            if node in climbed:
                way = list(climbed)
                circle = " -> ".join([*way[way.index(node) :], node])
                yield Flaw(node, f"a circle {circle}", "parents that lead to the root")
                break
            climbed[node] = None
            node = parents[node]
        cleared.update(climbed)
