"""From text to configuration and script. One text may hold both, and may import others.

Everything is read before anything is refused: a ScriptError names all problems at once.
"""

import os.path
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from topologies.commands import COMMANDS, contradictions, process_problem
from topologies.configuration import Configuration, ProcessKind, kinds_of
from topologies.declarations import (
    DECLARATIONS,
    Declaration,
    ProcessLine,
    assemble,
    declaration_problems,
)
from topologies.errors import Problem, ScriptError
from topologies.files import load
from topologies.language import Line, Notice, NoticeKind, lines, quoted
from topologies.script import Command, Script

# Lines that other programs for this language understand, about machines of theirs.
FOREIGN_KEYWORDS: Final = ("Distributed", "PMIP", "SingleMachine")

KEYWORDS: Final = (*DECLARATIONS, *COMMANDS, "Import", *FOREIGN_KEYWORDS)

# Plenty for any experiment, and the end of files that import others twice, which do the same.
FILES_MAX: Final = 100

Kinds = Mapping[str, ProcessKind | None]


def parse_configuration(text: str, source_name: str) -> Configuration:
    """Return what a text configures. Commands in it have to be correct, but are left aside."""
    configuration, _ = parse(text, source_name)
    return configuration


def parse_script(
    text: str, source_name: str, configuration: Configuration | None = None, *, strict: bool = True
) -> Script:
    """Return the commands in a text.

    They are checked against `configuration`; without one, against the processes that the text
    declares itself, if any. Where a configuration is given, declarations in the text have no say.

    A command for a process that is unknown, or of the wrong kind, is a problem. If not `strict`
    it is a notice, and not in the script: for other people's texts, to run as far as they go.
    """
    reading = _Reading(source_name)
    reading.add_text(text, source_name)
    if configuration is not None:
        reading.leave_aside(reading.declarations, "the configuration is another one")
        script = reading.script(kinds_of(configuration.overlay), configuration, strict)
    else:
        kinds = reading.kinds()
        own = None if kinds is None else reading.configuration()
        script = reading.script(kinds, own, strict)
    _refuse(reading)
    return attrs.evolve(script, warnings=(*reading.notices, *script.warnings))


def parse(text: str, source_name: str, *, strict: bool = True) -> tuple[Configuration, Script]:
    """Return both halves of a text; the script may be empty."""
    reading = _Reading(source_name)
    reading.add_text(text, source_name)
    return _both(reading, strict)


def read_file(path: str) -> tuple[Configuration | None, Script]:
    """Return what a file says, be it a configuration, a script or both."""
    reading = _Reading(path)
    reading.add_file(path)
    if reading.declarations or not reading.commands:
        return _both(reading, strict=True)
    script = reading.script(None, None, strict=True)
    _refuse(reading)
    return None, attrs.evolve(script, warnings=(*reading.notices, *script.warnings))


def read_run(
    configuration_path: str, script_path: str | None = None, *, strict: bool = True
) -> tuple[Configuration, Script]:
    """Return what to run from one file or two, or raise the problems of both together."""
    first = _Reading(configuration_path)
    first.add_file(configuration_path)
    if script_path is None or script_path == configuration_path:
        return _both(first, strict)
    second = _Reading(script_path)
    second.add_file(script_path)
    first.leave_aside(first.commands, "the script is another one")
    second.leave_aside(second.declarations, "the configuration is another one")
    configuration = first.configuration()
    first.script(first.kinds(), configuration, strict)  # left aside, but it has to be right
    script = second.script(first.kinds(), configuration, strict)
    _refuse(first, second)
    assert configuration is not None  # or it would have been refused
    return configuration, attrs.evolve(script, warnings=(*second.notices, *script.warnings))


def _both(reading: "_Reading", strict: bool) -> tuple[Configuration, Script]:
    configuration = reading.configuration()
    script = reading.script(reading.kinds(), configuration, strict)
    _refuse(reading)
    assert configuration is not None  # or it would have been refused
    return configuration, script


def _refuse(*readings: "_Reading") -> None:
    problems = [problem for reading in readings for problem in reading.problems_in_order()]
    if problems:
        raise ScriptError(problems)


Statement = TypeVar("Statement")


def _whole(line: Line, read: Callable[[Line], Statement]) -> Statement:
    """Return what a line says, if it says nothing else."""
    statement = read(line)
    line.end()
    return statement


@attrs.define
class _Reading:
    """What has been read of a text and its imports: what it says, and what is not understood."""

    file: str
    declarations: list[Declaration] = attrs.field(factory=list)
    commands: list[Command] = attrs.field(factory=list)
    problems: list[Problem] = attrs.field(factory=list)
    notices: list[Notice] = attrs.field(factory=list)
    unread: set[str] = attrs.field(factory=set)
    """The words of lines that were not understood."""
    files: list[str] = attrs.field(factory=list)
    is_complete: bool = True
    """Whether every file could be read: if not, nothing can be called missing."""

    def add_file(self, path: str) -> None:
        """Read a file."""
        try:
            text = load(path)
        except ScriptError as error:
            self.problems += error.problems
            self.is_complete = False
        else:
            self.add_text(text, path)

    def add_text(self, text: str, file: str, importers: tuple[str, ...] = ()) -> None:
        """Read a text, line by line."""
        self.files.append(file)
        for line in lines(text, file):
            try:
                self._add_line(line, (*importers, file))
            except ScriptError as error:
                self.problems += error.problems
                self.unread.update(line.text.split())

    def _add_line(self, line: Line, files: tuple[str, ...]) -> None:
        if line.peek().startswith("-"):
            text = f"not executed: {quoted(line.rest('a line'))}"
            self.notices.append(Notice(NoticeKind.DISABLED_LINE, line.start, text))
            return
        keyword = line.keyword(*KEYWORDS, expected="a line of a configuration or script")
        if keyword in FOREIGN_KEYWORDS:
            text = f"{keyword} means nothing here"
            self.notices.append(Notice(NoticeKind.FOREIGN_LINE, line.start, text))
            return
        if keyword in DECLARATIONS:
            self.declarations.append(_whole(line, DECLARATIONS[keyword]))
        elif keyword in COMMANDS:
            self.commands.append(_whole(line, COMMANDS[keyword]))
        else:
            self._import(line, files)

    def _import(self, line: Line, importers: tuple[str, ...]) -> None:
        at = line.here
        # Beside the file that names it, wherever that lies.
        path = os.path.normpath(Path(line.file).parent / line.rest("a file name"))
        if path in map(os.path.normpath, importers):
            self.is_complete = False
            raise ScriptError([Problem(at, f"{quoted(path)} again", "no import of an importer")])
        if len(self.files) >= FILES_MAX:
            self.is_complete = False
            raise ScriptError([Problem(at, "one more import", f"at most {FILES_MAX} files")])
        try:
            text = load(path)
        except ScriptError as error:
            self.is_complete = False
            reasons = [f"{str(problem.at)!r}: {problem.found}" for problem in error.problems]
            raise ScriptError([Problem(at, ", ".join(reasons), "a file to import")]) from None
        self.add_text(text, path, importers)

    def leave_aside(self, statements: Sequence[Declaration | Command], reason: str) -> None:
        """Give notice that these have no say, if there are any."""
        if statements:
            text = f"this and {len(statements) - 1} more are left aside, as {reason}"
            self.notices.append(Notice(NoticeKind.UNUSED_LINE, statements[0].at, text))

    def kinds(self) -> Kinds | None:
        """Return what is known of the processes declared; None if there is no telling."""
        processes = [line for line in self.declarations if isinstance(line, ProcessLine)]
        if not processes or not self.is_complete:
            return None
        unclear: dict[str, ProcessKind | None] = dict.fromkeys(self.unread)
        return unclear | {line.name: line.kind for line in processes}

    def configuration(self) -> Configuration | None:
        """Return what the declarations amount to, unless there is a problem."""
        if self.is_complete:
            self.problems += declaration_problems(self.declarations, self.file, self.unread)
        if self.problems:
            return None
        configuration = assemble(self.declarations)
        return attrs.evolve(configuration, warnings=(*self.notices, *configuration.warnings))

    def script(
        self, kinds: Kinds | None, configuration: Configuration | None, strict: bool
    ) -> Script:
        """Return the commands, as far as there are processes for them."""
        commands = []
        notices = []
        for command in self.commands:
            problem = None if kinds is None else process_problem(command, kinds)
            if problem is None:
                commands.append(command)
            elif strict:
                self.problems.append(problem)
            else:
                text = f"left out: found {problem.found}, expected {problem.expected}"
                notices.append(Notice(NoticeKind.UNKNOWN_PROCESS, problem.at, text))
        overlay = None if configuration is None else configuration.overlay
        return Script(tuple(commands), (*notices, *contradictions(commands, overlay)))

    def problems_in_order(self) -> list[Problem]:
        """Return the problems as they come in the text, file by file."""
        rank = {file: number for number, file in enumerate(self.files)}
        return sorted(
            self.problems,
            key=lambda problem: (
                rank.get(problem.at.file, -1),
                problem.at.line,
                problem.at.column,
            ),
        )
