"""The two ends of every measurement: what a publisher sends and when, what a subscriber notes.

Both are the same for every system, which sees nothing but payloads of 200 bytes. Each carries a
stamp: who sent it, its number, and the time at which it was sent.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, Self

import trio

from plait.scripts.bench.board import Board, now_ns
from plait.scripts.bench.workloads import PAYLOAD_BYTES, Workload

_STAMP: Final = struct.Struct("<IIQ")
_PADDING: Final = bytes(PAYLOAD_BYTES - _STAMP.size)

BURST_MAX: Final = 64
"""Publications handed over before the rest of the publisher's process gets a turn."""
WINDOW_POLL_S: Final = 0.0003
START_POLL_S: Final = 0.002
_NS_PER_S: Final = 1_000_000_000


class Load:
    """What one publisher sends: an iterator over bursts, which ends when the trial does.

    A burst yields numbers and payloads, to be sent now; a payload is stamped when it is taken.
    """

    def __init__(self, board: Board, workload: Workload, index: int) -> None:
        self._board = board
        self._workload = workload
        self._index = index
        self._seq = 0
        self._floor = 0
        """What the slowest subscriber had received when we last looked."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Iterator[tuple[int, bytes]]:
        """Let others have their turn, then wait for the time or the room to send."""
        board = self._board
        await trio.lowlevel.checkpoint()
        # Not a trio.Event: it is another process that decides.
        while not board.starts_at or now_ns() < board.starts_at:  # noqa: ASYNC110
            await trio.sleep(START_POLL_S)
        while (now := now_ns()) < board.ends_at:
            due = self._due(now) if self._workload.rate else self._room()
            if due > 0:
                return self._payloads(min(due, BURST_MAX))
            await trio.sleep(self._pause_s(now))
        board.has_finished[self._index] = 1
        raise StopAsyncIteration

    def _payloads(self, count: int) -> Iterator[tuple[int, bytes]]:
        for _ in range(count):
            seq = self._seq
            self._seq = self._board.sent[self._index] = seq + 1
            yield seq, _STAMP.pack(self._index, seq, now_ns()) + _PADDING

    def _room(self) -> int:
        """How many may be sent in a closed loop."""
        room = self._floor + self._workload.window - self._seq
        if room <= 0:
            received = [counts[self._index] for counts in self._board.received]
            self._floor = sum(received) if self._workload.is_selective else min(received)
            room = self._floor + self._workload.window - self._seq
        return room

    def _due(self, now: int) -> int:
        """How many should have been sent by now in an open loop."""
        interval = self._interval_ns
        since_first = now - self._board.starts_at - self._offset_ns
        return 0 if since_first < 0 else int(since_first // interval) + 1 - self._seq

    def _pause_s(self, now: int) -> float:
        if not self._workload.rate:
            return WINDOW_POLL_S
        next_at = self._board.starts_at + self._offset_ns + self._seq * self._interval_ns
        return max(0.0, (next_at - now) / _NS_PER_S)

    @property
    def _interval_ns(self) -> float:
        assert self._workload.rate
        return _NS_PER_S / self._workload.rate

    @property
    def _offset_ns(self) -> float:
        """Publishers take turns: all at once would be a burst."""
        return self._interval_ns * self._index / self._workload.publishers


class Recorder:
    """What one subscriber notes."""

    def __init__(self, board: Board, index: int) -> None:
        self._received = board.received[index]
        self._latencies_ns = array("Q")
        self._order = array("Q")

    def note(self, payload: bytes) -> None:
        """Take note of a payload that has just arrived."""
        now = now_ns()
        publisher, seq, sent_at = _STAMP.unpack_from(payload)
        self._latencies_ns.append(now - sent_at)
        self._order.append(publisher << 32 | seq)
        self._received[publisher] += 1

    def save(self, latencies: Path, order: Path) -> None:
        """Write down the latencies, and what arrived, in the order of arrival."""
        for path, words in ((latencies, self._latencies_ns), (order, self._order)):
            with path.open("wb") as file:
                words.tofile(file)


def read_words(path: Path) -> list[int]:
    """Return what a recorder has saved."""
    words = array("Q")
    words.frombytes(path.read_bytes())
    return words.tolist()


def count_disagreeing(orders: Sequence[Sequence[int]]) -> int:
    """Count the pairs of subscribers that got what both of them got in different orders."""
    count = 0
    for one, other in combinations(orders, 2):
        if one != other:
            common = set(one).intersection(other)
            count += [n for n in one if n in common] != [n for n in other if n in common]
    return count
