"""`plait can`: what the rules say about a request, and which line says so."""

import json

import click

from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.rules import Decision, Right, Rule, Rules
from plait.routing.rules_text import EVERYTHING
from plait.scripts.options import examples, json_option
from plait.scripts.rules_file import load_rules

RULES_FILE = "plait.rules"


@click.command(
    epilog=examples(
        """plait can alice subscribe "market = 'NYSE'\"""",
        """plait can sensor-17 publish "topic LIKE '/sensors/sensor-17/%'\" --rules site.rules""",
        "plait can olga operate b2",
    )
)
@click.argument("principal")
@click.argument("right", type=click.Choice([right.value for right in Right]))
@click.argument("what", required=False, default="")
@click.option(
    "--rules",
    "path",
    metavar="FILE",
    default=RULES_FILE,
    show_default=True,
    help="The file of rules, as brokers have it.",
)
@json_option("the decision")
def command(principal: str, right: str, what: str, path: str, as_json: bool) -> None:
    """Say whether PRINCIPAL may publish or subscribe to WHAT, a filter; and by which line.

    For monitor and operate WHAT is the name of a broker. Without WHAT, it is everything. Brokers
    decide the same way, when a client advertises or subscribes, by the file that each was given.
    """
    decision = _decide(load_rules(path), principal, Right(right), what)
    if as_json:
        document = {
            "allowed": decision.is_allowed,
            "rule": _as_json(decision.rule),
            "in_part": [_as_json(rule) for rule in decision.in_part],
        }
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    click.echo("yes" if decision.is_allowed else "no", nl=False)
    if decision.rule is not None:
        click.echo(f", by {path}:{decision.rule.line}: {decision.rule.text}")
        return
    click.echo(", as no rule allows it")
    for rule in decision.in_part:
        click.echo(f"  a part of it is allowed by {path}:{rule.line}: {rule.text}")


def _decide(rules: Rules, principal: str, right: Right, what: str) -> Decision:
    if right in (Right.PUBLISH, Right.SUBSCRIBE):
        asked: Filter = parse_filter(what or EVERYTHING)
        return rules.explain(principal, right, asked)
    return rules.decide_about(principal, right, {"broker": what} if what else {})


def _as_json(rule: Rule | None) -> dict[str, object] | None:
    return None if rule is None else {"line": rule.line, "text": rule.text}
