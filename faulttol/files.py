"""Files are replaced as a whole, errors name them, and no folder is made up."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MISTAKES: Final = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Errors that another path would not have; with all others, such as a full disk, it is the machine
that has failed."""


def is_mistake(error: OSError) -> bool:
    """Whether what is wrong is the path that somebody gave, and not the machine."""
    return error.errno in _MISTAKES and error.filename is not None


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Let every error say which file it is about: opening one names it, writing to it does not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_folder(path: Path) -> None:
    """Make a folder, if it is not there, in one that is: a path that was mistyped makes none."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path)) from error
    except FileNotFoundError as error:
        text = "there is no such folder, and no more than the last one of a path is made"
        raise FileNotFoundError(errno.ENOENT, text, str(path.parent)) from error


class LineFile:
    """A new file that grows by whole lines: what cannot be written as a whole is taken back."""

    def __init__(self, path: Path) -> None:
        """Make it; `FileExistsError` if it is there."""
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._is_open = True
        self.size = 0
        """Of all lines, in bytes."""

    def append(self, lines: bytes) -> None:
        """Give lines to the operating system, which outlives this process."""
        written = 0
        try:
            with naming(self._path):
                while written < len(lines):
                    written += os.pwrite(self._descriptor, lines[written:], self.size + written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += written

    def replace_end(self, length: int, line: bytes) -> None:
        """Put a line in the place of what the last so many bytes are; or nothing, at an error."""
        self.size -= length
        self.append(line)

    def close(self) -> None:
        """Write no more."""
        if self._is_open:
            self._is_open = False
            with naming(self._path):
                os.close(self._descriptor)


def replace_text(path: Path, text: str, *, is_lasting: bool = False) -> None:
    """Put a text in the place of what a file has: who reads it finds the one or the other.

    Even who reads it after a power failure, if it is to be `is_lasting`; that takes as long as the
    disk does. What `path` links to is replaced, not the link.
    """
    path = path.resolve()
    draft = path.with_name(f"{path.name}.draft")
    # What is left of an earlier one is not opened: it may be a link that somebody has put there.
    draft.unlink(missing_ok=True)
    try:
        with naming(draft), draft.open("x", encoding="utf-8") as file:
            file.write(text)
            if is_lasting:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if is_lasting:
        _make_entries_last(path.parent)


def _make_entries_last(folder: Path) -> None:
    """Let the names in a folder survive a power failure, as what is in the files does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
