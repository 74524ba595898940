"""What a broker writes while it runs: nothing that happens to a file or a disk ends it then.

What cannot be opened at the start is refused: somebody is there to read that, and nobody depends on
the broker yet. From then on, whatever cannot be written is dropped and counted, and the log tells
when that begins and when it is over, once each. ARCHITECTURE.md has the table.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from plait.broker.errors import IncompleteHistoryError, UnusableFileError
from plait.broker.net.logs import LogWriter, Trouble
from plait.broker.net.memory import Keeper, Memory
from plait.broker.net.outlets import Outlet
from plait.broker.net.records import BrokerHistory
from plait.faulttol.files import is_mistake, make_folder


@attrs.frozen(kw_only=True)
class Written:
    """How writing has gone so far."""

    lost: dict[str, int]
    """Lines that could not be written, by where they belonged."""
    history_bytes: int
    is_state_kept: bool
    """Whether what is on the disk is what should be."""


class BrokerFiles:
    """The log, the state, the events and the history of one broker, through all its lives."""

    def __init__(
        self,
        log: LogWriter,
        keeper: Keeper,
        *,
        events: "EventLines | None" = None,
        history: BrokerHistory | None = None,
    ) -> None:
        self.log = log
        self.keeper = keeper
        self.events = events
        self.history = history

    async def begin_again(self, memory: Memory) -> None:
        """Begin the next life."""
        await self.keeper.begin_again(memory)
        if self.history is not None:
            self.history.begin_again(memory.incarnation)

    def written(self) -> Written:
        """Return how it has gone."""
        lost = {
            "log": self.log.lost,
            "events": self.events.trouble.lost if self.events is not None else 0,
            "history": self.history.trouble.lost if self.history is not None else 0,
        }
        history_bytes = self.history.size if self.history is not None else 0
        is_state_kept = not self.keeper.trouble.is_on
        return Written(lost=lost, history_bytes=history_bytes, is_state_kept=is_state_kept)

    def raise_if_incomplete(self) -> None:
        """Say at the end that a history must not be relied on."""
        if self.history is not None and self.history.trouble.lost:
            trouble = self.history.trouble
            raise IncompleteHistoryError(
                f"{trouble.file}: the history is incomplete, {trouble.lost} records could not be "
                "written: an audit of this run proves nothing"
            )


class EventLines:
    """Appends to an `events.log` what can be appended."""

    def __init__(self, path: Path, outlet: Outlet, log: LogWriter) -> None:
        self._outlet = outlet
        self.trouble = Trouble("events", str(path), log)

    def write(self, lines: str) -> None:
        """Append lines."""
        if self._outlet.write(lines):
            self.trouble.end()
        else:
            self.trouble.begin(self._outlet.reason, lost=lines.count("\n"))


@contextlib.contextmanager
def refusing_mistakes() -> Iterator[None]:
    """Tell a path that cannot be used from a machine that has failed."""
    try:
        yield
    except OSError as error:
        if not is_mistake(error):
            raise
        raise UnusableFileError(f"{error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def open_broker_files(
    node: str,
    memory: Memory,
    log: LogWriter,
    *,
    state: Path | None,
    events: Path | None,
    run_directory: Path | None,
    run: str,
) -> Iterator[BrokerFiles]:
    """Open what a broker is to write to; in its first life it is as its memory has it."""
    with contextlib.ExitStack() as stack:
        files = BrokerFiles(log, Keeper(state, log))
        with refusing_mistakes():
            if run_directory is not None:
                files.history = BrokerHistory(run_directory, run, node, memory.incarnation, log)
                stack.callback(files.history.close)
            if events is not None:
                # Others append to the same file, and what is one line has to stay one.
                make_folder(events.parent)
                outlet = stack.enter_context(Outlet.append_to(events))
                files.events = EventLines(events, outlet, log)
            if state is not None:
                memory.write(state)
        yield files
