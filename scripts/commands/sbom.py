"""`plait sbom`: what this installation is made of, for those who have to keep track of that."""

import json
import re
from importlib import metadata
from typing import Any, Final

import attrs
import click

from plait.scripts.options import examples
from plait.scripts.tables import print_table

SPEC_VERSION: Final = "1.5"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CLASSIFIER: Final = "License :: OSI Approved :: "
UNKNOWN: Final = "unknown"


@attrs.frozen
class Component:
    """One installed package."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]
    """Those of what it asks for that are installed."""

    @property
    def purl(self) -> str:
        """What it is called in the whole world."""
        return f"pkg:pypi/{self.name}@{self.version}"


@click.command(epilog=examples("plait sbom > plait.cdx.json", "plait sbom --licences"))
@click.option("--licences", is_flag=True, help="Print a table of packages and their licences.")
def command(licences: bool) -> None:
    """Print what plait is made of, as CycloneDX JSON, read off what is installed.

    That is plait and all that it asks for, also for what is optional, as far as it is installed.
    """
    found = components_of("plait")
    if licences:
        print_table(
            ("package", "version", "licence"), [(c.name, c.version, c.licence) for c in found]
        )
    else:
        click.echo(json.dumps(bill_of(found), indent=2, ensure_ascii=False))


def components_of(root: str) -> list[Component]:
    """A package and all that it needs, itself first, the others by name."""
    found: dict[str, Component] = {}
    waiting = [root]
    while waiting:
        name = _normal(waiting.pop())
        if name in found:
            continue
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # optional, or for other machines
        needs = sorted({_normal(_named(each)) for each in installed.requires or ()} - {name})
        found[name] = Component(name, installed.version, _licence(installed), tuple(needs))
        waiting += needs
    there = [
        attrs.evolve(each, needs=tuple(need for need in each.needs if need in found))
        for each in found.values()
    ]
    return sorted(there, key=lambda each: (each.name != _normal(root), each.name))


def bill_of(components: list[Component]) -> dict[str, Any]:
    """A bill of materials of these, the first of which is made of the others."""
    purls = {each.name: each.purl for each in components}
    described = [_described(each) for each in components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": {**described[0], "type": "application"}},
        "components": described[1:],
        "dependencies": [
            {"ref": each.purl, "dependsOn": [purls[need] for need in each.needs]}
            for each in components
        ],
    }


def _described(component: Component) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "licenses": [{"license": {"name": component.licence}}],
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _named(requirement: str) -> str:
    """The package that a requirement is about."""
    found = _NAME.match(requirement)
    return found[0] if found else requirement


def _licence(installed: metadata.Distribution) -> str:
    """As the package says itself: in one of three places, the newest first."""

    def said(field: str) -> list[str]:
        return [text.strip() for text in installed.metadata.get_all(field) or []]

    classifiers = [c for c in said("Classifier") if c.startswith(_CLASSIFIER)]
    named = " and ".join(classifier.removeprefix(_CLASSIFIER) for classifier in classifiers)
    texts = [*said("License-Expression"), named, *said("License")]
    first_lines = (text.partition("\n")[0] for text in texts)
    return next(filter(None, first_lines), UNKNOWN)
