"""What order among topics costs, beside pairwise order: nothing, in time and in messages.

The whole table: `python -m tests.machine.timed`.
"""

import pytest

from tests.machine.overlay import disagreements
from tests.machine.timed import WORKLOADS, cost_of


@pytest.mark.parametrize("name", WORKLOADS)
def test_order_among_topics_costs_what_pairwise_order_costs(name: str) -> None:
    pairwise, tno = (cost_of(each, WORKLOADS[name], clients=30) for each in ("pairwise", "tno"))

    assert tno.delay_ms <= 1.02 * pairwise.delay_ms
    assert tno.messages <= 1.02 * pairwise.messages
    assert disagreements(tno.delivered) == []


def test_without_order_subscribers_disagree() -> None:
    """So there is something to order."""
    assert disagreements(cost_of("fifo", WORKLOADS["4 of 20, uniform"]).delivered) != []
