"""The overlay: sites in a tree, each with a broker, its standbys and its clients.

The brokers of the tree are the first brokers of the sites; a link joins a site's broker with its
parent's. Further brokers of a site are *standbys*: they take over when the first one fails.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import attrs

from plait.topologies.checks import repeated_names, tree_flaws
from plait.topologies.errors import Flaw, OverlayError


@attrs.frozen
class Site:
    """One place: the broker in charge comes first in `brokers`, its standbys after it."""

    name: str
    parent: str | None
    brokers: tuple[str, ...]
    publishers: tuple[str, ...] = ()
    subscribers: tuple[str, ...] = ()

    @property
    def broker(self) -> str:
        """The broker that clients and neighbouring sites connect to."""
        return self.brokers[0]

    @property
    def standbys(self) -> tuple[str, ...]:
        """The brokers that take over, in this order."""
        return self.brokers[1:]

    @property
    def clients(self) -> tuple[str, ...]:
        """Publishers, then subscribers."""
        return self.publishers + self.subscribers

    @property
    def processes(self) -> tuple[str, ...]:
        """Everything that runs here."""
        return self.brokers + self.clients


def parents_first(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Return the same sites, each after its parent; raise OverlayError if they are not a tree.

    An order that is fine already is kept. Otherwise parents move forward, to just before the
    first site that needs them.
    """
    given = tuple(sites)
    if flaws := list(_flaws(given)):
        raise OverlayError(flaws)
    by_name = {site.name: site for site in given}
    placed: dict[str, Site] = {}
    for site in given:
        climb = [site]
        while (parent := climb[-1].parent) is not None and parent not in placed:
            climb.append(by_name[parent])
        placed.update((above.name, above) for above in reversed(climb))
    return tuple(placed.values())


def _flaws(sites: tuple[Site, ...]) -> Iterator[Flaw]:
    yield from repeated_names((site.name for site in sites), "site")
    yield from repeated_names((name for site in sites for name in site.processes), "process")
    yield from tree_flaws({site.name: site.parent for site in sites})
    for site in sites:
        if not site.brokers:
            yield Flaw(site.name, "no broker", "at least one broker in every site")


@attrs.frozen
class Overlay:
    """A tree of sites, parents before children; an overlay that is no tree cannot exist."""

    sites: tuple[Site, ...] = attrs.field(converter=parents_first)

    @cached_property
    def brokers(self) -> tuple[str, ...]:
        """The broker in charge of each site: the nodes of the tree, parents first."""
        return tuple(site.broker for site in self.sites)

    @property
    def root(self) -> str:
        """The broker without a parent."""
        return self.sites[0].broker

    @cached_property
    def standbys(self) -> tuple[str, ...]:
        """Every standby, in the order of the sites."""
        return tuple(standby for site in self.sites for standby in site.standbys)

    @cached_property
    def broker_processes(self) -> tuple[str, ...]:
        """Every broker, each followed by its standbys, parents first."""
        return tuple(broker for site in self.sites for broker in site.brokers)

    @cached_property
    def publishers(self) -> tuple[str, ...]:
        """Every publisher, in the order of the sites."""
        return tuple(publisher for site in self.sites for publisher in site.publishers)

    @cached_property
    def subscribers(self) -> tuple[str, ...]:
        """Every subscriber, in the order of the sites."""
        return tuple(subscriber for site in self.sites for subscriber in site.subscribers)

    @cached_property
    def processes(self) -> tuple[str, ...]:
        """Every broker, standby and client, site by site."""
        return tuple(process for site in self.sites for process in site.processes)

    @cached_property
    def _parents(self) -> Mapping[str, str | None]:
        broker_of_site: dict[str | None, str | None] = {None: None}
        broker_of_site.update((site.name, site.broker) for site in self.sites)
        return {site.broker: broker_of_site[site.parent] for site in self.sites}

    @cached_property
    def _children(self) -> Mapping[str, tuple[str, ...]]:
        children: dict[str, tuple[str, ...]] = dict.fromkeys(self.brokers, ())
        for broker, parent in self._parents.items():
            if parent is not None:
                children[parent] += (broker,)
        return children

    @cached_property
    def _sites_by_process(self) -> Mapping[str, Site]:
        return {process: site for site in self.sites for process in site.processes}

    def parent_of(self, broker: str) -> str | None:
        """Return the broker that `broker` joined at; None for the root."""
        return self._parents[broker]

    def join_point_of(self, process: str) -> str | None:
        """Return where a broker or a standby joins; None for the root."""
        site = self.site_of(process)
        return self._parents[process] if process == site.broker else site.broker

    def rank_of(self, process: str) -> int:
        """Return when a standby takes over: 1 is the first to; 0 is the broker in charge."""
        return self.site_of(process).brokers.index(process)

    def children_of(self, broker: str) -> tuple[str, ...]:
        """Return the brokers that joined at `broker`."""
        return self._children[broker]

    def neighbours_of(self, broker: str) -> tuple[str, ...]:
        """Return the brokers one link away, the parent first."""
        parent = self._parents[broker]
        return self._children[broker] if parent is None else (parent, *self._children[broker])

    def site_of(self, process: str) -> Site:
        """Return the site where a broker, standby or client runs."""
        return self._sites_by_process[process]

    def broker_of(self, process: str) -> str:
        """Return the broker in charge where `process` runs: the one its clients connect to."""
        return self._sites_by_process[process].broker

    def distances_from(self, broker: str) -> dict[str, int]:
        """Return how many links away every broker is, nearest first."""
        distances = {broker: 0}
        waiting = deque([broker])
        while waiting:
            here = waiting.popleft()
            for neighbour in self.neighbours_of(here):
                if neighbour not in distances:
                    distances[neighbour] = distances[here] + 1
                    waiting.append(neighbour)
        return distances

    def distance(self, one: str, other: str) -> int:
        """Return the number of links between two brokers."""
        return self.distances_from(one)[other]
