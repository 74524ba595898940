"""One process per broker, and none of them left behind, whatever happens."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from plait.scripts.async_entry import leaves
from plait.scripts.errors import EnvironmentFailedError
from plait.scripts.happenings import BrokerLost, BrokerReady, BrokersStopped, Happening
from plait.scripts.launcher import BrokerPlan, launch
from plait.scripts.monitor import ask, split
from plait.scripts.run_directory import state_file
from plait.scripts.status_reports import players
from tests.patience import wait_until
from tests.processes import started

pytestmark = pytest.mark.processes

LINE_OF_THREE = (
    BrokerPlan(name="b1", parent=None),
    BrokerPlan(name="b2", parent="b1"),
    BrokerPlan(name="b3", parent="b2"),
)


def is_alive(pid: int) -> bool:
    try:
        # A zombie is dead; who is to bury it is not the question here.
        return state_of(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # The second: it was buried after its file was opened.
        return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Witness:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.happenings: list[Happening] = []

    def __call__(self, happening: Happening) -> None:
        self.happenings.append(happening)

    @property
    def lost(self) -> list[BrokerLost]:
        return [told for told in self.happenings if isinstance(told, BrokerLost)]

    @property
    def pids(self) -> list[int]:
        return [told.pid for told in self.happenings if isinstance(told, BrokerReady)]


@pytest.fixture
def witness() -> Iterator[Witness]:
    witness = Witness()
    yield witness
    assert not [pid for pid in witness.pids if is_alive(pid)]


async def test_brokers_run_while_the_block_does(tmp_path: Path, witness: Witness) -> None:
    async with launch(LINE_OF_THREE, log_directory=tmp_path, tell=witness) as overlay:
        host, _, port = overlay.address_of("b2").rpartition(":")
        report = await ask(host, int(port))

        assert len(set(witness.pids)) == 3
        assert {one["name"] for one in report["neighbours"]} == {"b1", "b3"}
    assert witness.happenings[-1] == BrokersStopped(3)
    assert "stopped" in (tmp_path / "b1.log").read_text()


async def test_an_error_in_the_block_stops_them_and_goes_on(
    tmp_path: Path, witness: Witness
) -> None:
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with launch(LINE_OF_THREE, log_directory=tmp_path, tell=witness):
            raise ZeroDivisionError


async def test_a_broker_that_ends_by_itself_ends_everything(
    tmp_path: Path, witness: Witness
) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(EnvironmentFailedError, match="broker b2 was ended by signal SIGKILL"),
        flatten_subgroups=True,
    ):
        async with launch(LINE_OF_THREE, log_directory=tmp_path, tell=witness) as overlay:
            os.kill(overlay.processes["b2"].pid, signal.SIGKILL)
            await trio.sleep_forever()


async def test_after_a_crash_a_broker_that_ends_is_told_of_and_ends_nothing(
    tmp_path: Path, witness: Witness
) -> None:
    notes: list[tuple[str, str]] = []
    async with launch(
        LINE_OF_THREE, log_directory=tmp_path, tell=witness, note=lambda *note: notes.append(note)
    ) as overlay:
        overlay.crash("b3")
        os.kill(overlay.processes["b2"].pid, signal.SIGKILL)
        while not witness.lost:
            await trio.lowlevel.checkpoint()

    assert witness.lost == [BrokerLost("b2", "was ended by signal SIGKILL")]
    assert notes == [("crashed", "b3"), ("stopped", "b2")]


async def test_a_broker_is_frozen_and_goes_on_and_comes_back_at_its_address(
    tmp_path: Path, witness: Witness
) -> None:
    notes: list[tuple[str, str]] = []
    async with launch(
        LINE_OF_THREE, log_directory=tmp_path, tell=witness, note=lambda *note: notes.append(note)
    ) as overlay:
        before, address = overlay.processes["b3"].pid, overlay.address_of("b3")
        overlay.freeze("b3")
        wait_until(lambda: state_of(before) == "T", "the broker to stop")
        overlay.unfreeze("b3")
        wait_until(lambda: state_of(before) != "T", "the broker to go on")
        overlay.crash("b3")
        await overlay.recover("b3")

        assert overlay.processes["b3"].pid != before
        assert overlay.address_of("b3") == address
        assert overlay.processes["b3"].incarnation == 2
    assert [kind for kind, _ in notes] == ["frozen", "unfrozen", "crashed", "restarted"]
    assert not is_alive(before)


async def test_a_broker_that_is_stopped_is_played_elsewhere_until_it_is_back(
    tmp_path: Path, witness: Witness
) -> None:
    plans = [
        attrs.evolve(plan, arguments=("--state", str(state_file(tmp_path, plan.name))))
        for plan in LINE_OF_THREE
    ]
    notes: list[tuple[str, str]] = []
    async with launch(
        plans, log_directory=tmp_path, tell=witness, note=lambda *note: notes.append(note)
    ) as overlay:

        async def player() -> str:
            reports = [await ask(*split(overlay.address_of(name))) for name in ("b1", "b2", "b3")]
            return str(players(reports)["b2"]["host"])

        await overlay.stop("b2")
        others = [await ask(*split(overlay.address_of(name))) for name in ("b1", "b3")]
        assert players(others)["b2"]["host"] == "b1"
        await overlay.recover("b2")
        while await player() != "b2":
            await trio.lowlevel.checkpoint()

    assert notes == [("stopped", "b2"), ("restarted", "b2")]
    assert witness.lost == []


async def test_a_root_that_recovers_finds_the_others_by_its_state_file(
    tmp_path: Path, witness: Witness
) -> None:
    plans = [
        attrs.evolve(plan, arguments=("--state", str(state_file(tmp_path, plan.name))))
        for plan in LINE_OF_THREE
    ]
    async with launch(plans, log_directory=tmp_path, tell=witness) as overlay:
        overlay.crash("b1")
        await overlay.recover("b1")
        host, _, port = overlay.address_of("b1").rpartition(":")
        report = await ask(host, int(port))

        assert report["incarnation"] == 2
        assert "b2" in {one["name"] for one in report["neighbours"]}


async def test_a_broker_that_cannot_start_is_reported_with_the_end_of_its_log(
    tmp_path: Path, witness: Witness
) -> None:
    plan = BrokerPlan(name="b1", parent=None, listen="192.0.2.1:0")
    with pytest.RaisesGroup(
        pytest.RaisesExc(
            EnvironmentFailedError, match=r"(?s)b1 .* before it was ready;.*192.0.2.1"
        ),
        flatten_subgroups=True,
    ):
        async with launch([plan], log_directory=tmp_path, tell=witness):
            pass


async def test_a_broker_that_does_not_stop_is_reported_and_killed(
    tmp_path: Path, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.scripts.launcher.STOP_TIMEOUT_S", 0.2)
    monkeypatch.setattr("plait.scripts.launcher.STOP_TIMEOUT_PER_BROKER_S", 0.1)
    monkeypatch.setattr("plait.scripts.launcher.ABORT_TIMEOUT_S", 0.1)
    with pytest.RaisesGroup(
        pytest.RaisesExc(EnvironmentFailedError, match="not stopped after 0.5 s: b1, b2"),
        flatten_subgroups=True,
    ):
        async with launch(LINE_OF_THREE, log_directory=tmp_path, tell=witness) as overlay:
            os.kill(overlay.processes["b2"].pid, signal.SIGSTOP)


LAUNCHER_PROGRAM = """
import pathlib, sys, trio
from plait.scripts.launcher import BrokerPlan, launch

async def main():
    plans = [BrokerPlan(name="b1", parent=None), BrokerPlan(name="b2", parent="b1")]
    logs = pathlib.Path(sys.argv[1])
    async with launch(plans, log_directory=logs, tell=lambda _: None) as overlay:
        print(*(process.pid for process in overlay.processes.values()), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize(
    ("number", "is_one_frozen"),
    [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGKILL, True)],
)
def test_nothing_outlives_a_launcher(
    tmp_path: Path, number: signal.Signals, is_one_frozen: bool
) -> None:
    command = [sys.executable, "-c", LAUNCHER_PROGRAM, tmp_path]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as launcher:
        assert launcher.stdout is not None
        pids = [int(word) for word in launcher.stdout.readline().split()]
        assert len(pids) == 2
        if is_one_frozen:
            os.kill(pids[1], signal.SIGSTOP)
        launcher.send_signal(number)
        wait_until(lambda: not any(map(is_alive, pids)), "the brokers to end")


def test_who_is_not_ready_in_time_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the time for each broker counts most."""
    monkeypatch.setattr("plait.scripts.launcher.READY_TIMEOUT_S", 0.0)
    monkeypatch.setattr("plait.scripts.launcher.READY_TIMEOUT_PER_BROKER_S", 0.001)
    plans = [BrokerPlan(name="b0", parent=None)]
    plans += [BrokerPlan(name=f"b{n}", parent="b0") for n in range(1, 10)]

    async def fail() -> None:
        async with launch(plans, log_directory=tmp_path, tell=Witness()):
            raise AssertionError("it was ready")

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(fail)
    (error,) = leaves(caught.value)

    assert isinstance(error, EnvironmentFailedError)
    assert str(error).startswith(
        "0 of 10 brokers ready after 0.01 s, not b0, b1, b2, b3, b4, b5, b6, b7 and 2 more; "
    )
