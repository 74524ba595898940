"""From text to configuration and script. One text may hold both, and may import others.

Everything is read before anything is refused: a ScriptError names all problems at once.

Other people's programs understand lines that this one does not. To be `strict` is to refuse them;
else each is left out, with a notice, and the rest is used if it makes sense without.
"""

import os.path
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from plait.topologies.commands import COMMANDS, Kinds, contradictions, process_problem, stray_stars
from plait.topologies.configuration import Configuration, kinds_of
from plait.topologies.declarations import (
    DECLARATIONS,
    Declaration,
    ProcessLine,
    Unclear,
    assemble,
    declaration_problems,
)
from plait.topologies.errors import Problem, ScriptError, nearest
from plait.topologies.files import load
from plait.topologies.language import Line, Notice, NoticeKind, lines, quoted
from plait.topologies.script import Command, Script

# Lines that other programs for this language understand, about machines of theirs.
FOREIGN_KEYWORDS: Final = ("Distributed", "PMIP", "SingleMachine")
# And any other word with nothing but an address: where they run something of theirs.
FOREIGN_ADDRESS: Final = re.compile(r"[A-Za-z]\w*\s+[a-z]+://\S+(\s*$|\s+//)", re.IGNORECASE)

# What follows is not for their programs to read: `exit`, or `---EOC---`.
END_MARK: Final = re.compile(
    r"(exit|quit|-{2,}\s*(eoc|eof|eos|end)\s*-{2,})\s*($|//)", re.IGNORECASE
)

KEYWORDS: Final = (*DECLARATIONS, *COMMANDS, "Import", *FOREIGN_KEYWORDS)

# Plenty for any experiment, and the end of files that import others twice, which do the same.
FILES_MAX: Final = 100

Check = Callable[[Command], Iterable[Problem]]
"""Says what is wrong with the part of a command that is in another language: its filter."""


def nothing_wrong(_: Command) -> Iterable[Problem]:
    """Find nothing wrong with filters."""
    return ()


def parse_configuration(text: str, source_name: str) -> Configuration:
    """Return what a text configures. Commands in it have to be correct, but are left aside."""
    configuration, _ = parse(text, source_name)
    return configuration


def parse_script(
    text: str,
    source_name: str,
    configuration: Configuration | None = None,
    *,
    strict: bool = True,
    check: Check = nothing_wrong,
) -> Script:
    """Return the commands in a text.

    They are checked against `configuration`; without one, against the processes that the text
    declares itself, if any. Where a configuration is given, declarations in the text have no say.

    A command for a process that is unknown, or of the wrong kind, is like a line that is not
    understood.
    """
    reading = _Reading(source_name, strict, check)
    reading.add_text(text, source_name)
    if configuration is not None:
        reading.leave_aside(reading.declarations, "the configuration is another one")
        script = reading.script(Kinds(kinds_of(configuration.overlay)), configuration)
    else:
        kinds = reading.kinds()
        own = None if kinds is None else reading.configuration()
        script = reading.script(kinds, own)
    _refuse(reading)
    return attrs.evolve(script, warnings=(*reading.all_notices(), *script.warnings))


def parse(text: str, source_name: str, *, strict: bool = True) -> tuple[Configuration, Script]:
    """Return both halves of a text; the script may be empty."""
    reading = _Reading(source_name, strict)
    reading.add_text(text, source_name)
    return _both(reading)


def read_file(path: str) -> tuple[Configuration | None, Script]:
    """Return what a file says, be it a configuration, a script or both."""
    reading = _Reading(path)
    reading.add_file(path)
    if reading.declarations or not reading.commands:
        return _both(reading)
    script = reading.script(None, None)
    _refuse(reading)
    return None, attrs.evolve(script, warnings=(*reading.all_notices(), *script.warnings))


def read_run(
    configuration_path: str,
    script_path: str | None = None,
    *,
    strict: bool = True,
    check: Check = nothing_wrong,
) -> tuple[Configuration, Script]:
    """Return what to run from one file or two, or raise the problems of both together."""
    first = _Reading(configuration_path, strict, check)
    first.add_file(configuration_path)
    if script_path is None or script_path == configuration_path:
        return _both(first)
    second = _Reading(script_path, strict, check)
    second.add_file(script_path)
    first.leave_aside(first.commands, "the script is another one")
    second.leave_aside(second.declarations, "the configuration is another one")
    configuration, kinds = first.configuration(), first.kinds()
    first.script(kinds, configuration)  # left aside, but what is wrong with it is said
    script = second.script(kinds, configuration)
    _refuse(first, second)
    assert configuration is not None  # or it would have been refused
    return (
        attrs.evolve(configuration, warnings=(*first.all_notices(), *configuration.warnings)),
        attrs.evolve(script, warnings=(*second.all_notices(), *script.warnings)),
    )


def _both(reading: "_Reading") -> tuple[Configuration, Script]:
    configuration = reading.configuration()
    script = reading.script(reading.kinds(), configuration)
    _refuse(reading)
    assert configuration is not None  # or it would have been refused
    notices = (*reading.all_notices(), *configuration.warnings)
    return attrs.evolve(configuration, warnings=notices), script


def _refuse(*readings: "_Reading") -> None:
    if any(reading.is_refused for reading in readings):
        raise ScriptError(
            [problem for reading in readings for problem in reading.problems_in_order()]
        )


Statement = TypeVar("Statement")


def _whole(line: Line, read: Callable[[Line], Statement]) -> Statement:
    """Return what a line says, if it says nothing else."""
    statement = read(line)
    line.end()
    if odd := line.odd_bytes(line.offset):
        raise ScriptError(odd)
    return statement


@attrs.define
class _Reading:
    """What has been read of a text and its imports: what it says, and what is not understood."""

    file: str
    strict: bool = True
    check: Check = nothing_wrong
    declarations: list[Declaration] = attrs.field(factory=list)
    commands: list[Command] = attrs.field(factory=list)
    problems: list[Problem] = attrs.field(factory=list)
    """What the rest makes no sense with."""
    oddities: list[tuple[NoticeKind, Problem]] = attrs.field(factory=list)
    """What may be left out, and as what."""
    notices: list[Notice] = attrs.field(factory=list)
    unclear: Unclear = attrs.field(factory=Unclear)
    """What may be declared where nothing was understood."""
    files: list[str] = attrs.field(factory=list)
    is_incomplete: bool = False
    """Whether the rest makes no sense without what would have to be left out."""

    @property
    def is_refused(self) -> bool:
        """Whether this cannot be used."""
        return bool(self.problems) or self.is_incomplete or (self.strict and bool(self.oddities))

    def add_file(self, path: str) -> None:
        """Read a file."""
        try:
            text = load(path, keeps_odd_bytes=True)
        except ScriptError as error:
            self.problems += error.problems
            self.unclear.is_anything = True
        else:
            self.add_text(text, path)

    def add_text(self, text: str, file: str, importers: tuple[str, ...] = ()) -> None:
        """Read a text, line by line."""
        self.files.append(file)
        rest = lines(text, file)
        for line in rest:
            if END_MARK.match(line.text, line.offset):
                self._end_at(line, len(list(rest)))
                return
            try:
                self._add_line(line, (*importers, file))
            except ScriptError as error:
                problems = line.odd_bytes(line.comment_at) or error.problems
                self._leave_out(NoticeKind.LEFT_OUT, problems)
                self.unclear.words.update(line.text.split())

    def _end_at(self, line: Line, left: int) -> None:
        if left:
            text = f"{quoted(line.rest('a mark'))}, and {left} lines after it are not read"
            self.notices.append(Notice(NoticeKind.END_MARK, line.start, text))

    def _leave_out(self, kind: NoticeKind, problems: Iterable[Problem]) -> None:
        self.oddities += ((kind, problem) for problem in problems)

    def _add_line(self, line: Line, files: tuple[str, ...]) -> None:
        if line.peek().startswith("-"):
            text = f"not executed: {quoted(line.rest('a line'))}"
            self.notices.append(Notice(NoticeKind.DISABLED_LINE, line.start, text))
            return
        if self._is_foreign(line):
            text = f"{line.peek()} means nothing here"
            self.notices.append(Notice(NoticeKind.FOREIGN_LINE, line.start, text))
            return
        keyword = line.keyword(*KEYWORDS, expected="a line of a configuration or script")
        if keyword in DECLARATIONS:
            self.declarations.append(_whole(line, DECLARATIONS[keyword]))
        elif keyword in COMMANDS:
            self.commands.append(_whole(line, COMMANDS[keyword]))
        else:
            self._import(line, files)

    def _is_foreign(self, line: Line) -> bool:
        word = line.peek()
        if word.lower() in map(str.lower, FOREIGN_KEYWORDS):
            return True
        return bool(FOREIGN_ADDRESS.match(line.text, line.offset)) and not nearest(word, KEYWORDS)

    def _import(self, line: Line, importers: tuple[str, ...]) -> None:
        at = line.here
        # Beside the file that names it, wherever that lies; half of the world separates by `\\`.
        path = os.path.normpath(
            Path(line.file).parent / line.rest("a file name").replace("\\", "/")
        )
        if path in map(os.path.normpath, importers):
            self.unclear.is_anything = True
            raise ScriptError([Problem(at, f"{quoted(path)} again", "no import of an importer")])
        if len(self.files) >= FILES_MAX:
            self.unclear.is_anything = True
            raise ScriptError([Problem(at, "one more import", f"at most {FILES_MAX} files")])
        try:
            text = load(path, keeps_odd_bytes=True)
        except ScriptError as error:
            self.unclear.is_anything = True
            reasons = [f"{str(problem.at)!r}: {problem.found}" for problem in error.problems]
            raise ScriptError([Problem(at, ", ".join(reasons), "a file to import")]) from None
        self.add_text(text, path, importers)

    def leave_aside(self, statements: Sequence[Declaration | Command], reason: str) -> None:
        """Give notice that these have no say, if there are any."""
        if statements:
            text = f"this and {len(statements) - 1} more are left aside, as {reason}"
            self.notices.append(Notice(NoticeKind.UNUSED_LINE, statements[0].at, text))

    def kinds(self) -> Kinds | None:
        """Return what is known of the processes declared; None if none are."""
        declared = {
            line.name: line.kind for line in self.declarations if isinstance(line, ProcessLine)
        }
        if not declared:
            return None
        return Kinds(declared, self.unclear if self.strict else Unclear())

    def configuration(self) -> Configuration | None:
        """Return what the declarations amount to, unless there is a problem."""
        self.problems += declaration_problems(self.declarations, self.file, self.unclear)
        if self.is_refused:
            return None
        if any(declaration_problems(self.declarations, self.file, Unclear())):
            self.is_incomplete = True
            return None
        return assemble(self.declarations)

    def script(self, kinds: Kinds | None, configuration: Configuration | None) -> Script:
        """Return the commands, as far as they are right and there are processes for them."""
        commands = []
        for command in self.commands:
            wrong = [*self.check(command)]
            self._leave_out(NoticeKind.LEFT_OUT, wrong)
            missing = None if kinds is None else process_problem(command, kinds)
            if missing is not None:
                self._leave_out(NoticeKind.UNKNOWN_PROCESS, [missing])
            elif not wrong:
                commands.append(command)
        overlay = None if configuration is None else configuration.overlay
        notices = (*stray_stars(commands), *contradictions(commands, overlay))
        return Script(tuple(commands), notices)

    def all_notices(self) -> list[Notice]:
        """Return what is odd about the text, with what was left out."""
        left_out = [
            Notice(kind, problem.at, f"left out: {problem.text}") for kind, problem in self.oddities
        ]
        return [*self.notices, *left_out]

    def problems_in_order(self) -> list[Problem]:
        """Return the problems as they come in the text, file by file."""
        rank = {file: number for number, file in enumerate(self.files)}
        return sorted(
            [*self.problems, *(problem for _, problem in self.oddities)],
            key=lambda problem: (
                rank.get(problem.at.file, -1),
                problem.at.line,
                problem.at.column,
            ),
        )
