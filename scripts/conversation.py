"""What `plait up` does with the lines it is given at its prompt."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import click
import trio

from plait.scripts.console import CTRL_C, Console
from plait.scripts.errors import CommandError
from plait.scripts.puppet_master import PuppetMaster
from plait.scripts.scenario import Scenario, load_commands
from plait.topologies.commands import COMMANDS
from plait.topologies.configuration import ProcessKind, kinds_of
from plait.topologies.overlay import Overlay
from plait.topologies.script import Script

HELP: Final = """\
Commands, in any case; names are those of the configuration:
  Subscriber N Subscribe T               T is a topic; /a/* is everything under /a/
  Subscriber N Subscribe WHERE FILTER    by content, like WHERE price > 100
  Subscriber N Unsubscribe T             as it was subscribed
  Subscriber N Detect next A -> B WHERE A: FILTER; B: FILTER
                                         a pattern; contiguous, next or any
  Publisher N Publish K Ontopic T Interval MS
  Publisher N Advertise WHERE FILTER     what N is going to publish by content
  Publisher N Publish K CONTENT {"price": ${random(90,110)}, "n": ${n}} Interval MS
  Crash N        Recover N           kill -9; start again (brokers)
  Freeze N       Unfreeze N          stop in its tracks; go on with what has arrived
  Wait MS        Await stable        Status
  help           quit, or Ctrl-D
Ctrl-C gives up a line, or a command that takes long; twice, it is quit."""

# What may follow a first word; None stands for the name of a process that it is for.
SECOND_WORDS: Final[Mapping[str, ProcessKind | str | None]] = {
    "subscriber": ProcessKind.SUBSCRIBER,
    "publisher": ProcessKind.PUBLISHER,
    **dict.fromkeys(("crash", "recover", "freeze", "unfreeze")),
    "await": "stable",
}
THIRD_WORDS: Final = {
    "subscriber": ("Subscribe", "Unsubscribe", "Detect"),
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


async def converse(master: PuppetMaster, scenario: Scenario, console: Console) -> int:
    """Execute the script, then line after line, until the person quits.

    Whatever is wrong with a line is said, and the next one is read; the number of such lines is
    returned. Ctrl-C ends what is being executed, or the line; a second one in a row ends the
    conversation.
    """
    mistakes = 0

    async def execute(line: str) -> None:
        nonlocal mistakes
        mistakes += not await _execute(master, scenario, line)

    with (
        console.editing(partial(completions, scenario.configuration.overlay)),
        trio.open_signal_receiver(signal.SIGINT) as signals,
    ):
        is_done = await _comes_to_its_end(
            partial(master.begin, scenario.script.commands), unless=signals
        )
        interrupts = 0 if is_done else 1
        click.echo("Type a command, `help` or `quit`.")
        while interrupts < 2:
            line = await _read_line(console, signals)
            if line is None or line.strip().lower() in ("quit", "exit"):
                break
            if line.endswith(CTRL_C):
                interrupts += 1
            else:
                is_done = await _comes_to_its_end(partial(execute, line), unless=signals)
                interrupts = 0 if is_done else 1
            if interrupts == 1:
                click.echo("Once more, or Ctrl-D, ends the session.")
    if console.is_terminal:
        click.echo("Waits until everything is stable; Ctrl-C stops all, without a verdict.")
    return mistakes


async def _read_line(console: Console, signals: AsyncIterator[int]) -> str | None:
    """Return the next line; `None` if there are no more, or a signal came first.

    A signal that comes when the line is there already, and nothing has been done about it, gives it
    up, as Ctrl-C within it would have.
    """
    line = None

    async def read() -> None:
        nonlocal line
        line = await console.read_line()

    is_done = await _comes_to_its_end(read, unless=signals)
    return line if is_done or line is None else f"{line}{CTRL_C}"


async def _comes_to_its_end(
    work: Callable[[], Awaitable[None]], *, unless: AsyncIterator[int]
) -> bool:
    """Do some work, and give it up when a signal comes; return whether none did."""
    is_interrupted = False
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            nonlocal is_interrupted
            await anext(unless)
            is_interrupted = True
            nursery.cancel_scope.cancel()

        nursery.start_soon(listen)
        await work()
        nursery.cancel_scope.cancel()
    return not is_interrupted


async def _execute(master: PuppetMaster, scenario: Scenario, line: str) -> bool:
    """Do what a line says, or say what is wrong with it; returns whether nothing is."""
    if line.strip().lower() in ("help", "?"):
        click.echo(HELP)
        return True
    try:
        script: Script = load_commands(line, scenario.configuration)
        for command in script.commands:
            await master.execute(command)
    except CommandError as error:
        click.echo(str(error), err=True)
        return False
    return True
