"""`plait sbom`: a bill of materials of what is installed."""

import json

from click.testing import CliRunner

from plait.scripts.commands.sbom import components_of
from plait.scripts.main import cli

NEEDED = {"attrs", "click", "msgpack", "networkx", "trio"}


def test_the_bill_is_of_plait_and_all_that_it_needs() -> None:
    bill = json.loads(CliRunner().invoke(cli, ["sbom"]).output)

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == "plait"
    names = {component["name"] for component in bill["components"]}
    assert names >= NEEDED
    references = {component["bom-ref"] for component in bill["components"]}
    [own] = [d for d in bill["dependencies"] if d["ref"].startswith("pkg:pypi/plait@")]
    assert set(own["dependsOn"]) <= references


def test_every_component_says_its_licence() -> None:
    unknown = [each.name for each in components_of("plait") if each.licence == "unknown"]

    assert not set(unknown) & NEEDED


def test_licences_are_a_table() -> None:
    output = CliRunner().invoke(cli, ["sbom", "--licences"]).output

    assert output.startswith("package")
    assert any(line.split()[0] == "attrs" and "MIT" in line for line in output.splitlines())


def test_what_is_not_there_is_left_out() -> None:
    assert components_of("nothing-of-this-name") == []
