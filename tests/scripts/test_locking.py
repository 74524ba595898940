"""The locks: made of what pip says and of what an index lists, and covering what plait asks for."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from plait.scripts.locking import Pin, files_in, hashes_of, lock_of, pins_in

ROOT = Path(__file__).resolve().parents[2]
A, B, C = "a" * 64, "b" * 64, "c" * 64
PAGE = f"""
<a href="../../files/some_thing-1.0-py3-none-any.whl#sha256={A}">wheel</a>
<a href="https://files.example/some_thing-1.0.tar.gz#sha256={B}">source</a>
<a href="https://files.example/some_thing-1.0.1%2Blocal-py3-none-any.whl#sha256={C}">later</a>
<a href="https://files.example/some_thing-1.1.tar.gz">without a hash</a>
"""
FILES = files_in(PAGE)


def files_of(name: str) -> Mapping[str, str]:
    assert name == "some-thing"
    return FILES


def test_a_page_of_an_index_lists_files_with_their_hashes() -> None:
    assert FILES == {
        "some_thing-1.0-py3-none-any.whl": A,
        "some_thing-1.0.tar.gz": B,
        "some_thing-1.0.1+local-py3-none-any.whl": C,
    }


def test_all_files_of_a_version_are_taken_and_no_others() -> None:
    assert hashes_of(Pin("some-thing", "1.0"), FILES) == [A, B]


def test_a_version_that_is_not_in_the_index_is_no_lock() -> None:
    with pytest.raises(LookupError, match=r"some-thing 1\.1 is not in the index"):
        hashes_of(Pin("some-thing", "1.1"), FILES)


def test_a_lock_is_what_pip_reads() -> None:
    text = lock_of([Pin("some-thing", "1.0")], files_of)

    assert text.splitlines()[1:] == [
        "some-thing==1.0 \\",
        f"    --hash=sha256:{A} \\",
        f"    --hash=sha256:{B}",
    ]


def test_what_pip_would_install_is_pinned_without_plait_itself() -> None:
    names = ("plait", "Some_Thing", "setuptools", "attrs")
    report = {"install": [{"metadata": {"name": name, "version": "1.0"}} for name in names]}

    pins = pins_in(report, without=["setuptools"])

    assert pins == [Pin("attrs", "1.0"), Pin("some-thing", "1.0")]


def named(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower()


def locked(name: str) -> set[str]:
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    return {entry.partition("==")[0] for entry in entries}


def test_the_locks_cover_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    asked = {named(each) for each in project["dependencies"]}
    more = {named(each) for extra in optional.values() for each in extra} - {"plait"}

    assert asked <= locked("plait")
    assert asked | more <= locked("dev") | locked("build")


def test_bounds_have_an_end() -> None:
    """All but stubs of types, whose versions are those of what they are about."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    asked = [*project["dependencies"], *extras]

    assert [
        each for each in asked if "<" not in each and not each.startswith(("types-", "plait["))
    ] == []


def test_the_licences_of_what_runs_are_listed() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    listed = set(re.findall(r"^\| ([a-z]+) \| ", page, re.MULTILINE)) - {"package"}

    assert listed == locked("plait")
