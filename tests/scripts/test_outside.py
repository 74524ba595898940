"""Disks, pipes and standard streams that fail: the table of ARCHITECTURE.md, cell by cell."""

import fcntl
import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import attrs
import pytest
import trio

from plait.broker.net.client import connect
from plait.faulttol.guarantees import check_run
from plait.faulttol.history import Manifest, read_run, write_manifest
from tests.net.overlay import exchange
from tests.patience import PATIENCE_S, attempts
from tests.processes import PLAIT

pytestmark = pytest.mark.processes

MANIFEST = Manifest(
    run="r", topology=None, ordering="fifo", delta=1, seed=None, started=0.0, simulated=False
)


def plait(
    arguments: str, redirections: str = "", *, folder: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Let a shell run the command, with its streams redirected."""
    program = f'exec "$@" {redirections}'
    return subprocess.run(
        ["/bin/sh", "-c", program, "sh", *PLAIT, *arguments.split()],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=folder,
    )


# Disks that are full


class Disk(Protocol):
    """A folder for which there may be no room."""

    folder: Path

    def fill(self, pid: int, file: Path | None) -> None:
        """Leave no room for what a process writes to a file."""

    def free(self, pid: int) -> None:
        """Make room again."""


class SizeLimit:
    """No disk that is full, but no file may grow: for whoever may mount nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, pid: int, file: Path | None) -> None:
        size = file.stat().st_size if file is not None else 0
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)


class SmallFileSystem:
    """A disk of a few pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, pid: int, file: Path | None) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass

    def free(self, pid: int) -> None:
        (self.folder / "filler").unlink()


@pytest.fixture
def file_system(tmp_path: Path) -> Iterator[SmallFileSystem]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
    )
    if mounting.returncode:
        pytest.skip("only who may mount a file system can fill one")
    yield SmallFileSystem(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # somebody may still use it


@pytest.fixture(params=["size limit", "file system"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "size limit":
        return SizeLimit(tmp_path)
    found: Disk = request.getfixturevalue("file_system")
    return found


# Brokers


@attrs.define
class Broker:
    """A broker in a process of its own."""

    process: subprocess.Popen[bytes]
    address: str
    metrics: str
    said: str = ""
    """On standard error, up to its end."""

    async def metric(self, sample: str) -> float:
        answer = await exchange(self.metrics, b"GET /metrics HTTP/1.1\r\n\r\n")
        for line in answer.decode().splitlines():
            if line.startswith(f"{sample} "):
                return float(line.removeprefix(sample))
        raise AssertionError(f"no sample {sample}")

    async def until(self, sample: str, is_so: Callable[[float], bool]) -> None:
        while not is_so(await self.metric(sample)):  # noqa: ASYNC110 - in another process
            await trio.sleep(0.01)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.said = (self.process.communicate(timeout=PATIENCE_S)[1] or b"").decode()
        assert "Traceback" not in self.said
        assert "[Errno" not in self.said
        return self.process.returncode

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.splitlines() if line[0] == "{"]


Start = Callable[..., Broker]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts brokers, and leaves none behind."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str, stderr: int = subprocess.PIPE, name: str = "b1") -> Broker:
        process = subprocess.Popen(
            [*PLAIT, "broker", "--json", "--name", name, "--metrics", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        started.append(process)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        return Broker(process, ready["address"], ready["metrics"])

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def deliver(broker: Broker, times: int = 1) -> None:
    """Let two clients come, one of them publish to the other, and both go: it serves."""
    with trio.fail_after(PATIENCE_S):
        async with connect(broker.address) as alice, connect(broker.address) as nyse:
            subscription = await alice.subscribe("TRUE")
            await nyse.advertise("TRUE")
            for n in range(times):
                await nyse.publish({"n": n}, confirm=True)
                async for delivery in subscription:
                    assert delivery.content == {"n": n}
                    break


async def annoy(broker: Broker) -> None:
    """Do what it logs."""
    assert await exchange(broker.address, b"\xff" * 8)


@pytest.mark.parametrize("what", ["log", "events", "history"])
async def test_what_cannot_be_written_ends_no_broker(start: Start, disk: Disk, what: str) -> None:
    run = disk.folder / "run"
    options = {
        "log": ("--log-file", str(disk.folder / "log")),
        "events": ("--events-file", str(disk.folder / "events")),
        "history": ("--run-dir", str(run), "--run-id", "r"),
    }[what]
    file = {"history": run / "history" / "b1-1.jsonl"}.get(what, disk.folder / what)
    broker = start(*options)
    lost = f'plait_lines_lost_total{{to="{what}"}}'
    await deliver(broker)
    assert await broker.metric(lost) == 0
    disk.fill(broker.process.pid, file)
    with trio.fail_after(PATIENCE_S):
        while not await broker.metric(lost):
            await deliver(broker, times=20)
            await annoy(broker)
    disk.free(broker.process.pid)
    counted = await broker.metric(lost)
    await deliver(broker)

    assert await broker.metric(lost) == counted
    assert broker.stop() == (3 if what == "history" else 0)
    if what == "log":
        lines = [json.loads(line) for line in file.read_text().splitlines() if line[-1:] == "}"]
        assert sum(line.get("lost_before", 0) for line in lines) == counted
        assert lines[-1]["event"] == "stopped"
        return
    told = [event for event in broker.events() if event["event"].startswith(what)]
    assert [event["event"] for event in told] == [f"{what} not written", f"{what} written again"]
    assert {event["file"] for event in told} == {str(file)}
    assert told[1]["lost"] == counted
    if what == "history":
        assert f"{file}: the history is incomplete, {counted:.0f} records could not" in broker.said
        write_manifest(run, MANIFEST)
        violations = check_run(read_run(run)).violations
        assert {violation.guarantee for violation in violations} == {"record"}


async def test_a_state_that_cannot_be_written_is_told_and_written_later(
    start: Start, disk: Disk
) -> None:
    state = disk.folder / "state"
    broker = start("--state", str(state))
    for _ in attempts("it keeps that it is the root"):
        if broker.address in (before := state.read_text()):
            break
    disk.fill(broker.process.pid, None)
    other = start("--join", broker.address, name="b2")
    with trio.fail_after(PATIENCE_S):
        await broker.until("plait_state_kept", lambda kept: kept == 0)
        await deliver(broker)
        assert state.read_text() == before
        disk.free(broker.process.pid)
        await broker.until("plait_state_kept", lambda kept: kept == 1)

    assert other.address in state.read_text()
    assert other.stop() == 0
    assert broker.stop() == 0
    events = [event["event"] for event in broker.events()]
    assert events.count("state not written") == events.count("state written again") == 1


@pytest.mark.parametrize("what", ["closed", "not read", "full"])
async def test_a_standard_error_that_takes_nothing_ends_no_broker(start: Start, what: str) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    if what == "closed":
        os.close(reading)
    stderr = os.open("/dev/full", os.O_WRONLY) if what == "full" else writing
    broker = start(stderr=stderr)
    lost = 'plait_lines_lost_total{to="log"}'
    with trio.fail_after(PATIENCE_S):
        while not await broker.metric(lost):
            await annoy(broker)
        await deliver(broker)

    assert broker.stop() == 0
    os.close(writing)
    if what != "closed":
        os.close(reading)
    if what == "full":
        os.close(stderr)


@pytest.mark.parametrize("redirections", [">&-", ">/dev/full", ">&- 2>&- <&-"])
def test_a_standard_output_that_takes_nothing_ends_no_broker(
    tmp_path: Path, redirections: str
) -> None:
    log = tmp_path / "log"
    process = subprocess.Popen(
        [
            *("/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *PLAIT, "broker"),
            *("--name", "b1", "--log-file", str(log)),
        ]
    )
    try:
        for _ in attempts("the broker is ready"):
            if log.exists() and log.read_text().endswith("\n"):
                break
        address = json.loads(log.read_text().splitlines()[0])["address"]
        assert plait(f"status --broker {address}", folder=tmp_path).returncode == 0
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


# What is refused at the start

REFUSED = {
    "log file, no folder": ("--log-file no/such/log", "no: there is no such folder"),
    "log file, not a folder": ("--log-file file/log", "file: Not a directory"),
    "log file, a folder": ("--log-file folder", "'folder' is a directory"),
    "log file, a pipe without reader": ("--log-file fifo", "fifo: No such device or address"),
    "log file, a long name": (f"--log-file {'x' * 300}", "File name too long"),
    "events, no folder": ("--events-file no/such/events", "no: there is no such folder"),
    "events, a pipe without reader": ("--events-file fifo", "fifo: No such device or address"),
    "history, no folder": ("--run-dir no/such/run", "no/such: there is no such folder"),
    "history, a file": ("--run-dir file", "'file' is a file"),
    "history, written before": ("--run-dir written", "written/history/b1-1.jsonl: File exists"),
    "state, no folder": ("--state no/such/state", "no: there is no such folder"),
    "state, a folder": ("--state folder", "'folder' is a directory"),
    "state, a pipe": ("--state fifo", "fifo: a regular file expected, something else found; rem"),
    "state, a loop of links": ("--state loop", "loop: Too many levels of symbolic links"),
    "state, damaged": ("--state damaged", "damaged: incarnation of what is kept: a whole number"),
    "state, a long name": (f"--state {'x' * 250}", "File name too long"),
    "run, no name": ("--run-dir run --run-id a;b", "--run-id: found 'a;b' as the name of a run"),
    "incarnation, absurd": ("--incarnation 18446744073709551615", "not in the range"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_a_broker_does_not_begin_with_a_file_that_cannot_be(
    tmp_path: Path, options: str, words: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "damaged").write_text('{"format": 1, "incarnation": 1e400, "links": []}')
    (tmp_path / "written" / "history").mkdir(parents=True)
    (tmp_path / "written" / "history" / "b1-1.jsonl").touch()
    result = plait(f"broker --name b1 {options}", folder=tmp_path)

    assert result.returncode == 2, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "..", "ä" * 130, os.fsdecode(b"\xff\xfe")])
def test_a_broker_does_not_begin_with_what_is_no_name(tmp_path: Path, name: str) -> None:
    for command in (["broker"], ["sub", "--broker", ":1", "TRUE"]):
        if command == ["sub", "--broker", ":1", "TRUE"] and name.startswith("ä"):
            continue  # a client has no files
        result = subprocess.run(
            [*PLAIT, *command, "--name", name], capture_output=True, timeout=PATIENCE_S
        )

        assert result.returncode == 2, result.stderr
        assert b" name " in result.stderr
        assert b": expected " in result.stderr
        assert b"Traceback" not in result.stderr


def test_a_state_for_which_there_is_no_room_is_the_machines_fault(
    file_system: SmallFileSystem,
) -> None:
    file_system.fill(0, None)
    result = plait("broker --name b1 --state state", folder=file_system.folder)

    assert result.returncode == 3
    assert result.stderr.endswith("state.draft: No space left on device\n")


# Commands that end

SCENARIO = """\
Site root Parent none
Process b1 Is broker On root
Process alice Is subscriber On root
Process nyse Is publisher On root
Subscriber alice Subscribe /a/*
Publisher nyse Publish 50 Ontopic /a/b Interval 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.conf").write_text(SCENARIO)
    return tmp_path


COMMANDS = [
    "--version",
    "--help",
    "check x.conf",
    "simulate --seed 1",
    "simulate --seeds 0:3",
    "run x.conf --simulate",
    "run x.conf",
    "run x.conf --watch",
    "up x.conf",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_standard_output_without_room_is_named(folder: Path, command: str) -> None:
    result = plait(command, ">/dev/full", folder=folder)

    assert result.returncode == 3
    assert result.stderr.endswith("plait: standard output: No space left on device\n")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("redirections", [">&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_who_closes_a_stream_wants_nothing_of_it(
    folder: Path, command: str, redirections: str
) -> None:
    result = plait(command, redirections, folder=folder)

    assert result.returncode == 0
    assert "Traceback" not in result.stdout + result.stderr
    assert bool(result.stdout) is not (">&-" in redirections.replace("2>&-", ""))


@pytest.mark.parametrize("command", [*COMMANDS, "check x.conf --unknown"])
def test_a_reader_that_goes_away_is_no_error(folder: Path, command: str) -> None:
    for stream in ("stdout", "stderr"):
        reading, writing = os.pipe()
        os.close(reading)
        other = {"stdout": "stderr", "stderr": "stdout"}[stream]
        streams: dict[str, Any] = {stream: writing, other: subprocess.PIPE}
        result = subprocess.run(
            [*PLAIT, *command.split()],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            **streams,
        )
        os.close(writing)
        usual = 2 if "--unknown" in command else 0

        assert result.returncode == (141 if stream == "stdout" and not usual else usual)
        assert b"Traceback" not in (result.stdout or b"") + (result.stderr or b"")


def test_clients_in_the_shell_name_a_standard_output_without_room(
    start: Start, folder: Path
) -> None:
    address = start().address
    publishing = f"pub --broker {address} --wait n=1"
    for command in (publishing, f"status --broker {address}"):
        result = plait(command, ">/dev/full", folder=folder)
        assert result.returncode == 3
        assert result.stderr == "plait: standard output: No space left on device\n"
        for redirections in (">&-", "2>/dev/full", ">&- 2>&- <&-"):
            assert plait(command, redirections, folder=folder).returncode == 0

    for redirections, code in ((">/dev/full", 3), (">&-", 0), ("2>/dev/full", 0), ("2>&-", 0)):
        subscribing = subprocess.Popen(
            [
                *("/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *PLAIT, "sub"),
                *("--broker", address, "--count", "1", "TRUE"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while subscribing.poll() is None:
                assert plait(publishing, folder=folder).returncode == 0
            assert subscribing.wait() == code, redirections
        finally:
            subscribing.kill()
            subscribing.wait()


@pytest.mark.parametrize(
    "command",
    [
        "run {folder}/x.conf --out out",
        "run {folder}/x.conf --simulate --out out",
        "simulate --seeds 0:30 --jobs 1 --out out",
        "simulate --seeds 0:60 --jobs 2 --out out",
        "topology draw {folder}/x.conf --svg out",
    ],
)
@pytest.mark.parametrize("room", [0, 16, 64])
def test_a_command_for_whose_files_there_is_no_room_names_one(
    file_system: SmallFileSystem, folder: Path, command: str, room: int
) -> None:
    place = file_system.folder
    (place / "reserve").write_bytes(b"x" * 1024 * room)
    file_system.fill(0, None)
    (place / "reserve").unlink()
    result = plait(command.format(folder=folder), folder=place)
    if result.returncode == 0:
        return  # there was room for so little

    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    assert "[Errno" not in result.stderr
    assert "out" in result.stderr.rsplit("No space left on device", 1)[0].split()[-1]


def test_what_is_asked_of_who_writes_where_nobody_may(folder: Path) -> None:
    for command in (
        "run x.conf --out no/such/out",
        "run x.conf --simulate --out no/such/out",
        "simulate --seeds 0:3 --out no/such/out",
        "topology draw x.conf --svg no/such/x.svg",
        "broker --name b1 --state no/such/x",
    ):
        result = plait(command, folder=folder)

        assert result.returncode in (2, 3), command
        assert "Traceback" not in result.stderr
        assert "no/such" in result.stderr or "no:" in result.stderr, result.stderr
        assert not (folder / "no").exists()
