"""docs/decisions.md sends its readers to places that are there."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
ROWS: Final = re.findall(
    r"^\| (.+?) \| `(.+?)` \| `(.+?)` \|$",
    (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8"),
    re.M,
)


def names_of(tree: ast.AST, prefix: str = "") -> set[str]:
    """Every class, function and method that is defined there, methods behind their class."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found |= {prefix + node.name, *names_of(node, f"{prefix}{node.name}.")}
    return found


def test_there_are_twenty() -> None:
    assert len(ROWS) == 20


@pytest.mark.parametrize(("decision", "file", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_a_decision_is_made_where_the_page_says(decision: str, file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))

    assert name in names_of(tree), decision
