"""`plait status` on what real brokers say, without processes: held publications are explained."""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import scripts.commands.status
from broker.limits import Limits
from broker.sim.world import SIMULATED_LIMITS
from routing.ids import NodeId
from scripts.main import cli
from scripts.run_directory import write_processes
from scripts.status_reports import NOBODY_LISTENS, Unreachable
from tests.conversation import LINK_DELAY_S, Conversation


@pytest.fixture
def _held_at_b2(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = Conversation(limits=Limits(status_held_max=2))
    overlay.brokers("b1", b2="b1")
    p, q = overlay.client("p", at="b2"), overlay.client("q", at="b1")
    for publisher in (p, q):
        publisher.advertises("TRUE")
    for name, at in (("s", "b1"), ("t", "b2")):
        overlay.client(name, at=at).subscribes("TRUE")
    overlay.settle()
    for x in range(3):
        p.publishes(x=x)
    overlay.settle(1.5 * LINK_DELAY_S)
    reports = [overlay.broker(name).status() for name in ("b1", "b2")]
    monkeypatch.setattr(scripts.commands.status, "run_async", lambda *_: reports)


@pytest.mark.usefixtures("_held_at_b2")
def test_what_is_held_is_explained_below_the_table() -> None:
    result = CliRunner().invoke(cli, ["status", "--broker", ":4000"])

    summary, *table, _, _, _ = result.output.splitlines()
    explained = result.output.splitlines()[4:]
    assert summary == "2 brokers, all operational; 3 publications held"
    assert [line.split()[-1] for line in table] == ["held", "0", "3"]
    assert explained == [
        "b2 holds p:1 until b1 has settled it, 0.0 ms so far",
        "b2 holds p:2 until b1 has settled it and behind p:1 (same publisher), 0.0 ms so far",
        "b2 holds 1 more",
    ]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_it_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1", b10="b1")
    overlay.settle()
    changes = {"address": "192.168.100.200:54321", "unstable": 1_000_000, "skipped_count": 10**6}
    reports = [
        {**overlay.broker("b10").status(), **changes, "state": "recovering"},
        {**overlay.broker("b2").status(), **changes},
        {**overlay.broker("b1").status(), **changes},
        Unreachable("b3", "192.168.100.201:54321", NOBODY_LISTENS),
    ]
    monkeypatch.setattr(scripts.commands.status, "run_async", lambda *_: reports)
    monkeypatch.setattr("scripts.tables.is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", term)

    result = CliRunner().invoke(cli, ["status", "--broker", ":4000"])
    summary, *table = result.stdout.splitlines()
    first, second = table[: table.index("")], table[table.index("") + 1 :][:5]
    assert summary == "4 brokers, 2 operational, 1 recovering, 1 unreachable; 0 publications held"
    assert max(map(len, table)) <= 80
    assert [line.split()[0] for line in first] == ["broker", "b1", "b2", "b3", "b10"]
    assert [line.split()[0] for line in second] == ["broker", "b1", "b2", "b3", "b10"]
    assert {*first[0].split(), *second[0].split()} == {
        *("broker", "role", "state", "address", "parent", "children", "clients", "subs"),
        *("unstable", "skipped"),
    }


def test_what_was_given_up_is_explained_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = Conversation(limits=attrs.evolve(SIMULATED_LIMITS, status_skipped_max=2))
    overlay.brokers("b1")
    ticker = overlay.client("ticker", at="b1")
    ticker.advertises("TRUE")
    for number in range(3):
        overlay.client(f"s{number}", at="b1").subscribes(f"x <= {number}")
    overlay.settle()
    for number in (2, 1, 0):
        overlay.crashes(f"s{number}")
        for x in range(number + 1):
            ticker.publishes(x=x)
        overlay.settle(15)

    first, *others = status_of(overlay, "b1", monkeypatch)
    assert first.split()[-1] == "6"
    assert [line.partition(": absent")[0] for line in others] == [
        "b1 skipped 3 publications before",
        "b1 skipped 2 publications, ticker:5 the last, for s1",
        "b1 skipped ticker:6 for s0",
    ]


def test_so_is_what_never_left_a_branch_that_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = Conversation(delta=1)
    overlay.brokers("b1", b2="b1", b3="b2")
    ticker = overlay.client("ticker", at="b3")
    ticker.advertises("TRUE")
    overlay.client("reader", at="b1").subscribes("TRUE")
    overlay.settle()
    overlay.crashes("b1", "b2")
    ticker.publishes(x=1)
    overlay.settle()

    first, *others = status_of(overlay, "b3", monkeypatch)
    assert first.split()[1:3] == ["cut", "off"]
    assert others == ["b3 skipped ticker:1 for all beyond: b3: 2 brokers failed, δ is 1"]


def status_of(overlay: Conversation, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `plait status` prints of one broker, without the summary and the heading."""
    report = overlay.broker(name).status()
    monkeypatch.setattr(scripts.commands.status, "run_async", lambda *_: [report])
    return CliRunner().invoke(cli, ["status", "--broker", ":4000"]).output.splitlines()[2:]


def test_of_a_run_every_broker_has_a_site_and_a_role(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overlay = Conversation()
    overlay.brokers("b1")
    overlay.world.add_broker(NodeId("b2"), NodeId("b1"), standby=1)
    overlay.settle()
    reports = [
        *(overlay.broker(name).status() for name in ("b1", "b2")),
        Unreachable("", "there:3", NOBODY_LISTENS),
        Unreachable("", "there:4", "no answer within 5 s"),
    ]
    monkeypatch.setattr(scripts.commands.status, "run_async", lambda *_: reports)
    sites = {"b1": "here", "b2": "here", "b3": "there", "b4": "there"}
    addresses = {name: f"there:{name[1]}" for name in sites}
    about = {name: {"address": addresses[name], "pid": 1, "site": sites[name]} for name in sites}
    write_processes(tmp_path, about)
    arguments = ["status", "--run", str(tmp_path)]

    lines = CliRunner().invoke(cli, arguments).output.splitlines()
    assert lines[0] == "4 brokers, 2 unreachable, 1 operational, 1 standby; 0 publications held"
    assert [line.split()[:3] for line in lines[2:6]] == [
        ["here", "b1", "active"],
        ["here", "b2", "standby"],
        ["there", "b3", "dead"],
        ["there", "b4", "suspected"],
    ]

    found = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert [(one["node"], one["role"], one["site"]) for one in found][2] == ("b3", "dead", "there")
