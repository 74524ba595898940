"""`plait can`, and `plait check` of a file of rules."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.scripts.main import cli
from tests.processes import PLAIT, finished, started

RULES = """\
# Who may do what.
group traders alice bob
allow @traders subscribe market = 'NYSE'
allow @traders subscribe market = 'LSE'
deny bob subscribe
allow olga operate broker = 'b2'
limit * connections 10
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "plait.rules"
    path.write_text(RULES)
    return path


def plait(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def can(rules: Path, *arguments: str) -> str:
    result = plait("can", "--rules", str(rules), *arguments)
    assert result.exit_code == 0
    return result.output.replace(str(rules), "RULES")


def test_what_is_allowed_is_said_with_its_line(rules: Path) -> None:
    assert can(rules, "alice", "subscribe", "market = 'NYSE' AND price > 3") == (
        "yes, by RULES:3: allow @traders subscribe market = 'NYSE'\n"
    )
    assert (
        can(rules, "olga", "operate", "b2") == "yes, by RULES:6: allow olga operate broker = 'b2'\n"
    )


def test_what_is_denied_is_said_with_its_line(rules: Path) -> None:
    assert (
        can(rules, "bob", "subscribe", "market = 'NYSE'") == "no, by RULES:5: deny bob subscribe\n"
    )


def test_what_is_allowed_in_part_is_said_to_be(rules: Path) -> None:
    assert can(rules, "alice", "subscribe") == (
        "no, as no rule allows it\n"
        "  a part of it is allowed by RULES:3: allow @traders subscribe market = 'NYSE'\n"
        "  a part of it is allowed by RULES:4: allow @traders subscribe market = 'LSE'\n"
    )
    assert can(rules, "olga", "operate", "b3") == "no, as no rule allows it\n"


def test_programs_get_the_same(rules: Path) -> None:
    found = json.loads(can(rules, "bob", "subscribe", "--json"))

    assert found == {
        "allowed": False,
        "rule": {"line": 5, "text": "deny bob subscribe"},
        "in_part": [],
    }


def test_a_filter_that_cannot_be_read_is_bad_input(rules: Path) -> None:
    result = plait("can", "--rules", str(rules), "alice", "subscribe", "market ==")

    assert result.exit_code == 2


def test_check_counts_what_is_there(rules: Path) -> None:
    result = plait("check", str(rules))

    assert (result.exit_code, result.output) == (0, "fine: 4 rules, 1 limit\n")


def test_check_finds_all_problems_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "bad.rules"
    path.write_text("allow alice subscribe a = = 3\nalow bob publish\nlimit * conections 3\n")

    result = plait("check", str(path))

    assert result.exit_code == 2
    assert result.output == (
        f"{path}:1:27: found '=', expected an attribute, a value or (\n"
        f"{path}:2:1: found 'alow', expected allow, deny, group or limit (did you mean 'allow'?)\n"
        f"{path}:3:9: found 'conections', expected connections, subscriptions, matching, "
        "publications, bytes, unconfirmed (did you mean 'connections'?)\n"
    )


def test_check_warns_of_what_is_hardly_meant(tmp_path: Path) -> None:
    path = tmp_path / "odd.rules"
    path.write_text("allow alice subscribe name = nobody\n")

    result = plait("check", str(path))

    assert result.exit_code == 0
    assert f"warning: {path}:1: " in result.output


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    result = plait("can", "--rules", str(tmp_path / "none"), "alice", "subscribe")

    assert result.exit_code == 2


def test_a_broker_is_not_started_with_rules_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "bad.rules"
    path.write_text("alow bob publish\n")

    result = plait("broker", "--name", "b1", "--rules", str(path))

    assert result.exit_code == 2
    assert f"{path}:1:1: found 'alow'" in result.output


@pytest.mark.processes
def test_a_broker_goes_by_its_rules_and_reads_them_again_at_sighup(tmp_path: Path) -> None:
    path = tmp_path / "plait.rules"
    path.write_text("allow * publish x < 10\n")
    with started(
        [*PLAIT, "broker", "--name", "b1", "--rules", path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        address = json.loads(broker.stdout.readline())["address"]

        def publish() -> int:
            return finished([*PLAIT, "pub", "--broker", address, "x=50"]).returncode

        assert publish() != 0
        path.write_text("allow * publish\n")
        broker.send_signal(signal.SIGHUP)
        assert any('"event": "rules"' in line for line in broker.stderr)
        assert publish() == 0
        path.write_text("alow * publish\n")
        broker.send_signal(signal.SIGHUP)
        assert any("rules not read" in line for line in broker.stderr)
        assert publish() == 0
