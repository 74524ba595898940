"""Every scenario that comes with plait, and what each is to show."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from plait.faulttol.history import read_run
from plait.scripts.main import cli
from plait.topologies.files import samples

# How many deliveries there are, where that can be counted by hand.
PAIRS: Final[dict[tuple[str, ...], int | None]] = {
    ("demo.conf", "demo.script"): None,
    ("stock-ticker.conf", "stock-ticker.script"): None,
    ("online-game.conf", "online-game.script"): None,
    ("workflow.conf", "workflow.script"): None,
    ("crashes.conf", "crashes.script"): None,
    ("topics.conf", "topics.script"): None,
    ("patterns.conf", "patterns.script"): 2 * 3 * 40,
    # Topic A goes to two subscribers, topic C to one, and nobody publishes on B.
    ("figure-2.conf", "figure-11.script"): 5 * 2 + 10 * 1,
    ("figure-3.conf", "figure-11.script"): 5 * 2 + 10 * 1,
    # Of each three subscribers, A has two, B has three and C has one.
    ("figure-5.conf", "figure-12.script"): 2 * 2 * 5 * (2 + 3 + 1),
    ("figure-6.conf", "figure-12.script"): 2 * 2 * 5 * (2 + 3 + 1),
    ("figure-7.conf", "figure-13.script"): 3 * 3 * 5 * (2 + 3 + 1),
    ("figure-8.conf", "figure-13.script"): 3 * 3 * 5 * (2 + 3 + 1),
    ("figure-4.conf", "figure-14.script"): None,
    ("figure-9.conf",): 0,
}
ON_PROCESSES: Final = (
    "workflow.conf",
    "figure-8.conf",
    "figure-4.conf",
    "crashes.conf",
    "topics.conf",
    "patterns.conf",
)


def deliveries_by_subscriber(pair: tuple[str, ...], out: Path, *options: str) -> Counter[str]:
    """Run a pair; every guarantee has to hold."""
    result = CliRunner().invoke(cli, ["run", *pair, "--out", str(out), "--json", *options])
    report = json.loads(result.stdout)
    assert report["violations"] == []
    return Counter(
        record["subscriber"] for record in read_run(out).records if record["kind"] == "delivered"
    )


def name_of(pair: tuple[str, ...]) -> str:
    return "+".join(pair)


def test_every_sample_belongs_to_a_pair_and_explains_itself() -> None:
    texts = samples()

    assert texts.keys() == {name for pair in PAIRS for name in pair}
    assert [name for name, text in texts.items() if not re.match(r"// .{20,}\n", text)] == []


def test_the_page_about_the_samples_has_all_pairs() -> None:
    page = Path(__file__).parents[2] / "topologies" / "README.md"
    rows = re.findall(r"\| `([^`]+)` \| (?:`([^`]+)`)? ?\|", page.read_text(encoding="utf-8"))

    assert {tuple(filter(None, row)) for row in rows} == PAIRS.keys()


@pytest.mark.parametrize("pair", PAIRS, ids=name_of)
@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_scenario_keeps_every_guarantee(pair: tuple[str, ...], seed: str, tmp_path: Path) -> None:
    deliveries = deliveries_by_subscriber(pair, tmp_path / "out", "--simulate", "--seed", seed)

    assert PAIRS[pair] in (None, deliveries.total())


@pytest.mark.parametrize("name", ["stock-ticker", "online-game", "workflow", "demo"])
def test_nobody_is_there_for_nothing(name: str, tmp_path: Path) -> None:
    pair = (f"{name}.conf", f"{name}.script")
    deliveries = deliveries_by_subscriber(pair, tmp_path / "out", "--simulate")
    subscribers = re.findall(r"Process (\S+) +Is subscriber", samples()[pair[0]])

    assert deliveries.keys() == set(subscribers)


@pytest.mark.processes
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[0] in ON_PROCESSES], ids=name_of)
def test_a_scenario_keeps_every_guarantee_on_processes(
    pair: tuple[str, ...], tmp_path: Path
) -> None:
    deliveries = deliveries_by_subscriber(pair, tmp_path / "out")

    assert PAIRS[pair] in (None, deliveries.total())


@pytest.mark.parametrize("ordering", ["tno", "tno-tagged"])
def test_order_among_topics_can_be_checked_by_stamps_alone(ordering: str, tmp_path: Path) -> None:
    pair, out = ("topics.conf", "topics.script"), tmp_path / "out"
    deliveries = deliveries_by_subscriber(pair, out, "--simulate", "--ordering", ordering)

    verdict = CliRunner().invoke(cli, ["verify-order", str(out), "--json"])

    assert verdict.exit_code == 0
    (report,) = json.loads(verdict.stdout)
    assert report["stamped"] == deliveries.total() > 150
    assert report["unstamped"] == 0
    assert (report["tagged"] > 0) == (ordering == "tno-tagged")
