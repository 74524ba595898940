"""What `plait up` does with the lines it is given at its prompt."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import click

from scripts.console import Console
from scripts.errors import CommandError
from scripts.puppet_master import PuppetMaster
from scripts.scenario import Scenario, load_commands
from topologies.commands import COMMANDS
from topologies.configuration import ProcessKind, kinds_of
from topologies.overlay import Overlay
from topologies.script import Script

HELP: Final = """\
Commands, in any case; names are those of the configuration:
  Subscriber N Subscribe T               T is a topic; /a/* is everything under /a/
  Subscriber N Subscribe WHERE FILTER    by content, like WHERE price > 100
  Subscriber N Unsubscribe T             as it was subscribed
  Publisher N Publish K Ontopic T Interval MS
  Publisher N Advertise WHERE FILTER     what N is going to publish by content
  Publisher N Publish K CONTENT {"price": ${random(90,110)}, "n": ${n}} Interval MS
  Crash N        Recover N           kill -9; start again (brokers)
  Freeze N       Unfreeze N          stop in its tracks; go on with what has arrived
  Wait MS        Await stable        Status
  help           quit, or Ctrl-D"""

# What may follow a first word; None stands for the name of a process that it is for.
SECOND_WORDS: Final[Mapping[str, ProcessKind | str | None]] = {
    "subscriber": ProcessKind.SUBSCRIBER,
    "publisher": ProcessKind.PUBLISHER,
    **dict.fromkeys(("crash", "recover", "freeze", "unfreeze")),
    "await": "stable",
}
THIRD_WORDS: Final = {
    "subscriber": ("Subscribe", "Unsubscribe"),
    "publisher": ("Publish", "Advertise"),
}
LATER_WORDS: Final = ("WHERE", "Ontopic", "CONTENT", "Interval")


def completions(overlay: Overlay, before: Sequence[str], beginning: str) -> list[str]:
    """Return the words that begin like that and make sense behind those before."""
    first = before[0].lower() if before else ""
    match len(before):
        case 0:
            words: Iterable[str] = (*COMMANDS, "help", "quit")
        case 1:
            words = _second_words(overlay, first)
        case 2:
            words = THIRD_WORDS.get(first, ())
        case _:
            words = LATER_WORDS if first in THIRD_WORDS else ()
    return [word for word in words if word.lower().startswith(beginning.lower())]


def _second_words(overlay: Overlay, first: str) -> Iterable[str]:
    if first not in SECOND_WORDS:
        return ()
    match SECOND_WORDS[first]:
        case ProcessKind() as wanted:
            return [name for name, kind in kinds_of(overlay).items() if kind is wanted]
        case None:
            return overlay.processes
        case word:
            return (word,)


async def converse(master: PuppetMaster, scenario: Scenario, console: Console) -> None:
    """Execute line after line; whatever is wrong with one is said, and the next one is read."""
    with console.editing(partial(completions, scenario.configuration.overlay)):
        click.echo("Type a command, `help` or `quit`.")
        while (line := await console.read_line()) is not None:
            match line.strip().lower():
                case "quit" | "exit":
                    return
                case "help" | "?":
                    click.echo(HELP)
                case _:
                    await _execute(master, scenario, line)


async def _execute(master: PuppetMaster, scenario: Scenario, line: str) -> None:
    try:
        script: Script = load_commands(line, scenario.configuration)
        for command in script.commands:
            await master.execute(command)
    except CommandError as error:
        click.echo(str(error), err=True)
