"""Lines of standard input, read beside everything else that a program does.

No thread waits for the keyboard: one that does cannot be woken, and would outlive Ctrl-C.
"""

import os
from collections.abc import AsyncIterator
from typing import Final

import trio

from plait.scripts.errors import BadInputError

CHUNK_BYTES: Final = 1 << 16
STANDARD_INPUT: Final = 0


async def standard_input_lines(fd: int = STANDARD_INPUT) -> AsyncIterator[str]:
    """Yield every line with the end that it has; only the last one may have none."""
    number, rest = 0, b""
    while chunk := await _read(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield _decoded(line + b"\n", number)
    if rest:
        yield _decoded(rest, number + 1)


async def _read(fd: int) -> bytes:
    try:
        await trio.lowlevel.wait_readable(fd)
    except PermissionError:
        await trio.lowlevel.checkpoint()  # a file, or /dev/null: it never makes anybody wait
    return os.read(fd, CHUNK_BYTES)


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"stdin:{number}:{error.start + 1}: byte {line[error.start]:#04x} found, UTF-8 expected"
        ) from None
