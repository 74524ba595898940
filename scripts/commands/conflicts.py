"""`plait conflicts`: what is going to wait where, before anything runs."""

import json
from typing import Any, Final

import click

from plait.routing.conflicts import DETECTIONS
from plait.routing.orderings import Pairwise
from plait.scripts.forecast import Forecast, Wait, announcements_of, wishes_of
from plait.scripts.options import examples, json_option
from plait.scripts.scenario import load_scenario
from plait.scripts.tables import print_table

COLUMNS: Final = (
    "broker",
    "waits for",
    "publications of",
    "meeting those of",
    "above",
    "below",
    "",
)


@click.command(
    epilog=examples(
        "plait conflicts topologies/demo.conf topologies/demo.script",
        "plait conflicts x.conf x.script --detection exact --json",
    )
)
@click.argument("configuration")
@click.argument("script", required=False)
@click.option(
    "--detection",
    type=click.Choice(DETECTIONS),
    help="How brokers find out what has to wait, instead of what the configuration says.",
)
@json_option("the waits")
def command(configuration: str, script: str | None, detection: str | None, as_json: bool) -> None:
    """Tell which advertisements and subscriptions will make which brokers wait; run nothing.

    Under pairwise order a broker holds a publication on its way up until its parent has settled it,
    if somebody above wants it, somebody below wants it, and what comes from above may reach both.
    Each line is one broker and two advertisements: publications of the first wait there, because
    those of the second may meet them. `above` and `below` are the subscribers of both; those above
    do not wait. A wait that is `in vain` is the fast test's, and the exact one would spare it.

    Everything counts that the script ever advertises or subscribes to, topics that it publishes on
    included; what it gives up counts too.
    """
    scenario = load_scenario(configuration, script)
    settings, commands = scenario.configuration, scenario.script.commands
    forecast = Forecast(
        settings.overlay,
        announcements_of(commands),
        wishes_of(commands),
        detection or settings.detection.value,
    )
    waits = forecast.waits()
    if settings.ordering != Pairwise.name:
        click.echo(
            f"warning: with ordering {settings.ordering} nothing is held for this; "
            f"here is what ordering {Pairwise.name} would do",
            err=True,
        )
    if as_json:
        click.echo(json.dumps([_as_json(wait) for wait in waits], ensure_ascii=False, indent=2))
    elif waits:
        print_table(COLUMNS, [_row(wait) for wait in waits])
    else:
        click.echo("Nothing waits anywhere.")


def _row(wait: Wait) -> list[object]:
    return [
        wait.broker,
        wait.parent,
        wait.waiting,
        wait.meeting,
        ", ".join(wait.above),
        ", ".join(wait.below),
        "in vain" if wait.is_in_vain else "",
    ]


def _as_json(wait: Wait) -> dict[str, Any]:
    return {
        "broker": wait.broker,
        "waits_for": wait.parent,
        "publications": {"publisher": wait.waiting.publisher, "filter": wait.waiting.filter.sql},
        "meeting": {"publisher": wait.meeting.publisher, "filter": wait.meeting.filter.sql},
        "above": wait.above,
        "below": wait.below,
        "in_vain": wait.is_in_vain,
    }
