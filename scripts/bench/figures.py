"""What a session of `plait bench overlay` has found out: medians, and ratios of them.

A *hop* is one broker that a publication passes; a *hand-over* is one publication sent by one broker
to one neighbour, be that a broker or a subscriber. In a line of five brokers a delivery at the far
end is the work of five hops, and as one machine does it all, one broker's *share* is a fifth of
what it delivers alone. That is lenient, because only the last hop has ten subscribers to serve. By
hand-overs the comparison is strict: ten per publication with one broker, fourteen in the line.
"""

import math
import statistics
from collections.abc import Iterator
from typing import Any

import attrs

from plait.scripts.bench.connecting import ConnectingFigures
from plait.scripts.bench.memory import MemoryFigures
from plait.scripts.bench.peers import PLAIT, PeerFigures
from plait.scripts.bench.trials import (
    BARE_BROKER,
    BROKER,
    FRAME_RELAY,
    LINE,
    RELAY,
    SPREAD_LINE,
    TLS_BROKER,
    Outcome,
    System,
)
from plait.scripts.bench.workloads import LATENCY, THROUGHPUT, Workload


@attrs.frozen(kw_only=True)
class Ratio:
    """One figure of this session, measured by another one."""

    name: str
    value: float
    meaning: str
    wanted: str = ""


@attrs.frozen(kw_only=True)
class Trials:
    """The outcomes of one system under one workload, round after round."""

    system: System
    workload: Workload
    outcomes: list[Outcome]

    @property
    def median(self) -> Outcome:
        """The median of every figure."""
        names = [field.name for field in attrs.fields(Outcome)]
        return Outcome(
            **{n: statistics.median(getattr(one, n) for one in self.outcomes) for n in names}
        )


@attrs.frozen(kw_only=True)
class Figures:
    """Everything."""

    seconds: float
    rounds: int
    ordering: str
    trials: list[Trials]
    memory: MemoryFigures | None = None
    connecting: ConnectingFigures | None = None
    peers: PeerFigures | None = None

    @property
    def ratios(self) -> list[Ratio]:
        """All comparisons that this session allows."""
        return [
            *self._against_relay(),
            *self._along_line(),
            *self._by_tls(),
            *self._of_memory(),
            *self._against_peers(),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything, down to each single trial."""
        return {
            "seconds": self.seconds,
            "rounds": self.rounds,
            "ordering": self.ordering,
            "trials": [
                {
                    "system": trials.system.name,
                    "workload": trials.workload.name,
                    "median": attrs.asdict(trials.median),
                    "outcomes": [attrs.asdict(outcome) for outcome in trials.outcomes],
                }
                for trials in self.trials
            ],
            "connecting": None if self.connecting is None else attrs.asdict(self.connecting),
            "memory": None if self.memory is None else attrs.asdict(self.memory),
            "peers": None if self.peers is None else attrs.asdict(self.peers),
            "ratios": {ratio.name: ratio.value for ratio in self.ratios},
        }

    def _median(self, system: System, workload: Workload) -> Outcome | None:
        for trials in self.trials:
            if (trials.system.name, trials.workload.name) == (system.name, workload.name):
                return trials.median
        return None

    def _against_relay(self) -> Iterator[Ratio]:
        broker = self._median(BROKER, THROUGHPUT)
        relay = self._median(RELAY, THROUGHPUT)
        bare_broker = self._median(BARE_BROKER, THROUGHPUT)
        if bare_broker and relay:
            yield Ratio(
                name="broker_to_relay",
                value=_quotient(bare_broker.deliveries_per_s, relay.deliveries_per_s),
                meaning="of the deliveries per second of the relay, clients equally bare",
                wanted="at least 0.5",
            )
        if broker and relay:
            yield Ratio(
                name="library_to_relay",
                value=_quotient(broker.deliveries_per_s, relay.deliveries_per_s),
                meaning="of the deliveries per second of the relay, the client library included",
            )
            yield Ratio(
                name="broker_to_relay_without_clients",
                value=_quotient(relay.system_us, broker.system_us),
                meaning="of them by processor time, clients left out: relay's per delivery, "
                "divided by broker's",
            )
        frame_relay = self._median(FRAME_RELAY, THROUGHPUT)
        if broker and frame_relay:
            yield Ratio(
                name="broker_to_frame_relay",
                value=_quotient(broker.deliveries_per_s, frame_relay.deliveries_per_s),
                meaning="of the deliveries per second of the relay that sends frame by frame",
            )

    def _along_line(self) -> Iterator[Ratio]:
        alone = self._median(BROKER, THROUGHPUT)
        for system in (LINE, SPREAD_LINE):
            line = self._median(system, THROUGHPUT)
            if alone and line:
                deliveries = _quotient(line.deliveries_per_s, alone.deliveries_per_s)
                subscribers = THROUGHPUT.subscribers
                hand_overs = (subscribers + system.links) / subscribers
                yield Ratio(
                    name=f"{system.name}_per_hop",
                    value=deliveries * system.hops,
                    meaning=f"of one broker's share: its deliveries per second / {system.hops:g} "
                    f"hops; {system.title}",
                    wanted="at least 0.8",
                )
                yield Ratio(
                    name=f"{system.name}_hand_overs",
                    value=deliveries * hand_overs,
                    meaning="of one broker's hand-overs per second, "
                    f"{subscribers + system.links} per publication instead of {subscribers}",
                )

    def _by_tls(self) -> Iterator[Ratio]:
        plain = self._median(BROKER, THROUGHPUT)
        guarded = self._median(TLS_BROKER, THROUGHPUT)
        if plain and guarded:
            yield Ratio(
                name="tls_to_plain",
                value=_quotient(guarded.deliveries_per_s, plain.deliveries_per_s),
                meaning="of the deliveries per second of one broker without TLS",
                wanted="at least 0.6",
            )
        if self.connecting is not None:
            yield Ratio(
                name="connecting_s",
                value=self.connecting.tls_s,
                meaning=f"seconds until {self.connecting.clients:,} clients had connected by TLS, "
                f"{self.connecting.plain_s:.1f} without",
                wanted="at most 10",
            )

    def _of_memory(self) -> Iterator[Ratio]:
        if self.memory is not None:
            yield Ratio(
                name="bytes_per_subscription",
                value=self.memory.bytes_per_subscription,
                meaning="bytes per subscription, at the broker where it is most",
                wanted="at most 4096",
            )
            yield Ratio(
                name="memory_growth",
                value=self.memory.growth,
                meaning="of the memory of one of the first for one of the last, 1 is linear",
            )

    def _against_peers(self) -> Iterator[Ratio]:
        peers = self.peers
        if peers is None:
            return
        for scenario, rows in peers.rows.items():
            for peer in rows:
                if peer == PLAIT:
                    continue
                if scenario in (LATENCY.name, "mlat"):
                    yield Ratio(
                        name=f"{scenario}_p50_to_{peer}",
                        value=_quotient(
                            peers.latency_ms(scenario, PLAIT), peers.latency_ms(scenario, peer)
                        ),
                        meaning=f"times the p50 latency of {peer}, {scenario}",
                        wanted="at most 1.5" if peer == "rabbit-headers" else "",
                    )
                else:
                    yield Ratio(
                        name=f"{scenario}_to_{peer}",
                        value=_quotient(
                            peers.messages_per_s(scenario, PLAIT),
                            peers.messages_per_s(scenario, peer),
                        ),
                        meaning=f"times the messages per second of {peer}, {scenario}",
                        wanted=peers.wanted[peer],
                    )


def _quotient(value: float, base: float) -> float:
    """Divide; nothing can be said, if a trial was too short to see anything."""
    return value / base if base else math.nan
