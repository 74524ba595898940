"""What a node may be called."""

import pytest

from plait.broker.limits import DEFAULT_LIMITS, INCARNATION_MAX
from plait.broker.node_names import expected_broker_name, expected_name
from plait.faulttol.history import file_name


@pytest.mark.parametrize("name", ["b1", "b 1", "frankfurt-2", "größe", "..x", "x" * 200, "a/b"])
def test_what_people_call_nodes_is_a_name(name: str) -> None:
    assert expected_name(name, DEFAULT_LIMITS) == ""
    assert expected_broker_name(name, DEFAULT_LIMITS) == ""


@pytest.mark.parametrize(
    "name", ["", "a\nb", "\x1b[2J", "\x00", "\udcff", "\u200b", ".", "..", "x" * 256]
)
def test_what_cannot_be_printed_or_told_from_something_else_is_none(name: str) -> None:
    assert expected_name(name, DEFAULT_LIMITS)
    assert expected_broker_name(name, DEFAULT_LIMITS) == expected_name(name, DEFAULT_LIMITS)


@pytest.mark.parametrize("letter", ["x", "ä", "嗨", "%"])
def test_a_broker_has_a_name_for_which_there_can_be_files(letter: str) -> None:
    longest = max(n for n in range(255) if not expected_broker_name(letter * n, DEFAULT_LIMITS))

    assert len(file_name(letter * longest, INCARNATION_MAX).encode()) <= 255
    assert len(file_name(letter * (longest + 1), INCARNATION_MAX).encode()) > 255
    assert not expected_name(letter * 255, DEFAULT_LIMITS)
