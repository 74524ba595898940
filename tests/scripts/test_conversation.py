"""What the prompt of `plait up` completes."""

import pytest

from scripts.conversation import completions
from topologies.overlay import Overlay, Site

OVERLAY = Overlay(
    (Site("here", None, ("b1", "b2"), publishers=("nyse", "lse"), subscribers=("alice", "Ann")),)
)


@pytest.mark.parametrize(
    ("before", "beginning", "words"),
    [
        ("", "sub", ["Subscriber"]),
        ("", "he", ["help"]),
        ("subscriber", "a", ["alice", "Ann"]),
        ("Publisher", "", ["nyse", "lse"]),
        ("Crash", "", ["b1", "b2", "nyse", "lse", "alice", "Ann"]),
        ("Await", "", ["stable"]),
        ("Wait", "", []),
        ("Subscriber alice", "", ["Subscribe", "Unsubscribe"]),
        ("Publisher nyse", "a", ["Advertise"]),
        ("Publisher nyse Publish 3", "on", ["Ontopic"]),
        ("Status now then", "", []),
    ],
)
def test_a_word_is_completed_by_what_makes_sense_there(
    before: str, beginning: str, words: list[str]
) -> None:
    assert completions(OVERLAY, before.split(), beginning) == words
