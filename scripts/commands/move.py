"""`plait move`: have a broker played by another process, while traffic runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import trio

from plait.broker.net.credentials import Credentials, Passage
from plait.scripts.async_entry import run_async
from plait.scripts.errors import BadInputError, EnvironmentFailedError
from plait.scripts.monitor import ask, reason_of, request_move, split, survey
from plait.scripts.options import AddressType, credential_options, examples
from plait.scripts.run_directory import processes
from plait.scripts.run_security import approach_for
from plait.scripts.status_reports import StatusReport, Unreachable, answers, players
from plait.scripts.tables import natural

POLL_S: Final = 0.005


@click.command(
    epilog=examples(
        "plait move b3 --to b5 --broker :4000",
        "plait move b3 --to b3 --run runs/demo",
    )
)
@click.argument("broker", metavar="BROKER")
@click.option("--to", "host", metavar="HOST", required=True, help="The process that is to play it.")
@click.option("--broker", "addresses", type=AddressType(), multiple=True, help="Where to ask.")
@click.option(
    "--run",
    "run_directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory of a run that is going on.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds to wait until it is done.",
)
@credential_options
def command(
    broker: str,
    host: str,
    addresses: Sequence[str],
    run_directory: Path | None,
    timeout_s: float,
    credentials: Credentials | None,
) -> None:
    """Have BROKER played by another process, with its clients and all that is under way.

    Nothing is lost, and nobody outside notices but by a pause of some round trips. So a machine
    can be emptied, and filled again, while traffic runs. If the process that plays the broker
    cannot give it up just now, as a failure is not over, it does so as soon as it can.
    """
    if bool(addresses) == bool(run_directory):
        raise click.UsageError("Say where to ask: either --broker HOST:PORT or --run DIR.")
    known = processes(run_directory) if run_directory else {}
    where = [one["address"] for one in known.values()] or addresses
    run_async(hand_over, broker, host, where, timeout_s, approach_for(run_directory, credentials))


async def hand_over(
    broker: str,
    host: str,
    addresses: Sequence[str],
    timeout_s: float,
    approach: Passage | None = None,
) -> None:
    """Have a broker played by a process, and wait until it is."""
    reports = await survey(addresses, (), approach)
    present = answers(reports)
    if not present:
        who = ", ".join(f"{r.address} ({r.reason})" for r in reports if isinstance(r, Unreachable))
        raise EnvironmentFailedError(f"no broker answers: {who}")
    played = players(reports)
    giver = _giver(broker, played, present)
    taker = _taker(host, present)
    if giver is taker:
        click.echo(f"{broker} is played by {host} already, in term {_term_of(broker, taker)}")
        return
    begun_at = trio.current_time()
    with trio.move_on_after(timeout_s):
        await _ask(broker, host, giver["address"], approach)
        while not (term := _term_of(broker, await _report_of(taker["address"], approach))):  # noqa: ASYNC110 - it is another process
            await trio.sleep(POLL_S)
        took_s = trio.current_time() - begun_at
        click.echo(
            f"{broker} is played by {host} now, in term {term}, and was by {giver['host']}; "
            f"that took {took_s:.3f} s"
        )
        return
    raise EnvironmentFailedError(f"{broker} is not played by {host} after {timeout_s:g} s")


async def _ask(broker: str, host: str, address: str, approach: Passage | None) -> None:
    def tell(reason: str) -> None:
        click.echo(f"{broker} waits: {reason}", err=True)

    try:
        refusal = await request_move(address, broker, host, tell, approach)
    except OSError as error:
        raise EnvironmentFailedError(f"{address}: {reason_of(error)}") from None
    if refusal:
        raise EnvironmentFailedError(f"{broker} is not moved to {host}: {refusal}")


async def _report_of(address: str, approach: Passage | None) -> StatusReport:
    try:
        return await ask(*split(address), approach)
    except OSError as error:
        raise EnvironmentFailedError(f"{address}: {reason_of(error)}") from None


def _giver(
    broker: str, played: Mapping[str, StatusReport], present: Sequence[StatusReport]
) -> StatusReport:
    """The process that plays the broker."""
    if broker in played:
        return played[broker]
    seats = [seat for report in present for seat in report["seats"] if not seat["left"]]
    if broker in {seat["broker"] for seat in seats}:
        raise EnvironmentFailedError(f"nobody plays {broker} just now")
    raise BadInputError(f"there is no broker {broker}, expected one of {_named(played)}")


def _taker(host: str, present: Sequence[StatusReport]) -> StatusReport:
    """The process that is to play it."""
    hosts = {report["host"]: report for report in present}
    if host not in hosts:
        raise BadInputError(f"there is no process {host}, expected one of {_named(hosts)}")
    return hosts[host]


def _named(found: Mapping[str, object]) -> str:
    return ", ".join(sorted(found, key=natural))


def _term_of(broker: str, report: StatusReport) -> int:
    """In which term a process plays a broker; 0 if it does not."""
    return next((one["term"] for one in report["brokers"] if one["broker"] == broker), 0)
