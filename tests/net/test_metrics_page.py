"""docs/metrics.md has every metric that a broker tells; `--rewrite-samples` writes it anew."""

from pathlib import Path
from typing import Final

import pytest

from tests.net.overlay import Overlay

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"


def page(exposition: str) -> str:
    """A row for each family of Prometheus' text format."""
    rows = ["| metric | type | meaning |", "| --- | --- | --- |"]
    meanings: dict[str, str] = {}
    for line in exposition.splitlines():
        match line.split(" ", 3):
            case ["#", "HELP", name, meaning]:
                meanings[name] = meaning
            case ["#", "TYPE", name, kind]:
                rows.append(f"| `{name}` | {kind} | {meanings[name]} |")
    intro = "`plait broker --metrics :9101` answers `http://127.0.0.1:9101/metrics` with these."
    return "\n".join(["# Metrics", "", intro, "", *rows]) + "\n"


async def test_the_page_of_metrics_is_current(
    overlay: Overlay, request: pytest.FixtureRequest
) -> None:
    await overlay.broker("b1")
    current = page((await overlay.get("b1", "/metrics")).partition("\r\n\r\n")[2])
    if request.config.getoption("--rewrite-samples"):
        PAGE.write_text(current, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == current
