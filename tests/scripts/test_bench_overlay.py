"""`plait bench overlay` measures what it says. Nothing here looks at how fast anything is."""

import json
from pathlib import Path

import attrs
import pytest
import trio

pytest.importorskip("psutil", reason="only `plait bench` needs it")

from plait.scripts.bench import overlay, peers
from plait.scripts.bench.board import Board
from plait.scripts.bench.connecting import measure_connecting
from plait.scripts.bench.figures import Figures, Trials
from plait.scripts.bench.load import Load, Recorder, count_disagreeing, read_words
from plait.scripts.bench.memory import Memory, MemoryFigures, Stage, measure_memory
from plait.scripts.bench.peers import PEERS, PLAIT, PeerFigures, measure_peers
from plait.scripts.bench.relay import end_of_frames, frame, payloads_in
from plait.scripts.bench.report import report
from plait.scripts.bench.trials import (
    BARE_BROKER,
    BROKER,
    FRAME_RELAY,
    LINE,
    RELAY,
    SPREAD_LINE,
    Outcome,
    System,
    plan_line,
    run_trial,
)
from plait.scripts.bench.workloads import LATENCY, PAYLOAD_BYTES, THROUGHPUT, WORKLOADS, Workload
from plait.scripts.errors import BadInputError

SECONDS = 0.2
SMALL = [
    attrs.evolve(
        workload,
        publishers=min(2, workload.publishers),
        subscribers=2 if workload.is_selective else 1,
    )
    for workload in WORKLOADS.values()
]
LINE_OF_TWO = attrs.evolve(SPREAD_LINE, brokers=2)


# --- whole trials -------------------------------------------------------------------------------


@pytest.mark.processes
async def test_every_system_delivers_everything_under_every_workload() -> None:
    tried = [
        *((BROKER, workload) for workload in SMALL),
        *((system, SMALL[0]) for system in (RELAY, FRAME_RELAY, BARE_BROKER)),
        (LINE_OF_TWO, attrs.evolve(THROUGHPUT, subscribers=2)),
    ]
    outcomes: list[Outcome] = []
    at_a_time = trio.CapacityLimiter(3)  # or a slow machine has not begun when the time is over

    async def run(system: System, workload: Workload) -> None:
        async with at_a_time:
            outcomes.append(await run_trial(system, workload, SECONDS))

    async with trio.open_nursery() as nursery:
        for system, workload in tried:
            nursery.start_soon(run, system, workload)

    assert [outcome.missing for outcome in outcomes] == [0] * len(tried)
    assert all(0 < outcome.p50_ms <= outcome.p99_ms for outcome in outcomes)


@pytest.mark.processes
async def test_clients_connect_without_tls_and_with_it() -> None:
    figures = await measure_connecting(clients=3)

    assert figures.clients == 3
    assert figures.plain_s > 0
    assert figures.tls_s > 0


@pytest.mark.processes
async def test_memory_is_looked_at_in_stages() -> None:
    figures = await measure_memory(subscriptions=12, brokers=2)

    assert figures.empty.subscriptions == 0
    assert [stage.memory.subscriptions for stage in figures.stages] == [3, 6, 12]
    assert [len(stage.memory.resident_bytes) for stage in figures.stages] == [2, 2, 2]
    assert all(stage.alone_p50_ms > 0 for stage in figures.stages)


def test_the_root_of_a_line_is_in_its_middle() -> None:
    parents = {plan.name: plan.parent for plan in plan_line(5)}

    assert parents == {"b2": None, "b1": "b2", "b0": "b1", "b3": "b2", "b4": "b3"}
    assert next(iter(parents)) == "b2"
    assert [plan.name for plan in plan_line(1)] == ["b0"]


def test_subscribers_are_at_the_far_end_of_a_line_or_everywhere() -> None:
    assert [LINE.broker_of(subscriber) for subscriber in range(10)] == [4] * 10
    assert [SPREAD_LINE.broker_of(subscriber) for subscriber in range(10)] == [0, 1, 2, 3, 4] * 2
    assert (LINE.hops, SPREAD_LINE.hops, BROKER.hops) == (5, 3, 1)


# --- publishers and subscribers -----------------------------------------------------------------


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board.create(tmp_path / "board", publishers=2, subscribers=3)


def test_no_word_of_a_board_has_two_meanings(board: Board) -> None:
    board.begin(1, 2)
    views = [board.sent, board.has_finished, *board.received]
    for number, view in enumerate(views):
        for place in range(len(view)):
            view[place] = 10 * number + place

    assert (board.starts_at, board.ends_at) == (1, 2)
    assert [view.tolist() for view in views] == [[0, 1], [10, 11], [20, 21], [30, 31], [40, 41]]
    assert board.received_by_each == [41, 61, 81]


async def take(load: Load, most: int) -> list[tuple[int, bytes]]:
    """What a publisher would send before it has to wait, or until it has sent so much."""
    taken: list[tuple[int, bytes]] = []
    with trio.move_on_after(0.05):
        async for burst in load:
            taken += burst
            if len(taken) >= most:
                break
    return taken


async def test_in_a_closed_loop_nobody_is_more_than_a_window_ahead(board: Board) -> None:
    board.begin(1, 2**62)
    workload = Workload(name="closed", publishers=2, subscribers=3)
    load = Load(board, workload, 0)

    assert len(await take(load, 10_000)) == workload.window == 256
    for received, count in zip(board.received, (200, 100, 256), strict=True):
        received[0] = count
    assert [seq for seq, _ in await take(load, 10_000)] == list(range(256, 356))
    assert board.sent.tolist() == [356, 0]


async def test_a_selective_window_counts_what_all_have_received(board: Board) -> None:
    board.begin(1, 2**62)
    load = Load(board, Workload(name="sel", publishers=2, subscribers=3, is_selective=True), 0)

    assert len(await take(load, 10_000)) == 256
    for received in board.received:
        received[0] = 10
    assert len(await take(load, 10_000)) == 30


async def test_an_open_loop_makes_up_for_lost_time(board: Board) -> None:
    board.begin(1, 2**62)  # long ago
    load = Load(board, attrs.evolve(LATENCY, publishers=2, subscribers=3), 0)

    assert [seq for seq, _ in await take(load, 300)][:300] == list(range(300))


async def test_a_load_ends_in_time_and_says_so(board: Board) -> None:
    board.begin(1, 2)
    load = Load(board, attrs.evolve(THROUGHPUT, publishers=2, subscribers=3), 1)

    assert await take(load, 1) == []
    assert (board.is_over(), board.has_finished.tolist()) == (False, [0, 1])


async def test_a_recorder_tells_publishers_apart_and_keeps_latencies(
    board: Board, tmp_path: Path
) -> None:
    board.begin(1, 2**62)
    recorder = Recorder(board, 2)
    for index in (0, 1, 1):
        [(_, payload), *_] = await take(Load(board, Workload(name="closed"), index), 1)
        assert len(payload) == PAYLOAD_BYTES
        recorder.note(payload)
    recorder.save(tmp_path / "latencies", tmp_path / "order")

    assert board.received[2].tolist() == [1, 2]
    assert len(read_words(tmp_path / "latencies")) == 3
    assert read_words(tmp_path / "order") == [0, 1 << 32, 1 << 32]


def test_subscribers_disagree_about_what_both_of_them_got() -> None:
    assert count_disagreeing([[1, 2, 3], [1, 2, 3], [1, 3], [4, 2]]) == 0
    assert count_disagreeing([[1, 2, 3], [3, 1, 2], [2, 3]]) == 2


def test_frames_are_found_wherever_the_bytes_end() -> None:
    frames = [frame(bytes(size)) for size in (0, 1, 200)]
    data = b"".join(frames)
    ends = {sum(map(len, frames[:count])) for count in range(4)}

    assert payloads_in(data) == [bytes(0), bytes(1), bytes(200)]
    for size in range(len(data) + 1):
        assert end_of_frames(data[:size]) == max(end for end in ends if end <= size)


# --- figures ------------------------------------------------------------------------------------


def outcome(rate: float, **changes: float) -> Outcome:
    fields: dict[str, float] = {
        "messages_per_s": rate / 10,
        "deliveries_per_s": rate,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "system_us": 1.0,
        "clients_us": 3.0,
        "missing": 0,
        "disagreeing": 0,
        "others_percent": 0.0,
    }
    return Outcome(**{**fields, **changes})  # type: ignore[arg-type]


def trials(system: System, *outcomes: Outcome) -> Trials:
    return Trials(system=system, workload=THROUGHPUT, outcomes=list(outcomes))


FIGURES = Figures(
    seconds=4.0,
    rounds=3,
    ordering="fifo",
    trials=[
        trials(RELAY, outcome(1000, system_us=0.25)),
        trials(BARE_BROKER, outcome(600)),
        trials(FRAME_RELAY, outcome(200)),
        trials(BROKER, outcome(700), outcome(100), outcome(500, others_percent=40)),
        trials(LINE, outcome(250, missing=3)),
        trials(SPREAD_LINE, outcome(250)),
    ],
    memory=MemoryFigures(
        empty=Memory(0, [10_000, 20_000]),
        stages=[
            Stage(memory=Memory(10, [20_000, 40_000]), concurrent_ms=1.0, alone_p50_ms=2.0),
            Stage(memory=Memory(20, [30_000, 60_000]), concurrent_ms=1.0, alone_p50_ms=2.0),
        ],
    ),
    peers=PeerFigures(
        versions={"rabbit-headers": "rabbitmq 3", PLAIT: "plait 1"},
        left_out={"amqtt": "ModuleNotFoundError: No module named 'amqtt'"},
        rows={
            scenario: {
                peer: [{"msgs_per_s": rate, "lat_ms": {"p50": 1.0, "p99": 2.0}, "other_cpu_pct": 1}]
                for peer, rate in (("rabbit-headers", 10.0), (PLAIT, 50.0))
            }
            for scenario in ("tput", "lat")
        },
        wanted=PEERS,
    ),
)


def test_every_ratio_says_of_what_it_is_one() -> None:
    assert {ratio.name: ratio.value for ratio in FIGURES.ratios} == {
        "broker_to_relay": 0.6,
        "library_to_relay": 0.5,
        "broker_to_relay_without_clients": 0.25,
        "broker_to_frame_relay": 2.5,
        "line_per_hop": 2.5,
        "line_hand_overs": 0.7,
        "spread_line_per_hop": 1.5,
        "spread_line_hand_overs": 0.7,
        "bytes_per_subscription": 2000.0,
        "memory_growth": 1.0,
        "tput_to_rabbit-headers": 5.0,
        "lat_p50_to_rabbit-headers": 1.0,
    }


def test_the_figures_can_be_written_down() -> None:
    document = json.loads(json.dumps(FIGURES.to_json()))

    assert document["ratios"]["broker_to_relay"] == 0.6
    assert [len(one["outcomes"]) for one in document["trials"]] == [1, 1, 1, 3, 1, 1]
    assert document["trials"][3]["median"]["deliveries_per_s"] == 500


def test_the_report_shows_what_spoils_a_figure() -> None:
    text = report(FIGURES)

    assert "0.60  of the deliveries per second of the relay, clients equally bare (wan" in text
    assert "40 %!" in text
    assert "3 deliveries are missing" in text
    assert "amqtt is left out: ModuleNotFoundError: No module named 'amqtt'" in text


def test_what_two_scenarios_have_in_common_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, str]] = []

    async def note(system: System, workload: Workload, _: float) -> Outcome:
        tried.append((system.name, workload.name))
        return outcome(1)

    monkeypatch.setattr(overlay, "run_trial", note)
    overlay.measure(overlay.Session(scenarios=("tput", "line"), rounds=2))

    by_turns = ("relay", "bare_broker", "frame_relay", "broker")
    one_round = [(name, "tput") for name in by_turns]
    one_round += [("line", "tput"), ("spread_line", "tput")]
    assert tried == one_round * 2


# --- peers --------------------------------------------------------------------------------------

ADAPTERS = """
class Peer:
    def __init__(self, count, work):
        self.work, self.classes, self.ports = work, 0, [1]
    def popen(self, command): raise AssertionError("not in this test")
    def start(self): pass
    def stop(self): pass
    def version(self): return type(self).__name__
class Rabbit(Peer): pass
class Amqtt(Peer):
    def start(self): raise FileNotFoundError("amqtt")
def wait_port(port): pass
PEERS = {"rabbit-headers": Rabbit, "amqtt": Amqtt}
"""

BENCH = """
def wait_quiet(peer, percent, seconds): pass
def scenario(peer, name, subscribers, seconds, size, window, work):
    return {"msgs_per_s": 1.0, "who": peer.version(), "asked": [name, subscribers, size, window]}
"""


def test_peers_take_turns_and_those_not_installed_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapters.py").write_text(ADAPTERS)
    (tmp_path / "bench.py").write_text(BENCH)
    monkeypatch.setattr(peers.PlaitPeer, "start", lambda _: None)
    told: list[str] = []
    figures = measure_peers(
        tmp_path,
        ["tput"],
        rounds=2,
        seconds=1,
        subscribers=10,
        ordering="fifo",
        tell=told.append,
    )

    assert figures.left_out == {"amqtt": "FileNotFoundError: amqtt"}
    assert list(figures.versions) == ["rabbit-headers", PLAIT]
    assert [line for line in told if line.startswith("round")] == [
        f"round {number} of 2: tput, {peer}" for number in (1, 2) for peer in figures.versions
    ]
    assert [row["asked"] for row in figures.rows["tput"][PLAIT]] == [["tput", 10, 200, 512]] * 2


def test_a_folder_that_is_no_harness_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"found no adapters\.py"):
        measure_peers(tmp_path, [], rounds=1, seconds=1, subscribers=1, ordering="fifo", tell=print)
