"""The node on TCP, with trio: the broker as a program, and the client library.

Applications import from `plait` itself what they need::

    from plait import connect
"""

from plait.broker.client.patience import Patience
from plait.broker.client.states import ClientState
from plait.broker.effects import Delivery, Match
from plait.broker.errors import (
    BrokerError,
    ClosedError,
    NotAdvertisedError,
    NoTopicError,
    RefusedError,
    UnconfirmedError,
)
from plait.broker.net.broker_process import BrokerAddresses, BrokerSettings, serve_broker
from plait.broker.net.client import Advertisement, Client, Receipt, connect
from plait.broker.net.credentials import Credentials
from plait.broker.net.subscription import Matches, Subscription
from plait.routing.errors import ContentError, FilterSyntaxError

__all__ = [
    "Advertisement",
    "BrokerAddresses",
    "BrokerError",
    "BrokerSettings",
    "Client",
    "ClientState",
    "ClosedError",
    "ContentError",
    "Credentials",
    "Delivery",
    "FilterSyntaxError",
    "Match",
    "Matches",
    "NoTopicError",
    "NotAdvertisedError",
    "Patience",
    "Receipt",
    "RefusedError",
    "Subscription",
    "UnconfirmedError",
    "connect",
    "serve_broker",
]
