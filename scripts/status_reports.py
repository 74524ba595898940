"""What brokers say about themselves, or that they say nothing."""

from typing import Any

import attrs

StatusReport = dict[str, Any]
"""What `BrokerCore.status` returns."""


@attrs.frozen
class Unreachable:
    """A broker that some neighbour knows, and that does not answer."""

    name: str
    address: str
    reason: str
