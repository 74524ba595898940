"""No test depends on the speed of the machine, and none leaves a process behind."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
HOMES = {"processes.py", "terminal.py", "test_outside.py"}
"""Where processes are started, and seen to their end; the last because of their odd streams."""


def offences(path: Path) -> Iterator[str]:
    """Yield every fixed limit, and every process that nobody ends."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            limits = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
            if name.endswith(("fail_after", "fail_at", ".wait", ".join", ".communicate")):
                limits += node.args
            if any(isinstance(limit, ast.Constant) and limit.value for limit in limits):
                yield f"{path.name}:{node.lineno}: {name} with a fixed limit, PATIENCE_S expected"
            if name in ("subprocess.Popen", "psutil.Popen", "subprocess.run") and (
                path.name not in HOMES
            ):
                yield f"{path.name}:{node.lineno}: {name}; tests/processes.py starts and ends it"


def test_nothing_but_a_hang_is_a_matter_of_time() -> None:
    found = [offence for path in sorted(ROOT.rglob("*.py")) for offence in offences(path)]

    assert found == []


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("process.wait(20)", 1),
        ("subprocess.run(command, timeout=20)", 2),
        ("trio.fail_after(5)", 1),
        ("subprocess.Popen(command)", 1),
        ("process.wait(PATIENCE_S)", 0),
        ("trio.move_on_after(0.1)", 0),
    ],
)
def test_an_offence_is_found(line: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(line)

    assert len([*offences(tmp_path / "test_x.py")]) == count
