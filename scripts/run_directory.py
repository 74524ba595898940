"""The directory of a run: where the history is, where the logs are, and where brokers listen."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.errors import BadInputError

LOG_FOLDER: Final = "logs"
PROCESSES_NAME: Final = "processes.json"
"""Name, address and process id of every broker, while the run goes on."""
STATE_FOLDER: Final = "state"


def state_file(directory: Path, broker: str) -> Path:
    """Return where a broker keeps what it has to know again when it is started once more."""
    return directory / STATE_FOLDER / f"{broker}.json"


def new_run_directory(out: Path | None, name: str) -> Path:
    """Make the directory of a new run: `out`, or one named after the run and the time."""
    directory = out or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if directory.exists() and any(directory.iterdir()):
        raise BadInputError(
            f"{directory} is not empty: a run needs a directory of its own (--out NEW_DIRECTORY)"
        )
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def write_processes(directory: Path, processes: Mapping[str, Mapping[str, object]]) -> None:
    """Note where the brokers of a run listen, for `plait status --run`."""
    text = json.dumps(processes, ensure_ascii=False, indent=2)
    (directory / PROCESSES_NAME).write_text(f"{text}\n", encoding="utf-8")


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
