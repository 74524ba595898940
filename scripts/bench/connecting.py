"""How long it takes until many clients have connected, with TLS and without.

All of them are in this process, as programs would have them; each has been let in, under a name of
its own, when it counts as connected.
"""

import tempfile
import time
from pathlib import Path
from typing import Final

import attrs
import trio

from plait.broker.net.client import connect
from plait.broker.net.listener import raise_open_files_limit
from plait.scripts.bench.trials import DEFAULT_ORDERING, guarded, plan_line
from plait.scripts.launcher import launch

CLIENTS: Final = 1000
AT_A_TIME: Final = 32
"""Of more than `strangers_max` who come at the same moment a broker sends some away."""


@attrs.frozen(kw_only=True)
class ConnectingFigures:
    """Seconds until all of them were there."""

    clients: int
    plain_s: float
    tls_s: float


async def measure_connecting(clients: int = CLIENTS) -> ConnectingFigures:
    """Have clients connect to a broker without TLS, then to one with."""
    raise_open_files_limit()
    return ConnectingFigures(
        clients=clients,
        plain_s=await _until_all_are_there(clients, is_guarded=False),
        tls_s=await _until_all_are_there(clients, is_guarded=True),
    )


async def _until_all_are_there(clients: int, *, is_guarded: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as name:
        folder = Path(name)
        plans, profile = plan_line(1, DEFAULT_ORDERING), ""
        if is_guarded:
            plans, profile = guarded(plans, folder / "certs")
        async with launch(plans, log_directory=folder, tell=lambda _: None) as brokers:
            waiting = _Waiting(brokers.address_of("b0"), profile, clients)
            begun = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(clients):
                    nursery.start_soon(waiting.be_client)
                await waiting.are_all_there.wait()
                took_s = time.perf_counter() - begun
                brokers.is_in_hurry = True
                nursery.cancel_scope.cancel()
    return took_s


class _Waiting:
    def __init__(self, address: str, profile: str, clients: int) -> None:
        self._address = address
        self._credentials = profile or None
        self._missing = clients
        self._turns = trio.Semaphore(AT_A_TIME)
        self.are_all_there = trio.Event()

    async def be_client(self) -> None:
        await self._turns.acquire()
        async with connect(self._address, credentials=self._credentials):
            self._turns.release()
            self._missing -= 1
            if not self._missing:
                self.are_all_there.set()
            await trio.sleep_forever()
