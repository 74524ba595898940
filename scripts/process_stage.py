"""A stage of processes: brokers that the launcher has started, clients as tasks in this process."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.net import Client, Subscription, connect
from broker.net.logs import LogWriter
from faulttol.history import HistoryWriter
from routing.values import Content
from scripts.errors import GuaranteeViolatedError
from scripts.happenings import (
    Advertised,
    ClientConnected,
    Delivered,
    Published,
    Stable,
    Subscribed,
    Tell,
    Unsubscribed,
)
from scripts.launcher import RunningOverlay
from scripts.monitor import survey
from scripts.run_directory import LOG_FOLDER
from scripts.status_reports import StatusReport, Unreachable
from topologies.overlay import Overlay

SETTLE_TIMEOUT_S: Final = 60.0
"""After the last publication; milliseconds are usual, so this is a verdict and no guess."""
DRAIN_POLL_S: Final = 0.001


@attrs.frozen(kw_only=True)
class HistoryPlace:
    """Where the clients of a run leave their history."""

    directory: Path
    run_id: str


@contextlib.asynccontextmanager
async def open_stage(
    overlay: Overlay, brokers: RunningOverlay, place: HistoryPlace, tell: Tell
) -> AsyncIterator["ProcessStage"]:
    """Connect every client to the broker of its site; at the end they leave the overlay."""
    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        log = stack.enter_context((place.directory / LOG_FOLDER / "clients.log").open("a"))
        clients = {}
        for name in overlay.publishers + overlay.subscribers:
            broker = overlay.broker_of(name)
            history = stack.enter_context(
                HistoryWriter(place.directory, place.run_id, name, incarnation=1)
            )
            clients[name] = await stack.enter_async_context(
                connect(
                    brokers.address_of(broker),
                    name=name,
                    incarnation=1,
                    history=history,
                    log=LogWriter(name, log),
                )
            )
            tell(ClientConnected(name, broker))
        yield ProcessStage(clients, brokers, nursery, tell)


class ProcessStage:
    """An overlay of processes, with its clients."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        brokers: RunningOverlay,
        nursery: trio.Nursery,
        tell: Tell,
    ) -> None:
        self._clients = clients
        self._brokers = brokers
        self._nursery = nursery
        self._tell = tell
        self._subscriptions: dict[tuple[str, str], list[Subscription]] = {}
        self._streams = 0
        self._streams_ended = trio.Event()
        self._published = 0
        self._delivered = 0

    async def advertise(self, publisher: str, filter_text: str) -> None:
        """Let a publisher advertise."""
        await self._clients[publisher].advertise(filter_text)
        self._tell(Advertised(publisher, filter_text))

    async def subscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber subscribe, and take what it is given."""
        subscription = await self._clients[subscriber].subscribe(filter_text)
        self._subscriptions.setdefault((subscriber, filter_text), []).append(subscription)
        self._nursery.start_soon(self._take_deliveries, subscriber, subscription)
        self._tell(Subscribed(subscriber, filter_text))

    async def _take_deliveries(self, subscriber: str, subscription: Subscription) -> None:
        async for delivery in subscription:
            # What several subscriptions of a client asked for, each of them is given.
            if delivery.subscriptions[0] == subscription.id:
                self._delivered += 1
                content = delivery.content
                self._tell(Delivered(subscriber, delivery.publisher, delivery.seq, content))

    async def unsubscribe(self, subscriber: str, filter_text: str) -> None:
        """Let a subscriber end its latest subscription with this filter; none is none."""
        subscriptions = self._subscriptions.get((subscriber, filter_text))
        if subscriptions:
            await subscriptions.pop().unsubscribe()
            self._tell(Unsubscribed(subscriber, filter_text))

    async def begin_stream(
        self, publisher: str, contents: Iterator[Content], interval_s: float
    ) -> None:
        """Let a publisher publish one of these now, and the others by and by, on the side."""
        await self._publish_next(publisher, contents)
        if not self._streams:
            self._streams_ended = trio.Event()
        self._streams += 1
        self._nursery.start_soon(self._go_on, publisher, contents, interval_s)

    async def _go_on(self, publisher: str, contents: Iterator[Content], interval_s: float) -> None:
        # Counted from the beginning: an interval is not stretched by what publishing takes.
        due = trio.current_time() + interval_s
        await trio.sleep_until(due)
        while await self._publish_next(publisher, contents):
            due += interval_s
            await trio.sleep_until(due)
        self._streams -= 1
        if not self._streams:
            self._streams_ended.set()

    async def _publish_next(self, publisher: str, contents: Iterator[Content]) -> bool:
        content = next(contents, None)
        if content is None:
            return False
        receipt = await self._clients[publisher].publish(content)
        self._published += 1
        self._tell(Published(publisher, receipt.seq, content))
        return True

    async def pass_time(self, seconds: float) -> None:
        """Do nothing for so long."""
        await trio.sleep(seconds)

    async def settle(self) -> Stable:
        """Wait until all streams have ended and nothing is in flight."""
        if self._streams:
            await self._streams_ended.wait()
        with trio.move_on_after(SETTLE_TIMEOUT_S):
            for client in self._clients.values():
                await client.flush()
            while self._untaken():  # noqa: ASYNC110 - taken by many tasks, none of which is the last
                await trio.sleep(DRAIN_POLL_S)
            return Stable(self._published, self._delivered)
        waiting = {name: client.unconfirmed for name, client in self._clients.items()}
        counts = ", ".join(f"{count} of {name}" for name, count in waiting.items() if count)
        raise GuaranteeViolatedError(
            f"publications not confirmed after {SETTLE_TIMEOUT_S:.0f} s: {counts}"
        )

    def _untaken(self) -> int:
        return sum(
            subscription.buffered
            for subscriptions in self._subscriptions.values()
            for subscription in subscriptions
        )

    async def status(self) -> list[StatusReport | Unreachable]:
        """Ask every broker how it is."""
        return await survey(process.address for process in self._brokers.processes.values())
