"""Files are replaced as a whole, and errors say which file they are about."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.faulttol.files import is_mistake, make_folder, naming, replace_text


def test_an_error_that_names_no_file_is_given_its_name() -> None:
    with pytest.raises(BrokenPipeError) as caught, naming("pipe"):
        raise OSError(errno.EPIPE, "Broken pipe")

    assert caught.value.filename == "pipe"


def test_an_error_that_names_a_file_keeps_it() -> None:
    with pytest.raises(FileNotFoundError) as caught, naming("a"):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "b")

    assert caught.value.filename == "b"


def test_a_path_is_a_mistake_and_a_machine_is_not() -> None:
    assert is_mistake(OSError(errno.EACCES, "Permission denied", "x"))
    assert not is_mistake(OSError(errno.ENOSPC, "No space left on device", "x"))
    assert not is_mistake(OSError(errno.ENOENT, "of something that is no file"))


def test_only_the_last_folder_of_a_path_is_made(tmp_path: Path) -> None:
    make_folder(tmp_path / "a")
    make_folder(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="there is no such folder") as caught:
        make_folder(tmp_path / "b" / "c")

    assert caught.value.filename == str(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "x")


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_text_takes_the_place_of_another(tmp_path: Path, is_lasting: bool) -> None:
    path = tmp_path / "x"
    for text in ("one", "two"):
        replace_text(path, text, is_lasting=is_lasting)

        assert path.read_text() == text
        assert list(tmp_path.iterdir()) == [path]


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "far" / "x")
    replace_text(link, "one")

    assert link.is_symlink()
    assert (tmp_path / "far" / "x").read_text() == "one"


def test_a_draft_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "x.draft").symlink_to(tmp_path / "precious")
    replace_text(tmp_path / "x", "one")

    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "x").read_text() == "one"


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "x").write_text("before")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        replace_text(tmp_path / "x", "after", is_lasting=True)

    assert caught.value.filename == str(tmp_path / "x.draft")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "before"}


def test_what_is_to_last_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power failure leaves the new name with nothing in it; and the name has to last, too."""
    steps: list[str] = []

    def told(name: str, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            what = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else ""
            steps.append(f"{name} {Path(what).name}".strip())
            function(*arguments)

        return call

    monkeypatch.setattr("os.fsync", told("fsync", os.fsync))
    monkeypatch.setattr("os.replace", told("replace", os.replace))
    monkeypatch.setattr("os.rename", told("replace", os.rename))
    replace_text(tmp_path / "x", "text", is_lasting=True)

    assert steps == ["fsync x.draft", "replace", f"fsync {tmp_path.name}"]
