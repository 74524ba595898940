"""docs/protocol.md names every message, who says it to whom, and nothing else."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

import attrs

from plait.broker.access.admission import SAID_INSIDE, SAID_OUTSIDE
from plait.broker.client import states as client_states
from plait.broker.host.link_states import LEGAL, LinkState
from plait.broker.messages import (
    MESSAGE_TYPES,
    Attach,
    AttachTables,
    Hello,
    Revoke,
    StatusReply,
)

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")

ATTACHED: Final = frozenset({Attach, AttachTables})


@attrs.frozen
class Row:
    """One message, as the page has it."""

    number: int
    senders: frozenset[str]
    receivers: frozenset[str]


def table() -> dict[str, Row]:
    """Return what the tables of the page say, by the name of the message."""
    pattern = r"^\| (\d+) \| `(\w+)` \| ([a-z, ]+) \| ([a-z, ]+) \| [^|]+ \| [^|]+ \|$"
    found = re.findall(pattern, PAGE, re.MULTILINE)
    assert len({name for _, name, _, _ in found}) == len(found), "a message stands there twice"
    return {
        name: Row(int(number), frozenset(senders.split(", ")), frozenset(receivers.split(", ")))
        for number, name, senders, receivers in found
    }


def names(*types: Collection[type]) -> set[str]:
    """Return the names of all these."""
    return {each.__name__ for some in types for each in some}


def test_the_page_has_every_message_and_no_other() -> None:
    at_doors = SAID_OUTSIDE | SAID_INSIDE
    spoken = names(*LEGAL.values(), *client_states.LEGAL.values(), [StatusReply], at_doors)

    assert table().keys() == spoken


def test_messages_have_their_numbers() -> None:
    numbers = {each.__name__: number for number, each in MESSAGE_TYPES.items()}

    assert {name: row.number for name, row in table().items()} == {
        name: numbers[name] for name in table()
    }


def test_clients_and_monitors_say_and_hear_what_the_page_says() -> None:
    rows = table()

    assert {n for n, row in rows.items() if "client" in row.senders} == names(
        [Hello], LEGAL[LinkState.TO_CLIENT], ATTACHED, SAID_OUTSIDE
    )
    assert {n for n, row in rows.items() if "client" in row.receivers} == names(
        *client_states.LEGAL.values(), SAID_INSIDE
    )
    assert {n for n, row in rows.items() if "monitor" in row.senders} == names(
        [Hello], LEGAL[LinkState.TO_MONITOR], SAID_OUTSIDE
    )


def test_brokers_and_hosts_say_what_the_page_says() -> None:
    rows = table()
    between_hosts = LEGAL[LinkState.TO_HOST] | LEGAL[LinkState.AWAITING_WELCOME]
    between_brokers = LEGAL[LinkState.TO_BROKER] | ATTACHED
    at_doors = SAID_OUTSIDE | SAID_INSIDE
    of_hosts = {n for n, row in rows.items() if "host" in row.senders}
    of_brokers = {n for n, row in rows.items() if "broker" in row.senders}

    assert of_hosts >= names(between_hosts)
    assert of_hosts | of_brokers >= names(between_brokers)
    assert of_hosts | of_brokers <= names(
        between_hosts, between_brokers, at_doors, [Hello, StatusReply, Revoke]
    )


def test_links_lead_somewhere_and_to_every_transcript() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    missing = [link for link in links if not (ROOT / "docs" / link).exists()]
    golden = {path.name for path in (ROOT / "tests" / "golden").glob("*.txt")}

    assert missing == []
    assert golden <= {Path(link).name for link in links}
