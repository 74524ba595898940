"""What a script says: commands, in the order in which they are executed."""

from typing import assert_never

import attrs

from plait.topologies.content import ContentTemplate
from plait.topologies.errors import Position
from plait.topologies.language import Notice

# Where a command stands that nobody has written down.
NOWHERE = Position("", 0, 0)


@attrs.frozen
class Topic:
    """Events by topic; `/a/*` is everything under `/a/`."""

    name: str

    def __str__(self) -> str:
        """Render as in a script."""
        return self.name


@attrs.frozen
class Where:
    """Events by content. The text is left to whoever knows filters; errors in it begin at `at`."""

    filter: str
    at: Position = attrs.field(default=NOWHERE, eq=False, repr=False)

    def __str__(self) -> str:
        """Render as in a script."""
        return f"WHERE {self.filter}"


@attrs.frozen
class _Command:
    """What all commands have: where they stand, or where the process stands that they name."""

    at: Position = attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


@attrs.frozen
class _ProcessCommand(_Command):
    """What most commands have: the process they are for."""

    process: str


@attrs.frozen
class Subscribe(_ProcessCommand):
    """A subscriber wants events."""

    interest: Topic | Where


@attrs.frozen
class Unsubscribe(_ProcessCommand):
    """A subscriber does not want them any longer."""

    interest: Topic | Where


@attrs.frozen
class Phrase:
    """Text that is left to whoever knows its language; errors in it begin at `at`."""

    text: str
    at: Position = attrs.field(default=NOWHERE, eq=False, repr=False)

    def __str__(self) -> str:
        """Render as in a script."""
        return self.text


@attrs.frozen
class Detect(_ProcessCommand):
    """A subscriber looks for a pattern."""

    policy: str
    pattern: Phrase
    where: tuple[tuple[str, Where], ...]
    """Letters, and the filters that they stand for."""
    within: int | None = None


@attrs.frozen
class Advertise(_ProcessCommand):
    """A publisher says what it is going to publish."""

    where: Where


@attrs.frozen
class PublishStream(_ProcessCommand):
    """A publisher publishes `count` events, so far apart; the script does not wait for them."""

    count: int
    content: Topic | ContentTemplate
    interval_ms: int


@attrs.frozen
class Crash(_ProcessCommand):
    """A process is killed."""


@attrs.frozen
class Recover(_ProcessCommand):
    """A crashed process is started again."""


@attrs.frozen
class Freeze(_ProcessCommand):
    """A process stops processing."""


@attrs.frozen
class Unfreeze(_ProcessCommand):
    """A frozen process goes on with what has arrived."""


@attrs.frozen
class Status(_Command):
    """Every node reports."""


@attrs.frozen
class Wait(_Command):
    """The script pauses."""

    milliseconds: int


@attrs.frozen
class AwaitStable(_Command):
    """The script pauses until nothing is in flight."""


ProcessCommand = (
    Subscribe
    | Unsubscribe
    | Detect
    | Advertise
    | PublishStream
    | Crash
    | Recover
    | Freeze
    | Unfreeze
)
Command = ProcessCommand | Status | Wait | AwaitStable


@attrs.frozen
class Script:
    """Commands in order, and what is odd about them."""

    commands: tuple[Command, ...]
    warnings: tuple[Notice, ...] = attrs.field(default=(), eq=False)


def format_command(command: Command) -> str:
    """Return the canonical text of a command."""
    match command:
        case Subscribe(process, interest):
            return f"Subscriber {process} Subscribe {interest}"
        case Unsubscribe(process, interest):
            return f"Subscriber {process} Unsubscribe {interest}"
        case Detect(process, policy, pattern, where, within):
            span = "" if within is None else f"Within {within} "
            filters = "; ".join(f"{letter}: {each.filter}" for letter, each in where)
            return f"Subscriber {process} Detect {policy} {span}{pattern} WHERE {filters}"
        case Advertise(process, where):
            return f"Publisher {process} Advertise {where}"
        case PublishStream(process, count, content, interval_ms):
            what = "Ontopic" if isinstance(content, Topic) else "CONTENT"
            return f"Publisher {process} Publish {count} {what} {content} Interval {interval_ms}"
        case Crash(process) | Recover(process) | Freeze(process) | Unfreeze(process):
            return f"{type(command).__name__} {process}"
        case Status():
            return "Status"
        case Wait(milliseconds):
            return f"Wait {milliseconds}"
        case AwaitStable():
            return "Await stable"
    assert_never(command)


def format_script(script: Script) -> str:
    """Return the canonical text of a script."""
    return "".join(f"{format_command(command)}\n" for command in script.commands)
