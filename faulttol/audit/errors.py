"""What can go wrong in the audit, apart from the histories."""

from plait.faulttol.errors import FaultToleranceError


class SparkUnavailableError(FaultToleranceError):
    """Spark cannot be started here; the message says in one sentence what is missing."""


class UnsuitableHistoryError(FaultToleranceError):
    """The history is not of the simple kind that columns can be judged by; the judge can read it.

    Either it is not sound, or a subscription changed its meaning on the way.
    """
