"""Why somebody is not let in; each text says what there is to be done."""

from plait.broker.errors import BrokerError


class NotAdmittedError(BrokerError):
    """Somebody has not shown who it is, at one end of a connection or at the other."""


class ScramError(NotAdmittedError):
    """A conversation about a password has failed."""


class TokenError(NotAdmittedError):
    """A token is not valid, or not any more."""
