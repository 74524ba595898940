"""Two consumers at different brokers trade on the same prices, and make the same trades.

    python examples/ticker.py :4000 :4001

Two exchanges publish the price of one share at the same time. A trading rule that depends on the
order of prices ("sell when a price is below the one before") runs twice: at a consumer beside each
exchange. Under pairwise order both see the same sequence, so both sell the same.
"""

import random
import sys

import trio

from plait import Client, Subscription, connect

PRICES = 40


async def exchange(client: Client, seed: int) -> None:
    """Publish prices that wander, a few every hundredth of a second."""
    chance = random.Random(seed)
    price = 100.0
    for _ in range(PRICES):
        price = round(price + chance.uniform(-1, 1), 2)
        await client.publish({"symbol": "IBM", "price": price})
        await trio.sleep(0.01)


async def trade(prices: Subscription, sales: list[float]) -> None:
    """Sell whenever a price is below the one before it."""
    before = 0.0
    seen = 0
    async for delivery in prices:
        price = float(delivery.content["price"])
        if price < before:
            sales.append(price)
        before = price
        seen += 1
        if seen == 2 * PRICES:
            break


async def main(first: str, second: str) -> int:
    """Return 0 if both consumers made the same sales in the same order."""
    sales: tuple[list[float], list[float]] = ([], [])
    async with (
        connect(first, name="nyse") as nyse,
        connect(second, name="lse") as lse,
        connect(first, name="alice") as alice,
        connect(second, name="bob") as bob,
    ):
        prices = [await client.subscribe("symbol = 'IBM'") for client in (alice, bob)]
        for client in (nyse, lse):
            await client.advertise("symbol = 'IBM' AND price > 0")
        async with trio.open_nursery() as nursery:
            for subscription, made in zip(prices, sales, strict=True):
                nursery.start_soon(trade, subscription, made)
            for seed, client in enumerate((nyse, lse)):
                nursery.start_soon(exchange, client, seed)

    print(f"alice sold {len(sales[0])} times, bob {len(sales[1])} times")
    print("the same" if sales[0] == sales[1] else "not the same")
    return 0 if sales[0] == sales[1] else 1


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2]))
