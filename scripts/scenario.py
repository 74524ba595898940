"""What `plait run`, `up` and `check` are given: a configuration and a script, read and checked."""

from collections.abc import Iterator
from typing import Final

import attrs

from routing.errors import FilterSyntaxError
from routing.filter_text import parse_filter
from scripts.errors import ProblemsFoundError
from topologies.configuration import Configuration
from topologies.errors import Problem, ScriptError
from topologies.reading import parse_script, read_run
from topologies.script import (
    Advertise,
    Command,
    Crash,
    Freeze,
    Recover,
    Script,
    Subscribe,
    Unfreeze,
    Unsubscribe,
    Where,
)

FAULTS: Final = (Crash, Recover, Freeze, Unfreeze)
"""Commands that are understood, and that nothing carries out yet."""


@attrs.frozen
class Scenario:
    """What to launch, and what to do then."""

    name: str
    configuration: Configuration
    script: Script

    @property
    def warnings(self) -> list[str]:
        """Everything odd that keeps nobody from going on."""
        warnings = [*map(str, self.configuration.warnings), *map(str, self.script.warnings)]
        if standbys := self.configuration.overlay.standbys:
            warnings.append(
                f"{self.name}: standbys are not implemented yet, and not started: "
                f"{', '.join(standbys)}"
            )
        return warnings

    def not_yet(self) -> list[Problem]:
        """Return what is right, and not implemented."""
        return [
            problem_of_fault(command)
            for command in self.script.commands
            if isinstance(command, FAULTS)
        ]


def load_scenario(configuration_path: str, script_path: str | None) -> Scenario:
    """Read one file or two; every problem, filters included, is in one ProblemsFoundError."""
    try:
        configuration, script = read_run(configuration_path, script_path)
    except ScriptError as error:
        raise ProblemsFoundError(str(error)) from error
    raise_problems(_filter_problems(script))
    return Scenario(configuration_path, configuration, script)


def load_commands(text: str, configuration: Configuration) -> Script:
    """Read commands that a person has typed."""
    try:
        script = parse_script(text, "input", configuration)
    except ScriptError as error:
        raise ProblemsFoundError(str(error)) from error
    raise_problems(_filter_problems(script))
    return script


def _filter_problems(script: Script) -> list[Problem]:
    return [problem for command in script.commands for problem in filter_problems(command)]


def raise_problems(problems: list[Problem]) -> None:
    """Raise them all as one ProblemsFoundError, if there are any."""
    if problems:
        raise ProblemsFoundError("\n".join(map(str, problems)))


def filter_problems(command: Command) -> Iterator[Problem]:
    """Yield what is wrong with the filter of a command, at its place in the script."""
    match command:
        case Subscribe(interest=Where(text, at)) | Unsubscribe(interest=Where(text, at)):
            pass
        case Advertise(where=Where(text, at)):
            pass
        case _:
            return
    try:
        parse_filter(text)
    except FilterSyntaxError as error:
        place = attrs.evolve(at, column=at.column + error.position)
        yield Problem(place, error.found, error.expected)


def problem_of_fault(command: Command) -> Problem:
    """Return what to say about a command that nothing carries out yet."""
    name = type(command).__name__
    return Problem(
        command.at,
        f"'{name}', which is not implemented yet",
        "a script without Crash, Recover, Freeze and Unfreeze",
    )
