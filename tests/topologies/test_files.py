import random
from pathlib import Path

import pytest

from plait.topologies import files
from plait.topologies.content import ContentTemplate, render
from plait.topologies.errors import ScriptError
from plait.topologies.files import load, samples
from plait.topologies.reading import read_run
from plait.topologies.script import PublishStream, Wait


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("\ufeffä\r\r\n".encode())

    assert load(f"{tmp_path}/x") == "\ufeffä\r\r\n"


def test_what_windows_calls_unicode_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("Status\r\n".encode("utf-16"))

    assert load(f"{tmp_path}/x") == "Status\r\n"


def test_samples_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert {"demo.conf", "demo.script", "stock-ticker.conf"} < samples().keys()
    assert load("demo.conf") == samples()["demo.conf"]


def test_a_file_comes_before_the_sample_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.conf").write_text("mine")

    assert load("demo.conf") == "mine"


@pytest.mark.parametrize("path", ["demo.cnf", "\0", "", ".", "/dev/null", "x" * 5000])
def test_what_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(ScriptError) as caught:
        load(path)

    (problem,) = caught.value.problems
    assert (problem.at.file, problem.at.line) == (path, 0)


def test_a_missing_file_is_refused_with_a_guess() -> None:
    with pytest.raises(ScriptError) as caught:
        load("demo.cnf")

    assert str(caught.value) == (
        "demo.cnf: found no such file, "
        "expected a file, or a sample that comes with plait, like demo.conf "
        "(did you mean 'demo.conf'?)"
    )


def test_other_encodings_are_refused_where_they_begin(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("Status\nCrash ä".encode("latin-1"))

    with pytest.raises(ScriptError) as caught:
        load(f"{tmp_path}/x")

    assert str(caught.value) == f"{tmp_path}/x:2:7: found byte 0xe4, expected UTF-8 text"


def test_a_file_too_long_to_be_a_script_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 3)
    (tmp_path / "x").write_text("four")

    with pytest.raises(ScriptError, match="found a larger file, expected at most 3 bytes"):
        load(f"{tmp_path}/x")


def test_the_demonstration_has_seven_brokers_and_takes_about_three_seconds() -> None:
    configuration, script = read_run("demo.conf", "demo.script")
    waits = [command.milliseconds for command in script.commands if isinstance(command, Wait)]

    assert len(configuration.overlay.brokers) == 7
    assert configuration.warnings + script.warnings == ()
    assert 2000 <= sum(waits) <= 3000


def test_the_demonstration_publishes_by_topic_and_by_content() -> None:
    _, script = read_run("demo.conf", "demo.script")
    streams = [command for command in script.commands if isinstance(command, PublishStream)]
    templates = [
        stream.content for stream in streams if isinstance(stream.content, ContentTemplate)
    ]

    assert 0 < len(templates) < len(streams)
    assert render(templates[0], 3, random.Random(0))["trade"] == "nyse-3"
