"""Every run of small systems: the orderings that promise pairwise order keep it in all of them."""

import pytest

from broker.messages import Message
from broker.neighbours import Neighbour
from broker.publications import Publications
from broker.sim import exploration
from broker.sim.exploration import Client, System, advertise, explore, publish, subscribe
from broker.sim.exploration import unsubscribe as give_up
from broker.sim.small_systems import (
    EVERYTHING,
    FORK,
    LINE,
    PAIR,
    TWO_OF_THREE,
    Tree,
    Wish,
    every_placement,
    survey,
)
from routing.conflicts import DETECTIONS, EXACT, FAST, Conflicts

KEEPS_ORDER = pytest.mark.parametrize("ordering", ["pairwise", "sequencer"])
EVERY_WAY_TO_KEEP_IT = pytest.mark.parametrize(
    ("ordering", "detection"), [("pairwise", FAST), ("pairwise", EXACT), ("sequencer", FAST)]
)
DETECTION = pytest.mark.parametrize("detection", DETECTIONS)
TREES = pytest.mark.parametrize("tree", [PAIR, LINE, FORK], ids=["pair", "line", "fork"])


def publisher(name: str, at: str, topic: str, *, count: int = 1) -> Client:
    return Client(name, at, (advertise(f"topic = '{topic}'"),), (publish(topic=topic),) * count)


def subscriber(name: str, at: str, *filters: str) -> Client:
    return Client(name, at, tuple(map(subscribe, filters)))


TWO_THAT_RACE = System(
    PAIR,
    (
        publisher("p", "b", "p"),
        publisher("q", "a", "q"),
        subscriber("s", "a", "TRUE"),
        subscriber("t", "b", "TRUE"),
    ),
)


def test_fifo_fails_and_the_shortest_run_shows_how() -> None:
    found = explore(TWO_THAT_RACE, "fifo")

    [failure] = found.failures
    assert str(failure).splitlines() == [
        "s delivers q:1 before p:1, t the other way round",
        "  p publishes {'topic': 'p'}",
        "  q publishes {'topic': 'q'}",
        "  p -> b: Publish p:1 {'topic': 'p'}",
        "  b -> t: Publish p:1 {'topic': 'p'}",
        "  t delivers p:1",
        "  q -> a: Publish q:1 {'topic': 'q'}",
        "  a -> s: Publish q:1 {'topic': 'q'}",
        "  s delivers q:1",
        "  b -> a: Publish p:1 {'topic': 'p'}",
        "  a -> s: Publish p:1 {'topic': 'p'}",
        "  s delivers p:1",
        "  a -> b: Publish q:1 {'topic': 'q'}",
        "  b -> t: Publish q:1 {'topic': 'q'}",
        "  t delivers q:1",
    ]


@TREES
@EVERY_WAY_TO_KEEP_IT
@pytest.mark.parametrize("publications", [(1, 1), (2, 1)])
def test_no_run_fails_wherever_everybody_is(
    ordering: str, detection: str, tree: Tree, publications: tuple[int, ...]
) -> None:
    systems = every_placement(tree, publications=publications, subscribers=2, wishes=EVERYTHING)
    found = survey(systems, ordering, detection=detection)

    assert found.first_failure is None
    assert found.systems == {2: 12, 3: 54}[len(tree)]
    assert found.runs > 40


@TREES
def test_the_same_search_finds_fifo_wanting(tree: Tree) -> None:
    systems = every_placement(tree, publications=(1, 1), subscribers=2, wishes=EVERYTHING)

    assert survey(systems, "fifo").failing_systems > 0


@KEEPS_ORDER
@pytest.mark.parametrize("tree", [LINE, FORK], ids=["line", "fork"])
def test_four_publications_of_two_publishers(ordering: str, tree: Tree) -> None:
    clients = (
        publisher("p", "c", "p", count=2),
        publisher("q", "a", "q", count=2),
        subscriber("s", "a", "TRUE"),
        subscriber("t", "c", "TRUE"),
    )
    found = explore(System(tree, clients), ordering)

    assert found.failures == ()
    assert found.states > 3000
    assert found.runs > 300_000


WISHES_OF_ONE_FILTER = tuple(wish for wish in TWO_OF_THREE if len(wish) == 1)


@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param(WISHES_OF_ONE_FILTER, id="one filter each"),
        pytest.param(TWO_OF_THREE, id="two filters for some", marks=pytest.mark.slow),
    ],
)
@DETECTION
def test_three_publishers_and_what_only_some_want(wishes: tuple[Wish, ...], detection: str) -> None:
    systems = every_placement(PAIR, publications=(1, 1, 1), subscribers=2, wishes=wishes)

    assert survey(systems, "pairwise", detection=detection).first_failure is None


# Places from the root


@pytest.mark.parametrize(
    ("tree", "publications"), [(PAIR, (1, 1)), (PAIR, (2, 1)), (FORK, (1, 1))], ids=str
)
def test_places_for_each_subscriber_keep_the_order(
    tree: Tree, publications: tuple[int, ...]
) -> None:
    systems = every_placement(tree, publications=publications, subscribers=2, wishes=EVERYTHING)

    assert survey(systems, "sequencer-filtered").first_failure is None


def test_no_place_is_lost_when_a_subscription_is_given_up_and_another_follows() -> None:
    clients = (
        publisher("p", "b", "p"),
        publisher("q", "a", "q"),
        Client("t", "a", (subscribe("TRUE"),), (give_up("t/2"), subscribe("TRUE"))),
    )

    assert explore(System(PAIR, clients), "sequencer-filtered").failures == ()


# The algorithm as published

PUBLISHED = pytest.mark.parametrize(
    "ordering", ["published", "published-progressive", "published-whole-queue"]
)


@TREES
@PUBLISHED
def test_as_published_no_two_publications_go_wrong(ordering: str, tree: Tree) -> None:
    systems = every_placement(tree, publications=(1, 1), subscribers=2, wishes=EVERYTHING)

    assert survey(systems, ordering).first_failure is None


@PUBLISHED
def test_as_published_three_go_wrong_and_nothing_is_left_held(ordering: str) -> None:
    systems = every_placement(PAIR, publications=(1, 2), subscribers=2, wishes=EVERYTHING)
    explored = [explore(system, ordering) for system in systems]
    failures = [failure.text for found in explored for failure in found.failures]

    assert sum(not found.is_clean for found in explored) == 2
    assert all("the other way round" in text for text in failures)


@pytest.mark.parametrize(
    ("ordering", "failing"),
    [("published", 0), ("published-progressive", 0), ("published-whole-queue", 2)],
)
def test_only_the_whole_queue_goes_wrong_if_the_first_in_order_publishes_twice(
    ordering: str, failing: int
) -> None:
    systems = every_placement(PAIR, publications=(2, 1), subscribers=2, wishes=EVERYTHING)

    assert survey(systems, ordering).failing_systems == failing


def test_a_shortest_run_that_goes_wrong_as_published() -> None:
    clients = (
        publisher("p", "a", "p"),
        publisher("q", "b", "q", count=2),
        subscriber("s", "a", "TRUE"),
        subscriber("t", "b", "TRUE"),
    )
    [failure] = explore(System(PAIR, clients), "published").failures

    assert str(failure).splitlines() == [
        "s delivers p:1 before q:1, t the other way round",
        "  p publishes {'topic': 'p'}",
        "  q publishes {'topic': 'q'}",
        "  q publishes {'topic': 'q'}",
        "  p -> a: Publish p:1 {'topic': 'p'}",
        "  q -> b: Publish q:1 {'topic': 'q'}",
        "  b -> a: Publish q:1 {'topic': 'q'}",
        "  q -> b: Publish q:2 {'topic': 'q'}",
        "  b -> a: Publish q:2 {'topic': 'q'}",
        "  a -> b: Publish p:1 {'topic': 'p'}",
        "  b -> a: Acknowledge publisher=p incarnation=1 seq=1",
        "  a -> s: Publish p:1 {'topic': 'p'}",
        "  s delivers p:1",
        "  a -> s: Publish q:1 {'topic': 'q'}",
        "  s delivers q:1",
        "  a -> s: Publish q:2 {'topic': 'q'}",
        "  s delivers q:2",
        "  a -> b: Acknowledge publisher=q incarnation=1 seq=1",
        "  b -> t: Publish q:1 {'topic': 'q'}",
        "  t delivers q:1",
        "  a -> b: Acknowledge publisher=q incarnation=1 seq=2",
        "  b -> t: Publish p:1 {'topic': 'p'}",
        "  t delivers p:1",
    ]


@PUBLISHED
def test_as_published_two_subscriptions_of_one_subscriber_go_wrong(ordering: str) -> None:
    """What conflicts is decided subscription by subscription, and t has one for each publisher."""
    clients = (
        publisher("p", "a", "p"),
        publisher("q", "b", "q"),
        subscriber("s", "a", "TRUE"),
        subscriber("t", "b", "topic = 'p'", "topic = 'q'"),
    )

    assert not explore(System(PAIR, clients), ordering).is_clean
    assert explore(System(PAIR, clients), "pairwise").is_clean


# Operations that race with publications


@EVERY_WAY_TO_KEEP_IT
def test_a_subscription_that_races_with_publications(ordering: str, detection: str) -> None:
    clients = (
        publisher("p", "c", "p", count=2),
        publisher("q", "a", "q"),
        subscriber("s", "a", "TRUE"),
        Client("t", "c", calls=(subscribe("TRUE"),)),
    )

    assert explore(System(LINE, clients), ordering, detection=detection).failures == ()


@DETECTION
@pytest.mark.parametrize("first", ["topic = 'p'", "topic = 'q'"])
@pytest.mark.parametrize("far", ["a", "c"])
def test_a_second_subscription_of_one_who_has_one(detection: str, first: str, far: str) -> None:
    """What counts is the subscriber: its second subscription meets what its first one wanted."""
    near = "c" if far == "a" else "a"
    second = "topic = 'q'" if first == "topic = 'p'" else "topic = 'p'"
    clients = (
        publisher("p", "c", "p"),
        publisher("q", "a", "q"),
        subscriber("s", near, "TRUE"),
        Client("t", far, (subscribe(first),), (subscribe(second),)),
    )

    assert explore(System(LINE, clients), "pairwise", detection=detection).failures == ()


@KEEPS_ORDER
def test_a_subscription_that_is_given_up_and_another_that_follows(ordering: str) -> None:
    clients = (
        publisher("p", "a", "p"),
        publisher("q", "c", "q"),
        subscriber("s", "a", "TRUE"),
        Client("t", "c", (subscribe("TRUE"),), (give_up("t/2"), subscribe("TRUE"))),
    )

    assert explore(System(FORK, clients), ordering).failures == ()


# What goes wrong is found


def test_without_the_wait_the_search_finds_what_goes_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Conflicts, "is_conflict", lambda *arguments, **settings: False)

    assert not explore(TWO_THAT_RACE, "pairwise").is_clean


def test_a_confirmation_that_overtakes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is described in `tests/broker/test_pairwise_order.py`; here it is searched."""
    asked_by_both = "topic IN ('free', 'q')"
    system = System(
        {"g": None, "b": "g", "h": "b", "e": "b"},
        (
            Client(
                "p",
                "h",
                (advertise("topic IN ('held', 'free')"),),
                (publish(topic="held"), publish(topic="free")),
            ),
            publisher("q", "g", "q"),
            Client("r", "g", (advertise("topic = 'held'"),)),
            Client(
                "w",
                "g",
                (subscribe("topic = 'held'"), subscribe("topic = 'free'", ordered=False)),
            ),
            subscriber("v", "b", "topic = 'held'"),
            subscriber("u", "h", asked_by_both),
            Client("t", "e", calls=(subscribe(asked_by_both),)),
        ),
    )
    assert explore(system, "pairwise").is_clean

    def at_once(self: Publications, neighbour: Neighbour, message: Message) -> None:
        assert neighbour.link is not None
        self._outbox.send(neighbour.link, message)

    monkeypatch.setattr(Publications, "send_in_turn", at_once)

    assert not explore(system, "pairwise").is_clean


def test_a_publication_that_is_never_released_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publications, "tell_settled", lambda self, arrival: None)
    texts = [failure.text for failure in explore(TWO_THAT_RACE, "pairwise").failures]

    assert any(text.startswith("loss: t never delivered p#1") for text in texts)
    assert any("publications unstable" in text for text in texts)


# The search itself


def test_steps_taken_at_once_cost_no_end_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = (
        publisher("p", "b", "p", count=2),
        publisher("q", "a", "q"),
        subscriber("s", "a", "TRUE"),
        Client("t", "b", calls=(subscribe("TRUE"),)),
    )
    system = System(PAIR, clients)
    few = explore(system, "pairwise")
    monkeypatch.setattr(
        exploration._Explorer,
        "_choices",
        lambda self, queues: [number for number, queue in enumerate(queues) if queue],
    )
    many = explore(system, "pairwise")

    assert many.endings == few.endings
    assert many.states > 2 * few.states
    assert many.is_clean
