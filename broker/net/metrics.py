"""What a broker tells monitoring systems, as Prometheus reads it (text format 0.0.4)."""

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from plait.broker.host.host import Host
from plait.broker.messages import NodeKind
from plait.broker.net.broker_files import Written
from plait.broker.net.driver import Driver
from plait.broker.principals import Protection

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

OPERATION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a confirmation by the next broker to one that had to wait for a reconnection."""

Family = tuple[str, str, str, list[str]]
"""A metric: its name, type and meaning, and its samples as they are printed."""


class BrokerMetrics:
    """Reads one broker's counters."""

    def __init__(self, host: Host, driver: Driver, written: Callable[[], Written]) -> None:
        self.is_ready = False
        self.connections_refused = 0
        """Because there were too many."""
        self._host = host
        self._driver = driver
        self._written = written
        self._operations = Histogram(OPERATION_BOUNDS_S)

    def exposition(self) -> str:
        """All metrics, as one text."""
        lines = []
        for name, kind, meaning, samples in self._families():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"

    def _families(self) -> Iterator[Family]:
        host, driver = self._host, self._driver
        counted, traffic, status = host.statistics(), driver.traffic, host.status()
        neighbours = status["neighbours"]

        links: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for link, buffered in driver.buffered_bytes().items():
            kind = host.kind_of(link)
            name = "ungreeted" if kind is None else kind.value
            links[name] += 1
            waiting[name] += buffered
        unconfirmed: Counter[str] = Counter()
        for neighbour in neighbours:
            unconfirmed[neighbour["kind"]] += neighbour["unconfirmed"]
        self._operations.observe(host.take_latencies())

        yield _gauge("plait_ready", "1 once the broker has joined", int(self.is_ready))
        yield _gauge(
            "plait_insecure",
            "1 if other machines reach this broker and nobody shows who it is",
            int(status["protection"] == Protection.INSECURE),
        )
        yield _counter(
            "plait_not_admitted_total",
            "Connections of those who did not show who they are",
            driver.not_admitted_count,
        )
        yield _by_kind("plait_links", "Open connections, by what is at the other end", links)
        yield _counter(
            "plait_connections_refused_total",
            "Connections closed at once because there were too many",
            self.connections_refused,
        )
        yield _counter(
            "plait_links_cut_off_total",
            "Connections closed because too many had not greeted, or all together kept too much",
            driver.cut_off_count,
        )
        yield _gauge(
            "plait_step_seconds_max",
            "The longest time that one input took since this was last asked",
            driver.take_longest_step(),
        )
        yield _counter(
            "plait_protocol_errors_total",
            "Links closed because the other side broke the protocol",
            counted.protocol_errors + driver.protocol_errors,
        )
        yield _counter(
            "plait_messages_unsendable_total",
            "Messages not sent because every peer would have refused them: a bug",
            driver.messages_unsendable,
        )
        yield _counter(
            "plait_clients_isolated_total",
            "Clients cut off because they did not keep up",
            counted.clients_isolated,
        )
        yield _counter(
            "plait_publications_received_total",
            "Publications that arrived over any link",
            counted.publications.received,
        )
        yield _counter(
            "plait_publications_sent_total",
            "Publications sent over links, once for each link",
            counted.publications.sent,
        )
        yield _counter(
            "plait_publications_matched_total",
            "Publications received that somebody had subscribed to",
            counted.publications.matched,
        )
        yield _counter(
            "plait_publications_duplicate_total",
            "Publications refused because they had been received before",
            counted.publications.duplicate,
        )
        yield _counter(
            "plait_publications_stable_total",
            "Publications that have reached everybody who was owed them",
            counted.publications.stable,
        )
        yield _counter(
            "plait_publications_skipped_total",
            "Publications given up, for one subscriber or for all beyond this broker",
            counted.skipped,
        )
        yield _gauge(
            "plait_publications_unstable",
            "Publications kept because somebody may not have them yet",
            status["unstable"],
        )
        yield _gauge(
            "plait_publications_held",
            "Publications held back until their place in the order is settled",
            counted.held,
        )
        yield _gauge(
            "plait_topics_managed",
            "Topics whose publications are numbered here, where topics are ordered",
            counted.topics_managed,
        )
        yield _counter(
            "plait_publications_numbered_total",
            "Publications that were given a number on their topic",
            counted.publications.numbered,
        )
        yield _counter(
            "plait_publications_unnumbered_total",
            "Publications handed to a client without one, as the topic's manager was moving",
            counted.publications.unnumbered,
        )
        yield (
            "plait_publication_hold_seconds",
            "summary",
            "Time for which settled publications were held: until the parent had settled them, "
            "behind an earlier one of their publisher, behind one with subscribers in common",
            [
                sample
                for cause, holds in counted.hold_times.items()
                for sample in _summary(
                    "plait_publication_hold_seconds", "cause", cause, holds.count, holds.seconds
                )
            ],
        )
        yield _by_kind(
            "plait_publications_unconfirmed",
            "Publications sent and not confirmed by the receiver yet, by what it is",
            unconfirmed,
        )
        yield _by_kind(
            "plait_send_buffer_bytes", "Bytes waiting for a socket, by what is at its end", waiting
        )
        yield _counter(
            "plait_received_bytes_total", "Bytes read from connections", traffic.bytes_received
        )
        yield _counter("plait_sent_bytes_total", "Bytes given to sockets", traffic.bytes_sent)
        yield _counter(
            "plait_received_messages_total", "Messages of any type", traffic.messages_received
        )
        yield _counter("plait_sent_messages_total", "Messages of any type", traffic.messages_sent)
        yield _gauge(
            "plait_publishers_remembered",
            "Publishers whose last publication is known here, also of some that are gone",
            counted.publishers_remembered,
        )
        yield _gauge("plait_subscriptions", "Subscriptions known here", status["subscriptions"])
        yield _gauge("plait_advertisements", "Advertisements known here", status["advertisements"])
        yield _counter(
            "plait_route_cache_hits_total",
            "Publications whose route was remembered",
            counted.publications.routes_cached,
        )
        yield _counter(
            "plait_route_cache_misses_total",
            "Publications whose route had to be worked out",
            counted.publications.routes_computed,
        )
        yield _gauge(
            "plait_operations_pending",
            "Joins, advertisements, subscriptions and so on that are not confirmed yet",
            counted.operations_pending,
        )
        yield _counter(
            "plait_operations_refused_total", "Operations refused", counted.operations_refused
        )
        written = self._written()
        yield (
            "plait_lines_lost_total",
            "counter",
            "Lines that could not be written, by where they belonged",
            [f'plait_lines_lost_total{{to="{to}"}} {n}' for to, n in written.lost.items()],
        )
        yield _gauge(
            "plait_history_bytes", "Size of the history of this life", written.history_bytes
        )
        yield _gauge(
            "plait_state_kept",
            "1 while the state file has what it should have",
            int(written.is_state_kept),
        )
        yield (
            "plait_operation_seconds",
            "histogram",
            "Time from an operation's arrival to its confirmation",
            list(self._operations.samples("plait_operation_seconds")),
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


_LINK_KINDS: Final = (*(kind.value for kind in NodeKind), "ungreeted")


def _counter(name: str, meaning: str, value: int) -> Family:
    return name, "counter", meaning, [f"{name} {value}"]


def _gauge(name: str, meaning: str, value: float) -> Family:
    return name, "gauge", meaning, [f"{name} {value}"]


def _summary(name: str, label: str, value: str, count: int, total: float) -> Iterator[str]:
    """Print how many observations there were, and their sum."""
    yield f'{name}_sum{{{label}="{value}"}} {total:.6f}'
    yield f'{name}_count{{{label}="{value}"}} {count}'


def _by_kind(name: str, meaning: str, values: Counter[str]) -> Family:
    """Make a gauge with a sample for every kind, or it would vanish when there is none of it."""
    samples = [f'{name}{{kind="{kind}"}} {values[kind]}' for kind in _LINK_KINDS]
    return name, "gauge", meaning, samples
