"""The names that travel: who is who in the overlay. Every package shares these types."""

from typing import NewType

NodeId = NewType("NodeId", str)
"""A broker or a client; unique in its overlay."""

SubscriptionId = NewType("SubscriptionId", str)
"""A subscription, unique in the overlay: its client's id, a slash, a number."""

AdvertisementId = NewType("AdvertisementId", str)
"""An advertisement, unique in the overlay: its client's id, a slash, a number."""

OperationId = NewType("OperationId", str)
"""One join, leave, (un)advertise or (un)subscribe, from its call to its confirmation: the id of
the node that began it, a number sign, the incarnation of that and a number."""


def owner_of(name: SubscriptionId | AdvertisementId) -> NodeId:
    """The client to which a subscription or an advertisement belongs, read off its id.

    Nobody else can have the same id, so that nobody's request touches what another one has.
    """
    return NodeId(name.rpartition("/")[0])


def asker_of(operation: OperationId) -> NodeId:
    """The node that began an operation, read off its id."""
    return NodeId(operation.rpartition("#")[0])
