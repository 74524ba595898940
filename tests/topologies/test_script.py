import re

import pytest

from plait.topologies.configuration import Configuration
from plait.topologies.content import ContentTemplate, EventNumber
from plait.topologies.errors import Position, ScriptError
from plait.topologies.reading import parse_configuration, parse_script
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

CONFIGURATION = parse_configuration(
    """\
    Site site0 Parent none
    Site site1 Parent site0
    Process broker0 Is broker On site0
    Process broker1-0 Is broker On site1
    Process broker1-1 Is broker On site1
    Process pub Is publisher On site0
    Process sub Is subscriber On site1
    """,
    "x.conf",
)

EVERYTHING = """\
Subscriber sub Subscribe /a/*
Subscriber sub Subscribe WHERE symbol = 'IBM'  AND price > 1
Subscriber sub Unsubscribe WHERE symbol = 'IBM'  AND price > 1
Subscriber sub Unsubscribe /a/*
Subscriber sub Detect any Within 9 A -> !B -> (A | B){2} WHERE A: topic = 'a; b'; B: price > 1
Subscriber sub Detect next A WHERE A: [class,eq,'x'],[price,>,1]
Publisher pub Advertise WHERE price > 0
Publisher pub Publish 12 Ontopic /a/ação Interval 5000
Publisher pub Publish 3 CONTENT {"n": ${n}, "s": "IBM"} Interval 0
Status
Crash broker0
Recover broker0
Freeze sub
Unfreeze sub
Wait 250
Await stable
"""


def script(text: str, configuration: Configuration | None = CONFIGURATION) -> Script:
    return parse_script(text, "x.script", configuration)


def problem(text: str) -> str:
    with pytest.raises(ScriptError) as caught:
        script(text)
    return str(caught.value)


def test_everything_a_script_may_say() -> None:
    where = Where("symbol = 'IBM'  AND price > 1")

    assert script(EVERYTHING).commands == (
        Subscribe("sub", Topic("/a/*")),
        Subscribe("sub", where),
        Unsubscribe("sub", where),
        Unsubscribe("sub", Topic("/a/*")),
        Detect(
            "sub",
            "any",
            Phrase("A -> !B -> (A | B){2}"),
            (("A", Where("topic = 'a; b'")), ("B", Where("price > 1"))),
            9,
        ),
        Detect("sub", "next", Phrase("A"), (("A", Where("[class,eq,'x'],[price,>,1]")),)),
        Advertise("pub", Where("price > 0")),
        PublishStream("pub", 12, Topic("/a/ação"), 5000),
        PublishStream("pub", 3, ContentTemplate((("n", EventNumber()), ("s", "IBM"))), 0),
        Status(),
        Crash("broker0"),
        Recover("broker0"),
        Freeze("sub"),
        Unfreeze("sub"),
        Wait(250),
        AwaitStable(),
    )


def test_the_canonical_text_is_that_of_the_table() -> None:
    assert format_script(script(EVERYTHING)) == EVERYTHING


def test_keywords_come_in_any_case() -> None:
    lower = re.sub(r"\b[A-Z][a-z]+\b", lambda word: word[0].lower(), EVERYTHING)
    upper = re.sub(r"\b[A-Z][a-z]+\b", lambda word: word[0].upper(), EVERYTHING)

    assert script(lower) == script(upper) == script(EVERYTHING)


def test_a_command_stands_where_its_process_is_named() -> None:
    commands = script("\n  Subscriber sub Subscribe /a\n  Wait 5\n").commands

    assert [command.at for command in commands] == [
        Position("x.script", 2, 14),
        Position("x.script", 3, 3),
    ]


def test_a_filter_stands_where_its_text_begins() -> None:
    (command,) = script("Subscriber sub Subscribe WHERE  a = 1 // one").commands

    assert isinstance(command, Subscribe)
    assert isinstance(command.interest, Where)
    assert (command.interest.filter, command.interest.at) == (
        "a = 1",
        Position("x.script", 1, 33),
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Subscribe sub /a", "1: found 'Subscribe', expected a line of a configuration or script"),
        ("Subscriber", "11: found end of line, expected a subscriber name"),
        ("Subscriber sub", "15: found end of line, expected Subscribe, Unsubscribe or Detect"),
        ("Subscriber sub Listen /a", "16: found 'Listen', expected Subscribe, Unsubscribe or Det"),
        ("Subscriber sub Detect all A", "23: found 'all', expected contiguous, next or any"),
        ("Subscriber sub Detect any Within x", "34: found 'x', expected a whole number of publ"),
        ("Subscriber sub Detect next A", "29: found end of line, expected a pattern, and WHERE"),
        ("Subscriber sub Detect next A WHERE", "35: found end of line, expected a letter of the"),
        ("Subscriber sub Detect next A WHERE A", "36: found 'A', expected a letter of the pattern"),
        ("Subscriber sub Detect next A WHERE A:", "38: found end of line, expected a filter for A"),
        ("Subscriber sub Detect next A WHERE A: a = 'b", "43: found ''b', expected end of line"),
        ("Subscriber sub Subscribe", "25: found end of line, expected a topic"),
        ("Subscriber sub Subscribe /a /b", "29: found '/b', expected end of line"),
        ("Subscriber sub Subscribe WHERE", "31: found end of line, expected a filter"),
        ("Publisher pub Publsh 3", "15: found 'Publsh', expected Publish or Advertise (did you"),
        ("Publisher pub Advertise /a", "25: found '/a', expected WHERE"),
        ("Publisher pub Publish many", "23: found 'many', expected a whole number of events"),
        ("Publisher pub Publish 3 /a", "25: found '/a', expected Ontopic or CONTENT"),
        ("Publisher pub Publish 3 Ontopic", "32: found end of line, expected a topic"),
        ("Publisher pub Publish 3 Ontopic /a", "35: found end of line, expected Interval"),
        ("Publisher pub Publish 3 Ontopic /a Interval 1.5", "45: found '1.5', expected a whole nu"),
        ("Publisher pub Publish 3 CONTENT /a", "33: found '/a', expected a JSON object"),
        ("Publisher pub Publish 3 CONTENT {} /a", "36: found '/a', expected Interval"),
        ("Crash", "6: found end of line, expected a process name"),
        ("Wait", "5: found end of line, expected a whole number of milliseconds"),
        ("Wait 9999999999", "6: found '9999999999', expected a whole number of milliseconds"),
        ("Await", "6: found end of line, expected stable"),
        ("Status now", "8: found 'now', expected end of line"),
        ("Crash nobody", "7: found 'nobody', expected a process of the configuration"),
        (
            "Subscriber sb Subscribe /a",
            "12: found 'sb', expected a subscriber of the configuration (did you mean 'sub'?)",
        ),
        ("Subscriber pub Subscribe /a", "12: found publisher 'pub', expected a subscriber"),
        (
            "Publisher broker0 Publish 1 Ontopic a Interval 0",
            "11: found broker 'broker0', expected",
        ),
    ],
)
def test_a_line_is_refused_where_it_stops_making_sense(line: str, found: str) -> None:
    assert problem(f"Status\n{line}").startswith(f"x.script:2:{found}")


@pytest.mark.parametrize(
    ("text", "notices"),
    [
        ("-Crash broker0", ["1:1: disabled line: not executed: '-Crash broker0'"]),
        ("- anything // at all", ["1:1: disabled line: not executed: '- anything'"]),
        ("Crash broker0", ["1:7: last broker: site 'site0' is left without a broker"]),
        ("Crash broker1-0", []),
        (
            "Crash broker1-0\nCrash broker1-1",
            ["2:7: last broker: site 'site1' is left without a broker"],
        ),
        ("Crash broker1-0\nRecover broker1-0\nCrash broker1-1", []),
        (
            "Crash sub\nCrash sub\nFreeze sub\nSubscriber sub Subscribe /a",
            [
                "2:7: crashed process: 'sub' has crashed",
                "3:8: crashed process: 'sub' has crashed",
                "4:12: crashed process: 'sub' has crashed",
            ],
        ),
        ("Recover broker0", ["1:9: no effect: 'broker0' has not crashed"]),
        (
            "Crash sub\nRecover sub",
            ["2:9: no effect: 'sub' is a client, and only brokers are started again"],
        ),
        ("Unfreeze sub", ["1:10: no effect: 'sub' is not frozen"]),
        ("Freeze sub\nFreeze sub\nUnfreeze sub", ["2:8: no effect: 'sub' is frozen already"]),
        ("Freeze sub\nUnfreeze sub", []),
        (
            "Freeze broker0\nCrash broker0\nRecover broker0\nUnfreeze broker0",
            [
                "2:7: last broker: site 'site0' is left without a broker",
                "4:10: no effect: 'broker0' is not frozen",
            ],
        ),
        (
            "Freeze sub\nWait 5\nFreeze broker0\nUnfreeze broker0",
            [
                "1:8: stays frozen: 'sub' is not unfrozen; at the end of the script it goes on",
            ],
        ),
        (
            "Subscriber sub Subscribe /a*\nSubscriber sub Subscribe /a/*/b\n"
            "Subscriber sub Subscribe *\nSubscriber sub Subscribe /a/*\n"
            "Publisher pub Publish 1 Ontopic /a/* Interval 0\nSubscriber sub Subscribe /*",
            [
                "1:12: plain star: in '/a*' the * stands for itself "
                "(everything under a prefix is '/a/*')",
                "2:12: plain star: in '/a/*/b' the * stands for itself "
                "(everything under a prefix is '/a/*')",
                "3:12: plain star: in '*' the * stands for itself "
                "(everything under a prefix is '/*')",
                "5:11: plain star: in '/a/*' the * stands for itself",
            ],
        ),
        (
            "Subscriber sub Unsubscribe /a",
            ["1:12: no effect: 'sub' has no subscription to /a"],
        ),
    ],
)
def test_what_a_script_makes_pointless_itself_is_remarked_on_and_stays(
    text: str, notices: list[str]
) -> None:
    parsed = script(text)

    assert [str(notice) for notice in parsed.warnings] == [f"x.script:{n}" for n in notices]
    assert len(parsed.commands) == sum(not line.startswith("-") for line in text.splitlines())


def test_other_peoples_scripts_run_as_far_as_they_go() -> None:
    text = "Crash nobody\nStatus\nSubscriber pub Subscribe /a"
    parsed = parse_script(text, "x.script", CONFIGURATION, strict=False)

    assert parsed.commands == (Status(),)
    assert [str(notice) for notice in parsed.warnings] == [
        "x.script:1:7: unknown process: left out: "
        "found 'nobody', expected a process of the configuration",
        "x.script:3:12: unknown process: left out: found publisher 'pub', expected a subscriber",
    ]


def test_without_a_configuration_nobody_is_unknown() -> None:
    assert script("Crash anybody", None).commands == (Crash("anybody"),)


def test_settings_alone_are_no_configuration_to_check_against() -> None:
    assert script("Ordering FIFO\nCrash anybody", None).commands == (Crash("anybody"),)


def test_a_topic_may_begin_as_comments_do_elsewhere() -> None:
    script = parse_script("Subscriber s Subscribe #a # the topic is #a\nWait 5 ; ms", "x")

    assert script.commands == (Subscribe("s", Topic("#a")), Wait(5))
