"""The files that people really wrote: all of them load, and every pair runs, as they are."""

from typing import Final

import pytest

from plait.topologies.configuration import Configuration, format_configuration
from plait.topologies.files import load
from plait.topologies.reading import parse_configuration, parse_script, read_run
from plait.topologies.script import format_script
from tests.corpus import (
    ANDRE,
    ANYA,
    CANOXA,
    CORPUS,
    MIGUEL,
    PAIRS,
    PEDRO,
    STRABOX,
    STRABOX_SCRIPTS,
    TEACHER,
    needs_corpus,
)

pytestmark = needs_corpus

# Counted by hand in the files: sites, brokers with standbys, publishers, subscribers, and the
# policies that are written there.
CONFIGURATIONS: Final = {
    f"{ANDRE}/Config.txt": (3, 3, 2, 3, "flooding pairwise full"),
    f"{ANDRE}/Config@32b28ca4.txt": (3, 3, 2, 3, "filter fifo full"),
    f"{ANDRE}/Config@a1125be5.txt": (3, 3, 2, 3, "filter fifo full"),
    f"{ANYA}/sesdadrc.txt": (6, 6, 2, 6, "filter fifo full"),
    f"{CANOXA}/config.txt": (2, 6, 1, 1, "flooding none full"),
    f"{CANOXA}/config1.txt": (6, 6, 2, 2, "filter fifo full"),
    f"{CANOXA}/config2.txt": (3, 3, 2, 2, "filter fifo full"),
    f"{CANOXA}/example.txt": (6, 6, 6, 6, "filter fifo full"),
    f"{MIGUEL}/master.config": (3, 9, 2, 2, "filter fifo full"),
    f"{PEDRO}/config.txt": (4, 12, 2, 2, "filter fifo full"),
    f"{PEDRO}/config11@21c29abf.txt": (4, 4, 1, 4, "flooding fifo light"),
    f"{PEDRO}/config2@f38e81f8.txt": (3, 3, 1, 3, "filter none full"),
    f"{PEDRO}/config@0ed02c12.txt": (5, 5, 3, 4, "filter fifo full"),
    f"{PEDRO}/config@36a6c358.txt": (4, 12, 2, 2, "filter pairwise full"),
    f"{STRABOX}/ConfigReplics.txt": (4, 8, 2, 2, "flooding none full"),
    f"{STRABOX}/Configuration2.txt": (4, 4, 2, 5, "filter fifo full"),
    f"{STRABOX}/Configuration2@092db4b3.txt": (4, 4, 2, 5, "flooding fifo full"),
    f"{STRABOX}/ConfigurationOP@092db4b3.txt": (12, 12, 3, 5, "filter none full"),
    f"{STRABOX}/ProfessorConfig1.txt": (2, 4, 1, 1, "flooding none full"),
    f"{STRABOX}/QuidditchConfig.txt": (4, 4, 3, 2, "filter pairwise full"),
    f"{STRABOX}/QuidditchConfigRep.txt": (4, 8, 3, 2, "flooding pairwise full"),
    f"{TEACHER}/T1-config.txt": (2, 2, 1, 1, "flooding none full"),
    f"{TEACHER}/T2-config.txt": (3, 3, 2, 2, "filter fifo full"),
}

# Commands, counted likewise; not those that are disabled.
SCRIPTS: Final = {
    f"{ANDRE}/Script.txt": 13,
    f"{ANDRE}/Script@32b28ca4.txt": 24,
    f"{ANDRE}/Script@a1125be5.txt": 10,
    f"{ANYA}/sesdadrc.txt": 12,
    f"{CANOXA}/script.txt": 6,
    f"{CANOXA}/script1.txt": 7,
    f"{CANOXA}/script2.txt": 14,
    f"{MIGUEL}/script.txt": 12,
    f"{PEDRO}/script.txt": 8,
    f"{PEDRO}/script@0ed02c12.txt": 11,
    f"{PEDRO}/script@36a6c358.txt": 12,
    f"{STRABOX_SCRIPTS}/ProfessorScript1.txt": 9,
    f"{STRABOX_SCRIPTS}/Quidditch.txt": 17,
    f"{STRABOX_SCRIPTS}/Script1.txt": 10,
    f"{STRABOX_SCRIPTS}/Script1@092db4b3.txt": 18,
    f"{STRABOX_SCRIPTS}/Script2.txt": 6,
    f"{TEACHER}/T1-commands.txt": 7,
    f"{TEACHER}/T2-commands.txt": 14,
}


def configuration_in(name: str) -> Configuration:
    return parse_configuration(load(str(CORPUS / name)), name)


def test_every_file_is_accounted_for() -> None:
    files = {str(path.relative_to(CORPUS)) for path in CORPUS.glob("*/**/*") if path.is_file()}

    assert files == CONFIGURATIONS.keys() | SCRIPTS.keys()
    assert len(files) == 40


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_real_configuration_says_what_it_says(name: str) -> None:
    configuration = configuration_in(name)
    overlay = configuration.overlay
    policies = (
        f"{configuration.routing_policy} {configuration.ordering} {configuration.logging_level}"
    )

    assert CONFIGURATIONS[name] == (
        len(overlay.sites),
        len(overlay.brokers) + len(overlay.standbys),
        len(overlay.publishers),
        len(overlay.subscribers),
        policies,
    )
    assert configuration.urls.keys() == set(overlay.processes)
    assert parse_configuration(format_configuration(configuration), "x") == configuration


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_real_script_says_what_it_says(name: str) -> None:
    script = parse_script(load(str(CORPUS / name)), name)

    assert len(script.commands) == SCRIPTS[name]
    assert parse_script(format_script(script), "x") == script


@pytest.mark.parametrize("pair", PAIRS)
def test_a_real_pair_can_be_run(pair: tuple[str, str]) -> None:
    paths = [str(CORPUS / name) for name in pair]
    configuration, script = read_run(*paths)
    notices = configuration.warnings + script.warnings

    assert len(script.commands) == SCRIPTS[pair[1]]
    assert [f"{notice.kind} {notice.at.line}:{notice.at.column}" for notice in notices] == PAIRS[
        pair
    ]


def test_sites_have_the_parents_that_are_written_there() -> None:
    overlay = configuration_in(f"{STRABOX}/ConfigurationOP@092db4b3.txt").overlay

    assert {site.name: site.parent for site in overlay.sites} == {
        "site0": None,
        **dict.fromkeys(("site1", "site2"), "site0"),
        "site3": "site2",
        **dict.fromkeys(("site4", "site5", "site6"), "site3"),
        **dict.fromkeys(("site7", "site8"), "site1"),
        **dict.fromkeys(("site9", "site11"), "site8"),
        "site10": "site9",
    }


def test_the_first_broker_of_a_site_is_in_charge_and_the_others_stand_by() -> None:
    overlay = configuration_in(f"{MIGUEL}/master.config").overlay

    assert overlay.brokers == ("broker0", "broker3", "broker6")
    assert overlay.site_of("broker3").standbys == ("broker4", "broker5")
    assert overlay.broker_of("subscriber1") == "broker3"
