"""`plait status` on what real hosts say, without processes: who plays what, what it holds, why."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import plait.scripts.commands.status
from plait.broker.sim.hosts import StepCores
from plait.broker.sim.world import LIVELY_LIMITS, World
from plait.routing.ids import NodeId
from plait.scripts.main import cli
from plait.scripts.run_directory import write_processes
from plait.scripts.status_reports import NOBODY_LISTENS, Unreachable
from tests.host.worlds import LINK_DELAY_S, TIMEOUT_S, Lively

Reports = list[Any]
SURVIVED = "one more failure would be survived now"


def overlay_with(**limits: Any) -> Lively:
    cores = StepCores()
    changed = attrs.evolve(LIVELY_LIMITS, **limits)
    delay_s = (LINK_DELAY_S, LINK_DELAY_S)
    overlay = Lively(world=World(0, limits=changed, delay_s=delay_s, jitter=0.0, cores=cores))
    overlay.cores = cores
    return overlay


def reports_of(overlay: Lively, *hosts: str) -> Reports:
    return [overlay.host(name).status() for name in hosts]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `plait status` prints of these reports, line by line."""

    def show(reports: Reports, *arguments: str) -> list[str]:
        monkeypatch.setattr(plait.scripts.commands.status, "run_async", lambda *_: reports)
        arguments = arguments or ("--broker", ":4000")
        return CliRunner().invoke(cli, ["status", *arguments]).output.splitlines()

    return show


def test_every_broker_has_a_row_with_its_host_and_its_term(shown: Any) -> None:
    overlay = overlay_with()
    overlay.brokers("b1", b2="b1", b3="b2")
    overlay.relocates("b2", host="b3")
    overlay.passes(1.0)

    summary, heading, *rows, what_if = shown(reports_of(overlay, "b1", "b2", "b3"))
    assert summary == "3 brokers, all operational; 1 standby; 0 publications held"
    assert heading.split()[:6] == ["broker", "host", "term", "role", "state", "address"]
    assert [row.split()[:5] for row in rows] == [
        ["b1", "b1", "1", "active", "operational"],
        ["-", "b2", "-", "standby", "standby"],
        ["b2", "b3", "2", "active", "operational"],
        ["b3", "b3", "1", "active", "operational"],
    ]
    assert what_if == SURVIVED


def test_what_is_held_is_explained_below_the_table(shown: Any) -> None:
    overlay = overlay_with(status_held_max=2)
    overlay.brokers("b1", b2="b1")
    p, q = overlay.client("p", "b2"), overlay.client("q", "b1")
    for publisher in (p, q):
        publisher.advertises("TRUE")
    for name, at in (("s", "b1"), ("t", "b2")):
        overlay.client(name, at).subscribes("TRUE")
    overlay.passes(0.5)
    for x in range(3):
        p.publishes(x=x)
    overlay.passes(1.5 * LINK_DELAY_S)

    summary, *table, what_if, first, second, more = shown(reports_of(overlay, "b1", "b2"))
    assert summary == "2 brokers, all operational; 3 publications held"
    assert [line.split()[-1] for line in table] == ["held", "0", "3"]
    assert what_if == SURVIVED
    assert [first, second, more] == [
        "b2 holds p:1 until b1 has settled it, 0.0 ms so far",
        "b2 holds p:2 until b1 has settled it and behind p:1 (same publisher), 0.0 ms so far",
        "b2 holds 1 more",
    ]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_it_fits_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, shown: Any, term: str
) -> None:
    overlay = overlay_with()
    overlay.brokers("b1", b2="b1", b10="b1")
    b10, b2, b1 = reports_of(overlay, "b10", "b2", "b1")
    for report in (b10, b2):
        report |= {"address": "192.168.100.200:54321", "skipped_count": 10**6}
        report["brokers"][0]["unstable"] = 1_000_000
    b10["state"] = "recovering"
    silent = Unreachable("b3", "192.168.100.201:54321", NOBODY_LISTENS)
    monkeypatch.setattr("plait.scripts.tables.is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", term)

    summary, *lines = shown([b10, b2, b1, silent])
    first, second = lines[: lines.index("")], lines[lines.index("") + 1 :][:5]
    assert summary == ("3 brokers, 2 operational, 1 recovering; 1 unreachable; 0 publications held")
    assert max(map(len, [*first, *second])) <= 80
    assert [line.split()[:2] for line in first[1:]] == [
        *(["b1", "b1"], ["b2", "b2"], ["-", "b3"], ["b10", "b10"])
    ]
    assert [line.split()[1] for line in second] == ["host", "b1", "b2", "b3", "b10"]
    assert {*first[0].split(), *second[0].split()} == {
        *("broker", "host", "term", "role", "state", "address", "parent", "children", "clients"),
        *("subs", "unstable", "skipped"),
    }


def test_what_was_given_up_is_explained_as_well(shown: Any) -> None:
    overlay = overlay_with(status_skipped_max=2)
    overlay.brokers("b1")
    ticker = overlay.client("ticker", "b1")
    ticker.advertises("TRUE")
    for number in range(3):
        overlay.client(f"s{number}", "b1").subscribes(f"x <= {number}")
    overlay.passes(0.5)
    for number in (2, 1, 0):
        overlay.crashes(f"s{number}")
        for x in range(number + 1):
            ticker.publishes(x=x)
        overlay.passes(15)

    _, _, row, _, *others = shown(reports_of(overlay, "b1"))
    assert row.split()[-1] == "6"
    assert [line.partition(": absent")[0] for line in others] == [
        "b1 skipped 3 publications before",
        "b1 skipped 2 publications, ticker:5 the last, for s1",
        "b1 skipped ticker:6 for s0",
    ]


def test_of_a_run_every_process_has_a_site_and_a_role(shown: Any, tmp_path: Path) -> None:
    overlay = overlay_with()
    overlay.brokers("b1")
    overlay.standby("b2", "b1")
    reports = [
        *reports_of(overlay, "b1", "b2"),
        Unreachable("", "there:3", NOBODY_LISTENS),
        Unreachable("", "there:4", "no answer within 5 s"),
    ]
    sites = {"b1": "here", "b2": "here", "b3": "there", "b4": "there"}
    addresses = {name: f"there:{name[1]}" for name in sites}
    about = {name: {"address": addresses[name], "pid": 1, "site": sites[name]} for name in sites}
    write_processes(tmp_path, about)

    lines = shown(reports, "--run", str(tmp_path))
    assert lines[0] == "1 broker, operational; 2 unreachable; 1 standby; 0 publications held"
    assert [line.split()[:5] for line in lines[2:6]] == [
        ["here", "b1", "b1", "1", "active"],
        ["here", "-", "b2", "-", "standby"],
        ["there", "-", "b3", "-", "dead"],
        ["there", "-", "b4", "-", "suspected"],
    ]

    printed = CliRunner().invoke(cli, ["status", "--run", str(tmp_path), "--json"]).stdout
    found = json.loads(printed)
    assert [(one["node"], one["role"], one["site"]) for one in found][2] == ("b3", "dead", "there")


# --- whether one more failure would be survived -------------------------------------------------


def what_if(shown: Any, reports: Reports) -> str:
    [line] = [line for line in shown(reports) if line.startswith("one more failure")]
    return str(line)


def test_nobody_survives_the_failure_of_the_only_process(shown: Any) -> None:
    overlay = overlay_with()
    overlay.brokers("b1")

    assert what_if(shown, reports_of(overlay, "b1")) == (
        "one more failure might not be survived now: there is no other process to go on"
    )


def test_nobody_survives_a_failure_with_a_delta_of_0(shown: Any) -> None:
    overlay = Lively(delta=0)
    overlay.brokers("b1", b2="b1")

    assert what_if(shown, reports_of(overlay, "b1", "b2")) == (
        "one more failure might not be survived now: δ is 0"
    )


def test_it_says_for_how_long_a_failure_is_not_over(shown: Any) -> None:
    overlay = overlay_with()
    overlay.brokers("b1", b2="b1", b3="b2")
    overlay.crashes("b3")
    overlay.passes(LINK_DELAY_S)
    assert what_if(shown, reports_of(overlay, "b1", "b2")).endswith(": nobody plays b3")

    while "b3" not in overlay.players("b3") and not overlay.players("b3"):
        overlay.passes(LINK_DELAY_S / 2)
    assert "not all around know yet what b2 has taken up" in what_if(
        shown, reports_of(overlay, "b1", "b2")
    )

    overlay.passes(TIMEOUT_S)
    assert what_if(shown, reports_of(overlay, "b1", "b2")) == SURVIVED


def test_it_says_what_is_to_be_played_elsewhere_and_is_not_yet(shown: Any) -> None:
    overlay = overlay_with()
    overlay.brokers("b1", b2="b1", b3="b2")
    overlay.crashes("b3")
    while not overlay.host("b2").is_vulnerable:
        overlay.passes(LINK_DELAY_S / 2)
    node = overlay.world.nodes[NodeId("b2")]
    node.core.relocate(overlay.world.time_of(node), NodeId("b2"), NodeId("b1"))

    lines = shown(reports_of(overlay, "b1", "b2"))
    assert "b2 is to be played by b1, not yet: a failure is not over yet" in lines
