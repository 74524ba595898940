"""Whatever becomes of a file, plait says where it is wrong, or loads it, and then runs it.

Mutations are drawn from a seed, so a failure is repeated by its number. `--slow` draws many.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from plait.faulttol.guarantees import Report
from plait.scripts.errors import ProblemsFoundError
from plait.scripts.runs import RunPlan, run_simulated
from plait.scripts.scenario import Scenario, load_scenario
from plait.topologies.files import samples
from plait.topologies.script import PublishStream, Wait
from tests.corpus import CORPUS

PROBLEM: Final = re.compile(r"[^:]+:[1-9][0-9]*:[1-9][0-9]*: found .+, expected .+")
GARBAGE: Final = (
    *(
        b"\0",
        b"\xff",
        b"\xc3",
        b"\xef\xbb\xbf",
        b"\r",
        b"\r\r\n",
        b"\t",
        b"\xc2\xa0",
        b"\xf0\x9f\x92\xa9",
    ),
    *(
        b"'",
        b'"',
        b"{",
        b"${n}",
        b"//",
        b"#",
        b"-",
        b"*",
        b"WHERE ",
        b"NOT (",
        b"[a,eq,",
        b"99999999999",
    ),
    *(b" None ", b"\nImport x\n", b"\nSite a Parent a\n", b"\nCrash b\n", b"/*", b"%s%n", b"|"),
)
RUN_WAITS_MS_MAX: Final = 60_000
RUN_PUBLICATIONS_MAX: Final = 300


def sources() -> list[bytes]:
    real = [path.read_bytes() for path in sorted(CORPUS.glob("*/**/*")) if path.is_file()]
    return [*(text.encode() for text in samples().values()), *real]


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Do to a file what keyboards, editors, transfers and merges do."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        lines = data.splitlines(keepends=True) or [b""]
        at, line = rng.randrange(len(data) + 1), rng.randrange(len(lines))
        match rng.randrange(10):
            case 0:
                data = data[:at] + data[at + rng.randrange(30) :]
            case 1:
                data = data[:at] + rng.choice(GARBAGE) + data[at:]
            case 2:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 3:
                data = b"".join(lines[:line] + lines[line + 1 :])
            case 4:
                lines.insert(rng.randrange(len(lines)), lines[line])
                data = b"".join(lines)
            case 5:
                rng.shuffle(lines)
                data = b"".join(lines)
            case 6:
                words = lines[line].split(b" ")
                rng.shuffle(words)
                data = b"".join([*lines[:line], b" ".join(words), *lines[line + 1 :]])
            case 7:
                data = data.swapcase() if rng.random() < 0.2 else data[:at]
            case 8:
                data += rng.choice(others)
            case 9:
                data = data.decode(errors="replace").encode("utf-16")
    return data


def seeds(count: int) -> Iterator[random.Random]:
    for seed in range(count):
        yield random.Random(seed)


def check_places(problems: str) -> None:
    for line in problems.splitlines():
        assert PROBLEM.fullmatch(line), line


def loads(paths: list[str]) -> Scenario | None:
    """Load a scenario, or make sure that what is said against it says where."""
    try:
        return load_scenario(paths[0], paths[-1], strict=False)
    except ProblemsFoundError as error:
        check_places(str(error))
        return None


def is_soon_over(scenario: Scenario) -> bool:
    commands = scenario.script.commands
    waits = sum(one.milliseconds for one in commands if isinstance(one, Wait))
    streams = [one for one in commands if isinstance(one, PublishStream)]
    lasting = sum(one.count * one.interval_ms for one in streams)
    published = sum(one.count for one in streams)
    return waits + lasting <= RUN_WAITS_MS_MAX and published <= RUN_PUBLICATIONS_MAX


def run(scenario: Scenario, directory: Path) -> Report | None:
    """Run what could be loaded; publishing outside of what is advertised shows only then."""
    directory.mkdir()
    plan = RunPlan(
        scenario=scenario,
        ordering=scenario.configuration.ordering.value,
        delta=1,
        seed=1,
        directory=directory,
        open_teller=lambda _: lambda _: None,
    )
    try:
        return run_simulated(plan)
    except ProblemsFoundError as error:
        check_places(str(error))
        return None


@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.slow)])
def test_any_file_is_refused_with_a_place_or_runs(count: int, tmp_path: Path) -> None:
    files = sources()
    loaded = ran = 0
    for number, rng in enumerate(seeds(count)):
        path = tmp_path / "x"
        path.write_bytes(mutated(rng.choice(files), files, rng))
        try:
            scenario = loads([str(path)])
            loaded += scenario is not None
            if scenario is not None and scenario.script.commands and is_soon_over(scenario):
                report = run(scenario, tmp_path / f"run-{number}")
                ran += 1
                assert report is None or report.is_clean, report.violations
        except Exception as error:
            error.add_note(f"mutation {number}: {path.read_bytes()!r}")
            raise

    assert loaded > count / 20
    assert ran > 0


@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.slow)])
def test_garbage_is_refused_with_a_place(count: int, tmp_path: Path) -> None:
    for rng in seeds(count):
        path = tmp_path / "x"
        path.write_bytes(rng.randbytes(rng.randrange(400)))

        assert loads([str(path)]) is None
