"""A table for people: aligned columns, which break up on a screen that is too narrow for them."""

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import click

from plait.scripts.terminal import is_terminal, width

GAP: Final = 2
WORDS_MIN: Final = 24
"""Narrower than this, text is harder to read in a column than on broken lines."""


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, named_by: int = 0
) -> None:
    """Print a table; columns of numbers to the right.

    On a terminal that is too narrow, the last column is wrapped if it is text; or, if the first
    `named_by` columns name the row, the table is continued below with those and what is left.
    """
    are_numbers = [
        all(isinstance(cell, int | float) for cell in cells) for cells in zip(*rows, strict=True)
    ] or [False] * len(columns)
    lines = [[*columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    screen = width() if is_terminal(sys.stdout) else sys.maxsize
    for number, part in enumerate(_parts(widths, screen, named_by)):
        if number:
            click.echo()
        _print_part(lines, part, widths, are_numbers, screen)


def natural(text: str) -> list[tuple[bool, int, str]]:
    """Return what sorts b2 before b10."""
    return [
        (word.isdecimal(), int(word) if word.isdecimal() else 0, word)
        for word in re.split(r"([0-9]+)", text)
    ]


def _parts(widths: Sequence[int], screen: int, named_by: int) -> Iterator[list[int]]:
    """Yield the columns that fit beside one another, each time behind those that name a row."""
    name = [*range(named_by)]
    part = [*name]
    for column in range(named_by, len(widths)):
        if named_by and part != name and _total(widths, [*part, column]) > screen:
            yield part
            part = [*name]
        part.append(column)
    yield part


def _total(widths: Sequence[int], part: Sequence[int]) -> int:
    return sum(widths[column] + GAP for column in part) - GAP


def _print_part(
    lines: Sequence[Sequence[str]],
    part: Sequence[int],
    widths: Sequence[int],
    are_numbers: Sequence[bool],
    screen: int,
) -> None:
    indent = _total(widths, part) - widths[part[-1]]
    is_wrapped = not are_numbers[part[-1]] and WORDS_MIN <= screen - indent < widths[part[-1]]
    for number, line in enumerate(lines):
        *cells, last = (
            line[column].rjust(widths[column])
            if are_numbers[column]
            else line[column].ljust(widths[column])
            for column in part
        )
        if is_wrapped:
            last = textwrap.fill(last, screen - indent).replace("\n", "\n" + " " * indent)
        text = (" " * GAP).join([*cells, last]).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 and screen < sys.maxsize else text)
