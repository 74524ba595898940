"""When a client's detectors begin, and begin anew, and what they are given."""

from plait.routing.ids import SubscriptionId
from plait.routing.patterns.detection import Detection
from tests.client.test_sessions import given_up
from tests.client.world import BROKER, Client, World

PAIR = Detection.of("A -> B", {"A": "x < 10", "B": "x >= 10"}, policy="contiguous")


def ticker_and_watcher(world: World) -> tuple[Client, Client, SubscriptionId]:
    world.host("one", BROKER)
    ticker, watcher = world.client("ticker"), world.client("watcher")
    ticker.advertises("TRUE")
    name, operation = watcher.core.detect(world.now, PAIR)
    watcher.asks(operation)
    return ticker, watcher, name


def found(watcher: Client, name: SubscriptionId) -> list[tuple[int, ...]]:
    return [tuple(event.seq for event in match.events) for match in watcher.found[name]]


def test_a_detector_begins_when_it_is_confirmed(world: World) -> None:
    ticker, watcher, name = ticker_and_watcher(world)
    assert not watcher.found

    world.settle()
    ticker.publishes(1, 10)
    world.settle()

    assert found(watcher, name) == [(1, 2)]
    kinds = [kind for kind, _ in watcher.records]
    assert kinds == ["subscribed", "detecting"]
    assert watcher.recorded("detecting") == [
        {"client": "watcher", "detector": name, **PAIR.fields()}
    ]


def test_what_has_no_place_in_the_order_is_no_part_of_a_match(world: World) -> None:
    ticker, watcher, name = ticker_and_watcher(world)
    world.settle()
    for value, ordered in ((1, True), (2, False), (10, True)):
        ticker.core.publish(world.now, {"x": value}, ordered=ordered)
    ticker.carry_out()
    world.settle()

    assert watcher.received == ["ticker:1", "ticker:2", "ticker:3"]
    assert found(watcher, name) == [(1, 3)]


def test_who_has_lost_its_session_begins_anew(world: World) -> None:
    ticker, watcher, name = ticker_and_watcher(world)
    world.settle()
    ticker.publishes(1)
    world.settle()
    given_up(world, watcher)
    world.settle()
    ticker.publishes(10, 2, 11)
    world.settle()

    assert found(watcher, name) == [(3, 4)]
    assert len(watcher.recorded("detecting")) == 2


def test_after_its_end_nothing_is_found(world: World) -> None:
    ticker, watcher, name = ticker_and_watcher(world)
    world.settle()
    watcher.unsubscribes(name)
    ticker.publishes(1, 10)
    world.settle()

    assert watcher.found == {name: []}
    assert not watcher.core.detecting
