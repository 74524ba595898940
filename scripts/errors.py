"""What can end a command before it is done, each with the exit code that a shell sees."""

from collections.abc import Sequence
from typing import ClassVar, Self

from plait.errors import PlaitError
from plait.topologies.errors import Problem


class CommandError(PlaitError):
    """Root of everything a command reports to its user in one sentence and without a traceback."""

    exit_code: ClassVar[int]


class GuaranteeViolatedError(CommandError):
    """A promise of the overlay was broken; what was broken has been printed."""

    exit_code = 1


class BadInputError(CommandError):
    """What the user gave is not usable; the message names where, what was found and expected."""

    exit_code = 2


class ProblemsFoundError(BadInputError):
    """A text is not usable; every line of the message is one problem, at its file, line, column."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        """The same for programs, where there is more to be said than the message."""

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> Self:
        """Say what is wrong in a configuration or script."""
        return cls("\n".join(map(str, problems)), problems)


class EnvironmentFailedError(CommandError):
    """The machine did not do its part: a port is taken, a disk is full, nobody listens."""

    exit_code = 3
