"""What `plait run`, `up` and `check` are given: a configuration and a script, read and checked."""

from collections.abc import Iterator

import attrs

from routing.errors import FilterSyntaxError
from routing.filter_text import parse_filter, topic_filter
from routing.filters import Filter
from scripts.errors import ProblemsFoundError
from topologies.configuration import Configuration
from topologies.errors import Problem, ScriptError
from topologies.reading import parse_script, read_run
from topologies.script import (
    Advertise,
    Command,
    PublishStream,
    Script,
    Subscribe,
    Topic,
    Unsubscribe,
    Where,
)


@attrs.frozen
class Scenario:
    """What to launch, and what to do then."""

    name: str
    configuration: Configuration
    script: Script

    @property
    def warnings(self) -> list[str]:
        """Everything odd that keeps nobody from going on."""
        return [*map(str, self.configuration.warnings), *map(str, self.script.warnings)]


def load_scenario(
    configuration_path: str, script_path: str | None, *, strict: bool = True
) -> Scenario:
    """Read one file or two; every problem, filters included, is in one ProblemsFoundError.

    If not `strict`, a command for a process that is not there is left out, with a warning.
    """
    try:
        configuration, script = read_run(configuration_path, script_path, strict=strict)
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
    """Yield what is wrong with the filter or topic of a command, at its place in the script."""
    match command:
        case Subscribe(interest=interest) | Unsubscribe(interest=interest):
            pass
        case Advertise(where=Where() as interest):
            pass
        case PublishStream(content=Topic() as interest):
            pass
        case _:
            return
    try:
        filter_of(interest)
    except FilterSyntaxError as error:
        # Of a topic nobody knows the column; the process in front of it is on the same line.
        at = command.at
        if isinstance(interest, Where):
            at = attrs.evolve(interest.at, column=interest.at.column + error.position)
        yield Problem(at, error.found, error.expected)


def filter_of(interest: Topic | Where) -> Filter:
    """Return what somebody is interested in, or publishes."""
    match interest:
        case Topic(name):
            return topic_filter(name)
        case Where(text):
            return parse_filter(text)
