"""`plait run`: an overlay, a script, and whether everything promised was kept."""

import json
from pathlib import Path

import click

from plait.scripts.commands.audit import audit_runs, print_verdicts, raise_if_not_clean
from plait.scripts.errors import BadInputError
from plait.scripts.hosts import places
from plait.scripts.narration import Narrator, Progress
from plait.scripts.options import (
    delta_option,
    examples,
    json_option,
    machine_options,
    ordering_option,
    out_option,
)
from plait.scripts.run_directory import new_run_directory
from plait.scripts.scenario import load_and_warn
from plait.scripts.verdict import print_verdict, raise_if_violated, report_as_json


@click.command(
    epilog=examples(
        "plait run topologies/demo.conf topologies/demo.script --watch",
        "plait run demo.conf demo.script          the samples that come with plait",
        "plait run x.conf x.script --simulate --seed 7",
        "plait run x.conf x.script --hosts hosts.txt",
        "plait run x.conf x.script --ordering none --out runs/first --json",
    )
)
@click.argument("configuration")
@click.argument("script", required=False)
@out_option
@click.option("--simulate", is_flag=True, help="In virtual time, with the network of a seed.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="For ${random(a,b)} in the script; with --simulate also for the network.",
)
@ordering_option
@delta_option
@click.option("--audit", is_flag=True, help="Check the history on Spark, too.")
@machine_options
@click.option(
    "--strict", is_flag=True, help="Refuse what is not understood, as `plait check` does."
)
@click.option("--watch", is_flag=True, help="Print what happens, while it happens.")
@json_option("the verdict")
def command(
    configuration: str,
    script: str | None,
    out: Path | None,
    simulate: bool,
    seed: int,
    ordering: str | None,
    delta: int | None,
    audit: bool,
    hosts: str | None,
    ssh: str,
    remote_plait: str,
    use_urls: bool,
    insecure: bool,
    strict: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Launch the overlay of CONFIGURATION, execute SCRIPT, and check what was promised.

    Every broker is a process of its own, and they talk over TCP on free ports of this machine.
    When the script has ended and everything is stable, all of it is stopped, and the history that
    the run has left behind is checked. One file may hold both configuration and script.

    What is odd in the files is a warning, and the rest is run. A line that is not understood is
    left out, or a command for a process that nobody has declared, unless nothing is left then.

    The exit code is 1 if a guarantee was violated. The run directory has the history
    (manifest.json, history/), and the brokers' logs (logs/).
    """
    if watch and as_json:
        raise click.UsageError("--watch is for people and --json for programs: choose one.")
    if simulate and (hosts is not None or use_urls):
        raise click.UsageError("--simulate runs nothing anywhere: neither --hosts nor --use-urls.")
    scenario = load_and_warn(configuration, script, strict=strict)
    where = places(
        scenario.configuration, hosts, ssh, remote_plait, use_urls=use_urls, insecure=insecure
    )
    if scenario.is_nothing_left:
        raise BadInputError("nothing is left to do: every command was left out, see above")

    # Not before: a script that is wrong is reported faster than the network is imported.
    from plait.scripts.runs import RunPlan, run_on_processes, run_simulated

    plan = RunPlan(
        scenario=scenario,
        ordering=ordering or scenario.configuration.ordering.value,
        delta=scenario.configuration.delta if delta is None else delta,
        seed=seed,
        directory=new_run_directory(out, Path(configuration).stem),
        open_teller=Narrator if watch else Progress,
        **where,
    )
    report = run_simulated(plan) if simulate else run_on_processes(plan)
    verdicts = audit_runs([plan.directory]) if audit else []
    if as_json:
        outcome = report_as_json(report, plan.directory)
        if audit:
            outcome["audit"] = [verdict.as_json() for verdict in verdicts]
        click.echo(json.dumps(outcome, ensure_ascii=False))
    else:
        print_verdict(report, ordering=plan.ordering, place=str(plan.directory))
        if audit:
            click.echo("And on Spark:")
            print_verdicts(verdicts)
    raise_if_violated(report)
    raise_if_not_clean(verdicts)
