"""Every example in a docstring of the client library runs as it stands."""

import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import trio

import plait
import plait.broker.net
from tests.net.overlay import Overlay


def examples_of(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Blocks that are indented after two colons, and use the library."""
    members: list[Any] = [module, *(m for _, m in inspect.getmembers(module) if inspect.isclass(m))]
    for member in members:
        for part in (inspect.getdoc(member) or "").split("::\n\n")[1:]:
            lines = []
            for line in part.splitlines():
                if line and not line.startswith("    "):
                    break
                lines.append(line)
            code = textwrap.dedent("\n".join(lines)).strip()
            if "connect(" in code:
                yield member.__name__, code


EXAMPLES = [
    pytest.param(code, id=name)
    for info in pkgutil.iter_modules(plait.broker.net.__path__, "plait.broker.net.")
    for name, code in examples_of(importlib.import_module(info.name))
]


@pytest.mark.parametrize("code", EXAMPLES)
async def test_an_example_runs(
    code: str, overlay: Overlay, capsys: pytest.CaptureFixture[str]
) -> None:
    address = await overlay.broker("b1")
    names: dict[str, Any] = {name: getattr(plait, name) for name in plait.__all__} | {"trio": trio}
    code = code.replace("127.0.0.1:5000", address)
    exec("async def example():\n" + textwrap.indent(code, "    "), names)

    await names["example"]()

    assert capsys.readouterr().out == "alice 1 101.5 b'details'\n"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 1
