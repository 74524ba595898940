"""The figures of topics as one page: no script, no other file, nothing from the network."""

from collections.abc import Iterator
from html import escape
from typing import Final

from plait.scripts.bench.order_figures import Goal
from plait.scripts.bench.topics_document import DOCUMENT
from plait.scripts.bench.topics_figures import Figure, figures_of
from plait.scripts.bench.topics_goals import goals_of
from plait.scripts.bench.topics_measure import Study
from plait.scripts.bench.topics_report import said
from plait.scripts.bench.topics_results import Results

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 85em; padding: 0 1em;
       color: #222; background: #fff; }
section { display: flex; flex-wrap: wrap; gap: 1em 2em; margin: 2em 0; align-items: flex-start; }
section > div { flex: 1 1 26em; max-width: 44em; }
h2 { font-size: 1.15em; width: 100%; margin: 1em 0 0; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .25em .8em; text-align: left; border-bottom: 1px solid #ddd; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.met { color: #176b2c; } .missed { color: #b3161b; font-weight: bold; }
.how { color: #555; font-size: 90%; }
svg { max-width: 100%; height: auto; }
"""


def page(results: Results) -> str:
    """Return the page, as HTML."""
    goals = goals_of(results)
    missed = sum(goal.is_met is False for goal in goals)
    verdict = f"{missed} of {len(goals)} goals missed" if missed else f"all {len(goals)} goals met"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>plait bench topics</title>',
        '<meta name="viewport" content="width=device-width">',
        f"<style>{_STYLE}</style>",
        f"<h1>Order among topics: {verdict}</h1>",
        f"<p>After {escape(DOCUMENT)}. Its figures are pictures; what it reports is what its text "
        "says, and stands beside what was measured here.</p>",
        _goals(goals),
        *_costs(results),
        *(_section(figure) for figure in figures_of(results)),
    ]
    return "\n".join(parts) + "\n"


def _goals(goals: list[Goal]) -> str:
    rows = []
    for goal in goals:
        css, word = {True: ("met", "met"), False: ("missed", "missed"), None: ("", "")}[goal.is_met]
        rows.append(
            f'<tr><td class="{css}">{word}</td><td class="number">{goal.value:,.4g}</td>'
            f"<td>{escape(goal.name)}</td><td>{escape(goal.wanted)}</td>"
            f"<td>{escape(goal.baseline)}</td></tr>"
        )
    head = "<tr><th></th><th></th><th></th><th>wanted</th><th>beside</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _costs(results: Results) -> Iterator[str]:
    points = results.of(Study.COST)
    if not points:
        return
    yield "<h2>Cost: 24 brokers on the real cores, every link 10 ms</h2>"
    rows = [
        f"<tr><td>{escape(point.law)}</td><td>{escape(point.system)}</td>"
        + "".join(
            f'<td class="number">{"-" if value != value else format(value, ".1f")}</td>'
            for value in (
                1e3 * point.delay_s,
                point.sendings,
                point.messages,
                point.entries,
                point.stamp_bytes,
                100 * point.tagged,
            )
        )
        + "</tr>"
        for point in points
    ]
    head = "<tr><th>workload</th><th>ordering</th><th>ms</th><th>sendings</th><th>messages</th>"
    head += "<th>entries</th><th>bytes</th><th>% tagged</th></tr>"
    yield f"<table>{head}{''.join(rows)}</table>"


def _section(figure: Figure) -> str:
    reported = "".join(f"<li>{escape(said(one, figure))}</li>" for one in figure.reported)
    charts = "".join(f"<figure>{chart.to_svg()}</figure>" for chart in figure.charts.values())
    return (
        f'<section id="figure-{figure.number}">'
        f"<h2>Figure {figure.number}: {escape(figure.title)}</h2>"
        f'<div>{charts}</div><div><p class="how">{escape(figure.how)}</p>'
        f"<p>The document reports:</p><ul>{reported}</ul>"
        f"<p>Here: {escape(figure.differs)}</p></div></section>"
    )
