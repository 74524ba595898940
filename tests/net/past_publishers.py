"""What a crash costs after many publishers have come and gone: lost publications, and the pause.

python -m tests.net.past_publishers 10 100000

Three brokers in a line; so many clients come to the last of them, publish once and leave. Then
somebody publishes there for somebody at the first, and the one in the middle is killed.
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import trio

from plait.broker.codec import encode_content
from plait.broker.messages import Advertise, Confirm, EndOfStep, Join, Leave, Publish
from plait.broker.net.client import Client, connect
from plait.routing.ids import AdvertisementId, NodeId, OperationId
from tests.net.overlay import hello, raw_peer
from tests.processes import PLAIT, started

AT_ONCE = 20
"""Publishers that come and go at a time."""
FILTER = "x = 1"
PAUSE_S = 0.01
"""Between two publications."""
BEFORE_S = 1.5
AFTER_S = 4.0


@attrs.frozen
class Outcome:
    """What came of it."""

    past: int
    published: int
    lost: int
    pause_ms: float
    """The longest time between two deliveries."""

    def __str__(self) -> str:
        return (
            f"{self.past:7,} past publishers: {self.lost} of {self.published} lost, "
            f"longest pause {self.pause_ms:.0f} ms"
        )


async def let_pass(address: str, names: Iterator[str]) -> None:
    """Let clients of these names come, publish once and leave, one after the other."""
    for name in names:
        node = NodeId(name)
        join, advertise, leave = (OperationId(f"{name}#1.{number}") for number in (1, 2, 3))
        async with raw_peer(address) as peer:
            await peer.send(hello(name), Join(operation=join), EndOfStep(step=1))
            await peer.receive(Confirm)
            await peer.send(
                Advertise(
                    operation=advertise,
                    advertisement=AdvertisementId(f"{name}/1"),
                    client=node,
                    filter=FILTER,
                    path=(node,),
                ),
                Publish(node, 1, 1, 0, encode_content({"x": 1}), b""),
                Leave(operation=leave, node=node),
                EndOfStep(step=2),
            )
            async for _ in peer.stream:
                pass  # the broker closes when the client has left


async def measure(
    addresses: dict[str, str],
    past: int,
    kill_the_middle: Callable[[], Awaitable[None]],
    *,
    name_chars: int = 12,
) -> Outcome:
    """Fill an overlay of b1, b2 and b3 in a line, and strike."""
    names = (f"p{number}".ljust(name_chars, "-") for number in range(past))
    async with (
        connect(addresses["b1"], name="alice") as alice,
        connect(addresses["b3"], name="nyse") as nyse,
    ):
        subscription = await alice.subscribe(FILTER)
        await nyse.advertise(FILTER)
        taken: list[tuple[float, str]] = []
        async with trio.open_nursery() as nursery:

            async def take() -> None:
                async for delivery in subscription:
                    taken.append((trio.current_time(), delivery.publisher))

            nursery.start_soon(take)
            async with trio.open_nursery() as crowd:
                for _ in range(AT_ONCE):
                    crowd.start_soon(let_pass, addresses["b3"], names)
            await nyse.flush()
            published = await publish_for(nyse, BEFORE_S)
            async with trio.open_nursery() as blow:
                blow.start_soon(kill_the_middle)
                published += await publish_for(nyse, AFTER_S)
            await nyse.flush()
            nursery.cancel_scope.cancel()
    from_past = sum(publisher != "nyse" for _, publisher in taken)
    assert from_past == past, f"{past} past publishers, {from_past} were heard of"
    times = [at for at, publisher in taken if publisher == "nyse"]
    pause = max(later - earlier for earlier, later in itertools.pairwise(times))
    return Outcome(past, published, published - len(times), 1000 * pause)


async def publish_for(client: Client, seconds: float) -> int:
    """Publish at a steady rate for so long; returns how many."""
    end = trio.current_time() + seconds
    count = 0
    while trio.current_time() < end:
        await client.publish({"x": 1})
        count += 1
        await trio.sleep(PAUSE_S)
    return count


@contextmanager
def processes(folder: Path) -> Iterator[tuple[dict[str, str], "subprocess.Popen[str]"]]:
    """Three brokers in a line; yields where they listen, and the process of the middle one."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack:
        running = []
        for name in ("b1", "b2", "b3"):
            joins = [part for other in addresses.values() for part in ("--join", other)]
            command = [*PLAIT, "broker", "--name", name, "--listen", ":0", "--json", *joins]
            log = ["--log-file", folder / f"{name}.log", "--metrics", "127.0.0.1:0"]
            process = stack.enter_context(started([*command, *log], stdout=subprocess.PIPE))
            assert process.stdout is not None
            addresses = {name: json.loads(process.stdout.readline())["address"], **addresses}
            running.append(process)
        yield addresses, running[1]


def on_processes(past: int) -> Outcome:
    """Measure it with real brokers, the middle one of which is killed for good."""
    with TemporaryDirectory() as folder, processes(Path(folder)) as (addresses, middle):

        async def kill() -> None:
            middle.kill()

        return trio.run(measure, addresses, past, kill)


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ["10", "100000"]):
        since = time.monotonic()
        print(f"{on_processes(count)} (after {time.monotonic() - since:.0f} s)", flush=True)
