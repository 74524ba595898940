"""What can go wrong in this package, apart from the weather."""

from plait.errors import PlaitError


class FaultToleranceError(PlaitError):
    """Root of everything this package raises on purpose."""


class HistoryError(FaultToleranceError, ValueError):
    """Something that does not belong in a history was written to one, or found in one."""
