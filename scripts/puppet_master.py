"""Performs a script on a stage: what each command means, whatever the stage is made of."""

import random
from collections.abc import Iterable, Iterator
from typing import assert_never

from plait.broker.event_lines import describe
from plait.routing.filter_text import topic_filter
from plait.routing.filters import Filter
from plait.routing.values import Content
from plait.scripts.errors import ProblemsFoundError
from plait.scripts.happenings import CommandBegun, PassedOver, Stable, StatusTaken, Tell, Unsettled
from plait.scripts.scenario import detection_of, filter_of
from plait.scripts.stage import Stage
from plait.topologies.content import render
from plait.topologies.errors import Problem
from plait.topologies.overlay import Overlay
from plait.topologies.script import (
    Advertise,
    AwaitStable,
    Command,
    Crash,
    Detect,
    Freeze,
    ProcessCommand,
    PublishStream,
    Recover,
    Status,
    Subscribe,
    Topic,
    Unfreeze,
    Unsubscribe,
    Wait,
)


class PuppetMaster:
    """Executes commands one after the other; streams of publications go on meanwhile."""

    def __init__(self, stage: Stage, overlay: Overlay, *, seed: int, tell: Tell) -> None:
        """Move what is on the stage, on which this overlay is."""
        self._stage = stage
        self._seed = seed
        self._tell = tell
        self._overlay = overlay
        self._advertised: dict[str, list[Filter]] = {}
        self._streams = 0
        self._last_told: Stable | Unsettled | None = None

    async def perform(self, commands: Iterable[Command]) -> None:
        """Execute all commands, then wait until nothing is in flight."""
        await self.begin(commands)
        await self.finish()

    async def begin(self, commands: Iterable[Command]) -> None:
        """Execute all commands.

        What they publish on topics is advertised before the first of them: the confirmation may
        have to come from a process that one of them freezes.
        """
        commands = tuple(commands)
        for publisher, topic in _topics_to_advertise(commands):
            await self._advertise(publisher, topic)
        for command in commands:
            await self.execute(command)

    async def finish(self) -> None:
        """Let go on what is still frozen, and wait until nothing is in flight."""
        for process in list(self._stage.faults.frozen):
            await self.execute(Unfreeze(process))
        await self._settle()

    async def execute(self, command: Command) -> None:
        """Execute one command; it has taken effect when this returns."""
        obstacle = self._obstacle(command)
        if obstacle:
            self._tell(PassedOver(command, obstacle))
            return
        self._tell(CommandBegun(command))
        match command:
            case Subscribe(process, interest):
                await self._stage.subscribe(process, filter_of(interest).sql)
            case Unsubscribe(process, interest):
                await self._stage.unsubscribe(process, filter_of(interest).sql)
            case Detect(process):
                await self._stage.detect(process, detection_of(command))
            case Advertise(process, where):
                await self._advertise(process, filter_of(where))
            case PublishStream():
                await self._publish(command)
            case Crash(process):
                await self._stage.crash(process)
            case Recover(process):
                await self._stage.recover(process)
            case Freeze(process):
                await self._stage.freeze(process)
            case Unfreeze(process):
                await self._stage.unfreeze(process)
            case Wait(milliseconds):
                await self._stage.pass_time(milliseconds / 1000)
            case AwaitStable():
                await self._settle()
            case Status():
                self._tell(StatusTaken(await self._stage.status()))
            case _:
                assert_never(command)

    def _obstacle(self, command: Command) -> str:
        """Say why a command cannot be executed as things are; empty if it can."""
        if not isinstance(command, ProcessCommand):
            return ""
        process, faults = command.process, self._stage.faults
        match command:
            case Recover() if process not in self._overlay.broker_processes:
                return f"{process} is a client, and only brokers are started again"
            case Recover():
                return "" if process in faults.crashed else f"{process} has not crashed"
            case _ if process in faults.crashed:
                return f"{process} has crashed"
            case Freeze():
                return f"{process} is frozen already" if process in faults.frozen else ""
            case Unfreeze():
                return "" if process in faults.frozen else f"{process} is not frozen"
        return ""

    async def _settle(self) -> None:
        stable = await self._stage.settle()
        if stable != self._last_told:
            self._last_told = stable
            self._tell(stable)

    async def _advertise(self, publisher: str, filter_: Filter) -> None:
        await self._stage.advertise(publisher, filter_.sql)
        self._advertised.setdefault(publisher, []).append(filter_)

    async def _publish(self, command: PublishStream) -> None:
        topic = command.content
        # Whoever publishes on a topic does not have to say so twice.
        if isinstance(topic, Topic) and not self._is_advertised(
            command.process, {"topic": topic.name}
        ):
            await self._advertise(command.process, topic_filter(topic.name))
        await self._stage.begin_stream(
            command.process, self._contents(command), command.interval_ms / 1000
        )

    def _contents(self, command: PublishStream) -> Iterator[Content]:
        self._streams += 1
        # Of each stream its own, so that they stay the same when another one is added.
        rng = random.Random(f"{self._seed} {self._streams}")
        for n in range(1, command.count + 1):
            match command.content:
                case Topic(name):
                    content: Content = {"topic": name}
                case template:
                    content = render(template, n, rng)
            if not self._is_advertised(command.process, content):
                raise ProblemsFoundError.of([_not_advertised(command, content)])
            yield content

    def _is_advertised(self, publisher: str, content: Content) -> bool:
        return any(filter_.matches(content) for filter_ in self._advertised.get(publisher, ()))


def _topics_to_advertise(commands: Iterable[Command]) -> Iterator[tuple[str, Filter]]:
    """Yield who publishes on which topic without having said so before."""
    advertised: dict[str, list[Filter]] = {}
    for command in commands:
        match command:
            case Advertise(process, where):
                advertised.setdefault(process, []).append(filter_of(where))
            case PublishStream(process, content=Topic(name)):
                own = advertised.setdefault(process, [])
                if not any(filter_.matches({"topic": name}) for filter_ in own):
                    own.append(topic_filter(name))
                    yield process, own[-1]


def _not_advertised(command: PublishStream, content: Content) -> Problem:
    return Problem(
        command.at,
        f"a publication of {command.process} outside what it has advertised: {describe(content)}",
        f"a line like 'Publisher {command.process} Advertise WHERE ...' before it",
    )
