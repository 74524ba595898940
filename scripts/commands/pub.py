"""`plait pub`: publish from the shell."""

import sys
import time
from collections.abc import Sequence

import attrs
import click
import trio

from plait.broker.net.client import Client, connect
from plait.broker.net.credentials import Credentials
from plait.routing.errors import FilterSyntaxError
from plait.routing.filter_text import parse_filter
from plait.routing.values import Content
from plait.scripts.async_entry import run_async
from plait.scripts.contents import body_of, content_of_attributes, content_of_json
from plait.scripts.errors import BadInputError
from plait.scripts.options import broker_option, credential_options, examples
from plait.scripts.standard_input import standard_input_lines
from plait.scripts.terminal import is_terminal


@attrs.frozen(kw_only=True)
class Publishing:
    """What to publish, where and how often."""

    broker: str
    credentials: Credentials | None
    name: str | None
    advertisement: str
    content: Content | None
    """`None` if contents come from standard input."""
    body: bytes
    count: int
    interval_s: float
    waits: bool


@click.command(
    epilog=examples(
        "plait pub --broker :4000 symbol=IBM price=120.5",
        'plait pub --broker :4000 topic=/news/asia --body "Nikkei up" --wait',
        """plait pub --broker :4000 --content '{"symbol": "IBM"}' --count 10 --interval 100""",
        """plait pub --broker :4000 --advertise "symbol = 'IBM'" < trades.jsonl""",
    )
)
@broker_option
@credential_options
@click.argument("attributes", nargs=-1, metavar="[ATTR=VALUE]...")
@click.option("--content", metavar="JSON", help="All attributes as one JSON object.")
@click.option("--body", metavar="TEXT", help="Opaque bytes to go along; @FILE or @- for a file's.")
@click.option(
    "--advertise",
    metavar="FILTER",
    default="TRUE",
    show_default=True,
    help="What is announced to the brokers.",
)
@click.option("--count", type=click.IntRange(min=1), default=1, help="Publish it so many times.")
@click.option(
    "--interval", type=click.IntRange(min=0), default=0, metavar="MS", help="Pause between."
)
@click.option("--wait", is_flag=True, help="Wait for each confirmation, and say how long it took.")
@click.option("--name", help="The publisher's name; one of its own if none is given.")
def command(
    broker: str,
    credentials: Credentials | None,
    attributes: Sequence[str],
    content: str | None,
    body: str | None,
    advertise: str,
    count: int,
    interval: int,
    wait: bool,
    name: str | None,
) -> None:
    """Publish ATTR=VALUE..., or --content, or every line of JSON that standard input has.

    A value that reads as a JSON number, true or false is that; anything else is a string.
    It ends when everybody who had asked for the publications has been given them. Ctrl-C ends it at
    once, and what was not confirmed by then may never arrive.

    A publisher announces what it will publish. Here that is everything (TRUE), which suits single
    publications; with --advertise and a narrower filter, subscriptions to something else are not
    sent towards this publisher at all.
    """
    if attributes and content is not None:
        raise click.UsageError("Give either ATTR=VALUE... or --content JSON, not both.")
    given = content_of_attributes(attributes) if attributes else None
    if content is not None:
        given = content_of_json(content)
    if given is None and sys.stdin is None:
        raise click.UsageError(
            "Give ATTR=VALUE... or --content JSON: standard input, where contents are read "
            "otherwise, is closed."
        )
    if given is None and body == "@-":
        raise click.UsageError("Standard input cannot be both --body @- and the contents.")
    if given is None and is_terminal(sys.stdin):
        click.echo("One JSON object a line; Ctrl-D ends.", err=True)
    try:
        parse_filter(advertise)
    except FilterSyntaxError as error:
        raise BadInputError(f"--advertise: {error}") from error
    publishing = Publishing(
        broker=broker,
        credentials=credentials,
        name=name,
        advertisement=advertise,
        content=given,
        body=body_of(body),
        count=count,
        interval_s=interval / 1000,
        waits=wait,
    )
    run_async(_publish, publishing)


async def _publish(plan: Publishing) -> None:
    async with connect(plan.broker, name=plan.name, credentials=plan.credentials) as client:
        await client.advertise(plan.advertisement)
        publisher = _Publisher(client, plan)
        if plan.content is not None:
            await publisher.publish(plan.content)
        else:
            await publisher.publish_lines()


class _Publisher:
    def __init__(self, client: Client, plan: Publishing) -> None:
        self._client = client
        self._plan = plan
        self._is_first = True

    async def publish_lines(self) -> None:
        number = 0
        async for line in standard_input_lines():
            number += 1
            if line.strip():
                await self.publish(content_of_json(line, f"stdin:{number}"))

    async def publish(self, content: Content) -> None:
        """Publish a content as often as was asked for, with the pauses asked for."""
        for _ in range(self._plan.count):
            if not self._is_first:
                await trio.sleep(self._plan.interval_s)
            self._is_first = False
            await self._publish_once(content)

    async def _publish_once(self, content: Content) -> None:
        handed_over = time.perf_counter()
        receipt = await self._client.publish(content, self._plan.body, confirm=self._plan.waits)
        if self._plan.waits:
            millis = (time.perf_counter() - handed_over) * 1000
            click.echo(f"{self._client.name}#{receipt.seq} confirmed after {millis:.1f} ms")
