"""`plait check`: says what is wrong with a configuration and a script."""

import json
from collections.abc import Mapping
from typing import Any

import click

from plait.routing.traps import traps_of_filter
from plait.scripts.errors import ProblemsFoundError
from plait.scripts.options import examples, json_option
from plait.scripts.rules_file import is_rules_file, load_rules
from plait.scripts.scenario import load_scenario
from plait.topologies.errors import Problem


@click.command(
    epilog=examples(
        "plait check topologies/demo.conf topologies/demo.script",
        "plait check everything-in-one-file.txt",
        "plait check plait.rules",
    )
)
@click.argument("configuration", metavar="FILE")
@click.argument("script", required=False)
@json_option("what was found")
def command(configuration: str, script: str | None, as_json: bool) -> None:
    """Read a configuration and a SCRIPT and say all that is wrong with them; run nothing.

    One FILE may hold both; or it has rules, as for `plait broker --rules`. Filters are read too.
    Every problem is printed as file:line:column with what was found and what was expected; the exit
    code is then 2. `plait run` leaves out a line that is not understood, and refuses only what
    makes no sense without it.

    With --json, `problems` holds the file, line and column of each, what was `found` and what was
    `expected`, and a `suggestion` if there is one; line 0 is a file as a whole.
    """
    if script is None and is_rules_file(configuration):
        _check_rules(configuration, as_json=as_json)
        return
    try:
        scenario = load_scenario(configuration, script)
    except ProblemsFoundError as error:
        if as_json:
            problems = [_as_json(problem) for problem in error.problems]
            click.echo(json.dumps({"problems": problems}, ensure_ascii=False))
        raise
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
        document = {**counts, "warnings": warnings, "problems": []}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"fine: {_counted(counts)}")


def _check_rules(path: str, *, as_json: bool) -> None:
    try:
        rules = load_rules(path)
    except ProblemsFoundError as error:
        if as_json:
            problems = [_as_json(problem) for problem in error.problems]
            click.echo(json.dumps({"problems": problems}, ensure_ascii=False))
        raise
    warnings = [
        f"{path}:{rule.line}: {trap}"
        for rule in rules.rules
        for trap in traps_of_filter(rule.filter)
    ]
    counts = {"rules": len(rules.rules), "limits": len(rules.limits)}
    if as_json:
        document = {**counts, "warnings": warnings, "problems": []}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"fine: {_counted(counts)}")


def _counted(counts: Mapping[str, int]) -> str:
    numbers = (f"{count} {what if count != 1 else what[:-1]}" for what, count in counts.items())
    return ", ".join(numbers)


def _as_json(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.at.file,
        "line": problem.at.line,
        "column": problem.at.column,
        "found": problem.found,
        "expected": problem.expected,
        "suggestion": problem.suggestion or None,
    }
