"""docs/commands.md is what `--help` says; `--rewrite-samples` writes it anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from plait.scripts.main import cli

PAGE: Final = Path(__file__).parent.parent / "docs" / "commands.md"
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


def page() -> str:
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


def test_the_page_of_commands_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-samples"):
        PAGE.write_text(page(), encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == page()
