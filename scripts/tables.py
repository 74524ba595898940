"""A table for people: with rich on a terminal, plain aligned columns in a pipe."""

import sys
from collections.abc import Sequence

import click

from scripts.terminal import is_terminal


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns of numbers to the right."""
    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [
        all(isinstance(cell, int | float) for cell in column[1:])
        for column in zip(columns, *rows, strict=True)
    ]
    if is_terminal(sys.stdout):
        _print_with_rich(lines, widths, is_number)
        return
    for line in lines:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        click.echo("  ".join(aligned).rstrip())


def _print_with_rich(
    lines: Sequence[Sequence[str]], widths: Sequence[int], is_number: Sequence[bool]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for column, right in zip(lines[0], is_number, strict=True):
        table.add_column(column, justify="right" if right else "left")
    for line in lines[1:]:
        table.add_row(*map(Text, line))  # text, not markup: a filter may hold brackets
    console = Console()
    # A terminal that breaks lines is easier to read than cells of three letters each.
    console.width = max(console.width, sum(widths) + 4 * len(widths))
    console.print(table)
