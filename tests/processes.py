"""Processes of a test: none of them outlives it, whatever becomes of the test."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.patience import PATIENCE_S

PLAIT: Final = (sys.executable, "-P", "-m", "plait")
"""The command, run by the Python that runs the tests."""


@contextlib.contextmanager
def started(command: Sequence[object], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run a command beside the test, and no longer than the block; its output is text."""
    with subprocess.Popen([*map(str, command)], text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(
    command: Sequence[object], *, stdin: str = "", **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, and keep what it says."""
    return subprocess.run(
        [*map(str, command)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **options,
    )
