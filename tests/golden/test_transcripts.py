"""What is said in ten stories is what was said when somebody read it last.

`pytest tests/golden --rewrite-golden` writes down what is said now; read the difference.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.golden.stories import STORIES, told
from tests.processes import finished

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", STORIES)
def test_a_story_goes_as_it_is_written(name: str, request: pytest.FixtureRequest) -> None:
    text, troubles = told(name)
    path = HERE / f"{name}.txt"
    if request.config.getoption("--rewrite-golden"):
        path.write_text(text, encoding="utf-8")

    assert troubles == []
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_every_transcript_is_of_a_story_and_can_be_read_at_once() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in HERE.glob("*.txt")}

    assert lengths.keys() == STORIES.keys()
    assert max(lengths.values()) < 150


def test_no_story_depends_on_hashes() -> None:
    program = (
        "from tests.golden.stories import STORIES, told; print(*[told(s)[0] for s in STORIES])"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = finished([sys.executable, "-c", program], env=environment)

    assert (run.stdout, run.stderr) == (" ".join(told(name)[0] for name in STORIES) + "\n", "")
