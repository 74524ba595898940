"""Where a run leaves what it writes: a directory of its own, with a name that is harmless."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from plait.scripts.errors import BadInputError
from plait.scripts.main import cli
from plait.scripts.run_directory import new_run_directory


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_two_runs_in_the_same_second_have_two_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "20260102-030405")
    made = [new_run_directory(None, "demo") for _ in range(3)]

    assert [path.name for path in made] == [
        "demo-20260102-030405",
        "demo-20260102-030405-2",
        "demo-20260102-030405-3",
    ]
    assert all(path.is_dir() for path in made)


def test_a_directory_is_made_but_not_the_way_to_it() -> None:
    assert new_run_directory(Path("new"), "demo") == Path("new")
    with pytest.raises(BadInputError, match="nope: there is no such folder, and no more than"):
        new_run_directory(Path("nope/new"), "demo")

    assert new_run_directory(Path("runs/named"), "demo").is_dir()
    assert Path("new").is_dir()
    assert not Path("nope").exists()


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("full", "full is not empty"),
        ("file", "Directory 'file' is a file"),
        ("file/new", "file/new: Not a directory; --out NEW_DIRECTORY"),
        ("new;touch PWNED", "found 'new;touch PWNED' as the name of a run, expected letters"),
        ("$(id)", "as the name of a run"),
        ("new\nline", "as the name of a run"),
        ("größe", "as the name of a run"),
        ("/", "found '' as the name of a run"),
    ],
)
def test_what_cannot_be_the_directory_of_a_run_is_refused(out: str, words: str) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    Path("file").touch()
    result = CliRunner().invoke(cli, ["run", "demo.conf", "demo.script", "--out", out])

    assert result.exit_code == 2
    assert words in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert {path.name for path in Path().iterdir()} == {"full", "file"}


@pytest.mark.parametrize("command", ["run", "up"])
def test_a_configuration_whose_name_is_no_name_of_a_run_needs_one(command: str) -> None:
    Path("a;touch PWNED2;.conf").write_text("Site s Parent none\nProcess b Is broker On s\n")
    result = CliRunner().invoke(cli, [command, "a;touch PWNED2;.conf"])

    assert result.exit_code == 2
    assert "found 'a;touch PWNED2;' as the name of a run" in result.output
    assert not Path("runs").exists()


def test_a_directory_may_be_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert new_run_directory(Path(), "demo") == Path()
