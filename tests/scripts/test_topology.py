"""`plait topology` and `plait format`: texts that plait itself reads."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.scripts.main import cli
from plait.topologies.reading import parse_configuration

SCENARIO = """\
// Comments go; what is said stays.
ordering   total
Process b1 is broker ON here URL tcp://localhost:3333/broker
Site here parent NONE
\tProcess alice Is subscriber On here
Process nyse Is publisher On here
-Crash b1
subscriber alice subscribe where price  >  3 // cheap
publisher nyse publish 3 ontopic /a interval 0
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plait(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    ("arguments", "brokers", "links_to_root"),
    [
        (["line", "--brokers", "4"], 4, 1),
        (["star", "--leaves", "5"], 6, 5),
        (["balanced-tree", "--fanout", "3", "--height", "2"], 13, 3),
        (["chain-of-cores", "--cores", "4", "--edges", "5"], 24, 7),
        (["random-tree", "--brokers", "9", "--seed", "3"], 9, None),
    ],
)
def test_a_builder_prints_a_configuration(
    arguments: list[str], brokers: int, links_to_root: int | None
) -> None:
    result = plait("topology", *arguments, "--publishers", "3", "--subscribers", "2")
    overlay = parse_configuration(result.stdout, "x").overlay

    assert result.exit_code == 0
    assert len(overlay.brokers) == brokers
    assert links_to_root in (None, len(overlay.children_of(overlay.root)))
    assert set(overlay.publishers) == {"p0", "p1", "p2"}
    homes = map(overlay.broker_of, overlay.publishers)
    assert all(len(overlay.neighbours_of(home)) == 1 for home in homes)


def test_a_random_tree_is_the_same_for_the_same_seed() -> None:
    one, same, other = (
        plait("topology", "random-tree", "--brokers", "20", "--seed", seed).stdout
        for seed in ("1", "1", "2")
    )

    assert one == same
    assert one != other


def test_a_spanning_tree_has_the_links_of_least_delay() -> None:
    Path("network.txt").write_text("a b 3 // slow\n\na c 1\nb c 1.5\nc d 7\n")
    result = plait("topology", "spanning-tree", "network.txt")
    overlay = parse_configuration(result.stdout, "x").overlay

    assert overlay.root == "c"
    assert set(overlay.children_of("c")) == {"a", "b", "d"}


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("a b\nb c x\na a 1\n", ["n.txt:1:4: found end of line", "n.txt:2:5: found 'x'", ":3:1:"]),
        ("a b 1\nc d 1\n", ["c: found no way to 'a'"]),
        ("", ["no broker"]),
    ],
)
def test_what_is_wrong_with_a_network_is_said(network: str, words: list[str]) -> None:
    Path("n.txt").write_text(network)
    result = plait("topology", "spanning-tree", "n.txt")

    assert result.exit_code == 2
    for word in words:
        assert word in result.output


def test_the_root_goes_where_the_traffic_is() -> None:
    clients = plait("topology", "line", "--brokers", "5", "--publishers", "2").stdout
    Path("x.conf").write_text(clients + "Process s9 Is subscriber On b0\n")
    Path("x.script").write_text(
        "Subscriber s9 Subscribe /a\nPublisher p1 Publish 90 Ontopic /b Interval 0\n"
        'Publisher p1 Publish 9 CONTENT {"topic": "/a"} Interval 0\n'
    )
    by_script = parse_configuration(plait("topology", "reroot", "x.conf", "x.script").stdout, "x")
    named = parse_configuration(plait("topology", "reroot", "x.conf", "--root", "b2").stdout, "x")

    assert by_script.overlay.root == "b4"
    assert named.overlay.root == "b2"
    assert plait("topology", "reroot", "x.conf", "--root", "b9").exit_code == 2


def test_a_drawing_is_text_or_a_file() -> None:
    text = plait("topology", "draw", "demo.conf")
    picture = plait("topology", "draw", "demo.conf", "--svg", "x.svg")

    assert text.stdout.startswith("newyork  (publishes nyse; subscribes dave)\n├── london")
    assert (picture.exit_code, picture.output) == (0, "")
    assert Path("x.svg").read_text().startswith("<svg ")


def test_the_canonical_form_says_the_same_and_is_its_own() -> None:
    Path("x.txt").write_text(SCENARIO)
    once = plait("format", "x.txt")
    Path("y.txt").write_text(once.stdout)
    twice = plait("format", "y.txt")

    assert once.stdout == (
        "RoutingPolicy flooding\nOrdering PAIRWISE\nLoggingLevel light\nDelta 1\nDetection fast\n\n"
        "Site here Parent none\n\n"
        "Process b1 Is broker On here URL tcp://localhost:3333/broker\n"
        "Process nyse Is publisher On here\nProcess alice Is subscriber On here\n\n"
        "Subscriber alice Subscribe WHERE price  >  3\n"
        "Publisher nyse Publish 3 Ontopic /a Interval 0\n"
    )
    assert once.stderr == "warning: x.txt:7:1: disabled line: not executed: '-Crash b1'\n"
    assert (twice.stdout, twice.stderr) == (once.stdout, "")


def test_a_script_alone_has_a_canonical_form_too() -> None:
    Path("x.script").write_text("wait   5\nstatus")

    assert plait("format", "x.script").stdout == "Wait 5\nStatus\n"


def test_what_cannot_be_read_is_not_formatted() -> None:
    Path("x.script").write_text("wait long\n")
    result = plait("format", "x.script")

    assert result.exit_code == 2
    assert result.stderr.startswith("x.script:1:6: found 'long'")
