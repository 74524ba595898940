"""Brokers in this process, raw connections to them, and a proxy that cuts connections."""

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs
import trio

from plait.broker.client.states import ClientState
from plait.broker.codec import FrameDecoder
from plait.broker.effects import Level
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.messages import PROTOCOL_VERSION, Goodbye, Hello, Message, NodeKind
from plait.broker.net.broker_process import BrokerAddresses, BrokerSettings, serve_broker
from plait.broker.net.client import Client
from plait.broker.net.subscription import Subscription
from plait.routing.ids import NodeId
from tests.wire import unchecked


@attrs.define
class _Running:
    addresses: BrokerAddresses
    shutdown: trio.Event
    scope: trio.CancelScope
    ended: trio.Event


class Overlay:
    """The brokers of one test."""

    def __init__(self, nursery: trio.Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._running: dict[str, _Running] = {}

    async def broker(
        self,
        name: str,
        *,
        join: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        **settings: Any,
    ) -> str:
        """Start a broker, as the root or at another one or address; returns its address."""
        settings = {"metrics": "127.0.0.1:0", **settings}
        ready = BrokerSettings(
            node=NodeId(name),
            join=self.address_for_brokers(join) if join in self._running else join,
            limits=limits,
            log_file=self._folder / f"{name}.log",
            log_level=Level.DEBUG,
            **settings,
        )
        shutdown, ended = trio.Event(), trio.Event()
        self._running[name] = await self._nursery.start(_serve, ready, shutdown, ended)
        return self.address(name)

    def address(self, name: str) -> str:
        return self._running[name].addresses.broker

    def address_for_brokers(self, name: str) -> str:
        return self._running[name].addresses.for_brokers

    async def stop(self, name: str) -> None:
        """Ask a broker to stop, and wait until it has."""
        self._running[name].shutdown.set()
        await self._running[name].ended.wait()

    async def kill(self, name: str) -> None:
        """End a broker without a word to anybody."""
        self._running[name].scope.cancel()
        await self._running[name].ended.wait()

    def is_running(self, name: str) -> bool:
        return not self._running[name].ended.is_set()

    def log(self, name: str) -> list[dict[str, Any]]:
        text = (self._folder / f"{name}.log").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def logged(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log(name) if line["event"] == event]

    async def until_logged(self, name: str, event: str, words: str = "", *, before: int = 0) -> Any:
        """Wait until a broker has logged something, once more than before; returns the line."""
        while True:
            lines = self.logged(name, event)[before:]
            found = [line for line in lines if words in json.dumps(line, ensure_ascii=False)]
            if found:
                return found[0]
            await trio.sleep(0.01)

    def http_address(self, name: str) -> str:
        metrics = self._running[name].addresses.metrics
        assert metrics is not None
        return metrics

    async def get(self, name: str, path: str) -> str:
        """Ask a broker's HTTP endpoint; returns the whole answer."""
        request = f"GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n"
        return (await exchange(self.http_address(name), request.encode())).decode()

    async def metric(self, name: str, sample: str) -> float:
        """One sample of a broker's metrics, such as `plait_links{kind="client"}`."""
        for line in (await self.get(name, "/metrics")).splitlines():
            if line.startswith(sample + " "):
                return float(line.removeprefix(sample))
        raise AssertionError(f"no sample {sample}")

    async def status(self, name: str) -> dict[str, Any]:
        answer = await self.get(name, "/status")
        status: dict[str, Any] = json.loads(answer.partition("\r\n\r\n")[2])
        return status

    async def until(self, name: str, sample: str, is_so: Callable[[float], bool]) -> None:
        """Wait until a metric of a broker is as expected; the broker answers when it has time."""
        while not is_so(await self.metric(name, sample)):
            await trio.lowlevel.checkpoint()


async def _serve(
    settings: BrokerSettings,
    shutdown: trio.Event,
    ended: trio.Event,
    *,
    task_status: trio.TaskStatus[_Running],
) -> None:
    try:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                serve = partial(serve_broker, shutdown=shutdown)
                addresses = await nursery.start(serve, settings)
                task_status.started(_Running(addresses, shutdown, scope, ended))
    finally:
        ended.set()


async def exchange(address: str, data: bytes) -> bytes:
    """Send bytes, and read until the other side closes."""
    async with await open_stream(address) as stream:
        await stream.send_all(data)
        return b"".join([chunk async for chunk in stream])


async def open_stream(address: str) -> trio.SocketStream:
    host, _, port = address.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


class RawPeer:
    """A peer made by hand, which can break any rule."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self._received: list[Message] = []

    async def send(self, *messages: Message) -> None:
        await self.stream.send_all(b"".join(map(unchecked, messages)))

    async def receive(self, kind: type[Message]) -> Any:
        """The next message of a type; others before it are dropped."""
        while True:
            while self._received:
                message = self._received.pop(0)
                if type(message) is kind:
                    return message
            data = await self.stream.receive_some()
            assert data, f"the connection was closed before a {kind.__name__}"
            self._received += self._decoder.feed(bytes(data))

    async def last_words(self) -> Goodbye:
        """The Goodbye after which the other side closes the connection."""
        goodbye: Goodbye = await self.receive(Goodbye)
        assert [chunk async for chunk in self.stream] == []
        return goodbye


@asynccontextmanager
async def raw_peer(address: str) -> AsyncIterator[RawPeer]:
    async with await open_stream(address) as stream:
        yield RawPeer(stream)


def hello(name: str, *, kind: NodeKind = NodeKind.CLIENT, **changes: Any) -> Hello:
    fields: dict[str, Any] = {
        "version": PROTOCOL_VERSION,
        "node": NodeId(name),
        "kind": kind,
        "incarnation": 1,
        "host": NodeId(name),
    }
    return Hello(**{**fields, **changes})


class Proxy:
    """Stands between a client and its broker, and cuts the connection when told to."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self.target = target
        self.connections_made = 0
        self._pairs: list[tuple[trio.SocketStream, trio.SocketStream]] = []
        self._listening = trio.CancelScope()
        self._made = trio.Event()
        self._flowing = trio.Event()
        self._flowing.set()

    @classmethod
    async def start(cls, nursery: trio.Nursery, target: str = "") -> Self:
        """Listen; the target may be set later, if whoever is there has to know this address."""
        proxy = cls(target)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        host, port = listeners[0].socket.getsockname()
        proxy.address = f"{host}:{port}"
        nursery.start_soon(proxy._listen, listeners)
        return proxy

    def cut(self) -> None:
        """Reset every connection: what is on its way is lost."""
        for pair in self._pairs:
            for stream in pair:
                linger = struct.pack("ii", 1, 0)
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                stream.socket.close()
        self._pairs.clear()

    def close(self) -> None:
        """Cut, and let nobody in any more."""
        self.cut()
        self._listening.cancel()

    def hold(self) -> None:
        """Pass nothing on for now."""
        self._flowing = trio.Event()

    def release(self) -> None:
        self._flowing.set()

    async def next_connection(self) -> None:
        """Wait until the client has come (back)."""
        await self._made.wait()
        self._made = trio.Event()

    async def _listen(self, listeners: list[trio.SocketListener]) -> None:
        with self._listening:
            await trio.serve_listeners(self._relay, listeners)

    async def _relay(self, near: trio.SocketStream) -> None:
        far = await open_stream(self.target)
        self._pairs.append((near, far))
        self.connections_made += 1
        self._made.set()
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, near, far)
            nursery.start_soon(self._pump, far, near)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            while data := await source.receive_some():
                await self._flowing.wait()
                await sink.send_all(data)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            await sink.aclose()


async def take(subscription: Subscription, count: int) -> list[int]:
    """The numbers of the next publications delivered."""
    taken = []
    async for delivery in subscription:
        taken.append(delivery.seq)
        if len(taken) == count:
            break
    return taken


async def until_ready(client: Client) -> None:
    """Wait until a client has its connection (back)."""
    while client.state is not ClientState.READY:
        await trio.lowlevel.checkpoint()


async def publisher_and_subscriber(publisher: Client, subscriber: Client) -> Subscription:
    """Let one client publish anything and another one receive it."""
    await publisher.advertise("n IS NOT NULL")
    return await subscriber.subscribe("n IS NOT NULL")
