"""What a node may be called: names end up in logs, on terminals and in the names of files."""

from typing import Final

from plait.broker.limits import INCARNATION_MAX, Limits
from plait.faulttol.history import file_name

FILE_NAME_BYTES_MAX: Final = 255
"""On most file systems."""


def expected_name(name: str, limits: Limits) -> str:
    """Say what the name of a node has to be if this is none; nothing if it is one."""
    if not (0 < len(name) <= limits.name_chars_max and name.isprintable()):
        return f"1 to {limits.name_chars_max} printable characters"
    if name in (".", ".."):
        return "a name that is not that of a folder"
    return ""


def expected_broker_name(name: str, limits: Limits) -> str:
    """Say the same of a broker's: its state, its log and its history are files of that name."""
    expected = expected_name(name, limits)
    if not expected:
        excess = len(file_name(name, INCARNATION_MAX).encode()) - FILE_NAME_BYTES_MAX
        if excess > 0:
            return f"{excess} bytes less in UTF-8: it is part of the names of files"
    return expected
