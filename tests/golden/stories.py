"""The stories that transcripts tell: each a small world, in which something happens."""

import inspect
from collections.abc import Callable
from typing import Final

from tests.golden.transcript import Transcript
from tests.host.worlds import LINK_DELAY_S, TIMEOUT_S, Client, Lively

STORIES: Final[dict[str, Callable[[Transcript], Lively]]] = {}


def story(tell: Callable[[Transcript], Lively]) -> Callable[[Transcript], Lively]:
    """Enter a story into the table."""
    STORIES[tell.__name__] = tell
    return tell


def _line_of_three(transcript: Transcript, *, delta: int = 1) -> tuple[Lively, Client, Client]:
    """Three brokers a - b - c, with a publisher p at a and a subscriber s at c."""
    overlay = transcript.overlay(delta=delta)
    overlay.brokers("a", b="a", c="b")
    publisher, subscriber = overlay.client("p", "a"), overlay.client("s", "c")
    publisher.advertises("x > 0")
    overlay.passes(0.5)
    subscriber.subscribes("x > 0")
    overlay.passes(0.5)
    return overlay, publisher, subscriber


@story
def subscribe(transcript: Transcript) -> Lively:
    """A publisher and a subscriber join, something is published, and the subscriber leaves.

    Brokers a - b - c; p is a client of a, s one of c.
    """
    overlay = transcript.overlay()
    overlay.brokers("a", b="a", c="b")
    transcript.tell("p joins at a: all other brokers are asked whether they object to its name")
    publisher = overlay.client("p", "a")
    transcript.tell("p advertises, which every broker hears")
    publisher.advertises("x > 0")
    overlay.passes(0.5)
    transcript.tell("s joins at c")
    subscriber = overlay.client("s", "c")
    transcript.tell("s subscribes, which brokers hear on the way to what it can match")
    subscription = subscriber.subscribes("x > 5")
    overlay.passes(0.5)
    transcript.tell("p publishes something for s, and something that nobody wants")
    publisher.publishes(x=7)
    publisher.publishes(x=3)
    overlay.passes(0.5)
    transcript.tell("s unsubscribes, and leaves")
    subscriber.unsubscribes(subscription)
    overlay.passes(0.5)
    subscriber.leaves()
    overlay.passes(0.5)
    return overlay


@story
def conflict(transcript: Transcript) -> Lively:
    """Two publications meet, and two subscribers get them in the same order (`pairwise`).

    Brokers a - b; p publishes at a and q at b; s subscribes at a and t at b.
    """
    overlay = transcript.overlay()
    overlay.brokers("a", b="a")
    above, below = overlay.client("p", "a"), overlay.client("q", "b")
    one, other = overlay.client("s", "a"), overlay.client("t", "b")
    for publisher in (above, below):
        publisher.advertises("TRUE")
    overlay.passes(0.5)
    for subscriber in (one, other):
        subscriber.subscribes("TRUE")
    overlay.passes(0.5)
    transcript.tell("p publishes at a, q at b: s and t want both")
    above.publishes(x=1)
    below.publishes(x=2)
    overlay.passes(0.5)
    return overlay


@story
def crash(transcript: Transcript) -> Lively:
    """A broker fails while publications are under way, and is taken up by the host of its parent.

    Brokers a - b - c; p publishes at a, s subscribes at c.
    """
    overlay, publisher, _ = _line_of_three(transcript)
    transcript.tell("p publishes twice")
    publisher.publishes(x=1)
    overlay.passes(LINK_DELAY_S / 2)
    publisher.publishes(x=2)
    overlay.passes(1.9 * LINK_DELAY_S)
    transcript.tell("b is killed; a does not know yet, nor does c")
    overlay.crashes("b")
    overlay.passes(1.0)
    return overlay


@story
def coordinator_fails(transcript: Transcript) -> Lively:
    """The host that takes a broker up fails before it has done so: the region is larger now.

    Brokers d - a - b - c, a is the root; p publishes at d, s subscribes at c; δ = 2.
    """
    overlay = transcript.overlay(delta=2)
    overlay.brokers("a", b="a", c="b", d="a")
    publisher, subscriber = overlay.client("p", "d"), overlay.client("s", "c")
    publisher.advertises("x > 0")
    overlay.passes(0.5)
    subscriber.subscribes("x > 0")
    overlay.passes(0.5)
    transcript.tell("p publishes, and b is killed")
    publisher.publishes(x=1)
    overlay.crashes("b")
    overlay.passes(5.5 * LINK_DELAY_S)
    transcript.tell("a, which takes b up, is killed while c says what it has of b")
    overlay.crashes("a")
    overlay.passes(1.5)
    return overlay


@story
def two_in_a_row(transcript: Transcript) -> Lively:
    """Two brokers that hang together fail at once: one region, rebuilt as a whole.

    Brokers a - b - c - d; p publishes at a, s subscribes at d; δ = 2.
    """
    overlay = transcript.overlay(delta=2)
    overlay.brokers("a", b="a", c="b", d="c")
    publisher, subscriber = overlay.client("p", "a"), overlay.client("s", "d")
    publisher.advertises("x > 0")
    overlay.passes(0.5)
    subscriber.subscribes("x > 0")
    overlay.passes(0.5)
    transcript.tell("p publishes")
    publisher.publishes(x=1)
    overlay.passes(2.5 * LINK_DELAY_S)
    transcript.tell("b and c are killed; b had taken p:1 and passed it on")
    overlay.crashes("b")
    overlay.crashes("c")
    overlay.passes(1.5)
    return overlay


@story
def host_with_two_brokers_fails(transcript: Transcript) -> Lively:
    """A host fails that plays two brokers: both are taken up elsewhere.

    Brokers a - b - c, a and b on the host a; p publishes at a, s subscribes at c.
    """
    overlay, publisher, _ = _line_of_three(transcript)
    overlay.crashes("b")
    overlay.passes(1.0)
    transcript.tell("b was killed before, and a plays it; now p publishes")
    publisher.publishes(x=1)
    overlay.passes(1.5 * LINK_DELAY_S)
    transcript.tell("a is killed")
    overlay.crashes("a")
    overlay.passes(1.0)
    return overlay


@story
def frozen(transcript: Transcript) -> Lively:
    """A host stands still for longer than the heartbeat timeout, and goes on when it is replaced.

    Brokers a - b - c; p publishes at a, s subscribes at c. Heartbeats come every second; who is
    silent for four is visited, and taken for failed if most others have not heard it either.
    """
    overlay, publisher, _ = _line_of_three(transcript)
    transcript.tell("b is stopped (SIGSTOP); p publishes")
    overlay.freezes("b")
    publisher.publishes(x=1)
    overlay.passes(2 * TIMEOUT_S)
    transcript.tell("b goes on, and hears what came meanwhile")
    overlay.goes_on("b")
    overlay.passes(2.0)
    return overlay


@story
def comes_back(transcript: Transcript) -> Lively:
    """A host that was killed is started again, and is given its broker back.

    Brokers a - b - c; p publishes at a, s subscribes at c.
    """
    overlay, publisher, _ = _line_of_three(transcript)
    overlay.crashes("b")
    overlay.passes(1.0)
    transcript.tell("b was killed, and a plays it; now the host b is started again; p publishes")
    overlay.restarts("b")
    publisher.publishes(x=1)
    overlay.passes(2.0)
    return overlay


@story
def standby(transcript: Transcript) -> Lively:
    """A broker fails for which a host stands by.

    Brokers a - b - c; p publishes at a, s subscribes at c.
    """
    overlay, publisher, _ = _line_of_three(transcript)
    transcript.tell("the host x is started, to stand by for b")
    overlay.standby("x", "b")
    transcript.tell("p publishes, and b is killed")
    publisher.publishes(x=1)
    overlay.crashes("b")
    overlay.passes(1.0)
    return overlay


@story
def beyond_delta(transcript: Transcript) -> Lively:
    """Two brokers that hang together fail at once where one may: what is lost has a name.

    Brokers a - b - c - d; p publishes at a, s subscribes at d; δ = 1.
    """
    overlay = transcript.overlay()
    overlay.brokers("a", b="a", c="b", d="c")
    publisher, subscriber = overlay.client("p", "a"), overlay.client("s", "d")
    publisher.advertises("x > 0")
    overlay.passes(0.5)
    subscriber.subscribes("x > 0")
    overlay.passes(0.5)
    transcript.tell("p publishes three times")
    for x in (1, 2, 3):
        publisher.publishes(x=x)
        overlay.passes(LINK_DELAY_S)
    overlay.passes(1.1 * LINK_DELAY_S)
    transcript.tell("b and c are killed: d has p:1, and nobody who lives knows what b took")
    overlay.crashes("b")
    overlay.crashes("c")
    overlay.passes(3.0)
    transcript.tell("p publishes once more")
    publisher.publishes(x=4)
    overlay.passes(1.0)
    return overlay


def told(name: str) -> tuple[str, list[str]]:
    """Return the transcript of a story, and what has gone wrong in it."""
    tell = STORIES[name]
    transcript = Transcript()
    overlay = tell(transcript)
    assert tell.__doc__ is not None
    return transcript.text(inspect.cleandoc(tell.__doc__)), overlay.troubles()
