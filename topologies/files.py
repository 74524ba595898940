"""Text from files: the user's, and the samples that come with this package."""

import codecs
from importlib import resources
from pathlib import Path
from typing import Final

from plait.topologies.errors import Position, Problem, ScriptError, nearest

# The longest script in the wild has 2 kB; whatever is this long is something else.
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


def samples() -> dict[str, str]:
    """Return the text of every packaged sample by its file name."""
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(
            resources.files("plait.topologies").iterdir(), key=lambda entry: entry.name
        )
        if entry.name.endswith((".conf", ".script"))
    }


def load(path: str, *, keeps_odd_bytes: bool = False) -> str:
    """Return the text of a file, or of the sample of that name if there is no such file.

    A file that is not UTF-8 is refused, or `keeps_odd_bytes` as surrogates, for whoever can tell
    which of its lines are not text.
    """
    here = Position(path, 0, 0)
    try:
        if Path(path).is_file():
            return _decoded(_bytes_of(Path(path)), path, keeps_odd_bytes)
    except OSError as error:
        raise ScriptError(
            [Problem(here, error.strerror or "an error", "a readable file")]
        ) from None
    packaged = samples()
    if path in packaged:
        return packaged[path]
    expected = "a file, or a sample that comes with plait, like demo.conf"
    raise ScriptError([Problem(here, "no such file", expected, nearest(path, packaged))])


def _bytes_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        expected = f"at most {FILE_BYTES_MAX} bytes"
        raise ScriptError([Problem(Position(str(file), 0, 0), "a larger file", expected)])
    return data


def _decoded(data: bytes, path: str, keeps_odd_bytes: bool) -> str:
    # Some editors on Windows save this as "Unicode".
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if keeps_odd_bytes and b"\0" not in data:  # else it is no text at all
            return data.decode(errors="surrogateescape")
        before = data[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = f"byte 0x{data[error.start]:02x}"
        raise ScriptError([Problem(Position(path, line, column), found, "UTF-8 text")]) from None
