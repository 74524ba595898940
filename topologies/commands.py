"""The lines of a script: how each is read, and whether the script agrees with itself."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from plait.topologies.configuration import ProcessKind
from plait.topologies.content import read_content
from plait.topologies.declarations import Unclear
from plait.topologies.errors import Position, Problem, nearest
from plait.topologies.language import Line, Notice, NoticeKind, quoted
from plait.topologies.overlay import Overlay
from plait.topologies.script import (
    Advertise,
    AwaitStable,
    Command,
    Crash,
    Detect,
    Freeze,
    Phrase,
    ProcessCommand,
    PublishStream,
    Recover,
    Status,
    Subscribe,
    Topic,
    Unfreeze,
    Unsubscribe,
    Wait,
    Where,
)


def _subscriber(line: Line) -> Subscribe | Unsubscribe | Detect:
    at = line.here
    process = line.name("subscriber")
    verb = line.keyword("Subscribe", "Unsubscribe", "Detect")
    if verb == "Detect":
        return _detect(line, process, at)
    interest = _where(line) if line.peek().lower() == "where" else _topic(line)
    command = Subscribe if verb == "Subscribe" else Unsubscribe
    return command(process, interest, at=at)


def _detect(line: Line, process: str, at: Position) -> Detect:
    policy = line.keyword("contiguous", "next", "any")
    within = None
    if line.peek().lower() == "within":
        line.keyword("Within")
        within = line.whole_number("publications")
    beginning = line.here
    start = line.offset
    while line.peek().lower() != "where":
        line.word("a pattern, and WHERE with a filter for each letter")
    pattern = Phrase(line.text[start : line.offset].rstrip(), beginning)
    line.keyword("WHERE")
    where = [_letter(line)]
    while line.take(SEMICOLON):
        where.append(_letter(line))
    return Detect(process, policy, pattern, tuple(where), within, at=at)


LETTER: Final = re.compile(r"([^\W\d]\w*)\s*:")
SEMICOLON: Final = re.compile(";")
FILTER: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|(?!(?<!\S)//)[^;'"])+""")


def _letter(line: Line) -> tuple[str, Where]:
    letter = line.take(LETTER)
    if letter is None:
        raise line.wrong("a letter of the pattern, a colon and its filter")
    at = line.here
    text = line.take(FILTER)
    if text is None:
        raise line.wrong(f"a filter for {letter[1]}")
    return letter[1], Where(text[0].rstrip(), at)


def _topic(line: Line) -> Topic:
    return Topic(line.word("a topic"))


def _where(line: Line) -> Where:
    line.keyword("WHERE")
    at = line.here
    return Where(line.rest("a filter"), at)


def _publisher(line: Line) -> PublishStream | Advertise:
    at = line.here
    process = line.name("publisher")
    if line.keyword("Publish", "Advertise") == "Advertise":
        return Advertise(process, _where(line), at=at)
    count = line.whole_number("events")
    by_topic = line.keyword("Ontopic", "CONTENT") == "Ontopic"
    content = _topic(line) if by_topic else read_content(line)
    line.keyword("Interval")
    return PublishStream(process, count, content, line.whole_number("milliseconds"), at=at)


def _of_process(command: type[Crash | Recover | Freeze | Unfreeze]) -> Callable[[Line], Command]:
    def read(line: Line) -> Command:
        at = line.here
        return command(line.name("process"), at=at)

    return read


def _wait(line: Line) -> Wait:
    return Wait(line.whole_number("milliseconds"), at=line.start)


def _await(line: Line) -> AwaitStable:
    line.keyword("stable")
    return AwaitStable(at=line.start)


COMMANDS: Final[Mapping[str, Callable[[Line], Command]]] = {
    "Subscriber": _subscriber,
    "Publisher": _publisher,
    "Status": lambda line: Status(at=line.start),
    "Crash": _of_process(Crash),
    "Recover": _of_process(Recover),
    "Freeze": _of_process(Freeze),
    "Unfreeze": _of_process(Unfreeze),
    "Wait": _wait,
    "Await": _await,
}

# Whom a command can be given to; the commands not named here are for any process.
PERFORMERS: Final[Mapping[type[Command], ProcessKind]] = {
    Subscribe: ProcessKind.SUBSCRIBER,
    Unsubscribe: ProcessKind.SUBSCRIBER,
    Detect: ProcessKind.SUBSCRIBER,
    PublishStream: ProcessKind.PUBLISHER,
    Advertise: ProcessKind.PUBLISHER,
}


@attrs.frozen
class Kinds:
    """What each process is that has been declared, and where others may have been."""

    declared: Mapping[str, ProcessKind]
    unclear: Unclear = attrs.field(factory=Unclear)


def process_problem(command: Command, kinds: Kinds) -> Problem | None:
    """Return what is wrong with the process that a command names, given what each process is."""
    if not isinstance(command, ProcessCommand):
        return None
    process, performer = command.process, PERFORMERS.get(type(command))
    declared = kinds.declared
    if process not in declared:
        if process in kinds.unclear:
            return None
        able = [name for name, kind in declared.items() if performer in (None, kind)]
        expected = f"a {performer or 'process'} of the configuration"
        return Problem(command.at, quoted(process), expected, nearest(process, able))
    kind = declared[process]
    if performer not in (None, kind):
        return Problem(command.at, f"{kind} '{process}'", f"a {performer}")
    return None


def stray_stars(commands: Iterable[Command]) -> Iterator[Notice]:
    """Yield the topics with a star that is no wildcard, because of where it stands."""
    for command in commands:
        match command:
            case Subscribe(interest=Topic(name)) | Unsubscribe(interest=Topic(name)):
                stem, hint = name.removesuffix("/*"), f" ({_meant_by(name)})"
            case PublishStream(content=Topic(name)):
                stem, hint = name, ""
            case _:
                continue
        if "*" in stem:
            text = f"in {quoted(name)} the * stands for itself{hint}"
            yield Notice(NoticeKind.PLAIN_STAR, command.at, text)


def _meant_by(topic: str) -> str:
    prefix = topic.partition("*")[0].rstrip("/")
    return f"everything under a prefix is {quoted(f'{prefix}/*')}"


def contradictions(commands: Iterable[Command], overlay: Overlay | None) -> Iterator[Notice]:
    """Yield what the script asks for that its earlier commands have made pointless.

    It is executed all the same: to see what happens then is why such scripts are written.
    """
    crashed: set[str] = set()
    frozen: dict[str, Position] = {}
    subscribed: set[tuple[str, Topic | Where]] = set()
    for command in commands:
        if not isinstance(command, ProcessCommand):
            continue
        process, at = command.process, command.at
        match command:
            case Recover() if overlay is not None and process not in overlay.broker_processes:
                text = f"'{process}' is a client, and only brokers are started again"
                yield Notice(NoticeKind.NO_EFFECT, at, text)
            case Recover():
                if process not in crashed:
                    yield Notice(NoticeKind.NO_EFFECT, at, f"'{process}' has not crashed")
                crashed.discard(process)
            case _ if process in crashed:
                yield Notice(NoticeKind.CRASHED_PROCESS, at, f"'{process}' has crashed")
            case Crash():
                crashed.add(process)
                frozen.pop(process, None)
                if overlay is not None and crashed.issuperset(overlay.site_of(process).brokers):
                    left = f"site '{overlay.site_of(process).name}' is left without a broker"
                    yield Notice(NoticeKind.LAST_BROKER, at, left)
            case Freeze():
                if process in frozen:
                    yield Notice(NoticeKind.NO_EFFECT, at, f"'{process}' is frozen already")
                frozen.setdefault(process, at)
            case Unfreeze():
                if process not in frozen:
                    yield Notice(NoticeKind.NO_EFFECT, at, f"'{process}' is not frozen")
                frozen.pop(process, None)
            case Subscribe(interest=interest):
                subscribed.add((process, interest))
            case Unsubscribe(interest=interest):
                if (process, interest) not in subscribed:
                    text = f"'{process}' has no subscription to {interest}"
                    yield Notice(NoticeKind.NO_EFFECT, at, text)
                subscribed.discard((process, interest))
    for process, at in frozen.items():
        text = f"'{process}' is not unfrozen; at the end of the script it goes on"
        yield Notice(NoticeKind.STAYS_FROZEN, at, text)
