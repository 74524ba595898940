"""Brokers on other machines; a stand-in for ssh makes this one look like two."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from plait.faulttol.history import read_run
from plait.scripts.errors import EnvironmentFailedError, ProblemsFoundError
from plait.scripts.hosts import SshHost, read_hosts
from plait.topologies.overlay import Overlay, Site
from tests.patience import wait_until
from tests.processes import PLAIT, finished, started

SCENARIO = """\
LoggingLevel full
Site root Parent none
Site left Parent root
Site right Parent root
Process b1 Is broker On root
Process b2 Is broker On left
Process b3 Is broker On right
Process alice Is subscriber On left
Process nyse Is publisher On root
Subscriber alice Subscribe /a/*
Publisher nyse Publish 3 Ontopic /a/b Interval 1
Freeze b2
Publisher nyse Publish 2 Ontopic /a/b Interval 1
Wait 50
Unfreeze b2
"""
# Takes what ssh takes; every machine is a folder of its own, and a line in a list of calls.
STAND_IN = """\
#!/bin/sh
test "$1 $2 $3" = "-T -o BatchMode=yes" || exit 255
machine=$4
shift 4
echo "$machine $*" >>"{folder}/calls"
mkdir -p "{folder}/$machine"
cd "{folder}/$machine" && exec sh -c "$*"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    stand_in = tmp_path / "stand-in"
    stand_in.write_text(STAND_IN.format(folder=tmp_path))
    stand_in.chmod(0o755)
    (tmp_path / "x.txt").write_text(SCENARIO)
    (tmp_path / "hosts.txt").write_text("ann@alpha=127.0.0.1 left // west\nbeta=127.0.0.2 root\n")
    return str(stand_in)


def options(tmp_path: Path, ssh: str) -> list[str]:
    hosts = str(tmp_path / "hosts.txt")
    return ["--hosts", hosts, "--ssh", ssh, "--remote-plait", " ".join(PLAIT)]


@pytest.mark.processes
def test_brokers_run_on_several_machines_and_their_history_comes_back(
    tmp_path: Path, ssh: str
) -> None:
    out = tmp_path / "out"
    result = finished(
        [*PLAIT, "run", str(tmp_path / "x.txt"), "--out", str(out), *options(tmp_path, ssh)]
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    starts = {call.split()[0] for call in calls if "--name b1" in call}
    signals = [call.split()[:3] for call in calls if " kill -" in call]

    assert result.returncode == 0, result.stderr
    assert "5 publications of 1 publishers, 5 deliveries" in result.stdout
    assert starts == {"beta"}
    assert signals[:2] == [["ann@alpha", "kill", "-STOP"], ["ann@alpha", "kill", "-CONT"]]
    assert {path.name for path in (out / "history").iterdir()} > {
        *("b1-1.jsonl", "b2-1.jsonl", "b3-1.jsonl")
    }
    assert not read_run(out).problems
    assert "BroEvent b2" in (out / "events.log@127.0.0.1").read_text()
    assert not list(tmp_path.glob("*/.plait-runs/*"))
    assert '"event": "insecure"' not in "".join(p.read_text() for p in (out / "logs").iterdir())
    assert all("--tls .plait-runs/" in call for call in calls if "--name" in call)
    assert not list(tmp_path.rglob("*.pem")) + list(tmp_path.rglob("*.key"))


@pytest.mark.processes
def test_nothing_is_left_on_other_machines_when_the_puppet_master_is_killed(
    tmp_path: Path, ssh: str
) -> None:
    (tmp_path / "x.txt").write_text(SCENARIO + "Wait 600000\n")
    command = [*PLAIT, "run", tmp_path / "x.txt", "--watch", "--out", tmp_path / "out"]
    with started([*command, *options(tmp_path, ssh)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        ports = []
        for line in run.stdout:
            if " listens on " in line:
                ports.append(line.split("listens on ")[1].split(",")[0])
            if "goes on" in line:
                break
        run.send_signal(signal.SIGKILL)

    assert len(ports) == 3
    wait_until(lambda: not any(map(is_open, ports)), "the end of all brokers")


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "option", "words"),
    [
        (
            "echo ssh: no route to $4 >&2; exit 255",
            "--strict",
            ("nowhere: certificates cannot be left there: ssh: no route to nowhere",),
        ),
        (
            "echo ssh: no route to $4 >&2; exit 255",
            "--insecure",
            ("ended with exit code 255 before it was ready", "ssh: no route to nowhere"),
        ),
        (
            "echo Welcome; exec sleep 60",
            "--insecure",
            ("found 'Welcome' as the first line of its output, expected",),
        ),
    ],
)
def test_a_machine_that_does_not_answer_as_it_should_is_reported(
    tmp_path: Path, program: str, option: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "x.txt").write_text(SCENARIO)
    (tmp_path / "hosts.txt").write_text("nowhere\n")
    (tmp_path / "fails").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "fails").chmod(0o755)
    result = finished(
        [
            *(*PLAIT, "run", str(tmp_path / "x.txt"), "--out", str(tmp_path / "out")),
            *("--hosts", str(tmp_path / "hosts.txt"), "--ssh", str(tmp_path / "fails"), option),
        ],
    )

    assert result.returncode == 3
    assert all(part in result.stderr for part in words)
    assert "Traceback" not in result.stderr


HOSTILE = (
    "x; touch PWNED",
    "$(touch PWNED)",
    "`touch PWNED`",
    "a 'b",
    "a\ntouch PWNED",
    "-rf",
    "a * b",
)
"""Words that a shell must not see as anything else."""


@pytest.mark.parametrize("word", HOSTILE)
def test_what_is_fetched_is_the_run_and_nothing_else_is_executed(
    tmp_path: Path, ssh: str, word: str
) -> None:
    home = tmp_path / "alpha"
    there, precious = home / ".plait-runs" / word, home / ".plait-runs" / "precious"
    for folder in (there / "history", precious, home / "x"):
        folder.mkdir(parents=True)
    (there / "history" / "b1-1.jsonl").write_text("{}\n")
    (tmp_path / "out" / "history").mkdir(parents=True)
    SshHost("alpha", "alpha", (ssh,), ("plait",)).fetch(tmp_path / "out", word)

    assert (tmp_path / "out" / "history" / "b1-1.jsonl").read_text() == "{}\n"
    assert not list(tmp_path.rglob("PWNED"))
    assert sorted(path.name for path in home.rglob("*")) == [".plait-runs", "precious", "x"]


@pytest.mark.parametrize("word", HOSTILE)
def test_what_is_started_there_gets_its_words_as_they_are(
    tmp_path: Path, ssh: str, word: str
) -> None:
    host = SshHost(
        "alpha", "alpha", (ssh,), (sys.executable, "-c", "import sys; print(sys.argv[1:])")
    )
    result = finished(host.command("broker", word))

    assert result.stdout == f"{['broker', word]}\n"
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.parametrize("packed", [b"", b"no archive at all" * 100])
def test_a_history_that_arrives_damaged_is_reported(tmp_path: Path, packed: bytes) -> None:
    (tmp_path / "packed").write_bytes(packed)
    (tmp_path / "sends").write_text(f"#!/bin/sh\ncat '{tmp_path}/packed'\n")
    (tmp_path / "sends").chmod(0o755)
    host = SshHost("alpha", "alpha", (str(tmp_path / "sends"),), ("plait",))

    with pytest.raises(EnvironmentFailedError, match="alpha: the history that it sent is damaged"):
        host.fetch(tmp_path, "run")


OVERLAY = Overlay(tuple(Site(f"s{n}", "s0" if n else None, (f"b{n}",)) for n in range(5)))


def test_sites_nobody_names_are_spread_over_all_hosts(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("one s3\n\nann@two.example=10.0.0.2 s1 s2 # comment\n")
    hosts = read_hosts(str(tmp_path / "h"), OVERLAY, ssh="ssh -p 22", plait="plait")
    one = SshHost("one", "one", ("ssh", "-p", "22"), ("plait",))
    two = SshHost("ann@two.example", "10.0.0.2", ("ssh", "-p", "22"), ("plait",))

    assert hosts == {"b0": one, "b1": two, "b2": two, "b3": one, "b4": two}
    assert two.command("broker", "--name", "b 1")[-2:] == [
        "ann@two.example",
        "mkdir -p .plait-runs && exec plait broker --name 'b 1'",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "h: found no host, expected a line"),
        ("one s9\n", "h:1:5: found 's9', expected a site of the configuration"),
        ("one s1\ntwo s1\n", "h:2:5: found 's1', expected a site that no other line names"),
        ("-oProxyCommand=x s1\n", "h:1:1: found '-oProxyCommand=x', expected a host"),
    ],
)
def test_what_is_wrong_with_a_file_of_hosts_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("h").write_text(text)

    with pytest.raises(ProblemsFoundError, match=words):
        read_hosts("h", OVERLAY, ssh="ssh", plait="plait")


@pytest.mark.processes
def test_brokers_listen_where_their_urls_say_if_told_so(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = SCENARIO.replace("On left\n", f"On left URL tcp://localhost:{port}/broker\n", 1)
    (tmp_path / "x.txt").write_text(text)
    command = [*PLAIT, "run", str(tmp_path / "x.txt"), "--watch", "--use-urls"]
    result = finished([*command, "--out", str(tmp_path / "out")])

    assert result.returncode == 0, result.stderr
    assert f"joined at b1, listens on 127.0.0.1:{port}," in result.stdout

    (tmp_path / "x.txt").write_text(text.replace(f":{port}/", ":99999/"))
    result = finished([*command, "--out", str(tmp_path / "no")])

    assert result.returncode == 2
    assert "broker b2: found URL 'tcp://localhost:99999/broker', expected one like" in result.stderr
    assert not os.path.exists(tmp_path / "no")
