"""How demo, test and check find a Python and make an environment, with everything made of paper."""

import subprocess
from pathlib import Path

import pytest

from tests.processes import finished

SCRIPTS = Path(__file__).parents[2] / "scripts"

# What `python -c PROGRAM` is asked, and what an interpreter of paper answers.
INTERPRETER = """\
#!/bin/sh
case "$*" in
*print*) echo {version} ;;
*sys.exit*) exit {is_too_old} ;;
*ensurepip*) exit {lacks_venv} ;;
*--version) echo "Python {version}" ;;
*"-m venv"*) for venv; do :; done; mkdir -p "$venv/bin"; cp "$0" "$venv/bin/python" ;;
*"-m pip"*) echo "$*" >>"$PIP_CALLS"; {pip} ;;
esac
"""


class Machine:
    """A machine with these interpreters, a project, and an empty home."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a project"
        self.root.mkdir()
        (self.root / "pyproject.toml").write_text("[project]\n")
        self.path = folder / "bin"
        self.path.mkdir()
        for tool in ("cksum", "cat", "grep", "head", "mkdir", "cp"):
            (self.path / tool).symlink_to(Path("/usr/bin") / tool)
        self.pip_calls = folder / "pip-calls"

    def add_python(
        self,
        name: str,
        version: str = "3.11",
        *,
        is_too_old: bool = False,
        lacks_venv: bool = False,
        pip: str = ":",
    ) -> None:
        text = INTERPRETER.format(
            version=version, is_too_old=int(is_too_old), lacks_venv=int(lacks_venv), pip=pip
        )
        self.add_program(name, text)

    def add_program(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def prepare(self, extra: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        program = f'root=$1; . "$2/environment.sh"; prepare_environment {extra}; echo "$python"'
        return finished(
            ["/bin/sh", "-euc", program, "scripts/test", str(self.root), str(SCRIPTS)],
            env={"PATH": str(self.path), "PIP_CALLS": str(self.pip_calls), **variables},
        )

    def installations(self) -> list[str]:
        return self.pip_calls.read_text().splitlines() if self.pip_calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_environment_is_made_once(machine: Machine) -> None:
    machine.add_python("python3.12", "3.12")
    first, second = machine.prepare(), machine.prepare()

    assert first.stdout == second.stdout == f"{machine.root}/.venv/bin/python\n"
    assert "with Python 3.12 ..." in first.stderr
    assert second.stderr == ""
    assert len(machine.installations()) == 1


def test_it_is_brought_up_to_date_when_the_project_asks_for_more(machine: Machine) -> None:
    machine.add_python("python3")
    machine.prepare()
    (machine.root / "pyproject.toml").write_text("[project]\ndependencies = ['more']\n")
    second = machine.prepare()

    assert "Making" not in second.stderr
    assert len(machine.installations()) == 2


def test_developers_need_more_and_have_what_users_need(machine: Machine) -> None:
    machine.add_python("python3")
    for extra in ("", "dev", "", "dev"):
        machine.prepare(extra)

    assert [call.rsplit(maxsplit=1)[-1] for call in machine.installations()] == [".", ".[dev]"]


def test_an_environment_that_was_copied_along_is_installed_anew(machine: Machine) -> None:
    machine.add_python("python3")
    machine.prepare()
    machine.root = machine.root.rename(machine.root.with_name("elsewhere"))
    machine.prepare()

    assert len(machine.installations()) == 2


def test_a_name_without_an_interpreter_behind_it_is_passed_over(machine: Machine) -> None:
    machine.add_program("python3.11", "#!/bin/sh\necho 'pyenv: not found' >&2\nexit 127\n")
    machine.add_python("python3.13", "3.13")

    assert "with Python 3.13 ..." in machine.prepare().stderr


def test_no_python_is_said_with_what_to_do(machine: Machine) -> None:
    machine.add_python("python3", "3.9", is_too_old=True)
    result = machine.prepare()

    assert result.returncode == 3
    assert result.stderr == (
        "plait needs Python 3.11 or newer; none was found on PATH (python3 is Python 3.9).\n"
        "Install one, or name it: PLAIT_PYTHON=/path/to/python3.12 scripts/test\n"
    )


def test_a_python_without_venv_is_said_with_what_to_install(machine: Machine) -> None:
    machine.add_python("python3.11", lacks_venv=True)
    result = machine.prepare()

    assert result.returncode == 3
    assert "apt install python3.11-venv" in result.stderr


def test_an_installation_that_fails_is_tried_again_next_time(machine: Machine) -> None:
    machine.add_python("python3", pip="echo 'ERROR: No matching distribution'; exit 1")
    result = machine.prepare()

    assert result.returncode == 3
    assert "ERROR: No matching distribution\nCould not install" in result.stderr
    machine.prepare()
    assert len(machine.installations()) == 2


def lock(machine: Machine) -> None:
    (machine.root / "locks").mkdir()
    for name in ("build", "plait", "dev"):
        (machine.root / "locks" / f"{name}.txt").write_text(f"# {name}\n")


def test_what_is_locked_is_installed_by_its_hashes(machine: Machine) -> None:
    machine.add_python("python3")
    lock(machine)
    machine.prepare("dev")
    built, locked, own = machine.installations()

    assert built.endswith("--require-hashes --requirement " + str(machine.root / "locks/build.txt"))
    assert "--require-hashes --no-build-isolation" in locked
    assert locked.endswith("locks/dev.txt")
    assert own.endswith("--no-deps --no-build-isolation --editable .")


def test_a_lock_that_has_changed_is_installed_anew(machine: Machine) -> None:
    machine.add_python("python3")
    lock(machine)
    machine.prepare()
    (machine.root / "locks" / "plait.txt").write_text("# others\n")
    machine.prepare()

    assert len(machine.installations()) == 6


def test_a_file_of_another_hash_is_not_installed(machine: Machine) -> None:
    machine.add_python("python3", pip="echo 'THESE PACKAGES DO NOT MATCH THE HASHES'; exit 1")
    lock(machine)
    result = machine.prepare(PIP_FIND_LINKS="/wheels")

    assert result.returncode == 3
    assert result.stderr.count("A package is not the one that locks/ names") == 1
    assert len(machine.installations()) == 1


def test_own_packages_of_other_versions_will_do(machine: Machine) -> None:
    machine.add_python("python3", pip='case "$*" in *hashes*) exit 1 ;; esac')
    lock(machine)
    result = machine.prepare(PIP_FIND_LINKS="/wheels")

    assert result.returncode == 0
    assert "Not all versions of locks/ are there: taking others within bounds." in result.stderr
    assert machine.installations()[-1].endswith("--editable .")


def test_without_own_packages_a_version_that_is_missing_is_an_error(machine: Machine) -> None:
    machine.add_python("python3", pip='case "$*" in *hashes*) exit 1 ;; esac')
    lock(machine)

    assert machine.prepare().returncode == 3


def test_locks_can_be_left_aside(machine: Machine) -> None:
    machine.add_python("python3")
    lock(machine)
    machine.prepare(PLAIT_UNLOCKED="1")

    assert len(machine.installations()) == 1
