"""One trial: one system, started anew, under one workload, for some seconds.

Rates and processor time are taken between 25 % and 95 % of the run, when everything is warm and
nothing has begun to stop.
"""

import contextlib
import math
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import psutil
import trio

from plait.broker.access.admission import Role
from plait.scripts.bench.board import Board, now_ns
from plait.scripts.bench.crew import Crew, open_crew
from plait.scripts.bench.load import count_disagreeing, read_words
from plait.scripts.bench.members import BOARD_FILE, CLIENT, Part
from plait.scripts.bench.workloads import Workload
from plait.scripts.certificate_folder import CertificateFolder
from plait.scripts.launcher import BrokerPlan, launch

DEFAULT_ORDERING: Final = "fifo"
"""What most systems promise, and every peer in the harness."""

DEFAULT_DELTA: Final = 1

MEASURED_FROM: Final = 0.25
MEASURED_TO: Final = 0.95
WARM_UP_SHARE: Final = 0.2
"""Of the latencies, so many are not looked at."""

SETTLE_S: Final = 0.3
"""Between the last confirmation and the start, for whatever is still going on."""
QUIET_S: Final = 3.0
"""Whoever has received nothing for so long will receive nothing more."""
POLL_INTERVAL_S: Final = 0.01
_NS_PER_S: Final = 1_000_000_000


@attrs.frozen(kw_only=True)
class System:
    """What passes publications on in a trial."""

    name: str
    """Of a relay: its role in `members.ROLES`."""
    title: str
    brokers: int
    """In a line, publishers at its first; without any it is a relay."""
    is_spread: bool = False
    """Whether every broker has the same number of subscribers, or the last one all."""
    publishes_everywhere: bool = False
    """Whether every broker has the same number of publishers, or the first one all."""
    is_bare: bool = False
    """Whether its clients do no more than the relay's, or are those of the client library."""
    ordering: str = DEFAULT_ORDERING
    """What brokers promise."""
    delta: int = DEFAULT_DELTA
    """How many of them may fail at a time."""
    is_guarded: bool = False
    """Whether all of it is by TLS."""

    def broker_of(self, subscriber: int) -> int:
        """Which broker of the line a subscriber connects to."""
        return subscriber % self.brokers if self.is_spread else self.brokers - 1

    @property
    def hops(self) -> float:
        """Brokers that a delivery passes on its way, on average."""
        return (1 + self.brokers) / 2 if self.is_spread else self.brokers

    @property
    def links(self) -> int:
        """Links between brokers that every publication crosses."""
        return max(0, self.brokers - 1)


RELAY: Final = System(name="relay", title="relay, chunk by chunk", brokers=0)
FRAME_RELAY: Final = System(name="frame_relay", title="relay, frame by frame", brokers=0)
BROKER: Final = System(name="broker", title="one broker", brokers=1)
BARE_BROKER: Final = System(
    name="bare_broker", title="one broker, clients as bare", brokers=1, is_bare=True
)
TLS_BROKER: Final = System(
    name="tls_broker", title="one broker, with TLS", brokers=1, is_guarded=True
)
LINE: Final = System(name="line", title="line of 5, subscribers at its end", brokers=5)
SPREAD_LINE: Final = System(
    name="spread_line", title="line of 5, subscribers at all brokers", brokers=5, is_spread=True
)


@attrs.frozen(kw_only=True)
class Outcome:
    """What a trial found out."""

    messages_per_s: float
    """Received by the slowest subscriber; by all together if each wants something else."""
    deliveries_per_s: float
    """Received by all subscribers."""
    p50_ms: float
    p99_ms: float
    system_us: float
    """Processor time of the brokers, or of the relay, per delivery."""
    clients_us: float
    """Processor time of all clients per delivery."""
    missing: int
    """Publications that somebody should have received and has not."""
    disagreeing: int
    """Pairs of subscribers that got what both of them got in different orders."""
    others_percent: float
    """How much of the machine other programs used in the meantime."""


@attrs.frozen
class Service:
    """A system that has been started."""

    kind: str
    """What its clients are called in `members.ROLES`."""
    publishers_at: Sequence[str]
    """Publisher after publisher, by turns."""
    subscribers_at: Sequence[str]
    """Subscriber after subscriber, by turns."""
    pids: Sequence[int]
    profile: str = ""
    """What its clients show who they are with, if they have to."""


async def run_trial(system: System, workload: Workload, seconds: float) -> Outcome:
    """Start a system and its clients, let them work, stop them, and say what was observed."""
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as name:
        folder = Path(name)
        async with open_service(system, folder) as service, open_crew() as clients:
            trial = _Trial(service, workload, folder, clients)
            return await trial.run(seconds)


@contextlib.asynccontextmanager
async def open_service(system: System, folder: Path) -> AsyncIterator[Service]:
    """Run a system within the block."""
    if system.brokers:
        plans = plan_line(system.brokers, system.ordering, system.delta)
        profile = ""
        if system.is_guarded:
            plans, profile = guarded(plans, folder / "certs")
        async with launch(plans, log_directory=folder, tell=lambda _: None) as overlay:
            brokers = [f"b{number}" for number in range(system.brokers)]
            yield Service(
                kind="bare_broker" if system.is_bare else "broker",
                publishers_at=[
                    overlay.address_of(broker)
                    for broker in (brokers if system.publishes_everywhere else brokers[:1])
                ],
                subscribers_at=[
                    overlay.address_of(brokers[system.broker_of(subscriber)])
                    for subscriber in range(system.brokers if system.is_spread else 1)
                ],
                pids=[process.pid for process in overlay.processes.values()],
                profile=profile,
            )
    else:
        async with open_crew() as crew:
            [addresses] = await crew.hire([Part(role=system.name, folder=str(folder))])
            yield Service(
                kind="relay",
                publishers_at=[addresses["publishers"]],
                subscribers_at=[addresses["subscribers"]],
                pids=crew.pids,
            )


def plan_line(
    length: int, ordering: str = DEFAULT_ORDERING, delta: int = DEFAULT_DELTA
) -> list[BrokerPlan]:
    """Return a line of brokers b0, b1 ..., the root in the middle.

    So a publication that travels the whole line climbs half of it and descends the other half.
    """
    root = length // 2
    parents: dict[str, str | None] = {f"b{root}": None}
    parents |= {f"b{number}": f"b{number + 1}" for number in reversed(range(root))}
    parents |= {f"b{number}": f"b{number - 1}" for number in range(root + 1, length)}
    return plan_brokers(parents, ordering, delta)


def guarded(plans: Sequence[BrokerPlan], folder: Path) -> tuple[list[BrokerPlan], str]:
    """Return the same brokers with TLS, and the profile of a client."""
    certificates = CertificateFolder(folder)
    certificates.begin()
    for plan in plans:
        certificates.issue(Role.BROKER, plan.name, days=1)
    arguments = ("--tls", str(folder))
    return (
        [
            attrs.evolve(plan, arguments=(*plan.arguments, *arguments), is_guarded=True)
            for plan in plans
        ],
        str(certificates.issue(Role.CLIENT, CLIENT, days=1)),
    )


def plan_brokers(
    parents: Mapping[str, str | None], ordering: str, delta: int = DEFAULT_DELTA
) -> list[BrokerPlan]:
    """Return brokers, each with the one it joins at."""
    arguments = ("--ordering", ordering, "--delta", str(delta), "--log-level", "warning")
    return [
        BrokerPlan(name=name, parent=parent, arguments=arguments)
        for name, parent in parents.items()
    ]


class _Trial:
    def __init__(self, service: Service, workload: Workload, folder: Path, clients: Crew) -> None:
        self._service = service
        self._workload = workload
        self._clients = clients
        self._publishers = [
            Part(
                role=f"publish_to_{service.kind}",
                folder=str(folder),
                workload=workload,
                index=index,
                address=service.publishers_at[index % len(service.publishers_at)],
                profile=service.profile,
            )
            for index in range(workload.publishers)
        ]
        self._subscribers = [
            Part(
                role=f"subscribe_to_{service.kind}",
                folder=str(folder),
                workload=workload,
                index=index,
                address=service.subscribers_at[index % len(service.subscribers_at)],
                profile=service.profile,
            )
            for index in range(workload.subscribers)
        ]
        self._board = Board.create(
            folder / BOARD_FILE,
            publishers=workload.publishers,
            subscribers=workload.subscribers,
        )

    async def run(self, seconds: float) -> Outcome:
        board = self._board
        await self._clients.hire(self._subscribers)
        await self._clients.hire(self._publishers)
        starts_at = now_ns() + int(SETTLE_S * _NS_PER_S)
        board.begin(starts_at, starts_at + int(seconds * _NS_PER_S))
        before = await self._reading_at(starts_at + int(MEASURED_FROM * seconds * _NS_PER_S))
        after = await self._reading_at(starts_at + int(MEASURED_TO * seconds * _NS_PER_S))
        missing = await self._missing_at_last()
        await self._clients.dismiss()
        return self._outcome(before, after, missing)

    async def _reading_at(self, time_ns: int) -> "_Reading":
        await trio.sleep(max(0.0, (time_ns - now_ns()) / _NS_PER_S))
        self._clients.check()
        return _Reading(
            at_ns=now_ns(),
            received=self._board.received_by_each,
            system_cpu_s=cpu_seconds(self._service.pids),
            clients_cpu_s=cpu_seconds(self._clients.pids),
            machine_cpu_s=_busy_seconds(),
        )

    async def _missing_at_last(self) -> int:
        """Wait until everything has been received; return how much has not."""
        missing, quiet_since = -1, now_ns()
        while True:
            self._clients.check()
            still_missing = self._missing()
            if still_missing != missing or not self._board.is_over():
                missing, quiet_since = still_missing, now_ns()
            if missing == 0 and self._board.is_over():
                return 0
            if now_ns() - quiet_since > QUIET_S * _NS_PER_S:
                return missing
            await trio.sleep(POLL_INTERVAL_S)

    def _missing(self) -> int:
        copies = 1 if self._workload.is_selective else self._workload.subscribers
        return copies * sum(self._board.sent) - sum(self._board.received_by_each)

    def _outcome(self, before: "_Reading", after: "_Reading", missing: int) -> Outcome:
        elapsed_s = (after.at_ns - before.at_ns) / _NS_PER_S
        received = [b - a for a, b in zip(before.received, after.received, strict=True)]
        deliveries = sum(received)
        messages = deliveries if self._workload.is_selective else min(received)
        system_s = after.system_cpu_s - before.system_cpu_s
        clients_s = after.clients_cpu_s - before.clients_cpu_s
        others_s = after.machine_cpu_s - before.machine_cpu_s - system_s - clients_s
        latencies_ns = self._latencies_ns()
        return Outcome(
            messages_per_s=messages / elapsed_s,
            deliveries_per_s=deliveries / elapsed_s,
            p50_ms=quantile(latencies_ns, 0.50) / 1e6,
            p99_ms=quantile(latencies_ns, 0.99) / 1e6,
            system_us=1e6 * system_s / max(1, deliveries),
            clients_us=1e6 * clients_s / max(1, deliveries),
            missing=missing,
            disagreeing=count_disagreeing(
                [read_words(part.order_file) for part in self._subscribers]
            ),
            others_percent=100 * max(0.0, others_s) / elapsed_s / (os.cpu_count() or 1),
        )

    def _latencies_ns(self) -> list[int]:
        """Of all subscribers, ascending, without what came while things were warming up."""
        latencies_ns: list[int] = []
        for part in self._subscribers:
            ones = read_words(part.latencies_file)
            latencies_ns += ones[int(WARM_UP_SHARE * len(ones)) :]
        return sorted(latencies_ns)


@attrs.frozen(kw_only=True)
class _Reading:
    """All counters at one moment."""

    at_ns: int
    received: Sequence[int]
    system_cpu_s: float
    clients_cpu_s: float
    machine_cpu_s: float


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that processes have used since they began."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total


def _busy_seconds() -> float:
    """Return the processor time that anything on this machine has used."""
    times = psutil.cpu_times()
    return math.fsum(times) - times.idle - getattr(times, "iowait", 0.0)


def quantile(ascending: Sequence[float], share: float) -> float:
    """Return the value below which that share lies; not a number, if there are none."""
    if not ascending:
        return math.nan
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
