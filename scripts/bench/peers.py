"""plait among the systems that people might use instead, in a harness that knows nothing of it.

The harness is a folder with a `bench.py`, which runs one scenario on one peer, and an `adapters.py`
with a class per peer. plait joins them with a class of the same kind: it starts a line of broker
processes, and its clients use the client library in a process each. Everybody takes turns, in one
session.

The harness forks its clients. So nothing here may run inside trio, and what is called in a client
starts a trio of its own.
"""

import contextlib
import importlib
import importlib.metadata
import itertools
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio

from plait.broker.net.client import connect
from plait.scripts.bench.guardian import Guardian, open_guardian
from plait.scripts.bench.load import BURST_MAX
from plait.scripts.bench.trials import plan_line
from plait.scripts.bench.workloads import PAYLOAD_BYTES, WINDOW, Workload
from plait.scripts.errors import BadInputError
from plait.scripts.options import LOOPBACK

PLAIT: Final = "plait"
PEERS: Final[Mapping[str, str]] = {"rabbit-headers": "more than 1", "amqtt": "more than 1"}
"""Those that promise what `fifo` does, and what is wanted of our throughput, divided by theirs."""
ORDERED_PEERS: Final[Mapping[str, str]] = {
    "rabbit-stream": "more than 1",
    "spread-agreed": "at least 0.5",
}
"""Those that promise a total order: a replicated log, and a token that goes round."""

QUIET_PERCENT: Final = 15.0
"""Other programs may use so much of the machine; the harness waits a while for that."""
QUIET_WAIT_S: Final = 10.0
LINGER_S: Final = 20.0
"""A publisher's process stays for a while: some peers lose what was sent by one that left."""

Row: TypeAlias = dict[str, Any]
"""What the harness says about one scenario on one peer."""


class Subscriber(Protocol):
    """The harness's end of a subscriber."""

    on_msg: Callable[[bytes], None]

    def ready(self) -> None:
        """The subscription is installed."""


class Load(Protocol):
    """The harness's end of a publisher."""

    def steps(self) -> Iterator[tuple[Any, ...]]:
        """Yield `("wait", seconds)` or `("send", payload, class)`; marks itself as ready."""


class PlaitPeer:
    """plait, a line of brokers; a mixin for the harness's class of peers, which starts them."""

    classes: int
    """How many classes publications are of; 0 if every subscriber wants all of them."""
    ports: list[int]
    port: Callable[[int], int]
    """Of the broker that a client connects to, by the client's number."""
    ordering: str
    popen: Callable[[list[str]], Any]
    wait_port: Callable[[int], None]

    def version(self) -> str:
        """Say what is measured."""
        return f"plait {importlib.metadata.version('plait')}"

    def start(self) -> None:
        """Start the brokers."""
        program = [sys.executable, "-P", "-m", "plait", "broker"]
        plans = plan_line(len(self.ports), self.ordering)
        ports = {f"b{number}": port for number, port in enumerate(self.ports)}
        for plan in plans:
            address = ["--listen", f"{LOOPBACK}:{ports[plan.name]}"]
            if plan.parent is not None:
                address += ["--join", f"{LOOPBACK}:{ports[plan.parent]}"]
            self.popen([*program, "--name", plan.name, *address, *plan.arguments])
            self.wait_port(ports[plan.name])

    def subscriber(self, index: int, subscriber: Subscriber) -> None:
        """Be a subscriber until killed."""
        trio.run(self._subscribe, index, subscriber)

    def publisher(self, index: int, load: Load) -> None:
        """Be a publisher until killed."""
        trio.run(self._publish, index, load)

    @property
    def _workload(self) -> Workload:
        return Workload(
            name=PLAIT, subscribers=max(1, self.classes), is_selective=bool(self.classes)
        )

    async def _subscribe(self, index: int, subscriber: Subscriber) -> None:
        note = subscriber.on_msg
        async with connect(f"{LOOPBACK}:{self.port(index)}") as client:
            subscription = await client.subscribe(self._workload.subscription(index))
            subscriber.ready()
            async for batch in subscription.batches():
                for delivery in batch:
                    note(delivery.body)

    async def _publish(self, index: int, load: Load) -> None:
        contents = self._workload.contents
        async with connect(f"{LOOPBACK}:{self.port(index)}") as client:
            await client.advertise(self._workload.advertisement)
            sent = itertools.count(1)
            for step in load.steps():
                if step[0] == "wait":
                    await trio.sleep(step[1])
                    continue
                _, payload, number = step
                client.publish_nowait(contents[number], payload)
                if next(sent) % BURST_MAX == 0:
                    await trio.lowlevel.checkpoint()
            await trio.sleep(LINGER_S)


class Harness:
    """The harness, with plait among its peers."""

    def __init__(self, folder: Path, ordering: str) -> None:
        """Import it from its folder; `ordering` is what plait has to promise."""
        self._adapters = _import_from(folder, "adapters")
        self._bench = _import_from(folder, "bench")
        wait_port = staticmethod(self._adapters.wait_port)
        self._adapters.PEERS[PLAIT] = type(
            "Plait",
            (PlaitPeer, self._adapters.Peer),
            {"wait_port": wait_port, "ordering": ordering},
        )

    @contextlib.contextmanager
    def started(self, name: str, daemons: int, guardian: Guardian) -> Iterator[Any]:
        """Run a peer within the block; raises whatever the peer raises if it is not installed."""
        work = tempfile.mkdtemp(prefix=f"plait-peer-{name}-")
        peer = self._adapters.PEERS[name](daemons, work)
        popen = peer.popen

        def popen_guarded(*arguments: Any, **options: Any) -> Any:
            process = popen(*arguments, **options)
            guardian.watch_over(process.pid)  # each is the first of a group of its own
            return process

        peer.popen = popen_guarded
        try:
            peer.start()
            yield peer
        finally:
            peer.stop()
            shutil.rmtree(work, ignore_errors=True)

    def run(self, peer: Any, scenario: str, seconds: float, subscribers: int) -> Row:
        """Run one scenario on a peer, when the machine is quiet or nobody can wait any longer."""
        self._bench.wait_quiet(peer, QUIET_PERCENT, QUIET_WAIT_S)
        row: Row = self._bench.scenario(
            peer, scenario, subscribers, seconds, PAYLOAD_BYTES, WINDOW, peer.work
        )
        return row


def _import_from(folder: Path, name: str) -> ModuleType:
    if not (folder / f"{name}.py").is_file():
        raise BadInputError(f"{folder}: expected a peer harness, found no {name}.py")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module(name)


@attrs.frozen(kw_only=True)
class PeerFigures:
    """What the session has found out."""

    versions: dict[str, str]
    left_out: dict[str, str]
    """Peers that could not be started, and why."""
    rows: dict[str, dict[str, list[Row]]]
    """Round after round, by scenario and peer."""
    wanted: Mapping[str, str]
    """What is wanted of our throughput, divided by a peer's."""
    daemons: int = 1
    """Of every peer."""

    @property
    def others(self) -> list[str]:
        """Those that were measured, but for plait."""
        return [name for name in self.versions if name != PLAIT]

    def messages_per_s(self, scenario: str, peer: str) -> float:
        """Return the median of the rates of the slowest subscriber."""
        return statistics.median(float(row["msgs_per_s"]) for row in self.rows[scenario][peer])

    def latency_ms(self, scenario: str, peer: str, quantile: str = "p50") -> float:
        """Return the median of a quantile of all latencies."""
        return statistics.median(
            float(row["lat_ms"][quantile]) for row in self.rows[scenario][peer]
        )

    def others_percent(self, scenario: str, peer: str) -> float:
        """Return how much of the machine other programs used, when it was most."""
        return max(float(row["other_cpu_pct"]) for row in self.rows[scenario][peer])

    def disagreeing(self, scenario: str, peer: str) -> tuple[int, int]:
        """How many pairs of subscribers disagree about the order, when most; and of how many."""
        orders = [row["order"] for row in self.rows[scenario][peer]]
        return (
            max(int(order["sub_pairs_disagreeing"]) for order in orders),
            int(orders[0]["sub_pairs"]),
        )


def measure_peers(
    folder: Path,
    scenarios: Sequence[str],
    *,
    rounds: int,
    seconds: float,
    subscribers: int,
    ordering: str,
    peers: Mapping[str, str] = PEERS,
    daemons: int = 1,
    tell: Callable[[str], None],
) -> PeerFigures:
    """Start everybody once, and let them take turns."""
    harness = Harness(folder, ordering)
    with contextlib.ExitStack() as stack:
        guardian = stack.enter_context(open_guardian())
        started: dict[str, Any] = {}
        versions, left_out = {}, {}
        for name in (*peers, PLAIT):
            tell(f"starting {name}")
            try:
                peer = stack.enter_context(harness.started(name, daemons, guardian))
                versions[name] = str(peer.version())
            except Exception as error:  # whatever a foreign class does without its programs
                if name == PLAIT:
                    raise
                left_out[name] = f"{type(error).__name__}: {error}"
            else:
                started[name] = peer
        rows: dict[str, dict[str, list[Row]]] = {
            scenario: {name: [] for name in started} for scenario in scenarios
        }
        for number in range(rounds):
            for scenario in scenarios:
                for name, peer in started.items():
                    tell(f"round {number + 1} of {rounds}: {scenario}, {name}")
                    rows[scenario][name].append(harness.run(peer, scenario, seconds, subscribers))
    return PeerFigures(
        versions=versions, left_out=left_out, rows=rows, wanted=peers, daemons=daemons
    )
