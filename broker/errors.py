"""What can go wrong in a node, and whose fault it is."""

from plait.errors import PlaitError


class BrokerError(PlaitError):
    """Root of everything raised by a node."""


class RemoteProtocolError(BrokerError):
    """The other side broke a rule: its link is closed with this text as the reason."""


class LocalProtocolError(BrokerError):
    """This side was about to send what its peers refuse: a mistake of ours, and nothing is sent."""


class NotAdvertisedError(BrokerError, ValueError):
    """A publication lies outside what its publisher has advertised."""


class NoTopicError(BrokerError, ValueError):
    """A publication has no topic, in an overlay that orders by topics."""


class RefusedError(BrokerError):
    """A broker refused an operation. `code` is one of `broker.messages.RefusalCode`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code
        self.reason = reason


class ClosedError(BrokerError):
    """The client is closed, by its user or because its broker is gone for good."""


class UnconfirmedError(BrokerError):
    """A publication is not, or not yet, known to have reached everybody who was owed it."""


class AddressError(BrokerError, ValueError):
    """Not an address that can be listened at or dialled."""


class BadNameError(BrokerError, ValueError):
    """Not what a node may be called."""


class ListenError(BrokerError, OSError):
    """The operating system does not let this node listen, such as at a port that is taken."""


class StateError(BrokerError, ValueError):
    """The file that a broker keeps across its restarts is not what it wrote."""


class UnusableFileError(BrokerError, OSError):
    """A file that a broker was told to use cannot be used; another one may be."""


class IncompleteHistoryError(BrokerError):
    """A broker has served to its end, but not all that it recorded could be written."""


class GaveUpError(BrokerError):
    """A broker cannot go on without a person, such as one that its join point refused."""
