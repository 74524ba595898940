"""What comes out of order, where an overlay says so, and who does not want it."""

import pytest

from plait.broker.effects import Delivery
from plait.broker.net.subscription import Subscription
from plait.routing.ids import NodeId, SubscriptionId


async def _nothing(_: Subscription) -> None:
    """Nobody has to know that it ends."""


def subscription(*, drops_late: bool) -> Subscription:
    return Subscription(
        SubscriptionId("s/1"),
        "topic = 'ibm'",
        is_ordered=True,
        drops_late=drops_late,
        full_at=10,
        on_full=lambda: None,
        on_taken=lambda: None,
        withdraw=_nothing,
    )


def delivery(seq: int, *, in_order: bool) -> Delivery:
    return Delivery(NodeId("p"), 1, seq, {}, b"", seq, (SubscriptionId("s/1"),), in_order)


@pytest.mark.parametrize(("drops_late", "taken"), [(False, [1, 2, 3]), (True, [1, 3])])
async def test_what_is_late_is_delivered_or_dropped(drops_late: bool, taken: list[int]) -> None:
    wanted = subscription(drops_late=drops_late)
    for seq in (1, 2, 3):
        wanted._put(delivery(seq, in_order=seq != 2))

    assert wanted.buffered == len(taken)
    assert [(await anext(wanted)).seq for _ in taken] == taken
