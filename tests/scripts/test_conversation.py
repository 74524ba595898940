"""What the prompt of `plait up` completes."""

import signal

import pytest
import trio

from plait.scripts.console import CTRL_C, Console
from plait.scripts.conversation import _read_line, completions
from plait.topologies.overlay import Overlay, Site

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
        ("Subscriber alice", "", ["Subscribe", "Unsubscribe", "Detect"]),
        ("Publisher nyse", "a", ["Advertise"]),
        ("Publisher nyse Publish 3", "on", ["Ontopic"]),
        ("Status now then", "", []),
    ],
)
def test_a_word_is_completed_by_what_makes_sense_there(
    before: str, beginning: str, words: list[str]
) -> None:
    assert completions(OVERLAY, before.split(), beginning) == words


async def test_ctrl_c_is_not_lost_between_a_line_and_what_it_asks_for() -> None:
    class JustTyped(Console):
        async def read_line(self) -> str | None:
            signal.raise_signal(signal.SIGINT)
            # The line is there before anybody is cancelled, and the signal has been noticed then:
            # with two checkpoints it had not in one of four runs.
            with trio.CancelScope(shield=True):
                for _ in range(10):
                    await trio.lowlevel.checkpoint()
            return "Wait 3600000"

    with trio.open_signal_receiver(signal.SIGINT) as signals:
        line = await _read_line(JustTyped(), signals)

    assert line == f"Wait 3600000{CTRL_C}"
