"""What `plait run`, `up` and `check` are given: a configuration and a script, read and checked."""

import itertools
from collections.abc import Iterator
from typing import Final

import attrs
import click

from plait.routing.errors import FilterSyntaxError, PatternError, PatternSyntaxError
from plait.routing.filter_text import parse_filter, topic_filter
from plait.routing.filters import Filter
from plait.routing.patterns.detection import Detection
from plait.routing.patterns.pattern import parse_pattern
from plait.routing.traps import traps_of_filter
from plait.scripts.errors import ProblemsFoundError
from plait.topologies.configuration import Configuration
from plait.topologies.errors import Position, Problem, ScriptError
from plait.topologies.language import Notice, NoticeKind
from plait.topologies.reading import parse_script, read_run
from plait.topologies.script import (
    Advertise,
    Command,
    Detect,
    PublishStream,
    Script,
    Subscribe,
    Topic,
    Unsubscribe,
    Where,
)

LEFT_OUT: Final = (NoticeKind.LEFT_OUT, NoticeKind.UNKNOWN_PROCESS)


@attrs.frozen
class Scenario:
    """What to launch, and what to do then."""

    name: str
    configuration: Configuration
    script: Script

    @property
    def warnings(self) -> list[str]:
        """Everything odd that keeps nobody from going on."""
        traps = itertools.chain.from_iterable(map(_traps, self.script.commands))
        return [*map(str, self._notices), *traps]

    @property
    def is_nothing_left(self) -> bool:
        """Whether there is nothing to do, because all of it was left out."""
        has_left_out = any(notice.kind in LEFT_OUT for notice in self._notices)
        return has_left_out and not self.script.commands

    @property
    def _notices(self) -> tuple[Notice, ...]:
        return (*self.configuration.warnings, *self.script.warnings)


def load_scenario(
    configuration_path: str, script_path: str | None, *, strict: bool = True
) -> Scenario:
    """Read one file or two; every problem, filters included, is in one ProblemsFoundError.

    If not `strict`, what is not understood is left out, with a warning.
    """
    try:
        configuration, script = read_run(
            configuration_path, script_path, strict=strict, check=filter_problems
        )
    except ScriptError as error:
        raise ProblemsFoundError.of(error.problems) from error
    return Scenario(configuration_path, configuration, script)


def load_and_warn(
    configuration_path: str, script_path: str | None, *, strict: bool = False
) -> Scenario:
    """Read what can be understood, and tell people what is odd about it."""
    scenario = load_scenario(configuration_path, script_path, strict=strict)
    for warning in scenario.warnings:
        click.echo(f"warning: {warning}", err=True)
    return scenario


def load_commands(text: str, configuration: Configuration) -> Script:
    """Read commands that a person has typed."""
    try:
        script = parse_script(text, "input", configuration, check=filter_problems)
    except ScriptError as error:
        raise ProblemsFoundError.of(error.problems) from error
    declared = [one for one in script.warnings if one.kind is NoticeKind.UNUSED_LINE]
    if declared:
        expected = "a command: declarations belong into the configuration"
        raise ProblemsFoundError.of([Problem(declared[0].at, "a declaration", expected)])
    return script


def filter_problems(command: Command) -> Iterator[Problem]:
    """Yield what is wrong with the filter or topic of a command, at its place in the script."""
    match command:
        case Detect():
            yield from _pattern_problems(command)
            return
        case Subscribe(interest=interest) | Unsubscribe(interest=interest):
            pass
        case Advertise(where=Where() as interest):
            pass
        case PublishStream(content=Topic() as interest):
            pass
        case _:
            return
    yield from _filter_problems(interest, command.at)


def _pattern_problems(command: Detect) -> Iterator[Problem]:
    """Yield what is wrong with what a detector is to look for."""
    at = command.pattern.at
    problems = [p for _, where in command.where for p in _filter_problems(where, where.at)]
    try:
        parse_pattern(command.pattern.text)
        if not problems:
            detection_of(command)
    except PatternSyntaxError as error:
        there = attrs.evolve(at, column=at.column + error.position)
        problems.insert(0, Problem(there, error.found, error.expected))
    except PatternError as error:
        problems.append(Problem(at, str(error), "a pattern that can be looked for"))
    yield from problems


def _filter_problems(interest: Topic | Where, at: Position) -> Iterator[Problem]:
    try:
        filter_of(interest)
    except FilterSyntaxError as error:
        # Of a topic nobody knows the column; the process in front of it is on the same line.
        if isinstance(interest, Where):
            at = attrs.evolve(interest.at, column=interest.at.column + error.position)
        yield Problem(at, error.found, error.expected)


def _traps(command: Command) -> Iterator[str]:
    """Yield what is right about what a command asks for, and hardly meant."""
    match command:
        case Subscribe(interest=Topic(name)) if "*" in name.removesuffix("/*"):
            return  # the line was noticed when it was read
        case Subscribe(interest=interest) | Advertise(where=interest):
            for trap in traps_of_filter(filter_of(interest)):
                yield f"{command.at}: {trap}"
        case Detect(where=letters):
            for _, where in letters:
                for trap in traps_of_filter(filter_of(where)):
                    yield f"{where.at}: {trap}"


def detection_of(command: Detect) -> Detection:
    """Return what a detector is to look for; `PatternError` says why it cannot."""
    where: dict[str, str] = {}
    for letter, wanted in command.where:
        if letter in where:
            raise PatternError(f"where: two filters for {letter}")
        where[letter] = wanted.filter
    return Detection.of(
        command.pattern.text,
        where,
        policy=command.policy,
        within=command.within,
    )


def filter_of(interest: Topic | Where) -> Filter:
    """Return what somebody is interested in, or publishes."""
    match interest:
        case Topic(name):
            return topic_filter(name)
        case Where(text):
            return parse_filter(text)
