"""Orders are placed, paid and cancelled; two services agree about which came first.

    python examples/workflow.py :4000 :4001

A shop publishes that an order is paid, its customer that it is cancelled, at about the same time
and at different brokers. The warehouse ships what was paid before it was cancelled; the bank pays
back what was cancelled before it was paid. They never talk to each other, and yet no order is both
shipped and paid back, and none is neither: they see the same sequence of events.
"""

import random
import sys

import trio

from plait import Client, connect

ORDERS = 20


async def publish(client: Client, event: str, orders: list[int]) -> None:
    """Publish one event of each order, in some order of its own."""
    for order in random.Random(event).sample(orders, len(orders)):
        await client.publish({"order": order, "event": event})
        await trio.sleep(random.uniform(0, 0.01))


async def note_what_comes_first(client: Client, event: str, found: set[int]) -> None:
    """Note all orders of which this event comes first."""
    first: dict[int, str] = {}
    seen = 0
    subscription = await client.subscribe("event IN ('paid', 'cancelled')")
    await client.advertise("event = 'ready'")
    await client.publish({"event": "ready"})
    async for delivery in subscription:
        first.setdefault(int(delivery.content["order"]), str(delivery.content["event"]))
        seen += 1
        if seen == 2 * ORDERS:
            break
    found |= {order for order, what in first.items() if what == event}


async def main(first: str, second: str) -> int:
    """Return 0 if every order is either shipped or paid back."""
    orders = list(range(1, ORDERS + 1))
    shipped: set[int] = set()
    paid_back: set[int] = set()
    async with (
        connect(first, name="shop") as shop,
        connect(second, name="customer") as customer,
        connect(first, name="warehouse") as warehouse,
        connect(second, name="bank") as bank,
        trio.open_nursery() as nursery,
    ):
        services_ready = await shop.subscribe("event = 'ready'")
        for client in (shop, customer):
            await client.advertise("event IN ('paid', 'cancelled') AND order > 0")
        nursery.start_soon(note_what_comes_first, warehouse, "paid", shipped)
        nursery.start_soon(note_what_comes_first, bank, "cancelled", paid_back)
        for _ in range(2):
            await anext(services_ready)
        nursery.start_soon(publish, shop, "paid", orders)
        nursery.start_soon(publish, customer, "cancelled", orders)

    print(f"{len(shipped)} shipped, {len(paid_back)} paid back")
    agreed = not shipped & paid_back and len(shipped | paid_back) == ORDERS
    print(
        "each order exactly once"
        if agreed
        else "an order was both shipped and paid back, or neither"
    )
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2]))
