"""The directory of a run: where the history is, where the logs are, and where brokers listen."""

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from plait.faulttol.files import is_mistake, make_folder, replace_text
from plait.scripts.errors import BadInputError

LOG_FOLDER: Final = "logs"
PROCESSES_NAME: Final = "processes.json"
"""Name, address and process id of every broker, while the run goes on."""
STATE_FOLDER: Final = "state"
RUNS_FOLDER: Final = "runs"
"""Where runs are that are given no directory."""
RUN_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""It is part of paths and of commands, on other machines as well."""


def state_file(directory: Path, broker: str) -> Path:
    """Return where a broker keeps what it has to know again when it is started once more."""
    return directory / STATE_FOLDER / f"{broker}.json"


def checked_run_id(run_id: str) -> str:
    """Return the name of a run as a launcher hands it on; a broker may have none."""
    if run_id:
        _check_name(run_id, "--run-id")
    return run_id


def run_name(directory: Path) -> str:
    """Return what the run in a directory is called, however the directory was typed."""
    return Path(os.path.abspath(directory)).name  # `.` has no name, and a link has its own


def new_run_directory(out: Path | None, name: str) -> Path:
    """Make the directory of a new run: `out`, or one named after the run and the time."""
    with _refusing_mistakes():
        return _make_next(name) if out is None else _make(out)


def make_folder_for_runs(out: Path) -> None:
    """Make a folder that run directories are to be in; it may be there."""
    with _refusing_mistakes():
        _make_folder(out)


@contextlib.contextmanager
def _refusing_mistakes() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_mistake(error):
            raise
        raise BadInputError(
            f"{error.filename}: {error.strerror}; --out NEW_DIRECTORY is to name one that can be "
            "made, and written to"
        ) from error


def _make(directory: Path) -> Path:
    _check_name(run_name(directory), f"{directory}")
    _make_folder(directory)
    if any(directory.iterdir()):
        raise BadInputError(
            f"{directory} is not empty: a run needs a directory of its own (--out NEW_DIRECTORY)"
        )
    return directory


def _make_folder(directory: Path) -> None:
    if directory.parent == Path(RUNS_FOLDER):
        make_folder(directory.parent)  # which is ours
    make_folder(directory)


def _make_next(name: str) -> Path:
    """Make a directory that nobody else has made, not even in the same second."""
    _check_name(name, f"the run of {name!r}")
    make_folder(Path(RUNS_FOLDER))
    first = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        directory = Path(RUNS_FOLDER, first if number == 1 else f"{first}-{number}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory
    raise AssertionError("numbers do not end")


def _check_name(name: str, of: str) -> None:
    if RUN_NAME.fullmatch(name) is None:
        raise BadInputError(
            f"{of}: found {name!r} as the name of a run, expected letters from A to Z, digits and "
            ". _ - only (with --out NEW_DIRECTORY, that of the directory)"
        )


def write_processes(directory: Path, processes: Mapping[str, Mapping[str, object]]) -> None:
    """Note where the brokers of a run listen, for `plait status --run`."""
    text = json.dumps(processes, ensure_ascii=False, indent=2)
    replace_text(directory / PROCESSES_NAME, f"{text}\n")


def processes(directory: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of the brokers of a run: address, process id and site, by name."""
    try:
        text = (directory / PROCESSES_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(
            f"{directory} has no {PROCESSES_NAME}: the directory of a run that goes on expected"
        ) from None
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found
