"""The figures of topics, for people at a terminal."""

import textwrap
from collections.abc import Iterator
from typing import Final

from plait.scripts.bench.order_report import goal_line
from plait.scripts.bench.topics_document import DOCUMENT, Reported
from plait.scripts.bench.topics_figures import Figure, figures_of
from plait.scripts.bench.topics_goals import goals_of
from plait.scripts.bench.topics_measure import Point, Study
from plait.scripts.bench.topics_results import Results

_WIDTH: Final = 100
_NAMED: Final = 34


def report(results: Results) -> str:
    """Set the figures in words, with what is wanted below."""
    lines: list[str] = []
    costs = results.of(Study.COST)
    if costs:
        lines += _costs(costs)
    figures = figures_of(results)
    if figures:
        lines += ["", f"figures of {DOCUMENT}"]
    for figure in figures:
        lines += _figure(figure)
    lines += ["", *map(goal_line, goals_of(results))]
    return "\n".join(lines).lstrip("\n")


def _costs(points: list[Point]) -> Iterator[str]:
    yield "24 brokers on the real cores, every link 10 ms; ms from publisher to subscriber"
    yield (
        f"{'':<{_NAMED}}{'ms':>8}{'sendings':>10}{'messages':>10}{'entries':>9}{'bytes':>7}"
        f"{'tagged':>8}{'disagree':>10}"
    )
    for point in points:
        yield (
            f"{f'{point.law}, {point.system}':<{_NAMED}}{1e3 * point.delay_s:>8.1f}"
            f"{point.sendings:>10.1f}{point.messages:>10.1f}{_or_none(point.entries):>9}"
            f"{_or_none(point.stamp_bytes):>7}{point.tagged:>8.1%}{point.disagreements:>10,}"
        )


def _figure(figure: Figure) -> Iterator[str]:
    yield ""
    yield f"figure {figure.number}: {figure.title}"
    yield from _wrapped("how", figure.how)
    for reported in figure.reported:
        yield from _wrapped("there", said(reported, figure))
    yield from _wrapped("here", figure.differs)


def said(reported: Reported, figure: Figure) -> str:
    """What the document says, and our number beside its own."""
    ours = figure.ours.get(reported.about)
    return reported.words + (f"; here {ours:.4g}" if ours is not None else "")


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"  {name:<7}", subsequent_indent=" " * 9)


def _or_none(value: float) -> str:
    return "-" if value != value else f"{value:.1f}"
