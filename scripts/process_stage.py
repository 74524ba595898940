"""A stage of processes: brokers that the launcher has started, clients as tasks in this process."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from plait.broker.net.client import Client
from plait.broker.net.logs import LogWriter
from plait.broker.net.outlets import Outlet
from plait.faulttol.history import HistoryWriter
from plait.routing.patterns.detection import Detection
from plait.routing.values import Content
from plait.scripts.errors import GuaranteeViolatedError
from plait.scripts.happenings import (
    Advertised,
    ClientConnected,
    Crashed,
    Detecting,
    Frozen,
    Recovered,
    Stable,
    Subscribed,
    Tell,
    Unfrozen,
    Unsettled,
    Unsubscribed,
)
from plait.scripts.launcher import Note, RunningOverlay
from plait.scripts.monitor import survey
from plait.scripts.puppets import Counts, Puppet, connected
from plait.scripts.run_directory import LOG_FOLDER
from plait.scripts.run_security import RunSecurity
from plait.scripts.stage import Faults
from plait.scripts.status_reports import HAS_CRASHED, ClientReport, Report, Unreachable
from plait.topologies.overlay import Overlay

SETTLE_TIMEOUT_S: Final = 60.0
"""After the last publication; milliseconds are usual, so this is a verdict and no guess."""
SILENCE_S: Final = 20.0
"""After faults: when for so long nothing is confirmed or delivered, nothing will be any more. It
is more than a broker needs to give up a silent neighbour or an absent client."""
DRAIN_POLL_S: Final = 0.001
SETTLE_POLL_S: Final = 0.02


@attrs.frozen(kw_only=True)
class HistoryPlace:
    """Where the clients of a run leave their history, and the launcher what it does to them."""

    directory: Path
    run_id: str
    note: Note
    security: RunSecurity | None = None
    """What clients show, where brokers want to know who they are."""


@contextlib.asynccontextmanager
async def open_stage(
    overlay: Overlay, brokers: RunningOverlay, place: HistoryPlace, tell: Tell
) -> AsyncIterator["ProcessStage"]:
    """Connect every client to the broker of its site; at the end they leave the overlay.

    They know where the other brokers are as well, for when too many around their own have failed.
    """
    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        log = stack.enter_context(Outlet.append_to(place.directory / LOG_FOLDER / "clients.log"))
        faults, counts = Faults(), Counts()
        puppets = {}
        for name in overlay.publishers + overlay.subscribers:
            broker = overlay.broker_of(name)
            history = stack.enter_context(
                HistoryWriter(place.directory, place.run_id, name, incarnation=1)
            )
            client = await stack.enter_async_context(
                connected(
                    name,
                    [brokers.address_of(near) for near in overlay.distances_from(broker)],
                    credentials=place.security.credentials_of(name) if place.security else None,
                    history=history,
                    log=LogWriter(name, log),
                    faults=faults,
                )
            )
            puppets[name] = Puppet(client, faults, counts, tell)
            nursery.start_soon(puppets[name].run)
            tell(ClientConnected(name, broker))
        yield ProcessStage(puppets, brokers, faults, counts, place, tell)
        for puppet in puppets.values():
            puppet.end()


class ProcessStage:
    """An overlay of processes, with its clients."""

    def __init__(
        self,
        puppets: Mapping[str, Puppet],
        brokers: RunningOverlay,
        faults: Faults,
        counts: Counts,
        place: HistoryPlace,
        tell: Tell,
    ) -> None:
        self.faults = faults
        self._puppets = puppets
        self._brokers = brokers
        self._counts = counts
        self._note = place.note
        self._security = place.security
        self._tell = tell

    # --- clients ----------------------------------------------------------------------------

    async def advertise(self, publisher: str, filter_text: str) -> None:
        """Let a publisher advertise."""

        async def advertise(client: Client) -> None:
            await client.advertise(filter_text)
            self._tell(Advertised(publisher, filter_text))

        await self._puppets[publisher].ask(advertise)

    async def subscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber subscribe, and take what it is given."""
        puppet = self._puppets[subscriber]

        async def subscribe(client: Client) -> None:
            puppet.take_deliveries(await client.subscribe(filter_text))
            self._tell(Subscribed(subscriber, filter_text))

        await puppet.ask(subscribe)

    async def unsubscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber end its latest subscription with this filter; none is none."""
        puppet = self._puppets[subscriber]

        async def unsubscribe(_: Client) -> None:
            if subscriptions := puppet.subscriptions.get(filter_text):
                await subscriptions.pop().unsubscribe()
                self._tell(Unsubscribed(subscriber, filter_text))

        await puppet.ask(unsubscribe)

    async def detect(self, subscriber: str, detection: Detection) -> None:
        """Let a subscriber look for a pattern, until it leaves."""
        puppet = self._puppets[subscriber]

        async def detect(_: Client) -> None:
            await puppet.begin_detecting(detection)
            self._tell(Detecting(subscriber, str(detection.pattern)))

        await puppet.ask(detect)

    async def begin_stream(
        self, publisher: str, contents: Iterator[Content], interval_s: float
    ) -> None:
        """Let a publisher publish one of these now, and the others by and by, on the side."""
        puppet = self._puppets[publisher]
        await puppet.ask(lambda _: puppet.begin_stream(contents, interval_s))

    # --- faults -----------------------------------------------------------------------------

    async def crash(self, process: str) -> None:
        """End a process as `kill -9` does."""
        self.faults.crash(process)
        if process in self._puppets:
            self._note("crashed", process)
            self._puppets[process].crash()
        else:
            self._brokers.crash(process)
        self._tell(Crashed(process))

    async def recover(self, process: str) -> None:
        """Start a broker that crashed in its next life, with its name and its address."""
        try:
            await self._brokers.recover(process)
        finally:
            # Its process has been started, even if nobody waits until it serves.
            self.faults.crashed.discard(process)
        self._tell(Recovered(process))

    async def freeze(self, process: str) -> None:
        """Let a process do nothing until it is told to go on."""
        self.faults.freeze(process)
        if process in self._puppets:
            self._note("frozen", process)
            self._puppets[process].freeze()
        else:
            self._brokers.freeze(process)
        self._tell(Frozen(process))

    async def unfreeze(self, process: str) -> None:
        """Let a frozen process go on with what has arrived meanwhile."""
        if process in self._puppets:
            self._note("unfrozen", process)
            self._puppets[process].unfreeze()
        else:
            self._brokers.unfreeze(process)
        del self.faults.frozen[process]
        self._tell(Unfrozen(process))

    # --- time -------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Do nothing for so long."""
        await trio.sleep(seconds)

    async def settle(self) -> Stable | Unsettled:
        """Wait until all streams have ended and nothing is in flight."""
        if self.faults.have_been:
            return await self._settle_after_faults()
        while self._counts.streams:  # noqa: ASYNC110 - many tasks, none of which is the last
            await trio.sleep(SETTLE_POLL_S)
        with trio.move_on_after(SETTLE_TIMEOUT_S):
            for puppet in self._puppets.values():
                await puppet.client.flush()
            while self._untaken():  # noqa: ASYNC110 - taken by many tasks likewise
                await trio.sleep(DRAIN_POLL_S)
            return Stable(self._counts.published, self._counts.delivered)
        raise GuaranteeViolatedError(
            f"not confirmed after {SETTLE_TIMEOUT_S:.0f} s: {self._waiting()}"
        )

    async def _settle_after_faults(self) -> Stable | Unsettled:
        state, since = self._state(), trio.current_time()
        while self._counts.streams or self._waiting() or self._untaken():
            await trio.sleep(SETTLE_POLL_S)
            now = self._state()
            if now != state or self._counts.streams > self._counts.blocked:
                state, since = now, trio.current_time()
            elif trio.current_time() - since > SILENCE_S:
                self._brokers.is_in_hurry = True
                return Unsettled(self._waiting())
        self._brokers.is_in_hurry = False
        return Stable(self._counts.published, self._counts.delivered)

    def _state(self) -> tuple[int, ...]:
        """Whatever changes as long as anything happens."""
        unconfirmed = sum(puppet.client.unconfirmed for puppet in self._puppets.values())
        return self._counts.published, self._counts.delivered, unconfirmed

    def _waiting(self) -> str:
        """Say what has not been confirmed; nothing of those who have crashed."""
        waiting = []
        for name, puppet in self._puppets.items():
            if name in self.faults.crashed:
                continue
            if puppet.client.unconfirmed:
                waiting.append(f"{puppet.client.unconfirmed} publications of {name}")
            if puppet.pending:
                waiting.append(f"{puppet.pending} commands of {name}")
        return ", ".join(waiting)

    def _untaken(self) -> int:
        return sum(puppet.untaken for puppet in self._puppets.values())

    async def status(self) -> list[Report]:
        """Ask every broker and every client how it is."""
        processes = self._brokers.processes
        silent = [
            Unreachable(name, processes[name].address, reason)
            for names, reason in (
                (self.faults.crashed, HAS_CRASHED),
                (self.faults.frozen, "it is frozen"),
            )
            for name in names
            if name in processes
        ]
        approach = self._security.approach if self._security else None
        addresses = (process.address for process in processes.values())
        brokers = await survey(addresses, silent, approach)
        return [*brokers, *map(self._client_report, self._puppets.values())]

    def _client_report(self, puppet: Puppet) -> ClientReport:
        return ClientReport(
            puppet.name,
            self.faults.state_of(puppet.name) or puppet.client.state.value,
            puppet.client.broker or "",
            sum(map(len, puppet.subscriptions.values())),
            puppet.client.unconfirmed,
        )
