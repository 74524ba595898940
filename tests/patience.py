"""How long tests wait for what is bound to come: limits are for hangs, and nothing else.

A test whose verdict depends on how fast the machine is says something about the machine. So there
is one limit, long enough for a machine that is ten times slower than ours and busy; a test that
passes never waits for it. `PLAIT_TEST_PATIENCE` is another one, in seconds.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Final

PATIENCE_S: Final = float(os.environ.get("PLAIT_TEST_PATIENCE", "600"))
POLL_S: Final = 0.02


def attempts(what: str) -> Iterator[None]:
    """Yield again and again, with a pause between, until patience ends: then `what` never came."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_S)
    raise AssertionError(f"waited for {PATIENCE_S:g} s in vain: {what}")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as a condition holds."""
    for _ in attempts(what):
        if condition():
            return
