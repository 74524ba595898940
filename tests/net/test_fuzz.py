"""A short rain of messages that are almost right; `python -m tests.net.fuzz` is the long one."""

from random import Random

import pytest
import trio

from plait.broker.host.link_states import CONDITIONS
from plait.broker.net.client import connect
from plait.routing.ids import NodeId
from tests.net.fuzz import HONEST_ROLES, ROLES, FoundError, Mutator, fuzz, script
from tests.net.overlay import Overlay, open_stream, publisher_and_subscriber, take


@pytest.mark.parametrize("role", ROLES)
def test_no_message_ends_a_broker_or_costs_others_anything(role: str) -> None:
    tally = fuzz(messages=2_500, seed=1, roles=(role,))[role]

    assert tally.messages >= 2_500
    assert tally.refused > 100
    assert tally.hung_up > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_message_of_many_does(seed: int) -> None:
    assert fuzz(messages=20_000, seed=seed)


@pytest.mark.slow
def test_the_rain_finds_what_may_not_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for state in CONDITIONS:
        monkeypatch.setitem(CONDITIONS, state, {})

    with pytest.raises(FoundError):
        fuzz(messages=50_000, seed=0, roles=("state",))


async def test_over_tcp_nobody_is_lost_either(overlay: Overlay) -> None:
    """The same, with sockets: what is not a message of this protocol closes that connection."""
    names = ("b1", "b2", "b3")
    for name, join in zip(names, (None, "b1", "b2"), strict=True):
        await overlay.broker(name, join=join)
    random = Random(3)
    mutator = Mutator(random)
    async with (
        connect(overlay.address("b1"), name="nyse") as nyse,
        connect(overlay.address("b3"), name="alice") as alice,
    ):
        subscription = await publisher_and_subscriber(nyse, alice)
        for number in range(120):
            await nyse.publish({"n": number})
            broker = random.choice(names)
            role = random.choice(HONEST_ROLES)
            async with await open_stream(overlay.address(broker)) as stream:
                for message in script(role, NodeId(broker), number + 1, random):
                    try:
                        await stream.send_all(mutator.frame(message))
                    except (trio.BrokenResourceError, OSError):
                        break
        await nyse.flush()

        assert await take(subscription, 120) == list(range(1, 121))
        assert all(map(overlay.is_running, names))
        assert [(await overlay.status(name))["incarnation"] for name in names] == [1, 1, 1]
