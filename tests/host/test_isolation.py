"""Who reads too slowly, or vanishes with thousands of others, harms itself only."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import attrs
import pytest

from plait.broker.limits import DEFAULT_LIMITS
from plait.faulttol.steplog import Taken
from plait.routing.ids import NodeId
from tests.host.peers import Alone, Peer


def subscriber(host: Alone, name: str) -> Peer:
    peer = host.peer(name).joins()
    peer.steps(peer.subscription(f"{name}/1", filter="x = 1"))
    return peer


def publisher(host: Alone, name: str) -> Peer:
    peer = host.peer(name).joins()
    peer.steps(peer.advertisement(f"{name}/1", filter="x = 1"))
    return peer


def one_second(host: Alone, nyse: Peer, rate: int, *alive: Peer) -> None:
    """Publish at this rate."""
    for _ in range(10):
        nyse.steps(*(nyse.publication() for _ in range(rate // 10)))
        host.passes(0.1, nyse, *alive)


@pytest.mark.parametrize("trickle", [0, 1], ids=["nothing", "one in 5 s"])
def test_who_confirms_next_to_nothing_is_isolated_within_eleven_seconds(trickle: int) -> None:
    host = Alone()
    nyse, sloth = publisher(host, "nyse"), subscriber(host, "sloth")
    prompt = subscriber(host, "prompt")
    confirmed = 0
    for second in range(11):
        assert host.has("sloth"), second
        one_second(host, nyse, 50, sloth, prompt)
        prompt.confirms(prompt.received)
        if second % 5 == 4:
            confirmed += trickle
            sloth.confirms(confirmed)

    assert not host.has("sloth")
    assert "unconfirmed, the first for 10." in sloth.reason
    assert host.has("prompt")
    assert host.host.parts.clients.isolated == 1
    one_second(host, nyse, 10, prompt)
    prompt.confirms(prompt.received)
    assert host.machine.publications.unstable == 0


def test_who_is_nine_seconds_behind_all_the_time_is_not_isolated() -> None:
    host = Alone()
    nyse, slow = publisher(host, "nyse"), subscriber(host, "slow")
    for second in range(40):
        one_second(host, nyse, 50, slow)
        slow.confirms(max(0, 50 * (second - 7)))

    assert host.has("slow")


def test_who_keeps_its_bound_of_confirmations_is_isolated_for_its_number_only() -> None:
    host = Alone(attrs.evolve(DEFAULT_LIMITS, unconfirmed_publications_max=100))
    nyse, sloth = publisher(host, "nyse"), subscriber(host, "sloth")
    one_second(host, nyse, 100, sloth)
    assert host.has("sloth")
    one_second(host, nyse, 50, sloth)

    assert not host.has("sloth")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"publish_window_max": 100}, "120 publications of its own unconfirmed"),
        (
            {"publish_window_bytes_max": 90_000, "frame_bytes_max": 20_000},
            "120000 bytes of its own publications unconfirmed",
        ),
    ],
)
def test_who_publishes_beyond_its_window_is_isolated(limits: dict[str, int], reason: str) -> None:
    host = Alone(attrs.evolve(DEFAULT_LIMITS, **limits))
    nyse, modest = publisher(host, "nyse"), publisher(host, "modest")
    sloth = subscriber(host, "sloth")
    for _ in range(120):
        nyse.steps(nyse.publication(bytes(1000)))
    for _ in range(100):
        modest.steps(modest.publication(bytes(1000)))
    host.passes(1.0, nyse, modest, sloth)

    assert [host.has(name) for name in ("nyse", "modest", "sloth")] == [False, True, True]
    assert nyse.reason == reason


def test_many_that_vanish_together_are_dropped_a_few_in_a_step_and_soon() -> None:
    host = Alone()
    stays = host.peer("stays").joins()
    gone = []
    for number in range(950):
        gone.append(host.peer(f"c{number}").joins())
        host.passes(0.002)
    vanished_at = host.now
    for peer in gone:
        peer.hangs_up()
    host.passes(5.0, stays)
    left: list[int] = []
    while len(host.machine.neighbours.below) > 1:
        assert len(left) < 1000
        left.append(len(host.machine.neighbours.below))
        assert host.timer is not None
        host.passes(host.timer - host.now, stays)

    assert host.has("stays")
    drops = [before - after for before, after in zip(left, [*left[1:], 1], strict=True)]
    assert max(drops) == DEFAULT_LIMITS.isolated_at_once
    assert host.now - vanished_at < DEFAULT_LIMITS.resume_timeout_s + 1.5


def test_many_that_leave_much_behind_are_dropped_fewer_in_a_step() -> None:
    host = Alone(attrs.evolve(DEFAULT_LIMITS, skipped_at_once=100))
    nyse = publisher(host, "nyse")
    gone = [subscriber(host, f"c{i}") for i in range(10)]
    one_second(host, nyse, 60)
    for peer in gone:
        peer.hangs_up()
    steps: dict[float, int] = {}
    while host.has("c9"):
        assert host.timer is not None
        host.passes(host.timer - host.now, nyse)
        steps[host.now] = 11 - len(host.machine.neighbours.below)

    assert sorted(set(steps.values())) == [0, 2, 4, 6, 8, 10]


def bytecodes(call: Callable[[], Any]) -> int:
    """How much a call does, whatever machine it runs on."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_to_drop_one_client_costs_the_same_among_ten_and_among_hundreds() -> None:
    def cost(count: int) -> int:
        host = Alone()
        for i in range(count):
            peer = host.peer(f"c{i}").joins()
            peer.steps(
                peer.subscription(f"c{i}/1", filter=f"x = {i}"),
                peer.advertisement(f"c{i}/2", filter=f"x = {i}"),
            )
        machine = host.machine

        def drop(number: int) -> None:
            client = machine.neighbours.below[NodeId(f"c{number}")]
            machine.decide(Taken.GONE, client, "it vanished", host.now)

        for i in range(count // 2):
            drop(i)
        return bytecodes(lambda: drop(count - 1))

    assert cost(300) < 1.2 * cost(10)
