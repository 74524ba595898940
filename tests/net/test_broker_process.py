"""A broker as a program: how it starts, what it reports, how it stops."""

import contextlib
import errno
import os
import resource
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from plait.broker.errors import AddressError, BadNameError, GaveUpError, ListenError
from plait.broker.limits import Limits
from plait.broker.messages import (
    Goodbye,
    GoodbyeCode,
    Life,
    NodeKind,
    Seating,
    StatusReply,
    StatusRequest,
    Welcome,
)
from plait.broker.net.broker_process import BrokerAddresses, BrokerSettings, serve_broker
from plait.broker.net.client import connect
from plait.faulttol.history import read_run
from plait.routing.ids import NodeId
from tests.net.overlay import Overlay, exchange, hello, raw_peer


async def test_it_reports_the_ports_that_it_was_given(overlay: Overlay) -> None:
    address = await overlay.broker("b1")

    host, _, port = address.partition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    status = await overlay.status("b1")
    assert (status["node"], status["address"]) == ("b1", address)


async def test_it_can_be_told_how_others_are_to_dial_it(overlay: Overlay) -> None:
    await overlay.broker("b1", address="broker.example:5000")

    assert (await overlay.status("b1"))["address"] == "broker.example:5000"


@pytest.mark.parametrize("field", ["listen", "metrics"])
async def test_another_address_than_loopback_has_to_be_allowed(field: str) -> None:
    settings = BrokerSettings(node=NodeId("b1"), **{field: "0.0.0.0:0"})  # type: ignore[arg-type]

    with pytest.raises(AddressError, match=r"'0\.0\.0\.0:0' can be reached from other machines"):
        await serve_broker(settings, shutdown=trio.Event())


async def test_once_allowed_it_listens_everywhere(overlay: Overlay) -> None:
    address = await overlay.broker("b1", listen="0.0.0.0:0", is_insecure=True)

    assert address.startswith("0.0.0.0:")


async def test_a_port_that_is_taken_is_named(overlay: Overlay) -> None:
    address = await overlay.broker("b1")

    with pytest.raises(ListenError, match=f"cannot listen at {address}: Address already in use"):
        await serve_broker(BrokerSettings(node=NodeId("b2"), listen=address), shutdown=trio.Event())


@pytest.mark.parametrize("name", ["", "a\nb", "..", "\udcff", "ä" * 130])
async def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadNameError, match=r"^broker name .*: expected "):
        await serve_broker(BrokerSettings(node=NodeId(name)), shutdown=trio.Event())


async def test_it_says_why_it_gave_up(overlay: Overlay) -> None:
    await overlay.broker("b1")
    await overlay.broker("b2", join="b1")

    with pytest.raises(GaveUpError, match="the name b2 is taken"):
        await serve_broker(
            BrokerSettings(node=NodeId("b2"), join=overlay.address("b1")), shutdown=trio.Event()
        )


async def test_told_to_stop_it_says_goodbye_and_ends(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    async with trio.open_nursery() as nursery, raw_peer(address) as peer:
        await peer.send(hello("c"))
        await peer.receive(Welcome)
        nursery.start_soon(overlay.stop, "b1")

        assert (await peer.last_words()).code is GoodbyeCode.SHUTTING_DOWN
    assert not overlay.is_running("b1")
    assert [line["event"] for line in overlay.log("b1")][-1] == "stopped"


async def test_taken_for_failed_it_comes_back_to_those_it_knew(overlay: Overlay) -> None:
    """Also a root, which was told of nobody to join, and keeps nothing on disk."""
    await overlay.broker("b1")
    await overlay.broker("b2", join="b1")
    await fence(overlay, "b1", 1)

    await until_logged(overlay, "b1", "ready", 2)
    status = await overlay.status("b1")
    assert [broker["broker"] for broker in status["brokers"]] == ["b1"]
    assert [(n["role"], n["name"]) for n in status["neighbours"]] == [("child", "b2")]


async def fence(overlay: Overlay, name: str, incarnation: int) -> None:
    """Be a host that says of it that it has failed; which nobody can prove not to be one."""
    async with raw_peer(overlay.address(name)) as peer:
        await peer.send(hello("b9", kind=NodeKind.HOST, address="127.0.0.1:1"))
        await peer.receive(Welcome)
        await peer.send(Seating(failed=(Life(NodeId(name), incarnation),)))


async def until_logged(overlay: Overlay, name: str, event: str, times: int) -> None:
    while len(overlay.logged(name, event)) < times:
        await trio.lowlevel.checkpoint()


async def test_fenced_again_and_again_it_pauses_longer_each_time(overlay: Overlay) -> None:
    await overlay.broker("b1", limits=Limits(fence_pause_first_s=0.02, fence_pause_last_s=0.05))
    for times in range(1, 5):
        await until_logged(overlay, "b1", "ready", times)
        await fence(overlay, "b1", times)
    await until_logged(overlay, "b1", "ready", 5)

    pauses = [line["seconds"] for line in overlay.logged("b1", "fenced again, and pauses")]
    assert pauses == [0.02, 0.04, 0.05]
    assert (await overlay.status("b1"))["fenced"] == {
        "count": 4,
        "reason": "fenced: others go on without this life",
    }


async def test_between_two_lives_it_says_so_turns_others_away_and_can_be_stopped(
    overlay: Overlay,
) -> None:
    await overlay.broker("b1", limits=Limits(fence_pause_first_s=3600, fence_pause_last_s=3600))
    for times in (1, 2):
        await until_logged(overlay, "b1", "ready", times)
        await fence(overlay, "b1", times)
    await until_logged(overlay, "b1", "fenced again, and pauses", 1)

    status = await overlay.status("b1")
    assert (status["state"], status["pause_s"]) == ("fenced", 3600)
    assert await exchange(overlay.address("b1"), b"") == b""
    await overlay.stop("b1")
    assert not overlay.is_running("b1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_tells_it_to_stop(nursery: trio.Nursery, number: signal.Signals) -> None:
    ended = trio.Event()

    async def serve(*, task_status: trio.TaskStatus[BrokerAddresses]) -> None:
        await serve_broker(BrokerSettings(node=NodeId("b1")), task_status=task_status)
        ended.set()

    await nursery.start(serve)
    os.kill(os.getpid(), number)
    await ended.wait()


async def test_it_may_have_as_many_files_open_as_the_machine_allows(overlay: Overlay) -> None:
    await overlay.broker("b1")

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


async def test_it_writes_its_history_into_the_run_directory(
    overlay: Overlay, tmp_path: Path
) -> None:
    await overlay.broker("b1", run_dir=tmp_path / "run", run_id="r1", incarnation=3)
    async with connect(overlay.address("b1"), name="alice"):
        pass
    await overlay.stop("b1")

    records = read_run(tmp_path / "run").records
    assert {(r["run"], r["node"], r["incarnation"]) for r in records} == {("r1", "b1", 3)}
    assert [(r["kind"], r["about"]) for r in records] == [("joined", "b1"), ("joined", "alice")]


# Connections


async def test_connections_beyond_the_limit_are_closed_at_once(overlay: Overlay) -> None:
    address = await overlay.broker("b1", limits=Limits(links_max=2))
    async with connect(address) as alice, raw_peer(address) as quiet:
        assert await exchange(address, b"") == b""
        assert await exchange(address, b"") == b""

        assert await overlay.metric("b1", "plait_connections_refused_total") == 2
        assert len(overlay.logged("b1", "connection refused")) == 2
        await alice.advertise("TRUE")
        await alice.publish({"n": 1}, confirm=True)
        await quiet.stream.aclose()
        await overlay.until("b1", 'plait_links{kind="ungreeted"}', lambda links: links == 0)
        async with connect(address):
            pass


async def test_an_error_in_accepting_does_not_end_it(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    address = await overlay.broker("b1")
    accept = socket.socket.accept
    errors = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError(103, "Aborted")]

    def failing_accept(listening: socket.socket) -> tuple[socket.socket, object]:
        if errors:
            raise errors.pop(0)
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", failing_accept)
    async with connect(address) as alice:
        assert alice.broker == "b1"

    assert errors == []
    reasons = [line["reason"] for line in overlay.logged("b1", "connection not accepted")]
    assert reasons == ["Too many open files", "Aborted"]


# What monitoring systems see


async def test_metrics_are_what_prometheus_reads(overlay: Overlay) -> None:
    address = await overlay.broker("b1")
    await overlay.broker("b2", join="b1")
    async with connect(address) as alice, connect(address) as bob:
        await alice.advertise("TRUE")
        subscription = await bob.subscribe("n > 1")
        await alice.publish_many([{"n": 1}, {"n": 2}, {"n": 2}], confirm=True)
        answer = await overlay.get("b1", "/metrics")
        await subscription.unsubscribe()

    head, _, text = answer.partition("\r\n\r\n")
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    expected = {
        "plait_ready": 1,
        'plait_links{kind="broker"}': 1,
        'plait_links{kind="client"}': 2,
        'plait_links{kind="ungreeted"}': 0,
        "plait_publications_received_total": 3,
        "plait_publications_sent_total": 2,
        "plait_publications_matched_total": 2,
        "plait_publications_duplicate_total": 0,
        "plait_publications_unstable": 0,
        "plait_publications_held": 0,
        'plait_publication_hold_seconds_count{cause="parent"}': 0,
        'plait_publication_hold_seconds_sum{cause="publisher"}': 0,
        "plait_route_cache_hits_total": 1,
        "plait_route_cache_misses_total": 2,
        "plait_subscriptions": 1,
        "plait_advertisements": 1,
        'plait_operation_seconds_bucket{le="+Inf"}': 5,
        "plait_operation_seconds_count": 5,
    }
    assert {name: float(samples[name]) for name in expected} == expected
    assert int(samples["plait_received_bytes_total"]) > 100
    families = {name.partition("{")[0] for name in samples}
    for family in families:
        base = family.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        assert f"\n# TYPE {base} " in "\n" + text
        assert f"\n# HELP {base} " in "\n" + text


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /metrics HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /metrics?debug=1 HTTP/1.0\r\nHost: x\r\n\r\n", "200 OK"),
        ("HEAD /status HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /secrets HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
        ("GET /" + "x" * 9000, "431 Request Header Fields Too Large"),
    ],
)
async def test_http_requests_get_the_answer_they_deserve(
    overlay: Overlay, request_text: str, status: str
) -> None:
    await overlay.broker("b1")

    answer = await exchange(overlay.http_address("b1"), request_text.encode())

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.decode().splitlines()[0] == f"HTTP/1.1 {status}"
    assert bool(body) is not request_text.startswith("HEAD")


async def test_a_silent_http_client_is_sent_away(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.broker.net.http_endpoint.REQUEST_TIMEOUT_S", 0.01)
    await overlay.broker("b1")

    assert await exchange(overlay.http_address("b1"), b"GET /met") == b""


async def test_who_asks_over_http_is_answered_however_many_are_silent(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.broker.net.http_endpoint.CONNECTIONS_MAX", 2)
    await overlay.broker("b1")
    silent = overlay.http_address("b1")
    async with raw_peer(silent) as first, raw_peer(silent), raw_peer(silent):
        assert await overlay.metric("b1", "plait_ready") == 1
        assert await first.stream.receive_some() == b""


async def test_a_broker_has_room_for_so_many_clients_and_then_for_brokers(overlay: Overlay) -> None:
    address = await overlay.broker("b1", limits=Limits(clients_max=1))
    async with connect(address), raw_peer(address) as second:
        await second.send(hello("second"))
        goodbye = await second.receive(Goodbye)
        assert (goodbye.code, goodbye.reason) == (
            GoodbyeCode.DECLINED,
            "b1 has 1 clients, and no room",
        )
        await overlay.broker("b2", join=address)
        await overlay.until("b2", "plait_ready", lambda ready: ready == 1)


async def test_strangers_do_not_keep_others_from_joining(overlay: Overlay) -> None:
    limits = Limits(links_max=40, strangers_max=4, greeting_timeout_s=60.0)
    address = await overlay.broker("b1", limits=limits)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            for _ in range(20):
                await stack.enter_async_context(raw_peer(address))
            await stack.enter_async_context(connect(address))

        await overlay.until("b1", 'plait_links{kind="ungreeted"}', lambda links: links == 3)
        assert await overlay.metric("b1", "plait_links_cut_off_total") == 57
        assert await overlay.metric("b1", 'plait_links{kind="client"}') == 3


async def test_a_monitor_may_ask_over_the_wire_as_well(overlay: Overlay) -> None:
    async with raw_peer(await overlay.broker("b1")) as peer:
        await peer.send(hello("watcher", kind=NodeKind.MONITOR), StatusRequest())
        await peer.receive(Welcome)

        assert b'"node": "b1"' in (await peer.receive(StatusReply)).report


@pytest.mark.processes
async def test_a_broker_in_a_process_of_its_own_stops_on_sigterm() -> None:
    script = (
        "import trio; from plait.broker.net.broker_process import serve_broker, BrokerSettings;"
        "trio.run(serve_broker, BrokerSettings(node='b1'))"
    )
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process, [sys.executable, "-c", script], capture_stderr=False, stderr=-1
        )
        process: trio.Process = await nursery.start(run)
        assert process.stderr is not None
        first = await process.stderr.receive_some()
        assert b'"event": "ready"' in first
        process.terminate()
        assert await process.wait() == 0
