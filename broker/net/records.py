"""The history of a broker that runs: others depend on it, and so no full disk ends it."""

from pathlib import Path
from typing import Any, Final

from plait.broker.effects import Level
from plait.broker.net.logs import Log, Trouble
from plait.faulttol.history import HistoryWriter

SIZE_TOLD_BYTES: Final = 64 << 20
"""The log tells each time that a history has grown by so much: whoever connects adds to it."""


class BrokerHistory:
    """Writes what it can; the rest is lost and counted, and the file has a gap that says so."""

    def __init__(self, directory: Path, run: str, node: str, incarnation: int, log: Log) -> None:
        """Begin the first life; `OSError` if not even that is possible."""
        self._directory, self._run, self._node = directory, run, node
        self._log = log
        self._writer: HistoryWriter | None = HistoryWriter(directory, run, node, incarnation)
        self.trouble = Trouble("history", str(self._writer.path), log)
        self._size_to_tell = SIZE_TOLD_BYTES
        self._has_unflushed = False

    @property
    def size(self) -> int:
        """Bytes written in this life."""
        return self._writer.size if self._writer is not None else 0

    def begin_again(self, incarnation: int) -> None:
        """Begin the next life, in a file of its own; if there can be none, all of it is lost."""
        self.close()
        self._size_to_tell = SIZE_TOLD_BYTES
        try:
            self._writer = HistoryWriter(self._directory, self._run, self._node, incarnation)
            self.trouble.file = str(self._writer.path)
        except OSError as error:
            self._writer = None
            self.trouble.file = str(error.filename)
            self.trouble.begin(error.strerror or str(error), lost=0)

    def write(self, at: float, kind: str, **fields: Any) -> None:
        """Append one record. The fields have to be exactly those of its kind."""
        if self._writer is None:
            self.trouble.begin("there is no file")
            return
        try:
            self._has_unflushed = True
            self._writer.write(at, kind, **fields)
        except OSError as error:
            self._give_up(self._writer, error)

    def flush(self) -> None:
        """Give what there is to the operating system."""
        if self._writer is None or not self._has_unflushed:
            return
        self._has_unflushed = False
        try:
            self._writer.flush()
        except OSError as error:
            self._give_up(self._writer, error)
            return
        self.trouble.end()
        if self.size >= self._size_to_tell:
            self._size_to_tell += SIZE_TOLD_BYTES
            fields = {"file": str(self._writer.path), "bytes": self.size}
            self._log(Level.WARNING, "history has grown", fields)

    def close(self) -> None:
        """Flush, and write no more."""
        self.flush()
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                self._give_up(self._writer, error)

    def _give_up(self, writer: HistoryWriter, error: OSError) -> None:
        self.trouble.begin(error.strerror or str(error), lost=writer.give_up_pending())
