"""Pages that are made of what the code says; `--rewrite-samples` writes them anew.

docs/commands.md is what `--help` says, docs/api.md the docstrings of what `plait` exports.
"""

import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import click
import pytest
from click.testing import CliRunner

import plait
from plait.scripts.main import cli
from tests.processes import finished

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
WIDTH: Final = 100


def commands_below(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something, in the order of `--help`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands_below(command, (*path, name))
        else:
            yield (*path, name)


def commands_page() -> str:
    """What a process of its own says: click keeps in a command how a test called it first."""
    done = finished([sys.executable, "-m", "tests.test_reference_pages"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def help_of_all() -> str:
    parts = [
        "# Commands\n",
        "What `plait COMMAND --help` says. Exit codes are those of [overlays](overlays.md).\n",
    ]
    for path in commands_below(cli):
        help_text = CliRunner().invoke(
            cli, [*path, "--help"], prog_name="plait", terminal_width=WIDTH, max_content_width=WIDTH
        )
        assert help_text.exit_code == 0, help_text.output
        parts.append(f"## {' '.join(path)}\n\n```text\n{help_text.output.strip()}\n```\n")
    return "\n".join(parts)


def members_of(kind: type) -> Iterator[tuple[str, object]]:
    """What a class has of its own and of its private bases, in the order of their source."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("plait.")]
    seen: set[str] = set()
    for base in bases:
        for name, member in vars(base).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member


def is_short(default: object) -> bool:
    return not inspect.isfunction(default) and len(repr(default)) <= WIDTH // 2


def signature_of(function: Callable[..., object]) -> str:
    """What is to be given, without modules and long defaults."""
    signature = inspect.signature(function)
    shown = [
        given if is_short(given.default) else given.replace(default=...)
        for given in signature.parameters.values()
        if given.name != "self"
    ]
    text = str(signature.replace(parameters=shown)).replace("Ellipsis", "...")
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])|'", "", text)


def described(kind: type) -> Iterator[str]:
    """What one may do with an object of a class, and know of it."""
    fields = attrs.fields(kind) if attrs.has(kind) else ()
    names = [field.name for field in fields if not field.name.startswith("_")]
    if names:
        yield f"Has {', '.join(f'`{name}`' for name in names)}.\n"
    for name, member in members_of(kind):
        if isinstance(member, property):
            yield f"**`.{name}`** {inspect.getdoc(member)}\n"
        elif inspect.isfunction(member):
            prefix = "await " if inspect.iscoroutinefunction(member) else ""
            signature = (
                str(inspect.signature(member)).replace("(self, ", "(").replace("(self)", "()")
            )
            yield f"**`{prefix}.{name}{signature}`**\n\n{inspect.getdoc(member)}\n"


def api_page() -> str:
    parts = [
        "# The library",
        "",
        "What `from plait import ...` gives. All of it is promised; what is not here is not.",
        "What waits can be cancelled, and has no timeout of its own: `trio.fail_after` does that.",
        "",
    ]
    for name in sorted(plait.__all__, key=lambda name: (name != "connect", name)):
        value = getattr(plait, name)
        head = f"{name}{signature_of(value)}" if inspect.isfunction(value) else name
        parts += [f"## {name}", "", f"```text\n{head}\n```", "", inspect.getdoc(value) or "", ""]
        if isinstance(value, type) and issubclass(value, enum.Enum):
            parts += [f"- `{member.name}`" for member in value] + [""]
        elif isinstance(value, type) and not issubclass(value, Exception):
            parts += described(value)
    return "\n".join(parts).rstrip() + "\n"


@pytest.mark.parametrize(
    ("name", "page"),
    [("commands.md", commands_page), ("api.md", api_page)],
    ids=["commands", "api"],
)
def test_a_page_is_current(
    name: str, page: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    path = DOCS / name
    if request.config.getoption("--rewrite-samples"):
        path.write_text(page(), encoding="utf-8")

    assert path.read_text(encoding="utf-8") == page()


def test_what_is_exported_is_explained() -> None:
    for name in plait.__all__:
        assert inspect.getdoc(getattr(plait, name)), name


if __name__ == "__main__":
    sys.stdout.write(help_of_all())
