"""Where a node writes what may be lost: its log, and the lines of `events.log`.

Nothing that happens to them ends a node, or holds it up: what a full disk, a closed pipe or a pipe
that nobody reads does not take at once is lost, and counted by whoever wrote it.
"""

import os
import select
import stat
from pathlib import Path
from typing import Final, Self

PIPE_BYTES: Final = select.PIPE_BUF
"""A pipe that can be written to takes so much without making anybody wait."""

STANDARD_ERROR: Final = 2


class Outlet:
    """Takes lines, each of them whole or not at all; never raises and never waits."""

    def __init__(self, descriptor: int) -> None:
        """Write to what is open already, which others may share; it stays open."""
        self._descriptor = descriptor
        self._is_torn = False
        """Whether the last line could be written in part only."""
        self.reason = ""
        """Why the last line that was lost was lost."""
        # To set O_NONBLOCK would set it for everybody who shares this.
        self._poll = None if self._is_regular() else select.poll()
        if self._poll is not None:
            self._poll.register(descriptor, select.POLLOUT)

    @classmethod
    def append_to(cls, path: Path) -> Self:
        """Open a file; a pipe has to have a reader."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        return cls(os.open(path, flags, 0o666))

    def write(self, lines: str) -> bool:
        """Take lines; whether all of them were taken. Between two calls nobody else's come."""
        data = lines.encode(errors="backslashreplace")
        if self._is_torn:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += self._write_at_once(data[written:])
        except OSError as error:
            self.reason = error.strerror or str(error)
            self._is_torn = bool(written) or self._is_torn
            return False
        self._is_torn = False
        return True

    def _write_at_once(self, data: bytes) -> int:
        if self._poll is None:
            return os.write(self._descriptor, data)
        if not self._poll.poll(0):
            raise BlockingIOError("nobody reads it")
        return os.write(self._descriptor, data[:PIPE_BYTES])

    def _is_regular(self) -> bool:
        try:
            return stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        except OSError:
            return False  # closed; every line will say so

    def isatty(self) -> bool:
        """Whether a person watches."""
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close it, if it was opened here."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
