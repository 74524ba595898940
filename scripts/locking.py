"""Writes the locks: which version of each package is installed, and the hashes of its files.

`scripts/lock` calls it. What pip would install by the bounds of pyproject.toml, on the oldest
Python that plait runs on, is what all of them get; the hashes are those of all files of these
versions, for every Python and every machine, as the package index has them.
"""

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

LOCKS: Final = "locks"
BUILD: Final = "build"
"""What builds plait, and packages that come as source: it has to be there first."""
INDEX: Final = "https://pypi.org/simple"
FETCH_TIMEOUT_S: Final = 60.0
HEADER: Final = """\
# Made by scripts/lock from pyproject.toml: not to be edited. Versions, and hashes of their files.
"""


@attrs.frozen(order=True)
class Pin:
    """One package."""

    name: str
    version: str


def pins_in(report: dict[str, Any], without: Iterable[str] = ()) -> list[Pin]:
    """What pip says that it would install, by name."""
    found = [each["metadata"] for each in report["install"]]
    left_out = {"plait", *without}
    pins = [Pin(_normal(each["name"]), each["version"]) for each in found]
    return sorted(pin for pin in pins if pin.name not in left_out)


def files_in(page: str) -> dict[str, str]:
    """The hashes of the files that an index lists on the page of a package (PEP 503), by name."""
    links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page)
    return {urllib.parse.unquote(link.rpartition("/")[2]): digest for link, digest in links}


def hashes_of(pin: Pin, files: Mapping[str, str]) -> list[str]:
    """The hashes of all files of a version, of those that the index has of the package."""
    stems = {f"{name}-{pin.version}" for name in _spellings(pin.name)}
    found = {
        digest
        for file, digest in files.items()
        if any(_is_of(file.lower(), stem.lower()) for stem in stems)
    }
    if not found:
        raise LookupError(f"{pin.name} {pin.version} is not in the index")
    return sorted(found)


def lock_of(pins: Iterable[Pin], files_of: Callable[[str], Mapping[str, str]]) -> str:
    """The text of a lock, as `pip --require-hashes` reads it."""
    lines = [HEADER]
    for pin in pins:
        hashes = hashes_of(pin, files_of(pin.name))
        entries = [f"{pin.name}=={pin.version}", *(f"    --hash=sha256:{each}" for each in hashes)]
        lines.append(" \\\n".join(entries) + "\n")
    return "".join(lines)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _spellings(name: str) -> set[str]:
    """As file names have it."""
    return {name, name.replace("-", "_"), name.replace("-", ".")}


def _is_of(file: str, stem: str) -> bool:
    return file.startswith((f"{stem}-", f"{stem}.tar", f"{stem}.zip"))


def _report(root: Path, *wanted: str) -> dict[str, Any]:
    """Ask pip what it would install."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--dry-run"]
    asked = subprocess.run(  # noqa: S603 - our own interpreter
        [*pip, "--ignore-installed", "--report", "-", *wanted],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    )
    report: dict[str, Any] = json.loads(asked.stdout)
    return report


def _files_of(name: str) -> Mapping[str, str]:
    """What the index has of a package."""
    page = urllib.request.Request(  # noqa: S310 - a constant https address
        f"{INDEX}/{name}/", headers={"Accept": "text/html"}
    )
    with urllib.request.urlopen(page, timeout=FETCH_TIMEOUT_S) as answer:  # noqa: S310
        return files_in(answer.read().decode())


def main() -> None:
    """Write all locks of the project that this is a part of."""
    root = Path(__file__).resolve().parent.parent
    build = pins_in(_report(root, "setuptools"))
    written = {
        BUILD: build,
        "plait": pins_in(_report(root, ".")),
        "dev": pins_in(_report(root, ".[dev]"), without=[pin.name for pin in build]),
    }
    for name, pins in written.items():
        text = lock_of(pins, _files_of)
        (root / LOCKS / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{LOCKS}/{name}.txt: {len(pins)} packages")


if __name__ == "__main__":
    main()
