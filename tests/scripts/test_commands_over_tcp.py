"""The commands as a user types them: real brokers, real sockets, exit codes."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.patience import PATIENCE_S
from tests.processes import PLAIT, finished, started

pytestmark = pytest.mark.processes


SCENARIO = """\
Site root Parent none
Site left Parent root
Process b1 Is broker On root
Process b2 Is broker On left
Process alice Is subscriber On left
Process nyse Is publisher On root
Subscriber alice Subscribe /a/*
Publisher nyse Publish 3 Ontopic /a/b Interval 1
Publisher nyse Publish 2 Ontopic /c Interval 1
"""


def plait(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return finished([*PLAIT, *arguments], stdin=stdin)


def running(*arguments: object) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Run a command beside the test, and no longer than the block."""
    return started([*PLAIT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@attrs.frozen
class RunningBroker:
    """A broker, and where it listens."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.ready["address"])


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running("broker", "--name", "b1", "--metrics", ":0", "--json") as process:
        assert process.stdout is not None
        yield RunningBroker(process, json.loads(process.stdout.readline()))
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


@contextlib.contextmanager
def subscribing(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a subscriber that has subscribed when the block begins."""
    with running("sub", *arguments) as process:
        assert process.stderr is not None
        assert "subscribed to" in process.stderr.readline()
        yield process


# --- publish and subscribe ----------------------------------------------------------------------


def test_what_is_published_is_printed(broker: RunningBroker) -> None:
    with subscribing("--broker", broker.address, "price > 100", "--count", 2) as subscriber:
        for price in (99, 101, 120.5):
            result = plait(
                *("pub", "--broker", broker.address, "--name", f"p{price}"),
                *("symbol=IBM", f"price={price}", "--body", "now"),
            )
            assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        output, _ = subscriber.communicate(timeout=PATIENCE_S)

        assert output == (
            "p101#1 symbol=IBM price=101 | now\np120.5#1 symbol=IBM price=120.5 | now\n"
        )
        assert subscriber.returncode == 0


def test_two_lives_of_a_publisher_are_told_apart(broker: RunningBroker) -> None:
    with subscribing("--broker", broker.address, "TRUE", "--count", 3) as subscriber:
        for name, price in (("nyse", 1), ("nyse", 2), ("lse", 3)):
            plait("pub", "--broker", broker.address, "--name", name, f"price={price}")
        output, _ = subscriber.communicate(timeout=PATIENCE_S)

        assert re.sub(r"@\d{13,}#", "@LATER#", output) == (
            "nyse#1 price=1\nnyse@LATER#1 price=2\nlse#1 price=3\n"
        )


def test_lines_of_json_are_published_and_printed(broker: RunningBroker) -> None:
    lines = '{"topic": "/news/asia", "n": 1}\n\n{"topic": "/news", "n": 2}\n'
    with subscribing(
        *("--broker", broker.address, "--topic", "/news/*", "--topic", "/news", "--count", 4)
    ) as subscriber:
        result = plait(
            *("pub", "--broker", broker.address, "--name", "p", "--count", 2, "--wait"), stdin=lines
        )
        output, _ = subscriber.communicate(timeout=PATIENCE_S)

        assert result.returncode == 0
        assert [line.split(" confirmed after ")[0] for line in result.stdout.splitlines()] == [
            *("p#1", "p#2", "p#3", "p#4")
        ]
        assert [line.rpartition("n=")[2] for line in output.splitlines()] == [*"1122"]


def test_json_output_is_one_object_a_line(broker: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\x00")
    with running(
        *("sub", "--broker", broker.address, "TRUE", "--json", "--count", 1, "--name", "s")
    ) as subscriber:
        while not json.loads(plait("status", "--broker", broker.address, "--json").stdout)[0][
            "subscriptions"
        ]:
            pass
        plait(
            *("pub", "--broker", broker.address, "--name", "p", "x=1"),
            *("--body", f"@{tmp_path / 'picture'}"),
        )
        output, errors = subscriber.communicate(timeout=PATIENCE_S)

        incarnation = json.loads(output)["publisher_incarnation"]
        assert abs(incarnation / 1000 - time.time()) < 24 * 3600
        assert json.loads(output) == {
            "publisher": "p",
            "publisher_incarnation": incarnation,
            "seq": 1,
            "position": 1,
            "content": {"x": 1},
            "body_base64": "/wA=",
        }
        assert errors == ""


def test_nothing_that_is_published_moves_the_cursor(broker: RunningBroker) -> None:
    with subscribing("--broker", broker.address, "x <> '\x1b'", "--count", 1) as subscriber:
        content = json.dumps({"x": "\x1b[31mred\n", "\r": "fine", "y": "grün"})
        plait("pub", "--broker", broker.address, "--name", "p", "--content", content)
        output, _ = subscriber.communicate(timeout=PATIENCE_S)

    assert output == 'p#1 x="\\u001b[31mred\\n" "\\r"=fine y=grün\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["symbol = IBM"], "symbol = IBM compares two attributes"),
        (["--topic", "news.*"], "topic 'news.*': the * stands for itself; did you mean 'news/*'"),
    ],
)
def test_what_matches_nothing_is_warned_about(
    broker: RunningBroker, arguments: list[str], words: str
) -> None:
    result = plait("sub", "--broker", broker.address, "--timeout", 0, *arguments)

    assert result.returncode == 0
    assert result.stderr.startswith("warning: ")
    assert words in result.stderr
    assert "TrapWarning" not in result.stderr


def test_a_topic_in_the_place_of_a_filter_is_told_where_it_belongs() -> None:
    result = plait("sub", "--broker", ":1", "/news/*")

    assert result.returncode == 2
    assert result.stderr.endswith("plait sub --topic '/news/*'\n")


def test_ctrl_c_is_how_a_subscription_ends(broker: RunningBroker) -> None:
    with subscribing("--broker", broker.address, "TRUE") as subscriber:
        subscriber.send_signal(signal.SIGINT)
        output, errors = subscriber.communicate(timeout=PATIENCE_S)

        assert (subscriber.returncode, output, errors) == (0, "", "")


def test_too_few_in_time_is_not_done(broker: RunningBroker) -> None:
    result = plait("sub", "--broker", broker.address, "TRUE", "--count", 3, "--timeout", 0.2)

    assert result.returncode == 3
    assert result.stderr.endswith("plait: 0 of 3 publications within 0.2 s\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pub", "price"], "'price' found, ATTR=VALUE expected"),
        (["pub", "x=1", "--content", "{}"], "not both"),
        (["pub", "--content", "[1]"], "--content: a JSON object expected, list found"),
        (["pub", "x=1", "--advertise", "x >"], "--advertise: expected"),
        (["pub", "x=1", "--advertise", "x > 3"], "lies outside what"),
        (["pub", "x=1", "--body", "@no-such-file"], "--body: "),
        (["sub"], "Say what to subscribe to"),
        (["sub", "price >"], "quote it"),
    ],
)
def test_bad_input(broker: RunningBroker, arguments: list[str], words: str) -> None:
    result = plait(*arguments, "--broker", broker.address)

    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["pub", "x=1"], ["sub", "TRUE"], ["status"]])
def test_nobody_listens(arguments: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = plait(*arguments, "--broker", f":{port}")

    assert result.returncode == 3
    assert str(port) in result.stderr
    assert "Traceback" not in result.stderr


# --- one broker ---------------------------------------------------------------------------------


def test_a_taken_port_is_one_sentence_and_exit_code_3(broker: RunningBroker) -> None:
    result = plait("broker", "--name", "b2", "--listen", broker.address)

    assert result.returncode == 3
    assert result.stderr == (
        f"plait: cannot listen at {broker.address}: Address already in use; "
        "choose another port, or port 0 for any that is free\n"
    )


def test_other_machines_are_let_in_only_when_that_is_said() -> None:
    result = plait("broker", "--name", "b1", "--listen", "0.0.0.0:0")

    assert result.returncode == 2
    assert result.stderr.endswith("or --insecure, if all who reach it are trusted\n")


def test_a_taken_name_ends_a_broker(broker: RunningBroker) -> None:
    result = plait("broker", "--name", "b1", "--join", broker.address)

    assert result.returncode == 3
    assert "the name b1 is taken" in result.stderr.splitlines()[-1]
    assert result.stdout == ""


def test_status_walks_the_overlay(broker: RunningBroker) -> None:
    with running("broker", "--name", "b2", "--join", broker.address, "--json") as other:
        assert other.stdout is not None
        address = json.loads(other.stdout.readline())["address"]
        port = broker.address.rpartition(":")[2]
        table = plait("status", "--broker", address, "--broker", f"localhost:{port}")
        reports = json.loads(plait("status", "--broker", address, "--json").stdout)
        other.terminate()
        other.communicate(timeout=PATIENCE_S)

    summary, *rows, outlook = table.stdout.splitlines()
    assert summary.startswith("2 brokers, all operational")
    assert [line.split()[:5] for line in rows] == [
        ["broker", "host", "term", "address", "parent"],
        ["b1", "b1", "1", broker.address, "-"],
        ["b2", "b2", "1", address, "b1"],
    ]
    assert outlook == "one more failure would be survived now"
    assert [report["node"] for report in reports] == ["b2", "b1"]


# --- whole runs ---------------------------------------------------------------------------------


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.txt"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("mode", [[], ["--simulate", "--seed", "3"]])
def test_a_run_ends_by_itself_and_leaves_its_history(scenario: Path, mode: list[str]) -> None:
    out = scenario.parent / "out"
    result = plait("run", scenario, "--out", out, "--json", *mode)
    report = json.loads(result.stdout)
    manifest = json.loads((out / "manifest.json").read_text())

    assert (result.returncode, result.stderr) == (0, "")
    assert report["is_clean"]
    assert (report["figures"]["published"], report["figures"]["delivered"]) == (5, 3)
    assert manifest["topology"] == {"b1": None, "b2": "b1"}
    assert manifest["simulated"] is bool(mode)
    assert (out / "history" / "alice-1.jsonl").exists()


def test_a_run_can_be_watched(scenario: Path) -> None:
    result = plait("run", scenario, "--out", scenario.parent / "out", "--watch")

    assert result.returncode == 0
    assert " alice         received      nyse#1 topic=/a/b\n" in result.stdout
    assert "2 brokers have ended, nothing is left" in result.stdout
    assert "kept    loss" in result.stdout


@pytest.mark.parametrize(
    ("added", "arguments", "words"),
    [
        ("Krash b1\n", ["--strict"], "tiny.txt:10:1: found 'Krash'"),
        ("Subscriber bob Subscribe /a\n", ["--strict"], "tiny.txt:10:12: found 'bob'"),
        ("", ["--watch", "--json"], "choose one"),
        ("", ["--ordering", "total"], "'total' is not one of"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_it_begins(
    scenario: Path, added: str, arguments: list[str], words: str
) -> None:
    scenario.write_text(SCENARIO + added)
    out = scenario.parent / "out"
    result = plait("run", scenario, "--out", out, *arguments)

    assert result.returncode == 2
    assert words in result.stderr
    assert not out.exists()


def test_a_run_does_not_mix_with_another_one(scenario: Path) -> None:
    result = plait("run", scenario, "--out", scenario.parent)

    assert result.returncode == 2
    assert "is not empty" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_is_ended_leaves_no_broker_behind(
    scenario: Path, number: signal.Signals, code: int
) -> None:
    scenario.write_text(SCENARIO + "Wait 600000\n")
    with running("run", scenario, "--out", scenario.parent / "out", "--watch") as run:
        assert run.stdout is not None
        lines = [run.stdout.readline() for _ in range(5)]
        pids = [int(pid) for pid in re.findall(r", process (\d+)$", "".join(lines), re.MULTILINE)]
        run.send_signal(number)
        _, errors = run.communicate(timeout=PATIENCE_S)

    assert len(pids) == 2
    assert run.returncode == code
    assert errors == ("plait: interrupted\n" if code > 0 else "")
    for pid in pids:
        wait_until_gone(pid)


FAULTS = """\
Freeze b2
Publisher nyse Publish 2 Ontopic /a/b Interval 1
Freeze alice
Wait 50
Unfreeze b2
Wait 50
Unfreeze alice
Await stable
Crash b2
Wait 50
Recover b2
Await stable
Publisher nyse Publish 2 Ontopic /a/b Interval 1
Crash nyse
Publisher nyse Publish 2 Ontopic /a/b Interval 1
Freeze b1
"""


def test_processes_are_frozen_crash_and_recover(scenario: Path) -> None:
    scenario.write_text(SCENARIO + FAULTS)
    out = scenario.parent / "out"
    result = plait("run", scenario, "--out", out, "--watch")
    told = [" ".join(line.split()[2:]) for line in result.stdout.splitlines()]
    records = (out / "history" / "plait-launcher-1.jsonl").read_text().splitlines()
    history = [(record["kind"], record["about"]) for record in map(json.loads, records)]

    assert result.returncode == 0
    assert told.index("alice frozen does nothing for now") < told.index(
        "alice goes on with what has arrived"
    )
    assert "script passes over" in " ".join(told)
    assert "b2-2.jsonl" in {path.name for path in (out / "history").iterdir()}
    assert history == [
        *(("frozen", "b2"), ("frozen", "alice"), ("unfrozen", "b2"), ("unfrozen", "alice")),
        *(("crashed", "b2"), ("restarted", "b2"), ("crashed", "nyse")),
        *(("frozen", "b1"), ("unfrozen", "b1"), ("stopped", "b1"), ("stopped", "b2")),
    ]


def test_status_finds_the_brokers_of_a_run(scenario: Path) -> None:
    scenario.write_text(SCENARIO + "Status\nWait 600000\n")
    out = scenario.parent / "out"
    with running("run", scenario, "--out", out, "--watch") as run:
        assert run.stdout is not None
        while "b2            operational" not in run.stdout.readline():
            pass
        reports = json.loads(plait("status", "--run", out, "--json").stdout)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=PATIENCE_S)

    assert [report["node"] for report in reports] == ["b1", "b2"]


def wait_until_gone(pid: int) -> None:
    """A process that was killed with its parent takes a moment to be gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], PATIENCE_S)[0], f"process {pid} is left behind"
    finally:
        os.close(descriptor)


def test_an_overlay_takes_commands_and_goes_on_after_a_mistake(scenario: Path) -> None:
    result = plait(
        *("up", scenario, "--out", scenario.parent / "out"),
        stdin=(
            "help\nSubscriber alice Subscribe WHERE x > 1\nsubscriber alcie subscribe /d\n"
            'publisher nyse publish 1 content {"x": 3} interval 0\n'
            "Publisher nyse Advertise WHERE x > 0\n"
            'publisher nyse publish 2 content {"x": ${n}} interval 0\nstatus\nSite q Parent b1\n'
            "quit\nnonsense\n"
        ),
    )

    assert result.returncode == 2
    assert "Publisher N Publish K Ontopic T Interval MS" in result.stdout
    assert "input:1:12: found 'alcie'" in result.stderr
    assert "outside what it has advertised: x=3" in result.stderr
    assert "received      nyse#7 x=2" in result.stdout
    assert "input:1:6: found a declaration, expected a command" in result.stderr
    assert "nonsense" not in result.stderr
    assert result.stderr.endswith("plait: 3 of the lines given could not be executed, see above\n")
    assert "7 publications of 1 publishers, 4 deliveries" in result.stdout
