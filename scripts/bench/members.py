"""One process of a trial: `python -m plait.scripts.bench.members`, started by `crew.py`.

It reads from its standard input which part it plays, says on its standard output when it is ready,
and ends when it is told to, at the latest with whoever started it.
"""

import json
import signal
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Self

import attrs
import trio

from plait.broker.net.client import Client, connect
from plait.broker.principals import OWNED_BEHIND
from plait.scripts.bench.bare import BareClient
from plait.scripts.bench.board import Board
from plait.scripts.bench.load import Load, Recorder
from plait.scripts.bench.relay import Relay, RelayClient
from plait.scripts.bench.workloads import THROUGHPUT, Workload
from plait.scripts.supervision import accept_supervision


@attrs.frozen(kw_only=True)
class Part:
    """What a process is told: who to be, and where."""

    role: str
    """One of `ROLES`."""
    folder: str
    """Where the board is, and where subscribers leave what they have noted."""
    workload: Workload = THROUGHPUT
    index: int = 0
    """Its number among those with the same role."""
    address: str = ""
    """What to connect to."""
    profile: str = ""
    """What to show there, if one has to."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` has written."""
        fields = json.loads(text)
        return cls(**{**fields, "workload": Workload(**fields["workload"])})

    def to_json(self) -> str:
        """Write it in one line."""
        return json.dumps(attrs.asdict(self))

    @property
    def name(self) -> str:
        """What it is called, among all processes of a trial."""
        return f"{self.role}-{self.index}"

    @property
    def board(self) -> Board:
        """Look at the board."""
        return Board(
            Path(self.folder, BOARD_FILE),
            publishers=self.workload.publishers,
            subscribers=self.workload.subscribers,
        )

    @property
    def latencies_file(self) -> Path:
        """Where this subscriber leaves its latencies."""
        return Path(self.folder, f"{self.name}.latencies")

    @property
    def order_file(self) -> Path:
        """Where it leaves what it got, in the order in which it got it."""
        return Path(self.folder, f"{self.name}.order")


BOARD_FILE: Final = "board"
CLIENT: Final = "client"
"""As whom all show who they are."""


def connected(part: Part) -> AbstractAsyncContextManager[Client]:
    """Connect by the client library."""
    if not part.profile:
        return connect(part.address, name=part.name)
    name = f"{CLIENT}{OWNED_BEHIND}{part.name}"
    return connect(part.address, name=name, credentials=part.profile)


def say_ready(addresses: Mapping[str, str] | None = None) -> None:
    """Tell whoever started this process that it is ready, and where it is to be found."""
    print(json.dumps(addresses or {}), flush=True)


async def publish_to_broker(part: Part) -> None:
    """Publish by the client library, in the way for throughput."""
    load = Load(part.board, part.workload, part.index)
    contents = part.workload.contents
    async with connected(part) as client:
        await client.advertise(part.workload.advertisement)
        say_ready()
        async for burst in load:
            for seq, payload in burst:
                client.publish_nowait(contents[seq % len(contents)], payload)


async def subscribe_to_broker(part: Part) -> None:
    """Take deliveries from the client library, in the way for throughput."""
    recorder = Recorder(part.board, part.index)
    try:
        async with connected(part) as client:
            subscription = await client.subscribe(part.workload.subscription(part.index))
            say_ready()
            async for batch in subscription.batches():
                for delivery in batch:
                    recorder.note(delivery.body)
    finally:
        recorder.save(part.latencies_file, part.order_file)


async def publish_to_bare_broker(part: Part) -> None:
    """Publish with no more around it than the relay's publishers have."""
    load = Load(part.board, part.workload, part.index)
    [content] = part.workload.contents
    client = await BareClient.connect(part.address, part.name)
    await client.advertise(part.workload.advertisement)
    say_ready()
    async for burst in load:
        await client.send(content, (payload for _, payload in burst))


async def subscribe_to_bare_broker(part: Part) -> None:
    """Take publications with no more around it than the relay's subscribers have."""
    client = await BareClient.connect(part.address, part.name)
    await client.subscribe(part.workload.subscription(part.index))
    await _note_all(part, client)


async def _note_all(part: Part, batches: AsyncIterable[list[bytes]]) -> None:
    recorder = Recorder(part.board, part.index)
    say_ready()
    try:
        async for batch in batches:
            for payload in batch:
                recorder.note(payload)
    finally:
        recorder.save(part.latencies_file, part.order_file)


async def relay(_: Part) -> None:
    """Be a relay that passes on what arrives together in one write."""
    await _relay(Relay())


async def frame_relay(_: Part) -> None:
    """Be a relay that passes on frame by frame."""
    await _relay(Relay(frame_by_frame=True))


async def _relay(relay: Relay) -> None:
    async with trio.open_nursery() as nursery:
        say_ready(attrs.asdict(await relay.open(nursery)))


async def publish_to_relay(part: Part) -> None:
    """Publish to a relay."""
    load = Load(part.board, part.workload, part.index)
    client = await RelayClient.connect(part.address)
    say_ready()
    async for burst in load:
        await client.send(payload for _, payload in burst)


async def subscribe_to_relay(part: Part) -> None:
    """Take whatever a relay sends."""
    client = await RelayClient.connect(part.address)
    await client.wait_welcomed()
    await _note_all(part, client)


ROLES: Final[Mapping[str, Callable[[Part], Awaitable[None]]]] = {
    role.__name__: role
    for role in (
        relay,
        frame_relay,
        publish_to_broker,
        subscribe_to_broker,
        publish_to_bare_broker,
        subscribe_to_bare_broker,
        publish_to_relay,
        subscribe_to_relay,
    )
}


async def _play(part: Part) -> None:
    """Play a part until it is over, or until SIGTERM."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_when_told, nursery.cancel_scope)
        await ROLES[part.role](part)
        nursery.cancel_scope.cancel()


async def _cancel_when_told(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


if __name__ == "__main__":
    trio.run(_play, Part.from_json(accept_supervision()))
