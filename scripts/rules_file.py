"""Files of rules, as commands read them: what is wrong is said with its place, all at once."""

from plait.routing.errors import RulesError
from plait.routing.rules import Rules
from plait.routing.rules_text import is_rules, read_rules
from plait.scripts.errors import ProblemsFoundError
from plait.topologies.errors import Position, Problem, ScriptError, nearest
from plait.topologies.files import load


def load_rules(path: str) -> Rules:
    """Read a file of rules."""
    try:
        return read_rules(load(path))
    except RulesError as error:
        problems = [
            Problem(
                Position(path, each.line, each.column + 1 if each.line else 0),
                each.found,
                each.expected,
                nearest(each.found.strip("'"), each.choices) if each.choices else "",
            )
            for each in error.problems
        ]
        raise ProblemsFoundError.of(problems) from error
    except ScriptError as error:
        raise ProblemsFoundError.of(error.problems) from error


def is_rules_file(path: str) -> bool:
    """Whether a file is one of rules; one that cannot be read is none."""
    try:
        return is_rules(load(path))
    except ScriptError:
        return False
