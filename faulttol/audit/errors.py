"""What can go wrong in the audit, apart from the histories."""

from faulttol.errors import FaultToleranceError


class SparkUnavailableError(FaultToleranceError):
    """Spark cannot be started here; the message says in one sentence what is missing."""
