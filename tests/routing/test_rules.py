"""What rules say about requests: never yes wrongly, whatever the filters."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.errors import RulesError
from plait.routing.filter_text import parse_filter
from plait.routing.filters import Filter
from plait.routing.rules import Quantity, Right, Rule, Rules, Who
from plait.routing.rules_text import is_rules, read_rules
from plait.routing.values import Content
from tests.routing.strategies import contents, filters, thorough

SUBSCRIBE, PUBLISH, OPERATE = Right.SUBSCRIBE, Right.PUBLISH, Right.OPERATE


def rule(number: int, filter_: Filter, *, is_allow: bool, who: Who) -> Rule:
    return Rule(
        line=number,
        text=filter_.sql,
        is_allow=is_allow,
        who=who,
        right=SUBSCRIBE,
        filter=filter_,
    )


whos = st.sampled_from([Who(frozenset(["alice"])), Who(patterns=("*",)), Who(patterns=("b*",))])
rule_lists = st.lists(st.tuples(filters, st.booleans(), whos), max_size=5).map(
    lambda rows: [
        rule(number, filter_, is_allow=is_allow, who=who)
        for number, (filter_, is_allow, who) in enumerate(rows, 1)
    ]
)


def decided(rules: str, principal: str, right: Right, asked: str) -> bool:
    return read_rules(rules).decide(principal, right, parse_filter(asked)).is_allowed


class TestSafety:
    @thorough
    @given(rules=rule_lists, asked=filters, content=contents)
    def test_whatever_is_allowed_matches_what_may_pass_and_nothing_denied(
        self, rules: list[Rule], asked: Filter, content: Content
    ) -> None:
        allowed = Rules(rules).decide("alice", SUBSCRIBE, asked).is_allowed
        meant = [r for r in rules if r.who.includes("alice") and r.filter.matches(content)]

        if allowed and asked.matches(content):
            assert any(r.is_allow for r in meant)
            assert all(r.is_allow for r in meant)

    @thorough
    @given(rules=rule_lists, asked=filters)
    def test_that_few_rules_are_looked_at_changes_no_decision(
        self, rules: list[Rule], asked: Filter
    ) -> None:
        meant = [r for r in rules if r.who.includes("alice")]
        denying = [r for r in meant if not r.is_allow and r.filter.overlaps(asked)]
        allowing = [r for r in meant if r.is_allow and r.filter.covers(asked)]
        expected = next(iter(denying or allowing), None)

        decision = Rules(rules).decide("alice", SUBSCRIBE, asked)

        assert decision.rule is expected
        assert decision.is_allowed == (not denying and bool(allowing))

    def test_what_no_rule_is_about_is_denied(self) -> None:
        assert not decided("allow alice publish", "alice", SUBSCRIBE, "a = 1")
        assert not decided("", "alice", SUBSCRIBE, "a = 1")

    def test_a_deny_counts_wherever_it_stands(self) -> None:
        rules = "deny * subscribe market = 'LSE'\nallow alice subscribe"

        assert not decided(rules, "alice", SUBSCRIBE, "market IN ('LSE', 'NYSE')")
        assert not decided(rules, "alice", SUBSCRIBE, "price > 3")
        assert decided(rules, "alice", SUBSCRIBE, "market = 'NYSE'")

    def test_a_request_that_matches_nothing_harms_nobody(self) -> None:
        assert decided("allow alice subscribe a = 1", "alice", SUBSCRIBE, "FALSE")
        assert not decided("allow bob subscribe a = 1", "alice", SUBSCRIBE, "FALSE")


class TestPrincipals:
    @pytest.mark.parametrize(
        ("who", "principal", "is_meant"),
        [
            ("alice", "alice", True),
            ("alice", "alice2", False),
            ("*", "anybody at all", True),
            ("sensor-*", "sensor-17", True),
            ("sensor-*", "other-sensor-17", False),
            ("*.example", "www.example", True),
            ("*.example", "wwwxexample", False),
            ('"two words"', "two words", True),
            ("@ops", "olga", True),
            ("@ops", "helper-3", True),
            ("@ops", "ops", False),
        ],
    )
    def test_who_is_meant(self, who: str, principal: str, is_meant: bool) -> None:
        text = f"group ops olga @helpers\nallow {who} subscribe\ngroup helpers helper-*"

        assert decided(text, principal, SUBSCRIBE, "a = 1") is is_meant

    def test_the_name_of_whoever_asks_may_be_in_a_filter(self) -> None:
        rules = "allow sensor-* publish topic LIKE '/sensors/{principal}/%'"

        assert decided(rules, "sensor-1", PUBLISH, "topic = '/sensors/sensor-1/heat'")
        assert not decided(rules, "sensor-1", PUBLISH, "topic = '/sensors/sensor-2/heat'")

    @pytest.mark.parametrize("name", ["sensor-%", "sensor-_", "sensor-' OR TRUE OR a = '"])
    def test_a_name_is_never_read_as_a_filter(self, name: str) -> None:
        rules = "allow sensor-* publish topic LIKE '/sensors/{principal}/%'"

        assert not decided(rules, name, PUBLISH, "topic = '/sensors/sensor-1/heat'")
        assert not decided(rules, name, PUBLISH, "topic = '/sensors/sensor-x/heat'")


class TestExplanations:
    def test_the_rule_that_decides_is_named_with_its_line(self) -> None:
        rules = read_rules("# nobody\ndeny mallory subscribe\nallow * subscribe a = 1\n")
        asked = parse_filter("a = 1")

        assert str(rules.explain("mallory", SUBSCRIBE, asked).rule) == (
            "line 2: deny mallory subscribe"
        )
        assert rules.explain("alice", SUBSCRIBE, asked).rule is rules.rules[1]

    def test_rules_that_allow_only_a_part_are_named(self) -> None:
        rules = read_rules("allow * subscribe a = 1\nallow * subscribe a = 2\n")

        decision = rules.explain("alice", SUBSCRIBE, parse_filter("a IN (1, 2)"))

        assert not decision.is_allowed
        assert [each.line for each in decision.in_part] == [1, 2]

    def test_monitoring_and_operating_are_about_brokers(self) -> None:
        rules = read_rules(
            "allow olga operate broker LIKE 'eu-%'\nallow olga operate broker = 'us-1'\n"
            "deny * operate broker = 'eu-9'\n"
        )

        decisions = [
            rules.decide_about("olga", OPERATE, {"broker": name}).is_allowed
            for name in ("eu-1", "us-1", "us-2", "eu-9")
        ]

        assert decisions == [True, True, False, False]
        assert not rules.decide_about("peter", OPERATE, {"broker": "eu-1"}).is_allowed


class TestReading:
    def test_limits_are_those_of_the_last_line_about_somebody(self) -> None:
        rules = read_rules(
            "limit * connections 10\nlimit * bytes 5000\nlimit relay-* connections 100\n"
        )

        assert rules.quotas_of("alice") == {Quantity.CONNECTIONS: 10, Quantity.BYTES: 5000}
        assert rules.quotas_of("relay-1")[Quantity.CONNECTIONS] == 100

    def test_all_problems_are_found_at_once_with_their_places(self) -> None:
        text = (
            "alow x publish\n"
            "allow\n"
            "allow x pub\n"
            "allow @y subscribe\n"
            "allow x subscribe a = = 3\n"
            "limit x conections 3\n"
            "limit x connections -3\n"
            "limit x connections 3 4\n"
            "group a @a\n"
            "group b @c\n"
            "group a z\n"
        )

        with pytest.raises(RulesError) as error:
            read_rules(text)

        places = [(problem.line, problem.column) for problem in error.value.problems]
        assert places == [
            *((1, 0), (2, 5), (2, 5), (3, 8), (4, 6), (5, 22), (6, 8), (7, 20), (8, 22)),
            *((9, 8), (10, 8), (11, 6)),
        ]

    def test_groups_in_a_circle_are_their_members_together(self) -> None:
        rules = read_rules("group a x @b\ngroup b y @a\nallow @a subscribe\n")

        assert rules.rules[0].who.names == {"x", "y"}

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("# rules\n\n  allow alice subscribe\n", True),
            ("limit * connections 3", True),
            ("broker b1\n", False),
            ("", False),
        ],
    )
    def test_such_a_file_is_known_by_its_first_word(self, text: str, expected: bool) -> None:
        assert is_rules(text) is expected

    @given(st.text(max_size=200) | st.text("allowdeny grup*@'=#\n\"", max_size=80))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        with contextlib.suppress(RulesError):
            read_rules(text)
