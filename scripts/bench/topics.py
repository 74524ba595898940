"""Order among topics: figures 9 to 24 of the document that it comes from, and what order costs.

Read `topics_workload.py` for what is tried, `topics_world.py` for the cores and `topics_model.py`
for what is modelled, `topics_document.py` for what the document reports, `topics_figures.py` for
the figures and `topics_goals.py` for what is wanted.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from plait.faulttol.files import naming
from plait.scripts.bench.order_figures import without_nan
from plait.scripts.bench.session import (
    cleaning_up_when_told_to_stop,
    plots_option,
    tell_terminal,
    write_plots,
)
from plait.scripts.bench.topics_figures import figures_of
from plait.scripts.bench.topics_goals import goals_of
from plait.scripts.bench.topics_measure import (
    QUICK,
    Study,
    TopicSession,
    moving,
    moving_on_cores,
    points,
    shuffles,
)
from plait.scripts.bench.topics_page import page
from plait.scripts.bench.topics_report import report
from plait.scripts.bench.topics_results import Results
from plait.scripts.options import json_option


def measure(session: TopicSession) -> Results:
    """Measure all that a session is to measure."""
    return Results(
        points=list(points(session)),
        moving=list(moving(session)),
        moving_on_cores=list(moving_on_cores(session)),
        shuffles=list(shuffles(session)),
    )


def to_json(results: Results) -> str:
    """Everything; what there is none of is null."""
    figures = figures_of(results)
    document = {
        **attrs.asdict(results),
        "shuffles": [
            {"order": order, **attrs.asdict(one), "quotient": one.quotient}
            for order, one in results.shuffles
        ],
        "figures": [
            {
                "number": figure.number,
                "title": figure.title,
                "how": figure.how,
                "reported": [attrs.asdict(one) for one in figure.reported],
                "ours": figure.ours,
                "differs": figure.differs,
            }
            for figure in figures
        ],
        "goals": [attrs.asdict(goal) for goal in goals_of(results)],
    }
    return json.dumps(without_nan(document))


@click.command()
@click.option(
    "--study",
    "studies",
    type=click.Choice([study.value for study in Study]),
    multiple=True,
    help="Only this one; may be given several times.  [default: all]",
)
@click.option(
    "--brokers",
    "sizes",
    type=click.IntRange(min=2),
    multiple=True,
    help="Of the study 'sizes', on the cores; may be given several times.  "
    "[default: 10, 30, 100, 300 and 1,000]",
)
@click.option("--quick", is_flag=True, help="Everything, as small as may be: within a minute.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of everything that is random."
)
@click.option(
    "--page",
    "page_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for all figures as HTML.",
)
@plots_option
@json_option("the figures, with every point of them,")
def command(
    studies: Sequence[str],
    sizes: Sequence[int],
    quick: bool,
    seed: int,
    page_path: Path | None,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Compare orders of topics: with the document they come from, and with one another.

    \b
    cost           24 brokers, four workloads: delays, messages, stamps
    sizes          figures 9 to 12: 10 brokers and more, and up to 10,000 nodes in a model
    subscriptions  figures 13 and 14: bytes of stamps, and work of topic managers
    buffers        figure 15: what is tagged, and how late, by the size of a buffer
    moving         figures 16 to 20: topics that change places; a model
    patterns       figure 21: patterns that two detectors both find
    prototype      figure 22: ten brokers, 21 ms apart
    rates          figures 23 and 24: the same at up to 100 publications a second

    All of it is in virtual time. Brokers and clients are the real ones; what is a model is called
    one: that of the document's own system, SCRIBE on Pastry with its algorithm, and that of topics
    that move. Everything takes half an hour of a processor, most of it for 1,000 brokers.

    \b
    Examples:
      plait bench topics --quick
      plait bench topics --study patterns --study cost
      plait bench topics --page topics.html
      plait bench topics --study sizes --brokers 10 --brokers 100
    """  # noqa: D301 - a raw string has no \b, by which click tells what not to wrap
    session = attrs.evolve(QUICK if quick else TopicSession(), seed=seed, tell=tell_terminal)
    if studies:
        session = attrs.evolve(session, studies=tuple(map(Study, studies)))
    if sizes:
        session = attrs.evolve(session, sizes=tuple(sizes))
    with cleaning_up_when_told_to_stop():
        results = measure(session)
    write_plots(plots, {n: c for figure in figures_of(results) for n, c in figure.charts.items()})
    if page_path is not None:
        with naming(page_path):
            page_path.write_text(page(results), encoding="utf-8")
    click.echo(to_json(results) if as_json else report(results))
