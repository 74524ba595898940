"""`plait run`: what the exit code says about what was found."""

from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from plait.faulttol.guarantees import Report, Violation
from plait.scripts.main import cli
from plait.scripts.runs import RunPlan, run_simulated


def test_a_violation_is_printed_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    violation = Violation("loss", "x", "alice was owed nyse:1", ("alice-1.jsonl:1",))

    def run_badly(plan: RunPlan) -> Report:
        return attrs.evolve(run_simulated(plan), violations=(violation,))

    monkeypatch.setattr("plait.scripts.runs.run_simulated", run_badly)
    arguments = ["run", "demo.conf", "demo.script", "--simulate", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == 1
    assert "BROKEN  loss" in result.output
    assert "kept    fifo" in result.output
    assert f"\n  {violation}\n" in result.output
    assert result.output.endswith("plait: 1 violation of what was guaranteed, see above\n")


def test_what_is_odd_is_a_warning_and_runs(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text(
        "Site s Parent none\nProcess b Is broker On s\nOrdering NO\nOrdering FIFO\n"
    )
    arguments = ["run", f"{tmp_path / 'x.conf'}", "--simulate", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == 0
    assert "x.conf:4:10: repeated setting: ordering is set once more" in result.output


CONFIGURATION = """\
CentralPuppetMaster tcp://localhost:9000/puppet
StartNetwork
Site s Parent none
Process b Is broker On s URL tcp://localhost:1000/b
Process publisher0 Is publisher On s
Process alice Is subscriber On s
"""
SCRIPT = """\
script scripts/more.txt
Subscriber alice Subscribe /a
Subscriber alice Subscribe WHERE price = = 3
Publisher publsher0 Publish 5 Ontopic /a Interval 1
Publisher publisher0 Publish 5 Ontopic /a Interval 1
exit
Crash b
"""


def run_theirs(folder: Path, *options: str, script: str = SCRIPT) -> Result:
    (folder / "x.conf").write_text(CONFIGURATION)
    (folder / "x.script").write_text(script)
    arguments = [f"{folder}/x.conf", f"{folder}/x.script", "--simulate", "--out", f"{folder}/out"]
    return CliRunner().invoke(cli, ["run", *arguments, *options])


def test_files_of_strangers_run_as_far_as_they_are_understood(tmp_path: Path) -> None:
    result = run_theirs(tmp_path)
    warnings = [
        line.replace(f"{tmp_path}/", "") for line in result.stderr.splitlines() if "x." in line
    ]
    deliveries = (tmp_path / "out" / "events.log").read_text().count("SubEvent alice")

    assert result.exit_code == 0
    assert [warning.split(", expected")[0] for warning in warnings] == [
        "warning: x.conf:1:1: foreign line: CentralPuppetMaster means nothing here",
        "warning: x.conf:2:1: not understood: left out: found 'StartNetwork'",
        "warning: x.script:6:1: end mark: 'exit', and 1 lines after it are not read",
        "warning: x.script:1:1: not understood: left out: found 'script'",
        "warning: x.script:3:42: not understood: left out: found '='",
        "warning: x.script:4:11: unknown process: left out: found 'publsher0'",
    ]
    assert warnings[-1].endswith("(did you mean 'publisher0'?)")
    assert deliveries == 5


def test_files_of_strangers_are_refused_if_that_is_asked_for(tmp_path: Path) -> None:
    result = run_theirs(tmp_path, "--strict")

    assert result.exit_code == 2
    assert [line.split(": found")[0] for line in result.stderr.splitlines()] == [
        f"{tmp_path}/{place}"
        for place in ("x.conf:2:1", "x.script:1:1", "x.script:3:42", "x.script:4:11")
    ]
    assert not (tmp_path / "out").exists()


def test_a_run_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    result = run_theirs(tmp_path, script="script more\nCrash nobody\n")

    assert result.exit_code == 2
    assert result.stderr.endswith(
        "plait: nothing is left to do: every command was left out, see above\n"
    )
    assert not (tmp_path / "out").exists()
