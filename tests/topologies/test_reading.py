from pathlib import Path

import pytest

from plait.topologies.errors import Problem, ScriptError
from plait.topologies.overlay import Overlay, Site
from plait.topologies.reading import FILES_MAX, parse, parse_configuration, parse_script, read_run
from plait.topologies.script import Command, Crash, Status, Wait

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


# --- what other people's programs understand, and this one does not -----------------------------


def notices_of(text: str) -> list[str]:
    """Read what can be understood of a text, and return what is said of the rest."""
    configuration, script = parse(text, "x", strict=False)
    return [str(notice) for notice in (*configuration.warnings, *script.warnings)]


@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ("script scripts/first.txt", "3:1", "'script', expected a line of a configuration or"),
        ("StartNetwork", "3:1", "'StartNetwork', expected a line"),
        (
            "rocess b2 Is broker On s",
            "3:1",
            "'rocess', expected a line of a configuration or",
        ),
        ("Process b2 Iz broker On s", "3:12", "'Iz', expected Is"),
        ("Import ..\\..\\", "3:8", "'../..': no such file, expected a file to import"),
        ("Crash b2", "3:7", "'b2', expected a process of the configuration (did you mean 'b'?)"),
        ("Wait a while", "3:6", "'a', expected a whole number of milliseconds"),
        ("Ordering FIVO", "3:10", "'FIVO', expected NO, NONE, FIFO"),
    ],
)
def test_a_line_that_is_not_understood_is_refused_or_left_out(
    line: str, place: str, said: str
) -> None:
    text = f"{CONF}{line}\n{SCRIPT}"
    with pytest.raises(ScriptError) as caught:
        parse(text, "x")
    (problem,) = caught.value.problems
    configuration, script = parse(text, "x", strict=False)
    (notice,) = (*configuration.warnings, *script.warnings[:-1])

    assert str(problem).startswith(f"x:{place}: found {said}")
    assert str(notice).partition(" left out: ")[2] == problem.text
    assert notice.at == problem.at
    assert configuration.overlay == OVERLAY
    assert script.commands == (Status(), Crash("b"))


def test_a_filter_that_cannot_be_read_is_left_out_likewise(tmp_path: Path) -> None:
    def check(command: Command) -> list[Problem]:
        return [Problem(command.at, "nothing", "something")] * isinstance(command, Status)

    folder = write(tmp_path, conf=CONF, script=SCRIPT)
    paths = f"{folder}/conf", f"{folder}/script"
    with pytest.raises(ScriptError) as caught:
        read_run(*paths, check=check)
    _, script = read_run(*paths, strict=False, check=check)

    assert problems(caught.value) == [f"{folder}/script:1:1: found nothing"]
    assert script.commands == (Crash("b"),)
    assert str(script.warnings[0]) == (
        f"{folder}/script:1:1: not understood: left out: found nothing, expected something"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Site s Parent none\nProces b Is broker On s\n", 2),
        ("Sitt s Parent none\nSite t Parent s\nProcess b Is broker On t\n", 1),
        ("Import no-such-file\nCrash b\n", 1),
        ("nothing at all\n", 1),
    ],
)
def test_what_makes_no_sense_without_it_is_refused_with_what_was_not_understood(
    text: str, line: int
) -> None:
    with pytest.raises(ScriptError) as strict:
        parse(text, "x")
    with pytest.raises(ScriptError) as lenient:
        parse(text, "x", strict=False)

    assert lenient.value.problems == strict.value.problems
    assert [problem.at.line for problem in lenient.value.problems] == [line]


def test_a_contradiction_is_refused_whatever_was_left_out() -> None:
    text = f"StartNetwork\n{CONF}Process b Is publisher On s\n"
    with pytest.raises(ScriptError) as caught:
        parse(text, "x", strict=False)

    assert problems(caught.value) == [
        "x:1:1: found 'StartNetwork'",
        "x:4:9: found a second process 'b'",
    ]


def test_who_is_declared_on_a_line_that_was_left_out_is_not_there() -> None:
    text = f"{CONF}Process c Iz broker On s\nCrash c\nStatus\n"
    _, script = parse(text, "x", strict=False)

    assert script.commands == (Status(),)
    assert any("3:11: not understood" in notice for notice in notices_of(text))
    assert any("4:7: unknown process" in notice for notice in notices_of(text))


@pytest.mark.parametrize(
    "line",
    [
        "CentralPuppetMaster tcp://localhost:10000/puppet",
        "pmslave tcp://10.0.0.2:2000/pm // theirs",
        "PMIP 10.0.0.1",
    ],
)
def test_addresses_of_other_programs_are_remarked_on(line: str) -> None:
    assert notices_of(f"{line}\n{CONF}") == [
        f"x:1:1: foreign line: {line.split()[0]} means nothing here"
    ]
    assert parse_configuration(f"{line}\n{CONF}", "x").overlay == OVERLAY


@pytest.mark.parametrize("line", ["Proces tcp://localhost:1/b", "Foo tcp://localhost:1/b bar"])
def test_what_may_be_a_mistake_is_not_taken_for_theirs(line: str) -> None:
    with pytest.raises(ScriptError, match="x:1:1: found"):
        parse(f"{line}\n{CONF}", "x")


@pytest.mark.parametrize("mark", ["exit", "Quit", "---EOC---", "-- eof --", "--------END----"])
def test_a_file_may_end_before_its_end(mark: str) -> None:
    text = f"{CONF}Status\n{mark}\n\nCrash b\nwhatever // this is\n"
    configuration, script = parse(text, "x")

    assert script.commands == (Status(),)
    assert [str(notice) for notice in configuration.warnings] == [
        f"x:4:1: end mark: '{mark}', and 2 lines after it are not read"
    ]
    assert parse(f"{CONF}Status\n{mark}\n\n", "x")[0].warnings == ()


def test_the_end_of_an_import_is_not_the_end_of_everything(tmp_path: Path) -> None:
    folder = write(tmp_path, main=f"{CONF}Import more\nCrash b", more="Status\nexit\nWait 5")
    _, script = read_run(f"{folder}/main")

    assert script.commands == (Status(), Crash("b"))


def test_a_heading_is_no_end() -> None:
    _, script = parse(f"{CONF}--- brokers ---\nStatus\n", "x")

    assert script.commands == (Status(),)


def test_what_follows_a_url_is_remarked_on() -> None:
    text = "Process b Is broker On s URL tcp://h:1/b tcp://h:2/b // two\n"
    configuration = parse_configuration(f"Site s Parent none\n{text}", "x")

    assert configuration.urls == {"b": "tcp://h:1/b"}
    assert [str(notice) for notice in configuration.warnings] == [
        "x:2:9: unused line: 'tcp://h:2/b' behind the URL is left aside"
    ]


def test_an_import_may_be_written_with_backslashes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, main="Import .\\sub\\c.inc\n")
    (tmp_path / "sub" / "c.inc").write_text("Import ..\\d.inc\n")
    (tmp_path / "d.inc").write_text(CONF)

    assert read_run(f"{tmp_path}/main")[0].overlay == OVERLAY


def test_text_in_another_encoding_matters_only_where_it_is_read(tmp_path: Path) -> None:
    """Latin-1: an e with an accent is one byte, which no text in UTF-8 has."""
    file = tmp_path / "x"
    notes = "// configura\xe7\xe3o\n%\xe9\n" + CONF.replace("s\n", "s // n\xf3\n") + "- \xe9\n"
    file.write_bytes(f"\ufeff{notes}".encode().replace("\xe7".encode(), b"\xe7"))
    assert read_run(str(file))[0].overlay == OVERLAY

    file.write_bytes(f"{notes}Status # \xe9\r\r\nCrash b\xe9\r\nCrash b".encode("latin-1"))
    with pytest.raises(ScriptError) as caught:
        read_run(str(file))
    _, script = read_run(str(file), strict=False)

    assert [str(problem) for problem in caught.value.problems] == [
        f"{file}:7:8: found byte 0xe9, expected UTF-8 text"
    ]
    assert script.commands == (Status(), Crash("b"))


def test_what_is_no_text_at_all_is_one_problem(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"\x7fELF\0\n\xff\n" * 1000)
    with pytest.raises(ScriptError) as caught:
        read_run(str(file), strict=False)

    assert problems(caught.value) == [f"{file}:2:1: found byte 0xff"]
