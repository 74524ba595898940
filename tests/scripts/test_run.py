"""`plait run`: what the exit code says about what was found."""

from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from faulttol.guarantees import Report, Violation
from scripts.main import cli
from scripts.runs import RunPlan, run_simulated


def test_a_violation_is_printed_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    violation = Violation("loss", "x", "alice was owed nyse:1", ("alice-1.jsonl:1",))

    def run_badly(plan: RunPlan) -> Report:
        return attrs.evolve(run_simulated(plan), violations=(violation,))

    monkeypatch.setattr("scripts.runs.run_simulated", run_badly)
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
