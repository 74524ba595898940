"""What can go wrong at a door for clients of other protocols."""

from plait.errors import PlaitError


class GatewayProtocolError(PlaitError):
    """A client broke its protocol: this text is the reason, and its connection ends.

    After that there is no telling where its next frame would begin.
    """
