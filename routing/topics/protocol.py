"""What topic managers, their coordinator and subscribers tell each other, and want done.

Every machine of this package takes one message at a time and returns effects: it has no clock, no
connection and no randomness. Messages between two of them arrive in the order in which they were
sent; publications with their stamps arrive in any order.
"""

from collections.abc import Hashable, Mapping
from typing import Final, NewType

import attrs

from plait.routing.ids import NodeId

Topic = NewType("Topic", str)
"""The value of a publication's attribute `topic`."""

Numbers = Mapping[Topic, int]
"""Numbers of publications, by topic: a clock, or the entries of a stamp."""

Label = Hashable
"""What identifies a publication."""


@attrs.frozen
class ManagerOf:
    """Where the manager of a topic is."""

    topic: Topic


@attrs.frozen
class Coordinator:
    """Where the manager of the special topic is, which nobody publishes on."""


COORDINATOR: Final = Coordinator()
Address = ManagerOf | Coordinator | NodeId
"""Of publishers and subscribers, their names."""


@attrs.frozen(kw_only=True)
class Stamp:
    """Where a publication belongs: its number on its topic, and behind which of other topics."""

    entries: Numbers
    epoch: int = 0
    """How often the order of topics had changed."""


# --- messages -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Create:
    """A publisher asks the manager of its topic for a stamp (CREATE_PUB_TS)."""

    label: Label
    publisher: NodeId


@attrs.frozen(kw_only=True)
class Fill:
    """A manager passes a stamp on to the next one that has an entry in it (FILL_IN_PUB_TS)."""

    label: Label
    publisher: NodeId
    topic: Topic
    stamp: Stamp
    path: tuple[Topic, ...]
    """Whom it has still to visit."""
    order: tuple[Topic, ...] = ()
    """The order of topics in the stamp's epoch."""
    passes: str = ""
    """The highest topic on the way so far in whose place its own should be; empty if in none's."""


@attrs.frozen(kw_only=True)
class Stamped:
    """The last manager tells the publisher the stamp (EVENT_TS)."""

    label: Label
    topic: Topic
    stamp: Stamp


@attrs.frozen(kw_only=True)
class FillSubscription:
    """A subscriber's new set of topics, on its way from lowest to highest (FILL_IN_SUB_TS)."""

    subscriber: NodeId
    topics: frozenset[Topic]
    added: Topic
    stamp: Stamp
    path: tuple[Topic, ...]
    version: int = 0
    order: tuple[Topic, ...] = ()
    clock: Numbers = attrs.field(factory=dict)
    """The subscriber's, if managers are to know it."""


@attrs.frozen(kw_only=True)
class Completed:
    """The highest manager tells the subscriber what all have written (COMPLETED_SUB_VC)."""

    added: Topic
    stamp: Stamp


@attrs.frozen(kw_only=True)
class Renew:
    """The order of topics has changed: the subscriber begins its request again."""

    epoch: int
    order: tuple[Topic, ...]


@attrs.frozen(kw_only=True)
class UpdateSubscription:
    """What a subscriber still has that has left a topic; nothing, for the manager of that."""

    subscriber: NodeId
    topics: frozenset[Topic]
    version: int = 0
    clock: Numbers = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class WantSwap:
    """A manager wants two topics to change places."""

    one: Topic
    other: Topic


@attrs.frozen(kw_only=True)
class Swap:
    """The new order, on its way from the lowest manager to the highest."""

    epoch: int
    order: tuple[Topic, ...]
    path: tuple[Topic, ...]


# --- effects --------------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """Send a message."""

    to: Address
    message: object


@attrs.frozen
class Follow:
    """The subscriber is to get what is published on this topic from now on."""

    topic: Topic


@attrs.frozen
class Unfollow:
    """And not any more."""

    topic: Topic


@attrs.frozen
class Announce:
    """Publish, on a topic, that this subscriber's clock has moved (subscriptionUpdate)."""

    topic: Topic
    stamp: Stamp


@attrs.frozen
class Notify:
    """Hand a publication to the application."""

    label: Label
    in_order: bool = True


@attrs.frozen
class Subscribed:
    """The application's request to subscribe is done."""

    topic: Topic


@attrs.frozen
class Appoint:
    """A topic that nobody has subscribed to before is to have a manager."""

    topic: Topic


Effect = Appoint | Send | Follow | Unfollow | Announce | Notify | Subscribed


def raised(clock: Numbers, entries: Numbers) -> dict[Topic, int]:
    """Return the larger of both, entry by entry."""
    both = dict(clock)
    for topic, number in entries.items():
        both[topic] = max(number, both.get(topic, 0))
    return both
