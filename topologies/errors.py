"""What can be wrong with an overlay or with a text that describes one. Said all at once."""

import difflib
from collections.abc import Iterable, Sequence

import attrs

from plait.errors import PlaitError


class TopologyError(PlaitError, ValueError):
    """The root of this package's errors: something we were given is not usable."""


@attrs.frozen
class Flaw:
    """What keeps a set of sites from being an overlay, and the node that is to blame."""

    node: str
    found: str
    expected: str

    def __str__(self) -> str:
        """Render as it is shown to people."""
        return f"{self.node}: found {self.found}, expected {self.expected}"


class OverlayError(TopologyError):
    """The sites given do not form an overlay; `flaws` says why, node by node."""

    def __init__(self, flaws: Sequence[Flaw]) -> None:
        super().__init__("\n".join(map(str, flaws)))
        self.flaws = tuple(flaws)


@attrs.frozen
class Position:
    """A place in a text. Line and column count from 1; line 0 is the file as a whole."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        """Render the way compilers do, so that editors can jump there."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@attrs.frozen
class Problem:
    """One thing in a text that is not understood, and what would have been."""

    at: Position
    found: str
    expected: str
    suggestion: str = ""

    @property
    def text(self) -> str:
        """What is wrong, without the place."""
        hint = f" (did you mean '{self.suggestion}'?)" if self.suggestion else ""
        return f"found {self.found}, expected {self.expected}{hint}"

    def __str__(self) -> str:
        """Render as it is shown to people."""
        return f"{self.at}: {self.text}"


class ScriptError(TopologyError):
    """A configuration or script is not usable; `problems` holds every reason, in text order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return the candidate that `word` was probably meant to be, or an empty string."""
    spelled = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(word.lower(), spelled, n=1)
    return spelled[matches[0]] if matches else ""
