"""Starts the processes of a trial, other than brokers, and leaves none behind.

As with brokers (`scripts/launcher.py`), each holds the other end of a pipe to this process, and
the kernel ends it with this process if need be.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import trio

from plait.scripts.bench.members import Part
from plait.scripts.errors import EnvironmentFailedError

READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 5.0
POLL_INTERVAL_S: Final = 0.01
LOG_CHARS_SHOWN: Final = 2000


class Member:
    """One process, from its start to its burial."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._log_path = Path(part.folder, f"{part.name}.log")
        with self._log_path.open("wb") as log:
            # Not with trio's help, for the reason given in scripts/launcher.py.
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "plait.scripts.bench.members"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{part.to_json()}\n".encode())
        self._popen.stdin.flush()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def check(self) -> None:
        """Raise `EnvironmentFailedError` if it has failed."""
        if self._popen.poll():
            raise EnvironmentFailedError(
                f"{self.part.name} ended with exit code {self._popen.returncode}:\n"
                f"{self._log_path.read_text(errors='replace')[-LOG_CHARS_SHOWN:]}"
            )

    async def wait_ready(self) -> dict[str, str]:
        """Wait until it is ready; return where it is to be found."""
        assert self._popen.stdout is not None
        said = b""
        async with trio.lowlevel.FdStream(os.dup(self._popen.stdout.fileno())) as output:
            while not said.endswith(b"\n"):
                chunk = await output.receive_some()
                if not chunk:
                    self._popen.wait(STOP_TIMEOUT_S)
                    self.check()
                    raise EnvironmentFailedError(f"{self.part.name} ended before it was ready")
                said += chunk
        addresses: dict[str, str] = json.loads(said)
        return addresses

    def dismiss(self) -> None:
        """Tell it to end."""
        self._popen.terminate()

    def bury(self) -> None:
        """Make sure that it is dead, and leave no zombie and no open pipe."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()


class Crew:
    """The processes that were started together with this one trial."""

    def __init__(self) -> None:
        self._members: list[Member] = []

    @property
    def pids(self) -> list[int]:
        """All process ids."""
        return [member.pid for member in self._members]

    async def hire(self, parts: Sequence[Part]) -> list[dict[str, str]]:
        """Start processes, wait until all are ready, and return what they said."""
        hired = [Member(part) for part in parts]
        self._members += hired
        try:
            with trio.fail_after(READY_TIMEOUT_S):
                return [await member.wait_ready() for member in hired]
        except trio.TooSlowError:
            names = ", ".join(member.part.name for member in hired)
            raise EnvironmentFailedError(
                f"not all ready after {READY_TIMEOUT_S:.0f} s: {names}"
            ) from None

    def check(self) -> None:
        """Raise `EnvironmentFailedError` if a process has failed."""
        for member in self._members:
            member.check()

    async def dismiss(self) -> None:
        """Tell all to end, and wait until they have; who does not listen is ended."""
        for member in self._members:
            member.dismiss()
        with trio.move_on_after(STOP_TIMEOUT_S):
            while any(member.is_running for member in self._members):  # noqa: ASYNC110
                await trio.sleep(POLL_INTERVAL_S)

    def bury(self) -> None:
        """Leave nothing of them."""
        for member in self._members:
            member.bury()


@contextlib.asynccontextmanager
async def open_crew() -> AsyncIterator[Crew]:
    """Be able to hire processes within the block; none outlives it."""
    crew = Crew()
    try:
        yield crew
        await crew.dismiss()
    finally:
        crew.bury()
