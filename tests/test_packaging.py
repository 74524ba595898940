"""What a user gets from `pip install plait`: one package, with types, and none of our own tools."""

import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from plait.scripts.errors import EnvironmentFailedError
from tests.processes import finished

ROOT: Final = Path(__file__).parent.parent

USERS_PROGRAM: Final = """
import broker
from scripts import util

from plait import Delivery, connect


async def main() -> None:
    async with connect("127.0.0.1:4000", name=broker.NAME) as client:
        async for delivery in await client.subscribe("price > 1"):
            show(delivery)


def show(delivery: Delivery) -> None:
    print(delivery.seq + util.ONE)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("wheel")
    # Of a copy: setuptools leaves its work behind where it builds.
    listed = finished(["git", "ls-files"], cwd=ROOT)
    assert listed.returncode == 0, listed.stderr
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and not name.startswith("tests/"):
            copy = folder / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    for link in (ROOT / "src" / "plait").iterdir():
        if link.is_symlink():
            (folder / "source" / "src" / "plait" / link.name).symlink_to(link.readlink())
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    built = finished([*wheel, "--wheel-dir", folder, folder / "source"])
    assert built.returncode == 0, built.stderr
    [archive] = folder.glob("*.whl")
    zipfile.ZipFile(archive).extractall(folder / "installed")
    return folder / "installed"


def test_one_package_is_installed(installed: Path) -> None:
    packages = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}

    assert packages == {"plait"}
    assert (installed / "plait" / "py.typed").exists()
    assert (installed / "plait" / "topologies" / "demo.conf").exists()


def test_measurements_stay_with_the_source(installed: Path) -> None:
    command = [sys.executable, "-m", "plait", "bench", "match"]
    done = finished(command, cwd=installed, env={"PYTHONPATH": str(installed)})

    assert not (installed / "plait" / "scripts" / "bench").exists()
    assert done.returncode == EnvironmentFailedError.exit_code
    assert "measurements come with the source" in done.stderr


def test_a_program_with_modules_of_our_folders_names_is_typed_and_runs(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "broker.py").write_text('NAME = "mine"\n')
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "util.py").write_text("ONE = 1\n")
    (tmp_path / "program.py").write_text(USERS_PROGRAM)
    environment = {"PYTHONPATH": str(installed), "MYPYPATH": str(installed), "PATH": ""}

    checked = finished(
        [sys.executable, "-m", "mypy", "--strict", "program.py"], cwd=tmp_path, env=environment
    )
    assert checked.returncode == 0, checked.stdout
    ran = finished([sys.executable, "program.py"], cwd=tmp_path, env=environment)
    assert ran.returncode == 0, ran.stderr
