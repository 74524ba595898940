"""The names that travel: who is who in the overlay. Every package shares these types."""

from typing import NewType

NodeId = NewType("NodeId", str)
"""A broker or a client; unique in its overlay."""

SubscriptionId = NewType("SubscriptionId", str)
"""A subscription, unique in the overlay: its client's id, a slash, a number."""

AdvertisementId = NewType("AdvertisementId", str)
"""An advertisement, unique in the overlay: its client's id, a slash, a number."""

OperationId = NewType("OperationId", str)
"""One join, leave, (un)advertise or (un)subscribe, from its call to its confirmation."""
