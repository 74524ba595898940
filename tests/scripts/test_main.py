"""The command line as a whole: help, exit codes, sentences instead of tracebacks."""

import os
import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from plait.scripts.errors import BadInputError, EnvironmentFailedError, GuaranteeViolatedError
from plait.scripts.interrupts import INTERRUPTED
from plait.scripts.main import COMMANDS, OUR_BUG, cli
from tests.processes import finished


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="plait")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `plait check` end with an error."""

    @click.command()
    def command() -> None:
        raise error

    monkeypatch.setattr("plait.scripts.commands.check.command", command)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = invoke(name, "--help")

    assert result.exit_code == 0
    assert re.search(rf"^  Examples:\n(    .+\n)*    .*plait {name}", result.output, re.MULTILINE)


def test_help_names_every_command_and_the_exit_codes() -> None:
    result = invoke("--help")

    assert result.exit_code == 0
    for name, line in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", result.output, re.MULTILINE)
    assert "Exit codes" in result.output


def test_help_imports_no_command() -> None:
    program = (
        "import sys, plait.scripts.main as m\ntry: m.cli(['--help'])\nexcept SystemExit: pass\n"
    )
    program += "late = ('plait.scripts.commands', 'trio')\n"
    program += "print([name for name in sys.modules if name.startswith(late)])"
    result = finished([sys.executable, "-c", program])

    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("missing", "extra", "arguments"),
    [
        ("psutil", "bench", ["bench", "faults", "--help"]),
        ("pyspark", "audit", ["bench", "audit"]),
        ("numpy", "audit", ["audit", "."]),
    ],
)
def test_what_only_an_extra_brings_is_asked_for_in_one_sentence(
    missing: str, extra: str, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").touch()
    (tmp_path / "history").mkdir()
    program = (
        f"import sys; sys.modules[{missing!r}] = None; import plait.scripts.main as m; m.main()"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    result = finished(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env=environment,
    )

    assert result.returncode == EnvironmentFailedError.exit_code
    assert result.stderr == (
        f"plait: {missing} is not installed, and this command needs it: "
        f"pip install 'plait[{extra}]'\n"
    )


def test_version_is_that_of_the_project() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    version = re.search(r'^version = "(.*)"$', pyproject.read_text(), re.MULTILINE)

    assert version is not None
    assert invoke("--version").output == f"plait {version[1]}\n"


def test_an_unknown_command_is_bad_usage_and_gets_a_suggestion() -> None:
    result = invoke("rnu")

    assert result.exit_code == 2
    assert "No such command 'rnu'. Did you mean 'run'?" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_bad_usage(name: str) -> None:
    result = invoke(name, "--no-such-option")

    assert result.exit_code == 2
    assert "--no-such-option" in result.output


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (GuaranteeViolatedError("2 violations"), 1, "plait: 2 violations\n"),
        (BadInputError("x.conf:3:1: found"), 2, "plait: x.conf:3:1: found\n"),
        (EnvironmentFailedError("port 4000 is taken"), 3, "plait: port 4000 is taken\n"),
        (PermissionError(13, "Permission denied", "/out"), 3, "plait: /out: Permission denied\n"),
        (KeyboardInterrupt(), INTERRUPTED, "plait: interrupted\n"),
    ],
)
def test_an_error_becomes_a_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, sentence: str
) -> None:
    raising(monkeypatch, error)

    result = invoke("check")

    assert result.exit_code == code
    assert result.output.endswith(sentence)
    assert "Traceback" not in result.output


def test_a_bug_of_ours_shows_its_traceback_and_has_an_exit_code_of_its_own() -> None:
    program = (
        "import sys, click, plait.scripts.main, plait.scripts.commands.check as check\n"
        "check.command = click.Command('check', callback=lambda: 1 / 0)\n"
        "sys.argv = ['plait', 'check']\n"
        "plait.scripts.main.main()"
    )
    result = finished([sys.executable, "-c", program])

    assert result.returncode == OUR_BUG
    assert "ZeroDivisionError" in result.stderr
    assert "please report it" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_reads(shell: str) -> None:
    result = invoke("completion", shell)

    assert result.exit_code == 0
    assert "_PLAIT_COMPLETE" in result.output


def test_completion_completes_commands() -> None:
    result = CliRunner().invoke(
        cli,
        prog_name="plait",
        env={"_PLAIT_COMPLETE": "bash_complete", "COMP_WORDS": "plait st", "COMP_CWORD": "1"},
    )

    assert result.output == "plain,status\n"
