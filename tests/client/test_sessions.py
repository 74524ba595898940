"""A client joins, publishes, subscribes and leaves, whatever becomes of its connections."""

from broker.client.states import ClientState
from tests.client.world import BROKER, Client, World


def ticker_and_reader(world: World) -> tuple[Client, Client]:
    world.host("one", BROKER)
    ticker, reader = world.client("ticker"), world.client("reader")
    ticker.advertises("TRUE")
    reader.subscribes("TRUE")
    world.settle()
    return ticker, reader


def test_what_is_published_is_delivered_and_confirmed(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1, 2, 3)
    ticker.publishes(4)
    world.settle()

    assert ticker.core.state is ClientState.READY
    assert reader.received == ["ticker:1", "ticker:2", "ticker:3", "ticker:4"]
    assert (ticker.confirmed, ticker.core.unconfirmed, reader.core.kept) == (4, 0, 0)
    assert not ticker.unanswered
    assert not ticker.core.stream.controls
    assert not reader.core.stream.controls
