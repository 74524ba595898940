"""`plait topology`: overlays of well-known shapes, and pictures of any."""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import click

from plait.faulttol.files import naming
from plait.routing.filters import Filter
from plait.routing.values import Content
from plait.scripts.errors import BadInputError, ProblemsFoundError
from plait.scripts.options import examples
from plait.scripts.scenario import Scenario, filter_of, load_scenario
from plait.topologies import builders
from plait.topologies.configuration import (
    Configuration,
    LoggingLevel,
    Ordering,
    RoutingPolicy,
    format_configuration,
)
from plait.topologies.content import render
from plait.topologies.drawing import draw_svg, draw_text
from plait.topologies.errors import OverlayError, ScriptError
from plait.topologies.files import load
from plait.topologies.overlay import Overlay
from plait.topologies.script import PublishStream, Subscribe, Topic

SAMPLES_MAX: Final = 100
"""Publications of one stream that are looked at to tell who wants them."""

count = click.IntRange(min=1, max=100_000)


@click.group(
    epilog=examples(
        "plait topology chain-of-cores --cores 4 --edges 5 > x.conf",
        "plait topology random-tree --brokers 20 --seed 7 --publishers 3 --subscribers 9 > x.conf",
        "plait topology spanning-tree network.txt > x.conf",
        "plait topology draw x.conf",
        "plait topology draw x.conf --svg x.svg",
    )
)
def command() -> None:
    """Print the configuration of an overlay, or draw one.

    Every broker of such a configuration is alone in a site of its own name; publishers p0, p1 ...
    and subscribers s0, s1 ... are spread over its ends: the brokers with one neighbour.
    """


def _builder(build: Callable[..., Overlay]) -> Any:
    """Make a subcommand of what builds an overlay: the options that all have, and the output."""

    @command.command(help=build.__doc__)
    @click.option("--publishers", type=click.IntRange(min=0), default=0, help="How many.")
    @click.option("--subscribers", type=click.IntRange(min=0), default=0, help="How many.")
    @click.option(
        "--ordering",
        type=click.Choice([ordering.value for ordering in Ordering]),
        default=Ordering.PAIRWISE.value,
        show_default=True,
    )
    @click.option(
        "--policy",
        type=click.Choice([policy.value for policy in RoutingPolicy]),
        default=RoutingPolicy.FILTER.value,
        show_default=True,
    )
    @click.option("--delta", type=click.IntRange(min=0), default=1, show_default=True)
    @wraps(build)
    def subcommand(
        *arguments: Any,
        publishers: int,
        subscribers: int,
        ordering: str,
        policy: str,
        delta: int,
        **options: Any,
    ) -> None:
        overlay = builders.with_clients(build(*arguments, **options), publishers, subscribers)
        configuration = Configuration(
            overlay, RoutingPolicy(policy), Ordering(ordering), LoggingLevel.LIGHT, delta
        )
        click.echo(format_configuration(configuration), nl=False)

    return subcommand


@_builder
@click.option("--brokers", type=count, required=True)
def line(brokers: int) -> Overlay:
    """Brokers in a row, the root at one end."""
    return builders.line(brokers)


@_builder
@click.option("--leaves", type=count, required=True)
def star(leaves: int) -> Overlay:
    """A root, and all others below it."""
    return builders.star(leaves)


@_builder
@click.option("--fanout", type=click.IntRange(1, 1000), required=True, help="Children of each.")
@click.option("--height", type=click.IntRange(0, 16), required=True, help="Links to the leaves.")
def balanced_tree(fanout: int, height: int) -> Overlay:
    """Every broker above the leaves has as many children."""
    if sum(fanout**level for level in range(height + 1)) > 100_000:
        raise BadInputError("more than 100000 brokers found, fewer expected")
    return builders.balanced_tree(fanout, height)


@_builder
@click.option("--cores", type=count, required=True, help="Core brokers, in a chain.")
@click.option("--edges", type=click.IntRange(0, 1000), required=True, help="At each core.")
def chain_of_cores(cores: int, edges: int) -> Overlay:
    """Data centres in a chain: a core broker each, with edge brokers; the root is in the middle."""
    return builders.chain_of_cores(cores, edges)


@_builder
@click.option("--brokers", type=count, required=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def random_tree(brokers: int, seed: int) -> Overlay:
    """Each broker joined at any of those before it, all as likely; the same for the same seed."""
    return builders.random_tree(brokers, seed)


@_builder
@click.argument("network")
def spanning_tree(network: str) -> Overlay:
    """The links of NETWORK with the least delay in total that connect all of its brokers.

    The lines of the file NETWORK are `A B DELAY`: a link that could be, and its delay in
    milliseconds. The root is in the middle of the tree.
    """
    from plait.topologies.graphs import minimum_spanning_overlay, read_network

    try:
        return minimum_spanning_overlay(read_network(load(network), network))
    except (ScriptError, OverlayError) as error:
        raise ProblemsFoundError(str(error)) from error


@command.command()
@click.argument("configuration")
@click.argument("script", required=False)
@click.option("--root", help="The broker that is to be the root.")
def reroot(configuration: str, script: str | None, root: str | None) -> None:
    """Print CONFIGURATION with another root: the broker amid its traffic, so that climbs are short.

    The links stay. The traffic is what SCRIPT publishes and delivers at each broker; without one,
    every client counts the same.
    """
    scenario = load_scenario(configuration, script)
    overlay = scenario.configuration.overlay
    root = root or builders.middle_of_traffic(overlay, _traffic(scenario))
    if root not in overlay.brokers:
        raise BadInputError(f"--root: {root!r} found, a broker of {configuration} expected")
    rerooted = attrs.evolve(scenario.configuration, overlay=builders.rerooted(overlay, root))
    click.echo(format_configuration(rerooted), nl=False)


def _traffic(scenario: Scenario) -> Counter[str]:
    """Estimate what is published and delivered at each broker, whatever comes first."""
    overlay = scenario.configuration.overlay
    commands = scenario.script.commands
    streams = [one for one in commands if isinstance(one, PublishStream)]
    if not streams:
        return Counter(map(overlay.broker_of, (*overlay.publishers, *overlay.subscribers)))
    wanted: dict[str, list[Filter]] = {}
    for one in commands:
        if isinstance(one, Subscribe):
            wanted.setdefault(one.process, []).append(filter_of(one.interest))
    traffic: Counter[str] = Counter()
    for stream in streams:
        traffic[overlay.broker_of(stream.process)] += stream.count
        contents = _sample(stream)
        for subscriber, filters in wanted.items():
            given = sum(any(one.matches(content) for one in filters) for content in contents)
            traffic[overlay.broker_of(subscriber)] += given * stream.count // max(len(contents), 1)
    return traffic


def _sample(stream: PublishStream) -> list[Content]:
    numbers = range(1, min(stream.count, SAMPLES_MAX) + 1)
    match stream.content:
        case Topic(name):
            return [{"topic": name} for _ in numbers]
        case template:
            rng = Random(0)
            return [render(template, n, rng) for n in numbers]


@command.command()
@click.argument("configuration")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a picture into this file, and print nothing.",
)
def draw(configuration: str, svg: Path | None) -> None:
    """Draw the overlay of CONFIGURATION: its brokers as a tree, with their clients."""
    overlay = load_scenario(configuration, None).configuration.overlay
    if svg is None:
        click.echo(draw_text(overlay), nl=False)
    else:
        with naming(svg):
            svg.write_text(draw_svg(overlay), encoding="utf-8")
