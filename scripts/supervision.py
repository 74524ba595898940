"""The broker's end of a launcher: where to join, and not to outlive whoever started it.

A launcher holds the other end of the broker's standard input. The first line on it is the join
point, `host:port`, or empty for the root; the launcher learns it only while the broker is still
busy importing. Then nothing more comes until the end of the file, and that means: stop. The
kernel closes a pipe with its last owner, so it says so however the launcher ended.

A broker that is stopped (`kill -STOP`, how the launcher freezes one) reads no pipe. On Linux the
kernel itself kills the child of a parent that died, stopped or not.
"""

import ctypes
import os
import signal
import sys
import threading
from typing import Final

STDIN: Final = 0
PR_SET_PDEATHSIG: Final = 1


def accept_supervision() -> str:
    """Tie this process to its launcher, and return the join point it names; empty for the root."""
    _die_with_parent()
    join_point = _read_line()
    threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()
    return join_point


def _die_with_parent() -> None:
    # A parent that died before this call goes unnoticed here, and is noticed by the pipe.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_line() -> str:
    """Read byte by byte: a buffer would be locked by the thread when the interpreter ends."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(STDIN, 1)
        if not byte:
            raise SystemExit(0)  # the launcher gave up before it came to us
        line += byte
    return line.decode().strip()


def _stop_at_end_of_stdin() -> None:
    while os.read(STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
