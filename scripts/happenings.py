"""What happens while an overlay is launched and a script runs: told to whoever wants to show it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from plait.broker.effects import Match
from plait.scripts.status_reports import Report
from plait.topologies.script import Command


@attrs.frozen
class BrokersStarted:
    """So many processes have been started, all at once."""

    count: int


@attrs.frozen
class BrokerReady:
    """A broker's process has joined the overlay."""

    broker: str
    pid: int
    address: str
    parent: str | None
    """Empty for the root; `None` for one that was started again, and is wherever it was let in."""


@attrs.frozen
class ClientConnected:
    """A publisher or subscriber has been welcomed."""

    client: str
    broker: str


@attrs.frozen
class CommandBegun:
    """A command of the script is going to be executed."""

    command: Command


@attrs.frozen
class PassedOver:
    """A command is not executed, because it cannot be."""

    command: Command
    reason: str


@attrs.frozen
class Advertised:
    """An advertisement is confirmed."""

    publisher: str
    filter: str


@attrs.frozen
class Subscribed:
    """A subscription is confirmed."""

    subscriber: str
    filter: str


@attrs.frozen
class Unsubscribed:
    """A subscription has ended."""

    subscriber: str
    filter: str


@attrs.frozen
class Detecting:
    """A detector has begun."""

    subscriber: str
    pattern: str


@attrs.frozen
class Detected:
    """A detector has found something."""

    subscriber: str
    pattern: str
    publications: Sequence[str]
    is_certain: bool

    def __str__(self) -> str:
        """Say what it is, in one line."""
        doubt = "" if self.is_certain else ", not certain"
        return f"{self.pattern}: {' '.join(self.publications)}{doubt}"


@attrs.frozen
class Published:
    """A publication has been handed over."""

    publisher: str
    seq: int
    content: Mapping[str, Any]


@attrs.frozen
class Delivered:
    """A publication has been given to a subscriber."""

    subscriber: str
    publisher: str
    seq: int
    content: Mapping[str, Any]


@attrs.frozen
class Crashed:
    """A process has been killed."""

    process: str


@attrs.frozen
class Recovered:
    """A process that had crashed has been started again."""

    process: str


@attrs.frozen
class Frozen:
    """A process has been stopped in its tracks."""

    process: str


@attrs.frozen
class Unfrozen:
    """A frozen process goes on."""

    process: str


@attrs.frozen
class BrokerLost:
    """A broker has ended by itself, after another one had crashed."""

    broker: str
    reason: str


@attrs.frozen
class ClientLost:
    """A client has lost the overlay for good."""

    client: str
    reason: str


@attrs.frozen
class Stable:
    """Nothing is in flight: every publication so far is confirmed, every delivery taken."""

    publications: int
    deliveries: int


@attrs.frozen
class Unsettled:
    """After faults nothing more happens, and yet not everything is confirmed."""

    waiting: str
    """What is waited for in vain, in words."""


@attrs.frozen
class StatusTaken:
    """Every broker and every client has said how it is."""

    reports: Sequence[Report]


@attrs.frozen
class BrokersStopped:
    """All brokers have ended."""

    count: int


Happening = (
    BrokersStarted
    | BrokerReady
    | ClientConnected
    | CommandBegun
    | PassedOver
    | Advertised
    | Subscribed
    | Unsubscribed
    | Detecting
    | Detected
    | Published
    | Delivered
    | Crashed
    | Recovered
    | Frozen
    | Unfrozen
    | BrokerLost
    | ClientLost
    | Stable
    | Unsettled
    | StatusTaken
    | BrokersStopped
)
Tell = Callable[[Happening], None]


def detected(subscriber: str, match: Match) -> Detected:
    """Say what a detector has found."""
    names = [f"{event.publisher}#{event.seq}" for event in match.events]
    return Detected(subscriber, match.pattern, names, match.certain)
