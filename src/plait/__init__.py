"""Content-based publish/subscribe that agrees on an order: what programs import.

    from plait import connect

Everything in `__all__` is promised to stay; the packages below (`plait.broker`, `plait.routing`,
...) may be imported, and change without notice. They are the folders of those names, reached by
symbolic links. A name is imported when it is first used: `plait --help` needs no network.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.broker.client.patience import Patience
    from plait.broker.client.states import ClientState
    from plait.broker.effects import Delivery, Match
    from plait.broker.errors import (
        ClosedError,
        NotAdvertisedError,
        NoTopicError,
        RefusedError,
        UnconfirmedError,
    )
    from plait.broker.net.client import Advertisement, Client, Receipt, connect
    from plait.broker.net.credentials import Credentials
    from plait.broker.net.subscription import Matches, Subscription
    from plait.errors import PlaitError
    from plait.routing.errors import (
        ContentError,
        FilterSyntaxError,
        PatternError,
        PatternSyntaxError,
    )

_HOMES = {
    "Advertisement": "plait.broker.net.client",
    "Client": "plait.broker.net.client",
    "ClientState": "plait.broker.client.states",
    "ClosedError": "plait.broker.errors",
    "ContentError": "plait.routing.errors",
    "Credentials": "plait.broker.net.credentials",
    "Delivery": "plait.broker.effects",
    "FilterSyntaxError": "plait.routing.errors",
    "Match": "plait.broker.effects",
    "Matches": "plait.broker.net.subscription",
    "NoTopicError": "plait.broker.errors",
    "NotAdvertisedError": "plait.broker.errors",
    "Patience": "plait.broker.client.patience",
    "PatternError": "plait.routing.errors",
    "PatternSyntaxError": "plait.routing.errors",
    "PlaitError": "plait.errors",
    "Receipt": "plait.broker.net.client",
    "RefusedError": "plait.broker.errors",
    "Subscription": "plait.broker.net.subscription",
    "UnconfirmedError": "plait.broker.errors",
    "connect": "plait.broker.net.client",
}

__all__ = [
    "Advertisement",
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
    "PatternError",
    "PatternSyntaxError",
    "PlaitError",
    "Receipt",
    "RefusedError",
    "Subscription",
    "UnconfirmedError",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
