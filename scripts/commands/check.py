"""`plait check`: says what is wrong with a configuration and a script."""

import json

import click

from scripts.options import examples, json_option
from scripts.scenario import load_scenario


@click.command(
    epilog=examples(
        "plait check topologies/demo.conf topologies/demo.script",
        "plait check everything-in-one-file.txt",
    )
)
@click.argument("configuration")
@click.argument("script", required=False)
@json_option("what was found")
def command(configuration: str, script: str | None, as_json: bool) -> None:
    """Read CONFIGURATION and SCRIPT and say all that is wrong with them; run nothing.

    One file may hold both. Filters behind WHERE are read too. Every problem is printed as
    file:line:column with what was found and what was expected; the exit code is then 2.
    """
    scenario = load_scenario(configuration, script)
    overlay = scenario.configuration.overlay
    counts = {
        "brokers": len(overlay.brokers),
        "standbys": len(overlay.standbys),
        "publishers": len(overlay.publishers),
        "subscribers": len(overlay.subscribers),
        "commands": len(scenario.script.commands),
    }
    warnings = scenario.warnings
    if as_json:
        click.echo(json.dumps({**counts, "warnings": warnings}, ensure_ascii=False))
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"fine: {', '.join(f'{count} {what}' for what, count in counts.items())}")
