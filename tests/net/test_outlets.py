"""Lines that may be lost: whatever is at the other end, writing them neither raises nor waits."""

import contextlib
import os
import pty
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.broker.net.outlets import Outlet


@pytest.fixture
def pipe() -> Iterator[tuple[int, Outlet]]:
    """The read end of a pipe, and an outlet into it."""
    reading, writing = os.pipe()
    yield reading, Outlet(writing)
    for descriptor in (reading, writing):
        with contextlib.suppress(OSError):  # a test has done it
            os.close(descriptor)


def test_lines_are_appended_to_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    with Outlet.append_to(path) as one, Outlet.append_to(path) as other:
        assert one.write("one\n")
        assert other.write("ö\ud800\n")
        assert one.write("two\n")

        assert not one.isatty()
    assert path.read_text() == "before\none\nö\\ud800\ntwo\n"


def test_a_full_disk_loses_lines() -> None:
    with Outlet.append_to(Path("/dev/full")) as outlet:
        assert not outlet.write("lost\n")
        assert outlet.reason == "No space left on device"


def test_a_line_that_was_torn_is_ended_before_the_next_one(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "log"
    with Outlet.append_to(path) as outlet:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
            taken = [outlet.write("one\n"), outlet.write("torn line\n"), outlet.write("lost\n")]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        taken += [outlet.write("two\n"), outlet.write("three\n")]

    assert taken == [True, False, False, True, True]
    assert path.read_text() == "one\ntorn\ntwo\nthree\n"


def test_a_pipe_that_nobody_reads_holds_nobody_up(pipe: tuple[int, Outlet]) -> None:
    reading, outlet = pipe
    taken = 0
    while outlet.write("x" * 999 + "\n"):
        taken += 1

    assert taken >= 50
    assert outlet.reason == "nobody reads it"
    os.read(reading, 1 << 20)
    assert outlet.write("next\n")
    assert os.read(reading, 1 << 20) == b"next\n"


def test_a_long_line_goes_through_a_pipe_as_far_as_there_is_room(pipe: tuple[int, Outlet]) -> None:
    reading, outlet = pipe

    assert outlet.write("y" * 20_000 + "\n")
    assert len(os.read(reading, 1 << 20)) == 20_001
    assert not outlet.write("z" * 2_000_000 + "\n")
    assert b"y" not in os.read(reading, 1 << 20)


def test_a_closed_pipe_and_a_closed_descriptor_lose_lines(pipe: tuple[int, Outlet]) -> None:
    reading, outlet = pipe
    os.close(reading)

    assert not outlet.write("lost\n")
    assert outlet.reason == "Broken pipe"
    outlet.close()
    assert not outlet.write("lost\n")
    assert outlet.reason == "Bad file descriptor"


def test_a_terminal_is_known_for_one() -> None:
    person, program = pty.openpty()
    outlet = Outlet(program)

    assert outlet.isatty()
    assert outlet.write("hello\n")
    assert os.read(person, 100) == b"hello\r\n"
    os.close(person)
    os.close(program)


def test_a_named_pipe_needs_somebody_who_reads_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device or address") as caught:
        Outlet.append_to(tmp_path / "fifo")

    assert caught.value.filename == str(tmp_path / "fifo")
