"""Whatever is written is read back; whatever is garbage is refused at a place that exists."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.topologies.configuration import (
    Configuration,
    Detection,
    Heartbeat,
    LoggingLevel,
    Managers,
    Ordering,
    RoutingPolicy,
    format_configuration,
)
from plait.topologies.content import ContentTemplate, EventNumber, RandomNumber, Text
from plait.topologies.errors import Problem, ScriptError
from plait.topologies.files import load, samples
from plait.topologies.language import LINE_END
from plait.topologies.overlay import Overlay, Site
from plait.topologies.reading import KEYWORDS, parse, parse_configuration, parse_script
from plait.topologies.script import (
    Advertise,
    AwaitStable,
    Crash,
    Detect,
    Freeze,
    Phrase,
    PublishStream,
    Recover,
    Script,
    Status,
    Subscribe,
    Topic,
    Unfreeze,
    Unsubscribe,
    Wait,
    Where,
    format_script,
)
from tests.corpus import CORPUS

NAMES: Final = st.from_regex(r"[a-zß0-9_][a-z.-]{0,4}", fullmatch=True).filter(
    lambda name: name != "none"
)
NUMBERS: Final = st.integers(0, 999_999_999)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    site_names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    process_names = iter(draw(st.lists(NAMES, min_size=40, max_size=40, unique=True)))

    def processes(least: int) -> tuple[str, ...]:
        return tuple(next(process_names) for _ in range(draw(st.integers(least, 2))))

    sites = [
        Site(
            name,
            draw(st.sampled_from(site_names[:number])) if number else None,
            processes(1),
            processes(0),
            processes(0),
        )
        for number, name in enumerate(site_names)
    ]
    overlay = Overlay(tuple(sites))
    with_url = draw(st.sets(st.sampled_from(overlay.processes)))
    return Configuration(
        overlay,
        draw(st.sampled_from(RoutingPolicy)),
        draw(st.sampled_from(Ordering)),
        draw(st.sampled_from(LoggingLevel)),
        draw(NUMBERS),
        {name: f"tcp://localhost:{4000 + len(name)}/{name}" for name in with_url},
        detection=draw(st.sampled_from(Detection)),
        managers=draw(st.sampled_from(Managers)),
        heartbeat=draw(st.none() | HEARTBEATS),
    )


HEARTBEATS: Final = st.builds(
    lambda interval_ms, more_ms: Heartbeat(interval_ms, 2 * interval_ms + more_ms),
    st.integers(1, 10_000),
    st.integers(0, 10_000),
)
TOPICS: Final = (
    st.text("/*aé-$#'\"{", min_size=1).filter(lambda text: not text.startswith("//")).map(Topic)
)
WHERES: Final = (
    st.lists(
        st.sampled_from(["a", "= ", "'it''s'", "'x // y'", "1.5", "AND", "/ b", '"c  d"']),
        min_size=1,
    )
    .map(" ".join)
    .map(lambda text: Where(text.strip()))
)

WHOLE: Final = st.integers(-(2**63), 2**63 - 1)
DECIMAL: Final = st.floats(-1e300, 1e300)
LITERALS: Final = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda text: "${" not in text
)
RANDOM_NUMBERS: Final = (
    st.tuples(WHOLE | DECIMAL, WHOLE | DECIMAL)
    .map(sorted)
    .map(lambda bounds: RandomNumber(bounds[0], bounds[1]))
)
TEMPLATES: Final = st.just(EventNumber()) | RANDOM_NUMBERS
TEXTS: Final = st.lists(st.tuples(LITERALS.filter(bool), TEMPLATES), min_size=1, max_size=3).map(
    lambda pairs: Text(tuple(part for pair in pairs for part in pair))
)
CONTENTS: Final = st.dictionaries(
    LITERALS.filter(bool),
    LITERALS | WHOLE | DECIMAL | st.booleans() | TEMPLATES | TEXTS,
    max_size=4,
).map(lambda attributes: ContentTemplate(tuple(attributes.items())))

COMMANDS: Final = st.one_of(
    st.builds(Subscribe, NAMES, TOPICS | WHERES),
    st.builds(Unsubscribe, NAMES, TOPICS | WHERES),
    st.builds(Advertise, NAMES, WHERES),
    st.builds(
        Detect,
        NAMES,
        st.sampled_from(["contiguous", "next", "any"]),
        st.just(Phrase("A -> !B -> C{2}")),
        st.lists(st.tuples(st.sampled_from("ABC"), WHERES), min_size=1, max_size=3).map(tuple),
        st.none() | NUMBERS,
    ),
    st.builds(PublishStream, NAMES, NUMBERS, TOPICS | CONTENTS, NUMBERS),
    *(st.builds(command, NAMES) for command in (Crash, Recover, Freeze, Unfreeze)),
    st.builds(Wait, NUMBERS),
    st.just(Status()),
    st.just(AwaitStable()),
)
SCRIPTS: Final = st.lists(COMMANDS, max_size=8).map(lambda commands: Script(tuple(commands)))

LINE_ENDS: Final = st.sampled_from(["\n", "\r\n", "\r\r\n", "\r"])


@st.composite
def by_hand(draw: st.DrawFn, text: str) -> str:
    """Write the same text as people do: blanks, comments and line ends wherever they will."""
    before = st.sampled_from(["", " ", "\t", "\ufeff", "// a comment\n", "\n"])
    after = st.sampled_from(["", " ", "\t ", " // a comment", "\n"])
    end = draw(LINE_ENDS)
    lines = (f"{draw(before)}{line}{draw(after)}" for line in text.splitlines())
    return "\ufeff" + end.join(lines).replace("\n", end)


@given(configurations())
def test_a_configuration_is_read_as_it_was_written(configuration: Configuration) -> None:
    assert parse_configuration(format_configuration(configuration), "x") == configuration


@given(SCRIPTS)
def test_a_script_is_read_as_it_was_written(script: Script) -> None:
    assert parse_script(format_script(script), "x") == script


@given(configurations(), st.data())
def test_a_configuration_means_the_same_in_anybodys_hand(
    configuration: Configuration, data: st.DataObject
) -> None:
    text = data.draw(by_hand(format_configuration(configuration)))

    assert parse_configuration(text, "x") == configuration


@given(st.data())
def test_a_script_means_the_same_in_anybodys_hand(data: st.DataObject) -> None:
    demo = parse_script(samples()["demo.script"], "demo.script")
    text = data.draw(by_hand(format_script(demo)))

    assert parse_script(text, "x") == demo


def is_read_or_refused(text: str) -> None:
    """Fail if reading ends in anything but a result, or problems at places of the text."""
    lines = LINE_END.split(text)
    demo = parse_configuration(samples()["demo.conf"], "demo.conf")
    for read in (
        lambda: parse(text, "x"),
        lambda: parse(text, "x", strict=False),
        lambda: parse_script(text, "x"),
        lambda: parse_script(text, "x", demo),
    ):
        for problem in problems_of(read):
            line, column = problem.at.line, problem.at.column
            assert problem.at.file == "x"
            assert 0 <= line <= len(lines)
            assert line == 0 or 1 <= column <= len(lines[line - 1]) + 1
            assert str(problem).isprintable()


def problems_of(read: Callable[[], object]) -> tuple[Problem, ...]:
    try:
        read()
    except ScriptError as error:
        return error.problems
    return ()


FRAGMENTS: Final = st.sampled_from(
    [
        *KEYWORDS,
        *("Parent", "none", "Is", "broker", "publisher", "On", "URL", "tcp://a:1/b", "site0"),
        *("b0", "Subscribe", "WHERE", "a = 'x'", "Publish", "Ontopic", "CONTENT", "Interval"),
        *('{"a": ${n}', '"${random(1,', "2)}", "}", "stable", "-1", "0", "7", "1" * 5000),
        *(" ", "\t", "\n", "\r", "\r\n", "\ufeff", "\0", "\x85", "é", "¹"),
        *("//", "-", "'", '"', "\\"),
    ]
)


@given(st.text())
@example("Import .")
@example("Import \0")
@example("Import \ud800")
@example("Import /dev/null")
@example("Process b Is broker On s URL tcp://[::1]:1/b")
@example('Publisher p Publish 1 CONTENT {"a": ${random([[[[,1)}} Interval 1')
def test_any_text_is_read_or_refused(text: str) -> None:
    is_read_or_refused(text)


@given(st.lists(FRAGMENTS).map(" ".join))
def test_any_words_are_read_or_refused(text: str) -> None:
    is_read_or_refused(text)


REAL: Final = [str(path) for path in sorted(CORPUS.glob("*/**/*")) if path.is_file()]


@settings(max_examples=12)  # per file
@given(st.data())
@pytest.mark.parametrize("path", [*samples(), *REAL], ids=lambda path: Path(path).name)
def test_a_damaged_file_is_read_or_refused(path: str, data: st.DataObject) -> None:
    text = load(path)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(FRAGMENTS | st.just("")) + text[end:]

    is_read_or_refused(text)
