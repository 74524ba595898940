"""`plait conflicts` foresees every wait that a run of the same script has, and why."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.broker.sim.world import World
from plait.routing.conflicts import DETECTIONS
from plait.scripts.forecast import Forecast, announcements_of, wishes_of
from plait.scripts.main import cli
from plait.scripts.puppet_master import PuppetMaster
from plait.scripts.scenario import load_scenario
from plait.scripts.simulated_stage import SimulatedStage, perform_at_once

CONFIGURATION = """\
Ordering PAIRWISE
RoutingPolicy filter
Site one Parent none
Site two Parent one
Site three Parent two
Process b1 Is broker On one
Process b2 Is broker On two
Process b3 Is broker On three
Process q Is publisher On one
Process p Is publisher On three
Process s Is subscriber On one
Process t Is subscriber On three
"""
SCRIPT = """\
Publisher p Advertise WHERE x = 1
Publisher q Advertise WHERE x > 1
Subscriber s Subscribe WHERE x < 3
Subscriber t Subscribe WHERE x IN (1, 3)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def conflicts(configuration: str, script: str, *options: str) -> Result:
    Path("x.conf").write_text(configuration)
    Path("x.script").write_text(script)
    return CliRunner().invoke(cli, ["conflicts", "x.conf", "x.script", *options])


def test_a_line_says_who_waits_for_whom_and_why() -> None:
    result = conflicts(CONFIGURATION, SCRIPT)

    assert result.exit_code == 0
    header, *lines = (line.split("  ") for line in result.output.splitlines())
    assert [[cell.strip() for cell in line if cell] for line in lines] == [
        ["b2", "b1", "p: x = 1", "q: x > 1", "s", "t", "in vain"],
        ["b3", "b2", "p: x = 1", "q: x > 1", "s", "t", "in vain"],
    ]
    assert header[0] == "broker"


def test_exact_detection_spares_what_is_in_vain() -> None:
    assert conflicts(CONFIGURATION, SCRIPT, "--detection", "exact").output == (
        "Nothing waits anywhere.\n"
    )
    assert conflicts(f"{CONFIGURATION}Detection exact\n", SCRIPT).output == (
        "Nothing waits anywhere.\n"
    )


def test_a_topic_that_is_published_on_is_advertised() -> None:
    script = """\
Publisher q Advertise WHERE topic LIKE '/a%'
Publisher p Publish 3 Ontopic /a/b Interval 1
Subscriber s Subscribe /a/*
Subscriber t Subscribe /a/b
"""
    result = conflicts(CONFIGURATION, script, "--json")

    first, _ = json.loads(result.output)
    assert first == {
        "broker": "b2",
        "waits_for": "b1",
        "publications": {"publisher": "p", "filter": "topic = '/a/b'"},
        "meeting": {"publisher": "q", "filter": "topic LIKE '/a%'"},
        "above": ["s"],
        "below": ["t"],
        "in_vain": False,
    }


def test_where_the_ordering_holds_nothing_it_says_so() -> None:
    result = conflicts(CONFIGURATION.replace("PAIRWISE", "FIFO"), SCRIPT, "--json")

    assert "warning: with ordering fifo nothing is held for this" in result.stderr
    assert len(json.loads(result.stdout)) == 2


def test_what_is_wrong_is_bad_input() -> None:
    result = conflicts(CONFIGURATION, "Subscriber t Subscribe WHERE x <\n")

    assert result.exit_code == 2
    assert "x.script:1:33: " in result.output


# --- and then it happens ------------------------------------------------------------------------


def random_scenario(seed: int) -> tuple[str, str]:
    """Six brokers, four publishers and five subscribers, anywhere, on three values of x."""
    chance = random.Random(seed)
    names = ["b0", "b1", "b2", "b3", "b4", "b5"]
    configuration = ["Ordering PAIRWISE", "RoutingPolicy filter", "Site b0 Parent none"]
    configuration += [
        f"Site {name} Parent {chance.choice(names[:number])}"
        for number, name in enumerate(names)
        if number
    ]
    configuration += [f"Process {name} Is broker On {name}" for name in names]
    script, streams = [], []
    for number in range(4):
        configuration.append(f"Process p{number} Is publisher On {chance.choice(names)}")
        x = chance.randrange(4)
        script.append(f"Publisher p{number} Advertise WHERE x = {x}")
        streams.append(f'Publisher p{number} Publish 8 CONTENT {{"x": {x}}} Interval 9')
    for number in range(5):
        configuration.append(f"Process s{number} Is subscriber On {chance.choice(names)}")
        for _ in range(chance.randint(1, 2)):
            wish = f"x IN ({chance.randrange(4)}, {chance.randrange(4)})"
            script.append(f"Subscriber s{number} Subscribe WHERE {wish}")
    return "\n".join(configuration), "\n".join([*script, "Await stable", *streams])


@pytest.mark.parametrize("detection", DETECTIONS)
def test_what_waits_is_what_was_foreseen(detection: str) -> None:
    happened = 0
    for seed in range(25):
        configuration, script = random_scenario(seed)
        Path("x.conf").write_text(f"{configuration}\nDetection {detection}\n")
        Path("x.script").write_text(script)
        scenario = load_scenario("x.conf", "x.script")
        commands = scenario.script.commands
        forecast = Forecast(
            scenario.configuration.overlay,
            announcements_of(commands),
            wishes_of(commands),
            detection,
        )
        expected = {(wait.broker, wait.waiting.publisher) for wait in forecast.waits()}

        world = World(seed, is_traced=True)
        stage = SimulatedStage(
            world, scenario.configuration, ordering="pairwise", delta=1, tell=lambda _: None
        )
        overlay = scenario.configuration.overlay
        master = PuppetMaster(stage, overlay, seed=0, tell=lambda _: None)
        perform_at_once(master.perform(commands))
        waited = set()
        for line in world.trace:
            broker, _, told = line.split(maxsplit=1)[1].partition(": ")
            if told.startswith("holds ") and " until " in told:
                waited.add((broker, told.split()[1].partition(":")[0]))

        assert waited == expected, f"seed {seed}"
        happened += len(waited)

    assert happened > 20
