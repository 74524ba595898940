"""What is wanted of the orderings of topics, and whether it is met."""

import itertools
import math
from collections.abc import Iterator
from typing import Final

from plait.scripts.bench.order_figures import Goal, none_wanted
from plait.scripts.bench.topics_document import value_of
from plait.scripts.bench.topics_measure import (
    AS_REPORTED,
    DETECTORS_BUFFERS,
    FIFO,
    PAIRWISE,
    SEQUENCER,
    TNO,
    Study,
    buffered,
)
from plait.scripts.bench.topics_results import Results
from plait.scripts.bench.topics_swaps import ENTRY_BYTES, Order

BESIDE_PAIRWISE: Final = 1.02
"""What `tno` may take, of what `pairwise` takes."""
STAMP_BYTES: Final = {20: 46, 8: 22, 1: 5}
"""By the number of its entries, what a stamp may have at most."""
DISORDERED: Final = 45.0
"""Per cent of the patterns that two detectors may agree on, if nothing is ordered."""
DETECTED_AT: Final = 5.0
"""Publications a second and topic."""
BACK_WITHIN: Final = 1.5
"""Of the managers visited before popularity was shuffled, 600 s after it."""


def goals_of(results: Results) -> list[Goal]:
    """All that this session allows to be judged."""
    return [
        *_cost_goals(results),
        *_stamp_goals(results),
        *_buffer_goals(results),
        *_shuffle_goals(results),
        *_pattern_goals(results),
    ]


def _cost_goals(results: Results) -> Iterator[Goal]:
    for tno in results.of(Study.COST, TNO):
        pairwise = results.find(Study.COST, PAIRWISE, tno.x)
        if pairwise is None:
            continue
        for what, ours, theirs in (
            ("delay", 1e3 * tno.delay_s, 1e3 * pairwise.delay_s),
            ("sendings of a publication", tno.sendings, pairwise.sendings),
        ):
            yield Goal(
                name=f"{what} under tno, divided by that of pairwise; {tno.law}",
                value=ours / theirs,
                wanted=f"at most {BESIDE_PAIRWISE}",
                is_met=ours <= theirs * BESIDE_PAIRWISE,
                baseline=f"{ours:.1f} and {theirs:.1f}" + " ms" * (what == "delay"),
            )
    ordered = [p for p in results.of(Study.COST) if p.system in (PAIRWISE, SEQUENCER, TNO)]
    if ordered:
        fifo = sum(point.disagreements for point in results.of(Study.COST, FIFO))
        yield none_wanted(
            "pairs of subscribers that disagree, where order is promised",
            sum(point.disagreements for point in ordered),
            f"under fifo {fifo:,}",
        )


def _stamp_goals(results: Results) -> Iterator[Goal]:
    sizes: dict[int, int] = {}
    for point in results.of(Study.COST, TNO):
        for entries, size in point.stamp_sizes.items():
            sizes[entries] = max(size, sizes.get(entries, 0))
    for entries, most in STAMP_BYTES.items():
        if entries in sizes:
            yield Goal(
                name=f"bytes of a stamp with {entries} {'entries' if entries > 1 else 'entry'}",
                value=sizes[entries],
                wanted=f"at most {most}",
                is_met=sizes[entries] <= most,
                baseline=f"{ENTRY_BYTES * entries} in the document",
            )


def _buffer_goals(results: Results) -> Iterator[Goal]:
    tagged = [point.tagged for point in results.of(Study.BUFFERS, AS_REPORTED)]
    if tagged:
        yield none_wanted(
            "larger buffers with which more is tagged than with smaller ones",
            sum(after > before for before, after in itertools.pairwise(tagged)),
            f"{tagged[0]:.1%} tagged without a buffer, {tagged[-1]:.1%} with the largest; a model",
        )


def _shuffle_goals(results: Results) -> Iterator[Goal]:
    counted = {one.at: one for order, one in results.shuffles if order == Order.COUNTED}
    for order, one in results.shuffles:
        if order == Order.RATED:
            yield Goal(
                name=f"managers visited from 600 s after a shuffle at {one.at:,} s, of "
                f"those before",
                value=one.quotient,
                wanted=f"at most {BACK_WITHIN}",
                is_met=one.quotient <= BACK_WITHIN,
                baseline=f"{one.before:.0f}, then {one.just_after:.0f}, then "
                f"{one.later:.0f}; counted as "
                f"published {counted[one.at].quotient:.2f}; a model",
            )


def _pattern_goals(results: Results) -> Iterator[Goal]:
    study = Study.PATTERNS
    bare = results.find(study, FIFO, DETECTED_AT)
    if bare is None:
        return
    yield Goal(
        name=f"% of patterns that two detectors both find under fifo, at {DETECTED_AT:g} a second",
        value=100 * bare.contiguous,
        wanted=f"at most {DISORDERED:g}",
        is_met=100 * bare.contiguous <= DISORDERED,
        baseline=f"{value_of(21, 'no order'):g} in the document",
    )
    for name in (PAIRWISE, TNO):
        least = min((point.contiguous for point in results.of(study, name)), default=math.nan)
        yield Goal(
            name=f"% of patterns that two detectors both find under {name}, at any rate",
            value=100 * least,
            wanted="100",
            is_met=least == 1.0,
            baseline=f"under fifo {100 * bare.contiguous:.0f}",
        )
    shares = [
        point.contiguous
        for most in DETECTORS_BUFFERS
        if (point := results.find(study, buffered(most), DETECTED_AT)) is not None
    ]
    yield none_wanted(
        "larger buffers with which detectors agree on less than with smaller ones",
        sum(after < before for before, after in itertools.pairwise(shares)),
        f"{shares[0]:.0%} without a buffer, {shares[-1]:.0%} with an infinite one; a model",
    )
