"""`plait simulate`: quiet when all is well, and a command to repeat what is not."""

import json
import subprocess
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
from click.testing import CliRunner, Result

import plait.scripts.sweep
from plait.broker.sim.crowds import Crowd
from plait.broker.sim.faults import Troubles
from plait.broker.sim.runs import SimulatedRun, simulate
from plait.broker.sim.workloads import Workload
from plait.faulttol.guarantees import Violation
from plait.routing.orderings import SUMMIT
from plait.scripts.main import cli
from plait.scripts.workload_options import TROUBLE_OPTIONS, WORKLOAD_OPTIONS
from tests.patience import PATIENCE_S, attempts
from tests.processes import PLAIT, started

VIOLATION = Violation("fifo", "simulated-2", "alice was given p:2 before p:1", ("alice:3",))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments])


@pytest.fixture
def _seed_2_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate_badly(seed: int, **options: Any) -> SimulatedRun:
        found = simulate(seed, **options)
        if seed == 2:
            report = attrs.evolve(found.report, violations=(VIOLATION,))
            return attrs.evolve(found, report=report, leftovers=("b1 has not joined",))
        if seed == 4:
            raise AssertionError("b3 settled twice")
        return found

    monkeypatch.setattr(plait.scripts.sweep, "simulate", simulate_badly)


def test_clean_runs_are_a_summary_and_nothing_else() -> None:
    result = run("--seeds", "0:3")

    assert result.exit_code == 0
    assert result.output.startswith(
        "3 runs with ordering pairwise and δ = 1: every guarantee held. "
    )
    assert len(result.output.splitlines()) == 1


@pytest.mark.usefixtures("_seed_2_fails")
def test_a_failure_is_a_line_with_the_command_that_repeats_it() -> None:
    result = run("--seeds", "0:5", "--delta", "2")

    assert result.exit_code == 1
    assert result.output.splitlines()[:2] == [
        f"seed 2: {VIOLATION} (and 1 more); "
        "repeat with: plait simulate --seed 2 --ordering pairwise --delta 2 --trace",
        "seed 4: AssertionError: b3 settled twice; "
        "repeat with: plait simulate --seed 4 --ordering pairwise --delta 2 --trace",
    ]
    assert result.output.endswith("plait: 2 of 5 runs failed\n")


EVERYTHING = (
    "--crashes 1 --recoveries 2 --freezes 1 --moves 1 --standbys 1 --client-crashes 2 --brokers 9 "
    "--shape chain --drift 2.5 --jumps 1 --pauses 1 --step-cost 0.25 --cuts 1 --twins 1 --pairs 1 "
    "--bad-disks --beyond"
)


@pytest.mark.usefixtures("_seed_2_fails")
def test_the_command_that_repeats_a_failure_has_every_option_that_was_given() -> None:
    result = run("--seed", "2", *EVERYTHING.split())

    assert result.exit_code == 1
    assert f"plait simulate --seed 2 --ordering pairwise --delta 1 {EVERYTHING}" in result.output


def test_every_option_has_a_place_in_the_command_that_repeats_a_run() -> None:
    fields = {field.name for field in (*attrs.fields(Workload), *attrs.fields(Troubles))}
    fixed = {"publishers", "subscribers", "publications", "breaks", "absences", "duration_s"}

    named = {option.field for option in (*WORKLOAD_OPTIONS, *TROUBLE_OPTIONS)}
    assert fields - fixed - {"troubles", "is_limited"} == named


@pytest.mark.parametrize("ordering", ["sequencer-filtered", "published"])
def test_crashes_are_survived_under_every_ordering(ordering: str) -> None:
    result = run("--seeds", "5:8", "--ordering", ordering, "--crashes", "1")

    assert result.exit_code == 0
    assert f"3 runs with ordering {ordering} and δ = 1: every guarantee held" in result.output


def test_crowds_are_drawn_and_repeated_as_such() -> None:
    result = run("--seeds", "0:2", "--crowd", "--moves", "3", "--mixed", "--pauses", "1")
    plan = plait.scripts.sweep.SweepPlan(
        ordering="pairwise",
        delta=None,
        detection="fast",
        managers=SUMMIT,
        workload=Workload(moves=3),
        crowd=Crowd(has_moves=True, is_mixed=True),
        out=None,
    )

    assert "2 runs with ordering pairwise and δ drawn: " in result.output
    command = "plait simulate --seed 7 --ordering pairwise --crowd --mixed --moves 3 --trace"
    assert plan.repeat_command(7) == command


@pytest.mark.usefixtures("_seed_2_fails")
def test_json_has_the_same() -> None:
    result = run("--seeds", "1:4", "--json")
    outcome = json.loads(result.stdout)

    assert result.exit_code == 1
    assert outcome["seeds"] == [1, 4]
    assert [failure["seed"] for failure in outcome["failed"]] == [2]
    assert outcome["failed"][0]["repeat"].startswith("plait simulate --seed 2 ")


def test_a_trace_shows_every_event_and_ends_with_the_verdict() -> None:
    plain, traced = run("--seed", "3"), run("--seed", "3", "--trace")

    assert (plain.exit_code, traced.exit_code) == (0, 0)
    assert traced.output.endswith(plain.output)
    assert " -> " in traced.output.splitlines()[20]


def test_run_directories_can_be_kept(tmp_path: Path) -> None:
    result = run("--seeds", "5:7", "--ordering", "none", "--out", str(tmp_path))

    assert result.exit_code == 0
    for seed in (5, 6):
        manifest = json.loads((tmp_path / f"none-{seed}" / "manifest.json").read_text())
        assert (manifest["seed"], manifest["ordering"]) == (seed, "none")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "either --seeds A:B or --seed N"),
        (["--seeds", "0:3", "--seed", "1"], "either --seeds A:B or --seed N"),
        (["--seeds", "0:3", "--trace"], "--trace shows one run"),
        (["--seeds", "3"], "A:B with A < B expected"),
        (["--seed", "3", "--ordering", "alphabetical"], "'alphabetical' is not one of"),
        (["--seed", "3", "--mixed"], "about the subscriptions of a --crowd"),
        (["--seed", "3", "--crowd", "--cuts", "1"], "A --crowd draws its own brokers"),
    ],
)
def test_bad_usage(arguments: list[str], words: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.processes
def test_who_is_killed_leaves_no_workers_behind() -> None:
    command = [*PLAIT, "simulate", "--seeds", "0:1000000"]
    with started([*command, "--jobs", 2], stdout=subprocess.DEVNULL) as sweep:
        workers: list[psutil.Process] = []
        for _ in attempts("two workers"):
            children = psutil.Process(sweep.pid).children()
            workers = [w for w in children if "spawn_main" in " ".join(w.cmdline())]
            if len(workers) == 2:
                break

    _, alive = psutil.wait_procs(workers, timeout=PATIENCE_S)
    assert alive == []


@pytest.mark.parametrize("which", [["--seed", "3"], ["--seeds", "3:4"]])
def test_the_folder_of_its_runs_is_made_but_none_on_the_way(
    which: list[str], tmp_path: Path
) -> None:
    fine = run(*which, "--out", str(tmp_path / "new"))
    mistyped = run(*which, "--out", str(tmp_path / "no" / "such"))

    assert fine.exit_code == 0
    assert (tmp_path / "new" / "pairwise-3" / "manifest.json").is_file()
    assert mistyped.exit_code in (2, 3)
    assert f"{tmp_path / 'no'}: there is no such folder" in mistyped.output
    assert not (tmp_path / "no").exists()


def test_several_processes_find_what_one_finds() -> None:
    plan = plait.scripts.sweep.SweepPlan(
        ordering="fifo", delta=1, detection="fast", managers=SUMMIT, workload=Workload(), out=None
    )
    seeds = range(2 * plait.scripts.sweep.CHUNK_SEEDS)

    one, two = ([*plait.scripts.sweep.sweep(seeds, plan, jobs=jobs)] for jobs in (1, 2))

    assert one == two
