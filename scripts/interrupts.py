"""Ctrl-C where Python by itself would print a traceback: while it imports, and while it ends.

In between it is a KeyboardInterrupt, as everywhere. This module imports next to nothing: it is the
first thing that the command does.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""The exit code that shells give to whoever SIGINT has ended."""

STANDARD_ERROR: Final = 2
SOON_S: Final = 0.01
"""When the finalizer that swallowed an interrupt has ended."""


def end_at_once_when_interrupted() -> None:
    """From now on Ctrl-C ends this process with a word and the exit code, wherever it is."""
    signal.signal(signal.SIGINT, _end_at_once)
    sys.unraisablehook = _raise_again


@contextlib.contextmanager
def interrupts_raised() -> Iterator[None]:
    """Within the block Ctrl-C raises KeyboardInterrupt, so that what runs can clean up."""
    if signal.getsignal(signal.SIGINT) is not _end_at_once:
        yield  # this is not our process, but a test's
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end_at_once)


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(STANDARD_ERROR, b"plait: interrupted\n")
    os._exit(INTERRUPTED)


def _raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """A finalizer cannot be interrupted: let whatever runs after it be."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(SOON_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)
