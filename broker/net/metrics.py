"""What a broker tells monitoring systems, as Prometheus reads it (text format 0.0.4)."""

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from plait.broker.host.host import Host
from plait.broker.host.status import Statistics
from plait.broker.messages import NodeKind
from plait.broker.net.broker_files import Written
from plait.broker.net.driver import Driver
from plait.broker.principals import Protection

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

OPERATION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a confirmation by the next broker to one that had to wait for a reconnection."""

_LINK_KINDS: Final = (*(kind.value for kind in NodeKind), "ungreeted")


@attrs.frozen(kw_only=True)
class Reading:
    """What a broker's counters say at one moment."""

    counted: Statistics
    status: Mapping[str, Any]
    driver: Driver
    written: Written
    links: Counter[str]
    """How many there are, by what is at the other end."""
    waiting_bytes: Counter[str]
    unconfirmed: Counter[str]
    connections_refused: int
    """Because there were too many."""
    is_ready: bool
    operations: "Histogram"


@attrs.frozen
class Metric:
    """A family of samples: what it is called, what it means, and where its values come from."""

    name: str
    kind: Literal["counter", "gauge", "summary", "histogram"]
    meaning: str
    samples: Callable[[str, Reading], Iterable[str]]
    """Given the name, its samples as they are printed."""


Number = Callable[[Reading], float]


def _plain(value: Number) -> Callable[[str, Reading], Iterable[str]]:
    return lambda name, reading: [f"{name} {value(reading)}"]


def _counter(name: str, meaning: str, value: Number) -> Metric:
    return Metric(name, "counter", meaning, _plain(value))


def _gauge(name: str, meaning: str, value: Number) -> Metric:
    return Metric(name, "gauge", meaning, _plain(value))


def _by_kind(name: str, meaning: str, values: Callable[[Reading], Counter[str]]) -> Metric:
    """Make a gauge with a sample for every kind, or it would vanish when there is none of it."""

    def samples(name: str, reading: Reading) -> Iterable[str]:
        counts = values(reading)
        return [f'{name}{{kind="{kind}"}} {counts[kind]}' for kind in _LINK_KINDS]

    return Metric(name, "gauge", meaning, samples)


def _hold_times(name: str, reading: Reading) -> Iterator[str]:
    for cause, holds in reading.counted.hold_times.items():
        yield f'{name}_sum{{cause="{cause}"}} {holds.seconds:.6f}'
        yield f'{name}_count{{cause="{cause}"}} {holds.count}'


def _lines_lost(name: str, reading: Reading) -> Iterator[str]:
    for place, count in reading.written.lost.items():
        yield f'{name}{{to="{place}"}} {count}'


METRICS: Final = (
    _gauge("plait_ready", "1 once the broker has joined", lambda r: int(r.is_ready)),
    _gauge(
        "plait_insecure",
        "1 if other machines reach this broker and nobody shows who it is",
        lambda r: int(r.status["protection"] == Protection.INSECURE),
    ),
    _counter(
        "plait_not_admitted_total",
        "Connections of those who did not show who they are",
        lambda r: r.driver.not_admitted_count,
    ),
    _by_kind("plait_links", "Open connections, by what is at the other end", lambda r: r.links),
    _counter(
        "plait_connections_refused_total",
        "Connections closed at once because there were too many",
        lambda r: r.connections_refused,
    ),
    _counter(
        "plait_links_cut_off_total",
        "Connections closed because too many had not greeted, or all together kept too much",
        lambda r: r.driver.cut_off_count,
    ),
    _gauge(
        "plait_step_seconds_max",
        "The longest time that one input took since this was last asked",
        lambda r: r.driver.take_longest_step(),
    ),
    _counter(
        "plait_protocol_errors_total",
        "Links closed because the other side broke the protocol",
        lambda r: r.counted.protocol_errors + r.driver.protocol_errors,
    ),
    _counter(
        "plait_messages_unsendable_total",
        "Messages not sent because every peer would have refused them: a bug",
        lambda r: r.driver.messages_unsendable,
    ),
    _counter(
        "plait_clients_isolated_total",
        "Clients cut off because they did not keep up",
        lambda r: r.counted.clients_isolated,
    ),
    _counter(
        "plait_publications_received_total",
        "Publications that arrived over any link",
        lambda r: r.counted.publications.received,
    ),
    _counter(
        "plait_publications_sent_total",
        "Publications sent over links, once for each link",
        lambda r: r.counted.publications.sent,
    ),
    _counter(
        "plait_publications_matched_total",
        "Publications received that somebody had subscribed to",
        lambda r: r.counted.publications.matched,
    ),
    _counter(
        "plait_publications_duplicate_total",
        "Publications refused because they had been received before",
        lambda r: r.counted.publications.duplicate,
    ),
    _counter(
        "plait_publications_stable_total",
        "Publications that have reached everybody who was owed them",
        lambda r: r.counted.publications.stable,
    ),
    _counter(
        "plait_publications_skipped_total",
        "Publications given up, for one subscriber or for all beyond this broker",
        lambda r: r.counted.skipped,
    ),
    _gauge(
        "plait_publications_unstable",
        "Publications kept because somebody may not have them yet",
        lambda r: r.status["unstable"],
    ),
    _gauge(
        "plait_publications_held",
        "Publications held back until their place in the order is settled",
        lambda r: r.counted.held,
    ),
    _gauge(
        "plait_topics_managed",
        "Topics whose publications are numbered here, where topics are ordered",
        lambda r: r.counted.topics_managed,
    ),
    _counter(
        "plait_publications_numbered_total",
        "Publications that were given a number on their topic",
        lambda r: r.counted.publications.numbered,
    ),
    _counter(
        "plait_publications_unnumbered_total",
        "Publications handed to a client without one, as the topic's manager was moving",
        lambda r: r.counted.publications.unnumbered,
    ),
    Metric(
        "plait_publication_hold_seconds",
        "summary",
        "Time for which settled publications were held: until the parent had settled them, "
        "behind an earlier one of their publisher, behind one with subscribers in common",
        _hold_times,
    ),
    _by_kind(
        "plait_publications_unconfirmed",
        "Publications sent and not confirmed by the receiver yet, by what it is",
        lambda r: r.unconfirmed,
    ),
    _by_kind(
        "plait_send_buffer_bytes",
        "Bytes waiting for a socket, by what is at its end",
        lambda r: r.waiting_bytes,
    ),
    _counter(
        "plait_received_bytes_total",
        "Bytes read from connections",
        lambda r: r.driver.traffic.bytes_received,
    ),
    _counter(
        "plait_sent_bytes_total", "Bytes given to sockets", lambda r: r.driver.traffic.bytes_sent
    ),
    _counter(
        "plait_received_messages_total",
        "Messages of any type",
        lambda r: r.driver.traffic.messages_received,
    ),
    _counter(
        "plait_sent_messages_total",
        "Messages of any type",
        lambda r: r.driver.traffic.messages_sent,
    ),
    _gauge(
        "plait_publishers_remembered",
        "Publishers whose last publication is known here, also of some that are gone",
        lambda r: r.counted.publishers_remembered,
    ),
    _gauge("plait_subscriptions", "Subscriptions known here", lambda r: r.status["subscriptions"]),
    _gauge(
        "plait_advertisements", "Advertisements known here", lambda r: r.status["advertisements"]
    ),
    _counter(
        "plait_route_cache_hits_total",
        "Publications whose route was remembered",
        lambda r: r.counted.publications.routes_cached,
    ),
    _counter(
        "plait_route_cache_misses_total",
        "Publications whose route had to be worked out",
        lambda r: r.counted.publications.routes_computed,
    ),
    _gauge(
        "plait_operations_pending",
        "Joins, advertisements, subscriptions and so on that are not confirmed yet",
        lambda r: r.counted.operations_pending,
    ),
    _counter(
        "plait_operations_refused_total",
        "Operations refused",
        lambda r: r.counted.operations_refused,
    ),
    Metric(
        "plait_lines_lost_total",
        "counter",
        "Lines that could not be written, by where they belonged",
        _lines_lost,
    ),
    _gauge(
        "plait_history_bytes", "Size of the history of this life", lambda r: r.written.history_bytes
    ),
    _gauge(
        "plait_state_kept",
        "1 while the state file has what it should have",
        lambda r: int(r.written.is_state_kept),
    ),
    Metric(
        "plait_operation_seconds",
        "histogram",
        "Time from an operation's arrival to its confirmation",
        lambda name, r: r.operations.samples(name),
    ),
)


class BrokerMetrics:
    """Reads one broker's counters.

    There is a library for this, prometheus_client. It keeps the numbers itself, in a registry of
    the process; ours are counted by cores that know nothing of it, and printed when asked for.
    """

    def __init__(self, host: Host, driver: Driver, written: Callable[[], Written]) -> None:
        self.is_ready = False
        self.connections_refused = 0
        self._host = host
        self._driver = driver
        self._written = written
        self._operations = Histogram(OPERATION_BOUNDS_S)

    def exposition(self) -> str:
        """All metrics, as one text."""
        reading = self._read()
        lines: list[str] = []
        for metric in METRICS:
            lines.append(f"# HELP {metric.name} {metric.meaning}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += metric.samples(metric.name, reading)
        return "\n".join(lines) + "\n"

    def _read(self) -> Reading:
        host, driver = self._host, self._driver
        status = host.status()
        links: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for link, buffered in driver.buffered_bytes().items():
            kind = host.kind_of(link)
            name = "ungreeted" if kind is None else kind.value
            links[name] += 1
            waiting[name] += buffered
        unconfirmed: Counter[str] = Counter()
        for neighbour in status["neighbours"]:
            unconfirmed[neighbour["kind"]] += neighbour["unconfirmed"]
        self._operations.observe(host.take_latencies())
        return Reading(
            counted=host.statistics(),
            status=status,
            driver=driver,
            written=self._written(),
            links=links,
            waiting_bytes=waiting,
            unconfirmed=unconfirmed,
            connections_refused=self.connections_refused,
            is_ready=self.is_ready,
            operations=self._operations,
        )


@attrs.define
class Histogram:
    """How many observations were at most so large."""

    bounds: tuple[float, ...]
    counts: list[int] = attrs.field(init=False)
    """Between one bound and the next; the last is of those beyond every bound."""
    total: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, values: Iterable[float]) -> None:
        """Take in some more."""
        for value in values:
            self.counts[bisect.bisect_left(self.bounds, value)] += 1
            self.total += value

    def samples(self, name: str) -> Iterator[str]:
        """Print it: every bucket counts those below it, too."""
        bounds = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        for bound, count in zip(bounds, itertools.accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {sum(self.counts)}"
