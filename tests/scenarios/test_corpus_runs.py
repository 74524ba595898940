"""Every pair of files that people really wrote is run, ends by itself, and keeps its promises."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from plait.scripts.main import cli
from tests.corpus import ANYA, CORPUS, PAIRS, PEDRO, needs_corpus

pytestmark = needs_corpus

# Freezes a broker under load, and has everything in one file: seconds each.
QUICK: Final = {
    (f"{PEDRO}/config@0ed02c12.txt", f"{PEDRO}/script@0ed02c12.txt"),
    (f"{ANYA}/sesdadrc.txt", f"{ANYA}/sesdadrc.txt"),
}


def run(pair: tuple[str, str], out: Path, *options: str) -> dict[str, Any]:
    paths = [str(CORPUS / name) for name in pair]
    result = CliRunner().invoke(cli, ["run", *paths, "--out", str(out), "--json", *options])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def name_of(pair: tuple[str, str]) -> str:
    return "+".join(Path(name).name for name in pair)


@pytest.mark.parametrize("pair", PAIRS, ids=name_of)
def test_a_real_pair_runs_in_virtual_time(pair: tuple[str, str], tmp_path: Path) -> None:
    report = run(pair, tmp_path / "out", "--simulate")

    assert report["violations"] == []
    assert report["figures"]["published"] > 0 or pair[1].endswith("/script.txt")


@pytest.mark.processes
@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, id=name_of(pair), marks=[] if pair in QUICK else [pytest.mark.slow])
        for pair in PAIRS
    ],
)
def test_a_real_pair_runs_on_processes(pair: tuple[str, str], tmp_path: Path) -> None:
    simulated = run(pair, tmp_path / "simulated", "--simulate")
    report = run(pair, tmp_path / "out")

    assert report["violations"] == []
    # What is published does not depend on the network, unless a publisher loses it for good.
    assert report["figures"]["published"] == simulated["figures"]["published"]
