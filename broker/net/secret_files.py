"""Files that nobody else may read: keys, passwords, tokens, and what is kept of passwords."""

import os
import stat
from pathlib import Path
from typing import Final

from plait.broker.errors import UnusableFileError

PRIVATE: Final = 0o600
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
SECRET_BYTES_MAX: Final = 16 << 20


def read_secret(path: Path) -> bytes:
    """Return what is in a file that nobody else may read; any other is refused."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(SECRET_BYTES_MAX)
    except OSError as error:
        raise UnusableFileError(f"{path}: {error.strerror}") from None
    if mode & OTHERS:
        raise UnusableFileError(
            f"{path} may be read by others, and what is in it is secret: chmod 600 {path}"
        )
    return data


def read_secret_line(path: Path) -> str:
    """Return the first line of such a file: a password or a token."""
    try:
        line = read_secret(path).decode().partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        raise UnusableFileError(f"{path}: expected text in UTF-8") from None
    if not line:
        raise UnusableFileError(f"{path}: the first line is empty, and is to have the secret")
    return line


def write_secret(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write such a file; one that is there is kept unless it is to be replaced.

    It is whole or not there at all.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                fresh.replace(path)
            else:
                os.link(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    except FileExistsError:
        raise UnusableFileError(f"{path} is there already, and is not overwritten") from None
    except OSError as error:
        raise UnusableFileError(f"{path}: {error.strerror}") from None
