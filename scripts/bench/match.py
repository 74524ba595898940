"""The matching index beside a scan of all subscriptions: one question, asked of both.

The question is the one a broker asks of every publication: by which hops do subscriptions lie that
match it? The subscribers are interested in stocks. Each asks for a symbol (most of them for one,
some for several or for a prefix), a range of prices and a least volume; few symbols are popular
and many are not, as in any market, and about one publication in a hundred suits a subscriber.
"""

import gc
import itertools
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import click

from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.ids import NodeId
from plait.routing.matching import Matcher, MatchingIndex, ScanningMatcher
from plait.routing.values import Content
from plait.scripts.options import json_option

Figures: TypeAlias = dict[str, int | float]

HOPS: Final = 10
"""A broker with that many neighbours and clients is a busy one."""

SCANS: Final = 200
"""Publications that the scan is asked about: each takes it milliseconds."""

COVERING: Final = 1_000
"""Subscriptions that are compared with all before them, to see what covering would spare."""

_SYMBOLS: Final = ["".join(letters) for letters in itertools.product("ABCD", "KLM", "XYZ")]
_POPULARITY: Final = [1 / rank for rank in range(1, len(_SYMBOLS) + 1)]
_PRICE_MAX: Final = 1_000
_VOLUME_MAX: Final = 100_000


def measure(subscriptions: int = 10_000, rounds: int = 2_000, seed: int = 0) -> Figures:
    """Measure both, and the index also with a tenth of the subscriptions.

    Times are microseconds for one publication; memory is that of the filters and the index.
    """
    chance = random.Random(seed)
    texts = [draw_subscription(chance) for _ in range(subscriptions)]
    publications = [draw_publication(chance) for _ in range(rounds)]

    tracemalloc.start()
    filters = [parse_filter(text) for text in texts]
    index: MatchingIndex[int] = MatchingIndex()
    _fill(index, filters)
    index.hops(publications[0])
    gc.collect()
    bytes_held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    tenth: MatchingIndex[int] = MatchingIndex()
    _fill(tenth, filters[: subscriptions // 10])
    scan: ScanningMatcher[int] = ScanningMatcher()
    _fill(scan, filters)
    # What a filter has found out about itself it would keep.
    fresh = [Filter(filter_.condition) for filter_ in filters]
    started = time.perf_counter()
    _fill(MatchingIndex(), fresh)
    seconds_to_fill = time.perf_counter() - started

    for publication in publications[:SCANS]:
        # This also lets every filter compile, which is no part of a scan.
        assert index.hops(publication) == scan.hops(publication)
    matching = sum(index.matching_bits(publication).bit_count() for publication in publications)
    covered, seconds_to_cover = _covering(filters[:COVERING])
    times = microseconds(index.hops, publications)
    times_tenth = microseconds(tenth.hops, publications)
    times_scan = microseconds(scan.hops, publications[:SCANS])
    return {
        "subscriptions": subscriptions,
        "hops": HOPS,
        "seed": seed,
        "matching_percent": 100 * matching / (subscriptions * rounds),
        "index_p50_us": quantile(times, 0.50),
        "index_p99_us": quantile(times, 0.99),
        "index_tenth_p50_us": quantile(times_tenth, 0.50),
        "index_tenth_p99_us": quantile(times_tenth, 0.99),
        "scan_p50_us": quantile(times_scan, 0.50),
        "scan_p99_us": quantile(times_scan, 0.99),
        "times_faster_than_scan": quantile(times_scan, 0.50) / quantile(times, 0.50),
        "times_slower_than_tenth": quantile(times, 0.50) / quantile(times_tenth, 0.50),
        "add_us": 1e6 * seconds_to_fill / subscriptions,
        "bytes_per_subscription": bytes_held / subscriptions,
        "covered_percent": 100 * covered / len(filters[:COVERING]),
        "covering_us": 1e6 * seconds_to_cover / len(filters[:COVERING]),
    }


def report(figures: Figures) -> str:
    """Set the figures in a table."""
    many, few = int(figures["subscriptions"]), int(figures["subscriptions"]) // 10
    rows = [
        (f"index of {many:,}", "index_p50_us", "index_p99_us"),
        (f"index of {few:,}", "index_tenth_p50_us", "index_tenth_p99_us"),
        (f"scan of {many:,}", "scan_p50_us", "scan_p99_us"),
    ]
    return "\n".join(
        [
            f"{'hops of one publication':<24}{'p50':>13}{'p99':>13}",
            *(
                f"{name:<24}{figures[p50]:>10,.1f} µs{figures[p99]:>10,.1f} µs"
                for name, p50, p99 in rows
            ),
            f"{figures['times_faster_than_scan']:.0f} times as fast as the scan, "
            f"{figures['times_slower_than_tenth']:.1f} times as slow as with {few:,}.",
            f"{figures['matching_percent']:.1f} % match. "
            f"To add a subscription takes {figures['add_us']:.0f} µs, "
            f"to keep it {figures['bytes_per_subscription']:,.0f} bytes.",
            f"Covering, which plait does without, would spare {figures['covered_percent']:.0f} % "
            f"of {COVERING:,} subscriptions, for {figures['covering_us']:,.0f} µs each.",
        ]
    )


@click.command()
@click.option("--subscriptions", type=click.IntRange(min=10), default=10_000, show_default=True)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=2_000,
    show_default=True,
    help="Publications to ask about.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the workload.")
@json_option("the figures")
def command(subscriptions: int, rounds: int, seed: int, as_json: bool) -> None:
    """Compare the matching index with a scan of all subscriptions."""
    figures = measure(subscriptions, rounds, seed)
    click.echo(json.dumps(figures) if as_json else report(figures))


def draw_symbol(chance: random.Random) -> str:
    """Draw a symbol, a popular one more often."""
    (symbol,) = chance.choices(_SYMBOLS, _POPULARITY)
    return symbol


def draw_subscription(chance: random.Random) -> str:
    """Draw what somebody wants to know of the market."""
    symbol = draw_symbol(chance)
    wanted = chance.choices(
        [
            f"symbol = '{symbol}'",
            f"symbol IN ('{symbol}', '{chance.choice(_SYMBOLS)}')",
            f"symbol LIKE '{symbol[:2]}%'",
        ],
        [8, 1, 1],
    )[0]
    low = round(chance.uniform(0, _PRICE_MAX), 2)
    high = round(low + chance.uniform(0, _PRICE_MAX / 2), 2)
    volume = chance.randrange(_VOLUME_MAX)
    return f"{wanted} AND price BETWEEN {low} AND {high} AND volume >= {volume}"


def draw_publication(chance: random.Random) -> Content:
    """Draw a trade."""
    symbol = draw_symbol(chance)
    price = round(chance.uniform(0, _PRICE_MAX), 2)
    return {"symbol": symbol, "price": price, "volume": chance.randrange(_VOLUME_MAX)}


def _fill(matcher: Matcher[int], filters: Sequence[Filter]) -> None:
    for key, filter_ in enumerate(filters):
        matcher.add(key, NodeId(f"hop{key % HOPS}"), filter_)


def _covering(filters: Sequence[Filter]) -> tuple[int, float]:
    """Count the filters that an earlier one covers, and time the search."""
    started = time.perf_counter()
    covered = sum(
        any(earlier.covers(filter_) for earlier in filters[:number])
        for number, filter_ in enumerate(filters)
    )
    return covered, time.perf_counter() - started


Question = TypeVar("Question")


def microseconds(ask: Callable[[Question], object], questions: Sequence[Question]) -> list[float]:
    """Time every question by itself; in ascending order."""
    times = []
    for question in questions:
        started = time.perf_counter_ns()
        ask(question)
        times.append((time.perf_counter_ns() - started) / 1_000)
    return sorted(times)


def quantile(ascending: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
