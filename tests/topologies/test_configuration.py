import pytest

from plait.topologies.configuration import (
    Configuration,
    Heartbeat,
    LoggingLevel,
    Ordering,
    RoutingPolicy,
    format_configuration,
)
from plait.topologies.errors import ScriptError
from plait.topologies.overlay import Overlay, Site
from plait.topologies.reading import parse_configuration

SMALL = """\
Site site0 Parent none
Site site1 Parent site0
Process broker0 Is broker On site0 URL tcp://localhost:3333/broker
Process broker1 Is broker On site1
"""


def configure(text: str) -> Configuration:
    return parse_configuration(text, "x.conf")


def problems(text: str) -> list[str]:
    with pytest.raises(ScriptError) as caught:
        configure(text)
    return str(caught.value).splitlines()


def test_everything_a_configuration_may_say() -> None:
    configuration = configure(
        """\
        RoutingPolicy filter
        Ordering TOTAL
        LoggingLevel full
        Delta 2
        Heartbeat 200 Timeout 1000
        Site site0 Parent none
        Site site1 Parent site0
        Process broker0 Is broker On site0 URL tcp://localhost:3333/broker
        Process spare-0 Is broker On site0
        Process broker1 Is broker On site1 // leaf
        Process alice Is subscriber On site1
        Process nyse Is publisher On site0
        """
    )

    assert configuration == Configuration(
        overlay=Overlay(
            (
                Site("site0", None, ("broker0", "spare-0"), ("nyse",)),
                Site("site1", "site0", ("broker1",), (), ("alice",)),
            )
        ),
        routing_policy=RoutingPolicy.FILTER,
        ordering=Ordering.PAIRWISE,
        logging_level=LoggingLevel.FULL,
        delta=2,
        heartbeat=Heartbeat(interval_ms=200, timeout_ms=1000),
        urls={"broker0": "tcp://localhost:3333/broker"},
    )
    assert configuration.warnings == ()


def test_what_is_not_said_is_as_it_was_in_the_beginning() -> None:
    configuration = configure(SMALL)

    assert configuration.routing_policy is RoutingPolicy.FLOODING
    assert configuration.ordering is Ordering.FIFO
    assert configuration.logging_level is LoggingLevel.LIGHT
    assert configuration.delta == 1


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NO", "none"),
        ("none", "none"),
        ("fifo", "fifo"),
        ("TOTAL", "pairwise"),
        ("PairWise", "pairwise"),
        ("TNO", "tno"),
        ("TNO-Tagged", "tno-tagged"),
        ("TNO-Published-2011", "tno-published-2011"),
        ("TNO-Published-2015", "tno-published-2015"),
        ("SEQUENCER", "sequencer"),
        ("SEQUENCER-FILTERED", "sequencer-filtered"),
        ("PUBLISHED", "published"),
        ("PUBLISHED-PROGRESSIVE", "published-progressive"),
        ("Published-Whole-Queue", "published-whole-queue"),
    ],
)
def test_orderings_have_many_names(written: str, meant: str) -> None:
    assert configure(f"{SMALL}Ordering {written}").ordering == meant


@pytest.mark.parametrize("written", ["filter", "filtering", "Filtered"])
def test_filter_has_three_names(written: str) -> None:
    assert configure(f"{SMALL}RoutingPolicy {written}").routing_policy is RoutingPolicy.FILTER


def test_lines_may_come_in_any_order() -> None:
    turned = "\n".join(reversed(SMALL.splitlines()))

    assert configure(turned) == configure(SMALL)


def test_the_last_of_several_settings_holds_and_is_remarked_on() -> None:
    configuration = configure(f"Ordering TOTAL\n{SMALL}Ordering FIFO")

    assert configuration.ordering is Ordering.FIFO
    assert list(map(str, configuration.warnings)) == [
        "x.conf:6:10: repeated setting: ordering is set once more; the last one holds"
    ]


@pytest.mark.parametrize("line", ["Distributed 192.168.1.100", "PMIP 127.0.0.1", "pmip"])
def test_lines_for_other_programs_are_remarked_on(line: str) -> None:
    (notice,) = configure(f"{SMALL}{line}").warnings

    assert str(notice) == f"x.conf:5:1: foreign line: {notice.text}"


def test_the_canonical_text_has_settings_then_sites_then_processes() -> None:
    assert format_configuration(configure(SMALL)) == (
        """\
RoutingPolicy flooding
Ordering FIFO
LoggingLevel light
Delta 1
Detection fast

Site site0 Parent none
Site site1 Parent site0

Process broker0 Is broker On site0 URL tcp://localhost:3333/broker
Process broker1 Is broker On site1
"""
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Sit site2 Parent site0", "1: found 'Sit', expected a line of a configuration or script"),
        ("Site", "5: found end of line, expected a site name"),
        ("Site a/b Parent site0", "6: found 'a/b', expected a site name"),
        ("Site none Parent site0", "6: found 'none', expected a site name other than 'none'"),
        ("Site site2", "11: found end of line, expected Parent"),
        ("Site site2 Parnt site0", "12: found 'Parnt', expected Parent (did you mean 'Parent'?)"),
        ("Site site2 Parent", "18: found end of line, expected a site name"),
        ("Site site2 Parent none x", "24: found 'x', expected end of line"),
        ("Process p", "10: found end of line, expected Is"),
        (
            "Process p Is Brokr On site0",
            "14: found 'Brokr', expected broker, publisher or subscriber (did you mean 'broker'?)",
        ),
        ("Process p Is broker site0", "21: found 'site0', expected On"),
        ("Process p Is broker On site0 tcp://x:1/b", "30: found 'tcp://x:1/b', expected URL"),
        ("Process p Is broker On site0 URL", "33: found end of line, expected a URL like tcp"),
        ("RoutingPolicy floding", "15: found 'floding', expected flooding, filter, filtering or"),
        ("Ordering TOTL", "10: found 'TOTL', expected NO, NONE, FIFO, PAIRWISE, TOTAL, TNO, "),
        ("LoggingLevel", "13: found end of line, expected full or light"),
        ("Detection slow", "11: found 'slow', expected fast or exact"),
        ("Delta -1", "7: found '-1', expected a whole number of failures to survive"),
        (
            "Heartbeat 0 Timeout 9",
            "11: found '0', expected milliseconds between two",
        ),
        ("Heartbeat 500 3000", "15: found '3000', expected Timeout"),
        (
            "Heartbeat 500 Timeout 999",
            "23: found '999', expected 2 heartbeats or more",
        ),
        ("Heartbeat 500 Timeout x", "23: found 'x', expected a whole number of milliseconds of"),
        ("Delta ²", "7: found '²', expected a whole number of failures to survive"),
    ],
)
def test_a_line_is_refused_where_it_stops_making_sense(line: str, problem: str) -> None:
    (found,) = problems(f"{SMALL}{line}")

    assert found.startswith(f"x.conf:5:{problem}")


def test_a_configuration_without_sites_is_refused_as_a_whole() -> None:
    assert problems("Ordering FIFO") == [
        "x.conf:1:1: found no site, expected a line 'Site NAME Parent none'"
    ]


def test_a_site_name_is_taken_once() -> None:
    assert problems(f"{SMALL}Site site1 Parent none") == [
        "x.conf:5:6: found a second site 'site1', "
        "expected a site name not yet taken, as it is at x.conf:2:6"
    ]


def test_a_process_name_is_taken_once() -> None:
    assert problems(f"{SMALL}Process broker0 Is publisher On site1") == [
        "x.conf:5:9: found a second process 'broker0', "
        "expected a process name not yet taken, as it is at x.conf:3:9"
    ]


def test_a_second_root_is_refused() -> None:
    assert problems(f"{SMALL}Site s Parent none\nProcess b Is broker On s") == [
        "x.conf:5:15: found a second root 's', expected a parent, as 'site0' is the root"
    ]


def test_a_circle_is_refused_with_the_way_around_it() -> None:
    text = SMALL.replace("Site site0 Parent none", "Site site0 Parent site1")

    assert problems(text) == [
        "x.conf:1:19: found no root, expected exactly one node without a parent",
        "x.conf:1:19: found a circle site0 -> site1 -> site0, "
        "expected parents that lead to the root",
    ]


def test_an_unknown_parent_is_refused_with_a_guess() -> None:
    assert problems(SMALL.replace("Parent site0", "Parent sit0")) == [
        "x.conf:2:19: found unknown parent 'sit0', expected a node of the overlay "
        "(did you mean 'site0'?)"
    ]


def test_an_unknown_site_is_refused_with_a_guess() -> None:
    assert problems(f"{SMALL}Process p Is publisher On sita1") == [
        "x.conf:5:27: found 'sita1', expected a site declared here (did you mean 'site1'?)"
    ]


def notices(configuration: Configuration) -> list[str]:
    return [
        f"{notice.at.line}:{notice.at.column} {notice.kind}" for notice in configuration.warnings
    ]


def test_a_site_without_a_broker_is_served_from_above() -> None:
    """People declare a site and fill it later; its clients go to where there is a broker."""
    configuration = configure(
        f"{SMALL}Site s Parent site1\nSite t Parent s\nSite u Parent t\n"
        "Process b Is broker On u\nProcess p Is publisher On s"
    )

    assert [site.name for site in configuration.overlay.sites] == ["site0", "site1", "u"]
    assert configuration.overlay.parent_of("b") == "broker1"
    assert configuration.overlay.broker_of("p") == "broker1"
    assert notices(configuration) == ["5:6 no broker", "6:6 no broker"]


def test_a_root_without_a_broker_is_refused() -> None:
    text = SMALL.replace("Process broker0 Is broker", "Process broker0 Is publisher")

    assert problems(text) == [
        "x.conf:1:6: found site 'site0' without a broker, expected one broker or more"
    ]


def test_the_one_site_that_nobody_declares_is_the_root() -> None:
    configuration = configure("Process b Is broker On s\nProcess p Is publisher On s")

    assert configuration.overlay == Overlay((Site("s", None, ("b",), ("p",)),))
    assert notices(configuration) == ["1:24 no site"]


def test_a_site_that_nobody_declares_needs_a_broker_too() -> None:
    assert problems("Process p Is publisher On s") == [
        "x.conf:1:27: found site 's' without a broker, expected one broker or more"
    ]


def test_several_sites_that_nobody_declares_are_refused() -> None:
    assert len(problems("Process b Is broker On s\nProcess c Is broker On t")) == 3


def test_a_line_that_says_the_same_again_is_only_noticed() -> None:
    configuration = configure(SMALL + SMALL)

    assert configuration == configure(SMALL)
    assert [notice.split()[0] for notice in notices(configuration)] == ["5:6", "6:6", "7:9", "8:9"]


def test_a_choice_that_nobody_has_made_leaves_the_default() -> None:
    configuration = configure(f"{SMALL}RoutingPolicy flooding|filter\nOrdering NO|FIFO|TOTAL")

    assert configuration == configure(SMALL)
    assert notices(configuration) == ["5:15 no choice", "6:10 no choice"]


@pytest.mark.parametrize(
    "url", ["tcp://localhost:99999/b", "tcp://localhost/b", '"tcp://localhost:1/b"', "3333"]
)
def test_an_odd_url_is_only_noticed_as_nobody_uses_it(url: str) -> None:
    assert notices(configure(f"{SMALL}Process p Is publisher On site0 URL {url}")) == [
        "5:9 odd URL"
    ]


@pytest.mark.parametrize(
    "url", ["tcp://1.2.3.4:8088/pub", "TCP://[::1]:0", "tcp://a-b.example:65535/"]
)
def test_a_url_may_have(url: str) -> None:
    configuration = configure(f"{SMALL}Process p Is publisher On site0 url {url}")

    assert configuration.urls["p"] == url
    assert configuration.warnings == ()


def test_comments_may_begin_as_elsewhere() -> None:
    text = (
        "# Title\n% by\n; us\n  #\n"
        + SMALL.replace("Parent none", "Parent none # the root").replace("On site1", "On site1 ; x")
        + "OrderingPolicy FIFO % as ever\nSingleMachine # of another program\n"
    )

    assert configure(text) == configure(SMALL)


def test_one_mistake_is_reported_once() -> None:
    """Lines that depend on one that is not understood are not blamed for it."""
    assert [line.split(",")[0] for line in problems(f"Sit{SMALL[4:]}")] == [
        "x.conf:1:1: found 'Sit'"
    ]
    assert [line.split(",")[0] for line in problems(SMALL.replace("broker0 Is", "broker0"))] == [
        "x.conf:3:17: found 'broker'"
    ]
