"""Counters that all processes of a trial see at once: 64-bit words in a mapped file.

Every word has one writer. What need not be seen at once, such as ten thousand latencies, is not
here: each process keeps it, and writes it to a file at its end.
"""

import mmap
import time
from pathlib import Path
from typing import Final, Self

_WORD_BYTES: Final = 8
_CLOCK_WORDS: Final = 2

now_ns: Final = time.monotonic_ns
"""The clock of a trial. It is one for the whole machine, so stamps can be compared."""


class Board:
    """Who has sent and received how much; and from when to when the trial takes place."""

    def __init__(self, path: Path, *, publishers: int, subscribers: int) -> None:
        """Look at a board that exists."""
        with path.open("r+b") as file:
            words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self._clock, rest = words[:_CLOCK_WORDS], words[_CLOCK_WORDS:]
        self.sent, rest = rest[:publishers], rest[publishers:]
        """By each publisher."""
        self.has_finished, rest = rest[:publishers], rest[publishers:]
        """Whether a publisher has come to its end."""
        self.received = [
            rest[publishers * subscriber : publishers * (subscriber + 1)]
            for subscriber in range(subscribers)
        ]
        """By each subscriber, from each publisher."""

    @classmethod
    def create(cls, path: Path, *, publishers: int, subscribers: int) -> Self:
        """Make a board, all zeros."""
        words = _CLOCK_WORDS + publishers * (2 + subscribers)
        path.write_bytes(bytes(_WORD_BYTES * words))
        return cls(path, publishers=publishers, subscribers=subscribers)

    def begin(self, starts_at: int, ends_at: int) -> None:
        """Let publishers publish between these two times."""
        self._clock[1] = ends_at
        self._clock[0] = starts_at  # last: this is the one they wait for

    @property
    def starts_at(self) -> int:
        """When publishers begin; 0 while that is not known."""
        return self._clock[0]

    @property
    def ends_at(self) -> int:
        """When publishers stop."""
        return self._clock[1]

    @property
    def received_by_each(self) -> list[int]:
        """How much every subscriber has."""
        return [sum(counts) for counts in self.received]

    def is_over(self) -> bool:
        """Whether no publisher will send anything more."""
        return all(self.has_finished)
