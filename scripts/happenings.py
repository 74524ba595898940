"""What happens while an overlay is launched and a script runs: told to whoever wants to show it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from scripts.status_reports import StatusReport, Unreachable


@attrs.frozen
class BrokersStarted:
    """So many processes have been started, all at once."""

    count: int


@attrs.frozen
class BrokerReady:
    """A broker's process has joined the overlay; `parent` is empty for the root."""

    broker: str
    pid: int
    address: str
    parent: str


@attrs.frozen
class ClientConnected:
    """A publisher or subscriber has been welcomed."""

    client: str
    broker: str


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
class Stable:
    """Nothing is in flight: every publication so far is confirmed, every delivery taken."""

    publications: int
    deliveries: int


@attrs.frozen
class StatusTaken:
    """Every broker has said how it is."""

    reports: Sequence[StatusReport | Unreachable]


@attrs.frozen
class BrokersStopped:
    """All brokers have ended."""

    count: int


Happening = (
    BrokersStarted
    | BrokerReady
    | ClientConnected
    | Advertised
    | Subscribed
    | Unsubscribed
    | Published
    | Delivered
    | Stable
    | StatusTaken
    | BrokersStopped
)
Tell = Callable[[Happening], None]
