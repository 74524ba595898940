"""What wild clients do to others: one that confirms next to nothing, and thousands that vanish.

The honest load is one publisher and one subscriber of the client library, with a broker between
them. A time is taken from the moment at which a publication is due, so that waiting in `publish`
counts. It is compared with what it was in the same run, before the wild client came.
"""

import contextlib
import json
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import attrs
import click
import trio

from plait.broker.codec import encode
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.messages import Heartbeat
from plait.broker.net.client import connect
from plait.broker.net.listener import raise_open_files_limit
from plait.scripts.async_entry import run_async
from plait.scripts.bench.bare import BareClient
from plait.scripts.bench.session import cleaning_up_when_told_to_stop, tell_terminal
from plait.scripts.bench.trials import plan_brokers, quantile
from plait.scripts.launcher import RunningOverlay, launch
from plait.scripts.options import json_option

LINE: Final = {"b1": None, "b2": "b1", "b3": "b2"}
FILTER: Final = "symbol = 'IBM'"
CONFIRMED_EVERY_S: Final[dict[str, float | None]] = {"nothing": None, "one in 5 s": 5.0}
LATE_S: Final = 15.0
"""For what is still on its way at the end."""
SETTLED_AFTER_S: Final = 1.0
"""Figures begin in the second second."""
MILLISECONDS_WANTED: Final = 100
CLIENTS: Final = 4000
TIMES_WANTED: Final = 3.0
HEARTBEAT_S: Final = 0.5
VANISHED_WITHIN_S: Final = 30.0
LONGEST_STEP: Final = "plait_step_seconds_max"


class WildClient(BareClient):
    """Lives, and does little else."""

    async def confirm_little(self, every_s: float | None) -> None:
        """Read everything, and confirm one publication now and then, or none."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._live, every_s)
                while await self._stream.receive_some():
                    pass
                nursery.cancel_scope.cancel()

    async def _live(self, every_s: float | None) -> None:
        confirmed, since = 0, trio.current_time()
        while True:
            await self.show_life()
            if every_s is not None and trio.current_time() - since > (1 + confirmed) * every_s:
                confirmed += 1
                await self._confirm(confirmed)
            await trio.sleep(HEARTBEAT_S)

    async def show_life(self) -> None:
        """Keep the broker from taking it for dead."""
        await self._stream.send_all(encode(Heartbeat()))

    async def vanish(self) -> None:
        """Go without a word."""
        await trio.aclose_forcefully(self._stream)


@attrs.define
class HonestLoad:
    """One publisher and one subscriber, and how long each publication took."""

    rate: int
    sent: int = 0
    is_over: bool = False
    flushed: trio.Event = attrs.field(factory=trio.Event)
    taken: list[tuple[float, float]] = attrs.field(factory=list)
    """When each was due, and for how long it was on its way, in seconds."""

    async def publish(self, address: str, started: trio.Event) -> None:
        """Publish as often as that, whatever happens; what is late is made up for."""
        async with connect(address, name="nyse") as nyse:
            await nyse.advertise(FILTER)
            started.set()
            begun = trio.current_time()
            while not self.is_over:
                due = begun + self.sent / self.rate
                await trio.sleep_until(due)
                await nyse.publish({"symbol": "IBM", "due": due})
                self.sent += 1
            with trio.move_on_after(LATE_S):
                await nyse.flush()
            self.flushed.set()

    async def subscribe(
        self, address: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take what comes."""
        async with connect(address, name="alice") as alice:
            subscription = await alice.subscribe(FILTER)
            task_status.started()
            async for delivery in subscription:
                due = delivery.content["due"]
                assert isinstance(due, float)
                self.taken.append((due, trio.current_time() - due))

    def p99_ms(self, since: float, until: float) -> float:
        """Of the publications that were due in this time."""
        return 1000 * quantile(sorted(t for due, t in self.taken if since <= due < until), 0.99)


@contextlib.asynccontextmanager
async def _line_of_brokers(*arguments: str) -> AsyncIterator[RunningOverlay]:
    plans = plan_brokers(LINE, "pairwise")
    plans = [
        attrs.evolve(plan, arguments=plan.arguments + arguments * (plan.name == "b2"))
        for plan in plans
    ]
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        async with launch(plans, log_directory=Path(folder), tell=lambda _: None) as overlay:
            yield overlay


async def measure_slow(every_s: float | None, rate: int, seconds: float) -> dict[str, Any]:
    """Let a subscriber confirm next to nothing, at the honest one's broker, and look at that."""
    load = HonestLoad(rate)
    async with _line_of_brokers() as overlay, trio.open_nursery() as nursery:
        b1, b3 = overlay.address_of("b1"), overlay.address_of("b3")
        await nursery.start(load.subscribe, b3)
        started = trio.Event()
        nursery.start_soon(load.publish, b1, started)
        await started.wait()
        calm = trio.current_time() + SETTLED_AFTER_S
        await trio.sleep(SETTLED_AFTER_S + seconds)
        wild = await WildClient.connect(b3, "sloth")
        await wild.subscribe(FILTER)
        came = trio.current_time()
        with trio.move_on_after(SETTLED_AFTER_S + seconds):
            await wild.confirm_little(every_s)
        left = trio.current_time() - came
        await wild.vanish()
        await trio.sleep_until(came + SETTLED_AFTER_S + seconds)
        end = trio.current_time()
        load.is_over = True
        await load.flushed.wait()
        await trio.sleep(SETTLED_AFTER_S)
        nursery.cancel_scope.cancel()
    before = load.p99_ms(calm, calm + seconds)
    beside = load.p99_ms(came + SETTLED_AFTER_S, end)
    return {
        "before_p99_ms": before,
        "beside_p99_ms": beside,
        "times": beside / before,
        "isolated_after_s": left if left < seconds else None,
        "missing": load.sent - len(load.taken),
    }


async def measure_vanishing(clients: int) -> dict[str, Any]:
    """Let clients vanish at the same moment, and look for how long their broker is busy at once."""
    raise_open_files_limit()
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = f"127.0.0.1:{free.getsockname()[1]}"
    wild: list[WildClient] = []
    async with _line_of_brokers("--metrics", metrics) as overlay:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep_alive, wild)
            for number in range(clients):
                wild.append(await WildClient.connect(overlay.address_of("b2"), f"c{number}"))
            await _metric(metrics, LONGEST_STEP)  # forgotten thereby
            await trio.sleep(2.0)
            before = await _metric(metrics, LONGEST_STEP)
            nursery.cancel_scope.cancel()
        began = time.monotonic()
        for client in wild:
            await client.vanish()
        longest, left = 0.0, float(clients)
        while left and time.monotonic() - began < VANISHED_WITHIN_S:
            await trio.sleep(HEARTBEAT_S)
            longest = max(longest, await _metric(metrics, LONGEST_STEP))
            left = clients - await _metric(metrics, "plait_clients_isolated_total")
        return {
            "clients": clients,
            "before_step_ms": 1000 * before,
            "longest_step_ms": 1000 * longest,
            "gone_after_s": None if left else time.monotonic() - began,
        }


async def _keep_alive(wild: list[WildClient]) -> None:
    while True:
        for client in list(wild):
            await client.show_life()
        await trio.sleep(HEARTBEAT_S)


async def _metric(address: str, name: str) -> float:
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = b"".join([chunk async for chunk in stream]).decode()
    return next(float(line.split()[1]) for line in answer.splitlines() if line.startswith(name))


def report(slow: dict[str, dict[str, Any]], vanishing: dict[str, Any]) -> str:
    """Write the figures for people."""
    lines = []
    for confirms, figures in slow.items():
        after = figures["isolated_after_s"]
        isolated = "not isolated" if after is None else f"isolated after {after:.1f} s"
        lines.append(
            f"a subscriber that confirms {confirms}, {isolated}:\n"
            f"{figures['before_p99_ms']:9.1f} ms  p99 from due to delivered, before\n"
            f"{figures['beside_p99_ms']:9.1f} ms  beside it, from the second second on: "
            f"{figures['times']:.1f} times as long (wanted: at most {TIMES_WANTED:g})"
        )
    gone = vanishing["gone_after_s"]
    lines.append(
        f"{vanishing['clients']:,} clients that vanish at once, "
        f"{'not all gone' if gone is None else f'all gone after {gone:.1f} s'}:\n"
        f"{vanishing['before_step_ms']:9.1f} ms  the longest step of their broker, before\n"
        f"{vanishing['longest_step_ms']:9.1f} ms  from then on "
        f"(wanted: at most {MILLISECONDS_WANTED})"
    )
    return "\n".join(lines)


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=14.0,
    show_default=True,
    help="For how long one looks, before and beside a slow subscriber.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Publications a second.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, DEFAULT_LIMITS.clients_max),
    default=CLIENTS,
    show_default=True,
    help="Clients that vanish together.",
)
@json_option("the figures")
def command(seconds: float, rate: int, clients: int, as_json: bool) -> None:
    """Measure what wild clients do to others.

    A subscriber that confirms nothing, or one publication in 5 s, of all that an honest publisher
    publishes over three brokers in a line; and thousands of clients, which vanish at the same
    moment. It takes some two minutes.

    \b
    Examples:
      plait bench noisy
      plait bench noisy --rate 1000 --clients 100
    """  # noqa: D301 - a raw string has no \b, by which click tells what not to wrap
    slow = {}
    with cleaning_up_when_told_to_stop():
        for confirms, every_s in CONFIRMED_EVERY_S.items():
            tell_terminal(f"a subscriber that confirms {confirms}")
            slow[confirms] = run_async(measure_slow, every_s, rate, seconds)
        tell_terminal(f"{clients:,} clients that vanish")
        vanishing = run_async(measure_vanishing, clients)
    if as_json:
        click.echo(json.dumps({"slow": slow, "vanishing": vanishing}))
    else:
        click.echo(report(slow, vanishing))
