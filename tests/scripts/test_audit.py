"""`plait audit`: what people and programs see of a verdict, and the exit codes."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.faulttol.audit import job, session
from plait.faulttol.audit.kernel import judge_in_full
from plait.faulttol.audit.verdict import RunVerdict
from plait.faulttol.history import Manifest, write_run
from plait.scripts.commands.audit import command
from plait.scripts.errors import BadInputError, EnvironmentFailedError, GuaranteeViolatedError
from tests.faulttol.broken_histories import Story

pytestmark = pytest.mark.spark


def write(directory: Path, *, is_broken: bool = False) -> None:
    story = Story()
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")
    manifest = Manifest(
        run="run",
        topology=None,
        ordering="pairwise",
        delta=1,
        seed=None,
        started=0.0,
        simulated=True,
    )
    write_run(directory, manifest, story.records)


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts are those of Spark; tests/audit has shown that. Here they only have to come."""

    def judge_here(_: object, runs: Iterable[Path], **__: object) -> list[RunVerdict]:
        return [judge_in_full(run) for run in runs]

    monkeypatch.setattr(job, "audit", judge_here)
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: contextlib.nullcontext())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [*map(str, arguments)])


def test_clean_runs_are_a_table(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")

    result = run(tmp_path)

    assert result.exit_code == 0
    first, *table = result.output.splitlines()
    assert first.startswith("2 runs: 2 publications, 2 deliveries to 2 subscribers")
    assert [line.split()[:4] for line in table[1:]] == [
        *(
            [guarantee, "2", "0", "0"]
            for guarantee in (
                *("record", "duplicate", "spurious", "altered"),
                *("loss", "fifo", "pairwise"),
            )
        ),
        ["detection", "0", "0", "0"],  # nobody looked for patterns
    ]


def test_a_violation_is_shown_with_its_run_and_records(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two", is_broken=True)

    result = run(tmp_path)

    assert isinstance(result.exception, GuaranteeViolatedError)
    assert str(result.exception) == "a guarantee was violated in 1 of 2 runs"
    assert result.output.splitlines()[-1].startswith(f"{tmp_path}/two: loss: s never delivered p#1")
    assert result.output.endswith("[history/p-1.jsonl:1, history/s-1.jsonl:1]\n")


def test_json_has_the_same(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two", is_broken=True)

    outcome = json.loads(run(tmp_path, "--json").output)

    assert (outcome["is_clean"], outcome["damage"]) == (False, [])
    assert [verdict["is_clean"] for verdict in outcome["runs"]] == [True, False]
    assert outcome["runs"][1]["violations"] == {"loss": 1}
    assert outcome["runs"][1]["witnesses"][0]["records"] == [
        "history/p-1.jsonl:1",
        "history/s-1.jsonl:1",
    ]


def test_what_cannot_be_read_is_named_and_the_rest_judged(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    write(tmp_path / "runs" / "one", is_broken=True)
    write(tmp_path / "runs" / "two")
    (tmp_path / "runs" / "two" / "manifest.json").unlink()
    (tmp_path / "empty").mkdir()

    result = run(tmp_path / "runs", tmp_path / "empty")

    assert isinstance(result.exception, BadInputError)
    assert str(result.exception).splitlines()[1:] == [
        f"{tmp_path}/empty: no run directory is in here",
        f"{tmp_path}/runs/two: manifest.json: the manifest is missing",
    ]
    assert "loss: s never delivered" in result.output


def test_a_run_given_twice_is_judged_once(tmp_path: Path) -> None:
    write(tmp_path / "one")

    assert run(tmp_path, tmp_path / "one").output.startswith("1 run: ")


def test_missing_java_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, str(tmp_path))
    write(tmp_path / "one")

    result = run(tmp_path, "--master", "local[1]")

    assert isinstance(result.exception, EnvironmentFailedError)
    assert str(result.exception) == f"Java is missing: there is no {tmp_path}/bin/java"
