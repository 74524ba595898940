import attrs
import pytest

from plait.topologies.builders import random_tree
from plait.topologies.errors import OverlayError
from plait.topologies.overlay import Overlay, Site, parents_first

# New York is the root, with a standby; London and Tokyo below it, and Zurich below London.
NEWYORK = Site("newyork", None, ("ny1", "ny2"), ("nyse",), ("dave",))
LONDON = Site("london", "newyork", ("lon",), ("lse",))
TOKYO = Site("tokyo", "newyork", ("tok",))
ZURICH = Site("zurich", "london", ("zur",), (), ("alice", "bob"))
WORLD = Overlay((NEWYORK, LONDON, TOKYO, ZURICH))


def test_the_brokers_of_the_tree_are_the_first_ones_of_their_sites() -> None:
    assert WORLD.brokers == ("ny1", "lon", "tok", "zur")
    assert WORLD.standbys == ("ny2",)
    assert WORLD.root == "ny1"


def test_brokers_know_their_parents_children_and_neighbours() -> None:
    assert [WORLD.parent_of(broker) for broker in WORLD.brokers] == [None, "ny1", "ny1", "lon"]
    assert WORLD.children_of("ny1") == ("lon", "tok")
    assert WORLD.neighbours_of("ny1") == ("lon", "tok")
    assert WORLD.neighbours_of("lon") == ("ny1", "zur")


def test_clients_and_standbys_belong_to_the_broker_in_charge_of_their_site() -> None:
    assert WORLD.publishers == ("nyse", "lse")
    assert WORLD.subscribers == ("dave", "alice", "bob")
    assert WORLD.broker_of("bob") == "zur"
    assert WORLD.broker_of("ny2") == "ny1"
    assert WORLD.site_of("ny2") == NEWYORK
    assert WORLD.processes == (
        *("ny1", "ny2", "nyse", "dave"),
        *("lon", "lse"),
        "tok",
        *("zur", "alice", "bob"),
    )


def test_standbys_join_at_the_broker_of_their_site_and_line_up_behind_it() -> None:
    assert WORLD.broker_processes == ("ny1", "ny2", "lon", "tok", "zur")
    assert [WORLD.join_point_of(name) for name in WORLD.broker_processes] == [
        *(None, "ny1"),
        *("ny1", "ny1", "lon"),
    ]
    assert [WORLD.rank_of(name) for name in WORLD.broker_processes] == [0, 1, 0, 0, 0]


def test_distances_count_links_nearest_broker_first() -> None:
    assert list(WORLD.distances_from("zur").items()) == [
        ("zur", 0),
        ("lon", 1),
        ("ny1", 2),
        ("tok", 3),
    ]
    assert WORLD.distance("tok", "lon") == 2


def test_an_order_with_parents_first_is_kept() -> None:
    sites = random_tree(20, seed=3).sites

    assert parents_first(sites) == sites


def test_parents_that_come_late_move_in_front_of_their_children() -> None:
    assert Overlay((ZURICH, TOKYO, LONDON, NEWYORK)).sites == (NEWYORK, LONDON, ZURICH, TOKYO)


@pytest.mark.parametrize(
    ("sites", "flaw"),
    [
        ((), "overlay: found no root, expected exactly one node without a parent"),
        (
            (NEWYORK, attrs.evolve(TOKYO, parent="paris")),
            "tokyo: found unknown parent 'paris', expected a node of the overlay",
        ),
        (
            (NEWYORK, attrs.evolve(TOKYO, parent=None)),
            "tokyo: found a second root 'tokyo', expected a parent, as 'newyork' is the root",
        ),
        (
            (NEWYORK, TOKYO, attrs.evolve(LONDON, parent="zurich"), ZURICH),
            "london: found a circle london -> zurich -> london, "
            "expected parents that lead to the root",
        ),
        (
            (NEWYORK, TOKYO, attrs.evolve(TOKYO, brokers=("tok2",))),
            "tokyo: found a second site 'tokyo', expected a site name not yet taken",
        ),
        (
            (NEWYORK, attrs.evolve(TOKYO, brokers=("nyse",))),
            "nyse: found a second process 'nyse', expected a process name not yet taken",
        ),
        (
            (NEWYORK, attrs.evolve(TOKYO, brokers=())),
            "tokyo: found no broker, expected at least one broker in every site",
        ),
    ],
    ids=["empty", "parent", "roots", "circle", "site name", "process name", "no broker"],
)
def test_an_overlay_that_is_no_tree_cannot_exist(sites: tuple[Site, ...], flaw: str) -> None:
    with pytest.raises(OverlayError) as caught:
        Overlay(sites)

    assert str(caught.value) == flaw


def test_all_flaws_are_named_at_once() -> None:
    with pytest.raises(OverlayError) as caught:
        Overlay((NEWYORK, attrs.evolve(TOKYO, parent="paris"), attrs.evolve(LONDON, brokers=())))

    assert [flaw.node for flaw in caught.value.flaws] == ["tokyo", "london"]
