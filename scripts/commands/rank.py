"""`plait rank`: have two topics change places, while traffic runs."""

import click

from plait.broker.net.client import connect
from plait.scripts.async_entry import run_async
from plait.scripts.options import broker_option, examples


@click.command(epilog=examples("plait rank /news --above /weather --broker :4000"))
@broker_option
@click.argument("topic", metavar="TOPIC")
@click.option("--above", metavar="TOPIC", required=True, help="Above which other one.")
def command(broker: str, topic: str, above: str) -> None:
    """Have TOPIC rank above another one: they change places if it does not.

    Topics have an order where a hash says who manages them (--managers hash): what is published on
    a higher one visits fewer managers on its way. It ends when the root has taken that; what is
    published then waits until the new order stands, and nothing is lost or out of order.
    """
    run_async(_rank, broker, topic, above)


async def _rank(broker: str, topic: str, above: str) -> None:
    async with connect(broker) as client:
        await client.rank(topic, above=above)
