"""Ends process groups when the process that started it has ended, however that came about.

plait's own processes notice for themselves that they are left alone. Other people's do not, and
some are started by shell scripts, so that no signal of the kernel's would reach them. Somebody has
to stay behind for that: `python -m plait.scripts.bench.guardian`, a process that reads process
group ids, one per line. At the end of its input it kills those groups; at the word `dismissed` it
just ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

_DISMISSED: Final = "dismissed"


class Guardian:
    """This process's end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "plait.scripts.bench.guardian"],
            stdin=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def watch_over(self, group: int) -> None:
        """See to it that a process group ends with this process at the latest."""
        assert self._process.stdin is not None
        print(group, file=self._process.stdin, flush=True)

    def dismiss(self) -> None:
        """Everything has been ended properly."""
        self._process.communicate(_DISMISSED)


@contextlib.contextmanager
def open_guardian() -> Iterator[Guardian]:
    """Have somebody who stays behind, should this process not come to the end of the block."""
    guardian = Guardian()
    try:
        yield guardian
    finally:
        guardian.dismiss()


def _guard() -> None:
    groups = []
    for line in sys.stdin:
        if line.strip() == _DISMISSED:
            return
        groups.append(int(line))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
