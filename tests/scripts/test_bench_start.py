"""`plait bench start`: what is measured, and that it says so."""

import json

import pytest
from click.testing import CliRunner

from plait.scripts.bench.start import command

pytestmark = pytest.mark.processes


def test_the_start_of_an_overlay_is_measured_beside_that_of_python() -> None:
    result = CliRunner().invoke(command, ["--rounds", "1", "--json"])
    figures = json.loads(result.stdout)
    (python,), (overlay,) = figures["python_s"], figures["overlay_s"]

    assert 0 < python < overlay
    assert figures["overlay_to_python"] == pytest.approx(overlay / python)
    assert figures["overlay_to_python_per_core"] == pytest.approx(
        overlay / python / 15 * figures["cores"]
    )
