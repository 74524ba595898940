from pathlib import Path

import pytest

from topologies.errors import ScriptError
from topologies.overlay import Overlay, Site
from topologies.reading import FILES_MAX, parse, parse_configuration, parse_script, read_run
from topologies.script import Crash, Status, Wait

CONF = "Site s Parent none\nProcess b Is broker On s\n"
SCRIPT = "Status\nCrash b\n"
OVERLAY = Overlay((Site("s", None, ("b",)),))


def problems(error: ScriptError) -> list[str]:
    return [f"{problem.at}: found {problem.found}" for problem in error.problems]


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_one_text_may_hold_both() -> None:
    configuration, script = parse(SCRIPT + CONF, "both")

    assert configuration.overlay == OVERLAY
    assert script.commands == (Status(), Crash("b"))
    assert parse_configuration(SCRIPT + CONF, "both") == configuration
    assert parse_script(SCRIPT + CONF, "both") == script


def test_all_problems_of_a_text_come_at_once_in_its_order() -> None:
    text = f"Wait x\n{CONF}Site t Parent nowhere\nCrash nobody\nOrdering"

    with pytest.raises(ScriptError) as caught:
        parse(text, "both")

    assert problems(caught.value) == [
        "both:1:6: found 'x'",
        "both:4:6: found site 't' without a broker",
        "both:4:15: found unknown parent 'nowhere'",
        "both:5:7: found 'nobody'",
        "both:6:9: found end of line",
    ]


def test_all_problems_of_both_files_come_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path, conf=f"{CONF}Delta x", script="Crash b\nCrash c\nWait y")

    with pytest.raises(ScriptError) as caught:
        read_run(f"{folder}/conf", f"{folder}/script")

    assert problems(caught.value) == [
        f"{folder}/conf:3:7: found 'x'",
        f"{folder}/script:2:7: found 'c'",
        f"{folder}/script:3:6: found 'y'",
    ]


def test_files_that_are_missing_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(ScriptError) as caught:
        read_run(f"{tmp_path}/conf", f"{tmp_path}/script")

    assert problems(caught.value) == [
        f"{tmp_path}/conf: found no such file",
        f"{tmp_path}/script: found no such file",
    ]


def test_a_run_comes_from_two_files_or_one(tmp_path: Path) -> None:
    folder = write(tmp_path, conf=CONF, script=SCRIPT, both=CONF + SCRIPT)
    run = read_run(f"{folder}/conf", f"{folder}/script")

    assert run[0].overlay == OVERLAY
    assert run[1].commands == (Status(), Crash("b"))
    assert read_run(f"{folder}/both") == run
    assert read_run(f"{folder}/both", f"{folder}/both") == run


def test_what_has_no_say_is_remarked_on(tmp_path: Path) -> None:
    folder = write(tmp_path, conf=CONF + SCRIPT, script=f"Wait 1\n{CONF}")
    configuration, script = read_run(f"{folder}/conf", f"{folder}/script")

    assert script.commands == (Wait(1),)
    assert [str(notice) for notice in (*configuration.warnings, *script.warnings)] == [
        f"{folder}/conf:3:1: unused line: "
        "this and 1 more are left aside, as the script is another one",
        f"{folder}/script:2:6: unused line: "
        "this and 1 more are left aside, as the configuration is another one",
    ]


def test_an_import_is_read_as_if_it_stood_there(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write(tmp_path, main="Import parts/all // of it\nStatus")
    write(tmp_path / "parts", all="Import sites\nProcess b Is broker On s", sites=CONF[:19])

    configuration, script = read_run(f"{tmp_path}/main")

    assert configuration.overlay == OVERLAY
    assert script.commands == (Status(),)


def test_problems_of_an_import_stand_in_it(tmp_path: Path) -> None:
    folder = write(tmp_path, main=f"Import more\n{CONF}Wait x", more="\nWait y")

    with pytest.raises(ScriptError) as caught:
        read_run(f"{folder}/main")

    assert problems(caught.value) == [
        f"{folder}/main:4:6: found 'x'",
        f"{folder}/more:2:6: found 'y'",
    ]


def test_a_missing_import_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    """What it would have declared is not called unknown."""
    folder = write(tmp_path, main="Import more\nCrash b")

    with pytest.raises(ScriptError) as caught:
        read_run(f"{folder}/main")

    assert problems(caught.value) == [
        f"{folder}/main:1:8: found '{folder}/more': no such file",
    ]


def test_an_import_without_a_file_is_refused() -> None:
    with pytest.raises(ScriptError, match="x:1:7: found end of line, expected a file name"):
        parse("Import", "x")


def test_a_file_that_imports_itself_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, a="Import b", b="Import ./a")

    with pytest.raises(ScriptError) as caught:
        read_run(f"{folder}/a")

    assert str(caught.value).endswith("again, expected no import of an importer")
    assert [problem.at.file for problem in caught.value.problems] == [f"{folder}/b"]


def test_imports_end_somewhere(tmp_path: Path) -> None:
    doubling = {f"f{n}": f"Import f{n + 1}\nImport f{n + 1}" for n in range(20)}
    folder = write(tmp_path, **doubling, f20="")

    with pytest.raises(ScriptError, match=f"expected at most {FILES_MAX} files"):
        read_run(f"{folder}/f0")
