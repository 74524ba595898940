"""`plait up`: an overlay, and a prompt for what to do with it."""

from functools import partial
from pathlib import Path

import click

from plait.scripts.console import Console
from plait.scripts.errors import BadInputError
from plait.scripts.hosts import places
from plait.scripts.narration import Narrator
from plait.scripts.options import (
    delta_option,
    examples,
    machine_options,
    ordering_option,
    out_option,
)
from plait.scripts.run_directory import new_run_directory
from plait.scripts.scenario import load_and_warn
from plait.scripts.verdict import print_verdict, raise_if_violated


@click.command(
    epilog=examples(
        "plait up topologies/demo.conf",
        'echo "Subscriber alice Subscribe /news/*" | plait up demo.conf',
    )
)
@click.argument("configuration")
@out_option
@ordering_option
@delta_option
@machine_options
def command(
    configuration: str,
    out: Path | None,
    ordering: str | None,
    delta: int | None,
    hosts: str | None,
    ssh: str,
    remote_plait: str,
    use_urls: bool,
    insecure: bool,
) -> None:
    """Launch the overlay of CONFIGURATION and take script commands from a prompt.

    What the file has of commands is executed first. `help` at the prompt explains them; `quit` or
    Ctrl-D waits until everything is stable, stops, and checks, as `plait run` does. Ctrl-C gives up
    the line, or a command that takes long; twice in a row it is `quit`. Commands may also come from
    a pipe; the exit code is 2 if something was wrong with one.
    """
    scenario = load_and_warn(configuration, None)
    where = places(
        scenario.configuration, hosts, ssh, remote_plait, use_urls=use_urls, insecure=insecure
    )

    from plait.scripts.runs import RunPlan, run_interactively

    console = Console()
    plan = RunPlan(
        scenario=scenario,
        ordering=ordering or scenario.configuration.ordering.value,
        delta=scenario.configuration.delta if delta is None else delta,
        seed=0,
        directory=new_run_directory(out, Path(configuration).stem),
        open_teller=partial(Narrator, print_line=console.print),
        **where,
    )
    report, mistakes = run_interactively(plan, console)
    print_verdict(report, ordering=plan.ordering, place=str(plan.directory))
    raise_if_violated(report)
    if mistakes and not console.is_terminal:
        raise BadInputError(f"{mistakes} of the lines given could not be executed, see above")
