"""`plait detect`: look for a pattern from the shell, or at what detectors of runs have found."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import trio

from plait.broker.effects import Match
from plait.broker.event_lines import describe
from plait.broker.net.client import connect
from plait.broker.net.credentials import Credentials
from plait.broker.net.subscription import Matches
from plait.faulttol.history import run_directories
from plait.routing.patterns.detection import Detection, Late, Policy
from plait.scripts.async_entry import end_by_signal, run_async
from plait.scripts.errors import EnvironmentFailedError
from plait.scripts.found import found_in, show_found
from plait.scripts.options import AddressType, credential_options, examples, json_option


@click.command(
    epilog=examples(
        "plait detect --broker :4000 --pattern 'A -> !C -> B' --where \"A=topic = 'orders'\" "
        "--where \"B=topic = 'trades'\" --where \"C=topic = 'cancels'\"",
        "plait detect --broker :4000 --pattern 'A{3}' --where \"A=price > 100\" "
        "--policy any --within 10 --json",
        "plait detect runs/fifo runs/pairwise",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--broker", type=AddressType(), help="The broker to connect to; :4000 is port 4000 of here."
)
@credential_options
@click.option("--pattern", metavar="P", help="Such as 'A -> B', 'A | B', 'A -> !X -> B', 'A{3}'.")
@click.option("--where", "filters", multiple=True, metavar="A=FILTER", help="What a letter is.")
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in Policy]),
    default=Policy.NEXT.value,
    show_default=True,
    help="Which publications fill the places.",
)
@click.option("--within", type=int, metavar="N", help="Publications that a match spans at most.")
@click.option("--sync", metavar="FILTER", help="Where every detector begins anew.")
@click.option(
    "--late",
    type=click.Choice([late.value for late in Late]),
    default=Late.UNCERTAIN.value,
    show_default=True,
    help="What becomes of publications that come out of order, where that is told.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="End after so long.")
@click.option("--name", help="The detector's name; one of its own if none is given.")
@json_option("each match")
def command(
    runs: Sequence[Path],
    broker: str | None,
    credentials: Credentials | None,
    count: int | None,
    **options: Any,
) -> None:
    """Print every match of a pattern in what is published from now on.

    A pattern is a sequence of letters, and each letter a filter (--where A="price > 100"). What is
    found is a function of the sequence alone: under the orderings pairwise, sequencer and tno, all
    who look for the same find the same. A match that another one may not have found, who began
    earlier, says so ("not certain"). docs/patterns.md has the policies.

    With RUN, the directory of a run or a folder with some below it, it prints side by side what
    the detectors of that run have found.

    It ends with Ctrl-C, or by --count or --timeout; the exit code is 3 if the time is over before
    the count is reached.
    """
    if runs:
        _refuse_beside_runs(options)
        found = [one for run in runs for each in run_directories(run) for one in found_in(each)]
        if options["as_json"]:
            click.echo(json.dumps([one.as_json() for one in found], ensure_ascii=False))
        else:
            show_found(found)
        return
    if options["pattern"] is None:
        raise click.UsageError("Say what to look for, --pattern, or whose matches to show, RUN.")
    if broker is None:
        raise click.UsageError("Say where: --broker.")
    plan = Looking(
        broker=broker,
        credentials=credentials,
        detection=_detection_of(options),
        count=count,
        **{what: options[what] for what in ("name", "timeout", "as_json")},
    )
    printed = run_async(_look, plan)
    if count is not None and printed < count and plan.timeout is not None:
        raise EnvironmentFailedError(f"{printed} of {count} matches within {plan.timeout:g} s")


@attrs.frozen(kw_only=True)
class Looking:
    """What to look for, where and until when."""

    broker: str
    credentials: Credentials | None
    name: str | None
    detection: Detection
    count: int | None
    timeout: float | None
    as_json: bool


def _refuse_beside_runs(options: dict[str, Any]) -> None:
    for name in ("pattern", "filters", "within", "sync", "timeout", "name"):
        if options[name]:
            raise click.UsageError(f"--{'where' if name == 'filters' else name} is not for a RUN.")


def _detection_of(options: dict[str, Any]) -> Detection:
    where: dict[str, str] = {}
    for text in options["filters"]:
        letter, equals, filter_text = text.partition("=")
        letter = letter.strip()
        if not (equals and letter.isidentifier()):
            raise click.UsageError(f"--where takes a letter and its filter, A=FILTER: {text}")
        if letter in where:
            raise click.UsageError(f"--where has two filters for {letter}.")
        where[letter] = filter_text
    return Detection.of(
        options["pattern"],
        where,
        **{what: options[what] for what in ("policy", "within", "sync", "late")},
    )


# --- on the way ---------------------------------------------------------------------------------


async def _look(plan: Looking) -> int:
    """Print matches until the end, whichever comes first; return how many there were."""
    what, printed = plan.detection, 0
    async with (
        connect(plan.broker, name=plan.name, credentials=plan.credentials) as client,
        client.detect(**what.fields()) as matches,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(end_by_signal, nursery.cancel_scope)
        if not plan.as_json:
            click.echo(f"{client.name} looks for {what.pattern} ({what.policy})", err=True)
        if plan.timeout is not None:
            nursery.cancel_scope.deadline = trio.current_time() + plan.timeout
        printed = await _print_all(matches, plan)
        nursery.cancel_scope.cancel()
    return printed


async def _print_all(matches: Matches, plan: Looking) -> int:
    line_of = _as_json if plan.as_json else _as_text
    printed = 0
    async for batch in matches.batches():
        if plan.count is not None:
            batch = batch[: plan.count - printed]
        sys.stdout.write("".join(f"{line_of(match)}\n" for match in batch))
        sys.stdout.flush()
        printed += len(batch)
        if printed == plan.count:
            break
    return printed


def _as_text(match: Match) -> str:
    events = " ".join(
        f"{event.publisher}#{event.seq} ({describe(event.content)})" for event in match.events
    )
    return events if match.certain else f"{events}, not certain"


def _as_json(match: Match) -> str:
    events = [
        {
            "publisher": event.publisher,
            "publisher_incarnation": event.publisher_incarnation,
            "seq": event.seq,
            "position": event.position,
            "content": dict(event.content),
        }
        for event in match.events
    ]
    fields = {"pattern": match.pattern, "position": match.position, "certain": match.certain}
    return json.dumps({**fields, "events": events}, ensure_ascii=False)
