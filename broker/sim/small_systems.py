"""Families of small systems, each to be explored to the last run (`broker/sim/exploration.py`)."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from broker.sim.exploration import (
    Client,
    Exploration,
    Failure,
    System,
    advertise,
    explore,
    publish,
    subscribe,
)
from routing.conflicts import FAST

Tree = Mapping[str, str | None]
Wish = tuple[str, ...]
"""The filters of one subscriber: a subscription each."""

PAIR: Final[Tree] = {"a": None, "b": "a"}
LINE: Final[Tree] = {"a": None, "b": "a", "c": "b"}
"""Three in a row, with the root at one end."""
FORK: Final[Tree] = {"b": None, "a": "b", "c": "b"}
"""Three in a row, with the root in the middle."""

EVERYTHING: Final[Sequence[Wish]] = (("TRUE",),)
"""What subscribers want if every publication is to conflict with every other."""
TWO_OF_THREE: Final[Sequence[Wish]] = (("x < 2",), ("x > 0",), ("x = 0", "x = 2"), ("TRUE",))
"""What they want if it takes two of them to conflict about something: see `every_placement`."""


def every_placement(
    tree: Tree, *, publications: Sequence[int], subscribers: int, wishes: Sequence[Wish]
) -> Iterator[System]:
    """Put so many publishers and subscribers at the brokers, in every way.

    Publisher 0 advertises `x = 0` and publishes within that, publisher 1 likewise, and so on;
    `publications` says how many each publishes. Every subscriber has one of the wishes.
    """
    seats = list(itertools.product(tree, wishes))
    for brokers in itertools.product(tree, repeat=len(publications)):
        for taken in itertools.combinations_with_replacement(seats, subscribers):
            publishing = [
                Client(
                    name=f"p{number}",
                    at=at,
                    before=(advertise(f"x = {number}"),),
                    calls=(publish(x=number),) * count,
                )
                for number, (at, count) in enumerate(zip(brokers, publications, strict=True))
            ]
            subscribing = [
                Client(name=f"s{number}", at=at, before=tuple(map(subscribe, wish)))
                for number, (at, wish) in enumerate(taken)
            ]
            yield System(tree, publishing + subscribing)


@attrs.frozen(kw_only=True)
class Survey:
    """Many explorations, summed up."""

    ordering: str
    systems: int
    states: int
    runs: int
    failing_systems: int
    first_failure: Failure | None
    """In the first system that has any."""


def survey(systems: Iterable[System], ordering: str, *, detection: str = FAST) -> Survey:
    """Explore each of these systems."""
    found: list[Exploration] = [
        explore(system, ordering, detection=detection) for system in systems
    ]
    failing = [exploration for exploration in found if not exploration.is_clean]
    return Survey(
        ordering=ordering,
        systems=len(found),
        states=sum(exploration.states for exploration in found),
        runs=sum(exploration.runs for exploration in found),
        failing_systems=len(failing),
        first_failure=failing[0].failures[0] if failing else None,
    )
