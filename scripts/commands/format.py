"""`plait format`: a configuration or script in its canonical form."""

import click

from plait.scripts.errors import ProblemsFoundError
from plait.scripts.options import examples
from plait.topologies.configuration import format_configuration
from plait.topologies.errors import ScriptError
from plait.topologies.reading import read_file
from plait.topologies.script import format_script


@click.command(
    epilog=examples(
        "plait format x.conf",
        "plait format theirs.txt > ours.txt",
    )
)
@click.argument("file")
def command(file: str) -> None:
    """Print what FILE says in canonical form: one spelling, one order, one blank between words.

    FILE is a configuration, a script or both in one; what it imports becomes part of it. Two files
    that say the same have the same canonical form, and that form is its own. It has no comments:
    they belong to the text, not to what it says. Lines that are not executed are warnings.
    """
    try:
        configuration, script = read_file(file)
    except ScriptError as error:
        raise ProblemsFoundError(str(error)) from error
    for notice in (*(configuration.warnings if configuration else ()), *script.warnings):
        click.echo(f"warning: {notice}", err=True)
    parts = [
        *([format_configuration(configuration)] if configuration else []),
        *([format_script(script)] if script.commands else []),
    ]
    click.echo("\n".join(parts), nl=False)
