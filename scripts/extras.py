"""What is installed on request only: `pip install 'plait[EXTRA]'`."""

import contextlib
from collections.abc import Iterator

from plait.scripts.errors import EnvironmentFailedError


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """Say which extra to install if a library that is imported in here is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "a library").partition(".")[0]
        raise EnvironmentFailedError(
            f"{library} is not installed, and this command needs it: pip install 'plait[{extra}]'"
        ) from error
