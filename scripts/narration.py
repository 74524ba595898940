"""Tells people what happens, while it happens: line by line, or as one line that keeps changing."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import click

from plait.broker.event_lines import describe
from plait.scripts.happenings import (
    Advertised,
    BrokerLost,
    BrokerReady,
    BrokersStarted,
    BrokersStopped,
    ClientConnected,
    ClientLost,
    Crashed,
    Delivered,
    Detected,
    Detecting,
    Frozen,
    Happening,
    PassedOver,
    Published,
    Recovered,
    Stable,
    StatusTaken,
    Subscribed,
    Unfrozen,
    Unsettled,
    Unsubscribed,
)
from plait.scripts.status_reports import in_words
from plait.scripts.terminal import redraw_line
from plait.topologies.script import format_command

LINES_PER_SECOND: Final = 6
"""Of publications, and as many of deliveries: more than that nobody reads."""
REDRAWS_PER_SECOND: Final = 10
COLOURS: Final[Mapping[str, str]] = {
    "ready": "blue",
    "advertised": "magenta",
    "subscribed": "cyan",
    "unsubscribed": "cyan",
    "published": "yellow",
    "received": "green",
    "crashed": "red",
    "recovered": "blue",
    "frozen": "red",
    "goes on": "blue",
    "lost": "red",
}


Clock = Callable[[], float]
"""Seconds since the run began, real or virtual."""


@attrs.define
class _Sampler:
    """Takes `LINES_PER_SECOND`, and as many at once after a pause."""

    _left: float = LINES_PER_SECOND
    _refilled_at: float = 0.0

    def takes(self, now: float) -> bool:
        earned = (now - self._refilled_at) * LINES_PER_SECOND
        self._left = min(self._left + earned, LINES_PER_SECOND)
        self._refilled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Narrator:
    """Prints a line for what happens; of publications and deliveries, which are many, a sample."""

    def __init__(self, clock: Clock, print_line: Callable[[str], None] = click.echo) -> None:
        self._clock = clock
        self._print_line = print_line
        self._samplers = {verb: _Sampler() for verb in ("published", "received", "found")}
        self._passed_over = 0

    def __call__(self, happening: Happening) -> None:
        """Take notice."""
        match happening:
            case BrokersStarted(count):
                self._say("launcher", "starts", f"{count} brokers, each a process of its own")
            case BrokerReady(broker, pid, address, parent):
                place = _place_below(parent)
                self._say(broker, "ready", f"{place}, listens on {address}, process {pid}")
            case ClientConnected(client, broker):
                self._say(client, "connected", f"to {broker}")
            case Advertised(publisher, filter):
                self._say(publisher, "advertised", filter)
            case Subscribed(subscriber, filter):
                self._say(subscriber, "subscribed", filter)
            case Unsubscribed(subscriber, filter):
                self._say(subscriber, "unsubscribed", filter)
            case Published(publisher, seq, content):
                self._sample(publisher, "published", f"#{seq} {describe(content)}")
            case Delivered(subscriber, publisher, seq, content):
                self._sample(subscriber, "received", f"{publisher}#{seq} {describe(content)}")
            case Detecting(subscriber, pattern):
                self._say(subscriber, "looks for", pattern)
            case Detected(subscriber):
                self._sample(subscriber, "found", str(happening))
            case Crashed(process):
                self._say(process, "crashed", "killed")
            case Recovered(process):
                self._say(process, "recovered", "started again")
            case Frozen(process):
                self._say(process, "frozen", "does nothing for now")
            case Unfrozen(process):
                self._say(process, "goes on", "with what has arrived")
            case BrokerLost(process, reason) | ClientLost(process, reason):
                self._say(process, "lost", reason)
            case PassedOver(command, reason):
                self._say("script", "passes over", f"{format_command(command)}: {reason}")
            case Unsettled(waiting):
                self._say("everyone", "not stable", f"and nothing more happens: {waiting}")
            case Stable(publications, deliveries):
                counts = f"{publications} publications and {deliveries} deliveries"
                not_shown = f" ({self._passed_over} of them not shown)" if self._passed_over else ""
                self._say("everyone", "stable", f"after {counts}{not_shown}")
            case StatusTaken(reports):
                for report in reports:
                    self._say(*in_words(report))
            case BrokersStopped(count):
                self._say("everyone", "stopped", f"{count} brokers have ended, nothing is left")

    def _sample(self, who: str, verb: str, what: str) -> None:
        if self._samplers[verb].takes(self._clock()):
            self._say(who, verb, what)
        else:
            self._passed_over += 1

    def _say(self, who: str, verb: str, what: str) -> None:
        seconds = f"{self._clock():7.2f} s"
        coloured = click.style(f"{verb:12}", fg=COLOURS.get(verb, "white"))
        self._print_line(f"{click.style(seconds, dim=True)}  {who:12}  {coloured}  {what}")


def _place_below(parent: str | None) -> str:
    if parent is None:
        return "joined whoever is left"
    return f"joined at {parent}" if parent else "the root"


class Progress:
    """Keeps one line of counts up to date on a terminal.

    Anywhere, it prints on standard error what a script asks for, and what of it is not executed.
    """

    def __init__(self, clock: Clock) -> None:
        self._counts: Counter[str] = Counter()
        self._drawn_at = 0.0

    def __call__(self, happening: Happening) -> None:
        """Take notice."""
        match happening:
            case BrokerReady():
                self._counts["brokers ready"] += 1
            case ClientConnected():
                self._counts["clients"] += 1
            case Subscribed():
                self._counts["subscriptions"] += 1
            case Published():
                self._counts["published"] += 1
            case Delivered():
                self._counts["delivered"] += 1
            case Detected():
                self._counts["matches"] += 1
            case PassedOver(command, reason):
                _print(f"not executed: {format_command(command)}: {reason}")
            case StatusTaken(reports):
                for report in reports:
                    who, state, what = in_words(report)
                    _print(f"{who:12}  {state:12}  {what}")
        is_last = isinstance(happening, BrokersStopped)
        if is_last or time.monotonic() - self._drawn_at > 1 / REDRAWS_PER_SECOND:
            self._drawn_at = time.monotonic()
            line = ", ".join(f"{count} {what}" for what, count in self._counts.items())
            redraw_line("" if is_last else line)


def _print(line: str) -> None:
    """Print a line where a line of counts may stand."""
    redraw_line("")
    click.echo(line, err=True)
