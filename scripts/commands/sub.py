"""`plait sub`: subscribe from the shell."""

import base64
import itertools
import json
import shlex
import sys
from collections.abc import Sequence
from typing import Final

import attrs
import click
import trio

from plait.broker.effects import Delivery
from plait.broker.event_lines import describe, printable
from plait.broker.net.client import connect
from plait.broker.net.credentials import Credentials
from plait.broker.net.subscription import Subscription
from plait.faulttol.history import name_of
from plait.routing.errors import FilterSyntaxError
from plait.routing.filter_text import parse_filter, topic_filter
from plait.routing.filters import Filter
from plait.routing.traps import traps_of_filter
from plait.scripts.async_entry import end_by_signal, run_async
from plait.scripts.errors import BadInputError, EnvironmentFailedError
from plait.scripts.options import broker_option, credential_options, examples, json_option

LIVES_REMEMBERED_MAX: Final = 4096
"""Publishers whose publications have short names; those that come after them have long ones."""


@attrs.frozen(kw_only=True)
class Subscribing:
    """What to ask for, where and until when."""

    broker: str
    credentials: Credentials | None
    name: str | None
    filter_text: str
    count: int | None
    timeout_s: float | None
    as_json: bool


@click.command(
    epilog=examples(
        """plait sub --broker :4000 "symbol = 'IBM' AND price BETWEEN 100 AND 120\"""",
        'plait sub --broker :4000 --topic "/news/*" --json',
        "plait sub --broker :4000 TRUE --count 10 --timeout 5",
    )
)
@broker_option
@credential_options
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@click.option("--topic", "topics", multiple=True, help="A topic; /a/* is everything under /a/.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="End after so long.")
@click.option("--name", help="The subscriber's name; one of its own if none is given.")
@json_option("each publication")
def command(
    broker: str,
    credentials: Credentials | None,
    filters: Sequence[str],
    topics: Sequence[str],
    count: int | None,
    timeout: float | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Print every publication that matches a FILTER or lies in a --topic, as it arrives.

    A filter is an SQL-92 selector (symbol = 'IBM' AND price > 100), or PADRES brackets
    ([symbol,eq,'IBM'],[price,>,100]); put it in quotes. TRUE is everything.

    nyse#1 is the first publication of nyse. If nyse ends and comes back, it counts from 1 again:
    nyse@1795122399045#1 is then the first one of that later life, which began at this time, in
    milliseconds. In --json, publisher, publisher_incarnation and seq together are the name.

    It ends with Ctrl-C, or by --count or --timeout; the exit code is 3 if the time is over before
    the count is reached.
    """
    plan = Subscribing(
        broker=broker,
        credentials=credentials,
        name=name,
        filter_text=_one_filter(filters, topics),
        count=count,
        timeout_s=timeout,
        as_json=as_json,
    )
    received = run_async(_subscribe, plan)
    if count is not None and received < count and timeout is not None:
        raise EnvironmentFailedError(f"{received} of {count} publications within {timeout:g} s")


def _one_filter(filters: Sequence[str], topics: Sequence[str]) -> str:
    """Return one filter for all: one subscription has one order."""
    if not (filters or topics):
        raise click.UsageError("Say what to subscribe to: a FILTER, --topic T, or TRUE for all.")
    wanted = [*map(_parsed, filters), *map(topic_filter, topics)]
    for trap in itertools.chain.from_iterable(map(traps_of_filter, wanted)):
        click.echo(f"warning: {trap}", err=True)
    if len(wanted) == 1:
        return wanted[0].sql
    return " OR ".join(f"({one.sql})" for one in wanted)


def _parsed(text: str) -> Filter:
    try:
        return parse_filter(text)
    except FilterSyntaxError as error:
        if text.startswith("/"):
            raise BadInputError(
                f"FILTER: {error}\nTopics follow --topic: plait sub --topic {shlex.quote(text)}"
            ) from error
        raise BadInputError(
            f'FILTER: {error}\nA filter is one argument, so quote it: "price > 100"'
        ) from error


async def _subscribe(plan: Subscribing) -> int:
    """Print deliveries until the end, whichever comes first; return how many there were."""
    printer = _Printer(plan)
    async with (
        connect(plan.broker, name=plan.name, credentials=plan.credentials) as client,
        trio.open_nursery() as nursery,
    ):
        subscription = await client.subscribe(plan.filter_text)
        await nursery.start(end_by_signal, nursery.cancel_scope)
        if not plan.as_json:
            click.echo(f"{client.name} subscribed to {printable(plan.filter_text)}", err=True)
        if plan.timeout_s is not None:
            nursery.cancel_scope.deadline = trio.current_time() + plan.timeout_s
        await printer.print_all(subscription)
        nursery.cancel_scope.cancel()
    return printer.printed


class _Printer:
    def __init__(self, plan: Subscribing) -> None:
        self.printed = 0
        self._plan = plan
        self._first_lives: dict[str, int] = {}
        """The incarnations of publishers that are named in short, each the first that was met."""

    async def print_all(self, subscription: Subscription) -> None:
        line_of = _as_json if self._plan.as_json else self._as_text
        async for batch in subscription.batches():
            if self._plan.count is not None:
                batch = batch[: self._plan.count - self.printed]
            sys.stdout.write("".join(f"{line_of(delivery)}\n" for delivery in batch))
            sys.stdout.flush()
            self.printed += len(batch)
            if self.printed == self._plan.count:
                return

    def _as_text(self, delivery: Delivery) -> str:
        return f"{self._name_of(delivery)} {_contents_of(delivery)}"

    def _name_of(self, delivery: Delivery) -> str:
        """Name it in short, unless a former life of its publisher is named so already."""
        publisher, incarnation = delivery.publisher, delivery.publisher_incarnation
        lives = self._first_lives
        if len(lives) < LIVES_REMEMBERED_MAX:
            lives.setdefault(publisher, incarnation)
        return name_of(
            (publisher, incarnation, delivery.seq),
            is_lone_life=lives.get(publisher) == incarnation,
        )


def _contents_of(delivery: Delivery) -> str:
    line = describe(delivery.content)
    if not delivery.body:
        return line
    text = _text_of(delivery.body)
    shown = text if text is not None and text.isprintable() else f"({len(delivery.body)} bytes)"
    return f"{line} | {shown}"


def _as_json(delivery: Delivery) -> str:
    text = _text_of(delivery.body)
    body = (
        {"body_base64": base64.b64encode(delivery.body).decode()}
        if text is None
        else {"body": text}
    )
    fields = {
        "publisher": delivery.publisher,
        "publisher_incarnation": delivery.publisher_incarnation,
        "seq": delivery.seq,
        "position": delivery.position,
        "content": dict(delivery.content),
    }
    return json.dumps({**fields, **body}, ensure_ascii=False)


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
