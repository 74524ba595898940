"""A group of subcommands that are modules, imported when they are asked for."""

import contextlib
import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

from plait.scripts.extras import needing


class CommandsByName(click.Group):
    """The module `<package>.<name>` holds the subcommand `name`, as `command`; - is _ there.

    `lines` has what `--help` says of each, so that help does not have to import them all.
    `extra` is what they may need beside what every installation has.
    """

    def __init__(
        self,
        *,
        package: str,
        lines: Mapping[str, str],
        extra: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self._package = package
        self._lines = lines
        self._extra = extra

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every subcommand, in the order in which people meet them."""
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in self._lines:
            return None
        with needing(self._extra) if self._extra else contextlib.nullcontext():
            module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a subcommand, or say which one may have been meant."""
        name = args[0]
        if name not in self._lines and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, self._lines, n=1)
            hint = (
                f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(self._lines)}."
            )
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))
