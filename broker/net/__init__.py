"""The node on TCP, with trio: the broker as a program, and the client library.

For applications::

    from broker.net import connect
"""

from broker.client.states import ClientState
from broker.effects import Delivery
from broker.errors import (
    BrokerError,
    ClosedError,
    NotAdvertisedError,
    NoTopicError,
    RefusedError,
    UnconfirmedError,
)
from broker.net.broker_process import BrokerAddresses, BrokerSettings, serve_broker
from broker.net.client import Advertisement, Client, Receipt, connect
from broker.net.subscription import Subscription
from routing.errors import ContentError, FilterSyntaxError

__all__ = [
    "Advertisement",
    "BrokerAddresses",
    "BrokerError",
    "BrokerSettings",
    "Client",
    "ClientState",
    "ClosedError",
    "ContentError",
    "Delivery",
    "FilterSyntaxError",
    "NoTopicError",
    "NotAdvertisedError",
    "Receipt",
    "RefusedError",
    "Subscription",
    "UnconfirmedError",
    "connect",
    "serve_broker",
]
