"""Every program in examples/ runs against real brokers, and those in it who have to agree do."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes import PLAIT, finished, started

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PROGRAMS: Final = sorted(EXAMPLES.glob("*.py"))

pytestmark = pytest.mark.processes


def free_addresses(count: int) -> list[str]:
    with contextlib.ExitStack() as sockets:
        opened = [
            sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in opened]


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[str]]:
    """Two brokers, one below the other."""
    first, second = free_addresses(2)
    commands = [
        [*PLAIT, "broker", "--name", "b1", "--listen", first],
        [*PLAIT, "broker", "--name", "b2", "--listen", second, "--join", first],
    ]
    with contextlib.ExitStack() as processes:
        for command in commands:
            broker = processes.enter_context(
                started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            )
            assert broker.stdout is not None
            assert "is ready" in broker.stdout.readline()
        yield [first, second]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_those_who_have_to_agree_do(program: Path, brokers: list[str]) -> None:
    done = finished([sys.executable, program, *brokers])

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_program_is_explained() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    assert all(f"[{path.name}]({path.name})" in page for path in PROGRAMS)


@pytest.mark.spark
def test_the_workflow_audits_what_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLES / "audit-in-ci", folder)
    workflow = (folder / "workflow.yml").read_text(encoding="utf-8")
    commands = re.findall(r"^ +- run: plait (.*)$", workflow, re.M)

    assert len(commands) == 3
    for command in commands:
        done = finished([*PLAIT, *command.replace("0:200", "0:5").split()], cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "kept" in (folder / "audit.html").read_text(encoding="utf-8")
